"""Replay of scripts and Dockerfiles in a sandbox, with the outcome of each step."""

__all__ = [
    "dockerfile",
    "limits",
    "outcomes",
    "package",
    "scripts",
]
