"""Infer rules from a patch's changes.

Each change becomes a rule that matches once. A rule has several alternatives, each with another text to find:

- for changed lines: the lines themselves, or only the changed words with the words before or after them;
- for added lines: the lines before them with the beginning of the next line, or the lines after them with the
  end of the previous line.

If upstream changes the text of one alternative, the others can still match. All alternatives that match must
give the same result.
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
#: Most context lines in a rule. A text can identify a place if it has two words, or one word of six letters.
_MOST_LINES, _LEAST_WORDS, _LONG_WORD = 12, 2, 6


@dataclass(frozen=True, slots=True)
class _LineChange:
    """Replacement of the old text's lines from ``start`` to ``end`` by the lines ``new``."""

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
    """Return both texts; convert CRLF to LF if all lines end with CRLF. Rules always use LF."""
    for text in (old, new):
        if not text.count(b"\r") == text.count(b"\r\n") == text.count(b"\n"):
            return old, new
    return old.replace(b"\r\n", b"\n"), new.replace(b"\r\n", b"\n")


def _changes(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[_LineChange]:
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield _LineChange(a, b, tuple(new[c:d]))


def _ways(lines: Sequence[bytes], change: _LineChange) -> list[tuple[bytes, bytes] | None]:
    """Return the alternatives of a rule, each as the text to find and its replacement.

    An alternative is None if its text isn't unique in the file.
    """
    sides = [(True, False), (False, True), (True, True)]
    if change.start < change.end:
        found = [_lines(lines, change, before=before, after=after) for before, after in sides]
        return [*found, _words(lines, change, left=True), _words(lines, change, left=False)]
    return [_between(lines, change, before=before, after=after) for before, after in sides]


def _lines(lines: Sequence[bytes], change: _LineChange, *, before: bool, after: bool) -> tuple[bytes, bytes] | None:
    """Return the text to find for changed lines, and its replacement.

    Add as few context lines as possible to make the text unique in the file. Return None if it can't be made unique.

    :param before, after: sides on which to add context lines.
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

    Add as few context lines as possible to make the text unique in the file. Return None if it can't be made unique. On
    a side without context lines, use only the part of the adjacent text up to the nearest word. After the added lines,
    this part always contains a word; before them, it may be an empty line. So if upstream also adds lines at this
    place, upstream's lines come first.

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
    """Return the text of lines up to their first word; if ``first`` is False, the text from their last word on.

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
    """Return the text to find for the changed words of lines, and its replacement.

    Add as few neighbouring words as possible to make the text unique in the file. Return None if it can't be made
    unique.

    :param left: True to add words on the left first; False to add words on the right first.
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
    """Extend a range of tokens by one token of the same line; if there is no such token, return the range unchanged."""
    on_left = start > 0 and b"\n" not in tokens[start - 1]
    on_right = end < len(tokens) and b"\n" not in tokens[end]
    if on_left and (left or not on_right):
        return start - 1, end
    return start, end + on_right
