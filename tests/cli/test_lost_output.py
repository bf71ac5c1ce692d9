"""A standard stream that can't be written is an error in words: no traceback, and the project is whole."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kit import ROOT, Patchq

FULL, IO_ERROR, READ_ONLY, PIPE = "No space left", "Input/output error", "Bad file descriptor", ""


@contextmanager
def broken(reason: str) -> Iterator[int]:
    """Give a file descriptor that can't be written, for a reason."""
    if reason == FULL:
        fd = os.open("/dev/full", os.O_WRONLY)
    elif reason == READ_ONLY:
        fd = os.open(os.devnull, os.O_RDONLY)
    elif reason == PIPE:
        read, fd = os.pipe()
        os.close(read)
    else:  # a terminal that was closed
        master, fd = pty.openpty()
        os.close(master)
    try:
        yield fd
    finally:
        os.close(fd)


def run(patchq: Patchq, *args: str, unbuffered: bool = False, **streams: int) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *(["-u"] if unbuffered else []), "-m", "patchq", "--project", str(patchq.root), *args]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(argv, env=env, text=True, check=False, timeout=120, **pipes)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("unbuffered", [False, True], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("reason", [FULL, IO_ERROR, READ_ONLY, PIPE])
@pytest.mark.parametrize(
    "args", [("list",), ("status", "--json"), ("--help",), ("show", "nobody", "--json")], ids=" ".join
)
def test_lost_standard_output(stack: Patchq, args: tuple[str, ...], reason: str, unbuffered: bool) -> None:
    with broken(reason) as fd:
        done = run(stack, *args, unbuffered=unbuffered, stdout=fd)
    assert done.returncode == 1
    if reason != PIPE:  # `patchq … | head` is how one looks at the first lines
        assert done.stderr.startswith("error: ")
        assert reason in done.stderr or "nobody" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("reason", [FULL, IO_ERROR, READ_ONLY, PIPE])
@pytest.mark.parametrize(
    ("args", "code"), [(("nope",), 2), (("show", "nobody"), 1), (("apply",), 1), (("list",), 0)], ids=str
)
def test_lost_standard_error(stack: Patchq, args: tuple[str, ...], code: int, reason: str) -> None:
    """Without it a command goes on. One whose messages were lost doesn't succeed."""
    shutil.rmtree(stack.layout.private)  # so that `apply` reports what it fetches
    with broken(reason) as fd:
        done = run(stack, *args, stderr=fd)
    assert done.returncode == code, done.stdout
    stack.ok("apply")


def test_a_change_is_whole_when_its_output_is_lost(stack: Patchq) -> None:
    with broken(FULL) as fd:
        assert run(stack, "drop", "first", stdout=fd).returncode == 1
    assert "first" not in stack.ok("list")
    assert stack.ok("undo") == "undone: drop up/first\n"


def test_usage_errors_keep_their_exit_code(stack: Patchq) -> None:
    with broken(FULL) as fd:
        done = run(stack, "nope", "--json", stdout=fd)
    assert done.returncode == 2
    assert "No such command 'nope'" in done.stderr
