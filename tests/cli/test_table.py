"""Tables of narrow ASCII text are printed without rich, with the same lines."""

from __future__ import annotations

import subprocess
import sys

import pytest

from patchq.cli import terminal

ROWS = [["up/one", "", "a subject: it's [bold]plain[/]"], ["up/second", "topic", ""], ["x", "y" * 30, "z"]]


@pytest.mark.parametrize("rows", [ROWS, [["up/one", "t", "e\x1b[1m"]], [["up/é", "t", "s"]], [["a", "b" * 210, "c d"]]])
def test_both_ways_print_the_same(
    rows: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.show_table(("patch", "topic", "subject"), rows)
    quick = capsys.readouterr().out
    monkeypatch.setattr(terminal, "_plain_lines", lambda *_: [])
    terminal.show_table(("patch", "topic", "subject"), rows)
    assert quick == capsys.readouterr().out
    assert "\x1b" not in quick


def test_a_narrow_table_needs_no_rich() -> None:
    code = (
        "import sys; from patchq.cli.terminal import show_table as s; s(['a'], [['b']]); print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a\nb\nFalse\n"
