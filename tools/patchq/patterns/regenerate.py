"""Apply rules to a tree. If a rule doesn't match exactly as often as it states, nothing is changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache
from typing import Protocol

from patchq.names import show_path
from patchq.patterns._matches import ByteEdit, RegexError, find_literal, find_regex, patched
from patchq.patterns.rules import MOST_TIMES, Rule, encode, is_glob
from patchq.records import dataclass


class RuleTree(Protocol):
    """Interface of a tree to which rules are applied."""

    def file_paths(self) -> Iterable[bytes]:
        """Return the paths of the regular files."""

    def read_files(self, paths: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the contents of the given paths that are regular files."""


@dataclass(frozen=True, slots=True)
class TextTree:
    """Tree whose files are texts in memory."""

    contents: Mapping[bytes, bytes]

    def file_paths(self) -> Iterable[bytes]:
        """Return the paths."""
        return self.contents

    def read_files(self, paths: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the contents of the given paths that exist."""
        return {path: self.contents[path] for path in paths if path in self.contents}


class RuleFailure(Enum):
    """Reason why a rule can't be applied."""

    NO_FILE = "no such file"
    TIMES = "another number of matches"
    CHANGED = "another number of files"
    OVERLAP = "matches overlap"
    DIFFERENT = "the alternatives disagree"
    REGEX = "the expression failed"


class RuleStop(Exception):
    """Error for a rule that can't be applied.

    :ivar number: number of the rule, from 1.
    :ivar found: number of matches or files that were found.
    :ivar wanted: number of matches or files that the rule states.
    :ivar about: path of the file, or message of the failure.
    """

    def __init__(self, *, number: int, reason: RuleFailure, found: int = 0, wanted: int = 0, about: str = "") -> None:
        super().__init__(reason)
        self.number, self.reason, self.found, self.wanted, self.about = number, reason, found, wanted, about

    def __str__(self) -> str:
        rule = f"rule {self.number}"
        match self.reason:
            case RuleFailure.NO_FILE:
                return f"{rule}: {self.about} does not exist"
            case RuleFailure.TIMES:
                more = ""
                if self.found > MOST_TIMES:
                    more = " or more"
                return f"{rule} matches {self.found}{more} times, not {self.wanted}"
            case RuleFailure.CHANGED if self.about:
                return f"{rule} matches nothing in {self.about}"
            case RuleFailure.CHANGED:
                return f"{rule} matches in {self.found} files, not {self.wanted}"
            case RuleFailure.OVERLAP:
                return f"{rule}: matches overlap in {self.about}"
            case RuleFailure.DIFFERENT:
                return f"{rule}: its alternatives find different places in {self.about}"
        return f"{rule}: {self.about}"


def regenerate(rules: Sequence[Rule], tree: RuleTree, moved: Mapping[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """Apply rules in order, and return the contents of the changed files.

    :param moved: new paths of renamed files.
    :raises RuleStop: if a rule doesn't match as often, or in as many files, as it states.
    """
    done: dict[bytes, bytes] = {}
    for number, rule in enumerate(rules, 1):
        texts = _select(rule, number, tree, moved or {})
        texts.update({path: done[path] for path in texts.keys() & done.keys()})
        done.update(_apply(rule, number, texts))
    return done


def count(rule: Rule, tree: RuleTree) -> Rule:
    """Return a rule with ``times`` and ``changed`` set to the numbers of matches and files in a tree.

    :raises RuleStop: if the rule matches nothing, or if its expression fails.
    """
    texts = _select(rule, 1, tree, {})
    edits = _edits(rule, 0, 1, texts, MOST_TIMES)
    times = sum(map(len, edits.values()))
    if not times:
        raise RuleStop(number=1, reason=RuleFailure.TIMES, found=0, wanted=1)
    changed = sum(map(bool, edits.values()))
    return replace(rule, times=times, changed=changed if rule.has_glob else rule.changed)


def _select(rule: Rule, number: int, tree: RuleTree, moved: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the contents of the files that a rule names."""
    named, globs = [], []
    for file in rule.files:
        name = encode(file)
        if is_glob(file):
            globs.append(name)
        else:
            named.append(moved.get(name, name))
    matching = []
    if globs:
        for path in tree.file_paths():
            if any(matches_glob(path, glob) for glob in globs):
                matching.append(path)
    texts = dict(tree.read_files([*named, *matching]))
    for path in named:
        if path not in texts:
            raise RuleStop(number=number, reason=RuleFailure.NO_FILE, about=show_path(path))
    return texts


def matches_glob(path: bytes, glob: bytes) -> bool:
    """Return whether a path matches a glob, in which only ``**`` can match slashes.

    >>> matches_glob(b"a/b/c.py", b"a/**/*.py"), matches_glob(b"a/c.py", b"a/**/*.py"), matches_glob(b"a/c.py", b"*.py")
    (True, True, False)
    """
    parts, wanted = path.split(b"/"), [part.replace(b"[", b"[[]") for part in glob.split(b"/")]

    @cache
    def fits(at: int, want: int) -> bool:
        if want == len(wanted):
            return at == len(parts)
        if wanted[want] == b"**":
            return fits(at, want + 1) or (at < len(parts) and fits(at + 1, want))
        return at < len(parts) and fnmatchcase(parts[at], wanted[want]) and fits(at + 1, want + 1)

    return fits(0, 0)


def _apply(rule: Rule, number: int, texts: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Apply a rule, and return the contents of the changed files.

    All alternatives that match as often as the rule states must give the same result. Other alternatives are
    ignored.
    """
    results: list[dict[bytes, bytes]] = []
    stops: list[RuleStop] = []
    for which in range(len(rule.alternatives)):
        try:
            edits = _edits(rule, which, number, texts, rule.times)
            _check_counts(rule, number, edits)
        except RuleStop as stop:
            stops.append(stop)
            continue
        changed = {}
        for path, found in edits.items():
            if found:
                changed[path] = patched(texts[path], found, _is_crlf(rule, texts[path]))
        results.append(changed)
    if not results:
        raise max(stops, key=lambda stop: stop.found)
    for result in results[1:]:
        if result != results[0]:
            different = min(path for path, _ in result.items() ^ results[0].items())
            raise RuleStop(number=number, reason=RuleFailure.DIFFERENT, about=show_path(different))
    return results[0]


def _check_counts(rule: Rule, number: int, edits: Mapping[bytes, Sequence[ByteEdit]]) -> None:
    times = sum(map(len, edits.values()))
    if times != rule.times:
        raise RuleStop(number=number, reason=RuleFailure.TIMES, found=times, wanted=rule.times)
    changed = sum(map(bool, edits.values()))
    if changed != rule.changed:
        lacking = []
        for path, found in edits.items():
            if not found:
                lacking.append(show_path(path))
        about = ""
        if not rule.has_glob:
            about = lacking[0]
        raise RuleStop(number=number, reason=RuleFailure.CHANGED, found=changed, wanted=rule.changed, about=about)


def _edits(rule: Rule, which: int, number: int, texts: Mapping[bytes, bytes], most: int) -> dict[bytes, list[ByteEdit]]:
    """Return the matches of one alternative in each file."""
    find, new = rule.alternatives[which].encoded()
    read = {}
    for path, text in texts.items():
        read[path] = _unix(text) if _is_crlf(rule, text) else text
    if rule.regex:
        try:
            found = find_regex(find, new, list(read.values()), most)
        except RegexError as error:
            raise RuleStop(number=number, reason=RuleFailure.REGEX, about=str(error)) from None
        return dict(zip(read, found, strict=True))
    edits = {}
    for path, text in read.items():
        edits[path] = find_literal(find, new, text)
        for edit, following in itertools.pairwise(edits[path]):
            if following.start < edit.end:
                raise RuleStop(number=number, reason=RuleFailure.OVERLAP, about=show_path(path))
    return edits


def _is_crlf(rule: Rule, text: bytes) -> bool:
    """Return whether newlines in a rule stand for the CRLF line ends of a file.

    They do if all lines of the file end with CRLF and the rule contains no CR.
    """
    for each in rule.alternatives:
        if "\r" in each.find + each.replace or r"\r" in each.find:
            return False
    return b"\r\n" in text and text.count(b"\n") == text.count(b"\r\n")


def _unix(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n")
