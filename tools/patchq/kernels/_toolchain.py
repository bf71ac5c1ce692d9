"""Compilers for kernels: nvcc, and the C++ compiler that builds for the target machine."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from patchq.build import platforms
from patchq.errors import BuildError
from patchq.system import runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Compilers for a target platform.

    :ivar cuda: Folder of the CUDA toolkit.
    :ivar release: Release of the toolkit (``13.0``).
    :ivar identity: Versions of the compilers. Other versions may produce different objects.
    :ivar more: Additional folders with headers.
    """

    platform: str
    nvcc: str
    cxx: str
    cuda: Path
    release: str
    identity: str
    more: tuple[Path, ...] = ()

    @property
    def includes(self) -> tuple[str, ...]:
        """Folders of CUDA's headers, for both compilers."""
        return (f"{self.cuda}/include", f"{self.cuda}/include/cccl", *map(str, self.more))

    @property
    def places(self) -> dict[str, Path]:
        """Placeholders for this machine's folders, so that stored data is the same on every machine."""
        found = {"@CUDA@": self.cuda}
        for number, place in enumerate(self.more):
            found[f"@MORE{number}@"] = place
        return found


def find_toolchain(platform: str) -> Toolchain:
    """Return the compilers for a platform.

    :raises BuildError: if a compiler is missing; the hint names its package.
    """
    nvcc = _find_nvcc()
    # The program on PATH may be a script that starts another nvcc; nvcc itself prints its folder.
    top = re.search(r"^#\$ TOP=(.+)$", _output([nvcc, "--dryrun", "-c", "x.cu"]), re.MULTILINE)
    if not top:
        reason = f"{nvcc} doesn't print the folder of its toolkit"
        raise BuildError(reason, hint="set CUDA_HOME to the toolkit's folder")
    cuda = Path(top[1].strip()).resolve()
    cxx, package = "g++", "g++"
    if platform != platforms.here():
        cxx = f"{platform}-linux-gnu-g++"
        package = f"g++-{platform.replace('_', '-')}-linux-gnu"
    if not shutil.which(cxx):
        reason = f"the compiler {cxx} for {platform} isn't installed"
        raise BuildError(reason, hint=f"apt-get install {package}")
    text = _output([nvcc, "--version"])
    release = re.search(r"release (\d+\.\d+)", text)
    if not release:
        raise BuildError(f"{nvcc} doesn't print its release", hint="is it nvcc?")
    version = re.search(r"V[\d.]+", text) or release
    if version is not release:
        number = version[0]
    else:
        number = release[1]
    compiler = re.sub(r"^\S+ ", "", _output([cxx, "--version"]).splitlines()[0])
    target = runner.run([cxx, "-dumpmachine"]).stdout.decode().strip()
    return Toolchain(
        platform=platform,
        nvcc=str(cuda / "bin" / "nvcc"),
        cxx=cxx,
        cuda=cuda,
        release=release[1],
        identity=f"nvcc {number}; g++ {compiler} for {target}",
        more=_more_includes(release[1]),
    )


def _find_nvcc() -> str:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        found = shutil.which(f"{home}/bin/nvcc")
    else:
        found = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not found:
        raise BuildError("there is no nvcc here", hint="install the CUDA toolkit, or set CUDA_HOME")
    return found


def _more_includes(release: str) -> tuple[Path, ...]:
    """Return the folders outside of the toolkit that contain headers of CUDA's libraries (cuBLAS, cuRAND, NVRTC)."""
    named = os.environ.get("PATCHQ_CUDA_INCLUDE", "").split(os.pathsep)
    folders = []
    for text in named:
        if text:
            folders.append(Path(text))
    major = release.partition(".")[0]
    folders.append(Path(sysconfig.get_path("purelib"), "nvidia", f"cu{major}", "include"))
    includes: list[Path] = []
    for folder in folders:
        if folder.is_dir():
            includes.append(folder.resolve())
    return tuple(includes)


def _output(argv: list[str]) -> str:
    """Return the output of a compiler, including standard error."""
    try:
        done = runner.run(argv)
    except runner.CommandError as error:
        reason = f"{argv[0]} can't be run: {error.output}"
        raise BuildError(reason, hint="run the compiler by hand to see more") from None
    return (done.stdout + done.stderr).decode("utf-8", "replace")
