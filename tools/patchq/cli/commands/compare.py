from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import counted

if TYPE_CHECKING:
    from patchq.together.compare import ComparedPatch, ComparedUpstream

_MOST = 4


def _some(names: tuple[str, ...]) -> str:
    more = ""
    if len(names) > _MOST:
        more = f" and {len(names) - _MOST} more"
    return ", ".join(names[:_MOST]) + more


def _line(patch: ComparedPatch, other: str) -> str:
    """Return a line that describes how a patch relates to the other fork's patches."""
    where = ""
    if not patch.is_ours:
        where = f"{other}: "
    partners = _some(patch.partners) or "other patches"
    if patch.relation == "same":
        if not patch.partners:
            return f"{where}{patch.name}: the other fork's ref already has this change"
        how = "the same change is in"
        if patch.grade == "identical":
            how = "the same patch as"
        return f"{where}{patch.name}: {how} {partners}"
    if patch.relation == "conflict":
        partners = _some(patch.partners) or "upstream's own changes"
        return f"{where}{patch.name}: conflicts with {partners}: {_some(patch.paths)}"
    if patch.relation == "needs":
        return f"{where}{patch.name}: needs {partners}, which doesn't apply"
    return f"{where}{patch.name}: overlaps with {partners}: {_some(patch.definitions or patch.paths)}"


def _show(found: ComparedUpstream, other: str) -> None:
    from patchq.together.compare import Relation

    sides = ("here", True), (other, False)
    if found.ref == found.other_ref:
        refs = found.ref
    else:
        refs = f"{found.ref} and {found.other_ref}"
    counts = ", ".join(f"{counted(len(found.of(ours=ours)), 'patch')} {label}" for label, ours in sides)
    echo(f"{found.upstream} {refs}: {counts}")
    for relation in (Relation.SAME, Relation.CONFLICT, Relation.NEEDS, Relation.OVERLAP):
        for _, ours in sides:
            for patch in found.of(ours=ours, relation=relation):
                echo(f"    {_line(patch, other)}")
    for label, ours in sides:
        parts = [f"{len(found.of(ours=ours, relation=r))} {r.value}" for r in Relation]
        echo(f"{label}: {', '.join(parts)}")
    for label, ours in sides:
        same = tuple(patch.name for patch in found.of(ours=ours, relation=Relation.SAME))
        if same:
            echo(f"{label} could drop these patches, because the other side has them: {', '.join(same)}")
    left = []
    for conflicting in found.left_out:
        if conflicting.is_ours:
            left.append(conflicting.name)
        else:
            left.append(f"{other}: {conflicting.name}")
    apart = f"; left out, because they conflict: {', '.join(left)}" if left else ""
    echo(f"union: {counted(len(found.union), 'patch')}{apart}")


@click.command("compare")
@click.argument("other")
@click.option("--union", is_flag=True, help="Print only the order of a stack that contains the patches of both forks.")
@click.option(
    "--other-set", metavar="SET", default="", help="Set of OTHER to compare with.  [default: OTHER's default set]"
)
@set_option
@json_option
def command(other: str, union: bool, other_set: str, set_name: str, as_json: bool) -> None:
    """Compare the stacks with the stacks of another fork.

    OTHER is the folder of another project, a bundle, or a git revision of this project.
    """
    from patchq.together.compare import compare_forks

    found = compare_forks(open_project(as_json), other, set_name=set_name, other_set=other_set)
    if as_json:
        emit("compare", {"upstreams": as_dicts(found)})
        return
    for one in found:
        if not union:
            _show(one, other)
            continue
        for patch in one.union:
            side = "here"
            if not patch.is_ours:
                side = other
            echo(f"{one.upstream}/{patch.name}  # {side}{f', {patch.outcome}' if patch.outcome else ''}")
