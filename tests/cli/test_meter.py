"""How far long work has come, on a terminal: one line, with rate and time left, that is gone when anything is said."""

from __future__ import annotations

import re
import sys

import pytest
from test_hostile_words import evil, shown, terminal_of

from patchq.cli import terminal
from patchq.cli.meter import Meter


class Watched:
    """A meter on a terminal, with a clock that is set."""

    def __init__(self) -> None:
        self.now = 100.0
        self.meter = Meter(
            lambda text: sys.stderr.write(text) and sys.stderr.flush(), terminal._line, terminal.meter()._shown, lambda: self.now
        )  # fmt: skip

    def __call__(self, seconds: float, *args: object) -> None:
        self.now += seconds
        self.meter(*args)  # type: ignore[arg-type]


def lines(got: list[bytes]) -> list[str]:
    """What stood on the line, one after the other."""
    return [text.rstrip() for text in b"".join(got).decode().split("\r") if text.strip()]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)


def test_bytes_with_their_rate_and_the_time_left() -> None:
    with terminal_of(80) as got:
        watched = Watched()
        watched(0, "vllm-0.13.0.tar.gz", 0, 30_000_000)
        watched(2, "vllm-0.13.0.tar.gz", 10_000_000, 30_000_000)
        watched(0.01, "vllm-0.13.0.tar.gz", 10_100_000, 30_000_000)
        watched(2, "vllm-0.13.0.tar.gz", 20_000_000, 30_000_000)
        watched(1, "vllm-0.13.0.tar.gz", 30_000_000, 30_000_000)
    first, second = lines(got)
    assert re.search(r"^vllm-0.13.0.tar.gz +\S+ +10.0/30.0 MB 5.0 MB/s 0:00:04$", first), first
    assert re.search(r"20.0/30.0 MB 5.0 MB/s 0:00:0[23]$", second), second
    assert max(map(len, lines(got))) < 80
    assert b"".join(got).endswith(b"\r" + b" " * 79 + b"\r"), "its line is gone"


def test_counts_and_rates_below_one_a_second() -> None:
    with terminal_of(80) as got:
        watched = Watched()
        watched(0, "proofs", 0, 12, "runs")
        watched(60, "proofs", 2, 12, "runs")
        watched(1, "up onto v2", 0, 300, "patches")
        watched(2, "up onto v2", 100, 300, "patches")
    first, second = lines(got)
    assert re.search(r"^proofs +\S+ +2/12 +2.0 runs/min 0:05:00$", first), first
    assert re.search(r"^up onto v2 +\S+ +100/300 50.0 patches/s 0:00:04$", second), second


def test_what_is_quick_is_not_shown_and_an_unknown_size_is() -> None:
    with terminal_of(80) as got:
        watched = Watched()
        watched(0, "a", 0, 10)
        watched(0.5, "a", 5, 10)
        watched(0.4, "a", 10, 10)
        watched(0, "b", 0, 0)
        watched(3, "b", 3_000_000, 0)
    (line,) = lines(got)
    assert re.search(r"^b +\S+ +3.0/\? MB", line), line


def test_it_makes_way_for_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal_of(80) as got:
        watched = Watched()
        monkeypatch.setattr(terminal, "_meter", watched.meter)
        watched(0, "a", 0, 10, "runs")
        watched(2, "a", 1, 10, "runs")
        terminal.echo("message", err=True)
        watched(2, "a", 2, 10, "runs")
    text = b"".join(got).decode()
    assert f"\r{' ' * 79}\rmessage\r\n\ra " in text, text


@pytest.mark.parametrize("columns", [1, 20, 80])
def test_hostile_words_and_narrow_terminals(columns: int) -> None:
    with terminal_of(columns) as got:
        watched = Watched()
        watched(0, evil("name") + "\n[red]x", 0, 10)
        watched(2, evil("name") + "\n[red]x", 1, 10)
    text = b"".join(got).decode()
    assert text
    assert {c for c in text if not shown(c)} == {"\r"}
    assert "\n" not in text
    assert max(map(len, lines(got)), default=0) < max(columns, 2)


def test_colour_unless_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    with terminal_of(80) as got:
        watched = Watched()
        watched(0, "a", 0, 10)
        watched(2, "a", 1, 10)
    assert b"\x1b[" in b"".join(got)
    assert b"\x1b[?25l" not in b"".join(got), "the cursor stays"
