"""Output of untrusted text to a terminal. All output goes through this module.

Names, subjects, paths, messages and diffs come from upstreams, mails and other projects. Some characters are commands
for a terminal, and others are invisible or reverse the text. These characters are printed as escapes such as ``\\x1b``
and ``\\u202e``, and in JSON as JSON escapes. Colour is added after escaping.
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


#: Characters outside printable ASCII. JSON writers leave some unprintable characters unescaped.
_JSON = re.compile(r"[^\n -~]")


def _line(made: RenderableType) -> tuple[str, int]:
    """Render an object as one line of standard error. Return the line and its width.

    The line is at least one column shorter than the terminal, because a full line would wrap.
    """
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(file=sys.stderr, highlight=False, force_terminal=False if plain else None)
    console.width = max(console.width - 1, 1)
    with console.capture() as printed:
        console.print(made, no_wrap=True)
    return printed.get().split("\n")[0], console.width


class OutputLost(PatchqError):
    """Error for standard output that can't be written.

    :ivar reader_is_gone: True if standard output is a pipe whose reading program has ended (`patchq … |
        head`).
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"the output can't be written: {error.strerror}",
            hint="redirect the output to another place and run the command again: "
            "the new run finishes or undoes this one",
        )
        self.reader_is_gone = error.errno == errno.EPIPE


#: True after a message on standard error was lost. Then the command fails at its end.
messages_lost = False


def write(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write text to standard output or standard error.

    If standard error can't be written, patchq continues, and fails at its end.

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
    """Flush standard output. If that fails, discard the buffer and return False."""
    try:
        if sys.stdout:
            sys.stdout.flush()
            # An unbuffered stream has nothing to flush. To detect a read-only stream, write an empty string.
            sys.stdout.write("")
    except OSError:
        _drop_output(err=False)
        return False
    return True


def _drop_output(*, err: bool) -> None:
    """Discard a stream's unwritten output, because Python would try to write it again at exit."""
    if err:
        stream = sys.stderr
    else:
        stream = sys.stdout
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_meter: Meter | None = None


def meter() -> Meter:
    """Return the meter that shows progress."""
    global _meter
    from patchq.cli.meter import Meter

    if _meter is None:
        _meter = Meter(lambda text: write(text, nl=False, err=True), _line, lambda name: name.translate(LINE))
    return _meter


def _make_way() -> None:
    """Clear the progress line before other output."""
    if _meter:
        _meter.clear()


#: Syntax of the commands that GitHub's runner reads in a job's output.
_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)", re.MULTILINE)


def _no_commands(text: str) -> str:
    """Escape workflow commands of GitHub Actions in a text. Outside of GitHub Actions, return the text unchanged."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    return _COMMAND.sub(lambda m: "\\x23" if m[1] is None else m[1] + "\\x3a", text)


def echo_command(text: str) -> None:
    """Write a workflow command for GitHub Actions."""
    _make_way()
    write(text.translate(LINE))


def safe(text: str) -> str:
    """Escape text for a terminal. Line ends and tabs are kept.

    >>> safe("a\\x1b[31mb\\u202ec\\n")
    'a\\\\x1b[31mb\\\\u202ec\\n'
    """
    return _no_commands(text.translate(TEXT))


def echo(text: object = "", *, err: bool = False, nl: bool = True, fg: str | None = None, bold: bool = False) -> None:
    """Write text to a standard stream, with colour on a terminal unless NO_COLOR is set."""
    _make_way()
    shown = safe(str(text))
    if (fg or bold) and not os.environ.get("NO_COLOR"):
        shown = click.style(shown, fg=fg, bold=bold)
    write(shown, err=err, nl=nl)


def echo_json(body: dict[str, Any]) -> None:
    """Write a JSON result. Escape unprintable characters as ``\\uXXXX``."""
    import json

    _make_way()
    text = json.dumps(body, indent=1, ensure_ascii=False)
    shown = _JSON.sub(lambda m: m[0] if m[0].isprintable() else json.dumps(m[0])[1:-1], text)
    # JSON has no line that begins with a colon, but GitHub's runner finds ## commands in any line.
    write(shown.replace("##[", "#\\u0023["))


def echo_usage(error: click.ClickException) -> None:
    """Write click's message about an invalid command line. Escape the words that the message quotes."""
    message = io.StringIO()
    error.show(message)
    echo(message.getvalue(), err=True, nl=False)


def confirm(question: str) -> None:
    """Ask a yes-or-no question on standard error.

    :raises click.Abort: for any answer but yes.
    """
    _make_way()
    click.confirm(safe(question), abort=True, err=True)


#: Blanks between the columns of a table.
_GAP = 2
#: Width of a table if the output isn't a terminal.
_PIPE_WIDTH = 200


def ask_number(question: str, most: int) -> int:
    """Ask for a number from 0 to ``most`` on standard error. The default is 0.

    :raises click.Abort: if there is no answer.
    """
    _make_way()
    found: int = click.prompt(safe(question), type=click.IntRange(0, most), default=0, err=True)
    return found


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table; without styles if the output isn't a terminal or NO_COLOR is set.

    The first column doesn't wrap. If the terminal is so narrow that a word in another column would be broken,
    each row is printed as a paragraph. Markup and terminal commands in cells are escaped.
    """
    heads = [head.translate(LINE) for head in heads]
    rows = [[cell.translate(LINE) for cell in row] for row in rows]
    if not title and not sys.stdout.isatty() and (lines := _plain_lines([heads, *rows], _PIPE_WIDTH)):
        _make_way()
        write(_no_commands("\n".join(lines)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    console = Console(
        width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, force_terminal=False if plain else None
    )
    if sys.stdout.isatty() and _least_width([heads, *rows]) > console.width:
        _show_paragraphs(heads, rows, title.translate(LINE), console.width)
        return
    table = Table(title=Text(title.translate(LINE)) if title else None, title_justify="left", box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    with console.capture() as printed:
        console.print(table)
    _make_way()
    write(_no_commands("\n".join(line.rstrip() for line in printed.get().splitlines())))


def _plain_lines(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a table's lines, laid out without the library rich, whose import takes longer than most commands.

    Return no lines if the table is too wide, or has characters that may not be one column wide.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) > width or not all("".join(row).isascii() for row in rows):
        return []
    lines = []
    for row in rows:
        cells = (cell.ljust(size) for cell, size in zip(row, widths, strict=True))
        lines.append((" " * _GAP).join(cells).rstrip())
    return lines


def _least_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the smallest width at which no word of a table breaks. A cell of the first column counts as one word."""
    from rich.cells import cell_len

    widths = [0] * len(rows[0])
    for row in rows:
        for number, cell in enumerate(row):
            if number:
                words = cell.split()
            else:
                words = [cell]
            widths[number] = max([widths[number], *map(cell_len, words)])
    return sum(widths) + _GAP * (len(widths) - 1)


def _show_paragraphs(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str, width: int) -> None:
    """Print each row as a paragraph: the first cell, and below it the other cells with their column headings."""
    import textwrap

    if title:
        echo(title)
    for row in rows:
        echo(row[0], bold=True)
        output = "; ".join(f"{head}: {cell}" for head, cell in zip(heads[1:], row[1:], strict=True) if cell)
        for line in textwrap.wrap(output, max(width, 20), initial_indent="    ", subsequent_indent="    "):
            echo(line)
