"""The one place where text goes to a terminal. What stands in it may be anybody's: nothing of it is obeyed.

Names, subjects, paths, messages and diffs come from upstreams, mails and other people's projects. A terminal would take
some of their characters for commands, and show others as nothing, or turned around. They are shown as escapes, such as
``\\x1b`` and ``\\u202e``, and in JSON as JSON's own; colour is put on afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from patchq.errors import PatchqError
from patchq.names import LINE, TEXT

if TYPE_CHECKING:
    from rich.console import RenderableType

    from patchq.cli.meter import Meter


#: What JSON takes as it is and a terminal doesn't: all that isn't printable but is no control of ASCII.
_JSON = re.compile(r"[^\n -~]")


def _line(made: RenderableType) -> tuple[str, int]:
    """On one line of standard error, which it doesn't quite fill: a full one would begin the next."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(file=sys.stderr, highlight=False, force_terminal=False if plain else None)
    console.width = max(console.width - 1, 1)
    with console.capture() as printed:
        console.print(made, no_wrap=True)
    return printed.get().split("\n")[0], console.width


class OutputLost(PatchqError):
    """Standard output can't be written.

    :ivar reader_is_gone: it is a pipe, and its reader has ended (`patchq … | head`).
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"the output can't be written: {error.strerror}",
            hint="send it elsewhere and run the command again: it finishes or undoes what was under way",
        )
        self.reader_is_gone = error.errno == errno.EPIPE


#: True once a message on standard error was lost: a command that can't show its warnings doesn't succeed.
messages_lost = False


def write(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write to a standard stream. Without standard error a command goes on, but fails in the end.

    :raises OutputLost: if standard output can't be written.
    """
    global messages_lost
    try:
        click.echo(text, err=err, nl=nl)
    except OSError as error:
        _drop_output(err=err)
        if not err:
            raise OutputLost(error) from None
        messages_lost = True


def flush() -> bool:
    """Write what is buffered for standard output; return False, and discard it, if it can't be written."""
    try:
        if sys.stdout:
            sys.stdout.flush()
            # An unbuffered stream has nothing to flush; where it is open for reading only, an empty write fails too.
            sys.stdout.write("")
    except OSError:
        _drop_output(err=False)
        return False
    return True


def _drop_output(*, err: bool) -> None:
    """Discard what a standard stream couldn't write; Python would try again at exit, and fail."""
    stream = sys.stderr if err else sys.stdout
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_meter: Meter | None = None


def meter() -> Meter:
    """The one that shows how far long work has come."""
    global _meter
    from patchq.cli.meter import Meter

    if _meter is None:
        _meter = Meter(lambda text: write(text, nl=False, err=True), _line, lambda name: name.translate(LINE))
    return _meter


def _make_way() -> None:
    """Take the meter's line away."""
    if _meter:
        _meter.clear()


#: How GitHub's runner finds its commands in what a job prints.
_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)", re.MULTILINE)


def _no_commands(text: str) -> str:
    """Return lines in which GitHub's runner, where it reads them, finds no command."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    return _COMMAND.sub(lambda m: "\\x23" if m[1] is None else m[1] + "\\x3a", text)


def echo_command(text: str) -> None:
    """Write a line that GitHub's runner is to obey."""
    _make_way()
    write(text.translate(LINE))


def safe(text: str) -> str:
    """``text`` as a terminal may be given it; line ends and tabs stay.

    >>> safe("a\\x1b[31mb\\u202ec\\n")
    'a\\\\x1b[31mb\\\\u202ec\\n'
    """
    return _no_commands(text.translate(TEXT))


def echo(text: object = "", *, err: bool = False, nl: bool = True, fg: str | None = None, bold: bool = False) -> None:
    """Write a text to standard output, or to standard error; with colour on a terminal, unless NO_COLOR is set."""
    _make_way()
    shown = safe(str(text))
    if (fg or bold) and not os.environ.get("NO_COLOR"):
        shown = click.style(shown, fg=fg, bold=bold)
    write(shown, err=err, nl=nl)


def echo_json(body: dict[str, Any]) -> None:
    """Write a JSON answer. What is not printable stands there as ``\\uXXXX``, controls of any kind among it."""
    import json

    _make_way()
    text = json.dumps(body, indent=1, ensure_ascii=False)
    shown = _JSON.sub(lambda m: m[0] if m[0].isprintable() else json.dumps(m[0])[1:-1], text)
    # JSON has no line that begins with a colon, but GitHub's runner finds this one in the middle of any.
    write(shown.replace("##[", "#\\u0023["))


def echo_usage(error: click.ClickException) -> None:
    """What click says of a command line that it can't read: it repeats words of it."""
    said = io.StringIO()
    error.show(said)
    echo(said.getvalue(), err=True, nl=False)


def confirm(question: str) -> None:
    """Ask on standard error.

    :raises click.Abort: for any answer but yes.
    """
    _make_way()
    click.confirm(safe(question), abort=True, err=True)


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
    table = Table(title=Text(title.translate(LINE)) if title else None, title_justify="left", box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head.translate(LINE), overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(cell.translate(LINE)) for cell in row))
    with console.capture() as printed:
        console.print(table)
    _make_way()
    write(_no_commands("\n".join(line.rstrip() for line in printed.get().splitlines())))
