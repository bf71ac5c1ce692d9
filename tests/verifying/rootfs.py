"""Root file systems with a Python and the patched wheels, as folders that run and as images of them.

A base is made once. A test gets a copy whose files are hard links, so that a copy costs little, and a file is changed
if its inode is another one. Files are therefore replaced, never written in place: use ``Environment.write``.

The copy runs where it lies: its ``pyvenv.cfg``, links and scripts name absolute places. ``Environment.relocated``
makes what `docker build` would have left of it, with the places as the container has them.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import io
import marshal
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import types
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
#: Parts of the standard library that slim images lack, too.
LEFT_OUT = (
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "pydoc_data",
    "unittest",
    "msilib",
    "wsgiref",
    "curses",
    "dbm",
    "sqlite3",
)
HANG = 300
#: What a container's process gets unless its image says otherwise.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: What of the packages a process would get. Prints JSON; what can't be had is its error.
PROBE = """
import importlib, json, sys

def attempt(get):
    try:
        return get()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"

def called(module, name):
    return attempt(lambda: getattr(importlib.import_module(module), name)())

def value(module, name):
    return attempt(lambda: getattr(importlib.import_module(module), name))

found = {"tampered": getattr(sys, "tampered", None)}
for name in ("lib", "app"):
    found[name] = {
        "answer": called(name, "answer"), "table": called(name + ".table", "table"),
        "kernels": called(name + ".native", "kernels"), "plugins": called(name + ".plugins", "load"),
        "queue": value(name + "._queue", "kind"), "deep": value(name + ".sub.deep", "depth"),
        "version": attempt(lambda: importlib.import_module("importlib.metadata").version(name)),
        "path": attempt(lambda: [str(p) for p in importlib.import_module(name).__path__]),
    }
found["tampered"] = getattr(sys, "tampered", None)
print(json.dumps(found, sort_keys=True))
"""


def link_tree(source: Path, target: Path) -> None:
    """Copy a folder, each file as a hard link."""
    for name, _, files in os.walk(source):
        folder = Path(name)
        here = target / folder.relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        shutil.copymode(folder, here)
        with os.scandir(folder) as entries:
            linked = [entry.name for entry in entries if entry.is_symlink()]
        for file in {*files, *linked}:
            os.link(folder / file, here / file, follow_symlinks=False)


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Each path below a folder in order, folders before what they hold."""
    for name in sorted(os.listdir(root)):
        path = root / name
        status = path.lstat()
        yield name, status
        if stat.S_ISDIR(status.st_mode):
            yield from ((f"{name}/{below}", found) for below, found in walk(path))


def copy_python(root: Path, prefix: str = "usr/local", stdlib: Path | None = None) -> None:
    """Copy the running interpreter's installation, without what slim images lack."""
    source = stdlib or Path(os.__file__).parent
    version = source.name.removeprefix("python")
    target = root / prefix

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [n for n in names if n in LEFT_OUT or n.startswith("config-") or ".opt-" in n]

    shutil.copytree(source, target / "lib" / source.name, symlinks=False, ignore=ignored, ignore_dangling_symlinks=True)
    (target / "bin").mkdir(parents=True, exist_ok=True)
    program = Path(sys.executable).resolve() if stdlib is None else Path(f"/usr/bin/python{version}")
    shutil.copy2(program, target / "bin" / f"python{version}")
    for name in ("python3", "python"):
        (target / "bin" / name).symlink_to(f"python{version}")
    shared = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
    if stdlib is None and shared.is_file() and ".so" in shared.name:
        shutil.copy2(shared, target / "lib" / shared.name)


def make_system(root: Path) -> None:
    """Make what any base image has: merged /usr, accounts, the dynamic linker's configuration."""
    for folder in (
        "usr/bin",
        "usr/sbin",
        "usr/lib/x86_64-linux-gnu",
        "etc/ld.so.conf.d",
        "root",
        "home/serve",
        "tmp",
        "opt",
        "srv",
    ):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib"):
        (root / name).symlink_to(f"usr/{name}")
    files = {
        "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nserve:x:1000:1000::/home/serve:/bin/sh\n",
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
        "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
        "etc/ld.so.conf.d/libc.conf": "# libc default configuration\n/usr/local/lib\n",
        "usr/bin/dash": "\x7fELF not really\n",
        "usr/lib/x86_64-linux-gnu/libc.so.6": "\x7fELF not really\n",
    }
    for name, text in files.items():
        (root / name).write_text(text)
    (root / "usr/bin/sh").symlink_to("dash")


@dataclass(kw_only=True)
class Environment:
    """A root file system and what its image's configuration says."""

    root: Path
    #: The interpreter that the image runs, as its container names it.
    python: str
    #: ``site-packages`` that the wheels are in, likewise.
    site: str
    variables: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    directory: str = ""
    user: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    #: Layers that were written by hand, on top.
    layers: list[bytes] = field(default_factory=list)
    #: What it is a copy of.
    base: Base | None = None

    def path(self, name: str) -> Path:
        """Return where in the copy a path of the container lies."""
        return self.root / name.lstrip("/")

    @property
    def packages(self) -> Path:
        return self.path(self.site)

    def write(self, name: str | Path, data: str | bytes, mode: int | None = None) -> Path:
        """Replace or make a file, given by its path in the container or below ``site-packages``."""
        path = self.packages / name if not str(name).startswith("/") else self.path(str(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.exists():
            mode = mode if mode is not None else stat.S_IMODE(path.stat().st_mode)
            path.unlink()
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        path.chmod(0o644 if mode is None else mode)
        return path

    def replace(self, name: str, old: str, new: str) -> Path:
        """Change a file's text."""
        path = self.packages / name if not name.startswith("/") else self.path(name)
        text = path.read_text()
        assert old in text, f"{old} is not in {name}"
        return self.write(name, text.replace(old, new))

    def info(self, distribution: str = "lib") -> Path:
        """Return the metadata folder of a distribution."""
        (found,) = self.packages.glob(f"{distribution}-*.dist-info")
        return found

    def record(self, name: str, distribution: str = "lib") -> None:
        """Make RECORD agree with a file: its row anew, or one more."""
        record = self.info(distribution) / "RECORD"
        data = (self.packages / name).read_bytes()
        rows = [row for row in csv.reader(record.read_text().splitlines()) if row[0] != name]
        self.write(record.relative_to(self.packages), rows_text([*rows, record_row(name, data)]))

    def forget(self, name: str, distribution: str = "lib") -> None:
        """Take a file's row out of RECORD."""
        record = self.info(distribution) / "RECORD"
        rows = csv.reader(record.read_text().splitlines())
        self.write(record.relative_to(self.packages), rows_text([row for row in rows if row[0] != name]))

    def environ(self) -> dict[str, str]:
        """Return a container's variables, with the places of this copy."""
        given = {"PATH": PATH, **self.variables}
        home = "/home/serve" if self.user else "/root"
        translated = {"HOME": str(self.path(home))}
        for name, value in given.items():
            parts = value.split(":")
            moved = [str(self.path(part)) if part.startswith("/") and self.within(part) else part for part in parts]
            translated[name] = ":".join(moved)
        return {**translated, "PATH": f"{translated['PATH']}:{os.environ['PATH']}"}

    def within(self, name: str) -> bool:
        """Whether a path is one of the root file system, which all but the kernel's and devices' are."""
        return not name.startswith(("/proc", "/dev", "/sys"))

    def run(self, *arguments: str, program: str = "", text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the interpreter as a container would."""
        command = [str(self.path(program or self.python)), *arguments]
        env = {"PYTHONDONTWRITEBYTECODE": "1", **self.environ()}
        where = self.path(self.directory or "/")
        return subprocess.run(
            command, env=env, cwd=where, input=text, capture_output=True, text=True, timeout=HANG, check=False
        )

    def probe(self) -> str:
        """Return what of the packages a process of the container would get."""
        done = self.run("-c", PROBE)
        return (done.stdout or f"{done.returncode}: {done.stderr}").replace(str(self.root), "")

    def pip(self, *arguments: str | Path, python: str = "") -> None:
        """Run this Python's pip for the environment's interpreter."""
        command = [sys.executable, "-m", "pip", "--python", str(self.path(python or self.python))]
        command += ["install", "-q", "--no-index", "--no-deps", "--no-warn-script-location", *map(str, arguments)]
        env = {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **self.environ()}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def add_distribution(self, name: str) -> None:
        """Install a distribution of the Python that runs the tests, as it is there."""
        distribution = importlib.metadata.distribution(name)
        base = Path(str(distribution.locate_file("")))
        for file in distribution.files or ():
            source = (base / file).resolve()
            if base in source.parents and source.is_file() and "__pycache__" not in source.parts:
                target = self.packages / source.relative_to(base)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
            elif source.parent == Path(sys.executable).parent:
                script = source.read_text().split("\n", 1)
                self.write(
                    f"{Path(self.python).parent}/{source.name}", f"#!{self.path(self.python)}\n{script[1]}", 0o755
                )

    def relocated(self, target: Path) -> Path:
        """Copy the root file system with the places that a container has, as `docker build` would have made it."""
        place = str(self.root)
        changed: dict[Path, tuple[bytes, bytes]] = {}
        target.mkdir()
        for name, status in walk(self.root):
            here, there = self.root / name, target / name
            if stat.S_ISDIR(status.st_mode):
                there.mkdir(parents=True)
                there.chmod(stat.S_IMODE(status.st_mode))
            elif stat.S_ISLNK(status.st_mode):
                there.symlink_to(os.readlink(here).replace(place, "") or "/")
            elif not stat.S_ISREG(status.st_mode):
                os.mkfifo(there)
            elif self.base is not None and same_file(self.base.root / name, status):
                os.link(self.base.moved / name, there)
            else:
                data = here.read_bytes()
                new = relocated_code(data, here, place) if name.endswith(".pyc") else data.replace(place.encode(), b"")
                there.write_bytes(new)
                shutil.copystat(here, there)
                if new != data:
                    changed[there] = (data, new)
        recorded_anew(target, changed)
        if self.base is not None:
            self._share(target, self.base.moved)
        return target

    def _share(self, target: Path, moved: Path) -> None:
        """Make files that are as in the base's image the same files."""
        for name, status in walk(target):
            other = moved / name
            if (
                not stat.S_ISREG(status.st_mode)
                or other.is_symlink()
                or not other.is_file()
                or other.samefile(target / name)
            ):
                continue
            if other.stat().st_mode == status.st_mode and other.read_bytes() == (target / name).read_bytes():
                (target / name).unlink()
                os.link(other, target / name)


@dataclass(frozen=True, kw_only=True)
class Base:
    """An environment that others are copies of."""

    environment: Environment
    #: The same as a container has it.
    moved: Path
    #: Files and links that name the place that they lie in.
    named: tuple[str, ...]

    @property
    def root(self) -> Path:
        return self.environment.root

    def copy(self, root: Path) -> Environment:
        """Copy the environment, to be changed."""
        link_tree(self.root, root)
        old, new = str(self.root), str(root)
        changed: dict[Path, tuple[bytes, bytes]] = {}
        for name in self.named:
            path = root / name
            if path.is_symlink():
                target = os.readlink(path).replace(old, new)
                path.unlink()
                path.symlink_to(target)
                continue
            data, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
            path.unlink()
            path.write_bytes(data.replace(old.encode(), new.encode()))
            path.chmod(mode)
            changed[path] = (data, path.read_bytes())
        recorded_anew(root, changed)
        return dataclasses.replace(
            self.environment, root=root, base=self, variables=dict(self.environment.variables),
            labels=dict(self.environment.labels), layers=list(self.environment.layers),
        )  # fmt: skip


def make_base(environment: Environment, moved: Path) -> Base:
    """Make an environment a base; it must not change from now on."""
    place = str(environment.root)
    environment.relocated(moved)
    named = []
    for name, status in walk(environment.root):
        path = environment.root / name
        if stat.S_ISLNK(status.st_mode):
            if place in os.readlink(path):
                named.append(name)
        elif stat.S_ISREG(status.st_mode) and not name.endswith(".pyc") and place.encode() in path.read_bytes():
            named.append(name)
    return Base(environment=environment, moved=moved, named=tuple(named))


def same_file(path: Path, status: os.stat_result) -> bool:
    """Whether a path is a name of that very file."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        return (found.st_ino, found.st_dev) == (status.st_ino, status.st_dev)
    return False


def relocated_code(data: bytes, path: Path, root: str) -> bytes:
    """Return a compiled cache with the place in it that a container has; what isn't honest only has its names changed."""
    try:
        code = marshal.loads(data[16:])
    except (ValueError, EOFError, TypeError):
        return data
    if (
        data[:4] != importlib.util.MAGIC_NUMBER
        or not isinstance(code, types.CodeType)
        or not code.co_filename.startswith(root)
    ):
        return data
    moved = code.co_filename.removeprefix(root)
    source = Path(code.co_filename)
    level = int(path.name.split(".opt-")[1][0]) if ".opt-" in path.name else 0
    if source.is_file():
        try:
            compiled = compile(source.read_bytes(), code.co_filename, "exec", dont_inherit=True, optimize=level)
            if compiled == code:
                code = compile(source.read_bytes(), moved, "exec", dont_inherit=True, optimize=level)
                return data[:16] + marshal.dumps(code)
        except (SyntaxError, ValueError):
            pass
    return data[:16] + marshal.dumps(renamed_code(code, moved))


def renamed_code(code: types.CodeType, name: str) -> types.CodeType:
    """Return code, and what is in it, as of a file of another name."""
    constants = tuple(renamed_code(c, name) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=name, co_consts=constants)


def recorded_anew(root: Path, changed: Mapping[Path, tuple[bytes, bytes]]) -> None:
    """Give the rows that RECORD files have of changed files the new hashes, where they had the old ones."""
    for record in root.rglob("*.dist-info/RECORD") if changed else ():
        with contextlib.suppress(UnicodeDecodeError, csv.Error):
            _rows_anew(record, changed)


def _rows_anew(record: Path, changed: Mapping[Path, tuple[bytes, bytes]]) -> None:
    rows = list(csv.reader(record.read_text().splitlines()))
    anew, found = [], False
    for row in rows:
        path = Path(os.path.normpath(record.parent.parent / row[0])) if row else record
        old, new = changed.get(path, (b"", b""))
        if new and row[1:] == record_row(row[0], old)[1:]:
            row, found = record_row(row[0], new), True
        anew.append(row)
    if found:
        record.unlink()
        record.write_text(rows_text(anew))


def record_row(name: str, data: bytes) -> list[str]:
    """Return RECORD's row of a file."""
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return [name, f"sha256={digest}", str(len(data))]


def rows_text(rows: Iterable[list[str]]) -> str:
    """Return rows of RECORD as its text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
