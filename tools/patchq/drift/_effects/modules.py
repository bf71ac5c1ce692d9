"""Imports and definitions of a version of a Python module, for the comparison of its functions."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from patchq.drift._effects.run import CACHE
from patchq.drift._python.shape import FunctionNode, bound_names, names_in, walk
from patchq.drift.bodies import parse

_BUILTINS = set(dir(builtins))
#: Node of a function by its qualified name.
Functions = dict[str, FunctionNode]
#: Function that returns the old and the new content of the module from which a statement imports.
Imported = Callable[[ast.ImportFrom], tuple[bytes | None, bytes | None]]


class ModuleVersion:
    """Version of a module.

    :ivar lines: its text.
    :ivar nodes: all nodes of its tree.
    :ivar functions: its functions and methods, by their qualified names.
    :ivar bound: all names that are bound anywhere in it.
    :ivar variables: names that are assigned outside of functions and classes.
    """

    def __init__(self, tree: ast.Module, source: bytes) -> None:
        self.tree, self.lines = tree, source.split(b"\n")
        self.nodes = walk(tree)
        self.functions: Functions = dict(_functions(tree.body, ""))
        self.bound = bound_names(tree)
        self.variables: set[str] = set()
        #: How often each name is bound outside of functions and classes.
        self._bindings: Counter[str] = Counter()
        for node in _outer_statements(tree.body):
            names = bound_names(ast.Module([node], []))
            if isinstance(node, FunctionNode | ast.ClassDef):
                names = {node.name}
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                self.variables |= names
            self._bindings.update(names)

    def is_single(self, name: str) -> bool:
        """Return whether a name has one meaning in the module; always True for methods."""
        return "." in name or self._bindings[name] == 1

    def same_functions(self, other: ModuleVersion) -> Functions:
        """Return the functions that the other version has with the same text, and that have one definition.

        Methods, and functions with another decorator than ``functools.cache``, are left out.
        """
        found = {}
        for name, node in self.functions.items():
            there = other.functions.get(name)
            is_plain = "." not in name and all(ast.unparse(one) == CACHE for one in node.decorator_list)
            is_single = self.is_single(name) and other.is_single(name)
            if is_plain and is_single and there is not None and ast.dump(node) == ast.dump(there):
                found[name] = node
        return found

    def imports(self) -> dict[str, ast.expr]:
        """Return each name that is imported in one way only, with its full name, such as ``json.loads``."""
        found: dict[str, ast.expr] = {}
        several = set()
        for name, value in _imports(self.nodes):
            if name in found and ast.dump(found[name]) != ast.dump(value):
                several.add(name)
            found[name] = value
        return {name: value for name, value in found.items() if name not in several}

    def meanings(self, function: FunctionNode) -> dict[str, set[str]]:
        """Return the full names of what a function and the module around it import, by their names."""
        found: dict[str, set[str]] = {}
        for name, value in _imports(_outer_statements(self.tree.body)):
            found.setdefault(name, set()).add(ast.unparse(value))
        inside: dict[str, set[str]] = {}
        for name, value in _imports(walk(function)):
            inside.setdefault(name, set()).add(ast.unparse(value))
        return found | inside

    def imported_helpers(self, called: set[str], imported: Imported, side: int) -> Functions:
        """Return the imported functions that are new, or have the same text in both versions.

        :param called: names of the functions to look for.
        :param side: 0 for the old version, 1 for the new one.
        """
        found: Functions = {}
        for node in self.nodes:
            if not isinstance(node, ast.ImportFrom) or not called & {one.asname or one.name for one in node.names}:
                continue
            contents = imported(node)
            module, other = read_module(contents[side]), read_module(contents[1 - side])
            if module is None:
                continue
            there = module._full_names(_module_of(node))
            here = self._full_names([])
            same = {name for name, full in there.items() if here.get(name) == full or name not in self.bound}
            for one in node.names:
                name = one.asname or one.name
                if name not in called or not self.is_single(name):
                    continue
                helper = module._unchanged(one.name, other)
                if helper is not None and free_names(helper) <= same | _BUILTINS:
                    found[name] = helper
        return found

    def _full_names(self, place: Sequence[str]) -> dict[str, str]:
        """Return the full names of what the module imports and, if its own name is given, of its functions."""
        found = {}
        for name, value in self.imports().items():
            found[name] = ast.unparse(value)
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for one in node.names:
                    found.setdefault(one.name, one.name)
        if place:
            for name in self.functions:
                found[name] = ast.unparse(_dotted([*place, name]))
        return found

    def _unchanged(self, name: str, other: ModuleVersion | None) -> FunctionNode | None:
        """Return a function that the other version lacks or has with the same text; None if there is none."""
        helper = self.functions.get(name)
        if helper is None or not self.is_single(name):
            return None
        if other is None or name not in other.bound:
            return helper
        return other.same_functions(self).get(name)


def read_module(source: bytes | None) -> ModuleVersion | None:
    """Return a version of a module; None if there is none, or if it is not valid Python."""
    if source is None:
        return None
    tree = parse(source)
    if tree is None:
        return None
    return ModuleVersion(tree, source)


def _functions(body: Sequence[ast.stmt], owner: str) -> Iterator[tuple[str, FunctionNode]]:
    for node in body:
        if isinstance(node, FunctionNode):
            yield owner + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _functions(node.body, owner)


def _outer_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements outside of functions and classes, without those that contain others."""
    for node in body:
        inner: list[ast.stmt] = []
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.ExceptHandler):
                inner += each.body
            elif isinstance(each, ast.stmt):
                inner.append(each)
        if isinstance(node, FunctionNode | ast.ClassDef) or not inner:
            yield node
        else:
            yield from _outer_statements(inner)


def _imports(nodes: Sequence[ast.AST] | Iterator[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield each imported name with its full name, such as ``json.loads``."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                yield one.asname or one.name, _dotted([*_module_of(node), one.name])
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.asname:
                    yield one.asname, _dotted(one.name.split("."))


def free_names(node: FunctionNode) -> set[str]:
    """Return the names that a function takes from its module."""
    return names_in(node) - bound_names(node)


def have_other_meanings(modules: Sequence[ModuleVersion], functions: Sequence[FunctionNode]) -> bool:
    """Return whether a name that both versions of a function read is imported from elsewhere in one of them."""
    sides: list[Mapping[str, set[str]]] = []
    for module, function in zip(modules, functions, strict=True):
        sides.append(module.meanings(function))
    common = set.intersection(*map(names_in, functions)) & sides[0].keys() & sides[1].keys()
    return any(sides[0][name] != sides[1][name] for name in common)


def _module_of(node: ast.ImportFrom) -> list[str]:
    """Return the parts of a module's name; of a relative one, its dots are the first part."""
    return ["." * node.level] * bool(node.level) + (node.module or "").split(".") * bool(node.module)


def _dotted(names: Sequence[str]) -> ast.expr:
    found: ast.expr = ast.Name(names[0], ast.Load())
    for name in names[1:]:
        found = ast.Attribute(found, name, ast.Load())
    return found
