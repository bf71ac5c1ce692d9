"""Signatures of another package's functions, and the calls of them in a source file."""
