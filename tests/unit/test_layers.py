"""Imports go down the layers only; one module each imports click, jinja2 and subprocess."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import patchq

PACKAGE = Path(patchq.__file__).parent
#: docs/explanation/architecture.md shows this table. A module may import from its own layer, without
#: cycles, and from those below; those of the use cases (SIBLINGS) not from each other.
LAYERS = [
    {"errors", "types"},
    {"runner", "fsio", "paths", "machine", "leftovers"},
    {"series", "header", "diff", "lock", "signatures", "bodies", "ledger", "absorbed", "measurements"},
    {"git", "index", "worktree"},
    {"journal", "keyring", "fastimport", "archive", "sources", "stack", "wheel", "replay", "backend"},
    {"project", "engine", "merges"},
    {"apply"},
    {"export", "applied", "carry", "refs", "rerere", "rebase_state", "stops", "contribute", "heal"},
    {
        "edit",
        "build",
        "check",
        "inspect",
        "pinning",
        "scaffold",
        "verify",
        "deps",
        "doctor",
        "rangediff",
        "forecast",
        "rebase",
        "blame",
        "ptx",
        "probe",
        "sbom",
        "prove",
        "testing",
        "drift",
        "gates",
        "bundle",
        "overlap",
    },
    {"cluster", "report", "upstream_tests", "render", "proposal", "bench", "evidence"},
    {"selection", "trials", "propose", "dossier", "bugreport", "submit", "page", "compose"},
    {"cli"},
]
SIBLINGS = LAYERS[-4] - {"sbom"}
#: Names that only one place may import.
DOORS = {
    "git": set(),
    "subprocess": {"runner", "testing"},
    "click": {"cli"},
    "rich": {"cli"},
    "requests": {"index"},
    "distributed": {"cluster"},
    "jinja2": {"render"},
}


def module_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | ({f"patchq.{a.name}" for a in node.names} if node.module == "patchq" else set())
    return found


FILES = [
    p for p in sorted(PACKAGE.rglob("*.py")) if p.name not in ("__init__.py", "__main__.py") or p.parent.name == "cli"
]


def own(path: Path) -> set[str]:
    names = {i.split(".")[1] for i in imports(path) if i.startswith("patchq.")}
    return {n for n in names if n != "__version__"}


def level(module: str) -> int:
    found = [i for i, layer in enumerate(LAYERS) if module in layer]
    assert found, f"{module} is in no layer"
    return found[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    module = module_of(path)
    for other in own(path) - {module}:
        assert level(other) <= level(module), f"{module} imports {other}, which lies above it"
        assert not ({module, other} <= SIBLINGS), f"{module} and {other} are siblings"


def test_no_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for path in FILES:
        graph.setdefault(module_of(path), set()).update(own(path) - {module_of(path)})
    tuple(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_one_door_each(path: Path) -> None:
    for name, allowed in DOORS.items():
        if name in {i.split(".")[0] for i in imports(path)}:
            assert module_of(path) in allowed, f"{path.name} imports {name}"
