"""Python definitions of two versions: their facts, and what changed for a patch."""
