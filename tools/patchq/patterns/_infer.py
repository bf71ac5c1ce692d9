"""Inference of rules from a patch's own changes.

Each change becomes a rule that matches once. The rule has several alternatives, which are different ways to
find the place of the change:

- changed lines: by these lines, or by the changed words and the words before or after them;
- added lines: by the lines before them and the beginning of the next line, or by the lines after
  them and the end of the previous line.

If upstream changes the text of one alternative, the others can still find the place. All alternatives that
match must give the same result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from patchq.formats.diff import split_lines
from patchq.patterns._matches import find_literal
from patchq.patterns.regenerate import RuleStop, TextTree, regenerate
from patchq.patterns.rules import Rule, Substitution, decode

_TOKEN = re.compile(rb"\w+|\s+|[^\w\s]")
_WORD = re.compile(rb"\w")
#: Limit of context lines in a rule; number of words that identify a place; length of a single word
#: that is enough.
_MOST_LINES, _LEAST_WORDS, _LONG_WORD = 12, 2, 6


@dataclass(frozen=True, slots=True)
class _LineChange:
    """Lines of the old text, from ``start`` to ``end``, which the patch replaces by ``new``."""

    start: int
    end: int
    new: tuple[bytes, ...]


def infer(path: bytes, old: bytes, new: bytes) -> list[Rule]:
    """Return rules that turn ``old`` into ``new``; an empty list if no text identifies the place of a change.

    :param path: path of the file to which the rules apply.
    """
    old, new = _same_ends(old, new)
    found: list[Rule] = []
    lines = split_lines(old)
    shift = 0
    for change in _changes(lines, split_lines(new)):
        at = _LineChange(change.start + shift, change.end + shift, change.new)
        ways = [way for way in _ways(lines, at) if way]
        if not ways:
            return []
        alternatives = []
        for find, to in dict.fromkeys(ways):
            alternatives.append(Substitution(decode(find), decode(to)))
        found.append(Rule(files=(decode(path),), alternatives=tuple(alternatives), times=1, changed=1))
        lines = [*lines[: at.start], *at.new, *lines[at.end :]]
        shift += len(at.new) - (at.end - at.start)
    try:
        same = regenerate(found, TextTree({path: old})) == {path: new}
    except RuleStop:
        return []
    if same:
        return found
    return []


def _same_ends(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """Return both texts with LF line ends, if all their lines end with CRLF. Rules always use LF."""
    for text in (old, new):
        if not text.count(b"\r") == text.count(b"\r\n") == text.count(b"\n"):
            return old, new
    return old.replace(b"\r\n", b"\n"), new.replace(b"\r\n", b"\n")


def _changes(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[_LineChange]:
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield _LineChange(a, b, tuple(new[c:d]))


def _ways(lines: Sequence[bytes], change: _LineChange) -> list[tuple[bytes, bytes] | None]:
    """Return the alternatives to find a change, each as the text to find and its replacement."""
    sides = [(True, False), (False, True), (True, True)]
    if change.start < change.end:
        found = [_lines(lines, change, before=before, after=after) for before, after in sides]
        return [*found, _words(lines, change, left=True), _words(lines, change, left=False)]
    return [_between(lines, change, before=before, after=after) for before, after in sides]


def _lines(lines: Sequence[bytes], change: _LineChange, *, before: bool, after: bool) -> tuple[bytes, bytes] | None:
    """Return the changed lines with the fewest context lines that make them unique.

    :param before, after: sides on which to add context.
    """
    text = b"".join(lines)
    for count in range(_MOST_LINES + 1):
        start = max(0, change.start - count * before)
        end = min(len(lines), change.end + count * after)
        find = b"".join(lines[start:end])
        if find.endswith(b"\n") and _identifies(find, text):
            return find, b"".join([*lines[start : change.start], *change.new, *lines[change.end : end]])
    return None


def _between(lines: Sequence[bytes], change: _LineChange, *, before: bool, after: bool) -> tuple[bytes, bytes] | None:
    """Return text that identifies the place of added lines, and its replacement.

    The text contains only as many context lines as needed to make it unique. On a side without context lines,
    it contains only the nearest part of the adjacent line. Before the addition, this part may be an empty
    line; after the addition, it contains a word. So if upstream also adds lines at this place, upstream's
    lines come first.

    :param before, after: sides on which to add context lines.
    """
    text, at = b"".join(lines), change.start
    for count in range(1, _MOST_LINES + 1):
        left, right = lines[max(0, at - count) : at], lines[at : at + count]
        if before:
            one = b"".join(left)
        else:
            one = _near_end(left[-1:], first=False)
        other = b"".join(right)
        if not after or not _words_of(other):
            other = _near_end(lines[at : at + _MOST_LINES], first=True)
        if not before:
            other = other.removesuffix(b"\n")  # a text that ends with a newline would match at the start of a line only
        if _identifies(one + other, text):
            return one + other, b"".join([one, *change.new, other])
    return None


def _near_end(lines: Sequence[bytes], *, first: bool) -> bytes:
    """Return the beginning of lines up to their first word, or their end starting with the last word.

    Return the whole text if it contains no word.
    """
    tokens = _TOKEN.findall(b"".join(lines))
    words = []
    for n, token in enumerate(tokens):
        if _WORD.match(token):
            words.append(n)
    if not words:
        return b"".join(tokens)
    return b"".join(tokens[: words[0] + 1] if first else tokens[words[-1] :])


def _identifies(find: bytes, text: bytes) -> bool:
    words = _words_of(find)
    named = len(words) >= _LEAST_WORDS or max(map(len, words), default=0) >= _LONG_WORD
    return named and len(find_literal(find, b"", text)) == 1


def _words_of(text: bytes) -> list[bytes]:
    found: list[bytes] = []
    for token in _TOKEN.findall(text):
        if _WORD.match(token):
            found.append(token)
    return found


def _words(lines: Sequence[bytes], change: _LineChange, *, left: bool) -> tuple[bytes, bytes] | None:
    """Return the changed words of lines with the fewest neighbouring words that make them unique.

    :param left: add words on the left first; otherwise, add words on the right first.
    """
    old = _TOKEN.findall(b"".join(lines[change.start : change.end]))
    new = _TOKEN.findall(b"".join(change.new))
    least = min(len(old), len(new))
    first = 0
    while first < least and old[first] == new[first]:
        first += 1
    last = 0
    while last < least - first and old[-1 - last] == new[-1 - last]:
        last += 1
    text = b"".join(lines)
    start, end = first, len(old) - last
    while True:
        find = b"".join(old[start:end])
        if b"\n" in find.strip(b"\n") or find.endswith(b"\n"):
            return None
        if find and _identifies(find, text):
            to = b"".join([*old[start:first], *new[first : len(new) - last], *old[len(old) - last : end]])
            return find, to
        wider = _wider(old, start, end, left=left)
        if wider == (start, end):
            return None
        start, end = wider


def _wider(tokens: Sequence[bytes], start: int, end: int, *, left: bool) -> tuple[int, int]:
    """Extend a range of tokens by one token of the same line; return it unchanged if there is none."""
    on_left = start > 0 and b"\n" not in tokens[start - 1]
    on_right = end < len(tokens) and b"\n" not in tokens[end]
    if on_left and (left or not on_right):
        return start - 1, end
    return start, end + on_right
