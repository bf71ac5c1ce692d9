"""Merges by other programs: structural merge tools, and commands that the user names."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from patchq.errors import FormatError, PatchqError, UserError
from patchq.formats.diff import REGULAR
from patchq.git.repository import copy_tree
from patchq.rebase.conflict import Brief, report_json
from patchq.rebase.resolve import MOST_BYTES, run_merger
from patchq.resolutions._candidates import StrategyOutcome, StrategyResult, look
from patchq.resolutions._sides import EXECUTABLE, Sides
from patchq.system import fsio, runner

#: Time limit in seconds of a command that the user names.
_SECONDS = 1800


def by_merger(sides: Sides, name: str, program: str) -> StrategyResult:
    """Merge all conflicting files with a structural merge tool, and return the result."""
    if not sides.files:
        return StrategyResult(strategy=name, outcome=StrategyOutcome.CONFLICT)
    try:
        files = {}
        for path, versions in sides.files.items():
            files[path] = run_merger(program, path, dict(enumerate(versions, 1)))
    except PatchqError as error:
        return StrategyResult(strategy=name, outcome=StrategyOutcome.FAILED, where=error.message)
    return look(sides, name, sides.with_files(files))


def by_command(sides: Sides, command: str, report: Brief) -> StrategyResult:
    """Run a command in a temporary copy of the conflict worktree, and return the resulting files.

    The command's standard input is the conflict report as JSON, in which ``worktree`` is the temporary copy.
    Only the conflicting files and the patch's own files are taken from the copy.

    :raises UserError: if the command can't be split into words.
    """
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--tool {command!r}: {error}", hint="quote the command as for a shell") from None
    if not argv:
        raise UserError("--tool is empty", hint="--tool 'COMMAND ARGUMENT'")
    with fsio.temporary_folder() as folder:
        tree = folder / "tree"
        copy_tree(sides.git, sides.parked, tree)
        before = _contents(tree, _files(sides))
        data = {"schema": "patchq/conflict/1", **report_json(replace(report, worktree=str(tree)))}
        try:
            runner.run(argv, cwd=tree, data=json.dumps(data).encode(), timeout=_SECONDS)
            after = _contents(tree, before)
        except (runner.CommandError, FormatError) as error:
            return StrategyResult(strategy=command, outcome=StrategyOutcome.FAILED, where=error.message)
    changed = {}
    for path, content in after.items():
        if content != before[path]:
            changed[path] = content
    if not changed:
        return StrategyResult(strategy=command, outcome=StrategyOutcome.CONFLICT)
    return look(sides, command, sides.with_files(changed), adapts=True)


def _files(sides: Sides) -> list[bytes]:
    """Return the paths of files that a command may change, without links and submodules."""
    touched = sorted(sides.touched)
    there = sides.git.list_tree(sides.parked, touched)
    found = []
    for path in touched:
        if path not in there or there[path].mode in (REGULAR, EXECUTABLE):
            found.append(path)
    return found


def _contents(tree: Path, paths: Iterable[bytes]) -> dict[bytes, bytes | None]:
    return {path: _content(tree, path) for path in paths}


def _content(tree: Path, path: bytes) -> bytes | None:
    """Return the content of a file; None if it doesn't exist.

    :raises FormatError: if the path is a link, isn't a file, or is outside ``tree``.
    """
    file = tree / os.fsdecode(path)
    if file.is_symlink() or not file.parent.resolve().is_relative_to(tree.resolve()):
        raise fsio.not_regular(file)
    return fsio.read_limited(file, MOST_BYTES)
