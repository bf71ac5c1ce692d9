"""Mutants: a file with one small thing wrong in the lines that a patch made.

An operator looks at a syntax tree and says which bytes become which; the rest of the file stays as it is, byte for
byte. LibCST reads Python, tree-sitter C++, CUDA and Jinja, cmake-parser CMake. What a file of another kind holds is not
mutated.
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
    """One edit of a patch's lines.

    :ivar line: where it is in the patched file, from 1.
    :ivar name: of its path, its lines and what became of them: the same as long as those are.
    :ivar content: the whole file with it.
    """

    path: str
    line: int
    operator: str
    before: str
    after: str
    name: str
    content: bytes

    def diff(self) -> str:
        """The edit as a diff of the lines that it changes."""
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=0)
        body = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        return "\n".join([f"{self.path}:{self.line} ({self.operator})", *body])


def mutants_of(path: str, content: bytes, lines: Collection[int]) -> list[Mutant]:
    """All mutants of a file in some of its lines, in the file's order; none where two would give the same bytes.

    :param lines: those that may be changed, counted from 1; what reaches into another line stays.
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
    last = len(content) if last < 0 else last
    before, after = content[first:last], changed[first : last + len(edit.new) - (edit.end - edit.start)]
    said = b"\0".join([path.encode(), before.strip(), after.strip()])
    digest = hashlib.sha256(said).hexdigest()[:10]
    names[digest] = names.get(digest, 0) + 1
    name = digest if names[digest] == 1 else f"{digest}-{names[digest]}"  # the same line stands twice
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
    """``python``, ``cuda`` (C++ too), ``cmake``, ``jinja``, or nothing."""
    name = PurePosixPath(path)
    if name.suffix == ".py":
        return "python"
    if name.suffix in (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".inl", ".c"):
        return "cuda"
    if name.suffix == ".cmake" or name.name == "CMakeLists.txt":
        return "cmake"
    return "jinja" if name.suffix in (".jinja", ".j2", ".jinja2") else ""
