"""Over 200 patches of 13 kinds, each as its format's documentation has it: the tree is that of the format's own tool,
and author, date, subject and headers survive the way in, out, and in again.

| kind | its tool |
|---|---|
| git's mails, an mbox, `cherry-pick -x`, Electron | `git am` |
| Debian (DEP-3), gbp | `quilt push` |
| OpenWrt, Buildroot, StGit's export, Subversion, plain, no prefix | `patch` with the kind's flags |
| a Yocto recipe | `patch`, with the recipe's `striplevel` |
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kit import Patchq, commit_files, git
from patchq.formats.header import Header
from patchq.formats.header import parse as parse_mail

COUNT = 16
PEOPLE = [
    "Jane Roe <jane@example.org>",
    "Jörg Müller <joerg@example.org>",
    "山田 太郎 <taro@example.org>",
    "A. O'Neil <al@x.example.org>",
]


@dataclass
class Change:
    """One change of the upstream: its commit, and what is to be found again."""

    number: int
    commit: str
    author: str
    date: str
    subject: str
    body: str
    diff: str
    trailers: dict[str, str] = field(default_factory=dict)


def edits(rng: random.Random, files: dict[str, list[str]], number: int, plain: bool) -> dict[str, bytes | None]:
    """A change of one or two files: lines changed, added, removed; files made and removed."""
    kind = rng.choice(["change", "add", "remove", "new", "change", "two"] + ([] if plain else ["gone"]))
    names = sorted(files)
    if kind == "new":
        files[f"src/new{number}.c"] = [f"new {number} {n}" for n in range(rng.randint(1, 9))]
        return {f"src/new{number}.c": "".join(f"{x}\n" for x in files[f"src/new{number}.c"]).encode()}
    chosen = rng.sample(names, 2 if kind == "two" else 1)
    if kind == "gone":
        del files[chosen[0]]
        return {chosen[0]: None}
    for name in chosen:
        at = rng.randrange(len(files[name]))
        if kind == "add":
            files[name][at:at] = [f"added {number} {n}" for n in range(3)]
        elif kind == "remove" and len(files[name]) > 9:
            del files[name][at : at + 2]
        else:
            files[name][at] = f"changed by {number} in {name}"
    return {name: "".join(f"{x}\n" for x in files[name]).encode() for name in chosen}


def make_changes(upstream: Path, seed: str, plain: bool) -> list[Change]:
    rng = random.Random(seed)
    files = {f"src/f{n}.c": [f"{n} line {m}" for m in range(40)] for n in range(12)}
    found = []
    for number in range(1, COUNT + 1):
        author, date = (
            rng.choice(PEOPLE),
            f"2025-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}T03:04:05+0{rng.randint(0, 9)}00",
        )
        subject, body = (
            f"Change number {number}: {rng.choice(['ends', 'Größe', 'a `b`'])}",
            f"Because of {number}.\n\nAnd more.",
        )
        commit_files(upstream, edits(rng, files, number, plain), f"{subject}\n\n{body}\n")
        git(upstream, "commit", "-q", "--amend", f"--author={author}", f"--date={date}", "--no-edit")
        diff = git(upstream, "diff", "--no-renames", "HEAD~1", "HEAD") + "\n"
        found.append(Change(number, git(upstream, "rev-parse", "HEAD"), author, date, subject, body, diff))
    return found


def unified(diff: str, prefix: tuple[str, str] = ("a/", "b/")) -> str:
    """The same by `diff -u`: no word of git's."""
    lines = []
    for line in diff.splitlines():
        if line.startswith(("diff --git", "index ", "new file", "deleted file")):
            continue
        if match := re.fullmatch(r"(---|\+\+\+) [ab]/(.*)", line):
            line = f"{match[1]} {prefix[match[1] == '+++']}{match[2]}\t2025-01-02 03:04:05.000000000 +0100"
        lines.append(line)
    return "\n".join(lines) + "\n"


Written = tuple[list[str], Callable[[Path, Path], None]]


def am(clone: Path, place: Path) -> None:
    files = sorted(place.glob("*.patch")) or [place / "box.mbox"]
    if (place / ".patches").exists():
        files = [place / n for n in (place / ".patches").read_text().split()]
    git(clone, "am", "-q", "--keep-cr", *map(str, files))


def quilt(clone: Path, place: Path) -> None:
    env = {**os.environ, "QUILT_PATCHES": str(place), "QUILT_PC": str(place.parent / ".pc"), "QUILTRC": "/dev/null"}
    subprocess.run(["quilt", "push", "-a", "-q", "--fuzz=0"], cwd=clone, env=env, check=True, capture_output=True)


def patch(strip: int) -> Callable[[Path, Path], None]:
    def run(clone: Path, place: Path) -> None:
        for file in sorted(place.glob("*.patch")):
            argv = ["patch", "-s", "-F0", f"-p{strip}", "--no-backup-if-mismatch", "-i", str(file)]
            subprocess.run(argv, cwd=clone, check=True, capture_output=True)

    return run


def write(place: Path, changes: list[Change], text: Callable[[Change], str], name: str = "{:04}-x.patch") -> None:
    place.mkdir(parents=True, exist_ok=True)
    for change in changes:
        (place / name.format(change.number)).write_text(text(change))


def mail(upstream: Path, change: Change) -> str:
    return git(upstream, "format-patch", "-1", "--stdout", "--no-renames", change.commit) + "\n"


def git_mails(upstream: Path, place: Path, changes: list[Change]) -> Written:
    write(place, changes, lambda c: mail(upstream, c))
    return [str(place)], am


def an_mbox(upstream: Path, place: Path, changes: list[Change]) -> Written:
    place.mkdir()
    (place / "box.mbox").write_text("".join(mail(upstream, c) for c in changes))
    return [str(place / "box.mbox")], am


def picked(upstream: Path, place: Path, changes: list[Change]) -> Written:
    def text(c: Change) -> str:
        c.trailers = {"Upstream-Status": f"Backport [{c.commit}]", "Reviewed-by": "Al <al@example.org>"}
        words = f"Reviewed-by: Al <al@example.org>\nSigned-off-by: {PEOPLE[0]}\n(cherry picked from commit {c.commit})\n---\n"
        return mail(upstream, c).replace("\nAnd more.\n---\n", f"\nAnd more.\n\n{words}")

    write(place, changes, text)
    return [str(place)], am


def electron(upstream: Path, place: Path, changes: list[Change]) -> Written:
    def text(c: Change) -> str:
        c.trailers = {"Patch-Filename": f"fix_number_{c.number}.patch"}
        return mail(upstream, c).replace(
            "\nAnd more.\n---\n", f"\nAnd more.\n\nPatch-Filename: fix_number_{c.number}.patch\n---\n"
        )

    write(place, changes, text, "fix_number_{}.patch")
    (place / ".patches").write_text("".join(f"fix_number_{c.number}.patch\n" for c in changes))
    return [str(place)], am


def debian(upstream: Path, place: Path, changes: list[Change]) -> Written:
    place = place / "debian/patches"

    def text(c: Change) -> str:
        c.trailers = {
            "Bug-Debian": f"https://bugs.debian.org/{c.number}",
            "Forwarded": "not-needed",
            "Last-Update": "2025-02-03",
        }
        c.trailers["Upstream-Status"] = "Inappropriate [not-needed]"
        c.date = ""
        body = c.body.replace("\n\n", "\n .\n ")
        return (
            f"Description: {c.subject}\n {body}\nAuthor: {c.author}\nBug-Debian: https://bugs.debian.org/{c.number}\n"
            f"Forwarded: not-needed\nLast-Update: 2025-02-03\n---\nThis patch header follows DEP-3\n{unified(c.diff)}"
        )

    write(place, changes, text)
    (place / "series").write_text("".join(f"{c.number:04}-x.patch\n" for c in changes))
    return [str(place.parent.parent)], lambda clone, _: quilt(clone, place)


def gbp(upstream: Path, place: Path, changes: list[Change]) -> Written:
    place = place / "debian/patches"

    def text(c: Change) -> str:
        c.trailers = {"Gbp-Pq": "Topic fixes", "Topic": "fixes", "Forwarded": "no"}
        return (
            f"From: {c.author}\nDate: {c.date}\nSubject: {c.subject}\nForwarded: no\n\n{c.body}\n\nGbp-Pq: Topic fixes\n---\n"
            f" src/x | 2 +-\n\n{c.diff}"
        )

    write(place, changes, text)
    (place / "series").write_text("".join(f"{c.number:04}-x.patch\n" for c in changes))
    return [str(place)], lambda clone, _: quilt(clone, place)


def openwrt(upstream: Path, place: Path, changes: list[Change]) -> Written:
    write(
        place / "patches",
        changes,
        lambda c: f"From: {c.author}\nDate: {c.date}\nSubject: {c.subject}\n\n{c.body}\n---\n{unified(c.diff)}",
        "{:03}-x.patch",
    )
    (place / "Makefile").write_text("include $(TOPDIR)/rules.mk\n")
    return [str(place)], lambda clone, p: patch(1)(clone, p / "patches")


def buildroot(upstream: Path, place: Path, changes: list[Change]) -> Written:
    def text(c: Change) -> str:
        c.trailers = {"Upstream": f"https://example.org/x/commit/{c.commit}"}
        c.trailers["Upstream-Status"] = f"Backport [https://example.org/x/commit/{c.commit}]"
        words = f"\nUpstream: https://example.org/x/commit/{c.commit}\nSigned-off-by: {PEOPLE[0]}\n"
        return mail(upstream, c).replace("\nAnd more.\n---\n", f"\nAnd more.\n{words}---\n")

    write(place, changes, text)
    return [str(place)], patch(1)


def yocto(upstream: Path, place: Path, changes: list[Change]) -> Written:
    def text(c: Change) -> str:
        c.trailers = {"Upstream-Status": f"Inappropriate [of us, {c.number}]", "CVE": f"CVE-2025-{c.number}"}
        return f"Needed by our layer.\n\nUpstream-Status: Inappropriate [of us, {c.number}]\nCVE: CVE-2025-{c.number}\nSigned-off-by: {PEOPLE[1]}\n\n{mail(upstream, c)}"

    write(place / "up", changes, text)
    entries = " \\\n".join(f"    file://{c.number:04}-x.patch;striplevel=1" for c in changes)
    (place / "up_1.0.bb").write_text(f'SRC_URI = "https://example.org/${{BP}}.tar.gz \\\n{entries} \\\n"\n')
    return [str(place)], lambda clone, p: patch(1)(clone, p / "up")


def stgit(upstream: Path, place: Path, changes: list[Change]) -> Written:
    def text(c: Change) -> str:
        c.date = ""
        return f"{c.subject}\n\nFrom: {c.author}\n\n{c.body}\n---\n src/x |    2 +-\n\n{c.diff}"

    write(place, changes, text)
    (place / "series").write_text(
        "# This series applies on GIT commit 0\n" + "".join(f"{c.number:04}-x.patch\n" for c in changes)
    )
    return [str(place)], patch(1)


def anonymous(text: Callable[[Change], str], strip: int) -> Callable[[Path, Path, list[Change]], Written]:
    def make(upstream: Path, place: Path, changes: list[Change]) -> Written:
        for change in changes:
            change.author, change.date, change.subject, change.body = "Test Person <test@example.org>", "", "", ""
        write(place, changes, text)
        return [str(place), "--author", "me"], patch(strip)

    return make


KINDS: dict[str, Callable[[Path, Path, list[Change]], Written]] = {
    "git": git_mails, "mbox": an_mbox, "cherry-pick": picked, "electron": electron, "debian": debian, "gbp": gbp,
    "openwrt": openwrt, "buildroot": buildroot, "yocto": yocto, "stgit": stgit,
    "plain": anonymous(lambda c: unified(c.diff, ("up-1.0.orig/", "up-1.0/")), 1),
    "no-prefix": anonymous(lambda c: unified(c.diff, ("", "")), 0),
    "subversion": anonymous(lambda c: re.sub(r"^--- ", f"Index: x\n{'=' * 67}\n--- ", unified(c.diff, ("", "")), flags=re.M), 0),
}  # fmt: skip
#: What `diff -u` alone doesn't say: that a file is gone.
PLAIN = {"plain", "no-prefix", "subversion", "openwrt", "debian"}


def headers(patchq: Patchq) -> list[Header]:
    folder = patchq.root / "patches/up/v1"
    names = [line for line in (folder / "series").read_text().split("\n") if line and not line.startswith("#")]
    return [parse_mail((folder / f"{n.removesuffix('.patch')}.patch").read_bytes(), n)[0] for n in names]


@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_and_the_headers_are_the_same(patchq: Patchq, upstream: Path, tmp_path: Path, kind: str) -> None:
    files = {f"src/f{n}.c": "".join(f"{n} line {m}\n" for m in range(40)).encode() for n in range(12)}
    commit_files(upstream, {**files, "a.txt": None, "b.txt": None}, "base")
    git(upstream, "tag", "-f", "v1")
    git(upstream, "checkout", "-q", "-b", "ours")
    changes = make_changes(upstream, kind, kind in PLAIN)
    patchq.ok("pin", "up", "--ref", "v1")
    place = tmp_path / "in"
    args, native = KINDS[kind](upstream, place, changes)
    if native.__name__ == "quilt" and not shutil.which("quilt"):
        native = patch(1)
    git(tmp_path, "clone", "-q", "-b", "v1", str(upstream), "clone")
    native(tmp_path / "clone", place)
    git(tmp_path / "clone", "add", "-A")
    wanted = git(tmp_path / "clone", "write-tree")

    patchq.ok("import", "up", *args)
    patchq.ok("apply")
    assert git(patchq.tree(), "rev-parse", "HEAD^{tree}") == wanted == git(upstream, "rev-parse", "ours^{tree}")
    found = headers(patchq)
    assert len(found) == COUNT == len(changes)
    for header, change in zip(found, changes, strict=True):
        assert f"{header.author.name} <{header.author.email}>" == change.author
        if change.date:
            # Only the seconds since 1970 and the zone are left of how it was written.
            assert header.author.when == int(git(upstream, "show", "-s", "--format=%at", change.commit))
            assert header.author.zone == change.date[-5:]
        if change.subject:
            assert header.subject == change.subject
            assert change.body in header.message
        assert {k: header.value(k) for k in change.trailers} == change.trailers
    assert "nothing changed" in patchq.ok("export", "up")
    shutil.copytree(patchq.root / "patches/up/v1", tmp_path / "again")
    patchq.ok("undo")
    patchq.ok("undo")
    patchq.ok("import", "up", str(tmp_path / "again"))
    assert headers(patchq) == found
    patchq.ok("apply")
    assert git(patchq.tree(), "rev-parse", "HEAD^{tree}") == wanted


def test_there_are_enough() -> None:
    assert len(KINDS) >= 8
    assert len(KINDS) * COUNT >= 200
