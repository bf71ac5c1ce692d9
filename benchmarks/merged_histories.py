"""Measure how well patchq finds backports in an upstream that uses merge commits.

    python benchmarks/merged_histories.py REPO OLD NEW LATER [--most 60] [--seed 1] [--show]

REPO is a git repository. Commits of any branch between OLD and NEW are cherry-picked onto OLD, each as a patch by itself.
Commits that conflict are skipped. Then patchq searches NEW for them. `git cherry`, which compares patch ids, judges the
same cases.

picked: NEW has the commit, unless upstream reverted it: a message says so, or hunks reverse at least half of its lines
(:func:`whole_commits.taken_back`). A commit that was reverted in part is not counted. Neither is a commit whose new file
was later deleted together with others of its folder, like notes for a changelog.
near: one word of one added line differs.
reverted: NEW after git's merge has removed the patch.
later: a commit between NEW and LATER that no message up to NEW mentions.
NEW has none of the last three.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whole_commits import HALF, Bench, hunks_of, number_of, taken_back, takes_back

from patchq.formats.outcomes import Outcome
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git, scratch
from patchq.merge.patches import read_patches
from patchq.merge.threeway import carry, look_at
from patchq.names import CommitId
from patchq.upstream.commits import Landed, Lineage, SideBranches
from patchq.upstream.history import History
from patchq.upstream.match import match, verdict, with_past

UPSTREAM, NOT_UPSTREAM = "picked", ("near", "reverted", "later", "taken back")


@dataclass(frozen=True)
class Case:
    """A patch on OLD, as a commit, and the target to search."""

    kind: str
    info: CommitInfo
    commit: CommitId
    onto: CommitId


class Picks(Bench):
    """Commits of any branch between two releases, picked onto the older one."""

    def __init__(self, git: Git, old: str, new: str, later: str, most: int, seed: int) -> None:
        self.git = git
        self.base, self.onto, self.after = (self.commit(ref) for ref in (old, new, later))
        self.dice = random.Random(seed)
        way = git.log("--no-merges", f"{self.base}..{self.onto}", first_parent=False)
        self.way = way
        self.stack = self.dice.sample(way, min(most, len(way)))
        self.cleared = self._cleared()
        every = hunks_of(git, f"{self.base}..{self.onto}", which="--no-merges")
        shares = taken_back(git, self.stack, way, self.onto, every)
        said = {info.commit for info in self.stack if any(takes_back(w, info) for w in way)}
        self.back = said | {commit for commit, (share, _) in shares.items() if share >= HALF}
        self.in_part = {commit for commit, (share, _) in shares.items() if share}
        self.in_part |= {info.commit for info in self.stack if self._went_with_others(info)}
        self.back -= {info.commit for info in self.stack if self._went_with_others(info)}
        self.left_out = 0

    def cases(self) -> Iterator[Case]:
        """Yield the cases. Skip commits that conflict, and those that were reverted in part."""
        for info in self.stack:
            in_part = info.commit in self.in_part - self.back
            if in_part or (picked := self._pick(info)) is None:
                self.left_out += 1
                continue
            if info.commit in self.back:
                yield Case("taken back", info, picked, self.onto)
                continue
            yield Case(UPSTREAM, info, picked, self.onto)
            (own,) = self.git.log("--no-walk", picked)
            if tip := self.without(own, self.tree(self.base)):
                yield Case("reverted", info, picked, tip)
            if near := self.near(own):
                yield Case("near", info, near, self.onto)
        later = self.git.log("--no-merges", f"{self.onto}..{self.after}", first_parent=False)
        told = "\n".join(info.message for info in self.git.log(f"{self.base}..{self.onto}", first_parent=False))
        later = [info for info in later if info.parents and not _is_told(info, told)]
        for info in self.dice.sample(later, min(len(later), len(self.stack))):
            there = self.git.merge_tree(self.tree(info.parents[0]), self.tree(self.onto), info.tree)
            if there.tree != self.tree(self.onto) and (picked := self._pick(info)):
                yield Case("later", info, picked, self.onto)

    def _cleared(self) -> set[bytes]:
        """Return the files that were deleted together with others of their folder."""
        range_ = f"{self.base}..{self.onto}"
        out = self.git.run(
            "log", "--no-merges", "--no-renames", "--diff-filter=D", "--name-only", "--format=%x01", "-z", range_
        )
        found = set()
        for commit in out.split(b"\1"):
            paths = [path.strip() for path in commit.split(b"\0") if path.strip()]
            count = Counter(path.rpartition(b"/")[0] for path in paths)
            found |= {path for path in paths if count[path.rpartition(b"/")[0]] >= 4}
        return found

    def _went_with_others(self, info: CommitInfo) -> bool:
        changes = self.git.changes(info.parents[0], info.commit) if info.parents else []
        return any(change.old is None and change.path in self.cleared for change in changes)

    def _pick(self, info: CommitInfo) -> CommitId | None:
        if not info.parents:
            return None
        merge = self.git.merge_tree(self.tree(info.parents[0]), self.tree(self.base), info.tree)
        if merge.stages or merge.tree == self.tree(self.base):
            return None
        return self.made(merge.tree, self.base, info)


def _is_told(info: CommitInfo, told: str) -> bool:
    """Return whether messages name a commit: a release's branch takes some of the main branch, and says so."""
    subject = info.message.split("\n", 1)[0]
    number = number_of(info)
    return re.sub(r"\s*\(#\d+\)$", "", subject) in told or info.commit in told or bool(number and f"#{number}" in told)


def main() -> int:
    """Measure and print; return 1 if recall or precision is below the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("refs", nargs=3, metavar="REF")
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="the cases that patchq gets wrong")
    given = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    source = Git(given.repository)
    old, new, later = (source.resolve(f"{ref}^{{commit}}")[0] for ref in given.refs)
    with scratch(source) as git:
        bench = Picks(git, old, new, later, given.most, given.seed)
        cases = list(bench.cases())
        infos = git.log("--no-walk=unsorted", *(case.commit for case in cases))[::-1] if cases else []
        by_commit = {info.commit: info for info in infos}
        patches = read_patches(git, [(f"p{n}", by_commit[case.commit]) for n, case in enumerate(cases)])
        ids = dict(zip((p.name for p in patches), git.patch_ids_of([p.commit.commit for p in patches]), strict=True))
        theirs = set(git.patch_ids_of([info.commit for info in bench.way]))
        history = History(git, {})
        for case, patch in zip(cases, patches, strict=True):
            commits = git.log(f"{bench.base}..{case.onto}")
            line = Lineage(git, commits, {}, history.need, history._known)
            landed = Landed(line, ids, SideBranches(line, bench.base, case.onto, patch.paths))
            first, last = look_at(git, [patch], [bench.base, case.onto], bench.base)
            first.read(edit.new for edit in patch.edits)
            (column,) = carry(git, [patch], [case.onto], bench.base)
            past = landed.look(patch)
            seen = with_past(match(patch, first, [("onto", last)]), past)
            landing = column.landings[0]
            yes = verdict(landing, seen, "onto")[0] == Outcome.ABSORBED or landed.has_whole(patch)
            counts[case.kind, "cases"] += 1
            counts[case.kind, "patchq"] += yes
            counts[case.kind, "git cherry"] += ids[patch.name] in theirs
            if given.show and yes != (case.kind == UPSTREAM):
                subject = case.info.message.split("\n", 1)[0]
                said = seen.past or seen.message
                print(f"{case.kind}: {case.info.commit[:10]} {subject}: {landing.outcome}: {said}")
    print(f"{given.repository.parent.name} {' '.join(given.refs)}, seed {given.seed}; {bench.left_out} can't be picked")
    print("| class | cases | patchq | git cherry |\n|---|---|---|---|")
    for kind in (UPSTREAM, *NOT_UPSTREAM):
        print(f"| {kind} | {' | '.join(str(counts[kind, name]) for name in ('cases', 'patchq', 'git cherry'))} |")
    right, true = counts[UPSTREAM, "patchq"], counts[UPSTREAM, "cases"]
    wrong = sum(counts[kind, "patchq"] for kind in NOT_UPSTREAM)
    recall, precision = right / max(1, true), right / max(1, right + wrong)
    print(f"recall {recall:.3f}, precision {precision:.3f}")
    return int(recall < 0.99 or precision < 1)


if __name__ == "__main__":
    sys.exit(main())
