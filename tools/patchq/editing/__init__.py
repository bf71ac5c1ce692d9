"""Edits across patches: patches split in two, and edits folded into the patches that own their lines."""

__all__ = ["fold", "split", "update"]
