"""Operations on the store: pinning, fetching, repair, and bundles for machines without a network."""

__all__ = ["bundle", "pinning"]
