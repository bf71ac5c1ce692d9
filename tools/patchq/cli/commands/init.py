from __future__ import annotations

from pathlib import Path

import click

from patchq.cli.common import emit, json_option
from patchq.cli.terminal import echo


@click.command("init")
@click.argument("directory", default=".", type=click.Path(path_type=Path))
@json_option
def command(directory: Path, as_json: bool) -> None:
    """Create a project."""
    from patchq.project.scaffold import init

    made = init(directory)
    if as_json:
        emit("init", {"project": str(directory.resolve()), "made": made})
        return
    for path in made:
        echo(f"made {path}")
    echo("next: pin an upstream: `patchq pin NAME --ref TAG` with --url (git) or with --archive (package index),")
    echo("such as `patchq pin httpx --archive httpx==0.28.1 --ref 0.28.1`")
