"""Rules for ``sed`` commands whose scripts are plain substitutions.

A substitution is converted only if the expression has the same meaning in Python. The rule states the number
of matches in the current tree; if a later tree has another number of matches, the rule is not applied. The
caller compares the result of the rules with the result of the command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchq.errors import FormatError
from patchq.patterns.regenerate import RuleStop, RuleTree, TextTree, count, regenerate
from patchq.patterns.rules import Rule, decode, make_rule

_OPERATORS = re.compile(r"[();<>|&]+")
#: Characters that Python's expressions don't take literally.
_SPECIAL = re.compile(r"[.^$*+?{}\[\]\\|()]")
_ESCAPED = {"n": "\n", "t": "\t"}


class _NotPlain(Exception):
    """Error for a script that isn't a plain substitution."""


@dataclass(frozen=True, slots=True)
class _SedCommand:
    """Parsed command ``s/FIND/REPLACE/``. ``extended`` is True for ``sed -E``."""

    find: str
    new: str
    extended: bool


def sed_rules(command: str, paths: Sequence[bytes], tree: RuleTree) -> list[Rule]:
    """Return rules that do the same as a ``sed`` command; an empty list if the command isn't plain.

    :param paths: files that the command changed.
    :param tree: tree before the command.
    """
    texts = dict(tree.read_files(paths))
    found: list[Rule] = []
    try:
        for one in _substitutions(command):
            find, new, regex = _convert(one)
            files = []
            for path in texts:
                with_counts = _counted(make_rule([decode(path)], find, new, regex=regex), TextTree(texts))
                if with_counts:
                    files.append(with_counts)
            if not files:
                continue  # this substitution changes no file
            names: list[str] = []
            times = 0
            for one_file in files:
                names += one_file.files
                times += one_file.times
            rule = replace(make_rule(names, find, new, regex=regex), times=times)
            texts.update(regenerate([rule], TextTree(texts)))
            found.append(rule)
    except (_NotPlain, FormatError, RuleStop):
        return []
    return found


def _counted(rule: Rule, tree: TextTree) -> Rule | None:
    try:
        return count(rule, tree)
    except RuleStop:
        return None


def _substitutions(command: str) -> Iterator[_SedCommand]:
    """Yield the substitutions of a command."""
    try:
        lexer = shlex.shlex(command.strip(), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        raise _NotPlain from None
    if not words or words[0].rpartition("/")[2] != "sed":
        raise _NotPlain
    scripts, operands, extended = [], [], False
    rest = iter(words[1:])
    for word in rest:
        if word in ("-E", "-r", "--regexp-extended"):
            extended = True
        elif word in ("-e", "--expression"):
            scripts.append(next(rest, ""))
        elif word in ("-i", "--in-place"):
            continue
        elif word in ("-Ei", "-ri"):
            extended = True
        elif word.startswith("-") or _OPERATORS.fullmatch(word):
            raise _NotPlain
        else:
            operands.append(word)
    for script in scripts or operands[:1]:
        for find, new in _split(script):
            yield _SedCommand(find, new, extended)


def _split(script: str) -> Iterator[tuple[str, str]]:
    """Yield the text to find and the replacement of each ``s`` command in a script."""
    at = 0
    while at < len(script):
        if script[at] in " ;\n":
            at += 1
            continue
        if script[at] != "s" or at + 1 == len(script) or script[at + 1] in "\\\n":
            raise _NotPlain
        mark, at = script[at + 1], at + 2
        parts = []
        for _ in range(2):
            start = at
            while at < len(script) and script[at] != mark:
                if script[at] == "\\":
                    at += 2
                else:
                    at += 1
            if at >= len(script):
                raise _NotPlain
            part = script[start:at]
            parts.append(part.replace("\\" + mark, mark) if mark not in r".*[]^$+?(){}|&" else part)
            at += 1
        flags = re.match("g?", script[at:])
        assert flags
        at += flags.end()
        if at < len(script) and script[at] not in " ;\n":
            raise _NotPlain
        yield parts[0], parts[1]


def _convert(one: _SedCommand) -> tuple[str, str, bool]:
    """Return the text to find, its replacement, and True if the text is a regular expression."""
    parts = list(_parts(one.find, one.extended))
    new = list(_replacement(one.new))
    find = pattern = ""
    is_literal = True
    for text, literal in parts:
        find += text
        pattern += _SPECIAL.sub(r"\\\g<0>", text) if literal else text
        is_literal = is_literal and literal
    if not is_literal:
        return pattern, "".join(map(_template, new)), True
    replacement = ""
    for piece in new:
        if isinstance(piece, str):
            replacement += piece
        elif piece == 0:
            replacement += find
        else:
            raise _NotPlain
    return find, replacement, False


def _template(piece: str | int) -> str:
    if isinstance(piece, int):
        return rf"\g<{piece}>"
    return piece.replace("\\", "\\\\")


def _replacement(text: str) -> Iterator[str | int]:
    """Yield the literal texts and group numbers of a replacement."""
    at = 0
    while at < len(text):
        char = text[at]
        if char == "&":
            yield 0
        elif char != "\\":
            yield char
        else:
            at += 1
            escaped = text[at : at + 1]
            if escaped in "123456789" and escaped:
                yield int(escaped)
            elif escaped.isalpha() and escaped not in _ESCAPED:
                raise _NotPlain
            else:
                yield _ESCAPED.get(escaped, escaped)
        at += 1


def _parts(text: str, extended: bool) -> Iterator[tuple[str, bool]]:
    """Convert a POSIX expression to Python's syntax. Yield its pieces, each with True if it is literal text."""
    at, repeatable = 0, False
    while at < len(text):
        first = at
        char, escaped, at = _next_character(text, at)
        if char == "[" and not escaped:
            bracket, at = _bracket(text, at)
            yield bracket, False
            repeatable = True
        elif char in "^$" and not escaped:
            if (char == "^" and first > 0) or (char == "$" and at < len(text)):
                raise _NotPlain
            yield char, False
        elif char == "." and not escaped:
            yield ".", False
            repeatable = True
        elif _is_repetition(char, escaped, extended):
            if not repeatable:
                raise _NotPlain
            yield char, False
            repeatable = False
        elif char in "()" and escaped != extended:
            yield char, False
            repeatable = False  # Python matches repeated groups differently from POSIX
        elif char in "{}|" and escaped != extended:
            raise _NotPlain
        elif escaped and char.isdigit():
            yield f"\\{char}", False
            repeatable = False
        else:
            yield _ESCAPED.get(char, char) if escaped else char, True
            repeatable = True


def _next_character(text: str, at: int) -> tuple[str, bool, int]:
    """Return the character at ``text[at]``, whether a backslash escapes it, and the index after it."""
    char = text[at]
    if char != "\\":
        return char, False, at + 1
    char = text[at + 1 : at + 2]
    if not char or (char.isalpha() and char not in _ESCAPED):
        raise _NotPlain
    return char, True, at + 2


def _is_repetition(char: str, escaped: bool, extended: bool) -> bool:
    if char == "*":
        return not escaped
    return char in "+?" and escaped != extended


def _bracket(text: str, at: int) -> tuple[str, int]:
    """Convert a bracket expression to Python's syntax so that it doesn't match a newline.

    :returns: the converted expression, and the index after the bracket expression.
    """
    negated = text[at : at + 1] == "^"
    at += negated
    end = text.find("]", at + 1)
    inner = text[at:end]
    if end < 0 or "[" in inner or "\\" in inner or "\n" in inner:
        raise _NotPlain
    inner = inner.replace("]", r"\]")
    return (rf"[^{inner}\n]" if negated else f"[{inner}]"), end + 1
