from __future__ import annotations

import click

from patchq.cli.common import json_option, open_project, set_option, show_exported


@click.command("drop")
@click.argument("patch")
@click.option("--why", default="", help="Reason, for the ledger.")
@set_option
@json_option
def command(patch: str, why: str, set_name: str, as_json: bool) -> None:
    """Remove a patch from its stack."""
    from patchq.stacks.edit import drop

    show_exported(drop(open_project(as_json), patch, why=why, set_name=set_name), as_json, "drop")
