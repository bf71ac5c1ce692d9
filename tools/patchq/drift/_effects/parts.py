"""Find the parts in which two versions of a function differ, each as a function of its own."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from patchq.drift._python.shape import FunctionNode, bound_names, clone, walk

#: Most parts of a function.
_MOST_PARTS = 12
#: Translation of a local variable of C++: its name and number.
_NUMBERED = re.compile(r"(.+) (\d+)")
#: What a part returns if the function goes on after it.
_GOES_ON = ast.Return(ast.Name(" goes on", ast.Load()))


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """Statements that differ, as two functions of the same variables.

    :ivar kept: variables that the function reads after these statements.
    :ivar copies: for each statement in ``old`` and ``new``, including those in their blocks, its id by the id of the
        statement in the whole function.
    """

    old: FunctionNode
    new: FunctionNode
    kept: frozenset[str]
    copies: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of a block in a function.

    :ivar functions: innermost functions around the block, in both versions.
    :ivar ends: the function returns after the block.
    :ivar repeats: the block is in a loop.
    :ivar depth: number of ``with`` statements around the block.
    :ivar joined: parts of the block are joined to one.
    """

    functions: tuple[FunctionNode, FunctionNode]
    ends: bool = True
    repeats: bool = False
    depth: int = 0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class _DifferingBlock:
    old: Sequence[ast.stmt]
    new: Sequence[ast.stmt]
    place: _Place


class _TooLargeError(Exception):
    """There is no smaller part than the function, or there are too many."""


def changed_parts(
    old: FunctionNode, new: FunctionNode, kept: Collection[str], *, joined: bool = False
) -> list[ChangedPart]:
    """Return the parts in which two versions of a function differ: they do the same if each of the parts does.

    Return an empty list if the parts would be as large as the function.

    :param kept: further variables whose values count.
    :param joined: return a single part, with the equal statements between those that differ.
    """
    originals = [*walk(old), *walk(new)]
    new = _with_names_of(old, new)
    old = _with_names_of(old, old)
    original = dict(zip(map(id, [*walk(old), *walk(new)]), originals, strict=True))
    if _declared(old) != _declared(new):
        return []
    try:
        regions = list(_regions(old.body, new.body, _Place((old, new), joined=joined)))
    except _TooLargeError:
        return []
    if len(regions) > _MOST_PARTS:
        return []
    found = []
    for region in regions:
        if list(map(id, region.old)) == list(map(id, old.body)):
            return []
        found.append(_part(region, kept, original))
    return found


def _regions(old: Sequence[ast.stmt], new: Sequence[ast.stmt], place: _Place) -> Iterator[_DifferingBlock]:
    """Yield the smallest lists of statements that differ."""
    matcher = difflib.SequenceMatcher(None, list(map(ast.dump, old)), list(map(ast.dump, new)), autojunk=False)
    places = [place for kind, *place in matcher.get_opcodes() if kind != "equal"]
    if place.joined and places:
        places = [[places[0][0], places[-1][1], places[0][2], places[-1][3]]]
    for start, end, first, last in places:
        sides = old[start:end], new[first:last]
        here = replace(place, ends=place.ends and end == len(old) and last == len(new))
        inner = None
        if len(sides[0]) == len(sides[1]) == 1:
            inner = list(_inside(sides[0][0], sides[1][0], here))
        if inner:
            yield from inner
        else:
            yield _DifferingBlock(*sides, here)


def _inside(old: ast.stmt, new: ast.stmt, place: _Place) -> Iterator[_DifferingBlock]:
    """Yield the regions inside a statement whose first line is the same; nothing for other statements."""
    if type(old) is not type(new) or _header(old) != _header(new):
        return
    if isinstance(old, ast.If):
        places = {"body": place, "orelse": place}
    elif isinstance(old, ast.For | ast.AsyncFor | ast.While):
        places = {"body": replace(place, ends=False, repeats=True), "orelse": replace(place, ends=False)}
    elif isinstance(old, ast.With | ast.AsyncWith):
        places = {"body": replace(place, ends=False, depth=place.depth + 1)}
    elif isinstance(old, FunctionNode) and isinstance(new, FunctionNode):
        places = {"body": _Place((old, new), joined=place.joined)}
    elif isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
        yield from _methods(old, new, place)
        return
    else:
        return
    for name, inner in places.items():
        yield from _regions(getattr(old, name), getattr(new, name), inner)


def _methods(old: ast.ClassDef, new: ast.ClassDef, place: _Place) -> Iterator[_DifferingBlock]:
    """Yield the regions in the methods of a class.

    :raises _TooLargeError: if anything else differs.
    """
    if len(old.body) != len(new.body):
        raise _TooLargeError
    for one, other in zip(old.body, new.body, strict=True):
        if ast.dump(one) == ast.dump(other):
            continue
        found = list(_inside(one, other, place)) if isinstance(one, FunctionNode) else []
        if not found:
            raise _TooLargeError
        yield from found


def _header(node: ast.stmt) -> str:
    """Return a statement without its blocks, as text."""
    parts = []
    for name, value in ast.iter_fields(node):
        if name not in ("body", "orelse"):
            for one in value if isinstance(value, list) else [value]:
                parts.append(ast.dump(one) if isinstance(one, ast.AST) else repr(one))
    return " ".join(parts)


def _part(region: _DifferingBlock, kept: Collection[str], original: Mapping[int, ast.AST]) -> ChangedPart:
    """Make functions of the statements in a region.

    :param original: originals of the copied nodes, by the ids of the copies.
    """
    statements = [*region.old, *region.new]
    functions = region.place.functions
    common = bound_names(functions[0]) & bound_names(functions[1])
    stored = _stored(statements)
    read = {*kept}
    for function, mine in zip(functions, (region.old, region.new), strict=True):
        read |= _read(function, mine, after=not region.place.repeats)
    if region.place.repeats:
        read |= _read(ast.Module(statements, []), ()) & common
    names = stored & read
    copies = {}
    for each in _every(statements):
        if isinstance(each, ast.Name):
            names.add(each.id)
        elif isinstance(each, ast.stmt):
            copies[id(original[id(each)])] = id(each)
    known = [_constants(function, _every(statements)) for function in functions]
    same = dict(known[0].items() & known[1].items())
    parameters = sorted((names & common) - same.keys())
    used = {name: value for name, value in same.items() if name in names}
    old, new = (_function(each, parameters, region.place, used) for each in (region.old, region.new))
    return ChangedPart(old, new, frozenset(stored & read), copies)


def _constants(function: FunctionNode, part: Sequence[ast.AST]) -> dict[str, str]:
    """Return the variables of a function that only have one value, a number or a text, from before a part.

    The values are Python literals."""
    stored: Counter[str] = Counter()
    values: dict[str, str] = {}
    inside = set(map(id, part))
    for each in walk(function):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            stored[each.id] += 1
    stored.update(_otherwise_bound(function))
    for statement in function.body:
        if inside.intersection(map(id, walk(statement))):
            # What follows is assigned later.
            break
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | str() as value)):
                if stored[name] == 1:
                    values[name] = repr(value)
    return values


def _function(
    statements: Sequence[ast.stmt], parameters: Sequence[str], place: _Place, known: Mapping[str, str]
) -> FunctionNode:
    """Make a function of statements.

    :param known: values of variables that have only one.
    """
    body = list(statements)
    if place.depth:
        # Anything may raise an exception.
        body = [ast.Try(body or [ast.Pass()], [], [], [ast.Pass()])]
    if not place.ends:
        body.append(_GOES_ON)
    given: list[ast.stmt] = []
    for name, value in sorted(known.items()):
        given.append(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(ast.literal_eval(value))))
    body = given + body
    if declared := _declared(place.functions[0]):
        body.insert(0, ast.Global(declared))
    arguments = ast.arguments([], list(map(ast.arg, parameters)), None, [], [], None, [])
    return ast.FunctionDef("part", arguments, body or [ast.Pass()], [])


def _declared(node: FunctionNode) -> list[str]:
    """Return the names that a function, or one nested in it, takes from its surroundings."""
    found: list[str] = []
    for each in walk(node):
        if isinstance(each, ast.Global | ast.Nonlocal):
            found += each.names
    return sorted(found)


def _every(statements: Sequence[ast.stmt]) -> list[ast.AST]:
    """Return statements and all nodes in them."""
    return walk(ast.Module(list(statements), []))[1:]


def _stored(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements may assign."""
    found = bound_names(ast.Module(list(statements), []))
    for each in _every(statements):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del):
            found.add(each.id)
    return found


def _read(function: ast.AST, without: Sequence[ast.stmt], *, after: bool = False) -> set[str]:
    """Return the names that a function reads, except in some of its statements.

    :param after: only those that it reads after these statements, or in a nested function.
    """
    left_out = set(map(id, _every(without)))
    nested: set[int] = set()
    for each in walk(function):
        if isinstance(each, FunctionNode | ast.Lambda | ast.ClassDef) and each is not function:
            nested.update(map(id, walk(each)))
    found: set[str] = set()
    is_after = not after or not without
    for each in _in_order(function):
        if id(each) in left_out:
            is_after = True
        elif isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store) and (is_after or id(each) in nested):
            found.add(each.id)
        elif isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name) and (is_after or id(each) in nested):
            found.add(each.target.id)
    return found


def _with_names_of(old: FunctionNode, new: FunctionNode) -> FunctionNode:
    """Return a copy of a function whose local variables have the names of the other version's where that is clear.

    Those of C++ are numbered among the variables of the same name. In Python, a variable that only the new version
    has gets the name of one that only the old version has, in the order of their first assignments.
    """
    made = clone(new)
    names = _numbered(made) or _renamed(old, made)
    for each in walk(made):
        if isinstance(each, ast.Name):
            each.id = names.get(each.id, each.id)
        elif isinstance(each, ast.arg):
            each.arg = names.get(each.arg, each.arg)
        elif isinstance(each, FunctionNode) and each is not made:
            each.name = names.get(each.name, each.name)
    return made


def _numbered(node: FunctionNode) -> Mapping[str, str]:
    numbers: dict[str, set[int]] = {}
    for each in walk(node):
        name = getattr(each, "id", None) or getattr(each, "arg", None) or getattr(each, "name", None)
        if name and (match := _NUMBERED.fullmatch(name)):
            numbers.setdefault(match[1], set()).add(int(match[2]))
    found = {}
    for name, every in numbers.items():
        for position, number in enumerate(sorted(every)):
            found[f"{name} {number}"] = f"{name} {position}"
    return found


def _renamed(old: FunctionNode, new: FunctionNode) -> Mapping[str, str]:
    before, now = _assigned(old), _assigned(new)
    gone = [name for name in before if name not in now]
    come = [name for name in now if name not in before]
    if len(gone) != len(come) or _read(new, ()).union(bound_names(new)).intersection(gone):
        return {}
    return dict(zip(come, gone, strict=True))


def _assigned(node: FunctionNode) -> list[str]:
    """Return the names that only assignments and loops of a function bind, in order."""
    assigned: dict[str, None] = {}
    for each in _in_order(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            assigned.setdefault(each.id)
    others = _otherwise_bound(node)
    return [name for name in assigned if name not in others]


def _otherwise_bound(node: FunctionNode) -> set[str]:
    """Return the names that anything but an assignment or a loop binds in a function."""
    found: set[str] = set()
    for each in walk(node):
        if isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, FunctionNode | ast.ClassDef | ast.ExceptHandler):
            found.add(each.name or "")
        elif isinstance(each, ast.alias):
            found.add(each.asname or each.name)
        elif isinstance(each, ast.MatchAs | ast.MatchStar | ast.MatchMapping):
            found.add(getattr(each, "name", None) or getattr(each, "rest", None) or "")
    return found


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes in it, in the order of the source."""
    yield node
    for each in ast.iter_child_nodes(node):
        yield from _in_order(each)
