"""Patches that the recipes of packagers apply, in the order and with the options of their tools.

Recipes are read, not run. Patches whose use depends on more than the recipe are reported.
"""

__all__ = [
    "entries",
    "recipe",
]
