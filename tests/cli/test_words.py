"""Completion, near names, other words for a patch, errors of usage, and rules that fit an upstream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit import ROOT, Patchq, edit, git


def completed(patchq: Patchq, line: str, shell: str = "bash") -> list[str]:
    """What a shell is told to complete at the end of a line."""
    words = line.split(" ")
    env = {**os.environ, "_PATCHQ_COMPLETE": f"{shell}_complete", "PYTHONPATH": str(ROOT / "tools")}
    env |= {"COMP_WORDS": line, "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1)}
    done = subprocess.run([sys.executable, "-m", "patchq"], cwd=patchq.root, env=env, capture_output=True, text=True)
    found = done.stdout.split("\n")
    if shell == "bash":
        return [word.split(",")[1] for word in found if word]
    return (
        [w for w in found if w and w not in ("plain", "_")]
        if shell == "zsh"
        else [w.split(",")[1].split("\t")[0] for w in found if w]
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_names(stack: Patchq, shell: str) -> None:
    assert completed(stack, "patchq show s", shell) == ["second"]
    assert completed(stack, "patchq apply u", shell) == ["up"]


def test_what_is_completed_where(stack: Patchq) -> None:
    assert completed(stack, "patchq drop up/") == ["up/first", "up/second", "up/third"]
    assert completed(stack, "patchq apply --set d") == ["default"]
    assert completed(stack, "patchq rebase up --onto v") == ["v1"]
    assert completed(stack, "patchq new up f") == []
    assert "reword" in completed(stack, "patchq re")


def test_near_names(stack: Patchq) -> None:
    assert "did you mean apply?" in stack.fails(2, "aply")
    assert "did you mean up?" in stack.fails(1, "apply", "upp")
    assert "did you mean default?" in stack.fails(1, "apply", "--set", "defualt")
    assert "did you mean second?" in stack.fails(1, "show", "secnd")


def test_errors_of_usage_in_json(stack: Patchq) -> None:
    told = json.loads(stack.fails(2, "show", "--json"))
    assert (told["schema"], told["exit"], told["error"]) == ("patchq/error/1", 2, "UsageError")
    assert "PATCH" in told["message"]
    assert json.loads(stack.fails(2, "aply", "--json"))["message"].startswith("No such command")


def test_reword(stack: Patchq) -> None:
    stack.ok(
        "reword",
        "second",
        "-m",
        "Say it better",
        "-m",
        "It was bad.",
        "--trailer",
        "Topic: words",
        "--author",
        "Al <al@example.org>",
    )
    text = stack.patch_file("second").read_text()
    assert "Subject: Say it better\n\nIt was bad.\n\n" in text
    assert "Topic: words\n" in text
    assert "Topic: test" not in text
    assert "From: Al <al@example.org>\n" in text
    assert "Signed-off-by: Test Person <test@example.org>" in text, "what wasn't named is kept"
    assert "up to date" in stack.ok("apply")
    assert "nothing changed" in stack.ok("export", "up")
    stack.ok("reword", "second", "--trailer", "Signed-off-by:")
    assert "Signed-off-by" not in stack.patch_file("second").read_text()
    assert "KEY: VALUE" in stack.fails(2, "reword", "second", "--trailer", "Topic")


def rules(stack: Patchq, text: str) -> None:
    lock = stack.layout.lock
    lock.write_text(lock.read_text() + f"\n[upstreams.up.check]\n{text}\n")


def findings(stack: Patchq) -> dict[str, str]:
    return {f["rule"]: f["level"] for f in json.loads(stack.run("check", "--json").output)["findings"]}


def test_rules_that_fit(stack: Patchq) -> None:
    assert findings(stack) == {"proof": "problem"}
    stack.ok("reword", "first", "--author", "Al <al@example.org>")
    assert findings(stack) == {"proof": "problem", "dco": "problem"}
    rules(stack, 'warn = ["proof"]\nsign-off = "importer"\nreason = "Patches of a distribution."')
    assert findings(stack) == {"proof": "warning"}
    assert "all good: 3 patches in the default set; 3 warnings" in stack.ok("check")


def test_a_proof_that_does_not_exist_is_found_without_the_rule_that_requires_proofs(stack: Patchq) -> None:
    rules(stack, 'off = ["proof"]\nreason = "No proofs yet."')
    assert findings(stack) == {}
    stack.ok("reword", "first", "--trailer", "Proof: tests/stacks/up/test_typo.py")
    assert findings(stack) == {"proof-file": "problem"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('off = ["applies"]\nreason = "x"', "not a rule"),
        ('off = ["proof"]', "give the reason"),
        ('sign-off = "me"\nreason = "x"', "none of author"),
    ],
)
def test_rules_that_are_none(stack: Patchq, text: str, message: str) -> None:
    rules(stack, text)
    assert message in stack.fails(1, "check")


def test_what_can_be_written_is(stack: Patchq) -> None:
    stack.ok("reword", "first", "--trailer", "Upstream-Status:", "--trailer", "Signed-off-by:")
    stack.ok("reword", "third", "--author", "Al <al@example.org>", "--trailer", "Signed-off-by:")
    assert set(findings(stack)) == {"upstream-status", "proof", "dco"}
    message = stack.fails(1, "check", "--fix")
    assert "up/v1/first: rewritten" in message
    assert "up/v1/third" not in [line.split(": rewritten")[0] for line in message.split("\n") if "rewritten" in line]
    text = stack.patch_file("first").read_text()
    assert "Upstream-Status: Pending\n" in text
    assert "Signed-off-by: Test Person <test@example.org>\n" in text
    assert "up to date" in stack.ok("apply")
    rules(stack, 'off = ["proof"]\nsign-off = "importer"\nreason = "Patches of a distribution."')
    assert "all good" in stack.ok("check", "--fix")
    assert "Signed-off-by: Test Person" in stack.patch_file("third").read_text()
    edit(stack.tree() / "a.txt", 1)
    assert git(stack.tree(), "status", "--short")
    assert "the worktree is unchanged" in stack.run("check", "--fix").output


def test_a_repositorys_pointer_in_an_archive_is_left_out(empty: Patchq, tmp_path: Path) -> None:
    import io
    import tarfile

    archive = empty.root / "up-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in (
            ("up-1.0/a.txt", b"x\n"),
            ("up-1.0/.git", b"gitdir: ../x\n"),
            ("up-1.0/sub/.git", b"gitdir: ../../.git/modules/sub\n"),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    empty.ok("pin", "up", "--archive", "./up-1.0.tar.gz", "--ref", "v1")
    message = empty.ok("apply")
    assert "sub/.git is skipped: it only names the path of a repository" in message
    assert sorted(p.name for p in empty.tree().iterdir()) == [".git", "a.txt"]
