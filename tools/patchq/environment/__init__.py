"""A machine and a Python environment: what it has, and whether it runs the patched build."""

__all__ = [
    "compiled",
    "differences",
    "doctor",
    "image",
    "inspect_image",
    "installed",
    "machine",
    "probe",
    "ptx",
    "signatures",
    "startup",
    "toolkits",
    "verify",
]
