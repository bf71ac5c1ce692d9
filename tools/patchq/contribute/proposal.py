"""Data of a pull request: its branch on top of upstream's ref, and the results of tests and checks."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchq.contribute.duplicates import Duplicates, Searched
from patchq.contribute.gates import Gate
from patchq.forecast.overlap import HunkOverlap
from patchq.formats.header import without_trailers
from patchq.formats.outcomes import CellState, Grade, Outcome, ProofState
from patchq.git.repository import Git
from patchq.merge.patches import STOPS
from patchq.names import CommitId
from patchq.proofs.judge import Verdict
from patchq.proofs.upstream_tests import FileResult
from patchq.sources.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """User who takes responsibility for a pull request; all fields are empty until ``owner.toml`` is filled in."""

    name: str = ""
    email: str = ""
    statement: str = ""
    assisted_by: str = ""
    duplicates: str = ""

    @property
    def complete(self) -> bool:
        return bool(self.name.strip() and self.email.strip() and self.statement.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPatch:
    """Patch on a pull request's branch.

    :ivar message: commit message for upstream.
    :ivar chosen: True if the user named the patch; False for a dependency.
    :ivar absent: True if upstream has the patch, so that the branch omits it.
    :ivar moved: description of how far the hunks moved, and of the evidence for it, if the outcome is ``offset``.
    """

    patch: str
    subject: str
    message: str
    chosen: bool
    status: str
    topic: str
    needs: tuple[str, ...]
    outcome: Outcome
    commit: str = ""
    absent: bool = False
    moved: str = ""

    @property
    def plain_subject(self) -> str:
        """Subject without tags and without a final full stop; its first letter is a capital."""
        text = re.sub(r"^(\[[^\[\]]*\]\s*)+|^[a-z]+(\([^()]*\))?!?:\s+", "", self.subject).rstrip(".")
        return text[:1].upper() + text[1:]

    @property
    def why(self) -> str:
        """Body of the message without trailers. Each paragraph is on one line, as Markdown needs it."""
        paragraphs = without_trailers(self.message).split("\n\n")[1:]
        return "\n\n".join(map(_unwrapped, paragraphs))


@dataclass(frozen=True, slots=True)
class Check:
    """Result of checking one rule on the branch."""

    name: str
    ok: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """Result of an added test, on the branch and on upstream's ref without the patches."""

    path: str
    before: str
    after: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Affected:
    """Outcome of applying the branch, squashed into one patch, to another ref.

    If the patch applies, the ref still contains the bug.
    """

    ref: str
    outcome: Outcome | CellState
    grade: Grade = Grade.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Pull request with the results of its tests and checks. It need not be ready to be sent.

    :ivar slug: name of the pull request's folder and branch.
    :ivar source: origin of the base commit: ``git``, or ``archive`` for a commit that exists on no git host.
    :ivar elsewhere: required patches of other upstreams, each with its subject and status.
    :ivar upstreams: results of upstream's tests for the changed files.
    :ivar no_upstreams: reason why upstream's tests did not run.
    :ivar origin: oldest ref whose stack contains the patches.
    :ivar touches: upstream's changes since ``origin`` to lines that the branch changes.
    :ivar commits_known: True if ``touches`` names commits; False if it names releases.
    """

    upstream: str
    slug: str
    title: str
    url: str
    from_ref: str
    onto: str
    why_onto: str
    base: CommitId
    source: str
    tip: CommitId
    members: tuple[BranchPatch, ...]
    elsewhere: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, int, int], ...]
    verdicts: tuple[Verdict, ...]
    tests: tuple[TestRun, ...]
    upstreams: tuple[FileResult, ...]
    no_upstreams: str
    gates: tuple[Gate, ...]
    no_gates: str
    checks: tuple[Check, ...]
    affected: tuple[Affected, ...]
    origin: str
    touches: tuple[HunkOverlap, ...]
    commits_known: bool
    range_diff: str
    rules: Rules
    owner: Owner
    duplicates: Duplicates

    @property
    def branch_size(self) -> int:
        """Number of commits on the branch."""
        return sum(not m.absent for m in self.members)

    def member(self, patch: str) -> BranchPatch:
        """Return the patch with this name."""
        return next(m for m in self.members if m.patch == patch)

    @property
    def affected_refs(self) -> list[str]:
        """Refs to which the branch applies. These refs still contain the bug."""
        return [a.ref for a in self.affected if a.outcome not in STOPS]

    @property
    def machines(self) -> str:
        """Description of the machines on which the proofs ran."""
        found: dict[str, None] = {}
        for verdict in self.verdicts:
            for cell in verdict.cells:
                if cell.state != ProofState.NOT_RUN:
                    found[_machine(cell.machine)] = None
        return "; ".join(found)

    @property
    def public_not_run(self) -> list[str]:
        """Proofs and hooks that did not run, described without patch names, for upstream's reviewers."""
        proofs = []
        for v in self.verdicts:
            if v.state == ProofState.NOT_RUN:
                proofs.append(f"{self.member(v.proof.patch).plain_subject} ({v.message})")
        return [*proofs, *self._gates_not_run()]

    def _gates_not_run(self) -> list[str]:
        found = []
        for g in self.gates:
            if g.state == ProofState.NOT_RUN:
                found.append(f"{g.hook} ({g.tool}): {g.message}")
        return found

    @property
    def touches_text(self) -> str:
        """Sentence that lists upstream's changes to the lines that the branch changes."""
        seen: set[str] = set()
        for t in self.touches:
            seen.update(t.by)
        by = []
        for a in self.affected:
            if a.ref in seen:
                by.append(a.ref)
        by += sorted(seen.difference(by))
        if not by:
            return ""
        return f"Since {self.origin} these lines were changed in {', '.join(by[:10])}."

    @property
    def repository(self) -> str:
        """Repository ``owner/name`` at the git host, or an empty string."""
        return repository_of(self.url)

    @property
    def searches(self) -> list[str]:
        """Search terms for upstream's pull requests."""
        found = []
        for m in self.members:
            if m.chosen:
                found.append(m.plain_subject.replace('"', ""))
        for path, _, _ in self.files[:3]:
            found.append(path)
        return found

    @property
    def branch(self) -> str:
        """Name of the pushed branch."""
        return self.slug

    @property
    def problems(self) -> list[str]:
        """Problems that prevent sending the pull request."""
        found = []
        for c in self.checks:
            if not c.ok:
                found.append(f"{c.name}: {c.message}")
        for g in self.gates:
            if not g.ok:
                found.append(f"{g.hook} ({g.tool}) fails")
        if self.gates and len(self._gates_not_run()) == len(self.gates):
            found.append(f"none of upstream's {len(self.gates)} hooks could run (skip them with --no-gates)")
        for t in self.tests:
            if t.message:
                found.append(f"{t.path}: {t.message}")
        for f in self.upstreams:
            for name in f.regressions:
                found.append(f"upstream's {name} passes without the branch, but not with it")
        return found

    @property
    def not_run(self) -> list[str]:
        """Checks that did not run or have no clear result, with the reasons."""
        found = []
        for v in self.verdicts:
            if v.state != ProofState.PROVEN:
                found.append(f"the proof of {v.proof.patch}: {v.message}")
        found += self._gates_not_run()
        if self.no_upstreams:
            found += [f"upstream's tests of the changed files: {self.no_upstreams}"]
        for f in self.upstreams:
            if f.timed_out:
                found.append(f"upstream's {f.path}: {f.message}")
        if self.duplicates.searched is Searched.NOWHERE:
            found.append("a search for duplicates: gh is not available, and there is no list of open pull requests")
        return found + ([f"upstream's formatter and linters: {self.no_gates}"] if self.no_gates else [])

    def mails(self, store: Git) -> dict[str, bytes]:
        """Return the branch as ``git format-patch`` mails, by file name."""
        with tempfile.TemporaryDirectory(prefix="patchq-") as text:
            options = ("--quiet", "--no-signature", "--full-index", "--binary", "--no-ext-diff", "--no-color")
            place = ("--filename-max-length=60", f"--output-directory={text}")
            store.run("format-patch", *options, *place, f"{self.base}..{self.tip}")
            return {path.name: path.read_bytes() for path in sorted(Path(text).iterdir())}


def _machine(facts: Mapping[str, str]) -> str:
    """Return the description of the machine that a proof ran on."""
    words = [f"Python {facts['python']}"]
    if facts["torch"]:
        words.append(f"torch {facts['torch']}")
    if facts["nvcc"]:
        words.append(f"nvcc {facts['nvcc']}")
    if facts["gpu"]:
        words.append(f"an {facts['gpu']}")
    else:
        words.append("no GPU")
    return ", ".join(words)


def repository_of(url: str) -> str:
    """Return ``owner/name`` of a git host's URL, or an empty string.

    >>> repository_of("https://github.com/a/b.git"), repository_of("git@host:a/b"), repository_of("/srv/b.git")
    ('a/b', 'a/b', '')
    """
    match = None
    if "://" in url or "@" in url:
        match = re.search(r"[:/]([^/:@]+/[^/:]+?)(?:\.git)?/?$", url)
    if match:
        return match[1]
    return ""


def _unwrapped(paragraph: str) -> str:
    """Join a paragraph's lines, unless it has indented lines or list items."""
    lines = paragraph.split("\n")
    plain = not any(line[:1] in (" ", "\t") or re.match(r"[-*|>]|\d+\.", line) for line in lines)
    if plain:
        return " ".join(lines)
    return paragraph


def branch_ref(slug: str) -> str:
    """Return the ref of a pull request's branch in the store."""
    return f"refs/patchq/pr/{slug}"
