"""Parser for TOML. Only this module imports a TOML library."""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Most parts of a dotted key. The reader's time grows with the square of their number.
MOST_PARTS = 32
#: Strings and comments, whose dots don't separate parts of a key. An unterminated string extends to
#: the end of the file or line, so that no text is searched twice.
_NO_KEY = re.compile(
    r'"""(?:[^"\\]+|\\.|"(?!""))*(?:"""|\\?\Z)|"(?:[^"\\\n]+|\\.)*(?:"|\\?$)'
    r"|'''(?:[^']+|'(?!''))*(?:'''|\Z)|'[^'\n]*(?:'|$)|#[^\n]*",
    re.MULTILINE | re.DOTALL,
)
#: Number that Python reads but refuses to print in an error. A bare key may look like such a number.
_LONG_NUMBER = re.compile(r"0[xob][0-9a-fA-F_]{100,}")


def loads(data: bytes) -> dict[str, Any]:
    """Parse a TOML file.

    :raises ValueError: if the file isn't valid TOML or UTF-8, if it has a key of more than :data:`MOST_PARTS`
        parts, or a number of 100 digits or more.
    """
    text = data.decode()
    if any(key.count(".") >= MOST_PARTS for key in re.split(r"[\n=,\[\]{}]", _NO_KEY.sub("", text))):
        raise ValueError(f"it contains a key of more than {MOST_PARTS} parts")
    if _LONG_NUMBER.search(_NO_KEY.sub("", text)):
        raise ValueError("it contains a number of 100 digits or more")
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except (RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return found
