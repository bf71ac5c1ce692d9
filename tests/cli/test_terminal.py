"""On a terminal of 80 columns: nothing wider, no name broken, colour only there and not with NO_COLOR."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from kit import Patchq

VERBS = [("status",), ("list",), ("ledger", "up"), ("ledger", "--cost"), ("forecast", "up", "--onto", "v1")]
ESCAPE = re.compile(rb"\x1b\[[0-9;]*m")


@pytest.fixture
def told(stack: Patchq) -> Patchq:
    """A stack whose ledger has long and hostile words."""
    line = {"v": 1, "patch": "first", "patch_id": "0" * 40, "from_ref": "v1", "onto": "v2", "outcome": "resolved", "tool": "t",
            "time": "2026-11-21T00:00:00Z", "how": "by hand, with many words " * 5 + "\x1b]0;title\x07", "proof": "passed"}  # fmt: skip
    (stack.root / "patches" / "up" / "ledger.jsonl").write_text(json.dumps(line) + "\n")
    return stack


def on_terminal(patchq: Patchq, *args: str, code: int | None = 0, columns: int = 80, **env: str) -> bytes:
    """What a verb writes to a terminal; ``code`` None for any exit code."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    argv = [sys.executable, "-m", "patchq", "--project", str(patchq.root), *args]
    clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(argv, stdout=slave, stderr=slave, stdin=slave, env={**clean, "TERM": "xterm", **env}) as done:
        os.close(slave)
        seen = b""
        while True:
            try:
                seen += os.read(master, 65536)
            except OSError:
                break
    os.close(master)
    assert code in (None, done.returncode), seen
    return seen


@pytest.mark.parametrize("args", VERBS, ids=" ".join)
def test_readable_at_80_columns(told: Patchq, args: tuple[str, ...]) -> None:
    seen = on_terminal(told, *args)
    lines = ESCAPE.sub(b"", seen).decode().replace("\r", "").splitlines()
    assert max(len(line) for line in lines) <= 80
    assert any("first" in line for line in lines) or args == ("status",)
    assert b"\x1b]" not in seen, "somebody's words don't reach the terminal as commands"


def test_a_list_has_whole_words_at_60_columns(told: Patchq) -> None:
    long = "a-name-that-leaves-no-room-for-another-column"
    told.ok(
        "reword",
        "second",
        "-m",
        "Change what is in the middle of the file, and nothing else",
        "--trailer",
        "Topic: attention",
    )
    series = told.root / "patches" / "up" / "v1" / "series"
    series.write_text(series.read_text().replace("second.patch", f"{long}.patch"))
    told.patch_file("second").rename(told.patch_file(long))
    seen = ESCAPE.sub(b"", on_terminal(told, "list", columns=60)).decode().replace("\r", "")
    assert max(map(len, seen.splitlines())) <= 60
    text = " ".join(seen.split())
    assert (
        f"up/{long} topic: attention; upstream: Pending; subject: Change what is in the middle of the file, and" in text
    )
    assert "upstream: Pending" not in told.ok("list"), "a file or a pipe gets the table"


def test_colour_only_on_a_terminal_and_not_with_no_color(told: Patchq) -> None:
    assert ESCAPE.search(on_terminal(told, "list"))
    assert not ESCAPE.search(on_terminal(told, "list", NO_COLOR="1"))
    assert not ESCAPE.search(on_terminal(told, "ledger", NO_COLOR="1"))
    assert "\x1b" not in told.ok("list")
