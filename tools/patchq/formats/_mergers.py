"""Table ``mergers`` of a lock: merge programs that a user may run on a conflict, each with a name.

The arguments of these programs are fixed (mergiraf's interface). The lock contains only the name of an
installed program, so a lock can't make patchq run an arbitrary command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from patchq.errors import FormatError

_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")


def read(raw: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the program of each merger in a lock, by the merger's name.

    :raises FormatError: if a merger isn't a table with the name of a program, without folders or arguments.
    """
    table = raw.get("mergers", {})
    found: dict[str, str] = {}
    for name, entry in table.items() if isinstance(table, dict) else [("", None)]:
        program = None
        if isinstance(entry, dict) and set(entry) == {"program"}:
            program = entry.get("program")
        if not isinstance(program, str) or not _PROGRAM.fullmatch(program):
            raise FormatError(
                f"{where}: mergers.{name}: is not a table with a program, named without its folder",
                hint='[mergers.mergiraf] program = "mergiraf"',
            )
        found[name] = program
    return found
