"""Search for the usable CUDA toolkits of a machine.

An nvcc may exist, but be unable to compile. For example, pip's package of nvcc lacks headers that every source
includes, and a copied toolkit may lack its ptxas. A toolkit is usable if nvcc prints its version and compiles an empty
kernel to PTX, and its ptxas assembles that PTX. Unusable toolkits are reported together with the missing part.
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

#: Time limits in seconds. The first is for printing a version, the second for compiling or assembling an empty kernel.
ANSWER_S, WORK_S = 60.0, 120.0
_LONGEST = 200
_NAME_HINT = "name the nvcc of a CUDA toolkit: --nvcc PATH"
_REPAIR_HINT = "repair or remove this toolkit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """Usable nvcc, its release, its ptxas, and the PTX version that nvcc writes."""

    nvcc: str
    release: str
    ptxas: str
    ptx: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """Unusable nvcc, with the reason in ``message``. ``release`` is empty if the release isn't known."""

    nvcc: str
    release: str
    message: str
    hint: str


def toolkits(more: Sequence[str] = ()) -> tuple[list[Toolkit], list[Unusable]]:
    """Return the first usable toolkit of each release, and a list of unusable toolkits.

    Toolkits are searched on PATH, in CUDA_HOME, in /usr/local and among this Python's packages.

    :param more: Paths of nvcc to try first.
    :raises UserError: if an nvcc in ``more`` can't be used.
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
                reason = f"{place} is not a usable nvcc: {judged.message}"
                raise UserError(reason, hint=judged.hint)
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
    """Yield the usual paths of nvcc that aren't on PATH."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "nvcc"
    yield from sorted(Path("/usr/local").glob("cuda*/bin/nvcc"))
    yield from sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/nvcc"))


def judge(nvcc: str, known: Container[str] = ()) -> Toolkit | Unusable | None:
    """Test an nvcc; return None if its release is already in ``known``."""
    fault = _program_fault(nvcc)
    if fault:
        hint = "remove it from PATH, or repair the toolkit"
        return Unusable(nvcc=nvcc, release="", message=fault, hint=hint)
    try:
        text = runner.run([nvcc, "--version"], timeout=ANSWER_S).stdout.decode("utf-8", "replace")
    except runner.CommandError as error:
        message = f"it doesn't print its version: {ended(error)}"
        return Unusable(nvcc=nvcc, release="", message=message, hint=_REPAIR_HINT)
    release = re.search(r"V(\d+\.\d+\.\d+)", text)
    if not release:
        first = _short(text.strip().partition("\n")[0])
        reason = "it prints nothing"
        if first:
            reason = repr(first)
        message = f"its version can't be read: {reason}"
        return Unusable(nvcc=nvcc, release="", message=message, hint=_NAME_HINT)
    if release[1] in known:
        return None
    ptxas = str(Path(nvcc).parent / "ptxas")
    fault = _program_fault(ptxas)
    if fault:
        message = f"its ptxas ({ptxas}) {fault}"
        return Unusable(nvcc=nvcc, release=release[1], message=message, hint=_NAME_HINT)
    with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
        return _try(nvcc, release[1], ptxas, Path(folder))


def _program_fault(path: str) -> str:
    """Return the reason why a path is not a program; empty if the path is a program."""
    if not os.access(path, os.F_OK):
        if os.path.islink(path):
            return "is a broken link"
        return "doesn't exist"
    if os.path.isdir(path):
        return "is a folder, not a program"
    if not os.access(path, os.X_OK):
        return "is not executable"
    return ""


def _try(nvcc: str, release: str, ptxas: str, folder: Path) -> Toolkit | Unusable:
    """Compile an empty kernel to PTX, and assemble the PTX."""

    def unusable(message: str, hint: str) -> Unusable:
        return Unusable(nvcc=nvcc, release=release, message=message, hint=hint)

    source, made, cubin = folder / "empty.cu", folder / "empty.ptx", folder / "empty.cubin"
    source.write_text("__global__ void k() {}\n")
    try:
        runner.run([nvcc, "-ptx", "-o", str(made), str(source)], timeout=WORK_S)
    except runner.CommandError as error:
        message, hint = _missing(error)
        return unusable(f"it can't compile: {message}", hint)
    text = ""
    if made.is_file():
        text = made.read_bytes().decode("utf-8", "replace")
    version = re.search(r"^\.version\s+(\d+\.\d+)", text, re.M)
    target = re.search(r"^\.target\s+(sm_\w+)", text, re.M)
    if not version or not target:
        return unusable("it can't compile: it wrote no PTX", _REPAIR_HINT)
    broken = f"its ptxas ({ptxas}) is broken"
    try:
        runner.run([ptxas, f"-arch={target[1]}", str(made), "-o", str(cubin)], timeout=WORK_S)
    except runner.CommandError as error:
        return unusable(f"{broken}: {ended(error)}", "install the toolkit again")
    if not (cubin.is_file() and cubin.read_bytes().startswith(b"\x7fELF")):
        return unusable(f"{broken}: it wrote no cubin", "install the toolkit again")
    return Toolkit(nvcc=nvcc, release=release, ptxas=ptxas, ptx=version[1])


_HEADER = re.compile(
    r"fatal error: '?([\w./+-]+)'?(?:: No such file| file not found)"
    r"|open source file \"([\w./+-]+)\""
)
_PROGRAM = re.compile(r"(?:sh: (?:line )?\d+: |sh: )?(\S+): (?:command )?not found")
_HOST_COMPILER = re.compile(r"host compiler|execvp|\b(gcc|g\+\+|cc1plus)\b.*No such file")


def _missing(error: runner.CommandError) -> tuple[str, str]:
    """Return what a compiler lacks to compile an empty kernel, and a hint."""
    output = (error.stderr + b"\n" + error.stdout).decode("utf-8", "replace")
    header = _HEADER.search(output)
    if header:
        hint = "install the whole toolkit: pip's nvcc package has only the compiler"
        return f"its header {header[1] or header[2]} doesn't exist", hint
    program = _PROGRAM.search(output)
    if program:
        return f"its {Path(program[1]).name} doesn't exist", "install the whole toolkit"
    if _HOST_COMPILER.search(output):
        return f"it has no host compiler ({ended(error)})", "install g++"
    return ended(error), "run `nvcc -ptx` on an empty kernel by hand to see more"


def ended(error: runner.CommandError) -> str:
    """Return the reason why a program failed, on one line: its first error message, its signal or its exit code."""
    if error.code < 0:
        try:
            return f"it was killed by {signal.Signals(-error.code).name}"
        except ValueError:
            return f"it was killed by signal {-error.code}"
    output = error.output or error.stdout.decode("utf-8", "replace")
    lines = []
    for line in output.splitlines():
        if line.strip():
            lines.append(line.strip())
    for line in lines:
        if "error" in line or "fatal" in line:
            return _short(line)
    if lines:
        return _short(lines[-1])
    return f"it ended with {error.code} and printed nothing"


def _short(text: str) -> str:
    shown = show_path(text.encode("utf-8", "replace"))
    if len(shown) <= _LONGEST:
        return shown
    return shown[:_LONGEST] + "…"
