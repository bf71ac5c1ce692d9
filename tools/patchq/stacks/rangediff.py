"""The command ``diff``: compare two versions of stacks by ``git range-diff``."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from patchq.errors import UserError
from patchq.formats.lock import Pin
from patchq.git import person
from patchq.git.repository import Git
from patchq.project.project import Project
from patchq.project.stack import load_stack
from patchq.stacks.apply import Carried, carried_stacks
from patchq.system.paths import LOCK_NAME, Layout

HERE = "."
SAME, CHANGED, REMOVED, ADDED = "same", "changed", "removed", "added"
_SIGNS = {"=": SAME, "!": CHANGED, "<": REMOVED, ">": ADDED}
_PAIR = re.compile(r" *(-|\d+): +(?:-+|[0-9a-f]+) ([=!<>]) +(-|\d+): +(?:-+|[0-9a-f]+) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Patch in the old and the new version of a stack.

    :ivar old: name in the old version; empty for an added patch.
    :ivar new: name in the new version; empty for a removed patch.
    :ivar moved: True if the patch is in both versions and was moved within the stack.
    :ivar text: diff between the old and the new diff; empty if they are equal.
    """

    upstream: str
    kind: str
    old: str = ""
    new: str = ""
    moved: bool = False
    text: str = ""


def compare(project: Project, old: str, new: str, set_name: str = "") -> list[Pair]:
    """Return the patches of both versions, matched and ordered by ``git range-diff``.

    :param old: ``NAME@REF`` for the stack of a pin, a git revision of the project for all stacks of
        the set at that revision, or ``.`` for the set's current stacks.
    :param new: second version, in the same form.
    :raises UserError: if a version is unknown, or the versions have no stack in common.
    :raises ConflictError: if a stack doesn't apply.
    """
    with project.locked("diff"):
        before, after = _stacks(project, old, set_name), _stacks(project, new, set_name)
        shared = [upstream for upstream in after if upstream in before]
        if not shared:
            raise UserError(
                f"{old} and {new} have no stack in common",
                hint=f"compare two pins of one upstream ({_pins_of(project)}), or two revisions of the project",
            )
        found: list[Pair] = []
        for upstream in shared:
            found += _pairs(project.store, upstream, before[upstream], after[upstream])
        return found


def _stacks(project: Project, side: str, set_name: str) -> dict[str, Carried]:
    name, at, ref = side.partition("@")
    if at and name in project.lock.upstreams:
        pins = project.lock.upstreams[name].pins
        if ref not in pins:
            raise UserError(f"{name} has no pin {ref}", hint=f"it has {', '.join(pins) or 'none'}")
        return _carry(project, [pins[ref]], set_name)
    if side == HERE:
        return _carry(project, project.lock.pins_of(project.choose_set(set_name)), set_name)
    with at_revision(project, side) as then:
        return _carry(then, then.lock.pins_of(then.choose_set(set_name)), set_name)


def _carry(project: Project, pins: list[Pin], set_name: str) -> dict[str, Carried]:
    stacks = [load_stack(project.layout, pin) for pin in pins]
    return {c.stack.pin.upstream: c for c in carried_stacks(project, stacks, set_name)}


@contextmanager
def at_revision(project: Project, revision: str) -> Iterator[Project]:
    """Yield a project with the lock and the patches of a git revision, and with the store of ``project``."""
    root = project.layout.root
    if not person.has_repository(root):
        raise _names_nothing(revision)
    try:
        files = person.files_at(root, revision, LOCK_NAME, "patches")
    except person.NoSuchRevision:
        raise _names_nothing(revision) from None
    if PurePosixPath(LOCK_NAME) not in files:
        raise UserError(f"{revision} holds no patchq project: it has no {LOCK_NAME}", hint="name a later revision")
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        then = Layout(Path(text).resolve(), project.layout.store)
        for path, data in files.items():
            (then.root / path).parent.mkdir(parents=True, exist_ok=True)
            (then.root / path).write_bytes(data)
        yield Project(layout=then, say=project.say, wait=project.wait, progress=project.progress)


def _pins_of(project: Project) -> str:
    pins: list[str] = []
    for upstream in project.lock.upstreams.values():
        for ref in upstream.pins:
            pins.append(f"{upstream.name}@{ref}")
    return ", ".join(pins)


def _names_nothing(revision: str) -> UserError:
    return UserError(
        f"{revision!r} is neither a revision of this project nor a pin such as vllm@v0.13.0",
        hint="`patchq diff HEAD .` compares the last commit with the current files; upstream.lock lists the pins",
    )


def _pairs(store: Git, upstream: str, old: Carried, new: Carried) -> list[Pair]:
    found: list[Pair] = []
    if not old.commits or not new.commits:  # `git range-diff` takes no empty range
        for name in old.names:
            found.append(Pair(upstream=upstream, kind=REMOVED, old=name))
        for name in new.names:
            found.append(Pair(upstream=upstream, kind=ADDED, new=name))
        return found
    text = store.run("range-diff", "--no-color", _range_of(old), _range_of(new)).decode("utf-8", "replace")
    old_names, new_names = ["", *old.names], ["", *new.names]
    numbers: list[int] = []
    in_both: list[int] = []
    for line in text.splitlines():
        match = _PAIR.match(line)
        if match:
            left, right = int(match[1].replace("-", "0")), int(match[3].replace("-", "0"))
            numbers.append(left)
            if left and right:
                in_both.append(left)
            kind = _SIGNS[match[2]]
            found.append(Pair(upstream=upstream, kind=kind, old=old_names[left], new=new_names[right]))
        elif found:
            found[-1] = replace(found[-1], text=found[-1].text + line.removeprefix("    ") + "\n")
    moved = set(in_both) - _longest_rising(in_both)
    for at, number in enumerate(numbers):
        found[at] = replace(found[at], moved=number in moved)
    return found


def _range_of(carried: Carried) -> str:
    return f"{carried.base}..{carried.commits[-1][1].commit}"


def _longest_rising(numbers: list[int]) -> set[int]:
    """Return the numbers of a longest increasing subsequence: the patches that did not move."""
    ending: list[list[int]] = []
    longest: list[int] = []
    for n in numbers:
        run = [n]
        for before in ending:
            if before[-1] < n and len(before) >= len(run):
                run = [*before, n]
        ending.append(run)
        if len(run) > len(longest):
            longest = run
    return set(longest)
