from __future__ import annotations

from pathlib import Path

import click

from patchq.cli.common import json_option, open_project, set_option, show_exported
from patchq.cli.terminal import echo


@click.command("import")
@click.argument("name")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--range", "git_range", default="", metavar="A..B", help="PATH is a repository: adopt these commits.")
@click.option("--topic", default="", help="Give each a Topic:.")
@click.option("--author", default="", metavar="'NAME <EMAIL>'", help="Of plain diffs.  [default: you]")
@click.option("--signoff", "-s", is_flag=True, help="Sign off each as yourself.")
@set_option
@json_option
def command(
    name: str, paths: tuple[Path, ...], git_range: str, topic: str, author: str, signoff: bool, set_name: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Adopt patches from elsewhere.

    Mails, an mbox, a folder with a series, plain diffs, or with --range the commits of a repository.
    """
    from patchq.stacks.adopt import import_patches

    result = import_patches(
        open_project(as_json), name, paths, set_name=set_name, git_range=git_range, topic=topic, author=author,
        signoff=signoff,
    )  # fmt: skip
    show_exported(result, as_json, "import")
    if not as_json and result.added:
        echo("next: patchq apply, and `patchq check` for what each still has to say of itself")
