"""Check that a merge contains all changes of both sides, and no others.

The check counts each word in the files. If one side adds or removes a word, the result must do the same. If
both sides made the same change, the result may contain it once or twice.
"""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from pathlib import PurePath
from typing import TypeVar

from patchq.names import TreeId
from patchq.resolutions._sides import BLANKS_FREE, PROSE, Sides

_WORD = re.compile(rb"\w+|[^\w\s]")
_NAME = re.compile(rb"\w+")
#: Strings and comments of most languages. An unterminated string ends with its line.
_QUOTED = re.compile(
    rb'''"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"?|\'(?:[^\'\\\n]|\\.)*\'?'''
    rb"|/\*.*?\*/|//[^\n]*|#(?![ \t]*(?:define|if|el|include|undef|pragma))[^\n]*",
    re.DOTALL,
)
_LONG_NAME = re.compile(rb"\b[A-Za-z_]\w{2,}")
T = TypeVar("T", bound=Hashable)


def lost_change(sides: Sides, tree: TreeId) -> str:
    """Return a word that is too frequent or too rare in the result; empty if there is no such word."""
    base, ours, theirs, result = map(_count, sides.versions(tree, sides.changed_by(tree)))
    word = _unlike(base, ours, theirs, result)
    if word is not None:
        return word.decode("utf-8", "replace")
    return ""


def made_twice(sides: Sides, tree: TreeId) -> str:
    """Return a line that both sides add, and that the result contains more often than either side does.

    Return an empty string if there is no such line.
    """
    base, ours, theirs, result = map(_count_lines, sides.versions(tree, sides.changed_by(tree)))
    for line, count in result.items():
        added_by_both = min(ours[line], theirs[line]) > base[line]
        if added_by_both and count > max(ours[line], theirs[line]):
            return line.decode("utf-8", "replace")
    return ""


def stale_name(sides: Sides, tree: TreeId) -> str:
    """Return a name that one side removes from a file, but that the result still contains; empty if there is none.

    Such a name was probably renamed, and the added lines still use the old name.
    """
    for path in sorted(sides.changed_by(tree)):
        if PurePath(os.fsdecode(path)).suffix.lower() in PROSE:
            continue
        versions = sides.contents(tree, path)
        if sides.files and path in sides.files:  # upstream may have moved the file
            versions[:3] = sides.files[path]
        base, ours, theirs, result = map(_names, versions)
        found = (base & result) - (ours & theirs)
        if found:
            return f"{min(found).decode('utf-8', 'replace')} in {os.fsdecode(path)}"
    return ""


def _names(source: bytes) -> set[bytes]:
    """Return the names in a file's source, except those in strings and comments."""
    return set(_LONG_NAME.findall(_QUOTED.sub(b" ", source)))


def _count(files: Mapping[bytes, bytes]) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for content in files.values():
        found.update(_WORD.findall(content))
    return found


def _count_lines(files: Mapping[bytes, bytes]) -> Counter[bytes]:
    """Count the lines that contain at least two words. Blanks are ignored."""
    found: Counter[bytes] = Counter()
    for content in files.values():
        for line in content.splitlines():
            if len(_NAME.findall(line)) > 1:
                found[b" ".join(line.split())] += 1
    return found


def _unlike(base: Counter[T], ours: Counter[T], theirs: Counter[T], result: Counter[T]) -> T | None:
    """Return the first item whose count in the result is wrong; None if all are right.

    The right count is the base's count plus the changes of both sides. If both sides made the same change, the change
    may count once or twice.
    """
    for item in {**ours, **theirs, **base, **result}:
        by_us, by_them = ours[item] - base[item], theirs[item] - base[item]
        made = result[item] - base[item]
        both = by_us + by_them
        allowed = {both}
        if by_us > 0 and by_them > 0:
            allowed = set(range(max(by_us, by_them), both + 1))
        elif by_us < 0 and by_them < 0:
            allowed = set(range(both, min(by_us, by_them) + 1))
        if made not in allowed:
            return item
    return None


def misplaced(sides: Sides, tree: TreeId) -> str:
    """Return a file in which ignored blanks may have changed the meaning; empty if there is none.

    In a Python file, each statement must be in the same blocks as on the side that changed it.
    """
    for path in sorted(sides.changed_by(tree)):
        suffix = PurePath(os.fsdecode(path)).suffix.lower()
        if suffix in BLANKS_FREE:
            continue
        versions = sides.contents(tree, path)
        if versions[3] == versions[1] or (versions[3] == versions[2] and versions[0] == versions[1]):
            continue
        if suffix not in (".py", ".pyi"):
            return os.fsdecode(path)
        try:
            base, ours, theirs, result = map(_statements, versions)
        except (SyntaxError, ValueError, RecursionError):
            return os.fsdecode(path)
        if _unlike(base, ours, theirs, result):
            return os.fsdecode(path)
    return ""


def _statements(source: bytes) -> Counter[tuple[str, ...]]:
    """Count the statements of a Python file. Equal statements in different blocks are counted separately.

    :raises SyntaxError, ValueError, RecursionError: if the file can't be parsed.
    """
    return Counter(_placed(ast.parse(source), ()))


def _placed(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield each statement with the header lines of the blocks around it."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else ():
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                place = (*inside, name, _head(child))
                yield place
                yield from _placed(child, place)


def _head(node: ast.AST) -> str:
    """Return a statement without the statements inside it."""
    parts = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        items = value if isinstance(value, list) else [value]
        if not any(isinstance(item, ast.stmt | ast.ExceptHandler) for item in items):
            parts.append(name + ",".join(map(_dump, items)))
    return " ".join(parts)


def _dump(item: object) -> str:
    if isinstance(item, ast.AST):
        return ast.dump(item)
    return repr(item)
