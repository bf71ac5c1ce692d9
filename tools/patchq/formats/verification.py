"""Table ``verify`` of a lock: additional items that ``verify-installed`` and ``verify-image`` accept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patchq.errors import FormatError


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Additional items that a project's environments may contain.

    :ivar allow: names of start-up files, modules, distributions with plugins, variables and
        libraries.
    :ivar groups: entry point groups that the packages load, in addition to the groups named in their sources.
    """

    allow: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def read(raw: Mapping[str, Any], where: str) -> Verification:
    """Return the ``verify`` table of a lock; an empty one if the lock contains none.

    :raises FormatError: for other keys, or values that aren't lists of names.
    """
    table = raw.get("verify", {})
    if isinstance(table, dict):
        lists = list(table.values())
    else:
        lists = [None]
    names = []
    for value in lists:
        if isinstance(value, list):
            names += value
    known = isinstance(table, dict) and set(table) <= {"allow", "plugin-groups"}
    if not known or not all(isinstance(v, list) for v in lists) or not all(_is_name(name) for name in names):
        raise FormatError(
            f"{where}: verify: is not lists of names, allow and plugin-groups",
            hint='[verify] allow = ["hook.pth", "my-plugin"]',
        )
    return Verification(allow=tuple(table.get("allow", ())), groups=tuple(table.get("plugin-groups", ())))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable() and "/" not in value
