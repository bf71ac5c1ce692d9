from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo, show_table


@click.command("list")
@click.argument("names", nargs=-1)
@click.option("--topic", default="", help="Topic to list.")
@set_option
@json_option
def command(names: tuple[str, ...], topic: str, set_name: str, as_json: bool) -> None:
    """List the patches of each stack, in order."""
    from patchq.mutation.known import known_score
    from patchq.stacks.views import list_patches

    project = open_project(as_json)
    found = list_patches(project, names, set_name, topic)
    scores = [known_score(project, f"{p.upstream}/{p.name}") for p in found]
    if as_json:
        patches = [{**asdict(p), "proof_strength": score} for p, score in zip(found, scores, strict=True)]
        emit("list", {"patches": patches})
        return
    if not found:
        echo("no patches")
        return
    heads = ["patch", "topic", "upstream", "subject"]
    with_scores = any(score is not None for score in scores)
    if with_scores:
        heads.insert(3, "proof")
    rows = []
    for p, score in zip(found, scores, strict=True):
        row = [f"{p.upstream}/{p.name}", p.topic, p.status.split(" ")[0], p.problem or p.subject]
        if with_scores:
            row.insert(3, "" if score is None else f"{100 * score:.0f} %")
        rows.append(row)
    show_table(heads, rows)
