"""Thin wheels: the patched files alone, for the unchanged wheel of the release.

A thin wheel contains the modules ``_start`` (as its ``__init__``), ``_base``, ``_serve`` and
``_place`` (as its ``__main__``). They need the standard library only, and know patchq not at all.
"""

__all__ = ["build"]
