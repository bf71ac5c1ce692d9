from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("show")
@click.argument("patch")
@click.option("--diff", "with_diff", is_flag=True, help="Show the diff.")
@set_option
@json_option
def command(patch: str, with_diff: bool, set_name: str, as_json: bool) -> None:
    """Show the message, files and trailers of a patch."""
    from patchq.stacks.views import show

    info, header, diff = show(open_project(as_json), patch, set_name)
    if as_json:
        emit("show", {**asdict(info), "message": header.message, "diff": diff.decode("utf-8", "backslashreplace")})
        return
    echo(f"{info.upstream} {info.ref}: {info.path}")
    echo(f"author: {info.author}\n")
    for line in header.message.rstrip("\n").split("\n"):
        echo(line)
    echo("")
    for path, added, removed in info.files:
        echo(f"  {path}: " + ("binary" if added < 0 else f"+{added} -{removed}"))
    if with_diff:
        echo("")
        for raw in diff.split(b"\n"):
            echo(raw.decode("utf-8", "backslashreplace"))
