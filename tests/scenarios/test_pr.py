"""`pr` and `issue`: patches as pull requests, over a real upstream with a template, hooks and a default branch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, edit, git, numbered

HOOKS = b"""repos:
- repo: local
  hooks:
  - id: no-words
    name: no words
    entry: bash -c '! grep -n TAB "$@"' --
    language: system
    types: [text]
  - id: python-only
    name: python only
    entry: bash -c 'exit 1'
    language: system
    types: [python]
- repo: https://example.org/some/hooks
  rev: v1.0.0
  hooks:
  - id: elsewhere
    files: a.txt
"""
TEMPLATE = b"""<!-- comment of the template -->

## Purpose

<!-- say why -->

## Test Plan

## Test Result

---
- [ ] AI assistance was used.
"""


@pytest.fixture
def newer(stack: Patchq, upstream: Path) -> Patchq:
    """The three patches, and an upstream whose main is three commits further, with hooks and a template."""
    commit_files(
        upstream, {".pre-commit-config.yaml": HOOKS, ".github/PULL_REQUEST_TEMPLATE.md": TEMPLATE}, "rules (#1)"
    )
    commit_files(upstream, {"a.txt": b"above\n" + numbered(40)}, "a line above (#2)")
    commit_files(upstream, {"b.txt": numbered(40) + b"below\n"}, "a line below (#3)")
    return stack


def made(patchq: Patchq, *args: str, code: int = 0) -> dict[str, Any]:
    done = patchq.run("pr", *args, "--json")
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def trailer(patchq: Patchq, name: str, key: str, value: str) -> None:
    """Put a trailer into a patch file, in place of one of that key, and apply."""
    file = patchq.patch_file(name)
    lines = [line for line in file.read_bytes().splitlines(keepends=True) if not line.startswith(key.encode() + b":")]
    at = next(n for n, line in enumerate(lines) if line.startswith(b"Signed-off-by:"))
    file.write_bytes(b"".join([*lines[:at], f"{key}: {value}\n".encode(), *lines[at:]]))
    patchq.ok("apply")


def proof(patchq: Patchq, name: str, text: str, needs: str = "") -> None:
    path = patchq.root / "tests" / "stacks" / "up" / f"test_{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    trailer(patchq, name, "Proof", f"tests/stacks/up/test_{name}.py")
    if needs:
        trailer(patchq, name, "Needs", needs)


def clone(upstream: Path, folder: Path) -> Path:
    git(upstream, "clone", "-q", str(upstream), str(folder))
    return folder


def test_the_mails_give_the_branch_on_a_bare_tree(newer: Patchq, upstream: Path, tmp_path: Path) -> None:
    found = made(newer, "first", "--no-proof")
    assert (found["onto"], found["source"]) == ("main", "git")
    bare = clone(upstream, tmp_path / "clone")
    mails = sorted(Path(found["folder"]).glob("*.patch"))
    git(bare, "am", "-q", "--keep-non-patch", *map(str, mails))
    tip = git(newer.layout.store, "rev-parse", "refs/patchq/pr/first^{tree}")
    assert git(bare, "rev-parse", "HEAD^{tree}") == tip
    assert git(bare, "diff", "--stat", "HEAD~1").split() == [
        "a.txt",
        "|",
        "2",
        "+-",
        "1",
        "file",
        "changed,",
        "1",
        "insertion(+),",
        "1",
        "deletion(-)",
    ]
    message = git(bare, "log", "-1", "--format=%an <%ae>%n%B")
    assert message.startswith("Test Person <test@example.org>\nChange a.txt at 5\n\nBecause of the test.\n\nSigned-off")
    assert not any(word in message for word in ("Upstream-Status", "Topic", "patchq"))


def test_nothing_of_the_project_moves(newer: Patchq) -> None:
    before = newer.snapshot()
    made(newer, "first", "--no-proof")
    after = newer.snapshot()
    refs = [line for line in after.pop("refs").splitlines() if b"refs/patchq/" not in line]
    assert refs == [line for line in before.pop("refs").splitlines() if b"refs/patchq/" not in line]
    assert after == before


def test_the_closure_is_minimal_and_enough(patchq: Patchq, upstream: Path) -> None:
    patchq.ok("apply")
    tree = patchq.tree()

    def new(name: str, *more: str) -> None:
        patchq.ok("new", "up", name, "-s", "-m", f"{name.title()}\n\nFor the test.", *more)

    def needed(*names: str) -> list[str]:
        found = made(patchq, *names, "--no-proof", "--title", "T", "--name", "x")
        return [m["patch"] for m in found["members"]]

    edit(tree / "a.txt", 5, b"1\n")
    edit(tree / "b.txt", 5, b"1\n")
    new("base")
    edit(tree / "a.txt", 20)
    new("between")
    edit(tree / "a.txt", 5, b"2\n")
    new("left")
    edit(tree / "b.txt", 5, b"2\n")
    new("right")
    edit(tree / "a.txt", 5, b"3\n")
    edit(tree / "b.txt", 5, b"3\n")
    new("join")
    git(tree, "mv", "b.txt", "c.txt")
    new("rename")
    edit(tree / "c.txt", 30)
    new("after")
    assert needed("base") == ["base"]
    assert needed("between") == ["between"], "its neighbours in the file are far away"
    assert needed("left") == ["base", "left"], "a chain"
    assert needed("join") == ["base", "left", "right", "join"], "a diamond; what lies between isn't in it"
    assert needed("after") == ["after"], "the rename is followed, not needed"
    assert needed("left", "after") == ["base", "left", "after"]
    trailer(patchq, "after", "Requires", "up/between")
    assert needed("after") == ["between", "after"], "what it says counts too"


def test_a_requirement_of_another_upstream_is_told_not_carried(newer: Patchq, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    commit_files(other, {"c.txt": numbered(10)}, "first")
    git(other, "tag", "v1")
    newer.ok("pin", "other", "--url", str(other), "--ref", "v1")
    newer.ok("apply")
    edit(newer.tree("other") / "c.txt", 3)
    newer.ok("new", "other", "theirs", "-s", "-m", "Theirs\n\nWhy.", "--topic", "test")
    trailer(newer, "first", "Requires", "other/theirs")
    found = made(newer, "first", "--no-proof")
    assert [m["patch"] for m in found["members"]] == ["first"]
    assert found["elsewhere"] == [["other/theirs", "Theirs (Pending)"]]
    assert "other/theirs: Theirs (Pending)" in (Path(found["folder"]) / "body.md").read_text()
    assert "the patches belong to several upstreams" in newer.fails(1, "pr", "first", "theirs")


def test_upstreams_own_template_is_filled(newer: Patchq) -> None:
    found = made(newer, "first", "--no-proof")
    body = (Path(found["folder"]) / "body.md").read_text()
    purpose = body.partition("## Purpose")[2].partition("## Test Plan")[0]
    assert "Because of the test." in purpose
    assert "say why" not in body, "a comment of a filled section is taken out"
    assert "Affected: v1, main." in purpose
    assert "- [ ] AI assistance was used." in body, "nobody has said that it was"
    assert "patchq" not in body
    assert "tests/stacks" not in body


def test_the_owner_signs_discloses_and_stays(newer: Patchq) -> None:
    folder = Path(made(newer, "first", "--no-proof")["folder"])
    (folder / "owner.toml").write_text(
        'name = "A Person"\nemail = "a@person.example"\nstatement = "I read it."\nassisted-by = "Tool <t@example.org>"\n'
    )
    again = made(newer, "first", "--no-proof")
    message = git(newer.layout.store, "log", "-1", "--format=%B", "refs/patchq/pr/first")
    assert message.splitlines()[-3:] == [
        "Signed-off-by: Test Person <test@example.org>",
        "Co-authored-by: Tool <t@example.org>",
        "Signed-off-by: A Person <a@person.example>",
    ]
    body = (folder / "body.md").read_text()
    assert "AI assistance was used (Tool <t@example.org>). I read it." in body
    assert "- [x] AI assistance was used." in body
    assert again["owner"]["name"] == "A Person"


def test_hooks_are_upstreams_own_and_what_cannot_be_had_is_said(newer: Patchq) -> None:
    gates = {g["hook"]: g for g in made(newer, "first", "--no-proof")["gates"]}
    assert gates["no-words"]["state"] == "passed"
    assert gates["elsewhere"]["state"] == "not run"
    assert "git host" in gates["elsewhere"]["message"]
    assert "python-only" not in gates, "no file of it is changed"


def test_a_branch_without_any_hook_that_runs_is_not_ready(newer: Patchq, upstream: Path) -> None:
    hooks = b"repos:" + HOOKS.partition(b"- repo: https")[2].join([b"\n- repo: https", b""])
    commit_files(upstream, {".pre-commit-config.yaml": hooks}, "other hooks (#4)")
    found = made(newer, "first", "--no-proof", code=5)
    assert found["problems"] == ["none of upstream's 1 hooks could run (skip them with --no-gates)"]
    assert made(newer, "first", "--no-proof", "--no-gates")["problems"] == []


def test_what_a_hook_refuses_is_not_ready(newer: Patchq, upstream: Path) -> None:
    edit(newer.tree() / "b.txt", 20, b"TAB\n")
    newer.ok("new", "up", "tab", "-s", "-m", "Tab\n\nWhy.", "--topic", "test")
    found = made(newer, "tab", "--no-proof", code=5)
    assert found["problems"] == ["no-words (upstream's own: no words) fails"]
    assert "not ready" in newer.fails(1, "pr", "tab", "--no-proof", "--push", str(upstream))
    commit_files(upstream, {"b.txt": b"TAB of old\n" + numbered(40)}, "a tab of upstream's own (#4)")
    found = made(newer, "tab", "--no-proof")
    (gate,) = [g for g in found["gates"] if g["hook"] == "no-words"]
    assert (gate["state"], gate["before"]) == ("failed", "failed"), "upstream's file had one already"


def test_a_stand_in_is_written_through_no_link(newer: Patchq, upstream: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (upstream / "docs").symlink_to(outside)
    commit_files(upstream, {}, "a link (#5)")
    stand_in = newer.root / "patches" / "up" / "contribute" / "docs" / "pull_request_template.md"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text("through\n")
    assert "docs is a symbolic link" in newer.fails(1, "pr", "first", "--no-proof")
    assert not list(outside.iterdir())


def test_what_does_not_land_is_refused_with_all_reasons(newer: Patchq, upstream: Path) -> None:
    trailer(newer, "third", "Upstream-Status", "Inappropriate [for the test]")
    lines = numbered(40).splitlines(keepends=True)
    lines[4] = b"otherwise\n"
    commit_files(upstream, {"a.txt": b"".join(lines)}, "otherwise (#5)")
    told = newer.fails(3, "pr", "first", "third", "--no-proof")
    assert "up/first: conflict, a.txt" in told
    assert "up/third is Inappropriate [for the test]" in told
    lines[4] = b"changed\n"
    commit_files(upstream, {"a.txt": b"".join(lines)}, "the same (#6)")
    told = newer.fails(1, "pr", "first", "--no-proof")
    assert "up/first: absorbed (identical)" in told
    commit_files(upstream, {"a.txt": None, "x.txt": b"nothing alike\n" * 3}, "gone (#7)")
    assert "up/first: obsolete, a.txt" in newer.fails(3, "pr", "first", "--no-proof")


def test_what_is_only_needed_and_upstream_has_is_left_out(newer: Patchq, upstream: Path) -> None:
    edit(newer.tree() / "a.txt", 5, b"changed again\n")
    newer.ok("new", "up", "again", "-s", "-m", "Again\n\nWhy.", "--topic", "test")
    lines = numbered(40).splitlines(keepends=True)
    lines[4] = b"changed\n"
    commit_files(upstream, {"a.txt": b"".join(lines)}, "the first (#5)")
    found = made(newer, "again", "--no-proof")
    assert [(m["patch"], m["absent"]) for m in found["members"]] == [("first", True), ("again", False)]
    assert len(list(Path(found["folder"]).glob("*.patch"))) == 1


def test_a_proof_has_to_fail_on_the_bare_ref_and_pass_on_the_branch(newer: Patchq) -> None:
    proof(newer, "first", "def test_it(trees):\n    assert 'changed' in (trees / 'up' / 'a.txt').read_text()\n")
    (verdict,) = made(newer, "first")["verdicts"]
    assert (verdict["patch"], verdict["state"]) == ("up/first", "proven")
    proof(newer, "first", "def test_it(trees):\n    assert (trees / 'up' / 'a.txt').read_text()\n")
    assert "can't fail" in newer.fails(5, "pr", "first")
    proof(newer, "first", "def test_it(trees):\n    assert 'nothing' in (trees / 'up' / 'a.txt').read_text()\n")
    assert "up/first: failed" in newer.fails(5, "pr", "first")
    proof(newer, "first", "def test_it(trees):\n    assert 'changed' in open(trees / 'up' / 'a.txt').read()\n", "sm121")
    found = made(newer, "first")
    assert found["not_run"][0] == "the proof of first: needs sm121", "not run is said, and doesn't stop it"
    assert "Not run: Change a.txt at 5 (needs sm121)." in (Path(found["folder"]) / "body.md").read_text()


def test_a_test_that_a_patch_brings_is_in_its_commit_and_runs(newer: Patchq) -> None:
    proof(newer, "first", "def test_it(trees):\n    assert 'changed' in (trees / 'up' / 'a.txt').read_text()\n")
    path = newer.root / "patches" / "up" / "upstream-tests" / "tests" / "test_a.py"
    path.parent.mkdir(parents=True)
    path.write_text("def test_a():\n    assert 'changed' in open('a.txt').read()\n")
    trailer(newer, "first", "Upstream-Test", "tests/test_a.py")
    assert not [f for f in json.loads(newer.run("check", "--json").output)["findings"] if f["rule"] == "upstream-test"]
    found = made(newer, "first", "--no-gates")
    assert [(t["path"], t["before"], t["after"]) for t in found["tests"]] == [("tests/test_a.py", "failed", "passed")]
    files = git(newer.layout.store, "diff", "--name-only", f"{found['base']}..{found['tip']}").split()
    assert files == ["a.txt", "tests/test_a.py"]
    path.write_text("def test_a():\n    assert True\n")
    found = made(newer, "first", "--no-gates", code=5)
    assert "tests/test_a.py: without the change: passed" in found["problems"][0]
    path.unlink()
    assert "doesn't exist" in newer.fails(1, "pr", "first")
    assert "upstream-test" in newer.run("check", "--json").output


def test_upstreams_own_tests_of_what_it_touches_are_compared(newer: Patchq, upstream: Path) -> None:
    files = {f"tests/test_{n}.py": b"import pkg.mod\n\ndef test_f():\n    assert pkg.mod.f() == 1\n" for n in range(5)}
    files["tests/test_else.py"] = b"def test_else():\n    assert True\n"
    files["pkg/__init__.py"] = b""
    commit_files(upstream, {**files, "conftest.py": b""}, "tests (#10)")
    (newer.tree() / "pkg" / "mod.py").write_text("def f():\n    return 2\n")
    newer.ok("new", "up", "breaks", "-s", "-m", "Breaks it\n\nWhy.", "--topic", "test")
    lock = newer.layout.lock
    lock.write_text(lock.read_text() + '\n[upstreams.up.build]\ndistribution = "up"\npackage = "pkg"\n')
    proof(newer, "breaks", "def test_it(trees):\n    assert '2' in (trees / 'up' / 'pkg' / 'mod.py').read_text()\n")
    found = made(newer, "breaks", "--no-gates")
    assert "upstream's tests of the changed files: 5 files; --upstream-tests runs them" in found["not_run"]
    found = made(newer, "breaks", "--no-gates", "--upstream-tests", code=5)
    assert {f["path"] for f in found["upstreams"]} == {f"tests/test_{n}.py" for n in range(5)}
    assert "upstream's tests/test_0.py::test_f passes without the branch, but not with it" in found["problems"]
    # One that takes too long shows nothing of the change, on whichever side.
    with pytest.MonkeyPatch.context() as short:
        short.setattr("patchq.contribute._trials.TEST_SECONDS", 0.01)
        found = made(newer, "breaks", "--no-gates", "--upstream-tests")
    assert found["problems"] == []
    assert any("tests/test_0.py: no answer in" in line for line in found["not_run"])
    (newer.tree() / "pkg" / "mod.py").write_text("def f():\n    return 1  # 2\n")
    newer.ok("export", "up", "--amend", "breaks")
    found = made(newer, "breaks", "--no-gates", "--upstream-tests")
    assert "`tests/test_0.py`: 1 passed, as before." in (Path(found["folder"]) / "body.md").read_text()


def test_which_refs_are_affected_and_what_upstream_did_there(newer: Patchq, upstream: Path) -> None:
    lines = (b"above\n" + numbered(40)).splitlines(keepends=True)
    lines[3] = b"near\n"
    commit_files(upstream, {"a.txt": b"".join(lines)}, "Near it (#8)")
    found = made(newer, "first", "--no-proof")
    assert [(a["ref"], a["outcome"]) for a in found["affected"]] == [("v1", "clean"), ("main", "merged")]
    assert found["commits_known"] is True
    (touch,) = found["touches"]
    assert touch["by"][0].endswith("Near it (#8)")
    assert not any("a line below" in by for by in touch["by"])
    dossier = (Path(found["folder"]) / "dossier.md").read_text()
    assert "Near it (#8)" in dossier
    assert "gh pr list --state open" in dossier


def test_a_branch_whose_name_has_a_slash(newer: Patchq, upstream: Path) -> None:
    git(upstream, "branch", "release/1.0")
    found = made(newer, "first", "--no-proof", "--onto", "release/1.0")
    assert [a["ref"] for a in found["affected"]] == ["v1", "release/1.0"]


def test_size_title_and_sign_off_are_checked(newer: Patchq) -> None:
    lock = newer.layout.lock
    table = '\n[upstreams.up.contribute]\ntitle = "tags"\nsign-off = true\nmost-lines = 1\n'
    lock.write_text(lock.read_text() + table)
    problems = made(newer, "first", "--no-proof", code=5)["problems"]
    assert [p.split(":")[0] for p in problems] == ["title", "size"]
    found = made(newer, "first", "--no-proof", "--title", "[Bugfix][Core] Change it", code=5)
    assert [c["name"] for c in found["checks"] if not c["ok"]] == ["size"]
    file = newer.patch_file("first")
    file.write_bytes(
        b"".join(x for x in file.read_bytes().splitlines(keepends=True) if not x.startswith(b"Signed-off"))
    )
    newer.ok("apply")
    found = made(newer, "first", "--no-proof", code=5)
    assert "sign-off (DCO)" in [c["name"] for c in found["checks"] if not c["ok"]]
    lock.write_text(lock.read_text().replace('"tags"', '"haiku"'))
    assert "contribute.title" in newer.fails(1, "pr", "first")


def test_a_topic_takes_what_is_pending(newer: Patchq) -> None:
    trailer(newer, "second", "Upstream-Status", "Denied [https://example.org/pull/1]")
    found = made(newer, "--topic", "test", "--no-proof", "--title", "All")
    assert [m["patch"] for m in found["members"]] == ["first", "third"]
    assert found["slug"] == "test"
    assert "no patch of the topic other" in newer.fails(1, "pr", "--topic", "other")
    assert "name patches, or a topic with --topic" in newer.fails(2, "pr")


# What leaves this machine


@pytest.fixture
def fork(upstream: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "forks" / "someone" / "up.git"
    git(upstream, "clone", "-q", "--bare", str(upstream), str(folder))
    return folder


def test_nothing_is_pushed_without_the_flag_and_only_over_our_own(newer: Patchq, fork: Path) -> None:
    made(newer, "first", "--no-proof")
    assert "first" not in git(fork, "branch", "--list")
    found = made(newer, "first", "--no-proof", "--push", str(fork))
    assert git(fork, "rev-parse", "first") == found["tip"] == found["pushed"]["commit"]
    edit(newer.tree() / "a.txt", 5, b"changed otherwise\n")
    newer.ok("export", "up", "--amend", "third")
    trailer(newer, "first", "Topic", "test")
    again = made(newer, "third", "--no-proof", "--name", "first", "--push", str(fork))
    assert git(fork, "rev-parse", "first") == again["tip"] != found["tip"], "our own push is replaced"
    commit = git(fork, "commit-tree", "-p", again["tip"], "-m", "a reviewer's", f"{again['tip']}^{{tree}}")
    git(fork, "update-ref", "refs/heads/first", commit)
    assert "refused first" in newer.fails(1, "pr", "first", "--no-proof", "--push", str(fork))
    assert git(fork, "rev-parse", "first") == commit, "what somebody else put there stays"


def test_a_branch_on_an_archives_import_is_not_pushed(
    newer: Patchq, upstream: Path, fork: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "up-2.tar.gz"
    git(upstream, "archive", "--prefix=up-2/", "-o", str(archive), "HEAD")
    lock = newer.layout.lock
    lock.write_text(lock.read_text().replace(f'url = "{upstream}"', 'url = "https://nowhere.invalid/up.git"'))
    newer.ok("pin", "up", "--ref", "v2", "--archive", str(archive), "--set", "two")
    found = made(newer, "first", "--no-proof", "--onto", "v2")
    assert found["source"] == "archive"
    assert "a commit that exists on no git host" in newer.fails(
        1, "pr", "first", "--onto", "v2", "--no-proof", "--push", str(fork)
    )
    assert "first" not in git(fork, "branch", "--list")


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for gh that notes its arguments, and answers what the file `answer` holds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "gh").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {folder}/asked\npwd > {folder}/where\ncat {folder}/answer\n'
    )
    (folder / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def asked_of(gh: Path) -> list[str]:
    """Return all arguments that gh was called with."""
    return (gh / "asked").read_text().splitlines() if (gh / "asked").exists() else []


def with_url(patchq: Patchq, upstream: Path, fork: Path) -> None:
    """Give the upstream an address that looks like a git host's, and is there."""
    patchq.layout.lock.write_text(patchq.layout.lock.read_text().replace(str(upstream), f"file://{upstream}"))


def test_open_needs_an_owner_a_branch_and_a_yes(newer: Patchq, upstream: Path, fork: Path, gh: Path) -> None:
    with_url(newer, upstream, fork)
    args = ("pr", "first", "--no-proof", "--open")
    assert "no responsible owner" in newer.fails(1, *args)
    folder = newer.layout.private / "pr" / "first"
    (folder / "owner.toml").write_text('name = "A"\nemail = "a@b.example"\nstatement = "Read."\n')
    assert "not pushed" in newer.fails(1, *args)
    (gh / "answer").write_text("https://example.org/up/pull/7\n")
    from click.testing import CliRunner

    from patchq.cli import cli

    def run(answer: str) -> Any:
        return CliRunner().invoke(cli, ["--project", str(newer.root), *args, "--push", str(fork)], input=answer)

    assert run("n\n").exit_code == 130
    assert "create" not in asked_of(gh), "nothing is sent without a yes"
    done = run("y\n")
    assert done.exit_code == 0, done.output
    asked = asked_of(gh)
    asked = asked[asked.index("create") - 1 :]
    assert asked[:2] == ["pr", "create"]
    assert asked[asked.index("--head") + 1] == "someone:first"
    assert asked[asked.index("--title") + 1] == "Change a.txt at 5"
    assert b"Upstream-Status: Submitted [https://example.org/up/pull/7]\n" in newer.patch_file("first").read_bytes()
    newer.ok("undo")
    assert b"Upstream-Status: Pending\n" in newer.patch_file("first").read_bytes()


def test_status_is_written_back(newer: Patchq, gh: Path) -> None:
    url = "https://example.org/up/pull/7"
    assert "no patch is marked" in newer.fails(1, "pr", "--status")
    newer.ok("pr", "first", "--status", "--url", url)
    assert f"Submitted [{url}]".encode() in newer.patch_file("first").read_bytes()
    newer.ok("apply")
    for state, status in (
        ({"state": "OPEN", "url": url, "mergeCommit": None}, f"Submitted [{url}]"),
        ({"state": "MERGED", "url": url, "mergeCommit": {"oid": "a" * 40}}, f"Accepted [{'a' * 40}]"),
    ):
        (gh / "answer").write_text(json.dumps(state))
        (told,) = json.loads(newer.ok("pr", "--status", "--json"))["pull_requests"]
        assert told["status"] == status
        assert f"Upstream-Status: {status}\n".encode() in newer.patch_file("first").read_bytes()
    assert "is Accepted" in newer.fails(1, "pr", "first", "--no-proof")
    (gh / "answer").write_text(json.dumps({"state": "MERGED", "url": url, "mergeCommit": {"oid": "main"}}))
    newer.ok("pr", "second", "--status", "--url", url)
    said = newer.fails(1, "pr", "--status")
    assert f"error: gh reports 'main' as the merge commit of {url}, which is not a commit id" in said
    assert "error: '7' is not a URL" in newer.fails(1, "pr", "second", "--status", "--url", "7")
    assert (gh / "where").read_text() == "/\n", "git's configuration of the project is nobody's to run"
    (gh / "answer").write_text("not json")
    newer.ok("pr", "second", "--status", "--url", url)
    assert "can't be read" in newer.fails(1, "pr", "--status")


def test_without_gh_it_says_what_to_do(newer: Patchq, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    newer.ok("pr", "first", "--status", "--url", "https://example.org/up/pull/7")
    real = subprocess.run(["bash", "-c", "command -v git"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "git").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "only"))
    told = newer.fails(1, "pr", "--status")
    assert "gh is not installed" in told
    assert "install gh" in told


# Duplicates

PULL, ISSUE = "https://example.org/someone/up/pull/43", "https://example.org/someone/up/issues/44"


@pytest.fixture
def method(newer: Patchq, upstream: Path) -> Patchq:
    """A patch `method` that changes the method `Engine.warm_caches`."""
    source = b"class Engine:\n    def warm_caches(self):\n        return 1\n\n    def other(self):\n        return 0\n"
    commit_files(upstream, {"pkg/engine.py": source}, "engine")
    git(upstream, "tag", "v9")
    newer.ok("pin", "up", "--ref", "v9")
    newer.ok("apply")
    (newer.tree() / "pkg" / "engine.py").write_bytes(source.replace(b"return 1", b"return 2"))
    newer.ok("new", "up", "method", "-m", "Warm caches\n\nThey are cold.\n", "--topic", "test", "-s")
    return newer


def duplicates(patchq: Patchq, code: int = 0) -> dict[str, Any]:
    found = made(patchq, "method", "--no-proof", "--onto", "v9", code=code)
    return {**found["duplicates"], "problems": found["problems"], "not_run": found["not_run"]}


def listed(patchq: Patchq, text: str) -> None:
    path = patchq.root / "patches" / "up" / "contribute" / "open-items.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"asked = 2026-11-01\n{text}")


def test_without_gh_and_list_the_search_for_duplicates_is_named_as_not_run(method: Patchq) -> None:
    found = duplicates(method)
    assert (found["searched"], found["items"]) == ("nowhere", [])
    assert any("a search for duplicates" in line for line in found["not_run"])


def test_an_open_item_of_the_list_has_to_be_named_in_the_message(method: Patchq) -> None:
    listed(
        method,
        f'[[item]]\nurl = "{PULL}"\ntitle = "Warm"\ntouches = ["warm_caches"]\n'
        f'[[item]]\nurl = "{ISSUE}"\ntitle = "Far"\ntouches = ["cold_caches", "pkg/engine.py"]\n'
        '[[item]]\nurl = "https://example.org/someone/up/pull/45"\ntitle = "None"\ntouches = ["other"]\n',
    )
    found = duplicates(method, code=5)
    assert (found["searched"], found["asked"]) == ("list", "2026-11-01")
    assert [(i["url"], i["functions"], i["files"], i["named"]) for i in found["items"]] == [
        (PULL, ["warm_caches"], [], False),
        (ISSUE, [], ["pkg/engine.py"], False),
    ]
    assert found["problems"] == ["duplicates: mention them in a commit message, with the differences: #43 (Warm)"]
    method.ok("reword", "method", "-m", "Warm caches\n\nThey are cold. #430 isn't it.\n")
    assert duplicates(method, code=5)["problems"], "another number is no name of it"
    method.ok("reword", "method", "-m", "Warm caches\n\nUnlike #43 this keeps the rest.\n")
    assert duplicates(method)["problems"] == []


def test_words_of_the_list_are_looked_for_in_the_message(method: Patchq) -> None:
    listed(method, f'[[item]]\nurl = "{PULL}"\ntitle = "Warm"\nwords = ["they are COLD"]\n')
    (item,) = duplicates(method, code=5)["items"]
    assert item["words"] == ["they are COLD"]


@pytest.mark.parametrize("text", ["[[item]]\n", '[[item]]\nurl = "x"\ntitle = "y"\n', "item = 1\n", "[[\n"])
def test_a_damaged_list_is_named(method: Patchq, text: str) -> None:
    listed(method, text)
    told = method.fails(1, "pr", "method", "--no-proof", "--onto", "v9")
    assert "open-items.toml" in told
    assert "[[item]] tables with url" in told


def test_gh_is_asked_for_functions_and_words(method: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_repository(method)
    folder = tmp_path / "bin"
    folder.mkdir()
    rows = {
        "pr": [
            {"url": PULL, "title": "Keep Engine.warm_caches warm", "body": "", "files": []},
            {"url": f"{PULL}1", "title": "Tidy", "body": "", "files": [{"path": "pkg/engine.py"}]},
            {"url": f"{PULL}2", "title": "Elsewhere", "body": "warm_caches_of", "files": [{"path": "pkg/else.py"}]},
        ],
        "issue": [{"url": ISSUE, "title": "Cold", "body": "`warm_caches` is cold"}],
        "diff": "@@ -1,2 +1,2 @@ def warm_caches(self):\n-a\n+b\n",
    }
    for name, value in rows.items():
        (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    (folder / "gh").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {folder}/asked\n'
        f'case "$1 $2" in "pr diff") cat {folder}/diff;; *) cat {folder}/$1;; esac\n'
    )
    (folder / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    found = duplicates(method, code=5)
    assert found["searched"] == "gh"
    assert {i["url"]: (i["functions"], i["files"]) for i in found["items"]} == {
        PULL: (["warm_caches"], []),
        f"{PULL}1": (["warm_caches"], ["pkg/engine.py"]),
        ISSUE: (["warm_caches"], []),
    }
    asked = asked_of(folder)
    assert {asked[n + 1] for n, word in enumerate(asked) if word == "--search"} == {"warm_caches", "Warm caches"}


def with_repository(patchq: Patchq) -> None:
    """Give the upstream an address that names a repository of a git host."""
    lock = patchq.layout.lock
    folder = lock.read_text().split('url = "', 1)[1].split('"', 1)[0]
    lock.write_text(lock.read_text().replace(f'url = "{folder}"', f'url = "file://{folder}"'))


# Bug reports


def test_a_report_of_what_is_seen_on_the_bare_ref(newer: Patchq) -> None:
    text = "def test_a_is_changed(trees):\n    assert 'changed' in (trees / 'up' / 'a.txt').read_text(), 'a is as it was'\n"
    proof(newer, "first", text)
    found = json.loads(newer.ok("issue", "first", "--json"))
    assert (found["ref"], found["title"]) == ("main", "Change a.txt at 5")
    assert found["outcomes"] == ["a is changed: fails: AssertionError: a is as it was"]
    body = (Path(found["folder"]) / "body.md").read_text()
    assert "### Describe the bug\n\nBecause of the test." in body
    assert "a is as it was" in body


def test_a_persons_part_and_noted_facts_go_into_the_form(newer: Patchq, upstream: Path) -> None:
    form = b"title: '[BUG] '\nbody:\n- type: textarea\n  attributes: {label: Bug}\n- type: input\n  attributes: {label: Version}\n"
    commit_files(upstream, {".github/ISSUE_TEMPLATE/bug.yml": form}, "a form (#9)")
    proof(
        newer, "first",
        "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_size(n, record_property):\n    record_property('size', n * 10)\n",
    )  # fmt: skip
    (newer.root / "repro.sh").write_text("echo broken\n")
    report = newer.root / "patches" / "up" / "reports" / "first.toml"
    report.parent.mkdir(parents=True)
    report.write_text('title = "It breaks"\nreproducer = "repro.sh"\nexpected = "It holds."\n')
    found = json.loads(newer.ok("issue", "first", "--write", str(newer.root / "docs" / "it.md"), "--json"))
    assert found["title"] == "[BUG] It breaks"
    assert found["facts"] == [["1", ["10"]], ["2", ["20"]]]
    body = (Path(found["folder"]) / "body.md").read_text()
    assert body.startswith("### Bug\n\nBecause of the test.")
    assert "```bash\necho broken\n```" in body
    assert "| 2 | 20 |" in body
    assert "It holds." in body, "what the form doesn't ask for is not lost"
    document = (newer.root / "docs" / "it.md").read_text()
    assert document.startswith("# [BUG] It breaks\n\n*Draft of an issue for up, not sent")
    report.write_text('titel = "x"\n')
    assert "unknown keys titel" in newer.fails(1, "issue", "first")
    report.write_text('reproducer = "../../etc/passwd"\n')
    assert "is not a relative path inside its folder" in newer.fails(1, "issue", "first")


def test_a_patch_that_requires_one_that_is_not_there(newer: Patchq) -> None:
    path = newer.patch_file("first")
    path.write_bytes(path.read_bytes().replace(b"\nSigned-off-by:", b"\nRequires: up/nothing\nSigned-off-by:"))
    newer.ok("apply")
    for verb in (("pr", "first", "--no-proof", "--no-gates"), ("issue", "first", "--no-run")):
        assert "up/first requires up/nothing, which is not in the stack" in newer.fails(1, *verb)
