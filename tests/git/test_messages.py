"""Messages and authors as mails: what patchq writes reads back as it was, and `git am` makes the same commit of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kit import git
from patchq.formats.header import Header, Ident, clean_message, mail_safe, parse
from patchq.git.command import Outside
from patchq.git.repository import Checkout
from patchq.stacks.export import format_patches

SUBJECTS = [
    "double  blank", "   leading", "trailing  ", "tab\tand\t\ttab", "carriage\rreturn", "feat: x   (#12)",
    "no-break\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}space", "\N{IDEOGRAPHIC SPACE}wide first", "ends wide\N{IDEOGRAPHIC SPACE}",
    "form\x0cfeed", "\x0bvertical", "unit\x1f\x1fseparator", "next\x85line", "line\u2028separator", "bell\x07",
    "=?utf-8?q?=4a=6f?=", "a =?x?= b", "[PATCH] of itself", "Re: what", ": colon", "From: x <y@z>", "x" * 200,
    "words  that are folded " * 9, "blank at the fold  " * 7, "grün und  blau " * 12, "日本語の件名はとても長い" * 9,
    "\N{FAMILY} \N{COMBINING ACUTE ACCENT}\U0001f469\u200d\U0001f467", "\u202ertl", "quote \" and \\ back", "diff --git a/x b/x",
    "Index: x", "---", "--- a/x", "=", "_", "?=", "\ufeffbom",
]  # fmt: skip
LINES = [
    "", "", "plain", "  indented", "trailing  ", "diff --git a/x b/x", "diff -u", "Index: f", "---", "--- ", "---\t", "--- a/x",
    "---\x0c", "--- \x0bx", "--- \N{NO-BREAK SPACE}x", "-- ", "--", "From: A <a@b>", "from:A <a@b>", "SUBJECT: other", "Date: now",
    "[PATCH] other", "[PATCH]", "[PATCH]x", ">From me", ">From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001",
    "From me Mon Sep 17 00:00:00 2001", "From the start", "8< -----", "-- >8 --", "no-break\N{NO-BREAK SPACE}", "wide\N{IDEOGRAPHIC SPACE}",
    "feed\x0c", "\x0c", "\x1c", "\x85", "lone\rreturn", "日本語", "x" * 1200, "Topic: moe", "Signed-off-by: A <a@b>", "@@ -1 +1 @@", "+++ b/x",
]  # fmt: skip
NAMES = [
    "A B", "Jörg", 'Joe "the" Name', "Dr. Dot.", "a, b", "(paren)", "x (paren) y", "back\\slash", "日本 太郎", "tab\tname",
    "no-break\N{NO-BREAK SPACE}", "=?utf-8?q?x?=", "it's", "a;b:c", "[bot]", "dependabot[bot]", "e\x07bell", "ünï\x1b[31m",
]  # fmt: skip
#: Names of which git's own reader makes others.
REREAD = {"(paren)", "tab\tname"}
MAILS = ["a@b", "ü\x9b\\u0041@x", "49699333+dependabot[bot]@users.noreply.github.com", "j.d@x-y.org"]


def cases() -> list[tuple[Ident, str]]:
    """Each subject, line and name once, and a few hundred of them mixed."""
    plain = ("A B", "a@b")
    found = [(plain, f"{s}\n\nWhy.\n") for s in SUBJECTS]
    found += [(plain, f"s\n\n{line}\nmore\n") for line in LINES] + [(plain, f"s\n\ntext\n{line}\n") for line in LINES]
    found += [((name, mail), "s\n\nWhy.\n") for name in NAMES for mail in MAILS]
    dice = random.Random(1)
    for _ in range(200):
        body = "\n".join(dice.choices(LINES, k=dice.randrange(7)))
        found.append(
            ((dice.choice(NAMES), dice.choice(MAILS)), f"{dice.choice(SUBJECTS)}\n{dice.choice(['', chr(10)])}{body}\n")
        )
    return [(Ident(*who, 1767319445 + n, "+0530"), message) for n, (who, message) in enumerate(found)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Header], list[bytes]]:
    """A repository with a commit a case, and the patch files of these."""
    folder = tmp_path_factory.mktemp("messages")
    git(folder, "init", "-q", "-b", "main")
    store = Checkout(folder)
    tree = store.run("mktree", data=b"").decode().strip()
    base = tip = store.commit_tree(tree, [], Ident("A", "a@b", 1, "+0000"), "base\n")
    for author, message in cases():
        tip = store.commit_tree(tree, [tip], author, mail_safe(message))
    headers = [Header(c.author, c.message) for c in store.log(f"{base}..{tip}")]
    git(folder, "reset", "-q", "--hard", base)
    return folder, headers, format_patches(store, base, tip, len(headers))


def test_each_reads_back_as_it_was(written: tuple[Path, list[Header], list[bytes]]) -> None:
    _, headers, mails = written
    for header, mail in zip(headers, mails, strict=True):
        assert mail_safe(header.message) == header.message
        assert parse(mail, "test")[0] == header


def test_git_am_makes_the_same_commits(written: tuple[Path, list[Header], list[bytes]], tmp_path: Path) -> None:
    folder, headers, mails = written
    files = []
    for number, mail in enumerate(mails):
        files.append(tmp_path / f"{number:04}.patch")
        files[-1].write_bytes(mail)
    identity = {"GIT_COMMITTER_NAME": "C", "GIT_COMMITTER_EMAIL": "c@d"}
    git(folder, "am", "-q", "--keep", "--keep-cr", "--empty=keep", *map(str, files), env=identity)
    found = [Header(c.author, c.message) for c in Checkout(folder).log("main")][1:]
    for header, am in zip(headers, found, strict=True):
        assert am.message == header.message
        assert am.author == header.author or header.author.name in REREAD


def test_messages_are_cleaned_as_git_does(tmp_path: Path) -> None:
    for line in LINES:
        text = f"\n\n  s \n\n\n{line}\nx\n{line}\n\n"
        assert clean_message(text).encode() == Outside(tmp_path).run("stripspace", data=text.encode())
