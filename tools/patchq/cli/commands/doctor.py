from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit, json_option, set_option
from patchq.cli.terminal import echo, show_table

if TYPE_CHECKING:
    from patchq.environment.ptx import Assembled, PtxInstruction


@click.command("doctor")
@click.option("--python", default="", metavar="PATH", help="Interpreter of an environment to verify, too.")
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="ARCH",
    help="Architecture whose PTX instructions to test, such as sm_121f.",
)
@click.option("--nvcc", "nvccs", multiple=True, metavar="PATH", help="With --arch: another nvcc to test.")
@click.option(
    "--mounted",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Check only that imports come from the trees in this folder.",
)
@set_option
@json_option
def command(
    python: str, archs: tuple[str, ...], nvccs: tuple[str, ...], mounted: Path | None, set_name: str, as_json: bool
) -> None:
    """Check this machine and the project.

    Checks git, disk space, nvcc and its targets, and the store; with --python also an environment. With --arch, only
    tests which PTX instructions of the stacks' kernels each nvcc assembles for this architecture, with each suffix
    (such as sm_121, sm_121a and sm_121f).
    """
    if archs:
        _probe(archs, nvccs, as_json)
        return
    from patchq.cli.commands.verify_installed import show, verdict_json
    from patchq.cli.targets import build_needed, look, wheels_folder
    from patchq.environment.doctor import examine
    from patchq.environment.doctor import mounted as mounted_findings
    from patchq.errors import UserError
    from patchq.project.project import Project

    try:
        project: Project | None = Project.find(Path(click.get_current_context().obj["project"]))
    except UserError:
        project = None
    if mounted:
        if project is None:
            raise UserError(
                "--mounted needs a project, whose lock lists the trees", hint="name the project's folder with --project"
            )
        found = mounted_findings(project, mounted, python or sys.executable)
    else:
        found = examine(project)
    verdict = None
    if python and not mounted:
        verdict = look(python, set_name=set_name)
    if verdict and project:
        from patchq.kernels.left import judge_left
        from patchq.kernels.wanted import every_wanted

        for name, wanted in every_wanted(project).items():
            found.append(judge_left(name, wanted, verdict.packages, verdict.cache))
    bad = any(f.level == "problem" for f in found) or (verdict is not None and not verdict.ok)
    if as_json:
        emit(
            "doctor",
            {
                "ok": not bad,
                "findings": as_dicts(found),
                "installed": verdict_json(verdict) if verdict else None,
            },
        )
    else:
        for f in found:
            mark = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}[f.level]
            echo(f"{mark} {f.topic}: {f.message}" + (f"\n        {f.hint}" if f.hint else ""))
        if verdict:
            show(verdict, wheels_folder(set_name), build=build_needed(set_name))
    if bad:
        raise click.exceptions.Exit(1)


def _probe(archs: tuple[str, ...], nvccs: tuple[str, ...], as_json: bool) -> None:
    """Print a table for each toolkit: which instructions it assembles for which targets.

    Exit with 1 if a requested target lacks a required instruction.
    """
    from patchq.environment.ptx import INSTRUCTIONS, lacking, probe
    from patchq.environment.toolkits import toolkits
    from patchq.errors import UserError

    found, unusable = toolkits(nvccs)
    cells = probe(archs, found)
    if not found and not unusable:
        raise UserError(
            "no nvcc was found on this machine",
            hint="install the CUDA toolkit, or give the path of an nvcc with --nvcc",
        )
    lacks = {}
    if found:
        lacks = {arch: lacking(cells, arch) for arch in archs}
    ok = bool(found) and not any(lacks.values())
    if as_json:
        emit(
            "doctor",
            {
                "ok": ok,
                "toolkits": as_dicts(found),
                "unusable": as_dicts(unusable),
                "cells": as_dicts(cells),
                "lacking": lacks,
            },
        )
    else:
        _show_matrix([t.release for t in found], cells, {i.name: i for i in INSTRUCTIONS})
        for u in unusable:
            echo(f"does not run: nvcc {u.release}".rstrip() + f" ({u.nvcc}): {u.message}\n    {u.hint}")
        for arch, names in lacks.items():
            echo(
                f"{arch}: lacks {', '.join(names)}" if names else f"{arch}: has all instructions that the kernels need"
            )
        if not found:
            echo("no nvcc on this machine works, so no architecture was tested")
    if not ok:
        raise click.exceptions.Exit(1)


def _show_matrix(releases: list[str], cells: list[Assembled], about: dict[str, PtxInstruction]) -> None:
    targets = list(dict.fromkeys(c.target for c in cells))
    message = {(c.toolkit, c.target, c.instruction): c.message for c in cells}
    for release in releases:
        rows = []
        for name, instruction in about.items():
            marks = []
            for t in targets:
                if message[release, t, name]:
                    marks.append("-")
                else:
                    marks.append("yes")
            rows.append((name, instruction.use + ("" if instruction.needed else " (not on SM12x)"), *marks))
        show_table(("instruction", "for", *targets), rows, f"nvcc {release}")
        for text in dict.fromkeys(text for (its, *_), text in message.items() if its == release and text):
            echo(f"  {text}")
        echo("")
