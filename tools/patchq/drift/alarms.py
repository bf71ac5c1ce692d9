"""Alarms: places whose meaning may change with an update to another ref."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Place whose meaning may change with an update.

    :ivar kind: ``positional shift``, ``unknown keyword``, ``missing argument``, ``changed
        default``, ``removed name``, ``touched body`` or ``touched function gone``.
    :ivar state: ``open`` unless the upstream's stack already fixes it.
    :ivar call: source of the call.
    :ivar fits: True if the call binds to the new signature, correctly or not.
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
        """Return the key that identifies the alarm in other versions of the file."""
        return (self.kind, self.upstream, self.path, self.function, self.callee)


def by_kind(alarms: Sequence[Alarm]) -> Mapping[str, int]:
    """Return the number of alarms by kind."""
    found: dict[str, int] = {}
    for alarm in alarms:
        found[alarm.kind] = found.get(alarm.kind, 0) + 1
    return found
