"""Interface of a Python file (the names and signatures that other code can use), and the names that a file uses."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from patchq.drift._api.signatures import Parameter, Signature
from patchq.drift.bodies import lines_of, parse

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: Decorators that allow several definitions of one name.
_SEVERAL = ("overload", "setter", "getter", "deleter", "register", "singledispatch")
#: Decorators that change how a function is used.
_FORMS = ("property", "cached_property", "staticmethod", "classmethod", "contextmanager", "fixture")
#: Methods that add an option to a command line.
_OPTIONS = ("add_argument", "option")


class ItemKind(str, Enum):
    """Kind of an :class:`ApiItem`."""

    FUNCTION = "function"
    CLASS = "class"
    NAME = "name"
    IMPORT = "import"
    KEY = "key"
    OPTION = "option"
    ENTRY = "entry"
    ATTRIBUTE = "attribute"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiItem:
    """Definition, option or registered name that other code can use.

    :ivar name: name in the file, such as ``Class.method``.
    :ivar signature: signature of a function or constructor; None if it is unknown or the item can't be called.
    :ivar form: decorators such as ``property`` that change how a function is used; also ``async``.
    :ivar returns: lengths of the tuples that a function returns; empty if it returns other values.
    :ivar text: source without indentation, to compare bodies and values.
    :ivar abstract: True for a method that subclasses must define.
    """

    name: str
    kind: ItemKind
    line: int
    signature: Signature | None = None
    form: tuple[str, ...] = ()
    returns: frozenset[int] = frozenset()
    text: str = ""
    abstract: bool = False


class Interface:
    """Interface of one version of a Python file.

    :ivar module: dotted name of the module.
    :ivar items: all items by name. A name may be defined several times.
    :ivar imported: dotted path of each imported name.
    :ivar stars: modules from which ``*`` is imported.
    :ivar bases: dotted paths of the base classes of each class.
    """

    def __init__(self, path: str, source: bytes) -> None:
        self.module, self._is_package = module_of(path)
        self.items: dict[str, list[ApiItem]] = {}
        self.imported: dict[str, str] = {}
        self.stars: list[str] = []
        self.bases: dict[str, tuple[str, ...]] = {}
        self.tree = parse(source)
        self._lines = lines_of(source)
        if self.tree:
            with contextlib.suppress(RecursionError):
                self._read(self.tree.body, "")
                self._read_calls(self.tree)

    def first(self, name: str) -> ApiItem | None:
        """Return the first definition of a name."""
        found = self.items.get(name)
        if found:
            return found[0]
        return None

    def _add(self, item: ApiItem) -> None:
        self.items.setdefault(item.name, []).append(item)

    def _read(self, body: list[ast.stmt], scope: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._add(self._function(node, scope))
                if scope:
                    self._read_attributes(node, scope)
            elif isinstance(node, ast.ClassDef):
                self._read_class(node, scope)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self._read_assignment(node, scope)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._read_import(node, scope)
            else:
                for block in ("body", "orelse", "finalbody"):
                    self._read(getattr(node, block, []), scope)
                for handler in getattr(node, "handlers", []):
                    self._read(handler.body, scope)

    def _function(self, node: Function, scope: str) -> ApiItem:
        decorators = [last_name(d) for d in node.decorator_list]
        form = tuple(name for name in decorators if name in _FORMS or name in _SEVERAL)
        if isinstance(node, ast.AsyncFunctionDef):
            form = ("async", *form)
        name = scope + node.name
        return ApiItem(
            name=name,
            kind=ItemKind.FUNCTION,
            line=node.lineno,
            signature=signature_of(f"{self.module}.{name}", node, in_class=bool(scope)),
            form=form,
            returns=_returns(node),
            text=self._text(node),
            abstract="abstractmethod" in decorators,
        )

    def _read_attributes(self, node: Function, scope: str) -> None:
        """Add the attributes that a method sets on ``self``."""
        for child in ast.walk(node):
            if not isinstance(child, ast.Attribute) or not isinstance(child.ctx, ast.Store):
                continue
            if isinstance(child.value, ast.Name) and child.value.id == "self":
                name = scope + child.attr
                if name not in self.items:
                    self._add(ApiItem(name=name, kind=ItemKind.ATTRIBUTE, line=child.lineno))

    def _text(self, node: ast.stmt | ast.expr) -> str:
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        return b"\n".join(line.strip() for line in lines).decode("utf-8", "replace")

    def _read_class(self, node: ast.ClassDef, scope: str) -> None:
        name = scope + node.name
        self._add(
            ApiItem(
                name=name,
                kind=ItemKind.CLASS,
                line=node.lineno,
                signature=_constructor(f"{self.module}.{name}", node),
            )
        )
        self.bases[name] = tuple(path for base in node.bases if (path := self.resolve(base)))
        self._read(node.body, name + ".")

    def _read_assignment(self, node: ast.Assign | ast.AnnAssign, scope: str) -> None:
        if isinstance(node, ast.Assign):
            targets = node.targets
        else:
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Tuple | ast.List):
                parts = target.elts
            else:
                parts = [target]
            for part in parts:
                if isinstance(part, ast.Name):
                    text = ""
                    if node.value:
                        text = self._text(node.value)
                    self._add(ApiItem(name=scope + part.id, kind=ItemKind.NAME, line=node.lineno, text=text))
        value, target = node.value, targets[0]
        if isinstance(value, ast.Dict) and isinstance(target, ast.Name):
            for key, entry in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    name = f"{scope}{target.id}[{key.value!r}]"
                    self._add(ApiItem(name=name, kind=ItemKind.KEY, line=key.lineno, text=self._text(entry)))

    def _read_import(self, node: ast.Import | ast.ImportFrom, scope: str) -> None:
        for name, path in self.imports_of(node).items():
            if name == "*":
                self.stars.append(path)
                continue
            self.imported[name] = path
            self._add(ApiItem(name=scope + name, kind=ItemKind.IMPORT, line=node.lineno))

    def imports_of(self, node: ast.Import | ast.ImportFrom) -> dict[str, str]:
        """Return the dotted path of each name that a statement imports; for ``*``, the path of the module."""
        found = {}
        for alias in node.names:
            if isinstance(node, ast.Import):
                first = alias.name.partition(".")[0]
                if alias.asname:
                    found[alias.asname or first] = alias.name
                else:
                    found[alias.asname or first] = first
            elif alias.name == "*":
                found["*"] = self.absolute(node)
            else:
                found[alias.asname or alias.name] = f"{self.absolute(node)}.{alias.name}"
        return found

    def absolute(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that a statement imports from."""
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        kept = parts[: len(parts) - node.level + self._is_package]
        return ".".join([*kept, *([node.module] if node.module else [])])

    def _read_calls(self, tree: ast.Module) -> None:
        """Add the command line options and registered names that calls anywhere in the file define."""
        for scope, node in _calls(tree):
            called = last_name(node)
            texts = []
            for a in node.args:
                if isinstance(a, ast.Constant) and isinstance(a.value, str):
                    texts.append(a.value)
            if called in _OPTIONS:
                receiver = ast.unparse(node.func)
                for text in texts:
                    if text.startswith("--"):
                        name = f"{scope}{receiver}({text})"
                        self._add(ApiItem(name=name, kind=ItemKind.OPTION, line=node.lineno, text=text))
            elif "register" in called and texts:
                name = f"{called}({texts[0]!r})"
                self._add(ApiItem(name=name, kind=ItemKind.ENTRY, line=node.lineno, text=texts[0]))

    def resolve(self, node: ast.expr) -> str:
        """Return the dotted path that a name or attribute refers to; empty if it is unknown."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Subscript):  # a generic base class
            return self.resolve(node.value)
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.imported:
            first = self.imported[node.id]
        elif node.id in self.items:
            first = f"{self.module}.{node.id}"
        else:
            return ""
        return ".".join([first, *reversed(parts)])


def module_of(path: str) -> tuple[str, bool]:
    """Return the dotted name of a Python file's module, and whether it is a package.

    >>> module_of("src/pkg/sub/__init__.py"), module_of("pkg/mod.py")
    (('pkg.sub', True), ('pkg.mod', False))
    """
    parts = path.removesuffix(".py").split("/")
    if len(parts) > 1 and parts[0] in ("src", "lib", "python"):
        parts = parts[1:]
    if parts[-1] == "__init__":
        return ".".join(parts[:-1]), True
    return ".".join(parts), False


def last_name(node: ast.expr) -> str:
    """Return the last part of a called or dotted name.

    >>> last_name(ast.parse("a.b(1)").body[0].value)
    'b'
    """
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""


def signature_of(path: str, node: Function, *, in_class: bool) -> Signature:
    """Return a function's signature, without ``self`` and ``cls`` of methods."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    found: list[Parameter] = []
    for number, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        is_first = number == 0 and in_class and argument.arg in ("self", "cls")
        if is_first:
            continue
        only = number < len(arguments.posonlyargs)
        found.append(_parameter(argument, "positional-only" if only else "positional or keyword", default))
    if arguments.vararg:
        found.append(Parameter(arguments.vararg.arg, "variadic positional", None))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(_parameter(argument, "keyword-only", default))
    if arguments.kwarg:
        found.append(Parameter(arguments.kwarg.arg, "variadic keyword", None))
    return Signature(path, tuple(found))


def _parameter(argument: ast.arg, kind: str, default: ast.expr | None) -> Parameter:
    return Parameter(argument.arg, kind, ast.unparse(default) if default is not None else None)


def _constructor(path: str, node: ast.ClassDef) -> Signature | None:
    """Return the signature of a class's constructor; None if the class neither defines nor generates a constructor."""
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return signature_of(f"{path}.__init__", member, in_class=True)
    is_record = any(last_name(d) in ("dataclass", "define") for d in node.decorator_list)
    bases = [last_name(base) for base in node.bases]
    if not (is_record and not bases) and bases not in (["NamedTuple"], ["BaseModel"], ["Struct"]):
        return None
    found = []
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            if "ClassVar" in ast.unparse(member.annotation):
                continue
            default = None
            if member.value:
                default = ast.unparse(member.value)
            found.append(Parameter(member.target.id, "positional or keyword", default))
    return Signature(path, tuple(found))


def _returns(node: Function) -> frozenset[int]:
    """Return the lengths of the tuples that a function returns; empty if it returns anything but tuples and None."""
    lengths = set()
    for value in _returned(node.body):
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        if not isinstance(value, ast.Tuple) or any(isinstance(e, ast.Starred) for e in value.elts):
            return frozenset()
        lengths.add(len(value.elts))
    return frozenset(lengths)


def _returned(body: list[ast.stmt]) -> Iterator[ast.expr]:
    for node in body:
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from _returned(getattr(node, block, []))
        for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
            yield from _returned(part.body)


def _calls(node: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the names of the functions and classes around it: ``A.f.`` for a call in method ``f``."""
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}{child.name}."
        if isinstance(child, ast.Call):
            yield scope, child
        yield from _calls(child, inner)


# Uses of names in added lines


@dataclass(frozen=True, slots=True, kw_only=True)
class NameUse:
    """Use of a name on an added line.

    :ivar last: last part of the name: ``b`` for ``a.b``.
    :ivar paths: dotted paths of definitions to which the name may refer.
    :ivar call: the call, if the name is called.
    :ivar unknown: True for ``x.name`` if the type of ``x`` is unknown.
    """

    line: int
    last: str
    paths: tuple[str, ...] = ()
    call: ast.Call | None = None
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Subclass with an added line.

    :ivar bases: dotted paths of the base classes.
    :ivar methods: methods of the class by name.
    :ivar added: numbers of the added lines of the file.
    """

    line: int
    bases: tuple[str, ...]
    methods: dict[str, ApiItem]
    added: Collection[int]


def uses_of(interface: Interface, added: Collection[int]) -> Iterator[NameUse | Override]:
    """Yield the subclasses and the uses of names on added lines. Calls come before names that aren't called."""
    assert interface.tree
    visitor = _Uses(interface, added)
    with contextlib.suppress(RecursionError):  # expressions with thousands of terms
        visitor.visit(interface.tree)
    yield from visitor.overrides
    yield from sorted(visitor.found, key=lambda use: use.call is None)


class _Uses(ast.NodeVisitor):
    def __init__(self, interface: Interface, added: Collection[int]) -> None:
        self.interface, self.added = interface, added
        self.classes: list[str] = []
        #: Local names of each function around the current node, each with a path and True for an import.
        #: The path of an import is what it imports; the path of a variable is its class.
        self.locals: list[dict[str, tuple[str, bool]]] = []
        self.attributes: dict[str, str] = {}
        self.found: list[NameUse] = []
        self.overrides: list[Override] = []
        assert interface.tree
        self._read_attributes(interface.tree)

    def _read_attributes(self, tree: ast.Module) -> None:
        """Record the attributes of ``self`` that hold instances of known classes."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and (path := self.interface.resolve(node.value.func)):
                        self.attributes[ast.unparse(target)] = path

    def _is_added(self, node: ast.expr | ast.stmt) -> bool:
        return any(line in self.added for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))

    def _use(self, line: int, path: str, call: ast.Call | None = None) -> None:
        self.found.append(NameUse(line=line, last=path.rpartition(".")[2], paths=(path,), call=call))

    # Scopes

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        name = ".".join([*self.classes, node.name])
        if not self.locals and self._is_added(node):
            methods = {}
            for member in node.body:
                item = None
                if isinstance(member, _FUNCTIONS):
                    item = self.interface.first(f"{name}.{member.name}")
                if item:
                    methods[item.name.rpartition(".")[2]] = item
            bases = self.interface.bases.get(name, ())
            if bases:
                self.overrides.append(Override(line=node.lineno, bases=bases, methods=methods, added=self.added))
        self.classes.append(node.name)
        self.generic_visit(node)
        self.classes.pop()

    def visit_FunctionDef(self, node: Function) -> None:
        self._use_fixtures(node)
        names: dict[str, tuple[str, bool]] = {}
        self.locals.append(names)
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            names[argument.arg] = (self._type(argument.annotation) if argument.annotation else "", False)
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                names.setdefault(child.id, ("", False))
            elif isinstance(child, ast.Import | ast.ImportFrom):
                imported = self.interface.imports_of(child)
                names.update((name, (path, True)) for name, path in imported.items())
        for child in ast.walk(node):
            if isinstance(child, ast.Assign) and isinstance(child.value, ast.Call):
                path = self._type(child.value.func)
                for target in child.targets:
                    if isinstance(target, ast.Name):
                        names[target.id] = (path, False)
        self.generic_visit(node)
        self.locals.pop()

    def _type(self, node: ast.expr) -> str:
        """Return the path of the class that an annotation or a called expression names; empty if it is unknown."""
        paths, _ = self._paths(node)
        if paths:
            return paths[0]
        return ""

    visit_AsyncFunctionDef = visit_FunctionDef

    def _use_fixtures(self, node: Function) -> None:
        """Add a use for each fixture that a test or fixture requests by a parameter."""
        if node.name.startswith("test") or any("fixture" in ast.unparse(d) for d in node.decorator_list):
            for argument in node.args.args:
                if argument.lineno in self.added:
                    module = self.interface.module
                    package = module.rpartition(".")[0]
                    conftest = "conftest"
                    if package:
                        conftest = f"{package}.conftest"
                    paths = (f"{module}.{argument.arg}", f"{conftest}.{argument.arg}")
                    self.found.append(NameUse(line=argument.lineno, last=argument.arg, paths=paths))

    # Uses

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if node.lineno in self.added:
                self._use(node.lineno, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if self._is_added(node):
            base = self.interface.absolute(node)
            self._use(node.lineno, base)
            for alias in node.names:
                self._use(alias.lineno, f"{base}.{alias.name}")

    def visit_Call(self, node: ast.Call) -> None:
        if self._is_added(node):
            paths, last = self._paths(node.func)
            unknown = isinstance(node.func, ast.Attribute) and not paths
            if paths or unknown:
                self.found.append(NameUse(line=node.lineno, last=last, paths=paths, call=node, unknown=unknown))
            for path in paths:
                for keyword in node.keywords:
                    if keyword.arg:
                        self._use(node.lineno, f"{path}.{keyword.arg}")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        end = node.end_lineno or node.lineno
        if isinstance(node.ctx, ast.Load) and end in self.added:
            paths, last = self._paths(node)
            if paths:
                self.found.append(NameUse(line=end, last=last, paths=paths))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.lineno in self.added:
            for path in self._paths(node)[0]:
                self._use(node.lineno, path)

    def _local(self, name: str) -> tuple[str, bool] | None:
        """Return the entry for a local name in ``locals``; None for other names."""
        for names in reversed(self.locals):
            if name in names:
                return names[name]
        return None

    def _paths(self, node: ast.expr) -> tuple[tuple[str, ...], str]:
        """Return the paths of definitions to which an expression may refer, and the last part of the expression."""
        if isinstance(node, ast.Name):
            local = self._local(node.id)
            if local is not None:
                return ((local[0],) if local[0] and local[1] else ()), node.id
            path = self.interface.resolve(node)
            if not path:
                return (), node.id
            # Other code can also use a name that this file imports as a name of this module.
            return tuple(dict.fromkeys((path, f"{self.interface.module}.{node.id}"))), node.id
        if not isinstance(node, ast.Attribute):
            return (), ""
        owners = self._owners(node.value)
        if node.attr == "__init__":
            return owners, owners[0].rpartition(".")[2] if owners else ""
        return tuple(f"{owner}.{node.attr}" for owner in owners), node.attr

    def _owners(self, node: ast.expr) -> tuple[str, ...]:
        """Return the possible paths of ``node`` in ``node.attribute``: a module, a class or an object's class."""
        own = f"{self.interface.module}.{'.'.join(self.classes)}"
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "super" and self.classes:
                return self.interface.bases.get(".".join(self.classes), ())
            return self._paths(node.func)[0]
        if isinstance(node, ast.Name):
            if node.id in ("self", "cls") and self.classes:
                return (own,)
            local = self._local(node.id)
            if local is not None:
                if local[0]:
                    return (local[0],)
                return ()
        held = self.attributes.get(ast.unparse(node))
        if held:
            return (held,)
        path = self.interface.resolve(node)
        if not path and isinstance(node, ast.Attribute):
            paths, _ = self._paths(node)
            return paths
        if path:
            return (path,)
        return ()


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
