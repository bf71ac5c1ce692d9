"""Merges of smaller pieces than git uses: changes of adjacent lines, and additions of both sides.

Git reports a conflict if both sides change the same or adjacent lines. Here, each conflict region is resolved on its
own. If the sides change different words of the same line, the conflict stays, because two of six such merges in public
histories were wrong.
"""

from __future__ import annotations

import ast
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePath

from patchq.git.repository import Git
from patchq.resolutions._sides import PROSE, Sides
from patchq.system import fsio

ADJACENT, BOTH = "adjacent lines", "both additions"
PYTHON = frozenset({".py", ".pyi"})
_MARKER = 40
#: Product of the lengths of two texts above which they are not compared.
_MOST_COMPARED = 4_000_000
#: Entry that begins or ends a section of a changelog, so that the order of entries matters.
_ITEM = re.compile(rb"\s*(?:[-*+]|\d+[.)])\s")
_UNDERLINE = re.compile(rb"([=\-~^\"'*+#`])\1{2,}")
_RELEASE = re.compile(rb"\brelease\b|\bversion\s+\d|\b\d{4}-\d\d-\d\d\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Region:
    """Conflicting lines in base, ours and theirs."""

    base: bytes
    ours: bytes
    theirs: bytes


def merge_pieces(sides: Sides) -> tuple[str, dict[bytes, bytes]] | None:
    """Return the methods that resolve all conflicts, and the resolved files; None if a conflict is left."""
    if not sides.files:
        return None
    used = set[str]()
    files = {}
    for path, versions in sides.files.items():
        merged = []
        for part in regions(sides.git, *versions):
            if isinstance(part, bytes):
                merged.append(part)
                continue
            found = resolve_region(path, part)
            if found is None:
                return None
            if found[0] == BOTH and _is_prose(path) and _moves(part, b"".join(merged), versions):
                return None
            used.add(found[0])
            merged.append(found[1])
        files[path] = b"".join(merged)
    if not used:  # git's other algorithms find the same
        return None
    return ", ".join(name for name in (ADJACENT, BOTH) if name in used), files


def regions(git: Git, base: bytes, ours: bytes, theirs: bytes) -> Iterator[bytes | Region]:
    """Yield the merged texts and the conflict regions of a file, in order."""
    with fsio.temporary_folder() as folder:
        names = ("ours", "base", "theirs")
        for name, content in zip(names, (ours, base, theirs), strict=True):
            (folder / name).write_bytes(content)
        argv = ("merge-file", "-p", "--diff3", f"--marker-size={_MARKER}", *(str(folder / name) for name in names))
        text = git.ask(*argv, ok_codes=range(256)).stdout
    marks = {mark * _MARKER: number for number, mark in enumerate((b"<", b"|", b"=", b">"))}
    merged: list[bytes] = []
    parts: list[list[bytes]] = []
    for line in text.splitlines(keepends=True):
        number = marks.get(line[:_MARKER])
        if number == len(parts) == 0:
            yield b"".join(merged)
        if number is not None and number == len(parts) and number < 3:
            parts.append([])
        elif number == len(parts) == 3:
            our_lines, base_lines, their_lines = map(b"".join, parts)
            yield Region(base_lines, our_lines, their_lines)
            merged, parts = [], []
        else:
            (parts[-1] if parts else merged).append(line)
    yield b"".join(merged)


def resolve_region(path: bytes, region: Region) -> tuple[str, bytes] | None:
    """Return the method that resolves a region, and the resulting text; None if no method resolves it."""
    suffix = PurePath(os.fsdecode(path)).suffix.lower()
    methods: list[tuple[str, Callable[[Region], bytes | None]]] = [(ADJACENT, _adjacent_lines)]
    if suffix in PYTHON:
        methods.append((BOTH, _both_definitions))
    elif _is_prose(path):
        methods.append((BOTH, _both_paragraphs))
    for name, method in methods:
        found = method(region)
        if found is not None:
            return name, found
    return None


def _is_prose(path: bytes) -> bool:
    suffix = PurePath(os.fsdecode(path)).suffix.lower()
    return suffix in PROSE or not suffix


def _moves(region: Region, before: bytes, versions: Sequence[bytes]) -> bool:
    """Return True if entries get under another heading, such as that of a release that is out since.

    :param before: merged text above the region.
    :param versions: file in base, ours and theirs.
    """
    for added, version in ((region.ours, versions[1]), (region.theirs, versions[2])):
        if version.count(added) != 1 or _heading(version[: version.index(added)]) != _heading(before):
            return True
    return False


def _heading(text: bytes) -> bytes:
    """Return the last heading of a text in Markdown or reStructuredText; empty if it has none."""
    lines = text.splitlines()
    for line, after in zip(reversed(lines), [b"", *reversed(lines)], strict=False):
        if line.startswith(b"#") or (line.strip() and _UNDERLINE.fullmatch(after.strip())):
            return line.strip()
    return b""


# Adjacent lines


@dataclass(frozen=True, slots=True, order=True)
class _SideEdit:
    """Replacement of ``base[start:end]`` by one of the sides (0 or 1)."""

    start: int
    end: int
    side: int
    new: tuple[bytes, ...]

    @property
    def is_insertion(self) -> bool:
        return self.start == self.end

    @property
    def keeps_count(self) -> bool:
        return self.end - self.start == len(self.new)


def _edits(base: Sequence[bytes], other: Sequence[bytes], side: int) -> list[_SideEdit]:
    codes = SequenceMatcher(None, base, other, autojunk=False).get_opcodes()
    edits: list[_SideEdit] = []
    for tag, i, j, k, end in codes:
        if tag != "equal":
            edits.append(_SideEdit(i, j, side, tuple(other[k:end])))
    return edits


def _merge(base: Sequence[bytes], edits: Sequence[_SideEdit]) -> list[bytes] | None:
    """Apply the edits of both sides; return None if two of them collide."""
    merged: list[bytes] = []
    at = 0
    last: _SideEdit | None = None
    for edit in sorted(edits):
        if last and (last.start, last.end, last.new) == (edit.start, edit.end, edit.new):
            continue
        if last and _collide(last, edit):
            return None
        merged += (*base[at : edit.start], *edit.new)
        at, last = edit.end, edit
    return [*merged, *base[at:]]


def _collide(first: _SideEdit, second: _SideEdit) -> bool:
    """Return whether two edits collide: they overlap, or they are adjacent and the order of their lines is unclear."""
    if second.start < first.end:
        return True
    if second.start > first.end or first.side == second.side:
        return False
    if first.is_insertion and second.is_insertion:
        return True
    if first.is_insertion:
        replacing = second
    else:
        replacing = first
    return (first.is_insertion or second.is_insertion) and not replacing.keeps_count


def _adjacent_lines(region: Region) -> bytes | None:
    """Merge changes of adjacent lines, which git reports as a conflict."""
    base, ours, theirs = region.base.splitlines(True), region.ours.splitlines(True), region.theirs.splitlines(True)
    if len(base) * max(len(ours), len(theirs)) > _MOST_COMPARED or not _ends_lines(region):
        return None
    merged = _merge(base, [*_edits(base, ours, 0), *_edits(base, theirs, 1)])
    if merged is None:
        return None
    return b"".join(merged)


def _ends_lines(region: Region) -> bool:
    """Return whether the text of each side ends with a line break."""
    return all(not text or text.endswith(b"\n") for text in (region.base, region.ours, region.theirs))


# Additions of both sides in the same place


def _both_paragraphs(region: Region) -> bytes | None:
    """Keep the entries that each side adds to a list or a changelog, upstream's entries first."""
    if region.base.strip() or not _ends_lines(region):
        return None
    ours, theirs = _entries(region.ours), _entries(region.theirs)
    if not ours or not theirs or ours & theirs:
        return None
    return region.ours + region.theirs


def _entries(text: bytes) -> set[bytes]:
    """Return the list entries of a text, without blanks; empty if the text contains anything but a list."""
    lines = list(filter(bytes.strip, text.splitlines()))
    if _RELEASE.search(text) or not lines or not _ITEM.match(lines[0]):
        return set()
    if _indent(lines[0]) > min(map(_indent, lines)):
        return set()
    return {b"".join(line.split()) for line in lines}


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip())


def _both_definitions(region: Region) -> bytes | None:
    """Keep the functions, classes or imports that each side adds to a Python file, upstream's first."""
    if region.base.strip() or not _ends_lines(region):
        return None
    ours, theirs = _names(region.ours), _names(region.theirs)
    if not ours or not theirs or ours[0] != theirs[0] or ours[1] & theirs[1]:
        return None
    return region.ours + region.theirs


def _names(source: bytes) -> tuple[type, frozenset[str]] | None:
    """Return the kind and names of the definitions or imports in a source; None if it contains anything else."""
    try:
        body = ast.parse(textwrap.dedent(source.decode())).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    names: list[str] = []
    kinds = set[type]()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kinds.add(ast.FunctionDef)
            names.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            kinds.add(ast.Import)
            names += (alias.asname or alias.name for alias in node.names)
        else:
            return None
    if len(kinds) == 1:
        return (kinds.pop(), frozenset(names))
    return None
