"""The canary and the judge of the hostile corpus.

A case makes a hostile input in a world of its own and names the command lines that meet it. The judge then looks at
everything around the project: nothing may have been executed, read, written or printed that the input asked for.
"""

from __future__ import annotations

import ctypes
import enum
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import stat
import struct
import subprocess
import sys
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit import ROOT

#: Exit codes that docs/reference/json.md explains, without 4, a bug, and 130, an interrupt.
EXPLAINED = frozenset({0, 1, 2, 3, 5, 6})
#: Seconds of processor time that one command may take, with all that it starts.
CPU_SECONDS = 10.0
#: Seconds after which a command hangs. Far above CPU_SECONDS: a busy machine is no fault of a command.
HANG_SECONDS = 60.0
#: Memory that one process may take, and disk that a case may leave.
MEMORY = 1 << 30
DISK = 512 << 20
#: Programs that hostile settings name, put first in PATH. Each leaves a mark.
TRAPS = ("trap", "ssh", "less", "more", "vi", "vim", "nano", "emacs", "gpg", "gpg2", "gh", "xdg-open", "curl", "wget")
#: Bidirectional classes of characters that change the order of others.
TURNS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
#: The function that a case's text would have a page call.
SCRIPT_MARK = "pwned"


class Base(enum.Enum):
    """What a case's world holds before its input is made."""

    EMPTY = "empty"
    STACK = "stack"
    WHEELS = "wheels"


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the commands of a case are run, where that is not the usual way."""

    environment: dict[str, str] = field(default_factory=dict)
    stdin: str | None = "/dev/null"
    stdout: str | None = ""
    stderr: str | None = ""
    cwd: str = "{project}"
    remove_cwd: bool = False
    umask: int = 0o022
    terminal: bool = False
    process: tuple[str, ...] = ()
    unprivileged: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """One hostile input.

    :param make: writes the input into a world.
    :param verbs: command lines that meet it; ``{out}``, ``{inputs}`` … are the world's folders.
    :param runs: traps that a verb may run by its documentation, such as ``gpg`` for a keyring.
    :param opens: names of secret files that may be opened by its documentation; what they say may go nowhere.
    """

    name: str
    make: Callable[[World], object]
    verbs: tuple[str, ...]
    base: Base = Base.STACK
    runs: frozenset[str] = frozenset()
    opens: frozenset[str] = frozenset()
    way: Way = Way()


@dataclass
class Ran:
    """One command line and what came of it."""

    line: str
    code: int
    hung: bool
    wall: float
    cpu: float
    memory: int
    left: list[str]
    output: bytes

    def __str__(self) -> str:
        text = self.output[:3000].decode("utf-8", "backslashreplace")
        text = "".join(c if shown(c) else ascii(c)[1:-1] for c in text)
        return f"$ patchq {self.line}\n{text}[exit {self.code}, {self.cpu:.2f} s of processor, {self.wall:.2f} s]"


def shown(char: str) -> bool:
    """Return whether a terminal shows a character and doesn't obey it."""
    return char in "\n\t" or char.isprintable() or unicodedata.category(char) == "Zs"


class World:
    """The folders around one case, at the same place for each case of a worker."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.outside = root / "outside"
        self.upstream = root / "upstream"
        self.project = root / "project"
        self.temporary = root / "tmp"
        self.programs = root / "bin"
        self.marks = root / "marks"
        self.inputs = root / "inputs"
        self.out = root / "out"
        self.cache = root / "cache"
        self.log = root / "log"
        self.index = root / "index"

    @property
    def places(self) -> dict[str, str]:
        """The folders by the names that command lines have for them."""
        return {name: str(value) for name, value in vars(self).items()}

    @property
    def private(self) -> Path:
        return self.project / ".patchq"

    @property
    def store(self) -> Path:
        return self.private / "store.git"

    @property
    def tree(self) -> Path:
        return self.private / "trees" / "up"

    @property
    def lock(self) -> Path:
        return self.project / "upstream.lock"

    @property
    def stack(self) -> Path:
        return self.project / "patches" / "up" / "v1"

    @property
    def trap(self) -> Path:
        """A program that leaves a mark when it is run."""
        return self.programs / "trap"

    @property
    def secret(self) -> Path:
        """A file outside that nobody was asked to read."""
        return self.outside / "secret.txt"

    def replace(self, old: str, new: str, path: Path | None = None, count: int = 1) -> None:
        """Replace text in a file (the lock) that must have it."""
        path = path or self.lock
        text = path.read_text()
        assert old in text, f"{path} has no {old!r}"
        path.write_text(text.replace(old, new, count))

    def append(self, text: str | bytes, path: Path | None = None) -> None:
        """Append to a file (the lock)."""
        with open(path or self.lock, "ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def write(self, path: Path, data: str | bytes, mode: int = 0o644) -> Path:
        """Write a file, with its folders."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape"))
        path.chmod(mode)
        return path

    def add_patch(self, data: bytes, name: str = "evil") -> None:
        """Add a patch file to the stack's series."""
        self.write(self.stack / f"{name}.patch", data)
        self.append(f"{name}.patch\n", self.stack / "series")

    def mark_code(self, name: str) -> str:
        """Python code that leaves a mark when it is run."""
        return f"open({str(self.marks / name)!r}, 'w').close()\n"


def _word(name: str) -> str:
    return "canary" + hashlib.sha256(f"{name} {os.urandom(16).hex()}".encode()).hexdigest()[:24]


#: Words that are in no input: where one is seen, a file was read that shouldn't have been.
SECRETS = {name: _word(name) for name in ("ssh key", "netrc", "gitconfig", "aws", "outside", "deeper", "variable")}
SECRET_FILES = {
    "home/.ssh/id_ed25519": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRETS['ssh key']}\n-----END OPENSSH PRIVATE KEY-----\n",
    "home/.netrc": f"machine 127.0.0.1 login me password {SECRETS['netrc']}\n",
    "home/.aws/credentials": f"[default]\naws_secret_access_key = {SECRETS['aws']}\n",
    "home/.gitconfig": "[user]\n\tname = Test Person\n\temail = test@example.org\n[init]\n\tdefaultBranch = main\n"
    f"[github]\n\ttoken = {SECRETS['gitconfig']}\n",
    "outside/secret.txt": f"{SECRETS['outside']}\n",
    "outside/folder/deeper.txt": f"line 1\n{SECRETS['deeper']}\n",
}  # fmt: skip


def furnish(world: World) -> None:
    """Make a world's folders, its secrets and its traps."""
    for folder in vars(world).values():
        folder.mkdir(exist_ok=True)
    world.project.rmdir()
    world.upstream.rmdir()
    for name, text in SECRET_FILES.items():
        world.write(world.root / name, text, 0o600)
    script = f'#!/bin/sh\nname=${{0##*/}}\n: > "{world.marks}/$name.$$"\nexit 0\n'
    for name in TRAPS:
        world.write(world.programs / name, script, 0o755)


def copy(source: Path, to: Path) -> None:
    """Copy a folder with all that is special in it."""
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(to)], check=True)


class Server:
    """The process that commands are forked from: see server.py."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "tools"),
                "HOME": "/nonexistent",
                "LANG": "C.UTF-8",
            },
        )

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give one order and return its answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def environment(world: World) -> dict[str, str]:
    """Return the variables that commands run with: no network, nobody's settings, a home with secrets."""
    return {
        "PATH": f"{world.programs}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(world.home),
        "LANG": "C.UTF-8",
        "TMPDIR": str(world.temporary),
        "PATCHQ_CACHE": str(world.cache),
        "PYTHONPATH": str(ROOT / "tools"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(world.index),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": "2026-01-02T03:04:05+0100",
        "NO_COLOR": "1",
        "SECRET_TOKEN": SECRETS["variable"],
    }


def run(server: Server, world: World, case: Case) -> list[Ran]:
    """Run a case's command lines, up to the first that hangs."""
    found: list[Ran] = []
    way = case.way
    for number, line in enumerate(case.verbs):
        outputs = [world.log / f"{number}.{name}" for name in ("stdout", "stderr", "shown")]
        answer = server.run({
            "arguments": [word.format(**world.places) for word in shlex.split(line)],
            "program": way.process,
            "environment": {
                **environment(world),
                **{key: value.format(**world.places) for key, value in way.environment.items()},
            },
            "stdin": way.stdin and way.stdin.format(**world.places),
            "stdout": str(outputs[0]) if way.stdout == "" else way.stdout,
            "stderr": str(outputs[1]) if way.stderr == "" else way.stderr,
            "shown": str(outputs[2]),
            "cwd": way.cwd.format(**world.places),
            "remove_cwd": way.remove_cwd,
            "umask": way.umask,
            "terminal": way.terminal,
            "unprivileged": way.unprivileged,
            "seconds": HANG_SECONDS,
        })  # fmt: skip
        output = b"".join(path.read_bytes() for path in outputs if path.exists())
        if way.terminal:
            output = output.replace(b"\r\n", b"\n")
        found.append(Ran(line=line, output=output, **answer))
        if answer["hung"]:
            break
    return found


# What is looked at before and after


def look(world: World) -> dict[str, tuple[object, ...]]:
    """Return what is around the project, and must be as it was: every file's place, kind, times and content."""
    found: dict[str, tuple[object, ...]] = {str(p.name): () for p in world.root.iterdir()}
    kept = (world.project, world.out, world.cache, world.temporary, world.marks, world.log)
    watched = [path for path in sorted(world.root.iterdir()) if path not in kept]
    for top in watched:
        for path in [top, *walk(top)]:
            there = path.lstat()
            times = () if stat.S_ISDIR(there.st_mode) else (there.st_mtime_ns, there.st_ctime_ns, there.st_nlink)
            link = os.readlink(path) if path.is_symlink() else ""
            found[os.fsdecode(path)] = (there.st_mode, there.st_ino, there.st_size, times, link)
    return found


def walk(top: Path) -> Iterator[Path]:
    """Return everything below a folder, links not followed, as far down as paths can name it."""
    folders = [os.fspath(top)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                yield Path(entry.path)
                if entry.is_dir(follow_symlinks=False) and len(os.fsencode(entry.path)) < 4000:
                    folders.append(entry.path)


IN_OPEN, IN_ISDIR = 0x20, 0x40000000


class Watch:
    """The kernel's own word on which secret files are opened, whoever opens them."""

    def __init__(self, world: World) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.file >= 0, os.strerror(ctypes.get_errno())
        self.places: dict[int, Path] = {}
        for folder in (world.home, *walk(world.home), world.outside, *walk(world.outside)):
            if folder.is_dir() and not folder.is_symlink():
                number = libc.inotify_add_watch(self.file, os.fsencode(folder), IN_OPEN)
                assert number >= 0, os.strerror(ctypes.get_errno())
                self.places[number] = folder

    def opened(self) -> list[str]:
        """Return the files that were opened. A person's .gitconfig is git's to read."""
        found: set[str] = set()
        data = b""
        while True:
            try:
                data = os.read(self.file, 1 << 16)
            except BlockingIOError:
                break
            while data:
                number, mask, _, length = struct.unpack_from("iIII", data)
                name = data[16 : 16 + length].rstrip(b"\0")
                data = data[16 + length :]
                if not mask & IN_ISDIR and number in self.places:
                    found.add(os.fsdecode(self.places[number] / os.fsdecode(name)))
        return sorted(path for path in found if not path.endswith("/.gitconfig"))

    def close(self) -> None:
        """Stop watching: a user may have 128 of these, and one is left by each case that fails otherwise."""
        os.close(self.file)


def traces(world: World) -> dict[str, tuple[int, ...]]:
    """Return the files that commands may write, to see later which are new."""
    found = {}
    for top in (world.project, world.out, world.cache):
        for path in walk(top):
            there = path.lstat()
            found[os.fsdecode(path)] = (there.st_ino, there.st_size, there.st_mtime_ns)
    return found


def leaked(data: bytes) -> list[str]:
    """Return the secrets whose words stand in data, or in what it packs."""
    return [name for name, word in SECRETS.items() if any(word.encode() in piece for piece in unpacked(data))]


def unpacked(data: bytes, depth: int = 0) -> Iterator[bytes]:
    """Return data, and what is packed in it: archives, git's objects and packs."""
    yield data
    if depth > 3:
        return
    try:
        if data[:2] == b"\x1f\x8b":
            yield from unpacked(gzip.GzipFile(fileobj=io.BytesIO(data)).read(DISK), depth + 1)
        elif data[:2] in (b"\x78\x01", b"\x78\x9c", b"\x78\xda"):
            yield zlib.decompressobj().decompress(data, DISK)
        elif data[:4] == b"PACK":
            yield from pack(data)
        elif data[:4] == b"PK\3\4":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for info in archive.infolist():
                    yield from unpacked(archive.read(info), depth + 1)
        elif data[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                for member in tar:
                    if member.isfile() and (file := tar.extractfile(member)):
                        yield from unpacked(file.read(), depth + 1)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, IndexError):
        return  # damaged by the case itself


def pack(data: bytes) -> Iterator[bytes]:
    """Return the objects of a git pack; of a delta the text that it adds."""
    at, (count,) = 12, struct.unpack(">I", data[8:12])
    for _ in range(count):
        kind = data[at] >> 4 & 7
        while data[at] & 0x80:
            at += 1
        at += 1
        if kind == 6:
            while data[at] & 0x80:
                at += 1
            at += 1
        elif kind == 7:
            at += 20
        inflate = zlib.decompressobj()
        yield inflate.decompress(data[at:])
        at = len(data) - len(inflate.unused_data)


# The judge


def judge(server: Server, world: World, case: Case) -> tuple[list[Ran], list[str]]:
    """Make a case's input, run its commands, and return them with everything that went wrong."""
    case.make(world)
    before, there = look(world), traces(world)
    with closing(Watch(world)) as watch:
        ran = run(server, world, case)
        opened = watch.opened()
    wrong = [f"a secret file was opened: {path}" for path in opened if Path(path).name not in case.opens]
    wrong += [f"{mark} was run" for mark in marks(world) if mark not in case.runs]
    wrong += [problem for one in ran for problem in faults(one)]
    if "GITHUB_ACTIONS" in case.way.environment:
        wrong += [f"{one.line}: commands the log: {line}" for one in ran for line in log_commands(one.output)]
    wrong += differences(before, look(world))
    wrong += [f"left in TMPDIR: {path}" for path in walk(world.temporary)]
    wrong += written(world, there)
    return ran, wrong


def marks(world: World) -> list[str]:
    """Return the names of the traps that left a mark."""
    return sorted({path.name.partition(".")[0] for path in world.marks.iterdir()})


def faults(one: Ran) -> list[str]:
    """Return what is wrong with how one command ended and what it printed."""
    found = []
    if one.hung:
        found.append(f"{one.line}: hangs")
    elif one.code not in EXPLAINED:
        found.append(f"{one.line}: exit code {one.code}")
    if one.cpu > CPU_SECONDS:
        found.append(f"{one.line}: {one.cpu:.1f} s of processor time")
    if one.memory > MEMORY:
        found.append(f"{one.line}: {one.memory >> 20} MiB of memory")
    found += [f"{one.line}: left running: {name[:100]}" for name in one.left]
    if re.search(rb"Traceback \(most recent|Exception ignored|\(bug\)", one.output):
        found.append(f"{one.line}: a traceback")
    try:
        text = one.output.decode()
    except UnicodeDecodeError as error:
        found.append(f"{one.line}: prints what is no UTF-8: {one.output[error.start - 20 : error.end + 20]!r}")
        text = one.output.decode(errors="replace")
    if raw := sorted({c for c in text if not shown(c)}):
        found.append(f"{one.line}: prints raw {', '.join(map(ascii, raw))}")
    found += [f"{one.line}: prints the {name}" for name in leaked(one.output)]
    return found


def log_commands(output: bytes) -> list[str]:
    """Return the lines that GitHub takes for a command, but for the annotations that patchq makes itself."""
    lines = [line.lstrip() for line in output.decode(errors="replace").splitlines()]
    return [
        line
        for line in lines
        if re.match(r"::[\w-]+.*?::|##\[", line) and not re.match(r"::(error|warning|notice) (file|title)=", line)
    ]


def differences(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> list[str]:
    """Return what was made, changed or removed outside of the project."""
    found = [f"made outside: {path}" for path in after.keys() - before.keys()]
    found += [f"removed outside: {path}" for path in before.keys() - after.keys()]
    return found + [f"changed outside: {path}" for path in before.keys() & after.keys() if before[path] != after[path]]


def written(world: World, there: dict[str, tuple[int, ...]]) -> list[str]:
    """Return what is wrong with the files that were written: secrets, links out, pages that obey, too much."""
    found, size = [], 0
    for path, now in traces(world).items():
        if there.get(path) == now:
            continue
        size += now[1]
        place = Path(path)
        kind = place.lstat().st_mode
        if stat.S_ISREG(kind) and now[1] < 64 << 20:
            data = place.read_bytes()
            found += [f"{place} holds the {name}" for name in leaked(data)]
            if place.suffix == ".html":
                found += [f"{place}: {problem}" for problem in obeyed(data.decode(errors="replace"))]
        elif not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)):
            found.append(f"{place} was made, which is no file")
    if size > DISK:
        found.append(f"{size >> 20} MiB were written")
    return found


def obeyed(page: str) -> list[str]:
    """Return the tags and attributes of an HTML page that come out of a case's text."""
    from html.parser import HTMLParser

    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            for key, value in attributes:
                text = (value or "").strip().lower()
                if key.startswith("on") or text.startswith(("javascript:", "vbscript:", "data:text")):
                    found.append(f"<{tag} {key}={value!r}>")
            if tag in ("iframe", "object", "embed", "base", "form", "meta") and SCRIPT_MARK in str(attributes):
                found.append(f"<{tag}>")

        def handle_data(self, data: str) -> None:
            if self.get_starttag_text() == "<script>" and f"{SCRIPT_MARK}()" in data:
                found.append("a script of the input's")

    Reader(convert_charrefs=False).feed(page)
    # Controls are an error in HTML, and these classes turn what stands around them around.
    if raw := sorted(
        {c for c in page if (unicodedata.category(c) == "Cc" and not shown(c)) or unicodedata.bidirectional(c) in TURNS}
    ):
        found.append(f"raw {', '.join(map(ascii, raw))}")
    return found


# Templates


def reset(top: Path, base: Base) -> World:
    """Put a fresh copy of a base's world into its place."""
    place = top / "world"
    subprocess.run(["rm", "-rf", str(place)], check=True)
    copy(top / "kept" / base.value, place)
    return World(place)
