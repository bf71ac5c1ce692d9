"""Mails as people and mailers write them: what `git am` makes of each, `patchq import` makes too, or better."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from kit import Patchq, commit_files, git
from patchq.formats.header import mail_safe, with_trailer
from patchq.git.objects import CommitInfo
from patchq.git.repository import Checkout, Git

MAILS = Path(__file__).parent / "mails"
#: Where patchq does better than git am, which takes an author's address for the name, or a name for the address.
BETTER = {
    ("long-name.eml", "name"): " ".join(["Ann"] * 20),
    ("name-with-at.eml", "email"): "ann@example.org",
}


def am(folder: Path, mail: Path) -> list[CommitInfo]:
    """The commits that git makes of a file, none if it refuses."""
    before = git(folder, "rev-parse", "HEAD")
    env = {**os.environ, "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+0100"}
    argv = ["git", "am", "-q", "--keep-cr", "--keep-non-patch", str(mail)]
    if subprocess.run(argv, cwd=folder, env=env, capture_output=True).returncode:
        subprocess.run(["git", "am", "--abort"], cwd=folder, capture_output=True)
        return []
    return Checkout(folder).log(f"{before}..HEAD")


def imported(patchq: Patchq, *files: Path) -> list[CommitInfo]:
    """The commits of a stack that files are imported into."""
    patchq.ok("import", "up", *map(str, files), "--author", "me")
    patchq.ok("apply")
    return Git(patchq.layout.store).log("refs/heads/up")[1:]


def test_as_git_am(patchq: Patchq, upstream: Path) -> None:
    files = sorted(p for p in MAILS.iterdir() if p.is_file())
    wanted = {mail.name: am(upstream, mail) for mail in files}
    assert [name for name, commits in wanted.items() if not commits] == [], "git am refuses these"
    found = imported(patchq, *files)
    differ = {}
    for name, commits in wanted.items():
        for want in commits:
            got = found.pop(0)
            message = with_trailer(want.message, "Origin", f"scenarios/mails/{name}")
            if name == "trailers.eml":  # a picked commit
                message = message.replace("\n\nSigned-off", "\n\nUpstream-Status: Backport [1234567]\nSigned-off")
            else:
                message = with_trailer(message, "Upstream-Status", "Pending")
            message = mail_safe(message)
            pairs = {
                "name": (got.author.name, want.author.name), "email": (got.author.email, want.author.email),
                "date": ((got.author.when, got.author.zone), (want.author.when, want.author.zone)),
                "subject": (got.message.split("\n")[0], want.message.split("\n")[0]), "tree": (got.tree, want.tree),
                "message": (got.message.partition("\n")[2], message.partition("\n")[2]),
            }  # fmt: skip
            differ.update({(name, k): pair for k, pair in pairs.items() if pair[0] != BETTER.get((name, k), pair[1])})
    assert differ == {}
    assert found == []
    assert "nothing changed" in patchq.ok("export", "up")


def test_better_than_git_am(patchq: Patchq, upstream: Path) -> None:
    """Each alone: what git refuses, or takes for something else."""
    files = sorted((MAILS / "better").iterdir())
    refused = {mail.name for mail in files if not am(upstream, mail)}
    found = imported(patchq, *files)
    told = {mail.stem: commit for mail, commit in zip(files, found, strict=True)}
    assert refused == {"byte-order-mark.eml", "date-short-year.eml", "no-from.eml"}
    names = {"no-from": "Test Person", "raw-koi8-r-headers": "Иван", "raw-iso-2022-jp-headers": "山田"}
    assert {n: c.author.name for n, c in told.items()} == {n: names.get(n, "Ann Other") for n in told}
    assert told["raw-koi8-r-headers"].message.startswith("raw Исправить\n\nПотому что.\n")
    assert told["raw-iso-2022-jp-headers"].message.startswith("raw 日本語\n\n理由\n")
    assert told["date-short-year"].author.when == 1767323045
    assert told["no-words"].message.split("\n")[0] == "No words"
    for name in told:
        assert (patchq.tree() / f"{name}.txt").read_bytes() == b"hello\n"
        if name != "no-words" and not name.startswith("raw-"):
            assert told[name].message.split("\n")[:3] == [name, "", "Why it is so."]


def test_what_can_not_be_read_is_named(patchq: Patchq, upstream: Path) -> None:
    patchq.ok("apply")
    before = patchq.snapshot()
    for mail in sorted((MAILS / "bad").iterdir()):
        assert not am(upstream, mail), mail
        out = patchq.fails(1, "import", "up", str(MAILS / "plain.eml"), str(mail))
        assert mail.name in out
        assert "hint: " in out
        assert "`git " not in out, "git's own words, not its command"
        assert patchq.snapshot() == before


def test_covers_and_answers_are_left_out(patchq: Patchq, tmp_path: Path) -> None:
    covers = sorted((MAILS / "covers").iterdir())
    out = patchq.ok("import", "up", *map(str, covers), str(MAILS / "plain.eml"))
    assert "0000-cover-letter.patch (mail 1) is a cover letter, '[PATCH v3 00/2] *** SUBJECT HERE ***': left out" in out
    assert "cover-with-separator.eml (mail 1) is a cover letter" in out
    assert "answer.eml (mail 1) holds no diff, 'Re: [PATCH 1/2] one': left out" in out
    assert [p["name"] for p in json.loads(patchq.ok("list", "--json"))["patches"]] == ["plain"]
    before = patchq.snapshot()
    for cover in covers:
        assert cover.name in patchq.fails(1, "import", "up", str(cover))
    assert patchq.snapshot() == before


def test_what_format_patch_writes_with_a_cover_letter(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        commit_files(upstream, {f"new{number}": b"x\n"}, f"[Core] Number {number}\n\nWhy.")
    for how in (["--cover-letter"], ["--cover-letter", "--attach"], ["--cover-letter", "--rfc", "-v2"]):
        folder = tmp_path / "-".join(how)
        git(upstream, "format-patch", "-q", "-o", str(folder), *how, "v1..HEAD")
        out = patchq.ok("import", "up", *map(str, sorted(folder.iterdir())))
        assert out.count("added") == 2
        assert out.count("is a cover letter") == 1
        patchq.ok("undo")
