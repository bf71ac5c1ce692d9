"""Facts about this machine that affect the result of a proof."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
from dataclasses import asdict, dataclass

from patchq.system import runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Software versions and GPU of a machine. Unknown fields are empty.

    :ivar capability: the GPU's compute capability, such as ``9.0``.
    """

    python: str
    torch: str
    nvcc: str
    gpu: str
    capability: str
    driver_cuda: str

    @property
    def can(self) -> frozenset[str]:
        """Values of the patch header ``Needs:`` that this machine meets."""
        if self.nvcc:
            found = {"nvcc"}
        else:
            found = set()
        if self.capability:
            found.add("sm" + self.capability.replace(".", ""))
        return frozenset(found)

    def facts(self) -> dict[str, str]:
        """Return the facts as fields for JSON."""
        return asdict(self)


def this_machine() -> Machine:
    """Return the facts about this machine, with the GPU that ``nvidia-smi`` reports."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = ""
    gpu, capability, cuda = _gpu()
    return Machine(
        python=platform.python_version(),
        torch=torch,
        nvcc=nvcc_release(),
        gpu=gpu,
        capability=capability,
        driver_cuda=cuda,
    )


def nvcc_release() -> str:
    """Return the release of nvcc (``13.0``); empty if nvcc isn't found."""
    path = shutil.which("nvcc")
    if not path:
        return ""
    try:
        out = runner.run([path, "--version"], timeout=60).stdout.decode("utf-8", "replace")
    except runner.CommandError:
        return ""
    match = re.search(r"release (\d+\.\d+)", out)
    if match:
        return match[1]
    return ""


def _gpu() -> tuple[str, str, str]:
    """Return the GPU's name and capability and the driver's CUDA version; all are empty if there is no GPU."""
    path = shutil.which("nvidia-smi")
    if not path:
        return "", "", ""
    query = [path, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        gpus = runner.run(query, timeout=60).stdout.decode()
        full = runner.run([path], timeout=60).stdout.decode("utf-8", "replace")
    except runner.CommandError:
        return "", "", ""
    name, _, capability = gpus.strip().partition("\n")[0].partition(",")
    cuda = re.search(r"CUDA Version: (\d+\.\d+)", full)
    return name.strip(), capability.strip(), cuda[1] if cuda else ""
