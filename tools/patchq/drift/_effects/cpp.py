"""Restore the old text of C++ functions that were rewritten without a change of their effect."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from patchq.drift._cpp.facts import CppFile, head_of, local_names, read_cpp
from patchq.drift._effects.restored import NOTHING, RestoredLines, replaced
from patchq.drift._effects.translated import (
    aliases_of,
    changes_copy,
    constant_functions,
    is_const,
    node_of_parameter,
    parameters_of,
    python_of,
    types_of_locals,
    without_aliases,
)
from patchq.drift._effects.trials import FunctionVersion, do_the_same
from patchq.drift._effects.values import UnknownError
from patchq.drift._python.shape import FunctionNode

_Value = TypeVar("_Value", int, str)
#: Function that only one version has: its qualified name and its node.
_Helper = tuple[str, Any]


def restore_cpp(
    old: bytes, new: bytes, kept: Mapping[str, Collection[str]] = NOTHING, patched: Collection[str] = ()
) -> list[RestoredLines]:
    """Return the replacements in the new file that give functions with an unchanged effect their old text.

    :param kept: see :func:`patchq.drift._effects.python.restore_python`.
    :param patched: see there.
    """
    files = read_cpp(old), read_cpp(new)
    functions = tuple(dict(_functions(file)) for file in files)
    constants = _differing(files, list(map(_numbers, files)))
    aliases = _differing(files, list(map(_types, files)))
    found: list[RestoredLines] = []
    used: set[str] = set()
    for name, node in functions[1].items():
        before = functions[0].get(name)
        if before is None or files[0].text(before) == files[1].text(node):
            continue
        both = before, node
        if not _same_interface(files, both):
            continue
        mine = kept.get(_short(name).partition(" ")[0], ())
        if (local_names(files[0], before) - local_names(files[1], node)).intersection(mine):
            continue
        local = list(map(aliases_of, files, both))
        constant = set().union(*map(constant_functions, files, both))
        called, versions = [], []
        uneven = _uneven(files, both) - set(patched)
        for side, one in enumerate(both):
            helpers = _helpers(functions[side], functions[1 - side], files, side, uneven)
            called.append(_called(files[side], one, helpers))
            names = aliases[side] | dict(local[side].items() - local[1 - side].items())
            versions.append(_version(files[side], one, called[side], constants[side], names, mine, constant))
        if not _same_types(files, both, called):
            continue
        gone = {helper: one for helper, one in called[0].values() if helper not in functions[1]}
        if {_short(helper) for helper in gone}.intersection(patched):
            continue
        if versions[0] is None or versions[1] is None or not do_the_same(versions[0], versions[1]):
            continue
        lines = [files[0].text(one) for helper, one in gone.items() if helper not in used]
        used |= {helper for side in called for helper, _ in side.values()}
        found.append(_whole_lines(new, node, "\n\n".join([*lines, files[0].text(before)])))
    rest, _ = replaced(new, found)
    for name, node in functions[1].items():
        if name in used and name not in functions[0] and rest.count(_short(name).encode()) == 1:
            found.append(_whole_lines(new, node, "\n" * (node.end_point[0] - node.start_point[0])))
    return found


def _functions(file: CppFile) -> Iterator[tuple[str, Any]]:
    """Yield each function with a body, by name. Functions of the same name are numbered: ``f``, ``f 1``, ``f 2``."""
    for name, facts in file.facts.items():
        nodes = [node for fact, node in zip(facts, file.nodes[name], strict=True) if fact.kind == "function"]
        nodes = [node for node in nodes if node.child_by_field_name("body") is not None]
        for number, node in enumerate(nodes):
            yield f"{name} {number}".removesuffix(" 0"), node


def _short(name: str) -> str:
    return name.rpartition("::")[2]


def _same_interface(files: Sequence[CppFile], functions: Sequence[Any]) -> bool:
    """Return whether two versions of a function are called alike."""
    if len(set(map(head_of, files, functions))) > 1 or len(set(map(_header, files, functions))) > 1:
        return False
    return not _exchanged(files, functions)


def _same_types(files: Sequence[CppFile], functions: Sequence[Any], called: Sequence[Mapping[str, _Helper]]) -> bool:
    """Return whether local variables of the same name have the same types. Those of called functions count, too."""
    sides: list[dict[str, set[str]]] = [{}, {}]
    for side, mine in enumerate(functions):
        for _, function in [("", mine), *called[side].values()]:
            for name, types in types_of_locals(files[side], function).items():
                sides[side].setdefault(name, set()).update(types)
    return all(sides[0][name] == sides[1][name] for name in sides[0].keys() & sides[1].keys())


def _exchanged(files: Sequence[CppFile], functions: Sequence[Any]) -> bool:
    """Return whether a name that both versions give to a parameter is that of another parameter."""
    sides: list[list[str]] = [[], []]
    for side, function in enumerate(functions):
        for node in map(node_of_parameter, parameters_of(function)):
            sides[side].append(files[side].text(node) if node else "")
    common = set(sides[0]).intersection(sides[1]) - {""}
    return any(one != other and {one, other} & common for one, other in zip(*sides, strict=False))


def _header(file: CppFile, node: Any) -> str:
    """Return the text of a function before its body, without whitespace, names of parameters and initializers."""
    body = node.child_by_field_name("body")
    hidden = list(map(node_of_parameter, parameters_of(node)))
    hidden += filter(lambda child: child.type == "field_initializer_list", node.children)
    text, start = "", node.start_byte
    for each in sorted(filter(None, hidden), key=lambda one: one.start_byte):
        text += file.source[start : each.start_byte].decode("utf-8", "replace") + "%"
        start = each.end_byte
    text += file.source[start : body.start_byte].decode("utf-8", "replace")
    return re.sub(r"=(NULL|nullptr)\b", "=0", "".join(text.split()).removesuffix("%"))


def _uneven(files: Sequence[CppFile], functions: Sequence[Any]) -> set[str]:
    """Return the words that one version of a function has more often than the other."""
    old, new = (Counter(re.findall(r"\w+", files[side].text(functions[side]))) for side in (0, 1))
    return set((old - new) + (new - old))


def _helpers(
    mine: Mapping[str, Any], other: Mapping[str, Any], files: Sequence[CppFile], side: int, uneven: Collection[str]
) -> dict[str, _Helper]:
    """Return the functions that only ``mine`` has, by their names without a namespace or class.

    :param uneven: names of functions to return, too, if both versions have them with the same text.
    """
    found: dict[str, _Helper] = {}
    counts = Counter(_short(name).partition(" ")[0] for name in mine)
    for name, node in mine.items():
        short = _short(name)
        is_same = short in uneven and counts[short] == 1 and name in other
        is_new = name not in other and counts[short] == 1
        if is_new or (is_same and files[side].text(node) == files[1 - side].text(other[name])):
            found[short] = (name, node)
    return found


def _called(file: CppFile, node: Any, helpers: Mapping[str, _Helper]) -> dict[str, _Helper]:
    """Return the helpers whose names occur in a function's text."""
    text = file.text(node)
    return {name: helper for name, helper in helpers.items() if name in text and not changes_copy(file, helper[1])}


def _version(
    file: CppFile,
    node: Any,
    called: Mapping[str, _Helper],
    constants: Mapping[str, int],
    aliases: Mapping[str, str],
    kept: Collection[str],
    constant: Collection[str],
) -> FunctionVersion | None:
    try:
        function = python_of(*without_aliases(file, node, aliases), constant)
        helpers: dict[str, FunctionNode] = {}
        for name, (_, one) in called.items():
            helpers[name] = python_of(*without_aliases(file, one, aliases), constant)
        values: dict[str, ast.expr] = dict(zip(constants, map(ast.Constant, constants.values()), strict=True))
        return FunctionVersion(function, helpers, values, kept, is_cpp=True)
    except UnknownError:
        return None


def _differing(files: Sequence[CppFile], sides: Sequence[Mapping[str, _Value]]) -> list[dict[str, _Value]]:
    """Return the names of each version without those that both versions mention as often, or with other values."""
    counts = []
    for file in files:
        counts.append(Counter(re.findall(rb"\w+", file.source)))
    found: list[dict[str, _Value]] = [{}, {}]
    for side in (0, 1):
        other = counts[1 - side]
        for name, value in sides[side].items():
            word = name.encode()
            if counts[side][word] != other[word] and (sides[1 - side].get(name) == value or not other[word]):
                found[side][name] = value
    return found


def _numbers(file: CppFile) -> dict[str, int]:
    """Return the names of integer constants and macros outside of functions that have one definition."""
    found: dict[str, int] = {}
    names = Counter(map(_short, file.facts))
    for name, facts in file.facts.items():
        fact, node = facts[0], file.nodes[name][0]
        if any(name in guard for guard in fact.guards):
            # It may be defined before.
            continue
        is_constant = fact.kind == "macro" or (fact.kind == "value" and is_const(file, node))
        if is_constant and len(facts) == names[_short(name)] == 1 and fact.parameters is None and fact.value.isdigit():
            found[_short(name)] = int(fact.value)
    return found


def _whole_lines(source: bytes, node: Any, text: str) -> RestoredLines:
    """Return the replacement of a function by ``text``. Other code on the function's first and last line is kept."""
    lines = source.split(b"\n")
    first, last = node.start_point[0], node.end_point[0]
    before, after = lines[first][: node.start_point[1]], lines[last][node.end_point[1] :]
    return RestoredLines(first + 1, last + 1, tuple((before + text.encode() + after).split(b"\n")))


def _types(file: CppFile) -> dict[str, str]:
    """Return the names that the file gives to types outside of functions, for those that have one definition."""
    found: dict[str, str] = {}
    names = Counter(map(_short, file.facts))
    for name, nodes in file.nodes.items():
        node = nodes[0]
        if node.type != "alias_declaration" or node.parent.type == "template_declaration":
            continue
        if len(nodes) == names[_short(name)] == 1:
            found[_short(name)] = file.text(node.child_by_field_name("type")).removeprefix("typename ")
    return found
