"""Rules inferred from hunks of a fork, replayed over ten later releases and compared with the fork's own versions.

    python benchmarks/patterns.py REPOSITORY --releases BASE=FORK,BASE=FORK,… [--hunks N] [--from K] [--seed S]

Each release is a commit of upstream's and the fork's commit on top of it, oldest first. Hunks are drawn from the whole
difference of the fork at one release. Each hunk alone becomes a patch with inferred rules, and is carried onto the next
ten releases by its diff, and with its rules. The trees are reduced to the files of the hunks and the places that git
finds for them. Results are compared with the fork's file at the same release:

- same: the fork changes the same lines in the same way.
- rewritten: the fork changes the same lines of upstream's, but to another text than the hunk has.
- elsewhere: the fork changes other lines near the place, or the hunk's lines are at another place.
- left alone: the fork changes no lines near the place.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory

from patchq.formats import diff
from patchq.formats.header import Ident
from patchq.formats.outcomes import Outcome
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry, blob_id
from patchq.git.repository import Git, bare_repository
from patchq.merge.patches import STOPS, Landing, Patch, read_patches, write_commits
from patchq.merge.target import Column
from patchq.merge.threeway import carry
from patchq.names import CommitId
from patchq.patterns._infer import infer
from patchq.patterns.rules import Rule, with_rules

TARGETS = 10
NOBODY = Ident("n", "n@n", 946684800, "+0000")
#: Files that no one edits by hand.
SKIPPED = (b".po", b".pot", b".lock", b".sum", b".min.js", b".svg")

Tree = dict[bytes, TreeEntry]
#: Lines of the old text from one number to another, and the lines in their place.
Change = tuple[int, int, tuple[bytes, ...]]


@dataclass(frozen=True)
class Release:
    """A commit of upstream's, the fork's commit on top of it, and the fork's files."""

    name: str
    base: CommitId
    fork: CommitId


@dataclass(frozen=True)
class Case:
    """One hunk: upstream's file without and with it."""

    path: bytes
    old: bytes
    new: bytes
    mode: bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--releases", required=True)
    parser.add_argument("--hunks", type=int, default=70)
    parser.add_argument("--from", dest="start", type=int, default=0, help="number of the release to draw from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-v", "--verbose", action="store_true", help="show each place where the diff conflicts")
    args = parser.parse_args()
    with TemporaryDirectory(prefix="patterns-") as folder:
        store = bare_repository(Path(folder) / "store.git", Git(args.repository))
        source = Git(args.repository)
        releases = []
        for pair in args.releases.split(","):
            base, _, fork = pair.partition("=")
            ids = [CommitId(source.line("rev-parse", f"{name}^{{commit}}")) for name in (base, fork)]
            releases.append(Release(fork, *ids))
        chosen = releases[args.start : args.start + 1 + TARGETS]
        print(json.dumps(Replay(store, chosen, args.verbose).run(args.hunks, args.seed), indent=2))


class Replay:
    """Replay of hunks of the first release over the others."""

    def __init__(self, store: Git, releases: Sequence[Release], verbose: bool) -> None:
        self.store, self.verbose = store, verbose
        self.source, *self.targets = releases
        self.summary: Counter[str] = Counter()
        self.forks = [store.list_tree(release.fork) for release in self.targets]

    def run(self, count: int, seed: int) -> dict[str, int]:
        every = sorted(self.hunks(), key=lambda found: (found[0], found[2].old_start))
        self.summary.update({"releases": len(self.targets), "hunks of the fork": len(every)})
        random.Random(seed).shuffle(every)
        cases = []
        for path, entry, hunk in every[:count]:
            old = self.store.read_blobs([entry.blob])[entry.blob]
            alone = replace(hunk, new_start=hunk.old_start)
            with_it = diff.apply_hunks([alone], old)[0]
            cases.append(Case(path, old, with_it, entry.mode))
        base, bases = self.reduced({case.path for case in cases})
        numbered = list(enumerate(cases))
        while numbered:
            # Hunks of different files don't affect each other, so they are carried together.
            group = list({case.path: (number, case) for number, case in reversed(numbered)}.values())
            numbered = [item for item in numbered if item not in group]
            self.replay(group, base, bases)
        return dict(sorted(self.summary.items()))

    def hunks(self) -> Iterator[tuple[bytes, TreeEntry, diff.Hunk]]:
        """Yield each hunk of the text files that the fork changes at the first release."""
        before = self.store.list_tree(self.source.base)
        options = ("--no-renames", "--full-index", "--diff-filter=M", "--no-ext-diff", "--no-color")
        text = self.store.run("diff", *options, self.source.base, self.source.fork)
        for part in text.split(b"\ndiff --git "):
            whole = b"diff --git " + part.removeprefix(b"diff --git ").removesuffix(b"\n") + b"\n"
            try:
                (file,) = diff.parse(whole, "diff")
            except diff.Unsupported:
                continue
            path = file.old_path
            if path is None or file.binary or path.endswith(SKIPPED):
                continue
            for hunk in file.hunks:
                yield path, before[path], hunk

    def reduced(self, paths: set[bytes]) -> tuple[CommitId, list[CommitId]]:
        """Return commits of these files and of the files that git takes for them in each release."""
        before = self.store.list_tree(self.source.base)
        bases = []
        for target in self.targets:
            there = self.store.list_tree(target.base)
            wanted = {path for path in paths if path in there}
            if wanted != paths:
                wanted |= self.renamed(target, paths - wanted)
            bases.append(self.commit_of({path: there[path] for path in wanted}))
        return self.commit_of({path: before[path] for path in paths}), bases

    def commit_of(self, entries: Mapping[bytes, TreeEntry]) -> CommitId:
        """Write a root commit of files that the store has."""
        lines = [b"%s %s\t%s\0" % (entry.mode, entry.blob.encode(), path) for path, entry in entries.items()]
        with TemporaryDirectory() as folder:
            env = {"GIT_INDEX_FILE": f"{folder}/index"}
            self.store.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
            tree = self.store.run("write-tree", env=env).decode().strip()
        return self.store.commit_tree(tree, [], NOBODY, "base\n")

    def renamed(self, target: Release, paths: set[bytes]) -> set[bytes]:
        options = ("-r", "-M", "-l500", "--diff-filter=R", "--name-status", "-z")
        fields = self.store.run("diff-tree", *options, self.source.base, target.base).split(b"\0")[:-1]
        pairs = zip(fields[1::3], fields[2::3], strict=True)
        return {new for old, new in pairs if old in paths}

    def replay(self, group: Sequence[tuple[int, Case]], base: CommitId, bases: Sequence[CommitId]) -> None:
        rules = {}
        for number, case in group:
            self.summary["hunks"] += 1
            rules[number] = infer(case.path, case.old, case.new)
            if not rules[number]:
                self.summary["hunks without rules"] += 1
        group = [item for item in group if rules[item[0]]]
        by_diff = carry(self.store, self.patches(base, group, {}), bases, base)
        by_rules = carry(self.store, self.patches(base, group, rules), bases, base)
        for target, fork, one, other in zip(self.targets, self.forks, by_diff, by_rules, strict=True):
            for at, (number, case) in enumerate(group):
                where = f"#{number} {target.name} {case.path.decode()}"
                self.count(where, case, fork, (one, one.landings[at]), (other, other.landings[at]))

    def patches(
        self, base: CommitId, group: Sequence[tuple[int, Case]], rules: Mapping[int, Sequence[Rule]]
    ) -> list[Patch]:
        """Return a stack of hunks, each as a patch."""
        (start,) = self.store.log("--no-walk", base)
        commits, contents = [], {}
        for number, case in group:
            blob = blob_id(case.new)
            contents[blob] = case.new
            message = with_rules(f"Hunk {number}\n", rules.get(number, ()))
            info = replace(start, author=NOBODY, message=message)
            commits.append((info, [PathChange(case.path, None, TreeEntry(case.mode, blob))]))
        made = write_commits(self.store, base, commits, contents)
        infos = {info.commit: info for info in self.store.log("--no-walk=unsorted", *made)} if made else {}
        return read_patches(self.store, [(str(n), infos[c]) for (n, _), c in zip(group, made, strict=True)])

    def count(
        self, where: str, case: Case, fork: Tree, plain: tuple[Column, Landing], ruled: tuple[Column, Landing]
    ) -> None:
        """Count one hunk at one release, carried by its diff and with its rules."""
        (one, by_diff), (other, by_rule) = plain, ruled
        self.summary["places"] += 1
        if by_diff.outcome in (Outcome.ABSORBED, Outcome.OBSOLETE):
            self.summary[
                "places that upstream has" if by_diff.outcome == Outcome.ABSORBED else "places whose file is gone"
            ] += 1
            return
        if by_diff.outcome not in STOPS:
            carried = self.result(one, by_diff)
            self.summary["carried by diff"] += 1
            self.summary[f"carried by diff, and the fork: {self.judge(case, fork, carried)}"] += 1
            if by_rule.outcome in STOPS:
                self.summary["carried by diff, the rules stop"] += 1
                self.show(f"{where}: the diff applies, the rules stop: {by_rule.message}")
            else:
                same = self.result(other, by_rule) == carried
                self.summary[f"carried by diff, the rules give {'the same' if same else 'OTHER'} bytes"] += 1
            return
        self.summary["conflicts"] += 1
        if by_rule.outcome != Outcome.BY_RULE:
            self.show(f"{where}: stops: {by_rule.message}")
            return
        result = self.result(other, by_rule)
        verdict = self.judge(case, fork, result)
        self.summary["conflicts that apply by rule"] += 1
        self.summary[f"by rule, and the fork: {verdict}"] += 1
        self.show(f"{where}: by rule: {verdict}")
        if verdict != "same" and result and result[0] in fork:
            blob = fork[result[0]].blob
            self.show_both(result, self.store.read_blobs([blob])[blob])

    def result(self, column: Column, landing: Landing) -> tuple[bytes, bytes, bytes] | None:
        """Return the path, upstream's file and the file with the hunk."""
        for change in landing.changes:
            if change.old and change.new:
                return change.path, column.content(change.old.blob), column.content(change.new.blob)
        return None

    def judge(self, case: Case, fork: Tree, result: tuple[bytes, bytes, bytes] | None) -> str:
        if result is None or result[0] not in fork:
            return "left alone"
        blob = fork[result[0]].blob
        return compare(case, result[1], result[2], self.store.read_blobs([blob])[blob])

    def show(self, text: str) -> None:
        if self.verbose:
            print(text, flush=True)

    def show_both(self, result: tuple[bytes, bytes, bytes], human: bytes) -> None:
        _, base, ours = result
        mine = changes(base, ours)
        for whose, found in (("rule", mine), ("fork", changes(base, human))):
            for start, end, put in found:
                if all(abs(start - at) > 12 for at, _, _ in mine):
                    continue
                lines = diff.split_lines(base)
                shown = [b"  " + line for line in lines[max(0, start - 2) : start]]
                shown += [b"- " + line for line in lines[start:end]] + [b"+ " + line for line in put]
                shown += [b"  " + line for line in lines[end : end + 2]]
                self.show(f"    {whose}, line {start + 1}:")
                for line in shown:
                    self.show("      " + line.decode("utf-8", "replace").rstrip())


def changes(before: bytes, after: bytes) -> list[Change]:
    """Return the changed lines of a file."""
    old, new = diff.split_lines(before), diff.split_lines(after)
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            found.append((a, b, tuple(new[c:d])))
    return found


def compare(case: Case, base: bytes, ours: bytes, human: bytes) -> str:
    """Compare a result with the fork's file; see the module's text."""
    theirs, mine = changes(base, human), changes(base, ours)
    if set(mine) <= set(theirs):
        return "same"
    if is_within(diff.split_lines(base), diff.split_lines(human), mine):
        return "same"
    near = [change for change in theirs for one in mine if change[0] <= one[1] and one[0] <= change[1]]
    if not near:
        added = {line for _, _, put in mine for line in put if line.strip()}
        moved = added and added <= set(diff.split_lines(human))
        return "elsewhere" if moved else "left alone"
    return "rewritten" if {c[:2] for c in mine} & {c[:2] for c in near} else "elsewhere"


def is_within(base: Sequence[bytes], human: Sequence[bytes], mine: Sequence[Change]) -> bool:
    """Return whether the fork's file has the result with one unchanged line on each side, in this order.

    The fork may change more lines next to the place, which changes how the difference is cut.
    """
    text, at = b"".join(human), 0
    for start, end, put in mine:
        found = text.find(b"".join([*base[start - 1 : start], *put, *base[end : end + 1]]), at)
        if found < 0:
            return False
        at = found + 1
    return True


if __name__ == "__main__":
    main()
