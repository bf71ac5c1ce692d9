"""Facts about Python files: definitions, constants, guards, and bodies without what changes no meaning."""

from __future__ import annotations

import ast
import contextlib
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from patchq.drift._signatures import Parameter, Signature
from patchq.drift.bodies import Fact, folded, inner, parse

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
#: Decorators that change nothing at run time.
_IDLE_DECORATORS = {"override", "final", "no_type_check", "overload", "deprecated"}
#: Receivers of calls that only report: their arguments are messages.
_REPORTERS = {"logger", "log", "logging", "warnings", "print"}
#: Number of constants that are replaced by their values in a constant's value.
_EXPANSIONS = 4


@dataclass(slots=True)
class PythonFile:
    """Definitions and names of a Python file.

    :ivar facts: definitions by qualified name; several if the name is defined more than once.
    :ivar nodes: statement of each definition.
    :ivar imports: module and name (empty for the module itself) of each imported name.
    :ivar stars: modules that all names are imported from.
    :ivar types: annotation or value that shows the type of a constant or attribute.
    """

    module: str
    tree: ast.Module | None
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    nodes: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    types: dict[str, ast.expr] = field(default_factory=dict)
    _scopes: list[str] | None = None
    _calls: dict[str, list[ast.Call]] | None = None
    _bound: dict[str, frozenset[str]] = field(default_factory=dict)
    _bodies: dict[str, str] = field(default_factory=dict)

    def fact(self, name: str) -> Fact | None:
        """Return a definition; the last one if there are several, as for Python itself."""
        found = self.facts.get(name)
        return found[-1] if found else None

    def function_at(self, line: int) -> str:
        """Return the innermost function that contains a line; empty for none."""
        if self._scopes is None:
            places = []
            for name, node in self.nodes.items():
                if isinstance(node, FunctionNode):
                    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                    places.append((first, node.end_lineno or first, name))
            self._scopes = [""] * (max((last for _, last, _ in places), default=0) + 1)
            for first, last, name in sorted(places):
                self._scopes[first : last + 1] = [name] * (last + 1 - first)
        return self._scopes[line] if line < len(self._scopes) else ""

    def calls(self, name: str) -> list[ast.Call]:
        """Return the calls of a function or method by its simple name, or what it is imported as."""
        if self._calls is None:
            self._calls = {}
            for node in ast.walk(self.tree) if self.tree else ():
                if isinstance(node, ast.Call):
                    simple = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                    self._calls.setdefault(self.imports.get(simple, ("", ""))[1] or simple, []).append(node)
        return self._calls.get(name, [])

    def bound(self, name: str) -> frozenset[str]:
        """Return the parameters and local variables of a function; none for what isn't one."""
        if name not in self._bound:
            node = self.nodes.get(name)
            self._bound[name] = frozenset(bound_names(node) if isinstance(node, FunctionNode) else ())
        return self._bound[name]

    def body(self, name: str) -> str:
        """Return :func:`body_of` a definition."""
        if name not in self._bodies:
            self._bodies[name] = body_of(self.nodes[name])
        return self._bodies[name]

    def value(self, name: str) -> str:
        """Return a constant's value, with the file's other constants in it replaced by theirs."""
        fact = self.fact(name)
        return self._expanded(fact.value, {name}) if fact else ""

    def _expanded(self, text: str, seen: set[str]) -> str:
        if len(seen) > _EXPANSIONS or not any(name in text for name in self.facts if "." not in name):
            return text
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            tree = ast.parse(text, mode="eval")
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - seen
            known = {n: f.value for n in names if (f := self.fact(n)) and f.kind == "value" and f.value}
            if known and len(seen) < _EXPANSIONS:
                replaced = _Names({n: f"({self._expanded(v, seen | {n})})" for n, v in known.items()}).visit(tree)
                return folded(ast.unparse(replaced))
        return text


class _Names(ast.NodeTransformer):
    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        text = self.values.get(node.id)
        return ast.parse(text, mode="eval").body if text else node


def read_python(module: str, source: bytes, *, package: bool = False) -> PythonFile:
    """Return the facts of a file; without any if it is not valid Python.

    :param module: dotted name, for relative imports.
    :param package: the file is an ``__init__.py``.
    """
    found = PythonFile(module, parse(source))
    if found.tree is not None:
        reader = _Reader(found, package)
        with contextlib.suppress(RecursionError):
            for statement in found.tree.body:
                reader.read(statement, "", (), in_class=False)
    return found


class _Reader:
    """Collector of the facts of one file."""

    def __init__(self, file: PythonFile, package: bool) -> None:
        self.file, self.package = file, package

    def read(self, node: ast.AST, scope: str, guards: tuple[str, ...], *, in_class: bool) -> None:
        """Add a statement's definitions and those inside it."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope, guards, in_class)
            case ast.ClassDef():
                self._class(node, scope, guards)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Assign() | ast.AnnAssign():
                self._assignment(node, scope, guards)
            case ast.If():
                test = ast.unparse(node.test)
                plain = test in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
                for child in node.body:
                    self.read(child, scope, guards if plain else (*guards, test), in_class=in_class)
                for child in node.orelse:
                    self.read(child, scope, guards if plain else (*guards, f"not ({test})"), in_class=in_class)
            case _:
                for nested in inner(node):
                    handler = isinstance(nested, ast.ExceptHandler)
                    self.read(nested, scope, (*guards, "except") if handler else guards, in_class=in_class)

    def _add(self, fact: Fact, node: ast.stmt) -> None:
        self.file.facts.setdefault(fact.name, []).append(fact)
        self.file.nodes[fact.name] = node

    def _function(self, node: FunctionNode, scope: str, guards: tuple[str, ...], in_class: bool) -> None:
        decorators = [_decorator(d) for d in node.decorator_list]
        if any(d.rpartition(".")[2] == "overload" for d in decorators):
            return
        kept = [d for d in decorators if d.partition("(")[0].rpartition(".")[2] not in _IDLE_DECORATORS]
        traits = kept + (["async"] if isinstance(node, ast.AsyncFunctionDef) else [])
        returned, yields = _returned(node)
        if yields:
            traits.append("generator")
        setter = any(d.endswith((".setter", ".deleter")) for d in decorators)
        name = scope + node.name
        bound = in_class and "staticmethod" not in decorators
        fact = Fact(
            name=name + ("=" if setter else ""),
            line=node.lineno,
            kind="function",
            parameters=parameters_of(node.args, bound=bound),
            traits=tuple(sorted(traits)),
            guards=guards,
            returns=tuple(sorted(returned)),
        )
        self._add(fact, node)
        if node.returns is not None:
            self.file.types[name] = node.returns
        for child in node.body:
            if in_class:
                self._attributes(child, scope)
            self._inside(child, name + ".", guards)

    def _inside(self, node: ast.AST, scope: str, guards: tuple[str, ...]) -> None:
        """Add the functions and classes inside a function, not its variables."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.read(node, scope, guards, in_class=False)
            return
        for child in inner(node):
            self._inside(child, scope, guards)

    def _attributes(self, node: ast.AST, scope: str) -> None:
        """Add the attributes that a method sets on ``self``."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        targets: Sequence[ast.expr] = ()
        if isinstance(node, ast.Assign):
            targets = [t for each in node.targets for t in (each.elts if isinstance(each, ast.Tuple) else [each])]
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                assert isinstance(node, ast.Assign | ast.AnnAssign)
                name = scope + target.attr
                known = self.file.facts.setdefault(name, [])
                literal = node.value if isinstance(node.value, ast.Constant) and not known else None
                value = folded(ast.unparse(literal)) if literal else ""
                if not known:
                    known.append(Fact(name=name, line=node.lineno, kind="value", value=value, traits=("attribute",)))
                    shown = node.annotation if isinstance(node, ast.AnnAssign) else node.value
                    if shown is not None:
                        self.file.types.setdefault(name, shown)
        for child in inner(node):
            self._attributes(child, scope)

    def _class(self, node: ast.ClassDef, scope: str, guards: tuple[str, ...]) -> None:
        name = scope + node.name
        decorators = tuple(sorted(_decorator(d) for d in node.decorator_list))
        bases = tuple(ast.unparse(b) for b in node.bases)
        fact = Fact(name=name, line=node.lineno, kind="class", traits=decorators, guards=guards, bases=bases)
        self._add(fact, node)
        automatic = 0
        for child in node.body:
            if isinstance(child, ast.Assign) and _is_automatic(child.value):
                automatic += 1
                for target in child.targets:
                    if isinstance(target, ast.Name):
                        at = f"{name}.{target.id}"
                        self._add(Fact(name=at, line=child.lineno, kind="value", value=str(automatic)), child)
                continue
            self.read(child, name + ".", guards, in_class=True)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                self.file.imports[alias.asname or whole] = (whole, "")
            return
        module = imported_from(node, self.file.module, package=self.package)
        for alias in node.names:
            if alias.name == "*":
                self.file.stars.append(module)
            else:
                self.file.imports[alias.asname or alias.name] = (module, alias.name)

    def _assignment(self, node: ast.Assign | ast.AnnAssign, scope: str, guards: tuple[str, ...]) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if not isinstance(target, ast.Name):
                continue
            name = scope + target.id
            value = folded(ast.unparse(node.value)) if node.value else ""
            self._add(Fact(name=name, line=node.lineno, kind="value", value=value, guards=guards), node)
            shown = node.annotation if isinstance(node, ast.AnnAssign) else node.value
            if shown is not None:
                self.file.types[name] = shown
            if isinstance(node.value, ast.Dict):
                self._entries(node.value, name, node)

    def _entries(self, node: ast.Dict, name: str, statement: ast.stmt) -> None:
        """Add the entries of a dict with names as keys, such as a table of settings."""
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                text = folded(ast.unparse(value))
                self._add(Fact(name=f"{name}[{key.value}]", line=key.lineno, kind="value", value=text), statement)


def imported_from(node: ast.ImportFrom, module: str, *, package: bool) -> str:
    """Return the absolute name of the module that a statement imports from."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    up = node.level - (1 if package else 0)
    kept = parts[: len(parts) - up] if up else parts
    return ".".join([*kept, *([node.module] if node.module else [])])


def parameters_of(arguments: ast.arguments, *, bound: bool = False) -> tuple[Parameter, ...]:
    """Return the parameters of a function. A default is its source, folded.

    :param bound: leave out the first one, ``self`` or ``cls``.
    """
    found = []
    before = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(before) - len(arguments.defaults)) + list(arguments.defaults)
    for number, (argument, default) in enumerate(zip(before, defaults, strict=True)):
        kind = "positional-only" if number < len(arguments.posonlyargs) else "positional or keyword"
        found.append(Parameter(argument.arg, kind, folded(ast.unparse(default)) if default else None))
    if bound:
        found = found[1:]
    if arguments.vararg:
        found.append(Parameter(arguments.vararg.arg, "variadic positional", None))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(Parameter(argument.arg, "keyword-only", folded(ast.unparse(default)) if default else None))
    if arguments.kwarg:
        found.append(Parameter(arguments.kwarg.arg, "variadic keyword", None))
    return tuple(found)


def constructor_of(file: PythonFile, name: str) -> Signature | None:
    """Return the generated constructor of a dataclass or named tuple; None for other classes."""
    node, fact = file.nodes.get(name), file.fact(name)
    if not isinstance(node, ast.ClassDef) or fact is None:
        return None
    generated = any("dataclass" in trait for trait in fact.traits) or any("NamedTuple" in b for b in fact.bases)
    if not generated:
        return None
    found = []
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            if "ClassVar" in ast.unparse(child.annotation):
                continue
            default = folded(ast.unparse(child.value)) if child.value else None
            found.append(Parameter(child.target.id, "positional or keyword", default))
    return Signature(f"{name}.__init__", tuple(found))


def _decorator(node: ast.expr) -> str:
    text = ast.unparse(node)
    text = text.replace("functools.", "").removesuffix("()")
    return "cache" if text == "lru_cache(maxsize=None)" else text


def _is_automatic(node: ast.expr) -> bool:
    """Return whether a value is ``enum.auto()``, whatever its name."""
    return isinstance(node, ast.Call) and not node.args and ast.unparse(node.func).endswith("auto")


def _returned(node: FunctionNode) -> tuple[set[int], bool]:
    """Return the numbers of values that a function returns (0 for none), and whether it yields."""
    found: set[int] = set()
    yields = False
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        child = waiting.pop()
        if isinstance(child, FunctionNode | ast.ClassDef):
            continue
        value = getattr(child, "value", None)
        if isinstance(child, ast.Return):
            none = value is None or (isinstance(value, ast.Constant) and value.value is None)
            found.add(0 if none else len(value.elts) if isinstance(value, ast.Tuple) else 1)
        yields = yields or isinstance(value, ast.Yield | ast.YieldFrom)
        waiting.extend(inner(child))
    return found, yields


def bound_names(node: ast.AST) -> set[str]:
    """Return the parameters and local variables of a function, nested functions included."""
    found: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.arg):
            found.add(child.arg)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            found.add(child.id)
        elif isinstance(child, ast.ExceptHandler):
            found.update([child.name] if child.name else [])
        elif child is not node and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(child.name)
        elif isinstance(child, ast.Import | ast.ImportFrom):
            found.update(a.asname or a.name.partition(".")[0] for a in child.names)
    return found


def body_of(node: ast.stmt, keep: frozenset[str] = frozenset(), *, masked: bool = False) -> str:
    """Return a function's or class's statements in a form that refactoring without effect leaves alone.

    Annotations, docstrings, messages and the names of local variables don't count, nor do an ``else``
    after ``return``, a variable used once in the next statement, and other spellings of one thing.

    :param keep: local variables whose names count.
    :param masked: leave out the values of constants and the operators.
    """
    shaped = _Shape().visit(copy.deepcopy(node))
    body = _block(shaped.body)
    body = _inlined(body)
    locals_ = bound_names(shaped) - keep if isinstance(shaped, FunctionNode) else set()
    return ";".join(_Dump(locals_, masked).dump(s) for s in body)


class _Shape(ast.NodeTransformer):
    """Rewriter of statements and expressions to one of their spellings."""

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
        if isinstance(node.value, ast.Call) and _reports(node.value.func):
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
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "cast" and len(node.args) == 2:
            return node.args[1]
        if name == "dict" and not node.args and all(k.arg for k in node.keywords):
            return ast.Dict([ast.Constant(k.arg) for k in node.keywords], [k.value for k in node.keywords])
        if name in ("list", "tuple") and not node.args and not node.keywords:
            return ast.List([], ast.Load()) if name == "list" else ast.Tuple([], ast.Load())
        node.keywords.sort(key=lambda k: k.arg or "~")
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and (other := _opposite(node.operand)):
            return other
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        text = ast.unparse(node)
        value = folded(text)
        return node if value == text else ast.parse(value, mode="eval").body

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        # A constant on the left: 3 == x is x == 3.
        if len(node.ops) == 1 and isinstance(node.left, ast.Constant) and type(node.ops[0]) in _MIRRORED:
            return ast.Compare(node.comparators[0], [_MIRRORED[type(node.ops[0])]()], [node.left])
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return node


_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def _opposite(node: ast.expr) -> ast.expr | None:
    """Return the negation of an expression without ``not``; None if there is none."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPPOSITE:
        return ast.Compare(node.left, [_OPPOSITE[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return None


def _reports(function: ast.expr) -> bool:
    root = function
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in _REPORTERS


def _block(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a list of statements with its branches in one spelling."""
    found: list[ast.stmt] = []
    for position, statement in enumerate(body):
        spelled = _conditional(statement)
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


def _settle(node: ast.If, rest: list[ast.stmt]) -> list[ast.stmt] | None:
    """Merge nested conditions. Return the block's end if a branch leaves it, with the rest in ``else``."""
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
    """Return an assignment or ``return`` of a conditional expression as an ``if`` statement."""
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
    """Put the value of a local variable that only the next statement uses, once, in its place."""
    stored: Counter[str] = Counter()
    loaded: Counter[str] = Counter()
    for statement in body:
        for node in ast.walk(statement):
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
    """Serializer of a syntax tree without positions, with local variables numbered."""

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
        if isinstance(node, ast.ExceptHandler) and node.name:
            self._name(node.name)
        fields: Iterator[str] = iter(f for f in node._fields if f not in _SKIPPED)
        parts = [self.dump(getattr(node, f, None)) for f in fields]
        return f"{type(node).__name__}({','.join(parts)})"

    def _name(self, name: str) -> str:
        if name not in self.local:
            return name
        if self.masked:
            return "%"
        return f"%{self.numbers.setdefault(name, len(self.numbers))}"


_SKIPPED = {"ctx", "type_comment", "kind", "returns", "type_ignores", "type_params"}
