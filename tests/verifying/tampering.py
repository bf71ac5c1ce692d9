"""What a tamper is: a change after which the interpreter runs other code than was built, or a claim is false."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import marshal
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verifying.project import Built, extension
from verifying.rootfs import HANG, VERSION, Environment, record_row, rows_text
from verifying.verbs import BOTH, Verb

Change = Callable[[Environment, Built], None]
Show = Callable[[Environment], str]

#: The standard library, and what a process looks into before it.
STDLIB = f"/usr/local/lib/python{VERSION}"
ARCHIVE = f"/usr/local/lib/python{VERSION.replace('.', '')}.zip"
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


@dataclass(frozen=True, kw_only=True)
class Tamper:
    """A change, the commands that must refuse it, and what shows that it isn't harmless."""

    name: str
    change: Change
    verbs: Sequence[Verb]
    base: str
    #: What is another output in the changed environment than in its base.
    shows: Show
    #: Why the image's claim is false, where running it shows nothing.
    claim: str


TAMPERS: list[Tamper] = []


def probed(environment: Environment) -> str:
    """Return what the interpreter gets of the packages."""
    return environment.probe()


def tamper(
    *, verbs: Sequence[Verb] = BOTH, base: str = "served", shows: Show = probed, claim: str = ""
) -> Callable[[Change], Change]:
    """Register a tamper under its function's name."""

    def register(change: Change) -> Change:
        TAMPERS.append(Tamper(name=change.__name__, change=change, verbs=verbs, base=base, shows=shows, claim=claim))
        return change

    return register


def mark(what: str = "ran") -> str:
    """Return a line of code whose execution the probe sees."""
    return f"import sys; sys.tampered = {what!r}\n"


def other_copy(environment: Environment, folder: str) -> str:
    """Make a folder with a changed copy of the package, as a container names it; return its path."""
    source = environment.packages / "lib"
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            environment.write(f"{folder}/lib/{path.relative_to(source)}", path.read_bytes())
    environment.replace(f"{folder}/lib/core.py", "return 42", "return 13")
    return folder


def unpack_wheel(environment: Environment, wheel: Path, folder: str, wanted: str = "") -> None:
    """Write a wheel's files into a folder, without a word in any RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(wanted) and not name.endswith("/"):
                environment.write(f"{folder}/{name}", archive.read(name))


def make_wheel(folder: Path, name: str, files: dict[str, str | bytes], entry_points: str = "") -> Path:
    """Write a wheel of another distribution."""
    info = f"{name}-1.0.dist-info"
    contents = {key: value.encode() if isinstance(value, str) else value for key, value in files.items()}
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    contents[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if entry_points:
        contents[f"{info}/entry_points.txt"] = entry_points.encode()
    rows = [record_row(key, data) for key, data in contents.items()]
    contents[f"{info}/RECORD"] = rows_text([*rows, [f"{info}/RECORD", "", ""]]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for key, data in contents.items():
            archive.writestr(key, data)
    return path


def install_distribution(
    environment: Environment, name: str, files: dict[str, str | bytes], entry_points: str = ""
) -> None:
    """Install another distribution by pip."""
    wheel = make_wheel(environment.root.parent / "wheels", name, files, entry_points)
    environment.pip("--no-compile", wheel)


def cache_of(source: Path, level: str = "") -> Path:
    """Return where Python keeps a module's compiled cache."""
    return Path(importlib.util.cache_from_source(str(source), optimization=level))


def write_cache(environment: Environment, path: Path, code: str, source: Path | None, flags: int = 0) -> None:
    """Write a compiled cache of some code: as of a source's time and size, or by its hash (flags 3), or unchecked (1)."""
    compiled = marshal.dumps(compile(code, str(source or path).removeprefix(str(environment.root)), "exec"))
    if flags:
        head = importlib.util.source_hash(source.read_bytes() if source else b"")
    else:
        status = source.stat() if source else None
        times = (int(status.st_mtime), status.st_size) if status else (0, 0)
        head = b"".join(number.to_bytes(4, "little") for number in times)
    data = importlib.util.MAGIC_NUMBER + flags.to_bytes(4, "little") + head + compiled
    environment.write("/" + str(path.relative_to(environment.root)), data)


def remove_caches(environment: Environment, module: str = "core") -> None:
    """Remove the compiled caches of a module of the package."""
    for path in (environment.packages / "lib" / "__pycache__").glob(f"{module}.*"):
        path.unlink()


def ran_by_shell(environment: Environment, *command: str) -> str:
    """Return the output of the system's shell with a container's variables."""
    done = subprocess.run(command, env=environment.environ(), capture_output=True, text=True, timeout=HANG, check=False)
    return done.stdout


def console_script(environment: Environment) -> str:
    """Return the output of the package's console script."""
    return environment.run(program=str(Path(environment.python).with_name("lib"))).stdout


def native_library() -> bytes:
    """Return a library that isn't the package's."""
    return extension("_lsprof")
