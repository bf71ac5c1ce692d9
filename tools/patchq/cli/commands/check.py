from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from patchq.cli.common import emit, json_option, offline_option, open_project, set_option, without_proof
from patchq.cli.terminal import echo
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.stacks.apply import ApplyPlan
    from patchq.stacks.check import Finding


def _shared(
    project: Project, names: tuple[str, ...], offline: bool, plans: dict[tuple[str, str], ApplyPlan]
) -> list[Finding]:
    """Return a warning for each definition where a patch undoes another or copies may differ."""
    from patchq.drift.sets import shared_in_sets
    from patchq.stacks.check import Finding

    found: list[Finding] = []
    for s in shared_in_sets(project, names, offline=offline, plans=plans):
        if s.needs_decision:
            found.append(
                Finding(
                    upstream=s.upstream,
                    ref=s.ref,
                    patch=s.patch.partition("/")[2] if s.patch.startswith(f"{s.upstream}/") else "",
                    rule="one-definition",
                    message=f"{s.definition} in {s.path} is changed by {s.other} and by {s.patch}: {s.message}",
                    hint=f"look at them; if {s.patch} is written for it, `Requires: {s.other}` says so",
                    level="warning",
                )
            )
    return found


def _upstream_lines(
    project: Project, plans: dict[tuple[str, str], ApplyPlan], accepted: tuple[str, ...]
) -> list[Finding]:
    """Return a finding for each patch that drops upstream's new lines.

    :param accepted: lines that the user accepts; they are recorded in the ledger.
    """
    from patchq.merge.upstream_lines import accept_dropped, dropped_in_stacks, show_dropped
    from patchq.stacks.check import Finding

    left = accept_dropped(project, dropped_in_stacks(project, plans), accepted)
    lines: list[Finding] = []
    for item in left:
        lines.append(
            Finding(
                upstream=item.upstream,
                ref=item.ref,
                patch=item.patch,
                rule="upstream-lines",
                message=f"it drops lines that upstream added since {item.attempt.from_ref}: {show_dropped(item.lines)}",
                hint="put them back; or, where that is meant, "
                f"`patchq check --drop-upstream-line {item.upstream}/{item.patch}:{item.lines[0].name}`",
            )
        )
    return lines


def _together(
    project: Project,
    refs: tuple[str, ...],
    names: tuple[str, ...],
    *,
    offline: bool,
    allow_empty: bool,
    text_only: bool,
) -> tuple[list[Finding], list[str], int]:
    """Return the findings of the project with branches merged, the patches to prove again, and their number."""
    from patchq.cli.clashes import finding_of
    from patchq.stacks.check import check
    from patchq.together.concurrent import merged

    found: list[Finding] = []
    plans: dict[tuple[str, str], ApplyPlan] = {}
    count = 0
    with merged(project, refs) as together:
        clashes = list(together.clashes)
        if then := together.project:
            found = check(then, names, offline=offline, text_only=text_only, plans=plans, allow_empty=allow_empty)
            if not text_only:
                found += _shared(then, names, offline, plans)
                found += _upstream_lines(then, plans, ())
            count = _count(then)
        if not text_only:
            clashes += together.compare(plans, offline=offline)
        # A patch file with conflict markers breaks other rules, too.
        broken = set()
        for c in clashes:
            if c.path in together.broken and c.name:
                broken.add((c.upstream, c.ref, c.name))
        found = [f for f in found if (f.upstream, f.ref, f.patch) not in broken]
        # Line numbers and blob ids change if two branches edit one file. Export renews them.
        for number, finding in enumerate(found):
            if finding.rule in ("offset", "bytes") and (finding.upstream, finding.ref) in together.shared_stacks:
                found[number] = replace(finding, level="warning", hint="once merged: `patchq check --fix`")
        proofs = sorted(together.proofs)
    chosen = []
    for c in clashes:
        if not names or not c.upstream or c.upstream in names:
            chosen.append(c)
    return [finding_of(c) for c in chosen] + found, proofs, count


def _count(project: Project) -> int:
    """Return the number of patches in the default set."""
    return sum(len(stack.names) for stack in project.stacks(project.choose_set("")))


def _installs(
    project: Project, set_name: str, platform: str, offline: bool
) -> tuple[list[Finding], list[dict[str, Any]]]:
    """Return the problems of installing a set's wheels together, and the result per platform."""
    from patchq.build import installs, platforms
    from patchq.stacks.check import Finding

    found, answers = [], []
    for kind in platforms.parse(platform):
        resolved = installs.resolve_set(project, set_name, kind, offline=offline)
        where = f"set {resolved.set_name} on {kind}"
        for lacked in resolved.lacked:
            there = "it has none of it"
            if lacked.there:
                there = f"the newest there is {lacked.there}"
            message = f"{where}: the available index has nothing for {lacked.requirement}; {there}"
            found.append(
                Finding(
                    upstream="",
                    ref="",
                    patch="",
                    rule="installs",
                    message=message,
                    hint="use an index that has it",
                    level="warning",
                )
            )
        if resolved.contradiction:
            message = f"{where}: the wheels don't install together:\n{resolved.contradiction}"
            found.append(
                Finding(upstream="", ref="", patch="", rule="installs", message=message, hint="pin what fits together")
            )
        answers.append(asdict(resolved))
    return found, answers


def _show(found: list[Finding], written: tuple[str, ...], resolved: list[dict[str, Any]]) -> None:
    for name in written:
        echo(f"{name}: rewritten")
    for f in found:
        where = "/".join(x for x in (f.upstream, f.ref, f.patch) if x)
        word = ""
        if f.level != "problem":
            word = f"{f.level}: "
        echo(f"{where}{': ' * bool(where)}{word}{f.message} [{f.rule}]\n    {f.hint}")
    for one in (r for r in resolved if r["packages"]):
        without = ""
        if one["lacked"]:
            without = f" without {len(one['lacked'])} that the index lacks"
        echo(f"set {one['set_name']} on {one['platform']}: {len(one['packages'])} packages resolve{without}")


@click.command("check")
@click.argument("names", nargs=-1)
@click.option("--text", "text_only", is_flag=True, help="Check only the project's files: not that patches apply.")
@click.option("--fix", "mend", is_flag=True, help="First fix statuses, your sign-offs and the patches' format.")
@click.option("--allow-empty", is_flag=True, help="Accept patches that change nothing.")
@click.option(
    "--drop-upstream-line",
    "dropped",
    multiple=True,
    metavar="UPSTREAM/PATCH:PATH[:LINE]",
    help="Line, or a file's lines, that upstream added and a patch may drop; the ledger records it.",
)
@click.option(
    "--with",
    "refs",
    multiple=True,
    metavar="REF",
    help="Branch to merge first, in memory; repeat it for several. Checks the merged project.",
)
@click.option("--installs", is_flag=True, help="Check only that a set's wheels install together, with uv.")
@click.option(
    "--platform",
    default="aarch64,x86_64",
    metavar="NAMES",
    show_default=True,
    help="With --installs: platform to install on.",
)
@set_option
@offline_option
@json_option
def command(
    names: tuple[str, ...],
    text_only: bool,
    mend: bool,
    allow_empty: bool,
    dropped: tuple[str, ...],
    refs: tuple[str, ...],
    installs: bool,
    platform: str,
    set_name: str,
    offline: bool,
    as_json: bool,
) -> None:
    """Check the stacks against the project's rules.

    Checks trailers, zero fuzz, stable bytes, names, paths, sign-offs, requirements and self-references.
    """
    project = open_project(as_json)
    if set_name and not installs:
        raise click.UsageError("--set goes with --installs; without it, check looks at every pinned stack")
    if installs and (names or text_only or mend):
        raise click.UsageError("--installs takes neither names nor other checks")
    if refs and (mend or installs or dropped):
        raise click.UsageError("--with checks committed versions only; it changes nothing and takes no other checks")
    written: tuple[str, ...] = ()
    proofs: list[str] = []
    count = 0
    if mend:
        from patchq.stacks.fix import fix

        written = fix(project, names).written
    resolved: list[dict[str, Any]] = []
    if installs:
        found, resolved = _installs(project, set_name, platform, offline)
    elif refs:
        found, proofs, count = _together(
            project, refs, names, offline=offline, allow_empty=allow_empty, text_only=text_only
        )
    else:
        found = _check_stacks(
            project, names, offline=offline, text_only=text_only, allow_empty=allow_empty, dropped=dropped
        )
    problems = [f for f in found if f.level == "problem"]
    if as_json:
        body = {
            "findings": [asdict(f) for f in found],
            "written": list(written),
            "resolved": resolved,
            "proofs": proofs,
            "without_proof": without_proof(project, project.choose_set("")),
        }
        emit("check", body)
    else:
        _show(found, written, resolved)
        if proofs:
            echo(f"both sides touch what these patches touch; once merged: patchq test --prove {' '.join(proofs)}")
    if not as_json and not installs:
        if not refs:
            count = _count(project)
            lacking = len(without_proof(project, project.choose_set("")))
            echo(f"no proof: {lacking} of {count} patches in the default set")
        _show_total(len(problems), len(found) - len(problems), count)
    if problems:
        raise click.exceptions.Exit(1)


def _check_stacks(
    project: Project,
    names: tuple[str, ...],
    *,
    offline: bool,
    text_only: bool,
    allow_empty: bool,
    dropped: tuple[str, ...],
) -> list[Finding]:
    """Check the worktree's stacks and, unless ``text_only``, how they fit together and upstream."""
    from patchq.stacks.check import check

    plans: dict[tuple[str, str], ApplyPlan] = {}
    found = check(project, names, offline=offline, text_only=text_only, plans=plans, allow_empty=allow_empty)
    if not text_only:
        found += _shared(project, names, offline, plans)
        found += _upstream_lines(project, plans, dropped)
    return found


def _show_total(problems: int, warnings: int, patches: int) -> None:
    if problems:
        message = f"{problems} finding{'s' * (problems > 1)}"
    else:
        message = f"all good: {patches} patches in the default set"
    if warnings:
        message += f"; {warnings} warning{'s' * (warnings > 1)}"
    echo(message)
