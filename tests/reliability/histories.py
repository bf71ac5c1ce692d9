"""A history made at random that has what trips merges: words that repeat, functions that are copied and moved.

Blank lines and closing lines are everywhere, functions have the same bodies, blocks are doubled, moved within a file
and between files, changes are taken back, files are renamed, lose their last newline, have other line ends.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

#: Few words, so that the same lines stand in many places.
WORDS = ("n", "total", "rest(n)", "n * 2", "n + 1", "None", "queue", "size(n)")


class History:
    """Files as lists of lines, and the commits that changed them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.count = 0
        self.files: dict[str, list[bytes]] = {}
        self.past: list[dict[str, list[bytes]]] = []
        for number in range(8):
            end = b"\r\n" if number == 3 else b"\n"
            lines = [line for _ in range(self.chance.randrange(3, 12)) for line in self.function(end)]
            self.files[f"pkg{number % 3}/m{number}.py"] = lines
        self.files["small.txt"] = [b"one\n"]
        self.files["table.csv"] = [b"0,0,0\n"] * 60

    def line(self, end: bytes = b"\n") -> bytes:
        kind, word = self.chance.randrange(5), self.chance.choice(WORDS).encode()
        if kind == 4:
            self.count += 1
            return b"    log('%d', %s)%s" % (self.count, word, end)
        forms = (b"    total += %s", b"    check(%s)", b"    if %s:\n        return", b"    n = int(%s)")
        return forms[kind].replace(b"%s", word).split(b"\n")[0] + end

    def function(self, end: bytes = b"\n") -> list[bytes]:
        self.count += 1
        body = [self.line(end) for _ in range(self.chance.randrange(3, 12))]
        return [b"def f%d(n):" % self.count + end, *body, b"    return total" + end, end, end]

    def pick(self) -> list[bytes]:
        return self.files[self.chance.choice(sorted(self.files))]

    def functions(self, lines: list[bytes]) -> list[tuple[int, int]]:
        starts = [n for n, line in enumerate(lines) if line.startswith(b"def ")]
        return list(zip(starts, [*starts[1:], len(lines)], strict=False))

    # What people do

    def edit(self, lines: list[bytes]) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            at = self.chance.randrange(len(lines) + 1)
            end = at + self.chance.choice((0, 0, 1, 1, 2, 5))
            lines[at:end] = [self.line() for _ in range(self.chance.choice((0, 1, 1, 2, 4)))]

    def add(self, lines: list[bytes]) -> None:
        at = self.chance.choice([n for n, _ in self.functions(lines)] or [0, len(lines)])
        lines[at:at] = self.function()

    def copy(self, lines: list[bytes]) -> None:
        """A function once more, under another name, and perhaps the first one changed: as in the case that began it."""
        places = self.functions(lines)
        if not places:
            return
        start, end = self.chance.choice(places)
        block = list(lines[start:end])
        if self.chance.random() < 0.8:
            self.count += 1
            block[0] = b"def g%d(n):\n" % self.count
        if self.chance.random() < 0.5:
            lines[start + 1 : start + 2] = [self.line()]
        target = lines if self.chance.random() < 0.7 else self.pick()
        at = self.chance.choice([n for n, _ in self.functions(target)] or [len(target)])
        target[at:at] = block

    def move(self, lines: list[bytes]) -> None:
        places = self.functions(lines)
        if not places:
            return
        start, end = self.chance.choice(places)
        block = lines[start:end]
        del lines[start:end]
        target = lines if self.chance.random() < 0.8 else self.pick()
        at = self.chance.choice([*(n for n, _ in self.functions(target)), len(target)])
        target[at:at] = block

    def drop(self, lines: list[bytes]) -> None:
        if places := self.functions(lines):
            start, end = self.chance.choice(places)
            del lines[start:end]

    def ends(self, lines: list[bytes]) -> None:
        """The last line with or without its newline, or all with other ends."""
        if lines and self.chance.random() < 0.8:
            lines[-1] = lines[-1].removesuffix(b"\n") if lines[-1].endswith(b"\n") else lines[-1] + b"\n"
        else:
            lines[:] = [line.rstrip(b"\r\n") + b"\r\n" for line in lines]

    def rename(self, _: list[bytes]) -> None:
        old = self.chance.choice(sorted(self.files))
        self.count += 1
        self.files[f"pkg{self.chance.randrange(4)}/m{self.count}.py"] = self.files.pop(old)

    def revert(self, _: list[bytes]) -> None:
        """A file as it was some commits ago."""
        then = self.chance.choice(self.past[-12:])
        path = self.chance.choice(sorted(then))
        self.files[path] = list(then[path])

    def step(self) -> None:
        """One commit's worth."""
        self.past.append({path: list(lines) for path, lines in self.files.items()})
        acts = (self.edit, self.edit, self.edit, self.edit, self.add, self.add, self.copy, self.copy, self.move,
                self.drop, self.ends, self.rename, self.revert)  # fmt: skip
        for _ in range(self.chance.choice((1, 1, 2))):
            self.chance.choice(acts)(self.pick())
        for path, lines in self.files.items():  # a line ends before another begins
            self.files[path] = [line if line.endswith(b"\n") else line + b"\n" for line in lines[:-1]] + lines[-1:]


def make(folder: Path, seed: int, commits: int, *, every: int = 6) -> Path:
    """A repository of so many commits, each ``every``-th tagged; beside each tag a branch that took some of what
    comes after it, tagged too. Returns it."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    history = History(seed)
    parts: list[bytes] = []
    trees: list[dict[str, bytes]] = []

    def commit(mark: int, ref: str, files: dict[str, bytes], parent: int) -> None:
        who = b"n <n@n> %d +0000" % (946684800 + 60 * mark)
        parts.append(b"commit %s\nmark :%d\nauthor %s\ncommitter %s\n" % (ref.encode(), mark, who, who))
        parts.append(b"data <<END\nnumber %d\nEND\n" % mark)
        parts.append((b"from :%d\n" % parent if parent else b"") + b"deleteall\n")
        for path, data in sorted(files.items()):
            mode = b"100755" if len(data) % 7 == 0 else b"100644"
            parts.append(b"M %s inline %s\ndata %d\n%s\n" % (mode, path.encode(), len(data), data))

    for number in range(1, commits + 1):
        if number > 1:
            history.step()
        trees.append({path: b"".join(lines) for path, lines in history.files.items()})
        commit(number, "refs/heads/main", trees[-1], number - 1)
    mark = commits
    for number in range(every, commits - every, every):
        parts.append(b"reset refs/tags/v%d\nfrom :%d\n\n" % (number, number))
        files, parent = dict(trees[number - 1]), number
        for later in sorted(history.chance.sample(range(number, number + every), 2)):
            # Whole files of a later commit, as a backport has them.
            changed = [p for p in trees[later] if trees[later][p] != trees[later - 1].get(p) and p in files]
            files |= {path: trees[later][path] for path in changed[:2]}
            mark += 1
            commit(mark, f"refs/heads/r{number}", files, parent)
            parent = mark
        parts.append(b"reset refs/tags/v%d.1\nfrom :%d\n\n" % (number, mark))
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=b"".join(parts), check=True)
    return folder
