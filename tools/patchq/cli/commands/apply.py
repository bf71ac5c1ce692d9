from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from patchq.cli.common import emit, json_option, offline_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import StackResult, counted


@click.command("apply")
@click.argument("names", nargs=-1)
@click.option("--to", default="", metavar="PATCH", help="Last patch to apply.")
@click.option(
    "--fix", default="", metavar="PATCH", help="Patch to apply to the worktree with fuzz, as uncommitted edits."
)
@click.option(
    "--from-bundle",
    "bundle",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Bundle file to apply from, offline.",
)
@set_option
@offline_option
@json_option
def command(
    names: tuple[str, ...], to: str, fix: str, bundle: Path | None, set_name: str, offline: bool, as_json: bool
) -> None:
    """Apply the stacks, all or none.

    Makes one commit in .patchq/trees for each patch. Never applies a patch with fuzz. Only changed patches are applied
    again.
    """
    from patchq.stacks.apply import apply

    if fix:
        if to or bundle or len(names) > 1:
            raise click.UsageError("--fix takes one patch, and excludes --to and --from-bundle")
        _fix(f"{names[0]}/{fix}" if names else fix, set_name=set_name, offline=offline, as_json=as_json)
        return
    if bundle:
        if names or to or set_name:
            raise click.UsageError("--from-bundle always applies the bundle's whole set")
        results = _apply_bundle(bundle, as_json)
    else:
        results = apply(open_project(as_json), names, set_name=set_name, to=to, offline=offline)
    if as_json:
        emit("apply", {"stacks": [_stack(r) for r in results], "fix": None})
        return
    for r in results:
        _show_stack(r)


def _apply_bundle(bundle: Path, as_json: bool) -> Sequence[StackResult]:
    from patchq.store.bundle import apply_bundle

    ctx = click.get_current_context()

    def say(line: str) -> None:
        if not as_json:
            echo(line, err=True)

    return apply_bundle(Path(ctx.obj["project"]), bundle, say=say, wait=ctx.obj["wait"])


def _show_stack(result: StackResult) -> None:
    count = counted(result.total, "patch")
    if len(result.patches) != result.total:
        count = f"{len(result.patches)} of {count}"
    verb = "up to date,"
    if result.changed:
        verb = "applied"
    echo(f"{result.upstream} {result.ref} ({result.source}): {verb} {count}, tree {result.tree}")
    for p in result.patches:
        if p.empty:
            echo(f"  {p.name}: changes nothing")
        if p.by_rule:
            echo(
                f"  {p.name}: the diff doesn't apply, so the patch's rules made the change; `patchq export "
                f"{result.upstream}` rewrites the diff"
            )
        for o in p.offsets:
            echo(f"  {p.name}: offset {o.lines:+d} lines in {o.path}")


def _stack(result: StackResult) -> dict[str, object]:
    patches = []
    for patch in result.patches:
        offsets = [{"path": o.path, "hunk": o.hunk, "lines": o.lines} for o in patch.offsets]
        patches.append(
            {
                "name": patch.name,
                "commit": patch.commit,
                "outcome": patch.outcome,
                "offsets": offsets,
                "empty": patch.empty,
            }
        )
    return {
        "upstream": result.upstream,
        "ref": result.ref,
        "source": result.source,
        "base": result.base,
        "tip": result.tip,
        "tree": result.tree,
        "changed": result.changed,
        "total": result.total,
        "patches": patches,
    }


def _fix(patch: str, *, set_name: str, offline: bool, as_json: bool) -> None:
    from patchq.stacks.refit import refit

    found = refit(open_project(as_json), patch, set_name=set_name, offline=offline)
    if as_json:
        fix = {
            "upstream": found.upstream,
            "patch": found.patch,
            "worktree": found.worktree,
            "edited": list(found.edited),
            "rejected": list(found.rejected),
            "difference": found.difference,
        }
        emit("apply", {"stacks": [_stack(r) for r in found.applied], "fix": fix})
        return
    echo(f"{found.upstream}: applied the patches before {found.patch}; its changes are edits in {found.worktree}")
    for path in found.edited:
        echo(f"  edited: {path}")
    for path in found.rejected:
        echo(f"  rejected hunks, to apply by hand: {path}")
    if found.difference:
        echo(found.difference)
    echo(f"next: review the edits, finish them, then `patchq export {found.upstream} --amend {found.patch}`")
