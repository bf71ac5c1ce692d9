"""Command line.

Each command has a module that parses the options, calls one function of the core and prints the result.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

import click

from patchq import __version__
from patchq.cli.boundary import Boundary

#: Commands by group: module in patchq.cli.commands, which is imported when the command runs, and summary.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Begin": {
        "init": ("init", "Create a project."),
        "pin": ("pin", "Add, move or check pins."),
        "fetch": ("fetch", "Fetch the pins into the store."),
        "import": ("import_", "Import patches from elsewhere."),
    },
    "Edit": {
        "apply": ("apply", "Apply the stacks, all or none."),
        "status": ("status", "Show the state of each stack and its worktree."),
        "list": ("list_", "List the patches of each stack, in order."),
        "show": ("show", "Show the message, files and trailers of a patch."),
        "new": ("new", "Make a patch from your edits."),
        "export": ("export", "Write commits back to the stack."),
        "reword": ("reword", "Change the message, trailers or author of a patch."),
        "move": ("move", "Move a patch within its stack."),
        "drop": ("drop", "Remove a patch from its stack."),
        "split": ("split", "Split files or hunks of a patch off into a new patch."),
        "fold": ("fold", "Fold your edits into the patches that own the edited lines."),
        "log": ("log", "List the operations and the changes that each made."),
        "undo": ("undo", "Undo the last operation."),
        "redo": ("redo", "Redo the operation that was undone last."),
    },
    "Look ahead": {
        "forecast": ("forecast", "Show the cost of carrying a stack to other refs."),
        "diff": ("diff", "Compare two versions of stacks."),
        "compare": ("compare", "Compare the stacks with the stacks of another fork."),
        "deps": ("deps", "Show the dependencies between patches."),
        "drift": ("drift", "Find patches that apply but changed meaning."),
        "ledger": ("ledger", "Show the outcome of each patch on each ref."),
    },
    "Carry": {
        "rebase": ("rebase", "Carry a stack to another ref and pin that ref."),
        "conflict": ("conflict", "Show the patch at which a rebase stopped."),
        "resolve": ("resolve", "Resolve the stopped patch and continue the rebase."),
        "retire": ("retire", "Drop patches that upstream has at a ref."),
        "use": ("use", "Make a set the default and remove older sets."),
    },
    "Prove": {
        "test": ("test", "Run the proofs of the patches."),
        "check": ("check", "Check the stacks against the project's rules."),
        "bench": ("bench", "Record measurements, each tied to the measured build."),
        "report": ("report", "Show proof results; write all evidence as a page or JSON."),
    },
    "Ship": {
        "build": ("build", "Build wheels of the applied stacks into dist/SET."),
        "bundle": ("bundle", "Write everything that an offline machine needs to one file."),
        "compose": ("compose", "Write Dockerfile, Dockerfile.dev and compose.yaml for a set."),
        "verify-installed": ("verify_installed", "Check which code an environment runs."),
        "verify-image": ("verify_image", "Check an image against the lock."),
        "doctor": ("doctor", "Check this machine and the project."),
    },
    "Give back": {
        "pr": ("pr", "Prepare an upstream pull request: branch, mails and report."),
        "issue": ("issue", "Prepare an upstream bug report for a patch."),
        "follow": ("follow", "Open a pull request that carries a stack to a new release."),
        "publish": ("publish", "Publish applied stacks as branches and tags."),
    },
}
#: All commands: module and summary.
VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}


class Verbs(Boundary):
    """Command group that imports a command's module only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"patchq.cli.commands.{VERBS[cmd_name][0]}")
        command: click.Command = module.command
        if ctx.resilient_parsing:  # for shell completion
            from patchq.cli.completion import attach

            return attach(cmd_name, command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args and not args[0].startswith("-") and args[0] not in VERBS:
            from patchq.errors import nearest

            ctx.fail(f"No such command {args[0]!r}: {nearest(args[0], list(VERBS), 'try --help')}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group, without importing their modules."""
        width = max(map(len, VERBS))
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), summary) for name, (_, summary) in verbs.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="patchq", message="%(prog)s %(version)s")
@click.option(
    "--project",
    metavar="DIR",
    default=".",
    help="Project folder.  [default: the project that contains the current folder]",
)
@click.option(
    "--wait", metavar="SECONDS", type=float, default=10.0, help="Time to wait for another patchq.  [default: 10]"
)
@click.pass_context
def cli(ctx: click.Context, project: str, wait: float) -> None:
    """Keep a fork as a pinned upstream plus an ordered stack of patches.

    To begin: `patchq init`, `patchq pin`, `patchq import`. In a clone of a project: `patchq apply`, then
    `patchq build`. Change a stack in .patchq/trees with ordinary git commits and write it back with
    `patchq export`.
    """
    # Make the path absolute, because programs started in other folders would resolve a relative path differently.
    for name in ("TMPDIR", "TEMP", "TMP"):
        if value := os.environ.get(name):
            os.environ[name] = str(Path(value).absolute())
    ctx.obj = {"project": project, "wait": wait}


def main() -> None:
    """Run the command line; entry point ``patchq``."""
    # Reopen closed standard streams. Otherwise the next opened file gets a closed stream's number and receives
    # messages.
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(lowest, True)
    os.close(lowest)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    # Collect garbage rarely: in a short process most objects live until the end.
    gc.set_threshold(200_000, 30, 30)
    sys.exit(cli.main(prog_name="patchq", standalone_mode=True))
