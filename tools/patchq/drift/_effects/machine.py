"""Run a function with made-up values: its statements and expressions."""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from patchq.drift._effects.values import (
    MOST_ITEMS,
    PRIME,
    Container,
    Decisions,
    Key,
    Lazy,
    Number,
    Surroundings,
    Unknown,
    UnknownError,
)
from patchq.drift._python.shape import FunctionNode, walk

#: Most statements and expressions of a run.
_MOST_STEPS = 12000
#: Most repetitions of a ``while`` loop whose test needs a decision, and of any ``while`` loop.
_MOST_DECIDED, _MOST_ROUNDS = 6, 64
#: Greatest integer and longest text to compute.
_GREATEST = 2**64
_LONGEST = 10000
#: Names of functions that answer a question: a call of one has no effect, and the same call has the same result.
_QUESTION = re.compile(
    r"(is|has|can|should|supports?|needs?|uses?|are)_\w+|get_(?!.*(next|and|pop|nowait|create|new|random|lock))\w+"
    r"|(is|has|can|should|supports?|needs|get)[A-Z]\w*|cdiv|ceil_?[dD]iv|round_(up|down)|exists|resolve|as_posix"
)
#: C++ functions that return a constant of a type.
_OF_TYPE = re.compile(r"(.*::)?(numeric_limits<.*>|\w*Traits\w*(<.*>)?)::\w+")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_ORDERS: dict[type[ast.cmpop], tuple[int, ...]] = {
    # Signs of the difference for which the comparison holds.
    ast.Lt: (-1,),
    ast.LtE: (-1, 0),
    ast.Gt: (1,),
    ast.GtE: (0, 1),
}
#: First words of the descriptions of values that are never ``None``.
_NEVER_NONE = ("environment", "text", "path", "formatted", "operation", "class", "sorted")
#: Operations of integers whose operands may be exchanged.
_COMMUTATIVE = (ast.Mult, ast.BitAnd, ast.BitXor)


#: Declarations of C++ objects that are empty at first.
_QUIET = re.compile(r"declare (vector|string|map|unordered_map|set|unordered_set|optional|array|ostringstream)\b")


class RaisedError(Exception):
    """Exception that the function raises.

    :ivar kind: description of its type.
    :ivar value: the exception.
    """

    def __init__(self, kind: Hashable, value: Any) -> None:
        super().__init__(kind)
        self.kind, self.value = kind, value


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


class Scope:
    """Local variables of a function, within those of the functions around it."""

    def __init__(self, names: dict[str, Any], outer: Scope | None = None) -> None:
        self.names, self.outer = names, outer
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()

    def find(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.outer
        return scope

    def set(self, name: str, value: Any) -> None:
        if name in self.nonlocals:
            found = self.outer.find(name) if self.outer else None
            if found is None:
                raise UnknownError
            found.names[name] = value
        else:
            self.names[name] = value


class Closure:
    """Function that the function made."""

    def __init__(self, node: FunctionNode | ast.Lambda, scope: Scope, defaults: Sequence[Any]) -> None:
        self.node, self.scope, self.defaults = node, scope, defaults


class Bound:
    """Method of an object, before it is called."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name


class Machine:
    """One run of a function.

    :ivar events: what the run did to its surroundings, in order.
    :ivar reached: how often statements and tests ran, by their ids; how often tests had each result; and how often
        each ``for`` loop had an item, and came to its end.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        seed: int,
        *,
        helpers: Mapping[str, FunctionNode],
        constants: Mapping[str, ast.expr],
        reached: Counter[Hashable],
    ) -> None:
        self.surroundings = surroundings
        self.decisions = Decisions(surroundings, seed)
        self.helpers, self.constants = helpers, constants
        self.reached = reached
        self.events: list[Key] = []
        self.steps = 0
        #: Value of each attribute and item that the run stored.
        self.stored: dict[Key, Any] = {}
        #: Attributes that were stored since the last event.
        self.unreported: dict[Key, Key] = {}
        #: Attributes whose stored values a call may have changed since: the event after which they are read.
        self.stale: dict[Key, Key] = {}
        #: Number of changes to each unknown value.
        self.changes: dict[Key, int] = {}
        #: How often each call was made.
        self.calls: dict[Key, int] = {}
        #: Numbers of the containers that the surroundings know, and their contents when they were last reported.
        self.known: dict[int, tuple[int, Container]] = {}
        self.reported: dict[int, Key] = {}
        #: Functions that the surroundings know.
        self.passed: list[Closure] = []
        #: Number of enclosing ``try`` and ``with`` statements, and the exceptions that are being handled.
        self.tries = 0
        self.handled: list[RaisedError] = []
        self.inside: list[str] = []

    # Descriptions

    def key(self, value: Any, *, shared: bool = False) -> Key:
        """Return the description of a value.

        :param shared: the surroundings get the value, and can tell whether two containers are the same object.
        """
        if isinstance(value, Unknown):
            return ("unknown", value.number)
        if isinstance(value, Number):
            return ("number", value.value)
        if isinstance(value, tuple):
            keys = tuple(self.key(one, shared=shared) for one in value)
            return self._unpacked(keys) or ("tuple", *keys)
        if isinstance(value, Container):
            return self._key_of_container(value, shared=shared)
        if isinstance(value, Closure):
            if shared:
                self.passed.append(value)
            return self._key_of_closure(value)
        if isinstance(value, Lazy):
            outer, self.events = self.events, []
            items = [self.key(one, shared=shared) for one in self.iterate(value)]
            done, self.events = tuple(self.events), outer
            return ("lazy", tuple(items), done)
        if isinstance(value, Bound):
            return ("method", self.key(value.owner), value.name)
        if isinstance(value, slice):
            return ("slice", *(self.key(one) for one in (value.start, value.stop, value.step)))
        if isinstance(value, int) and not isinstance(value, bool):
            return ("number", value % PRIME) if value else ("number", 0)
        return (type(value).__name__, repr(value))

    def _unpacked(self, keys: Sequence[Key]) -> Key | None:
        """Return the description of a value whose items these are; None if there is no such value.

        After ``a, b = value``, the tuple ``(a, b)`` is ``value`` itself.
        """
        owners = set()
        for position, key in enumerate(keys):
            term: Key = ()
            if key[0] == "unknown":
                term = self.surroundings.terms[int(str(key[1]))]
            if term[:1] != ("item",) or term[2] != ("number", position):
                return None
            owners.add(term[1])
        for owner in owners:
            if len(owners) == 1 and isinstance(owner, tuple) and owner[0] == "unknown":
                if self.surroundings.unpacked.get(int(str(owner[1]))) == len(keys):
                    return owner
        return None

    def _key_of_container(self, value: Container, *, shared: bool) -> Key:
        if shared:
            if id(value) not in self.known:
                self.known[id(value)] = len(self.known), value
            return ("made", self.known[id(value)][0])
        return self._contents(value, shared=False)

    def _contents(self, value: Container, *, shared: bool) -> Key:
        items = [self.key(one, shared=shared) for one in value.items]
        if value.kind == "dict":
            # The order of a dictionary's keys doesn't count.
            pairs = zip(items, (self.key(one, shared=shared) for one in value.values), strict=True)
            return ("dict", *sorted(pairs, key=repr))
        if value.kind == "set":
            items.sort(key=repr)
        return (value.kind, *items)

    def _key_of_closure(self, value: Closure) -> Key:
        """Return what a function does for unknown arguments."""
        arguments = value.node.args
        if len(self.inside) > 5:
            raise UnknownError
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [one for one in (arguments.vararg, arguments.kwarg) if one]
        given = [self.surroundings.unknown("argument", len(self.inside), at) for at in range(len(parameters))]
        before = self.stored, self.unreported, self.events, self.changes, self.calls, self.stale
        self.stored, self.unreported, self.events = dict(self.stored), {}, []
        self.changes, self.calls, self.stale = dict(self.changes), dict(self.calls), dict(self.stale)
        names = dict(zip((one.arg for one in parameters), given, strict=True))
        self.inside.append("function")
        tries, self.tries = self.tries, 0
        try:
            result: Key = ("returns", self.key(self._body_of(value, names)))
        except RaisedError as error:
            result = ("raises", error.kind)
        self.tries = tries
        self.inside.pop()
        self.flush()
        done = tuple(self.events)
        self.stored, self.unreported, self.events, self.changes, self.calls, self.stale = before
        shape = len(arguments.posonlyargs) + len(arguments.args), *(one.arg for one in arguments.kwonlyargs)
        keywords = (*(one is None for one in arguments.kw_defaults), bool(arguments.vararg), bool(arguments.kwarg))
        defaults = tuple(self.key(one) for one in value.defaults)
        return ("function", shape, keywords, defaults, done, result)

    # Events

    def flush(self) -> None:
        """Report the attributes and containers that changed since the last event."""
        for place, value in sorted(self.unreported.items(), key=lambda each: repr(each[0])):
            self.events.append(("store", place, value))
        self.unreported.clear()
        count = -1
        while count != len(self.known):
            count = len(self.known)
            for number, container in list(self.known.values()):
                contents = self._contents(container, shared=True)
                if self.reported.get(number) != contents:
                    self.reported[number] = contents
                    self.events.append(("contents", number, contents))

    def event(self, *parts: Hashable, fails: bool = True) -> Unknown:
        """Report an event, and return its result."""
        self.flush()
        count = self.calls.get(parts, 0)
        self.calls[parts] = count + 1
        self.events.append(parts)
        result = self.surroundings.unknown("result", parts, count)
        self.stale.update((place, ("after", result.number)) for place in self.stored)
        if fails:
            self.may_fail(result, 3)
        return result

    def may_fail(self, value: Unknown, one_in: int) -> None:
        """Raise an exception inside a ``try`` or ``with`` statement, for some values.

        :raises RaisedError: an exception of a type that the function catches, or of another type.
        """
        # Nothing fails in half of the runs, so that the end of the block is reached.
        if self.tries and self.decisions.one_in(2, "fails") and self.decisions.one_in(one_in, "fails", value.number):
            kinds = self.surroundings.errors
            kind = kinds[self.decisions.draw("error", value.number) % len(kinds)]
            raise RaisedError(("error", kind), self.surroundings.unknown("exception", value.number))

    def made(self, *term: Hashable) -> Unknown:
        """Return the unknown result of an operation without effects."""
        result = self.surroundings.unknown(*term)
        if self.tries:
            self.may_fail(result, 6)
        return result

    def now(self, value: Any) -> Any:
        """Return what an unknown value contains at this point. Each change of the value gives another content."""
        if isinstance(value, Unknown):
            count = self.changes.get(self.key(value), 0)
            if count:
                return self.surroundings.unknown("changed", value.number, count)
        return value

    def step(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise UnknownError

    # Statements

    def run(self, node: FunctionNode, watched: Collection[str]) -> Key:
        """Run the function with unknown arguments, and return the description of what it did.

        :param watched: names of local variables whose last values count, too.
        """
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one]
        names: dict[str, Any] = {}
        for at, one in enumerate(every):
            name = one.arg
            if at and self.decisions.one_in(12, "same argument", name):
                # Two arguments may be one object.
                name = every[self.decisions.draw("which argument", name) % at].arg
                names[one.arg] = names[name]
            else:
                names[one.arg] = self.surroundings.unknown("parameter", name)
        scope = Scope(names)
        try:
            result = self._call_body(node.body, scope)
            self.flush()
            end: Key = ("returns", self.key(result, shared=True))
        except RaisedError as error:
            end = ("raises", error.kind, self.key(error.value))
        except EndlessError:
            end = ("endless",)
        self.flush()
        functions = tuple(self._key_of_closure(one) for one in self.passed)
        # The translation of a C++ variable ``x`` is ``x 1`` or ``x 2``.
        last = [(name, value) for name, value in scope.names.items() if name.partition(" ")[0] in watched]
        variables = tuple(sorted((name.partition(" ")[0], self.key(value)) for name, value in last))
        return (tuple(self.events), end, functions, variables)

    def _call_body(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        try:
            self.block(body, scope)
        except _Return as returned:
            return returned.value
        return None

    def _body_of(self, function: Closure, names: dict[str, Any]) -> Any:
        scope = Scope(names, function.scope)
        if isinstance(function.node, ast.Lambda):
            return self.value(function.node.body, scope)
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in walk(function.node)):
            raise UnknownError
        return self._call_body(function.node.body, scope)

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.step()
            self.reached[id(statement)] += 1
            run = getattr(self, f"_run_{type(statement).__name__}", None)
            if run is None:
                raise UnknownError
            run(statement, scope)

    def _run_Expr(self, statement: ast.Expr, scope: Scope) -> None:
        if isinstance(statement.value, ast.Call):
            self._call(statement.value, scope, as_statement=True)
        else:
            self.value(statement.value, scope)

    def _run_Assign(self, statement: ast.Assign, scope: Scope) -> None:
        value = self.value(statement.value, scope)
        for target in statement.targets:
            self.assign(target, value, scope)

    def _run_AnnAssign(self, statement: ast.AnnAssign, scope: Scope) -> None:
        if statement.value is not None:
            self.assign(statement.target, self.value(statement.value, scope), scope)

    def _run_AugAssign(self, statement: ast.AugAssign, scope: Scope) -> None:
        target = statement.target
        if isinstance(target, ast.Name):
            read = self._value_of_Name(ast.Name(target.id, ast.Load()), scope)
            value = self.value(statement.value, scope)
            self.assign(target, self._added(statement.op, read, value), scope)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, scope)
            read = self.attribute(owner, target.attr)
            self._store(owner, target.attr, self._added(statement.op, read, self.value(statement.value, scope)))
        elif isinstance(target, ast.Subscript):
            owner, place = self.value(target.value, scope), self.value(target.slice, scope)
            read = self.item(owner, place)
            self._store_item(owner, place, self._added(statement.op, read, self.value(statement.value, scope)))
        else:
            raise UnknownError

    def _added(self, op: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of ``left += right``, which changes a list in place."""
        if isinstance(left, Container) and left.kind == "list" and isinstance(op, ast.Add):
            left.items.extend(self.iterate(right))
            return left
        if isinstance(left, Unknown) and isinstance(right, Container) and isinstance(op, ast.Add):
            for one in right.items:
                self.call(Bound(left, "append"), [one], {})
            return left
        return self.operation(op, left, right)

    def _run_Return(self, statement: ast.Return, scope: Scope) -> None:
        raise _Return(None if statement.value is None else self.value(statement.value, scope))

    def _run_If(self, statement: ast.If, scope: Scope) -> None:
        holds = self.test(statement.test, scope)
        self.block(statement.body if holds else statement.orelse, scope)

    def _run_For(self, statement: ast.For | ast.AsyncFor, scope: Scope) -> None:
        for item in self.iterate(self.value(statement.iter, scope)):
            self.step()
            self.reached[id(statement), "item"] += 1
            self.assign(statement.target, item, scope)
            try:
                self.block(statement.body, scope)
            except _Break:
                return
            except _Continue:
                continue
        self.reached[id(statement), "end"] += 1
        self.block(statement.orelse, scope)

    _run_AsyncFor = _run_For

    def _run_While(self, statement: ast.While, scope: Scope) -> None:
        rounds = decided = 0
        while True:
            before = self.decisions.count
            if not self.test(statement.test, scope):
                break
            rounds += 1
            decided += self.decisions.count > before
            if decided > _MOST_DECIDED or rounds > _MOST_ROUNDS:
                raise EndlessError
            try:
                self.block(statement.body, scope)
            except _Break:
                return
            except _Continue:
                continue
        self.block(statement.orelse, scope)

    def _run_Break(self, statement: ast.stmt, scope: Scope) -> None:
        raise _Break

    def _run_Continue(self, statement: ast.stmt, scope: Scope) -> None:
        raise _Continue

    def _run_Pass(self, statement: ast.stmt, scope: Scope) -> None:
        pass

    def _run_Import(self, statement: ast.Import, scope: Scope) -> None:
        for one in statement.names:
            if one.asname:
                scope.names[one.asname] = self._imported(*one.name.split("."))
            else:
                first = one.name.partition(".")[0]
                scope.names[first] = self._imported(first)

    def _run_ImportFrom(self, statement: ast.ImportFrom, scope: Scope) -> None:
        for one in statement.names:
            self.made("import", statement.module, one.name)
            # The name is taken for a global name, so that it makes no difference where it is imported.
            scope.names[one.asname or one.name] = self.surroundings.unknown("global", one.asname or one.name)

    def _imported(self, first: str, *rest: str) -> Unknown:
        found = self.made("global", first)
        for name in rest:
            found = self.surroundings.unknown("attribute", found.number, name)
        return found

    def _run_Global(self, statement: ast.Global, scope: Scope) -> None:
        scope.globals.update(statement.names)

    def _run_Nonlocal(self, statement: ast.Nonlocal, scope: Scope) -> None:
        scope.nonlocals.update(statement.names)

    def _run_Assert(self, statement: ast.Assert, scope: Scope) -> None:
        if not self.test(statement.test, scope):
            raise RaisedError(("error", "AssertionError"), self.surroundings.unknown("exception", "assert"))

    def _run_Delete(self, statement: ast.Delete, scope: Scope) -> None:
        for target in statement.targets:
            if isinstance(target, ast.Name):
                scope.names.pop(target.id, None)
            elif isinstance(target, ast.Attribute):
                self.event("delete", self.key(self.value(target.value, scope)), target.attr)
            elif isinstance(target, ast.Subscript):
                owner, place = self.value(target.value, scope), self.value(target.slice, scope)
                if isinstance(owner, Container):
                    self._delete_item(owner, place)
                    continue
                self.event("delete item", self.key(owner), self.key(place))
                self._changed(owner)

    def _delete_item(self, owner: Container, place: Any) -> None:
        if owner.kind == "list" and isinstance(place, int | slice):
            del owner.items[place]
        elif owner.kind == "dict" and (at := self.position(owner, place)) is not None:
            del owner.items[at], owner.values[at]
        else:
            raise UnknownError

    def _run_FunctionDef(self, statement: FunctionNode, scope: Scope) -> None:
        function: Any = self._closure(statement, scope)
        for decorator in reversed(statement.decorator_list):
            function = self.call(self.value(decorator, scope), [function], {})
        scope.set(statement.name, function)

    _run_AsyncFunctionDef = _run_FunctionDef

    def _run_ClassDef(self, statement: ast.ClassDef, scope: Scope) -> None:
        parts: list[Hashable] = [
            self.key(self.value(one, scope)) for one in (*statement.bases, *statement.decorator_list)
        ]
        parts += [(one.arg, self.key(self.value(one.value, scope))) for one in statement.keywords]
        for one in statement.body:
            if isinstance(one, FunctionNode):
                parts.append((one.name, self.key(self._closure(one, scope))))
            else:
                parts.append(ast.dump(one))
        scope.set(statement.name, self.surroundings.unknown("class", statement.name, tuple(parts)))

    def _closure(self, node: FunctionNode | ast.Lambda, scope: Scope) -> Closure:
        defaults = [self.value(one, scope) for one in (*node.args.defaults, *node.args.kw_defaults) if one]
        return Closure(node, scope, defaults)

    def _run_Raise(self, statement: ast.Raise, scope: Scope) -> None:
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
        raise RaisedError(self._kind_of_error(value), value)

    def _kind_of_error(self, value: Any) -> Hashable:
        if isinstance(value, Unknown):
            term = self.surroundings.term(value)
            if term[0] == "global":
                return ("error", term[1])
        return self.key(value)

    def _run_Try(self, statement: ast.Try, scope: Scope) -> None:
        if not statement.finalbody:
            self._tried(statement, scope)
            return
        self.tries += 1
        try:
            self._tried(statement, scope)
        except (RaisedError, _Return, _Break, _Continue):
            self.tries -= 1
            self.block(statement.finalbody, scope)
            raise
        self.tries -= 1
        self.block(statement.finalbody, scope)

    def _tried(self, statement: ast.Try, scope: Scope) -> None:
        before = self.tries
        self.tries += 1
        try:
            self.block(statement.body, scope)
        except RaisedError as error:
            self.tries = before
            for handler in statement.handlers:
                if self._catches(handler.type, error, scope):
                    self._handle(handler, error, scope)
                    return
            raise
        except (_Return, _Break, _Continue):
            self.tries = before
            raise
        self.tries = before
        self.block(statement.orelse, scope)

    def _handle(self, handler: ast.ExceptHandler, error: RaisedError, scope: Scope) -> None:
        self.reached[id(handler)] += 1
        if handler.name:
            scope.names[handler.name] = error.value
        self.handled.append(error)
        try:
            self.block(handler.body, scope)
        finally:
            self.handled.pop()

    def _catches(self, kind: ast.expr | None, error: RaisedError, scope: Scope) -> bool:
        if kind is None:
            return True
        if isinstance(kind, ast.Tuple):
            return any(self._catches(one, error, scope) for one in kind.elts)
        return self._is_error(self._kind_of_error(self.value(kind, scope)), error)

    def _is_error(self, kind: Hashable, error: RaisedError) -> bool:
        if kind == error.kind or kind in (("error", "Exception"), ("error", "BaseException")):
            return True
        types = []
        for one in (kind, error.kind):
            name = one[1] if isinstance(one, tuple) and len(one) == 2 else ""
            types.append(getattr(builtins, str(name), None))
        return all(isinstance(one, type) for one in types) and issubclass(types[1], types[0])

    def _run_With(self, statement: ast.With | ast.AsyncWith, scope: Scope) -> None:
        self._with(statement.items, statement.body, scope)

    _run_AsyncWith = _run_With

    def _with(self, items: Sequence[ast.withitem], body: Sequence[ast.stmt], scope: Scope) -> None:
        if not items:
            self.block(body, scope)
            return
        context = self.value(items[0].context_expr, scope)
        entered = self.event("enter", self.key(context))
        if items[0].optional_vars is not None:
            self.assign(items[0].optional_vars, entered, scope)
        self.tries += 1
        try:
            self._with(items[1:], body, scope)
        except RaisedError as error:
            self.tries -= 1
            self.event("leave", self.key(context), fails=False)
            if not self._suppresses(context, error):
                raise
            return
        except (_Return, _Break, _Continue):
            self.tries -= 1
            self.event("leave", self.key(context), fails=False)
            raise
        self.tries -= 1
        self.event("leave", self.key(context), fails=False)

    def _suppresses(self, context: Any, error: RaisedError) -> bool:
        if not isinstance(context, Unknown):
            return False
        if not str(self.surroundings.term(context)).count("'suppress'"):
            return False
        return self.decisions.one_in(2, "suppresses", context.number, error.kind)

    # Stores

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name() if target.id in scope.globals:
                self._store(self.surroundings.unknown("globals"), target.id, value)
            case ast.Name():
                scope.set(target.id, value)
            case ast.Attribute():
                self._store(self.value(target.value, scope), target.attr, value)
            case ast.Subscript():
                self._store_item(self.value(target.value, scope), self.value(target.slice, scope), value)
            case ast.Tuple() | ast.List():
                self._unpack(target.elts, value, scope)
            case ast.Starred():
                self.assign(target.value, Container("list", list(self.iterate(value))), scope)
            case _:
                raise UnknownError

    def _unpack(self, targets: Sequence[ast.expr], value: Any, scope: Scope) -> None:
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
            items = [*items[: starred[0]], Container("list", middle), *items[len(items) - after :]]
        if len(items) != len(targets):
            raise RaisedError(("error", "ValueError"), None)
        for target, item in zip(targets, items, strict=True):
            place = target.value if isinstance(target, ast.Starred) else target
            self.assign(place, item, scope)

    def _store(self, owner: Any, name: str, value: Any) -> None:
        place = ("attribute", self.key(owner), name)
        if isinstance(value, Lazy):
            raise UnknownError
        # Two attributes of this name may be the same one, if their owners are the same object.
        if any(other[2] == name and other != place for other in self.unreported):
            self.flush()
        self.stored[place] = value
        self.stale.pop(place, None)
        self.unreported[place] = self.key(value, shared=True)

    def _store_item(self, owner: Any, place: Any, value: Any) -> None:
        if isinstance(owner, Container):
            self._store_in(owner, place, value)
            return
        owner, place = self._address(owner, place)
        self.flush()
        self.events.append(("store item", self.key(owner), self.key(place), self.key(value, shared=True)))
        self._changed(owner)
        self.stored["item", self.key(self.now(owner)), self.key(place)] = value

    def _store_in(self, owner: Container, place: Any, value: Any) -> None:
        if owner.kind == "dict":
            at = self.position(owner, place)
            if at is None:
                owner.items.append(place)
                owner.values.append(value)
            else:
                owner.values[at] = value
        elif isinstance(place, int):
            try:
                owner.items[place] = value
            except IndexError:
                raise RaisedError(("error", "IndexError"), None) from None
        else:
            raise UnknownError

    def _changed(self, owner: Any) -> None:
        key = self.key(owner)
        self.changes[key] = self.changes.get(key, 0) + 1

    # Reads

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression."""
        self.step()
        evaluate = getattr(self, f"_value_of_{type(node).__name__}", None)
        if evaluate is None:
            raise UnknownError
        return evaluate(node, scope)

    def _value_of_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def _value_of_Name(self, node: ast.Name, scope: Scope) -> Any:
        if node.id in scope.globals:
            return self.attribute(self.surroundings.unknown("globals"), node.id)
        found = scope.find(node.id)
        if found is not None:
            return found.names[node.id]
        if node.id in self.constants:
            return self.value(self.constants[node.id], Scope({}))
        return self.surroundings.unknown("global", node.id)

    def _value_of_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        owner = self.value(node.value, scope)
        if isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in self.constants:
            if ("attribute", self.key(owner), node.attr) not in self.stored:
                return self.value(self.constants[f"{node.value.id}.{node.attr}"], scope)
        return self.attribute(owner, node.attr)

    def attribute(self, owner: Any, name: str) -> Any:
        """Return an attribute: the value that was stored last, or an unknown value."""
        if isinstance(owner, Container | str | bytes | Lazy):
            return owner if name == "=" else Bound(owner, name)
        place = ("attribute", self.key(owner), name)
        if place in self.stale:
            return self.surroundings.unknown("later", *place, self.stale[place])
        if place in self.stored:
            return self.stored[place]
        if name == "=":
            # The value of a C++ object, as long as nothing is assigned to it.
            return owner
        if owner is None:
            raise RaisedError(("error", "AttributeError"), None)
        if isinstance(owner, Unknown):
            if self.decisions.content(owner) is None:
                raise RaisedError(("error", "AttributeError"), None)
            found = self.surroundings.unknown("attribute", owner.number, name)
            if "AttributeError" in self.surroundings.errors:
                self.may_fail(found, 6)
            return found
        return self.made("attribute of", self.key(owner), name)

    def _value_of_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        return self.item(self.value(node.value, scope), self.value(node.slice, scope))

    def item(self, owner: Any, place: Any) -> Any:
        """Return ``owner[place]``."""
        if isinstance(owner, Container) and owner.kind == "dict":
            at = self.position(owner, place)
            if at is None:
                raise RaisedError(("error", "KeyError"), None)
            return owner.values[at]
        if isinstance(owner, Container | tuple | str | bytes) and _is_plain(place):
            items = owner.items if isinstance(owner, Container) else owner
            try:
                found = items[place]
            except (IndexError, TypeError, ValueError):
                raise RaisedError(("error", "IndexError"), None) from None
            return Container("list", found) if isinstance(found, list) else found
        if owner is None:
            raise RaisedError(("error", "TypeError"), None)
        if self._is_environment(owner):
            return self.made("environment", self.key(place))
        owner, place = self._address(owner, place)
        now = self.now(owner)
        kept = self.stored.get(("item", self.key(now), self.key(place)))
        if kept is not None:
            return kept
        return self.made("item", self.key(now), self.key(place))

    def _address(self, owner: Any, place: Any) -> tuple[Any, Any]:
        """Return ``p`` and ``i + j`` for ``(p + i)[j]`` in C++; other items as they are."""
        if isinstance(owner, Number) and self.surroundings.is_cpp and self.point(place) is not None:
            return self.surroundings.unknown("memory"), self.operation(ast.Add(), owner, place)
        if isinstance(owner, Unknown) and owner.number in self.surroundings.pointers and self.point(place) is not None:
            return self.surroundings.unknown("memory"), self.operation(ast.Add(), owner, place)
        return owner, place

    def _is_environment(self, value: Any) -> bool:
        return value == self.surroundings.unknown(
            "attribute", self.surroundings.unknown("global", "os").number, "environ"
        )

    def position(self, owner: Container, item: Any) -> int | None:
        """Return the position of an item in a container, of a key in a dictionary; None if it isn't there."""
        for at, one in enumerate(owner.items):
            if self.equal(one, item):
                return at
        return None

    def _value_of_Tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return tuple(self._elements(node.elts, scope))

    def _value_of_List(self, node: ast.List, scope: Scope) -> Any:
        return Container("list", self._elements(node.elts, scope))

    def _value_of_Set(self, node: ast.Set, scope: Scope) -> Any:
        return self.made_set(self._elements(node.elts, scope))

    def made_set(self, items: Iterable[Any]) -> Container:
        found = Container("set")
        for one in items:
            if self.position(found, one) is None:
                found.items.append(one)
        return found

    def _elements(self, nodes: Sequence[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for one in nodes:
            if isinstance(one, ast.Starred):
                found += self.iterate(self.value(one.value, scope))
            else:
                found.append(self.value(one, scope))
        return found

    def _value_of_Dict(self, node: ast.Dict, scope: Scope) -> Any:
        found = Container("dict")
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self.update(found, self.value(value, scope))
            else:
                self._store_in(found, self.value(key, scope), self.value(value, scope))
        return found

    def update(self, target: Container, other: Any) -> None:
        """Add the items of another dictionary."""
        for key in self.iterate(other):
            self._store_in(target, key, self.item(other, key))

    def _value_of_Starred(self, node: ast.Starred, scope: Scope) -> Any:
        return tuple(self.iterate(self.value(node.value, scope)))

    def _value_of_Slice(self, node: ast.Slice, scope: Scope) -> Any:
        lower, upper, step = (one and self.value(one, scope) for one in (node.lower, node.upper, node.step))
        return slice(None if lower == 0 and step is None else lower, upper, step)

    def _value_of_IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.value(node.body if self.test(node.test, scope) else node.orelse, scope)

    def _value_of_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        value = self.value(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def _value_of_Lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return self._closure(node, scope)

    def _value_of_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        return self.text([self.value(one, scope) for one in node.values])

    def _value_of_FormattedValue(self, node: ast.FormattedValue, scope: Scope) -> Any:
        value = self.now(self.value(node.value, scope))
        if node.conversion == -1 and node.format_spec is None:
            return self.text_of(value)
        form = self.key(node.format_spec and self.value(node.format_spec, scope))
        return self.text([self.made("formatted", self.key(value), node.conversion, form)])

    def text_of(self, value: Any) -> Any:
        """Return ``str(value)``."""
        if isinstance(value, str):
            return value
        if isinstance(value, bool | int | float | None):
            return str(value)
        if isinstance(value, Unknown) and self.surroundings.term(value)[0] == "text":
            return value
        return self.surroundings.unknown("text", (self.key(value),))

    def text(self, parts: Sequence[Any]) -> Any:
        """Join texts."""
        found: list[Hashable] = []
        for part in parts:
            for one in self._parts(part):
                if isinstance(one, str) and found and isinstance(found[-1], str):
                    found[-1] += one
                elif one != "":
                    found.append(one)
        if all(isinstance(one, str) for one in found):
            joined = "".join(map(str, found))
            if len(joined) > _LONGEST:
                raise UnknownError
            return joined
        return self.surroundings.unknown("text", tuple(found))

    def _parts(self, value: Any) -> Sequence[Hashable]:
        if isinstance(value, str):
            return [value]
        if isinstance(value, Unknown) and self.surroundings.term(value)[0] == "text":
            parts = self.surroundings.term(value)[1]
            assert isinstance(parts, tuple)
            return parts
        # What is joined with a text is a text.
        return [self.key(value)]

    def _value_of_Await(self, node: ast.Await | ast.Yield | ast.YieldFrom, scope: Scope) -> Any:
        value = None if node.value is None else self.value(node.value, scope)
        return self.event(type(node).__name__, self.key(value, shared=True))

    _value_of_Yield = _value_of_YieldFrom = _value_of_Await

    def _value_of_ListComp(self, node: ast.ListComp, scope: Scope) -> Any:
        return Container("list", [self.value(node.elt, inner) for inner in self._rounds(node.generators, scope)])

    def _value_of_SetComp(self, node: ast.SetComp, scope: Scope) -> Any:
        return self.made_set(self.value(node.elt, inner) for inner in self._rounds(node.generators, scope))

    def _value_of_DictComp(self, node: ast.DictComp, scope: Scope) -> Any:
        found = Container("dict")
        for inner in self._rounds(node.generators, scope):
            self._store_in(found, self.value(node.key, inner), self.value(node.value, inner))
        return found

    def _value_of_GeneratorExp(self, node: ast.GeneratorExp, scope: Scope) -> Any:
        return Lazy(self.value(node.elt, inner) for inner in self._rounds(node.generators, scope))

    def _rounds(self, generators: Sequence[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        """Yield the local variables of each round of a comprehension."""
        inner = Scope({}, scope)
        yield from self._round(generators, inner)

    def _round(self, generators: Sequence[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        if not generators:
            yield scope
            return
        first = generators[0]
        for item in self.iterate(self.value(first.iter, scope)):
            self.step()
            self.assign(first.target, item, scope)
            if all(self.test(one, scope) for one in first.ifs):
                yield from self._round(generators[1:], scope)

    def iterate(self, value: Any) -> Iterator[Any]:
        """Yield the items of a value."""
        if isinstance(value, Lazy):
            if value.running:
                # The generator reads itself.
                raise UnknownError
            value.running = True
            for one in value.items:
                value.running = False
                yield one
                value.running = True
            value.running = False
        elif isinstance(value, Container):
            at = 0
            while at < len(value.items):
                yield value.items[at]
                at += 1
        elif isinstance(value, tuple | str | bytes | range):
            yield from value
        elif isinstance(value, Unknown):
            now = self.now(value)
            if self.decisions.content(now) is None:
                raise RaisedError(("error", "TypeError"), None)
            for at in range(min(self.decisions.size(now), MOST_ITEMS)):
                yield self.surroundings.unknown("item", self.key(now), self.key(at))
        elif value is None:
            raise RaisedError(("error", "TypeError"), None)
        else:
            raise UnknownError

    # Operations

    def _value_of_BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if self.surroundings.is_cpp:
            # An address stays the same if what is there changes.
            return self.operation(node.op, left, right)
        return self.operation(node.op, self.now(left), self.now(right))

    def operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of an operator."""
        if _is_plain_number(left) and _is_plain_number(right):
            return self._calculated(op, left, right)
        if isinstance(op, ast.Add):
            if self._is_text(left) or self._is_text(right):
                return self.text([left, right])
            if isinstance(left, Container | tuple) or isinstance(right, Container | tuple):
                joined = [*self.iterate(left), *self.iterate(right)]
                return (
                    tuple(joined) if isinstance(left, tuple) or isinstance(right, tuple) else Container("list", joined)
                )
        if isinstance(op, ast.LShift) and isinstance(right, int) and 0 <= right < 64:
            return self.operation(ast.Mult(), left, 1 << right)
        if isinstance(op, ast.Add | ast.Sub | ast.Mult) and self._are_numbers(left, right):
            return self._polynomial(op, left, right)
        sides = [self.key(left), self.key(right)]
        if isinstance(op, _COMMUTATIVE):
            sides.sort(key=repr)
        return self.made("operation", type(op).__name__, *sides)

    def _calculated(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(op, ast.Pow | ast.LShift) and (abs(left) > 1000 or not 0 <= right < 64):
            return self.made("operation", type(op).__name__, self.key(left), self.key(right))
        try:
            found = _OPERATORS[type(op)](left, right)
        except ZeroDivisionError:
            raise RaisedError(("error", "ZeroDivisionError"), None) from None
        except (TypeError, KeyError, ValueError, OverflowError):
            raise UnknownError from None
        if isinstance(found, int) and abs(found) > _GREATEST:
            raise UnknownError
        return found

    def _is_text(self, value: Any) -> bool:
        return isinstance(value, str) or (isinstance(value, Unknown) and self.surroundings.term(value)[0] == "text")

    def _are_numbers(self, left: Any, right: Any) -> bool:
        """Return whether both operands are numbers. An unknown operand of a number is one."""
        sides = left, right
        if any(isinstance(one, Number) or _is_plain_number(one) for one in sides):
            return all(isinstance(one, Unknown | Number) or _is_plain_number(one) for one in sides)
        if self.surroundings.is_cpp:
            # An operand may be a pointer.
            return all(isinstance(one, Unknown) for one in sides)
        return all(isinstance(one, Unknown) and one.number in self.surroundings.numeric for one in sides)

    def point(self, value: Any) -> int | None:
        """Return the number that stands for a value in polynomials; None if the value isn't a number."""
        if isinstance(value, Number):
            return value.value
        if isinstance(value, Unknown):
            return self.decisions.point(value)
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, int):
            return value % PRIME
        if isinstance(value, float):
            return int(value) % PRIME if value.is_integer() else self.decisions.draw("float", value)
        return None

    def _polynomial(self, op: ast.operator, left: Any, right: Any) -> Any:
        points = self.point(left), self.point(right)
        if points[0] is None or points[1] is None:
            raise UnknownError
        found = Number(_OPERATORS[type(op)](*points) % PRIME)
        for one in (left, right):
            if isinstance(one, Unknown):
                if found.value == self.decisions.point(one):
                    return one
                if self.surroundings.is_cpp:
                    self.surroundings.is_pointer(one)
        return found

    def _value_of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        if isinstance(node.op, ast.Not):
            return not self.test(node.operand, scope)
        value = self.now(self.value(node.operand, scope))
        if _is_plain_number(value):
            try:
                return _UNARY[type(node.op)](value)
            except TypeError:
                raise UnknownError from None
        if isinstance(node.op, ast.USub) and isinstance(value, Number):
            return Number(-value.value % PRIME)
        return self.made("operation", type(node.op).__name__, self.key(value))

    # Tests

    def test(self, node: ast.expr, scope: Scope) -> bool:
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
        self.reached.update((id(node), (id(node), found)))
        if self.decisions.count == before:
            self.reached[id(node), "decided"] += 1
        return found

    def truth(self, value: Any) -> bool:
        if isinstance(value, Unknown):
            return self.decisions.truth(self.now(value))
        if isinstance(value, Number):
            return self.decisions.sign(value.value) != 0
        if isinstance(value, Container):
            return bool(value.items)
        if isinstance(value, Closure | Bound | Lazy):
            return True
        return bool(value)

    def _value_of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        value = None
        for one in node.values:
            value = self.value(one, scope)
            found = self.truth(value)
            self.reached.update((id(one), (id(one), found)))
            if found != isinstance(node.op, ast.And):
                break
        return value

    def _value_of_Compare(self, node: ast.Compare, scope: Scope) -> Any:
        left = self.value(node.left, scope)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, scope)
            if not self._compared(op, left, right):
                return False
            left = right
        return True

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> bool:
        if isinstance(op, ast.Is | ast.IsNot):
            return self._is(left, right) == isinstance(op, ast.Is)
        left, right = self.now(left), self.now(right)
        if isinstance(op, ast.Eq | ast.NotEq):
            return self.equal(left, right) == isinstance(op, ast.Eq)
        if isinstance(op, ast.In | ast.NotIn):
            return self.contains(right, left) == isinstance(op, ast.In)
        return self._sign(left, right) in _ORDERS[type(op)]

    def _is(self, left: Any, right: Any) -> bool:
        if isinstance(left, Container | Closure) or isinstance(right, Container | Closure):
            return left is right
        if self._is_constant(left) or self._is_constant(right):
            return self.equal(left, right)
        keys = {self.key(left), self.key(right)}
        return len(keys) == 1 or (self.equal(left, right) and self.decisions.one_in(2, "same", *sorted(keys, key=repr)))

    def _is_constant(self, value: Any) -> bool:
        return _is_literal(value) or self.surroundings.is_fixed(value)

    def equal(self, left: Any, right: Any) -> bool:
        """Return whether two values are equal."""
        if left is right or self.key(left) == self.key(right):
            return True
        for one, other in self._sides(left, right):
            if other is None and self.surroundings.term(one)[0] in _NEVER_NONE:
                return False
            self.surroundings.compare_with(one, other)
            content = self.decisions.content(one)
            return type(content) is not tuple and self._same_constant(content, other)
        if _is_literal(left) and _is_literal(right):
            return self._same_constant(left, right)
        if isinstance(left, Number) or isinstance(right, Number):
            return self._sign(left, right) == 0
        if isinstance(left, Unknown) and isinstance(right, Unknown):
            contents = self.decisions.content(left), self.decisions.content(right)
            return bool(contents[0] == contents[1])
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return self.decisions.one_in(3, "equal", *sorted((self.key(left), self.key(right)), key=repr))
        return self._same_items(left, right)

    def _sides(self, left: Any, right: Any) -> list[tuple[Unknown, Any]]:
        """Return the unknown value and the constant with which it is compared; an empty list for other values.

        Of two names of constants, the first that was seen is the unknown value.
        """
        sides = [(left, right), (right, left)]
        if isinstance(left, Unknown) and isinstance(right, Unknown):
            sides.sort(key=lambda side: (self.surroundings.is_fixed(side[0]), side[0].number))
        return [side for side in sides if isinstance(side[0], Unknown) and self._is_constant(side[1])][:1]

    def _same_constant(self, one: Any, other: Any) -> bool:
        if isinstance(one, Unknown) or isinstance(other, Unknown):
            return bool(one == other)
        if one is None or other is None:
            return one is other
        return bool(one == other)

    def _same_items(self, left: Any, right: Any) -> bool:
        sides = []
        for one in (left, right):
            if not isinstance(one, Container | tuple):
                return False
            sides.append(one.items if isinstance(one, Container) else one)
        if type(left) is not type(right) or len(sides[0]) != len(sides[1]):
            return False
        if isinstance(left, Container) and (left.kind != "list" or right.kind != "list"):
            raise UnknownError
        return all(self.equal(one, other) for one, other in zip(*sides, strict=True))

    def contains(self, container: Any, item: Any) -> bool:
        """Return the truth of ``item in container``."""
        if isinstance(container, Container):
            return self.position(container, item) is not None
        if isinstance(container, tuple | range):
            return any(self.equal(one, item) for one in container)
        if isinstance(container, str) and isinstance(item, str):
            return item in container
        if self._is_environment(container):
            return self.truth(self.made("is set", self.key(item)))
        return self.truth(self.made("contains", self.key(container), self.key(item)))

    def _sign(self, left: Any, right: Any) -> int:
        """Return -1, 0 or 1 for the order of two values."""
        if _is_plain_number(left) and _is_plain_number(right):
            return (left > right) - (left < right)
        for one, other, factor in ((left, right, 1), (right, left, -1)):
            if isinstance(one, Unknown) and _is_plain_number(other):
                self.surroundings.is_number(one)
                self.surroundings.compare_with(one, other, order=True)
                content = self.decisions.content(one)
                if _is_plain_number(content):
                    return factor * ((content > other) - (content < other))
        points = self.point(left), self.point(right)
        if points[0] is None or points[1] is None:
            return self.decisions.draw("order", self.key(left), self.key(right)) % 3 - 1
        for one in (left, right):
            if isinstance(one, Unknown):
                self.surroundings.is_number(one)
        return self.decisions.sign(points[0] - points[1])

    # Calls

    def _value_of_Call(self, node: ast.Call, scope: Scope) -> Any:
        return self._call(node, scope)

    def _call(self, node: ast.Call, scope: Scope, *, as_statement: bool = False) -> Any:
        name = ast.unparse(node.func)
        helper = self.helpers.get(name)
        if (
            helper is not None
            and name not in self.inside
            and scope.find(name.partition(".")[0] if "." not in name else "") is None
        ):
            return self._help(helper, name, node, scope)
        function = self.value(node.func, scope) if not isinstance(node.func, ast.Attribute) else None
        if isinstance(node.func, ast.Attribute):
            function = Bound(self.value(node.func.value, scope), node.func.attr)
        arguments = self._elements(node.args, scope)
        keywords: dict[str, Any] = {}
        for one in node.keywords:
            value = self.value(one.value, scope)
            if one.arg is not None:
                keywords[one.arg] = value
            elif isinstance(value, Container) and all(isinstance(each, str) for each in value.items):
                keywords.update(zip(value.items, value.values, strict=True))
            else:
                keywords["**"] = value
        return self.call(function, arguments, keywords, as_statement=as_statement)

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], *, as_statement: bool = False) -> Any:
        """Call a function."""
        from patchq.drift._effects.library import call_builtin, call_method

        if isinstance(function, Closure):
            return self._call_closure(function, arguments, keywords)
        if isinstance(function, Unknown) and self.surroundings.term(function)[0] == "global":
            name = str(self.surroundings.term(function)[1])
            done, result = call_builtin(self, name, arguments, keywords)
            if done:
                return result
        owner: Any = None
        name = ""
        if isinstance(function, Bound):
            owner, name = function.owner, function.name
            done, result = call_method(self, owner, name, arguments, keywords)
            if done:
                return result
            if isinstance(owner, Container | tuple | str):
                raise UnknownError
            function = self.attribute(owner, name)
            if isinstance(function, Closure):
                return self._call_closure(function, arguments, keywords)
        elif isinstance(function, Unknown):
            term = self.surroundings.term(function)
            name = str(term[1]) if term[0] == "global" else ""
        given = tuple(self.key(one, shared=True) for one in arguments)
        named = tuple(sorted((key, self.key(value, shared=True)) for key, value in keywords.items()))
        parts = ("call", self.key(function), given, named)
        is_question = _QUESTION.fullmatch(name.rpartition("::")[2]) or (_OF_TYPE.fullmatch(name) and not arguments)
        if is_question and not as_statement:
            self.flush()
            return self.surroundings.unknown("answer", *parts[1:], *(self.changes.get(self.key(owner), 0),))
        if name == "<<" and self._continues(given):
            return None
        if _QUIET.match(name) and not arguments:
            count = self.calls.get(parts, 0)
            self.calls[parts] = count + 1
            return self.surroundings.unknown("result", parts, count)
        result = self.event(*parts)
        if owner is not None and not self.surroundings.is_global(owner):
            self._changed(owner)
        return result

    def _continues(self, given: Sequence[Key]) -> bool:
        """Join a text with the text that was written to the same C++ stream just before, if there is one."""
        if not self.events or len(given) != 2 or given[1][0] != "str":
            return False
        last = self.events[-1]
        if last[0] != "call" or last[1] != ("unknown", self.surroundings.unknown("global", "<<").number):
            return False
        stream, before = last[2]  # type: ignore[misc]
        if stream != given[0] or before[0] != "str":
            return False
        joined = ast.literal_eval(str(before[1])) + ast.literal_eval(str(given[1][1]))
        self.events[-1] = (*last[:2], (stream, ("str", repr(joined))), *last[3:])
        return True

    def bound(self, owner: Any, name: str) -> Bound:
        """Return a method of an object, before it is called."""
        return Bound(owner, name)

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
        given: Any = Container("dict", list(others), list(others.values()))
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

    def _help(self, helper: FunctionNode, name: str, node: ast.Call, scope: Scope) -> Any:
        """Run the body of a helper in place of its call."""
        static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in helper.decorator_list)
        if helper.decorator_list and not static:
            raise UnknownError
        function = self._closure(helper, Scope({}))
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


def _is_literal(value: Any) -> bool:
    return value is None or isinstance(value, bool | str | int | float)


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _is_plain(place: Any) -> bool:
    """Return whether a subscript is known."""
    if isinstance(place, slice):
        return all(one is None or isinstance(one, int) for one in (place.start, place.stop, place.step))
    return isinstance(place, int)
