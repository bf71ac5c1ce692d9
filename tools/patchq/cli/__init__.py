"""The command line: one file a verb. Each parses, makes one call into the core, and prints."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

import click

from patchq import __version__
from patchq.cli.boundary import Boundary

#: verb: module in patchq.cli.commands, and its line of help. A module is imported only when its verb runs.
VERBS = {
    "init": ("init", "Begin a project."),
    "pin": ("pin", "Add or move a pin, or check them all."),
    "fetch": ("fetch", "Bring the pins into the store."),
    "import": ("import_", "Adopt patches from elsewhere."),
    "apply": ("apply", "Apply the stacks, all of them or none."),
    "status": ("status", "Where each stack and its worktree stand."),
    "list": ("list_", "The patches of each stack, in order."),
    "show": ("show", "What one patch says and touches."),
    "new": ("new", "Make a patch of your edits."),
    "export": ("export", "Write commits back to the stack."),
    "deps": ("deps", "Which patches really need which."),
    "diff": ("diff", "Two versions of stacks beside each other."),
    "drop": ("drop", "Take a patch out of its stack."),
    "forecast": ("forecast", "What carrying a stack onto other refs would come to."),
    "ledger": ("ledger", "What became of each patch on each ref that it was carried to."),
    "issue": ("issue", "Make an upstream bug report of what a patch mends."),
    "pr": ("pr", "Make an upstream pull request of patches: a branch, its mails, and a dossier."),
    "follow": ("follow", "On a new release, a pull request that carries a stack onto it."),
    "publish": ("publish", "Write applied stacks as a branch and a tag each, for those who clone."),
    "move": ("move", "Put a patch elsewhere in its stack."),
    "rebase": ("rebase", "Carry a stack to another ref, as patches/NAME/REF/, and pin it."),
    "conflict": ("conflict", "The patch at which a rebase stops, as a brief."),
    "resolve": ("resolve", "Resolve the patch at which a rebase stops, and go on."),
    "use": ("use", "Make a set the default one, and clear what it replaces."),
    "retire": ("retire", "Retire patches that upstream has at a ref."),
    "reword": ("reword", "Give a patch another message, trailers or author."),
    "undo": ("undo", "Take back the last operation of patchq."),
    "check": ("check", "Check the hygiene of all stacks."),
    "test": ("test", "Run the proofs of the patches."),
    "drift": ("drift", "Find what applies but changed meaning."),
    "bench": ("bench", "Record measurements, each tied to the measured build."),
    "report": ("report", "The evidence: the last results of the proofs, and as a page or JSON all else that is known."),
    "build": ("build", "Build wheels of the applied stacks into dist/SET."),
    "bundle": ("bundle", "Write all that a site without a network needs into one file."),
    "compose": ("compose", "Write the containers of a set: Dockerfile, Dockerfile.dev, compose.yaml."),
    "verify-installed": ("verify_installed", "Check what an environment really runs."),
    "verify-image": ("verify_image", "Check that an image is what the lock says."),
    "doctor": ("doctor", "Look at this machine and the project."),
}


class Verbs(Boundary):
    """A group that imports a verb's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"patchq.cli.commands.{VERBS[cmd_name][0]}")
        command: click.Command = module.command
        if ctx.resilient_parsing:  # the shell completes
            from patchq.cli.completion import attach

            return attach(cmd_name, command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args and not args[0].startswith("-") and args[0] not in VERBS:
            from patchq.errors import nearest

            ctx.fail(f"No such verb {args[0]!r}. {nearest(args[0], list(VERBS)) or 'Try --help.'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help is the table's own: it imports no verb."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in VERBS.items()])


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
    # One that is relative would mean another folder to each program that is started elsewhere.
    for name in ("TMPDIR", "TEMP", "TMP"):
        if value := os.environ.get(name):
            os.environ[name] = str(Path(value).absolute())
    ctx.obj = {"project": project, "wait": wait}


def main() -> None:
    """The entry point ``patchq``."""
    # A file that is opened would take the place of a closed stream, and messages would go into it.
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(lowest, True)
    os.close(lowest)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    # A command is short: what it makes lives as long as it does, and looking for cycles in that takes its time.
    gc.set_threshold(200_000, 30, 30)
    sys.exit(cli.main(prog_name="patchq", standalone_mode=True))
