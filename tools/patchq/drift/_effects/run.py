"""Run a function with made-up values: its statements, expressions and calls."""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any

from patchq.drift._effects.library import call_builtin, call_method
from patchq.drift._effects.state import (
    BoundMethod,
    Closure,
    FunctionScope,
    RaisedError,
    TrialState,
    is_plain_number,
)
from patchq.drift._effects.values import PRIME, Key, Lazy, MadeContainer, Number, Unknown, UnknownError
from patchq.drift._python.shape import FunctionNode

#: Most repetitions of a ``while`` loop whose test needs a decision, and of any ``while`` loop.
_MOST_DECIDED, _MOST_ROUNDS = 6, 64
#: Names of functions that answer a question: a call of one has no effect, and the same call has the same result.
_QUESTION = re.compile(
    r"(is|has|can|should|supports?|needs?|uses?|are)_\w+|get_(?!.*(next|and|pop|nowait|create|new|random|lock|time))\w+"
    r"|(is|has|can|should|supports?|needs|get)[A-Z]\w*|cdiv|ceil_?[dD]iv|round_(up|down)|exists|resolve|as_posix"
)
#: Decorator of functions whose results don't change.
CACHE = "functools.cache"
_YES_OR_NO = re.compile(r"(is|has|can|should|supports?)(_|[A-Z])")
#: C++ functions that return a constant of a type.
_OF_TYPE = re.compile(r"(.*::)?(numeric_limits<.*>|\w*Traits\w*(<.*>)?)::\w+")
#: Exceptions of an import that fails.
_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
#: C++ functions after which memory may have other contents.
_ORDERING = re.compile(r"sync|fence|wait|barrier|atomic|acquire|release|arrive|commit", re.IGNORECASE)
#: Declarations of C++ objects that are empty at first.
_QUIET = re.compile(r"declare (vector|string|map|unordered_map|set|unordered_set|optional|array|ostringstream)\b")


#: What methods of paths do.
_OF_PATHS = {
    node.name: node
    for node in ast.parse(
        "def read_text(path, **more):\n"
        "    with open(path, **more) as file:\n"
        "        return file.read()\n"
        "def write_text(path, text, **more):\n"
        "    with open(path, 'w', **more) as file:\n"
        "        return file.write(text)\n"
    ).body
    if isinstance(node, ast.FunctionDef)
}


class EndlessError(Exception):
    """A loop that doesn't end with these values."""


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


#: What leaves a block before its end.
_LEAVING = (RaisedError, _Return, _Break, _Continue)


def _may_be_one(one: ast.arg, other: ast.arg) -> bool:
    """Return whether two arguments may be one object. Of C++, local variables that are objects never are."""
    return one is not other and not one.arg.startswith("%") and not other.arg.startswith("%")


class TrialRun(TrialState):
    """Run of a function's code.

    :ivar is_part: the function is a part of another one.
    """

    is_part = False

    def key_of_closure(self, value: Closure) -> Key:
        """Return what a function does for unknown arguments."""
        arguments = value.node.args
        if len(self.inside) > 5:
            raise UnknownError
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [one for one in (arguments.vararg, arguments.kwarg) if one]
        depth = self.inside.count("function")
        given = [self.surroundings.unknown("argument", depth, at) for at in range(len(parameters))]
        before = self.stored, self.unreported, self.events, self.changes, self.calls, self.stale, self.barriers
        self.stored, self.unreported, self.events = dict(self.stored), {}, []
        self.changes, self.calls, self.stale = dict(self.changes), dict(self.calls), dict(self.stale)
        names = dict(zip((one.arg for one in parameters), given, strict=True))
        self.inside.append("function")
        tries, self.tries = self.tries, 0
        try:
            result: Key = ("returns", self.key(self._body_of(value, names)))
        except RaisedError as error:
            result = ("raises", error.kind)
        except EndlessError:
            result = ("endless",)
        self.tries = tries
        self.inside.pop()
        self.flush()
        done = tuple(self.events)
        self.stored, self.unreported, self.events, self.changes, self.calls, self.stale, self.barriers = before
        shape = len(arguments.posonlyargs) + len(arguments.args), *(one.arg for one in arguments.kwonlyargs)
        keywords = (*(one is None for one in arguments.kw_defaults), bool(arguments.vararg), bool(arguments.kwarg))
        defaults = self.keys(value.defaults)
        is_async = isinstance(value.node, ast.AsyncFunctionDef)
        return ("function", is_async, shape, keywords, defaults, done, result)

    def run(self, node: FunctionNode, watched: Collection[str], numbers: Collection[str]) -> Key:
        """Run the function with unknown arguments, and return the description of what it did.

        :param watched: names of local variables whose last values count, too.
        :param numbers: names of parameters that are numbers.
        """
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one]
        names: dict[str, Any] = {}
        for at, one in enumerate(every):
            other = every[self.decisions.draw("which argument", at) % max(at, 1)]
            if _may_be_one(one, other) and self.decisions.one_in(12, "same argument", at):
                names[one.arg] = names[other.arg]
            else:
                names[one.arg] = self.surroundings.unknown("parameter", at)
            if one.arg in numbers:
                self.surroundings.is_number(names[one.arg])
        if self.is_part and not self.surroundings.is_cpp:
            self.variables = [value for name, value in sorted(names.items()) if name not in numbers]
        scope = FunctionScope(names)
        try:
            result = self._call_body(node.body, scope)
            self.flush()
            end: Key = ("returns", self.key(result, shared=True))
        except RaisedError as error:
            end = ("raises", error.kind, self.key(error.value))
        except EndlessError:
            end = ("endless",)
        except (_Break, _Continue) as left:
            end = ("leaves", type(left).__name__)
        self.flush()
        # To describe a function may pass on others.
        functions = tuple(map(self.key_of_closure, tuple(self.passed)))
        # The translation of a C++ variable ``x`` is ``x 1`` or ``x 2``.
        last = [one for one in scope.names.items() if one[0] in watched or one[0].partition(" ")[0] in watched]
        variables = tuple(sorted((name.partition(" ")[0], self.key(value)) for name, value in last))
        return (tuple(self.events), end, functions, variables)

    def _call_body(self, body: Sequence[ast.stmt], scope: FunctionScope) -> Any:
        try:
            self.block(body, scope)
        except _Return as returned:
            return returned.value
        return None

    def _body_of(self, function: Closure, names: dict[str, Any]) -> Any:
        scope = FunctionScope(names, function.scope)
        if isinstance(function.node, ast.Lambda):
            return self.value(function.node.body, scope)
        if function.yields:
            raise UnknownError
        return self._call_body(function.node.body, scope)

    def block(self, body: Sequence[ast.stmt], scope: FunctionScope) -> None:
        for statement in body:
            self.step()
            self.reached[id(statement)] += 1
            run = getattr(self, f"_run_{type(statement).__name__}", None)
            if run is None:
                raise UnknownError
            run(statement, scope)

    def _run_Expr(self, statement: ast.Expr, scope: FunctionScope) -> None:
        if isinstance(statement.value, ast.Call):
            self._call(statement.value, scope, as_statement=True)
        else:
            self.value(statement.value, scope)

    def _run_Assign(self, statement: ast.Assign, scope: FunctionScope) -> None:
        if isinstance(statement.value, ast.Call) and [ast.unparse(one) for one in statement.targets] == ["_"]:
            # The result counts as unused.
            value = self._call(statement.value, scope, as_statement=True)
        else:
            value = self.value(statement.value, scope)
        for target in statement.targets:
            self.assign(target, value, scope)

    def _run_AnnAssign(self, statement: ast.AnnAssign, scope: FunctionScope) -> None:
        if statement.value is not None:
            self.assign(statement.target, self.value(statement.value, scope), scope)

    def _run_AugAssign(self, statement: ast.AugAssign, scope: FunctionScope) -> None:
        target = statement.target
        if isinstance(target, ast.Name):
            read = self._value_of_Name(ast.Name(target.id, ast.Load()), scope)
            value = self.value(statement.value, scope)
            self.assign(target, self._added(statement.op, read, value), scope)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, scope)
            read = self.attribute(owner, target.attr)
            self.store(owner, target.attr, self._added(statement.op, read, self.value(statement.value, scope)))
        elif isinstance(target, ast.Subscript):
            owner, place = self.value(target.value, scope), self.value(target.slice, scope)
            read = self.item(owner, place)
            self.store_item(owner, place, self._added(statement.op, read, self.value(statement.value, scope)))
        else:
            raise UnknownError

    def _added(self, op: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of ``left += right``, which changes a list in place."""
        if isinstance(left, MadeContainer) and left.kind == "list" and isinstance(op, ast.Add):
            left.items += self.within(list(self.iterate(right)), left.items)
            return left
        if isinstance(left, Unknown) and isinstance(right, MadeContainer) and isinstance(op, ast.Add):
            for one in right.items:
                self.call(BoundMethod(left, "append"), [one], {})
            return left
        return self.operation(op, left, right)

    def _run_Return(self, statement: ast.Return, scope: FunctionScope) -> None:
        raise _Return(None if statement.value is None else self.value(statement.value, scope))

    def _run_If(self, statement: ast.If, scope: FunctionScope) -> None:
        holds = self.test(statement.test, scope)
        self.block(statement.body if holds else statement.orelse, scope)

    def _run_For(self, statement: ast.For | ast.AsyncFor, scope: FunctionScope) -> None:
        items = self.value(statement.iter, scope)
        if isinstance(statement, ast.AsyncFor):
            items = self.event("async for", self.key(items))
        for item in self.iterate(items):
            self.step()
            self.reached[id(statement), "item"] += 1
            self.assign(statement.target, item, scope)
            if self._leaves(statement.body, scope):
                return
        self.reached[id(statement), "end"] += 1
        self.block(statement.orelse, scope)

    _run_AsyncFor = _run_For

    def _run_While(self, statement: ast.While, scope: FunctionScope) -> None:
        rounds = decided = 0
        while True:
            before = self.decisions.count
            if not self.test(statement.test, scope):
                break
            rounds += 1
            decided += self.decisions.count > before
            if decided > _MOST_DECIDED or rounds > _MOST_ROUNDS:
                raise EndlessError
            if self._leaves(statement.body, scope):
                return
        self.block(statement.orelse, scope)

    def _leaves(self, body: Sequence[ast.stmt], scope: FunctionScope) -> bool:
        """Run the body of a loop once, and return whether it leaves the loop."""
        try:
            self.block(body, scope)
        except _Break:
            return True
        except _Continue:
            pass
        return False

    def _run_Break(self, statement: ast.stmt, scope: FunctionScope) -> None:
        raise _Break

    def _run_Continue(self, statement: ast.stmt, scope: FunctionScope) -> None:
        raise _Continue

    def _run_Pass(self, statement: ast.stmt, scope: FunctionScope) -> None:
        pass

    def _run_Import(self, statement: ast.Import, scope: FunctionScope) -> None:
        for one in statement.names:
            self._may_lack(one.name)
            if one.asname:
                scope.names[one.asname] = self._imported(*one.name.split("."))
            else:
                first = one.name.partition(".")[0]
                scope.names[first] = self._imported(first)

    def _run_ImportFrom(self, statement: ast.ImportFrom, scope: FunctionScope) -> None:
        for one in statement.names:
            self._may_lack(statement.module or "", one.name)
            name = one.asname or one.name
            # The name is taken for a global name, so that it makes no difference where it is imported.
            scope.names[name] = self._value_of_Name(ast.Name(name, ast.Load()), FunctionScope({}))

    def _may_lack(self, module: str, name: str = "") -> None:
        """Raise an ImportError in some runs, if the function catches it and the module may be lacking."""
        catches = _IMPORT_ERRORS.intersection(self.surroundings.errors)
        if catches and module.partition(".")[0] not in sys.stdlib_module_names:
            self.made("import", module, name)

    def _imported(self, first: str, *rest: str) -> Unknown:
        found = self.surroundings.unknown("global", first)
        for name in rest:
            found = self.surroundings.unknown("attribute", found.number, name)
        return found

    def _run_Global(self, statement: ast.Global, scope: FunctionScope) -> None:
        scope.globals.update(statement.names)

    def _run_Nonlocal(self, statement: ast.Nonlocal, scope: FunctionScope) -> None:
        scope.nonlocals.update(statement.names)

    def _run_Assert(self, statement: ast.Assert, scope: FunctionScope) -> None:
        if not self.test(statement.test, scope):
            raise RaisedError(("error", "AssertionError"), self.surroundings.unknown("exception", "assert"))

    def _run_Delete(self, statement: ast.Delete, scope: FunctionScope) -> None:
        for target in statement.targets:
            if isinstance(target, ast.Name):
                scope.names.pop(target.id, None)
            elif isinstance(target, ast.Attribute):
                self.event("delete", self.key(self.value(target.value, scope)), target.attr)
            elif isinstance(target, ast.Subscript):
                owner, place = self.value(target.value, scope), self.value(target.slice, scope)
                if isinstance(owner, MadeContainer):
                    self.delete_item(owner, place)
                    continue
                self.event("delete item", self.key(owner), self.key(place))
                self.changed(owner)

    def _run_FunctionDef(self, statement: FunctionNode, scope: FunctionScope) -> None:
        function: Any = self._closure(statement, scope)
        for decorator in reversed(statement.decorator_list):
            function = self.call(self.value(decorator, scope), [function], {})
        scope.set(statement.name, function)

    _run_AsyncFunctionDef = _run_FunctionDef

    def _run_ClassDef(self, statement: ast.ClassDef, scope: FunctionScope) -> None:
        parts: list[Hashable] = [
            self.key(self.value(one, scope)) for one in (*statement.bases, *statement.decorator_list)
        ]
        parts += [(one.arg, self.key(self.value(one.value, scope))) for one in statement.keywords]
        inner = FunctionScope({}, scope)
        for one in statement.body:
            self.reached[id(one)] += 1
            if isinstance(one, FunctionNode):
                decorators = self.keys(self.value(each, scope) for each in one.decorator_list)
                parts.append((one.name, decorators, self.key(self._closure(one, scope))))
            elif isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None:
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                value = self.value(one.value, inner)
                for target in targets:
                    self.assign(target, value, inner)
                annotation = ast.dump(one.annotation) if isinstance(one, ast.AnnAssign) else ""
                parts.append((*map(ast.dump, targets), annotation, self.key(value)))
            elif not isinstance(one, ast.Expr) or not isinstance(one.value, ast.Constant):
                parts.append(ast.dump(one))
        scope.set(statement.name, self.surroundings.unknown("class", statement.name, tuple(parts)))

    def _closure(self, node: FunctionNode | ast.Lambda, scope: FunctionScope) -> Closure:
        defaults = [self.value(one, scope) for one in (*node.args.defaults, *node.args.kw_defaults) if one]
        return Closure(node, scope, defaults)

    def _run_Raise(self, statement: ast.Raise, scope: FunctionScope) -> None:
        if statement.exc is None:
            if not self.handled:
                raise UnknownError
            raise self.handled[-1]
        error = statement.exc
        if isinstance(error, ast.Call):
            # The arguments of errors don't count.
            error = error.func
        value = self.value(error, scope)
        for one in self.handled:
            if one.value == value:
                raise one
        raise RaisedError(self.kind_of_error(value), value)

    def _run_Try(self, statement: ast.Try, scope: FunctionScope) -> None:
        if not statement.finalbody:
            self._tried(statement, scope)
            return
        before = self.tries
        self.tries += 1
        try:
            self._tried(statement, scope)
        except _LEAVING:
            self.tries = before
            self.block(statement.finalbody, scope)
            raise
        self.tries = before
        self.block(statement.finalbody, scope)

    def _tried(self, statement: ast.Try, scope: FunctionScope) -> None:
        before = self.tries
        self.tries += 1
        try:
            self.block(statement.body, scope)
        except (_Return, _Break, _Continue):
            self.tries = before
            raise
        except RaisedError as error:
            self.tries = before
            for handler in statement.handlers:
                if self._catches(handler.type, error, scope):
                    self._handle(handler, error, scope)
                    return
            raise
        self.tries = before
        self.block(statement.orelse, scope)

    def _handle(self, handler: ast.ExceptHandler, error: RaisedError, scope: FunctionScope) -> None:
        self.reached[id(handler)] += 1
        if handler.name:
            scope.names[handler.name] = error.value
        self.handled.append(error)
        try:
            self.block(handler.body, scope)
        finally:
            self.handled.pop()

    def _catches(self, kind: ast.expr | None, error: RaisedError, scope: FunctionScope) -> bool:
        if kind is None:
            return True
        if isinstance(kind, ast.Tuple):
            return any(self._catches(one, error, scope) for one in kind.elts)
        return self.is_error(self.kind_of_error(self.value(kind, scope)), error)

    def _run_With(self, statement: ast.With, scope: FunctionScope) -> None:
        self._with(statement.items, statement.body, scope)

    def _run_AsyncWith(self, statement: ast.AsyncWith, scope: FunctionScope) -> None:
        self.event("async with", fails=False)
        self._with(statement.items, statement.body, scope)

    def _with(self, items: Sequence[ast.withitem], body: Sequence[ast.stmt], scope: FunctionScope) -> None:
        if not items:
            self.block(body, scope)
            return
        context = self.value(items[0].context_expr, scope)
        entered = self.event("enter", self.key(context))
        if items[0].optional_vars is not None:
            self.assign(items[0].optional_vars, entered, scope)
        self.tries += 1
        left: Exception | None = None
        try:
            self._with(items[1:], body, scope)
        except _LEAVING as error:
            left = error
        self.tries -= 1
        if not self._reads_file(context):
            # Nothing depends on when a file that is only read is closed.
            self.event("leave", self.key(context), fails=False)
        if left is not None and not (isinstance(left, RaisedError) and self.suppresses(context, left)):
            raise left

    def _reads_file(self, context: Any) -> bool:
        term = self.surroundings.term(context) if isinstance(context, Unknown) else ()
        match term:
            case ("result", ("call", function, (_,), tuple(keywords)), _):
                opened = self.key(self.surroundings.unknown("global", "open"))
                return function == opened and not any(isinstance(one, tuple) and one[0] == "mode" for one in keywords)
        return False

    def assign(self, target: ast.expr, value: Any, scope: FunctionScope) -> None:
        match target:
            case ast.Name() if target.id in scope.globals:
                self.store(self.surroundings.unknown("globals"), target.id, value)
            case ast.Name():
                scope.set(target.id, value)
            case ast.Attribute():
                self.store(self.value(target.value, scope), target.attr, value)
            case ast.Subscript():
                self.store_item(self.value(target.value, scope), self.value(target.slice, scope), value)
            case ast.Tuple() | ast.List():
                self._unpack(target.elts, value, scope)
            case ast.Starred():
                self.assign(target.value, MadeContainer("list", list(self.iterate(value))), scope)
            case _:
                raise UnknownError

    def _unpack(self, targets: Sequence[ast.expr], value: Any, scope: FunctionScope) -> None:
        if isinstance(value, Unknown):
            if any(isinstance(one, ast.Starred) for one in targets):
                raise UnknownError
            self.surroundings.unpack(value, len(targets))
            for position, target in enumerate(targets):
                self.assign(target, self.item(value, position), scope)
            return
        items = list(self.iterate(value))
        starred = [at for at, one in enumerate(targets) if isinstance(one, ast.Starred)]
        if starred:
            after = len(targets) - starred[0] - 1
            middle = items[starred[0] : len(items) - after]
            items = [*items[: starred[0]], MadeContainer("list", middle), *items[len(items) - after :]]
        if len(items) != len(targets):
            raise RaisedError(("error", "ValueError"), None)
        for target, item in zip(targets, items, strict=True):
            place = target.value if isinstance(target, ast.Starred) else target
            self.assign(place, item, scope)

    def value(self, node: ast.expr, scope: FunctionScope) -> Any:
        """Return the value of an expression."""
        self.step()
        evaluate = getattr(self, f"_value_of_{type(node).__name__}", None)
        if evaluate is None:
            raise UnknownError
        return evaluate(node, scope)

    def _value_of_Constant(self, node: ast.Constant, scope: FunctionScope) -> Any:
        return node.value

    def _value_of_Name(self, node: ast.Name, scope: FunctionScope) -> Any:
        if node.id in scope.globals:
            return self.attribute(self.surroundings.unknown("globals"), node.id)
        found = scope.find(node.id)
        if found is not None:
            return found.names[node.id]
        if node.id in self.constants:
            return self.value(self.constants[node.id], FunctionScope({}))
        return self.surroundings.unknown("global", node.id)

    def _value_of_Attribute(self, node: ast.Attribute, scope: FunctionScope) -> Any:
        owner = self.value(node.value, scope)
        known = isinstance(node.value, ast.Name) and self.constants.get(f"{node.value.id}.{node.attr}")
        if known and ("attribute", self.key(owner), node.attr) not in self.stored:
            return self.value(known, scope)
        return self.attribute(owner, node.attr)

    def _value_of_Subscript(self, node: ast.Subscript, scope: FunctionScope) -> Any:
        return self.item(self.value(node.value, scope), self.value(node.slice, scope))

    def _value_of_Tuple(self, node: ast.Tuple, scope: FunctionScope) -> Any:
        return tuple(self._elements(node.elts, scope))

    def _value_of_List(self, node: ast.List, scope: FunctionScope) -> Any:
        return MadeContainer("list", self._elements(node.elts, scope))

    def _value_of_Set(self, node: ast.Set, scope: FunctionScope) -> Any:
        return self.made_set(self._elements(node.elts, scope))

    def _elements(self, nodes: Sequence[ast.expr], scope: FunctionScope) -> list[Any]:
        found: list[Any] = []
        for one in nodes:
            if isinstance(one, ast.Starred):
                found += self.iterate(self.value(one.value, scope))
            else:
                found.append(self.value(one, scope))
        return found

    def _value_of_Dict(self, node: ast.Dict, scope: FunctionScope) -> Any:
        found = MadeContainer("dict")
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self.update(found, self.value(value, scope))
            else:
                self.store_in(found, self.value(key, scope), self.value(value, scope))
        return found

    def _value_of_Starred(self, node: ast.Starred, scope: FunctionScope) -> Any:
        return tuple(self.iterate(self.value(node.value, scope)))

    def _value_of_Slice(self, node: ast.Slice, scope: FunctionScope) -> Any:
        lower, upper, step = (one and self.value(one, scope) for one in (node.lower, node.upper, node.step))
        return slice(None if lower == 0 and step is None else lower, upper, step)

    def _value_of_IfExp(self, node: ast.IfExp, scope: FunctionScope) -> Any:
        return self.value(node.body if self.test(node.test, scope) else node.orelse, scope)

    def _value_of_NamedExpr(self, node: ast.NamedExpr, scope: FunctionScope) -> Any:
        value = self.value(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def _value_of_Lambda(self, node: ast.Lambda, scope: FunctionScope) -> Any:
        return self._closure(node, scope)

    def _value_of_JoinedStr(self, node: ast.JoinedStr, scope: FunctionScope) -> Any:
        return self.text(self._elements(node.values, scope))

    def _value_of_FormattedValue(self, node: ast.FormattedValue, scope: FunctionScope) -> Any:
        value = self.now(self.value(node.value, scope))
        if node.conversion == -1 and node.format_spec is None:
            return self.text_of(value)
        form = self.key(node.format_spec and self.value(node.format_spec, scope))
        return self.text([self.made("formatted", self.key(value), node.conversion, form)])

    def _value_of_Await(self, node: ast.Await | ast.Yield | ast.YieldFrom, scope: FunctionScope) -> Any:
        value = None if node.value is None else self.value(node.value, scope)
        return self.event(type(node).__name__, self.key(value, shared=True))

    _value_of_Yield = _value_of_YieldFrom = _value_of_Await

    def _value_of_ListComp(self, node: ast.ListComp, scope: FunctionScope) -> Any:
        return MadeContainer("list", [self.value(node.elt, inner) for inner in self._rounds(node.generators, scope)])

    def _value_of_SetComp(self, node: ast.SetComp, scope: FunctionScope) -> Any:
        return self.made_set(self.value(node.elt, inner) for inner in self._rounds(node.generators, scope))

    def _value_of_DictComp(self, node: ast.DictComp, scope: FunctionScope) -> Any:
        found = MadeContainer("dict")
        for inner in self._rounds(node.generators, scope):
            self.store_in(found, self.value(node.key, inner), self.value(node.value, inner))
        return found

    def _value_of_GeneratorExp(self, node: ast.GeneratorExp, scope: FunctionScope) -> Any:
        return Lazy(self.value(node.elt, inner) for inner in self._rounds(node.generators, scope))

    def _rounds(self, generators: Sequence[ast.comprehension], scope: FunctionScope) -> Iterator[FunctionScope]:
        """Yield the local variables of each round of a comprehension."""
        inner = FunctionScope({}, scope)
        yield from self._round(generators, inner)

    def _round(self, generators: Sequence[ast.comprehension], scope: FunctionScope) -> Iterator[FunctionScope]:
        if not generators:
            yield scope
            return
        first = generators[0]
        items = self.value(first.iter, scope)
        if first.is_async:
            items = self.event("async for", self.key(items))
        for item in self.iterate(items):
            self.step()
            self.assign(first.target, item, scope)
            if all(self.test(one, scope) for one in first.ifs):
                yield from self._round(generators[1:], scope)

    def _value_of_BinOp(self, node: ast.BinOp, scope: FunctionScope) -> Any:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if self.surroundings.is_cpp:
            # An address stays the same if what is there changes.
            return self.operation(node.op, left, right)
        return self.operation(node.op, self.now(left), self.now(right))

    def _value_of_UnaryOp(self, node: ast.UnaryOp, scope: FunctionScope) -> Any:
        if isinstance(node.op, ast.Not):
            return not self.test(node.operand, scope)
        value = self.now(self.value(node.operand, scope))
        if is_plain_number(value):
            try:
                return _UNARY[type(node.op)](value)
            except TypeError:
                raise UnknownError from None
        if isinstance(node.op, ast.USub) and isinstance(value, Number):
            return Number(-value.value % PRIME)
        return self.made("operation", type(node.op).__name__, self.key(value))

    def test(self, node: ast.expr, scope: FunctionScope) -> bool:
        """Return the truth of an expression."""
        before = self.decisions.count
        if isinstance(node, ast.BoolOp):
            found = isinstance(node.op, ast.And)
            for one in node.values:
                found = self.test(one, scope)
                if found != isinstance(node.op, ast.And):
                    break
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            found = not self.test(node.operand, scope)
        else:
            found = self.truth(self.value(node, scope))
        self._tested(node, found)
        if self.decisions.count == before:
            self.reached[id(node), "decided"] += 1
        return found

    def _tested(self, node: ast.expr, result: bool) -> None:
        self.reached[id(node)] += 1
        self.reached[id(node), result] += 1

    def _value_of_BoolOp(self, node: ast.BoolOp, scope: FunctionScope) -> Any:
        value = None
        for one in node.values:
            value = self.value(one, scope)
            found = self.truth(value)
            self._tested(one, found)
            if found != isinstance(node.op, ast.And):
                break
        return value

    def _value_of_Compare(self, node: ast.Compare, scope: FunctionScope) -> Any:
        left = self.value(node.left, scope)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, scope)
            if not self.compared(op, left, right):
                return False
            left = right
        return True

    def _value_of_Call(self, node: ast.Call, scope: FunctionScope) -> Any:
        return self._call(node, scope)

    def _call(self, node: ast.Call, scope: FunctionScope, *, as_statement: bool = False) -> Any:
        name = ast.unparse(node.func) if self.helpers else ""
        helper = self.helpers.get(name)
        if helper is not None and name not in self.inside and ("." in name or scope.find(name) is None):
            return self._help(helper, name, node, scope)
        if isinstance(node.func, ast.Attribute):
            function: Any = BoundMethod(self.value(node.func.value, scope), node.func.attr)
        else:
            function = self.value(node.func, scope)
        arguments = self._elements(node.args, scope)
        keywords: dict[str, Any] = {}
        for one in node.keywords:
            value = self.value(one.value, scope)
            if one.arg is not None:
                keywords[one.arg] = value
            elif (
                isinstance(value, MadeContainer)
                and value.kind == "dict"
                and all(isinstance(each, str) for each in value.items)
            ):
                keywords.update(zip(value.items, value.values, strict=True))
            else:
                keywords["**"] = value
        return self.call(function, arguments, keywords, as_statement=as_statement)

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], *, as_statement: bool = False) -> Any:
        """Call a function."""
        if isinstance(function, Closure):
            return self._call_closure(function, arguments, keywords)
        owner: Any = None
        name = self._global_name(function)
        if isinstance(function, Unknown) and self.surroundings.is_fixed(function) and not name:
            # Imported by its name: a member of a module.
            term = self.surroundings.term(function)
            function = BoundMethod(Unknown(int(str(term[1]))), str(term[2]))
        if name:
            done, result = call_builtin(self, name, arguments, keywords)
            if done:
                return result
        if isinstance(function, BoundMethod):
            owner, name = function.owner, function.name
            if name in _OF_PATHS and isinstance(owner, Unknown) and len(arguments) == (name == "write_text"):
                return self._call_closure(
                    Closure(_OF_PATHS[name], FunctionScope({}), []), [owner, *arguments], keywords
                )
            done, result = call_method(self, owner, name, arguments, keywords)
            if done:
                return result
            if isinstance(owner, MadeContainer | tuple | str):
                raise UnknownError
            function = self.attribute(owner, name)
            if isinstance(function, Closure):
                return self._call_closure(function, arguments, keywords)
        parts = ("call", self.key(function), self.keys(arguments, shared=True), self.named(keywords, shared=True))
        return self._call_unknown(parts, name, owner, as_statement=as_statement)

    def _global_name(self, value: Any) -> str:
        """Return the name of a global value; "" for other values."""
        term = self.surroundings.term(value) if isinstance(value, Unknown) else ("",)
        return str(term[1]) if term[0] == "global" else ""

    def _call_unknown(self, parts: tuple[Any, ...], name: str, owner: Any, *, as_statement: bool) -> Any:
        """Return the result of a call of unknown code, and report the call if it may have an effect.

        :param owner: object whose method is called; None for a function.
        """
        given = parts[2]
        is_question = _QUESTION.fullmatch(name.rpartition("::")[2]) or (_OF_TYPE.fullmatch(name) and not given)
        if is_question and not as_statement:
            self.flush()
            changes = tuple(self.changes.get(one, 0) for one in (self.key(owner), *given))
            answer = self.surroundings.unknown("answer", *parts[1:], changes)
            return self.truth(answer) if _YES_OR_NO.match(name) else answer
        if name == "<<" and self.continues(given):
            return None
        if _QUIET.match(name) and not given:
            count = self.calls.get(parts, 0)
            self.calls[parts] = count + 1
            return self.surroundings.unknown("result", parts, count)
        result = self.event(*parts)
        if self.surroundings.is_cpp and _ORDERING.search(name):
            self.barriers += 1
        if owner is not None and not self.surroundings.is_module(owner):
            self.changed(owner)
        return result

    def _call_closure(self, function: Closure, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        names = self._bound(function.node.args, arguments, keywords, function.defaults)
        if len(self.inside) > 8:
            raise UnknownError
        self.inside.append("")
        try:
            return self._body_of(function, names)
        finally:
            self.inside.pop()

    def _bound(
        self, parameters: ast.arguments, arguments: list[Any], keywords: dict[str, Any], defaults: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the local variables of a called function."""
        others = {key: value for key, value in keywords.items() if key != "**"}
        positional = [*parameters.posonlyargs, *parameters.args]
        names = {one.arg: value for one, value in zip(positional, arguments, strict=False)}
        known = {one.arg for one in (*positional, *parameters.kwonlyargs)}
        names.update((key, others.pop(key)) for key in list(others) if key in known)
        with_default = positional[len(positional) - len(parameters.defaults) :]
        with_default += [one for one, value in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True) if value]
        for one, value in zip(with_default, defaults, strict=True):
            names.setdefault(one.arg, value)
        rest: tuple[Any, ...] = tuple(arguments[len(positional) :])
        given: Any = MadeContainer("dict", list(others), list(others.values()))
        if "**" in keywords:
            for name in known - set(names):
                names[name] = self.item(keywords["**"], name)
            given = keywords["**"]
        if set(names) != known or (rest and not parameters.vararg) or (others and not parameters.kwarg):
            raise UnknownError
        if parameters.vararg:
            names[parameters.vararg.arg] = rest
        if parameters.kwarg:
            names[parameters.kwarg.arg] = given
        return names

    def _help(self, helper: FunctionNode, name: str, node: ast.Call, scope: FunctionScope) -> Any:
        """Run the body of a helper in place of its call."""
        static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in helper.decorator_list)
        is_cached = _YES_OR_NO.match(helper.name) and [ast.unparse(one) for one in helper.decorator_list] == [CACHE]
        if isinstance(helper, ast.AsyncFunctionDef) or (helper.decorator_list and not static and not is_cached):
            raise UnknownError
        if not all(isinstance(one, ast.Constant) for one in helper.args.defaults + helper.args.kw_defaults if one):
            # A default is made only once.
            raise UnknownError
        function = self._closure(helper, FunctionScope({}))
        arguments = self._elements(node.args, scope)
        if "." in name and not static:
            arguments.insert(0, self.value(ast.Name(name.partition(".")[0], ast.Load()), scope))
        keywords = {}
        for one in node.keywords:
            if one.arg is None:
                raise UnknownError
            keywords[one.arg] = self.value(one.value, scope)
        names = self._bound(helper.args, arguments, keywords, function.defaults)
        self.inside.append(name)
        try:
            return self._body_of(function, names)
        finally:
            self.inside.pop()
