"""`bench`: a measurement is of the patched build that it claims, or told as somebody's report."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from kit import Patchq
from patchq.environment import verify
from patchq.environment.differences import Code, Difference, Level

TABLE = (
    "| engine | model | config | test | t/s |\n|---|---|---|---|---|\n| vLLM | gpt-oss | all | tg32 | 48.6 ± 0.2 |\n"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "a table.md"
    path.write_text(TABLE)
    return path


def environment(monkeypatch: pytest.MonkeyPatch, *packages: verify.InstalledPackage) -> None:
    """What a look at the environment finds; the look itself is tested with real wheels elsewhere."""
    monkeypatch.setattr(
        "patchq.report.bench.verify",
        lambda python, wanted, expected: verify.InstallVerdict(python=python, packages=packages),
    )


def package(
    state: str = "patched", *problems: Code, patches: tuple[str, ...] = ("up/first",)
) -> verify.InstalledPackage:
    found = tuple(Difference(code=code, level=Level.PROBLEM) for code in problems)
    return verify.InstalledPackage(
        distribution="up", state=state, version="1+patchq.aaaaaaaa", origin="/env/up", stack_id="a" * 40,
        patches=patches, differences=found,
    )  # fmt: skip


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
    assert "--reported the source" in empty.fails(1, *args)
    environment(monkeypatch)
    assert "has no patched package" in empty.fails(1, *args, "--python", "python")
    environment(monkeypatch, package("upstream", Code.NOT_PATCHED))
    assert "the patched build: not-patched" in empty.fails(1, *args, "--python", "python")
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


ESC = "\x1b]0;owned\x07"
HOSTILE = [
    b"", b"\0" * 100, b"\xff\xfe", b"[" * 200_000, b'{"a":' * 200_000, b"[[]]", b"[null]", b'["text"]', b"[3]", b"{}", b"[{}]",
    b'{"tokens_per_second": NaN}', b'{"tokens_per_second": 1e999}', b'{"tokens_per_second": -1}', b'{"tokens_per_second": []}',
    b'{"tokens_per_second": "0x10"}', b'{"tokens_per_second": 1, "num_requests": 1e999}',
    b'{"tokens_per_second": ' + b"9" * 10_000 + b"}",
    b'{"mean_tpot_ms": "x", "output_throughput": 1, "completed": 3, "max_concurrency": 1}',
    b'{"output_throughput": 1, "completed": 1, "model_id": "\\u001b[2J"}', b'{"output_throughput": 1, "completed": 1, "model_id": "\\ud800"}',
    b'{"output_throughput": 1, "completed": 1, "model_id": "a\\n::error::x"}',
    b'{"output_throughput": 1, "completed": 1, "model_id": "' + b"x" * 300 + b'"}',
    b'[{"n_prompt": 1, "n_gen": 0, "avg_ts": 1, "samples_ts": 3}]', b'[{"n_prompt": 1, "n_gen": 0, "avg_ts": 1, "n_depth": -1}]',
    b"| test | t/s |\n|---|---|\n| tg32 | ,,, |\n", b"| test | t/s |\n|---|---|\n| tg32 | 1 +/- 1.2.3 |\n",
    b"| test | t/s |\n|---|---|\n| tg" + b"9" * 6000 + b" @ d" + b"9" * 6000 + b" | 1 |\n",
    b"| test | model | t/s |\n|---|---|---|\n| tg32 | \x1b[2J | 1 |\n",
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_a_results_file_that_is_anything(empty: Patchq, tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(body)
    told = empty.fails(1, "bench", "import", str(path), "--machine", "m", "--reported", "r")
    assert "hint:" in told
    assert "\x1b" not in told
    assert not (empty.root / "measurements").exists()


@pytest.mark.parametrize("option", ["--machine", "--reported", "--engine", "--config"])
@pytest.mark.parametrize("text", [ESC, "two\nlines", "x" * 201, "\u202e"])
def test_words_that_are_no_line_are_refused(empty: Patchq, tmp_path: Path, option: str, text: str) -> None:
    path = tmp_path / "x.md"
    path.write_text("| test | t/s |\n|---|---|\n| tg32 | 3 |\n")
    given = {"--machine": "m", "--reported": "r", option: text}
    told = empty.fails(1, "bench", "import", str(path), *(w for pair in given.items() for w in pair))
    assert "one line of at most 200" in told or "is not a name" in told
    assert "\x1b" not in told
    assert not (empty.root / "measurements").exists()


def test_what_is_no_file_is_not_waited_for(empty: Patchq, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "link").symlink_to("link")
    for name, said in {
        "pipe": "not a regular file",
        "huge": "the limit is",
        ".": "not a regular file",
        "link": "symbolic links",
    }.items():
        told = empty.fails(1, "bench", "import", str(tmp_path / name), "--machine", "m", "--reported", "r")
        assert said in " ".join(told.split())
    assert "not a regular file" in empty.fails(1, "bench", "import", "/dev/zero", "--machine", "m", "--reported", "r")


def test_a_file_with_any_name_gets_a_plain_one(empty: Patchq, tmp_path: Path) -> None:
    for number, name in enumerate(["..", "a\nb::error::x", ESC, "-rf", "x" * 240, ".hidden"]):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"tokens_per_second": number + 1}))
        told = empty.ok("bench", "import", str(path), "--machine", "m", "--reported", "r")
        assert "\x1b" not in told
    for found in json.loads(empty.ok("bench", "show", "--json"))["measurements"]:
        place = Path(found["file"])
        assert place.parent == Path("measurements/files")
        assert re.fullmatch(r"[0-9a-f]{12}-[A-Za-z0-9][A-Za-z0-9._-]*", place.name)
        assert (empty.root / place).is_file()


def test_a_ledger_with_hostile_lines_is_told_by_its_line(empty: Patchq, table: Path) -> None:
    empty.ok("bench", "import", str(table), "--machine", "GB10", "--reported", "r")
    ledger = empty.root / "measurements" / "ledger.jsonl"
    good = json.loads(ledger.read_text())
    fields = {
        "machine": ESC,
        "engine": ESC,
        "reported": "a\nb",
        "place": ESC,
        "time": ESC,
        "file": "x" * 999,
        "patches": [ESC],
    }
    with ledger.open("a") as file:
        for name, value in fields.items():
            file.write(json.dumps({**good, name: value}) + "\n")
    done = empty.run("bench", "show")
    assert done.exit_code == 0
    assert "\x1b" not in done.output
    assert len(json.loads(empty.ok("bench", "show", "--json"))["problems"]) == len(fields)
