"""Measure how well patchq finds patches that upstream already has, with cases made from upstream's own releases.

    python benchmarks/absorbed.py                     # releases that the detector was not tuned on
    python benchmarks/absorbed.py --tuning            # releases that it was tuned on
    python benchmarks/absorbed.py --show near-miss    # the wrong results of a class
    python benchmarks/absorbed.py REPO --stack v0.6.3 v0.6.4 --onto v0.6.4 v0.6.6 v0.6.8 --after v0.6.10
                                                      # whole commits of a repository: see whole_commits.py

Each case takes hunks of the changes between three consecutive releases r0, r1 and r2, as a patch on r0. The target is
the release at which the detector looks for the patch.

Classes that upstream has:
as-is: all changes of a file up to r1; target r1.
evolved: the same; the target is up to five releases later, and other changes of the file left the patch's lines alone.
squashed: some hunks of a file; target r1.
split: the changes of two files, one in r1, the other in r2; target r2.

Classes that upstream doesn't have:
near-miss: like as-is or squashed, but one added line differs, or there is one more; target r1.
later: hunks of r2; target r1.
partial: hunks of r1 and of r2; target r1.
reverted: hunks of r1 that r2 removed again; target r2.

Correct is to retire the first four classes, and to ask about or carry the others. Two other detectors judge the same
cases: `git rebase` (a merge that adds nothing) and `git apply --reverse --check`. The archives come from the package index.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import subprocess
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path

import whole_commits

from patchq.formats import diff
from patchq.formats.outcomes import Grade
from patchq.merge.blocks import blocks
from patchq.sources import index
from patchq.upstream.match import FileSight, judge, look

TUNING = {
    "flashinfer-python": [
        "0.2.5", "0.2.7", "0.2.9", "0.2.11", "0.2.14", "0.3.0", "0.3.1", "0.4.0", "0.4.1", "0.5.0", "0.5.2", "0.5.3",
        "0.6.0", "0.6.2", "0.6.4", "0.6.6", "0.6.8", "0.6.10", "0.6.12",
    ],
    "vllm": ["0.11.0", "0.12.0", "0.13.0", "0.14.0"],
}  # fmt: skip
MEASURED = {
    "flashinfer-python": ["0.6.13", "0.6.14", "0.6.15", "0.6.16", "0.6.17", "0.7.0", "0.7.1", "0.7.2"],
    "vllm": ["0.8.0", "0.9.0", "0.10.0", "0.16.0", "0.18.0", "0.20.0", "0.23.0"],
}
UPSTREAM = ("as-is", "evolved", "squashed", "split")
NOT_UPSTREAM = ("near-miss", "later", "partial", "reverted")
WANTED = re.compile(r"\.(py|cu|cuh|h|hpp|cpp|md|yaml|toml|txt)$")
EACH = 12  # cases of a class from each three releases


@dataclass(frozen=True)
class Part:
    """One file of a case: its hunks, and the versions that the detector reads."""

    path: str
    hunks: tuple[diff.Hunk, ...]
    patched: bytes
    base: bytes
    versions: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Case:
    kind: str
    where: str
    parts: tuple[Part, ...]


class Releases:
    """Releases of a project as commits of a scratch repository."""

    def __init__(self, folder: Path, project: str, versions: Sequence[str]) -> None:
        self.folder, self.versions = folder, list(versions)
        self.files: dict[str, dict[str, bytes]] = {}
        self.git("init", "-q")
        for version in versions:
            archive = index.download(index.find_sdist(project, version), "")
            self.files[version] = self.read(archive)
            for path in folder.iterdir():
                if path.name != ".git":
                    subprocess.run(["rm", "-rf", str(path)], check=True)
            for name, content in self.files[version].items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            self.git("add", "-A")
            self.git("-c", "user.name=n", "-c", "user.email=n@n", "commit", "-q", "-m", version)
            self.git("tag", f"r{version}")

    def git(self, *args: str) -> bytes:
        return subprocess.run(["git", *args], cwd=self.folder, capture_output=True, check=True).stdout

    @staticmethod
    def read(archive: Path) -> dict[str, bytes]:
        found = {}
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.partition("/")[2]
                if member.isfile() and WANTED.search(name) and not name.startswith("3rdparty"):
                    file = tar.extractfile(member)
                    assert file
                    content = io.BytesIO(file.read()).getvalue()
                    if content.count(b"\n") < 6000:
                        found[name] = content
        return found

    def changes(self, old: str, new: str) -> dict[str, list[diff.Hunk]]:
        """Return the hunks of each file that differs between two releases and is in both."""
        text = self.git("diff", "--no-renames", "--diff-filter=M", f"r{old}", f"r{new}")
        return {f.path.decode(): f.hunks for f in diff.parse(text, "diff") if f.hunks and not f.binary}


def patch(hunks: Sequence[diff.Hunk], content: bytes) -> bytes | None:
    """Return the content with the hunks applied; None if they don't fit or change nothing."""
    try:
        done, _ = diff.apply_hunks(hunks, content)
    except diff.Mismatch:
        return None
    return done if done != content else None


def reverse(hunks: Sequence[diff.Hunk]) -> list[diff.Hunk]:
    return [replace(h, old=h.new, new=h.old, old_start=h.new_start, new_start=h.old_start) for h in hunks]


def missed(hunks: Sequence[diff.Hunk], dice: random.Random) -> list[diff.Hunk] | None:
    """Return the hunks with one word of an added line changed, or with such a line added.

    Leaving out a line would not be a near miss, because upstream has the rest of the patch.
    """
    places = [
        (n, k)
        for n, h in enumerate(hunks)
        for kind, _, _, j, end in SequenceMatcher(None, h.old, h.new, autojunk=False).get_opcodes()
        if kind != "equal"
        for k in range(j, end)
        if len(re.sub(rb"\W", b"", h.new[k])) > 3
    ]
    if not places:
        return None
    n, k = dice.choice(places)
    line = hunks[n].new[k]
    words = list(re.finditer(rb"\w+", line))
    word = dice.choice(words)
    other = line[: word.start()] + word[0] + b"_" + line[word.end() :]
    new = (*hunks[n].new[:k], *([line] if dice.random() < 0.3 else []), other, *hunks[n].new[k + 1 :])
    changed = replace(hunks[n], new=new)
    return [*hunks[:n], changed, *hunks[n + 1 :]]


def untouched(hunks: Sequence[diff.Hunk], r1: bytes, r2: bytes) -> bool:
    """Return whether later changes keep all added lines, and the context of hunks that only remove lines."""
    old, new = diff.split_lines(r1), diff.split_lines(r2)
    kept: set[int] = set()
    for i, _, n in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        kept.update(range(i, i + n))
    for h in hunks:
        start = h.new_start - 1
        for kind, _, _, j, end in SequenceMatcher(None, h.old, h.new, autojunk=False).get_opcodes():
            wanted = range(start + j, start + end) if j < end else range(start + j - 1, start + j + 1)
            if kind != "equal" and not set(wanted) <= kept:
                return False
    return True


def some(hunks: Sequence[diff.Hunk], dice: random.Random) -> list[diff.Hunk]:
    count = dice.randint(1, max(1, min(len(hunks) - 1, 4)))
    return [hunks[n] for n in sorted(dice.sample(range(len(hunks)), count))]


class Triple:
    """Three consecutive releases, and the cases that their changes make."""

    def __init__(self, found: Releases, project: str, dice: random.Random, refs: tuple[str, str, str]) -> None:
        self.releases, self.dice = found, dice
        self.r0, self.r1, self.r2 = refs
        self.a, self.b, self.c = (found.files[r] for r in refs)
        self.first, self.second = found.changes(self.r0, self.r1), found.changes(self.r1, self.r2)
        self.label = f"{project} {self.r0}, {self.r1}, {self.r2}"
        self.made: dict[str, list[Case]] = {}

    def add(self, kind: str, path: str, hunks: Sequence[diff.Hunk], *versions: tuple[str, bytes]) -> None:
        """Add a case of one file, if its hunks apply to the first release."""
        patched = patch(hunks, self.a[path])
        if patched is not None:
            part = Part(path, tuple(hunks), patched, self.a[path], versions)
            self.made.setdefault(kind, []).append(Case(kind, f"{self.label}: {path}", (part,)))

    def add_first(self, path: str, hunks: list[diff.Hunk]) -> None:
        """Add the cases of a file that the second release changes."""
        at1 = (self.r1, self.b[path])
        self.add("as-is", path, hunks, at1)
        if len(hunks) > 1:
            self.add("squashed", path, some(hunks, self.dice), at1)
        if after := self.later_versions(path, hunks):
            self.add("evolved", path, hunks, at1, *after)
        few = some(hunks, self.dice) if len(hunks) > 1 else hunks
        if near := missed(few, self.dice):
            self.add("near-miss", path, near, at1)
        if path in self.c and (back := patch(reverse(hunks), self.c[path])) is not None:
            self.add("reverted", path, hunks, at1, (self.r2, back))
        for hunk in self.second.get(path, ()):
            if blocks([hunk]) and patch([hunk], patch(hunks[:1], self.a[path]) or b"") is not None:
                both = sorted([hunks[0], hunk], key=lambda h: h.old_start)
                self.add("partial", path, both, at1)
                break

    def later_versions(self, path: str, hunks: list[diff.Hunk]) -> list[tuple[str, bytes]]:
        """Return a file in up to five later releases; the last one differs and keeps the lines of the hunks."""
        versions, files = self.releases.versions, self.releases.files
        later = versions[versions.index(self.r1) + 1 :][:5]
        after = [(r, files[r][path]) for r in later if path in files[r]]
        while after and (after[-1][1] == self.b[path] or not untouched(hunks, self.b[path], after[-1][1])):
            after.pop()
        return after

    def add_second(self, path: str, hunks: list[diff.Hunk]) -> None:
        """Add the case of a file that only the third release changes."""
        if path in self.a:
            fits = [h for h in hunks if patch([h], self.a[path]) is not None]
            if fits:
                self.add("later", path, fits[:4], (self.r1, self.b[path]))

    def add_split(self, early: str, late: str) -> None:
        """Add the case of two files, one changed by each release."""
        if late not in self.a or self.a[late] != self.b.get(late) or early not in self.c:
            return
        parts = []
        for path, hunks in ((early, self.first[early]), (late, self.second[late])):
            done = patch(hunks, self.a[path])
            if done is not None:
                versions = ((self.r1, self.b[path]), (self.r2, self.c[path]))
                parts.append(Part(path, tuple(hunks), done, self.a[path], versions))
        if len(parts) == 2:
            self.made.setdefault("split", []).append(Case("split", f"{self.label}: {early}, {late}", tuple(parts)))


def cases(found: Releases, project: str, dice: random.Random) -> Iterator[Case]:
    """Yield up to EACH cases of each class from every three consecutive releases."""
    for refs in zip(found.versions, found.versions[1:], found.versions[2:], strict=False):
        triple = Triple(found, project, dice, refs)
        for path, hunks in triple.first.items():
            triple.add_first(path, hunks)
        for path, hunks in triple.second.items():
            triple.add_second(path, hunks)
        only_first, only_second = set(triple.first) - set(triple.second), set(triple.second) - set(triple.first)
        for early, late in zip(sorted(only_first), sorted(only_second), strict=False):
            triple.add_split(early, late)
        for kind in (*UPSTREAM, *NOT_UPSTREAM):
            every = triple.made.get(kind, [])
            yield from dice.sample(every, min(EACH, len(every)))


def merges_to_nothing(folder: Path, part: Part) -> bool:
    """Return whether git's merge of the patch with the target equals the target."""
    names = []
    for name, content in (("ours", part.versions[-1][1]), ("base", part.base), ("theirs", part.patched)):
        (folder / name).write_bytes(content)
        names.append(name)
    done = subprocess.run(["git", "merge-file", "-p", "-q", *names], cwd=folder, capture_output=True)
    return done.returncode == 0 and done.stdout == part.versions[-1][1]


def reverses(folder: Path, part: Part) -> bool:
    """Return whether `git apply --reverse --check` accepts the patch at the target."""
    (folder / "file").write_bytes(part.versions[-1][1])
    lines = [b"--- a/file\n+++ b/file\n"]
    for h in part.hunks:
        lines.append(b"@@ -%d,%d +%d,%d @@\n" % (h.old_start, len(h.old), h.new_start, len(h.new)))
        for kind, i, j, k, end in SequenceMatcher(None, h.old, h.new, autojunk=False).get_opcodes():
            lines += [(b" " if kind == "equal" else b"-") + t for t in h.old[i:j]]
            lines += [b"+" + t for t in h.new[k:end]] if kind != "equal" else []
    text = b"".join(t if t.endswith(b"\n") else t + b"\n\\ No newline at end of file\n" for t in lines)
    done = subprocess.run(["git", "apply", "--reverse", "--check"], cwd=folder, input=text, capture_output=True)
    return done.returncode == 0


def judge_case(folder: Path, case: Case) -> str:
    """Return what patchq would do: retire, ask or carry."""
    if all(merges_to_nothing(folder, p) for p in case.parts):
        sights = [FileSight(path=p.path, grade=Grade.IDENTICAL, where=p.versions[-1][0], share=1.0) for p in case.parts]
    else:
        sights = [look(p.path, p.hunks, p.patched, p.base, p.versions) for p in case.parts]
    found = judge(sights, [label for label, _ in case.parts[0].versions])
    return "retire" if found.retirable else "ask" if found.grade else "carry"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--show", default="")
    parser.add_argument("repository", nargs="?", type=Path)
    parser.add_argument("--stack", nargs=2, default=("v0.6.3", "v0.6.4"), metavar=("FROM", "TO"))
    parser.add_argument("--onto", nargs="+", default=("v0.6.4", "v0.6.6", "v0.6.8"))
    parser.add_argument("--most", type=int, default=1000, help="so many commits of the stack")
    parser.add_argument("--after", default="v0.6.10", help="a release after all of those")
    parser.add_argument("--seed", type=int, default=2026, help="of what is drawn, of a repository's commits")
    given = parser.parse_args()
    if given.repository:
        whole_commits.main(given.repository, *given.stack, given.onto, given.after, given.show, given.most, given.seed)
        return
    dice = random.Random(2026)
    every: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="absorbed-") as text:
        for project, versions in (TUNING if given.tuning else MEASURED).items():
            folder = Path(text) / project
            folder.mkdir()
            every += cases(Releases(folder, project, versions), project, dice)
        counts: dict[str, Counter[str]] = {}
        empty, back = Counter(), Counter()  # type: Counter[bool], Counter[bool]
        spent = 0.0
        for case in every:
            start = time.monotonic()
            verdict = judge_case(Path(text), case)
            spent += time.monotonic() - start
            counts.setdefault(case.kind, Counter())[verdict] += 1
            if case.kind == given.show and (verdict == "retire") != (case.kind in UPSTREAM):
                print(verdict, case.where)
            empty[case.kind in UPSTREAM] += all(merges_to_nothing(Path(text), p) for p in case.parts)
            back[case.kind in UPSTREAM] += all(reverses(Path(text), p) for p in case.parts)
    print("| class | upstream | cases | retired | asked | carried |\n|---|---|---|---|---|---|")
    for kind in (*UPSTREAM, *NOT_UPSTREAM):
        row = counts.get(kind, Counter())
        yes = "yes" if kind in UPSTREAM else "no"
        print(f"| {kind} | {yes} | {row.total()} | {row['retire']} | {row['ask']} | {row['carry']} |")
    true = sum(c.total() for k, c in counts.items() if k in UPSTREAM)
    right = sum(c["retire"] for k, c in counts.items() if k in UPSTREAM)
    asked = sum(c["ask"] for k, c in counts.items() if k in UPSTREAM)
    wrong = sum(c["retire"] for k, c in counts.items() if k not in UPSTREAM)
    print("\n| detector | recall | with what it asks about | precision | ms a patch |\n|---|---|---|---|---|")
    print(
        f"| patchq | {right / true:.3f} | {(right + asked) / true:.3f} | {right / (right + wrong):.3f} "
        f"| {1000 * spent / len(every):.0f} |"
    )
    for name, seen in (("a merge that adds nothing", empty), ("it reverses", back)):
        print(f"| {name} | {seen[True] / true:.3f} | | {seen[True] / max(1, seen.total()):.3f} | |")


if __name__ == "__main__":
    main()
