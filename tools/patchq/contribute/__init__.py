"""A patch leaves for its upstream: selected, tried, proposed, sent."""

__all__ = [
    "bugreport",
    "dossier",
    "duplicates",
    "follow",
    "gates",
    "proposal",
    "propose",
    "publish",
    "submit",
]
