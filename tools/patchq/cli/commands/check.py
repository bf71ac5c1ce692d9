from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from patchq.cli.common import as_dicts, emit, json_option, offline_option, open_project, set_option, without_proof
from patchq.cli.terminal import echo
from patchq.formats.outcomes import FindingLevel
from patchq.names import counted, sh
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.drift.shared import Shared
    from patchq.stacks.apply import ApplyPlan
    from patchq.stacks.check import Finding


#: Maximum number of definitions that one combined warning names.
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """Part of the project to check, and the options of the check.

    :ivar names: upstreams to check; empty means all.
    :ivar set_name: name of the set to check; empty means every pinned stack.
    """

    names: tuple[str, ...]
    set_name: str
    offline: bool
    text_only: bool
    allow_empty: bool


@dataclass(slots=True)
class _CheckFindings:
    """Findings of a check.

    ``shared`` contains the definition for each finding about a definition that several patches change.
    """

    findings: list[Finding] = field(default_factory=list)
    shared: dict[Finding, Shared] = field(default_factory=dict)

    def add_shared(self, project: Project, scope: _Scope, plans: dict[tuple[str, str], ApplyPlan]) -> None:
        """Add warnings for definitions that several patches change.

        Only a definition that needs a decision gets a warning: one patch undoes another patch's change, or copies of
        the definition may now differ.
        """
        from patchq.drift.sets import shared_in_sets
        from patchq.stacks.check import Finding

        for s in shared_in_sets(project, scope.names, set_name=scope.set_name, offline=scope.offline, plans=plans):
            if s.needs_decision:
                finding = Finding(
                    upstream=s.upstream,
                    ref=s.ref,
                    patch=s.patch.partition("/")[2] if s.patch.startswith(f"{s.upstream}/") else "",
                    rule="one-definition",
                    message=f"{s.definition} in {s.path} is changed by {s.other} and by {s.patch}: {s.message}",
                    hint=f"compare the two changes; if {s.patch} builds on the other patch, add the trailer "
                    f"`Requires: {s.other}` to it",
                    level=FindingLevel.WARNING,
                )
                self.findings.append(finding)
                self.shared[finding] = s


def _grouped(found: _CheckFindings) -> list[Finding]:
    """Return the findings, with all warnings about one patch's shared definitions combined into one warning."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in found.shared:
        shared = found.shared[finding]
        groups.setdefault((shared.upstream, shared.ref, shared.patch), []).append(finding)
    merged: dict[Finding, Finding | None] = {}
    for group in groups.values():
        merged.update(dict.fromkeys(group))
        merged[group[0]] = _as_one(group, found.shared)
    shown: list[Finding] = []
    for finding in found.findings:
        if one := merged.get(finding, finding):
            shown.append(one)
    return shown


def _as_one(group: list[Finding], about: dict[Finding, Shared]) -> Finding:
    """Combine several warnings into one: the patch changes several definitions that other patches change, too."""
    if len(group) == 1:
        return group[0]
    places, others = [], []
    for finding in group:
        shared = about[finding]
        places.append(f"{shared.definition} in {shared.path} ({shared.other})")
        others.append(shared.other)
    others = list(dict.fromkeys(others))
    more = ""
    if len(places) > _SHOWN:
        more = f" and {len(places) - _SHOWN} more (--verbose lists all)"
    count = counted(len(group), "definition")
    by = others[0] if len(others) == 1 else f"{len(others)} other patches"
    patch = about[group[0]].patch
    return replace(
        group[0],
        message=f"{patch} and {by} change the same {count}: {', '.join(places[:_SHOWN])}{more}",
        hint=f"compare the changes; if {patch} builds on another patch, add a trailer such as "
        f"`Requires: {others[0]}` to it",
    )


def _upstream_lines(
    project: Project, plans: dict[tuple[str, str], ApplyPlan], accepted: tuple[str, ...]
) -> list[Finding]:
    """Return a finding for each patch that removes lines which upstream has added.

    :param accepted: dropped lines that the user accepts. They are recorded in the ledger.
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
                message=f"the patch removes lines that upstream added since {item.attempt.from_ref}: "
                f"{show_dropped(item.lines)}",
                hint="restore the lines; if the patch has to remove them: "
                f"`patchq check --drop-upstream-line {item.upstream}/{item.patch}:{item.lines[0].name}`",
            )
        )
    return lines


def _together(project: Project, refs: tuple[str, ...], scope: _Scope) -> tuple[_CheckFindings, list[str], int]:
    """Return the findings for the merged branches, the patches to prove again, and the number of patches."""
    from patchq.cli.clashes import finding_of
    from patchq.together.concurrent import merged

    found = _CheckFindings()
    plans: dict[tuple[str, str], ApplyPlan] = {}
    count = 0
    with merged(project, refs) as together:
        clashes = list(together.clashes)
        if then := together.project:
            found = _check_stacks(then, scope, plans, ())
            count = _count(then, "")
        if not scope.text_only:
            clashes += together.compare(plans, offline=scope.offline)
        # A patch file with conflict markers also breaks other rules. Report only the markers.
        broken = set()
        for c in clashes:
            if c.path in together.broken and c.name:
                broken.add((c.upstream, c.ref, c.name))
        kept: list[Finding] = []
        for finding in found.findings:
            # Line numbers and blob ids change if two branches edit one file. Exporting the patch corrects them.
            if finding.rule in ("offset", "bytes") and (finding.upstream, finding.ref) in together.shared_stacks:
                finding = replace(finding, level=FindingLevel.WARNING, hint="after the merge: `patchq check --fix`")
            if (finding.upstream, finding.ref, finding.patch) not in broken:
                kept.append(finding)
        proofs = sorted(together.proofs)
    chosen: list[Finding] = []
    for c in clashes:
        if not scope.names or not c.upstream or c.upstream in scope.names:
            chosen.append(finding_of(c))
    found.findings = chosen + kept
    return found, proofs, count


def _count(project: Project, set_name: str) -> int:
    """Return the number of patches in a set; an empty name means the default set."""
    return sum(len(stack.names) for stack in project.stacks(project.choose_set(set_name)))


def _installs(
    project: Project, set_name: str, platform: str, offline: bool
) -> tuple[list[Finding], list[dict[str, Any]]]:
    """Return findings about installing a set's wheels together, and the JSON result of each platform."""
    from patchq.build import installs, platforms
    from patchq.stacks.check import Finding

    finding = Finding(upstream="", ref="", patch="", rule="installs", message="", hint="")
    found, answers = [], []
    for kind in platforms.parse(platform):
        resolved = installs.resolve_set(project, set_name, kind, offline=offline)
        where = f"set {resolved.set_name} on {kind}"
        for lacked in resolved.lacked:
            there = "it has no version of this package"
            if lacked.there:
                there = f"its newest version is {lacked.there}"
            message = f"{where}: the package index has nothing for {lacked.requirement}; {there}"
            found.append(
                replace(finding, message=message, hint="use an index that has the package", level=FindingLevel.WARNING)
            )
        if resolved.contradiction:
            message = f"{where}: the wheels don't install together:\n{resolved.contradiction}"
            found.append(replace(finding, message=message, hint="pin compatible versions"))
        answers.append(asdict(resolved))
    return found, answers


def _show(found: list[Finding], written: tuple[str, ...], resolved: list[dict[str, Any]]) -> None:
    for name in written:
        echo(f"{name}: rewritten")
    for f in found:
        where = "/".join(x for x in (f.upstream, f.ref, f.patch) if x)
        word = ""
        if f.level != FindingLevel.PROBLEM:
            word = f"{f.level}: "
        echo(f"{where}{': ' * bool(where)}{word}{f.message} [{f.rule}]\n    {f.hint}")
    for one in (r for r in resolved if r["packages"]):
        without = ""
        if one["lacked"]:
            without = f" without {len(one['lacked'])} that the index lacks"
        echo(
            f"set {one['set_name']} on {one['platform']}: "
            f"{len(one['packages'])} packages can be installed together{without}"
        )


@click.command("check")
@click.argument("names", nargs=-1)
@click.option("--text", "text_only", is_flag=True, help="Check only the project's files, without applying patches.")
@click.option("--fix", "fixing", is_flag=True, help="Before the check, fix statuses, your sign-offs and patch formats.")
@click.option("--allow-empty", is_flag=True, help="Accept patches that change nothing.")
@click.option(
    "--drop-upstream-line",
    "dropped",
    multiple=True,
    metavar="UPSTREAM/PATCH:PATH[:LINE]",
    help="Line of upstream that a patch may remove (without LINE: all lines of the file); recorded in the ledger.",
)
@click.option(
    "--with",
    "refs",
    multiple=True,
    metavar="REF",
    help="Branch to merge, in memory, before the check; may be repeated. The merged project is checked.",
)
@click.option("--installs", is_flag=True, help="Check only that a set's wheels install together, with uv.")
@click.option(
    "--platform",
    default="aarch64,x86_64",
    metavar="NAMES",
    show_default=True,
    help="With --installs: platform to install on.",
)
@click.option("--verbose", is_flag=True, help="Print a warning for each definition that two patches change.")
@set_option
@offline_option
@json_option
def command(
    names: tuple[str, ...],
    text_only: bool,
    fixing: bool,
    allow_empty: bool,
    dropped: tuple[str, ...],
    refs: tuple[str, ...],
    installs: bool,
    platform: str,
    verbose: bool,
    set_name: str,
    offline: bool,
    as_json: bool,
) -> None:
    """Check the stacks against the project's rules.

    Checks trailers, names, paths, sign-offs and requirements. Each patch must apply without fuzz, export to the same
    bytes, and not mention patchq. Without --set, checks every pinned stack.
    """
    project = open_project(as_json)
    _refuse_options(
        installs=installs and bool(names or text_only or fixing),
        refs=bool(refs) and (fixing or installs or bool(dropped or set_name)),
        fix=fixing and bool(set_name),
    )
    set_name = set_name and project.choose_set(set_name)
    scope = _Scope(names=names, set_name=set_name, offline=offline, text_only=text_only, allow_empty=allow_empty)
    written: tuple[str, ...] = ()
    proofs: list[str] = []
    count = 0
    if fixing:
        from patchq.stacks.fix import fix

        written = fix(project, names).written
    resolved: list[dict[str, Any]] = []
    if installs:
        findings, resolved = _installs(project, set_name, platform, offline)
        found = _CheckFindings(findings)
    elif refs:
        found, proofs, count = _together(project, refs, scope)
    else:
        found = _check_stacks(project, scope, {}, dropped)
    problems = [f for f in found.findings if f.level == FindingLevel.PROBLEM]
    lacking = without_proof(project, project.choose_set(set_name))
    if as_json:
        body = {
            "findings": as_dicts(found.findings),
            "written": list(written),
            "resolved": resolved,
            "proofs": proofs,
            "without_proof": lacking,
        }
        emit("check", body)
    else:
        _show(found.findings if verbose else _grouped(found), written, resolved)
        if proofs:
            echo("both branches change files of these patches; after the merge, run:")
            echo(f"patchq test --prove {' '.join(map(sh, proofs))}")
    if not as_json and not installs:
        of = f"in the set {set_name}" if set_name else "in the default set"
        if not refs:
            count = _count(project, set_name)
            echo(f"no proof: {len(lacking)} of {counted(count, 'patch')} {of}")
        _show_total(len(problems), len(found.findings) - len(problems), f"{counted(count, 'patch')} {of}")
    if problems:
        raise click.exceptions.Exit(1)


def _refuse_options(*, installs: bool, refs: bool, fix: bool) -> None:
    """Refuse options that can't be used together with ``--installs``, ``--with`` or ``--fix``."""
    if installs:
        raise click.UsageError("--installs excludes names and other checks")
    if refs:
        raise click.UsageError(
            "--with checks the committed stacks of all sets; it excludes --fix, --installs, --set, --drop-upstream-line"
        )
    if fix:
        raise click.UsageError("--fix changes every stack that needs it: leave out --set")


def _check_stacks(
    project: Project, scope: _Scope, plans: dict[tuple[str, str], ApplyPlan], dropped: tuple[str, ...]
) -> _CheckFindings:
    """Check the stacks. Unless ``text_only`` is set, also check whether patches clash with each other or with upstream.

    :param dropped: see :func:`_upstream_lines`.
    """
    from patchq.stacks.check import check

    found = _CheckFindings(
        check(
            project,
            scope.names,
            offline=scope.offline,
            text_only=scope.text_only,
            plans=plans,
            allow_empty=scope.allow_empty,
            set_name=scope.set_name,
        )
    )
    if not scope.text_only:
        found.add_shared(project, scope, plans)
        found.findings += _upstream_lines(project, plans, dropped)
    if scope.set_name:
        pins = {(pin.upstream, pin.ref) for pin in project.lock.pins_of(scope.set_name)}
        found.findings = [f for f in found.findings if not f.upstream or (f.upstream, f.ref) in pins]
    return found


def _show_total(problems: int, warnings: int, patches: str) -> None:
    if problems:
        message = counted(problems, "finding")
    else:
        message = f"all good: {patches}"
    if warnings:
        message += f"; {counted(warnings, 'warning')}"
    echo(message)
