"""An alarm: one place that a move to another ref gives another meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One place. ``kind`` is ``positional shift``, ``unknown keyword``, ``missing argument``,
    ``changed default``, ``removed name``, ``touched body`` or ``touched function gone``.

    ``state`` is ``open``, or ``mended`` where the stack of that upstream has it right already. ``call`` is
    the call's text, and ``fits`` whether it binds to the new signature, rightly or not.
    """

    kind: str
    upstream: str
    path: str
    line: int
    function: str
    callee: str
    said: str
    patch: str = ""
    state: str = "open"
    call: str = ""
    fits: bool = False

    def place(self) -> tuple[str, str, str, str, str]:
        """What makes it the same alarm in another version of the file."""
        return (self.kind, self.upstream, self.path, self.function, self.callee)


def by_kind(alarms: Sequence[Alarm]) -> Mapping[str, int]:
    """How many alarms of each kind."""
    found: dict[str, int] = {}
    for alarm in alarms:
        found[alarm.kind] = found.get(alarm.kind, 0) + 1
    return found
