from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from patchq.cli.common import emit, json_option, offline_option, open_project, set_option
from patchq.cli.terminal import echo

if TYPE_CHECKING:
    from patchq.build.dist import Built


@click.command("build")
@click.argument("names", nargs=-1)
@click.option("--profile", type=click.Choice(["overlay", "source", "empty"]), help="[default: the lock's]")
@click.option(
    "--platform", default="", metavar="NAMES", help="The machines: aarch64,x86_64.  [default: this one's kind]"
)
@click.option(
    "--wheel", "wheel_tag", default="", metavar="TEXT", help="Overlay the release wheel with this in its name."
)
@click.option("--no-isolation", is_flag=True, help="Build with what is installed in this environment.")
@set_option
@offline_option
@json_option
def command(
    names: tuple[str, ...], profile: str | None, platform: str, wheel_tag: str, no_isolation: bool, set_name: str,
    offline: bool, as_json: bool,
) -> None:  # fmt: skip
    """Build wheels of the applied stacks into dist/SET."""
    from patchq.build import platforms
    from patchq.build.build import build
    from patchq.errors import UserError

    if platform and wheel_tag:
        raise UserError("--platform and --wheel both choose the release wheel", hint="leave one of them out")
    project = open_project(as_json)
    built = build(
        project, names, set_name=set_name, profile=profile or "", wheel_tag=wheel_tag,
        isolation=not no_isolation, offline=offline, platforms=platforms.parse(platform),
    )  # fmt: skip
    folder = f"dist/{project.choose_set(set_name)}"
    if as_json:
        emit("build", {"wheels": [
            {"upstream": b.upstream, "distribution": b.distribution, "version": b.version, "profile": b.profile,
             "path": str(b.path), "sha256": b.sha256, "stack_id": b.stack_id, "fresh": b.fresh, "notes": b.notes,
             "platform": b.platform}
            for b in built
        ]})  # fmt: skip
        return
    for b in built:
        echo(f"{b.upstream}: {'built' if b.fresh else 'up to date:'} {folder}/{b.path.name}")
        for note in b.notes:
            echo(f"    {note}")
    if built:
        echo(_install(built, folder))


def _install(built: Sequence[Built], folder: str) -> str:
    """What to type to install them, and where."""
    from patchq.build import platforms

    if any(b.profile == "empty" for b in built):
        made = " ".join(f"{folder}/{b.path.name}" for b in built)
        return f"install: python -m pip install --no-deps {made}"
    where = sorted({b.platform for b in built} - {platforms.ANY})
    line = f"python -m pip install --no-deps -r {folder}/requirements.txt"
    if not where or where == [platforms.here()]:
        return f"install: {line}"
    return f"install, with {folder} on an {' or '.join(where)} machine: {line}"
