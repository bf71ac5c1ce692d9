"""`bench`: a measurement is of the patched build that it claims, or told as somebody's report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit import Patchq
from patchq.environment import verify

TABLE = (
    "| engine | model | config | test | t/s |\n|---|---|---|---|---|\n| vLLM | gpt-oss | all | tg32 | 48.6 ± 0.2 |\n"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "a table.md"
    path.write_text(TABLE)
    return path


def environment(monkeypatch: pytest.MonkeyPatch, *packages: verify.Package) -> None:
    """What a look at the environment finds; the look itself is tested with real wheels elsewhere."""
    monkeypatch.setattr(
        "patchq.report.bench.verify", lambda python, wanted, expected: verify.Verdict(python, packages, ())
    )


def package(state: str = "patched", *problems: str, patches: tuple[str, ...] = ("up/first",)) -> verify.Package:
    return verify.Package("up", state, "1+patchq.aaaaaaaa", "/env/up", "a" * 40, patches, problems)


def test_reported_figures_are_told_as_that_and_keep_their_file(empty: Patchq, table: Path) -> None:
    empty.ok("bench", "import", str(table), "--machine", "GB10", "--reported", "the notes")
    (found,) = json.loads(empty.ok("bench", "show", "--json"))["measurements"]
    assert (found["value"], found["spread"], found["reported"], found["stack_id"]) == (48.6, 0.2, "the notes", "")
    assert (empty.root / found["file"]).read_text() == TABLE
    assert found["place"] == "line 3"
    told = empty.ok("bench", "show")
    assert "48.60 ± 0.2  vLLM all (reported: the notes)" in told
    assert all(len(line) <= 80 for line in told.splitlines())
    empty.ok("bench", "import", str(table), "--machine", "GB10", "--reported", "the notes")
    assert len(json.loads(empty.ok("bench", "show", "--json"))["measurements"]) == 1, "twice is once"
    empty.ok("undo")
    assert not (empty.root / "measurements" / "ledger.jsonl").exists()


def test_a_measurement_of_another_build_is_refused(empty: Patchq, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("bench", "import", str(table), "--machine", "GB10")
    assert "--reported WHO" in empty.fails(1, *args)
    environment(monkeypatch)
    assert "has no patched package" in empty.fails(1, *args, "--python", "python")
    environment(monkeypatch, package("upstream", "imports come from elsewhere"))
    assert "imports come from elsewhere" in empty.fails(1, *args, "--python", "python")
    assert not (empty.root / "measurements").exists()
    environment(monkeypatch, package())
    told = empty.ok(*args, "--python", "python")
    assert "of stack aaaaaaaa" in told
    (found,) = json.loads(empty.ok("bench", "show", "--json"))["measurements"]
    assert (found["stack_id"], found["patches"]) == ("a" * 40, ["up/first"])


def test_this_interpreter_runs_no_patched_build(empty: Patchq, table: Path) -> None:
    import sys

    told = empty.fails(1, "bench", "import", str(table), "--machine", "here", "--python", sys.executable)
    assert "does not run the patched build" in told


def test_what_is_no_result_is_refused(empty: Patchq, tmp_path: Path) -> None:
    bad = tmp_path / "x.json"
    bad.write_text("[1, 2]")
    assert "hint:" in empty.fails(1, "bench", "import", str(bad), "--machine", "m", "--reported", "r")
    assert "No such file" in empty.fails(
        1, "bench", "import", str(tmp_path / "none"), "--machine", "m", "--reported", "r"
    )
