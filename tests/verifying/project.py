"""A project whose set builds two small wheels that have everything an attacker could aim at.

``lib`` is an overlay over its release wheel: modules, a subpackage, a native library, a data file, a console script and
a plugin group. ``app`` is built from source and needs ``lib``, which it imports.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, new_project
from patchq.sources.index import pip_settings

PYPROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "1.0"
dependencies = [{dependencies}]
[project.scripts]
{name} = "{name}.command:main"
[project.entry-points."{name}.plugins"]
own = "{name}.plugins:register"
[tool.setuptools.packages.find]
include = ["{name}*"]
[tool.setuptools.package-data]
"*" = ["*.so", "data/*.json"]
"""

#: ``answer()`` is what the patches change: 42 is the patched build.
FILES = {
    "__init__.py": "from {name}.core import answer\n\n__version__ = '1.0'\n",
    "_version.py": '__version__ = version = "1.0"\n',
    "core.py": "def answer():\n    # The question is not known.\n    return 41\n",
    "command.py": "from {name} import answer\n\n\ndef main():\n    print(answer())\n",
    "plugins.py": "def register():\n    return 'own'\n\n\n"
    "def load():\n    from importlib.metadata import entry_points\n\n"
    "    return sorted(str(e.load()()) for e in entry_points(group='{name}.plugins'))\n",
    "table.py": "import json\nimport pathlib\n\n\ndef table():\n"
    "    return json.loads((pathlib.Path(__file__).parent / 'data' / 'table.json').read_text())\n",
    "_queue.py": "kind = 'python'\n",
    "native.py": "import ctypes\nimport pathlib\n\n\ndef kernels():\n"
    "    library = ctypes.CDLL(str(pathlib.Path(__file__).with_name('libkernels.so')))\n"
    "    return [n for n in ('queue', 'lsprof') if hasattr(library, 'PyInit__' + n)]\n",
    "sub/__init__.py": "",
    "sub/deep.py": "depth = 2\n",
    "data/table.json": '{{"tile": 128}}\n',
}

ENVIRONMENT = """
[environments.default]
image = "registry.example/cuda:13.0"
env = { LIB_ARCH = "12.1f" }
caches = ["/root/.cache/lib"]
serve = ["lib", "serve"]
port = 8000
"""


def extension(name: str) -> bytes:
    """Return an extension module of this Python's standard library, as any native library."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


def new_upstream(folder: Path, name: str, dependencies: str = "") -> Path:
    """Make an upstream's repository with release v1.0."""
    folder.mkdir()
    git(folder, "init", "-q")
    files: dict[str, bytes | None] = {f"{name}/{file}": text.format(name=name).encode() for file, text in FILES.items()}
    files[f"{name}/libkernels.so"] = extension("_queue")
    files["pyproject.toml"] = PYPROJECT.format(name=name, dependencies=dependencies).encode()
    commit_files(folder, files)
    git(folder, "tag", "v1.0")
    return folder


def release_wheel(upstream: Path, index: Path) -> Path:
    """Build the upstream's own wheel of what is checked out."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(index), "."]
    before = set(index.iterdir())
    subprocess.run(command, cwd=upstream, check=True, capture_output=True)
    git(upstream, "clean", "-fdxq")
    (made,) = set(index.iterdir()) - before
    return made


@dataclass(frozen=True, kw_only=True)
class Built:
    """A project whose wheels are built, and what else an image could hold in their place."""

    patchq: Patchq
    #: The patched wheels, by distribution.
    wheels: dict[str, Path]
    #: Upstream's own wheels, by distribution.
    upstream: dict[str, Path]
    #: The wheels of another stack of the same upstreams.
    other: dict[str, Path]
    #: What the Dockerfile that `compose` writes sets.
    labels: dict[str, str]
    variables: dict[str, str]
    dist: Path


def built(patchq: Patchq) -> dict[str, Path]:
    """Build the wheels of the project."""
    answer = json.loads(patchq.ok("build", "--no-isolation", "--json"))
    return {wheel["distribution"]: Path(wheel["path"]) for wheel in answer["wheels"]}


def build_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    """Make the upstreams, the project, and the wheels of two of its stacks."""
    lib, app = new_upstream(folder / "lib", "lib"), new_upstream(folder / "app", "app", '"lib==1.0"')
    (index := folder / "index").mkdir()
    upstream = {"lib": release_wheel(lib, index), "app": release_wheel(app, folder / "index")}
    archive = index / "lib-1.0.tar.gz"
    git(lib, "archive", "--prefix=lib-1.0/", "-o", str(archive), "v1.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    pip_settings.cache_clear()
    patchq = new_project(folder / "project")
    patchq.ok("pin", "lib", "--url", str(lib), "--ref", "v1.0", "--archive", "lib==1.0")
    patchq.ok("pin", "app", "--url", str(app), "--ref", "v1.0")
    lock = patchq.layout.lock
    text = re.sub(r"\[upstreams\.lib\.build\]\n(?:.+\n)*", "", lock.read_text())
    for name, profile in (("lib", "overlay"), ("app", "source")):
        text += f'\n[upstreams.{name}.build]\ndistribution = "{name}"\nprofile = "{profile}"\nversion-file = "{name}/_version.py"\n'
    lock.write_text(text + ENVIRONMENT)
    patchq.ok("apply")
    for name in ("lib", "app"):
        edit(patchq.tree(name) / name / "core.py", 3, b"    return 42\n")
        patchq.ok("new", name, "answer", "-m", "Answer right\n\nIt was one less.")
    first = built(patchq)
    (kept := folder / "other").mkdir()
    other = {name: wheel.rename(kept / wheel.name) for name, wheel in first.items()}
    for name in ("lib", "app"):
        edit(patchq.tree(name) / name / "core.py", 2, b"    # Nobody knows the question.\n")
        patchq.ok("export", name, "--amend", "answer")
    wheels = built(patchq)
    labels, variables = composed(patchq)
    return Built(
        patchq=patchq, wheels=wheels, upstream=upstream, other=other, labels=labels, variables=variables,
        dist=patchq.root / "dist" / "default",
    )  # fmt: skip


def composed(patchq: Patchq, *options: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and variables that the Dockerfile of `compose` sets."""
    with tempfile.TemporaryDirectory(dir=patchq.root) as folder:
        patchq.ok("compose", "--output", folder, *options)
        dockerfile = Path(folder, "Dockerfile").read_text()
    return instructions(dockerfile, "LABEL"), instructions(dockerfile, "ENV")


def instructions(dockerfile: str, word: str) -> dict[str, str]:
    """Return the names and values that the lines of one kind set."""
    lines = re.findall(rf"^{word} (.*)$", dockerfile, flags=re.MULTILINE)
    return {name: value for line in lines for name, value in re.findall(r'([\w.]+)="([^"]*)"', line)}
