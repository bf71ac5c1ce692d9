from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from patchq.cli.common import emit, json_option, open_project, stopped_upstream
from patchq.cli.terminal import echo
from patchq.names import sh
from patchq.project.project import Project
from patchq.rebase.state import RebaseState

if TYPE_CHECKING:
    from patchq.rebase.resolve import Resolution


@click.command("resolve")
@click.argument("name", required=False)
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="FILE",
    help="PATH=FILE takes FILE as the resolved PATH, and PATH= removes PATH; may be repeated. Or one .patch file.",
)
@click.option("--recorded", is_flag=True, help="Use the recorded resolution.")
@click.option("--ref", default="", metavar="REF", help="Pinned ref whose stack contains the resolved patch.")
@click.option("--merger", default="", metavar="NAME", help="Merge program to run, by its name in the lock.")
@click.option(
    "--include", multiple=True, metavar="PATH", help="Another changed path in the worktree to include; may be repeated."
)
@click.option("--no-proof", is_flag=True, help="Don't run the patch's proof.")
@click.option(
    "--drop-upstream-line",
    "dropped",
    multiple=True,
    metavar="PATH[:LINE]",
    help="Line of upstream that the patch may remove (without LINE: all lines of the file).",
)
@click.option("--dry-run", is_flag=True, help="Check the resolution without taking it.")
@json_option
def command(
    name: str | None,
    files: tuple[str, ...],
    recorded: bool,
    ref: str,
    merger: str,
    include: tuple[str, ...],
    no_proof: bool,
    dropped: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Resolve the stopped patch and continue the rebase.

    Takes the resolution from files, from a known resolution, or from the worktree (the conflicting paths, the patch's
    own paths and staged files). Keeps the resolution only if no conflict is left, the patch applies exactly, no line
    that upstream added is removed, changed Python files compile, and the proof passes with the patch and fails without
    it. Otherwise, nothing changes. A proof that can't run here is reported. Exit code 3 if a conflict is left or the
    rebase stops again, 5 if a check fails.
    """
    from patchq.proofs.prove import prove_at
    from patchq.rebase.resolve import APPLIES, SETTLED, ResolveRequest, Source, resolve

    if sum((bool(files), recorded, bool(ref), bool(merger))) > 1:
        raise click.UsageError("give exactly one of --from, --recorded, --ref and --merger")
    project = open_project(as_json)
    upstream = stopped_upstream(project, name)
    source = Source(files=files, recorded=recorded, ref=ref, merger=merger, include=include)
    wish = ResolveRequest(proofs=not no_proof, dropped=dropped)
    found = resolve(project, upstream, source, prove=partial(prove_at, project), wish=wish, dry_run=dry_run)
    if as_json:
        emit("resolve", {**asdict(found), "refused": [c.name for c in found.refused]})
    else:
        _show(project, found, upstream)
    if found.refused:
        unsettled = found.refused[0].name in (SETTLED, APPLIES)
        raise click.exceptions.Exit(3 if unsettled else 5)
    if found.rebase and found.rebase.state == RebaseState.STOPPED:
        raise click.exceptions.Exit(3)


def _show(project: Project, found: Resolution, upstream: str) -> None:
    from patchq.cli.commands.rebase import show

    for check in found.checks:
        echo(f"{check.name}: {check.state}: {check.message}", fg="red" if check.state == "failed" else None)
    for path in found.left_out:
        echo(f"skipped, because the patch doesn't change it: {path} (`--include {sh(path)}` adds it)")
    if found.refused:
        _show_refusal(found, upstream)
    elif found.rebase is None:
        echo("the resolution would be kept")
    else:
        show(project, found.rebase, max(len(found.rebase.steps) - 1, 0))


def _show_refusal(found: Resolution, upstream: str) -> None:
    from patchq.rebase.resolve import FAILS_WITHOUT, PASSES_WITH, UPSTREAM_LINES

    echo(f"{upstream}/{found.patch} was not resolved; nothing was changed", err=True)
    reason = found.refused[0].name
    if reason == UPSTREAM_LINES:
        echo("--drop-upstream-line accepts one of these lines, by its path and number", err=True)
    elif reason in (PASSES_WITH, FAILS_WITHOUT):
        echo("`--no-proof` keeps the resolution without running the proof", err=True)
