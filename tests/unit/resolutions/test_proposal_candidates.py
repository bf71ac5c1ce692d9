"""Candidates from real merges: what git's strategies resolve, and which results are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit import git, new_repository
from patchq.formats.header import Ident
from patchq.git.repository import Git, scratch
from patchq.names import CommitId, TreeId
from patchq.resolutions._candidates import StrategyOutcome, StrategyResult, candidates, look
from patchq.resolutions._sides import Sides
from patchq.resolutions._syntax import broken

Files = dict[str, bytes]
MakeSides = Callable[[Files, Files, Files], Sides]
NOBODY = Ident("nobody", "nobody@localhost", 946684800, "+0000")


@pytest.fixture
def merge(tmp_path: Path) -> Iterator[MakeSides]:
    """Return a function that makes the sides of a merge that conflicts."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "other").write_text("other\n")
    new_repository(folder)
    with scratch(Git(folder / ".git")) as store:

        def commit(files: Files, *parents: str) -> CommitId:
            for path in folder.iterdir():
                if path.is_file():
                    path.unlink()
            for name, data in files.items():
                (folder / name).write_bytes(data)
            git(folder, "add", "-A")
            return store.commit_tree(TreeId(git(folder, "write-tree")), parents, NOBODY, "x\n")

        def sides(base: Files, ours: Files, theirs: Files) -> Sides:
            root = commit(base)
            upstream, patch = commit(ours, root), commit(theirs, root)
            (merged,) = store.merge([(upstream, patch)])
            assert merged.stages
            parked = store.commit_tree(merged.tree, [upstream], NOBODY, "x\n")
            (info,) = store.log(f"{patch}^!")
            return Sides(git=store, patch=info, ours=upstream, parked=parked, stages=merged.stages)

        yield sides


def by_strategy(sides: Sides) -> dict[str, StrategyResult]:
    return {found.strategy: found for found in candidates(sides)}


def content(sides: Sides, tree: TreeId | None, path: bytes) -> bytes:
    assert tree
    return sides.texts(tree, [path])[path]


def test_blanks_are_ignored_where_they_have_no_meaning(merge: MakeSides) -> None:
    base, ours = b"void f() {\n  call(a);\n}\n", b"void f() {\n    call(a);\n}\n"
    theirs = b"void f() {\n  call(b);\n}\n"
    found = by_strategy(merge({"f.c": base}, {"f.c": ours}, {"f.c": theirs}))
    assert found["patience"].outcome == StrategyOutcome.CONFLICT
    assert found["ignore-space-change"].outcome == StrategyOutcome.PROPOSED
    sides = merge({"f.txt": base}, {"f.txt": ours}, {"f.txt": theirs})
    assert by_strategy(sides)["ignore-space-change"].outcome == StrategyOutcome.MISPLACED


def test_a_statement_keeps_its_block(merge: MakeSides) -> None:
    """Upstream puts a call into an `if`; git, without regard to blanks, would leave the patch's call outside it."""
    base, theirs = b"x = 1\ncall(a)\ny = 2\n", b"x = 1\ncall(b)\ny = 2\n"
    ours = b"x = 1\nif x:\n    call(a)\ny = 2\n"
    found = by_strategy(merge({"f.py": base}, {"f.py": ours}, {"f.py": theirs}))
    assert found["ignore-space-change"].outcome in (
        StrategyOutcome.CONFLICT,
        StrategyOutcome.MISPLACED,
        StrategyOutcome.SYNTAX,
    )
    assert found["ignore-all-space"].outcome in (
        StrategyOutcome.CONFLICT,
        StrategyOutcome.MISPLACED,
        StrategyOutcome.SYNTAX,
    )


def test_a_moved_file_is_found(merge: MakeSides) -> None:
    lines = [b"line %d\n" % n for n in range(20)]
    moved = b"".join(line if n < 8 else b"another %d\n" % n for n, line in enumerate(lines))
    patched = b"".join([*lines[:3], b"patched\n", *lines[4:]])
    sides = merge({"old.txt": b"".join(lines)}, {"new.txt": moved}, {"old.txt": patched})
    found = by_strategy(sides)
    assert (found["histogram"].outcome, found["find-renames=30%"].outcome) == (
        StrategyOutcome.CONFLICT,
        StrategyOutcome.PROPOSED,
    )
    assert b"patched\n" in content(sides, found["find-renames=30%"].tree, b"new.txt")


def test_smaller_pieces(merge: MakeSides) -> None:
    sides = merge({"f.txt": b"a\nb\n"}, {"f.txt": b"A\nb\n"}, {"f.txt": b"a\nB\n"})
    found = by_strategy(sides)["adjacent lines"]
    assert (found.outcome, found.unread) == (StrategyOutcome.PROPOSED, ("f.txt",))
    assert content(sides, found.tree, b"f.txt") == b"A\nB\n"


@pytest.mark.parametrize("released", [False, True])
def test_an_entry_of_a_changelog_stays_under_its_heading(merge: MakeSides, released: bool) -> None:
    """pytest: the release under whose heading the patch added its entry is out since."""
    lines = b"".join(b"* line %d\n" % n for n in range(12))
    base = b"3.0.3.dev\n=========\n\n" + lines + b"\n"
    ours = base + b"* upstream's entry\n"
    if released:
        ours = ours.replace(b"3.0.3.dev\n=========\n", b"3.1.0.dev\n=========\n\n3.0.3\n=====\n")
    sides = merge({"CHANGELOG.rst": base}, {"CHANGELOG.rst": ours}, {"CHANGELOG.rst": base + b"* the patch's entry\n"})
    found = by_strategy(sides).get("both additions")
    assert (found is not None and found.outcome == StrategyOutcome.PROPOSED) == (not released)


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (b"one = 1\ntwo = 3\n", StrategyOutcome.LOST_CHANGE),
        (b"one = 2\ntwo = 2\n", StrategyOutcome.LOST_CHANGE),
        (b"one = 2\ntwo = 3\nthree = 3\n", StrategyOutcome.LOST_CHANGE),
        (b"one = 2\ntwo = 3\n", StrategyOutcome.PROPOSED),
        (b"one = 2\n two = 3\n", StrategyOutcome.SYNTAX),
    ],
)
def test_a_merge_has_the_changes_of_both_sides(merge: MakeSides, result: bytes, outcome: StrategyOutcome) -> None:
    sides = merge({"f.py": b"one = 1\ntwo = 2\n"}, {"f.py": b"one = 2\ntwo = 2\n"}, {"f.py": b"one = 1\ntwo = 3\n"})
    assert look(sides, "a strategy", sides.with_files({b"f.py": result})).outcome == outcome


def test_a_line_of_both_sides_is_not_made_twice(merge: MakeSides) -> None:
    """redis: both sides added a method, and both stayed."""
    added = b"def mget(self):\n    return self.get()\n"
    base, ours, theirs, merged = b"z = f(1)\n", b"z = f(1, 2)\n", b"z = f(3, 1)\n", b"z = f(3, 1, 2)\n"
    sides = merge({"f.py": base}, {"f.py": added + ours}, {"f.py": added + theirs})
    found = look(sides, "a strategy", sides.with_files({b"f.py": added + merged + added}))
    assert (found.outcome, found.where) == (StrategyOutcome.MADE_TWICE, "def mget(self):")
    assert look(sides, "a strategy", sides.with_files({b"f.py": added + merged})).outcome == StrategyOutcome.PROPOSED


def test_a_name_that_one_side_renames(merge: MakeSides) -> None:
    """aiohttp: the branch has `loop` instead of `event_loop`, which the backport's new lines use."""
    base = b"def f(event_loop):\n    g()\n    h(event_loop)\n"
    ours = b"def f(loop):\n    g()\n    h(loop)\n"
    theirs = b"def f(event_loop):\n    G()\n    check(event_loop)\n    h(event_loop)\n"
    sides = merge({"f.py": base}, {"f.py": ours}, {"f.py": theirs})
    merged = b"def f(loop):\n    G()\n    check(event_loop)\n    h(loop)\n"
    found = look(sides, "a strategy", sides.with_files({b"f.py": merged}))
    assert (found.outcome, found.where) == (StrategyOutcome.STALE_NAME, "event_loop in f.py")


@pytest.mark.parametrize("place", ["f.py", "g.py"])
def test_a_renamed_package_stays_in_comments(merge: MakeSides, place: str) -> None:
    """paramiko: a backport from a fork with another package name."""
    rest = b"".join(b"x%d = %d\n" % (n, n) for n in range(20))
    base = b"# about ssh\nfrom ssh.a import A\n" + rest
    ours = b"# about ssh\nfrom paramiko.a import A\n" + rest
    theirs = b"# about ssh\nfrom ssh.a import A\nfrom ssh.b import B\n" + rest
    found = by_strategy(merge({"f.py": base}, {place: ours}, {"f.py": theirs}))
    assert (found["adjacent lines"].outcome, found["adjacent lines"].where) == (
        StrategyOutcome.STALE_NAME,
        f"ssh in {place}",
    )


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        (b"f.py", b"def f():\n    return 1\n", b"return 1\n"),
        (b"f.json", b'{"a": 1}', b'{"a": 1,}'),
        (b"f.toml", b"a = 1\n", b"a = 1\na = 2\n"),
        (b"f.cu", b"__global__ void f() { g<<<1, 2>>>(); }\n", b"__global__ void f() { g<<<1, 2>>>(; }\n"),
    ],
)
def test_files_are_parsed(path: bytes, good: bytes, bad: bytes) -> None:
    before = [{path: good}]
    assert broken(before, {path: good + b"\n"}) == ("", "", [])
    assert broken(before, {path: bad})[0] == path.decode()
    assert broken([{path: bad}], {path: bad + b"\n"})[0] == ""  # it was broken on a side
    assert broken(before, {b"f.unknown": bad}) == ("", "", ["f.unknown"])
