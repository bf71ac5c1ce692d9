"""Carry commits and stacks of commits onto tags with patchq, and compare each result with git's own merge.

    python tests/reliability/carrying.py HISTORY [--pairs 2000] [--stacks 64] [--seed 1] [--near]
    python tests/reliability/carrying.py --made 8 --pairs 250 --stacks 38 --near --newer-git PROGRAM

HISTORY is a git repository with tags. The script doesn't write to it. `--made` generates histories instead, one for each
seed. A pair is a commit and a tag: the commit is carried to the tag as a patch on its parent. A stack is some consecutive
commits and a tag. Git merges them one by one, as `git rebase` does. If patchq applies a patch, its tree must equal git's.
If git stops, patchq must stop too.

With `--newer-git` everything runs twice: with the git on the PATH, and with PROGRAM. Both runs must give the same trees
and stop at the same files. `.ci/newer-git FOLDER` installs a newer git and prints its path.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import histories
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
    """Results of a run.

    :ivar wrong: descriptions of results that differ from git's.
    :ivar alone: descriptions of patches that stop, although git merges them.
    :ivar results: the result of each patch, to compare with another run.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    alone: list[str] = field(default_factory=list)
    lost: int = 0
    wrong: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """Number of patches that were carried."""
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
    """Count a result; return False if it differs from the tree of git's merge (empty: a conflict)."""
    tally.outcomes[landing.outcome] += 1
    # Markers in conflicting files have other labels with a newer git, so a stop is compared by its sides.
    sides = landing.stages if landing.outcome in STOPS else landing.changes
    tally.results.append(f"{where}: {landing.outcome}, git {merged}: {sides}")
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


@contextmanager
def use_git(program: str) -> Iterator[None]:
    """Run another git in the block; empty for the one on the PATH."""
    before = os.environ["PATH"]
    if program:
        os.environ["PATH"] = f"{Path(program).resolve().parent}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


def compare_gits(
    history: Git, newer: str, pairs: int, stacks: int, seed: int, *, near: bool
) -> tuple[tuple[Tally, Tally], list[str]]:
    """Run :func:`sample` with the git on the PATH and with a newer one.

    :returns: the tallies of the first, and descriptions of all differences between the two.
    """
    found = sample(history, pairs, stacks, seed, near=near)
    if not newer:
        return found, []
    with use_git(newer):
        again = sample(history, pairs, stacks, seed, near=near)
    differ = []
    for one, other in zip(found, again, strict=True):
        differ += [f"{a}; with the newer git {b}" for a, b in zip(one.results, other.results, strict=True) if a != b]
    return found, differ


def main() -> int:
    """Compare and print; return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", type=Path, nargs="?")
    parser.add_argument("--made", type=int, default=0, help="generate this many histories instead")
    parser.add_argument("--newer-git", default="", help="program of another git to compare with")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--stacks", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--near", action="store_true", help="onto the tags next to each commit, not any")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="carrying-") as text:
        sources = [(given.seed, given.history)]
        if given.made:
            seeds = range(given.seed, given.seed + given.made)
            sources = [(n, histories.make(Path(text) / str(n), n, 200) / ".git") for n in seeds]
        for seed, folder in sources:
            found, differ = compare_gits(Git(folder), given.newer_git, given.pairs, given.stacks, seed, near=given.near)
            for word, tally in zip(("pairs", "stacks"), found, strict=True):
                print(f"seed {seed}, {word}: {tally}", flush=True)
                for said in (*tally.wrong, *tally.alone):
                    print(f"  {said}")
            for said in differ:
                print(f"  the gits differ: {said}")
            failed = failed or bool(differ) or any(tally.wrong for tally in found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
