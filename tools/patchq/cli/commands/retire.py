from __future__ import annotations

from functools import partial

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("retire")
@click.argument("patches", nargs=-1, metavar="[PATCH]...")
@click.option(
    "--onto", "ref", required=True, metavar="REF", help="Pinned ref, tag or release at which upstream has the patches."
)
@click.option(
    "--evidence",
    is_flag=True,
    help="Print a Markdown table of the patches that upstream has; drop nothing.",
)
@click.option(
    "--how",
    default="",
    metavar="TEXT",
    help="Upstream's replacement for the patch, or the reason to drop the patch without a proof.",
)
@click.option(
    "--from", "from_ref", default="", metavar="REF", help="Pinned ref whose stack to use.  [default: the nearest]"
)
@set_option
@json_option
def command(
    patches: tuple[str, ...], ref: str, evidence: bool, how: str, from_ref: str, set_name: str, as_json: bool
) -> None:
    """Drop patches that upstream has at a ref.

    Drops a patch only if upstream has all of it at the ref, and its proof passes there without the patch. If no proof
    can run, --how gives the reason, which the ledger keeps. --evidence drops nothing and prints a Markdown table of
    patches, commits, releases and proofs; without PATCH, the table lists all patches that upstream has.
    """
    from patchq.errors import UserError
    from patchq.project.stack import find_patch
    from patchq.proofs.prove import prove_at
    from patchq.rebase.drop import gather, retire, table

    project = open_project(as_json)
    if not patches and not evidence:
        raise click.UsageError("name a patch; `--evidence` without a patch lists all patches that upstream has")
    stacks = project.stacks(project.choose_set(set_name))
    found = [find_patch(stacks, name) for name in patches]
    names: dict[str, list[str]] = {}
    for stack, name in found:
        names.setdefault(stack.pin.upstream, []).append(name)
    if not patches:
        having = [s.pin.upstream for s in stacks if s.names]
        if len(having) != 1:
            raise UserError(
                "the set has stacks of several upstreams, and no patch is named",
                hint=f"name patches of one of these upstreams: {', '.join(having)}",
            )
        names = {having[0]: []}
    prove = partial(prove_at, project)
    rows = []
    for upstream, wanted in names.items():
        if evidence:
            rows += gather(project, upstream, ref, wanted, prove, set_name=set_name, from_ref=from_ref)
        else:
            for name in wanted:
                rows.append(retire(project, upstream, ref, name, prove, how=how, set_name=set_name, from_ref=from_ref))
    if as_json:
        emit("retire", {"retired": not evidence, "patches": as_dicts(rows)})
    elif evidence:
        echo(table(rows) if rows else f"upstream has none of the patches that would be carried to {ref}")
    else:
        for row in rows:
            echo(f"{row.patch}: retired at {row.ref}; {row.how}")
