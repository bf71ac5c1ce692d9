from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import counted


@click.command("bundle")
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--wheels", is_flag=True, help="Include the release wheels from which overlays are built.")
@set_option
@json_option
def command(target: Path, wheels: bool, set_name: str, as_json: bool) -> None:
    """Write everything that an offline machine needs to one file.

    The file contains the lock, the stacks, the proofs, and each pin's archive or commit. On the offline machine, run
    `patchq apply --from-bundle FILE`.
    """
    from patchq.store.bundle import make_bundle

    made = make_bundle(open_project(as_json), target, set_name=set_name, wheels=wheels)
    if as_json:
        emit("bundle", asdict(made))
        return
    for upstream, ref, source in made.pins:
        echo(f"{upstream} {ref}: {'its commit' if source == 'git' else 'its archive'}")
    echo(f"{made.path}: set {made.set_name}, {counted(made.files, 'file')}, {made.size} bytes, sha256 {made.sha256}")
