"""Rewrite Python statements so that equivalent statements become equal, before a function is evaluated.

For example, ``items += [a, b]`` becomes ``items.append(a)`` and ``items.append(b)``. A ``with`` block becomes a flat
list: its start, its statements and its end. A ``return`` without an effect then gives the same result inside the block
and after it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from patchq.drift._python.shape import walk

_Comprehension = ast.GeneratorExp | ast.ListComp


class Left(ast.stmt):
    """End of a ``with`` block."""

    _fields = ()


def spelled(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Rewrite a function's statements so that equivalent code becomes equal. ``body`` may be changed in place."""
    return list(_Spelling().visit(ast.Module(list(body), [])).body)


class _Spelling(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        call = node.value
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "extend"
            and len(call.args) == 1
            and not call.keywords
        ):
            return _appended(call.func.value, call.args[0]) or node
        return _named_attribute(call) or node

    def visit_Try(self, node: ast.Try) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if node.orelse and not node.finalbody and all(_never_ends(handler.body) for handler in node.handlers):
            after, node.orelse = node.orelse, []
            return [node, *after]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
            return [ast.Assert(one, node.msg) for one in node.test.values]
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "__str__" and not (node.args or node.keywords):
            return ast.Call(ast.Name("str", ast.Load()), [node.func.value], [])
        respell = _CALLS.get(ast.unparse(node.func))
        if respell is None or (node.keywords and respell is not _opened):
            respell = _SUFFIXES.get(getattr(node.func, "attr", ""))
        return (respell and respell(node)) or node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add) and isinstance(node.value, ast.List | ast.ListComp):
            return _appended(node.target, node.value) or node
        return node

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        self.generic_visit(node)
        body = list(_with_ends(node.body))
        return [ast.copy_location(ast.With(node.items, []), node), *body, Left()]


def _never_ends(body: Sequence[ast.stmt]) -> bool:
    """Return True if the last statement of a block leaves it."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _named_attribute(call: ast.expr) -> ast.stmt | None:
    """Return ``x.a = value`` for ``setattr(x, "a", value)``, ``del x.a`` for ``delattr(x, "a")``, None otherwise."""
    if not isinstance(call, ast.Call) or call.keywords or len(call.args) < 2:
        return None
    name = call.args[1]
    # In a class, Python mangles ``x.__a``, but not the string in ``setattr(x, "__a", value)``.
    if not isinstance(name, ast.Constant) or not re.fullmatch(r"(?!__)[A-Za-z_]\w*", str(name.value)):
        return None
    match ast.unparse(call.func), call.args:
        case "setattr", [owner, _, value]:
            return ast.Assign([ast.Attribute(owner, str(name.value), ast.Store())], value)
        case "delattr", [owner, _]:
            return ast.Delete([ast.Attribute(owner, str(name.value), ast.Del())])
    return None


def _opened(node: ast.Call) -> ast.expr | None:
    """Return ``open(path)`` for ``open(path, "r")``; None for other calls."""
    match node:
        case ast.Call(args=[path, ast.Constant(value="r" | "rt")]):
            return ast.Call(node.func, [path], node.keywords)
        case ast.Call(args=[path], keywords=[ast.keyword("mode", ast.Constant(value="r" | "rt")), *others]):
            return ast.Call(node.func, [path], others)
    return None


def _from_keys(node: ast.Call) -> ast.expr | None:
    """Return ``{key: 0 for key in keys}`` for ``dict.fromkeys(keys, 0)``; None if the value isn't a constant."""
    match node.args:
        case [keys, ast.Constant() as value]:
            key = ast.Name("key of a dictionary", ast.Store())
            made = [ast.comprehension(key, keys, [], 0)]
            return ast.DictComp(ast.Name(key.id, ast.Load()), value, made)
    return None


def _sorted_list(node: ast.Call) -> ast.expr | None:
    """Return ``sorted(x)`` for ``list(sorted(x))``; None for other calls."""
    match node.args:
        case [ast.Call(func=ast.Name(id="sorted")) as inner]:
            return inner
    return None


def _without_suffix(node: ast.Call) -> ast.expr | None:
    """Return ``x[:-2] if x.endswith("ab") else x`` for ``x.removesuffix("ab")``, and similarly for ``removeprefix``.

    Return None for other calls.
    """
    match node:
        case ast.Call(func=ast.Attribute(value=text, attr=name), args=[ast.Constant(value=str(part))], keywords=[]):
            if not part or any(isinstance(each, ast.Call) for each in walk(text)):
                return None
            is_suffix = name == "removesuffix"
            test = ast.Call(ast.Attribute(text, "endswith" if is_suffix else "startswith", ast.Load()), node.args, [])
            place = ast.Slice(None, ast.UnaryOp(ast.USub(), ast.Constant(len(part))))
            if not is_suffix:
                place = ast.Slice(ast.Constant(len(part)), None)
            return ast.IfExp(test, ast.Subscript(text, place, ast.Load()), text)
    return None


#: Functions that rewrite a call, by the name of the called function; in ``_SUFFIXES``, by the name of the method.
_CALLS: dict[str, Callable[[ast.Call], ast.expr | None]] = {
    "open": _opened,
    "dict.fromkeys": _from_keys,
    "list": _sorted_list,
}
_SUFFIXES = {"removesuffix": _without_suffix, "removeprefix": _without_suffix}


def _appended(target: ast.expr, added: ast.expr) -> list[ast.stmt]:
    """Return statements that append the items of ``added`` to a list one by one.

    Return an empty list if ``added`` is neither a list literal nor a comprehension.
    """
    if any(isinstance(each, ast.Call) for each in walk(target)):
        return []
    if isinstance(added, ast.List) and not any(isinstance(one, ast.Starred) for one in added.elts):
        return [_append(target, one) for one in added.elts]
    if any(isinstance(each, ast.expr) and ast.unparse(each) == ast.unparse(target) for each in walk(added)):
        return []
    if isinstance(added, _Comprehension) and not any(one.is_async for one in added.generators):
        return [_loop(target, added)]
    return []


def _append(target: ast.expr, item: ast.expr) -> ast.stmt:
    place: ast.expr = ast.Name(ast.unparse(target), ast.Load())
    if isinstance(target, ast.Attribute):
        place = ast.Attribute(target.value, target.attr, ast.Load())
    elif isinstance(target, ast.Subscript):
        place = ast.Subscript(target.value, target.slice, ast.Load())
    return ast.Expr(ast.Call(ast.Attribute(place, "append", ast.Load()), [item], []))


def _loop(target: ast.expr, made: _Comprehension) -> ast.stmt:
    """Return a comprehension as a loop that appends to ``target``. A variable ``x`` is renamed ``x of an item``."""
    names = {each.id for one in made.generators for each in walk(one.target) if isinstance(each, ast.Name)}
    for each in walk(made):
        if isinstance(each, ast.Name) and each.id in names:
            each.id = f"{each.id} of an item"
    found = _append(target, made.elt)
    for one in reversed(made.generators):
        for test in reversed(one.ifs):
            found = ast.If(test, [found], [])
        found = ast.For(one.target, one.iter, [found], [])
    return found


def _with_ends(body: Sequence[ast.stmt], *, in_loop: bool = False) -> Iterator[ast.stmt]:
    """Yield the statements of a ``with`` block, with the block's end before each statement that leaves the block."""
    for statement in body:
        match statement:
            case ast.Return():
                value: ast.expr | None = None
                if statement.value is not None:
                    yield ast.Assign([ast.Name("value to return", ast.Store())], statement.value)
                    value = ast.Name("value to return", ast.Load())
                yield Left()
                yield ast.Return(value)
                continue
            case ast.Break() | ast.Continue() if not in_loop:
                yield Left()
            case ast.For() | ast.While():
                statement.body = list(_with_ends(statement.body, in_loop=True))
            case ast.If():
                statement.body = list(_with_ends(statement.body, in_loop=in_loop))
                statement.orelse = list(_with_ends(statement.orelse, in_loop=in_loop))
            case ast.Try():
                statement.body = list(_with_ends(statement.body, in_loop=in_loop))
                for handler in statement.handlers:
                    handler.body = list(_with_ends(handler.body, in_loop=in_loop))
        yield statement
