"""Small histories of odd edits, carried and merged by git: what real histories seldom have, and hardly ever together.

    python tests/reliability/odd_histories.py [--first 1] [--count 500]

Blocks that repeat and move, functions with the same words, CRLF, a last line without its end, empty and binary files,
modes, links, submodules, renamed files and folders, a file that becomes a folder and back, and upstream taking some
files of a patch. Each history is a base, some patches in a row, and some targets that upstream made of the base.

Two answers are right for a reason that is patchq's own, and are counted as git's. git guesses from the two trees of
each step, patches in them, that a folder moved, and takes new files along: patchq believes that only of the two trees
of upstream's. And a file that upstream renamed is followed even where a patch before has emptied it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import carrying
from carrying import Tally, ort
from patchq.git.repository import Git
from patchq.merge.patches import STOPS, Landing, Patch, read_patches
from patchq.merge.threeway import carry
from patchq.names import CommitId

#: Path to mode and content; of a submodule the content is its commit.
Files = dict[str, tuple[str, bytes]]
PLAIN, EXECUTABLE, LINK, SUBMODULE = "100644", "100755", "120000", "160000"
WORDS = ("return x", "x = 1", "if x:", "    pass", "}", "", "", "y = f(x)", "log(x)", "end", "{", "// c")
BODY = (b"  n = int(n)\n", b"  check(n)\n", b"  if n < 0:\n", b"    return 0\n", b"  return n\n", b"\n")


def some_lines(chance: random.Random, count: int) -> list[bytes]:
    """Lines, half of them such as stand everywhere."""
    words = (chance.choice(WORDS), f"line {chance.randrange(60)} {chance.choice('ab')}")
    return [f"{chance.choice(words)}\n".encode() for _ in range(count)]


def function(name: str) -> list[bytes]:
    """A function; only its name tells it from others."""
    return [f"def {name}(n):\n".encode(), *BODY]


def some_files(chance: random.Random) -> Files:
    """A tree to begin with."""
    files: Files = {}
    for _ in range(chance.randrange(3, 8)):
        folder = chance.choice(["a", "b", "d/a", "d/b", "d/e/c", "lib/x", "lib/y", "lib/z"])
        path = folder + chance.choice([".py", ".c", ""])
        lines = some_lines(chance, chance.randrange(30))
        for name in "fgh"[: chance.randrange(4)]:
            lines += [*function(name), *some_lines(chance, chance.randrange(4))]
        if not is_taken(files, path):
            files[path] = (EXECUTABLE if chance.random() < 0.1 else PLAIN, b"".join(lines))
    if chance.random() < 0.2:
        files["link"] = (LINK, b"a.py")
    if chance.random() < 0.15:
        files["sub"] = (SUBMODULE, b"%040x" % chance.randrange(1, 9))
    if chance.random() < 0.1:
        files["bin"] = (PLAIN, b"\0\1\2" + b"x\n" * 20)
    return files


def is_taken(files: Files, path: str) -> bool:
    """Whether a file, or a folder, is at a path or above it."""
    return any(p == path or p.startswith(f"{path}/") or path.startswith(f"{p}/") for p in files)


def edited(chance: random.Random, content: bytes) -> bytes:
    """A file with up to three odd edits."""
    lines = content.replace(b"\r\n", b"\n").splitlines(keepends=True) if chance.random() < 0.1 else content.split(b"\n")
    lines = [line.rstrip(b"\n") for line in lines]
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at, some = chance.randrange(len(lines) + 1), chance.randrange(1, 9)
        start = chance.randrange(max(1, len(lines)))
        block = lines[start : start + some]
        kind = chance.choice(
            ["add"] * 5 + ["remove"] * 3 + ["change"] * 4 + ["function", "repeat", "move", "indent"] + ["fix"] * 2
            + ["crlf", "end", "empty", "long", "nul"][: 5 if chance.random() < 0.5 else 2]
        )  # fmt: skip
        if kind == "remove":
            del lines[at : at + chance.randrange(1, 4)]
        elif kind == "change" and lines:
            lines[at - 1] += chance.choice([b" changed", b" too", b"\r", b"\rx", b"  "])
        elif kind == "move":
            del lines[start : start + some]
            lines[at:at] = block
        elif kind == "indent":
            lines[start : start + some] = [b"  " + line for line in block]
        elif kind == "fix":
            lines = [line.replace(b"n < 0", b"n <= 0") if chance.random() < 0.6 else line for line in lines]
        elif kind == "crlf":
            lines = [line.rstrip(b"\r") + b"\r" for line in lines]
        elif kind == "end":
            lines = lines[:-1] if lines and not lines[-1] else [*lines, b""]
        elif kind == "empty":
            lines = []
        else:
            words = [line.rstrip(b"\n") for line in (*some_lines(chance, chance.randrange(1, 4)), *function("k"))]
            new = {"repeat": block, "function": words[-7:], "long": [b"z" * 70000], "nul": [b"nul\0"]}
            lines[at:at] = new.get(kind, words[:-7])
    return b"\n".join(lines)


def changed(chance: random.Random, files: Files, edits: int) -> Files:
    """A tree after so many changes."""
    files = dict(files)
    for _ in range(edits):
        if not files:
            break
        path = chance.choice(sorted(files))
        mode, content = files[path]
        plain = mode in (PLAIN, EXECUTABLE)
        kind = chance.random()
        if plain and kind < 0.62:
            files[path] = (mode, edited(chance, content))
        elif plain and kind < 0.67:
            files[path] = (EXECUTABLE if mode == PLAIN else PLAIN, content)
        elif kind < 0.80:
            files = renamed(chance, files, path)
        elif kind < 0.85:
            del files[path]
        elif kind < 0.90:
            new = chance.choice(["d/", "lib/", "new/", "", "d/e/", "moved/"]) + chance.choice(["n1.py", "n2.py"])
            if not is_taken(files, new):
                files[new] = (PLAIN, b"".join(some_lines(chance, chance.randrange(12))))
        else:
            files = turned(chance, files, path)
    return files


def renamed(chance: random.Random, files: Files, path: str) -> Files:
    """With a file elsewhere, edited or not; or a folder, whole or but for one."""
    mode, content = files[path]
    old, inside = path, [path]
    new = chance.choice(["d/", "lib/", "new/", "", "d/e/"]) + chance.choice(["a", "b", "r", "q.py", "x.c"])
    if chance.random() < 0.4:
        old, new = chance.choice(["d/", "lib/", "d/e/"]), chance.choice(["moved/", "lib2/", "d/f/", "d2/"])
        inside = [p for p in files if p.startswith(old)][chance.random() < 0.4 :]
    elif mode in (PLAIN, EXECUTABLE) and chance.random() < 0.5:
        content = edited(chance, content)
    rest = {p: file for p, file in files.items() if p not in inside}
    places = {p: new + p.removeprefix(old) for p in inside}
    if any(is_taken(rest, place) for place in places.values()):
        return files
    return {**rest, **{place: (mode, content) if p == path else files[p] for p, place in places.items()}}


def turned(chance: random.Random, files: Files, path: str) -> Files:
    """With something of another kind at a path: a folder, a file where the folder was, a link, a submodule; a copy."""
    mode, content = files[path]
    rest = {p: file for p, file in files.items() if p != path}
    folder = path.rpartition("/")[0]
    kind = chance.choice(["folder", "file", "link", "submodule", "copy"])
    if kind == "folder":
        return {**rest, f"{path}/in": files[path]}
    if kind == "file" and folder:
        rest = {p: file for p, file in files.items() if not p.startswith(f"{folder}/")}
        return files if is_taken(rest, folder) else {**rest, folder: (PLAIN, content)}
    if kind == "link":
        plain = mode in (PLAIN, EXECUTABLE)
        return {**rest, path: (LINK, chance.choice([b"a.py", b"b", b"../x"])) if plain else (PLAIN, b"was none\n")}
    if kind == "submodule":
        return {**rest, path: (SUBMODULE, b"%040x" % chance.randrange(1, 4))}
    return files if is_taken(files, f"{path}_copy") else {**files, f"{path}_copy": files[path]}


def written(repository: Path, trees: list[tuple[Files, int]]) -> list[str]:
    """Commits of trees, each with the number of its parent among them, from 1 (0: none)."""
    out = []
    for number, (files, parent) in enumerate(trees, 1):
        out.append(b"" if parent else b"reset refs/heads/main\n\n")
        out.append(b"commit refs/heads/main\nmark :%d\ncommitter n <n@n> %d +0000\ndata 2\nx\n" % (number, 10**9))
        out.append((b"from :%d\n" % parent if parent else b"") + b"deleteall\n")
        for path, (mode, content) in sorted(files.items()):
            if mode == SUBMODULE:
                out.append(b"M 160000 %s %s\n" % (content, path.encode()))
            else:
                out.append(b"M %s inline %s\ndata %d\n%s\n" % (mode.encode(), path.encode(), len(content), content))
    out += [b"get-mark :%d\n" % number for number in range(1, len(trees) + 1)]
    argv = ["git", "fast-import", "--quiet", "--force", "--done"]
    done = subprocess.run(argv, cwd=repository, input=b"".join([*out, b"done\n"]), check=True, capture_output=True)
    return done.stdout.decode().split()


def _made(chance: random.Random) -> tuple[list[tuple[Files, int]], int]:
    """The trees of a history: the base, patches in a row, then targets; and how many patches there are."""
    base = some_files(chance)
    trees = [(base, 0)]
    patches = chance.randrange(1, 6)
    for number in range(1, patches + 1):
        trees.append((changed(chance, trees[-1][0], chance.choice([1, 1, 1, 2])), number))
    for _ in range(chance.randrange(2, 5)):
        files = changed(chance, base, chance.randrange(1, 7))
        if chance.random() < 0.35:  # upstream takes some files of a patch
            theirs = trees[chance.randrange(1, patches + 1)][0]
            for path in sorted(theirs.keys() | base.keys()):
                rest = {p: file for p, file in files.items() if p != path}
                if theirs.get(path) == base.get(path) or chance.random() < 0.3:
                    continue
                if path not in theirs:
                    files = rest
                elif not is_taken(rest, path):
                    files = {**rest, path: theirs[path]}
        if chance.random() < 0.2:
            files = met(chance, base, trees[chance.randrange(1, patches + 1)][0], files)
        trees.append((files, 1))
    return trees, patches


def met(chance: random.Random, base: Files, patched: Files, files: Files) -> Files:
    """With a folder renamed that a patch adds a file to, and in the new folder a file of that name."""
    added = [p for p in patched.keys() - base.keys() if any(b.startswith(f"{p.rpartition('/')[0]}/") for b in base)]
    if not added:
        return files
    path = chance.choice(sorted(added))
    folder, _, name = path.rpartition("/")
    rest = {p: file for p, file in files.items() if not p.startswith(f"{folder}/")}
    inside = {f"moved{p.removeprefix(folder)}": file for p, file in files.items() if p.startswith(f"{folder}/")}
    if not folder or any(is_taken(rest, place) for place in (*inside, f"moved/{name}")):
        return files
    there = chance.choice([patched[path], (PLAIN, b"".join(some_lines(chance, 9)))])
    return {**rest, f"moved/{name}": there, **inside}


def _for_a_reason(git: Git, patch: Patch, landing: Landing, tree: str, merged: str) -> str:
    """What git's merge comes to where it guesses as little as patchq does; ``merged`` where that isn't the landing."""
    carrying.ORT = ("merge.directoryRenames=false",)
    try:
        (plain,) = ort(git, patch.parent, [tree], patch.commit.tree)
    finally:
        carrying.ORT = ("merge.directoryRenames=true",)
    ours = {(c.path, c.new) for c in landing.changes if c.old != c.new}
    if plain and ours == {(c.path, c.new) for c in git.changes(tree, plain)}:
        return plain
    return merged


def compare(seed: int, tally: Tally) -> None:
    """One history; what differs is in ``tally.wrong``."""
    trees, count = _made(random.Random(seed))
    with tempfile.TemporaryDirectory(prefix="odd-") as folder:
        subprocess.run(["git", "init", "--quiet", "--bare", folder], check=True)
        ids = written(Path(folder), trees)
        git, goals = Git(Path(folder)), [CommitId(i) for i in ids[count + 1 :]]
        infos = [git.log("--no-walk", commit)[0] for commit in ids[1 : count + 1]]
        patches = read_patches(git, [(f"p{n}", info) for n, info in enumerate(infos)])
        columns = carry(git, patches, goals, CommitId(ids[0]))
        starts = git.tree_of(goals)
        for goal, (column, start) in enumerate(zip(columns, starts, strict=True)):
            tree: str = start
            for number, patch in enumerate(patches):
                landing = column.landings[number]
                try:
                    (merged,) = ort(git, patch.parent, [tree], patch.commit.tree)
                except subprocess.CalledProcessError:  # git 2.39's merge fails an assertion of its own
                    tally.lost += 1
                    break
                if landing.outcome not in STOPS:
                    if not merged and any(e.path in column.moved for e in patch.edits):
                        break  # followed past what git sees
                    merged = _for_a_reason(git, patch, landing, tree, merged)
                where = f"history {seed}, target {goal}, patch {number}"
                if not carrying.judge(git, where, landing, tree, merged, tally):
                    break
                tree = tree if landing.outcome in STOPS else merged


def main() -> int:
    """Compare, and print; 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    given = parser.parse_args()
    tally = Tally()
    for seed in range(given.first, given.first + given.count):
        compare(seed, tally)
    print(tally)
    for said in tally.wrong:
        print(f"  differs: {said}")
    return int(bool(tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
