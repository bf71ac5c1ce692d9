"""A power cut at any system call: what was written and not synced is gone, and `patchq fetch` mends the rest.

The file system that this stands for keeps renames and new names in their order, as journaling ones do, and may have
nothing of a file's content that no fsync asked for: such a file is empty, cut short, or zeros.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from extent import chosen, record
from kit import Patchq, git
from meddling import meddled
from test_killed import TWO_STEPS, VERBS, again, user_sees
from test_killed_rebase import REBASE, Scene, go_on, is_ready
from test_killed_rebase import scene as scene  # a fixture
from tracer import Fault, Outcome


def cut(root: Path, outcome: Outcome, rng: random.Random) -> list[str]:
    """Take from the files under ``root`` what was not synced; returns which."""
    gone = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            found = path.lstat()
            if (found.st_dev, found.st_ino) in outcome.unsynced and not path.is_symlink():
                mode = found.st_mode
                path.chmod(0o644)
                size = found.st_size
                path.write_bytes(rng.choice([b"", b"\0" * size, path.read_bytes()[: rng.randrange(size + 1)]]))
                path.chmod(mode & 0o777)
                gone.append(str(path.relative_to(root)))
    return gone


@pytest.mark.parametrize("verb", VERBS)
def test_at_every_system_call(stack: Patchq, verb: str, tmp_path: Path) -> None:
    prepare, args = VERBS[verb]
    prepare(stack)
    extra = stack.root.parent / "extra.diff"
    extra.write_text("--- /dev/null\n+++ b/extra.txt\n@@ -0,0 +1 @@\n+extra\n")
    args = tuple(str(extra) if a == "EXTRA" else a for a in args)
    before = user_sees(stack)
    os.sync()
    saved = tmp_path / "saved"
    shutil.copytree(stack.root, saved, symlinks=True)
    whole = meddled(stack, args)
    assert whole.exit_code == 0
    after = user_sees(stack)
    outcomes, faults = {"before": 0, "after": 0}, []
    rng = random.Random(verb)
    # Past the last call, too: what a command said it did must last. Runs differ by a call or two.
    for at in [*chosen(whole.stops, f"{verb} power"), 2 * whole.stops]:
        shutil.rmtree(stack.root)
        shutil.copytree(saved, stack.root, symlinks=True)
        outcome = meddled(stack, args, Fault.POWER_CUT, at)
        gone = cut(stack.root, outcome, rng)
        try:
            stack.ok("fetch")
            now = user_sees(stack)
            assert verb in TWO_STEPS or now in (before, after), "left something in between"
            assert now == after or outcome.exit_code != 0, "claims to have done what it didn't"
            git(stack.layout.store, "fsck", "--no-dangling", "--no-progress")
            outcomes["after" if now == after else "before"] += 1
            if now != after:
                again(stack, verb, args)
                assert user_sees(stack) == after, "done again, it ends elsewhere"
        except AssertionError as error:
            faults.append(f"at {at} of {whole.stops} ({outcome.at or 'done'}; lost {gone}): {error}")
    assert not faults, f"{verb}:\n" + "\n".join(faults)
    record("power", verb=verb, points=whole.stops, **outcomes)


@pytest.mark.parametrize("what", REBASE)
def test_a_rebase_at_every_system_call(scene: Callable[[str], Scene], what: str) -> None:
    """A stop that waits for a person has the file of its patch, because what is missing would look like an edit."""
    found = scene(what)
    stack, rng, faults = found.stack, random.Random(what), []
    conflict = str((stack.layout.tree("up@v2") / "a.txt").relative_to(stack.root))
    points = [*chosen(found.stops, f"rebase {what} power", 2, 12), 2 * found.stops]
    for at in points:
        found.again()
        outcome = meddled(stack, REBASE[what][1], Fault.POWER_CUT, at)
        gone = cut(stack.root, outcome, rng)
        try:
            if is_ready(stack):
                assert conflict not in gone, "the conflict is not on disk"
            assert go_on(stack, what) == found.after, "ends elsewhere"
        except AssertionError as error:
            faults.append(f"at {at} of {found.stops} ({outcome.at or 'done'}; lost {gone}): {error}")
    assert not faults, f"rebase {what}:\n" + "\n".join(faults)
    record("power", verb=f"rebase {what}", points=found.stops, tried=len(points))
