"""Test runs for a pull request, each with and without the pull request's patches.

The runs cover proofs, added tests and upstream's own tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from patchq.contribute._selection import BranchPlan, set_with
from patchq.contribute.proposal import BranchPatch, TestRun
from patchq.errors import BuildError
from patchq.formats.outcomes import ProofState
from patchq.git.diffs import PathChange
from patchq.merge.patches import write_commits as write
from patchq.names import CommitId, counted
from patchq.project.project import Project
from patchq.proofs.judge import Verdict, state_of
from patchq.proofs.plan import Proof, planning
from patchq.proofs.prove import prove_trees
from patchq.proofs.run import checkout, run_pytest, trees_lock
from patchq.proofs.upstream_tests import FileResult, compare, select
from patchq.sources.bases import Base

#: Most test files of upstream to run by default; seconds for each file and side.
MOST_TEST_FILES, TEST_SECONDS = 4, 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Patches committed on top of upstream's ref.

    :ivar old_tip: commit of the same patches on the ref of their own stack, for comparison.
    """

    base: Base
    tip: CommitId
    old_tip: CommitId
    members: tuple[BranchPatch, ...]


def prove(project: Project, plan: BranchPlan, branch: Branch, set_name: str) -> tuple[Verdict, ...]:
    """Run the proofs on the pull request's branch and on upstream's ref without patches.

    :raises BuildError: if a proof fails with its patch, or passes without it.
    """
    proofs = []
    for member in branch.members:
        header = plan.headers[member.patch]
        files = header.values("Proof")
        if files and not member.absent:
            proofs.append(Proof(plan.upstream, plan.onto.ref, member.patch, files, header.needs))
    project.say(f"running {counted(len(proofs), 'proof')} on {plan.onto.ref}, with and without the patches")
    chosen = set_with(project, plan, set_name)
    found = prove_trees(project, proofs, chosen, plan.upstream, (branch.base.commit, branch.tip))
    bad = []
    for v in found:
        if not v.ok and v.state != ProofState.NOT_RUN:
            bad.append(f"\n  {v.proof.name}: {v.state}: {v.message}")
    if bad:
        raise BuildError(
            f"can't be proposed to {plan.upstream} at {plan.onto.ref}, with the set {chosen}:{''.join(bad)}",
            hint="use an environment that can import this ref, or skip proofs with --no-proof (noted in the PR report)",
        )
    return tuple(found)


def run_added_tests(project: Project, plan: BranchPlan, branch: Branch, set_name: str) -> tuple[TestRun, ...]:
    """Run the added tests on the branch, and on a commit that adds only these tests to upstream's ref."""
    paths: list[str] = []
    for m in branch.members:
        if not m.absent:
            paths += plan.headers[m.patch].values("Upstream-Test")
    if not paths:
        return ()
    store = project.store
    tests = store.list_tree(branch.tip, [p.encode() for p in paths])
    changes = [PathChange(path, None, entry) for path, entry in tests.items()]
    (info,) = store.log("--no-walk=unsorted", branch.tip)
    (only,) = write(store, branch.base.commit, [(replace(info, message="tests alone\n"), changes)], {})
    with planning(project, set_with(project, plan, set_name)) as whole:
        sides = [whole.at("tests", plan.upstream, tip) for tip in (only, branch.tip)]
    states: list[list[tuple[ProofState, str]]] = []
    with trees_lock(project):
        for side in sides:
            trees = checkout(project, side, 0)
            outcomes = []
            for path in paths:
                done = run_pytest(project, trees, [path], cwd=trees / plan.upstream)
                outcomes.append(state_of(done.tests, done.output))
            states.append(outcomes)
    found = []
    for path, (before, why), (after, wrong) in zip(paths, *states, strict=True):
        message = ""
        if after != ProofState.PASSED:
            message = f"on the branch: {after}: {wrong}"
        if not message and before != ProofState.FAILED:
            message = f"without the change: {before}: {why}"
        if ProofState.NOT_RUN in (before, after):
            message = ""
        found.append(TestRun(path=path, before=before, after=after, message=message))
    return tuple(found)


def run_upstreams(
    project: Project, plan: BranchPlan, branch: Branch, set_name: str, every_test: bool
) -> tuple[tuple[FileResult, ...], str]:
    """Run upstream's tests for the changed files, on upstream's ref without patches and on the branch.

    :returns: the results, and the reason if the tests did not run.
    """
    changed = [c.path.decode("utf-8", "replace") for c in project.store.changes(branch.base.commit, branch.tip)]
    added: set[str] = set()
    for m in branch.members:
        added.update(plan.headers[m.patch].values("Upstream-Test"))
    paths = [p for p in select(project, branch.tip, changed) if p not in added]
    if len(paths) > MOST_TEST_FILES and not every_test:
        return (), f"{counted(len(paths), 'file')}; --upstream-tests runs them"
    if not paths:
        return (), ""
    project.say(f"running {len(paths)} of upstream's own test files, without and with the patches")
    with planning(project, set_with(project, plan, set_name)) as whole:
        bare = whole.at("before", plan.upstream, branch.base.commit)
        here = whole.at("after", plan.upstream, branch.tip)
    files = [(plan.upstream, path) for path in paths]
    return tuple(compare(project, files, bare, here, TEST_SECONDS)), ""
