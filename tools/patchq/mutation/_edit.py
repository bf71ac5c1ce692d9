"""Edit of a file's bytes, proposed by a mutation operator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replacement of a file's bytes from ``start`` to ``end`` by ``new``.

    :ivar operator: name of the mutation, such as ``condition negated``.
    """

    start: int
    end: int
    new: bytes
    operator: str
