"""Rules of a patch, kept as ``Pattern:`` trailers in its message. The value of each trailer is a JSON object.

Because rules are part of the patch's message, they stay with the patch. ``git am`` and ``git apply`` ignore
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from patchq.errors import FormatError
from patchq.formats.header import parse_trailers, with_trailer
from patchq.formats.treepath import is_tree_path
from patchq.names import show_path
from patchq.records import dataclass

#: Name of the trailer that contains a rule.
TRAILER = "Pattern"
#: Limits: rules of a patch, matches of a rule, alternatives of a rule.
MOST_RULES, MOST_TIMES, MOST_ALTERNATIVES = 200, 10_000, 8
_KEYS = {"files", "times", "changed", "regex", "find", "replace", "or"}
#: Characters that stand for bytes that aren't UTF-8 (``surrogateescape``). JSON escapes them.
_SURROGATE = re.compile("[\ud800-\udfff]")
_HINT = "see docs/reference/formats.md#rules"


@dataclass(frozen=True, slots=True)
class Substitution:
    """Text to find and its replacement.

    A literal text that begins or ends with a newline matches at the beginning of a line only.
    """

    find: str
    replace: str

    def encoded(self) -> tuple[bytes, bytes]:
        """Return both texts as bytes."""
        return encode(self.find), encode(self.replace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rule that makes some or all changes of a patch.

    :ivar files: paths or globs. In globs, ``*`` and ``?`` match no slash, and ``**`` matches any folders.
    :ivar alternatives: different ways to find the same places. All alternatives that match must give the same result.
    :ivar times: number of matches in all files together.
    :ivar changed: number of files that match. If ``files`` contains no glob, each file must match.
    :ivar regex: True if the alternatives are regular expressions of Python.
    """

    files: tuple[str, ...]
    alternatives: tuple[Substitution, ...]
    times: int
    changed: int
    regex: bool = False

    @property
    def has_glob(self) -> bool:
        """Return whether the rule names its files by a glob."""
        return any(map(is_glob, self.files))


def encode(text: str) -> bytes:
    """Return a rule's text as bytes. Lone surrogates in the text stand for bytes that aren't UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """Return bytes as a rule's text; see :func:`encode`."""
    return data.decode("utf-8", "surrogateescape")


def is_glob(path: str) -> bool:
    """Return whether a file name in a rule is a glob."""
    return "*" in path or "?" in path


def rules_of(message: str, where: str) -> tuple[Rule, ...]:
    """Return the rules of a patch's message in order.

    :param where: name of the patch, for error messages.
    :raises FormatError: if a rule isn't valid.
    """
    if f"{TRAILER}:" not in message:
        return ()
    values = [value for key, value in parse_trailers(message) if key == TRAILER]
    if len(values) > MOST_RULES:
        raise FormatError(f"{where} has {len(values)} rules; the limit is {MOST_RULES}", hint=_HINT)
    return tuple(parse_rule(value, where) for value in values)


def parse_rule(text: str, where: str) -> Rule:
    """Parse the value of a ``Pattern:`` trailer.

    :raises FormatError: if the value isn't a valid rule.
    """
    try:
        raw = json.loads(text, object_pairs_hook=_unique)
        if not isinstance(raw, dict):
            raise ValueError("it is not a JSON object")
        return _rule(raw)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, KeyError):
            message = f"it has no {error}"
        else:
            message = str(error)
        raise FormatError(f"{where}: {TRAILER}: has an invalid rule: {message}", hint=_HINT) from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _rule(raw: Mapping[str, Any]) -> Rule:
    if unknown := sorted(raw.keys() - _KEYS):
        raise ValueError(f"unknown key {unknown[0]!r}")
    files = tuple(_text(name, "a file") for name in raw["files"])
    if not files or len(set(files)) < len(files) or isinstance(raw["files"], str):
        raise ValueError("`files` is not a list of different files")
    for name in files:
        if not is_tree_path(encode(name.replace("*", "x"))):
            raise ValueError(f"{show_path(encode(name))} is not a valid path")
    if len(raw.get("or", ())) >= MOST_ALTERNATIVES:
        raise ValueError(f"more than {MOST_ALTERNATIVES} alternatives")
    alternatives = tuple(_substitution(each) for each in (raw, *raw.get("or", ())))
    regex = raw.get("regex", False)
    if not isinstance(regex, bool):
        raise ValueError("`regex` is not true or false")
    rule = Rule(files=files, alternatives=alternatives, times=_count(raw, "times", 1), changed=len(files), regex=regex)
    if rule.has_glob:
        return replace(rule, changed=_count(raw, "changed", None))
    if "changed" in raw:
        raise ValueError("`changed` is only allowed with globs; without a glob, each file must match")
    return rule


def make_rule(files: Sequence[str], find: str, new: str, *, times: int = 1, regex: bool = False) -> Rule:
    """Return a rule with a single alternative.

    :raises FormatError: if the rule isn't valid.
    """
    rule = Rule(files=tuple(files), alternatives=(Substitution(find, new),), times=times, changed=1, regex=regex)
    return parse_rule(dump_rule(rule), "the new rule")


def _count(raw: Mapping[str, Any], key: str, default: int | None) -> int:
    if default is None:
        value = raw[key]
    else:
        value = raw.get(key, default)
    if type(value) is not int or not 1 <= value <= MOST_TIMES:
        raise ValueError(f"`{key}` is not a number from 1 to {MOST_TIMES}")
    return value


def _substitution(raw: Mapping[str, Any]) -> Substitution:
    find, new = _text(raw["find"], "`find`"), _text(raw["replace"], "`replace`")
    if not find:
        raise ValueError("`find` is empty")
    if find == new:
        raise ValueError("`find` and `replace` are the same")
    return Substitution(find, new)


def _text(value: object, name: str) -> str:
    """Check that a value in a rule is text, and return it. A list of lines is joined."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "".join(f"{line}\n" for line in value)
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{name} is not text")
    encode(value)  # raises ValueError for lone surrogates that stand for no byte
    return value


def dump_rule(rule: Rule) -> str:
    """Return a rule as the value of a ``Pattern:`` trailer.

    Lines after the first are indented, so that git reads them as part of the trailer.
    """
    head: dict[str, object] = {"files": list(rule.files), "times": rule.times}
    if rule.has_glob:
        head["changed"] = rule.changed
    if rule.regex:
        head["regex"] = True
    first, *others = map(_dump_substitution, rule.alternatives)
    text = f"{_json(head)[:-1]},{first}"
    if others:
        alternatives = [f"{{{other.lstrip()}}}" for other in others]
        text += ',\n "or": [' + ",\n ".join(alternatives) + "]"
    return text + "}"


def _dump_substitution(one: Substitution) -> str:
    return f'\n "find": {_dump_text(one.find)},\n "replace": {_dump_text(one.replace)}'


def _dump_text(text: str) -> str:
    """Return a text as JSON: as a list of lines if it consists of several whole lines, otherwise as a string."""
    lines = text.split("\n")
    if len(lines) < 3 or lines[-1]:
        return _json(text)
    return "[\n  " + ",\n  ".join(map(_json, lines[:-1])) + "]"


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def with_rules(message: str, rules: Sequence[Rule]) -> str:
    """Return a message with ``rules`` in place of its current rules."""
    text = without_rules(message)
    for rule in rules:
        text = with_trailer(text, TRAILER, dump_rule(rule))
    return text


def without_rules(message: str) -> str:
    """Return a message without its rules."""
    kept: list[str] = []
    inside = False
    for line in message.split("\n"):
        inside = line.startswith(f"{TRAILER}:") or (inside and line[:1] in (" ", "\t"))
        if not inside:
            kept.append(line)
    return "\n".join(kept).rstrip("\n") + "\n"


def moved_to(message: str, moved: Mapping[bytes, bytes], where: str) -> str:
    """Return a message whose rules name the new paths of renamed files.

    :param moved: new path of each renamed file.
    """
    rules = rules_of(message, where)
    found = []
    for rule in rules:
        files = tuple(decode(moved.get(encode(name), encode(name))) for name in rule.files)
        found.append(replace(rule, files=files))
    if tuple(found) != rules:
        return with_rules(message, found)
    return message
