"""Link modules for any machine, and inspect linked modules.

The CUDA libraries of the target machine aren't needed to link a module. The module stores only a library's soname, so
an empty library with the same soname is linked instead.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.errors import BuildError
from patchq.kernels._toolchain import Toolchain
from patchq.system import runner

#: Libraries whose sonames contain the toolkit's major version.
_OF_TOOLKIT = ("cudart", "nvrtc", "cublas", "cublasLt")
_MACHINES = {62: "x86_64", 183: "aarch64"}
_FATBIN = struct.pack("<I", 0xBA55ED50)
#: Oldest glibc on both machines: 2.17.
_OLDEST_GLIBC = 17


def soname(library: str, release: str) -> str:
    """Return the soname of the library that ``-lNAME`` links.

    >>> soname("cudart", "13.0"), soname("cuda", "13.0")
    ('libcudart.so.13', 'libcuda.so.1')

    :raises BuildError: for an unknown library.
    """
    if library in _OF_TOOLKIT:
        return f"lib{library}.so.{release.partition('.')[0]}"
    if library == "cuda":
        return "libcuda.so.1"
    raise _unknown(f"-l{library}")


def _unknown(flag: str) -> BuildError:
    return BuildError(f"a module is linked with {flag}, which isn't supported", hint="report it")


def link(objects: Sequence[Path], libraries: Sequence[str], target: Path, tools: Toolchain) -> None:
    """Link objects, in the given order, to a module.

    :raises BuildError: if the linker fails or a flag is unknown.
    """
    stubs = target.parent / "stubs"
    stubs.mkdir(parents=True, exist_ok=True)
    flags = []
    for flag in dict.fromkeys(("-lcudart", "-lcuda", *libraries)):
        if not flag.startswith("-l"):
            raise _unknown(flag)
        name = soname(flag[2:], tools.release)
        stub = stubs / f"lib{flag[2:]}.so"
        if not stub.exists():
            argv = [tools.cxx, "-shared", "-nostdlib", f"-Wl,-soname,{name}"]
            _run([*argv, "-x", "c", "/dev/null", "-o", str(stub)])
        flags.append(flag)
    argv = [tools.cxx, "-shared", "-s", "-Wl,--build-id=none", "-Wl,--no-as-needed"]
    argv += map(str, objects)
    _run([*argv, f"-L{stubs}", *flags, "-o", str(target)])


def _run(argv: Sequence[str]) -> None:
    try:
        runner.run(argv)
    except runner.CommandError as error:
        raise BuildError(
            f"the linker failed: {error.output[-2000:]}", hint="check that the compiler's libraries are installed"
        ) from None


def machine(data: bytes) -> str:
    """Return the platform of an ELF file; for an unknown platform, ``machine NUMBER``."""
    if data[:4] != b"\x7fELF":
        return "no machine"
    number = struct.unpack_from("<H", data, 18)[0]
    return _MACHINES.get(number, f"machine {number}")


def targets(data: bytes) -> set[str]:
    """Return the architectures of a module's device code: ``sm_121``, or ``compute_121`` for PTX."""
    prefixes = {1: "compute", 2: "sm"}
    found = set()
    start = data.find(_FATBIN)
    while start >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, start)
        offset = start + header
        end = min(offset + size, len(data))
        while offset + 32 <= end:
            kind, _, entry_header, length = struct.unpack_from("<HHIQ", data, offset)
            arch = struct.unpack_from("<I", data, offset + 28)[0]
            if kind not in prefixes or entry_header < 32:
                break
            found.add(f"{prefixes[kind]}_{arch}")
            offset += entry_header + length
        start = data.find(_FATBIN, start + 4)
    return found


def glibc(modules: Mapping[str, bytes]) -> int:
    """Return the minor version of the oldest glibc (2.x) that can run the modules."""
    newest = _OLDEST_GLIBC
    for data in modules.values():
        for minor in re.findall(rb"GLIBC_2\.(\d+)\b", data):
            newest = max(newest, int(minor))
    return newest
