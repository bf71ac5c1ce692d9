"""`apply` imports few modules: those that only some runs need are imported by the functions that need them."""

from __future__ import annotations

import subprocess
import sys

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
