"""Cache for the compilations that proofs run. The variable ``PATCHQ_COMPILATIONS`` names its folder.

This module uses the standard library only.

Several runs of the same proofs compile the same sources in different folders. The key of a
compilation covers all its inputs: the compiler's version, its arguments, the variables that it
reads, and the contents of the named files, of headers in the same folder, of header folders and
of whole patched trees. Paths of inputs and outputs are not part of the key. Only successful
compilations are kept, with the files and the output of the compiler.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_WRITTEN_TO = ("-odir", "--output-directory", "--keep-dir")
_INCLUDED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"(/[^"\n]+)"', re.M)


class Compilation:
    """One call of a compiler, and the folder of its results in the cache.

    :param version: version of the compiler.
    :param trees: folder of the patched trees.
    """

    def __init__(self, kept: Path, version: str, argv: Sequence[str], trees: Path, cwd: Path) -> None:
        self._written = list(_folders_written(argv, cwd))
        body = [version, *(f"{name}={os.environ.get(name)}" for name in _VARIABLES)]
        self._named: set[Path] = set()
        for arg in argv:
            body += self._known_by(arg, cwd, trees)
        body += [f"{tree.name} {_tree(tree)}" for tree in sorted(self._named)]
        self._kept = kept / hashlib.sha256(json.dumps(body).encode()).hexdigest()
        self._before = self._files()

    def take(self) -> tuple[str, str] | None:
        """Restore the compiled files from the cache, and return stdout and stderr; None if nothing is cached."""
        try:
            message = json.loads((self._kept / "said.json").read_text())
        except OSError:
            return None
        for number, folder in enumerate(self._written):
            shutil.copytree(self._kept / str(number), folder, dirs_exist_ok=True)
        return message[0], message[1]

    def keep(self, stdout: str, stderr: str) -> None:
        """Save the compiled files and the compiler's output in the cache."""
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        now = self._files()
        with tempfile.TemporaryDirectory(dir=self._kept.parent) as text:
            made = Path(text) / "made"
            for number, folder in enumerate(self._written):
                (made / str(number)).mkdir(parents=True)
                for path, state in now.items():
                    if path.parent == folder and self._before.get(path) != state:
                        shutil.copy2(path, made / str(number))
            (made / "said.json").write_text(json.dumps([stdout, stderr]))
            try:
                made.rename(self._kept)
            except OSError:  # another process saved the same result first
                if not self._kept.exists():
                    raise

    def _files(self) -> dict[Path, tuple[int, int]]:
        found = []
        for folder in self._written:
            if folder.is_dir():
                for path in folder.iterdir():
                    if path.is_file():
                        found.append(path)
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in found}

    def _known_by(self, arg: str, cwd: Path, trees: Path) -> Iterator[str]:
        """Yield the parts of the key for one argument: the content of an input, a placeholder for an output."""
        path = (cwd / arg.removeprefix("-I")).resolve()
        if trees in path.parents:
            name = path.relative_to(trees)
            self._named.add(trees / name.parts[0])
            yield arg[:2] + str(name)
        elif arg.startswith("-I"):
            yield "-I" + _content(path)
        elif path.is_file():
            yield from _with_included(path)
        else:
            for number, folder in enumerate(self._written):
                arg = arg.replace(str(folder), f"<{number}>")
            yield arg


def _folders_written(argv: Sequence[str], cwd: Path) -> Iterator[Path]:
    for option, value in itertools.pairwise(argv):
        if option in ("-o", "--output-file"):
            yield (cwd / value).parent
        elif option in _WRITTEN_TO:
            yield cwd / value


def _with_included(path: Path) -> Iterator[str]:
    """Yield the name and hash of a file outside the trees, and of the headers that the file may include.

    These headers are all headers in the same folder, and files that are included by an absolute path.
    """
    done: set[Path] = set()
    todo = [path]
    while todo:
        file = todo.pop()
        if file in done or not file.is_file():
            continue
        done.add(file)
        data = file.read_bytes()
        yield f"{file.name} {hashlib.sha256(data).hexdigest()}"
        if file.suffix in (".cu", ".cpp", ".h", ".cuh", ".inl"):
            todo += [Path(os.fsdecode(name)) for name in sorted(_INCLUDED.findall(data))]
            todo += sorted(p for p in file.parent.iterdir() if p.suffix in (".h", ".cuh", ".inl"))


def _content(folder: Path) -> str:
    """Return a hash of the paths and contents of a folder's files. Skip symbolic links."""
    digest = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in (".git", "__pycache__"))
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink() and name != ".git":
                digest.update(
                    os.fsencode(path.relative_to(folder)) + b"\0" + hashlib.sha256(path.read_bytes()).digest()
                )
    return digest.hexdigest()


#: Cached, because proofs don't change trees.
_tree = functools.cache(_content)
