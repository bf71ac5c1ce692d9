"""Mutants of one file: its content with one small error in given lines.

The module ``strength`` selects the files and lines. Mutation operators find the edits in the file's syntax tree. All
other bytes of the file stay unchanged. LibCST parses Python; tree-sitter parses C++, CUDA and Jinja; cmake-parser
parses CMake. Other files are not mutated.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from patchq.mutation._edit import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """File with one small error in a line of a patch.

    :ivar line: line of the edit in the patched file, from 1.
    :ivar name: hash of the path, and of the edited lines before and after the edit. Changes of other lines keep the
        name.
    :ivar content: contents of the whole mutated file.
    """

    path: str
    line: int
    operator: str
    before: str
    after: str
    name: str
    content: bytes

    def diff(self) -> str:
        """Return the edit as a diff of the changed lines."""
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=0)
        body = []
        for line in lines:
            if not line.startswith(("---", "+++", "@@")):
                body.append(line)
        return "\n".join([f"{self.path}:{self.line} ({self.operator})", *body])


def mutants_of(path: str, content: bytes, lines: Collection[int]) -> list[Mutant]:
    """Return all mutants of the given lines of a file, in order.

    If several mutants have the same content, only the first one is returned.

    :param lines: numbers of the lines to mutate, from 1. Edits that also change other lines are skipped.
    """
    found: list[Mutant] = []
    seen = {content}
    names: dict[str, int] = {}
    for edit in sorted(_edits(path, content), key=lambda e: (e.start, e.end, e.operator, e.new)):
        first = content.count(b"\n", 0, edit.start) + 1
        if any(first + n not in lines for n in range(content.count(b"\n", edit.start, edit.end) + 1)):
            continue
        changed = content[: edit.start] + edit.new + content[edit.end :]
        if changed in seen:
            continue
        seen.add(changed)
        found.append(_mutant(path, content, edit, changed, names))
    return found


def _mutant(path: str, content: bytes, edit: Edit, changed: bytes, names: dict[str, int]) -> Mutant:
    first = content.rfind(b"\n", 0, edit.start) + 1
    last = content.find(b"\n", edit.end)
    if last < 0:
        last = len(content)
    before, after = content[first:last], changed[first : last + len(edit.new) - (edit.end - edit.start)]
    message = b"\0".join([path.encode(), before.strip(), after.strip()])
    digest = hashlib.sha256(message).hexdigest()[:10]
    names[digest] = names.get(digest, 0) + 1
    name = digest if names[digest] == 1 else f"{digest}-{names[digest]}"  # a repeated line
    return Mutant(
        path=path,
        line=content.count(b"\n", 0, edit.start) + 1,
        operator=edit.operator,
        before=before.decode("utf-8", "replace"),
        after=after.decode("utf-8", "replace"),
        name=name,
        content=changed,
    )


def _edits(path: str, content: bytes) -> Iterator[Edit]:
    language = language_of(path)
    if language == "python":
        from patchq.mutation._with_libcst import edits as of_python

        yield from of_python(content)
    elif language == "cmake":
        from patchq.mutation._with_cmake_parser import edits as of_cmake

        yield from of_cmake(content)
    elif language:
        from patchq.mutation._with_tree_sitter import edits_by

        yield from edits_by(language, content)


def language_of(path: str) -> str:
    """Return ``python``, ``cuda`` (also for C++), ``cmake`` or ``jinja``; empty for other files."""
    name = PurePosixPath(path)
    if name.suffix == ".py":
        return "python"
    if name.suffix in (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".inl", ".c"):
        return "cuda"
    if name.suffix == ".cmake" or name.name == "CMakeLists.txt":
        return "cmake"
    if name.suffix in (".jinja", ".j2", ".jinja2"):
        return "jinja"
    return ""
