"""Imports go down the floors only, packages keep to each other's faces, and one place each has the doors."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import patchq

PACKAGE = Path(patchq.__file__).parent
#: docs/explanation/architecture.md shows this table. A package imports those of lower floors, and of its own
#: floor those that don't import it back.
FLOORS = [
    {"errors", "extras", "names", "__init__"},
    {"system"},
    {"formats"},
    {"git"},
    {"sources"},
    {"project"},
    {"stacks", "environment"},
    {"store", "adopt", "carry", "drift", "proofs", "build", "mutation", "kernels"},
    {"report", "contribute"},
    {"cli"},
]
#: What stands beside the packages: data that everything may name, and names that are public.
ALONE = {"__init__", "__main__", "errors", "extras", "names", "testing"}
#: Names that only one place may import.
DOORS = {
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
    "build": {"build.backend"},
    # Libraries of extras.
    "dockerfile_parse": {"adopt.shell"},
    "tree_sitter_bash": {"adopt.shell"},
    "griffe": {"drift.signatures"},
    "tree_sitter_cuda": {"drift.bodies"},
    "libcst": {"mutation.with_libcst"},
    "cmake_parser": {"mutation.with_cmake_parser"},
    "tree_sitter": {"adopt.shell", "drift.bodies", "mutation.with_tree_sitter"},
    "identify": {"contribute.gates"},
    "yaml": {"contribute.gates", "contribute.bugreport"},
    "markdown_it": {"contribute.dossier"},
    "securesystemslib": {"environment.signatures"},
    "cryptography": {"environment.signatures"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
PACKAGES = sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))


def module_of(path: Path) -> str:
    """``carry.rebase``; a package's own file is the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    return module.split(".")[0]


@functools.cache
def imports(path: Path) -> list[tuple[str, str]]:
    """What a file imports, as (module, name); no name for ``import module``."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, alias.name) for alias in node.names]
    return found


def own(path: Path) -> list[tuple[str, str]]:
    """The modules of patchq that a file imports, with the name taken of each; no name for the module as a whole."""
    found = []
    for module, name in imports(path):
        parts = module.split(".")
        if parts[0] != "patchq":
            continue
        if (PACKAGE.joinpath(*parts[1:], name).with_suffix(".py")).exists() or (
            len(parts) == 1 and (PACKAGE / name).is_dir()
        ):
            found.append((".".join([*parts[1:], name]), ""))
        else:
            found.append((".".join(parts[1:]) or "__init__", name))
    return found


def floor(room: str) -> int:
    return next(i for i, rooms in enumerate(FLOORS) if room in rooms)


def test_every_module_is_in_a_package() -> None:
    assert {module_of(p) for p in FILES if p.parent == PACKAGE} - {"__init__"} <= ALONE
    assert {room for rooms in FLOORS for room in rooms} == (ALONE | set(PACKAGES)) - {"__main__", "testing"}


def test_the_architecture_page_shows_the_floors() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page.read_text(), re.MULTILINE)
    shown = [(int(number), set(re.findall(r"`(\w+)/?`", names))) for number, names in rows]
    assert shown == [(number, rooms - {"__init__"}) for number, rooms in enumerate(FLOORS, 1)]


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_down(path: Path) -> None:
    room = room_of(module_of(path))
    if room in ("__main__", "testing"):
        return
    for other, _ in own(path):
        assert floor(room_of(other)) <= floor(room), f"{module_of(path)} imports {other}, which lies above it"


def test_no_two_packages_import_each_other() -> None:
    edges = {(room_of(module_of(p)), room_of(other)) for p in FILES for other, _ in own(p)}
    assert not {(a, b) for a, b in edges if a < b and (b, a) in edges}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_packages_keep_to_each_others_faces(path: Path) -> None:
    room = room_of(module_of(path))
    for module, name in own(path):
        if room_of(module) == room or "." not in module:
            continue
        package, leaf = module.split(".", 1)
        face = importlib.import_module(f"patchq.{package}")
        assert leaf in face.__all__, f"{module_of(path)} imports {module}, which is not on its package's face"
        assert not name.startswith("_"), f"{module_of(path)} imports {module}.{name}"


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - {"cli"}))
def test_a_face_computes_nothing(package: str) -> None:
    """A docstring, and the modules that others may use."""
    path = PACKAGE / package / "__init__.py"
    docstring, names = ast.parse(path.read_text()).body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(names, ast.Assign)
    face = importlib.import_module(f"patchq.{package}")
    assert face.__doc__
    there = {p.stem for p in path.parent.glob("*.py")} - {"__init__"}
    assert {n for n in there if not n.startswith("_")} == set(face.__all__)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_one_door_each(path: Path) -> None:
    for name, allowed in DOORS.items():
        if name in {module.split(".")[0] for module, _ in imports(path)}:
            assert {module_of(path), room_of(module_of(path))} & allowed, f"{module_of(path)} imports {name}"


#: Imports each module that it is given in a process of its own, which nothing of patchq was imported in, and
#: tells what is there then. One interpreter forks them: it has others' modules already, and the bytecode that
#: the first one made serves all.
IMPORT_EACH = """
import importlib, json, os, sys, traceback
others = {"click", "griffe", "identify", "jinja2", "markdown_it", "packaging", "requests", "rich",
          "tomlkit", "tree_sitter", "urllib3", "yaml", *sys.stdlib_module_names} - {"__main__"}
told = {}
for name in json.load(sys.stdin):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        sys.dont_write_bytecode, sys.pycache_prefix = False, sys.argv[1]
        try:
            importlib.import_module(name)
            said = list(sys.modules)
        except BaseException:
            said = traceback.format_exc()
        with open(write, "w") as out:
            json.dump(said, out)
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        said = json.load(answer)
    os.waitpid(child, 0)
    told[name] = said if isinstance(said, str) else [m for m in said if m.startswith("patchq.")]
    for other in said if isinstance(said, list) else ():
        if other.split(".")[0] in others:
            importlib.import_module(other)
assert not any(m.split(".")[0] == "patchq" for m in sys.modules)
json.dump(told, sys.stdout)
"""
IMPORTED = [p for p in FILES if p.name not in ("__main__.py", "testing.py")]


def import_name(path: Path) -> str:
    module = module_of(path)
    return "patchq" if module == "__init__" else f"patchq.{module}"


@pytest.fixture(scope="module")
def after_import(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str] | str]:
    """Of each module's import: the modules of patchq that it brings, or how it failed."""
    names = json.dumps([import_name(path) for path in IMPORTED])
    argv = [sys.executable, "-c", IMPORT_EACH, str(tmp_path_factory.mktemp("bytecode"))]
    done = subprocess.run(argv, input=names, capture_output=True, text=True, check=True)
    told: dict[str, list[str] | str] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("path", IMPORTED, ids=module_of)
def test_importing_a_module_imports_nothing_above_it(path: Path, after_import: dict[str, list[str] | str]) -> None:
    """As it happens, not as it is written: each module in a process of its own."""
    loaded = after_import[import_name(path)]
    assert isinstance(loaded, list), loaded
    for other in loaded:
        assert floor(room_of(other.removeprefix("patchq."))) <= floor(room_of(module_of(path))), other


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_the_command_line_alone(option: str) -> None:
    """No verb, no package below it: both answer as fast as click does."""
    script = (
        f"import sys; from patchq.cli import cli; cli.main(['{option}'], standalone_mode=False);"
        "print(sorted(m for m in sys.modules if m.startswith('patchq.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(
        ["patchq.cli", "patchq.cli.boundary", "patchq.cli.terminal", "patchq.errors", "patchq.names"]
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
