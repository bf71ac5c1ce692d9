from __future__ import annotations

import textwrap
from collections.abc import Sequence

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project
from patchq.cli.terminal import echo, safe, show_table
from patchq.formats.jsonlines import Problem
from patchq.formats.ledger import Attempt, Tally, say_moved
from patchq.names import counted
from patchq.project.project import Project

#: Maximum number of lines to buffer.
MOST_HELD = 1000


@click.command("ledger")
@click.argument("names", nargs=-1)
@click.option(
    "--cost",
    is_flag=True,
    help="Show the cost of carrying each patch, highest first, and the files that conflict most.",
)
@click.option("--patch", default="", metavar="PATCH", help="Patch to show.")
@click.option("--story", default="", metavar="SET..SET", help="Write the history from one set to another as Markdown.")
@json_option
def command(names: tuple[str, ...], cost: bool, patch: str, story: str, as_json: bool) -> None:
    """Show the outcome of each patch on each ref.

    Unreadable lines are kept and reported with their numbers. If there are any, the exit code is 1.
    """
    from patchq.stacks.views import stream_ledgers

    project = open_project(as_json)
    if story:
        before, dots, after = story.partition("..")
        if not (before and dots and after) or cost or patch or as_json:
            raise click.UsageError("--story takes two sets, FROM..TO, and no other option")
        from patchq.report.story import tell

        echo(tell(project, before, after, names), nl=False)
        return
    if as_json:
        _as_json(project, names, patch)
        return
    problems = []
    for upstream, ledger in stream_ledgers(project, names, patch):
        summary, history, found = Tally(), _PatchHistory(upstream), []
        for one in ledger:
            if isinstance(one, Problem):
                found.append(one)
            elif cost:
                summary.add(one)
            else:
                history.add(one)
        history.show()
        if cost:
            _show_costs(upstream, summary)
        for problem in found:
            echo(f"{upstream}: ledger line {problem.number} {problem.message}; the line is kept", fg="red", err=True)
        problems += found
    if problems:
        raise click.exceptions.Exit(1)


def _as_json(project: Project, names: Sequence[str], patch: str) -> None:
    from patchq.formats.ledger import costs, hot_files
    from patchq.stacks.views import read_ledgers

    found = read_ledgers(project, names, patch)
    body = []
    for upstream, ledger in found.items():
        body.append(
            {
                "upstream": upstream,
                "attempts": as_dicts(ledger.attempts),
                "problems": as_dicts(ledger.problems),
                "costs": as_dicts(costs(ledger)),
                "hot": [{"path": p, "stopped": n, "patches": m} for p, n, m in hot_files(ledger)],
            }
        )
    emit("ledger", {"ok": not any(x.problems for x in found.values()), "ledgers": body})
    if any(ledger.problems for ledger in found.values()):
        raise click.exceptions.Exit(1)


def _show_costs(upstream: str, summary: Tally) -> None:
    heads = ("patch", "refs", "survived", "stopped", "lines", "retired")
    rows = [(c.patch, str(c.tried), str(c.survived), str(c.stopped), str(c.lines), c.retired) for c in summary.costs()]
    show_table(heads, rows, upstream)
    for path, times, patches in summary.hot_files()[:10]:
        echo(f"{path}: stopped {counted(patches, 'patch')}, {counted(times, 'time')}")


class _PatchHistory:
    """Output of the attempts to carry patches: one line for each attempt, grouped by refs, with details below."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.before = upstream, ("", "")
        self.lines: list[str] = []

    def add(self, a: Attempt) -> None:
        if (a.from_ref, a.onto) != self.before:
            self.show()
            self.before = (a.from_ref, a.onto)
            echo(f"{self.upstream} {a.from_ref} onto {a.onto}", bold=True)
        moved = ""
        if a.offsets:
            moved = say_moved(a.offsets, a.checked)
        words = [a.outcome + (f" {moved}" if moved else "") + (f" ({a.grade})" if a.grade else "")]
        if a.proof:
            words += [f"proof {a.proof}"]
        self.lines.append(f"  {a.patch:<32} {', '.join(words)}")
        if a.evidence or a.how:
            message = safe("; ".join(filter(None, (a.evidence, a.how))))
            self.lines += [f"      {line}" for line in textwrap.wrap(message, 74)]
        if len(self.lines) > MOST_HELD:
            self.show()

    def show(self) -> None:
        if self.lines:
            echo("\n".join(self.lines))
        self.lines = []
