from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from patchq.cli.common import emit, json_option, set_option


@click.command("doctor")
@click.option("--python", default="", metavar="PATH", help="Also verify what is installed for this interpreter.")
@set_option
@json_option
def command(python: str, set_name: str, as_json: bool) -> None:
    """Look at this machine and the project.

    Git, disk, nvcc and its targets, the store; with --python at an environment too.
    """
    from patchq.cli.targets import packages_to_verify
    from patchq.cli.verify_installed import show
    from patchq.doctor import examine
    from patchq.errors import UserError
    from patchq.project import Project
    from patchq.verify import verify

    try:
        project: Project | None = Project.find(Path(click.get_current_context().obj["project"]))
    except UserError:
        project = None
    found = examine(project)
    verdict = verify(python or sys.executable, *packages_to_verify((), set_name)) if python else None
    bad = any(f.level == "problem" for f in found) or (verdict is not None and not verdict.ok)
    if as_json:
        emit("doctor", {
            "ok": not bad, "findings": [asdict(f) for f in found],
            "installed": asdict(verdict) if verdict else None,
        })  # fmt: skip
    else:
        for f in found:
            mark = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}[f.level]
            click.echo(f"{mark} {f.topic}: {f.said}" + (f"\n        {f.hint}" if f.hint else ""))
        if verdict:
            show(verdict)
    if bad:
        raise click.exceptions.Exit(1)
