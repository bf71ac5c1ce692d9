"""``undo`` again and again: what one gives back as edits never blocks the next."""

from __future__ import annotations

import random

import pytest

from kit import Patchq, edit, git


def everything(patchq: Patchq) -> str:
    """Return every object's text that a user could ask for: the worktree, its refs, the kept commits."""
    refs = git(patchq.layout.store, "for-each-ref", "--format=%(objectname)").split()
    texts = [git(patchq.layout.store, "grep", "-h", "-e", "mine-", ref) for ref in refs if _has(patchq, ref)]
    files = [path.read_text() for path in patchq.tree().glob("*.txt")] if patchq.tree().exists() else []
    return "\n".join([*texts, *files])


def _has(patchq: Patchq, ref: str) -> bool:
    try:
        return bool(git(patchq.layout.store, "grep", "-l", "-e", "mine-", ref))
    except AssertionError:
        return False


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_blocks(stack: Patchq, seed: int) -> None:
    dice = random.Random(seed)
    done = 0
    for number in range(6):
        verb = dice.choice(["new", "new", "amend", "amend", "apply to", "apply", "move", "commit"])
        path = stack.tree() / dice.choice(["a.txt", "b.txt"])
        if verb in ("new", "amend", "commit"):
            edit(path, dice.randrange(1, 41), f"mine-{number}\n".encode())
        names = (stack.layout.stack("up", "v1") / "series").read_text().split()
        args = {
            "new": ("new", "up", f"n{number}", "-m", f"N{number}\n\nWhy."),
            "amend": ("export", "up", "--amend", dice.choice(names).removesuffix(".patch")),
            "apply to": ("apply", "--to", dice.choice(names).removesuffix(".patch")),
            "apply": ("apply",),
            "move": ("move", names[-1].removesuffix(".patch"), "--first"),
            "commit": ("export", "up"),
        }[verb]
        if verb == "commit":
            git(stack.tree(), "commit", "-qam", f"Mine {number}\n\nWhy.")
        operations = len(list((stack.layout.private / "journal" / "operations").glob("*.json")))
        head = git(stack.tree(), "rev-parse", "refs/heads/up")
        if stack.run(*args).exit_code:
            git(stack.tree(), "reset", "-q", "--hard", head if verb != "commit" else f"{head}~")
            continue
        done += len(list((stack.layout.private / "journal" / "operations").glob("*.json"))) - operations
    kept = {f"mine-{n}" for n in range(6) if f"mine-{n}" in everything(stack)}
    for _ in range(done):
        stack.ok("undo")
    lost = {word for word in kept if word not in everything(stack)}
    assert not lost
    stack.ok("status")


def test_what_cannot_stay_in_the_files_is_kept_as_a_commit(patchq: Patchq) -> None:
    patchq.ok("apply")
    edit(patchq.tree() / "a.txt", 7, b"mine-7\n")
    (patchq.tree() / "new.txt").write_text("mine-8\n")
    patchq.ok("new", "up", "first", "-m", "First\n\nWhy.")
    patchq.ok("undo")
    output = patchq.ok("undo")
    assert not patchq.tree().exists()
    kept = output.partition("your edits are kept as ")[2].split(":")[0]
    assert git(patchq.layout.store, "show", f"{kept}:new.txt") == "mine-8"
    assert "mine-7" in git(patchq.layout.store, "show", f"{kept}:a.txt")


def test_fresh_edits_still_block(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 7, b"mine-7\n")
    stack.ok("new", "up", "mine", "-m", "Mine\n\nWhy.")
    stack.ok("undo")
    edit(stack.tree() / "a.txt", 8, b"mine-8\n")
    before = stack.snapshot()
    assert "was edited" in stack.fails(1, "undo")
    assert stack.snapshot() == before
