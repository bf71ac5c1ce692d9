"""A patchq killed before any write, rename, removal or child process leaves a whole project.

Each verb runs in a forked child that sends itself SIGKILL at one door of layer 1; then the next
command must find the project as before the verb, or as after it. Nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, edit, git, numbered
from patchq import fsio, runner

DOORS = [(fsio, "write_atomic"), (fsio, "rename"), (fsio, "remove"), (runner, "run"), (runner, "feed")]


class Doors:
    """Counts what goes through layer 1's doors, and dies at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, die_at: int = 0) -> None:
        self.count, self.die_at = 0, die_at
        for module, name in DOORS:
            patch.setattr(module, name, self.watched(getattr(module, name)))

    def watched(self, door: Callable[..., Any]) -> Callable[..., Any]:
        def through(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return door(*args, **kwargs)

        return through


def forked(patchq: Patchq, args: tuple[str, ...], die_at: int) -> tuple[int, int]:
    """Run a verb in a child; returns its wait status and how many doors it went through."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            doors = Doors(patch, die_at)
            code = patchq.run(*args).exit_code
            os.write(write, str(doors.count).encode())
            os._exit(code)
    os.close(write)
    _, status = os.waitpid(child, 0)
    counted = os.read(read, 16)
    os.close(read)
    return status, int(counted or 0)


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


VERBS: dict[str, tuple[Callable[[Patchq], None], tuple[str, ...]]] = {
    "apply cold": (unapplied, ("apply",)),
    "apply to": (nothing, ("apply", "--to", "first")),
    "new": (edited, ("new", "up", "fourth", "-m", "Fourth\n\nWhy.")),
    "import": (nothing, ("import", "up", "EXTRA")),
    "export": (committed, ("export", "up")),
    "drop": (nothing, ("drop", "first")),
    "move": (nothing, ("move", "third", "--first")),
    "undo": (nothing, ("undo",)),
    "pin": (nothing, ("pin", "up", "--ref", "v1", "--set", "other")),
    "pr --status": (nothing, ("pr", "first", "--status", "--url", "https://example.org/pull/1")),
}


def user_sees(patchq: Patchq) -> dict[str, bytes]:
    """Everything that is the user's, and what git says of the worktree."""
    seen = patchq.snapshot()
    seen.pop("refs", None)
    if (patchq.tree() / ".git").exists():
        seen["head"] = git(patchq.tree(), "rev-parse", "HEAD").encode()
        seen["status"] = git(patchq.tree(), "status", "--porcelain").encode()
    return seen


@pytest.mark.parametrize("verb", VERBS)
def test_killed_at_every_door(stack: Patchq, verb: str, tmp_path: Path) -> None:
    prepare, args = VERBS[verb]
    prepare(stack)
    extra = stack.root.parent / "extra.diff"
    extra.write_text("--- /dev/null\n+++ b/extra.txt\n@@ -0,0 +1 @@\n+extra\n")
    args = tuple(str(extra) if a == "EXTRA" else a for a in args)
    before = user_sees(stack)
    saved = tmp_path / "saved"
    shutil.copytree(stack.root, saved, symlinks=True)
    status, doors = forked(stack, args, 0)
    assert status == 0
    after = user_sees(stack)
    assert after != before
    outcomes = {"before": 0, "after": 0}
    for door in range(1, doors + 1):
        shutil.rmtree(stack.root)
        shutil.copytree(saved, stack.root, symlinks=True)
        status, _ = forked(stack, args, door)
        assert os.WIFSIGNALED(status), f"door {door} was not reached"
        # The next command is one that changes nothing of its own.
        out = stack.run("fetch")
        assert out.exit_code == 0, f"{verb}, door {door}: {out.output}"
        now = user_sees(stack)
        assert now in (before, after), f"{verb} killed at door {door} left something in between"
        outcomes["before" if now == before else "after"] += 1
        # Nothing hinders whoever tries again.
        if now == before:
            again = stack.run(*args)
            assert again.exit_code == 0, f"{verb}, again after door {door}: {again.output}"
            assert user_sees(stack) == after
    assert outcomes["before"]
    assert outcomes["after"] or verb == "undo"


def test_a_checkout_killed_half_way_is_finished(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git itself killed while it writes files: some old, one cut short, one new, a stale index.lock."""
    from patchq.worktree import Worktree

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
    assert "finished what an interrupted command had begun" in stack.ok("fetch")
    assert "1 of 3" in stack.ok("status")
    assert git(stack.tree(), "status", "--porcelain") == ""
    assert b"changed" not in (stack.tree() / "b.txt").read_bytes()
    stack.ok("apply")


def test_an_edit_after_the_kill_is_kept(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchq.journal import Journal

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
    from patchq.journal import Journal

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Journal, "_carry_out", lambda *a, **k: os._exit(9))
        stack.run(*args)
    os.waitpid(child, 0)
    out = stack.ok("apply")
    assert "finished what an interrupted command had begun" in out
    names = [line.removesuffix(".patch") for line in (stack.layout.stack("up", "v1") / "series").read_text().split()]
    assert names == (["second", "third"] if args[0] == "drop" else ["third", "first", "second"])
    assert f"up to date, {len(names)} patches" in out
    assert "nothing changed" in stack.ok("export", "up")


def resolved(patchq: Patchq) -> None:
    """What a person does at the stop of the scenario below."""
    (patchq.layout.tree("up@v2") / "a.txt").write_bytes(b"resolved\n" + numbered(40))


def with_recorded(patchq: Patchq) -> None:
    """The same conflict was resolved before: the rebase tries that first."""
    assert patchq.run("rebase", "up", "--onto", "v2").exit_code == 3
    resolved(patchq)
    patchq.ok("rebase", "up", "--continue", "--no-proof")
    patchq.ok("undo")


def stopped(patchq: Patchq) -> None:
    assert patchq.run("rebase", "up", "--onto", "v2").exit_code == 3


def stopped_and_resolved(patchq: Patchq) -> None:
    stopped(patchq)
    resolved(patchq)


REBASE: dict[str, tuple[Callable[[Patchq], None], tuple[str, ...]]] = {
    "onto": (nothing, ("--onto", "v2")),
    "onto, with a recorded resolution": (with_recorded, ("--onto", "v2")),
    "continue": (stopped_and_resolved, ("--continue", "--no-proof")),
    "skip": (stopped, ("--skip",)),
    "abort": (stopped_and_resolved, ("--abort",)),
}


def without_time(seen: dict[str, bytes]) -> dict[str, bytes]:
    """The ledger has the time of each attempt."""
    return {k: re.sub(rb'"time": "[^"]*"', b"", v) for k, v in seen.items() if k != "refs"}


@pytest.mark.parametrize("what", REBASE)
@pytest.mark.parametrize("then", ["goes on", "gives up"])
def test_a_rebase_killed_at_every_door(stack: Patchq, upstream: Path, tmp_path: Path, what: str, then: str) -> None:
    """Whatever it was at, it can be gone on with to the same end, or given up with nothing left."""
    lines = numbered(40).splitlines(keepends=True)
    lines[4], lines[29] = b"otherwise\n", b"and this\n"
    commit_files(upstream, {"a.txt": b"".join(lines)}, "v2")
    git(upstream, "tag", "v2")
    before = without_time(stack.snapshot())
    prepare, args = REBASE[what]
    prepare(stack)
    saved = tmp_path / "saved"
    shutil.copytree(stack.root, saved, symlinks=True)

    def go_on() -> dict[str, bytes]:
        """Drive the rebase to its end, as a person would: the first patch resolved, all else left out."""
        for _ in range(6):
            if not stack.layout.private.joinpath("rebase", "up.json").exists():
                if (stack.layout.stack("up", "v2") / "series").exists():
                    break
                done = stack.run("rebase", "up", "--onto", "v2")
                assert done.exit_code in (0, 3), done.output
                continue
            state = json.loads(stack.layout.private.joinpath("rebase", "up.json").read_text())
            if state["phase"] == "carrying" and state["stop"] and state["stop"]["ready"]:
                if state["stop"]["patch"] == "first" and what != "skip":
                    resolved(stack)
                    done = stack.run("rebase", "up", "--continue", "--no-proof")
                else:
                    done = stack.run("rebase", "up", "--skip")
            else:
                done = stack.run("rebase", "up", "--continue", "--no-proof")
            assert done.exit_code in (0, 3), done.output
        assert not stack.layout.tree("up@v2").exists()
        return without_time(stack.snapshot())

    status, doors = forked(stack, ("rebase", "up", *args), 0)
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) in (0, 3)
    after = go_on()
    stride = 1 if then == "goes on" else 3
    for door in range(1, doors + 1, stride):
        shutil.rmtree(stack.root)
        shutil.copytree(saved, stack.root, symlinks=True)
        status, _ = forked(stack, ("rebase", "up", *args), door)
        assert os.WIFSIGNALED(status), f"door {door} was not reached"
        if then == "goes on":
            assert go_on() == after, f"killed at door {door} of {what}"
            continue
        stack.ok("fetch")  # finishes what the journal has
        if stack.layout.private.joinpath("rebase", "up.json").exists():
            stack.ok("rebase", "up", "--abort")
        now = without_time(stack.snapshot())
        known = {k: v for k, v in now.items() if "rr-cache" not in k}
        assert known in (before, {k: v for k, v in after.items() if "rr-cache" not in k}), f"door {door} of {what}"
        assert not stack.layout.tree("up@v2").exists()
