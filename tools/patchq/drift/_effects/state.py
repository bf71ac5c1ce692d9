"""State of a trial run: what it did to its surroundings, and the results of its operations."""

from __future__ import annotations

import abc
import ast
import builtins
import functools
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from patchq.drift._effects.values import (
    MOST_ITEMS,
    PRIME,
    Decisions,
    Key,
    Lazy,
    MadeContainer,
    Number,
    Surroundings,
    Unknown,
    UnknownError,
)
from patchq.drift._python.shape import FunctionNode, walk

#: Most statements and expressions of a run.
_MOST_STEPS = 12000
#: Greatest integer and longest text to compute.
_GREATEST = 2**64
LONGEST = 10000
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


class RaisedError(Exception):
    """Exception that the function raises.

    :ivar kind: description of its type.
    :ivar value: the exception.
    """

    def __init__(self, kind: Hashable, value: Any) -> None:
        super().__init__(kind)
        self.kind, self.value = kind, value


class FunctionScope:
    """Local variables of a function, within those of the functions around it."""

    def __init__(self, names: dict[str, Any], outer: FunctionScope | None = None) -> None:
        self.names, self.outer = names, outer
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()

    def find(self, name: str) -> FunctionScope | None:
        scope: FunctionScope | None = self
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
    """Function that the function made.

    :ivar yields: it is a generator.
    """

    def __init__(self, node: FunctionNode | ast.Lambda, scope: FunctionScope, defaults: Sequence[Any]) -> None:
        self.node, self.scope, self.defaults = node, scope, defaults
        self.yields = _yields(node)


@functools.lru_cache(maxsize=4096)
def _yields(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in walk(node))


class BoundMethod:
    """Method of an object, before it is called."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name


class TrialState(abc.ABC):
    """State of one run of a function.

    :ivar events: what the run did to its surroundings, in order.
    :ivar reached: how often statements and tests ran, by their ids; how often tests had each result; and how often
        each ``for`` loop had an item, and came to its end.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        seeds: Sequence[int],
        *,
        helpers: Mapping[str, FunctionNode],
        constants: Mapping[str, ast.expr],
        reached: Counter[Hashable],
    ) -> None:
        self.surroundings = surroundings
        self.decisions = Decisions(surroundings, seeds)
        self.helpers, self.constants = helpers, constants
        self.reached = reached
        self.events: list[Key] = []
        #: Of a part of a function: the values of the variables that it reads.
        self.variables: list[Any] = []
        self.steps = 0
        #: Number of C++ calls after which memory may have other contents.
        self.barriers = 0
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
        self.known: dict[int, tuple[int, MadeContainer]] = {}
        self.reported: dict[int, Key] = {}
        #: Functions that the surroundings know.
        self.passed: list[Closure] = []
        #: Number of enclosing ``try`` and ``with`` statements, and the exceptions that are being handled.
        self.tries = 0
        self.handled: list[RaisedError] = []
        self.inside: list[str] = []

    def key(self, value: Any, *, shared: bool = False) -> Key:
        """Return the description of a value.

        :param shared: the surroundings get the value, and can tell whether two containers are the same object.
        """
        self.step()
        if isinstance(value, Unknown):
            return ("unknown", value.number)
        if isinstance(value, Number):
            return ("number", value.value)
        if isinstance(value, tuple):
            keys = self.keys(value, shared=shared)
            return self._unpacked(keys) or ("tuple", *keys)
        if isinstance(value, MadeContainer):
            return self._key_of_container(value, shared=shared)
        if isinstance(value, Closure):
            if shared:
                self.passed.append(value)
            return self.key_of_closure(value)
        if isinstance(value, Lazy):
            outer, self.events = self.events, []
            items = self.keys(self.iterate(value), shared=shared)
            done, self.events = tuple(self.events), outer
            return ("lazy", items, done)
        if isinstance(value, BoundMethod):
            return ("method", self.key(value.owner), value.name)
        if isinstance(value, slice):
            return ("slice", *self.keys((value.start, value.stop, value.step)))
        if isinstance(value, int) and not isinstance(value, bool):
            return ("number", value % PRIME)
        return (type(value).__name__, repr(value))

    def keys(self, values: Iterable[Any], *, shared: bool = False) -> tuple[Key, ...]:
        """Return the descriptions of values."""
        return tuple(self.key(one, shared=shared) for one in values)

    def named(self, keywords: Mapping[str, Any], *, shared: bool = False) -> tuple[Key, ...]:
        """Return the descriptions of keyword arguments, with their names."""
        return tuple((name, self.key(value, shared=shared)) for name, value in sorted(keywords.items()))

    def items_of(self, whole: Unknown, count: int) -> list[Any]:
        """Return the first items of an unknown value."""
        return [self.made("item", self.key(whole), self.key(at)) for at in range(count)]

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
        owner = owners.pop() if len(owners) == 1 else None
        if not isinstance(owner, tuple) or owner[0] != "unknown":
            return None
        if self.surroundings.unpacked.get(int(str(owner[1]))) != len(keys):
            return None
        return owner

    def _key_of_container(self, value: MadeContainer, *, shared: bool) -> Key:
        if shared:
            if id(value) not in self.known:
                self.known[id(value)] = len(self.known), value
            return ("made", self.known[id(value)][0])
        return self._contents(value, shared=False)

    def _contents(self, value: MadeContainer, *, shared: bool) -> Key:
        items = self.keys(value.items, shared=shared)
        if value.kind == "dict":
            # The order of a dictionary's keys doesn't count.
            pairs = zip(items, self.keys(value.values, shared=shared), strict=True)
            return ("dict", *sorted(pairs, key=repr))
        if value.kind == "set":
            items = tuple(sorted(items, key=repr))
        return (value.kind, *items)

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

    def delete_item(self, owner: MadeContainer, place: Any) -> None:
        if owner.kind == "list" and is_plain(place):
            try:
                del owner.items[place]
            except (IndexError, ValueError):
                raise RaisedError(("error", "IndexError"), None) from None
        elif owner.kind == "dict" and (at := self.position(owner, place)) is not None:
            del owner.items[at], owner.values[at]
        else:
            raise UnknownError

    def kind_of_error(self, value: Any) -> Hashable:
        if isinstance(value, Unknown):
            name = self._dotted(value)
            if name:
                return ("error", name)
        return self.key(value)

    def _dotted(self, value: Unknown) -> str:
        """Return the dotted name of a global value or one of its attributes; "" for other values."""
        term = self.surroundings.term(value)
        if term[0] == "attribute":
            owner = self._dotted(Unknown(int(str(term[1]))))
            return owner and f"{owner}.{term[2]}"
        if term[0] == "global":
            return str(term[1])
        return ""

    def is_error(self, kind: Hashable, error: RaisedError) -> bool:
        if kind == ("error", "Exception"):
            return error.kind != ("error", "KeyboardInterrupt")
        if kind in (error.kind, ("error", "BaseException")):
            return True
        wanted, raised = _builtin(kind), _builtin(error.kind)
        return isinstance(wanted, type) and isinstance(raised, type) and issubclass(raised, wanted)

    def suppresses(self, context: Any, error: RaisedError) -> bool:
        if not isinstance(context, Unknown):
            return False
        if not str(self.surroundings.term(context)).count("'suppress'"):
            return False
        return self.decisions.one_in(2, "suppresses", context.number, error.kind)

    def store(self, owner: Any, name: str, value: Any) -> None:
        place = ("attribute", self.key(owner), name)
        if isinstance(value, Lazy):
            raise UnknownError
        # Two attributes of this name may be the same one, if their owners are the same object.
        if any(
            other[2] == name and other != place and not self._are_variables(place, other) for other in self.unreported
        ):
            self.flush()
        self.stored[place] = value
        self.stale.pop(place, None)
        self.unreported[place] = self.key(value, shared=True)

    def _are_variables(self, *places: Key) -> bool:
        """Return whether all places are the values of C++ variables outside of the function, such as members."""
        owners = [place[1] for place in places if place[2] == "="]
        terms = [
            self.surroundings.terms[int(str(one[1]))]
            for one in owners
            if isinstance(one, tuple) and one[0] == "unknown"
        ]
        return len(terms) == len(places) and all(term[0] == "global" for term in terms)

    def store_item(self, owner: Any, place: Any, value: Any) -> None:
        if isinstance(owner, MadeContainer):
            self.store_in(owner, place, value)
            return
        variable = self._pointed(owner, place)
        if variable is not None:
            self.store(variable, "=", value)
            return
        owner, place = self._address(owner, place)
        self.flush()
        self.events.append(("store item", self.key(owner), self.key(place), self.key(value, shared=True)))
        self.changed(owner)
        self.stored["item", self.key(self.now(owner)), self.key(place)] = value

    def store_in(self, owner: MadeContainer, place: Any, value: Any) -> None:
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

    def changed(self, owner: Any) -> None:
        key = self.key(owner)
        self.changes[key] = self.changes.get(key, 0) + 1

    def attribute(self, owner: Any, name: str) -> Any:
        """Return an attribute: the value that was stored last, or an unknown value."""
        if isinstance(owner, MadeContainer | str | bytes | Lazy):
            return owner if name == "=" else BoundMethod(owner, name)
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
            if self.variables and self.decisions.one_in(12, "same as a variable", found.number):
                # The function may have assigned the attribute's value to a variable before.
                return self.variables[self.decisions.draw("which variable", found.number) % len(self.variables)]
            if "AttributeError" in self.surroundings.errors:
                self.may_fail(found, 6)
            return found
        return self.made("attribute of", self.key(owner), name)

    def item(self, owner: Any, place: Any) -> Any:
        """Return ``owner[place]``."""
        if isinstance(owner, MadeContainer) and owner.kind == "dict":
            at = self.position(owner, place)
            if at is None:
                raise RaisedError(("error", "KeyError"), None)
            return owner.values[at]
        if isinstance(owner, MadeContainer | tuple | str | bytes) and is_plain(place):
            items = owner.items if isinstance(owner, MadeContainer) else owner
            try:
                found = items[place]
            except (IndexError, TypeError, ValueError):
                raise RaisedError(("error", "IndexError"), None) from None
            return MadeContainer("list", found) if isinstance(found, list) else found
        if owner is None:
            raise RaisedError(("error", "TypeError"), None)
        if self._is_environment(owner):
            return self.made("environment", self.key(place))
        variable = self._pointed(owner, place)
        if variable is not None:
            return self.attribute(variable, "=")
        owner, place = self._address(owner, place)
        read: tuple[Hashable, ...] = ("item", self.key(self.now(owner)), self.key(place))
        if read in self.stored:
            return self.stored[read]
        is_function = isinstance(place, tuple) and self.surroundings.is_global(owner)
        if self.barriers and not is_function:
            read = (*read, self.barriers)
        return self.made(*read)

    def _pointed(self, pointer: Any, place: Any) -> Unknown | None:
        """Return ``x`` for ``*&x`` in C++; None for other items."""
        if not self.surroundings.is_cpp or not isinstance(pointer, Unknown) or place != 0:
            return None
        match self.surroundings.term(pointer):
            case ("item", function, ("tuple", ("unknown", int() as number))):
                address_of = self.surroundings.unknown("global", "&")
                if function == self.key(address_of):
                    return Unknown(number)
        return None

    def _address(self, owner: Any, place: Any) -> tuple[Any, Any]:
        """Return ``p`` and ``i + j`` for ``(p + i)[j]`` in C++; other items as they are."""
        is_sum = isinstance(owner, Number) and self.surroundings.is_cpp
        is_pointer = isinstance(owner, Unknown) and owner.number in self.surroundings.pointers
        if (is_sum or is_pointer) and self.point(place) is not None:
            return self.surroundings.unknown("memory"), self.operation(ast.Add(), owner, place)
        return owner, place

    def within(self, added: list[Any], items: Sequence[Any]) -> list[Any]:
        """Return the items to add to others.

        :raises UnknownError: if there are too many of them.
        """
        if len(added) + len(items) > LONGEST:
            raise UnknownError
        return added

    def _is_environment(self, value: Any) -> bool:
        module = self.surroundings.unknown("global", "os")
        return bool(value == self.surroundings.unknown("attribute", module.number, "environ"))

    def position(self, owner: MadeContainer, item: Any) -> int | None:
        """Return the position of an item in a container, of a key in a dictionary; None if it isn't there."""
        for at, one in enumerate(owner.items):
            if self.equal(one, item):
                return at
        return None

    def made_set(self, items: Iterable[Any]) -> MadeContainer:
        found = MadeContainer("set")
        for one in items:
            if self.position(found, one) is None:
                found.items.append(one)
        return found

    def update(self, target: MadeContainer, other: Any) -> None:
        """Add the items of another dictionary."""
        for key in self.iterate(other):
            self.store_in(target, key, self.item(other, key))

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
        self.within(found, ())
        if all(isinstance(one, str) for one in found):
            joined = "".join(map(str, found))
            if len(joined) > LONGEST:
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
        elif isinstance(value, MadeContainer):
            at = 0
            while at < len(value.items):
                yield value.items[at]
                at += 1
        elif isinstance(value, tuple | str | bytes | range):
            yield from value
        elif isinstance(value, Unknown):
            if self.decisions.content(self.now(value)) is None:
                raise RaisedError(("error", "TypeError"), None)
            self.surroundings.iterate(self.now(value))
            at = 0
            # The loop may change what it reads.
            while at < min(self.decisions.size(self.now(value)), MOST_ITEMS):
                yield self.surroundings.unknown("item", self.key(self.now(value)), self.key(at))
                at += 1
        elif value is None:
            raise RaisedError(("error", "TypeError"), None)
        else:
            raise UnknownError

    def operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of an operator."""
        if is_plain_number(left) and is_plain_number(right):
            return self._calculated(op, left, right)
        if isinstance(op, ast.Add):
            if self._is_text(left) or self._is_text(right):
                return self.text([left, right])
            if isinstance(left, MadeContainer | tuple) or isinstance(right, MadeContainer | tuple):
                first = list(self.iterate(left))
                joined = first + self.within(list(self.iterate(right)), first)
                return (
                    tuple(joined)
                    if isinstance(left, tuple) or isinstance(right, tuple)
                    else MadeContainer("list", joined)
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
        if isinstance(found, complex) or (isinstance(found, int) and abs(found) > _GREATEST):
            raise UnknownError
        return found

    def _is_text(self, value: Any) -> bool:
        return isinstance(value, str) or (isinstance(value, Unknown) and self.surroundings.term(value)[0] == "text")

    def _are_numbers(self, left: Any, right: Any) -> bool:
        """Return whether both operands are numbers. An unknown operand of a number is one."""
        sides = left, right
        if any(isinstance(one, Number) or is_plain_number(one) for one in sides):
            return all(isinstance(one, Unknown | Number) or is_plain_number(one) for one in sides)
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

    def truth(self, value: Any) -> bool:
        if isinstance(value, Unknown):
            return self.decisions.truth(self.now(value))
        if isinstance(value, Number):
            return self.decisions.sign(value.value) != 0
        if isinstance(value, MadeContainer):
            return bool(value.items)
        if isinstance(value, Closure | BoundMethod | Lazy):
            return True
        return bool(value)

    def compared(self, op: ast.cmpop, left: Any, right: Any) -> bool:
        if isinstance(op, ast.Is | ast.IsNot):
            return self._is(left, right) == isinstance(op, ast.Is)
        left, right = self.now(left), self.now(right)
        if isinstance(op, ast.Eq | ast.NotEq):
            return self.equal(left, right) == isinstance(op, ast.Eq)
        if isinstance(op, ast.In | ast.NotIn):
            return self.contains(right, left) == isinstance(op, ast.In)
        return self._sign(left, right) in _ORDERS[type(op)]

    def _is(self, left: Any, right: Any) -> bool:
        if isinstance(left, MadeContainer | Closure) or isinstance(right, MadeContainer | Closure):
            return left is right
        if self._is_constant(left) or self._is_constant(right):
            return self.equal(left, right)
        keys = {self.key(left), self.key(right)}
        return len(keys) == 1 or (self.equal(left, right) and self.decisions.one_in(2, "same", *sorted(keys, key=repr)))

    def _is_constant(self, value: Any) -> bool:
        return _is_literal(value) or self.surroundings.is_fixed(value)

    def equal(self, left: Any, right: Any) -> bool:
        """Return whether two values are equal."""
        if isinstance(left, str) and isinstance(right, str):
            return left == right
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
            if not isinstance(one, MadeContainer | tuple):
                return False
            sides.append(one.items if isinstance(one, MadeContainer) else one)
        if type(left) is not type(right) or len(sides[0]) != len(sides[1]):
            return False
        if isinstance(left, MadeContainer) and (left.kind != "list" or right.kind != "list"):
            raise UnknownError
        return all(self.equal(one, other) for one, other in zip(*sides, strict=True))

    def contains(self, container: Any, item: Any) -> bool:
        """Return the truth of ``item in container``."""
        if isinstance(container, MadeContainer):
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
        if is_plain_number(left) and is_plain_number(right):
            return int(left > right) - int(left < right)
        for one, other, factor in ((left, right, 1), (right, left, -1)):
            if isinstance(one, Unknown) and is_plain_number(other):
                self.surroundings.is_number(one)
                self.surroundings.compare_with(one, other, order=True)
                content = self.decisions.content(one)
                if is_plain_number(content):
                    return factor * (int(content > other) - int(content < other))
        points = self.point(left), self.point(right)
        if points[0] is None or points[1] is None:
            return self.decisions.draw("order", self.key(left), self.key(right)) % 3 - 1
        for one in (left, right):
            if isinstance(one, Unknown):
                self.surroundings.is_number(one)
        return self.decisions.sign(points[0] - points[1])

    def is_less(self, left: Any, right: Any) -> bool | None:
        """Return whether a number is less than another one; None if they aren't numbers.

        The two are never equal: which of two equal numbers is the lesser one makes no difference.
        """
        points = self.point(left), self.point(right)
        if points[0] is None or points[1] is None:
            return None
        self.surroundings.differ((points[0] - points[1]) % PRIME)
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Unknown) and is_plain_number(other):
                self.surroundings.differ(("content", one.number, other))
        return self._sign(left, right) < 0

    def continues(self, given: Sequence[Key]) -> bool:
        """Join a text with the text that was written to the same C++ stream just before, if there is one."""
        if not self.events or len(given) != 2 or given[1][0] != "str":
            return False
        last = self.events[-1]
        if last[0] != "call" or last[1] != ("unknown", self.surroundings.unknown("global", "<<").number):
            return False
        match last[2]:
            case (stream, ("str", before)) if stream == given[0]:
                joined = ast.literal_eval(str(before)) + ast.literal_eval(str(given[1][1]))
                self.events[-1] = (*last[:2], (stream, ("str", repr(joined))), *last[3:])
                return True
        return False

    @abc.abstractmethod
    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Call a function."""

    @abc.abstractmethod
    def key_of_closure(self, value: Closure) -> Key:
        """Return what a function does for unknown arguments."""


def _is_literal(value: Any) -> bool:
    return value is None or isinstance(value, bool | str | int | float)


def _builtin(kind: Hashable) -> Any:
    name = kind[1] if isinstance(kind, tuple) and len(kind) == 2 else ""
    return getattr(builtins, str(name), None)


def is_plain_number(value: Any) -> bool:
    return isinstance(value, int | float)


def is_plain(place: Any) -> bool:
    """Return whether a subscript is known."""
    if isinstance(place, slice):
        return all(one is None or isinstance(one, int) for one in (place.start, place.stop, place.step))
    return isinstance(place, int)
