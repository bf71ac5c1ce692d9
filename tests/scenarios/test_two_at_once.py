"""Two commands at once: one waits, or says who holds the lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Timer

from kit import Patchq
from patchq.system import fsio

HOLD = """
import sys, time
from pathlib import Path
from patchq.system import fsio
with fsio.lock(Path(sys.argv[1]), verb="holding", wait=5):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(patchq: Patchq, seconds: float) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLD, str(patchq.layout.private / "lock"), str(seconds)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_waits(stack: Patchq) -> None:
    with holder(stack, 0.5) as process:
        stack.ok("apply", "--to", "first")
        assert process.wait() == 0


def test_the_second_says_who_holds_it(stack: Patchq) -> None:
    with holder(stack, 60) as process:
        out = stack.fails(1, "--wait", "0.1", "apply", "--to", "first")
        assert f"process {process.pid} on" in out
        assert "patchq holding" in out
        process.kill()
    stack.ok("apply", "--to", "first")


def test_a_child_that_outlives_its_patchq_keeps_the_lock(stack: Patchq, tmp_path: Path) -> None:
    """SIGKILL takes patchq, not the git that it started: nobody may begin beside that."""
    lock, over = stack.layout.private / "lock", tmp_path / "over"
    code = f"""
import os, subprocess, sys
from pathlib import Path
from patchq.system import fsio
from patchq.system import runner
with fsio.lock(Path({str(lock)!r}), verb="apply", wait=5):
    child = ["sh", "-c", "until [ -e {over} ]; do sleep 0.05; done"]
    subprocess.Popen(child, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=tuple(runner.inherited_fds))
    os.kill(os.getpid(), 9)
"""
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert dead.returncode == -9
    assert "it was killed, and a program that it started still runs" in stack.fails(1, "--wait", "0", "undo")
    later = Timer(0.3, over.touch)
    later.start()
    stack.ok("undo")
    assert over.exists(), "it did not wait"
    later.join()


def test_many_at_once_all_succeed(stack: Patchq) -> None:
    names = ["first", "second", "third"] * 3
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "patchq", "--project", str(stack.root), "--wait", "60", "apply", "--to", name],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for name in names
    ]  # fmt: skip
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out.decode()
    assert "clean" in stack.ok("status")
    assert fsio.read_or_none(stack.layout.private / "journal" / "pending.json") is None
