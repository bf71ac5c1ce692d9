"""Edits that concern several patches: split a patch in two, or fold edits into the patches that own their lines."""

__all__ = ["fold", "split", "update"]
