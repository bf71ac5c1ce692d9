"""Checks of this machine, and of environments and images that should run the patched build."""

__all__ = [
    "differences",
    "doctor",
    "image",
    "inspect_image",
    "installed",
    "machine",
    "ptx",
    "signatures",
    "toolkits",
    "verify",
]
