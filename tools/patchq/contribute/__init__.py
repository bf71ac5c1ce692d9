"""Contributions to upstream: select, test, propose and send patches."""

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
