"""A repository cloned inside a worktree is named; its commit id, which nobody else can fetch, never becomes a patch."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git
from test_rebase import parked


def cloned(patchq: Patchq, path: str = "pkg/other", *, commit: bool = True) -> Path:
    folder = patchq.tree() / path
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    if commit:
        commit_files(folder, {"x.txt": b"x\n"})
    return folder


@pytest.mark.parametrize("commit", [True, False], ids=["with a commit", "empty"])
def test_new_names_it(stack: Patchq, commit: bool) -> None:
    folder = cloned(stack, commit=commit)
    edit(stack.tree() / "b.txt", 30)
    before = stack.snapshot()
    for verb in (("new", "up", "more", "-m", "More\n\nWhy."), ("export", "up", "--amend", "third")):
        out = stack.fails(1, *verb)
        assert "pkg/other is a repository of its own" in out
        assert "hint: move the repository out of" in out
        assert stack.snapshot() == before
    folder.rename(stack.root.parent / "moved")
    stack.ok("new", "up", "more", "-m", "More\n\nWhy.")
    assert b"160000" not in stack.patch_file("more").read_bytes()


def test_one_that_is_ignored_is_nobodys_matter(stack: Patchq) -> None:
    cloned(stack, "ignored")
    (stack.tree() / ".gitignore").write_text("/ignored/\n")
    stack.ok("new", "up", "more", "-m", "More\n\nWhy.")
    assert b"160000" not in stack.patch_file("more").read_bytes()


def test_export_names_the_commit(stack: Patchq) -> None:
    cloned(stack)
    git(stack.tree(), "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    git(stack.tree(), "commit", "-q", "-m", "All that lay around")
    before = stack.snapshot()
    out = stack.fails(1, "export", "up")
    commit = git(stack.tree(), "rev-parse", "HEAD")[:12]
    assert f"commit {commit} adds pkg/other, a repository of its own" in out
    assert stack.snapshot() == before
    git(stack.tree(), "rm", "-q", "--cached", "pkg/other")
    edit(stack.tree() / "b.txt", 30)
    git(stack.tree(), "commit", "-q", "--amend", "-a", "-m", "All that lay around")
    assert "added all-that-lay-around" in stack.ok("export", "up")


def test_a_submodule_is_one(stack: Patchq, upstream: Path) -> None:
    tree, commit = stack.tree(), git(upstream, "rev-parse", "v1")
    (tree / ".gitmodules").write_text(f'[submodule "o"]\n\tpath = pkg/other\n\turl = {upstream}\n')
    git(tree, "update-index", "--add", "--cacheinfo", f"160000,{commit},pkg/other")
    git(tree, "clone", "-q", str(upstream), "pkg/other")
    stack.ok("new", "up", "more", "-m", "More\n\nWhy.")
    assert b"new file mode 160000" in stack.patch_file("more").read_bytes()
    (stack.tree() / "a.txt").write_bytes(b"x\n")
    git(stack.tree(), "commit", "-qam", "Even more\n\nWhy.")
    assert "added even-more" in stack.ok("export", "up")


def test_import_names_it(stack: Patchq, upstream: Path, tmp_path: Path) -> None:
    (upstream / "sub").mkdir()
    git(upstream / "sub", "init", "-q")
    commit_files(upstream / "sub", {"x.txt": b"x\n"})
    git(upstream, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    git(upstream, "commit", "-q", "-m", "All that lay around")
    git(upstream, "format-patch", "-q", "-o", str(tmp_path / "out"), "v1..HEAD")
    before = stack.snapshot()
    for what in (map(str, (tmp_path / "out").iterdir()), (str(upstream), "--range", "v1..HEAD")):
        assert "adds sub, a repository of its own" in stack.fails(1, "import", "up", *what)
        assert stack.snapshot() == before


def test_a_stopped_rebase_names_it_and_can_be_given_up(stack: Patchq, upstream: Path) -> None:
    edit(upstream / "a.txt", 5, b"theirs\n")
    git(upstream, "commit", "-qam", "Second")
    git(upstream, "tag", "v2")
    stack.fails(3, "rebase", "up", "--onto", "v2")
    folder = parked(stack)
    (folder / "a.txt").write_bytes(b"mine\n")
    for name, commit in (("empty", False), ("full", True)):
        (folder / name).mkdir()
        git(folder / name, "init", "-q")
        if commit:
            commit_files(folder / name, {"x.txt": b"x\n"})
    git(folder, "add", "a.txt")
    out = stack.fails(1, "rebase", "up", "--continue", "--no-proof")
    assert "empty, full are repositories of their own" in out
    assert "are kept as the commit" in stack.ok("rebase", "up", "--abort")
    assert not folder.exists()
