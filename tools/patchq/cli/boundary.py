"""Conversion of all exceptions to error messages and exit codes."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from patchq import __version__
from patchq.cli import terminal
from patchq.cli.terminal import OutputLost, echo, echo_json, echo_usage, flush
from patchq.errors import Conflict, ConflictError, PatchqError, UserError

BUG, INTERRUPTED = 4, 130
_OF_THE_MACHINE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.EFBIG,
    errno.EPIPE,
    errno.EAGAIN,
    errno.ENOMEM,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ESTALE,
}


class Boundary(click.Group):
    """Command group whose ``main`` prints exceptions as errors and exits with patchq's exit codes."""

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in arguments
        try:
            result = super().main(arguments, prog_name, standalone_mode=False, **extra)
            code = result if isinstance(result, int) else 0  # click returns the exit code
        except click.UsageError as error:
            _show_usage(error, as_json)
            code = 2
        except click.ClickException as error:
            echo_usage(error)
            code = 1
        except (click.Abort, KeyboardInterrupt):
            echo("interrupted; the next patchq command finishes or undoes this one", err=True)
            code = INTERRUPTED
        except OutputLost as error:
            code = _show_lost(error)
        except PatchqError as error:
            code = _show(error, as_json)
        except OSError as error:
            code = _show_os_error(error, as_json)
        except Exception as error:
            # Python has no exception type for running out of threads.
            full = isinstance(error, RuntimeError) and str(error).startswith("can't start new thread")
            if full:
                code = _show(_of_the_machine(OSError(errno.EAGAIN, str(error))), as_json)
            else:
                code = _bug(error)
        if terminal.messages_lost:
            code = code or 1
        if standalone_mode:
            sys.exit(code)
        return code


def _show_os_error(error: OSError, as_json: bool) -> int:
    """Print an OSError, and return the exit code.

    An OSError that the machine caused, such as a full disk, is printed as an error; all others are printed as a bug of
    patchq.
    """
    if not flush():  # click prints --help and --version without patchq's echo()
        return _show_lost(OutputLost(error))
    # A full disk or missing permissions are not a bug of patchq. If /tmp is full, tempfile reports a missing file.
    if error.errno in _OF_THE_MACHINE or "usable temporary directory" in str(error):
        return _show(_of_the_machine(error), as_json)
    return _bug(error)


def _show_usage(error: click.UsageError, as_json: bool) -> None:
    if not as_json:
        echo_usage(error)
        return
    hint = "patchq --help"
    if error.ctx:
        hint = f"{error.ctx.command_path} --help"
    body = {
        "schema": "patchq/error/1",
        "error": "UsageError",
        "exit": 2,
        "message": error.format_message(),
        "hint": hint,
        "conflicts": [],
    }
    if not _answer(body):
        echo_usage(error)


def _answer(body: dict[str, Any]) -> bool:
    """Print an error as JSON. Return False if standard output can't be written."""
    try:
        echo_json(body)
    except OutputLost:
        return False
    return True


def _show_lost(error: OutputLost) -> int:
    """Report that output was lost, and return the exit code.

    Print nothing if the reading program has ended (`patchq … | head`).
    """
    if error.reader_is_gone:
        return error.exit_code
    return _show(error, as_json=False)


def _bug(error: Exception) -> int:
    import traceback

    echo(traceback.format_exc(), err=True)
    echo(
        f"\nThis is a bug in patchq {__version__}: {error}\n"
        "hint: run the command again; if it fails again, report it with the lines above",
        err=True,
    )
    return BUG


def _of_the_machine(error: OSError) -> PatchqError:
    where = ""
    if error.filename:
        where = f" ({error.filename})"
    return UserError(
        f"{error.strerror}{where}; nothing was lost",
        hint="fix the cause and run the command again: the new run finishes or undoes the interrupted one",
    )


def _show(error: PatchqError, as_json: bool) -> int:
    if isinstance(error, ConflictError):
        conflicts = error.conflicts
    else:
        conflicts = ()
    if as_json:
        body = {
            "schema": "patchq/error/1",
            "error": type(error).__name__,
            "exit": error.exit_code,
            "message": error.message,
            "hint": error.hint,
            "conflicts": list(map(asdict, conflicts)),
        }
        if _answer(body):
            return error.exit_code
    echo("error: ", fg="red", bold=True, nl=False, err=True)
    echo(error.message, err=True)
    for conflict in conflicts:
        show_conflict(conflict)
    if error.hint:
        echo(f"hint: {error.hint}", err=True)
    return error.exit_code


def show_conflict(conflict: Conflict, *, err: bool = True) -> None:
    """Print the lines that a patch expects and the lines that the file has."""
    if not conflict.hunk:
        return
    echo(f"  {conflict.upstream}/{conflict.patch}, {conflict.path}, hunk {conflict.hunk}", err=err)
    echo("  the patch expects:", err=err)
    for line in conflict.expected:
        echo(f"    | {line}", fg=None if conflict.places or line in conflict.found else "red", err=err)
    if conflict.places:
        echo(
            f"  the file contains these lines more than once, at lines {', '.join(map(str, conflict.places))}", err=err
        )
        return
    after = f"after {conflict.owner} of this import, " if conflict.owner else ""
    echo(f"  {after}the file has, at line {conflict.line}:", err=err)
    for line in conflict.found:
        echo(f"    | {line}", fg=None if line in conflict.expected else "green", err=err)
