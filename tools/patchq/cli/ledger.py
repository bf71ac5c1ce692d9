from __future__ import annotations

import sys
from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project


@click.command("ledger")
@click.argument("names", nargs=-1)
@click.option("--cost", is_flag=True, help="What each patch has cost to carry, the dearest first, and the hot files.")
@click.option("--patch", default="", metavar="PATCH", help="Only this patch.")
@json_option
def command(names: tuple[str, ...], cost: bool, patch: str, as_json: bool) -> None:
    """What became of each patch on each ref that it was carried to.

    Lines that can't be read are named by their numbers, and kept; exit code 1 then.
    """
    from patchq.inspect import read_ledgers
    from patchq.ledger import costs, hot_files

    found = read_ledgers(open_project(as_json), names, patch)
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
            _table(upstream, ("patch", "refs", "survived", "stopped", "lines", "hottest file"), [
                (c.patch, str(c.tried), str(c.survived) + (f", retired at {c.retired}" if c.retired else ""),
                 str(c.stopped), str(c.lines), c.hot[0][0] if c.hot else "")
                for c in costs(ledger)
            ])  # fmt: skip
            for path, times, patches in hot_files(ledger)[:10]:
                click.echo(f"{path}: stopped {patches} patches, {times} times")
        else:
            _table(upstream, ("patch", "from", "onto", "outcome", "proof", "how"), [
                (a.patch, a.from_ref, a.onto, a.outcome + (f" ({a.grade})" if a.grade else ""), a.proof, a.how)
                for a in ledger.attempts
            ])  # fmt: skip
        for problem in ledger.problems:
            click.secho(f"{upstream}: ledger line {problem.number} {problem.said}; it is kept", fg="red", err=True)
    if any(ledger.problems for ledger in found.values()):
        raise click.exceptions.Exit(1)


def _table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)
