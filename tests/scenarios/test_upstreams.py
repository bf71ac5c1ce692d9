"""Any upstream: a repository, a plain folder, an archive, one nested in another."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, numbered
from patchq.sources import index
from patchq.sources import pins as sources
from test_hostile import GOOD, tarball


def test_a_plain_folder(empty: Patchq, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "x.txt").write_bytes(numbered(10))
    empty.ok("pin", "up", "--url", str(folder), "--ref", "now")
    empty.ok("apply")
    edit(empty.tree() / "sub" / "x.txt", 5)
    empty.ok("new", "up", "mine", "-m", "Mine\n\nWhy.")
    (folder / "sub" / "x.txt").write_bytes(b"moved on\n")
    assert "up to date" in empty.ok("apply"), "what is in the store is enough"
    assert "moved" in empty.fails(1, "pin", "--check")


def test_a_plain_folder_that_is_gone(empty: Patchq, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "x.txt").write_bytes(numbered(10))
    empty.ok("pin", "up", "--url", str(folder), "--ref", "now")
    folder.rename(tmp_path / "elsewhere")
    empty.ok("fetch")  # the store has it
    shutil.rmtree(empty.root / ".patchq")
    out = empty.fails(1, "fetch")
    assert f"comes from {folder}, which doesn't exist" in out
    assert "patchq pin up --url" in out


def test_a_branch_that_moves_is_still_the_pinned_commit(stack: Patchq, upstream: Path) -> None:
    stack.ok("pin", "up", "--ref", "main", "--set", "moving")
    commit_files(upstream, {"a.txt": b"new\n"}, "moved on")
    assert "main moved" in stack.fails(1, "pin", "--check")
    stack.ok("fetch", "--set", "moving")


def test_git_unreachable_falls_back_to_the_archive(empty: Patchq, tmp_path: Path) -> None:
    tarball(empty.root / "p-1.tar.gz", GOOD)
    commit = "0123456789012345678901234567890123456789"
    url = "http://127.0.0.1:1/nothing.git"
    out = empty.ok("pin", "p", "--url", url, "--commit", commit, "--archive", "./p-1.tar.gz", "--ref", "v1")
    assert "is recorded without a check" in out
    out = empty.ok("fetch")
    lines = [line for line in out.splitlines() if "can't be reached" in line]
    assert len(lines) == 1
    assert "using the archive" in lines[0]
    assert json.loads(empty.ok("apply", "--json"))["stacks"][0]["source"] == "archive"
    assert "not checked" in empty.ok("pin", "--check")
    assert "--commit" in empty.fails(1, "pin", "q", "--url", url, "--ref", "v1")


def test_offline_uses_only_what_is_there(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(sources, "remote_commit", never)
    monkeypatch.setattr(sources, "fetch_commit", never)
    stack.ok("fetch", "--offline")
    stack.ok("apply", "--offline")
    git(stack.layout.store, "update-ref", "-d", "refs/patchq/base/git/up/v1")
    stack.layout.state("up").unlink()
    stack.ok("fetch", "--offline")


@pytest.fixture
def nested(stack: Patchq, tmp_path: Path) -> Patchq:
    """``part`` nested in ``up`` at third/part, in another commit than up's own gitlink."""
    part = tmp_path / "part"
    part.mkdir()
    git(part, "init", "-q")
    commit_files(part, {"p.txt": numbered(10)})
    git(part, "tag", "v1")
    commit_files(part, {"p.txt": numbered(12)})
    git(part, "tag", "v2")
    host = tmp_path / "upstream"
    git(host, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part), "third/part")
    git(host / "third" / "part", "checkout", "-q", "v1")
    git(host, "add", "-A")
    git(host, "commit", "-qm", "with a submodule")
    git(host, "tag", "v2")
    stack.ok("pin", "up", "--ref", "v2", "--set", "whole")
    stack.ok("pin", "part", "--url", str(part), "--ref", "v1", "--into", "up:third/part", "--set", "whole")
    stack.ok("pin", "part", "--ref", "v2", "--set", "bumped")
    return stack


def test_a_nested_upstream_lies_in_its_parent(nested: Patchq) -> None:
    nested.ok("apply", "--set", "whole")
    inside = nested.tree("up") / "third" / "part" / "p.txt"
    assert inside.read_bytes() == numbered(10)
    edit(inside, 3)
    assert "part v1" in nested.ok("status", "--set", "whole")
    nested.ok("new", "part", "mine", "-m", "Mine\n\nWhy.")
    assert "clean" in nested.ok("status", "--set", "whole").splitlines()[1], "the parent doesn't see its nested one"
    assert "up to date" in nested.ok("apply", "--set", "whole")


def test_proofs_of_a_copied_project_read_its_own_nested_trees(nested: Patchq, tmp_path: Path) -> None:
    nested.ok("apply", "--set", "whole")
    edit(nested.tree("up") / "third" / "part" / "p.txt", 3)
    nested.ok("new", "part", "mine", "-m", "Mine\n\nWhy.\n\nProof: tests/stacks/test_mine.py", "-s")
    proof = nested.root / "tests" / "stacks" / "test_mine.py"
    proof.write_text(
        "def test_it(trees):\n    text = (trees / 'up/third/part/p.txt').read_text()\n    assert 'changed' in text\n"
    )
    assert json.loads(nested.ok("test", "--prove", "--set", "whole", "--json"))["counts"] == {"proven": 1}
    copied = Patchq(tmp_path / "copied")
    shutil.copytree(nested.root, copied.root, symlinks=True)
    links = list(copied.layout.private.glob("prove/slot*/up/third/part"))
    assert links
    assert all(copied.root in link.resolve().parents for link in links)
    for link in links:
        link.unlink()
        link.symlink_to(nested.layout.private / "prove" / link.parts[-4] / "part")
    (copied.root / "tests" / "stacks" / "test_mine.py").write_text(proof.read_text() + "\n\n# Again.\n")
    assert json.loads(copied.ok("test", "--prove", "--set", "whole", "--json"))["counts"] == {"proven": 1}
    used = [link for link in links if link.exists() and copied.root in link.resolve().parents]
    assert used, "a link into another project is made again"


def test_a_set_may_bump_the_nested_one(nested: Patchq) -> None:
    nested.ok("apply", "--set", "whole")
    nested.ok("apply", "--set", "bumped")
    assert (nested.tree("up") / "third" / "part" / "p.txt").read_bytes() == numbered(12)
    nested.ok("apply", "--set", "whole")
    assert (nested.tree("up") / "third" / "part" / "p.txt").read_bytes() == numbered(10)


def test_edits_of_the_parent_are_its_own(nested: Patchq) -> None:
    nested.ok("apply", "--set", "whole")
    edit(nested.tree("up") / "b.txt", 3)
    nested.ok("new", "up", "parents", "-m", "Parent's\n\nWhy.")
    assert b"third/part" not in nested.patch_file("parents", ref="v2").read_bytes()


def test_a_patch_of_the_parent_may_not_reach_into_the_nested(nested: Patchq, tmp_path: Path) -> None:
    nested.ok("apply", "--set", "whole")
    diff = tmp_path / "reach.diff"
    diff.write_text("--- a/third/part/q.txt\n+++ b/third/part/q.txt\n@@ -0,0 +1 @@\n+x\n")
    done = nested.run("import", "up", str(diff), "--set", "whole")
    assert done.exit_code in (1, 3), done.output
    assert not nested.patch_file("reach", ref="v2").exists()


def test_build_adds_a_build(empty: Patchq, tmp_path: Path) -> None:
    """A pin of a git host downloads nothing, so the name of the wheel is known only once the tree is there."""
    folder = tmp_path / "widget-git"
    folder.mkdir()
    git(folder, "init", "-q")
    metadata = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    metadata += b'[project]\nname = "our-widget"\nversion = "1.0"\n'
    commit_files(folder, {"pyproject.toml": metadata, "our_widget/__init__.py": b"x = 1\n"}, "first")
    git(folder, "tag", "v1.0")
    empty.ok("pin", "up", "--url", str(folder), "--ref", "v1.0")
    empty.ok("apply")
    (empty.tree() / "our_widget" / "__init__.py").write_bytes(b"x = 2\n")
    empty.ok("new", "up", "two", "-m", "Two\n\nWhy.")
    assert "upstream.lock has these settings now" in empty.ok("build", "--no-isolation")
    (wheel,) = (empty.root / "dist" / "default").glob("our_widget-1.0+patchq.*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert files.read("our_widget/__init__.py") == b"x = 2\n"


def test_a_single_module_is_built_and_verified(empty: Patchq, tmp_path: Path) -> None:
    folder = tmp_path / "single"
    folder.mkdir()
    git(folder, "init", "-q")
    metadata = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    metadata += b'[project]\nname = "single"\nversion = "1.0"\n[tool.setuptools]\npy-modules = ["single"]\n'
    commit_files(folder, {"pyproject.toml": metadata, "single.py": b"x = 1\n"}, "first")
    git(folder, "tag", "v1.0")
    empty.ok("pin", "up", "--url", str(folder), "--ref", "v1.0")
    empty.ok("apply")
    (empty.tree() / "single.py").write_bytes(b"x = 2\n")
    empty.ok("new", "up", "two", "-m", "Two\n\nWhy.")
    empty.ok("build", "--no-isolation")
    (wheel,) = (empty.root / "dist").rglob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    said = empty.ok("verify-installed", "--python", python)
    assert "live: up/two" in said
    assert f"checked against: {wheel.relative_to(empty.root)}" in said
    (module,) = (tmp_path / "venv").rglob("single.py")
    module.write_text("x = 3\n")
    assert "changed since the build: single.py" in empty.fails(1, "verify-installed", "--python", python)
    module.write_text("x = 2\n")
    (module.parent / "single" / "__init__.py").write_text("")
    said = empty.fails(1, "verify-installed", "--python", python)
    assert "added since the install: single/__init__.py" in said


@pytest.mark.parametrize("name", [b'"a b; id"', b"3", b'"$(id)"'])
def test_the_build_that_is_added_holds_no_foreign_words(empty: Patchq, tmp_path: Path, name: bytes) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "pyproject.toml").write_bytes(b"[project]\nname = " + name + b"\n")
    empty.ok("pin", "up", "--url", str(folder), "--ref", "now")
    empty.ok("apply")
    before = empty.layout.lock.read_bytes()
    assert "no pyproject.toml names a distribution" in empty.fails(1, "build")
    assert empty.layout.lock.read_bytes() == before


def test_a_later_archive_adds_the_build(patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "files"
    files.mkdir()
    with tarfile.open(files / "widget-1.0.tar.gz", "w:gz") as tar:
        for path in ("widget/__init__.py", "PKG-INFO"):
            tar.addfile(tarfile.TarInfo(f"widget-1.0/{path}"))
    (files / "widget-1.0-py3-none-any.whl").write_bytes(b"a wheel")
    monkeypatch.setenv("PIP_FIND_LINKS", str(files))
    index.pip_settings.cache_clear()
    assert patchq.project.lock.upstreams["up"].build is None
    said = patchq.ok("pin", "up", "--archive", "widget==1.0", "--ref", "v1")
    index.pip_settings.cache_clear()
    assert "wheels of widget, package widget, are built from the release's own wheels" in said
    build = patchq.project.lock.upstreams["up"].build
    assert build is not None
    assert (build.distribution, build.package, build.profile) == ("widget", "widget", "overlay")
