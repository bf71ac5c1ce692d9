"""Private state that somebody else made is refused in words, before anything of it is obeyed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git
from patchq.build.dist import _known
from patchq.errors import FormatError, StateError
from patchq.git.repository import partial_repository
from patchq.git.transport import fetch_history
from patchq.project.journal import Change

VERBS = [
    ("apply",), ("status",), ("list",), ("check",), ("undo",), ("fetch",), ("deps",), ("export", "up"),
    ("new", "up", "x", "-m", "x"), ("drop", "first"), ("forecast", "up", "--onto", "v1"), ("ledger",),
]  # fmt: skip


def trap(folder: Path) -> tuple[str, Path]:
    """A program that leaves a mark when it is run."""
    mark = folder / "ran"
    program = folder / "trap.sh"
    program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 0\n")
    program.chmod(0o755)
    return str(program), mark


@pytest.mark.parametrize("verb", VERBS, ids=lambda v: v[0])
def test_a_clone_with_private_state_is_refused(stack: Patchq, tmp_path: Path, verb: tuple[str, ...]) -> None:
    program, mark = trap(tmp_path)
    config = stack.layout.store / "config"
    config.write_text(config.read_text() + f"\tfsmonitor = {program}\n\thooksPath = {tmp_path}\n")
    (stack.layout.store / "hooks").mkdir(exist_ok=True)
    for hook in ("reference-transaction", "post-checkout", "post-index-change"):
        shutil.copy(program, tmp_path / hook)
        shutil.copy(program, stack.layout.store / "hooks" / hook)
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-f", "--all", ".patchq/store.git", ".patchq/journal", "patches", "upstream.lock")
    git(stack.root, "commit", "-qm", "evil")
    clone = Patchq(tmp_path / "clone")
    git(tmp_path, "clone", "-q", str(stack.root), str(clone.root))
    assert "is tracked by git" in clone.fails(1, *verb)
    assert not mark.exists()


def test_a_compressed_index_is_asked_of_git(stack: Patchq) -> None:
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-f", ".patchq/state", "patches", "upstream.lock")
    git(stack.root, "update-index", "--index-version", "4")
    assert "is tracked by git" in stack.fails(1, "status")
    git(stack.root, "rm", "-q", "-r", "--cached", ".patchq")
    stack.ok("status")


def evil_store(stack: Patchq, tmp_path: Path, at: Path) -> Path:
    """A copy of the store that runs something; returns where the mark of that would be."""
    program, mark = trap(tmp_path)
    hooks = tmp_path / "evil-hooks"
    hooks.mkdir()
    for hook in ("reference-transaction", "post-index-change"):
        shutil.copy(program, hooks / hook)
    shutil.copytree(stack.layout.store, at)
    (at / "config").write_text(
        f'[core]\n\tfsmonitor = {program}\n\thooksPath = {hooks}\n[filter "x"]\n\tsmudge = {program}\n'
    )
    return mark


def foreign_git(stack: Patchq, evil: Path) -> None:
    evil.rename(stack.layout.store / ".git")


def foreign_common(stack: Patchq, evil: Path) -> None:
    (stack.layout.store / "commondir").write_text(f"{evil}\n")


def linked_record(stack: Patchq, evil: Path) -> None:
    record = stack.layout.store / "worktrees" / "up"
    shutil.rmtree(record)
    record.symlink_to(evil / "worktrees" / "up")


def blank_after(stack: Patchq, evil: Path) -> None:
    """git's path ends in a blank, which a reader that strips doesn't see."""
    record = stack.layout.store / "worktrees" / "up"
    other = shutil.copytree(record, record.with_name("up "))
    (other / "commondir").write_text(f"{evil}\n")
    (stack.tree() / ".git").write_text(f"gitdir: {other}\n")


def carriage_return(stack: Patchq, evil: Path) -> None:
    """git leaves out a CR at the end, a reader that doesn't looks at another record."""
    record = stack.layout.store / "worktrees" / "up"
    shutil.copytree(record, record.with_name("up\r"))
    (record / "commondir").write_text(f"{evil}\n")
    (stack.tree() / ".git").write_bytes(b"gitdir: %s\r\n" % os.fsencode(record))


def relative(stack: Patchq, evil: Path) -> None:
    """A path that only git, from the worktree, finds."""
    shutil.move(evil, stack.tree() / "store.git")
    (stack.tree() / "store.git" / "worktrees" / "up").rename(stack.tree() / "store.git" / "worktrees" / "x")
    (stack.tree() / ".git").write_text("gitdir: store.git/worktrees/x\n")


@pytest.mark.parametrize("trick", [foreign_git, foreign_common, linked_record, blank_after, carriage_return, relative])
def test_private_state_of_an_archive_leads_git_nowhere_else(
    stack: Patchq, tmp_path: Path, trick: Callable[[Patchq, Path], None]
) -> None:
    evil = tmp_path / "evil" / "store.git"
    mark = evil_store(stack, tmp_path, evil)
    trick(stack, evil)
    for verb in (("status",), ("drop", "third"), ("apply",)):
        stack.fails(1, *verb)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["info/attributes", "info/grafts", "objects/info/alternates", "config.worktree"])
def test_a_file_of_the_store_that_changes_what_git_sees_is_refused(stack: Patchq, name: str) -> None:
    path = stack.layout.store / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("* ident\n")
    assert "not written by patchq" in stack.fails(1, "status")
    path.unlink()
    stack.ok("status")


@pytest.mark.parametrize("name", ["worktrees/up/index", "refs/heads/up", "packed-refs", "objects/pack", "info"])
def test_a_link_deep_in_the_store_is_refused(stack: Patchq, tmp_path: Path, name: str) -> None:
    """git follows it to write: its lock lies beside what the link names."""
    path, elsewhere = stack.layout.store / name, tmp_path / "elsewhere"
    if os.path.lexists(path):
        path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert f"{path} is a symbolic link" in stack.fails(1, "status")


@pytest.mark.parametrize(
    "name", ["prove/slot0", "prove/slot0/up", "results/last.json", "pr/x", "history/up.git", "journal/objects/ab"]
)
def test_a_link_in_any_private_folder_is_refused(stack: Patchq, tmp_path: Path, name: str) -> None:
    path = stack.layout.private / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.symlink_to(tmp_path)
    assert f"{path} is a symbolic link" in stack.fails(1, "status")


def test_history_that_names_programs_is_refused(stack: Patchq) -> None:
    history = stack.layout.private / "history" / "up.git"
    history.mkdir(parents=True)
    (history / "config").write_text("[core]\n\thooksPath = /tmp\n")
    assert "patchq didn't write" in stack.fails(1, "status")


@pytest.mark.parametrize("line", [
    '[remote "partial"]\n\turl = {}', '[remote "{}"]\n\turl = {}', '[remote "partial"]\n\tuploadpack = {}',
    '[remote "partial"]\n\tvcs = ext', '[remote "partial"]\n\tproxy = http://127.0.0.1:9',
    '[url "{}"]\n\tinsteadOf = https://', "[core]\n\tsshCommand = {}", "[core]\n\tgitProxy = {}",
    "[core]\n\taskPass = {}", "[credential]\n\thelper = {}", "[include]\n\tpath = {}",
    '[includeIf "gitdir:/"]\n\tpath = {}', "[extensions]\n\tpartialClone = origin", "[protocol]\n\tallow = always",
    "[http]\n\tproxy = http://127.0.0.1:9", "[core]\n\talternateRefsCommand = {}", "[user]\n\tname = A Person",
])  # fmt: skip
def test_a_history_is_asked_for_where_the_lock_says(stack: Patchq, upstream: Path, tmp_path: Path, line: str) -> None:
    """What git would ask first is what its configuration says, before what is said with the command."""
    program, mark = trap(tmp_path)
    history = partial_repository(stack.layout.private / "history" / "up.partial.git")
    fetch_history(history, str(upstream), "v1", files=False)
    stack.ok("forecast", "up", "--onto", "v1")
    config = history.folder / "config"
    config.write_text(config.read_text() + line.replace("{}", program) + "\n")
    for verb in (("status",), ("fetch", "--history"), ("forecast", "up", "--onto", "v1")):
        assert "patchq didn't write; nothing was run" in stack.fails(1, *verb)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["objects/info/alternates", "remotes/partial", "branches/partial", "info/grafts"])
def test_a_history_leads_nowhere_else(stack: Patchq, upstream: Path, name: str) -> None:
    history = partial_repository(stack.layout.private / "history" / "up.partial.git")
    fetch_history(history, str(upstream), "v1", files=False)
    path = history.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"URL: {upstream}\n")
    assert f"{path} was not written by patchq" in stack.fails(1, "status")


@pytest.mark.parametrize("kind", ["config", "remotes"])
def test_a_store_renames_no_host(stack: Patchq, upstream: Path, tmp_path: Path, kind: str) -> None:
    """A section, or a file, by the name of what the lock says would be asked in its place."""
    if kind == "config":
        config = stack.layout.store / "config"
        config.write_text(f'{config.read_text()}[remote "{upstream}"]\n\turl = {tmp_path}/elsewhere\n')
    else:
        (stack.layout.store / kind).mkdir()
        (stack.layout.store / kind / "host:up").write_text(f"URL: {tmp_path}/elsewhere\n")
    commit_files(upstream, {"a.txt": b"new\n"})
    git(upstream, "tag", "v2")
    assert "patchq" in stack.fails(1, "pin", "up", "--ref", "v2", "--set", "next")
    assert "patchq" in stack.fails(1, "fetch", "--all")


def test_hooks_of_the_store_are_not_run(stack: Patchq, tmp_path: Path) -> None:
    """A person's own, too: `pre-commit install` in a worktree puts them there."""
    program, mark = trap(tmp_path)
    hooks = stack.layout.store / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("reference-transaction", "post-checkout", "post-index-change", "pre-auto-gc", "update"):
        shutil.copy(program, hooks / hook)
    for verb in (("drop", "third"), ("undo",), ("fetch",), ("apply", "--to", "first"), ("status",)):
        stack.ok(*verb)
    assert not mark.exists()


def test_what_a_persons_git_and_editor_write_into_the_store_is_no_harm(stack: Patchq) -> None:
    for key, value in (
        ("branch.up.vscode-merge-base", "origin/main"),
        ("user.name", "A Person"),
        ("user.email", "a@example.org"),
        ("remote.origin.url", "https://example.org/x.git"),
    ):
        git(stack.tree(), "config", key, value)
    stack.ok("drop", "third")


@pytest.mark.parametrize("line", ["\tfsmonitor = {}", "[include]\n\tpath = {}", '[filter "x"]\n\tsmudge = {}'])
def test_a_store_that_names_programs_is_refused(stack: Patchq, tmp_path: Path, line: str) -> None:
    program, mark = trap(tmp_path)
    config = stack.layout.store / "config"
    config.write_text(config.read_text() + line.format(program) + "\n")
    assert "patchq didn't write" in stack.fails(1, "apply")
    assert not mark.exists()
    config.write_text(config.read_text().removesuffix(line.format(program) + "\n"))
    stack.ok("apply")


@pytest.mark.parametrize(
    "name", [".patchq", ".patchq/lock", ".patchq/store.git", ".patchq/journal", ".patchq/state", "patches", "patches/up", "patches/up/v1"]
)  # fmt: skip
def test_a_link_in_patchqs_own_paths_is_refused(stack: Patchq, tmp_path: Path, name: str) -> None:
    path = stack.root / name
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    said = stack.fails(1, "apply")
    assert f"{path} is a symbolic link" in said
    path.unlink()
    elsewhere.rename(path)
    stack.ok("apply")


def test_a_note_of_the_locks_owner_that_is_a_link_stays(stack: Patchq, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    (stack.layout.private / "lock.owner").symlink_to(target)
    assert "symbolic link" in stack.fails(1, "check")
    assert target.read_text() == "mine"


RECORD = {
    "version": 1,
    "verb": "apply",
    "summary": "evil",
    "time": "",
    "files": {},
    "refs": [],
    "trees": [],
    "undoes": "",
}


@pytest.mark.parametrize(
    "record",
    [
        {"files": {"../OUT": [None, "0" * 64]}},
        {"files": {"/tmp/patchq-OUT": [None, "0" * 64]}},
        {"files": {".git/hooks/pre-commit": [None, "0" * 64]}},
        {"files": {"a": [None, "../../../upstream.lock"]}},
        {"refs": [["HEAD", None, "0" * 40]]},
        {"refs": [["refs/heads/x", None, "--all"]]},
        {"trees": [["../../x", None, None, False]]},
        {"files": []},
        {"trees": [[]]},
    ],
)
def test_a_journal_writes_only_into_the_project(stack: Patchq, record: dict[str, object]) -> None:
    (stack.layout.private / "journal" / "pending.json").write_text(json.dumps({**RECORD, **record}))
    assert "pending.json" in stack.fails(1, "apply")
    assert not (stack.root.parent / "OUT").exists()


def test_a_kept_content_that_was_changed_is_not_written(stack: Patchq) -> None:
    objects = stack.layout.private / "journal" / "objects"
    for path in objects.rglob("*"):
        if path.is_file():
            path.write_bytes(b"evil")
    assert "doesn't match its name" in stack.fails(1, "undo")


def test_a_worktree_that_leads_elsewhere_is_refused(stack: Patchq, tmp_path: Path) -> None:
    program, mark = trap(tmp_path)
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    git(other, "config", "core.fsmonitor", program)
    (stack.tree() / ".git").write_text(f"gitdir: {other / '.git'}\n")
    assert "not in this project's store" in stack.fails(1, "status")
    assert not mark.exists()


def test_a_copied_project_is_one_of_its_own(stack: Patchq, tmp_path: Path) -> None:
    copy = Patchq(tmp_path / "copy")
    shutil.copytree(stack.root, copy.root, symlinks=True)
    before = stack.snapshot()
    copy.ok("drop", "third")
    assert stack.snapshot() == before
    assert "2 of 2 applied; worktree clean" in copy.ok("status")
    assert "3 of 3 applied; worktree clean" in stack.ok("status")


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_have_the_persons_umask(stack: Patchq, umask: int) -> None:
    (stack.tree() / "a.txt").write_bytes(b"x\n" + (stack.tree() / "a.txt").read_bytes())
    before = os.umask(umask)
    try:
        stack.ok("new", "up", "fourth", "-m", "Fourth", "--topic", "t", "-s")
    finally:
        os.umask(before)
    assert stack.patch_file("fourth").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_file_keeps_its_mode(stack: Patchq) -> None:
    stack.layout.lock.chmod(0o600)
    stack.ok("drop", "third")
    series = stack.layout.stack("up", "v1") / "series"
    series.chmod(0o640)
    stack.ok("drop", "second")
    assert series.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a project away")
def test_another_users_project_is_read_where_the_person_says_so(stack: Patchq) -> None:
    """As in a container that a project is mounted into, with another uid than it was made by."""
    for path in (stack.root, *stack.root.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    said = stack.fails(1, "status")
    assert "belongs to another user (uid 12345)" in said
    assert f"safe.directory {stack.root}" in said
    git(stack.root, "config", "--global", "--add", "safe.directory", str(stack.root))
    stack.ok("status")
    stack.ok("drop", "third")
    git(stack.root, "config", "--global", "--add", "safe.directory", "")
    stack.fails(1, "status")
    git(stack.root, "config", "--global", "--add", "safe.directory", "*")
    stack.ok("undo")


def test_a_command_writes_through_no_link(stack: Patchq, tmp_path: Path) -> None:
    """Deeper than patchq looks each time: what a change would write is looked at when it is planned."""
    case = stack.root / "patches" / "up" / "rr-cache" / "case"
    case.parent.mkdir()
    case.symlink_to(tmp_path)
    change = Change(verb="x", summary="x", files={"patches/up/rr-cache/case/preimage": b"x"})
    project = stack.project
    with pytest.raises(StateError, match="symbolic link"), project.locked("x"):
        project.journal.perform(change)
    with pytest.raises(FormatError), project.locked("x"):
        project.journal.perform(Change(verb="x", summary="x", files={"../OUT": b"x"}))
    assert not (tmp_path / "preimage").exists()
    assert not (tmp_path / "OUT").exists()


@pytest.mark.parametrize("field", ["base", "tip", "tree", "commit"])
def test_what_apply_remembers_is_no_option_of_gits(stack: Patchq, tmp_path: Path, field: str) -> None:
    path, out = stack.layout.state("up"), tmp_path / "OUT"
    state = json.loads(path.read_text())
    if field == "commit":
        state["patches"][0][3] = f"--output={out}"
    else:
        state[field] = f"--output={out}"
    path.write_text(json.dumps(state))
    for verb in (("status",), ("export", "up"), ("new", "up", "x", "-m", "x"), ("drop", "third"), ("check",)):
        assert "Traceback" not in stack.run(*verb).output
    assert not list(tmp_path.glob("OUT*"))


@pytest.mark.parametrize(
    "change",
    [
        {"upstream": "../../x"},
        {"base": "--output=x"},
        {"new_set": "../x"},
        {"commits": []},
        {"done": [{}]},
        {"onto": {}},
    ],
)
def test_a_rebase_of_somebody_elses_is_refused(stack: Patchq, upstream: Path, change: dict[str, object]) -> None:
    edit(upstream / "a.txt", 5, b"theirs\n")
    git(upstream, "commit", "-qam", "second")
    git(upstream, "tag", "v2")
    stack.fails(3, "rebase", "up", "--onto", "v2")
    path = stack.layout.private / "rebase" / "up.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    for verb in (("rebase", "--abort"), ("rebase", "--continue"), ("status",)):
        assert "is not the state of a rebase" in stack.fails(1, *verb)


@pytest.mark.parametrize("field", ["files", "onto", "parked", "replayed", "stages"])
def test_ids_of_a_rebase_are_no_options_of_gits(stack: Patchq, upstream: Path, tmp_path: Path, field: str) -> None:
    edit(upstream / "a.txt", 5, b"theirs\n")
    git(upstream, "commit", "-qam", "second")
    git(upstream, "tag", "v2")
    stack.fails(3, "rebase", "up", "--onto", "v2")
    path, option = stack.layout.private / "rebase" / "up.json", f"--output={tmp_path / 'OUT'}"
    state = json.loads(path.read_text())
    stop, tree = dict(state["stop"]), state["files"]
    if field == "files":
        state["files"] = option
    elif field == "onto":
        state["onto"]["commit"] = option
    elif field == "stages":
        stop["stages"] = [["a.txt", "100644", option, 1]]
    else:
        stop[field] = option
    state["settled"] = [{"stop": stop, "steps": 0, "tree": tree}]
    path.write_text(json.dumps(state))
    found = [stack.run(*verb) for verb in (("rebase", "--continue"), ("resolve", "up"), ("status",))]
    assert not list(tmp_path.glob("OUT*"))
    for done in found:
        assert (done.exit_code, "is not a git id" in done.output) == (1, True), done.output


def test_a_note_of_a_wheel_names_one_in_dist(stack: Patchq, tmp_path: Path) -> None:
    record = tmp_path / "x.json"
    for name in ("../../x.whl", "/x.whl", None):
        with pytest.raises(StateError):
            _known(json.dumps({"version": 1, "file": name}).encode(), record)
