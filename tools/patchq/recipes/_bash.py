"""Reader of shell code. It finds the commands that apply patches, without running them.

The reader follows variables, arrays, functions, loops over words, and ``cd``. Values that are only known at
run time, such as ``$(command)``, become :data:`UNKNOWN`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from patchq.errors import FormatError
from patchq.recipes._trees import line_of, parse, text_of

#: Placeholder for a part of a word that is only known at run time.
UNKNOWN = "\0"
_PART = re.compile(
    r"'(?P<single>[^']*)'|\\(?P<escaped>.)|\$\{(?P<braced>[^{}]*)\}|\$(?P<name>\w+|[@*#?])|\$\((?:[^()]|\([^()]*\))*\)|"
    r"`[^`]*`|(?P<quote>\")|(?P<plain>[^'\\$`\"]+|\$)",
    re.DOTALL,
)
_PARAMETER = re.compile(r"(?P<name>\w+|@)(?P<all>\[[@*]\])?(?:(?P<how>//?|##?|%%?)(?P<what>[^/]*)/?(?P<by>.*))?")
_BRACES = re.compile(r"(?<!\$)\{([^{}\s]*,[^{}\s]*)\}")
_MOST_STEPS = 50_000
#: Limit of nodes inside one another.
_MOST_NESTED = 64
#: Limit in characters of a value, and of a replacement in it.
_MOST_VALUE = 1 << 10
_MOST_DEEP = 8
_CONDITIONAL = {"if_statement", "elif_clause", "else_clause", "case_item"}


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """Command that shell code would run.

    :ivar words: the command and its arguments, expanded.
    :ivar text: the command as written.
    :ivar condition: condition under which the command runs; empty if it always runs.
    :ivar stdin: expanded name of the file after ``<``; empty if none.
    :ivar folders: arguments of each ``cd`` before the command.
    """

    words: tuple[str, ...]
    text: str
    line: int
    condition: str = ""
    stdin: str = ""
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """Element of an array, with the condition and the line of the assignment."""

    text: str
    line: int
    condition: str = ""


@dataclass(slots=True)
class Shell:
    """Reader of shell code, with its state.

    :ivar words: values of variables and arrays.
    :ivar functions: bodies of functions.
    :ivar comments: comments with their lines.
    """

    text: str
    words: dict[str, list[Word]] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    comments: list[tuple[int, str]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    steps: int = 0

    def run_top(self) -> Iterator[ShellCommand]:
        """Yield the commands outside functions, and record variables and functions."""
        yield from self._run(parse("bash", self.text), "", 0)

    def run_function(self, name: str) -> Iterator[ShellCommand]:
        """Yield the commands of a function, including those of functions that it calls."""
        if name in self.functions:
            yield from self._run(self.functions[name], "", 0)

    def _count(self, steps: int, deep: int = 0) -> None:
        """Count the steps of reading.

        :param deep: number of nodes around the node that is read.
        :raises FormatError: if there are too many steps or nodes. The patches after them would be lost silently.
        """
        self.steps += steps
        if self.steps > _MOST_STEPS or deep > _MOST_NESTED:
            raise FormatError(
                f"the recipe's shell code is too long to read: more than {_MOST_STEPS} steps, "
                f"or {_MOST_NESTED} levels of nesting",
                hint="import the patch files instead of the recipe, in order",
            )

    def values(self, name: str) -> list[str]:
        """Return the words of a variable; an empty list if the variable is unknown."""
        return [word.text for word in self.words.get(name, [])]

    def _run(self, node: Any, condition: str, deep: int) -> Iterator[ShellCommand]:
        self._count(1, deep)
        kind = node.type
        if kind == "comment":
            self.comments.append((line_of(node), text_of(node)))
        elif kind == "function_definition":
            self.functions[text_of(node.child_by_field_name("name"))] = node.child_by_field_name("body")
        elif kind == "variable_assignment":
            self._assign(node, condition)
        elif kind in ("command", "redirected_statement"):
            yield from self._command(node, condition, deep)
        elif kind == "for_statement":
            yield from self._loop(node, condition, deep)
        elif kind == "list":
            yield from self._list(node, condition, deep)
        elif kind in _CONDITIONAL or kind in ("while_statement", "c_style_for_statement"):
            yield from self._branch(node, condition, deep)
        else:
            for child in node.children:
                yield from self._run(child, condition, deep + 1)

    def _branch(self, node: Any, condition: str, deep: int) -> Iterator[ShellCommand]:
        children = list(node.children)
        if node.type == "case_item":
            own = text_of(node.child_by_field_name("value") or node)
        elif node.type == "else_clause":
            own = "else"
        else:
            given = next((child for child in children if child.is_named), None)
            if given is not None:
                own = text_of(given)
            else:
                own = node.type
        if condition:
            inner = f"{condition} and {own}"
        else:
            inner = own
        for child in children:
            outer = child.type in ("elif_clause", "else_clause")
            yield from self._run(child, f"not {own}" if outer else inner, deep + 1)

    def _list(self, node: Any, condition: str, deep: int) -> Iterator[ShellCommand]:
        """Follow ``a && b`` and ``a || b``. If the first command is a test, the second one becomes conditional."""
        first, second = node.named_children[0], node.named_children[-1]
        yield from self._run(first, condition, deep + 1)
        operator = next((text_of(child) for child in node.children if not child.is_named), "")
        tested = first.type == "test_command" or (first.type == "command" and _is_test(text_of(first)))
        if operator == "||" and not tested:
            return  # in `patch … || die`, the second command only runs after an error
        own = ""
        if tested:
            own = text_of(first)
        inner = " and ".join(filter(None, [condition, f"not {own}" if own and operator == "||" else own]))
        yield from self._run(second, inner, deep + 1)

    def _loop(self, node: Any, condition: str, deep: int) -> Iterator[ShellCommand]:
        name = text_of(node.child_by_field_name("variable"))
        body = node.child_by_field_name("body")
        values = []
        for value in node.children_by_field_name("value"):
            values += self.expand(text_of(value))
        for value in values:
            self.words[name] = [Word(value, line_of(node))]
            yield from self._run(body, condition, deep + 1)

    def _assign(self, node: Any, condition: str) -> None:
        name, value = text_of(node.child_by_field_name("name")), node.child_by_field_name("value")
        adds = any(text_of(child) == "+=" for child in node.children)
        if value is not None and value.type == "array":
            items = list(value.named_children)
        else:
            items = [value]
        found: list[Word] = []
        for item in items:
            if item is None:
                continue
            if item.type == "comment":
                self.comments.append((line_of(item), text_of(item)))
                continue
            found += [Word(word, line_of(item), condition) for word in self.expand(text_of(item))]
        if adds:
            self.words[name] = [*self.words.get(name, []), *found]
        elif condition and name in self.words:
            self.words[name] = [*self.words[name], *found]
        else:
            self.words[name] = found

    def _command(self, node: Any, condition: str, deep: int) -> Iterator[ShellCommand]:
        command = node
        if node.type == "redirected_statement":
            command = node.child_by_field_name("body")
            if command is None or command.type != "command":
                for child in node.children:
                    yield from self._run(child, condition, deep + 1)
                return
        stdin = self._stdin(node)
        parts = []
        for child in command.named_children:
            if child.type not in ("file_redirect", "comment"):
                parts.append(child)
        words = []
        for child in parts:
            if child.type != "variable_assignment":
                words += self.expand(text_of(child))
        if not words:
            return
        if words[0] in self.functions and deep < _MOST_DEEP:
            yield from self._call(node, words, condition, deep)
            return
        if words[0] in ("cd", "pushd", "popd"):
            self._change(words)
        yield ShellCommand(tuple(words), text_of(node), line_of(node), condition, stdin, tuple(self.folders))

    def _stdin(self, node: Any) -> str:
        """Return the name of the file from which a command's input is redirected."""
        stdin = ""
        for redirect in node.children:
            if redirect.type == "file_redirect" and text_of(redirect).lstrip("0").startswith("<"):
                stdin = "".join(self.expand(text_of(redirect).lstrip("0< ")))
        return stdin

    def _call(self, node: Any, words: Sequence[str], condition: str, deep: int) -> Iterator[ShellCommand]:
        """Follow the call of a shell function. Its arguments are ``$@``, ``$1`` and so on."""
        saved = self.words
        self.words = {**saved, "@": [Word(word, line_of(node)) for word in words[1:]]}
        self.words |= {str(n): [Word(word, line_of(node))] for n, word in enumerate(words[1:], 1)}
        yield from self._run(self.functions[words[0]], condition, deep + 1)
        self.words = saved

    def _change(self, words: Sequence[str]) -> None:
        if words[0] == "popd" and self.folders:
            self.folders.pop()
        elif words[0] != "popd":
            self.folders.append(words[1] if len(words) > 1 else "")

    def expand(self, text: str) -> list[str]:
        """Expand a word of shell code as a shell would; return the resulting words.

        >>> shell = Shell("")
        >>> shell.words["P"] = [Word("x-1.0", 1)]
        >>> shell.expand('"${FILESDIR}"/${P}-{a,b}.patch')
        ['\\x00/x-1.0-a.patch', '\\x00/x-1.0-b.patch']
        """
        result: list[str] = []
        todo = [text]
        while todo:
            text = todo.pop()
            self._count(1 + len(text) // 100)
            if match := _BRACES.search(text):
                before, after = text[: match.start()], text[match.end() :]
                parts = match[1].split(",")
                self._count(len(parts) * (1 + len(text) // 100))
                todo += [before + part + after for part in reversed(parts)]
            else:
                result += self._expand_variables(text)
        return result

    def _expand_variables(self, text: str) -> list[str]:
        """Expand a word without braces."""
        quoted = False
        found = [""]
        for match in _PART.finditer(text):
            if match["quote"]:
                quoted = not quoted
                continue
            values = self._part(match, quoted)
            # Lines such as A=$A$A double the value each time.
            self._count(len(values) // 10 + sum(map(len, values)) // 100)
            if values:
                found[-1] += values[0]
            found += values[1:]
        if any(found) or text in ('""', "''"):
            return found
        return []

    def _part(self, match: re.Match[str], quoted: bool) -> list[str]:
        if match["single"] is not None:
            return [match["single"]]
        if match["escaped"] is not None:
            return ["" if match["escaped"] == "\n" else match["escaped"]]
        if match["plain"] is not None:
            return [match["plain"]]
        inside = match["braced"] or match["name"]
        parameter = None
        if inside:
            parameter = _PARAMETER.fullmatch(inside)
        if not parameter or parameter["name"] not in self.words:
            return [UNKNOWN]
        values = self.values(parameter["name"])
        if parameter["all"] is None and parameter["name"] != "@":
            if quoted or len(values) != 1:
                values = values[:1]
            else:
                values = values[0].split() or [""]
        if parameter["how"]:
            values = [self._substituted(value, parameter) for value in values]
        return values

    def _substituted(self, value: str, how: re.Match[str]) -> str:
        """Return the value after ``${name/a/b}`` or similar; unknown if the value or the operator is too long."""
        self._count(1 + (len(value) * (1 + len(how["by"]))) // 1000)
        if max(len(value), len(how[0])) > _MOST_VALUE:
            return UNKNOWN
        return _substituted(value, how)


def _substituted(value: str, how: re.Match[str]) -> str:
    """Apply the operator in ``${name/a/b}``, ``${name#a}`` or ``${name%a}`` to the variable's value."""
    kind, what = how["how"], how["what"].strip("'\"").replace("\\", "")
    if UNKNOWN in value or "$" in what or "$" in how["by"]:
        return UNKNOWN
    if kind == "/" and what[:1] in ("#", "%"):
        if what[0] == "#":
            start, end = ("\\A", "")
        else:
            start, end = ("", "\\Z")
        return re.sub(f"{start}{re.escape(what[1:])}{end}", lambda _: how["by"].strip("'\""), value, count=1)
    if kind in ("/", "//"):
        pattern = re.compile(fnmatch.translate(what).removeprefix("(?s:").removesuffix(r")\Z"))
        by = how["by"].strip("'\"")
        return pattern.sub(lambda _: by, value, count=0 if kind == "//" else 1)
    lengths = range(len(value) + 1)
    for length in reversed(lengths) if len(kind) == 2 else lengths:
        head, tail = value[:length], value[len(value) - length :]
        if kind[0] == "#" and fnmatch.fnmatchcase(head, what):
            return value[length:]
        if kind[0] == "%" and fnmatch.fnmatchcase(tail, what):
            return value[: len(value) - length]
    return value


def _is_test(text: str) -> bool:
    return bool(re.match(r"(?:\[|test\b|use\b|has\b|in_iuse\b|ver_test\b|tc-is|is_)", text.removeprefix("! ")))
