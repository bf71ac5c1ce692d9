from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo

if TYPE_CHECKING:
    from patchq.environment.differences import Difference, Level


@click.command("verify-image")
@click.argument("image", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--platform", default="", metavar="NAME", help="Platform of the image to use if there are several, such as aarch64."
)
@set_option
@json_option
def command(image: Path, platform: str, set_name: str, as_json: bool) -> None:
    """Check an image against the lock.

    IMAGE is an OCI archive or layout, the output of `docker save`, or a root file system as a folder. The image's
    labels and attestation must match this lock and the applied stack, and each file of its packages must match the
    wheels in dist/SET.
    """
    from patchq.build.image import check_image
    from patchq.cli.differences import as_json as to_json
    from patchq.cli.differences import can_allow
    from patchq.environment.differences import Level

    project = open_project(as_json)
    verdict = check_image(project, image, set_name=set_name, platform=platform)
    packages = []
    for p in verdict.packages:
        if p.state != "missing":
            packages.append(f"{p.distribution} {p.version}")
    found = {f"{p.distribution} {p.version}".rstrip(): p.differences for p in verdict.packages} | {
        "": verdict.differences
    }
    problems, notes = (_named_sentences(found, level) for level in Level)
    if as_json:
        every = tuple(one for some in found.values() for one in some)
        emit(
            "verify-image",
            {
                "ok": verdict.ok,
                "image": verdict.image,
                "packages": packages,
                "problems": problems,
                "notes": notes,
                "differences": to_json(every),
            },
        )
    else:
        for package in packages:
            echo(f"{package}: checked")
        for note in notes:
            echo(f"note: {note}")
        for problem in problems:
            echo(f"problem: {problem}", fg="red")
        if verdict.ok:
            echo(f"{verdict.image} matches upstream.lock")
        elif can_allow(verdict.differences):
            echo(
                "next: remove the file, plugin or variable; or, if you trust it, add its name to `allow` below "
                "[verify] in upstream.lock"
            )
        else:
            in_set = project.set_option(set_name)
            echo(f"next: patchq build{in_set} && patchq compose{in_set}, and rebuild the image")
    if not verdict.ok:
        raise click.exceptions.Exit(1)


def _named_sentences(found: Mapping[str, tuple[Difference, ...]], level: Level) -> list[str]:
    """Return the messages of one level, each with the name of its package."""
    from patchq.cli.differences import sentences

    named = []
    for name, differences in found.items():
        for text in sentences(differences, level):
            if name:
                text = f"{name}: {text}"
            named.append(text)
    return named
