"""What this machine is, as far as a proof's result depends on it."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
from dataclasses import asdict, dataclass

from patchq.system import runner


@dataclass(frozen=True, slots=True)
class Machine:
    """``gpu`` is its name, ``capability`` like ``9.0``; empty texts for what isn't there."""

    python: str
    torch: str
    nvcc: str
    gpu: str
    capability: str
    driver_cuda: str

    @property
    def can(self) -> frozenset[str]:
        """The ``Needs:`` that can be met here."""
        found = {"nvcc"} if self.nvcc else set()
        if self.capability:
            found.add("sm" + self.capability.replace(".", ""))
        return frozenset(found)

    def facts(self) -> dict[str, str]:
        """As JSON."""
        return asdict(self)


def this_machine() -> Machine:
    """Look at this machine; a GPU is what ``nvidia-smi`` says."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = ""
    gpu, capability, cuda = _gpu()
    return Machine(platform.python_version(), torch, nvcc_release(), gpu, capability, cuda)


def nvcc_release() -> str:
    """The release of nvcc (``13.0``), or an empty text."""
    path = shutil.which("nvcc")
    if not path:
        return ""
    try:
        out = runner.run([path, "--version"], timeout=60).stdout.decode("utf-8", "replace")
    except runner.CommandError:
        return ""
    match = re.search(r"release (\d+\.\d+)", out)
    return match[1] if match else ""


def _gpu() -> tuple[str, str, str]:
    path = shutil.which("nvidia-smi")
    if not path:
        return "", "", ""
    try:
        out = runner.run([path, "--query-gpu=name,compute_cap", "--format=csv,noheader"], timeout=60).stdout.decode()
        full = runner.run([path], timeout=60).stdout.decode("utf-8", "replace")
    except runner.CommandError:
        return "", "", ""
    name, _, capability = out.splitlines()[0].partition(",") if out.strip() else ("", "", "")
    cuda = re.search(r"CUDA Version: (\d+\.\d+)", full)
    return name.strip(), capability.strip(), cuda[1] if cuda else ""
