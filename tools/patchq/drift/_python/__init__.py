"""Python definitions of two versions: their facts, and the changes that concern a patch."""
