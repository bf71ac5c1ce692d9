"""Readers for packagers' recipes: which patches a recipe applies, in which order and with which options.

Recipes are read, not run. If the recipe alone doesn't determine whether a patch is applied, the patch is
reported.
"""

__all__ = [
    "entries",
    "recipe",
]
