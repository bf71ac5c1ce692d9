"""A colleague's change is pulled while the worktree has the old stack: both are kept, or one command says how."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import Patchq, edit, git

#: Line 20 of a.txt is far from what the three patches change.
MINE = b"mine\n"


def series(patchq: Patchq) -> list[str]:
    text = (patchq.layout.stack("up", "v1") / "series").read_text()
    return [line.removesuffix(".patch") for line in text.splitlines()]


def write_series(patchq: Patchq, names: list[str]) -> None:
    (patchq.layout.stack("up", "v1") / "series").write_text("".join(f"{name}.patch\n" for name in names))


def edited(patchq: Patchq) -> None:
    file = patchq.patch_file("second")
    file.write_bytes(file.read_bytes().replace(b"+changed", b"+the colleague's"))


def removed(patchq: Patchq) -> None:
    patchq.patch_file("second").unlink()
    write_series(patchq, ["first", "third"])


def reordered(patchq: Patchq) -> None:
    write_series(patchq, ["third", "first", "second"])


def added(patchq: Patchq) -> None:
    text = patchq.patch_file("third").read_text()
    text = text.replace("Change b.txt at 10", "The colleague's").replace("line 10\n", "line 35\n")
    text = text.replace("@@ -7,7 +7,7 @@ line 6", "@@ -32,7 +32,7 @@ line 31").replace("+changed", "+the colleague's")
    for n in (7, 8, 9, 11, 12, 13):
        text = text.replace(f"\n line {n}\n", f"\n line {n + 25}\n")
    patchq.patch_file("theirs").write_text(text)
    write_series(patchq, ["first", "theirs", "second", "third"])


CHANGES: list[Callable[[Patchq], None]] = [edited, removed, reordered, added]


def expect_theirs(patchq: Patchq, change: Callable[[Patchq], None]) -> None:
    """Check the colleague's change in the stack and, once it is applied, in the tree."""
    patchq.ok("apply")
    a, b = ((patchq.tree() / name).read_text().splitlines() for name in ("a.txt", "b.txt"))
    names = series(patchq)
    if change is edited:
        assert a[29] == "the colleague's"
    elif change is removed:
        assert "second" not in names
        assert not patchq.patch_file("second").exists()
        assert a[29] == "line 30"
    elif change is reordered:
        assert [n for n in names if n in ("first", "second", "third")] == ["third", "first", "second"]
    else:
        assert names.index("theirs") == names.index("first") + 1
        assert b[34] == "the colleague's"


def expect_mine(patchq: Patchq, verb: str) -> None:
    assert (patchq.tree() / "a.txt").read_bytes().splitlines(keepends=True)[19] == MINE
    name = {"new": "mine", "export": "my-own-commit", "amend": "third"}[verb]
    assert name in series(patchq)
    assert b"+mine" in patchq.patch_file(name).read_bytes()


def run(patchq: Patchq, verb: str) -> tuple[str, ...]:
    edit(patchq.tree() / "a.txt", 20, MINE)
    if verb == "new":
        return ("new", "up", "mine", "-m", "Mine\n\nWhy.")
    if verb == "export":
        git(patchq.tree(), "commit", "-qam", "My own commit\n\nWhy.")
        return ("export", "up")
    return ("export", "up", "--amend", "third")


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("verb", ["new", "export", "amend"])
def test_both_are_kept(stack: Patchq, verb: str, change: Callable[[Patchq], None]) -> None:
    args = run(stack, verb)
    change(stack)
    stack.ok(*args)
    assert git(stack.tree(), "status", "--porcelain") == ""
    expect_mine(stack, verb)
    expect_theirs(stack, change)
    expect_mine(stack, verb)
    assert "0 unchanged" not in stack.ok("status")


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("verb", ["new", "export", "amend"])
def test_undo_brings_my_work_back(stack: Patchq, verb: str, change: Callable[[Patchq], None]) -> None:
    args = run(stack, verb)
    change(stack)
    before = stack.snapshot()
    stack.ok(*args)
    stack.ok("undo")
    if verb != "export":
        stack.ok("undo")
    after = stack.snapshot()
    refs = before.pop("refs"), after.pop("refs")
    assert before == after
    assert refs[0].splitlines()[-1:] == refs[1].splitlines()[-1:]


def follow(output: str, folder: Path) -> None:
    """Run the commands that a hint names between backquotes."""
    hint = output.partition("hint: ")[2]
    for command in hint.split("`")[1].split(" && "):
        words = shlex.split(command)
        if words[0] == "patchq":
            Patchq(folder).ok(*words[1:])
        else:
            subprocess.run(words, check=False, capture_output=True)


@pytest.mark.parametrize("verb", ["new", "export", "amend"])
def test_what_both_changed_is_refused_and_the_hint_keeps_both(stack: Patchq, verb: str) -> None:
    edit(stack.tree() / "a.txt", 30, MINE)
    if verb == "export":
        git(stack.tree(), "commit", "-qam", "My own commit\n\nWhy.")
    args = {
        "new": ("new", "up", "mine", "-m", "Mine\n\nWhy."),
        "export": ("export", "up"),
        "amend": ("export", "up", "--amend", "second"),
    }[verb]
    edited(stack)
    before = stack.snapshot()
    output = stack.fails(3, *args)
    after = stack.snapshot()
    assert before == after
    assert "the patch files changed after the stack was applied" in output
    follow(output, stack.root)
    text = (stack.tree() / "a.txt").read_text()
    assert "mine\n" in text
    assert "the colleague's\n" in text
    assert "<<<<<<<" in text


def test_a_patch_that_both_rewrote(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 29, MINE)
    git(stack.tree(), "commit", "-qa", "--fixup", ":/Change a.txt at 30")
    git(stack.tree(), "-c", "sequence.editor=true", "rebase", "-q", "-i", "--autosquash", "HEAD~4")
    edited(stack)
    output = stack.fails(1, "export", "up")
    assert "second changed both on disk and in the worktree" in output
    assert b"the colleague's" in stack.patch_file("second").read_bytes()


def test_patches_after_the_last_applied_one_stay(stack: Patchq) -> None:
    stack.ok("apply", "--to", "first")
    before = {name: stack.patch_file(name).read_bytes() for name in ("second", "third")}
    edit(stack.tree() / "a.txt", 20, MINE)
    stack.ok("new", "up", "mine", "-m", "Mine\n\nWhy.")
    assert series(stack) == ["first", "mine", "second", "third"]
    assert before == {name: stack.patch_file(name).read_bytes() for name in before}
    stack.ok("apply")
    assert (stack.tree() / "a.txt").read_text().splitlines()[19] == "mine"


def test_a_new_patch_without_edits_is_refused(stack: Patchq) -> None:
    output = stack.fails(1, "new", "up", "nothing")
    assert "nothing was edited" in output
    assert series(stack) == ["first", "second", "third"]
    stack.ok("new", "up", "nothing", "--allow-empty", "-m", "Nothing\n\nWhy.")
    assert series(stack) == ["first", "second", "third", "nothing"]
    stack.ok("apply")
