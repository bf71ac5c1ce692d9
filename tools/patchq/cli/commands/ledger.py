from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project
from patchq.cli.terminal import echo, safe, show_table
from patchq.formats.ledger import Attempt, say_moved


@click.command("ledger")
@click.argument("names", nargs=-1)
@click.option("--cost", is_flag=True, help="What each patch has cost to carry, the dearest first, and the hot files.")
@click.option("--patch", default="", metavar="PATCH", help="Only this patch.")
@click.option("--story", default="", metavar="SET..SET", help="The way from one set to another, as a page of Markdown.")
@json_option
def command(names: tuple[str, ...], cost: bool, patch: str, story: str, as_json: bool) -> None:
    """What became of each patch on each ref that it was carried to.

    Lines that can't be read are named by their numbers, and kept; exit code 1 then.
    """
    from patchq.formats.ledger import costs, hot_files
    from patchq.stacks.views import read_ledgers

    project = open_project(as_json)
    if story:
        before, dots, after = story.partition("..")
        if not (before and dots and after) or cost or patch or as_json:
            raise click.UsageError("--story takes two sets, FROM..TO, and no other option")
        from patchq.carry.story import tell

        echo(tell(project, before, after, names), nl=False)
        return
    found = read_ledgers(project, names, patch)
    if as_json:
        body = [
            {
                "upstream": upstream,
                "attempts": [asdict(a) for a in ledger.attempts],
                "problems": [asdict(p) for p in ledger.problems],
                "costs": [asdict(c) for c in costs(ledger)],
                "hot": [{"path": p, "stopped": n, "patches": m} for p, n, m in hot_files(ledger)],
            }
            for upstream, ledger in found.items()
        ]
        emit("ledger", {"ok": not any(x.problems for x in found.values()), "ledgers": body})
    for upstream, ledger in found.items() if not as_json else ():
        if cost:
            heads = ("patch", "refs", "survived", "stopped", "lines", "retired")
            rows = [
                (c.patch, str(c.tried), str(c.survived), str(c.stopped), str(c.lines), c.retired) for c in costs(ledger)
            ]
            show_table(heads, rows, upstream)
            for path, times, patches in hot_files(ledger)[:10]:
                echo(f"{path}: stopped {patches} patches, {times} times")
        else:
            _history(upstream, ledger.attempts)
        for problem in ledger.problems:
            echo(f"{upstream}: ledger line {problem.number} {problem.said}; it is kept", fg="red", err=True)
    if any(ledger.problems for ledger in found.values()):
        raise click.exceptions.Exit(1)


def _history(upstream: str, attempts: Sequence[Attempt]) -> None:
    """A line an attempt, under its refs, and below it what is said of it."""
    before = ("", "")
    for a in attempts:
        if (a.from_ref, a.onto) != before:
            before = (a.from_ref, a.onto)
            echo(f"{upstream} {a.from_ref} onto {a.onto}", bold=True)
        moved = say_moved(a.offsets, a.checked)
        words = [a.outcome + (f" {moved}" if moved else "") + (f" ({a.grade})" if a.grade else "")]
        words += [f"proof {a.proof}"] if a.proof else []
        echo(f"  {a.patch:<32} {', '.join(words)}")
        for line in textwrap.wrap(safe("; ".join(filter(None, (a.evidence, a.how)))), 74):
            echo(f"      {line}")
