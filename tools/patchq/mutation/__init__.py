"""Mutation tests of proofs: change a patch's lines in small ways, and run its proof each time."""

__all__ = ["known", "strength"]
