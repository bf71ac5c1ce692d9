"""The command line: one file a verb. Each parses, makes one call into the core, and prints."""

from __future__ import annotations

import importlib
import os
import sys

import click

from patchq import __version__
from patchq.cli.boundary import Boundary

#: verb: module. A module is imported only when its verb runs, or when help lists them all.
VERBS = {
    "init": "init",
    "pin": "pin",
    "fetch": "fetch",
    "import": "import_",
    "apply": "apply",
    "status": "status",
    "list": "list_",
    "show": "show",
    "new": "new",
    "export": "export",
    "deps": "deps",
    "diff": "diff",
    "drop": "drop",
    "forecast": "forecast",
    "ledger": "ledger",
    "issue": "issue",
    "pr": "pr",
    "move": "move",
    "rebase": "rebase",
    "undo": "undo",
    "check": "check",
    "test": "test",
    "drift": "drift",
    "bench": "bench",
    "report": "report",
    "build": "build",
    "bundle": "bundle",
    "compose": "compose",
    "verify-installed": "verify_installed",
    "doctor": "doctor",
}


class Verbs(Boundary):
    """A group that imports a verb's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"patchq.cli.{VERBS[cmd_name]}")
        command: click.Command = module.command
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="patchq", message="%(prog)s %(version)s")
@click.option("--project", metavar="DIR", default=".", help="The project, from anywhere.  [default: around here]")
@click.option(
    "--wait", metavar="SECONDS", type=float, default=10.0, help="Wait so long for another patchq.  [default: 10]"
)
@click.pass_context
def cli(ctx: click.Context, project: str, wait: float) -> None:
    """Keep a fork as a pinned upstream plus an ordered stack of patches.

    Begin with `patchq apply`, then `patchq build`. Change a stack in .patchq/trees with
    ordinary git commits and write it back with `patchq export`.
    """
    ctx.obj = {"project": project, "wait": wait}
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """The entry point ``patchq``."""
    sys.exit(cli.main(prog_name="patchq", standalone_mode=True))
