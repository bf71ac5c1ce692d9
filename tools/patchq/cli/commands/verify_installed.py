from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchq.cli.common import emit, json_option, set_option
from patchq.cli.terminal import echo
from patchq.names import sh

if TYPE_CHECKING:
    from patchq.environment.installed import InstalledPackage
    from patchq.environment.verify import InstallVerdict


@click.command("verify-installed")
@click.argument("distributions", nargs=-1)
@click.option(
    "--python", default=sys.executable, metavar="PATH", help="Interpreter of the environment.  [default: this one]"
)
@click.option(
    "--stack", "--stack-id", "expected", default="", metavar="ID", help="Expected stack id, or its first characters."
)
@click.option(
    "--dist",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder of the wheels that were installed.  [default: the project's dist/SET]",
)
@set_option
@json_option
def command(
    distributions: tuple[str, ...], python: str, expected: str, folder: Path | None, set_name: str, as_json: bool
) -> None:
    """Check which code an environment runs.

    Checks every file of each package. In a project with applied stacks, the packages must come from these
    stacks and match their wheels. Elsewhere, such as in an image, checks every package that contains a
    _patchq.json; --stack gives the expected stack id, --dist the expected wheels.
    """
    from patchq.cli.targets import build_needed, look, other_folders, wheels_folder

    verdict = look(python, distributions, set_name, expected, folder)
    if as_json:
        emit("verify-installed", {"ok": verdict.ok, **verdict_json(verdict)})
    else:
        others = other_folders(verdict, set_name) if folder is None and not verdict.ok else []
        show(verdict, wheels_folder(set_name, folder), others, build_needed(set_name, folder))
    if not verdict.ok:
        raise click.exceptions.Exit(1)


def verdict_json(verdict: InstallVerdict) -> dict[str, Any]:
    """Return a verdict as a JSON object."""
    from patchq.cli.differences import as_json, kernel_sentence, package_json, sentences
    from patchq.environment.differences import Level

    notes = [*map(kernel_sentence, verdict.kernels), *sentences(verdict.differences, Level.NOTE)]
    return {
        "python": verdict.python,
        "packages": [package_json(p) for p in verdict.packages],
        "notes": notes,
        "differences": as_json(verdict.differences),
        "cache": verdict.cache,
    }


def _show_package(package: InstalledPackage) -> None:
    from patchq.cli.differences import against, sentences
    from patchq.environment.differences import Level

    place = ""
    if package.stack_id:
        place = f", stack {package.stack_id[:8]}, {package.origin}"
    echo(f"{package.distribution} {package.version}: {package.state.value}{place}")
    for patch in package.patches:
        echo(f"    live: {patch}")
    for patch in package.left_out:
        echo(f"    left out, as it must be compiled: {patch}")
    if compared := against(package):
        echo(f"    checked against: {compared}")
    for note in sentences(package.differences, Level.NOTE):
        echo(f"    note: {note}")
    for problem in sentences(package.differences, Level.PROBLEM):
        echo(f"    problem: {problem}", fg="red")


def show(verdict: InstallVerdict, folder: str, others: Sequence[tuple[str, str]] = (), build: str = "") -> None:
    """Print a verdict as text.

    :param folder: folder with the wheels that should be installed.
    :param others: other sets whose wheels are installed instead, each with its folder.
    :param build: command that builds the wheels; empty if ``folder`` already contains them.
    """
    from patchq.cli.differences import can_allow, kernel_sentence, sentences
    from patchq.environment.differences import Level

    for p in verdict.packages:
        _show_package(p)
    for problem in sentences(verdict.differences, Level.PROBLEM):
        echo(f"problem: {problem}", fg="red")
    for note in [*map(kernel_sentence, verdict.kernels), *sentences(verdict.differences, Level.NOTE)]:
        echo(f"note: {note}")
    if not verdict.packages:
        echo(f"problem: {verdict.python} has no package that patchq built", fg="red")
    elif others:
        for name, place in others:
            option, value = ("--set", name) if name else ("--dist", place)
            echo(
                f"next: the installed versions are those in {place}, not those in {folder}; to compare with "
                f"{place}, run"
            )
            echo(f"`patchq verify-installed --python {sh(verdict.python)} {sh(option)} {sh(value)}`")
    elif not all(p.is_right for p in verdict.packages):
        install = f"{sh(verdict.python)} -m pip install --force-reinstall --no-deps -r {sh(folder)}/requirements.txt"
        if build:
            echo(f"next: {build}")
        echo(f"{'then' if build else 'next'}: {install}")
        echo(
            "if the environment was installed from other wheels, give their set with `--set` "
            "or their folder with `--dist`"
        )
    if can_allow(verdict.differences):
        echo(
            "next: remove the file, plugin or variable; or, if you trust it, add its name to `allow` below [verify] "
            "in upstream.lock"
        )
