"""What ``pr`` makes: patches as a branch on upstream's own ref, with what its maintainers would want to know."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from patchq.contribute.duplicates import Duplicates, Searched
from patchq.contribute.gates import NOT_RUN, Gate
from patchq.forecast.overlap import Touch
from patchq.formats.header import without_trailers
from patchq.git.repository import Git
from patchq.merge.patches import STOPS
from patchq.names import CommitId
from patchq.proofs.judge import Verdict
from patchq.proofs.upstream_tests import LATE, FileResult
from patchq.sources.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The person who answers for a pull request; empty until they have written themselves in."""

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
    """A patch of the branch. ``message`` is as upstream is to see it.

    :ivar chosen: whether it was asked for, or is there because one of those needs it.
    :ivar absent: upstream has it already; the branch doesn't.
    :ivar moved: of ``offset``, how far, and by what that is known.
    """

    patch: str
    subject: str
    message: str
    chosen: bool
    status: str
    topic: str
    needs: tuple[str, ...]
    outcome: str
    commit: str = ""
    absent: bool = False
    moved: str = ""

    @property
    def plain_subject(self) -> str:
        """The subject without upstream's tags, as a sentence without its end."""
        text = re.sub(r"^(\[[^\[\]]*\]\s*)+|^[a-z]+(\([^()]*\))?!?:\s+", "", self.subject).rstrip(".")
        return text[:1].upper() + text[1:]

    @property
    def why(self) -> str:
        """The message's body, without trailers, each paragraph one line: where it is read, lines wrap by themselves."""
        paragraphs = without_trailers(self.message).split("\n\n")[1:]
        return "\n\n".join(_unwrapped(p) for p in paragraphs)


@dataclass(frozen=True, slots=True)
class Check:
    """A rule of upstream's, or of ours, and whether the branch keeps it."""

    name: str
    ok: bool
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """A test in upstream's own style and place, on the branch and on the bare ref."""

    path: str
    before: str
    after: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Affected:
    """What the branch comes to as one patch on a ref: where it doesn't stop, what it mends is as it was."""

    ref: str
    outcome: str
    grade: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A pull request, ready or not.

    :ivar slug: its folder's and branch's name.
    :ivar source: where the base is from: ``git``, or ``archive``, whose commits no git host has.
    :ivar elsewhere: what it says that it requires of other upstreams, with its status there.
    :ivar origin: the oldest ref whose stack has the patches; ``touches`` are since then.
    :ivar upstreams: upstream's own tests of what it touches, on both sides; ``no_upstreams`` says why there are none.
    :ivar commits_known: whether ``touches`` are by commits, or only by releases.
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
    touches: tuple[Touch, ...]
    commits_known: bool
    range_diff: str
    rules: Rules
    owner: Owner
    duplicates: Duplicates

    @property
    def branch_size(self) -> int:
        """How many commits it has."""
        return sum(not m.absent for m in self.members)

    def member(self, patch: str) -> BranchPatch:
        """A patch of it."""
        return next(m for m in self.members if m.patch == patch)

    @property
    def affected_refs(self) -> list[str]:
        """The refs on which the lines are as they were."""
        return [a.ref for a in self.affected if a.outcome not in STOPS]

    @property
    def machines(self) -> str:
        """What its proofs ran on, in words."""
        found = []
        for facts in (c.machine for v in self.verdicts for c in v.cells if c.state != NOT_RUN):
            words = [f"Python {facts['python']}"]
            words += [f"torch {facts['torch']}"] if facts["torch"] else []
            words += [f"nvcc {facts['nvcc']}"] if facts["nvcc"] else []
            words += [f"an {facts['gpu']}"] if facts["gpu"] else ["no GPU"]
            found.append(", ".join(words))
        return "; ".join(dict.fromkeys(found))

    @property
    def public_not_run(self) -> list[str]:
        """What was not run, as upstream is to read it."""
        proofs = [f"{self.member(v.proof.patch).plain_subject} ({v.said})" for v in self.verdicts if v.state == NOT_RUN]
        return proofs + [f"{g.hook} ({g.tool}): {g.said}" for g in self.gates if g.state == NOT_RUN]

    @property
    def touches_said(self) -> str:
        """What upstream did to the same lines, in a sentence."""
        seen = {label for t in self.touches for label in t.by}
        by = list(dict.fromkeys([a.ref for a in self.affected if a.ref in seen] + sorted(seen)))
        if not by:
            return ""
        return f"Since {self.origin} these lines were changed in {', '.join(by[:10])}."

    @property
    def repository(self) -> str:
        """``owner/name`` at the git host, or empty."""
        return repository_of(self.url)

    @property
    def searches(self) -> list[str]:
        """Words to search upstream's pull requests for."""
        return [*(m.plain_subject.replace('"', "") for m in self.members if m.chosen), *(f[0] for f in self.files[:3])]

    @property
    def branch(self) -> str:
        """What the branch is called where it is pushed."""
        return self.slug

    @property
    def problems(self) -> list[str]:
        """What keeps it from being sent."""
        found = [f"{c.name}: {c.said}" for c in self.checks if not c.ok]
        found += [f"{g.hook} ({g.tool}) fails" for g in self.gates if not g.ok]
        found += [f"{t.path}: {t.said}" for t in self.tests if t.said]
        return found + [
            f"upstream's {name} passes without it, and not with it" for f in self.upstreams for name in f.regressions
        ]

    @property
    def not_run(self) -> list[str]:
        """What nobody has run, and why."""
        found = [f"the proof of {v.proof.patch}: {v.said}" for v in self.verdicts if v.state != "proven"]
        found += [f"{g.hook} ({g.tool}): {g.said}" for g in self.gates if g.state == NOT_RUN]
        found += [f"upstream's tests of what it touches: {self.no_upstreams}"] if self.no_upstreams else []
        found += [f"upstream's {f.path}: {f.said}" for f in self.upstreams if LATE in f.said]
        if self.duplicates.searched is Searched.NOWHERE:
            found.append("a search for duplicates: gh can't be asked, and there is no list of open pull requests")
        return found + ([f"upstream's formatter and linters: {self.no_gates}"] if self.no_gates else [])

    def mails(self, store: Git) -> dict[str, bytes]:
        """The branch as ``git format-patch`` mails, by file name."""
        with tempfile.TemporaryDirectory(prefix="patchq-") as text:
            options = ("--quiet", "--no-signature", "--full-index", "--binary", "--no-ext-diff", "--no-color")
            place = ("--filename-max-length=60", f"--output-directory={text}")
            store.run("format-patch", *options, *place, f"{self.base}..{self.tip}")
            return {path.name: path.read_bytes() for path in sorted(Path(text).iterdir())}


def repository_of(url: str) -> str:
    """``owner/name`` of a git host's address, or empty.

    >>> repository_of("https://github.com/a/b.git"), repository_of("git@host:a/b"), repository_of("/srv/b.git")
    ('a/b', 'a/b', '')
    """
    match = re.search(r"[:/]([^/:@]+/[^/:]+?)(?:\.git)?/?$", url) if "://" in url or "@" in url else None
    return match[1] if match else ""


def _unwrapped(paragraph: str) -> str:
    """A paragraph as one line; one with indented lines or list items stays as it is."""
    lines = paragraph.split("\n")
    plain = not any(line[:1] in (" ", "\t") or re.match(r"[-*|>]|\d+\.", line) for line in lines)
    return " ".join(lines) if plain else paragraph


def branch_ref(slug: str) -> str:
    """The store's ref of a proposal's branch."""
    return f"refs/patchq/pr/{slug}"
