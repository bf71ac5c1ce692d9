"""TOML to data: the only importer of a TOML reader."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def loads(data: bytes) -> dict[str, Any]:
    """What a TOML file holds.

    :raises ValueError: saying where it isn't TOML, or isn't UTF-8.
    """
    try:
        found: dict[str, Any] = tomllib.loads(data.decode())
    except (RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return found
