"""Layers, cycles, private modules, public APIs and sizes of the packages; the only importers of some libraries."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import patchq

PACKAGE = Path(patchq.__file__).parent
#: docs/explanation/architecture.md shows this table. A package may import packages of lower layers, and those of its
#: own layer as long as no cycle comes of it.
LAYERS = [
    {"errors", "extras", "names", "records", "__init__"},
    {"system"},
    {"formats"},
    {"git"},
    {"sources", "patterns"},
    {"project"},
    {"stacks", "environment", "recipes"},
    {"store", "drift", "proofs", "build", "mutation", "kernels", "merge", "editing", "replay"},
    {"upstream", "thin"},
    {"adopt", "forecast", "together"},
    {"rebase"},
    {"report", "contribute", "resolutions"},
    {"cli"},
]
#: Modules outside the packages: data that every module may use, and entry points.
ALONE = {"__init__", "__main__", "errors", "extras", "names", "records", "testing"}
#: Entry points: they import any layer, and no module imports them.
ENTRY_POINTS = {"__main__", "testing"}
#: Libraries that only one module or package may import.
ONLY_IMPORTERS = {
    "git": {"git.person"},  # GitPython
    "subprocess": {"system.runner", "proofs.plugin"},
    "click": {"cli"},
    "rich": {"cli.terminal", "cli.meter"},
    "requests": {"sources.index"},
    "distributed": {"proofs.cluster"},
    "jinja2": {"formats.render"},
    "tomllib": {"formats.toml"},
    "tomli": {"formats.toml"},
    "deflate": {"build.zipped"},
    "build": {"build._source"},
    # Libraries of extras.
    "tree_sitter_bash": {"replay._shell", "recipes._trees"},
    "tree_sitter_nix": {"recipes._trees"},
    "tree_sitter_ruby": {"recipes._trees"},
    "griffe": {"drift._api.signatures"},
    "tree_sitter_cuda": {"drift.bodies"},
    "libcst": {"mutation._with_libcst"},
    "cmake_parser": {"mutation._with_cmake_parser", "recipes._vcpkg"},
    "tree_sitter": {"replay._shell", "recipes._trees", "drift.bodies", "mutation._with_tree_sitter"},
    "identify": {"contribute.gates"},
    "yaml": {"contribute.gates", "contribute.bugreport", "recipes._conda"},
    "markdown_it": {"contribute.dossier"},
    "securesystemslib": {"environment.signatures"},
    "cryptography": {"environment.signatures"},
}
#: Modules of a package, `__init__` apart.
MOST_MODULES = 12
#: Packages that have more. Lower a number whenever a package gets smaller; never raise one.
LARGER = {"adopt": 17, "build": 16, "environment": 21, "formats": 20, "git": 15, "stacks": 15}
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


@dataclass(frozen=True)
class Import:
    """An import of a patchq module, and the name taken from it; no name for the module as a whole."""

    by: str
    module: str
    name: str


def package_of(module: str) -> str:
    return module.split(".")[0]


def module_of(path: Path) -> str:
    """``rebase.run``; a package's ``__init__.py`` is the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


#: Syntax trees by module.
MODULES = {module_of(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def layer_of(module: str) -> int:
    return next(number for number, packages in enumerate(LAYERS, 1) if package_of(module) in packages)


def imports_of(module: str) -> Iterator[tuple[str, str]]:
    """Yield each import of a module, inside functions too, as (module, name); no name for ``import module``."""
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def own_imports() -> Iterator[Import]:
    """Yield the imports between patchq's modules."""
    for by in MODULES:
        for module, name in imports_of(by):
            first, _, rest = module.partition(".")
            if first != "patchq":
                continue
            whole = f"{rest}.{name}".removeprefix(".")
            yield Import(by, whole, "") if whole in MODULES else Import(by, rest or "__init__", name)


IMPORTS = list(own_imports())
BETWEEN = [i for i in IMPORTS if package_of(i.by) != package_of(i.module)]


def modules_outside_packages() -> Iterator[str]:
    alone = {module for module in MODULES if "." not in module} - set(PACKAGES) - {"__init__"}
    yield from (f"{module} is in no package" for module in sorted(alone - ALONE))
    named = {package for packages in LAYERS for package in packages} | ENTRY_POINTS
    yield from (f"{package} is in no layer" for package in sorted({*ALONE, *PACKAGES} - named))
    yield from (f"{package} is in a layer, and doesn't exist" for package in sorted(named - {*ALONE, *PACKAGES}))


def imports_of_upper_layers() -> Iterator[str]:
    for found in IMPORTS:
        if found.by not in ENTRY_POINTS and layer_of(found.module) > layer_of(found.by):
            yield f"{found.by} imports {found.module} of an upper layer"


def cycles() -> Iterator[str]:
    packages: dict[str, set[str]] = {}
    modules: dict[str, set[str]] = {}
    for found in BETWEEN:
        packages.setdefault(package_of(found.by), set()).add(package_of(found.module))
    for found in IMPORTS:
        if found.by != found.module:
            modules.setdefault(found.by, set()).add(found.module)
    for graph in (packages, modules):
        if cycle := find_cycle(graph):
            yield f"these import each other: {' -> '.join(cycle)}"


def find_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def private_imports() -> Iterator[str]:
    for found in BETWEEN:
        if "._" in found.module or (found.name.startswith("_") and not found.name.startswith("__")):
            yield f"{found.by} imports {found.module} {found.name}".rstrip() + ", which is private"


def public_apis() -> Iterator[str]:
    """Check that each ``__init__.py`` is a docstring and the list of the modules that other packages use.

    The types that a schema names are public: they are what a command prints with ``--json``.
    """
    schemas = "".join(path.read_text() for path in (PACKAGE / "schemas").glob("*.json"))
    used = {found.module for found in BETWEEN} | set(re.findall(r'"patchq\.(\w+\.\w+)\.\w+"', schemas))
    for package in sorted(set(PACKAGES) - {"cli"}):
        body = MODULES[package].body
        if [type(node) for node in body] != [ast.Expr, ast.Assign] or not ast.get_docstring(MODULES[package]):
            yield f"{package}/__init__.py has more than a docstring and __all__"
            continue
        public = {name for name in modules_in(package) if not name.startswith("_")}
        listed = ast.literal_eval(body[1].value)  # type: ignore[attr-defined]
        if list(listed) != sorted(public):
            yield f"{package}.__all__ is not the sorted list of its public modules"
        if not listed:
            yield f"{package} has no public module"
        for name in sorted(public):
            if f"{package}.{name}" not in used:
                yield f"{package}.{name} is public, and used by no other package: name it _{name}.py"


def modules_in(package: str) -> list[str]:
    return [module.removeprefix(f"{package}.") for module in MODULES if module.startswith(f"{package}.")]


def sizes() -> Iterator[str]:
    for package in sorted(set(PACKAGES)):
        count = len([module for module in modules_in(package) if "." not in module and module != "commands"])
        if package in LARGER and count != LARGER[package]:
            yield f"{package} has {count} modules, and LARGER says {LARGER[package]}"
        elif package not in LARGER and count > MOST_MODULES:
            yield f"{package} has {count} modules, more than {MOST_MODULES}"
    yield from (f"LARGER lists {package} needlessly" for package, count in LARGER.items() if count <= MOST_MODULES)


def imports_of_libraries() -> Iterator[str]:
    for module in MODULES:
        libraries = {package_of(name) for name, _ in imports_of(module)} & ONLY_IMPORTERS.keys()
        for library in sorted(libraries):
            if not {module, package_of(module)} & ONLY_IMPORTERS[library]:
                yield f"{module} imports {library}"


def test_packages_keep_to_their_layers() -> None:
    """Check all rules at once, and report everything that breaks one."""
    checks = [
        modules_outside_packages, imports_of_upper_layers, cycles, private_imports, public_apis, sizes,
        imports_of_libraries,
    ]  # fmt: skip
    broken = [line for check in checks for line in check()]
    assert not broken, "\n".join(["", *broken])


def test_the_architecture_page_shows_the_layers() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page.read_text(), re.MULTILINE)
    shown = [(int(number), set(re.findall(r"`(\w+)/?`", names))) for number, names in rows]
    assert shown == [(number, packages - {"__init__"}) for number, packages in enumerate(LAYERS, 1)]


#: Import the given modules, and print the modules that each one imports when it is imported, directly.
IMPORT_ALL = """
import builtins, importlib, json, sys
told, real, by_name = {}, builtins.__import__, importlib.import_module
def noting_name(name, package=None):
    told.setdefault(sys._getframe(1).f_globals.get("__name__"), []).append(name)
    return by_name(name, package)
def noting(name, globals=None, locals=None, fromlist=(), level=0):
    module = real(name, globals, locals, fromlist, level)
    importer = (globals or {}).get("__name__", "")
    if importer.startswith("patchq"):
        found = [name, *(f"{name}.{part}" for part in fromlist or ())]
        told.setdefault(importer, []).extend(one for one in found if one in sys.modules)
    return module
builtins.__import__ = noting
importlib.import_module = noting_name
for name in json.load(sys.stdin):
    by_name(name)
json.dump(told, sys.stdout)
"""


def test_importing_a_module_imports_no_upper_layer() -> None:
    """Look at the imports that happen, not only at those that the source names."""
    names = {"patchq" if m == "__init__" else f"patchq.{m}": m for m in MODULES if m not in ENTRY_POINTS}
    argv = [sys.executable, "-c", IMPORT_ALL]
    done = subprocess.run(argv, input=json.dumps(list(names)), capture_output=True, text=True, check=True)
    imported: dict[str, list[str]] = json.loads(done.stdout)
    assert len(imported) > len(names) / 2
    broken = []
    for name, module in names.items():
        for other in set(imported.get(name, ())) & set(names):
            if layer_of(names[other]) > layer_of(module):
                broken.append(f"importing {module} imports {other}")
    assert not broken, "\n".join(["", *broken])


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_the_command_line_alone(option: str) -> None:
    """No verb, no package below it: both answer as fast as click does."""
    script = (
        f"import sys; from patchq.cli import cli; cli.main(['{option}'], standalone_mode=False);"
        "print(sorted(m for m in sys.modules if m.startswith('patchq.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(
        ["patchq.cli", "patchq.cli.boundary", "patchq.cli.terminal", "patchq.errors", "patchq.names", "patchq.records"]
    )


def test_the_table_of_verbs_is_what_the_verbs_say() -> None:
    from patchq.cli import VERBS, cli

    for verb, (module, summary) in VERBS.items():
        command = importlib.import_module(f"patchq.cli.commands.{module}").command
        assert command.name == verb
        assert command.get_short_help_str(1000) == summary
    there = {p.stem for p in (PACKAGE / "cli" / "commands").glob("*.py")} - {"__init__"}
    assert there == {module for module, _ in VERBS.values()}
    assert cli.list_commands(None) == list(VERBS)  # type: ignore[arg-type]
