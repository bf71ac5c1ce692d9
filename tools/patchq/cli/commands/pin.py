from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import counted, sh
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.project.stack import Stack
    from patchq.store.pinning import Pinned


@click.command("pin")
@click.argument("name", required=False)
@click.option("--url", default="", help="Git URL, or path of a repository or plain folder.")
@click.option("--ref", default="", help="Tag, branch or other name of the commit.")
@click.option("--commit", default="", help="Full commit id. If the host can be reached, it must confirm this id.")
@click.option(
    "--archive", default="", metavar="PROJECT==VERSION", help="Release archive (NAME==VERSION), or path of a tar file."
)
@click.option("--subdir", default="", metavar="PATH", help="Folder of the archive that holds the tree.")
@click.option("--into", default="", metavar="PARENT:PATH", help="Place of this upstream inside another upstream.")
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
        raise click.UsageError(_missing(project, name, archive))
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
                "left": _left_json(project, pinned),
            },
        )
        return
    if done.commit:
        echo(f"{name} {ref}: commit {done.commit}")
    else:
        echo(f"{name} {ref}: pinned by its archive, without a git commit")
    if done.archive:
        wheels = counted(len(done.wheels), "wheel")
        echo(f"{name} {ref}: archive {done.archive}, sha256 {done.sha256}, {wheels}")
    for what, old, new in pinned.moved:
        echo(f"  moved: {what} was {old}, is {new or 'nothing'}")
    _show_next(project, pinned)


def _missing(project: Project, name: str | None, archive: str) -> str:
    """Return the error message for a command line that lacks the upstream or the ref."""
    if name and "==" in name and not archive:  # a requirement, as for pip
        name, archive = name.partition("==")[0], name
    version = archive.partition("==")[2]
    if name and version:
        return f"--ref is missing: patchq pin {sh(name)} --archive {sh(archive)} --ref {sh(version)}"
    if name:
        return f"--ref is missing: the tag, branch or commit of {name} to pin"
    known = ", ".join(project.lock.upstreams)
    if known:
        return f"name an upstream ({known}, or a new one) and its --ref; --check verifies all pins"
    return "name the upstream, its --ref and its source, such as: patchq pin httpx --archive httpx==0.28.1 --ref 0.28.1"


def _show_next(project: Project, pinned: Pinned) -> None:
    name, ref = pinned.pin.upstream, pinned.pin.ref
    if left := pinned.left:
        place = project.layout.stack(name, left.pin.ref).relative_to(project.layout.root).as_posix()
        count = counted(len(left.names), "patch")
        echo(f"{name} {ref} has no patches yet; the stack of {left.pin.ref} ({count}) is still in {place}")
        echo(f"next: `{_carry_command(project, pinned, left)}` carries that stack to {ref}")
    elif not project.layout.stack(name, ref).exists():
        set_option = project.set_option(pinned.set_name)
        echo(
            f"next: `patchq apply{set_option}` checks the source out to .patchq/trees/{name}; `patchq import "
            f"{name}{set_option}` with a patch, folder, script or Dockerfile makes patches of it"
        )


def _carry_command(project: Project, pinned: Pinned, left: Stack) -> str:
    """Return the command that carries the stack of another ref to the new pin."""
    command = f"patchq rebase {pinned.pin.upstream} --onto {sh(pinned.pin.ref)}"
    lock = project.lock
    if lock.sets[lock.default_set].get(pinned.pin.upstream) == left.pin.ref:
        return command  # by default, `rebase` carries the stack of the default set
    command += f" --from {sh(left.pin.ref)}"
    if pinned.set_name != lock.default_set:
        command += f" --set {pinned.set_name}"
    return command


def _left_json(project: Project, pinned: Pinned) -> dict[str, object] | None:
    if left := pinned.left:
        return {
            "ref": left.pin.ref,
            "patches": list(left.names),
            "command": _carry_command(project, pinned, left),
        }
    return None
