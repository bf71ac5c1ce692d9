"""Patches of a vcpkg port: the argument ``PATCHES`` of commands in ``portfile.cmake``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from patchq.errors import FormatError, UserError
from patchq.extras import need
from patchq.recipes.entries import Entry, EntryState, RecipeFile

if TYPE_CHECKING:
    from cmake_parser import Token

_KEYWORD = re.compile(r"[A-Z][A-Z0-9_]*")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_HERE = "${CMAKE_CURRENT_LIST_DIR}/"
#: Limits of the entries of one variable or command, and of the characters of a text.
_MOST_ENTRIES, _MOST_VALUE = 10_000, 2 << 10
_EDITS_OF_FILE = {"WRITE", "APPEND", "REMOVE", "RENAME", "COPY"}


@dataclass(slots=True)
class _Port:
    """Reader of a portfile, with its state.

    :ivar variables: entries in each variable that lists patches.
    :ivar words: values of variables that are text.
    :ivar conditions: conditions of the open ``if`` blocks.
    :ivar main: name of the variable with the folder of the port's source.
    """

    recipe: RecipeFile
    variables: dict[str, list[Entry]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)
    main: str = ""

    @property
    def condition(self) -> str:
        """Condition under which the current command runs; empty if it always runs."""
        return " and ".join(self.conditions)

    def entries(self, tokens: Sequence[Token]) -> list[Entry]:
        """Return the files and variables in a command's arguments, and the patches that its comments name."""
        found: list[Entry] = []
        for token in tokens:
            if token.kind == "COMMENT":
                if match := re.match(r"\s*(\S+\.(?:patch|diff))\b", token.value):
                    where = self.recipe.at(token.line)
                    found.append(Entry(where=where, text=match[1], state=EntryState.COMMENTED))
                continue
            text = token.value.removeprefix(_HERE)
            whole = _VARIABLE.fullmatch(text)
            if whole and whole[1] in self.variables:
                for entry in self.variables[whole[1]]:
                    found.append(entry.only_if(self.condition))
                if len(found) > _MOST_ENTRIES:  # list(APPEND A ${A}) doubles the entries
                    raise UserError(
                        f"{self.recipe.at(token.line)}: more than {_MOST_ENTRIES} patches",
                        hint="import the patch files instead of the recipe, in order",
                    )
            elif whole and re.search(r"PATCH", whole[1]) and whole[1] not in self.words:
                continue  # CMake expands a variable that was never set to nothing
            else:
                text = self.expand(text)
                found.append(self.recipe.entry(text, token.line).only_if(self.condition))
        return found

    def expand(self, text: str) -> str:
        """Replace the variables that are text. A text that is too long is cut."""
        return _VARIABLE.sub(lambda match: self.words.get(match[1], match[0]), text[:_MOST_VALUE])[:_MOST_VALUE]


def vcpkg_entries(recipe: RecipeFile) -> Iterator[Entry]:
    """Yield the entries of a portfile, in the order of its commands.

    :raises FormatError: if the portfile can't be parsed.
    """
    need("adopt", "reading recipes")
    from cmake_parser import CMakeParseError, parse_raw

    port = _Port(recipe)
    try:
        for node in parse_raw(recipe.text):
            if hasattr(node, "identifier"):
                yield from _command(port, node.identifier.lower(), node.args, node.line)
    except CMakeParseError as error:
        raise FormatError(
            f"{recipe.path} is not valid CMake code: {error}", hint="import the patch files instead of the recipe"
        ) from None


def _command(port: _Port, name: str, arguments: Sequence[Token], line: int) -> Iterator[Entry]:
    values = [token for token in arguments if token.kind != "COMMENT"]
    plain = [token.value for token in values]
    if name in ("if", "foreach", "while"):
        port.conditions.append(" ".join(plain))
    elif name in ("else", "elseif") and port.conditions:
        if name == "elseif":
            port.conditions[-1] = " ".join(plain)
        else:
            port.conditions[-1] = f"not {port.conditions[-1]}"
    elif name in ("endif", "endforeach", "endwhile"):
        port.conditions = port.conditions[:-1]
    elif name == "set" and len(plain) > 1:
        _set(port, plain[0], values[1:])
    elif name == "list" and len(plain) > 1 and plain[0] in ("APPEND", "PREPEND"):
        new = port.entries(arguments[2:])
        old = port.variables.get(plain[1], [])
        if plain[0] == "APPEND":
            port.variables[plain[1]] = old + new
        else:
            port.variables[plain[1]] = new + old
    elif name == "vcpkg_download_distfile" and plain:
        url = next((text for text in plain if "://" in text), plain[0])
        url = port.expand(url)
        port.variables[plain[0]] = [Entry(where=port.recipe.at(line), text=url, state=EntryState.REMOTE)]
    elif _edits(name, plain):
        yield Entry(where=port.recipe.at(line), text=f"{name}({' '.join(plain)})", state=EntryState.EDIT)
    else:
        yield from _source(port, name, arguments)


def _edits(name: str, words: Sequence[str]) -> bool:
    """Return True for a command that edits the unpacked source."""
    edits = name == "vcpkg_replace_string" or (name == "file" and words[:1] and words[0] in _EDITS_OF_FILE)
    return bool(edits) and any("SOURCE_PATH}" in word for word in words)


def _set(port: _Port, name: str, values: Sequence[Token]) -> None:
    listed = any(re.search(r"\.(?:patch|diff)$", token.value) for token in values)
    if listed or any(token.value.strip("${}") in port.variables for token in values):
        found = port.entries(values)
        port.variables[name] = [*(port.variables.get(name, []) if port.conditions else []), *found]
    elif len(values) == 1:
        port.words[name] = port.expand(values[0].value)
    elif not port.conditions:
        port.variables[name] = []


def _source(port: _Port, name: str, arguments: Sequence[Token]) -> Iterator[Entry]:
    """Yield the entries of a command that unpacks a source, or applies patches to a source."""
    at = None
    plain = []
    for number, token in enumerate(arguments):
        if at is None and token.value == "PATCHES" and token.kind == "RAW":
            at = number
        if token.kind != "COMMENT":
            plain.append(token.value)
    target = ""
    for word, value in itertools.pairwise(plain):
        if word in ("OUT_SOURCE_PATH", "SOURCE_PATH"):
            target = value
            break
    if not target and name.startswith("vcpkg_extract_source_archive") and plain:
        target = plain[0]
    target = target.strip("${}")
    if target and name.startswith(("vcpkg_from_", "vcpkg_extract_")):
        port.main = port.main or target
    if at is None:
        return
    for entry in port.entries(_until_keyword(arguments[at + 1 :])):
        if target and port.main and target != port.main and entry.state is not EntryState.COMMENTED:
            yield replace(entry, state=EntryState.OTHER_SOURCE, detail=target)
            continue
        yield entry.keeping_returns()  # vcpkg runs `git apply`, which keeps CR LF


def _until_keyword(tokens: Sequence[Token]) -> list[Token]:
    """Return the arguments before the next CMake keyword, such as ``HEAD_REF``."""
    found = []
    for token in tokens:
        if token.kind == "RAW" and _KEYWORD.fullmatch(token.value):
            break
        found.append(token)
    return found
