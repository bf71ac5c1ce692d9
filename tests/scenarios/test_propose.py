"""`rebase --propose`: resolutions that pass every check, shown at a stop and kept on the user's word."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kit import Patchq, release, with_lines
from patchq.cli import cli

TOOL = """\
import json, pathlib, sys
report = json.load(sys.stdin)
(file,) = report["files"]
path = pathlib.Path(report["worktree"], file["path"])
assert path.resolve().is_relative_to(pathlib.Path.cwd())
text = path.read_text()
sides = file["collisions"][0]
start, end = text.index("<<<<<<<"), text.index(">>>>>>>")
end = text.index("\\n", end) + 1
pathlib.Path("other.txt").write_text("not taken")
path.write_text(text[:start] + "".join(line + "\\n" for line in {lines}) + text[end:])
"""


@pytest.fixture
def adjacent(stack: Patchq, upstream: Path) -> Patchq:
    """A stop at the first patch, which changes the line above one that upstream changed."""
    release(upstream, "v2", {"a.txt": with_lines({6: b"otherwise\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    return stack


@pytest.fixture
def same_line(stack: Patchq, upstream: Path) -> Patchq:
    """A stop at the first patch, whose line upstream changed."""
    release(upstream, "v2", {"a.txt": with_lines({5: b"otherwise\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    return stack


def proposed(patchq: Patchq, code: int, *args: str) -> dict[str, Any]:
    done = patchq.run("rebase", "up", "--propose", *args, "--json")
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {attempt["strategy"]: attempt["outcome"] for attempt in found["tried"]}


def tool(folder: Path, lines: str) -> str:
    path = folder / "tool.py"
    path.write_text(TOOL.replace("{lines}", lines))
    return f"{sys.executable} {path}"


def ledger(patchq: Patchq) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (patchq.root / "patches" / "up" / "ledger.jsonl").read_text().splitlines()]


def test_adjacent_lines_are_proposed_and_kept(adjacent: Patchq) -> None:
    before = adjacent.snapshot()
    found = proposed(adjacent, 3)
    assert adjacent.snapshot() == before
    (proposal,) = found["proposals"]
    assert (proposal["number"], proposal["strategies"], proposal["stops"]) == (1, ["adjacent lines"], 0)
    assert "-line 5\n+changed\n otherwise\n" in proposal["diff"]
    assert [c["state"] for c in proposal["checks"]] == ["passed"] * 5 + ["not run"]
    assert outcomes(found)["patience"] == "conflict"
    assert "no proposal 2 for up/first: there are 1" in adjacent.fails(1, "rebase", "up", "--propose", "--take", "2")
    text = adjacent.ok("rebase", "up", "--propose", "--take", "1")
    assert "in the set" in text
    (entry,) = [entry for entry in ledger(adjacent) if entry["patch"] == "first"]
    assert (entry["outcome"], entry["how"]) == ("resolved", "proposed by adjacent lines")


def test_yes_keeps_the_only_proposal(adjacent: Patchq) -> None:
    found = proposed(adjacent, 0, "--yes")
    assert (found["kept"], found["rebase"]["state"]) == (1, "done")


def test_a_conflict_that_no_strategy_resolves(same_line: Patchq) -> None:
    found = proposed(same_line, 3, "--yes")
    assert (found["proposals"], found["kept"], set(outcomes(found).values())) == ([], 0, {"conflict"})
    text = same_line.fails(3, "rebase", "up", "--propose")
    assert "no proposal for up/first" in text
    assert "not proposed: patience: a conflict is left" in text


def test_a_command_edits_a_copy(same_line: Patchq, tmp_path: Path) -> None:
    command = tool(tmp_path, "[*sides['ours'], *sides['theirs']]")
    found = proposed(same_line, 3, "--tool", command)
    (proposal,) = found["proposals"]
    assert proposal["strategies"] == [command]
    assert "other.txt" not in proposal["diff"]
    assert not (same_line.layout.tree("up@v2") / "other.txt").exists()
    assert "<<<<<<<" in (same_line.layout.tree("up@v2") / "a.txt").read_text()
    proposed(same_line, 0, "--take", "1")


def test_a_command_that_drops_upstreams_line_is_refused(same_line: Patchq, tmp_path: Path) -> None:
    command = tool(tmp_path, "['no line of either']")
    found = proposed(same_line, 3, "--tool", command)
    (attempt,) = [attempt for attempt in found["tried"] if attempt["strategy"] == command]
    assert (found["proposals"], attempt["outcome"]) == ([], "refused")
    assert attempt["where"].startswith("upstream lines: ")


def test_a_command_that_fails_or_leaves_markers(same_line: Patchq) -> None:
    found = outcomes(proposed(same_line, 3, "--tool", "false", "--tool", "true", "--tool", "no-such-program-here"))
    assert (found["false"], found["true"], found["no-such-program-here"]) == ("failed", "conflict", "failed")


def test_proposals_of_another_stop_are_not_taken(adjacent: Patchq) -> None:
    proposed(adjacent, 3)
    path = adjacent.layout.private / "rebase" / "up.proposals"
    path.write_text(path.read_text().replace('"patch": "first"', '"patch": "second"'))
    assert "there is none" in adjacent.fails(1, "rebase", "up", "--propose", "--take", "1")
    adjacent.ok("rebase", "up", "--abort")
    assert not path.exists()


def test_edits_in_the_worktree_are_not_overwritten(adjacent: Patchq) -> None:
    proposed(adjacent, 3)
    (adjacent.layout.tree("up@v2") / "a.txt").write_bytes(with_lines({5: b"mine\n"}))
    assert "holds edits" in adjacent.fails(1, "rebase", "up", "--propose", "--take", "1")


def test_options_without_propose(stack: Patchq) -> None:
    assert "options of --propose" in stack.fails(2, "rebase", "up", "--abort", "--take", "1")


def add_proof(patchq: Patchq, expected: str) -> None:
    proof = patchq.root / "tests" / "stacks" / "up" / "test_first.py"
    proof.parent.mkdir(parents=True, exist_ok=True)
    proof.write_text(f"def test_it(trees):\n    assert {expected!r} in (trees / 'up' / 'a.txt').read_text()\n")
    path = patchq.patch_file("first")
    path.write_text(path.read_text().replace("Topic: test\n", "Topic: test\nProof: tests/stacks/up/test_first.py\n"))
    patchq.ok("apply")


@pytest.mark.parametrize(
    ("expected", "state"),
    [("changed\nother", "proposed"), ("changed\nline 6", "refused"), ("other", "refused")],
)
def test_the_proof_judges(stack: Patchq, upstream: Path, expected: str, state: str) -> None:
    """The proof must pass with the proposal, and fail without the patch."""
    add_proof(stack, expected)
    release(upstream, "v2", {"a.txt": with_lines({6: b"otherwise\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    found = proposed(stack, 3)
    assert outcomes(found)["adjacent lines"] == state
    for proposal in found["proposals"]:
        assert {c["name"]: c["state"] for c in proposal["checks"]}["fails without"] == "passed"
    assert len(proposed(stack, 3, "--no-proof")["proposals"]) == 1


def test_a_terminal_is_asked(adjacent: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchq.cli.proposals._on_terminal", lambda: True)
    arguments = ["--project", str(adjacent.root), "rebase", "up", "--propose"]
    done = CliRunner().invoke(cli, arguments, input="\n")
    assert (done.exit_code, "Number of the proposal to keep" in done.stderr) == (3, True)
    assert CliRunner().invoke(cli, arguments, input="1\n").exit_code == 0


def test_mergers(same_line: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mergiraf runs if it is installed; a merger of the lock only if it is named."""
    for name, text in (("mergiraf", "otherwise changed"), ("other", "otherwise, changed")):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nsed "5s/.*/{text}/" "$3" > "$6"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    same_line.layout.lock.write_text(same_line.layout.lock.read_text() + '\n[mergers.mine]\nprogram = "other"\n')
    found = proposed(same_line, 3)
    assert [proposal["strategies"] for proposal in found["proposals"]] == [["mergiraf"]]
    found = outcomes(proposed(same_line, 3, "--merger", "mine"))
    assert (found["mergiraf"], found["mine"]) == ("proposed", "lost change")
    assert "no merger 'nobody'" in same_line.fails(1, "rebase", "up", "--propose", "--merger", "nobody")
