from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from patchq.cli.common import emit, json_option, offline_option, open_project
from patchq.cli.terminal import echo
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.stacks.check import Finding


def _shared(project: Project, names: tuple[str, ...], offline: bool) -> list[Finding]:
    """Definitions that two patches change, as warnings."""
    from patchq.drift.shared import grouped, shared_in_sets
    from patchq.stacks.check import Finding

    return [
        Finding(
            s.upstream, s.ref, s.patch.partition("/")[2] if s.patch.startswith(f"{s.upstream}/") else "",
            "one-definition", f"{s.definition} in {s.path} is changed by {', '.join(others)} and by {s.patch}: "
            + (s.said if len(others) == 1 else s.said.replace("both", "all")),
            f"look at them; if {s.patch} is written for it, `Requires: {others[0]}` says so", "warning",
        )
        for s, others in grouped(shared_in_sets(project, names, offline=offline))
    ]  # fmt: skip


@click.command("check")
@click.argument("names", nargs=-1)
@click.option("--text", "text_only", is_flag=True, help="Only what needs no upstream: no zero fuzz, no stable bytes.")
@click.option("--fix", "mend", is_flag=True, help="First write what can be written: statuses, your sign-offs, bytes.")
@offline_option
@json_option
def command(names: tuple[str, ...], text_only: bool, mend: bool, offline: bool, as_json: bool) -> None:
    """Check the hygiene of all stacks.

    Trailers, zero fuzz, stable bytes, names, paths, sign-offs, requirements, self-references.
    """
    from patchq.stacks.check import check

    project = open_project(as_json)
    written: tuple[str, ...] = ()
    if mend:
        from patchq.stacks.fix import fix

        written = fix(project, names).written
    found = check(project, names, offline=offline, text_only=text_only)
    if not text_only:
        found += _shared(project, names, offline)
    problems = [f for f in found if f.level == "problem"]
    if as_json:
        emit("check", {"findings": [asdict(f) for f in found], "written": list(written)})
    else:
        for name in written:
            echo(f"{name}: rewritten")
        for f in found:
            where = "/".join(x for x in (f.upstream, f.ref, f.patch) if x)
            word = "" if f.level == "problem" else f"{f.level}: "
            echo(f"{where}: {word}{f.message} [{f.rule}]\n    {f.hint}")
        count = sum(len(s.names) for s in project.stacks(project.choose_set("")))
        aside = len(found) - len(problems)
        echo(
            (f"{len(problems)} finding{'s' * (len(problems) > 1)}" if problems else
             f"all good: {count} patches in the default set")
            + (f"; {aside} warning{'s' * (aside > 1)}" if aside else "")
        )  # fmt: skip
    if problems:
        raise click.exceptions.Exit(1)
