from __future__ import annotations

from pathlib import Path

import click

from patchq.cli.common import emit, json_option, offline_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("apply")
@click.argument("names", nargs=-1)
@click.option("--to", default="", metavar="PATCH", help="Stop after this patch.")
@click.option(
    "--from-bundle", "bundle", type=click.Path(path_type=Path), metavar="FILE", help="Of a bundle, without a network."
)
@set_option
@offline_option
@json_option
def command(names: tuple[str, ...], to: str, bundle: Path | None, set_name: str, offline: bool, as_json: bool) -> None:
    """Apply the stacks, all of them or none.

    One commit a patch in .patchq/trees, exactly: never with fuzz. Only what changed is done again.
    """
    from patchq.stacks.apply import apply

    if bundle:
        from patchq.store.bundle import apply_bundle

        if names or to or set_name:
            raise click.UsageError("--from-bundle applies the bundle's set, all of it")
        ctx = click.get_current_context()
        say = (lambda _: None) if as_json else (lambda line: echo(line, err=True))
        results = apply_bundle(Path(ctx.obj["project"]), bundle, say=say, wait=ctx.obj["wait"])
    else:
        results = apply(open_project(as_json), names, set_name=set_name, to=to, offline=offline)
    if as_json:
        emit("apply", {"stacks": [
            {
                "upstream": r.upstream, "ref": r.ref, "source": r.source, "base": r.base, "tip": r.tip, "tree": r.tree,
                "changed": r.changed, "total": r.total,
                "patches": [
                    {"name": p.name, "commit": p.commit, "outcome": p.outcome,
                     "offsets": [{"path": o.path, "hunk": o.hunk, "lines": o.lines} for o in p.offsets]}
                    for p in r.patches
                ],
            }
            for r in results
        ]})  # fmt: skip
        return
    for r in results:
        plural = "patch" if r.total == 1 else "patches"
        count = f"{len(r.patches)} of {r.total} {plural}" if len(r.patches) != r.total else f"{r.total} {plural}"
        verb = "applied" if r.changed else "up to date,"
        echo(f"{r.upstream} {r.ref} ({r.source}): {verb} {count}, tree {r.tree}")
        for p in r.patches:
            for o in p.offsets:
                echo(f"  {p.name}: offset {o.lines:+d} lines in {o.path}")
