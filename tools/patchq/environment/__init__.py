"""A machine and a Python environment: what it has, and whether it runs the patched build."""

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
