from __future__ import annotations

import click

from patchq.cli.common import json_option, open_project, show_exported


@click.command("new")
@click.argument("upstream")
@click.argument("name")
@click.option(
    "--message", "-m", multiple=True, help="Subject; each further -m adds a paragraph.  [default: from the name]"
)
@click.option("--topic", default="", help="Value of the patch's Topic trailer.")
@click.option(
    "--proof", default="", metavar="PATH", help="Value of the patch's Proof trailer, a test under tests/stacks/."
)
@click.option("--author", default="", metavar="'NAME <EMAIL>'", help="[default: you]")
@click.option("--signoff", "-s", is_flag=True, help="Add the author's sign-off.")
@click.option("--allow-empty", is_flag=True, help="Allow a patch that changes nothing.")
@click.option("--pattern", default="", metavar="TEXT", help="Text to replace; the patch is stored as a rule.")
@click.option("--replace", "new_text", metavar="TEXT", help="With --pattern: replacement text.")
@click.option("--files", multiple=True, metavar="GLOB", help="With --pattern: files to change; may be repeated.")
@click.option(
    "--times",
    type=click.IntRange(1),
    help="With --pattern: required number of matches in all files.  [default: counted now]",
)
@click.option("--regex", is_flag=True, help="With --pattern: treat the text as a Python regular expression.")
@click.option(
    "--include", multiple=True, metavar="PATH", help="*.orig or *.rej file in the worktree to include; may be repeated."
)
@json_option
def command(
    upstream: str,
    name: str,
    message: tuple[str, ...],
    topic: str,
    proof: str,
    author: str,
    signoff: bool,
    allow_empty: bool,
    pattern: str,
    new_text: str | None,
    files: tuple[str, ...],
    times: int | None,
    regex: bool,
    include: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a patch from your edits.

    The patch contains all edited and added files in the worktree of UPSTREAM, except the *.orig and *.rej files that
    `patch` writes. The new patch goes on top of the applied patches, below the patches that are not applied. With
    --pattern, the patch contains the rule's replacements, and goes on top of the stack.
    """
    from patchq.stacks.edit import new, new_by_rule

    if pattern:
        if new_text is None or not files:
            raise click.UsageError("--pattern needs --replace and --files.")
        from patchq.patterns.rules import make_rule

        rule = make_rule(files, pattern, new_text, times=times or 1, regex=regex)
        result = new_by_rule(
            open_project(as_json),
            upstream,
            name,
            rule,
            counted=times is not None,
            message="\n\n".join(message),
            topic=topic,
            proof=proof,
            author=author,
            signoff=signoff,
        )
        show_exported(result, as_json, "new")
        return
    if new_text is not None or files or times or regex:
        raise click.UsageError("--replace, --files, --times and --regex need --pattern.")
    result = new(
        open_project(as_json),
        upstream,
        name,
        message="\n\n".join(message),
        topic=topic,
        proof=proof,
        author=author,
        signoff=signoff,
        allow_empty=allow_empty,
        include=include,
    )
    show_exported(result, as_json, "new")
