from __future__ import annotations

from pathlib import Path

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("compose")
@click.option("--output", "folder", type=click.Path(path_type=Path), help="Folder to write to.  [default: deploy]")
@click.option("--thin", is_flag=True, help="Install the releases and the thin wheels (see `patchq build --thin`).")
@set_option
@json_option
def command(folder: Path | None, thin: bool, set_name: str, as_json: bool) -> None:
    """Write Dockerfile, Dockerfile.dev and compose.yaml for a set.

    Reads the set's [environments] table and the id of the applied stack. `dev` mounts the patched trees, `serve`
    contains only the built wheels.
    """
    from patchq.build.compose import compose

    project = open_project(as_json)
    written = compose(project, folder or project.layout.root / "deploy", set_name=set_name, thin=thin)
    shown = [path.relative_to(project.layout.root).as_posix() for path in written]
    if as_json:
        emit("compose", {"files": shown})
        return
    for path in shown:
        echo(path)
    build = "patchq build"
    if thin:
        build = "patchq build --thin"
    build += project.set_option(set_name)
    echo(f"next: {build}, then `docker compose -f {shown[3]}` with `run --rm dev` or `up serve`")
