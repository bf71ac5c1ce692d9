"""Patches that the recipes of packagers apply, in the order and with the options of their tools.

Recipes are read, not run. A patch whose use depends on something outside the recipe is named.
"""

__all__ = [
    "entries",
    "recipe",
]
