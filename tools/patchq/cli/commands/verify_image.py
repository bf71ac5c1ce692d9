from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("verify-image")
@click.argument("image", type=click.Path(path_type=Path, exists=True))
@click.option("--platform", default="", metavar="NAME", help="Which of several images: aarch64.")
@set_option
@json_option
def command(image: Path, platform: str, set_name: str, as_json: bool) -> None:
    """Check that an image is what the lock says.

    IMAGE is an OCI archive or layout, what `docker save` writes, or a root file system as a folder. Its labels and
    attestation must be those of this lock and the applied stack, its packages file by file those of dist/SET.
    """
    from patchq.build.image import check_image

    verdict = check_image(open_project(as_json), image, set_name=set_name, platform=platform)
    if as_json:
        emit("verify-image", {"ok": verdict.ok, **asdict(verdict)})
    else:
        for package in verdict.packages:
            echo(f"{package}: looked at")
        for note in verdict.notes:
            echo(f"note: {note}")
        for problem in verdict.problems:
            echo(f"problem: {problem}", fg="red")
        if verdict.ok:
            echo(f"{verdict.image} is what upstream.lock says")
        else:
            echo("next: patchq build && patchq compose, and build the image anew")
    if not verdict.ok:
        raise click.exceptions.Exit(1)
