"""Conversion of a patch that doesn't apply into edits in the worktree, for the user to complete.

Here, git applies each hunk with reduced context (fuzz), which :mod:`patchq.stacks.engine` never does. Therefore, the
user must review the edits. ``export --amend`` then replaces the patch's diff by the edits, and keeps the patch's author
and message.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import UserError
from patchq.formats import diff
from patchq.git.worktree import Worktree
from patchq.names import StackResult, show_path
from patchq.project.project import Project
from patchq.project.stack import find_patch
from patchq.stacks.apply import apply
from patchq.system import fsio, runner

_REJECTED = ".rej"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refit:
    """Result of applying a patch to the worktree as edits.

    :ivar edited: paths of the edited files.
    :ivar rejected: paths of ``.rej`` files with the rejected hunks, relative to the project.
    :ivar difference: unified diff between the patch file's diff and the worktree's diff.
    """

    upstream: str
    patch: str
    applied: tuple[StackResult, ...]
    worktree: str
    edited: tuple[str, ...]
    rejected: tuple[str, ...]
    difference: str


def refit(project: Project, patch: str, *, set_name: str = "", offline: bool = False) -> Refit:
    """Apply the patches below a patch, and put the patch into the worktree as edits.

    :raises EditedTreeError: if the worktree already contains edits.
    :raises ConflictError: if one of the patches below doesn't apply.
    :raises UserError: if git can't apply the patch even with ``--reject``.
    """
    set_name = project.choose_set(set_name)
    stack, name = find_patch(project.stacks(set_name), patch)
    upstream = stack.pin.upstream
    _, text = stack.load(name)
    applied = apply(project, [upstream], set_name=set_name, before=f"{upstream}/{name}", offline=offline)
    with project.locked("apply"):
        worktree = project.worktree(upstream)
        worktree.refuse_edits(applied[0].tip, untracked=True)
        _apply_with_fuzz(worktree, text, name)
        rejected = _put_aside(project, worktree, name)
        # Git doesn't sync the files that it writes, and no other file has these edits.
        fsio.sync_file_system(project.layout.private)
        edited = worktree.status()
        now = worktree.git.run("diff", "--full-index", "--no-ext-diff", "HEAD")
        return Refit(
            upstream=upstream,
            patch=name,
            applied=tuple(applied),
            worktree=str(worktree.path),
            edited=(*edited.edited, *edited.untracked),
            rejected=tuple(rejected),
            difference=_compare(text, now),
        )


def _apply_with_fuzz(worktree: Worktree, text: bytes, name: str) -> None:
    argv = ["apply", "--reject", "--recount", "--whitespace=nowarn", f"-C{_least_context(text, name)}", "-"]
    try:
        worktree.git.run(*argv, data=text, ok_codes=(0, 1))
    except runner.CommandError as error:
        raise UserError(
            f"{name} can't be put into the worktree: {error.output}",
            hint=f"make the change in {worktree.path}, then `patchq export {worktree.upstream} --amend {name}`",
        ) from None


def _least_context(text: bytes, name: str) -> int:
    """Return the number of context lines that must match on each side of a change, for git's option ``-C``.

    If every hunk removes a line, the removed lines locate the hunk, so no context is required. A hunk that only adds
    lines requires context, because without context it would apply anywhere.
    """
    try:
        files = diff.parse(text, name)
    except diff.Unsupported:
        return 1
    for file in files:
        for hunk in file.hunks:
            if len(hunk.old) == hunk.context:
                return 1
    return 0


def _put_aside(project: Project, worktree: Worktree, name: str) -> list[str]:
    """Move git's ``.rej`` files out of the worktree, and return their new paths."""
    folder = project.layout.private / "rejected" / worktree.upstream / name
    if folder.exists():
        fsio.remove_folder(folder)
    listed = worktree.git.run("ls-files", "--others", "-z").split(b"\0")
    found = []
    for path in map(os.fsdecode, listed):
        if not path.endswith(_REJECTED):
            continue
        target = folder / Path(path)
        fsio.make_folder(target.parent)
        fsio.rename(worktree.path / path, target)
        found.append(target.relative_to(project.layout.root).as_posix())
    return found


def _compare(before: bytes, after: bytes) -> str:
    """Return a unified diff of two diffs, ignoring their blob ids."""
    old, new = _lines(before), _lines(after)
    return "\n".join(difflib.unified_diff(old, new, "the patch", "the worktree", lineterm="", n=3))


def _lines(text: bytes) -> Sequence[str]:
    found = []
    for line in map(show_path, text.split(b"\n")):
        if not line.startswith("index "):
            found.append(line)
    return found
