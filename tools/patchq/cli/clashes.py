"""Messages about clashes: changes on two branches of a project that conflict or break each other."""

from __future__ import annotations

from patchq.drift.between import UseChange
from patchq.formats.outcomes import FindingLevel
from patchq.names import sh
from patchq.stacks.check import Finding
from patchq.together.concurrent import Clash, ClashKind

_CHANGES = {
    UseChange.REMOVED: "{name}, which it uses, is gone",
    UseChange.CALL: "its call of {name} no longer matches the parameters",
    UseChange.DEFAULT: "{name}, which it calls, has another default",
    UseChange.FORM: "{name}, which it uses, is now {detail}",
    UseChange.RETURNS: "{name}, which it calls, now returns another number of values",
    UseChange.OVERRIDE: "{name}, which it overrides, has other parameters or is gone",
    UseChange.ABSTRACT: "its class must now define {name}",
    UseChange.BODY: "{name}, which it calls, behaves differently",
    UseChange.VALUE: "{name}, which it uses, has another value",
    UseChange.FILE: "it names {name}, which is gone",
}


def _names(patches: tuple[str, ...]) -> str:
    return ", ".join(patches)


def _drift(clash: Clash) -> tuple[str, str]:
    assert clash.change
    message = _CHANGES[clash.change].format(name=clash.name, detail=clash.detail)
    changer, user = clash.branches
    by = ""
    if clash.ours:
        by = f" by {_names(clash.ours)}"
    detail = ""
    if clash.detail and clash.change in (UseChange.CALL, UseChange.DEFAULT):
        detail = f": {clash.detail}"
    user_of = _names(clash.theirs) or clash.path
    message = f"{clash.path}:{clash.line}: {user_of} of {user}: {message} with {changer}{by}{detail}"
    return message, f"change {user_of} on top of {changer}"


def _worded(clash: Clash) -> tuple[str, str]:
    """Return the message and the hint of a clash."""
    one, other = clash.branches
    both = f"{one} and {other}"
    if clash.kind is ClashKind.DRIFT:
        return _drift(clash)
    if clash.kind is ClashKind.MERGE:
        return f"git can't merge {clash.path} of {both}", f"merge {other} by hand"
    if clash.kind is ClashKind.SAME_PATCH:
        hint = f"merge {other} by hand, and write {clash.name} again with `patchq export`"
        return f"{both} change the diff of {clash.name}, and git merges it as plain text", hint
    if clash.kind is ClashKind.SERIES:
        return f"{clash.path}, merged from {both}, can't be used: {clash.detail}", f"merge {other} by hand"
    if clash.kind is ClashKind.SAME_DEFINITION:
        if clash.detail:
            where = f"{clash.path} and {clash.detail}"
        else:
            where = f"{clash.path}:{clash.line}"
        by = " and ".join(filter(None, (_names(clash.ours), _names(clash.theirs)))) or both
        return f"{where}: {by} add different definitions of {clash.name}", "keep one of them"
    if clash.kind is ClashKind.SHARED_PROOF:
        return f"{both} change the proof {clash.path}, and git merges them", "run the proof after the merge"
    if not clash.theirs:
        return (
            f"{other} removes {clash.name}; {one} carries the stack to {clash.detail} with that patch",
            f"`patchq drop {clash.name} --set SET` with a set that pins {clash.detail}, if that stack doesn't need it",
        )
    return (
        f"{other} adds or changes {clash.name}; {one} carries the stack to {clash.detail} without that change",
        f"carry {clash.name} to {clash.detail}, too: `patchq rebase {clash.upstream} --onto {sh(clash.detail)}`",
    )


def finding_of(clash: Clash) -> Finding:
    """Return the finding that reports a clash."""
    message, hint = _worded(clash)
    patch = clash.name
    if clash.kind in (ClashKind.DRIFT, ClashKind.SAME_DEFINITION):
        patch = ""
        if clash.theirs:
            patch = clash.theirs[0].partition("/")[2]
    return Finding(
        upstream=clash.upstream,
        ref=clash.ref,
        patch=patch,
        rule=clash.kind.value,
        message=message,
        hint=hint,
        level=FindingLevel.WARNING if clash.mild else FindingLevel.PROBLEM,
    )
