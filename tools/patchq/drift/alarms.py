"""Data model for the results of ``drift``: alarms, parts not compared, and upstream changes near a patch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """Kind of an alarm about a change in the patch's own upstream."""

    SIGNATURE = "changed signature"
    DEFAULT = "changed default"
    CONSTANT = "changed constant"
    RESULT = "changed result"
    TRAITS = "changed decorator"
    BINDING = "other definition"
    REMOVED = "removed name"
    DUPLICATE = "duplicated function"
    CALLER = "new caller"
    CALL = "changed call"
    OVERRIDE = "new override"
    OVERRIDDEN = "changed overridden method"
    BASES = "changed base class"
    GUARD = "changed guard"
    BODY = "touched body"
    BEHAVIOUR = "changed called function"
    FIELDS = "changed fields"
    PEER = "changed peer"
    MENTION = "changed mention"
    GONE = "touched function gone"


#: Kinds of alarms that are found only by names that a change and a patch share.
_BY_NAMES = {Kind.FIELDS.value, Kind.PEER.value, Kind.MENTION.value}


class Unseen(str, Enum):
    """Reason that part of a patch was not compared."""

    LANGUAGE = "language"
    PARSER = "parser"
    UNPARSABLE = "unparsable"
    DYNAMIC = "dynamic call"
    CALLERS = "callers"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompared:
    """Part of a patch that was not compared.

    :ivar line: line in the patched file; 0 for the whole file.
    :ivar text: source of the call, if a call was not compared.
    """

    patch: str
    path: str
    reason: str
    line: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Place in the code that an update may break or change in meaning.

    :ivar kind: ``positional shift``, ``unknown keyword``, ``missing argument``, ``changed default`` or ``removed
        name`` for a call from another upstream; a :class:`Kind` for a change in the patch's own upstream.
    :ivar message: problem of a call from another upstream; empty for other alarms, which have ``was`` and ``now``.
    :ivar state: ``fixed`` if the stack of the calling upstream fixes the problem, otherwise ``open``.
    :ivar call: source of the call.
    :ivar fits: True if the new signature accepts the call, even if arguments now have another meaning.
    :ivar was: signature, value or place in the old version; ``now``: in the new version.
    :ivar at: path and line of the change in the new version.
    :ivar commit: upstream commit that made the change, if history is available locally.
    """

    kind: str
    upstream: str
    path: str
    line: int
    function: str
    callee: str
    message: str = ""
    patch: str = ""
    state: str = "open"
    call: str = ""
    fits: bool = False
    was: str = ""
    now: str = ""
    at: str = ""
    commit: str = ""
    subject: str = ""

    def place(self) -> tuple[str, str, str, str, str]:
        """Return the key that identifies the alarm in other versions of the file."""
        return (self.kind, self.upstream, self.path, self.function, self.callee)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Changed definition that shares rare names with a patch, or is in a class or function that the patch changes.

    :ivar path: file that the patch changes.
    :ivar definition: name of the changed definition; empty for statements outside of definitions.
    :ivar shared: rarest name that occurs in both the patch and the changed definition.
    :ivar was: first differing line in the old version; ``now``: in the new version.
    :ivar at: path and line of the change.
    :ivar score: closeness of the change to the patch; higher is closer.
    """

    patch: str
    path: str
    definition: str
    shared: str
    was: str
    now: str
    at: str
    score: float


def by_definition(alarms: Sequence[Alarm]) -> list[list[Alarm]]:
    """Group the alarms by patch and changed place. Groups with a near change (:func:`is_near`) come first."""
    found: dict[tuple[str, ...], list[Alarm]] = {}
    for number, alarm in enumerate(alarms):
        place = alarm.at.partition(" ")[0] or str(number)
        found.setdefault((alarm.state, alarm.patch, alarm.upstream, place), []).append(alarm)
    return sorted(found.values(), key=lambda mine: not any(map(is_near, mine)))


def is_near(alarm: Alarm) -> bool:
    """Return whether an alarm is about a definition that the patch itself changes or uses.

    False if the change was found only by shared names or is two calls away (``callee`` is ``f > g``).
    """
    return alarm.kind not in _BY_NAMES and " > " not in alarm.callee


def by_kind(alarms: Sequence[Alarm]) -> Mapping[str, int]:
    """Return the number of alarms by kind."""
    found: dict[str, int] = {}
    for alarm in alarms:
        found[alarm.kind] = found.get(alarm.kind, 0) + 1
    return found
