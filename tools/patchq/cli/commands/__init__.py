"""Commands. Each module parses its options, makes one call of the core and prints the result."""
