from __future__ import annotations

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import counted


@click.command("pin")
@click.argument("name", required=False)
@click.option("--url", default="", help="Git URL, repository or plain folder.")
@click.option("--ref", default="", help="Tag, branch or other name of the commit.")
@click.option("--commit", default="", help="Full commit id, if the host can't be reached.")
@click.option(
    "--archive", default="", metavar="PROJECT==VERSION", help="Release archive (NAME==VERSION), or path of a tar file."
)
@click.option("--subdir", default="", metavar="PATH", help="Folder of the archive that holds the tree.")
@click.option(
    "--into", default="", metavar="PARENT:PATH", help="Path inside another upstream that this one is nested at."
)
@click.option("--check", is_flag=True, help="Verify the lock against its sources.")
@set_option
@json_option
def command(
    name: str | None,
    url: str,
    ref: str,
    commit: str,
    archive: str,
    subdir: str,
    into: str,
    check: bool,
    set_name: str,
    as_json: bool,
) -> None:
    """Add, move or check pins."""
    from patchq.store.pinning import check_pins, pin

    project = open_project(as_json)
    if check:
        found = check_pins(project, [name] if name else [])
        if as_json:
            emit(
                "pin",
                {"checked": [{"pin": c.pin, "source": c.source, "ok": c.ok, "message": c.message} for c in found]},
            )
        else:
            for c in found:
                echo(f"{c.pin} {c.source}: {c.message}")
        if not all(c.ok for c in found if c.ok is not None):
            raise click.exceptions.Exit(1)
        return
    if not name or not ref:
        raise click.UsageError("pin needs NAME and --ref (or --check)")
    pinned = pin(
        project, name, url=url, ref=ref, commit=commit, archive=archive, subdir=subdir, into=into, set_name=set_name
    )
    done = pinned.pin
    if as_json:
        emit(
            "pin",
            {
                "upstream": name,
                "ref": ref,
                "commit": done.commit,
                "archive": done.archive,
                "sha256": done.sha256,
                "moved": [{"what": what, "old": old, "new": new} for what, old, new in pinned.moved],
            },
        )
        return
    if done.commit:
        echo(f"{name} {ref}: commit {done.commit}")
    if done.archive:
        wheels = counted(len(done.wheels), "wheel")
        only = "" if done.commit else ", without a git commit"
        echo(f"{name} {ref}: archive {done.archive}{only}, sha256 {done.sha256}, {wheels}")
    for what, old, new in pinned.moved:
        echo(f"  moved: {what} was {old}, is {new or 'nothing'}")
    if not project.layout.stack(name, ref).exists():
        echo(f"next: `patchq import {name} PATH` adopts patches, scripts, a Dockerfile; `patchq apply` brings the tree")
