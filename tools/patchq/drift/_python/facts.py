"""Facts about Python files: definitions, values of constants, guards, returned values, and normalized bodies."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from patchq.drift._api.signatures import Parameter, Signature
from patchq.drift._python.shape import FunctionNode, body_of, bound_names, names_in, walk
from patchq.drift.bodies import Fact, folded, inner, parse

#: Decorators that change nothing at run time.
_IDLE_DECORATORS = {"override", "final", "no_type_check", "overload", "deprecated", "abstractmethod"}
#: Most constants to replace by their values inside another constant's value.
_EXPANSIONS = 4


@dataclass(slots=True)
class PythonFile:
    """Definitions and names of a Python file.

    :ivar facts: facts of each qualified name, one for each definition of the name.
    :ivar nodes: statement that defines each qualified name.
    :ivar imports: for each imported name, its module and its name in this module (empty for the module itself).
    :ivar stars: modules from which ``*`` is imported.
    :ivar types: annotation or value that shows the type of a constant, an attribute or a function's result.
    :ivar assigned: values that methods assign to each attribute of ``self``.
    """

    module: str
    tree: ast.Module | None
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    nodes: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    types: dict[str, ast.expr] = field(default_factory=dict)
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    _scopes: list[str] | None = None
    _calls: dict[str, list[ast.Call]] | None = None
    _mentions: dict[str, list[tuple[str, ast.expr]]] | None = None
    _bound: dict[str, frozenset[str]] = field(default_factory=dict)
    _bodies: dict[str, str] = field(default_factory=dict)
    _walked: list[ast.AST] | None = None
    _names: dict[int, list[ast.Name]] | None = None
    _binding: dict[str, list[ast.AST]] = field(default_factory=dict)

    def walked(self) -> list[ast.AST]:
        """Return all nodes of the file, in the order of ``ast.walk``."""
        if self._walked is None:
            self._walked = walk(self.tree) if self.tree else []
        return self._walked

    def names_at(self, line: int) -> list[ast.Name]:
        """Return the nodes of all names on a line."""
        if self._names is None:
            self._names = {}
            for node in self.walked():
                if isinstance(node, ast.Name):
                    self._names.setdefault(node.lineno, []).append(node)
        return self._names.get(line, [])

    def binding(self, name: str) -> list[ast.AST]:
        """Return the nodes in a function that bind names: imports, assignments and ``with`` items."""
        if name not in self._binding:
            kinds = ast.Import | ast.ImportFrom | ast.AnnAssign | ast.Assign | ast.withitem
            self._binding[name] = [node for node in walk(self.nodes[name]) if isinstance(node, kinds)]
        return self._binding[name]

    def fact(self, name: str) -> Fact | None:
        """Return the facts of a name's last definition, which is the one that Python uses; None if there is none."""
        found = self.facts.get(name)
        return found[-1] if found else None

    def function_at(self, line: int) -> str:
        """Return the name of the innermost function that contains a line; empty outside of functions."""
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

    def raises(self, name: str, known: Container[str] = (), without: Container[str] = ()) -> set[str]:
        """Return the exceptions that are raised by a function, or by functions of the same file that it calls.

        :param known: called functions to ignore.
        :param without: parameters that the call doesn't pass. Branches that test them are ignored.
        """
        found: set[str] = set()
        seen = {name}
        waiting = [name]
        while waiting:
            one = waiting.pop()
            node = self.nodes.get(one)
            if isinstance(node, FunctionNode):
                found |= _raised(node, without if one == name else ())
            for child in walk(node) if node else ():
                if not isinstance(child, ast.Call):
                    continue
                called = self.callee(child, one)
                if called and called not in known and called not in seen:
                    seen.add(called)
                    waiting.append(called)
        return found

    def callee(self, call: ast.Call, scope: str) -> str:
        """Return the name of the function in this file that a call refers to; empty if there is none.

        Calls such as ``f()``, ``self.f()`` and ``Class.f()`` are recognized.
        """
        function = call.func
        if isinstance(function, ast.Name):
            name = function.id
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            inside = function.value.id in ("self", "cls")
            owner = scope.rpartition(".")[0] if inside else function.value.id
            name = f"{owner}.{function.attr}"
        else:
            return ""
        return name if isinstance(self.nodes.get(name), FunctionNode) else ""

    def calls(self, name: str) -> list[ast.Call]:
        """Return the calls of functions and methods with this simple name, including calls through an import alias."""
        return self._calls_by_name().get(name, [])

    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        if self._calls is None:
            self._calls = {}
            for node in self.walked():
                if isinstance(node, ast.Call):
                    simple = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                    self._calls.setdefault(self.imports.get(simple, ("", ""))[1] or simple, []).append(node)
        return self._calls

    def mentions(self, name: str) -> list[tuple[str, ast.expr]]:
        """Return ``(key, expression)`` for each place that mentions a function without calling it.

        If the expression is a value in a dict, ``key`` is the dict's key for it. Otherwise ``key`` is empty.
        """
        if self._mentions is None:
            self._mentions = {}
            called = {id(call.func) for calls in self._calls_by_name().values() for call in calls}
            for node in self.walked():
                for key, value in _kept(node):
                    simple = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
                    if simple and id(value) not in called:
                        self._mentions.setdefault(simple, []).append((key, value))
        return self._mentions.get(name, [])

    def bound(self, name: str) -> frozenset[str]:
        """Return the parameters and local variables of a function; empty for other definitions."""
        if name not in self._bound:
            node = self.nodes.get(name)
            self._bound[name] = frozenset(bound_names(node) if isinstance(node, FunctionNode) else ())
        return self._bound[name]

    def body(self, name: str) -> str:
        """Return the normalized body of a definition, see :func:`body_of`."""
        if name not in self._bodies:
            self._bodies[name] = body_of(self.nodes[name])
        return self._bodies[name]

    def value(self, name: str) -> str:
        """Return a constant's value, with the names of other constants in the file replaced by their values."""
        fact = self.fact(name)
        return self._expanded(fact.value, {name}) if fact else ""

    def _expanded(self, text: str, seen: set[str]) -> str:
        if len(seen) > _EXPANSIONS or not any(name in text for name in self.facts if "." not in name):
            return text
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            tree = ast.parse(text, mode="eval")
            names = names_in(tree) - seen
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
    """Return the facts of a file; empty if the file is not valid Python.

    :param module: dotted name of the module, to resolve relative imports.
    :param package: True if the file is an ``__init__.py``.
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
        """Add the definitions in a statement, including nested definitions."""
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
        if max(returned, default=0) and not yields and _falls_through(node.body):
            returned.add(0)
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
            raises=tuple(sorted(_raised(node, ()))),
        )
        self._add(fact, node)
        if node.returns is not None:
            self.file.types[name] = node.returns
        for child in node.body:
            if in_class:
                self._attributes(child, scope)
            self._inside(child, name + ".", guards)

    def _inside(self, node: ast.AST, scope: str, guards: tuple[str, ...]) -> None:
        """Add the functions and classes nested in a function, but not its variables."""
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
                if node.value is not None:
                    self.file.assigned.setdefault(name, []).append(node.value)
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
        """Add each entry of a dict that has a string as its key, under the name ``DICT[key]``."""
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


def _kept(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield ``(key, value)`` for each value that a node assigns, returns, passes on or puts into a container.

    The key is empty, except for the values of a dict.
    """
    match node:
        case ast.Dict():
            yield from ((ast.unparse(k), v) for k, v in zip(node.keys, node.values, strict=True) if k)
        case ast.List() | ast.Tuple() | ast.Set():
            yield from (("", each) for each in node.elts)
        case ast.Assign() | ast.Return():
            yield from [("", node.value)] if node.value else []
        case ast.Call() if ast.unparse(node.func) not in ("isinstance", "issubclass"):
            yield from (("", each) for each in (*node.args, *(k.value for k in node.keywords)))


def _raised(node: FunctionNode, without: Container[str]) -> set[str]:
    """Return the simple names of the exceptions that a function raises in its own body.

    :param without: names of parameters. Branches that test them are ignored.
    """
    found: set[str] = set()
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        child = waiting.pop()
        if isinstance(child, FunctionNode | ast.ClassDef):
            continue
        if isinstance(child, ast.Raise) and child.exc is not None:
            raised = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            name = ast.unparse(raised).rpartition(".")[2]
            if name[:1].isupper():
                found.add(name)
        if isinstance(child, ast.If) and any(isinstance(n, ast.Name) and n.id in without for n in walk(child.test)):
            continue
        waiting.extend(inner(child))
    return found


def _falls_through(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block may end without ``return``, so that its function returns None."""
    last = body[-1] if body else None
    match last:
        case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
            return False
        case ast.If():
            return _falls_through(last.body) or _falls_through(last.orelse)
        case ast.With() | ast.AsyncWith():
            return _falls_through(last.body)
        case ast.Try():
            ends = [last.orelse or last.body, *(handler.body for handler in last.handlers)]
            return not (last.finalbody and not _falls_through(last.finalbody)) and any(map(_falls_through, ends))
        case ast.While():
            endless = isinstance(last.test, ast.Constant) and bool(last.test.value)
            return not endless or _breaks(last.body)
        case ast.Match():
            final = last.cases[-1]
            takes_all = isinstance(final.pattern, ast.MatchAs) and final.pattern.pattern is None and not final.guard
            return not takes_all or any(_falls_through(case.body) for case in last.cases)
    return True


def _breaks(body: Sequence[ast.stmt]) -> bool:
    """Return whether a loop's body contains a ``break`` that leaves this loop, not an inner loop."""
    for statement in body:
        if isinstance(statement, ast.Break):
            return True
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
            inner = [statement.orelse]
        elif isinstance(statement, ast.Match):
            inner = [case.body for case in statement.cases]
        elif isinstance(statement, ast.Try):
            inner = [statement.body, statement.orelse, statement.finalbody]
            inner += [handler.body for handler in statement.handlers]
        else:
            inner = [getattr(statement, "body", []), getattr(statement, "orelse", [])]
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = []
        if any(map(_breaks, inner)):
            return True
    return False


def parameters_of(arguments: ast.arguments, *, bound: bool = False) -> tuple[Parameter, ...]:
    """Return the parameters of a function. A default is its source, with arithmetic evaluated (:func:`folded`).

    :param bound: omit the first parameter, ``self`` or ``cls``.
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


def fields_of(file: PythonFile | None, name: str) -> list[str]:
    """Return the fields of a dataclass or named tuple, or the members of an enum, in order; empty for other classes."""
    node, fact = (file.nodes.get(name), file.fact(name)) if file else (None, None)
    if not isinstance(node, ast.ClassDef) or fact is None:
        return []
    enum = any(base.endswith(("Enum", "Flag")) for base in fact.bases)
    record = any("dataclass" in trait for trait in fact.traits) or any("NamedTuple" in base for base in fact.bases)
    found = []
    for child in node.body:
        if record and isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            found.append(child.target.id)
        elif enum and isinstance(child, ast.Assign):
            found.extend(target.id for target in child.targets if isinstance(target, ast.Name))
    return found


def _decorator(node: ast.expr) -> str:
    text = ast.unparse(node)
    text = text.replace("functools.", "").removesuffix("()")
    return "cache" if text == "lru_cache(maxsize=None)" else text


def _is_automatic(node: ast.expr) -> bool:
    """Return whether a value is ``enum.auto()``, also if ``auto`` is imported under a name such as ``enum_auto``."""
    return isinstance(node, ast.Call) and not node.args and ast.unparse(node.func).endswith("auto")


def _returned(node: FunctionNode) -> tuple[set[int], bool]:
    """Return how many values each ``return`` of a function returns, and whether the function contains ``yield``.

    ``return a, b`` returns 2 values; ``return`` and ``return None`` return 0.
    """
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


def names_of(file: PythonFile, lines: set[int]) -> Iterator[tuple[ast.Name, str]]:
    for line in sorted(lines):
        for node in file.names_at(line):
            if isinstance(node.ctx, ast.Load):
                yield node, file.function_at(node.lineno)


def names_on(file: PythonFile, lines: set[int]) -> set[str]:
    return {node.id for node, _ in names_of(file, lines)}


def stored_on(file: PythonFile, lines: set[int]) -> set[str]:
    found = set()
    for node in file.walked():
        if isinstance(node, ast.Name) and node.lineno in lines and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg) and node.lineno in lines:
            found.add(node.arg)
    return found
