"""Replay of scripts and Dockerfiles in a sandbox: each change of the package, and each step that is not one."""

__all__ = [
    "dockerfile",
    "limits",
    "outcomes",
    "package",
    "scripts",
]
