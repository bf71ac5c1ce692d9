"""Pieces with unique tokens: edits of a tree whose effects can be looked up one by one afterwards."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kit import git

#: Lines of a text file that are edited: far enough from each other to be hunks of their own.
SLOTS = (4, 13, 22, 31, 40, 49, 58)
BINARY = bytes(range(256)) * 4


def base_files() -> dict[str, bytes]:
    """Return the files of the upstream that all cases start from."""
    files = {f"t{n}.txt": b"".join(b"t%d line %d\n" % (n, k) for k in range(1, 65)) for n in range(6)}
    files |= {
        name: b"".join(b"%s line %d\n" % (name[:1].encode(), k) for k in range(1, 65)) for name in ("a.txt", "b.txt")
    }
    files |= {f"gone{n}.txt": b"gone%d line\n" % n * 5 for n in range(6)}
    files |= {f"old{n}.txt": b"".join(b"old%d line %d\n" % (n, k) for k in range(1, 21)) for n in range(6)}
    files |= {f"tool{n}.sh": b"#!/bin/sh\necho tool%d\n" % n for n in range(6)}
    files |= {f"data{n}.bin": BINARY + b"data%d" % n for n in range(4)}
    files |= {f"plain{n}.txt": b"plain%d\n" % n for n in range(4)}
    files["crlf.txt"] = b"".join(b"crlf line %d\r\n" % k for k in range(1, 21))
    files["noeol.txt"] = b"noeol one\nnoeol two"
    return files | {"pkg/mod.py": b"def f():\n    return 1\n", ".gitignore": b"*.log\n"}


class File(NamedTuple):
    """A file of a tree: ``kind`` is ``file``, ``exec`` or ``link``."""

    kind: str
    data: bytes


@dataclass
class View:
    """A tree and its commits: of a folder, or of a commit in a store."""

    get: Callable[[str], File | None]
    commits: list[Commit] = field(default_factory=list)


class Commit(NamedTuple):
    """A commit's author and message."""

    name: str
    email: str
    when: int
    message: str


def folder_view(root: Path, base: str = "") -> View:
    """Return a view of a folder; with ``base``, of the commits since then, too."""

    def get(path: str) -> File | None:
        full = root / path
        if full.is_symlink():
            return File("link", os.fsencode(os.readlink(full)))
        if not full.is_file():
            return None
        return File("exec" if full.stat().st_mode & 0o100 else "file", full.read_bytes())

    return View(get, log(root, f"{base}..HEAD") if base else [])


def log(folder: Path, *spec: str) -> list[Commit]:
    """Return the commits of a range."""
    text = git(folder, "log", "-z", "--format=%an%x01%ae%x01%at%x01%B", *spec)
    rows = [row.split("\x01", 3) for row in text.split("\0") if row]
    return [Commit(name.strip(), email, int(when), message) for name, email, when, message in rows]


def commit_view(store: Path, commit: str) -> View:
    """Return a view of a commit's tree."""

    def get(path: str) -> File | None:
        row = subprocess.run(
            ["git", "ls-tree", "-z", commit, "--", path], cwd=store, capture_output=True, check=False
        ).stdout.rstrip(b"\0")
        if not row:
            return None
        mode, _, rest = row.partition(b" ")
        data = subprocess.run(
            ["git", "cat-file", "blob", rest.split()[1].decode()], cwd=store, capture_output=True, check=True
        ).stdout
        return File({b"100755": "exec", b"120000": "link"}.get(mode, "file"), data)

    done = subprocess.run(["git", "cat-file", "-t", commit], cwd=store, capture_output=True, check=False)
    return View(get, log(store, "-2", commit) if done.stdout == b"commit\n" else [])


def members_view(members: Mapping[str, File]) -> View:
    """Return a view of files that are held in memory, such as a wheel's members."""
    return View(members.get)


@dataclass
class Piece:
    """One thing that a verb is handed.

    :ivar token: text that occurs nowhere else.
    :ivar holds: return whether a view has the piece's effect.
    :ivar names: words by which an output names the piece.
    :ivar marks: bytes that an input must still have after a mutation, for the piece to be in it.
    """

    kind: str
    token: str
    holds: Callable[[View], bool]
    names: tuple[str, ...] = ()
    marks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        self.names = self.names or (self.token,)
        self.marks = self.marks or (self.token.encode(),)


def has_text(path: str, token: str) -> Callable[[View], bool]:
    """Return a check that a file has a text."""
    return lambda view: bool((file := view.get(path)) and token.encode() in file.data)


def lacks_line(path: str, line: str) -> Callable[[View], bool]:
    """Return a check that a file is there, without a line."""
    return lambda view: bool(
        (file := view.get(path)) and line.encode() not in [x.rstrip(b"\r") for x in file.data.split(b"\n")]
    )


def is_kind(path: str, kind: str) -> Callable[[View], bool]:
    """Return a check of a file's kind."""
    return lambda view: bool((file := view.get(path)) and file.kind == kind)


def is_gone(path: str) -> Callable[[View], bool]:
    """Return a check that there is no file at a path."""
    return lambda view: view.get(path) is None


def has_data(path: str, data: bytes) -> Callable[[View], bool]:
    """Return a check of all bytes of a file."""
    return lambda view: bool((file := view.get(path)) and file.data == data)


class Editor:
    """Makes random edits, each at a place of its own, and returns their pieces.

    :ivar used: the places that were edited already.
    """

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.count = dice, 0
        self.used: set[object] = set()
        self.stem = "Q" + "".join(dice.choices("bcdfghjkmnpqrstvwxz", k=5))

    def token(self) -> str:
        """Return a text that occurs nowhere else."""
        self.count += 1
        return f"{self.stem}{self.count}z"

    def _free(self, names: list[str]) -> str | None:
        left = [name for name in names if name not in self.used]
        if not left:
            return None
        self.used.add(name := self.dice.choice(left))
        return name

    def edits(self, root: Path, count: int, kinds: tuple[str, ...] = ()) -> list[Piece]:
        """Make so many edits in a folder."""
        return [piece for _ in range(count) for piece in self.edit(root, self.dice.choice(kinds or EDITS))]

    def edit(self, root: Path, kind: str) -> list[Piece]:
        """Make one edit; return no piece if all places for it are used."""
        found: list[Piece] = getattr(self, f"_{kind}")(root)
        return found

    def _slot(self) -> tuple[str, str]:
        """Return a file and the text of a line that no edit has touched."""
        while True:
            place = (self.dice.randrange(6), self.dice.choice(SLOTS))
            if place not in self.used or len(self.used) > 60:
                self.used.add(place)
                return f"t{place[0]}.txt", f"t{place[0]} line {place[1]}"

    def _replace(self, path: Path, old: str, new: str) -> bool:
        data = path.read_bytes()
        if f"{old}\n".encode() not in data:
            return False
        path.write_bytes(data.replace(f"{old}\n".encode(), new.encode(), 1))
        return True

    def _add_line(self, root: Path) -> list[Piece]:
        (path, line), token = self._slot(), self.token()
        if not self._replace(root / path, line, f"{line}\n{token} added\n"):
            return []
        return [Piece("added line", token, has_text(path, token), (token, path))]

    def _change_line(self, root: Path) -> list[Piece]:
        (path, line), token = self._slot(), self.token()
        if not self._replace(root / path, line, f"{token} changed\n"):
            return []
        return [
            Piece("added line", token, has_text(path, token), (token, path)),
            Piece("removed line", line, lacks_line(path, line), (path,), (f"-{line}".encode(),)),
        ]

    def _remove_line(self, root: Path) -> list[Piece]:
        path, line = self._slot()
        if not self._replace(root / path, line, ""):
            return []
        return [Piece("removed line", line, lacks_line(path, line), (path,), (f"-{line}".encode(),))]

    def _new(self, root: Path, kind: str, path: str, data: bytes, token: str, more: bool = False) -> list[Piece]:
        full = root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(data)
        if kind == "exec":
            full.chmod(0o755)
        mode = b"new file mode 100755" if kind == "exec" else b"new file mode"
        check = is_kind(path, kind)
        return [
            Piece(
                f"new {'executable' if kind == 'exec' else 'file'}", path, check, (token, path), (token.encode(), mode)
            )
        ]

    def _new_file(self, root: Path) -> list[Piece]:
        token, last = self.token(), self.token()
        folder = self.dice.choice(["", "new/", "new dir/", "pkg/", "ü/"])
        path = f"{folder}{token}.txt"
        data = f"{token} first\nsecond\n{last} last" + self.dice.choice(["\n", "\n", ""])
        whole = self._new(root, "file", path, data.encode(), token)
        return [
            *whole,
            *(Piece("added line", t, has_text(path, t), (t, path), (f"+{t}".encode(),)) for t in (token, last)),
        ]

    def _new_empty(self, root: Path) -> list[Piece]:
        token = self.token()
        path = f"{self.dice.choice(['', 'empty/'])}{token}.txt"
        return [
            Piece("new empty file", path, has_data(path, b""), (path,), p.marks)
            for p in self._new(root, "file", path, b"", token)
        ]

    def _new_executable(self, root: Path) -> list[Piece]:
        token = self.token()
        return self._new(root, "exec", f"bin/{token}", f"#!/bin/sh\necho {token}\n".encode(), token)

    def _new_binary(self, root: Path) -> list[Piece]:
        token = self.token()
        path, data = f"bin/{token}.bin", BINARY + token.encode()
        self._new(root, "file", path, data, token)
        return [Piece("new binary file", path, has_data(path, data), (token, path), (token.encode(),))]

    def _new_link(self, root: Path) -> list[Piece]:
        token, to = self.token(), self.token()
        path = f"{token}.link"
        (root / path).symlink_to(f"t0.txt-{to}")
        holds = lambda view: view.get(path) == File("link", f"t0.txt-{to}".encode())  # noqa: E731
        return [Piece("symlink", path, holds, (token, path), (token.encode(), f"+t0.txt-{to}".encode()))]

    def _delete(self, root: Path) -> list[Piece]:
        path = self._free([f"gone{n}.txt" for n in range(6)])
        if not path:
            return []
        (root / path).unlink()
        return [Piece("deleted file", path, is_gone(path), (path,), (b"a/" + path.encode(), b"deleted file mode"))]

    def _rename(self, root: Path) -> list[Piece]:
        path = self._free([f"old{n}.txt" for n in range(6)])
        if not path:
            return []
        token = self.token()
        to = f"{self.dice.choice(['', 'moved/'])}{token}-{path}"
        (root / to).parent.mkdir(exist_ok=True)
        (root / path).rename(root / to)
        found = [
            Piece(
                "renamed file",
                f"{path} to {to}",
                lambda v: v.get(path) is None and has_text(to, "line 20")(v),
                (to, token),
            ),
        ]
        if self.dice.random() < 0.5:
            line = self.token()
            self._replace(root / to, f"{path[:4]} line 9", f"{line} in a renamed file\n")
            found.append(Piece("added line", line, has_text(to, line), (line, to)))
        found[0].marks = (f"rename from {path}".encode(),)
        return found

    def _mode(self, root: Path) -> list[Piece]:
        path = self._free([f"tool{n}.sh" for n in range(6)])
        if not path:
            return []
        (root / path).chmod(0o755)
        return [Piece("mode change", path, is_kind(path, "exec"), (path,), (b"a/" + path.encode(), b"new mode 100755"))]

    def _binary(self, root: Path) -> list[Piece]:
        path = self._free([f"data{n}.bin" for n in range(4)])
        if not path:
            return []
        data = BINARY + self.token().encode()
        (root / path).write_bytes(data)
        return [Piece("binary change", path, has_data(path, data), (path,), (b"a/" + path.encode(),))]

    def _to_link(self, root: Path) -> list[Piece]:
        path = self._free([f"plain{n}.txt" for n in range(4)])
        if not path:
            return []
        token = self.token()
        (root / path).unlink()
        (root / path).symlink_to(token)
        holds = lambda view: view.get(path) == File("link", token.encode())  # noqa: E731
        return [Piece("symlink", path, holds, (path, token), (b"+" + token.encode(), path.encode()))]

    def _crlf(self, root: Path) -> list[Piece]:
        place = self._free(["crlf.txt 4", "crlf.txt 16"])
        if not place:
            return []
        line, token, path = f"crlf line {place.split()[1]}", self.token(), root / "crlf.txt"
        path.write_bytes(path.read_bytes().replace(f"{line}\r\n".encode(), f"{token}\r\n".encode()))
        return [
            Piece("added line", token, has_text("crlf.txt", token), (token, "crlf.txt")),
            Piece("removed line", line, lacks_line("crlf.txt", line), ("crlf.txt",), (f"-{line}\r".encode(),)),
        ]

    def _noeol(self, root: Path) -> list[Piece]:
        if not self._free(["noeol.txt"]):
            return []
        token = self.token()
        (root / "noeol.txt").write_bytes(b"noeol one\nnoeol two\n" + token.encode())
        return [Piece("added line", token, has_text("noeol.txt", token), (token, "noeol.txt"))]


EDITS = (
    "add_line", "add_line", "change_line", "change_line", "remove_line", "new_file", "new_file", "new_empty",
    "new_executable", "new_binary", "new_link", "delete", "rename", "mode", "binary", "to_link", "crlf", "noeol",
)  # fmt: skip
#: Edits of files that upstream has: git knows these paths.
TRACKED = ("add_line", "change_line", "remove_line", "delete", "mode", "binary", "to_link", "crlf", "noeol")
UNTRACKED = ("new_file", "new_empty", "new_executable", "new_binary", "new_link")


@dataclass
class Message:
    """A commit's author, date and message, whose parts are pieces."""

    text: str
    author: str
    date: str
    pieces: list[Piece]


def message(editor: Editor) -> Message:
    """Return a random message."""
    dice = editor.dice
    subject, line, second, name, who = (editor.token() for _ in range(5))
    when = 1_500_000_000 + dice.randrange(200_000_000)
    author = dice.choice(["Ann", "Ünal", "J. R."]) + f" {name}"
    text = f"{dice.choice(['', '[Core] ', 'fix: '])}Change {subject}\n\nBecause of {line}.\n\n{second}: or not.\n"
    found = [
        Piece("subject", subject, lambda v: any(subject in c.message.split("\n")[0] for c in v.commits)),
        Piece("body line", line, lambda v: any(f"Because of {line}." in c.message for c in v.commits)),
        Piece("body line", second, lambda v: any(f"{second}: or not." in c.message for c in v.commits)),
        Piece("author", name, lambda v: any(c.name.split() == author.split() for c in v.commits)),
        Piece("date", str(when), lambda v: any(c.when == when for c in v.commits), marks=(b"Date: ",)),
    ]
    if dice.random() < 0.7:
        text += f"\nReviewed-by: {who} <r@example.org>\n"
        pattern = re.compile(rf"^Reviewed-by: {who} <r@example.org>$", re.MULTILINE)
        found.append(Piece("trailer", who, lambda v: any(pattern.search(c.message) for c in v.commits)))
    return Message(text, f"{author} <{name.lower()}@example.org>", f"@{when} +0100", found)


def commit(folder: Path, said: Message, *args: str) -> None:
    """Commit what is staged, with a message's author and date."""
    git(
        folder, "commit", "-q", "--cleanup=verbatim", "--author", said.author, *args, "-F", "-", data=said.text.encode(),
        env={"GIT_AUTHOR_DATE": said.date},
    )  # fmt: skip
