"""What `import` is given may be of any size: memory stays bounded, and a sentence says what was too large."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import Patchq, git
from patchq.replay import limits

GIB = 1 << 30
DIFF = b"--- a/a.txt\n+++ b/a.txt\n@@ -9,3 +9,3 @@\n line 9\n-line 10\n+changed\n line 11\n"


def bounded(patchq: Patchq, *args: str, stdin: Path | None = None) -> str:
    """What `import` says, in a process of its own that may not have a gigabyte."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (GIB, GIB))

    argv = [sys.executable, "-m", "patchq", "--project", str(patchq.root), "import", "up", *args]
    with (stdin or Path(os.devnull)).open("rb") as given:
        done = subprocess.run(argv, stdin=given, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert done.returncode in (1, 3), (done.returncode, done.stderr[-2000:])
    assert "hint:" in done.stderr
    return done.stderr


def sparse(path: Path, size: int = GIB, begin: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(begin)
    os.truncate(path, size)
    return path


def debian(folder: Path) -> Path:
    path = folder / "up_1-1.debian.tar.xz"
    with tarfile.open(path, "w:xz", preset=0) as tar:
        for name, data in (("debian/patches/series", b"x.patch\n"), ("debian/patches/x.patch", bytes(limits.MOST + 1))):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


LARGE: dict[str, Callable[[Path], list[str]]] = {
    "a diff": lambda p: [str(sparse(p / "x.patch", begin=DIFF))],
    "a mail": lambda p: [str(sparse(p / "x.eml", begin=b"From: A <a@b>\nSubject: x\n\n" + DIFF))],
    "in a folder": lambda p: [str(sparse(p / "f" / "0001-x.patch").parent)],
    "a series": lambda p: [str(sparse(p / "f" / "series", begin=b"x.patch\n").parent)],
    "a list of Electron's": lambda p: [str(sparse(p / "f" / ".patches", begin=b"x.patch\n").parent)],
    "a recipe": lambda p: [str(sparse(p / "up_1.bb", begin=b'SRC_URI = "file://x.patch"\n'))],
    "a Debian package": lambda p: [str(debian(p))],
    "a .dsc": lambda p: [str(sparse(p / "up_1.dsc"))],
    "an overlay": lambda p: ["--overlay", str(sparse(p / "over" / "a.txt").parent), "--author", "me"],
    "a Dockerfile": lambda p: [str(sparse(p / "Dockerfile", begin=b"FROM x\n"))],
    "a script": lambda p: [str(sparse(p / "x.sh", begin=b"#!/bin/sh\n"))],
    "what a command writes": lambda p: ["--run", "truncate -s 1G a.txt"],
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_gigabyte(stack: Patchq, tmp_path: Path, kind: str) -> None:
    before = stack.snapshot()
    said = bounded(stack, *LARGE[kind](tmp_path))
    assert "the limit is" in said, said
    assert stack.snapshot() == before


def test_a_gigabyte_that_is_piped_in(stack: Patchq, tmp_path: Path) -> None:
    assert "more than 268435456 bytes" in bounded(stack, "-", stdin=sparse(tmp_path / "x"))


@pytest.mark.parametrize(
    "data",
    [b"A: b\n", b"Subject: [PATCH] x\n", b"Description: x\n .\n", b"From: a <a@b>\nSubject: " + b"[PATCH] " * 20_000, b"words and no end "],
    ids=["fields", "subjects", "a description", "tags", "one line"],
)  # fmt: skip
def test_words_without_an_end_are_not_looked_through(stack: Patchq, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.patch"
    path.write_bytes(data * (2_000_000 // len(data) + 1))
    said = stack.fails(1, "import", "up", str(path))
    assert "more than 65536 bytes before its first blank line" in said


def test_a_message_of_megabytes(stack: Patchq, tmp_path: Path) -> None:
    words = b"Because.\n" * 200_000
    for name, head in (("x.patch", b""), ("x.eml", b"From: A <a@b>\nSubject: x\n\n")):
        (tmp_path / name).write_bytes(head + b"Why\n\n" + words + DIFF)
        assert "bytes before its diff" in stack.fails(1, "import", "up", str(tmp_path / name))


def test_all_of_a_batch_together(stack: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchq.adopt.gather.MOST_ALL", 200)
    for number in (1, 2, 3):
        line = 10 * number
        hunk = f"@@ -{line - 1},3 +{line - 1},3 @@\n line {line - 1}\n-line {line}\n+changed\n line {line + 1}\n"
        (tmp_path / f"{number}.diff").write_text(f"--- a/b.txt\n+++ b/b.txt\n{hunk}".replace("line 10", "changed", 1))
    said = stack.fails(1, "import", "up", *(str(tmp_path / f"{n}.diff") for n in (1, 2, 3)), "--author", "me")
    assert "3.diff and the files before it: more than 200 bytes; the limit is 200" in said


def test_a_mailbox_of_very_many_mails(stack: Patchq, tmp_path: Path) -> None:
    path = tmp_path / "box"
    path.write_bytes(b"From a@b Mon Sep 17 00:00:00 2001\nSubject: x\n\n" * (limits.MOST_MAILS + 2))
    assert "lines that begin a mail" in stack.fails(1, "import", "up", str(path))


def test_recipes_that_include_each_other(stack: Patchq, tmp_path: Path) -> None:
    for name, other in (("a.inc", "b.inc"), ("b.inc", "a.inc")):
        (tmp_path / name).write_text(f"require {other}\n" * 50)
    recipe = tmp_path / "up_1.bb"
    recipe.write_text("require a.inc\n" * 50)
    assert "more than 100 includes" in stack.fails(1, "import", "up", str(recipe))


def test_what_a_shell_pipes_in_by_a_name(stack: Patchq) -> None:
    read, write = os.pipe()
    os.write(write, DIFF)
    os.close(write)
    try:
        stack.ok("import", "up", f"/dev/fd/{read}", "--author", "me")
    finally:
        os.close(read)
    assert git(stack.root, "hash-object", str(stack.patch_file("patch")))
    assert b"+changed" in stack.patch_file("patch").read_bytes()


def test_a_commit_whose_patch_no_stack_could_hold(
    stack: Patchq, upstream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchq.stacks.export.MOST_PATCH", 4096)
    (upstream / "large.bin").write_bytes(os.urandom(8192))
    git(upstream, "add", "-A")
    git(upstream, "commit", "-qm", "Large one")
    before = stack.snapshot()
    said = stack.fails(1, "import", "up", str(upstream), "--range", "v1..HEAD")
    assert "large-one would be a patch of" in said
    assert "the limit is 4096" in said
    after = stack.snapshot()
    assert {k: v for k, v in after.items() if k != "refs"} == {k: v for k, v in before.items() if k != "refs"}


def test_a_date_that_no_mail_can_say(stack: Patchq, tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_bytes(b"From: A <a@b>\nDate: @99999999999999 +0000\nSubject: x\n\n" + DIFF)
    assert "after the year 9999" in stack.fails(1, "import", "up", str(tmp_path / "x.patch"))
