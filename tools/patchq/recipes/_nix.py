"""Patches in a Nix expression: the list ``patches``, with ``patchFlags``, and edits in the build phases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from patchq.errors import UserError
from patchq.recipes._trees import line_of, parse, text_of, walk
from patchq.recipes.entries import Entry, EntryState, RecipeFile, strip_level

_FETCH = re.compile(r"fetch\w+|requireFile")
_SUBSTITUTE = re.compile(r"substituteAll\w*|replaceVars\w*|substitute")
_PHASES = {"prePatch", "postPatch", "postUnpack", "preConfigure"}
_EDIT = re.compile(r"substituteInPlace|sed\s.*-i|patch\s+-|\bmv\s|\bcp\s|\brm\s|\bln\s|substituteAll")
_COMMENTED = re.compile(r"#\s*\(?(\.{1,2}/\S+\.(?:patch|diff))\b")
_MOST_DEEP = 32
#: Limit of expressions to read: bindings that use one another can name exponentially many.
_MOST_STEPS = 50_000


@dataclass(slots=True)
class _Expression:
    recipe: RecipeFile
    root: Any
    bindings: dict[str, list[Any]] = field(default_factory=dict)
    steps: int = 0

    def string(self, node: Any, deep: int = 0) -> str:
        """Return the value of a string, path or number. Unknown parts are replaced by ``$…``."""
        self.steps += 1
        if deep > _MOST_DEEP or self.steps > _MOST_STEPS:
            return "$…"
        if node.type in ("string_fragment", "path_fragment", "uri_expression", "integer_expression"):
            return text_of(node)
        if node.type == "variable_expression":
            value = self._value(node)
            if value is None:
                return "$…"
            return self.string(value, deep + 1)
        parts = node.named_children
        if node.type in ("string_expression", "path_expression", "interpolation", "indented_string_expression"):
            return "".join(self.string(child, deep + 1) for child in parts)
        return "$…"

    def _value(self, variable: Any) -> Any:
        """Return the expression that is bound to a variable; None without a binding or with several bindings."""
        found = self.bindings.get(text_of(variable), [])
        if len(found) != 1:
            return None
        return found[0].child_by_field_name("expression")

    def entries(self, node: Any, condition: str = "", deep: int = 0) -> Iterator[Entry]:
        """Yield the entries of an expression: a list of patches, or one patch."""
        kind = node.type
        inner = node.named_children
        self._count()
        if deep > _MOST_DEEP:
            yield self._unknown(node, condition)
        elif kind in ("list_expression", "parenthesized_expression"):
            for child in inner:
                if child.type != "comment":
                    yield from self.entries(child, condition, deep + 1)
        elif kind == "binary_expression" and text_of(node.child_by_field_name("operator")) == "++":
            for side in ("left", "right"):
                yield from self.entries(node.child_by_field_name(side), condition, deep + 1)
        elif kind in ("with_expression", "let_expression", "assert_expression"):
            yield from self.entries(node.child_by_field_name("body"), condition, deep + 1)
        elif kind == "if_expression":
            yield from self._branches(node, condition, deep)
        elif kind == "apply_expression":
            yield from self._applied(node, condition, deep)
        elif kind == "variable_expression" and (value := self._value(node)) is not None:
            yield from self.entries(value, condition, deep + 1)
        elif kind in ("path_expression", "string_expression"):
            yield self.recipe.entry(self.string(node), line_of(node)).only_if(condition)
        else:
            yield self._unknown(node, condition)

    def _count(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise UserError(
                f"{self.recipe.path} has more than {_MOST_STEPS} expressions in its patches",
                hint="import the patch files instead of the recipe, in order",
            )

    def _branches(self, node: Any, condition: str, deep: int) -> Iterator[Entry]:
        own = text_of(node.child_by_field_name("condition"))
        for side, words in (("consequence", own), ("alternative", f"not {own}")):
            yield from self.entries(node.child_by_field_name(side), _and(condition, words), deep + 1)

    def _applied(self, node: Any, condition: str, deep: int) -> Iterator[Entry]:
        arguments: list[Any] = []
        function = node
        while function.type == "apply_expression":
            arguments.insert(0, function.child_by_field_name("argument"))
            function = function.child_by_field_name("function")
        name = text_of(function).strip("()").rsplit(".", 1)[-1]
        if name in ("optional", "optionals") and len(arguments) == 2:
            yield from self.entries(arguments[1], _and(condition, text_of(arguments[0])), deep + 1)
        elif name == "singleton":
            yield from self.entries(arguments[0], condition, deep + 1)
        elif _FETCH.fullmatch(name):
            url = self._attribute(arguments[0], "url")
            text = url or text_of(node)
            yield Entry(where=self.recipe.at(line_of(node)), text=text, state=EntryState.REMOTE).only_if(condition)
        elif _SUBSTITUTE.fullmatch(name):
            source = None
            if arguments[0].type == "path_expression":
                source = arguments[0]
            if source is not None:
                file = self.string(source)
            else:
                file = self._attribute(arguments[0], "src")
            found = self.recipe.entry(file or "$…", line_of(node))
            yield replace(found, state=EntryState.OPTION, detail=f"{name}, which replaces words of it").only_if(
                condition
            )
        else:
            yield self._unknown(node, condition)

    def _attribute(self, node: Any, name: str) -> str:
        for child in walk(node):
            if child.type == "binding" and text_of(child.child_by_field_name("attrpath")) == name:
                return self.string(child.child_by_field_name("expression"))
        return ""

    def _unknown(self, node: Any, condition: str) -> Entry:
        text = " ".join(text_of(node).split())[:80]
        return Entry(where=self.recipe.at(line_of(node)), text=text, state=EntryState.UNREADABLE).only_if(condition)


def nix_entries(recipe: RecipeFile) -> Iterator[Entry]:
    """Yield the entries of a Nix file, in the order of its list ``patches``.

    :raises UserError: if the file has several lists of patches.
    """
    root = parse("nix", recipe.text)
    found = _Expression(recipe, root)
    for node in walk(root):
        if node.type == "binding":
            found.bindings.setdefault(text_of(node.child_by_field_name("attrpath")), []).append(node)
    lists = found.bindings.get("patches", [])
    if len(lists) > 1:
        lines = ", ".join(str(line_of(node)) for node in lists)
        raise UserError(
            f"{recipe.path} has {len(lists)} lists of patches (lines {lines})",
            hint="import the patch files of one list, in order, instead of the recipe",
        )
    flags: list[str] = []
    for node in found.bindings.get("patchFlags", []):
        flags += _strings(found, node)
    level = strip_level(flags)
    for node in lists:
        for entry in found.entries(node.child_by_field_name("expression")):
            yield replace(entry, strip=level, reverse="-R" in flags)
    for node in walk(lists[0]) if lists else ():
        if node.type == "comment" and (match := _COMMENTED.match(text_of(node))):
            yield Entry(where=recipe.at(line_of(node)), text=match[1], state=EntryState.COMMENTED)
    yield from _edits(found)


def _edits(found: _Expression) -> Iterator[Entry]:
    """Yield an entry for each phase whose commands edit files."""
    for phase in sorted(_PHASES & found.bindings.keys()):
        node = found.bindings[phase][0]
        edits = []
        for line in text_of(node).splitlines():
            if _EDIT.search(line):
                edits.append(line.strip())
        if edits:
            yield Entry(where=found.recipe.at(line_of(node)), text="\n".join(edits), state=EntryState.EDIT)


def _strings(found: _Expression, node: Any) -> list[str]:
    """Return the words of a binding: a list of strings, or one string of several words."""
    strings: list[str] = []
    for child in walk(node):
        if child.type == "string_expression":
            strings += found.string(child).split()
    return strings


def _and(first: str, second: str) -> str:
    if first:
        return f"{first} and {second}"
    return second
