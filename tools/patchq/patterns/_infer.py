"""Rules inferred from a patch's own changes.

Each change becomes a rule of one match, with several ways to find its place: the changed lines, and
the changed words with those before or after them; for added lines, the lines before them with the
beginning of the next one, and the lines after them with the end of the previous one. Upstream may
change one of them, and the rule still finds the place. Those that match must agree.
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
#: Most lines of context that a rule may need, fewest words that identify a place, and the length of
#: a word that identifies one alone.
_MOST_LINES, _LEAST_WORDS, _LONG_WORD = 12, 2, 6


@dataclass(frozen=True, slots=True)
class _LineChange:
    """Lines of the old text, from ``start`` to ``end``, that the patch replaces by ``new``."""

    start: int
    end: int
    new: tuple[bytes, ...]


def infer(path: bytes, old: bytes, new: bytes) -> list[Rule]:
    """Return rules that make ``new`` of ``old``, or none if a place can't be identified.

    :param path: the file of the rules.
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
    """Return both texts with LF if all their lines end with CRLF, as a rule reads them."""
    for text in (old, new):
        if not text.count(b"\r") == text.count(b"\r\n") == text.count(b"\n"):
            return old, new
    return old.replace(b"\r\n", b"\n"), new.replace(b"\r\n", b"\n")


def _changes(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[_LineChange]:
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield _LineChange(a, b, tuple(new[c:d]))


def _ways(lines: Sequence[bytes], change: _LineChange) -> list[tuple[bytes, bytes] | None]:
    """Return the ways to find a change, as text to find and its replacement."""
    sides = [(True, False), (False, True), (True, True)]
    if change.start < change.end:
        found = [_lines(lines, change, before=before, after=after) for before, after in sides]
        return [*found, _words(lines, change, left=True), _words(lines, change, left=False)]
    return [_between(lines, change, before=before, after=after) for before, after in sides]


def _lines(lines: Sequence[bytes], change: _LineChange, *, before: bool, after: bool) -> tuple[bytes, bytes] | None:
    """Return changed lines with the fewest lines of context on these sides that identify them."""
    text = b"".join(lines)
    for count in range(_MOST_LINES + 1):
        start = max(0, change.start - count * before)
        end = min(len(lines), change.end + count * after)
        find = b"".join(lines[start:end])
        if find.endswith(b"\n") and _identifies(find, text):
            return find, b"".join([*lines[start : change.start], *change.new, *lines[change.end : end]])
    return None


def _between(lines: Sequence[bytes], change: _LineChange, *, before: bool, after: bool) -> tuple[bytes, bytes] | None:
    """Return an addition with the fewest lines on these sides that identify it.

    On a side without lines, it has the near end of the text there. Before the addition, that may be
    an empty line: what upstream adds before it comes first, as in most resolutions. After it, the
    end has a word, so that the addition doesn't come before what upstream adds.
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
            other = other.removesuffix(b"\n")  # otherwise the text would be whole lines
        if _identifies(one + other, text):
            return one + other, b"".join([one, *change.new, other])
    return None


def _near_end(lines: Sequence[bytes], *, first: bool) -> bytes:
    """Return the beginning or the end of lines, up to and with a word, or all of them without words."""
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
    """Return the changed words of lines, with the fewest words next to them that identify them.

    :param left: take words on the left first, otherwise on the right.
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
    """Return a range with one more token within the same line, on one side if it has one."""
    on_left = start > 0 and b"\n" not in tokens[start - 1]
    on_right = end < len(tokens) and b"\n" not in tokens[end]
    if on_left and (left or not on_right):
        return start - 1, end
    return start, end + on_right
