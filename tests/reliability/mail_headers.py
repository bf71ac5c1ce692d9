"""Patch files whose mail header, blank lines or message are changed, read by patchq and by ``git am``.

    python tests/reliability/mail_headers.py [--seed N] [--cases N]

A case is a mail of ``git format-patch`` with one to three changes that mail programs, editors and
hands make. patchq must make the same tree, author and message of it as ``git am``, or refuse it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "tools")]

from differential import ENV, git  # noqa: E402
from patchq.errors import PatchqError  # noqa: E402
from patchq.formats.header import parse  # noqa: E402
from patchq.git.repository import Git  # noqa: E402
from patchq.names import CommitId  # noqa: E402
from patchq.stacks.engine import Engine, Incoming  # noqa: E402

MESSAGE = (
    "Change a\n\nBecause of the test.\n\nA second paragraph: with a colon.\n\nSigned-off-by: A U <a@example.org>\n"
)
FILES = {
    "a.txt": b"".join(b"line %d\n" % n for n in range(1, 31)),
    "crlf.txt": b"".join(b"line %d\r\n" % n for n in range(1, 11)),
    "empty-lines.txt": b"one\n\n\ntwo\n\n\nthree\n",
}
EDITED = {
    "a.txt": FILES["a.txt"].replace(b"line 5\n", b"line five\n").replace(b"line 25\n", b"line 25\nadded\n"),
    "crlf.txt": FILES["crlf.txt"].replace(b"line 5\r\n", b"line five\r\n"),
    "empty-lines.txt": FILES["empty-lines.txt"].replace(b"two\n", b"two\n\ntwo and a half\n"),
    "new.txt": b"a new file\n\nwith an empty line\n",
}


@dataclass
class World:
    """A repository, its first commit, and the mails that change it, one for each set of files."""

    folder: Path
    base: str
    tree: str
    mails: list[bytes]


def world(folder: Path) -> World:
    """Make the repository and the mails."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "C O")
    git(folder, "config", "user.email", "c@example.org")
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "base")
    base = git(folder, "rev-parse", "HEAD").decode().strip()
    mails = []
    for names in (["a.txt"], ["a.txt", "new.txt"], ["empty-lines.txt"], ["crlf.txt"], list(EDITED)):
        for name in names:
            (folder / name).write_bytes(EDITED[name])
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--author", "Ä U <a@example.org>", "-F", "-", data=MESSAGE.encode())
        mails.append(git(folder, "format-patch", "-1", "--stdout", "--keep-subject", "--full-index", "--no-signature"))
        git(folder, "reset", "-q", "--hard", base)
    tree = git(folder, "rev-parse", f"{base}^{{tree}}").decode().strip()
    return World(folder, base, tree, mails)


# The changes


def _lines(change: Callable[[random.Random, list[bytes]], None]) -> Callable[[random.Random, bytes], bytes]:
    """Make a change of a list of lines one of a mail."""

    def changed(dice: random.Random, mail: bytes) -> bytes:
        lines = mail.split(b"\n")
        change(dice, lines)
        return b"\n".join(lines)

    return changed


def _blank(lines: Sequence[bytes]) -> int:
    """Return the index of the first line that is empty but for blanks."""
    return next((n for n, line in enumerate(lines) if not line.strip()), len(lines) - 1)


def _header(dice: random.Random, lines: Sequence[bytes]) -> int:
    """Return the index of a header line, not the first where there are more."""
    return min(dice.randrange(1, max(2, _blank(lines))), len(lines) - 1)


def _all_crlf(dice: random.Random, mail: bytes) -> bytes:
    return mail.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _header_crlf(dice: random.Random, lines: list[bytes]) -> None:
    for n in range(_blank(lines) + dice.randrange(2)):
        lines[n] += b"\r"


def _some_crlf(dice: random.Random, lines: list[bytes]) -> None:
    for n in dice.sample(range(len(lines)), min(3, len(lines))):
        lines[n] += b"\r"


def _blanks_on_blank_lines(dice: random.Random, lines: list[bytes]) -> None:
    for n, line in enumerate(lines):
        if not line and dice.random() < 0.7:
            lines[n] = dice.choice([b" ", b"\t", b"  ", b"\r"])


def _blank_after_header(dice: random.Random, lines: list[bytes]) -> None:
    lines[_blank(lines)] = dice.choice([b" ", b"\t", b"\r", b" \t "])


def _no_blank_after_header(dice: random.Random, lines: list[bytes]) -> None:
    del lines[_blank(lines)]


def _more_blank_lines(dice: random.Random, lines: list[bytes]) -> None:
    lines.insert(dice.randrange(len(lines)), dice.choice([b"", b" ", b"\r"]))


def _swap_headers(dice: random.Random, lines: list[bytes]) -> None:
    end = _blank(lines)
    head = lines[1:end]
    dice.shuffle(head)
    lines[1:end] = head


def _fold(dice: random.Random, lines: list[bytes]) -> None:
    at = _header(dice, lines)
    first, blank, rest = lines[at].partition(b" ")
    first, blank, rest = (lines[at], b"", b"") if not blank else (first, blank, rest)
    middle = rest.find(b" ")
    if middle > 0:
        lines[at : at + 1] = [first + b" " + rest[:middle], dice.choice([b" ", b"\t", b"  "]) + rest[middle + 1 :]]


def _other_case(dice: random.Random, lines: list[bytes]) -> None:
    at = _header(dice, lines)
    key, colon, rest = lines[at].partition(b":")
    lines[at] = dice.choice([key.upper(), key.lower()]) + colon + rest


EXTRA = (
    b"Message-Id: <1@example.org>", b"X-Mailer: git-send-email", b"MIME-Version: 1.0", b"List-Id:",
    b"Content-Type: text/plain; charset=UTF-8", b"Content-Transfer-Encoding: 8bit", b"Subject: another one",
    b"From: Other <o@example.org>", b"Content-Type: text/plain; charset=ISO-8859-1",
    b"Content-Transfer-Encoding: quoted-printable", b"Content-Transfer-Encoding: base64", b"Not a header",
    b"Signed-off-by: B <b@example.org>", b"Content-Type: multipart/mixed; boundary=xyz", b">From x", b"In-Reply-To : y",
)  # fmt: skip
IN_BODY = (
    b"From: Other <o@example.org>", b"Subject: Another subject", b"Date: Tue, 1 Jan 2019 00:00:00 +0000",
    b"[PATCH] Another subject", b">From me", b"---", b"--- a/x", b"-- ", b" diff --git a/x b/x", b"@@ -1 +1 @@", b"+++ b/x",
    b"diff --git a/a.txt b/a.txt", b"Index: a.txt", b"-- >8 --", b"From 0123 Mon Sep 17 00:00:00 2001", b"> quoted",
    b"GIT binary patch", b"#comment", b"  indented", b"Topic: moe", b"\xe4 not UTF-8",
)  # fmt: skip


def _extra_header(dice: random.Random, lines: list[bytes]) -> None:
    lines.insert(dice.randrange(1, max(2, _blank(lines) + 1)), dice.choice(EXTRA))


def _line_in_body(dice: random.Random, lines: list[bytes]) -> None:
    start = _blank(lines)
    cut = next((n for n, line in enumerate(lines) if line.startswith(b"---")), len(lines))
    lines.insert(dice.randrange(start, max(start, cut) + 1) + dice.randrange(2), dice.choice(IN_BODY))


def _line_anywhere(dice: random.Random, lines: list[bytes]) -> None:
    lines.insert(dice.randrange(len(lines) + 1), dice.choice(IN_BODY))


def _no_separator(dice: random.Random, lines: list[bytes]) -> None:
    at = next((n for n, line in enumerate(lines) if line == b"---"), -1)
    if at >= 0:
        del lines[at : at + dice.choice([1, 1, 4])]


def _cut(dice: random.Random, lines: list[bytes]) -> None:
    del lines[dice.randrange(len(lines)) :]


def _append(dice: random.Random, mail: bytes) -> bytes:
    return mail + dice.choice(
        [b"-- \n2.39.5\n\n", b"\n", b"\n\n-- \nA U\n", b"text behind\n", b"-- \n2.39\n" + mail, mail]
    )


def _indent_diff(dice: random.Random, lines: list[bytes]) -> None:
    starts = [n for n, line in enumerate(lines) if line.startswith((b"diff --git", b"@@ -", b"--- a", b"+++ b"))]
    if starts:
        at = dice.choice(starts)
        lines[at] = dice.choice([b" ", b"> ", b"\t"]) + lines[at]


CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _all_crlf, _lines(_header_crlf), _lines(_some_crlf), _lines(_blanks_on_blank_lines), _lines(_blank_after_header),
    _lines(_no_blank_after_header), _lines(_more_blank_lines), _lines(_swap_headers), _lines(_fold), _lines(_other_case),
    _lines(_extra_header), _lines(_line_in_body), _lines(_line_anywhere), _lines(_no_separator), _lines(_cut), _append,
    _lines(_indent_diff),
)  # fmt: skip


# Both readers


def by_patchq(world: World, mail: bytes) -> tuple[str, str, str] | str:
    """Return tree, author and message as patchq reads a mail, or why it refuses."""
    store = Git(world.folder / ".git")
    try:
        header, diff = parse(mail, "x.patch")
        (done,) = Engine(store, "up", {}).apply(
            CommitId(world.base), [Incoming(name="x", header=header, diff=diff, where="x.patch")]
        )
    except PatchqError as error:
        return error.message
    return store.tree_of([done.commit])[0], f"{header.author.name} <{header.author.email}>", header.message


def by_git(world: World, mail: bytes) -> tuple[str, str, str] | str:
    """Return tree, author and message of what ``git am`` makes of a mail, or what it complains about.

    CRs are kept, unless the header has them: then a program has converted the whole file.
    """
    keep = [] if mail.partition(b"\n")[0].endswith(b"\r") else ["--keep-cr"]
    argv = ["git", "am", "-q", "--keep", *keep]
    done = subprocess.run(argv, cwd=world.folder, input=mail, capture_output=True, env=ENV, check=False)
    try:
        if done.returncode:
            return done.stderr.decode("utf-8", "replace")
        said = git(world.folder, "log", "--format=%T%n%an <%ae>%n%B%x00", f"{world.base}..HEAD").split(b"\0")
        if len(said) != 2:
            return f"{len(said) - 1} commits"
        tree, author, message = said[0].decode("utf-8", "replace").split("\n", 2)
        subject, newline, body = message.rstrip("\n").partition("\n")
        # With --keep, git leaves the blanks of a folded subject; patchq and git without it make one of them.
        return tree, author, " ".join(subject.split()) + newline + body + "\n"
    finally:
        # A git that dies on a damaged mail leaves its lock.
        (world.folder / ".git" / "index.lock").unlink(missing_ok=True)
        subprocess.run(["git", "am", "--abort"], cwd=world.folder, capture_output=True, env=ENV, check=False)
        git(world.folder, "reset", "-q", "--hard", world.base)
        git(world.folder, "clean", "-qfd")


@dataclass
class Figures:
    """Counts of a run; ``different`` holds patchq's answer, git's, and the mail."""

    cases: int = 0
    same: int = 0
    empty: int = 0
    both_refused: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    different: list[tuple[object, object, bytes]] = field(default_factory=list)


def compare(world: World, mail: bytes, figures: Figures) -> None:
    """Give a mail to both readers, and count."""
    ours, theirs = by_patchq(world, mail), by_git(world, mail)
    figures.cases += 1
    if isinstance(ours, tuple) and ours[0] == world.tree and isinstance(theirs, str):
        figures.empty += 1  # `apply` names a patch that changes nothing; git has no patch to apply
    elif ours == theirs:
        figures.same += 1
    elif isinstance(ours, str) and isinstance(theirs, str):
        figures.both_refused += 1
    elif isinstance(ours, str):
        figures.refused[ours.partition(": ")[2][:50]] += 1
    else:
        figures.different.append((ours, theirs, mail))


def run(folder: Path, seed: int, cases: int) -> Figures:
    """Compare so many changed mails."""
    dice, figures, made = random.Random(seed), Figures(), world(folder)
    for _ in range(cases):
        mail = dice.choice(made.mails)
        for _ in range(dice.choice([1, 1, 2, 3])):
            mail = dice.choice(CHANGES)(dice, mail)
        compare(made, mail, figures)
    return figures


def main() -> int:
    """Run, print the counts and each difference; 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = run(Path(folder), given.seed, given.cases)
    print(
        f"{figures.cases} cases: {figures.same} the same, {figures.both_refused} refused by both, "
        f"{figures.empty} empty, and named so"
    )
    print(f"{figures.refused.total()} refused by patchq only, {len(figures.different)} different")
    for reason, count in figures.refused.most_common():
        print(f"  {count} {reason}")
    for ours, theirs, mail in figures.different:
        print(f"patchq: {ours}\ngit: {theirs}\n{mail.decode('utf-8', 'backslashreplace')}\n{'=' * 60}")
    return int(bool(figures.different))


if __name__ == "__main__":
    sys.exit(main())
