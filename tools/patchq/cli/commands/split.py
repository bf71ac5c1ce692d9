from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit, exported_json, json_option, open_project, set_option, show_exported
from patchq.cli.terminal import echo
from patchq.names import sh
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.editing.split import SplitPatch


@click.command("split")
@click.argument("patch")
@click.argument("name", required=False, default="")
@click.option("--file", "files", multiple=True, metavar="FILE", help="File to move to the new patch.")
@click.option("--hunk", "hunks", multiple=True, metavar="FILE:N", help="Hunk to move, by its number in the file.")
@click.option("--message", "-m", default="", help="Message of the new patch.  [default: from the name]")
@click.option("--before", is_flag=True, help="Put the new patch before PATCH, not after it.")
@click.option(
    "--proof-to",
    type=click.Choice(["old", "new", "both"]),
    default="old",
    show_default=True,
    help="Patch that keeps the proof.",
)
@set_option
@json_option
def command(
    patch: str,
    name: str,
    files: tuple[str, ...],
    hunks: tuple[str, ...],
    message: str,
    before: bool,
    proof_to: str,
    set_name: str,
    as_json: bool,
) -> None:
    """Split files or hunks of a patch off into a new patch.

    Without NAME, list the files and hunks of PATCH. The tree of the stack stays the same, and the new patch has
    the author and the trailers of PATCH.
    """
    from patchq.editing.split import ProofKeeper, split

    project = open_project(as_json)
    if not name:
        if files or hunks:
            raise click.UsageError(f"add a name for the new patch: `patchq split {sh(patch)} {sh(patch + '-2')}`")
        _list_parts(project, patch, set_name, as_json)
        return
    result = split(
        project,
        patch,
        name,
        files=files,
        hunks=hunks,
        message=message,
        before=before,
        keeper=ProofKeeper(proof_to),
        set_name=set_name,
    )
    if as_json:
        body = {**exported_json(result.exported), "patch": result.patch, "new": result.new}
        body |= {
            "proofs": list(result.proofs),
            "proof_to": result.keeper.value,
            "required_by": list(result.required_by),
        }
        emit("split", body)
        return
    show_exported(result.exported, as_json, "split")
    _show_proof(result)


def _list_parts(project: Project, patch: str, set_name: str, as_json: bool) -> None:
    from patchq.editing.split import parts

    found = parts(project, patch, set_name=set_name)
    if as_json:
        emit("split-parts", {"parts": as_dicts(found)})
        return
    for part in found:
        if part.hunk:
            echo(f"--hunk {sh(f'{part.path}:{part.hunk}')}  line {part.line}, -{part.removed} +{part.added}")
        else:
            echo(f"--file {sh(part.path)}")


def _show_proof(result: SplitPatch) -> None:
    from patchq.editing.split import ProofKeeper

    upstream = result.exported.upstream
    lacks = {ProofKeeper.OLD: result.new, ProofKeeper.NEW: result.patch}.get(result.keeper)
    keeps = {ProofKeeper.OLD: result.patch, ProofKeeper.NEW: result.new}.get(result.keeper)
    if not result.proofs:
        echo(f"{upstream}: {result.patch} had no proof, and {result.new} has none either")
    elif keeps and lacks:
        test = f"tests/stacks/{upstream}/test_{lacks.replace('-', '_')}.py"
        echo(f"{upstream}: {keeps} keeps the proof {', '.join(result.proofs)}; {lacks} has no proof")
        echo(f"  next: write {test}, then `patchq reword {upstream}/{lacks} --trailer 'Proof: {test}'`")
    else:
        echo(f"{upstream}: both patches name the proof {', '.join(result.proofs)}")
    for other in result.required_by:
        echo(
            f"{upstream}: {other} requires {result.patch}; if it also needs {result.new}, "
            "add this name to its Requires:"
        )
