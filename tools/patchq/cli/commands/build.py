from __future__ import annotations

import click

from patchq.cli.common import emit, json_option, offline_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("build")
@click.argument("names", nargs=-1)
@click.option("--profile", type=click.Choice(["overlay", "source", "empty"]), help="[default: the lock's]")
@click.option(
    "--wheel", "wheel_tag", default="", metavar="TEXT", help="Overlay the release wheel with this in its name."
)
@click.option("--no-isolation", is_flag=True, help="Build with what is installed in this environment.")
@set_option
@offline_option
@json_option
def command(
    names: tuple[str, ...], profile: str | None, wheel_tag: str, no_isolation: bool, set_name: str, offline: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Build wheels of the applied stacks into dist/."""
    from patchq.build.build import build

    built = build(
        open_project(as_json), names, set_name=set_name, profile=profile or "", wheel_tag=wheel_tag,
        isolation=not no_isolation, offline=offline,
    )  # fmt: skip
    if as_json:
        emit("build", {"wheels": [
            {"upstream": b.upstream, "distribution": b.distribution, "version": b.version, "profile": b.profile,
             "path": str(b.path), "sha256": b.sha256, "stack_id": b.stack_id, "fresh": b.fresh, "notes": b.notes}
            for b in built
        ]})  # fmt: skip
        return
    for b in built:
        echo(f"{b.upstream}: {'built' if b.fresh else 'up to date:'} dist/{b.path.name}")
        for note in b.notes:
            echo(f"    {note}")
    if built:
        made = " ".join(f"dist/{b.path.name}" for b in built)
        echo(f"install: python -m pip install --no-deps {made}")
