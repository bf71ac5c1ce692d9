"""Comparison of Python definitions between two versions: facts about them, and changes that affect a patch."""
