"""Normalized form of Python functions, which is equal for versions that differ only by refactoring."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from patchq.drift.bodies import folded

_Node = TypeVar("_Node", bound=ast.AST)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
#: Names whose calls only report messages, such as ``print(…)`` and ``logger.info(…)``.
_REPORTERS = {"logger", "log", "logging", "warnings", "print"}


def clone(node: _Node) -> _Node:
    """Return a deep copy of a syntax tree, including line and column numbers."""
    made = node.__class__.__new__(node.__class__)
    made.__dict__.update(node.__dict__)
    for name in node._fields:
        value = made.__dict__.get(name)
        if isinstance(value, ast.AST):
            made.__dict__[name] = clone(value)
        elif isinstance(value, list):
            made.__dict__[name] = [clone(each) if isinstance(each, ast.AST) else each for each in value]
    return made


def walk(node: ast.AST) -> list[ast.AST]:
    """Return a node and all nodes in it, in the order of ``ast.walk``."""
    found = [node]
    for each in found:
        values = each.__dict__
        for name in each._fields:
            value = values.get(name)
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [one for one in value if isinstance(one, ast.AST)]
    return found


def names_in(node: ast.AST) -> set[str]:
    """Return all names that a node and the nodes in it read or store."""
    found = set()
    for each in walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
    return found


def bound_names(node: ast.AST) -> set[str]:
    """Return the parameters and local variables of a function and of the functions nested in it."""
    found: set[str] = set()
    for child in walk(node):
        if isinstance(child, ast.arg):
            found.add(child.arg)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            found.add(child.id)
        elif isinstance(child, ast.ExceptHandler):
            found.update([child.name] if child.name else [])
        elif child is not node and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(child.name)
        elif isinstance(child, ast.Import | ast.ImportFrom):
            for one in child.names:
                found.add(one.asname or one.name.partition(".")[0])
    return found


def body_of(node: ast.stmt, keep: frozenset[str] = frozenset(), *, masked: bool = False) -> str:
    """Return the normalized text of a function's or class's statements.

    The text ignores annotations, docstrings, messages and the names of local variables. An ``else`` after ``return``,
    or a variable that only the next statement reads, makes no difference either.

    :param keep: local variables whose names are kept.
    :param masked: also ignore operators and the values of constants.
    """
    shaped = _Shape().visit(clone(node))
    body = _block(shaped.body)
    inlined = _inlined(body)
    if len(inlined) < len(body):  # inlining may allow further rewriting
        shaped.body = inlined
        inlined = _inlined(_block(_Shape().visit(shaped).body))
    locals_ = bound_names(shaped) - keep if isinstance(shaped, FunctionNode) else set()
    return ";".join(_Dump(locals_, masked).dump(s) for s in inlined)


def shaped_body(node: ast.stmt) -> list[ast.stmt]:
    """Return the statements of a function or class, rewritten so that equivalent statements are equal."""
    return list(_Shape().visit(clone(node)).body)


def without_arguments(node: ast.stmt, names: set[str]) -> ast.stmt:
    """Remove keyword arguments that only read ``names``: with ``{"new"}``, ``f(a, new=new)`` becomes ``f(a)``."""
    found = clone(node)
    for child in walk(found):
        if isinstance(child, ast.Call):
            child.keywords = [k for k in child.keywords if not _reads_only(k.value, names)]
    return found


def _reads_only(node: ast.expr, names: set[str]) -> bool:
    read = names_in(node)
    return bool(read) and read <= names


def dump_of(node: ast.AST, *, masked: bool = False) -> str:
    """Return the normalized text of an expression or simple statement."""
    return _Dump(set(), masked).dump(_Shape().visit(clone(node)))


class _Shape(ast.NodeTransformer):
    """Transformer that rewrites equivalent statements and expressions to the same code."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant):
            return None
        if isinstance(node.value, ast.Call) and reports(node.value.func):
            return None
        return self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        # A method that is named like a builtin is another function.
        name = ast.unparse(node.func).removeprefix("typing.")
        if name == "cast" and len(node.args) == 2:
            return node.args[1]
        if name == "dict" and not node.args and all(k.arg for k in node.keywords):
            return ast.Dict([ast.Constant(k.arg) for k in node.keywords], [k.value for k in node.keywords])
        if name == "sum" and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            _count(node.args[0])
        if isinstance(node.func, ast.Attribute) and (filled := _formatted(node)):
            return filled
        if name in ("list", "tuple") and not node.args and not node.keywords:
            return ast.List([], ast.Load()) if name == "list" else ast.Tuple([], ast.Load())
        node.keywords.sort(key=lambda k: k.arg or "~")
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Constant) and node.value.value is None:
            node.value = None
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        while len(node.body) == 1 and isinstance(node.body[0], ast.With):
            node.items, node.body = [*node.items, *node.body[0].items], node.body[0].body
        return node

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.lower, ast.Constant) and node.lower.value == 0 and node.step is None:
            node.lower = None
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return _apart(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return _one_of(node) if isinstance(node.op, ast.Or) else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.BoolOp):
            other_op = ast.Or() if isinstance(node.operand.op, ast.And) else ast.And()
            values = [_opposite(value) or ast.UnaryOp(ast.Not(), value) for value in node.operand.values]
            return ast.BoolOp(other_op, values)
        if isinstance(node.op, ast.Not) and (other := _opposite(node.operand)):
            return other
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if filled := _filled(node):
            return filled
        text = ast.unparse(node)
        value = folded(text)
        return node if value == text else ast.parse(value, mode="eval").body

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        # Move a constant to the right: 3 == x becomes x == 3.
        if len(node.ops) == 1 and isinstance(node.left, ast.Constant) and type(node.ops[0]) in _MIRRORED:
            return ast.Compare(node.comparators[0], [_MIRRORED[type(node.ops[0])]()], [node.left])
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return node


def _apart(node: ast.Assign) -> ast.AST | list[ast.stmt]:
    """Split ``a, b = x, y`` into ``a = x`` and ``b = y`` if their order doesn't matter."""
    target = node.targets[0] if len(node.targets) == 1 else None
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return node
    names = {each.id for each in target.elts if isinstance(each, ast.Name)}
    read = names_in(node.value)
    if len(names) < len(target.elts) or len(names) != len(node.value.elts) or names & read:
        return node
    pairs = zip(target.elts, node.value.elts, strict=True)
    return [ast.copy_location(ast.Assign([one], value), node) for one, value in pairs]


def _one_of(node: ast.BoolOp) -> ast.expr:
    """Rewrite ``x == a or x == b`` to ``x in (a, b)``, and similarly merge calls of ``isinstance``."""
    sides: list[tuple[str, ast.expr]] = []
    for value in node.values:
        if isinstance(value, ast.Compare) and len(value.ops) == 1 and isinstance(value.ops[0], ast.Eq):
            sides.append((f"== {ast.unparse(value.left)}", value.comparators[0]))
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "isinstance" and len(value.args) == 2:
            sides.append((f"isinstance {ast.unparse(value.args[0])}", value.args[1]))
    if len(sides) < len(node.values) or len({what for what, _ in sides}) > 1:
        return node
    choices = ast.Tuple([choice for _, choice in sides], ast.Load())
    first = node.values[0]
    if isinstance(first, ast.Call):
        return ast.Call(first.func, [first.args[0], choices], [])
    assert isinstance(first, ast.Compare)
    return ast.Compare(first.left, [ast.In()], [choices])


def _filled(node: ast.BinOp) -> ast.JoinedStr | None:
    """Return ``"%s…" % …`` as an f-string; None for other expressions."""
    text = node.left.value if isinstance(node.left, ast.Constant) else None
    if not isinstance(node.op, ast.Mod) or not isinstance(text, str) or text.count("%") != text.count("%s"):
        return None
    values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
    call = ast.Call(ast.Attribute(ast.Constant(text.replace("%s", "{}")), "format", ast.Load()), values, [])
    return None if "{" in text else _formatted(call)


def _count(node: ast.GeneratorExp) -> None:
    """Rewrite ``sum(bool(x) for x in items)`` to ``sum(1 for x in items if x)``, in place."""
    value = node.elt
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        node.elt = ast.Constant(1)
        node.generators[-1].ifs.append(value)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "bool" and value.args:
        node.elt = ast.Constant(1)
        node.generators[-1].ifs.append(value.args[0])


def _formatted(node: ast.Call) -> ast.JoinedStr | None:
    """Return ``"{}…".format(…)`` as an f-string; None for other calls."""
    text = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "format" else None
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str) or node.keywords:
        return None
    parts = text.value.split("{}")
    if len(parts) != len(node.args) + 1 or any("{" in part or "}" in part for part in parts):
        return None
    values: list[ast.expr] = [ast.Constant(parts[0])] if parts[0] else []
    for argument, part in zip(node.args, parts[1:], strict=True):
        values.append(ast.FormattedValue(argument, -1, None))
        values += [ast.Constant(part)] if part else []
    return ast.JoinedStr(values)


_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def _opposite(node: ast.expr) -> ast.expr | None:
    """Return ``x != y`` for ``x == y``, ``x`` for ``not x`` and so on; None if the negation needs a ``not``."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPPOSITE:
        return ast.Compare(node.left, [_OPPOSITE[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return None


def reports(function: ast.expr) -> bool:
    """Return whether a called function only reports messages, like ``logger.info`` and ``print``."""
    root = function
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in _REPORTERS


def _block(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Rewrite the conditions and loops in a list of statements so that equivalent lists become equal."""
    found: list[ast.stmt] = []
    for position, statement in enumerate(body):
        spelled = _conditional(statement)
        if found and not _leaks(spelled, body[position + 1 :]) and (comprehension := listed(found[-1], spelled)):
            found[-1] = comprehension
            continue
        for name in ("body", "orelse", "finalbody"):
            block = getattr(spelled, name, None)
            if isinstance(block, list) and not isinstance(spelled, FunctionNode | ast.ClassDef):
                setattr(spelled, name, _block(block))
        for handler in getattr(spelled, "handlers", ()):
            handler.body = _block(handler.body)
        if isinstance(spelled, ast.If):
            ended = _settle(spelled, list(body[position + 1 :]))
            if ended is not None:
                return [*found, *ended]
            if not spelled.body and not spelled.orelse:
                continue
        found.append(spelled)
    return found


def _leaks(loop: ast.stmt, after: Sequence[ast.stmt]) -> bool:
    """Return True if a statement after a loop reads a variable of the loop, which a comprehension would not set."""
    names = {each.id for each in walk(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    reads = {each.id for statement in after for each in walk(statement) if isinstance(each, ast.Name)}
    return not names.isdisjoint(reads)


def listed(before: ast.stmt, node: ast.stmt) -> ast.stmt | None:
    """Return the comprehension that does the same as ``items = []`` and the loop after it.

    Return None if the statements are others, or if the loop does more than append.
    """
    if not isinstance(before, ast.Assign) or ast.unparse(before.value) not in ("[]", "{}"):
        return None
    inside = node
    loops: list[ast.comprehension] = []
    while isinstance(inside, ast.For | ast.If) and len(inside.body) == 1 and not inside.orelse:
        if isinstance(inside, ast.For):
            loops.append(ast.comprehension(inside.target, inside.iter, [], 0))
        elif loops:
            loops[-1].ifs.append(inside.test)
        else:
            return None
        inside = inside.body[0]
    target = ast.unparse(before.targets[0])
    kind = type(before.targets[0])
    uses = [each for each in walk(node) if isinstance(each, kind) and ast.unparse(each) == target]
    if len(uses) > 1:
        # The loop reads what it has collected so far.
        return None
    if isinstance(before.value, ast.Dict):
        return _dictionary(before, inside, loops)
    call = inside.value if isinstance(inside, ast.Expr) and loops else None
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    if ast.unparse(call.func) != f"{ast.unparse(before.targets[0])}.append":
        return None
    made = ast.ListComp(call.args[0], loops)
    return ast.copy_location(ast.Assign(before.targets, made), before)


def _dictionary(before: ast.Assign, inside: ast.stmt, loops: list[ast.comprehension]) -> ast.stmt | None:
    """Return the comprehension of a dictionary whose items a loop stores; None if the loop does anything else."""
    match inside:
        case ast.Assign(targets=[ast.Subscript(value=owner, slice=key)], value=value) if loops:
            if ast.unparse(owner) == ast.unparse(before.targets[0]):
                return ast.copy_location(ast.Assign(before.targets, ast.DictComp(key, value, loops)), before)
    return None


def _settle(node: ast.If, rest: list[ast.stmt]) -> list[ast.stmt] | None:
    """Normalize an ``if`` in place: merge it with an ``if`` nested in it, and remove a negation of its test.

    If one branch leaves the block, append ``rest`` to the other branch and return the ``if``. Otherwise return None.
    """
    if node.orelse and isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
        node.test, node.body, node.orelse = node.test.operand, node.orelse, node.body
    elif (
        node.orelse
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.ops[0], ast.NotEq | ast.IsNot | ast.NotIn)
    ):
        flipped = _opposite(node.test)
        if flipped is not None:
            node.test, node.body, node.orelse = flipped, node.orelse, node.body
    inside = node.body[0] if len(node.body) == 1 and not node.orelse else None
    if isinstance(inside, ast.If) and not inside.orelse:
        tests = []
        for test in (node.test, inside.test):
            tests += test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        node.test, node.body = ast.BoolOp(ast.And(), tests), inside.body
    if not (_leaves(node.body) or _leaves(node.orelse)):
        return None
    if _leaves(node.body) and not _leaves(node.orelse):
        node.orelse = [*node.orelse, *_block(rest)]
    elif _leaves(node.orelse) and not _leaves(node.body):
        node.body = [*node.body, *_block(rest)]
    if node.orelse and isinstance(node.test, ast.Compare | ast.UnaryOp):
        negative = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        negative = negative or (
            isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.NotEq | ast.IsNot | ast.NotIn)
        )
        flipped = _opposite(node.test) if isinstance(node.test, ast.Compare) else node.test
        if negative and isinstance(node.test, ast.UnaryOp):
            flipped = node.test.operand
        if negative and flipped is not None:
            node.test, node.body, node.orelse = flipped, node.orelse, node.body
    return [node]


def _leaves(body: Sequence[ast.stmt]) -> bool:
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)


def _conditional(node: ast.stmt) -> ast.stmt:
    """Rewrite ``x = a if t else b``, or such a ``return``, to an ``if`` statement."""
    value = getattr(node, "value", None)
    if not isinstance(node, ast.Assign | ast.Return) or not isinstance(value, ast.IfExp):
        return node
    branches = []
    for chosen in (value.body, value.orelse):
        branch = copy.copy(node)
        branch.value = chosen
        branches.append(branch)
    return ast.If(value.test, [branches[0]], [branches[1]])


def _inlined(body: list[ast.stmt]) -> list[ast.stmt]:
    """Inline each local variable that is assigned once and read once, in the next statement."""
    stored: Counter[str] = Counter()
    loaded: Counter[str] = Counter()
    for statement in body:
        for node in walk(statement):
            if isinstance(node, ast.Name):
                (loaded if isinstance(node.ctx, ast.Load) else stored)[node.id] += 1
    return _inline(body, {n for n in stored if stored[n] == 1 and loaded[n] == 1})


def _inline(body: list[ast.stmt], once: set[str]) -> list[ast.stmt]:
    for statement in body:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(statement, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(statement, name, _inline(block, once))
    found: list[ast.stmt] = []
    for statement in body:
        while found and (pair := _temporary(found[-1], once)) and _reads_first(statement, pair[0]):
            _Put(*pair).visit(statement)
            found.pop()
        found.append(statement)
    return found


def _temporary(node: ast.stmt, once: set[str]) -> tuple[str, ast.expr] | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in once:
            return target.id, node.value
    return None


def _reads_first(node: ast.stmt, name: str) -> bool:
    """Return whether a statement reads a name, outside its nested statements."""
    waiting: list[ast.AST] = [node]
    while waiting:
        child = waiting.pop()
        if isinstance(child, ast.Name) and child.id == name:
            return True
        if isinstance(child, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.While):
            continue
        waiting.extend(c for c in ast.iter_child_nodes(child) if not isinstance(c, ast.stmt | ast.ExceptHandler))
    return False


class _Put(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node


class _Dump:
    """Serializer of syntax trees to text without line numbers, with local variables numbered."""

    def __init__(self, local: set[str], masked: bool) -> None:
        self.local, self.masked = local, masked
        self.numbers: dict[str, int] = {}

    def dump(self, node: object) -> str:
        if isinstance(node, list):
            return "[" + ",".join(self.dump(each) for each in node) + "]"
        if not isinstance(node, ast.AST):
            return repr(node)
        if isinstance(node, ast.Name | ast.arg):
            return self._name(node.id if isinstance(node, ast.Name) else node.arg)
        if self.masked and isinstance(node, ast.Constant):
            return "~"
        if self.masked and isinstance(node, ast.operator | ast.cmpop | ast.boolop | ast.unaryop):
            return "~"
        skipped = {*_SKIPPED, "name"} if isinstance(node, ast.ExceptHandler) else _SKIPPED
        fields: Iterator[str] = iter(f for f in node._fields if f not in skipped)
        parts = [self.dump(getattr(node, f, None)) for f in fields]
        return f"{type(node).__name__}({','.join(parts)})"

    def _name(self, name: str) -> str:
        if name not in self.local:
            return name
        if self.masked:
            return "%"
        return f"%{self.numbers.setdefault(name, len(self.numbers))}"


_SKIPPED = {"ctx", "type_comment", "kind", "returns", "type_ignores", "type_params"}


def conditions_of(function: FunctionNode, call: ast.Call) -> dict[str, str]:
    """Return the tests that must hold for a call in a function to be reached: ``{normalized text: source}``.

    In the normalized text, local variables and their attributes are ``%``, because renaming or unpacking them has no
    effect. An earlier ``if t: return`` (or ``continue``, ``break``) adds the test ``not t``; ``if t: raise`` doesn't.
    """
    arguments = function.args
    parameters = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    found: list[tuple[ast.expr, bool]] = []
    _lead_to(function.body, call, found)
    local = _Local(bound_names(function) - parameters)
    texts: dict[str, str] = {}
    for test, holds in found:
        for part in _parts(_Shape().visit(clone(test)), holds):
            texts[dump_of(local.visit(clone(part)))] = ast.unparse(part)
    return texts


class _Local(ast.NodeTransformer):
    """Transformer that replaces local variables and their attributes by ``%``."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("%", ast.Load()) if node.id in self.names else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return node.value if isinstance(node.value, ast.Name) and node.value.id == "%" else node


def _lead_to(body: Sequence[ast.stmt], call: ast.Call, found: list[tuple[ast.expr, bool]]) -> None:
    """Add to ``found`` the tests on the way to a call, each with the result that it must have."""
    for node in body:
        if (node.end_lineno or node.lineno) < call.lineno:
            if isinstance(node, ast.If) and _ends(node.body):
                found.append((node.test, False))
            elif isinstance(node, ast.If) and _ends(node.orelse):
                found.append((node.test, True))
            continue
        if node.lineno > call.lineno:
            return
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None) or []
            if isinstance(node, ast.If) and _holds(block, call):
                found.append((node.test, name == "body"))
            _lead_to(block, call, found)
        for handler in getattr(node, "handlers", ()):
            _lead_to(handler.body, call, found)
        for child in walk(node):
            if isinstance(child, ast.IfExp) and any(each is call for each in walk(child.body)):
                found.append((child.test, True))
            elif isinstance(child, ast.IfExp) and any(each is call for each in walk(child.orelse)):
                found.append((child.test, False))
        return


def _holds(block: Sequence[ast.stmt], call: ast.Call) -> bool:
    return bool(block) and block[0].lineno <= call.lineno <= (block[-1].end_lineno or 0)


def _ends(block: Sequence[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], ast.Return | ast.Continue | ast.Break)


def _parts(test: ast.expr, holds: bool) -> Iterator[ast.expr]:
    """Split a test that must be true (``holds``) or false into tests that must all be true.

    ``a and b`` is true if ``a`` and ``b`` are; ``a or b`` is false if ``not a`` and ``not b`` are true.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, not holds)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if holds else ast.Or):
        for value in test.values:
            yield from _parts(value, holds)
    elif holds:
        yield test
    else:
        yield _opposite(test) or ast.UnaryOp(ast.Not(), test)
