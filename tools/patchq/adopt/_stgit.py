"""Reader of a repository's StGit stack: its commits and their names."""

from __future__ import annotations

import json
from pathlib import Path

from patchq.errors import FormatError
from patchq.git.repository import Foreign
from patchq.system import runner


def has_stgit(folder: Path) -> bool:
    """Return True if a folder is a repository whose current branch has a StGit stack."""
    if not ((folder / ".git").exists() or (folder / "refs").is_dir()):
        return False
    return Foreign(folder).ref_or_none(_stack_ref(folder)) is not None


def _stack_ref(folder: Path) -> str:
    branch = Foreign(folder).line("symbolic-ref", "--short", "-q", "HEAD", ok_codes=(0, 1))
    return f"refs/stacks/{branch or 'HEAD'}"


def stgit_patches(folder: Path) -> tuple[str, str, list[str]]:
    """Return the commit below the applied patches, the last patch's commit, and the patches' names in order.

    :raises FormatError: if the stack can't be read, or no patch is applied.
    """
    git = Foreign(folder)
    try:
        stack = json.loads(git.run("cat-file", "blob", f"{_stack_ref(folder)}:stack.json"))
        names = list(map(str, stack["applied"]))
        ids = [str(stack["patches"][name]["oid"]) for name in names]
    except (runner.CommandError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{folder} has a StGit stack that can't be read: {error}",
            hint="run `stg export --dir DIR`, then import DIR",
        ) from None
    if not ids:
        raise FormatError(f"{folder}: no patch of its StGit stack is applied", hint="`stg push --all`")
    return f"{ids[0]}~1", ids[-1], names
