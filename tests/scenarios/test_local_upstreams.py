"""A lock that somebody else wrote names a folder of this machine: what is read of it, and what is not obeyed."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import zlib
from pathlib import Path

import pytest

from kit import Patchq, commit_files, git

SECRET = b"what only the person has\n"


@pytest.fixture(params=["path", "file://"])
def foreign(request: pytest.FixtureRequest, stack: Patchq, upstream: Path) -> Patchq:
    """A project as it was cloned, whose lock names the folder as a path, or as a URL."""
    shutil.rmtree(stack.layout.private)
    if request.param == "file://":
        lock = stack.layout.lock.read_text()
        stack.layout.lock.write_text(lock.replace(f'"{upstream}"', f'"file://{upstream}"'))
        assert stack.layout.lock.read_text() != lock
    return stack


def objects(patchq: Patchq) -> str:
    """The ids of all that the store has."""
    return git(patchq.layout.store, "cat-file", "--batch-all-objects", "--batch-check")


def test_of_a_folder_that_is_not_the_pinned_one_nothing_is_kept(empty: Patchq, tmp_path: Path) -> None:
    """Its files are read to see which commit they are; before that is known none is in the store."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "x.txt").write_bytes(b"as it was pinned\n")
    empty.ok("pin", "up", "--url", str(folder), "--ref", "now")
    shutil.rmtree(empty.layout.private)
    (folder / "x.txt").write_bytes(SECRET)
    said = empty.fails(1, "fetch")
    assert f"reading the files in {folder}" in said
    assert "has changed since it was pinned" in said
    secret = git(tmp_path, "hash-object", "--stdin", data=SECRET)
    assert secret not in objects(empty)
    assert "moved" in empty.fails(1, "pin", "--check")
    assert secret not in objects(empty)
    (folder / "x.txt").write_bytes(b"as it was pinned\n")
    empty.ok("apply")


def locked_to(patchq: Patchq, url: str) -> None:
    """Write a lock as somebody else may hand it on: its upstream's URL is ``url``."""
    lock = patchq.layout.lock.read_text()
    patchq.layout.lock.write_text(
        f'{lock}\n[upstreams.up]\nurl = "{url}"\n\n[upstreams.up.pins.v1]\ncommit = "{"1" * 40}"\n\n'
        '[sets.default]\nup = "v1"\n'
    )


@pytest.mark.parametrize("url", [".", "..", "/", "file:///", "~"])
def test_the_folder_that_the_project_lies_in_is_no_upstream(
    empty: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "home" / ".gitconfig"))
    locked_to(empty, url)
    assert "it contains this project; nothing was read" in empty.fails(1, "fetch")


@pytest.mark.parametrize(
    "url", ["~", "~/", "~/.", "~/x/..", "~/..", "HOME", "file://HOME", "LINK", f"~{pwd.getpwuid(os.getuid()).pw_name}"]
)
def test_a_home_folder_is_no_upstream(empty: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """The project lies elsewhere. A file that would end the reading with an error shows that nothing was read."""
    home = tmp_path / "users" / "person"
    home.mkdir(parents=True)
    os.mkfifo(home / "pipe")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "home" / ".gitconfig"))
    (tmp_path / "link").symlink_to(home)
    locked_to(empty, url.replace("HOME", str(home)).replace("LINK", str(tmp_path / "link")))
    assert "it contains a home folder; nothing was read" in empty.fails(1, "fetch")
    assert "it contains a home folder; nothing was read" in empty.fails(1, "pin", "--check")


@pytest.mark.parametrize("url", ["$HOME", "~nobody-of-that-name", "circle", "circle/x"])
def test_what_names_no_folder_is_told(empty: Patchq, url: str) -> None:
    (empty.root / "circle").symlink_to("circle")
    locked_to(empty, url)
    assert "which doesn't exist" in empty.fails(1, "fetch")
    lock = empty.layout.lock
    lock.write_text(lock.read_text().replace(f'commit = "{"1" * 40}"', f'archive = "{url}"\nsha256 = "{"1" * 64}"'))
    assert "doesn't exist" in empty.fails(1, "fetch")


def test_a_commit_by_the_pins_ref_is_not_the_pinned_one(foreign: Patchq, upstream: Path) -> None:
    """The repository in that place has such a tag, of a commit of its own."""
    shutil.rmtree(upstream)
    upstream.mkdir()
    git(upstream, "init", "-q")
    commit_files(upstream, {"a.txt": SECRET})
    git(upstream, "tag", "v1")
    assert "doesn't have commit" in foreign.fails(1, "apply")
    assert git(foreign.layout.store, "for-each-ref") == ""
    assert not foreign.tree().exists()


def test_what_lies_under_an_id_that_is_not_its_own_is_refused(foreign: Patchq, upstream: Path) -> None:
    """A file's content put under another's id: what comes is named anew."""
    blob = git(upstream, "rev-parse", "v1:a.txt")
    git(upstream, "repack", "-adq")
    for pack in (upstream / ".git" / "objects" / "pack").glob("*.pack"):
        data = pack.read_bytes()
        moved = pack.replace(upstream / pack.name)
        for rest in pack.parent.glob("*"):
            rest.unlink()
        git(upstream, "unpack-objects", "-q", data=data)
        moved.unlink()
    path = upstream / ".git" / "objects" / blob[:2] / blob[2:]
    path.unlink()
    path.write_bytes(zlib.compress(b"blob %d\0" % len(SECRET) + SECRET))
    foreign.fails(1, "apply")
    assert git(foreign.layout.store, "for-each-ref") == ""
    assert not foreign.tree().exists()


def test_nothing_of_the_repository_is_run(foreign: Patchq, upstream: Path, tmp_path: Path) -> None:
    """It lacks a file, and says by its configuration how to get it, and what else to run on every occasion."""
    program, mark = tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\necho $0 $@ >> {mark}\n")
    program.chmod(0o755)
    commit_files(upstream, {"a.txt": b"new\n"}, "second")
    git(upstream, "tag", "v2")
    blob = git(upstream, "rev-parse", "v2:a.txt")
    (upstream / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    hooks = upstream / ".git" / "hooks"
    for name in ("post-checkout", "reference-transaction", "pre-auto-gc", "update", "post-update", "pre-receive"):
        shutil.copy(program, hooks / name)
    for host in ("ssh://host/x", f"ext::{program}", f"{tmp_path}/upstream", "git://host/x"):
        (upstream / ".git" / "config").write_text(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n"
            f'[remote "origin"]\n\tpromisor = true\n\turl = {host}\n\tuploadpack = {program}\n\tvcs = {program}\n'
            f"[core]\n\tsshCommand = {program}\n\tgitProxy = {program}\n\tfsmonitor = {program}\n\tpager = {program}\n"
            f"\taskPass = {program}\n\talternateRefsCommand = {program}\n\teditor = {program}\n\thooksPath = {hooks}\n"
            f"[protocol]\n\tallow = always\n[uploadpack]\n\tpackObjectsHook = {program}\n\tallowAnySHA1InWant = true\n"
            f"[credential]\n\thelper = {program}\n[gpg]\n\tprogram = {program}\n[diff]\n\texternal = {program}\n"
            f'[alias]\n\tupload-pack = "!{program}"\n\tpack-objects = "!{program}"\n[pager]\n\tupload-pack = {program}\n'
        )
        foreign.ok("fetch")
        foreign.ok("pin", "up", "--ref", "v2", "--set", "next")
        for verb in (
            ("fetch", "--all"),
            ("forecast", "up", "--onto", "v2"),
            ("drift", "up", "--from", "v1", "--to", "v2"),
        ):
            assert re.search(r"error: .*", foreign.fails(1, *verb))
        for verb in (("pin", "--check"), ("fetch", "--history"), ("forecast", "up", "--newest"), ("report",)):
            foreign.run(*verb)
        foreign.ok("apply")
    assert not mark.exists(), mark.read_text()


def test_who_serves_a_folder_asks_nobody(
    foreign: Patchq, upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every git refuses by itself to fetch, by a repository's configuration, what that repository lacks."""
    seen, program = tmp_path / "seen", tmp_path / "bin" / "git"
    seen.mkdir()
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nexport GIT_TRACE2_EVENT={seen} GIT_TRACE2_ENV_VARS=GIT_ALLOW_PROTOCOL,GIT_NO_LAZY_FETCH\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    commit_files(upstream, {"a.txt": b"new\n"}, "second")
    git(upstream, "tag", "v2")
    foreign.ok("pin", "up", "--ref", "v2", "--set", "next")
    foreign.ok("fetch", "--all")
    asked: dict[str, list[dict[str, str]]] = {}
    for path in seen.iterdir():  # a file for each process
        events = [json.loads(line) for line in path.read_text().splitlines()]
        name = next((e["name"] for e in events if e["event"] == "cmd_name"), "")
        asked.setdefault(name, []).append({e["param"]: e["value"] for e in events if e["event"] == "def_param"})
    assert {"GIT_ALLOW_PROTOCOL", "GIT_NO_LAZY_FETCH"} <= asked["fetch"][0].keys()
    assert len(asked["upload-pack"]) > 2
    # It is told so where it is empty.
    assert all(said == {"GIT_NO_LAZY_FETCH": "1"} for said in asked["upload-pack"]), asked["upload-pack"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_repository_is_read_where_the_person_says_so(foreign: Patchq, upstream: Path) -> None:
    """By `safe.directory`, as git has it; git's own answer can't be asked for, since it sees none of the person's."""
    commit_files(upstream, {"a.txt": b"new\n"}, "second")
    git(upstream, "tag", "v2")
    foreign.ok("apply")
    for path in (upstream, *upstream.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    refused = "belongs to another user (uid 12345) whom your safe.directory doesn't name; nothing was read"
    for verb in (
        ("pin", "up", "--ref", "v2", "--set", "next"),
        ("fetch", "--history"),
        ("forecast", "up", "--onto", "v2"),
    ):
        assert refused in foreign.fails(1, *verb)
    # What is here already is enough for what is pinned, and history is left out.
    assert refused in foreign.ok("forecast", "up", "--onto", "v1")
    assert f"safe.directory {upstream}" in foreign.fails(1, "fetch", "--history")
    git(foreign.root, "config", "--global", "--add", "safe.directory", str(upstream))
    foreign.ok("pin", "up", "--ref", "v2", "--set", "next")
    foreign.ok("fetch", "--all", "--history")
    assert refused not in foreign.ok("forecast", "up", "--onto", "v2")
    git(foreign.root, "config", "--global", "--add", "safe.directory", "")
    assert refused in foreign.run("forecast", "up", "--newest").output
