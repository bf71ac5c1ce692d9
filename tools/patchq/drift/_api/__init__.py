"""Signatures of a package's functions, and calls of these functions from other packages."""
