"""Measure how well patchq finds whole commits of a real history in later releases. Run by ``absorbed.py REPO``.

The stack is all commits between two releases, each a patch on the one before it. It is carried onto later releases.

Classes that upstream has:
as-is: the commit.
squashed: two commits as one patch.
split: half of a commit's files.

Classes that upstream doesn't have:
taken-back: one of the above that upstream reverted. A message says so, or hunks of later commits reverse at least half
of its lines (:func:`taken_back`, which uses only git's diffs and trees).
reverted: the commit, onto the release after git's merge has removed the commit.
half back: the same for half of its files.
near: one word of one added line differs.
partial: the commit together with a commit of a later release.
later: a commit after the release that no commit up to it mentions by number.

in part: later commits reverse all changes of some file, but less than half of the lines. These are shown and not counted,
and no other case is made from them.

patchq judges each case four times: with the history; without it, by all releases in between; by the two releases alone;
and by the two releases without the later patches of the stack. `git cherry` (the patch id is in the range) and
`git rebase` (a merge that adds nothing) judge the same cases.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from patchq.formats.header import Ident
from patchq.formats.outcomes import Outcome
from patchq.git.objects import CommitInfo, TreeEntry
from patchq.git.repository import Git, scratch
from patchq.merge.patches import Patch, read_patches
from patchq.merge.target import Column
from patchq.merge.threeway import carry, look_at
from patchq.names import CommitId
from patchq.upstream.commits import Landed, Lineage, SideBranches
from patchq.upstream.match import match, verdict, with_past
from patchq.upstream.releases import Releases

NOBODY = Ident("n", "n@n", 946684800, "+0000")
UPSTREAM = ("as-is", "squashed", "split")
HISTORY, BETWEEN = "patchq, history", "no history, releases between"
TWO, ALONE = "no history, two releases", "no history, patch alone"
JUDGES = (HISTORY, BETWEEN, TWO, ALONE, "git cherry", "git rebase drops")
NOT_COUNTED = ("in part",)
#: Of a commit's lines, from which share on it counts as taken back.
HALF = 0.5
NOT_UPSTREAM = ("taken-back", "reverted", "half back", "near", "partial", "later")


@dataclass(frozen=True)
class Case:
    """A patch, as a commit, and the upstream commit to search."""

    kind: str
    commit: CommitId
    onto: CommitId
    at: int = -1
    """Its number in the stack: those after it come on top of it."""


class Bench:
    def __init__(self, git: Git, old: str, new: str, onto: str, most: int, seed: int = 2026) -> None:
        self.git, self.name = git, onto
        self.base, self.top, self.onto = (self.commit(ref) for ref in (old, new, onto))
        self.stack = git.log(f"{self.base}..{self.top}")
        way = git.log(f"{self.base}..{self.onto}")
        there = {info.commit for info in way}
        self.stack = [info for info in self.stack if info.commit in there]
        self.series = self.stack
        self.stack = self.stack[:most]
        # A release's branch takes several of main's commits as one, and says their numbers.
        self.numbers = {number for w in way for number in re.findall(r"#(\d+)", w.message)}
        said = {info.commit for info in self.stack if any(takes_back(w, info) for w in way)}
        shares = taken_back(git, self.stack, way, self.onto)
        self.reverted = said | {commit for commit, (share, _) in shares.items() if share >= HALF}
        self.in_part = {commit for commit, (_, whole) in shares.items() if whole} - self.reverted
        self.dice = random.Random(seed)

    def commit(self, ref: str) -> CommitId:
        return CommitId(self.git.line("rev-parse", f"{ref}^{{commit}}"))

    def cases(self, after: str) -> Iterator[Case]:
        """Return the cases for a release. ``after`` is a later release."""
        later = [i for i in self.git.log(f"{self.onto}..{self.commit(after)}") if number_of(i) not in self.numbers]
        kinds = dict.fromkeys(self.reverted, "taken-back") | dict.fromkeys(self.in_part, "in part")
        for n, info in enumerate(self.stack):
            kind = kinds.get(info.commit, "as-is")
            yield Case(kind, info.commit, self.onto, n)
            if kind != "as-is":
                continue
            last = self.stack[n - 1]
            if n and last.commit not in kinds and info.parents[0] == last.commit:
                yield Case("squashed", self.made(info.tree, last.parents[0], info), self.onto, n)
            yield from self.parts(info, n)
            if near := self.near(info):
                yield Case("near", near, self.onto, n)
            if both := self.with_other(info, self.dice.choice(later)):
                yield Case("partial", self.made(both, info.parents[0], info), self.onto, n)
        base = self.tree(self.base)
        for info in self.dice.sample(later, min(len(later), len(self.stack))):
            alone = self.git.merge_tree(self.tree(info.parents[0]), base, info.tree)
            there = self.git.merge_tree(base, self.tree(self.onto), alone.tree)
            if there.tree == self.tree(self.onto):
                continue  # it has been there under another name
            if not alone.stages and alone.tree != base:
                yield Case("later", self.made(alone.tree, self.base, info), self.onto)

    def parts(self, info: CommitInfo, n: int) -> Iterator[Case]:
        """Yield the cases with half of a commit, or with a commit that is taken back as a whole or by half."""
        changes = self.git.changes(info.parents[0], info.commit)
        some = changes[: len(changes) // 2]
        if some:
            half = {c.path: c.new for c in some}
            yield Case("split", self.with_files(info.parents[0], half, info), self.onto, n)
        if tip := self.without(info, self.tree(info.parents[0])):
            yield Case("reverted", info.commit, tip, n)
        if some:
            few = {c.path: c.old for c in some}
            if tip := self.without(info, self.tree(self.with_files(info.commit, few, info))):
                yield Case("half back", info.commit, tip, n)

    def with_other(self, info: CommitInfo, other: CommitInfo) -> str:
        """Return the tree of a commit with another one's changes, or "" if they conflict or the release has them."""
        before, onto = self.tree(other.parents[0]), self.tree(self.onto)
        both = self.git.merge_tree(before, info.tree, other.tree)
        there = self.git.merge_tree(before, onto, other.tree)
        if there.tree == onto or both.stages or both.tree == info.tree:
            return ""
        return both.tree

    def without(self, info: CommitInfo, tree: str) -> CommitId | None:
        """The release with what leads from this tree to a commit's taken back; None where it isn't there as it was."""
        back = self.git.merge_tree(info.tree, self.tree(self.onto), tree)
        if back.stages or back.tree == self.tree(self.onto):
            return None
        return self.git.commit_tree(back.tree, [self.onto], NOBODY, "Simplify\n")

    def tree(self, commit: str) -> str:
        return self.git.tree_of([commit])[0]

    def made(self, tree: str, parent: CommitId, like: CommitInfo) -> CommitId:
        return self.git.commit_tree(tree, [parent], NOBODY, like.message)

    def with_files(self, parent: CommitId, files: dict[bytes, TreeEntry | None], like: CommitInfo) -> CommitId:
        """Return a commit that changes these files."""
        index = self.git.folder / "bench.index"
        env = {"GIT_INDEX_FILE": str(index)}
        self.git.run("read-tree", parent, env=env)
        lines = [b"0 %s\t%s\0" % (b"0" * 40, path) if e is None else b"%s %s\t%s\0" % (e.mode, e.blob.encode(), path)
                 for path, e in files.items()]  # fmt: skip
        self.git.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
        return self.made(self.git.run("write-tree", env=env).decode().strip(), parent, like)

    def near(self, info: CommitInfo) -> CommitId | None:
        """Return the commit with one word of one of its added lines changed."""
        changes = [c for c in self.git.changes(info.parents[0], info.commit) if c.old and c.new]
        self.dice.shuffle(changes)
        for change in changes:
            assert change.old is not None
            assert change.new is not None
            contents = self.git.read_blobs([change.old.blob, change.new.blob])
            old = set(contents[change.old.blob].split(b"\n"))
            lines = contents[change.new.blob].split(b"\n")
            places = [n for n, line in enumerate(lines) if line not in old and re.search(rb"\w{4}", line)]
            if places:
                n = self.dice.choice(places)
                lines[n] = re.sub(rb"\w{4,}", lambda m: m[0] + b"_", lines[n], count=1)
                blob = self.git.run("hash-object", "-w", "--stdin", data=b"\n".join(lines)).decode().strip()
                entry = TreeEntry(change.new.mode, type(change.new.blob)(blob))
                changed = self.with_files(info.commit, {change.path: entry}, info)
                return self.made(self.tree(changed), info.parents[0], info)
        return None


def number_of(info: CommitInfo) -> str:
    """Return the pull request's number at the end of a subject; empty if there is none."""
    found = re.search(r"\(#(\d+)\)$", info.message.split("\n", 1)[0])
    return found[1] if found else ""


def takes_back(info: CommitInfo, other: CommitInfo) -> bool:
    """Return whether a commit's message says that it reverts another."""
    if info.commit == other.commit:
        return False
    subject, theirs = (i.message.split("\n", 1)[0] for i in (info, other))
    return f"This reverts commit {other.commit}" in info.message or (
        subject.lower().startswith("revert") and re.sub(r"\s*\(#\d+\)$", "", theirs)[:60] in subject
    )


#: Lines that a hunk takes out, and that it puts in.
Hunk = tuple[tuple[bytes, ...], tuple[bytes, ...]]


def hunks_of(git: Git, *specs: str, which: str = "--first-parent") -> dict[str, dict[bytes, list[Hunk]]]:
    """Return each commit's hunks without context, by the old path. Renamed files are followed."""
    out = git.run("log", "-p", "-U0", "-M", which, "--no-color", "--no-ext-diff", "--format=%x00%H", *specs)
    found: dict[str, dict[bytes, list[Hunk]]] = {}
    for commit in out.split(b"\0")[1:]:
        name, *files = re.split(rb"^diff --git .*\n", commit, flags=re.MULTILINE)
        paths = found[name.strip().decode()] = {}
        for file in files:
            head, *hunks = re.split(rb"^@@ .*\n", file, flags=re.MULTILINE)
            names = dict(re.findall(rb"^(---|\+\+\+) (.*)$", head, flags=re.MULTILINE))
            old, new = names.get(b"---", b""), names.get(b"+++", b"")
            path = (new if old == b"/dev/null" else old)[2:]
            for hunk in hunks:
                lines = hunk.split(b"\n")
                sides = (tuple(line[1:].strip() for line in lines if line.startswith(sign)) for sign in (b"-", b"+"))
                removed, added = (tuple(filter(None, side)) for side in sides)
                if removed or added:
                    paths.setdefault(path, []).append((removed, added))
    return found


def taken_back(
    git: Git, stack: Sequence[CommitInfo], way: Sequence[CommitInfo], onto: str,
    every: Mapping[str, Mapping[bytes, Sequence[Hunk]]] | None = None,
) -> dict[str, tuple[float, bool]]:  # fmt: skip
    """Of each commit the share of its lines that later ones take back, and whether all of some file's are.

    A hunk is taken back by one of the same file that takes out what it put in, together, and puts in what it took out,
    where neither the lines move to another place nor others come instead; it is there again by one that contains it.
    So is all of a file that at the tip is what it was before the commit.
    """
    every = every or hunks_of(git, f"{stack[0].commit}^..{way[-1].commit}")
    order = [info.commit for info in way]
    tip = git.list_tree(onto)
    found = {}
    for info in stack:
        later = [every[commit] for commit in order[order.index(info.commit) + 1 :] if commit in every]
        as_before = {c.path for c in git.changes(info.parents[0], info.commit) if c.old and c.old == tip.get(c.path)}
        total = back = 0
        whole = False
        for path, hunks in every.get(info.commit, {}).items():
            here = sum(len(removed) + len(added) for removed, added in hunks)
            gone = sum(len(removed) + len(added) for removed, added in hunks if is_gone((removed, added), path, later))
            gone = here if path in as_before else gone
            total, back, whole = total + here, back + gone, whole or gone == here
        found[info.commit] = (back / max(1, total), whole)
    return found


def is_gone(hunk: Hunk, path: bytes, later: Sequence[Mapping[bytes, Sequence[Hunk]]]) -> bool:
    """Return whether the last change that later commits made to a hunk reverted it."""
    removed, added = hunk
    gone = False
    for files in later:
        for out, into in files.get(path, ()):
            instead = not removed and len(into) >= HALF * len(out)  # it goes on with what was added
            if stands_in(added, out) and stands_in(removed, into) and not instead:
                put = {line for hunks in files.values() for _, lines in hunks for line in lines}
                gone = not added or sum(line in put for line in added) < HALF * len(added)
            elif gone and stands_in(removed, out) and stands_in(added, into):
                gone = False
    return gone


def stands_in(part: Sequence[bytes], lines: Sequence[bytes]) -> bool:
    """Return whether lines occur consecutively in others."""
    size = len(part)
    return not part or any(
        line == part[0] and tuple(lines[at : at + size]) == part
        for at, line in enumerate(lines[: len(lines) - size + 1])
    )


class Judges:
    """Detectors for cases onto one target.

    :param stack: the patches of the stack. Those after a case's place are carried with it.
    :param between: releases between the base and the target, by name.
    """

    def __init__(
        self, git: Git, bench: Bench, between: Sequence[tuple[str, CommitId]], patches: Sequence[Patch]
    ) -> None:  # fmt: skip
        self.git, self.bench, self.between, self.patches = git, bench, between, patches
        self.base, self.onto = bench.base, bench.onto
        self.line = Lineage(git, git.log(f"{self.base}..{self.onto}"), {})
        ids = git.patch_ids_of([p.commit.commit for p in patches])
        self.ids = dict(zip((p.name for p in patches), ids, strict=True))
        theirs = git.patch_ids_of([c.commit for c in self.line.commits])
        self.cherry = {pid for pid in theirs if pid}
        self.paths = {path for patch in patches for path in patch.paths}
        self.landed = self.landed_at(self.onto)
        self.stack = read_patches(git, [(f"own {n}", info) for n, info in enumerate(bench.series)])
        commits = [self.base, *(c for _, c in between), self.onto]
        self.first, *self.way, self.last = look_at(git, [*self.stack, *patches], commits, self.base)
        self.first.read(edit.new for patch in patches for edit in patch.edits)
        self.releases = self.asked(self.last)

    def landed_at(self, onto: CommitId) -> Landed:
        """Return the detector for a target with the history up to it."""
        line = Lineage(self.git, self.git.log(f"{self.base}..{onto}"), {})
        return Landed(line, self.ids, SideBranches(line, self.base, onto, self.paths))

    def asked(self, last: Column) -> tuple[Releases, Releases]:
        """Return the detectors for a target without history: by two releases, and by those in between too."""
        way = [(name, column) for (name, _), column in zip(self.between, self.way, strict=True)]
        both = (Releases(self.git, self.first, [*w, ("onto", last)], self.stack) for w in ([], way))
        return next(both), next(both)

    def ask(self, patch: Patch, case: Case) -> dict[str, bool]:
        """Return for each detector whether it finds the case upstream."""
        onto, last, (ends, every) = case.onto, self.last, self.releases
        (column,) = carry(self.git, [patch], [onto], self.base)
        if onto != self.onto:
            (last,) = look_at(self.git, [*self.stack, patch], [onto], self.base)
            ends, every = self.asked(last)
        landing = column.landings[0]
        landed = self.landed if onto == self.onto else self.landed_at(onto)
        plain = match(patch, self.first, [("onto", last)])
        way = [(name, column) for (name, _), column in zip(self.between, self.way, strict=True)]
        seen = {
            HISTORY: with_past(plain, landed.look(patch)),
            BETWEEN: with_past(match(patch, self.first, [*way, ("onto", last)]), every.look(patch, case.at)),
            TWO: with_past(plain, ends.look(patch, case.at)),
            ALONE: plain,
        }
        self.message = {name: s.past or s.message for name, s in seen.items()}
        return {name: verdict(landing, sight, "onto")[0] == Outcome.ABSORBED for name, sight in seen.items()} | {
            "git cherry": self.ids[patch.name] in self.cherry,
            "git rebase drops": landing.outcome == Outcome.ABSORBED,
        }


def between(refs: Mapping[str, CommitId], old: str, new: str) -> list[tuple[str, CommitId]]:
    """Return the releases between two, oldest first."""
    versions = {name: Version(name) for name in refs if re.fullmatch(r"v\d+(\.\d+)*", name)}
    found = sorted((v, name) for name, v in versions.items() if Version(old) < v < Version(new))
    return [(name, refs[name]) for _, name in found]


def main(
    repository: Path, old: str, new: str, onto: Sequence[str], after: str, show: str, most: int, seed: int
) -> None:  # fmt: skip
    source = Git(repository / ".git" if (repository / ".git").is_dir() else repository)
    counts: dict[tuple[str, str, str], int] = Counter()
    with scratch(source) as git:
        refs = {name.rpartition("/")[2]: oid for name, oid in source.refs("refs/tags").items()}
        for target in onto:
            bench = Bench(git, *(refs[r] for r in (old, new, target)), most, seed)
            way = [(name, bench.commit(oid)) for name, oid in between(refs, old, target)]
            print(f"{target}: {len(bench.stack)} commits; between: {', '.join(name for name, _ in way) or 'none'}")
            every = list(bench.cases(refs[after]))
            infos = [git.log("--no-walk=unsorted", case.commit)[0] for case in every]
            patches = read_patches(git, [(f"{n} {i.message.split(chr(10), 1)[0]}", i) for n, i in enumerate(infos)])
            judges = Judges(git, bench, way, patches)
            for case, patch in zip(every, patches, strict=True):
                counts[target, case.kind, "cases"] += 1
                for judge, yes in judges.ask(patch, case).items():
                    counts[target, case.kind, judge] += yes
                    if judge == show and (yes != (case.kind in UPSTREAM) or case.kind in NOT_COUNTED):
                        print(f"{target} {case.kind}: {patch.name}: {judges.message.get(judge, '')}")
    report(counts, onto)


def report(counts: dict[tuple[str, str, str], int], onto: Sequence[str]) -> None:
    names = JUDGES
    print("| onto | class | upstream | cases | " + " | ".join(names) + " |")
    print("|---|---|---|---|" + "---|" * len(names))
    for target in onto:
        for kind in (*UPSTREAM, *NOT_COUNTED, *NOT_UPSTREAM):
            row = [counts[target, kind, name] for name in names]
            yes = "yes" if kind in UPSTREAM else "no" if kind in NOT_UPSTREAM else "not counted"
            print(f"| {target} | {kind} | {yes} | {counts[target, kind, 'cases']} | {' | '.join(map(str, row))} |")
    print("\n| detector | recall, as-is by release | recall, all | precision |\n|---|---|---|---|")
    for name in names:
        by_release = [counts[t, "as-is", name] / max(1, counts[t, "as-is", "cases"]) for t in onto]
        right = sum(counts[t, k, name] for t in onto for k in UPSTREAM)
        true = sum(counts[t, k, "cases"] for t in onto for k in UPSTREAM)
        wrong = sum(counts[t, k, name] for t in onto for k in NOT_UPSTREAM)
        said = ", ".join(f"{share:.2f}" for share in by_release)
        print(f"| {name} | {said} | {right / max(1, true):.3f} | {right / max(1, right + wrong):.3f} |")
