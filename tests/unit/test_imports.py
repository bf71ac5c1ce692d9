"""`apply` imports few modules: those that only some runs need are imported by the functions that need them."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from kit import Patchq

MOST = 35
SCRIPT = """
import sys
from pathlib import Path
from patchq.cli import cli
cli.main(sys.argv[1:], standalone_mode=False)
found = [name for name in sys.modules if name.startswith("patchq.")]
print(*sorted(name for name in found if Path(sys.modules[name].__file__).name != "__init__.py"))
"""


def test_apply_imports_few_modules(stack: Patchq) -> None:
    """Of an applied stack; the packages' own files, which hold a docstring and names, don't count."""
    argv = [sys.executable, "-c", SCRIPT, "--project", str(stack.root), "apply"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert "patchq.stacks.apply" in modules
    assert len(modules) <= MOST, modules


def imported_from_patchq(path: Path) -> list[tuple[str, str]]:
    """The modules that a file imports from, and the names."""
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("patchq"):
            found += [(node.module, alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("benchmarks/*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_only_what_exists(path: Path) -> None:
    """No other test runs the benchmarks, and mypy doesn't read them."""
    lacking = []
    for module, name in imported_from_patchq(path):
        if not hasattr(importlib.import_module(module), name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                lacking.append(f"{module}.{name}")
    assert not lacking
