"""The CUDA toolkits of a machine, each tried before it is trusted: an nvcc may be there and compile nothing.

pip's package of nvcc brings the compiler without the headers that it includes in every source; a copied
toolkit may lack its ptxas. So each is asked for its version, for PTX of an empty kernel, and its ptxas for a
cubin of that. What can't do all three is named with what is missing, and the others are asked.
"""

from __future__ import annotations

import os
import re
import signal
import sysconfig
import tempfile
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import UserError
from patchq.names import show_path
from patchq.system import runner

#: Seconds for a program to say its version, and to compile or assemble an empty kernel.
ANSWER_S, WORK_S = 60.0, 120.0
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Toolkit:
    """An nvcc, its release, the ptxas that belongs to it, and the newest PTX that both know."""

    nvcc: str
    release: str
    ptxas: str
    ptx: str = ""


@dataclass(frozen=True, slots=True)
class Unusable:
    """An nvcc that was found and can't be asked: ``said`` is what is wrong with it.

    ``release`` is empty where it doesn't even say that.
    """

    nvcc: str
    release: str
    said: str
    hint: str


def toolkits(more: Sequence[str] = ()) -> tuple[list[Toolkit], list[Unusable]]:
    """The toolkits found, the first usable one of each release, and the compilers that aren't usable.

    Looked at are those named, on PATH, in CUDA_HOME, in /usr/local and among this Python's packages.

    :raises UserError: if a named one can't be used.
    """
    found: dict[str, Toolkit] = {}
    unusable = []
    seen: set[str] = set()
    for number, place in enumerate([*map(Path, more), *_places()]):
        named = number < len(more)
        real = os.path.realpath(place)
        if real in seen or not (named or os.path.lexists(place)):
            continue
        seen.add(real)
        judged = judge(real, known=found)
        if isinstance(judged, Unusable):
            if named:
                raise UserError(f"{place} is no nvcc with a ptxas beside it: {judged.said}", hint=judged.hint)
            unusable.append(judged)
        elif judged:
            found[judged.release] = judged
    return list(found.values()), unusable


def _places() -> Iterator[Path]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder) / "nvcc"
    yield from _installed()


def _installed() -> Iterator[Path]:
    """Where toolkits are that nobody put on PATH."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "nvcc"
    yield from sorted(Path("/usr/local").glob("cuda*/bin/nvcc"))
    yield from sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/nvcc"))


def judge(nvcc: str, known: Container[str] = ()) -> Toolkit | Unusable | None:
    """Try an nvcc; None where its release is among the ``known`` and needs no second one."""
    if wrong := _no_program(nvcc):
        return Unusable(nvcc, "", wrong, "take it off PATH, or mend the toolkit")
    try:
        text = runner.run([nvcc, "--version"], timeout=ANSWER_S).stdout.decode("utf-8", "replace")
    except runner.CommandError as error:
        return Unusable(nvcc, "", f"it doesn't tell its version: {ended(error)}", "mend or remove this toolkit")
    release = re.search(r"V(\d+\.\d+\.\d+)", text)
    if not release:
        first = _short(text.strip().partition("\n")[0])
        said = f"its version can't be read: {first!r}" if first else "its version can't be read: it says nothing"
        return Unusable(nvcc, "", said, "name the nvcc of a CUDA toolkit: --nvcc PATH")
    if release[1] in known:
        return None
    ptxas = str(Path(nvcc).parent / "ptxas")
    if wrong := _no_program(ptxas):
        return Unusable(
            nvcc, release[1], f"its ptxas ({ptxas}) {wrong}", "name the nvcc of a CUDA toolkit: --nvcc PATH"
        )
    with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
        return _try(nvcc, release[1], ptxas, Path(folder))


def _no_program(path: str) -> str:
    if not os.access(path, os.F_OK):
        return "is a link to nothing" if os.path.islink(path) else "is not there"
    if os.path.isdir(path):
        return "is a folder, not a program"
    return "" if os.access(path, os.X_OK) else "is not executable"


def _try(nvcc: str, release: str, ptxas: str, folder: Path) -> Toolkit | Unusable:
    """Compile an empty kernel to PTX, and assemble that."""
    source, made, cubin = folder / "empty.cu", folder / "empty.ptx", folder / "empty.cubin"
    source.write_text("__global__ void k() {}\n")
    try:
        runner.run([nvcc, "-ptx", "-o", str(made), str(source)], timeout=WORK_S)
    except runner.CommandError as error:
        said, hint = _missing(error)
        return Unusable(nvcc, release, f"it can't compile: {said}", hint)
    text = made.read_bytes().decode("utf-8", "replace") if made.is_file() else ""
    version = re.search(r"^\.version\s+(\d+\.\d+)", text, re.M)
    target = re.search(r"^\.target\s+(sm_\w+)", text, re.M)
    if not version or not target:
        return Unusable(nvcc, release, "it can't compile: it wrote no PTX", "mend or remove this toolkit")
    broken = f"its ptxas ({ptxas}) is broken: "
    try:
        runner.run([ptxas, f"-arch={target[1]}", str(made), "-o", str(cubin)], timeout=WORK_S)
    except runner.CommandError as error:
        return Unusable(nvcc, release, broken + ended(error), "install the toolkit again")
    if not (cubin.is_file() and cubin.read_bytes().startswith(b"\x7fELF")):
        return Unusable(nvcc, release, f"{broken}it wrote no cubin", "install the toolkit again")
    return Toolkit(nvcc, release, ptxas, version[1])


_HEADER = re.compile(r"fatal error: '?([\w./+-]+)'?(?:: No such file| file not found)|open source file \"([\w./+-]+)\"")
_PROGRAM = re.compile(r"(?:sh: (?:line )?\d+: |sh: )?(\S+): (?:command )?not found")


def _missing(error: runner.CommandError) -> tuple[str, str]:
    """What a compiler that failed on an empty kernel lacks, and what to do about it."""
    said = (error.stderr + b"\n" + error.stdout).decode("utf-8", "replace")
    if header := _HEADER.search(said):
        hint = "install the whole toolkit: pip's nvcc package is the compiler alone"
        return f"its header {header[1] or header[2]} is not there", hint
    if program := _PROGRAM.search(said):
        return f"its {Path(program[1]).name} is not there", "install the whole toolkit"
    if "host compiler" in said or "execvp" in said or re.search(r"\b(gcc|g\+\+|cc1plus)\b.*No such file", said):
        return f"it has no host compiler ({ended(error)})", "install g++"
    return ended(error), "run `nvcc -ptx` on an empty kernel by hand to see more"


def ended(error: runner.CommandError) -> str:
    """How a program failed, in a line: what it said of an error, or the signal or code that it ended with."""
    if error.code < 0:
        try:
            return f"it was killed by {signal.Signals(-error.code).name}"
        except ValueError:
            return f"it was killed by signal {-error.code}"
    lines = [line for line in (error.said or error.stdout.decode("utf-8", "replace")).splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line or "fatal" in line] or lines[-1:]
    return _short(telling[0].strip()) if telling else f"it ended with {error.code} and said nothing"


def _short(text: str) -> str:
    shown = show_path(text.encode("utf-8", "replace"))
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
