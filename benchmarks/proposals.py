"""How many conflicts get a proposal from `rebase --propose`, and how many proposals equal what a person did?

    python benchmarks/proposals.py REPO [REPO …] [--most 500] [--conflicts 80] [--seed 0] [--save FILE] [--only COMMIT]

REPO is a git repository with backports (`cherry picked from commit`) or merges. Each conflict that its people resolved
is one that a stack could have had: the original of the backport (or one side of the merge) is the patch, the branch
that it was picked onto (or the other side) is upstream, and the commit is the person's resolution. Public histories
have no proofs, so only the other checks judge the proposals.

equal: the files that conflict, and those that the strategy changed, are the person's, byte for byte. `--save` writes
each other proposal with its difference, to be read. `--tests COMMAND` runs a shell command, such as the repository's own
tests, in the tree of each such proposal and in the person's: a proposal that fails where the person's passes is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import chain, islice
from pathlib import Path

from patchq.formats.header import Ident
from patchq.git.merges import merge_trees
from patchq.git.repository import Git, copy_tree, scratch
from patchq.merge.upstream_lines import find_dropped
from patchq.names import CommitId, TreeId
from patchq.resolutions._candidates import candidates
from patchq.resolutions._sides import Sides
from patchq.system import fsio, runner

_PICKED = re.compile(r"cherry picked from commit ([0-9a-f]{40})")
#: A commit with its base, upstream and the patch.
Row = tuple[str, str, str, str]
#: Merges of one process.
_TOGETHER = 50
#: Time limit of the tests of a tree.
_SECONDS = 300
_NOBODY = Ident("nobody", "nobody@localhost", 946684800, "+0000")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A conflict that people resolved: the sides, and their tree."""

    kind: str
    commit: str
    sides: Sides
    person: TreeId


def cases(source: Git, git: Git, *, most: int, limit: int, seed: int) -> Iterator[Case]:
    """Yield up to ``limit`` backports and ``limit`` merges that conflict, of ``most`` that are tried."""
    for kind, rows in (("backport", _backports(source)), ("merge", _merges(source))):
        random.Random(seed).shuffle(rows)
        conflicts = chain.from_iterable(
            _conflicts(git, kind, rows[start : start + _TOGETHER])
            for start in range(0, min(len(rows), most), _TOGETHER)
        )
        yield from islice(conflicts, limit)


def _backports(git: Git) -> list[Row]:
    """Return the backports whose originals the repository has."""
    form = ("--format=%H %P%n%B%x00", "--grep=cherry picked from commit")
    out = git.run("log", "--all", "--no-merges", *form).decode("utf-8", "replace")
    picked: list[tuple[str, str, str]] = []
    for record in out.split("\0"):
        ids, _, message = record.strip("\n").partition("\n")
        originals = _PICKED.findall(message)
        if originals and len(ids.split()) == 2:
            commit, parent = ids.split()
            picked.append((commit, parent, originals[-1]))
    known = {}
    if picked:
        wanted = "".join(f"{original}\n" for _, _, original in picked).encode()
        there = git.run("cat-file", "--batch-check", data=wanted).decode().splitlines()
        originals = [line.split()[0] for line in there if line.split()[1] == "commit"]
        known = {line.split()[0]: line.split()[1:] for line in _parents(git, originals)}
    return [(c, known[o][0], parent, o) for c, parent, o in picked if len(known.get(o, ())) == 1]


def _parents(git: Git, commits: Sequence[str]) -> list[str]:
    data = "".join(f"{commit}\n" for commit in commits).encode()
    return git.run("rev-list", "--no-walk=unsorted", "--parents", "--stdin", data=data).decode().splitlines()


def _merges(git: Git) -> list[Row]:
    """Return the merges of two commits. Their bases are not known yet."""
    rows = []
    for line in git.run("log", "--all", "--merges", "--format=%H %P").decode().splitlines():
        ids = line.split()
        if len(ids) == 3:
            rows.append((ids[0], "", ids[1], ids[2]))
    return rows


def _conflicts(git: Git, kind: str, rows: Sequence[Row]) -> Iterator[Case]:
    """Yield the rows that conflict, merged by a few processes."""
    if kind == "backport":
        trees = git.tree_of([commit for row in rows for commit in row[1:]])
        merges = merge_trees(git, [(*trees[n : n + 2], {}, trees[n + 2]) for n in range(0, len(trees), 3)])
    else:
        merges = git.merge([(CommitId(ours), CommitId(theirs)) for _, _, ours, theirs in rows])
    for (commit, base, ours, theirs), merge in zip(rows, merges, strict=True):
        if not merge.stages or merge.failed:
            continue
        bases = [base] if base else git.run("merge-base", "--all", ours, theirs).decode().split()
        if len(bases) != 1:
            continue
        patched, person = git.tree_of([theirs, commit])
        patch = git.commit_tree(patched, bases, _NOBODY, "the patch\n")
        parked = git.commit_tree(merge.tree, [ours], _NOBODY, "parked\n")
        (info,) = git.log(f"{patch}^!")
        sides = Sides(git=git, patch=info, ours=CommitId(ours), parked=parked, stages=merge.stages)
        yield Case(kind=kind, commit=commit, sides=sides, person=person)


@dataclass
class Counts:
    """Counts of one strategy."""

    proposed: int = 0
    equal: int = 0


def difference(case: Case, tree: TreeId) -> str:
    """Return the difference of a proposal to the person's resolution, or an empty string."""
    git = case.sides.git
    paths = {change.path for change in git.changes(case.sides.parked, tree)} | set(case.sides.paths)
    made, wanted = (case.sides.texts(side, paths) for side in (tree, case.person))
    found = []
    for path in sorted(paths):
        if made.get(path) != wanted.get(path):
            name = os.fsdecode(path)
            texts = (side.get(path, b"").decode("utf-8", "replace").splitlines() for side in (made, wanted))
            found += unified_diff(*texts, f"proposal/{name}", f"person/{name}", lineterm="")
    return "\n".join(found)


def tested(case: Case, tree: TreeId, command: str) -> str:
    """Run a command in a proposal's tree and in the person's; return what that says of the proposal."""
    codes = []
    git = case.sides.git
    with fsio.temporary_folder() as folder:
        for name, side in (("person", case.person), ("proposal", tree)):
            copy_tree(git, git.commit_tree(side, [], _NOBODY, "to be tested\n"), folder / name)
            done = runner.run(["sh", "-c", command], cwd=folder / name, timeout=_SECONDS, ok_codes=range(256))
            codes.append(done.returncode)
    if codes[0]:
        return "the person's fails, too" if codes[1] else "only the proposal passes"
    return "WRONG: only the person's passes" if codes[1] else "both pass"


def measure(
    case: Case, counts: dict[str, Counts], outcomes: Counter[str], tests: str
) -> tuple[list[str], list[tuple[str, str]]]:
    """Count what the strategies make of a conflict.

    :returns: the strategies whose proposals are shown, and the proposals that differ from the person's.
    """
    sides = case.sides
    by_tree: dict[TreeId, list[str]] = {}
    for found in candidates(sides):
        outcome = found.outcome.value
        if found.tree:
            commit = sides.git.commit_tree(found.tree, [sides.ours], _NOBODY, "proposal\n")
            if find_dropped(sides.git, old=sides.patch.commit, new=commit, upstream=sides.ours):
                outcome = "upstream's line lost"
            elif found.tree == sides.git.tree_of([sides.ours])[0]:
                outcome = "nothing left"
            else:
                by_tree.setdefault(found.tree, []).append(found.strategy)
        outcomes[f"{found.strategy}: {outcome}"] += 1
    others = []
    for tree, strategies in by_tree.items():
        different = difference(case, tree)
        for name in strategies:
            own = counts.setdefault(name, Counts())
            own.proposed += 1
            own.equal += not different
        if different:
            verdict = f" ({tested(case, tree, tests)})" if tests else ""
            others.append((", ".join(strategies) + verdict, different))
    return [name for names in by_tree.values() for name in names], others


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=500, help="backports and merges to try, of each repository")
    parser.add_argument("--conflicts", type=int, default=80, help="conflicts of each kind, of each repository")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="file for the proposals that differ from the person's resolution")
    parser.add_argument("--tests", default="", metavar="COMMAND", help="shell command that tests a tree")
    parser.add_argument("--only", default="", help="only the conflict of this commit")
    options = parser.parse_args(argv)
    counts: dict[str, Counts] = {}
    outcomes: Counter[str] = Counter()
    total = proposed = equal = 0
    saved = options.save.open("w", buffering=1) if options.save else None
    for folder in options.repositories:
        source = Git(folder)
        with scratch(source) as git:
            own = [0, 0, 0]
            for case in cases(source, git, most=options.most, limit=options.conflicts, seed=options.seed):
                if not case.commit.startswith(options.only):
                    continue
                shown, others = measure(case, counts, outcomes, options.tests)
                own[0] += 1
                own[1] += bool(shown)
                own[2] += bool(shown) and not others
                for strategies, different in others:
                    if saved:
                        saved.write(f"===== {folder.name} {case.kind} {case.commit} {strategies}\n{different}\n")
        print(f"{folder.name}: {own[0]} conflicts, {own[1]} with proposals, {own[2]} of them equal", flush=True)
        total, proposed, equal = total + own[0], proposed + own[1], equal + own[2]
    print(f"all: {total} conflicts, {proposed} with proposals, {equal} of them equal the person's")
    print("\n| strategy | proposals | equal |\n|---|---|---|")
    for name, found in sorted(counts.items()):
        print(f"| {name} | {found.proposed} | {found.equal} |")
    print()
    for name, count in sorted(outcomes.items()):
        print(f"{name}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
