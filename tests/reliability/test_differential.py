"""One truth with git: the same tree from the same diff, or both refuse; what only patchq refuses has a reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import differential
import handmade
from differential import MEANT, ROOT, Figures, Target, World
from extent import LONG, record
from patchq.errors import PatchqError
from patchq.formats import diff
from patchq.formats.header import Header, Ident, split_mail
from patchq.git.objects import blob_id
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.stacks.engine import Engine, Incoming

HEADER = Header(Ident("A", "a@example.org", 1, "+0000"), "Change it\n")


def sound(figures: Figures) -> None:
    for what in ("different", "taken", "refused"):
        for said, text in getattr(figures, what):
            raise AssertionError(f"{what}: {said}\n{text.decode('utf-8', 'backslashreplace')}")


@pytest.mark.parametrize("seed", range(12 if LONG else 1))
def test_damaged_diffs(seed: int) -> None:
    figures = differential.run(seed, 4000 if LONG else 400, patches=40 if LONG else 6)
    sound(figures)
    # Most would be left to git if the parser took nothing: then all of this would say nothing.
    assert figures.both_took > figures.cases // 5, figures
    assert figures.both_refused > figures.cases // 50, figures
    record(
        "differential", seed=seed, cases=figures.cases, took=figures.both_took, refused=figures.both_refused,
        git=figures.left_to_git, meant=sum(figures.meant.values()), different=len(figures.different),
        taken=len(figures.taken), unexplained=len(figures.refused),
    )  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Target]:
    folder = tmp_path_factory.mktemp("small")
    differential.git(folder, "init", "-q")
    (commit,) = differential.fast_import(folder, [handmade.TREE])
    blobs = {blob_id(data): data for _, data in handmade.TREE.values()}
    return World(folder, [], blobs), differential.target_of(folder, commit, handmade.TREE)


def by_patchq(world: World, target: Target, text: bytes) -> differential.Tree | str:
    """By the engine, whichever way it takes."""
    store = Git(world.folder / ".git")
    try:
        (done,) = Engine(store, "up", {}).apply(
            CommitId(target.commit), [Incoming(name="change", header=HEADER, diff=text, where="change.patch")]
        )
    except PatchqError as error:
        return error.message
    return {path: (entry.mode, entry.blob) for path, entry in store.list_tree(done.commit).items()}


def agree(ours: differential.Tree | str, theirs: differential.Tree | str, *, empty: bool = False) -> None:
    if isinstance(ours, str):
        meant = [name for name, pattern in MEANT.items() if pattern.search(ours)]
        assert isinstance(theirs, str) or meant, f"only patchq refuses: {ours}"
    else:
        # A patch without a diff is one that changes nothing; git has a word of its own for it.
        assert not isinstance(theirs, str) or empty, f"only git refuses: {theirs}"
        assert ours == theirs or empty


@pytest.mark.parametrize("name", handmade.DIFFS)
def test_made_by_hand(small: tuple[World, Target], name: str) -> None:
    world, target = small
    text = handmade.DIFFS[name]
    agree(by_patchq(world, target, text), differential.by_git(world, target, text), empty=not text)


def compare_all(world: World, target: Target) -> Figures:
    figures = Figures()
    for text in handmade.DIFFS.values():
        if text:
            differential.compare(world, target, text, figures)
    return figures


def test_hand_made_ones_are_of_all_kinds(small: tuple[World, Target]) -> None:
    """Taken in process, left to git, refused by both: a set of one kind would prove little."""
    world, target = small
    figures = compare_all(world, target)
    sound(figures)
    assert min(figures.both_took, figures.both_refused, figures.left_to_git) > 10, figures
    assert {*figures.meant, "form", "skipped", "no target"} == set(MEANT), figures.meant


def test_what_is_left_to_git_is_the_same_through_the_engine(tmp_path: Path) -> None:
    import random

    dice = random.Random(7)
    world = differential.make_world(tmp_path, dice, edits=20, patches=2)
    tried = 0
    while tried < (2000 if LONG else 40):
        target, diffs = dice.choice(world.targets)
        text = differential.damage(dice, dice.choice(diffs), diffs)
        if differential.in_process(world, target, text) is None:
            tried += 1
            agree(by_patchq(world, target, text), differential.by_git(world, target, text))


@pytest.mark.parametrize("fault", ["search", "lines", "header"])
def test_a_fault_is_found(small: tuple[World, Target], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """An applier that guesses and searches the other way round, one that loses a line, one that believes the first line."""
    if fault == "search":
        right = diff._around
        monkeypatch.setattr(diff, "_around", lambda line, total: reversed(list(right(line, total))))
        monkeypatch.setattr(diff, "_places", lambda *_: [])
    elif fault == "lines":
        right_split = diff.split_lines
        monkeypatch.setattr(diff, "split_lines", lambda content: right_split(content)[:-1] or [b"x\n"])
    else:
        read = diff.read_header

        def believing(lines: Sequence[bytes], at: int) -> object:
            mended = list(lines)
            first = lines[at].removeprefix(b"diff --git ").partition(b" ")[0]
            for n in range(at, min(at + 8, len(lines))):
                if lines[n].startswith(b"--- a/"):
                    mended[n] = b"--- " + first
            return read(mended, at)

        monkeypatch.setattr(diff, "read_header", believing)
    figures = compare_all(*small)
    assert figures.different or figures.taken or figures.refused


def test_patches_of_our_own_take_the_short_way() -> None:
    """All of these stacks' patches are as git writes them: none costs a process of its own."""
    for path in sorted((ROOT / "patches").glob("*/*/*.patch")):
        assert diff.parse(split_mail(path.read_bytes())[2], str(path))
