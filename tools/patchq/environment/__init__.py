"""A machine and a Python environment: what it has, and whether it runs the patched build."""

__all__ = ["doctor", "machine", "probe", "ptx", "toolkits", "verify"]
