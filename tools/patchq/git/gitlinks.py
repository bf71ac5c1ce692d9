"""Repositories inside a tree: all that git writes down of one is the id of a commit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.errors import UserError
from patchq.git.repository import Git
from patchq.names import sh, show_path


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


def settle_submodules(git: Git, env: Mapping[str, str]) -> None:
    """In the index that ``env`` names, take for a conflict of submodules what the merge left.

    That is upstream's, if it has one. git checks none out, and can't add a folder with nothing in it.
    """
    left: dict[bytes, bytes] = {}
    for entry in git.run("ls-files", "--unmerged", "-z", env=env).split(b"\0"):
        about, _, path = entry.partition(b"\t")
        folder = os.path.join(os.fsencode(git.folder), path)
        if (
            about.startswith(b"160000 ")
            and not about.endswith(b" 1")
            and os.path.isdir(folder)
            and not os.path.lexists(os.path.join(folder, b".git"))
        ):
            left.setdefault(path, b"0 %s\t%s\0%s 0\t%s\0" % (b"0" * 40, path, about.rpartition(b" ")[0], path))
    if left:
        git.run("update-index", "-z", "--index-info", data=b"".join(left.values()), env=env)


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
        names = " ".join(sh(show_path(p)) for p in found)
        said = _repositories(found).replace(" is ", ", ").replace(" are ", ", ")
        raise UserError(
            f"{where} adds {said}; a patch can't hold the files of one",
            hint=f"`git rm --cached {names}` and `git commit --amend` {there}, or name it in .gitmodules",
        )
