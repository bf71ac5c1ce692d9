"""Thin wheels: wheels that contain only the patched files, and use the unchanged wheel of the release for the rest.

A thin wheel contains four modules, which import only the standard library and work without patchq:

- ``_start`` (as its ``__init__``) runs whenever Python starts, also in child processes.
- ``_serve`` loads the patched modules.
- ``_base`` compares the installed release with the release for which the wheel was made.
- ``_place`` (as its ``__main__``) is a command that writes the patched files over the release.
"""

__all__ = ["build"]
