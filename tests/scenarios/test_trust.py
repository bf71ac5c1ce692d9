"""Which verbs run code of an upstream or of a patch, and which never do: docs/explanation/trust.md says it, this tries it.

The upstream is hostile wherever something could be run by somebody who only looks: build files, conftests, modules
that are imported, hooks, filters, drivers of attributes, submodules. Each would leave a mark.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kit import ROOT, Patchq, commit_files, edit, git
from patchq.cli import VERBS
from patchq.errors import PatchqError
from patchq.formats.header import Ident
from patchq.git import person

TRUST = ROOT / "docs" / "explanation" / "trust.md"
#: What each verb is run with; those that the page says run code are not here.
ARGUMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "init": (("init", "NEW"),),
    "pin": (("pin", "up", "--ref", "v2", "--set", "next"), ("pin", "--check")),
    "fetch": (("fetch", "--all"),),
    "import": (("import", "up", "UPSTREAM", "--range", "v1..v2"), ("import", "up", "DIFF", "--author", "me")),
    "apply": (("apply",), ("apply", "--to", "first"), ("apply",)),
    "status": (("status",),),
    "list": (("list",),),
    "show": (("show", "first"),),
    "new": (("new", "up", "fourth", "-m", "Fourth", "--topic", "t", "-s"),),
    "export": (("export", "up"),),
    "deps": (("deps",),),
    "reword": (("reword", "first", "--trailer", "Topic: other"),),
    "verify-image": (("verify-image", "UPSTREAM"),),
    "use": (("use", "next"),),
    "conflict": (("rebase", "up", "--onto", "v3"), ("conflict", "up", "--history")),
    "diff": (("diff", "HEAD"),),
    "drop": (("drop", "third"),),
    "forecast": (("forecast", "up", "--onto", "v2"), ("forecast", "up", "--onto", "v2", "--blame")),
    "ledger": (("ledger",),),
    "move": (("move", "second", "--first"),),
    "undo": (("undo",),),
    "redo": (("undo",), ("redo",)),
    "log": (("log",),),
    "split": (("split", "first"),),
    "fold": (("fold", "up", "--partial"),),
    "compare": (("compare", "HEAD"),),
    "check": (("check",),),
    "drift": (("drift", "up", "--from", "v1", "--to", "v2"),),
    "bench": (("bench", "show"),),
    "report": (("report", "--html", "HTML"),),
    "bundle": (("bundle", "BUNDLE"), ("apply", "--from-bundle", "BUNDLE")),
    "compose": (("compose",),),
    "doctor": (("doctor",),),
    "verify-installed": (("verify-installed",),),
}


def trap(mark: Path, name: str) -> str:
    return f"import pathlib; pathlib.Path({str(mark)!r}).mkdir(exist_ok=True); pathlib.Path({str(mark / name)!r}).touch()\n"


HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-checkout", "post-commit", "post-index-change",
    "post-merge", "post-receive", "post-rewrite", "post-update", "pre-auto-gc", "pre-commit", "pre-push", "pre-receive",
    "prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction", "update",
)  # fmt: skip
#: A configuration in which all that can name a program names one.
PROGRAMS = """[core]
	repositoryFormatVersion = 1
	fsmonitor = {shell}
	hooksPath = {hooks}
	sshCommand = {shell}
	askPass = {shell}
	gitProxy = {shell}
	alternateRefsCommand = {shell}
	pager = {shell}
	editor = {shell}
[extensions]
	partialClone = away
[remote "away"]
	url = ext::{shell} %S
	promisor = true
	partialCloneFilter = blob:none
	vcs = evil
	uploadpack = {shell}
	receivepack = {shell}
[protocol]
	allow = always
[protocol "ext"]
	allow = always
[filter "own"]
	clean = {shell}
	smudge = {shell}
	process = {shell}
	required = true
[diff]
	external = {shell}
[diff "own"]
	command = {shell}
	textconv = {shell}
[merge "own"]
	driver = {shell}
[interactive]
	diffFilter = {shell}
[credential]
	helper = !{shell}
[gpg]
	program = {shell}
[gpg "ssh"]
	program = {shell}
	defaultKeyCommand = {shell}
[commit]
	gpgSign = true
[tag]
	gpgSign = true
[push]
	recurseSubmodules = on-demand
[uploadpack]
	packObjectsHook = {shell}
[receive]
	denyCurrentBranch = updateInstead
[submodule "x"]
	url = ext::{shell}
	update = !{shell}
	active = true
[trailer "x"]
	command = {shell}
[alias]
	status = !{shell}
	ls-files = !{shell}
	push = !{shell}
	var = !{shell}
[pager]
	config = {shell}
[sequence]
	editor = {shell}
[include]
	path = more
"""


def poison(root: Path, shell: Path) -> None:
    """Make a project a repository whose configuration, hooks and attributes run ``shell`` wherever git lets them."""
    git(root, "init", "-q", "--template=")
    with (root / ".gitattributes").open("a") as attributes:
        attributes.write("* filter=own diff=own merge=own\n")
    git(root, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "add", "-A")
    git(root, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "commit", "-q", "-m", "all")
    hooks = root / ".git" / "hooks"
    hooks.mkdir()
    for name in HOOKS:
        (hooks / name).write_bytes(shell.read_bytes())
        (hooks / name).chmod(0o755)
    (root / ".git" / "config").write_text(PROGRAMS.format(shell=shell, hooks=hooks))
    (root / ".git" / "more").write_text(f"[core]\n\tfsmonitor = {shell}\n")
    os.utime(root / "upstream.lock")  # git would compare it, by the filter


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The folder that whatever is run leaves its name in."""
    return tmp_path / "ran"


@pytest.fixture
def hostile(stack: Patchq, upstream: Path, tmp_path: Path, mark: Path) -> Patchq:
    """A project over an upstream that runs something of its own wherever it can."""
    shell = tmp_path / "shell.sh"
    shell.write_text(f'#!/bin/sh\nmkdir -p {mark}; touch "{mark}/$(basename "$0")-$$"; cat\n')
    shell.chmod(0o755)
    python = {
        name: trap(mark, name.replace("/", "-")).encode()
        for name in (
            "setup.py",
            "conftest.py",
            "tests/conftest.py",
            "pkg/__init__.py",
            "sitecustomize.py",
            "usercustomize.py",
            "backend.py",
            "noxfile.py",
        )
    }
    files: dict[str, bytes | None] = {
        **python,
        "pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "evil.pth": trap(mark, "pth").encode(),
        ".gitattributes": b"* filter=evil diff=evil merge=evil export-subst ident\n",
        ".gitmodules": f'[submodule "x"]\n\tpath = x\n\turl = ext::{shell}\n\tupdate = !{shell}\n'.encode(),
        ".pre-commit-config.yaml": f"repos: [{{repo: local, hooks: [{{id: x, name: x, entry: {shell}, language: system}}]}}]\n".encode(),
        ".envrc": f"{shell}\n".encode(),
        ".lfsconfig": f"[lfs]\n\tconcurrenttransfers = 1\n[core]\n\tfsmonitor = {shell}\n".encode(),
        "Makefile": f"$(shell {shell})\n".encode(),
        "a.txt": (upstream / "a.txt").read_bytes().replace(b"line 20\n", b"line twenty\n"),
    }
    poison(stack.root, shell)
    hooks = upstream / ".git" / "hooks"
    for name in (
        "post-checkout",
        "pre-commit",
        "post-commit",
        "reference-transaction",
        "pre-receive",
        "post-index-change",
        "pre-push",
    ):
        (hooks / name).write_bytes(shell.read_bytes())
    commit_files(upstream, files, "hostile")
    for name in hooks.glob("*"):
        name.chmod(0o755)
    git(upstream, "tag", "v2")
    commit_files(upstream, {"a.txt": b"all else\n"}, "where the stack stops")
    git(upstream, "tag", "v3")
    # What somebody could have talked the person into, too: drivers of the names that the upstream's attributes use.
    drivers = "".join(
        f'[{kind} "evil"]\n\t{key} = {shell}\n'
        for kind, key in (
            ("filter", "smudge"),
            ("filter", "clean"),
            ("diff", "textconv"),
            ("diff", "command"),
            ("merge", "driver"),
        )
    )
    config = Path.home() / ".gitconfig"
    config.write_text(
        config.read_text()
        + drivers
        + f"[core]\n\tfsmonitor = {shell}\n\thooksPath = {hooks}\n\tpager = {shell}\n\teditor = {shell}\n"
    )
    for repository in (upstream, stack.layout.store):
        if repository == upstream:
            for line in ("core.fsmonitor", "uploadpack.packObjectsHook", "gpg.program", "core.sshCommand"):
                git(
                    repository,
                    "-c",
                    "core.fsmonitor=false",
                    "-c",
                    "core.hooksPath=/dev/null",
                    "config",
                    line,
                    str(shell),
                )
    return stack


def page() -> dict[str, str]:
    """What the page says of each verb: ``never``, or what it runs."""
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", TRUST.read_text(), re.MULTILINE)
    return {verb: said.strip() for verbs, said in rows for verb in re.findall(r"`([a-z-]+)`", verbs)}


def test_the_page_names_every_verb() -> None:
    assert set(page()) == set(VERBS)
    assert {verb for verb, said in page().items() if said.startswith("never")} == set(ARGUMENTS)


@pytest.mark.parametrize("verb", ARGUMENTS)
def test_it_runs_nothing_of_an_upstream(hostile: Patchq, upstream: Path, mark: Path, tmp_path: Path, verb: str) -> None:
    hostile.ok("pin", "up", "--ref", "v2", "--set", "next")
    hostile.ok("fetch", "--all")
    edit(hostile.tree() / "b.txt", 33)
    if verb not in ("new", "status"):
        git(
            hostile.tree(),
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
            "checkout",
            "-q",
            "--",
            "b.txt",
        )
    diff = tmp_path / "x.diff"
    diff.write_text("--- /dev/null\n+++ b/x.txt\n@@ -0,0 +1 @@\n+x\n")
    places = {
        "NEW": str(tmp_path / "new"),
        "UPSTREAM": str(upstream),
        "DIFF": str(diff),
        "HTML": str(tmp_path / "r.html"),
        "BUNDLE": str(tmp_path / "b"),
    }
    if mark.exists():  # by git itself, of the test's own commands
        for path in mark.iterdir():
            path.unlink()
    for arguments in ARGUMENTS[verb]:
        argv = [sys.executable, "-m", "patchq", "--project", str(hostile.root), *(places.get(a, a) for a in arguments)]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1, 2, 3), done.stderr
        assert "Traceback" not in done.stderr
    assert not mark.exists() or not list(mark.iterdir()), sorted(p.name for p in mark.iterdir())


def test_on_a_hostile_base_too(hostile: Patchq, mark: Path) -> None:
    """The worktree itself is the hostile commit's: checked out, looked at, edited, exported."""
    hostile.ok("pin", "up", "--ref", "v2")
    for path in mark.iterdir() if mark.exists() else ():
        path.unlink()
    hostile.ok("apply")
    edit(hostile.tree() / "b.txt", 12, b"mine\n")
    hostile.ok("new", "up", "mine", "-m", "Mine\n\nWhy.", "--topic", "t", "-s")
    for args in (("status",), ("export", "up"), ("check",), ("deps",), ("drop", "mine"), ("undo",), ("report",)):
        hostile.run(*args)
    assert not mark.exists() or not list(mark.iterdir())


# The project's own repository


@pytest.fixture
def poisoned(stack: Patchq, tmp_path: Path, mark: Path) -> Patchq:
    """A project that was unpacked, with the repository of somebody who wants to run something."""
    shell = tmp_path / "shell.sh"
    shell.write_text(f'#!/bin/sh\nmkdir -p {mark}; touch "{mark}/$(basename "$0")-$$"; cat\n')
    shell.chmod(0o755)
    poison(stack.root, shell)
    return stack


def test_what_is_read_and_committed_there_runs_nothing(poisoned: Patchq, mark: Path) -> None:
    root = poisoned.root
    before = git(root, "-c", "core.hooksPath=/dev/null", "rev-parse", "HEAD")
    (root / "patches" / "up" / "v1" / "new.patch").write_bytes(b"new\r\n")
    poisoned.patch_file("first").unlink()
    changed = ["patches/up/v1/first.patch", "patches/up/v1/new.patch"]
    assert person.changed(root, "upstream.lock", "patches") == changed
    found = person.commit(root, ["upstream.lock", "patches"], "All", Ident("A", "a@example.org", 0, "+0000"))
    assert person.files_at(root, "HEAD", "patches")
    assert person.tracked(root, "patches")
    assert person.untracked(root, "patches") == changed[1:]
    assert person.branch(root) == "main"
    assert person.author(root)
    assert not mark.exists()
    git(root, "config", "--file", ".git/config", "--remove-section", "extensions")
    assert git(root, "diff-tree", "-r", "--name-status", "--no-ext-diff", before, found).split() == [
        "D", changed[0], "A", changed[1],
    ]  # fmt: skip
    assert git(root, "cat-file", "-s", f"{found}:{changed[1]}") == "5"


@pytest.mark.parametrize("to", ["", "mirror", "./inside.git", "relative", "PATH", "renamed", "two"])
def test_publishing_runs_nothing_of_the_projects_repository(
    poisoned: Patchq, tmp_path: Path, mark: Path, to: str
) -> None:
    """To the repository itself, to a remote that its configuration names, and to a path."""
    root = poisoned.root
    for folder in (tmp_path / "mirror.git", tmp_path / "renamed.git", root / "inside.git"):
        git(tmp_path, "init", "-q", "--bare", "--template=", str(folder))
    inside = root / "inside.git"
    (inside / "hooks").mkdir()
    for name in HOOKS:
        (inside / "hooks" / name).write_bytes((root / ".git" / "hooks" / name).read_bytes())
        (inside / "hooks" / name).chmod(0o755)
    (inside / "config").write_text((root / ".git" / "config").read_text().replace("[core]", "[core]\n\tbare = true", 1))
    with (root / ".git" / "config").open("a") as config:
        config.write(f'[remote "mirror"]\n\turl = {tmp_path / "mirror.git"}\n\treceivepack = {tmp_path}/shell.sh\n')
        config.write('[remote "relative"]\n\turl = ./inside.git\n')
        config.write(f'[remote "two"]\n\turl = {tmp_path / "mirror.git"}\n\tpushurl = {tmp_path / "mirror.git"}\n')
        config.write("\tpushurl = ./inside.git\n")
        config.write(f'[url "./inside.git"]\n\tpushInsteadOf = {tmp_path / "renamed.git"}\n')
    where = {
        "": [],
        "PATH": [str(tmp_path / "mirror.git")],
        "renamed": [str(tmp_path / "renamed.git")],
        "./inside.git": [str(inside)],
    }.get(to, [to])
    argv = [sys.executable, "-m", "patchq", "--project", str(root), "publish", *(("--to", *where) if where else ())]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not mark.exists(), sorted(p.name for p in mark.iterdir())
    target = {"": root / ".git", "./inside.git": inside, "relative": inside, "renamed": tmp_path / "renamed.git"}.get(
        to, tmp_path / "mirror.git"
    )
    assert (
        "patchq/default/up" in (target / "packed-refs").read_text()
        if (target / "packed-refs").exists()
        else (target / "refs" / "heads" / "patchq" / "default" / "up").exists()
    )


@pytest.mark.parametrize("url", ["ext::{shell} %S", "ssh://127.0.0.1:1/x.git", "http://127.0.0.1:1/x.git"])
def test_a_host_is_reached_by_nothing_of_the_projects_repository(
    poisoned: Patchq, tmp_path: Path, mark: Path, url: str
) -> None:
    root = poisoned.root
    with (root / ".git" / "config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = {url.format(shell=tmp_path / "shell.sh")}\n')
    to = person.find_remote(root, "origin")
    assert to.name == "origin"
    with pytest.raises(PatchqError):
        person.refs_at(root, to, "refs/heads/*")
    with pytest.raises(PatchqError):
        person.push_own(root, to, git(root, "rev-parse", "HEAD"), "b", expected="")
    with pytest.raises(PatchqError):
        person.push(poisoned.project.store, root, to, person.CommitId("0" * 40), "b", expected=None)
    assert not mark.exists(), sorted(p.name for p in mark.iterdir())
