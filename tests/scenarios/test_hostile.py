"""Patches, archives and locks that try to reach outside, to run something, or to overwhelm."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from kit import Patchq, git
from patchq.system import fsio

MAIL = b"""From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Eve <eve@example.org>
Date: Fri, 2 Jan 2026 03:04:05 +0100
Subject: Nothing to see

Body.

"""


def new_file(path: bytes) -> bytes:
    return (
        MAIL
        + b"diff --git a/%s b/%s\nnew file mode 100644\nindex 0000000..1111111\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+evil\n"
    ) % (path, path, path)


def add(patchq: Patchq, data: bytes, name: str = "evil") -> None:
    patchq.patch_file(name).write_bytes(data)
    series = patchq.layout.stack("up", "v1") / "series"
    series.write_text(series.read_text() + f"{name}.patch\n")


def outside(patchq: Patchq) -> list[Path]:
    return [p for p in patchq.root.parent.rglob("*evil*") if ".patchq/store.git" not in str(p) and p.suffix != ".patch"]


PATHS = [
    b"../evil",
    b"a/../../evil",
    b"/tmp/evil",
    b".git/evil",
    b"sub/.git/hooks/evil",
    b".GIT/evil",
    b"./evil",
    b"a//evil",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_patch_stays_in_its_tree(stack: Patchq, path: bytes) -> None:
    add(stack, new_file(path))
    before = stack.snapshot()
    assert "leaves the tree" in stack.fails(1, "apply")
    assert stack.snapshot() == before
    assert outside(stack) == []


@pytest.mark.parametrize("path", PATHS)
def test_nor_does_one_that_only_git_applies(stack: Patchq, path: bytes) -> None:
    body = b"diff --git a/%s b/%s\nnew file mode 100644\nindex 0000000..d95f3ad\nGIT binary patch\nliteral 4\nLcmZQzWMT#Y01f~L\n\nliteral 0\nHcmV?d00001\n\n"
    add(stack, MAIL + body % (path, path))
    done = stack.run("apply")
    assert done.exit_code in (1, 3), done.output
    assert outside(stack) == []


def test_nothing_is_written_through_a_symlink(stack: Patchq, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (stack.tree() / "link").symlink_to(target)
    stack.ok("new", "up", "link", "-m", "A link\n\nWhy.")
    add(stack, new_file(b"link/evil"))
    assert "symbolic link: nothing is written through it" in stack.fails(3, "apply")
    assert list(target.iterdir()) == []


def test_a_symlink_and_a_file_below_it_in_one_patch(stack: Patchq, tmp_path: Path) -> None:
    link = (
        b"diff --git a/link b/link\nnew file mode 120000\nindex 0000000..1\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+%s\n\\ No newline at end of file\n"
        % str(tmp_path).encode()
    )
    add(stack, MAIL + link + new_file(b"link/evil")[len(MAIL) :])
    assert "nothing is written through it" in stack.fails(3, "apply")
    assert outside(stack) == []


@pytest.mark.parametrize(
    "line",
    [
        b"../evil.patch\n",
        b"/etc/passwd\n",
        b"a/b.patch\n",
        b"$(touch evil).patch\n",
        b"--help\n",
        b".hidden.patch\n",
        b"x\0y\n",
    ],
)
def test_series_names_are_names(stack: Patchq, line: bytes) -> None:
    series = stack.layout.stack("up", "v1") / "series"
    series.write_bytes(series.read_bytes() + line)
    assert stack.run("apply").exit_code == 1
    assert outside(stack) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('url = "', 'url = "ext::sh -c touch% evil" #'),
        ('url = "', 'url = "--upload-pack=touch evil" #'),
        ("[upstreams.up]", '[upstreams."../evil"]'),
        ('commit = "', 'commit = "--output=evil'),
    ],
)
def test_a_lock_runs_nothing_and_names_no_paths(stack: Patchq, old: str, new: str) -> None:
    text = stack.layout.lock.read_text()
    assert old in text
    stack.layout.lock.write_text(text.replace(old, new, 1).replace("pins.v1", "pins.v1"))
    fsio.remove(stack.layout.state("up"))
    git(stack.layout.store, "update-ref", "-d", "refs/patchq/base/git/up/v1")
    done = stack.run("pin", "--check")
    assert done.exit_code in (0, 1), done.output
    assert outside(stack) == []


def test_terminal_escapes_are_shown_not_obeyed(stack: Patchq) -> None:
    data = stack.patch_file("third").read_bytes()
    stack.patch_file("third").write_bytes(data.replace(b"Because of", b"\x1b]0;evil\x07\xe2\x80\xae Because of"))
    out = stack.ok("show", "third")
    assert "\x1b" not in out
    assert "\u202e" not in out


# Archives


def tarball(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


GOOD = [(member("p-1/a.txt"), b"a\n"), (member("p-1/b/c.txt"), b"c\n")]
BAD = {
    "dot dot": (member("p-1/../../evil"), b"x"),
    "absolute": (member("/tmp/evil"), b"x"),
    "git folder": (member("p-1/.git/hooks/evil"), b"x"),
    "link out": (member("p-1/link", tarfile.SYMTYPE, "../../evil"), b""),
    "absolute link": (member("p-1/link", tarfile.SYMTYPE, "/etc"), b""),
    "device": (member("p-1/dev", tarfile.CHRTYPE), b""),
    "two tops": (member("q-1/evil"), b"x"),
    "twice": (member("p-1/a.txt"), b"other\n"),
}


def imported(patchq: Patchq) -> str:
    return git(patchq.layout.store, "for-each-ref", "refs/patchq/base") if patchq.layout.store.exists() else ""


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_member_imports_nothing(empty: Patchq, kind: str) -> None:
    tarball(empty.root / "p-1.tar.gz", [*GOOD, BAD[kind]])
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    out = empty.fails(1, "fetch")
    assert "nothing was imported" in out
    assert imported(empty) == ""
    assert not list((empty.layout.store / "objects" / "pack").glob("tmp_*"))
    assert not list(empty.layout.store.glob("fast_import_crash*"))


def test_a_size_below_nothing_imports_nothing(empty: Patchq) -> None:
    """An extended header has the last word on it."""
    with tarfile.open(empty.root / "p-1.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info, data in [*GOOD, (member("p-1/evil"), b"x")]:
            info.pax_headers = {"size": "-5"} if info.name.endswith("evil") else {}
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    assert "nothing was imported" in empty.fails(1, "fetch")
    assert imported(empty) == ""


def test_a_file_below_a_link_imports_nothing(empty: Patchq) -> None:
    tarball(empty.root / "p-1.tar.gz", [*GOOD, (member("p-1/l", tarfile.SYMTYPE, "b"), b""), (member("p-1/l/x"), b"x")])
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    assert "through a symbolic link" in empty.fails(1, "fetch")
    assert imported(empty) == ""


def test_a_link_inside_is_kept(empty: Patchq) -> None:
    tarball(empty.root / "p-1.tar.gz", [*GOOD, (member("p-1/b/link", tarfile.SYMTYPE, "../a.txt"), b"")])
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    empty.ok("apply")
    assert (empty.tree("p") / "b" / "link").read_bytes() == b"a\n"


def test_another_hash_imports_nothing(empty: Patchq) -> None:
    path = tarball(empty.root / "p-1.tar.gz", GOOD)
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    tarball(path, [*GOOD, (member("p-1/d"), b"d")])
    assert "the lock has" in empty.fails(1, "fetch")
    assert "the lock has" in empty.fails(1, "pin", "--check")
    assert imported(empty) == ""


def test_a_truncated_archive_imports_nothing(empty: Patchq) -> None:
    path = tarball(empty.root / "p-1.tar.gz", [*GOOD, (member("p-1/big"), bytes(range(256)) * 4000)])
    path.write_bytes(path.read_bytes()[:-200])
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    assert "nothing was imported" in empty.fails(1, "fetch")
    whole = gzip.decompress(tarball(path, GOOD).read_bytes())
    path.write_bytes(gzip.compress(whole[:700]))
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    assert "nothing was imported" in empty.fails(1, "fetch")
    assert imported(empty) == ""


def test_the_commit_of_an_archive_is_the_same_everywhere(empty: Patchq) -> None:
    """Whatever dates, owners and compression the archive has: the files and the pin make the id."""
    one = member("p-1/run")
    one.mode = 0o755
    tarball(empty.root / "p-1.tar.gz", [*GOOD, (one, b"#!\n")])
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    empty.ok("fetch")
    assert (
        git(empty.layout.store, "rev-parse", "refs/patchq/base/archive/p/v1^{tree}")
        == "f2ff3594955db2661b7a532c6a9b6f86f4a31af8"
    )
    first = git(
        empty.layout.store, "log", "-1", "--format=%H%n%an %ae %ad%n%B", "--date=raw", "refs/patchq/base/archive/p/v1"
    )
    shutil.rmtree(empty.layout.private)
    empty.ok("fetch")
    again = git(
        empty.layout.store, "log", "-1", "--format=%H%n%an %ae %ad%n%B", "--date=raw", "refs/patchq/base/archive/p/v1"
    )
    assert again == first
    assert "patchq patchq@localhost 946684800 +0000" in first


# What is no file


NO_FILES = [("pipe", verb) for verb in ("apply", "check", "show second", "list", "deps", "drop third", "export up")]
NO_FILES += [(what, "apply") for what in ("device", "socket", "folder")]


@pytest.mark.parametrize(("what", "verb"), NO_FILES)
def test_a_patch_that_is_no_file(stack: Patchq, what: str, verb: str) -> None:
    """A pipe that nobody writes to would be waited for, without end."""
    place = stack.patch_file("second")
    place.unlink()
    if what == "pipe":
        os.mkfifo(place)
    elif what == "device":
        place.symlink_to("/dev/zero")
    elif what == "folder":
        place.mkdir()
    else:
        here = Path.cwd()
        os.chdir(place.parent)  # a socket's path may not be long
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place.name)
        os.chdir(here)
    argv = [sys.executable, "-m", "patchq", "--project", str(stack.root), *verb.split()]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == (0 if verb == "list" else 1), done.stdout + done.stderr  # a list lists what is wrong
    said = "is a symbolic link to /dev/zero" if what == "device" else "is not a file"
    assert f"second.patch {said}" in done.stdout + done.stderr
