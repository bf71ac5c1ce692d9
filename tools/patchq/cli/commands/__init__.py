"""Commands. Each module parses the options of a command, calls one function of the core and prints the result."""
