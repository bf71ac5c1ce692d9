"""Text of the alarms of ``drift`` and ``forecast --why``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from patchq.cli.terminal import echo
from patchq.drift.alarms import Alarm, Kind, NotCompared, Reached, Unseen
from patchq.extras import install_command

#: Most characters of a text to print, and those to print before the first difference.
_LONGEST, _BEFORE = 120, 40
#: Message by kind, for alarms about code of one upstream.
_SAID = {
    Kind.SIGNATURE: "{callee} was {was}, is now {now}",
    Kind.DEFAULT: "{callee} was {was}, is now {now}",
    Kind.CONSTANT: "{callee} was {was}, is now {now}",
    Kind.RESULT: "{callee}: before {was}, now {now}",
    Kind.TRAITS: "decorators were {was}, are now {now}",
    Kind.BINDING: "{callee} is now another definition",
    Kind.REMOVED: "{callee} is gone",
    Kind.DUPLICATE: "upstream now has this as {now}, too",
    Kind.CALLER: "{now} now calls it",
    Kind.CALL: "the call in {callee} was {was}, is now {now}",
    Kind.OVERRIDE: "{now} now overrides it",
    Kind.OVERRIDDEN: "it overrides {callee}, which was {was}, is now {now}",
    Kind.BASES: "base classes were {was}, are now {now}",
    Kind.GUARD: "it was defined if {was}, and is now defined if {now}",
    Kind.BEHAVIOUR: "{callee}, which the patch calls, did {was}, now does {now}",
    Kind.FIELDS: "{callee}, whose fields the patch lists, had {was}, now has {now}",
    Kind.PEER: "{callee}, which has the same parameters, had {was}, now has {now}",
    Kind.MENTION: "a statement with {callee}, as in the patch, was {was}, is now {now}",
    Kind.BODY: "upstream changed its body, first {was} to {now}",
    Kind.GONE: "it is gone",
}
_REASONS = {
    Unseen.LANGUAGE: "its language is not compared",
    Unseen.PARSER: "C++ and CUDA are not compared without {install}",
    Unseen.UNPARSABLE: "the file can't be parsed",
    Unseen.CALLERS: "too many files have the name {text} to count its callers",
    Unseen.DYNAMIC: "the definition of {text} is unknown",
}


def say_alarm(alarm: Alarm) -> str:
    """Return the message of an alarm."""
    if alarm.message:
        return alarm.message
    was, now = _cut(alarm.was, alarm.now)
    values = {**asdict(alarm), "was": was or "nothing", "now": now or "nothing"}
    if alarm.kind == Kind.REMOVED.value and alarm.now:
        return "{callee} is gone; {now} now has its name".format(**values)
    if alarm.kind == Kind.OVERRIDE.value and alarm.callee:
        return "{now} now overrides {callee}, which the patch calls".format(**values)
    return _SAID[Kind(alarm.kind)].format(**values)


def _cut(was: str, now: str) -> tuple[str, str]:
    """Cut two texts to lines that show where they begin to differ."""
    same = next((n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    start = max(0, same - _BEFORE)
    found = []
    for text in (was, now):
        if len(text) > _LONGEST:
            end = min(len(text), start + _LONGEST)
            text = "…" * (start > 0) + text[start:end] + "…" * (end < len(text))
        found.append(text)
    return found[0], found[1]


def alarm_body(alarm: Alarm) -> dict[str, object]:
    """Return an alarm as JSON data."""
    return {**asdict(alarm), "message": say_alarm(alarm)}


def show_alarm(alarm: Alarm, head: str = "") -> None:
    """Print an alarm: the place in the patch, then upstream's change and the place of this change."""
    by = ""
    if alarm.patch:
        by = f" (patch {alarm.patch})"
    of = ""
    if alarm.message and alarm.callee:
        of = f" in {alarm.callee}"
    echo(f"{head}{alarm.upstream} {alarm.path}:{alarm.line} {alarm.function}{by}: {alarm.kind}{of}")
    echo(f"    {say_alarm(alarm)}" + (f" ({alarm.at})" if alarm.at else ""))
    if alarm.commit:
        echo(f"    by {alarm.commit[:12]} {alarm.subject}")


def show_alarms(alarms: Sequence[Alarm], head: str = "") -> None:
    """Print the alarms about one definition of upstream: the first one, and the places of the others."""
    show_alarm(alarms[0], head)
    for said in dict.fromkeys(f"{alarm.kind}: {say_alarm(alarm)}" for alarm in alarms[1:]):
        if said != f"{alarms[0].kind}: {say_alarm(alarms[0])}":
            echo(f"    {said}")
    others = dict.fromkeys(f"{alarm.path}:{alarm.line}" for alarm in alarms)
    if len(others) > 1:
        echo(f"    also for {', '.join(list(others)[1:])}")


def show_reached(reached: Reached) -> None:
    """Print one line about a distant change of upstream that may affect a patch."""
    of = reached.definition or "a statement of the file"
    echo(f"may affect patch {reached.patch}: {of} ({reached.at}), both use {reached.shared}: {reached.now or 'gone'}")


def show_unseen(unseen: Sequence[NotCompared]) -> None:
    """Print which files and calls of the patches were not compared, one line for each patch and reason."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in unseen:
        text = one.text
        if one.line:
            place = f"{one.path}:{one.line}"
        else:
            place = one.path
        groups.setdefault((one.patch, one.reason, text), []).append(place)
    for (patch, reason, text), places in groups.items():
        message = _REASONS[Unseen(reason)].format(install=install_command("drift"), text=text)
        echo(f"not compared: {patch}: {', '.join(dict.fromkeys(places))}: {message}")
