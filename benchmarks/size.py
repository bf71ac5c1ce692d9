"""Print how large and how dense patchq's Python is, next to the limits.

    python benchmarks/size.py            prints the table
    python benchmarks/size.py --check    also exits 1 if a density limit is exceeded
    python benchmarks/size.py --json     prints the figures

Sizes are shown only; density limits hold. Run it in an environment that has patchq installed with all extras:
the distributions of an extra's libraries are looked up there.
"""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tools" / "patchq"
LOCK = ROOT / "locks" / "patchq.txt"
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: Extras that the project itself uses, not its users.
DEVELOPMENT = {"all", "dev", "docs", "proofs", "upstream-tests"}


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One row: ``value`` must not exceed ``limit``; ``enforced`` rows fail ``--check``."""

    name: str
    value: float
    limit: float
    enforced: bool = False


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module of the package, parsed."""

    name: str
    path: Path
    text: str
    tree: ast.Module


@functools.cache
def modules() -> dict[str, Module]:
    """Parse every module of the package, by dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE.parent).with_suffix("")
        name = ".".join(relative.parts).removesuffix(".__init__")
        text = path.read_text()
        found[name] = Module(name=name, path=path, text=text, tree=ast.parse(text))
    return found


def imports(node: ast.AST, at_start: bool) -> Iterator[str]:
    """Yield the dotted names that ``node`` imports; with ``at_start`` only those outside functions."""
    for child in ast.iter_child_nodes(node):
        if at_start and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield inner if inner in modules() else child.module
        yield from imports(child, at_start)


def reachable(start: str, at_start: bool, without: frozenset[str] = frozenset()) -> set[str]:
    """Return the package's modules that importing ``start`` can load, ``without`` some."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in seen or name in without or name not in modules():
            continue
        seen.add(name)
        waiting.extend(imports(modules()[name].tree, at_start))
    return seen


def project() -> dict[str, object]:
    """Read the table ``project`` of pyproject.toml."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(table, dict)
    return table


def libraries_of_extras() -> set[str]:
    """Return the import names of the distributions that only extras install."""
    table = project()
    base = {Requirement(line).name.lower() for line in table["dependencies"]}  # type: ignore[attr-defined]
    optional: set[str] = set()
    for extra, lines in table["optional-dependencies"].items():  # type: ignore[attr-defined]
        if extra not in DEVELOPMENT:
            optional.update(Requirement(line).name.lower() for line in lines)
    optional -= base | {"patchq"}
    names = set()
    for name, distributions in importlib.metadata.packages_distributions().items():
        if any(distribution.lower() in optional for distribution in distributions):
            names.add(name)
    return names


def core_modules() -> set[str]:
    """Return the modules that can be imported without an extra, from any verb."""
    optional = libraries_of_extras()
    needing = set()
    for name, module in modules().items():
        if any(imported.partition(".")[0] in optional for imported in imports(module.tree, at_start=False)):
            needing.add(name)
    starts = [name for name in modules() if name == "patchq.cli" or name.startswith("patchq.cli.commands.")]
    core: set[str] = set()
    for start in starts:
        core |= reachable(start, at_start=False, without=frozenset(needing))
    return core


def nodes() -> Iterator[ast.AST]:
    """Yield every node of every module."""
    for module in modules().values():
        yield from ast.walk(module.tree)


def is_nested(comprehension: ast.AST) -> bool:
    """Return True for a comprehension with two loops or with another one inside it."""
    if len(comprehension.generators) > 1:  # type: ignore[attr-defined]
        return True
    inner = (node for child in ast.iter_child_nodes(comprehension) for node in ast.walk(child))
    return any(isinstance(node, COMPREHENSIONS) for node in inner)


def shared_class_names() -> list[str]:
    """Return the class names that more than one module defines; a leading underscore is ignored."""
    where = collections.Counter(
        node.name.lstrip("_")
        for module in modules().values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in where.items() if count > 1)


def complex_functions() -> int:
    """Count the functions with more than 12 branches, as ruff counts them (C901)."""
    command = ["ruff", "check", "--isolated", "--select", "C901", "--output-format", "json"]
    limit = ["--config", "lint.mccabe.max-complexity=12"]
    done = subprocess.run([*command, *limit, str(PACKAGE)], capture_output=True, check=False)
    return len(json.loads(done.stdout))


def measures() -> list[Measure]:
    """Return every row of the table."""
    lines = [line for module in modules().values() for line in module.text.splitlines() if line.strip()]
    thousands = len(lines) / 1000
    kinds = collections.Counter(type(node) for node in nodes())
    comprehensions = [node for node in nodes() if isinstance(node, COMPREHENSIONS)]
    nested = sum(map(is_nested, comprehensions))
    crowded = sum(isinstance(node, ast.Call) and len(node.args) > 7 for node in nodes())
    skips = sum(line.count("fmt: skip") for line in lines)
    table = project()
    sizes = {name: len(module.text.encode()) for name, module in modules().items()}
    core = sum(sizes[name] for name in core_modules())
    dependencies = len(table["dependencies"])  # type: ignore[arg-type]
    installed = len(re.findall(r"^[A-Za-z0-9._-]+==", LOCK.read_text(), re.MULTILINE)) + 1
    verbs = {verb: len(reachable(f"patchq.cli.commands.{verb}", at_start=True)) for verb in ("apply", "rebase")}
    return [
        Measure(name="MB of Python", value=round(sum(sizes.values()) / 1e6, 3), limit=1.45),
        Measure(name="MB of Python that needs no extra", value=round(core / 1e6, 3), limit=1.15),
        Measure(name="modules", value=len(modules()), limit=200),
        Measure(name="direct dependencies", value=dependencies, limit=11),
        Measure(name="installed distributions", value=installed, limit=32),
        Measure(name="modules that apply imports", value=verbs["apply"], limit=35),
        Measure(name="modules that rebase imports", value=verbs["rebase"], limit=50),
        Measure(name="class names defined twice", value=len(shared_class_names()), limit=0, enforced=True),
        Measure(name="calls with more than 7 positional arguments", value=crowded, limit=0, enforced=True),
        Measure(name="fmt: skip", value=skips, limit=5, enforced=True),
        Measure(
            name="comprehensions per 1,000 lines",
            value=round(len(comprehensions) / thousands, 1),
            limit=30,
            enforced=True,
        ),
        Measure(
            name="nested comprehensions per 1,000 lines", value=round(nested / thousands, 1), limit=1.5, enforced=True
        ),
        Measure(
            name="conditional expressions per 1,000 lines",
            value=round(kinds[ast.IfExp] / thousands, 1),
            limit=12,
            enforced=True,
        ),
        Measure(name="functions with more than 12 branches", value=complex_functions(), limit=0, enforced=True),
    ]


def main() -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 if a density limit is exceeded")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    rows = measures()
    if options.json:
        print(json.dumps({row.name: row.value for row in rows}, indent=2))
    else:
        print("| measure | now | limit |\n|---|---|---|")
        for row in rows:
            mark = "" if row.value <= row.limit else " **over**"
            print(f"| {row.name} | {row.value:g}{mark} | {row.limit:g} |")
    failed = [row.name for row in rows if row.enforced and row.value > row.limit]
    if options.check and failed:
        print("over the limit: " + ", ".join(failed), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
