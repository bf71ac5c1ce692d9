"""Objects to modules for any machine, and what is in them.

What a module needs of CUDA is on the machine that it is for, not here. A library without content, of that one's
name, is linked in its place: it puts the name into the module, and nothing else of a library does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.errors import BuildError
from patchq.kernels._toolchain import Toolchain
from patchq.system import runner

#: Where their names hold the toolkit's major version.
_OF_TOOLKIT = ("cudart", "nvrtc", "cublas", "cublasLt")
_MACHINES = {62: "x86_64", 183: "aarch64"}
_FATBIN = struct.pack("<I", 0xBA55ED50)


def soname(library: str, release: str) -> str:
    """The name of the library that ``-lNAME`` means at run time.

    >>> soname("cudart", "13.0"), soname("cuda", "13.0")
    ('libcudart.so.13', 'libcuda.so.1')

    :raises BuildError: for one that nobody has looked at yet.
    """
    if library in _OF_TOOLKIT:
        return f"lib{library}.so.{release.partition('.')[0]}"
    if library == "cuda":
        return "libcuda.so.1"
    raise BuildError(f"a module is linked with -l{library}, which isn't known here", hint="report it")


def link(objects: Sequence[Path], libraries: Sequence[str], target: Path, tools: Toolchain) -> None:
    """Link objects, in the order given, to a module.

    :raises BuildError: if the linker does not.
    """
    stubs = target.parent / "stubs"
    stubs.mkdir(parents=True, exist_ok=True)
    flags = []
    for flag in dict.fromkeys(("-lcudart", "-lcuda", *libraries)):
        if not flag.startswith("-l"):
            raise BuildError(f"a module is linked with {flag}, which isn't known here", hint="report it")
        name = soname(flag[2:], tools.release)
        stub = stubs / f"lib{flag[2:]}.so"
        if not stub.exists():
            _run([tools.cxx, "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-x", "c", "/dev/null", "-o", str(stub)])
        flags.append(flag)
    _run([
        tools.cxx, "-shared", "-s", "-Wl,--build-id=none", "-Wl,--no-as-needed", *map(str, objects), f"-L{stubs}",
        *flags, "-o", str(target),
    ])  # fmt: skip


def _run(argv: Sequence[str]) -> None:
    try:
        runner.run(argv)
    except runner.CommandError as error:
        raise BuildError(
            f"the linker failed: {error.said[-2000:]}", hint="is the compiler's own library there?"
        ) from None


def machine(data: bytes) -> str:
    """The platform of an ELF file; its number where it is no known one."""
    if data[:4] != b"\x7fELF":
        return "nothing that runs"
    number = struct.unpack_from("<H", data, 18)[0]
    return _MACHINES.get(number, f"machine {number}")


def targets(data: bytes) -> set[str]:
    """The architectures that a module has device code for: ``sm_121`` each, and ``compute_121`` of PTX."""
    found = set()
    start = data.find(_FATBIN)
    while start >= 0:
        _, _, head, size = struct.unpack_from("<IHHQ", data, start)
        at, end = start + head, min(start + head + size, len(data))
        while at + 32 <= end:
            kind, _, own, length = struct.unpack_from("<HHIQ", data, at)
            arch = struct.unpack_from("<I", data, at + 28)[0]
            if kind not in (1, 2) or own < 32:
                break
            found.add(f"{'compute' if kind == 1 else 'sm'}_{arch}")
            at += own + length
        start = data.find(_FATBIN, start + 4)
    return found


def glibc(modules: Mapping[str, bytes]) -> int:
    """The least glibc, its second number, that has all that the modules ask of it; 17, the oldest there is on both."""
    return max(17, *(int(n) for data in modules.values() for n in re.findall(rb"GLIBC_2\.(\d+)\b", data)), 0)
