"""The command ``pr``: apply patches to upstream's ref, then test and check the result.

``propose`` pushes nothing and changes no stack or worktree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchq.contribute._selection import PROPOSABLE, BranchPlan, alone, place
from patchq.contribute._trials import Branch, prove, run_added_tests, run_upstreams
from patchq.contribute.duplicates import Duplicates, Searched, find_duplicates
from patchq.contribute.gates import Gate, run_gates
from patchq.contribute.proposal import Affected, BranchPatch, Check, Owner, Proposal, branch_ref, repository_of
from patchq.errors import Conflict, ConflictError, SourceError, UserError
from patchq.extras import need
from patchq.forecast.overlap import HunkOverlap, by_commits, by_releases
from patchq.formats import ledger as ledgers
from patchq.formats.diff import REGULAR
from patchq.formats.header import Header, Ident, mail_safe, with_trailer, without_ours
from patchq.formats.lock import ContributeConfig
from patchq.formats.outcomes import CellState, Grade, Outcome
from patchq.git.diffs import PathChange
from patchq.git.objects import CommitInfo, TreeEntry, blob_id
from patchq.git.repository import bare_repository, scratch
from patchq.git.transport import fetch_history
from patchq.merge.patches import STOPS, Landing, Patch, read_patches
from patchq.merge.patches import write_commits as write
from patchq.merge.threeway import carry, look_at
from patchq.names import BlobId, CommitId, counted, sh
from patchq.project.project import Project
from patchq.project.refs import older_first
from patchq.project.stack import find_patch, load_stack
from patchq.sources.bases import Base, have_base
from patchq.sources.pins import Fetcher
from patchq.sources.rules import read_rules, read_upstream_test, upstream_test
from patchq.stacks.apply import carried_stacks
from patchq.stacks.check import SELF
from patchq.stacks.deps import closure
from patchq.stacks.export import slug
from patchq.stacks.views import read_ledgers, touched
from patchq.system.paths import check_inside, check_name
from patchq.upstream.match import match, verdict


def propose(
    project: Project,
    patches: Sequence[str] = (),
    *,
    topic: str = "",
    upstream: str = "",
    onto: str = "",
    title: str = "",
    name: str = "",
    owner: Owner | None = None,
    proof: bool = True,
    gates: bool = True,
    every_test: bool = False,
    set_name: str = "",
) -> Proposal:
    """Prepare a pull request from the given patches, or from a topic's patches that are pending or submitted.

    The patches come from the target ref's own stack, or else from the newest older stack that contains them.
    Each proof runs on the branch and on upstream's ref without patches.

    :param onto: upstream's ref; by default the newest.
    :param owner: user who takes responsibility and signs off the commits.
    :param every_test: run upstream's tests for the changed files even if there are many.
    :raises UserError: if a patch can't be proposed, if upstream has a patch, or if the extra
        ``contribute`` is not installed.
    :raises ConflictError: if a patch conflicts with the target ref.
    :raises BuildError: if a proof fails with the patch, or passes without it.
    """
    need("contribute", "patchq pr")
    owner = owner or Owner()
    set_name = project.choose_set(set_name)
    with project.locked("pr"):
        plan = place(project, patches, topic, upstream, onto, set_name)
        slug_ = check_name(name or topic or slug(plan.chosen[0]), "a pull request")
        branch = _carry(project, plan, owner)
        since = _since(project, plan, branch, set_name)
    base, tip, store = branch.base, branch.tip, project.store
    rules = read_rules(project.layout, store, plan.upstream, base.commit)
    if proof:
        verdicts = prove(project, plan, branch, set_name)
        tests = run_added_tests(project, plan, branch, set_name)
        theirs, no_theirs = run_upstreams(project, plan, branch, set_name, every_test)
    else:
        verdicts = ()
        tests = ()
        theirs, no_theirs = ((), "skipped by --no-proof")
    no_gates = "upstream's tree configures none"
    if gates and rules.hooks:
        no_gates = ""
    elif rules.hooks:
        no_gates = "skipped by --no-gates"
    found_gates: tuple[Gate, ...] = ()
    if rules.hooks and gates:
        project.say(f"running the hooks of {rules.hooks.path}")
        found_gates = tuple(run_gates(store, rules.hooks.text, rules.replacements, base.commit, tip))
    config = project.lock.upstreams[plan.upstream].contribute
    files = touched(store.run("diff", "--no-color", "--no-ext-diff", "--full-index", base.commit, tip), "the branch")
    subjects, plain_subjects, messages = [], [], []
    for m in branch.members:
        messages.append(m.message)
        if m.chosen and not m.absent:
            subjects.append(m.subject)
            plain_subjects.append(m.plain_subject)
    url = project.lock.upstreams[plan.upstream].url
    duplicates = find_duplicates(
        layout=project.layout,
        store=store,
        upstream=plan.upstream,
        repository=repository_of(url),
        base=base.commit,
        tip=tip,
        subjects=plain_subjects,
        messages=messages,
    )
    checks = [*_checks(project, plan, branch, title or subjects[0], files, config, owner), *_named(duplicates)]
    found = Proposal(
        upstream=plan.upstream,
        slug=slug_,
        title=title or subjects[0],
        url=url,
        from_ref=plan.carried.stack.pin.ref,
        onto=plan.onto.ref,
        why_onto=plan.why,
        base=base.commit,
        source=base.source,
        tip=tip,
        members=branch.members,
        elsewhere=_elsewhere(project, plan, set_name),
        files=files,
        verdicts=verdicts,
        tests=tests,
        upstreams=theirs,
        no_upstreams=no_theirs,
        gates=found_gates,
        no_gates=no_gates,
        checks=tuple(checks),
        affected=since.affected,
        origin=since.origin,
        touches=since.touches,
        commits_known=since.by_commit,
        range_diff=store.run(
            "range-diff", "--no-color", f"{plan.carried.base}..{branch.old_tip}", f"{base.commit}..{tip}"
        ).decode("utf-8", "replace"),
        rules=rules,
        owner=owner,
        duplicates=duplicates,
    )
    if len(subjects) > 1 and not title:
        missing = Check("title", False, f"the {len(subjects)} patches have no common title; set a title with --title")
        found = replace(found, checks=(*found.checks, missing))
    with project.locked("pr"):
        ref = branch_ref(slug_)
        store.update_refs([(ref, store.ref_or_none(ref), tip)])
    return found


# The branch


def _carry(project: Project, plan: BranchPlan, owner: Owner) -> Branch:
    """Apply the patches to the target ref. Omit a dependency if upstream already contains its change.

    :raises UserError, ConflictError: with the reasons for all patches that can't be proposed.
    """
    store, carried = project.store, plan.carried
    fetcher = Fetcher(project.layout, project.lock, say=project.say, progress=project.progress)
    (base,) = fetcher.fetch([plan.onto])
    commits_alone = alone(project, carried, plan.names)
    patches = read_patches(store, commits_alone)
    (there,) = carry(store, patches, [base.commit], carried.base)
    reasons, conflicts, members = [], [], []
    steps: list[tuple[CommitInfo, Sequence[PathChange]]] = []
    contents: dict[BlobId, bytes] = dict(there.contents)
    between = ledgers.line_map(carried.stack.pin.ref, plan.onto.ref)
    own = look_at(store, patches, [carried.base, base.commit], carried.base)
    for number, patch in enumerate(patches):
        header, chosen, landing = plan.headers[patch.name], patch.name in plan.chosen, there.landings[number]
        status = header.value("Upstream-Status")
        outcome, grade, evidence = landing.outcome, Grade.NONE, ""
        if landing.outcome in STOPS:
            seen = match(patch, own[0], [(plan.onto.ref, own[1])])
            outcome, grade, evidence = verdict(landing, seen, plan.onto.ref)
        absent = outcome == Outcome.ABSORBED and not chosen
        name = f"{plan.upstream}/{patch.name}"
        if status.split(" ")[0] not in PROPOSABLE and not absent:
            reasons.append(f"{name} is {status}" + ("" if chosen else f", and {plan.chosen[0]} needs it"))
        if outcome in STOPS and not absent:
            reasons.append(_stopped(project, plan, name, outcome, grade, evidence, landing))
            for f in landing.files:
                conflicts.append(Conflict(upstream=plan.upstream, patch=patch.name, path=f.path, reason=outcome))
        message = _message(patch.commit.message, owner)
        members.append(
            BranchPatch(
                patch=patch.name,
                subject=header.subject,
                message=message,
                chosen=chosen,
                status=status,
                topic=header.value("Topic"),
                needs=header.needs,
                outcome=outcome,
                absent=absent,
                moved=ledgers.say_moved(landing.offsets, between),
            )
        )
        changes = [*landing.changes, *_upstream_tests(project, plan, base, header, contents)]
        steps.append((replace(patch.commit, message=message), changes))
    if reasons:
        name = f"{plan.upstream}/{members[0].patch}"
        hint = (
            f"`patchq show {sh(name)}` shows its Upstream-Status; "
            f"`patchq rebase {plan.upstream} --onto {sh(plan.onto.ref)}` stops for you to resolve the conflicts"
        )
        text = f"can't be proposed to {plan.upstream} at {plan.onto.ref}:\n  " + "\n  ".join(reasons)
        outcomes = {m.outcome for m in members}
        if outcomes.intersection(STOPS) - {Outcome.ABSORBED}:
            raise ConflictError(text, conflicts, hint=hint)
        raise UserError(text, hint=hint)
    kept = []
    for m, step in zip(members, steps, strict=True):
        if not m.absent:
            kept.append(step)
    ids = write(store, base.commit, kept, contents)
    commits = iter(ids)
    found = []
    for m in members:
        found.append(m if m.absent else replace(m, commit=next(commits)))
    return Branch(base=base, tip=ids[-1], old_tip=commits_alone[-1][1].commit, members=tuple(found))


def _stopped(
    project: Project, plan: BranchPlan, name: str, outcome: Outcome, grade: Grade, evidence: str, landing: Landing
) -> str:
    message = f"{name}: {outcome}" + (f" ({grade})" if grade else "")
    files = []
    for f in landing.files:
        files.append(f.path + (f" ({len(f.lines)} hunks)" if len(f.lines) > 1 else ""))
    if files:
        message += f", {', '.join(files)}"
    if landing.message:
        message += f"; {landing.message}"
    if evidence:
        message += f"; upstream has {evidence}"
    message += f"; carried from {plan.carried.stack.pin.ref}"
    ledger = read_ledgers(project, [plan.upstream]).get(plan.upstream, ledgers.Ledger())
    attempt = ledger.latest().get((name.partition("/")[2], plan.onto.ref))
    return message + (f"; the ledger: {attempt.outcome}, {attempt.how}" if attempt and attempt.how else "")


def _message(message: str, owner: Owner) -> str:
    """Return a commit message for upstream, with the owner's sign-off."""
    clean = without_ours(message)
    trailers = []
    if owner.assisted_by:
        trailers = [("Co-authored-by", owner.assisted_by)]
    if owner.name and owner.email:
        trailers.append(("Signed-off-by", f"{owner.name} <{owner.email}>"))
    for key, value in trailers:
        if f"{key}: {value}\n" not in clean:
            clean = with_trailer(clean, key, value)
    return mail_safe(clean)


def _upstream_tests(
    project: Project, plan: BranchPlan, base: Base, header: Header, contents: dict[BlobId, bytes]
) -> list[PathChange]:
    """Return the tests that a patch adds to upstream's test suite, as changes for the patch's commit."""
    found = []
    for path in header.values("Upstream-Test"):
        check_inside(path, "Upstream-Test:")
        data = read_upstream_test(project.layout, plan.upstream, path)
        if data is None:
            where = upstream_test(project.layout, plan.upstream, path)
            raise UserError(f"{where} doesn't exist", hint="write the test, or remove the trailer Upstream-Test:")
        if project.store.list_tree(base.commit, [path.encode()]):
            raise UserError(
                f"{plan.upstream} has a {path} at {plan.onto.ref} already",
                hint="give the test another path, or change upstream's file in the patch itself",
            )
        blob = blob_id(data)
        contents[blob] = data
        found.append(PathChange(path.encode(), None, TreeEntry(REGULAR, blob)))
    return found


# Other refs


def _since(project: Project, plan: BranchPlan, branch: Branch, set_name: str) -> _Since:
    """Return the other refs to which the branch applies, and upstream's changes to the lines that the branch changes.

    Only refs that are available locally are compared.
    """
    store, carried = project.store, plan.carried
    upstream = project.lock.upstreams[plan.upstream]
    have = store.refs("refs/patchq/base", "refs/patchq/archive")
    pins = older_first({p.ref: p for p in [*upstream.pins.values(), plan.onto]}.values())
    bases = []
    for pin in pins:
        if base := have_base(store, pin, have):
            bases.append(base)
    refs, commits, having = [], [], []
    stacks = {}
    for base in bases:
        ref = base.pin.ref
        refs.append(ref)
        commits.append(base.commit)
        stacks[ref] = load_stack(project.layout, base.pin)
        if set(plan.chosen) <= set(stacks[ref].names):
            having.append(ref)
    origin, origin_tip = carried, branch.old_tip
    if having and having[0] != carried.stack.pin.ref:
        (origin,) = carried_stacks(project, [stacks[having[0]]], set_name)
        origin_tip = alone(project, origin, closure(store, origin, plan.chosen))[-1][1].commit
    first = _squashed(project, origin.base, origin_tip)
    bare = look_at(store, [first], [origin.base, *commits], origin.base)
    affected = _affected(project, plan, branch, refs, commits, having)
    begin = 0
    if origin.stack.pin.ref in refs:
        begin = refs.index(origin.stack.pin.ref)
    versions = list(zip(refs, bare[1:], strict=True))[begin + 1 : refs.index(plan.onto.ref) + 1]
    touches, known = tuple(by_releases(store, first, bare[0], versions)), False
    if branch.base.source == "git" and plan.onto.url:
        history = bare_repository(project.layout.private / "history" / f"{plan.upstream}.git")
        try:
            ends = [fetch_history(history, plan.onto.url, ref) for ref in (origin.stack.pin.ref, plan.onto.ref)]
        except SourceError as error:
            project.say(error.message)
        else:
            whole = _squashed(project, branch.base.commit, branch.tip)
            with scratch(store, history) as both:
                touches, known = tuple(by_commits(both, whole, *ends)), True
    return _Since(affected=affected, origin=origin.stack.pin.ref, touches=touches, by_commit=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Since:
    affected: tuple[Affected, ...]
    origin: str
    touches: tuple[HunkOverlap, ...]
    by_commit: bool


def _affected(
    project: Project,
    plan: BranchPlan,
    branch: Branch,
    refs: Sequence[str],
    commits: Sequence[CommitId],
    having: Sequence[str],
) -> tuple[Affected, ...]:
    """Return the outcome of applying the branch, squashed into one patch, to each ref.

    If the patch doesn't apply to a ref, but the ref's own stack contains the patches, the outcome is
    ``WRITTEN``.
    """
    whole = _squashed(project, plan.carried.base, branch.old_tip)
    columns = carry(project.store, [whole], commits, plan.carried.base)
    base, *bare = look_at(project.store, [whole], [plan.carried.base, *commits], plan.carried.base)
    found = []
    outcome: Outcome | CellState
    for ref, column, there in zip(refs, columns, bare, strict=True):
        landing = column.landings[0]
        outcome, grade = landing.outcome, Grade.NONE
        if outcome in STOPS and ref in having:
            outcome = CellState.WRITTEN
        elif outcome in STOPS:
            outcome, grade, _ = verdict(landing, match(whole, base, [(ref, there)]), ref)
        found.append(Affected(ref, outcome, grade))
    return tuple(found)


def _squashed(project: Project, base: CommitId, tip: CommitId) -> Patch:
    """Squash a branch into one patch."""
    nobody = Ident("patchq", "patchq@localhost", 946684800, "+0000")
    (tree,) = project.store.tree_of([tip])
    commit = project.store.commit_tree(tree, [base], nobody, "whole\n")
    (info,) = project.store.log("--no-walk=unsorted", commit)
    return read_patches(project.store, [("the whole", info)])[0]


def _elsewhere(project: Project, plan: BranchPlan, set_name: str) -> tuple[tuple[str, str], ...]:
    """Return the required patches of other upstreams, each with its subject and status."""
    found: dict[str, str] = {}
    stacks = project.stacks(set_name)
    for name in plan.names:
        for required in plan.headers[name].values("Requires"):
            if required.partition("/")[0] != plan.upstream:
                stack, short = find_patch(stacks, required)
                header = stack.load(short)[0]
                found[required] = f"{header.subject} ({header.value('Upstream-Status')})"
    return tuple(found.items())


# Upstream's rules


def _checks(
    project: Project,
    plan: BranchPlan,
    branch: Branch,
    title: str,
    files: Sequence[tuple[str, int, int]],
    config: ContributeConfig,
    owner: Owner,
) -> list[Check]:
    found = []
    if config.title:
        found.append(_title_check(title, config.title))
    found.append(Check("title length", len(title) <= 100, counted(len(title), "character")))
    if config.sign_off:
        found.append(_sign_off_check(project.store.log(f"{branch.base.commit}..{branch.tip}"), owner))
    lines = 0
    for _, more, fewer in files:
        lines += max(more, 0) + max(fewer, 0)
    most = config.most_lines
    found.append(
        Check(
            "size",
            not most or lines <= most,
            f"{counted(lines, 'line')} in {counted(len(files), 'file')}"
            + (f"; above {most} lines, upstream asks for a discussion first" if most else ""),
        )
    )
    diff = project.store.run("diff", "--no-color", branch.base.commit, branch.tip).decode("utf-8", "replace")
    added = []
    for line in diff.splitlines():
        if line.startswith("+"):
            added.append(line)
    for m in branch.members:
        added.append(m.message)
    named = []
    for line in added:
        if SELF.search(line):
            named.append(line)
    found.append(
        Check("no mention of patchq", not named, "none" if not named else f"{named[0][:80]!r} mentions patchq")
    )
    return found


def _sign_off_check(commits: Sequence[CommitInfo], owner: Owner) -> Check:
    bare = []
    for commit in commits:
        if "\nSigned-off-by: " not in commit.message:
            bare.append(commit.message.splitlines()[0])
    message = "every commit is signed off"
    if bare:
        message = f"not signed off: {', '.join(bare)}"
    elif owner.name:
        message += f", also by {owner.name}"
    return Check("sign-off (DCO)", not bare, message)


def _named(duplicates: Duplicates) -> list[Check]:
    """Check that the commit messages name each open item whose functions or words match the branch."""
    if duplicates.searched is Searched.NOWHERE:
        return []
    unnamed, named = [], []
    for item in duplicates.items:
        if item.overlaps and item.named:
            named.append(item.number)
        elif item.overlaps:
            unnamed.append(f"{item.number} ({item.title})")
    if unnamed:
        message = f"mention them in a commit message, with the differences: {', '.join(unnamed)}"
        return [Check("duplicates", False, message)]
    return [Check("duplicates", True, f"the message names {', '.join(named)}" if named else "none is open")]


def _title_check(title: str, style: str) -> Check:
    if style == "tags":
        ok, start = re.match(r"(\[[^\[\]]+\])+ \S", title), "tags like [Bugfix][Core]"
    else:
        ok, start = re.match(r"[a-z]+(\([^()]+\))?!?: \S", title), "a type like fix(core): or feat:"
    verb = "begins" if ok else "does not begin"
    return Check("title", bool(ok), f"{title!r} {verb} with {start}")
