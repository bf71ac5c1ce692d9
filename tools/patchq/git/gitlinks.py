"""Repositories inside a tree: all that git writes down of one is the id of a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.errors import UserError
from patchq.git.repository import Git
from patchq.names import show_path


def stray_repositories(git: Git, before: str, after: str) -> list[bytes]:
    """Where ``after``, and not ``before``, has the commit of a repository that its ``.gitmodules`` doesn't name."""
    added = [
        c.path
        for c in git.changes(before, after)
        if c.new and c.new.mode == b"160000" and not (c.old and c.old.mode == b"160000")
    ]
    if not added:
        return []
    argv = ("config", "--blob", f"{after}:.gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$")
    out = git.run(*argv, ok_codes=(0, 1, 128))
    named = {entry.partition(b"\n")[2] for entry in out.split(b"\0")}
    return [path for path in added if path not in named]


def untracked_repositories(git: Git, env: Mapping[str, str]) -> list[bytes]:
    """Where in a worktree repositories lie that its index knows nothing of, and nobody ignores."""
    # Of a folder that is a repository git lists the name alone, with a slash.
    others = git.run("ls-files", "--others", "--exclude-standard", "-z", env=env).split(b"\0")
    return [path.rstrip(b"/") for path in others if path.endswith(b"/")]


def _repositories(paths: Sequence[bytes]) -> str:
    """``a, b are repositories of their own``."""
    names = ", ".join(show_path(p) for p in paths)
    return f"{names} are repositories of their own" if len(paths) > 1 else f"{names} is a repository of its own"


def in_the_worktree(upstream: str, paths: Sequence[bytes], folder: Path) -> UserError:
    """What to say of repositories that lie in a worktree."""
    return UserError(
        f"{upstream}: {_repositories(paths)}; a patch can't hold the files of one",
        hint=f"move it out of {folder}, or ignore it there (.gitignore)",
    )


def refuse_repositories(store: Git, where: str, before: str, after: str, there: str) -> None:
    """Check that a patch puts no repository into the tree, of which it could hold but an id.

    :param where: what to call the patch.
    :param there: where to mend it.
    :raises UserError: naming what it puts there.
    """
    if found := stray_repositories(store, before, after):
        names = " ".join(show_path(p) for p in found)
        said = _repositories(found).replace(" is ", ", ").replace(" are ", ", ")
        raise UserError(
            f"{where} adds {said}; a patch can't hold the files of one",
            hint=f"`git rm --cached {names}` and `git commit --amend` {there}, or name it in .gitmodules",
        )
