"""Version of a tree whose pin names a branch or commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import commit_files, git
from patchq.git.repository import init_store
from patchq.names import CommitId
from patchq.sources.versions import version_of_tree

DYNAMIC = b'[project]\nname = "up"\ndynamic = ["version"]\n'
FLIT = b'[build-system]\nbuild-backend = "flit_core.buildapi"\n' + DYNAMIC


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"pyproject.toml": b'[project]\nname = "up"\nversion = "1.2"\n'}, "1.2"),
        ({"pyproject.toml": b'[tool.poetry]\nname = "up"\nversion = "2.0.0rc1"\n'}, "2.0.0rc1"),
        ({"pyproject.toml": b'[project]\nname = "up"\nversion = "1.2+cu12"\n'}, "1.2"),
        ({"PKG-INFO": b"Metadata-Version: 2.1\nName: up\nVersion: 3.1\n", "pyproject.toml": DYNAMIC}, "3.1"),
        ({"setup.cfg": b"[metadata]\nname = up\nversion = 0.4\n"}, "0.4"),
        ({"setup.cfg": b"[metadata]\nversion = file: VERSION\n", "VERSION": b"0.5\n"}, "0.5"),
        (
            {"setup.cfg": b"[metadata]\nversion = attr: up.__version__\n", "up/__init__.py": b'__version__ = "0.6"\n'},
            "0.6",
        ),
        (
            {
                "pyproject.toml": DYNAMIC + b'[tool.setuptools.dynamic]\nversion = {attr = "up.about.VERSION"}\n',
                "src/up/about.py": b'VERSION: str = "0.7"\n',
            },
            "0.7",
        ),
        (
            {"pyproject.toml": DYNAMIC + b'[tool.setuptools.dynamic]\nversion = {file = ["V"]}\n', "V": b"0.8"},
            "0.8",
        ),
        (
            {"pyproject.toml": DYNAMIC + b'[tool.hatch.version]\npath = "up/a.py"\n', "up/a.py": b"VERSION = 'v0.9'\n"},
            "0.9",
        ),
        (
            {
                "pyproject.toml": DYNAMIC + b'[tool.pdm.version]\nsource = "file"\npath = "up/a.py"\n',
                "up/a.py": b'__version__ = "1.0"\n',
            },
            "1.0",
        ),
        (
            {
                "pyproject.toml": FLIT,
                "up/__init__.py": b"from .data import __version__\n",
                "up/data.py": b"__version__ = '1.1'\n",
            },
            "1.1",
        ),
        ({"pyproject.toml": DYNAMIC + b"[tool.setuptools_scm]\n"}, ""),
        ({"pyproject.toml": b"[project"}, ""),
        ({"pyproject.toml": b'project = 1\ntool = "x"\n', "setup.cfg": b"no section"}, ""),
        ({"setup.py": b"setup(version=computed())\n"}, ""),
        ({"pyproject.toml": FLIT, "up/__init__.py": b"__version__ = computed()\n"}, ""),
        ({"pyproject.toml": FLIT, "up/__init__.py": b"this is not Python\n"}, ""),
    ],
)
def test_version_of_a_tree(tmp_path: Path, files: dict[str, bytes | None], version: str) -> None:
    repository = tmp_path / "up"
    repository.mkdir()
    git(repository, "init", "-q")
    commit = commit_files(repository, files)
    store = init_store(tmp_path / "store.git")
    git(tmp_path / "store.git", "fetch", "-q", str(repository), "HEAD")
    assert version_of_tree(store, CommitId(commit)) == version
