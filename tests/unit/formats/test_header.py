"""A patch's header and message survive their mail, and nothing else gets through."""

from __future__ import annotations

import contextlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchq.errors import FormatError, PatchqError
from patchq.formats import header

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


@given(st.text(max_size=300))
def test_a_mail_safe_message_is_stable(text: str) -> None:
    once = header.mail_safe(text.replace("\r", ""))
    assert header.mail_safe(once) == once


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=40)


@given(
    subject=TEXT,
    body=st.lists(
        st.one_of(TEXT, st.sampled_from(["---", "diff --git a/x b/x", "Index: y", "From: x", ""])), max_size=6
    ),
)
def test_a_message_survives_its_mail(subject: str, body: list[str]) -> None:
    message = header.mail_safe(subject.strip() + "\n\n" + "\n".join(body))
    if not message.strip() or not message.split("\n")[0].strip():
        return
    first, _, rest = message.partition("\n")
    mail = f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nDate: Thu, 1 Jan 2026 00:00:00 +0000\nSubject: {first}\n{rest}\n---\n"
    if "=?" in first or first != " ".join(first.split()):
        return  # git encodes or folds such subjects itself: test_engine shows those
    found, diff = header.parse(mail.encode(), "test")
    assert found.message == message
    assert diff == b"---\n"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Topic", "Needs", "Signed-off-by", "Proof"]),
            st.from_regex(r"[a-z][a-z0-9 ]{0,10}[a-z]", fullmatch=True),
        ),
        max_size=5,
    )
)
def test_trailers_are_what_git_says(pairs: list[tuple[str, str]]) -> None:
    message = "Subject\n\nBody text here.\n"
    for key, value in pairs:
        message = header.with_trailer(message, key, value)
    ours = [f"{k}: {v}" for k, v in header.parse_trailers(message)]
    theirs = (
        subprocess.run(
            ["git", "interpret-trailers", "--parse"], input=message.encode(), capture_output=True, check=True
        )
        .stdout.decode()
        .splitlines()
    )
    assert ours == theirs


_LINES = st.sampled_from(
    [
        "Topic: a", "Signed-off-by: A <a@b>", "Signed-off-by:x", "(cherry picked from commit abc)", "prose it is", "", "",
        " more of it", "\tand more", "Key : value", "Empty:", "https://x", "# a comment", "not a key: x", "-: y", "ü: z",
    ]
)  # fmt: skip


@given(st.lists(_LINES, max_size=9))
def test_trailers_among_other_lines_are_what_git_says(lines: list[str]) -> None:
    message = header.clean_message("\n".join(["Subject", "", *lines]))
    ours = [f"{k}: {v}" for k, v in header.parse_trailers(message)]
    argv = ["git", "interpret-trailers", "--parse"]
    theirs = subprocess.run(argv, input=message.encode(), capture_output=True, check=True).stdout.decode()
    assert ours == theirs.splitlines()
    # One more is one more, and nothing is lost where they are taken off.
    assert header.parse_trailers(header.with_trailer(message, "New", "x"))[-1] == ("New", "x")
    assert header.without_ours(message).count("prose it is") == message.count("prose it is")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_patch_or_a_clear_error(data: bytes) -> None:
    with contextlib.suppress(PatchqError):
        header.parse(b"From " + data, "test")


@pytest.mark.parametrize(
    ("date", "when", "zone"),
    [
        ("Fri, 2 Jan 2026 03:04:05 +0100", 1767319445, "+0100"),
        ("2 Jan 2026 03:04:05 -0330", 1767335645, "-0330"),
        ("Thu, 1 Jan 1970 00:00:00 +0000", 0, "+0000"),
    ],
)
def test_dates(date: str, when: int, zone: str) -> None:
    mail = f"From 0 x\nFrom: A B <a@b>\nDate: {date}\nSubject: s\n\n"
    author = header.parse(mail.encode(), "test")[0].author
    assert (author.when, author.zone) == (when, zone)


@pytest.mark.parametrize("gone", ["From", "Date", "Subject"])
def test_a_missing_field_is_named(gone: str) -> None:
    fields = {"From": "A <a@b>", "Date": "Fri, 2 Jan 2026 03:04:05 +0100", "Subject": "s"}
    mail = "From 0 x\n" + "".join(f"{k}: {v}\n" for k, v in fields.items() if k != gone) + "\nbody\n"
    with pytest.raises(FormatError, match=f"no {gone}: line"):
        header.parse(mail.encode(), "test")
