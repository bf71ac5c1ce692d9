"""Edits that concern several patches: split a patch in two, or fold edits into the patches of the edited lines."""

__all__ = ["fold", "split", "update"]
