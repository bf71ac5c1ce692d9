"""Measure how well patchq names the upstream lines that a resolution drops.

    python benchmarks/upstream_lines.py REPO [REPO …] [--merges 2000] [--deletions 500] [--seed 1] [--show]

REPO is a git repository with merges or backports (`cherry picked from commit`). Each conflict that its maintainers
resolved could have been a fork's: one side of the merge (or the backport's original) is the patch, the other side (or the
branch that it was picked onto) is upstream, and the commit is the resolution.

false alarms: conflicts in which a named line is in the result as often as upstream, except for blanks and line ends. The
line was moved, indented or wrapped. Named lines that the result lacks were probably removed on purpose, and are counted
separately.
named: lines that upstream added and the resolution kept are deleted one at a time; the figure is how many of them are
named. Half come from conflicts, half from files that both sides changed and git merged.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from patchq.git.diffs import PathChange
from patchq.git.objects import CommitInfo, TreeEntry
from patchq.git.repository import Git, scratch
from patchq.merge.upstream_lines import dropped_lines
from patchq.names import BlobId, CommitId

_PICKED = re.compile(r"cherry picked from commit ([0-9a-f]{7,40})")
_WORD = re.compile(rb"\w")
#: Lines of a file above which a case takes more time than it tells.
_LONG = 6000


@dataclass(frozen=True)
class Resolved:
    """A file of a merge: what the patch was written for, what it made of it, upstream's, and the result."""

    where: str
    conflict: bool
    old: bytes
    patched: bytes
    new: bytes
    result: bytes

    def dropped(self, result: bytes) -> list[tuple[int, bytes]]:
        """Return the named lines."""
        return dropped_lines(old_before=self.old, old_after=self.patched, new_before=self.new, new_after=result)


class Source:
    """The merges and backports of a repository.

    :param git: a scratch repository with its objects; ``source`` has its branches and tags.
    """

    def __init__(self, git: Git, source: Git, name: str) -> None:
        self.git, self.source, self.name = git, source, name

    def resolved(self, most: int, chance: random.Random) -> Iterator[Resolved]:
        """Yield the files that both sides changed."""
        yield from self._of_merges(most, chance)
        yield from self._of_backports(most, chance)

    def _of_merges(self, most: int, chance: random.Random) -> Iterator[Resolved]:
        commits = self.source.run("rev-list", "--merges", "--max-parents=2", "--all").decode().split()
        commits = chance.sample(commits, min(most, len(commits)))
        for start in range(0, len(commits), 100):
            infos = self.git.log("--no-walk=unsorted", *commits[start : start + 100])
            bases = [self.git.ask("merge-base", *i.parents, ok_codes=(0, 1)).stdout.decode().strip() for i in infos]
            related = [(info, CommitId(base)) for info, base in zip(infos, bases, strict=True) if base]
            merges = self.git.merge([(i.parents[0], i.parents[1]) for i, _ in related])
            for (info, base), merge in zip(related, merges, strict=True):
                if not merge.failed:
                    conflicts = {stage.path for stage in merge.stages}
                    yield from self._files(info, base, info.parents[0], info.parents[1], conflicts)

    def _of_backports(self, most: int, chance: random.Random) -> Iterator[Resolved]:
        out = self.source.run("log", "--all", "--no-merges", "--grep=cherry picked from commit", "--format=%H").decode()
        commits = out.split()
        for commit in chance.sample(commits, min(most, len(commits))):
            (info,) = self.git.log("--no-walk", commit)
            found = _PICKED.search(info.message)
            picked = self.git.ref_or_none(f"{found[1]}^{{commit}}") if found else None
            if not picked or len(info.parents) != 1:
                continue
            (theirs,) = self.git.log("--no-walk", picked)
            if len(theirs.parents) != 1:
                continue
            trees = self.git.tree_of([theirs.parents[0], info.parents[0], theirs.commit])
            merge = self.git.merge_tree(*trees)
            if not merge.failed:
                conflicts = {stage.path for stage in merge.stages}
                yield from self._files(info, theirs.parents[0], info.parents[0], theirs.commit, conflicts)

    def _files(
        self, info: CommitInfo, base: CommitId, ours: CommitId, theirs: CommitId, conflicts: set[bytes]
    ) -> Iterator[Resolved]:
        patch = {c.path: c for c in self.git.changes(base, theirs)}
        both = [c for c in self.git.changes(base, ours) if c.path in patch]
        there = self.git.list_tree(info.commit, [c.path for c in both]) if both else {}
        sides = [(c, patch[c.path], there.get(c.path)) for c in both]
        plain = [(c, own, result) for c, own, result in sides if c.old and c.new and own.new and result]
        texts = self._texts(plain)
        for change, own, result in plain:
            assert change.old
            assert change.new
            assert own.new
            assert result
            blobs = (change.old.blob, own.new.blob, change.new.blob, result.blob)
            old, patched, new, after = (texts.get(blob, b"\0") for blob in blobs)
            if any(b"\0" in text or text.count(b"\n") > _LONG for text in (old, patched, new, after)):
                continue
            where = f"{self.name} {info.commit[:10]} {change.path.decode('utf-8', 'replace')}"
            yield Resolved(where, change.path in conflicts, old, patched, new, after)

    def _texts(self, sides: Sequence[tuple[PathChange, PathChange, TreeEntry | None]]) -> dict[BlobId, bytes]:
        entries = [e for change, own, result in sides for e in (change.old, change.new, own.new, result)]
        plain = {e.blob for e in entries if e and e.mode in (b"100644", b"100755")}
        return self.git.read_blobs(plain)


def is_there(line: bytes, new: bytes, result: bytes) -> bool:
    """Return whether the result has a line as often as upstream, however its blanks and line ends are."""
    wanted = b"".join(line.split())
    return b"".join(result.split()).count(wanted) >= b"".join(new.split()).count(wanted)


def kept_lines(case: Resolved) -> list[tuple[int, bytes]]:
    """Return the lines that upstream added and the result has, by their place in the result."""
    old, new, result = (text.splitlines(keepends=True) for text in (case.old, case.new, case.result))
    added = {
        n
        for tag, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
        for n in range(start, end)
    }
    found = []
    for block in SequenceMatcher(None, new, result, autojunk=False).get_matching_blocks():
        for n in range(block.size):
            if block.a + n in added and _WORD.search(new[block.a + n]):
                found.append((block.b + n, new[block.a + n]))
    return found


def is_named(case: Resolved, at: int, line: bytes) -> bool:
    """Return whether a line is named after it was deleted from the result."""
    lines = case.result.splitlines(keepends=True)
    del lines[at]
    before = Counter(b"".join(text.split()) for _, text in case.dropped(case.result))
    after = Counter(b"".join(text.split()) for _, text in case.dropped(b"".join(lines)))
    key = b"".join(line.split())
    return after[key] > before[key]


def main() -> int:
    """Measure and print; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+", type=Path)
    parser.add_argument("--merges", type=int, default=2000, help="and backports, of each repository")
    parser.add_argument("--deletions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="the cases that are wrong")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    conflicts, clean = list[Resolved](), list[Resolved]()
    for repository in given.repositories:
        source = Git(repository)
        with scratch(source) as git:
            for case in Source(git, source, repository.parent.name).resolved(given.merges, chance):
                (conflicts if case.conflict else clean).append(case)
        print(f"{repository.parent.name}: {len(conflicts)} conflicts, {len(clean)} other files so far", flush=True)
    alarms, named, removed = 0, 0, 0
    for case in conflicts:
        found = case.dropped(case.result)
        wrong = [line for _, line in found if is_there(line, case.new, case.result)]
        alarms += bool(wrong)
        named += bool(found)
        removed += len(found) - len(wrong)
        if given.show:
            for line in wrong:
                print(f"false alarm: {case.where}: {line.strip().decode('utf-8', 'replace')}")
    share = alarms / max(1, len(conflicts))
    print(f"{len(conflicts)} resolved conflicts: {named} with named lines, {removed} lines that the result lacks")
    print(f"false alarms: {alarms} ({share:.1%})")
    hits = tried = 0
    for cases, count in ((conflicts, given.deletions // 2), (clean, given.deletions - given.deletions // 2)):
        chosen = [case for case in cases if kept_lines(case)]
        for _ in range(count if chosen else 0):
            case = chance.choice(chosen)
            at, line = chance.choice(kept_lines(case))
            hit = is_named(case, at, line)
            tried, hits = tried + 1, hits + hit
            if given.show and not hit:
                print(f"not named: {case.where}:{at + 1}: {line.strip().decode('utf-8', 'replace')}")
    print(f"named: {hits} of {tried} deletions ({hits / max(1, tried):.3f})")
    return int(share >= 0.02 or hits < 0.99 * tried)


if __name__ == "__main__":
    sys.exit(main())
