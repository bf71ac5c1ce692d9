"""Patches in a Homebrew formula: ``patch`` lines and blocks, ``__END__``, and ``inreplace``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from patchq.recipes._trees import line_of, parse, text_of, walk
from patchq.recipes.entries import Entry, EntryState, RecipeFile, strip_level

#: Blocks of a formula that don't make their patches conditional.
_ALWAYS = {"stable"}


def homebrew_entries(recipe: RecipeFile) -> Iterator[Entry]:
    """Yield the entries of a formula, in source order."""
    root = parse("ruby", recipe.text)
    data = ""
    for node in walk(root):
        if node.type == "uninterpreted" and not data:
            data = text_of(node).lstrip("\n")
    for node in walk(root):
        if node.type == "comment" and re.match(r"#\s*patch (?:do\b|:)", text_of(node)):
            yield Entry(where=recipe.at(line_of(node)), text=text_of(node).lstrip("# "), state=EntryState.COMMENTED)
        if node.type != "call" or node.child_by_field_name("receiver"):
            continue
        name = text_of(node.child_by_field_name("method"))
        if name == "inreplace" and not _inside(node, name):
            yield Entry(where=recipe.at(line_of(node)), text=text_of(node), state=EntryState.EDIT)
        elif name == "patch":
            yield from _patch(recipe, node, data)


def _patch(recipe: RecipeFile, node: Any, data: str) -> Iterator[Entry]:
    arguments = node.child_by_field_name("arguments")
    words = []
    if arguments:
        words = [text_of(child) for child in arguments.named_children]
    level = strip_level(words, ":p")
    condition, resource = _context(node)
    block = node.child_by_field_name("block")
    inner: dict[str, list[Any]] = {}
    for call in walk(block) if block else ():
        if call.type == "call" and not call.child_by_field_name("receiver"):
            inner.setdefault(text_of(call.child_by_field_name("method")), []).append(call)
    if ":DATA" in words:
        found = [Entry(where=recipe.at(line_of(node)), text="DATA", data=data.encode(), strip=level)]
    elif "file" in inner:
        found = [recipe.entry(_string(inner["file"][0]), line_of(node), "", "..", "../..", strip=level)]
    elif "apply" in inner:
        names = [_string(call) for call in inner["apply"]]
        found = [replace(_remote(recipe, node, inner), detail=", ".join(names))]
    elif "url" in inner:
        found = [_remote(recipe, node, inner)]
    else:
        found = [Entry(where=recipe.at(line_of(node)), text=text_of(node)[:60], state=EntryState.UNREADABLE)]
    folder = ""
    if "directory" in inner:
        folder = _string(inner["directory"][0])
    for entry in found:
        entry = replace(entry, folder=folder)
        if resource:
            entry = replace(entry, state=EntryState.OTHER_SOURCE, detail=f"resource {resource}")
        yield entry.only_if(condition)


def _remote(recipe: RecipeFile, node: Any, inner: dict[str, list[Any]]) -> Entry:
    if "url" in inner:
        url = _string(inner["url"][0])
    else:
        url = text_of(node)[:60]
    return Entry(where=recipe.at(line_of(node)), text=url, state=EntryState.REMOTE)


def _string(call: Any) -> str:
    """Return the first string in a call; empty if the call contains none."""
    for node in walk(call):
        if node.type == "string_content":
            return text_of(node)
    return ""


def _context(node: Any) -> tuple[str, str]:
    """Return the condition under which a call runs, and the resource to which it belongs."""
    conditions: list[str] = []
    resource = ""
    child, node = node, node.parent
    while node is not None:
        if node.type in ("if", "unless", "if_modifier", "unless_modifier", "elsif", "else", "case", "when"):
            found = node.child_by_field_name("condition")
            prefix = ""
            if "unless" in node.type or child.type in ("else", "elsif"):
                prefix = "not "
            if found:
                conditions.append(prefix + text_of(found))
        elif node.type == "call" and node.child_by_field_name("block"):
            name = text_of(node.child_by_field_name("method"))
            if name == "resource":
                resource = _string(node) or name
            elif name not in _ALWAYS:
                conditions.append(name)
        child, node = node, node.parent
    return " and ".join(reversed(conditions)), resource


def _inside(node: Any, name: str) -> bool:
    """Return True if a call is inside another call of the same name."""
    node = node.parent
    while node is not None:
        if node.type == "call" and text_of(node.child_by_field_name("method")) == name:
            return True
        node = node.parent
    return False
