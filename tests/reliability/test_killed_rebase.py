"""A rebase that is killed, or meets a full disk, at any system call can be gone on with or given up."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import memory
from extent import chosen, record
from kit import Patchq, commit_files, edit, git, with_lines
from meddling import FAULTS, check_answer, meddled
from template import copy_project, copy_upstream
from tracer import Fault


def nothing(patchq: Patchq) -> None:
    pass


def resolved(patchq: Patchq) -> None:
    """What a person does at the first stop of the scenario below."""
    (patchq.layout.tree("up@v2") / "a.txt").write_bytes(
        b"resolved\n" + with_lines({5: b"changed, otherwise\n", 30: b"and this\n"})
    )


def with_recorded(patchq: Patchq) -> None:
    """The same conflict was resolved before: the rebase tries that first."""
    assert patchq.run("rebase", "up", "--onto", "v2").exit_code == 3
    resolved(patchq)
    patchq.fails(3, "rebase", "up", "--continue", "--no-proof")
    patchq.ok("rebase", "up", "--skip")
    patchq.ok("undo")


def stopped(patchq: Patchq) -> None:
    assert patchq.run("rebase", "up", "--onto", "v2").exit_code == 3


def stopped_and_resolved(patchq: Patchq) -> None:
    stopped(patchq)
    resolved(patchq)


def with_other_files(patchq: Patchq) -> None:
    """A mergetool's backup, and an edit that is no part of the patch."""
    stopped_and_resolved(patchq)
    folder = patchq.layout.tree("up@v2")
    (folder / "a.txt.orig").write_bytes(b"of a mergetool\n")
    edit(folder / "b.txt", 30, b"unrelated\n")


def gone_on(patchq: Patchq) -> None:
    stopped_and_resolved(patchq)
    patchq.fails(3, "rebase", "up", "--continue", "--no-proof")


REBASE: dict[str, tuple[Callable[[Patchq], None], tuple[str, ...]]] = {
    "onto": (nothing, ("rebase", "up", "--onto", "v2")),
    "onto, with a recorded resolution": (with_recorded, ("rebase", "up", "--onto", "v2")),
    "continue": (stopped_and_resolved, ("rebase", "up", "--continue", "--no-proof")),
    "continue, with other files": (with_other_files, ("rebase", "up", "--continue", "--no-proof")),
    "resolve": (stopped_and_resolved, ("resolve", "up", "--no-proof")),
    "undo": (gone_on, ("undo",)),
    "skip": (stopped, ("rebase", "up", "--skip")),
    "abort": (stopped_and_resolved, ("rebase", "up", "--abort")),
}


def without_time(seen: dict[str, bytes]) -> dict[str, bytes]:
    """The ledger has the time of each attempt."""
    return {k: re.sub(rb'"time": "[^"]*"', b"", v) for k, v in seen.items() if k != "refs"}


@dataclass(frozen=True)
class Scene:
    """A project that stands before a step of a rebase: its copy, and how it is before all and after the end.

    :ivar stops: the system calls of the step.
    """

    what: str
    stack: Patchq
    saved: Path
    before: dict[str, bytes]
    after: dict[str, bytes]
    stops: int

    def again(self) -> None:
        """Put the project back."""
        shutil.rmtree(self.stack.root)
        shutil.copytree(self.saved, self.stack.root, symlinks=True)


@pytest.fixture(scope="module")
def scene(stack_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Scene]]:
    """Each scene is set once: what is tried in it begins with a copy."""
    made: dict[str, Scene] = {}
    with memory.shared(tmp_path_factory.mktemp("scenes")) as folder:

        def set_once(what: str) -> Scene:
            if what not in made:
                (place := folder / f"{len(made)}").mkdir()
                made[what] = make_scene(what, copy_upstream(stack_template, place), stack_template)
            return made[what]

        yield set_once


def make_scene(what: str, upstream: Path, template: Path) -> Scene:
    """The step is taken once, traced, and the rebase driven to its end."""
    commit_files(upstream, {"a.txt": with_lines({5: b"otherwise\n", 30: b"and this\n"})}, "v2")
    git(upstream, "tag", "v2")
    stack = Patchq(copy_project(template, upstream.parent))
    before = without_time(stack.snapshot())
    prepare, args = REBASE[what]
    prepare(stack)
    saved = upstream.parent / "saved"
    shutil.copytree(stack.root, saved, symlinks=True)
    whole = meddled(stack, args)
    assert whole.exit_code in (0, 3)
    return Scene(what, stack, saved, before, go_on(stack, what), whole.stops)


def rebase_state(stack: Patchq) -> dict[str, Any]:
    """The state of the rebase, as it is on disk; empty if none is under way."""
    path = stack.layout.private.joinpath("rebase", "up.json")
    state: dict[str, Any] = {}
    if path.exists():
        state = json.loads(path.read_text())
    return state


def is_ready(stack: Patchq) -> bool:
    """Whether a rebase waits at a stop whose files are in the conflict worktree."""
    state = rebase_state(stack)
    return bool(state and state["phase"] == "carrying" and state["stop"] and state["stop"]["ready"])


def go_on(stack: Patchq, what: str) -> dict[str, bytes]:
    """Drive the rebase to its end, as a person would: the first patch resolved, all else left out."""
    for _ in range(6):
        if not stack.layout.private.joinpath("rebase", "up.json").exists():
            if (stack.layout.stack("up", "v2") / "series").exists():
                break
            done = stack.run("rebase", "up", "--onto", "v2")
            assert done.exit_code in (0, 3), done.output
            continue
        if is_ready(stack):
            if rebase_state(stack)["stop"]["patch"] == "first" and what != "skip":
                resolved(stack)
                done = stack.run("rebase", "up", "--continue", "--no-proof")
            else:
                done = stack.run("rebase", "up", "--skip")
        else:
            done = stack.run("rebase", "up", "--continue", "--no-proof")
        assert done.exit_code in (0, 3), done.output
    assert not stack.layout.tree("up@v2").exists()
    return without_time(stack.snapshot())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
@pytest.mark.parametrize("what", REBASE)
@pytest.mark.parametrize("then", ["goes on", "gives up"])
def test_a_rebase_at_every_system_call(scene: Callable[[str], Scene], what: str, then: str, fault: Fault) -> None:
    """Whatever it was at, it can be gone on with to the same end, or given up with nothing left."""
    found = scene(what)
    stack, before, after, args = found.stack, found.before, found.after, REBASE[what][1]
    tried, met, faults = 0, 0, []
    # To go on to the end takes a second; each point is tried with what is worst, the others for some.
    every = 12 if then == "gives up" else 2 if fault is Fault.KILL_ALL else 12
    for at in chosen(found.stops, f"rebase {what} {fault.name} {then}", 2, every):
        found.again()
        outcome = meddled(stack, args, fault, at)
        tried += 1
        met += bool(outcome.at)
        try:
            if outcome.at:  # git's own work differs by a call or two from run to run
                check_answer(outcome, fault)
            if then == "goes on":
                assert go_on(stack, what) == after, "ends elsewhere"
                continue
            stack.ok("fetch")  # finishes what the journal has
            if stack.layout.private.joinpath("rebase", "up.json").exists():
                stack.ok("rebase", "up", "--abort")
            now = without_time(stack.snapshot())
            known = {k: v for k, v in now.items() if "rr-cache" not in k}
            assert known in (before, {k: v for k, v in after.items() if "rr-cache" not in k}), "left something"
            assert not stack.layout.tree("up@v2").exists()
        except AssertionError as error:
            faults.append(f"at {at} of {found.stops} ({outcome.at}): {error}")
    assert not faults, f"rebase {what}, {fault.value}:\n" + "\n".join(faults)
    record("killed", verb=f"rebase {what}, then {then}", fault=fault.value, points=found.stops, tried=tried, met=met)
