"""patchq keeps a fork as a pinned upstream plus an ordered stack of patches."""

__version__ = "0.1.0"
