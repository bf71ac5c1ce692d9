from __future__ import annotations

from pathlib import Path

import click

from patchq.cli.common import json_option, open_project, set_option
from patchq.cli.verdicts import results_file, show_verdicts, write_reports


@click.command("report")
@click.option("--junit", type=click.Path(path_type=Path), help="Write JUnit XML there.")
@click.option("--sarif", type=click.Path(path_type=Path), help="Write SARIF there.")
@set_option
@json_option
def command(junit: Path | None, sarif: Path | None, set_name: str, as_json: bool) -> None:
    """Show the last results of the proofs."""
    from patchq.errors import StateError, UserError
    from patchq.fsio import load_state, read_or_none
    from patchq.report import parse_proofs

    project = open_project(as_json)
    path = results_file(project)
    data = read_or_none(path)
    if data is None:
        raise UserError("there are no results yet", hint="`patchq test --prove`")
    try:
        verdicts = parse_proofs(load_state(data, path, 1))
    except (KeyError, TypeError):
        raise StateError(f"{path} is damaged", hint="`patchq test --prove` writes it anew") from None
    write_reports(project, verdicts, junit, sarif, set_name)
    show_verdicts(verdicts, as_json, "report")
