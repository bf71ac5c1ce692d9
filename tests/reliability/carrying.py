"""Carry beside git: real commits onto real tags, and stacks of them, and what git's own merge makes of the same.

    python tests/reliability/carrying.py HISTORY [--pairs 2000] [--stacks 64] [--seed 1] [--near]

HISTORY is a git repository with tags; nothing is written into it. Each pair is a commit and a tag that it is carried
to, as a patch on its parent; each stack is some commits in a row and a tag, for which git is asked as `git rebase`
asks itself, merge by merge. Where patchq lands, its tree must be git's; where git stops, so must patchq.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchq.errors import SourceError
from patchq.git.repository import Git, scratch
from patchq.merge.patches import STOPS, Landing, Patch, read_patches
from patchq.merge.threeway import carry
from patchq.names import CommitId
from patchq.system import runner

#: As patchq asks git: a new file goes where its folder went. A person is asked by default; that is no merge of lines.
ORT = ("merge.directoryRenames=true",)


@dataclass
class Tally:
    """What came of a run. ``wrong``: landings that are not git's; ``alone``: stops where git merges; in words."""

    outcomes: Counter[str] = field(default_factory=Counter)
    alone: list[str] = field(default_factory=list)
    lost: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """How many patches were carried."""
        return sum(self.outcomes.values())

    def __str__(self) -> str:
        words = ", ".join(f"{n} {word}" for word, n in sorted(self.outcomes.items()))
        return (
            f"{self.tried} carried: {words}; git merges {len(self.alone)} that stop here; "
            f"{self.lost} not tried, as the history lacks a file; {len(self.wrong)} differ from git's"
        )


def import_trees(repository: Git, commits: Sequence[tuple[str, int]]) -> list[str]:
    """Commits of trees, each with the number of its parent among them (0: none); by one ``git fast-import``."""
    parts = []
    for number, (tree, parent) in enumerate(commits, 1):
        parts.append("reset refs/heads/side\n\n" if not parent else "")
        parts.append(f"commit refs/heads/side\nmark :{number}\ncommitter n <n@n> 946684800 +0000\ndata 2\nx\n")
        parts.append((f"from :{parent}\n" if parent else "") + f'M 040000 {tree} ""\n')
    parts += [f"get-mark :{number}\n" for number in range(1, len(commits) + 1)]
    done = subprocess.run(
        ["git", "fast-import", "--quiet", "--force", "--done"], cwd=repository.folder, check=True,
        input="".join([*parts, "done\n"]).encode(), capture_output=True,
    )  # fmt: skip
    return done.stdout.decode().split()


def ort(repository: Git, base: str, ours: Sequence[str], theirs: str) -> list[str]:
    """The trees that git's merge of trees comes to; empty where it conflicts."""
    ids = import_trees(repository, [(base, 0), (theirs, 1), *((tree, 1) for tree in ours)])
    done = subprocess.run(
        ["git", *(x for c in ORT for x in ("-c", c)), "merge-tree", "--write-tree", "--stdin", "-z", "--no-messages"],
        cwd=repository.folder, input="".join(f"{i} {ids[1]}\n" for i in ids[2:]).encode(), check=True,
        capture_output=True,
    )  # fmt: skip
    fields, found = iter(done.stdout.decode("utf-8", "replace").split("\0")), []
    for _ in ours:
        clean, tree = next(fields), next(fields)
        while next(fields):
            pass
        found.append(tree if clean == "1" else "")
    return found


def judge(repository: Git, where: str, landing: Landing, tree: str, merged: str, tally: Tally) -> bool:
    """Count a landing on a tree; False where it is not what git's merge comes to (empty: a conflict)."""
    tally.outcomes[landing.outcome] += 1
    if landing.outcome in STOPS:
        if merged and merged != tree:
            tally.alone.append(f"{where}: {landing.outcome}: {landing.message}")
        return True
    if not merged:
        tally.wrong.append(f"{where}: {landing.outcome}, where git stops")
        return False
    ours = {(c.path, c.new) for c in landing.changes if c.old != c.new}
    if ours != {(c.path, c.new) for c in repository.changes(tree, merged)}:
        tally.wrong.append(f"{where}: {landing.outcome}, and git's merge is another")
        return False
    return True


def compare(history: Git, commit: str, targets: Sequence[str], tally: Tally, names: Sequence[str] = ()) -> None:
    """One commit, carried as a patch on its parent to each target."""
    info = history.log("--no-walk", commit)[0]
    if len(info.parents) != 1:
        return
    try:
        (patch,) = read_patches(history, [(commit[:9], info)])
        columns = carry(history, [patch], [CommitId(t) for t in targets], info.parents[0])
        trees = history.tree_of(targets)
        with scratch(history) as repository:
            expected = ort(repository, patch.parent, trees, info.tree)
            for name, column, tree, merged in zip(names or targets, columns, trees, expected, strict=True):
                judge(repository, f"{commit[:9]} onto {name}", column.landings[0], tree, merged, tally)
    except (SourceError, runner.CommandError, subprocess.CalledProcessError):
        tally.lost += len(targets)


def compare_stack(history: Git, commits: Sequence[str], target: str, tally: Tally, name: str = "") -> None:
    """Commits in a row as a stack, carried together; git merges each onto what the ones before it came to.

    A patch that stops is left out on both sides, as by ``--skip``.
    """
    infos = [history.log("--no-walk", c)[0] for c in commits]
    try:
        patches: list[Patch] = read_patches(history, [(i.commit[:9], i) for i in infos])
        (column,) = carry(history, patches, [CommitId(target)], infos[0].parents[0])
        with scratch(history) as repository:
            tree: str = history.tree_of([target])[0]
            for number, patch in enumerate(patches):
                landing = column.landings[number]
                (merged,) = ort(repository, patch.parent, [tree], patch.commit.tree)
                where = f"{patch.name} of the stack {commits[0][:9]}..{commits[-1][:9]} onto {name or target}"
                if not judge(repository, where, landing, tree, merged, tally):
                    return
                tree = tree if landing.outcome in STOPS else merged
    except (SourceError, runner.CommandError, subprocess.CalledProcessError):
        tally.lost += len(commits)


def _lines(history: Git, *args: str) -> list[str]:
    return history.run(*args).decode().split()


def sample(
    history: Git, pairs: int, stacks: int, seed: int, *, near: bool = False, each: int = 5, size: int = 6
) -> tuple[Tally, Tally]:
    """Random commits of the main line onto random tags, ``each`` of them a commit; and stacks of ``size`` in a row.

    :param near: onto the tags that lie next to the commit, where more of them land.
    """
    chance = random.Random(seed)
    line = _lines(history, "rev-list", "--first-parent", "HEAD")
    reach = min(len(line) - 1, 1500)
    line = line[:reach]
    known = set(line)
    tags = {}
    for tag in _lines(history, "tag"):
        try:
            commit = history.resolve(f"{tag}^{{commit}}")[0]
        except runner.CommandError:  # a tag of a file, such as somebody's key
            continue
        if commit in known or history.run("rev-list", "--max-count=1", f"{line[-1]}..{commit}").strip():
            tags[tag] = commit
    names = sorted(tags, key=lambda name: (int(history.line("log", "-1", "--format=%ct", tags[name])), name))
    times = [int(history.line("log", "-1", "--format=%ct", tags[name])) for name in names]

    def some(commit: str, count: int) -> list[str]:
        if not near:
            return chance.sample(names, min(count, len(names)))
        at = bisect(times, int(history.line("log", "-1", "--format=%ct", commit)))
        start = max(0, min(at - count // 2, len(names) - count))
        return names[start : start + count]

    single, rows = Tally(), Tally()
    while single.tried + single.lost < pairs:
        commit = chance.choice(line)
        chosen = some(commit, each)
        compare(history, commit, [tags[n] for n in chosen], single, chosen)
        if sys.stderr.isatty():
            print(f"\r{single}", end="", file=sys.stderr)
    merges = set(_lines(history, "rev-list", "--merges", "--first-parent", "HEAD"))
    plain = [at for at in range(size, len(line)) if merges.isdisjoint(line[at - size : at])]
    for _ in range(stacks if plain else 0):
        at = chance.choice(plain)
        name = chance.choice(some(line[at], each))
        compare_stack(history, line[at - size : at][::-1], tags[name], rows, name)
    return single, rows


def main() -> int:
    """Measure, and print; 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", type=Path)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--stacks", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--near", action="store_true", help="onto the tags next to each commit, not any")
    given = parser.parse_args()
    found = sample(Git(given.history), given.pairs, given.stacks, given.seed, near=given.near)
    for word, tally in zip(("pairs", "stacks"), found, strict=True):
        print(f"{word}: {tally}")
        for said in tally.wrong:
            print(f"  differs: {said}")
        for said in tally.alone:
            print(f"  stops alone: {said}")
    return int(any(tally.wrong for tally in found))


if __name__ == "__main__":
    sys.exit(main())
