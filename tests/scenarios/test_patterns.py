"""Patches kept as rules: made, checked, applied and carried, over real repositories."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, edit, git, release, with_lines
from patchq.formats.header import parse_trailers

CODE = b"import os\n\n\ndef f(x):\n    old_name(x)\n    return old_name(x + 1)\n\n\ndef g(x):\n    return old_name(x)\n"


@pytest.fixture
def coded(stack: Patchq, upstream: Path) -> Patchq:
    """The stack on an upstream that has code, pinned as v1c."""
    release(upstream, "v1c", {"pkg/code.py": CODE, "pkg/deep/more.py": b"old_name(1)\n"})
    stack.ok("rebase", "up", "--onto", "v1c", "--new-set", "code")
    stack.ok("use", "code")
    stack.ok("apply")
    return stack


def make(patchq: Patchq, *more: str, name: str = "renamed", files: str = "pkg/**/*.py") -> Any:
    args = ("new", "up", name, "--pattern", "old_name(", "--replace", "new_name(", "--files", files)
    return patchq.run(*args, "-m", "Call it otherwise\n\nWhy.", "--topic", "test", "-s", *more)


def rule_of(patchq: Patchq, name: str = "renamed", ref: str = "v1c") -> dict[str, Any]:
    message = json.loads(patchq.ok("show", name, "--json"))["message"]
    value = message.partition("Pattern: ")[2].partition("\nSigned")[0]
    found: dict[str, Any] = json.loads(value)
    return found


def carried(patchq: Patchq, ref: str, code: int = 0) -> dict[str, dict[str, Any]]:
    done = patchq.run("rebase", "up", "--onto", ref, "--json")
    assert done.exit_code == code, done.output
    found = json.loads(done.stdout)
    steps = {step["patch"]: step for step in found["steps"]}
    if found["stop"]:
        steps[found["stop"]["patch"]] = found["stop"]
    return steps


def cells(patchq: Patchq, ref: str) -> dict[str, dict[str, Any]]:
    found = json.loads(patchq.ok("forecast", "up", "--onto", ref, "--json"))
    return {cell["patch"]: cell for cell in found["cells"]}


def findings(patchq: Patchq) -> list[str]:
    found = json.loads(patchq.run("check", "--json").stdout)["findings"]
    return [f"{f['patch']}: {f['message']}" for f in found if f["rule"] == "pattern"]


def test_new_makes_a_patch_that_git_applies(coded: Patchq, upstream: Path, tmp_path: Path) -> None:
    done = make(coded)
    assert done.exit_code == 0, done.output
    assert "renamed: 4 matches in 2 files" in done.output
    assert rule_of(coded) == {
        "files": ["pkg/**/*.py"], "times": 4, "changed": 2, "find": "old_name(", "replace": "new_name(",
    }  # fmt: skip
    assert (coded.tree() / "pkg/code.py").read_bytes() == CODE.replace(b"old_name", b"new_name")
    git(upstream, "checkout", "-q", "v1c")
    file = coded.patch_file("renamed", ref="v1c")
    subprocess.run(["git", "am", "-q", str(file)], cwd=upstream, check=True)
    assert (upstream / "pkg/code.py").read_bytes() == CODE.replace(b"old_name", b"new_name")
    assert findings(coded) == []
    coded.ok("apply")
    coded.ok("undo")


@pytest.mark.parametrize(
    ("more", "files", "message"),
    [
        (("--times", "3"), "pkg/**/*.py", "matches 4 times, not 3"),
        ((), "pkg/none.py", "pkg/none.py does not exist"),
        ((), "a.txt", "matches 0 times"),
    ],
)
def test_new_refuses_what_does_not_match(coded: Patchq, more: tuple[str, ...], files: str, message: str) -> None:
    before = coded.snapshot()
    done = make(coded, *more, files=files)
    assert done.exit_code == 1
    assert message in done.output
    assert coded.snapshot() == before


@pytest.mark.parametrize(
    ("added", "dropped"),
    [
        ({b"(x + 1)": b"(x + 1)  # more"}, "upstream's line 'return old_name(x + 1)  # more'"),
        (
            {b"    old_name(x)\n": b"    old_name(x)  # first\n", b"(x + 1)": b"(x + 1)  # more"},
            "2 of upstream's lines; the first is 'old_name(x)  # first'",
        ),
    ],
)
def test_rules_that_drop_upstreams_lines_are_named(
    coded: Patchq, upstream: Path, added: dict[bytes, bytes], dropped: str
) -> None:
    args = ("new", "up", "renamed", "--pattern", r"old_name\(.*", "--regex", "--replace", "new_name(x)")
    coded.ok(*args, "--files", "pkg/code.py", "-m", "Call it otherwise\n\nWhy.", "--topic", "test", "-s")
    text = CODE
    for old, new in added.items():
        text = text.replace(old, new)
    release(upstream, "v2c", {"pkg/code.py": text})
    cell = cells(coded, "v2c")["up/renamed"]
    assert cell["outcome"] == "conflict"
    assert cell["message"] == f"pkg/code.py: applying the patch's rules drops {dropped}"


def test_a_rule_runs_where_the_diff_conflicts(coded: Patchq, upstream: Path) -> None:
    make(coded)
    changed = CODE.replace(
        b"    old_name(x)\n    return old_name(x + 1)", b"    old_name(x, 2)\n    return old_name(x)"
    )
    release(upstream, "v2c", {"pkg/code.py": changed})
    cell = cells(coded, "v2c")["up/renamed"]
    assert (cell["outcome"], cell["needs_review"]) == ("by rule", False)
    assert "by rule" in coded.ok("forecast", "up", "--onto", "v2c")
    step = carried(coded, "v2c")["renamed"]
    assert (step["outcome"], step["how"], step["proof"]) == (
        "by rule", "by its rules", "not run: the patch names no proof"
    )  # fmt: skip
    assert step["files"] == [["pkg/code.py", 1]]
    tree = git(coded.layout.store, "show", f"{step['commit']}:pkg/code.py").encode() + b"\n"
    assert tree == changed.replace(b"old_name", b"new_name")
    lines = (coded.root / "patches/up/ledger.jsonl").read_text().splitlines()
    assert [(line["v"], line["outcome"]) for line in map(json.loads, lines) if line["patch"] == "renamed"] == [
        (5, "by rule")
    ]


def test_a_new_use_stops_a_diff_that_applies(coded: Patchq, upstream: Path) -> None:
    """The diff carries without a word, and would leave the new call as it is."""
    make(coded)
    release(upstream, "v2c", {"pkg/other.py": b"old_name(5)\n"})
    cell = cells(coded, "v2c")["up/renamed"]
    assert (cell["outcome"], cell["message"]) == ("conflict", "rule 1 matches 5 times, not 4")
    stop = carried(coded, "v2c", 3)["renamed"]
    assert stop["message"] == "rule 1 matches 5 times, not 4"
    worktree = coded.layout.tree("up@v2c")
    assert (worktree / "pkg/code.py").read_bytes() == CODE.replace(b"old_name", b"new_name")


def test_a_diff_that_applies_is_what_the_rule_gives(coded: Patchq, upstream: Path) -> None:
    make(coded)
    release(upstream, "v2c", {"pkg/code.py": b"# more\n" + CODE})
    assert carried(coded, "v2c")["renamed"]["outcome"] == "offset"


def test_renamed_files_are_followed(coded: Patchq, upstream: Path) -> None:
    assert make(coded, files="pkg/code.py").exit_code == 0
    changed = CODE.replace(b"    old_name(x)\n", b"    old_name(x, 2)\n")
    release(upstream, "v2c", {"pkg/code.py": None, "lib/moved.py": changed})
    assert cells(coded, "v2c")["up/renamed"]["outcome"] == "by rule"
    step = carried(coded, "v2c")["renamed"]
    message = git(coded.layout.store, "show", "-s", "--format=%B", step["commit"])
    assert '"files": ["lib/moved.py"]' in message
    assert findings(coded) == []  # of all pins


def test_a_later_patch_applies_on_top_of_a_rule(coded: Patchq, upstream: Path) -> None:
    make(coded)
    edit(coded.tree() / "pkg/code.py", 10, b"    return new_name(x) or 1\n")
    coded.ok("new", "up", "later", "-m", "Return one\n\nWhy.", "--topic", "test", "-s")
    changed = CODE.replace(b"    old_name(x)\n    return", b"    old_name(x, 2)\n    return")
    release(upstream, "v2c", {"pkg/code.py": changed})
    steps = carried(coded, "v2c")
    assert steps["renamed"]["outcome"] == "by rule"
    assert steps["later"]["outcome"] in ("clean", "offset", "merged")
    text = git(coded.layout.store, "show", f"{steps['later']['commit']}:pkg/code.py")
    assert "new_name(x, 2)" in text
    assert "return new_name(x) or 1" in text


def test_apply_runs_the_rule_where_the_diff_does_not_apply(coded: Patchq) -> None:
    make(coded, files="pkg/code.py")
    file = coded.patch_file("renamed", ref="v1c")
    data = file.read_bytes()
    file.write_bytes(
        data.replace(b"-    old_name(x)\n", b"-    old_name(y)\n").replace(b"+    new_name(x)\n", b"+    new_name(y)\n")
    )
    out = coded.ok("apply")
    assert "renamed: the diff doesn't apply, so the patch's rules made the change" in out
    assert (coded.tree() / "pkg/code.py").read_bytes() == CODE.replace(b"old_name", b"new_name")
    assert findings(coded) == ["renamed: its diff doesn't apply; the change was made by its rules instead"]
    assert "up to date" in coded.ok("apply")
    coded.ok("export", "up")
    assert file.read_bytes() == data
    assert findings(coded) == []


def test_apply_stops_where_the_rule_does_not_match(coded: Patchq) -> None:
    make(coded, files="pkg/code.py")
    file = coded.patch_file("renamed", ref="v1c")
    data = file.read_bytes().replace(b"-    old_name(x)\n", b"-    old_name(y)\n")
    file.write_bytes(data.replace(b'"times": 3', b'"times": 2'))
    before = coded.snapshot()
    out = coded.fails(3, "apply")
    assert "rule 1 matches 3 times, not 2" in out
    assert coded.snapshot() == before


def test_check_names_rules_that_make_another_diff(coded: Patchq) -> None:
    make(coded, files="pkg/code.py")
    file = coded.patch_file("renamed", ref="v1c")
    data = file.read_bytes()
    file.write_bytes(data.replace(b'"replace": "new_name("', b'"replace": "newer("'))
    assert findings(coded) == ["renamed: its rules and its diff give different results"]
    file.write_bytes(data.replace(b'"times": 3', b'"times": 4'))
    assert findings(coded) == ["renamed: rule 1 matches 3 times, not 4"]
    file.write_bytes(data.replace(b'"times": 3', b'"times": "x"'))
    assert "has an invalid rule" in findings(coded)[0]


def test_a_patch_becomes_rules(stack: Patchq, upstream: Path) -> None:
    stack.ok("reword", "first", "--as-rules")
    message = json.loads(stack.ok("show", "first", "--json"))["message"]
    assert '"find": "line 5\\n"' in message
    assert findings(stack) == []
    assert "-line 5\n+changed" in stack.ok("show", "first", "--diff")
    release(upstream, "v2", {"a.txt": with_lines({4: b"four\n", 6: b"six\n"})})
    steps = carried(stack, "v2")
    assert steps["first"]["outcome"] == "by rule"
    text = git(stack.layout.store, "show", f"{steps['first']['commit']}:a.txt")
    assert text.splitlines()[3:6] == ["four", "changed", "six"]


def test_a_new_file_has_no_rules(stack: Patchq) -> None:
    (stack.tree() / "new.txt").write_bytes(b"x\n")
    stack.ok("new", "up", "added", "-m", "Add a file\n\nWhy.", "--topic", "test", "-s")
    before = stack.snapshot()
    assert "no rules make the changes of added in new.txt" in stack.fails(1, "reword", "added", "--as-rules")
    assert stack.snapshot() == before


def test_a_failing_proof_stops_a_rule(coded: Patchq, upstream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = coded.root / "tests/stacks/up/test_renamed.py"
    test.parent.mkdir(parents=True, exist_ok=True)
    test.write_text("def test_it():\n    assert False\n")
    make(coded, "--proof", "tests/stacks/up/test_renamed.py")
    changed = CODE.replace(b"    old_name(x)\n", b"    old_name(x, 2)\n")
    release(upstream, "v2c", {"pkg/code.py": changed})
    stop = carried(coded, "v2c", 3)["renamed"]
    assert stop["message"].startswith("after its rules were applied, its proof failed")
    assert b"<<<<<<<" in (coded.layout.tree("up@v2c") / "pkg/code.py").read_bytes()


def test_sed_lines_become_rules(stack: Patchq) -> None:
    stack.ok("import", "up", "--run", "sed -i 's/line 7$/seven/; s/line 1/one/' b.txt", "--author", "A <a@b>")
    name = json.loads(stack.ok("list", "--json"))["patches"][-1]["name"]
    message = json.loads(stack.ok("show", name, "--json"))["message"]
    rules = [value for key, value in parse_trailers(message) if key == "Pattern"]
    assert list(map(json.loads, rules)) == [
        {"files": ["b.txt"], "times": 1, "regex": True, "find": "line 7$", "replace": "seven"},
        {"files": ["b.txt"], "times": 10, "find": "line 1", "replace": "one"},
    ]
    assert findings(stack) == []


def test_other_commands_become_diffs(stack: Patchq) -> None:
    stack.ok("import", "up", "--run", "sed -i '/line 7$/d' b.txt", "--author", "A <a@b>")
    name = json.loads(stack.ok("list", "--json"))["patches"][-1]["name"]
    assert "Pattern:" not in json.loads(stack.ok("show", name, "--json"))["message"]


def test_a_rule_that_repeats_upstreams_lines_stops(stack: Patchq, upstream: Path) -> None:
    (stack.tree() / "b.txt").write_bytes(with_lines({20: b"line 20\nadded by both\nadded as well\n", 10: b"changed\n"}))
    stack.ok("new", "up", "both", "-m", "Add it\n\nWhy.", "--topic", "test", "-s")
    stack.ok("reword", "both", "--as-rules")
    release(upstream, "v2", {"b.txt": with_lines({21: b"other\nadded by both\nadded as well\n", 22: b"more\n"})})
    stop = cells(stack, "v2")["up/both"]
    assert stop["outcome"] in ("conflict", "absorbed"), stop


def by_command(patchq: Patchq, upstream: Path, proof: str) -> None:
    """A patch of a command that has no rules, and a release on which its diff conflicts."""
    test = patchq.root / "tests/stacks/up/test_command.py"
    test.parent.mkdir(parents=True, exist_ok=True)
    test.write_text(f"def test_it():\n    assert {proof}\n")
    command = "sed -i '/^line 20$/s/line/LINE/' b.txt"
    patchq.ok("import", "up", "--run", command, "--author", "A <a@b>", "--topic", "test")
    name = json.loads(patchq.ok("list", "--json"))["patches"][-1]["name"]
    patchq.ok("reword", name, "--trailer", "Proof: tests/stacks/up/test_command.py")
    assert f"Codemod: {command}" in patchq.ok("show", name)
    release(upstream, "v2", {"b.txt": with_lines({19: b"other\n", 21: b"more\n"})})


def test_a_command_runs_only_when_asked(stack: Patchq, upstream: Path) -> None:
    by_command(stack, upstream, "True")
    assert carried(stack, "v2", 3)["edit-b"]["outcome"] == "conflict"
    stack.ok("rebase", "up", "--abort")
    done = stack.run("rebase", "up", "--onto", "v2", "--codemods", "--json")
    step = json.loads(done.stdout)["steps"][-1]
    assert (step["patch"], step["outcome"], step["how"], step["proof"]) == (
        "edit-b", "by rule", "by its command", "passed",
    )  # fmt: skip
    text = git(stack.layout.store, "show", f"{step['commit']}:b.txt").splitlines()
    assert text[18:21] == ["other", "LINE 20", "more"]


def test_a_command_whose_proof_fails_stops(stack: Patchq, upstream: Path) -> None:
    by_command(stack, upstream, "False")
    done = stack.run("rebase", "up", "--onto", "v2", "--codemods", "--json")
    assert json.loads(done.stdout)["stop"]["message"].startswith("its command was run, and its proof: failed")
