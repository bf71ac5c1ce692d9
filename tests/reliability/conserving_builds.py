"""Cases of ``build`` for the conservation suite: an overlay over a small release wheel."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kit import Patchq
from patchq.sources.index import pip_settings
from pieces import File, Piece, View, folder_view, has_data, has_text, is_gone, is_kind
from test_build import SETUP, release_wheel

if TYPE_CHECKING:
    from conservation import Case, World

EDITS = ("python", "python", "new", "data", "gone", "mode", "link", "docs", "tests", "metadata", "compiled", "other")


def project(world: World) -> Patchq:
    """Return a copy of a project with ``lib``, which has a release wheel; make it for the first case."""
    from kit import commit_files, git, new_project

    saved = world.folder / "saved" / "build"
    if not saved.exists():
        lib, index = world.folder / "lib", world.folder / "index"
        lib.mkdir()
        git(lib, "init", "-q")
        files = {
            "pyproject.toml": SETUP % (b"lib", b"", b"lib", b"lib", b"lib") + b'[tool.setuptools.package-data]\nlib = ["*.json", "*.sh"]\n',
            "lib/__init__.py": b"from ._version import __version__\n",
            "lib/_version.py": b'__version__ = version = "1.0"\n',
            "lib/table.json": b"{}\n", "lib/run.sh": b"#!/bin/sh\n", "csrc/kernel.cu": b"// kernel\n",
            "docs/index.md": b"# lib\n", "tests/test_x.py": b"", "README.md": b"lib\n",
        }  # fmt: skip
        files |= {f"lib/m{n}.py": b"x = 1\ny = 2\n" for n in range(4)}
        commit_files(lib, dict(files), "first")
        git(lib, "tag", "v1.0")
        made = release_wheel(lib, index)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PIP_FIND_LINKS", str(index))
            pip_settings.cache_clear()
            shutil.rmtree(world.folder / "project")
            patchq = new_project(world.folder / "project")
            git(lib, "archive", "--prefix=lib-1.0/", "-o", str(index / "lib-1.0.tar.gz"), "v1.0")
            patchq.ok("pin", "lib", "--url", str(lib), "--ref", "v1.0", "--archive", "lib==1.0")
            text = patchq.layout.lock.read_text()
            assert made.name in text
            start = text.index("[upstreams.lib.build]")
            end = text.index("\n[", start)
            build = '[upstreams.lib.build]\ndistribution = "lib"\nprofile = "overlay"\n'
            build += 'version-file = "lib/_version.py"\nignore = ["tests/*"]\n'
            patchq.layout.lock.write_text(text[:start] + build + text[end:])
            patchq.ok("apply")
            init = patchq.tree("lib") / "lib" / "__init__.py"
            init.write_text(init.read_text() + "answer = 42\n")
            patchq.ok("new", "lib", "answer", "-m", "Answer\n\nWhy.")
            patchq.ok("build", "lib", "--no-isolation")
        pip_settings.cache_clear()
        world.save("build")
    return world.restore("build")


def edit(case: Case, tree: Path, what: str) -> list[Piece]:
    """Make one edit of the tree of ``lib``."""
    token = case.editor.token()

    def write(path: str, data: bytes) -> Path:
        full = tree / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(data)
        return full

    def text(kind: str, path: str) -> list[Piece]:
        return [Piece(kind, token, has_text(path, token), (token, path))]

    if what == "python":
        path = f"lib/m{case.dice.randrange(3)}.py"
        full = tree / path
        if not full.exists():
            return []
        full.write_bytes(full.read_bytes() + f"{token} = 1\n".encode())
        return text("line of a Python file", path)
    if what == "new":
        path = f"lib/{case.dice.choice(['', 'deep/'])}{token}.py"
        data = f"x = '{token}'\n".encode()
        write(path, data)
        return [Piece("new Python file", path, has_data(path, data), (path,))]
    if what == "data":
        path = case.dice.choice(["lib/table.json", f"lib/data/{token}.json", f"lib/{token}.bin"])
        if path in case.editor.used:
            return []
        case.editor.used.add(path)
        write(path, f'{{"x": "{token}"}}\n'.encode())
        return text("data file", path)
    if what == "gone":
        if not (tree / "lib/m3.py").exists():
            return []
        (tree / "lib/m3.py").unlink()
        return [Piece("deleted Python file", "lib/m3.py", is_gone("lib/m3.py"), ("lib/m3.py",))]
    if what == "mode":
        if (tree / "lib/run.sh").stat().st_mode & 0o100:
            return []
        (tree / "lib/run.sh").chmod(0o755)
        return [Piece("mode change", "lib/run.sh", is_kind("lib/run.sh", "exec"), ("lib/run.sh",))]
    if what == "link":
        path = f"lib/{token}.py"
        (tree / path).symlink_to("m0.py")
        return [Piece("symlink", path, lambda v: v.get(path) is not None, (path,))]
    path = {
        "docs": "docs/index.md",
        "tests": "tests/test_x.py",
        "metadata": "pyproject.toml",
        "compiled": "csrc/kernel.cu",
    }.get(what, f"other/{token}.py")
    full = tree / path
    old = full.read_bytes() if full.exists() else b""
    write(path, old + (b"// " if what == "compiled" else b"# ") + token.encode() + b"\n")
    return [Piece(f"file outside the package ({what})", token, has_text(path, token), (token, path))]


def case_build(case: Case) -> None:
    """``build``: what patches change must be in the wheel, be named, or be refused."""
    case.patchq = project(case.world)
    case.bound = "lib"
    patchq, dice = case.patchq, case.dice
    tree = patchq.tree("lib")
    for number in range(dice.randrange(1, 3)):
        found = [piece for _ in range(dice.randrange(1, 4)) for piece in edit(case, tree, dice.choice(EDITS))]
        source = dice.random() < 0.2
        if not patchq.project.worktree("lib").status().edited and not patchq.project.worktree("lib").status().untracked:
            found += edit(case, tree, "new")
        patchq.ok("new", "lib", f"p{number}", "-m", f"P{number}\n\nWhy." + ("\n\nBuild: source" if source else ""))
        for piece in found:
            # A patch that is left out as a whole is named by its name.
            piece.names = (*piece.names, f"p{number}") if source else piece.names
        case.hand(found, "wheel")
    case.hand([Piece("line of a Python file", "answer = 42", has_text("lib/__init__.py", "answer = 42"))], "wheel")
    if dice.random() < 0.15:
        (tree / "lib/m0.py").write_text("unexported\n")
        case.hand(
            [Piece("edit in the worktree", "unexported", has_text("lib/m0.py", "unexported"), ("lib/m0.py", "m0.py"))],
            "worktree",
        )
    case.words += ["lib/", "csrc/"]
    case.run("build", "lib", "--no-isolation", "--offline")


def wheel_views(case: Case) -> tuple[View, str]:
    """Return the members of the wheel, and the patches that the bill of materials holds as text."""
    (path,) = (case.patchq.layout.dist / "default").glob("lib-*.whl")
    with zipfile.ZipFile(path) as zf:
        members = {
            info.filename: File("exec" if info.external_attr >> 16 & 0o100 else "file", zf.read(info))
            for info in zf.infolist()
        }
    document = json.loads((path.parent / "patchq.cdx.json").read_bytes())
    texts = [
        patch["diff"]["text"]["content"]
        for component in document["components"]
        for patch in component.get("pedigree", {}).get("patches", [])
    ]
    return View(members.get), "\n".join(texts)


def source_view(case: Case) -> View:
    """Return the applied tree of ``lib``."""
    return folder_view(case.patchq.tree("lib"))
