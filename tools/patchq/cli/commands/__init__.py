"""Verbs. Each module parses the arguments, calls the core once and prints."""
