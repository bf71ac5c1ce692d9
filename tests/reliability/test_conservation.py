"""Every piece that a verb is handed is taken, refused or named, and the suite that checks this can fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copy2
from typing import Any

import pytest

import conservation
import memory
from extent import LONG, record
from kit import git, seal
from patchq.adopt import adopt, gather
from patchq.build import wheel
from patchq.formats.series import Series
from patchq.git.worktree import Worktree
from patchq.project.journal import Journal
from patchq.rebase import stops
from patchq.stacks import edit, export, reconcile

#: Cases of each verb, in the short form and for each seed of the long form.
SHORT, EACH, SEEDS = 6, 60, 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[conservation.World]:
    with memory.shared(tmp_path_factory.mktemp("conservation")) as folder, pytest.MonkeyPatch.context() as patch:
        seal(patch, folder / "home")
        yield conservation.World(folder)


@pytest.fixture(autouse=True)
def _same_home(world: conservation.World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cache that the world was made with: wheels are in it."""
    monkeypatch.setenv("PATCHQ_CACHE", str(world.folder / "home" / "cache"))


@pytest.mark.parametrize("seed", range(SEEDS if LONG else 1))
@pytest.mark.parametrize("verb", conservation.VERBS)
def test_every_piece_is_accounted_for(world: conservation.World, verb: str, seed: int) -> None:
    figures = conservation.Figures()
    for number in range(EACH if LONG else SHORT):
        name = f"{'long' if LONG else 'short'} {seed}-{number}"
        figures.add(name, conservation.run_case(world, verb, name))
    for name, case in figures.losses:
        raise AssertionError(f"--only '{name}'\n{case.report()}")
    counts = figures.states[verb]
    # If all were refused, nothing of this would say anything.
    assert counts["taken"] + counts["named"] > 0
    record(
        "conservation", verb=verb, seed=seed, cases=figures.cases[verb], pieces=counts.total(),
        **{state: counts[state] for state in conservation.STATES},
    )  # fmt: skip


# Faults

_read_data, _take_own, _overlay, _drop, _undo = (
    gather.read_data, stops.take_own, wheel.overlay, edit.drop, Journal.undo,
)  # fmt: skip
_name_commits, _with_names = export.name_commits, Series.with_names


def lose_the_last_file(*args: Any) -> Any:
    """Read patches without the last file of their diffs."""
    found = _read_data(*args)
    return [replace(f, diff=f.diff[: f.diff.rfind(b"\ndiff --git") + 1] or f.diff) for f in found]


def lose_a_line(*args: Any) -> Any:
    """Read patches whose added lines with a token are other lines."""
    return [replace(f, diff=f.diff.replace(b" added\n", b" other\n").replace(b"+Q", b"+R")) for f in _read_data(*args)]


def lose_the_body(found: Any) -> str:
    """Keep a message's subject alone."""
    return str(found.message.split("\n")[0]) + "\n"


def tracked_only(self: Worktree, **_options: Any) -> Any:
    """Take the worktree's tracked files alone."""
    from patchq.system import fsio

    with fsio.temporary_folder() as folder:
        copy2(self.git_folder() / "index", folder / "index")
        env = {"GIT_INDEX_FILE": str(folder / "index")}
        self.git.run("add", "-u", env=env)
        return self.git.run("write-tree", env=env).decode().strip()


def lose_messages(*args: Any) -> Any:
    """Export commits with their subjects alone."""
    entries = _name_commits(*args)
    return [replace(e, commit=replace(e.commit, message=e.commit.message.split("\n")[0] + "\n")) for e in entries]


def leave_out_silently(*args: Any) -> Any:
    """Leave other files of a conflict worktree out without naming them."""
    return replace(_take_own(*args), left_out=())


def only_what_conflicted(*args: Any) -> Any:
    """Take no path of a conflict worktree but what the stop had."""
    taken = _take_own(*args)
    project, progress, _stop = args[:3]
    tip, held = progress.tip, taken.tree
    store = project.store
    folder = project.layout.private / "index.fault"
    env = {"GIT_INDEX_FILE": str(folder)}
    store.run("read-tree", tip, env=env)
    entry = store.list_tree(held, [b"a.txt"])[b"a.txt"]
    store.run("update-index", "--cacheinfo", f"{entry.mode.decode()},{entry.blob},a.txt", env=env)
    return replace(taken, tree=store.run("write-tree", env=env).decode().strip(), left_out=())


def undo_without_edits(self: Journal, *args: Any, **more: Any) -> Any:
    """Undo, and throw the worktree's edits away."""
    done = _undo(self, *args, **more)
    for tree in (self.layout.private / "trees").iterdir():
        git(tree, "reset", "-q", "--hard")
        git(tree, "clean", "-qfd")
    return done


def drop_without_a_name(*args: Any, **more: Any) -> Any:
    """Drop a patch, and report nothing."""
    return replace(_drop(*args, **more), removed=())


def lose_the_last_patch(self: Series, names: Any) -> Series:
    """Write a series without its last patch."""
    return _with_names(self, tuple(names)[:-1])


def forget_a_file(source: Path, target: Path, version: str, siblings: Any, files: Any, gone: Any) -> Any:
    """Put only patchq's own files into an overlay."""
    kept = {name: data for name, data in files.items() if "_patchq" in name or "_version" in name}
    return _overlay(source, target, version, siblings, kept, gone)


FAULTS: list[tuple[str, str, object, str, Callable[..., Any]]] = [
    ("a file of an import is lost", "import", gather, "read_data", lose_the_last_file),
    ("a line of an import is another one", "import", gather, "read_data", lose_a_line),
    ("an import keeps subjects alone", "import", adopt, "_describe", lose_the_body),
    ("new forgets untracked files", "new", Worktree, "snapshot", tracked_only),
    ("export --amend forgets untracked files", "export --amend", Worktree, "snapshot", tracked_only),
    ("export --amend overwrites a pulled change", "export --amend", reconcile, "_changed_on_disk", lambda *_: set()),
    ("export keeps subjects alone", "export", export, "name_commits", lose_messages),
    ("apply leaves the worktree as it is", "apply", Worktree, "checkout", lambda *_: None),
    ("other files of a conflict are left out silently", "rebase --continue", stops, "take_own", leave_out_silently),
    ("a conflict's files are not kept", "rebase --continue", stops, "put_aside", lambda *_: ""),
    ("resolve takes only the conflicting file", "resolve", stops, "take_own", only_what_conflicted),
    ("ignored files go with the worktree", "rebase --continue", stops, "keep_ignored", lambda *_: ""),
    ("undo throws edits away", "undo", Journal, "undo", undo_without_edits),
    ("drop names no patch", "drop", edit, "drop", drop_without_a_name),
    ("move loses a patch", "move", Series, "with_names", lose_the_last_patch),
    ("a build leaves files out", "build", wheel, "overlay", forget_a_file),
]


@pytest.mark.parametrize(("verb", "owner", "name", "fault"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_fault_is_reported(
    world: conservation.World, monkeypatch: pytest.MonkeyPatch, verb: str, owner: object, name: str, fault: object
) -> None:
    monkeypatch.setattr(owner, name, fault)
    original = conservation.Case.run

    def run(self: conservation.Case, *args: str, input: bytes | None = None) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fault)
            return original(self, *args, input=input)

    monkeypatch.undo()
    monkeypatch.setenv("PATCHQ_CACHE", str(world.folder / "home" / "cache"))
    monkeypatch.setattr(conservation.Case, "run", run)
    for number in range(60):
        case = conservation.run_case(world, verb, f"fault {number}")
        if case.lost and case.code == 0:
            return
    raise AssertionError(f"no loss in {number + 1} cases")


def test_the_same_seed_makes_the_same_case(world: conservation.World) -> None:
    first, second = (conservation.run_case(world, "new", "same") for _ in range(2))
    assert [(state, piece.token) for state, piece in first.states] == [
        (state, piece.token) for state, piece in second.states
    ]
    assert random.Random("new same").random() == random.Random("new same").random()
