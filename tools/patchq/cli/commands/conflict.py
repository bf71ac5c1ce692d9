from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchq.cli.common import emit, json_option, open_project, stopped_upstream
from patchq.cli.terminal import echo
from patchq.names import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from patchq.rebase.conflict import Brief


@click.command("conflict")
@click.argument("name", required=False)
@click.option(
    "--history", "fetch", is_flag=True, help="Fetch upstream's history, to show the commits that caused the conflict."
)
@json_option
def command(name: str | None, fetch: bool, as_json: bool) -> None:
    """Show the patch at which a rebase stopped.

    Shows the purpose of the patch, the three sides with the conflicting lines, known resolutions, the patches that
    depend on this patch, and how to run its proof. Also shows the upstream commits that changed the conflicting lines,
    if upstream's history is available locally.
    """
    from patchq.rebase.conflict import brief, report_json

    project = open_project(as_json)
    found = brief(project, stopped_upstream(project, name), fetch=fetch)
    if as_json:
        emit("conflict", report_json(found))
    else:
        _show(found)


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the lines that differ between two texts, each with a line of context.

    Differences in indentation are ignored.

    Yield all lines if the first text is empty.
    """
    from difflib import SequenceMatcher

    old, new = ([line.strip() for line in side] for side in (before, after))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(1):
        if before:
            yield "…"
        for tag, i, j, k, end in group:
            if tag == "equal":
                for line in after[k:end]:
                    yield f" {line}"
                continue
            for line in before[i:j]:
                yield f"-{line}"
            for line in after[k:end]:
                yield f"+{line}"
    pairs = []
    for m in matcher.get_matching_blocks():
        for n in range(m.size):
            pairs.append((before[m.a + n], after[m.b + n]))
    if moved := sum(one != other for one, other in pairs):
        yield f"({counted(moved, 'line')} with only other indentation)"
    elif old == new:
        yield "(no change)"


def _show_files(found: Brief) -> None:
    for file in found.files:
        echo(f"\n{file.path}: {file.kind.value}", bold=True)
        for clash in file.collisions:
            echo(f"  line {clash.line} of {found.worktree}/{file.path}")
            for side, lines in ((found.onto, clash.ours), ("the patch", clash.theirs)):
                if clash.base:
                    echo(f"    {side} changes {counted(len(clash.base), 'line')}:")
                else:
                    echo(f"    {side} adds:")
                for line in _changes(clash.base, lines):
                    echo(f"      {line}")


def _show_dropped(found: Brief) -> None:
    for lost in found.dropped:
        commit = ""
        if lost.commit:
            commit = f" (upstream's {lost.commit[:12]})"
        place = f"{lost.path}:{lost.line}{commit}"
        echo(f"upstream added this line, and the worktree lacks it: {place}: {lost.text.strip()}")


def _show(found: Brief) -> None:
    from patchq.rebase.conflict import say_suggestion

    echo(f"{found.upstream}/{found.patch} ({found.from_ref}) onto {found.onto}: {found.outcome}", bold=True)
    echo(f"{found.subject}\n")
    for line in found.why.splitlines():
        echo(f"  {line}" if line else "")
    echo(f"\ntopic: {found.topic or 'none'}; upstream status: {found.status or 'unknown'}")
    if found.message:
        echo(found.message)
    if found.evidence:
        echo(f"upstream has the patch, {found.grade or 'in part'}: {found.evidence}")
    _show_files(found)
    echo("")
    for cause in found.causes:
        echo(f"upstream's {cause.commit[:12]} {cause.date} {cause.subject} ({cause.author})")
    if not found.causes:
        echo("no upstream commit is known for these lines" + (f"; {found.hint}" if found.hint else ""))
    echo("needed by: " + (", ".join(found.dependents) or "no other patch"))
    _show_dropped(found)
    for one in found.suggestions:
        echo(f"\n{say_suggestion(found.upstream, one)}: `{one.command}`")
        echo(one.diff, nl=False)
    echo("")
    needs = ""
    if found.needs:
        needs = f" (needs {', '.join(found.needs)})"
    echo(f"proof: {', '.join(found.proofs) or 'none'}{needs}")
    echo(
        f"edit {found.worktree}, then `{found.command}`; without --dry-run, the command keeps a resolution "
        "that passes all checks"
    )
