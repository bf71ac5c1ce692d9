"""The proofs import the applied trees, and nothing else may stand in for them.

``PATCHQ_TREES`` names another folder of trees: how a proof is run on the stack without its patch.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TREES = Path(os.environ.get("PATCHQ_TREES", ROOT / ".patchq" / "trees")).resolve()

#: What an imported package must be found in.
PACKAGES = {"vllm": TREES / "vllm", "flashinfer": TREES / "flashinfer"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """vLLM and torch warn at import of what is theirs; our own warnings stay errors elsewhere."""
    for item in items:
        if "stacks" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def trees() -> Path:
    """The folder of the applied trees; those of this project are applied as its files say."""
    if "PATCHQ_TREES" not in os.environ:
        from patchq.apply import apply
        from patchq.project import Project

        apply(Project.find(ROOT, wait=600))
    assert (TREES / "vllm").is_dir(), f"no trees in {TREES}"
    return TREES


@pytest.fixture(scope="session")
def upstream_import(trees: Path) -> Callable[[str], ModuleType]:
    """Import a module of vLLM or FlashInfer; it is an error if it comes from elsewhere."""
    for folder in PACKAGES.values():
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))

    def load(name: str) -> ModuleType:
        module = importlib.import_module(name)
        folder = PACKAGES[name.split(".")[0]]
        assert module.__file__
        assert folder in Path(module.__file__).resolve().parents, (
            f"{name} came from {module.__file__}, not from {folder}"
        )
        return module

    return load


@pytest.fixture(scope="session")
def nvcc(trees: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run nvcc with CUTLASS's include folders; returns what it said."""
    program = shutil.which("nvcc")
    if program is None:
        pytest.skip("not run: needs nvcc")
    cutlass = trees / "cutlass"

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        includes = [f"-I{cutlass / 'include'}", f"-I{cutlass / 'tools' / 'util' / 'include'}"]
        argv = [program, "-std=c++17", "--expt-relaxed-constexpr", "-w", *includes, *args]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    return run
