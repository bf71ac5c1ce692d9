"""Upstreams brought into the store, kept whole, and packed for a site without a network."""

__all__ = ["bundle", "pinning"]
