"""Checks of this machine, and checks that environments and images run the patched build."""

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
