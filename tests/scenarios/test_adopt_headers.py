"""What a patch of another tool says of itself is in its trailers, or in its body, afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import Patchq, git, numbered
from patchq.formats.header import Header
from patchq.formats.header import parse as parse_mail

#: Replaces line 3 of a.txt.
DIFF = "".join(
    [
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,6 +1,6 @@\n",
        " line 1\n line 2\n-line 3\n+line three\n line 4\n line 5\n line 6\n",
    ]
)
JANE = "Jane Roe <jane@example.org>"


def adopted(patchq: Patchq, path: Path, text: str, *options: str) -> Header:
    """The header of what an import makes of a file; the tree is what the diff says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    patchq.ok("import", "up", str(path), *options)
    patchq.ok("apply")
    assert (patchq.tree() / "a.txt").read_bytes() == numbered(40).replace(b"line 3\n", b"line three\n")
    [name] = [p.name for p in (patchq.root / "patches/up/v1").glob("*.patch")]
    mail = (patchq.root / "patches/up/v1" / name).read_bytes()
    header = parse_mail(mail, name)[0]
    # Out and in again it is the same.
    (path.parent / "again").mkdir()
    (path.parent / "again" / name).write_bytes(mail)
    patchq.ok("drop", name.removesuffix(".patch"))
    patchq.ok("import", "up", str(path.parent / "again" / name))
    assert parse_mail((patchq.root / "patches/up/v1" / name).read_bytes(), name)[0] == header
    return header


DEP3 = f"""Description: Use FHS compliant paths by default
 Upstream is not interested in switching to those paths.
 .
 But we will continue using them in Debian nevertheless.
Author: {JANE}
Origin: vendor
Bug: https://bugs.example.org/7
Bug-Debian: https://bugs.debian.org/510219
Forwarded: not-needed
Reviewed-by: Al <al@example.org>
Last-Update: 2026-01-02

"""


def test_debian(patchq: Patchq, tmp_path: Path) -> None:
    header = adopted(patchq, tmp_path / "fhs.patch", DEP3 + "---\nThis one is below the line\n" + DIFF)
    assert header.subject == "Use FHS compliant paths by default"
    assert "But we will continue using them in Debian nevertheless.\n" in header.message
    assert (header.author.name, header.author.email) == ("Jane Roe", "jane@example.org")
    assert (header.author.when, header.author.zone) == (1767355200, "+0000")
    assert dict(header.trailers) == {
        "Origin": "vendor", "Bug": "https://bugs.example.org/7", "Bug-Debian": "https://bugs.debian.org/510219",
        "Forwarded": "not-needed", "Reviewed-by": "Al <al@example.org>", "Last-Update": "2026-01-02",
        "Upstream-Status": "Inappropriate [not-needed]",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (
            "Origin: upstream, https://example.org/commit/abc\nApplied-Upstream: 2.0",
            "Backport [https://example.org/commit/abc]",
        ),
        ("Origin: backport, 0a1b2c3d", "Backport [0a1b2c3d]"),
        ("Applied-Upstream: 1.2, https://example.org/c", "Accepted [1.2, https://example.org/c]"),
        ("Forwarded: https://example.org/pull/3", "Submitted [https://example.org/pull/3]"),
        ("Bug: https://example.org/3\nForwarded: yes", "Submitted [https://example.org/3]"),
        ("Forwarded: no", "Pending"),
        ("Upstream: https://example.org/x/commit/0123456789ab", "Backport [https://example.org/x/commit/0123456789ab]"),
        ("Upstream: https://example.org/x/pull/9", "Submitted [https://example.org/x/pull/9]"),
        ("Upstream: N/A, ours", "Inappropriate [N/A, ours]"),
    ],
)
def test_what_other_fields_say_of_upstream(patchq: Patchq, tmp_path: Path, fields: str, status: str) -> None:
    text = f"From: {JANE}\nSubject: Spell three\n{fields}\n\nIt reads better.\n---\n{DIFF}"
    header = adopted(patchq, tmp_path / "x.patch", text)
    assert header.value("Upstream-Status") == status
    for field in fields.split("\n"):
        assert field in header.message
    assert header.message.startswith("Spell three\n\nIt reads better.\n\n")


MAIL = f"""From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001
From: {JANE}
Date: Fri, 2 Jan 2026 03:04:05 +0100
Subject: [PATCH 3/7] Spell three

It reads better.

Signed-off-by: {JANE}
---
 a.txt | 2 +-
"""


def test_yocto_words_above_the_mail(patchq: Patchq, tmp_path: Path) -> None:
    words = "Spell three\n\nNeeded by our layer.\n\nUpstream-Status: Backport\n[https://example.org/c/1]\nCVE: CVE-2026-1\nSigned-off-by: Al <al@example.org>\n\n"
    words = words.replace("Backport\n[", "Backport [")
    header = adopted(patchq, tmp_path / "x.patch", words + MAIL + DIFF)
    assert (header.author.name, header.author.when, header.author.zone) == ("Jane Roe", 1767319445, "+0100")
    assert header.message.startswith("Spell three\n\nIt reads better.\n\nNeeded by our layer.\n\n")
    assert header.value("Upstream-Status") == "Backport [https://example.org/c/1]"
    assert header.value("CVE") == "CVE-2026-1"
    assert header.values("Signed-off-by") == ("Al <al@example.org>", JANE)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("Upstream-Status: Inactive-Upstream [lastcommit: 2019]", "Inactive-Upstream [lastcommit: 2019]"),
        ("Upstream-Status: Backport from 1.2", "Backport [from 1.2]"),
        ("Upstream-status: submitted (https://example.org/9)", "Submitted [https://example.org/9]"),
        ("Upstream-Status: Inappropriate [oe-core specific:\n  see [1]]", "Inappropriate [oe-core specific: see (1)]"),
        ("Upstream-Status: Denied: not wanted", "Denied [not wanted]"),
    ],
)
def test_yocto_statuses_anywhere(patchq: Patchq, tmp_path: Path, line: str, status: str) -> None:
    header = adopted(patchq, tmp_path / "x.patch", MAIL.replace("better.\n", f"better.\n{line}\n\nAnd more.\n") + DIFF)
    assert header.values("Upstream-Status") == (status,)
    assert "It reads better.\n\nAnd more.\n" in header.message
    assert header.value("Signed-off-by") == JANE


def test_a_picked_commit_keeps_its_trailers(patchq: Patchq, tmp_path: Path) -> None:
    picked = f"Signed-off-by: {JANE}\n(cherry picked from commit {'c' * 40})\nReviewed-by: Al <al@example.org>\n"
    header = adopted(patchq, tmp_path / "x.patch", MAIL.replace(f"Signed-off-by: {JANE}\n", picked) + DIFF)
    assert header.value("Signed-off-by") == JANE
    assert header.value("Reviewed-by") == "Al <al@example.org>"
    assert header.value("Upstream-Status") == f"Backport [{'c' * 40}]"
    assert f"(cherry picked from commit {'c' * 40})\n" in header.message


def test_electron_names_its_file(patchq: Patchq, tmp_path: Path) -> None:
    text = MAIL.replace("Signed-off-by", "Patch-Filename: build_spell_three.patch\nSigned-off-by") + DIFF
    header = adopted(patchq, tmp_path / "x.patch", text)
    assert header.value("Patch-Filename") == "build_spell_three.patch"
    assert patchq.patch_file("build-spell-three").is_file()


def test_gbp_topics(patchq: Patchq, tmp_path: Path) -> None:
    header = adopted(
        patchq, tmp_path / "x.patch", MAIL.replace("Signed-off-by", "Gbp-Pq: Topic fixes\nSigned-off-by") + DIFF
    )
    assert header.value("Gbp-Pq") == "Topic fixes"
    assert header.value("Topic") == "fixes"


def test_stgit_puts_the_author_below_the_subject(patchq: Patchq, tmp_path: Path) -> None:
    header = adopted(
        patchq, tmp_path / "x.patch", f"Spell three\n\nFrom: {JANE}\n\nIt reads better.\n---\n a.txt | 2 +-\n\n{DIFF}"
    )
    assert header.message.startswith("Spell three\n\nIt reads better.\n\n")
    assert header.author.name == "Jane Roe"


def test_an_author_is_never_the_importer_without_a_word(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_text(MAIL.replace(f"From: {JANE}", "From: sms") + DIFF)
    before = patchq.layout.lock.read_bytes()
    said = patchq.fails(1, "import", "up", str(tmp_path / "x.patch"))
    assert "x.patch (mail 1)" in said
    assert "names no author" in said
    assert f"--author me names you; the patch is signed off by {JANE}" in said
    assert patchq.layout.lock.read_bytes() == before
    patchq.ok("import", "up", str(tmp_path / "x.patch"), "--author", JANE)
    header = parse_mail(patchq.patch_file("x").read_bytes(), "x")[0]
    assert (header.author.name, header.author.when) == ("Jane Roe", 1767319445), "its date is its own"


def test_where_it_was_is_told(patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "debian").mkdir()
    header = adopted(patchq, Path("debian/x.patch"), MAIL + DIFF)
    assert header.value("Origin") == "debian/x.patch"
    assert git(patchq.layout.store, "log", "-1", "--format=%an", "up") == "Jane Roe"


@pytest.mark.parametrize("above", ["", "Description: Spell three\nForwarded: no\n\n"], ids=["alone", "below DEP-3"])
def test_what_git_show_writes(patchq: Patchq, upstream: Path, tmp_path: Path, above: str) -> None:
    (upstream / "a.txt").write_bytes(numbered(40).replace(b"line 3\n", b"line three\n"))
    git(
        upstream, "commit", "-qam", "Spell three\n\nFor people.\n\nSigned-off-by: Al <al@example.org>", "--author", JANE
    )
    commit = git(upstream, "rev-parse", "HEAD")
    header = adopted(patchq, tmp_path / "in" / "x.patch", f"{above}{git(upstream, 'show')}\n")
    assert (header.author.name, header.author.email) == ("Jane Roe", "jane@example.org")
    assert (header.author.when, header.author.zone) == (1767319445, "+0100")
    assert header.subject == "Spell three"
    assert "\n\nFor people.\n\n" in header.message
    assert "Signed-off-by: Al <al@example.org>\n" in header.message
    assert f"Origin: commit {commit}\n" in header.message
    assert header.message.count("Spell three") == 1 + bool(above)


def test_an_author_without_an_address_gives_way_to_one_with(patchq: Patchq, tmp_path: Path) -> None:
    text = f"Description: Spell three\nAuthor: upstream\nAuthor: {JANE}\nLast-Update: 2026-01-02\n---\n{DIFF}"
    header = adopted(patchq, tmp_path / "in" / "x.patch", text)
    assert header.author.email == "jane@example.org"
    assert "Co-authored-by: upstream\n" in header.message


def test_a_day_without_a_time_and_an_address_in_a_name(patchq: Patchq, tmp_path: Path) -> None:
    mail = 'From: "Ann ann@box and Jane Roe" <jane@example.org>\nDate: Wed, 11 Feb 2026\nSubject: [PATCH] Spell three\n\nWhy.\n---\n'
    header = adopted(patchq, tmp_path / "in" / "x.patch", mail + DIFF)
    assert (header.author.name, header.author.email) == ("Ann ann@box and Jane Roe", "jane@example.org")
    assert (header.author.when, header.author.zone) == (1770811200, "+0000")


@pytest.mark.parametrize("between", ["\n\n", "\n \n\n", " \n"])
def test_blank_lines_between_files_and_moved_lines(
    patchq: Patchq, upstream: Path, tmp_path: Path, between: str
) -> None:
    """Debian's busybox has such a patch, to a place that other patches move."""
    moved = DIFF.replace("@@ -1,6 +1,6 @@", "@@ -2,6 +2,6 @@")
    parts = [f"diff --git a/{name} b/{name}\n{moved.replace('a.txt', name)}" for name in ("a.txt", "b.txt")]
    adopted(patchq, tmp_path / "in" / "x.patch", f"From: {JANE}\nSubject: x\n\n{between.join(parts)}{between}")


def test_comments_of_quilts_and_nothing_else(patchq: Patchq, tmp_path: Path) -> None:
    header = adopted(patchq, tmp_path / "in" / "x.patch", "\n#! comment\n\nWhy\n\n" + DIFF, "--author", "me")
    assert header.subject == "Why"
