"""One file a verb: it parses, makes one call into the core, and prints."""
