"""The compilers: nvcc of this machine, and the C++ compiler for the machine that the kernels are for."""

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


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What compiles for a platform.

    :ivar cuda: the toolkit's folder; ``release`` its number, ``13.0``.
    :ivar identity: what the compilers say of themselves; another one may make other bytes.
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
        """The toolkit's own headers, for both compilers, and those that pip's toolkits have elsewhere."""
        return (f"{self.cuda}/include", f"{self.cuda}/include/cccl", *(str(place) for place in self.more))

    @property
    def places(self) -> dict[str, Path]:
        """What stands for this machine's folders in what is to be the same on every machine."""
        return {"@CUDA@": self.cuda, **{f"@MORE{n}@": place for n, place in enumerate(self.more)}}


def find_toolchain(platform: str) -> Toolchain:
    """The compilers for a platform.

    :raises BuildError: naming the one that isn't there, and where it comes from.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or ""
    found = (
        shutil.which(f"{home}/bin/nvcc") if home else shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    )
    if not found:
        raise BuildError("there is no nvcc here", hint="install the CUDA toolkit, or set CUDA_HOME")
    # On the path there may be a script that starts another one; only nvcc itself knows where its toolkit lies.
    top = re.search(r"^#\$ TOP=(.+)$", _said([found, "--dryrun", "-c", "x.cu"]), re.MULTILINE)
    if not top:
        raise BuildError(f"{found} doesn't tell where its toolkit lies", hint="set CUDA_HOME to that folder")
    cuda = Path(top[1].strip()).resolve()
    triple = f"{platform}-linux-gnu-g++"
    cxx = "g++" if platform == platforms.here() else triple
    if not shutil.which(cxx):
        package = f"g++-{platform.replace('_', '-')}-linux-gnu" if cxx == triple else "g++"
        raise BuildError(f"there is no {cxx}, which compiles for {platform}", hint=f"apt-get install {package}")
    said = [_said([program, "--version"]) for program in (found, cxx)]
    release = re.search(r"release (\d+\.\d+)", said[0])
    if not release:
        raise BuildError(f"{found} doesn't tell its release", hint="is it nvcc?")
    version = re.search(r"V[\d.]+", said[0])
    target = runner.run([cxx, "-dumpmachine"]).stdout.decode().strip()
    compiler = re.sub(r"^\S+ ", "", said[1].splitlines()[0])
    identity = f"nvcc {version[0] if version else release[1]}; g++ {compiler} for {target}"
    return Toolchain(platform, str(cuda / "bin" / "nvcc"), cxx, cuda, release[1], identity, _more(release[1]))


def _more(release: str) -> tuple[Path, ...]:
    """Where headers of CUDA's libraries (cuBLAS, cuRAND, NVRTC) lie beside a toolkit that lacks them."""
    named = [Path(text) for text in os.environ.get("PATCHQ_CUDA_INCLUDE", "").split(os.pathsep) if text]
    own = Path(sysconfig.get_path("purelib"), "nvidia", f"cu{release.partition('.')[0]}", "include")
    return tuple(place.resolve() for place in [*named, own] if place.is_dir())


def _said(argv: list[str]) -> str:
    """What a compiler says, in either channel."""
    try:
        done = runner.run(argv)
    except runner.CommandError as error:
        raise BuildError(f"{argv[0]} can't be asked: {error.said}", hint="run it by hand to see more") from None
    return (done.stdout + done.stderr).decode("utf-8", "replace")
