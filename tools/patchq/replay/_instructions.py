"""Parser for the instructions of a Dockerfile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from patchq.errors import FormatError
from patchq.replay.limits import HINT, MOST_DOCKERFILE, too_large

#: ``<<EOF``, but not the here-string ``<<<``.
_HEREDOC = re.compile(r"(?<!<)<<(-?)(?!<)(['\"]?)([A-Za-z_][\w.+-]*)\2")
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*$", re.IGNORECASE)
_WITH_HEREDOCS = ("RUN", "COPY", "ADD")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:(:?[-+?])((?:[^{}]|\{[^{}]*\})*))?\}|(\w+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heredoc:
    """Here-document of an instruction.

    :ivar plain: True if the delimiter was quoted, so that variables in the text aren't replaced.
    """

    name: str
    text: str
    plain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """Instruction of a Dockerfile.

    :ivar word: name of the instruction, in capitals.
    :ivar flags: options such as ``--from`` and their values.
    :ivar value: arguments, with continuation lines joined.
    :ivar line: number of the instruction's first line, from 1.
    :ivar comment: comment above the instruction.
    """

    word: str
    value: str
    line: int
    flags: tuple[tuple[str, str], ...] = ()
    heredocs: tuple[Heredoc, ...] = ()
    comment: str = ""

    def flag(self, name: str) -> str:
        """Return the value of an option; empty if the option isn't given."""
        return dict(self.flags).get(name, "")

    def all_flags(self, name: str) -> list[str]:
        """Return the values of an option that may be repeated."""
        return [value for key, value in self.flags if key == name]

    @property
    def words(self) -> list[str] | None:
        """Words of an instruction in JSON form, ``["a", "b"]``; None for an instruction in shell form."""
        if not self.value.startswith("["):
            return None
        try:
            words = json.loads(self.value)
        except (ValueError, RecursionError):
            return None
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            return words
        return None

    @property
    def text(self) -> str:
        """Text of the instruction without here-documents, for messages."""
        return f"{self.word} {self.value}"


def parse(data: bytes, where: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile.

    >>> [(i.word, i.value, i.line) for i in parse(b"FROM x\\n# why\\nRUN a && \\\\\\n  b\\n", "it")]
    [('FROM', 'x', 1), ('RUN', 'a &&   b', 3)]

    :raises FormatError: if the file is too large or isn't UTF-8.
    """
    if len(data) > MOST_DOCKERFILE:
        raise too_large(where, f"{len(data)} bytes", MOST_DOCKERFILE)
    try:
        lines = data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} can't be read: {error}", hint="give the commands of the file with --run") from None
    return list(_InstructionReader(lines))


class _InstructionReader:
    """Iterator over the instructions in a Dockerfile's lines."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0
        self.escape = "\\"
        for line in lines:
            if not line.startswith("#"):
                break
            if match := _ESCAPE.match(line):
                self.escape = match[1]

    def __iter__(self) -> Iterator[Instruction]:
        comments: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            if line.startswith("#"):
                comments.append(line.lstrip("#! "))
                self.at += 1
            elif not line:
                comments = []
                self.at += 1
            else:
                yield self._instruction(" ".join(comments))
                comments = []

    def _instruction(self, comment: str) -> Instruction:
        first = self.at
        word, *rest = self._logical_line().split(None, 1)
        word, value = word.upper(), "".join(rest)
        flags, value = _flags(value)
        heredocs: list[Heredoc] = []
        if word in _WITH_HEREDOCS and not value.startswith("["):
            for tabs, quote, name in _HEREDOC.findall(value):
                found = self._heredoc(name, strip=bool(tabs), plain=bool(quote))
                if found is None:
                    break
                heredocs.append(found)
        return Instruction(
            word=word, value=value, line=first + 1, flags=flags, heredocs=tuple(heredocs), comment=comment
        )

    def _logical_line(self) -> str:
        """Return the next line joined with its continuation lines. Comments in between are removed."""
        found: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at].rstrip()
            self.at += 1
            if found and (not line.strip() or line.lstrip().startswith("#")):
                continue
            if not line.endswith(self.escape):
                found.append(line)
                break
            found.append(line[: -len(self.escape)])
        return "".join(found).strip()

    def _heredoc(self, name: str, *, strip: bool, plain: bool) -> Heredoc | None:
        """Read a here-document. Return None if its end is missing: ``1 <<n`` is not a here-document."""
        found: list[str] = []
        for number in range(self.at, len(self.lines)):
            if strip:
                line = self.lines[number].lstrip("\t")
            else:
                line = self.lines[number]
            if line == name:
                self.at = number + 1
                return Heredoc(name=name, text="".join(found), plain=plain)
            found.append(line + "\n")
        return None


def _flags(value: str) -> tuple[tuple[tuple[str, str], ...], str]:
    flags = []
    while match := re.match(r"--([\w-]+)(?:=(\S*))?\s+", value):
        flags.append((match[1], match[2] or ""))
        value = value[match.end() :]
    return tuple(flags), value


#: Limit of a value in bytes. Variables that name each other double their length with each line.
_MOST_VALUE = 64 << 10


class Unset(Exception):
    """Error for a variable without a value; ``args[0]`` is the variable's name."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace variables as Docker does in ``ENV``, ``COPY`` and other instructions.

    >>> expand("$A/${B:-x}/\\\\$A", {"A": "1"})
    '1/x/$A'

    :raises Unset: if a variable has no value.
    """

    def one(match: re.Match[str]) -> str:
        name, how, other = match[1] or match[4], match[2] or "", match[3] or ""
        value = values.get(name)
        if how.startswith(":"):
            is_set = bool(value)
        else:
            is_set = value is not None
        if how.endswith("-"):
            if is_set:
                return value or ""
            return expand(other, values)
        if how.endswith("+"):
            if is_set:
                return expand(other, values)
            return ""
        if value is None:
            raise Unset(name)
        return value

    parts = re.split(r"\\(\$)", text)
    for number in range(0, len(parts), 2):
        parts[number] = _VARIABLE.sub(one, _bounded(parts[number]))
    return _bounded("".join(parts))


def _bounded(value: str) -> str:
    if len(value) > _MOST_VALUE:
        raise FormatError(f"a value is longer than {_MOST_VALUE} bytes", hint=HINT)
    return value


def split(text: str, values: Mapping[str, str]) -> list[str]:
    """Split arguments into words. Replace variables, except inside single quotes.

    >>> split("a 'b c' \\"$X d\\"", {"X": "1"})
    ['a', 'b c', '1 d']

    :raises Unset: if a variable has no value.
    """
    words: list[str] = []
    current: list[str] = []
    left = MOST_DOCKERFILE
    for match in re.finditer(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|(\s+)|((?:[^\s'\"\\]|\\.?)+)", text, re.DOTALL):
        single, double, blank, plain = match.groups()
        if blank:
            if current:
                words += ["".join(current)]
            current = []
            left -= len(words[-1]) if words else 0
            if left < 0:
                raise FormatError(f"the values together are longer than {MOST_DOCKERFILE} bytes", hint=HINT)
        elif single is not None:
            current.append(single)
        elif double is not None:
            current.append(expand(double, values).replace('\\"', '"'))
        else:
            current.append(re.sub(r"\\(.)", r"\1", expand(plain, values)))
    if current:
        return [*words, "".join(current)]
    return words


def assignments(instruction: Instruction, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that ``ENV`` or ``ARG`` sets. Variables without a value are left out.

    :raises Unset: if a value names a variable without a value.
    """
    first, _, rest = instruction.value.partition(" ")
    if instruction.word == "ENV" and "=" not in first:
        return {first: " ".join(split(rest, values))}
    found = {}
    for word in split(instruction.value, values):
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
    return found
