"""Patches in a conda recipe: ``source: patches`` of ``meta.yaml`` and ``recipe.yaml``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from patchq.errors import FormatError, UserError
from patchq.extras import need
from patchq.recipes.entries import Entry, EntryState, RecipeFile

_SET = re.compile(r"\{%-?\s*set\s+(\w+)\s*=\s*[\"']?([\w.+-]+)[\"']?\s*-?%\}")
_STATEMENT = re.compile(r"\{%.*?%\}", re.DOTALL)
_VALUE = re.compile(r"\$?\{\{\s*(.*?)\s*\}\}")
_SELECTOR = re.compile(r"#\s*\[(.+)\]\s*$")
_COMMENTED = re.compile(r"\s*#\s*-\s*(\S+\.(?:patch|diff))\b")
#: Limits of nodes to read, and of nodes inside one another: with anchors, a node can contain itself.
_MOST_STEPS, _MOST_DEEP = 50_000, 64


@dataclass(slots=True)
class _Conda:
    recipe: RecipeFile
    lines: list[str]
    blocks: list[str]
    steps: int = 0

    def count(self, deep: int) -> None:
        """Count a node.

        :raises UserError: if there are too many nodes, or too many inside one another.
        """
        self.steps += 1
        if self.steps > _MOST_STEPS or deep > _MOST_DEEP:
            raise UserError(
                f"{self.recipe.path} has too many nodes in its sources",
                hint="import the patch files instead of the recipe, in order",
            )

    def selector(self, node: Any) -> str:
        """Return the condition of a YAML node: the selector in its comment, and the ``{% if %}`` around its line."""
        line = node.start_mark.line
        match = _SELECTOR.search(self.lines[line])
        return _and(self.blocks[line], match[1].strip() if match else "")

    def entries(self, node: Any, folder: str, condition: str, deep: int = 0) -> Iterator[Entry]:
        """Yield the entries of a YAML node: a patch, a list of patches, or an ``if`` with ``then`` and ``else``."""
        self.count(deep)
        if node.id == "sequence":
            for item in node.value:
                inner = ""
                if item.id == "scalar":
                    inner = self.selector(item)
                yield from self.entries(item, folder, _and(condition, inner), deep + 1)
        elif node.id == "mapping":
            parts = {key.value: value for key, value in node.value if key.id == "scalar"}
            own = ""
            if "if" in parts and parts["if"].id == "scalar":
                own = parts["if"].value
            for key, words in (("then", own), ("else", f"not {own}")):
                if key in parts:
                    yield from self.entries(parts[key], folder, _and(condition, words), deep + 1)
        elif node.value:
            found = self.recipe.entry(str(node.value), node.start_mark.line + 1, strip=None)
            yield replace(found, folder=folder).only_if(condition)

    def sources(self, node: Any, condition: str = "", deep: int = 0) -> Iterator[Entry]:
        """Yield the entries of all sources in a YAML node: a list of sources, or one source."""
        self.count(deep)
        if node.id == "sequence":
            for item in node.value:
                selector = self.selector(item) if item.id == "scalar" else ""
                yield from self.sources(item, _and(condition, selector), deep + 1)
        elif node.id == "mapping":
            parts = {key.value: (key, value) for key, value in node.value if key.id == "scalar"}
            own = ""
            if "if" in parts and parts["if"][1].id == "scalar":
                own = parts["if"][1].value
            for key, words in (("then", own), ("else", f"not {own}")):
                if key in parts:
                    yield from self.sources(parts[key][1], _and(condition, words), deep + 1)
            folder = next((str(parts[key][1].value) for key in ("folder", "target_directory") if key in parts), "")
            for key, value in node.value:
                if key.value == "patches":
                    words = _and(condition, self.selector(key))
                    yield from self.entries(value, folder if "$" not in folder else "", words)


def conda_entries(recipe: RecipeFile) -> Iterator[Entry]:
    """Yield the entries of a recipe, one source after another.

    The patches have no strip level, because conda-build detects it.

    :raises FormatError: if the recipe isn't valid YAML.
    """
    need("adopt", "reading recipes")
    import yaml

    text = _without_jinja(recipe.text)
    reader = _Conda(recipe, [*text.splitlines(), ""], _blocks(recipe.text))
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:  # the last two for a number
        message = str(error).partition("\n")[0]
        raise FormatError(
            f"{recipe.path} is not valid YAML: {message}", hint="import the patch files instead of the recipe"
        ) from None
    todo: list[Any] = []
    if root is not None:
        todo = [root]
    seen: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "mapping":
            for key, value in node.value:
                if key.value == "source":
                    yield from reader.sources(value)
                else:
                    todo.append(value)
        elif node.id == "sequence":
            todo += reversed(node.value)
    for number, line in enumerate(reader.lines, 1):
        if match := _COMMENTED.match(line):
            yield Entry(where=recipe.at(number), text=match[1], state=EntryState.COMMENTED)


def _without_jinja(text: str) -> str:
    """Replace the Jinja variables in a recipe by their values (``$…`` if unknown). Line numbers stay the same."""
    known = dict(_SET.findall(text))
    known |= dict(re.findall(r"^  (\w+): [\"']?([\w.+-]+)[\"']?\s*$", _block(text, "context"), re.MULTILINE))
    text = _STATEMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    return _VALUE.sub(lambda match: known.get(match[1], "$…"), text)


def _blocks(text: str) -> list[str]:
    """Return, for each line, the condition of the ``{% if %}`` around it; empty if there is none."""
    found: list[str] = []
    open_blocks: list[str] = []
    for line in [*text.splitlines(), ""]:
        for word, rest in re.findall(r"\{%-?\s*(if|elif|else|endif)\b\s*(.*?)\s*-?%\}", line):
            if word == "if":
                open_blocks.append(rest)
            elif open_blocks and word == "endif":
                open_blocks.pop()
            elif open_blocks:
                open_blocks[-1] = rest or f"not {open_blocks[-1]}"
        found.append(" and ".join(open_blocks))
    return found


def _block(text: str, name: str) -> str:
    match = re.search(rf"^{name}:\n((?:[ #].*\n|\n)*)", text, re.MULTILINE)
    if match:
        return match[1]
    return ""


def _and(first: str, second: str) -> str:
    return " and ".join(filter(None, [first, second]))
