"""A patch file is read as ``git am`` reads it, or refused: its header ends where git's ends, and no hunk is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import mail_headers
from extent import LONG, record
from kit import Patchq


@pytest.mark.parametrize("seed", range(10 if LONG else 1))
def test_changed_headers(seed: int, tmp_path: Path) -> None:
    figures = mail_headers.run(tmp_path, seed, 1000 if LONG else 300)
    for ours, theirs, mail in figures.different:
        text = mail.decode("utf-8", "backslashreplace")
        raise AssertionError(f"patchq: {ours}\ngit: {theirs}\n{text}")
    # If most were refused, all of this would say nothing.
    assert figures.same > figures.cases // 3, figures
    assert figures.both_refused > figures.cases // 20, figures
    record(
        "mail-headers", seed=seed, cases=figures.cases, same=figures.same,
        refused=figures.both_refused, empty=figures.empty, ours=figures.refused.total(),
    )  # fmt: skip


def crlf_throughout(mail: bytes) -> bytes:
    return mail.replace(b"\n", b"\r\n")


def crlf_in_the_header(mail: bytes) -> bytes:
    head, gap, rest = mail.partition(b"\n\n")
    return (head + gap).replace(b"\n", b"\r\n") + rest


def blank_below_the_header(mail: bytes) -> bytes:
    return mail.replace(b"\n\n", b"\n \n", 1)


def blanks_on_every_empty_line(mail: bytes) -> bytes:
    head, separator, diff = mail.partition(b"\ndiff --git")
    return head.replace(b"\n\n", b"\n\t\n") + separator + diff


def no_blank_line(mail: bytes) -> bytes:
    return mail.replace(b"\n\n", b"\n", 1)


CHANGES = [crlf_throughout, crlf_in_the_header, blank_below_the_header, blanks_on_every_empty_line, no_blank_line]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_no_header_makes_a_patch_empty(stack: Patchq, change: object, name: str) -> None:
    assert callable(change)
    tree = stack.layout.tree("up")
    before = {path.name: path.read_bytes() for path in tree.glob("*.txt")}
    file = stack.patch_file(name)
    original = file.read_bytes()
    file.write_bytes(change(original))
    stack.ok("apply")
    assert {path.name: path.read_bytes() for path in tree.glob("*.txt")} == before
    stack.ok("export", "up")
    assert file.read_bytes() == original


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"\ndiff --git", b"\n---\n---\ndiff --git", ""),
        (b"\ndiff --git", b"\n diff --git", "a hunk without a file header"),
        (b"\ndiff --git", b"\n---\n> diff --git", "indented or quoted"),
        (b"\nSubject: ", b"\nContent-Transfer-Encoding: base64\nSubject: ", "its text is encoded"),
        (b"\nSubject: ", b"\nSubject: Another\nSubject: ", "two Subject: lines"),
        (b"\n\n", b"\n\nFrom: Other <o@example.org>\n\n", "takes for a header"),
        (b"\ndiff --git", b"\n@@ -1 +1 @@\n-a\n+b\ndiff --git", "a hunk without a file header"),
        (b"\ndiff --git", b"\nFrom 0123 Mon Sep 17 00:00:00 2001\ndiff --git", "another mail begins here"),
    ],
)
def test_what_git_would_skip_or_read_otherwise_is_named(stack: Patchq, old: bytes, new: bytes, message: str) -> None:
    file = stack.patch_file("second")
    original = file.read_bytes()
    assert old in original
    file.write_bytes(original.replace(old, new, 1))
    if not message:
        stack.ok("apply")
        return
    output = stack.fails(1, "apply")
    assert message in output
    assert "second.patch" in output


def test_a_file_that_was_cut_short_is_no_empty_patch(stack: Patchq) -> None:
    file = stack.patch_file("second")
    mail = file.read_bytes()
    file.write_bytes(mail[: mail.index(b"\ndiff --git") - 3])
    assert "it is truncated" in stack.fails(1, "apply")
    file.write_bytes(mail + mail)
    assert "another mail" in stack.fails(1, "apply")
