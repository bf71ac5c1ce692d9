"""A command that is killed, or meets a full disk, at any system call leaves a whole project.

Each verb runs traced; at one of its system calls that write, rename, remove or start something
every process is killed, or only the one that is there, or the disk is full from there on. Then the
next command must find the project as before the verb, or as after it. Nothing else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from extent import chosen, record
from kit import Patchq, edit, git
from meddling import FAULTS, check_answer, meddled
from tracer import Fault


def edited(patchq: Patchq) -> None:
    edit(patchq.tree() / "b.txt", 25, b"mine\n")


def committed(patchq: Patchq) -> None:
    edit(patchq.tree() / "a.txt", 6, b"mine\n")
    git(patchq.tree(), "commit", "-qam", "fixup! Change a.txt at 5")


def nothing(patchq: Patchq) -> None:
    pass


def unapplied(patchq: Patchq) -> None:
    git(patchq.layout.store, "worktree", "remove", "--force", str(patchq.tree()))
    patchq.layout.state("up").unlink()


def changed_on_disk(patchq: Patchq) -> None:
    """A colleague's patch is pulled while the worktree has edits."""
    edited(patchq)
    file = patchq.patch_file("second")
    file.write_bytes(file.read_bytes().replace(b"+changed", b"+the colleague's"))


def with_fuzz(patchq: Patchq) -> None:
    """A patch that applies with fuzz alone."""
    file = patchq.patch_file("second")
    file.write_bytes(file.read_bytes().replace(b" line 27\n", b" another line\n"))


def edited_by_owner(patchq: Patchq) -> None:
    edit(patchq.tree() / "a.txt", 5, b"changed again\n")
    edit(patchq.tree() / "b.txt", 10, b"changed again\n")


def wide(patchq: Patchq) -> None:
    """A patch with two hunks."""
    edit(patchq.tree() / "b.txt", 25, b"mine\n")
    edit(patchq.tree() / "b.txt", 39, b"mine\n")
    patchq.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")


def undone(patchq: Patchq) -> None:
    """A patch of the worktree's edits, undone: the edits are in the worktree again."""
    edited(patchq)
    patchq.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")
    patchq.ok("undo")


def fresh(patchq: Patchq) -> None:
    """As somebody has it who has just cloned the project."""
    shutil.rmtree(patchq.layout.private)


VERBS: dict[str, tuple[Callable[[Patchq], None], tuple[str, ...]]] = {
    "apply fresh": (fresh, ("apply",)),
    "apply cold": (unapplied, ("apply",)),
    "apply to": (nothing, ("apply", "--to", "first")),
    "new": (edited, ("new", "up", "fourth", "-m", "Fourth\n\nWhy.")),
    "import": (nothing, ("import", "up", "EXTRA", "--author", "me")),
    "export": (committed, ("export", "up")),
    "export amend": (edited, ("export", "up", "--amend", "second")),
    "new on a changed stack": (changed_on_disk, ("new", "up", "fourth", "-m", "Fourth\n\nWhy.")),
    "export amend on a changed stack": (changed_on_disk, ("export", "up", "--amend", "third")),
    "apply fix": (with_fuzz, ("apply", "up", "--fix", "second")),
    "drop": (nothing, ("drop", "first")),
    "move": (nothing, ("move", "third", "--first")),
    "fold": (edited_by_owner, ("fold", "up")),
    "split": (wide, ("split", "fourth", "fifth", "--hunk", "b.txt:1")),
    "undo": (nothing, ("undo",)),
    "redo": (undone, ("redo",)),
    "pin": (nothing, ("pin", "up", "--ref", "v1", "--set", "other")),
    "pr --status": (nothing, ("pr", "first", "--status", "--url", "https://example.org/pull/1")),
}


def discard(patchq: Patchq) -> None:
    """Set aside what `apply --fix` has put into the worktree so far; it is all in the patch file."""
    git(patchq.tree(), "reset", "-q", "--hard")


#: Verbs that are two operations: the first one applies the stack as it is on disk. Between them nothing is lost, and
#: what the verb says then leads to its end.
TWO_STEPS: dict[str, tuple[Callable[[Patchq], None], tuple[str, ...]]] = {
    "new on a changed stack": (nothing, ("export", "up")),
    "export amend on a changed stack": (nothing, ("export", "up")),
    "apply fix": (discard, ("apply", "up", "--fix", "second")),
}


def again(patchq: Patchq, verb: str, args: tuple[str, ...]) -> None:
    """Run a verb once more, or what it says is to be done first."""
    done = patchq.run(*args)
    if done.exit_code == 0 or verb not in TWO_STEPS:
        assert done.exit_code == 0, done.output
        return
    prepare, instead = TWO_STEPS[verb]
    assert "`patchq export up` first" in done.output or "the worktree was edited" in done.output
    prepare(patchq)
    patchq.ok(*instead)


def user_sees(patchq: Patchq) -> dict[str, bytes]:
    """Everything that is the user's, and what git says of the worktree."""
    seen = patchq.snapshot()
    seen.pop("refs", None)
    if (patchq.tree() / ".git").exists():
        seen["head"] = git(patchq.tree(), "rev-parse", "HEAD").encode()
        seen["status"] = git(patchq.tree(), "status", "--porcelain").encode()
    return seen


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
@pytest.mark.parametrize("verb", VERBS)
def test_at_every_system_call(stack: Patchq, verb: str, fault: Fault, tmp_path: Path) -> None:
    prepare, args = VERBS[verb]
    prepare(stack)
    extra = stack.root.parent / "extra.diff"
    extra.write_text("--- /dev/null\n+++ b/extra.txt\n@@ -0,0 +1 @@\n+extra\n")
    args = tuple(str(extra) if a == "EXTRA" else a for a in args)
    before = user_sees(stack)
    saved = tmp_path / "saved"
    shutil.copytree(stack.root, saved, symlinks=True)
    whole = meddled(stack, args)
    assert whole.exit_code == 0
    after = user_sees(stack)
    assert after != before
    outcomes, faults, met = {"before": 0, "after": 0}, [], 0
    for at in chosen(whole.stops, f"{verb} {fault.name}"):
        shutil.rmtree(stack.root)
        shutil.copytree(saved, stack.root, symlinks=True)
        outcome = meddled(stack, args, fault, at)
        met += bool(outcome.at)
        try:
            if not outcome.at:  # git's own work differs by a call or two from run to run
                assert (outcome.exit_code, user_sees(stack)) == (0, after), "not reached, and not done"
                outcomes["after"] += 1
                continue
            check_answer(outcome, fault)
            # The next command is one that changes nothing of its own.
            stack.ok("fetch")
            now = user_sees(stack)
            assert verb in TWO_STEPS or now in (before, after), "left something in between"
            assert now == after or outcome.exit_code != 0, "claims to have done what it didn't"
            git(stack.layout.store, "fsck", "--no-dangling", "--no-progress")
            outcomes["after" if now == after else "before"] += 1
            if now != after:  # nothing hinders whoever tries again
                again(stack, verb, args)
                assert user_sees(stack) == after, "done again, it ends elsewhere"
        except AssertionError as error:
            faults.append(f"at {at} of {whole.stops} ({outcome.at}): {error}")
    assert not faults, f"{verb}, {fault.value}:\n" + "\n".join(faults)
    assert outcomes["before"]
    record("killed", verb=verb, fault=fault.value, points=whole.stops, met=met, **outcomes)


def test_a_checkout_killed_half_way_is_finished(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git itself killed while it writes files: some old, one cut short, one new, a stale index.lock."""
    from patchq.git.worktree import Worktree

    def dies(self: Worktree, old: object, new: object) -> None:
        (self.path / "a.txt").write_bytes(b"line 1\nline 2\n")
        (self.path / "b.txt").unlink()
        (self.git_folder() / "index.lock").write_bytes(b"")
        os._exit(9)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Worktree, "checkout", dies)
        stack.run("apply", "--to", "first")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 9 << 8
    assert "finished an interrupted command" in stack.ok("fetch")
    assert "1 of 3" in stack.ok("status")
    assert git(stack.tree(), "status", "--porcelain") == ""
    assert b"changed" not in (stack.tree() / "b.txt").read_bytes()
    stack.ok("apply")


def test_an_edit_after_the_kill_is_kept(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchq.project.journal import Journal

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Journal, "_carry_out", lambda *a, **k: os._exit(9))
        stack.run("apply", "--to", "first")
    os.waitpid(child, 0)
    (stack.tree() / "b.txt").write_bytes(b"precious\n")
    assert "b.txt was edited after a command was interrupted" in stack.fails(1, "apply")
    assert (stack.tree() / "b.txt").read_bytes() == b"precious\n"
    git(stack.tree(), "checkout", "--", "b.txt")
    stack.ok("apply")


@pytest.mark.parametrize("args", [("drop", "first"), ("move", "third", "--first")])
def test_apply_after_the_kill_reads_what_was_finished(
    stack: Patchq, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    """The stack is read under the lock: what stood in the series before the recovery is history."""
    from patchq.project.journal import Journal

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Journal, "_carry_out", lambda *a, **k: os._exit(9))
        stack.run(*args)
    os.waitpid(child, 0)
    out = stack.ok("apply")
    assert "finished an interrupted command" in out
    names = [line.removesuffix(".patch") for line in (stack.layout.stack("up", "v1") / "series").read_text().split()]
    assert names == (["second", "third"] if args[0] == "drop" else ["third", "first", "second"])
    assert f"up to date, {len(names)} patches" in out
    assert "nothing changed" in stack.ok("export", "up")
