"""Functions and options that several commands share, and the lines that a command prints while it runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from patchq import __version__
from patchq.cli.terminal import echo, echo_json, meter
from patchq.errors import PatchqError, without_secrets
from patchq.names import counted
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.stacks.export import Exported

F = TypeVar("F", bound=Callable[..., Any])


def open_project(as_json: bool = False) -> Project:
    """Open the project that the command line selects. The project prints its messages to standard error."""
    ctx = click.get_current_context()

    def say(line: str) -> None:
        if not as_json:
            echo(without_secrets(line), err=True)

    project = Project.find(Path(ctx.obj["project"]), say, ctx.obj["wait"])
    with contextlib.suppress(PatchqError):  # later code reports an unreadable lock
        if project.lock.patchq not in ("", __version__):
            from patchq.project import own

            if note := own.differs(project.lock.patchq):
                say(f"note: {note}")
    if sys.stderr.isatty() and not as_json:
        project.progress = meter()
    return project


def stopped_upstream(project: Project, name: str | None) -> str:
    """Return the named upstream; without a name, return the only upstream with an unfinished rebase.

    :raises UserError: if no rebase is unfinished, or several are.
    """
    from patchq.errors import UserError
    from patchq.rebase.state import under_way

    if name:
        return name
    names = [found.upstream for found in under_way(project)]
    if len(names) != 1:
        if not names:
            raise UserError("no rebase is under way", hint="`patchq status` shows the stacks")
        raise UserError("rebases of several upstreams are under way", hint=f"name one: {', '.join(names)}")
    return names[0]


def emit(schema: str, body: dict[str, Any]) -> None:
    """Print a JSON result.

    :param schema: name of the command, which is part of the schema's name.
    """
    echo_json({"schema": f"patchq/{schema}/1", **body})


def as_dicts(items: Iterable[Any]) -> list[dict[str, Any]]:
    """Return dataclass instances as JSON objects."""
    return list(map(asdict, items))


def json_option(function: F) -> F:
    """Add the option ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def set_option(function: F) -> F:
    """Add the option ``--set``."""
    return click.option(
        "--set", "set_name", metavar="SET", default="", help="Set of pins.  [default: the default set]"
    )(function)


def offline_option(function: F) -> F:
    """Add the option ``--offline``."""
    return click.option("--offline", is_flag=True, help="Use only the store and the cache; download nothing.")(function)


def without_proof(project: Project, set_name: str) -> list[str]:
    """Return the patches of a set that name no proof, as ``upstream/patch``."""
    found = []
    for stack in project.stacks(set_name):
        found += [f"{stack.pin.upstream}/{name}" for name in stack.without_proof()]
    return found


def exported_json(result: Exported) -> dict[str, Any]:
    """Return the result of a command that changed a stack, as a JSON object."""
    return {**asdict(result), "moved": _moved(result)}


def _moved(result: Exported) -> str:
    """Return the text for a moved patch, such as ``fix after base, by 2 places``; empty if no patch was moved."""
    move = result.moved
    if move is None:
        return ""
    place = "to the start of the stack"
    if move.after:
        place = f"after {move.after}"
    return f"{move.patch} {place}, by {counted(move.passed, 'place')}"


def show_exported(result: Exported, as_json: bool, schema: str) -> None:
    """Print the result of a command that changed a stack, as text or JSON."""
    if as_json:
        emit(schema, exported_json(result))
        return
    for word, names in (("added", result.added), ("rewrote", result.written), ("removed", result.removed)):
        for name in names:
            echo(f"{result.upstream}: {word} {name}")
    if moved := _moved(result):
        echo(f"{result.upstream}: moved {moved}")
    elif not (result.added or result.written or result.removed):
        echo(f"{result.upstream}: nothing changed ({counted(result.unchanged, 'patch')})")
    for note in result.notes:
        echo(f"{result.upstream}: {note}")
