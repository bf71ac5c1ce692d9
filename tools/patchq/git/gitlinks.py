"""Gitlinks: repositories inside a tree. Git records only their commit ids."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.errors import UserError
from patchq.git.repository import Git
from patchq.names import sh, show_path, show_paths


def stray_repositories(git: Git, before: str, after: str) -> list[bytes]:
    """Return the paths of gitlinks that ``after`` adds to ``before`` without a ``.gitmodules`` entry."""
    added: list[bytes] = []
    for change in git.changes(before, after):
        was_link = change.old is not None and change.old.mode == b"160000"
        is_link = change.new is not None and change.new.mode == b"160000"
        if is_link and not was_link:
            added.append(change.path)
    if not added:
        return []
    argv = ("config", "--blob", f"{after}:.gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$")
    out = git.run(*argv, ok_codes=(0, 1, 128))
    named = {entry.partition(b"\n")[2] for entry in out.split(b"\0")}
    return [path for path in added if path not in named]


def untracked_repositories(git: Git, env: Mapping[str, str]) -> list[bytes]:
    """Return the paths of repositories in a worktree that are neither tracked nor ignored."""
    # git lists such a repository as its folder name with a slash.
    others = git.run("ls-files", "--others", "--exclude-standard", "-z", env=env).split(b"\0")
    repositories: list[bytes] = []
    for path in others:
        if path.endswith(b"/"):
            repositories.append(path.rstrip(b"/"))
    return repositories


def settle_submodules(git: Git, env: Mapping[str, str]) -> None:
    """Resolve conflicts of submodules in the index that ``env`` names, with upstream's commit if there is one.

    git itself can't resolve such a conflict from the worktree: a merge leaves an empty folder for a submodule, and
    git can't add an empty folder.
    """
    resolved: dict[bytes, bytes] = {}
    for entry in git.run("ls-files", "--unmerged", "-z", env=env).split(b"\0"):
        about, _, path = entry.partition(b"\t")
        if not about.startswith(b"160000 ") or about.endswith(b" 1"):
            continue
        folder = os.path.join(os.fsencode(git.folder), path)
        has_repository = os.path.lexists(os.path.join(folder, b".git"))
        if os.path.isdir(folder) and not has_repository and path not in resolved:
            mode_and_id = about.rpartition(b" ")[0]
            remove = b"0 %s\t%s\0" % (b"0" * 40, path)
            resolved[path] = remove + b"%s 0\t%s\0" % (mode_and_id, path)
    if resolved:
        data = b"".join(resolved.values())
        git.run("update-index", "-z", "--index-info", data=data, env=env)


def _repositories(paths: Sequence[bytes]) -> tuple[str, str]:
    """Return the verb and the noun for a message about one repository or several."""
    if len(paths) > 1:
        return "are", "repositories of their own"
    return "is", "a repository of its own"


def in_the_worktree(upstream: str, paths: Sequence[bytes], folder: Path) -> UserError:
    """Build the error for repositories inside a worktree."""
    verb, noun = _repositories(paths)
    return UserError(
        f"{upstream}: {show_paths(paths)} {verb} {noun}; a patch can't contain another repository's files",
        hint=f"move the repository out of {folder}, or add it to .gitignore there",
    )


def refuse_repositories(store: Git, where: str, before: str, after: str, there: str) -> None:
    """Check that a patch adds no repository. A patch can't contain another repository's files.

    :param where: name of the patch in the message.
    :param there: place where the user can fix the patch, for the hint.
    :raises UserError: with the paths of the repositories.
    """
    if found := stray_repositories(store, before, after):
        names = " ".join(sh(show_path(p)) for p in found)
        _, noun = _repositories(found)
        raise UserError(
            f"{where} adds {show_paths(found)}, {noun}; a patch can't contain another repository's files",
            hint=f"run `git rm --cached {names}` and `git commit --amend` {there}, or add a .gitmodules entry",
        )
