"""The in-process applier against ``git apply --cached``: damaged diffs on trees they may not have been made for.

    python tests/reliability/differential.py [--seed N] [--cases N] [--all]

A case is a real diff (of random edits, or a patch of this project's own stacks), damaged in none to four ways, and a
tree, as it was or with lines put in and taken out. Both appliers get it, and each path of both results is compared.
What the in-process applier leaves to git is git's by definition, and is counted; what it refuses that git takes must
be one of ``MEANT``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "tools")]

from damage import damage  # noqa: E402
from kit import ROOT  # noqa: E402
from patchq.errors import FormatError  # noqa: E402
from patchq.formats import diff  # noqa: E402
from patchq.formats.diff import Unsupported  # noqa: E402
from patchq.formats.header import split_mail  # noqa: E402
from patchq.git.objects import TreeEntry, blob_id  # noqa: E402
from patchq.git.repository import Git  # noqa: E402
from patchq.names import BlobId, CommitId  # noqa: E402
from patchq.stacks._memtree import FileMismatch, View  # noqa: E402

#: Path to mode and blob.
Tree = dict[bytes, tuple[bytes, str]]
Files = dict[bytes, tuple[bytes, bytes]]
#: Why patchq may refuse what git takes; docs/reference/formats.md says so, too.
MEANT = {
    "ambiguous": re.compile("more than one place"),
    "last line": re.compile("last line has no newline, but|a context line has no newline at its end"),
    "path": re.compile("leaves the tree"),
    "more lines": re.compile("more lines than its header says"),
    "form": re.compile("can't check that no other place fits"),
    "skipped": re.compile("git would skip (it|this line)"),
    "no target": re.compile("a symlink without a target"),
}
ENV = {
    **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8",
}  # fmt: skip


def git(folder: Path, *args: str, data: bytes = b"", env: dict[str, str] | None = None) -> bytes:
    return subprocess.run(
        ["git", *args], cwd=folder, input=data, capture_output=True, check=True, env={**ENV, **(env or {})}
    ).stdout


@dataclass
class Target:
    """A tree to apply to: its commit, its index as bytes, and its files."""

    commit: str
    index: bytes
    listed: dict[bytes, TreeEntry]


class Known(Git):
    """A store whose tree is known, so that a case costs no process."""

    def __init__(self, folder: Path, target: Target, blobs: dict[BlobId, bytes]) -> None:
        super().__init__(folder)
        self.target, self.blobs = target, blobs

    def list_tree(self, treeish: str, paths: Sequence[bytes] = ()) -> dict[bytes, TreeEntry]:
        return self.target.listed

    def read_blobs(self, blobs: object) -> dict[BlobId, bytes]:
        return self.blobs


@dataclass
class World:
    """A repository with targets, and the diffs that are tried on each."""

    folder: Path
    targets: list[tuple[Target, list[bytes]]]
    blobs: dict[BlobId, bytes]


# The trees


def lines_of(dice: random.Random) -> list[bytes]:
    """A file: numbered lines, few different ones, blocks that come again, blanks, odd line ends."""
    kind = dice.randrange(6)
    size = dice.choice([0, 1, 2, 3, 8, 20, 40, 80])
    if kind == 0:
        return [b"line %d\n" % n for n in range(size)]
    if kind == 1:
        return [dice.choice([b"a\n", b"a\n", b"\n"]) for _ in range(size)]
    if kind == 2:
        block = [b"def f():\n", b"    x = 1\n", b"    y = 2\n", b"    return x\n", b"\n"]
        return [line for n in range(1 + size // 5) for line in [*block, b"# %d\n" % (n // 4)]]
    if kind == 3:
        return [dice.choice([b"a\r\n", b"b\r\n", b"a\n", b" a\n", b"a \n", b"\t\n"]) for _ in range(size)]
    if kind == 4:
        return [dice.choice([b"- x\n", b"+ y\n", b"@@ -1 +1 @@\n", b"--- a/f\n", b"\\ z\n", b"\n", b"diff --git a/x b/x\n"])
                for _ in range(size)]  # fmt: skip
    return [dice.choice([b"\0\n", b"\xff\xfe\n", b"caf\xe9\n", b"ok\n", b"\x0c\n"]) for _ in range(size)]


NAMES = [b"a.txt", b"b.txt", b"d/a.txt", b"d/e/f.py", b"d/g", b"run.sh", b"with space.txt", b'q"uote', b"t\tab",
         "grüße".encode(), b"x y/z w", b"\xff\xfe", b"back\\slash", b"empty", b"nl\nnl", b"b/b.txt"]  # fmt: skip


def body(dice: random.Random, lines: Sequence[bytes]) -> bytes:
    data = b"".join(lines)
    return data.removesuffix(b"\n") if dice.random() < 0.2 else data


def first_tree(dice: random.Random) -> Files:
    files: Files = {name: (b"100644", body(dice, lines_of(dice))) for name in NAMES}
    files[b"run.sh"] = (b"100755", files[b"run.sh"][1])
    files[b"empty"] = (b"100644", b"")
    files[b"link"] = (b"120000", b"d/a.txt")
    files[b"d/up"] = (b"120000", b"../b.txt")
    return files


def edited(dice: random.Random, files: Files, *, only_lines: bool = False) -> Files:
    """The files with one to three changes."""
    files = dict(files)
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        name = dice.choice(sorted(files))
        mode, data = files[name]
        kind = 0 if only_lines else dice.randrange(11)
        if kind == 1:
            del files[name]
        elif kind == 2:
            files[dice.choice([b"new.txt", b"d/new", b"n/e/w", name + b".2"])] = (
                dice.choice([b"100644", b"100755"]), body(dice, lines_of(dice)))  # fmt: skip
        elif kind in (3, 4):
            if kind == 3:
                del files[name]
            files[dice.choice([b"moved", b"d/moved.txt", b"m o/v ed"])] = (mode, data)
        elif kind == 5 and mode != b"120000":
            files[name] = (b"100755" if mode == b"100644" else b"100644", data)
        elif kind == 6:
            files[name] = (b"120000", b"to/nowhere") if mode != b"120000" else (b"100644", b"x\n")
        else:
            lines = data.splitlines(keepends=True)
            for _ in range(dice.choice([1, 1, 2, 3])):
                at = dice.randint(0, len(lines))
                end = min(len(lines), at + dice.choice([0, 0, 1, 1, 2, 5]))
                lines[at:end] = [dice.choice([b"new %d\n" % dice.randrange(9), b"a\n", b"\n"])
                                 for _ in range(dice.choice([0, 1, 1, 2, 4]))]  # fmt: skip
            files[name] = (mode, b"\n".join(line.rstrip(b"\n") for line in lines) + b"\n" if lines else b"")
            if dice.random() < 0.15:
                files[name] = (mode, files[name][1].removesuffix(b"\n"))
    return {n: f for n, f in files.items() if not any(n.startswith(o + b"/") for o in files)}


def preimage(files: Sequence[diff.FilePatch]) -> Files:
    """A tree that a diff fits: its old lines where they belong, and others in between."""
    found: Files = {}
    for file in files:
        if file.old_path is None:
            continue
        lines: list[bytes] = []
        for hunk in file.hunks:
            lines += [b"filler %d\n" % n for n in range(len(lines) + 1, hunk.old_start)]
            lines += hunk.old
        if not lines or (lines[-1].endswith(b"\n") and file.hunks and file.hunks[-1].trailing):
            lines += [b"the end\n"] * (file.new_path is not None)
        found[file.old_path] = (file.old_mode or b"100644", b"".join(lines))
    return found


def fast_import(folder: Path, trees: Sequence[Files]) -> list[str]:
    """A commit without parents for each tree."""
    out = []
    for number, files in enumerate(trees, 1):
        out.append(b"commit refs/heads/t%d\nmark :%d\ncommitter a <a> 1 +0000\ndata 0\ndeleteall\n" % (number, number))
        for path, (mode, data) in files.items():
            quoted = b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
            out.append(b"M %s inline %s\ndata %d\n%s\n" % (mode, quoted, len(data), data))
    git(folder, "fast-import", "--quiet", "--export-marks=marks", data=b"".join(out))
    marks = dict(line.split() for line in (folder / "marks").read_text().splitlines())
    return [marks[f":{n}"] for n in range(1, len(trees) + 1)]


def target_of(folder: Path, commit: str, files: Files) -> Target:
    index = folder / "index.made"
    git(folder, "read-tree", commit, env={"GIT_INDEX_FILE": str(index)})
    return Target(commit, index.read_bytes(), {p: TreeEntry(m, blob_id(d)) for p, (m, d) in sorted(files.items())})


OPTIONS = [("-U3",), ("-U3", "-M", "--full-index"), ("-U1", "-C", "--find-copies-harder"), ("-U0",), ("-U3", "-B", "--binary"),
           ("-U8", "--text"), ("-U1", "--text"), ("-U2", "--text", "-M30")]  # fmt: skip


def make_world(folder: Path, dice: random.Random, edits: int, patches: int) -> World:
    """A random tree with ``edits`` diffs of it, and a tree for each of ``patches`` of this project's patches."""
    git(folder, "init", "-q")
    first = first_tree(dice)
    after = [edited(dice, first) for _ in range(edits)]
    moved = [edited(dice, first, only_lines=True) for _ in range(4)]
    stacks: list[tuple[bytes, Files]] = []
    paths = sorted((ROOT / "patches").glob("*/*/*.patch"))
    for path in dice.sample(paths, min(patches, len(paths))):
        text = split_mail(path.read_bytes())[2]
        with contextlib.suppress(Unsupported):
            stacks.append((text, preimage(diff.parse(text, str(path)))))
    trees = [first, *moved, *after]
    for _, files in stacks:
        trees += [files, edited(dice, files, only_lines=True)] if files else [files, files]
    commits = fast_import(folder, trees)
    diffs = [
        git(folder, "-c", f"core.quotePath={'true' if dice.random() < 0.8 else 'false'}", "diff-tree", "-p",
            *dice.choice(OPTIONS), commits[0], commit)
        for commit in commits[5 : 5 + edits]
    ]  # fmt: skip
    diffs = [d for d in diffs if d]
    targets = [(target_of(folder, c, f), diffs) for c, f in zip(commits[:5], trees[:5], strict=True)]
    for number, (text, _) in enumerate(stacks):
        for which in (0, 1):
            at = 5 + edits + 2 * number + which
            targets.append((target_of(folder, commits[at], trees[at]), [text]))
    blobs = {blob_id(d): d for files in trees for _, d in files.values()}
    return World(folder, targets, blobs)


# The two appliers


def read_index(data: bytes) -> Tree:
    """The entries of a git index, version 2."""
    assert data[:8] == b"DIRC\0\0\0\2", data[:8]
    found: Tree = {}
    at = 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        mode = b"%o" % int.from_bytes(data[at + 24 : at + 28], "big")
        end = data.index(b"\0", at + 62)
        found[data[at + 62 : end]] = (mode, data[at + 40 : at + 60].hex())
        at += (end - at + 8) // 8 * 8
    return found


def by_git(world: World, target: Target, text: bytes) -> Tree | str:
    """The tree after ``git apply --cached``, or what git says."""
    index = world.folder / "index.tried"
    index.write_bytes(target.index)
    done = subprocess.run(
        ["git", "apply", "--cached", "--whitespace=nowarn", "-"], cwd=world.folder, input=text, capture_output=True,
        env={**ENV, "GIT_INDEX_FILE": str(index)}, check=False,
    )  # fmt: skip
    # 134: an assertion of git's own, which a rename of a file that is made in the same patch breaks.
    assert done.returncode in (0, 1, 128, -6), (done.returncode, done.stderr)
    (world.folder / "index.tried.lock").unlink(missing_ok=True)
    return done.stderr.decode("utf-8", "replace") if done.returncode else read_index(index.read_bytes())


def in_process(world: World, target: Target, text: bytes) -> Tree | str | None:
    """The tree that patchq makes, why it refuses, or None where it leaves it to git."""
    try:
        files = diff.parse(text, "patch")
    except Unsupported:
        return None
    except FormatError as error:
        return error.message
    view = View(Known(world.folder, target, world.blobs), CommitId(target.commit))
    view.prefetch(f.old_path for f in files if f.old_path is not None)
    try:
        view.apply(files, [])
    except FileMismatch as error:
        return error.mismatch.reason
    found: Tree = {}
    named = {path for file in files for path in file.paths}
    for path, mode in view.files.items():
        # What the diff doesn't name was not read.
        there = target.listed.get(path)
        found[path] = (mode, blob_id(view.content(path)) if path in named or there is None else there.blob)
    return found


@dataclass
class Figures:
    """How the cases went."""

    cases: int = 0
    left_to_git: int = 0
    both_took: int = 0
    both_refused: int = 0
    meant: Counter[str] = field(default_factory=Counter)
    #: Silently another tree; taken that git refuses; refused that git takes without a reason that is listed.
    different: list[tuple[str, bytes]] = field(default_factory=list)
    taken: list[tuple[str, bytes]] = field(default_factory=list)
    refused: list[tuple[str, bytes]] = field(default_factory=list)


def compare(world: World, target: Target, text: bytes, figures: Figures) -> None:
    """One case."""
    figures.cases += 1
    ours = in_process(world, target, text)
    if ours is None:
        figures.left_to_git += 1
        return
    theirs = by_git(world, target, text)
    if isinstance(ours, str) and isinstance(theirs, str):
        figures.both_refused += 1
    elif isinstance(ours, str):
        for name, pattern in MEANT.items():
            if pattern.search(ours):
                figures.meant[name] += 1
                return
        figures.refused.append((ours, text))
    elif isinstance(theirs, str):
        figures.taken.append((theirs, text))
    elif ours != theirs:
        paths = sorted(p for p in {*ours, *theirs} if ours.get(p) != theirs.get(p))
        figures.different.append((repr(paths), text))
    else:
        figures.both_took += 1


def run(seed: int, cases: int, patches: int = 6, figures: Figures | None = None) -> Figures:
    """Try ``cases`` cases."""
    figures = figures or Figures()
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as text:
        world = make_world(Path(text), dice, edits=40, patches=patches)
        for _ in range(cases):
            target, diffs = dice.choice(world.targets)
            made = dice.choice(diffs)
            compare(world, target, damage(dice, made, diffs), figures)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=1, help="worlds, each of its own seed")
    parser.add_argument("--keep", type=Path, help="write what differs into this folder")
    given = parser.parse_args()
    figures = Figures()
    for seed in range(given.seed, given.seed + given.rounds):
        run(seed, given.cases, figures=figures)
    print(f"{figures.cases} cases: {figures.both_took} taken by both, {figures.both_refused} refused by both, "
          f"{figures.left_to_git} left to git, {dict(figures.meant)} refused as meant")  # fmt: skip
    for what in ("different", "taken", "refused"):
        found = getattr(figures, what)
        print(f"{what}: {len(found)}")
        for number, (said, text) in enumerate(found):
            print(f"   {said.strip()[:150]!r}")
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                (given.keep / f"{what}-{number}.diff").write_bytes(text)
    return 1 if figures.different or figures.taken or figures.refused else 0


if __name__ == "__main__":
    sys.exit(main())
