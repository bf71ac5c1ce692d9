"""How strong a proof is: small ways to break a patch's own lines, and whether its proof sees each."""

__all__ = ["known", "strength"]
