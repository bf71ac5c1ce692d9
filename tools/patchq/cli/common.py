"""What the verbs share: the project, JSON, and the options that many have."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from patchq.names import show_path
from patchq.project.project import Project

F = TypeVar("F", bound=Callable[..., Any])


def open_project(as_json: bool = False) -> Project:
    """The project that the command line means; what it says goes to standard error."""
    ctx = click.get_current_context()
    say = (lambda _: None) if as_json else (lambda line: click.echo(line, err=True))
    project = Project.find(Path(ctx.obj["project"]), say, ctx.obj["wait"])
    if sys.stderr.isatty() and not as_json:
        project.progress = _progress
    return project


def _progress(name: str, size: int, total: int) -> None:
    share = f"{100 * size // total:3d} %" if total else ""
    end = "\n" if total and size >= total else ""
    click.echo(f"\r{name}: {size >> 20} MB {share}", nl=False, err=True)
    if end:
        click.echo("", err=True)


def emit(schema: str, body: dict[str, Any]) -> None:
    """Print a JSON answer: ``schema`` is the verb's name."""
    click.echo(json.dumps({"schema": f"patchq/{schema}/1", **body}, indent=1, ensure_ascii=False))


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """A table for people, its first column unbroken; plain where it isn't a terminal's or NO_COLOR is set.

    Words of somebody else stand in it as they are: nothing in them is markup or moves the cursor.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    console = Console(
        width=None if sys.stdout.isatty() else 200, highlight=False, force_terminal=False if plain else None
    )
    table = Table(title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(show_path(cell.encode())) for cell in row))
    with console.capture() as printed:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def json_option(function: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(function)


def set_option(function: F) -> F:
    """``--set``."""
    return click.option("--set", "set_name", metavar="SET", default="", help="The set.  [default: the lock's]")(
        function
    )


def offline_option(function: F) -> F:
    """``--offline``."""
    return click.option("--offline", is_flag=True, help="Use only what is in the store and the cache.")(function)


def show_exported(result: Any, as_json: bool, schema: str) -> None:
    """What a command did to a stack, for people or as JSON."""
    if as_json:
        from dataclasses import asdict

        emit(schema, asdict(result))
        return
    for word, names in (("added", result.added), ("rewrote", result.written), ("removed", result.removed)):
        for name in names:
            click.echo(f"{result.upstream}: {word} {name}")
    if not (result.added or result.written or result.removed):
        click.echo(f"{result.upstream}: nothing changed, {result.unchanged} patches as they were")
    for note in result.notes:
        click.echo(f"{result.upstream}: {note}")
