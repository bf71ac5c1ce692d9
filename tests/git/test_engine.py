"""The in-process applier against git itself: the same tree, or both refuse."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import Patchq, commit_files, edit, git, numbered
from patchq.formats import diff
from patchq.formats.diff import Mismatch, Unsupported


def by_git(content: bytes, patch: bytes, folder: Path) -> bytes | None:
    """The file after ``git apply --cached``, or None if git refuses."""
    env = {**os.environ, "GIT_INDEX_FILE": str(folder / "index")}
    blob = git(folder, "hash-object", "-w", "--stdin", data=content)
    git(folder, "update-index", "--add", "--cacheinfo", f"100644,{blob},f", env=env)
    done = subprocess.run(
        ["git", "apply", "--cached", "--whitespace=nowarn", "-"], cwd=folder, input=patch, env=env, capture_output=True
    )
    if done.returncode:
        return None
    return subprocess.run(
        ["git", "cat-file", "blob", ":f"], cwd=folder, env=env, capture_output=True, check=True
    ).stdout


def in_process(content: bytes, patch: bytes) -> bytes | None:
    try:
        (file,) = diff.parse(patch, "test")
        return diff.apply_hunks(file.hunks, content)[0]
    except (Mismatch, diff.FormatError):
        return None


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scratch")
    git(folder, "init", "-q")
    return folder


# Few distinct lines, so that hunks fit at several places and the order of the search shows.
LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"d\r\n"]), max_size=14)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=LINES, new=LINES, target=LINES, context=st.integers(0, 3), ends=st.tuples(st.booleans(), st.booleans()))
def test_same_result_as_git_on_any_target(
    scratch: Path, old: list[bytes], new: list[bytes], target: list[bytes], context: int, ends: tuple[bool, bool]
) -> None:
    before, after, there = (b"".join(x) for x in (old, new, target))
    if ends[0]:
        before = before.removesuffix(b"\n")
    if ends[1]:
        after = after.removesuffix(b"\n")
    names = [scratch / "before", scratch / "after"]
    for path, data in zip(names, (before, after), strict=True):
        path.write_bytes(data)
    made = subprocess.run(
        ["git", "diff", "--no-index", f"-U{context}", "--", "before", "after"], cwd=scratch, capture_output=True
    ).stdout
    patch = (
        made.replace(b"a/before", b"a/f")
        .replace(b"b/after", b"b/f")
        .replace(b"b/before", b"b/f")
        .replace(b"a/after", b"a/f")
    )
    if not patch:
        return
    for content in (before, there):
        ours, theirs = in_process(content, patch), by_git(content, patch, scratch)
        if ours is None and theirs is not None:
            # The one place where patchq is stricter: git takes the context line "a" at a file's end,
            # "\\ No newline" and all, for the line "a\\n". That is fuzz.
            assert b"\n\\ No newline at end of file" in patch
            continue
        assert ours == theirs, patch


EXOTIC: dict[str, tuple[dict[str, bytes | None], dict[str, bytes | None]]] = {
    "binary modify": ({"x.bin": bytes(range(256))}, {"x.bin": bytes(range(255, -1, -1))}),
    "binary add": ({"k": b"k"}, {"x.bin": b"\0\1\2" * 50}),
    "binary delete": ({"k": b"k", "x.bin": b"\0\1\2" * 50}, {"x.bin": None}),
    "crlf": ({"w.txt": b"a\r\nb\r\nc\r\n"}, {"w.txt": b"a\r\nB\r\nc\r\n"}),
    "mixed line ends": ({"w.txt": b"a\r\nb\nc\r\n"}, {"w.txt": b"a\nb\nc\rd\r\n"}),
    "eol attribute": ({".gitattributes": b"*.txt eol=crlf\n", "w.txt": b"a\nb\n"}, {"w.txt": b"a\nc\n"}),
    "no final newline": ({"w": b"a\nb"}, {"w": b"a\nc"}),
    "final newline added": ({"w": b"a\nb"}, {"w": b"a\nb\n"}),
    "not utf-8": ({"w": b"\xff\xfe caf\xe9\n"}, {"w": b"\xff\xfe th\xe9\n"}),
    "empty file add": ({"k": b"k"}, {"empty": b""}),
    "empty file delete": ({"k": b"k", "empty": b""}, {"empty": None}),
    "delete": ({"k": b"k", "w": b"a\nb\n"}, {"w": None}),
    "new in new folder": ({"k": b"k"}, {"p/q/r.txt": b"new\n"}),
    "rename": ({"old.txt": numbered(30)}, {"old.txt": None, "sub/new.txt": numbered(30)}),
    "rename and edit": (
        {"old.txt": numbered(30)},
        {"old.txt": None, "new.txt": numbered(30).replace(b"line 9\n", b"x\n")},
    ),
    "spaces and quotes": ({'a b "c"\t.txt': b"a\n"}, {'a b "c"\t.txt': b"b\n"}),
    "non-ascii name": ({"grüße/日本.txt": b"a\n"}, {"grüße/日本.txt": b"b\n"}),
    "trailing space name": ({"a ": b"a\n"}, {"a ": b"b\n"}),
    "file becomes folder": ({"k": b"k", "x": b"a\n"}, {"x": None, "x/y": b"b\n"}),
    "megabyte line": ({"w": b"x" * (1 << 20) + b"\nend\n"}, {"w": b"y" * (1 << 20) + b"\nend\n"}),
}


def history(folder: Path, before: dict[str, bytes | None], after: dict[str, bytes | None]) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    commit_files(folder, before, "base")
    git(folder, "tag", "v1")
    for name, data in after.items():
        if data is None:
            (folder / name).unlink()
    commit_files(folder, {n: d for n, d in after.items() if d is not None}, "Change it\n\nWhy.")
    return folder


def special(folder: Path, kind: str) -> Path:
    """Changes that file contents alone can't say."""
    folder.mkdir()
    git(folder, "init", "-q")
    commit_files(folder, {"f": b"#!/bin/sh\n", "g": b"x\n"}, "base")
    (folder / "link").symlink_to("f")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "link")
    git(folder, "tag", "v1")
    if kind == "mode":
        (folder / "f").chmod(0o755)
    elif kind == "link target":
        (folder / "link").unlink()
        (folder / "link").symlink_to("g")
    elif kind == "file to link":
        (folder / "g").unlink()
        (folder / "g").symlink_to("f")
    elif kind == "new link":
        (folder / "l2").symlink_to("g")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "Change it\n\nWhy.")
    return folder


SPECIAL = ["mode", "link target", "file to link", "new link", "empty patch"]


@pytest.mark.parametrize("kind", [*EXOTIC, *SPECIAL])
def test_round_trip_and_git_am(empty: Patchq, tmp_path: Path, kind: str) -> None:
    """import, apply and export keep every kind of change, and ``git am`` gives the same tree."""
    source = tmp_path / "source"
    source = special(source, kind) if kind in SPECIAL else history(source, *EXOTIC[kind])
    want = git(source, "rev-parse", "HEAD^{tree}")
    empty.ok("pin", "up", "--url", str(source), "--ref", "v1")
    empty.ok("import", "up", str(source), "--range", "v1..HEAD")
    empty.ok("apply")
    assert git(empty.tree(), "rev-parse", "HEAD^{tree}") == want
    assert git(empty.tree(), "status", "--porcelain") == ""
    patch = empty.patch_file("change-it")
    data = patch.read_bytes()
    assert "nothing changed" in empty.ok("export", "up")
    assert patch.read_bytes() == data
    # The file alone, adopted again elsewhere, gives the same tree and the same bytes.
    other = tmp_path / "elsewhere" / "change-it.patch"
    other.parent.mkdir()
    other.write_bytes(data)
    empty.ok("drop", "change-it")
    empty.ok("import", "up", str(other))
    assert git(empty.tree(), "rev-parse", "HEAD^{tree}") == want
    assert patch.read_bytes() == data
    # And git am reads it.
    git(source, "checkout", "-q", "v1")
    git(source, "am", "-q", "--keep-cr", "--empty=keep", str(patch))
    assert git(source, "rev-parse", "HEAD^{tree}") == want


@pytest.mark.parametrize(
    "message",
    [
        "Subject\n\nA line\n---\nafter it\n",
        "Subject\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n",
        "Subject\n\nFrom somebody Mon Sep 17 00:00:00 2001\n",
        "Subject\n\nFrom: Some <one@else>\n\ntext\n",
        "[Bugfix] Ünïcode sübject that is long enough to be folded over the line limit of mails, for sure\n\nGrüße 日本\n",
        "Index: like cvs\n\nIndex: x\n",
    ],
)
def test_messages_that_mails_cut_survive(stack: Patchq, message: str, tmp_path: Path, upstream: Path) -> None:
    edit(stack.tree() / "b.txt", 30)
    stack.ok("new", "up", "odd", "-m", message)
    body = git(stack.tree(), "log", "-1", "--format=%B")
    tree = git(stack.tree(), "rev-parse", "HEAD^{tree}")
    assert "nothing changed" in stack.ok("export", "up")
    git(upstream, "checkout", "-q", "v1")
    for name in ("first", "second", "third", "odd"):
        git(upstream, "am", "-q", "-k", "--keep-cr", str(stack.patch_file(name)))
    assert git(upstream, "rev-parse", "HEAD^{tree}") == tree
    assert git(upstream, "log", "-1", "--format=%B") == body


def test_a_path_twice_and_binary_go_to_git() -> None:
    text = b"diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\nliteral 0\nHcmV?d00001\n\n"
    with pytest.raises(Unsupported):
        diff.parse(text, "test")
