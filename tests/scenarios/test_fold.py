"""``fold``: edits go into the patches that own the lines, exactly or not at all."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from kit import Patchq, edit, git, numbered


def files(patchq: Patchq) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(patchq.tree().glob("*")) if path.is_file()}


def applies_alone(patchq: Patchq) -> None:
    """The patch files give the tree, each on those below it, with git's own apply."""
    names = (patchq.layout.stack("up", "v1") / "series").read_text().split()
    base = git(patchq.layout.store, "rev-parse", f"up~{len(names)}")
    work = patchq.root.parent / "applied"
    git(patchq.layout.store, "worktree", "add", "-q", "-f", "--detach", str(work), base)
    for name in names:
        git(work, "apply", "--index", "--allow-empty", str(patchq.layout.stack("up", "v1") / name))
    assert git(work, "write-tree") == git(patchq.tree(), "rev-parse", "HEAD^{tree}")
    git(patchq.layout.store, "worktree", "remove", "--force", str(work))


def test_each_edit_goes_into_the_patch_that_owns_its_line(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 5, b"changed again\n")
    edit(stack.tree() / "b.txt", 10, b"changed too\nand more\n")
    before = files(stack)
    said = stack.ok("fold", "up")
    assert "a.txt:5 (-1 +1) into first" in said
    assert "b.txt:10 (-1 +2) into third" in said
    assert files(stack) == before
    assert git(stack.tree(), "status", "--porcelain") == ""
    assert "+changed again" in stack.patch_file("first").read_text()
    assert "+and more" in stack.patch_file("third").read_text()
    applies_alone(stack)
    stack.ok("undo")
    assert files(stack) == before
    assert git(stack.tree(), "status", "--porcelain") != ""


def test_lines_of_no_patch_are_refused_with_the_commands(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 5, b"mine\n")
    edit(stack.tree() / "b.txt", 30, b"mine\n")
    before = stack.snapshot()
    said = stack.fails(1, "fold", "up")
    assert "b.txt:30: lines of no patch" in said
    assert (
        "`patchq fold up --partial` folds the other edits (1); then `patchq new up b` makes a patch of these edits"
        in said
    )
    assert stack.snapshot() == before


def test_lines_of_two_patches_are_refused(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 6, b"line of fourth\n")
    stack.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")
    path = stack.tree() / "a.txt"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"both\n", *lines[6:]]))
    said = stack.fails(1, "fold", "up")
    assert "a.txt:5: lines of first and fourth" in said
    assert "`patchq export up --amend fourth` puts these edits into fourth" in said


def test_partial_leaves_the_rest_and_can_be_undone(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 5, b"mine\n")
    edit(stack.tree() / "b.txt", 30, b"mine\n")
    before = stack.snapshot()
    body = json.loads(stack.ok("fold", "up", "--partial", "--json"))
    assert [(e["path"], e["line"], e["owners"]) for e in body["edits"]] == [("a.txt", 5, ["first"])]
    assert [(e["path"], e["line"], e["owners"]) for e in body["left"]] == [("b.txt", 30, [])]
    assert git(stack.tree(), "status", "--porcelain").split() == ["M", "b.txt"]
    after = stack.snapshot()
    stack.ok("undo")
    assert stack.snapshot() == before
    stack.ok("redo")
    assert stack.snapshot() == after
    stack.ok("new", "up", "b", "-m", "B\n\nWhy.")


def test_insertions_deletions_and_whole_files(patchq: Patchq) -> None:
    patchq.ok("apply")
    tree = patchq.tree()
    (tree / "new.txt").write_bytes(b"one\ntwo\n")
    lines = (tree / "a.txt").read_bytes().splitlines(keepends=True)
    (tree / "a.txt").write_bytes(b"".join([*lines[:10], *lines[12:]]))  # removes lines 11 and 12
    patchq.ok("new", "up", "first", "-m", "First\n\nWhy.")
    (tree / "exe").write_bytes(b"\0binary\n")
    patchq.ok("new", "up", "second", "-m", "Second\n\nWhy.")
    lines = (tree / "a.txt").read_bytes().splitlines(keepends=True)
    (tree / "a.txt").write_bytes(b"".join([*lines[:10], b"instead\n", *lines[10:]]))
    (tree / "exe").write_bytes(b"\0other\n")
    (tree / "exe").chmod(0o755)
    (tree / "new.txt").write_bytes(b"zero\none\ntwo")
    before = files(patchq)
    said = patchq.ok("fold", "up")
    assert "a.txt:11 (-0 +1) into first" in said
    assert "exe (-0 +0) into second" in said
    assert files(patchq) == before
    applies_alone(patchq)
    (tree / "exe").unlink()
    assert "up: second changes nothing now: `patchq drop up/second` removes it" in patchq.ok("fold", "up")
    applies_alone(patchq)


def test_a_renamed_file_keeps_its_owners(patchq: Patchq) -> None:
    patchq.ok("apply")
    tree = patchq.tree()
    edit(tree / "a.txt", 5, b"first\n")
    patchq.ok("new", "up", "first", "-m", "First\n\nWhy.")
    git(tree, "mv", "a.txt", "moved.txt")
    patchq.ok("new", "up", "second", "-m", "Second\n\nWhy.")
    edit(tree / "moved.txt", 5, b"first again\n")
    assert "moved.txt:5 (-1 +1) into first" in patchq.ok("fold", "up")
    assert "+first again" in patchq.patch_file("first").read_text()
    applies_alone(patchq)
    edit(tree / "moved.txt", 20, b"mine\n")
    assert "lines of no patch" in patchq.fails(1, "fold", "up")


def test_what_is_in_the_way_is_named(stack: Patchq) -> None:
    assert "nothing was edited" in stack.fails(1, "fold", "up")
    edit(stack.tree() / "a.txt", 5, b"mine\n")
    git(stack.tree(), "commit", "-qam", "Mine")
    assert "`patchq export up` first" in stack.fails(1, "fold", "up")
    git(stack.tree(), "reset", "-q", "HEAD~")
    file = stack.patch_file("second")
    file.write_bytes(file.read_bytes().replace(b"+changed", b"+otherwise"))
    assert "changed after the stack was applied" in stack.fails(1, "fold", "up")


@pytest.mark.parametrize("seed", range(4))
def test_random_edits_fold_exactly_or_not_at_all(patchq: Patchq, seed: int) -> None:
    dice = random.Random(seed)
    patchq.ok("apply")
    tree = patchq.tree()

    def scribble(path: Path, word: str, edits: int) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        for number in range(edits):
            at = dice.randrange(len(lines) + 1)
            removed = dice.randrange(3)
            lines[at : at + removed] = [b"%s %d %d\n" % (word.encode(), number, n) for n in range(dice.randrange(3))]
        path.write_bytes(b"".join(lines))

    (tree / "c.txt").write_bytes(numbered(12))
    for number in range(4):
        for name in ("a.txt", "c.txt"):
            scribble(tree / name, f"patch-{number}", 3)
        patchq.run("new", "up", f"p{number}", "-m", f"P{number}\n\nWhy.")
    folded = 0
    for round_ in range(3):
        scribble(tree / "a.txt", f"edit-{round_}", 2)
        scribble(tree / "c.txt", f"edit-{round_}", 2)
        before, found = files(patchq), patchq.snapshot()
        done = patchq.run("fold", "up", "--partial")
        assert done.exit_code in (0, 1), done.output
        assert files(patchq) == before
        if done.exit_code:
            assert patchq.snapshot() == found
        else:
            folded += 1
            applies_alone(patchq)
            patchq.ok("undo")
            assert patchq.snapshot() == found
            patchq.ok("redo")
            assert files(patchq) == before
    assert folded
