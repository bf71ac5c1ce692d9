"""Effect of a Python function: its calls, stores, tests and results, regardless of how they are written.

A function is evaluated symbolically. Local variables are replaced by their values, so their names, the statements that
assign them and statements without an effect don't count. Tests are put in a fixed order, so it makes no difference
whether code uses ``if``, a conditional expression, an early return or ``and``.

Functions with equal effects do the same under these assumptions: an attribute keeps its value while a function is
called; a list changes only by its own methods and by stores; nested functions are called by positions; what is joined
with a string is a string; errors that reads and operators raise (``a[b]``, ``int(a)``) have no place, and the arguments
of errors don't count.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from patchq.drift._effects.arithmetic import calculated, text_form
from patchq.drift._effects.decisions import (
    FALLS,
    FALSE,
    NONE,
    TRUE,
    Decisions,
    Form,
    Node,
    UnknownError,
    decided_at,
    form_of,
    mentions,
    mentions_item,
    shortened,
    text_of,
)
from patchq.drift._effects.spelling import Left, spelled
from patchq.drift._python.shape import FunctionNode, listed, shaped_body, walk

#: Builtins without an effect.
_PURE = {
    *("abs", "all", "any", "bool", "bytes", "callable", "chr", "dict", "divmod", "enumerate", "filter", "float"),
    *("format", "frozenset", "getattr", "hasattr", "hash", "hex", "id", "int", "isinstance", "issubclass", "len"),
    *("list", "map", "max", "min", "oct", "ord", "pow", "range", "repr", "reversed", "round", "set", "slice"),
    *("sorted", "str", "sum", "tuple", "type", "zip"),
}
#: Functions of modules without an effect.
_PURE_FUNCTIONS = {
    *("math.ceil", "math.floor", "math.gcd", "math.log2", "math.prod", "math.sqrt", "operator.attrgetter"),
    *("operator.itemgetter", "os.fspath", "os.path.basename", "os.path.dirname", "os.path.join", "os.path.splitext"),
}
#: Methods whose results are truth values.
_TESTS = frozenset(("endswith", "is_contiguous", "is_floating_point", "startswith"))
#: Methods that have no effect in most classes.
_PURE_METHODS = {
    *("count", "data_ptr", "decode", "dim", "element_size", "encode", "endswith", "format", "get", "index"),
    *("has_value", "is_contiguous", "is_floating_point", "items", "join", "keys", "lower", "lstrip"),
    *("numel", "partition"),
    *("removeprefix", "removesuffix", "replace", "rpartition", "rsplit", "rstrip", "size", "split", "startswith"),
    *("stride", "strip", "upper", "values"),
}
#: Functions with a second name: the second name, and the name that replaces it.
_SAME = {"os.getenv": "os.environ.get"}
#: Builtins whose results don't depend on an object's contents.
_OF_TYPES = frozenset(("callable", "getattr", "hasattr", "id", "isinstance", "issubclass", "type"))
#: Builtins whose results are truth values.
_TRUE_OR_FALSE = frozenset(("all", "any", "bool", "callable", "hasattr", "isinstance", "issubclass"))
#: Fewest and most arguments of methods that have an effect with other numbers of arguments.
_ARGUMENTS = {"get": (1, 2), "join": (1, 1), "replace": (2, 3)}
#: Longest list of constants, with the word before them, over which a comprehension is written out.
_MOST_UNROLLED = 13
#: Most statements and expressions to evaluate, so that a long function doesn't take minutes.
_MOST_NODES = 20000
_COMPARED: dict[type[ast.cmpop], tuple[str, bool, bool]] = {
    # Test that is used instead, whether its operands are exchanged, and whether its result is negated.
    ast.Eq: ("==", False, False),
    ast.NotEq: ("==", False, True),
    ast.Is: ("is", False, False),
    ast.IsNot: ("is", False, True),
    ast.In: ("in", False, False),
    ast.NotIn: ("in", False, True),
    ast.Lt: ("<", False, False),
    ast.GtE: ("<", False, True),
    ast.Gt: ("<", True, False),
    ast.LtE: ("<", True, True),
}


def effect_of(
    node: FunctionNode, helpers: Mapping[str, FunctionNode], constants: Mapping[str, ast.expr]
) -> Form | None:
    """Return a function's effect; None if the function contains unsupported syntax or is too long.

    :param helpers: functions to inline where ``node`` calls them, by their name in the call: ``f`` or ``self.f``.
    :param constants: expressions to substitute for constants and properties: ``{"LIMIT": …, "self.size": …}``.
    """
    run = _Run(helpers=helpers, constants=constants)
    names = {**_parameters(node)}
    try:
        body = spelled(shaped_body(node, with_reports=True))
        run.read(body)
        return run.course(body, _Locals(names), FALLS)
    except (UnknownError, RecursionError):
        return None


def _parameters(node: FunctionNode | ast.Lambda) -> dict[str, Form]:
    arguments = node.args
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found += [one for one in (arguments.vararg, arguments.kwarg) if one]
    return {one.arg: ("parameter", one.arg) for one in found}


def _kinds(arguments: ast.arguments) -> Form:
    """Return the numbers of a nested function's parameters, and the names of those that need a keyword.

    The function is taken to be called by positions, so that its other parameters may have any names.
    """
    stars = arguments.vararg is not None, arguments.kwarg is not None
    return (len(arguments.posonlyargs) + len(arguments.args), *(one.arg for one in arguments.kwonlyargs), *stars)


@dataclass
class _Locals:
    """State before a statement: the values of local variables, and the effects of the earlier statements."""

    names: dict[str, Form]
    stores: Counter[str] = field(default_factory=Counter)
    calls: Counter[Form] = field(default_factory=Counter)
    effects: list[Form] = field(default_factory=list)
    #: Object and value of the last store to each attribute. A call clears them.
    kept: dict[str, tuple[Form, Form]] = field(default_factory=dict)
    #: How often each list, dictionary or set was created.
    made: Counter[Form] = field(default_factory=Counter)
    #: Number of changes to each object: calls of its methods, and stores to its elements.
    changes: Counter[Form] = field(default_factory=Counter)

    def branch(self) -> _Locals:
        return _Locals(
            dict(self.names),
            self.stores.copy(),
            self.calls.copy(),
            kept=dict(self.kept),
            made=self.made.copy(),
            changes=self.changes.copy(),
        )

    def now(self, value: Form) -> Form:
        """Return the form of an object's contents at this point. Each change to the object gives another form."""
        if self.changes[value]:
            return ("changed", self.changes[value], value)
        return value

    def later(self) -> _Locals:
        """Return a copy of the state for code that runs later, such as the next iteration of a loop."""
        found = self.branch()
        found.kept.clear()
        return found

    def join(self, *branches: _Locals) -> None:
        """Update the counts of stores, calls and changes from branches that end here."""
        for branch in branches:
            self.stores |= branch.stores
            self.calls |= branch.calls
            self.made |= branch.made
            self.changes |= branch.changes
        for name in list(self.kept):
            if any(branch.kept.get(name) != self.kept[name] for branch in branches):
                del self.kept[name]


def _may_swap(before: Form, after: Form) -> bool:
    """Return whether two adjacent effects are independent stores that are not in sorted order.

    Stores to different attributes, or to elements of different parameters, are taken as independent.
    """
    if not before[0] == after[0] == "store":
        return False
    one, other = form_of(before[1]), form_of(after[1])
    if one[0] == other[0] == "item":
        owners = form_of(one[1]), form_of(other[1])
        return owners[0][0] == owners[1][0] == "parameter" and text_of(owners[1]) < text_of(owners[0])
    return one[0] == other[0] == "attribute" and one[2] != other[2] and text_of(other) < text_of(one)


class _Run:
    """Symbolic evaluation of one function."""

    def __init__(self, *, helpers: Mapping[str, FunctionNode], constants: Mapping[str, ast.expr]) -> None:
        self.helpers, self.constants = helpers, constants
        self.decisions = Decisions()
        self.nodes = 0
        #: Depth of loops and comprehensions.
        self.depth = 0
        #: How often the function reads each name.
        self.loads: Counter[str] = Counter()
        #: Last line that assigns each local variable.
        self.stored_at: dict[str, int] = {}
        #: Number of variables to which each value was unpacked.
        self.unpacked: dict[Form, int] = {}
        #: Depth of nested functions, and of ``except`` blocks.
        self.nested = self.handled = 0
        #: Helpers that are being evaluated.
        self.inside: list[str] = []
        #: Global and nonlocal variables that the function assigns.
        self.outer: set[str] = set()
        #: For each enclosing block, the variables whose values may be read after the block.
        self.carried: list[tuple[str, ...]] = []

    def read(self, body: Sequence[ast.stmt]) -> None:
        """Count the names that a body reads, and find the last line that assigns each."""
        for statement in body:
            self.loads += _loads(statement)
            for each in walk(statement):
                name = ""
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    name = each.id
                elif isinstance(each, FunctionNode):
                    name = each.name
                if name:
                    self.stored_at[name] = max(self.stored_at.get(name, 0), getattr(each, "lineno", 0))

    # Statements

    def course(self, body: Sequence[ast.stmt], state: _Locals, end: Form) -> Form:
        """Return the form of a block of statements. ``end`` is the form of reaching the end of the block."""
        for position, statement in enumerate(body):
            self.nodes += 1
            if self.nodes > _MOST_NODES:
                raise UnknownError
            rest = body[position + 1 :]
            if isinstance(statement, ast.If):
                return self._if(statement, rest, state, end)
            if isinstance(statement, ast.Return):
                return self._and_then(state.effects, self.decisions.returned(self._given(statement.value, state), end))
            if isinstance(statement, ast.Raise):
                error = self._given(statement.exc, state)
                if statement.exc is None and self.handled:
                    error = ("error", self.handled)
                return self._and_then(state.effects, ("raise", error))
            if isinstance(statement, ast.Continue | ast.Break):
                kind = type(statement).__name__
                if kind == "Continue" and end[0] == "loops":
                    kind = "loops"
                return self._and_then(state.effects, (kind, self._carried(state)))
            if isinstance(statement, ast.For) and end != ("joins",) and (search := self._search(statement, state)):
                found, result = search
                before, state.effects = state.effects, []
                after = self.course(rest, state, end)
                return self._and_then(before, self.decisions.decide(found, result, after))
            if rest and self._ends_with(rest[0]) and (listed := _as_list(statement, rest[0])):
                return self.course([listed, *rest[1:]], state, end)
            self._simple(statement, state)
        return self._and_then(state.effects, _ended(end, self._carried(state)))

    def _and_then(self, effects: Sequence[Form], rest: Form) -> Form:
        """Return the form of ``effects`` followed by ``rest``. Adjacent independent stores are sorted."""
        ordered: list[Form] = []
        for effect in effects:
            if effect[0] == "under" and ordered and ordered[-1][0] == "under":
                joined = self._joined(form_of(ordered[-1][1]), form_of(effect[1]))
                if joined is not None:
                    ordered[-1] = ("under", joined)
                    continue
            at = len(ordered)
            while at and _may_swap(ordered[at - 1], effect):
                at -= 1
            ordered.insert(at, effect)
        for effect in reversed(ordered):
            if effect[0] == "under" and (rest[0] not in ("then", "if") or rest[1] == form_of(effect[1])[1]):
                # Move the end of a block into both branches of the conditional before it.
                rest = self._ending(form_of(effect[1]), rest)
            elif effect[0] == "under" and rest[0] == "if" and mentions(rest, form_of(form_of(effect[1])[1])):
                rest = self._joined_with_end(form_of(effect[1]), rest)
            else:
                rest = Node("then", effect, rest)
        return rest

    def _joined(self, one: Form, other: Form) -> Form | None:
        """Merge two successive conditionals on the same test; return None if their tests differ."""
        if one[0] != "if" or other[0] != "if" or one[1] != other[1]:
            return None
        sides = [self._ending(form_of(one[side]), form_of(other[side])) for side in (2, 3)]
        return self.decisions.decide(form_of(one[1]), *sides)

    def _joined_with_end(self, condition: Form, end: Form) -> Form:
        """Merge a conditional with the conditional after it, which contains the same test."""
        test = form_of(condition[1])
        sides = []
        for side, holds in ((2, True), (3, False)):
            sides.append(self._ending(form_of(condition[side]), self.decisions.given(end, test, holds)))
        return self.decisions.decide(test, *sides)

    def _ending(self, form: Form, end: Form, known: dict[Form, Form] | None = None) -> Form:
        """Return ``form`` with ``end`` in place of each open end ``("joins",)``.

        :param known: results so far, because branches share parts.
        """
        if known is None:
            known = {}
        if form == ("joins",):
            return end
        if form in known:
            return known[form]
        if form[0] == "then":
            found: Form = Node("then", form[1], self._ending(form_of(form[2]), end, known))
        else:
            assert form[0] == "if"
            sides = self._ending(form_of(form[2]), end, known), self._ending(form_of(form[3]), end, known)
            found = self.decisions.decide(form_of(form[1]), *sides)
        known[form] = found
        return found

    def _carried(self, state: _Locals) -> Form:
        """Return the current values of the variables that may be read after the innermost block."""
        if not self.carried:
            return ()
        names = self.carried[-1]
        return tuple(state.names.get(name, ("unset",)) for name in names)

    def _if(self, statement: ast.If, rest: Sequence[ast.stmt], state: _Locals, end: Form) -> Form:
        test = self.test(statement.test, state)
        before, state.effects = state.effects, []
        one, other = state.branch(), state.branch()
        if _leaves_inside(statement) or (not rest and end != ("joins",)):
            then = self.course(_followed(statement.body, rest), one, end)
            otherwise = self.course(_followed(statement.orelse, rest), other, end)
            return self._and_then(before, self.decisions.decide(test, then, otherwise))
        names = tuple(sorted(_assigned(statement)))
        self.carried.append(())
        then = self.course(statement.body, one, ("joins",))
        otherwise = self.course(statement.orelse, other, ("joins",))
        self.carried.pop()
        joined = self.decisions.decide(test, then, otherwise)
        state.effects = before
        while joined[0] == "then":
            state.effects.append(form_of(joined[1]))
            joined = form_of(joined[2])
        if joined != ("joins",):
            state.effects.append(("under", joined))
        for name in names:
            unset: Form = state.names.get(name, ("unset", name))
            state.names[name] = self.decisions.decide(test, one.names.get(name, unset), other.names.get(name, unset))
        state.join(one, other)
        return self.course(rest, state, end)

    def _simple(self, statement: ast.stmt, state: _Locals) -> None:
        """Evaluate a statement that :meth:`course` has no special case for."""
        evaluate = getattr(self, f"_run_{type(statement).__name__}", None)
        if evaluate is None:
            raise UnknownError
        evaluate(statement, state)

    def _run_Expr(self, statement: ast.Expr, state: _Locals) -> None:
        self.value(statement.value, state)

    def _run_Assign(self, statement: ast.Assign, state: _Locals) -> None:
        value = self.value(statement.value, state)
        if isinstance(statement.value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
            value = _told_apart(value, state)
        if self.depth and ast.unparse(statement.value) in ("[]", "{}", "set()", "list()", "dict()"):
            value = ("new", self.depth, value)
        for target in statement.targets:
            if value[0] == "generator" and isinstance(target, ast.Name) and self.loads[target.id] > 1:
                # Its second use gets no items.
                raise UnknownError
            self._assign(target, value, state)

    def _run_AugAssign(self, statement: ast.AugAssign, state: _Locals) -> None:
        read = self.value(_loaded(statement.target), state)
        self._assign(statement.target, self._operation(statement.op, read, self.value(statement.value, state)), state)

    def _run_Assert(self, statement: ast.Assert, state: _Locals) -> None:
        state.effects.append(("assert", self.test(statement.test, state)))

    def _run_Delete(self, statement: ast.Delete, state: _Locals) -> None:
        for target in statement.targets:
            if isinstance(target, ast.Name):
                state.names.pop(target.id, None)
            else:
                state.effects.append(("delete", self.value(_loaded(target), state)))
                if isinstance(target, ast.Subscript):
                    state.changes[self.value(target.value, state)] += 1

    def _run_FunctionDef(self, statement: FunctionNode, state: _Locals) -> None:
        state.names[statement.name] = self._function(statement, state)

    _run_AsyncFunctionDef = _run_FunctionDef

    def _run_ClassDef(self, statement: ast.ClassDef, state: _Locals) -> None:
        parts: list[Form] = self._values([*statement.decorator_list, *statement.bases], state)
        for keyword in statement.keywords:
            parts.append((str(keyword.arg), self.value(keyword.value, state)))
        for one in statement.body:
            if isinstance(one, FunctionNode):
                parts.append((one.name, self._function(one, state)))
            else:
                parts.append(("statement", ast.dump(one)))
        state.names[statement.name] = shortened(("class", statement.name, *parts))

    def _run_Pass(self, statement: ast.Pass | ast.Import | ast.ImportFrom, state: _Locals) -> None:
        """Do nothing. Names that a function imports are treated as global names."""

    _run_Import = _run_ImportFrom = _run_Pass

    def _run_Global(self, statement: ast.Global, state: _Locals) -> None:
        self.outer.update(statement.names)

    def _run_Nonlocal(self, statement: ast.Nonlocal, state: _Locals) -> None:
        if self.nested:
            # A call of the nested function changes the variable.
            raise UnknownError
        self.outer.update(statement.names)

    def _assign(self, target: ast.expr, value: Form, state: _Locals) -> None:
        match target:
            case ast.Name() if target.id in self.outer:
                self._store(("outer",), target.id, value, state)
            case ast.Name():
                state.names[target.id] = value
            case ast.Tuple() | ast.List():
                self.unpacked[value] = len(target.elts)
                for position, one in enumerate(target.elts):
                    if isinstance(one, ast.Starred):
                        self._assign(one.value, ("rest", value, position, len(target.elts)), state)
                    else:
                        self._assign(one, self.decisions.item(value, position), state)
            case ast.Attribute():
                self._store(self.value(target.value, state), target.attr, value, state)
            case ast.Subscript():
                owner = self.value(target.value, state)
                state.effects.append(("store", ("item", owner, self.value(target.slice, state)), value))
                state.changes[owner] += 1
            case _:
                raise UnknownError

    def _store(self, owner: Form, name: str, value: Form, state: _Locals) -> None:
        """Add an effect: the store of a value in an attribute, or in a global or nonlocal variable."""
        state.effects.append(("store", ("attribute", owner, name), value))
        state.stores[name] += 1
        # C++ objects are stored under names with "=". Other code may change their values through their addresses.
        if not name.startswith("="):
            state.kept[name] = (owner, value)

    def _body(self, body: Sequence[ast.stmt], state: _Locals, names: Sequence[str]) -> Form:
        """Return the form of a loop's body, with the values of the variables in ``names`` at its end."""
        self.carried.append(tuple(names))
        found = self.course(body, state, ("loops",))
        self.carried.pop()
        return found

    def _opened(self, statement: ast.For | ast.While, state: _Locals) -> tuple[_Locals, list[str], Form]:
        """Return the state inside a loop, the variables to carry on (:meth:`_is_carried`), and their old values."""
        inside = state.later()
        names = [name for name in _in_order(statement) if self._is_carried(name, statement)]
        for position, name in enumerate(names):
            inside.names[name] = ("before", self.depth, position)
        starts = tuple(state.names.get(name, ("unset",)) for name in names)
        self._foresee(statement, inside)
        return inside, names, starts

    def _foresee(self, loop: ast.For | ast.While | FunctionNode, inside: _Locals) -> None:
        """Count what a body stores and changes before it is evaluated, because an earlier round or call did so."""
        owners: list[ast.expr] = []
        places: list[ast.expr] = []
        for each in walk(loop):
            match each:
                case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                    places += targets
                case ast.AugAssign(target=target):
                    places.append(target)
                case ast.Call(func=ast.Attribute(value=called, attr=name)) if name not in _PURE_METHODS:
                    owners.append(called)
        while places:
            place = places.pop()
            if isinstance(place, ast.Tuple | ast.List):
                places += place.elts
            elif isinstance(place, ast.Attribute):
                inside.stores[place.attr] += 1
            elif isinstance(place, ast.Subscript):
                owners.append(place.value)
        for owner in owners:
            if all(isinstance(one, ast.Attribute | ast.Name | ast.Load) for one in walk(owner)):
                inside.changes[self.value(owner, inside.branch())] += 1

    def _is_carried(self, name: str, loop: ast.For | ast.While) -> bool:
        """Return whether a variable that a loop assigns is read after the loop or in the next iteration."""
        if self.loads[name] > _loads(loop)[name]:
            return True
        if isinstance(loop, ast.For) and name in _in_order_of(loop.target):
            return False
        if isinstance(loop, ast.While) and _loads(loop.test)[name]:
            return True
        return _is_read_first(loop.body, name) is True

    def _closed(self, effect: Form, state: _Locals, inside: _Locals, names: Sequence[str]) -> None:
        """Add a loop or ``try`` block to the effects, and give each variable in ``names`` a new value after it."""
        state.effects.append(effect)
        state.join(inside)
        state.kept.clear()
        for position, name in enumerate(names):
            state.names[name] = shortened(("after", effect, position))

    def _ends_with(self, loop: ast.stmt) -> bool:
        """Return True for a loop whose variables nothing else reads."""
        if not isinstance(loop, ast.For):
            return False
        return all(self.loads[name] == _loads(loop)[name] for name in _in_order_of(loop.target))

    def _search(self, loop: ast.For, state: _Locals) -> tuple[Form, Form] | None:
        """Return a loop that only returns at the first match as the test whether there is a match, and the ``return``.

        Return None for other loops.
        """
        if loop.orelse or not any(isinstance(each, ast.Return) for each in walk(loop)):
            return None
        inside, names, _ = self._opened(loop, state.branch())
        if names:
            return None
        iterable = _iterated(state.now(self.value(loop.iter, state.branch())))
        self._assign(loop.target, ("each", self.depth), inside)
        self.depth += 1
        form = self._body(loop.body, inside, ())
        self.depth -= 1
        effects: list[Form] = []
        while form[0] == "then":
            effects.append(form_of(form[1]))
            form = form_of(form[2])
        results: set[Form] = set()
        test = self._matches(form, results)
        if test is None or len(results) != 1:
            return None
        (result,) = results
        parts = ((iterable, TRUE, 0),)
        if mentions_item(result, self.depth):
            result = ("return", ("first", parts, tuple(effects), test, form_of(result[1])))
        self.value(loop.iter, state)
        state.join(inside)
        found = self.decisions.any_match(parts, tuple(effects), test)
        self._consumed(tuple(effects), found, state)
        return found, result

    def _consumed(self, effects: Form, result: Form, state: _Locals) -> None:
        """Add the effects of the items that a search, or another use of a generator, reads."""
        if effects:
            state.effects.append(("consumes", result))
            state.kept.clear()

    def _matches(self, form: Form, results: set[Form]) -> Form | None:
        """Return the test that decides whether one round of a loop returns; None if the round does anything else."""
        if form[0] == "return":
            results.add(form)
            return TRUE
        if form == ("loops", ()):
            return FALSE
        if form[0] != "if":
            return None
        sides = [self._matches(form_of(side), results) for side in form[2:]]
        if sides[0] is None or sides[1] is None:
            return None
        return self.decisions.decide(form_of(form[1]), sides[0], sides[1])

    def _run_For(self, statement: ast.For, state: _Locals) -> None:
        iterable = _iterated(state.now(self.value(statement.iter, state)))
        inside, names, starts = self._opened(statement, state)
        self._assign(statement.target, ("each", self.depth), inside)
        self.depth += 1
        form = self._body(statement.body, inside, names)
        self.depth -= 1
        effect: Form = ("for", iterable, starts, form)
        if statement.orelse:
            last = inside.later()
            effect = (*effect, self._body(statement.orelse, last, names))
            inside.join(last)
        self._closed(effect, state, inside, names)

    def _run_While(self, statement: ast.While, state: _Locals) -> None:
        if statement.orelse:
            raise UnknownError
        inside, names, starts = self._opened(statement, state)
        self.depth += 1
        test = self.test(statement.test, inside)
        form = self._body(statement.body, inside, names)
        self.depth -= 1
        self._closed(("while", starts, self.decisions.decide(test, form, ("done",))), state, inside, names)

    def _run_With(self, statement: ast.With, state: _Locals) -> None:
        """Add the start of a ``with`` block to the effects. The statements in the block are evaluated separately."""
        for item in statement.items:
            manager = self.value(item.context_expr, state)
            state.effects.append(("enter", manager))
            if item.optional_vars is not None:
                self._assign(item.optional_vars, ("entered", manager), state)

    def _run_Left(self, statement: Left, state: _Locals) -> None:
        state.effects.append(("exit",))

    def _run_Try(self, statement: ast.Try, state: _Locals) -> None:
        names = _in_order(statement)
        self.carried.append(tuple(names))
        inside = state.branch()
        found: list[Form] = [self.course([*statement.body, *statement.orelse], inside, ("tries",))]
        found.append(("else", len(statement.orelse)))
        for handler in statement.handlers:
            caught = state.later()
            if handler.name:
                caught.names[handler.name] = ("error", self.handled + 1)
            errors = self._given(handler.type, state)
            self.handled += 1
            found.append(("except", _choices(errors), self.course(handler.body, caught, ("tries",))))
            self.handled -= 1
            inside.join(caught)
        last = inside.later()
        found.append(self.course(statement.finalbody, last, ("tries",)))
        inside.join(last)
        self.carried.pop()
        self._closed(("try", *found), state, inside, names)

    def _function(self, node: FunctionNode, state: _Locals) -> Form:
        own = {one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        for name in _loads(node):
            if name not in own and self.stored_at.get(name, 0) > getattr(node, "lineno", 0):
                # The function reads the value that the variable has when it is called.
                raise UnknownError
        # A call of the nested function may change what it captures.
        self._foresee(node, state)
        inside = state.later()
        self.nested += 1
        for position, name in enumerate(_parameters(node)):
            inside.names[name] = ("argument", self.nested, position)
        self.carried.append(())
        form = self.course(node.body, inside, FALLS)
        self.carried.pop()
        self.nested -= 1
        defaults = self._values(node.args.defaults, state)
        for default in node.args.kw_defaults:
            defaults.append(("required",) if default is None else self.value(default, state))
        signature: Form = (_kinds(node.args), tuple(defaults))
        decorators = tuple(self._values(node.decorator_list, state))
        return shortened(("function", type(node).__name__, signature, decorators, form))

    # Values

    def value(self, node: ast.expr, state: _Locals) -> Form:
        """Return the value of an expression, and add its calls to ``state.effects``."""
        self.nodes += 1
        evaluate = getattr(self, f"_value_of_{type(node).__name__}", None)
        if evaluate is None:
            raise UnknownError
        return form_of(evaluate(node, state))

    def _values(self, nodes: Iterable[ast.expr | None], state: _Locals) -> list[Form]:
        """Return the values of expressions. A missing expression has the value of the constant ``None``."""
        return [self._given(node, state) for node in nodes]

    def _given(self, node: ast.expr | None, state: _Locals) -> Form:
        if node is None:
            return NONE
        return self.value(node, state)

    def _value_of_Constant(self, node: ast.Constant, state: _Locals) -> Form:
        return ("constant", repr(node.value))

    def _value_of_Name(self, node: ast.Name, state: _Locals) -> Form:
        if node.id in self.outer:
            return self._attribute(("outer",), node.id, state)
        if node.id in state.names:
            return state.names[node.id]
        if node.id in self.constants:
            return self.value(self.constants[node.id], _Locals({}))
        return ("name", node.id)

    def _value_of_Attribute(self, node: ast.Attribute, state: _Locals) -> Form:
        if isinstance(node.value, ast.Name) and not state.stores[node.attr]:
            known = self.constants.get(f"{node.value.id}.{node.attr}")
            if known is not None:
                return self.value(known, state)
        return self._attribute(self.value(node.value, state), node.attr, state)

    def _attribute(self, owner: Form, name: str, state: _Locals) -> Form:
        kept = state.kept.get(name)
        if kept and kept[0] == owner:
            return kept[1]
        return shortened(("attribute", owner, name, state.stores[name]))

    def _value_of_Subscript(self, node: ast.Subscript, state: _Locals) -> Form:
        owner = self.value(node.value, state)
        return self.decisions.item(state.now(owner), self.value(node.slice, state))

    def _value_of_Tuple(self, node: ast.Tuple | ast.List, state: _Locals) -> Form:
        kind = type(node).__name__
        return self.decisions.by_cases(lambda each: self._written(kind, each), self._values(node.elts, state))

    _value_of_List = _value_of_Tuple

    def _value_of_Set(self, node: ast.Set, state: _Locals) -> Form:
        return ("Set", *sorted(self._values(node.elts, state), key=text_of))

    def _value_of_Dict(self, node: ast.Dict, state: _Locals) -> Form:
        keys = tuple(self._values(node.keys, state))
        return ("Dict", keys, tuple(self._values(node.values, state)))

    def _value_of_BinOp(self, node: ast.BinOp, state: _Locals) -> Form:
        return self._operation(node.op, *map(state.now, self._values((node.left, node.right), state)))

    def _operation(self, operator: ast.operator, left: Form, right: Form) -> Form:
        name = type(operator).__name__
        return self.decisions.by_cases(lambda sides: calculated(name, *sides), (left, right))

    def _value_of_UnaryOp(self, node: ast.UnaryOp, state: _Locals) -> Form:
        if isinstance(node.op, ast.Not):
            return self.decisions.negated(self.test(node.operand, state))
        return ("unary", type(node.op).__name__, self.value(node.operand, state))

    def _value_of_IfExp(self, node: ast.IfExp, state: _Locals) -> Form:
        test = self.test(node.test, state)
        return self.decisions.decide(test, *self._either(node.body, node.orelse, test, state))

    def _value_of_NamedExpr(self, node: ast.NamedExpr, state: _Locals) -> Form:
        value = self.value(node.value, state)
        self._assign(node.target, value, state)
        return value

    def _value_of_Lambda(self, node: ast.Lambda, state: _Locals) -> Form:
        function = ast.FunctionDef("lambda", node.args, [ast.Return(node.body)], [])
        return self._function(ast.copy_location(function, node), state)

    def _value_of_JoinedStr(self, node: ast.JoinedStr, state: _Locals) -> Form:
        return text_form(self._values(node.values, state))

    def _value_of_FormattedValue(self, node: ast.FormattedValue, state: _Locals) -> Form:
        form, value = self._given(node.format_spec, state), state.now(self.value(node.value, state))
        if value[0] == "constant" and str(value[1])[:1] in "'\"" and node.conversion == -1 and form == NONE:
            return value
        return ("formatted", value, node.conversion, form)

    def _value_of_Slice(self, node: ast.Slice, state: _Locals) -> Form:
        return ("slice", *self._values((node.lower, node.upper, node.step), state))

    def _value_of_Starred(self, node: ast.Starred, state: _Locals) -> Form:
        return ("star", state.now(self.value(node.value, state)))

    def _value_of_Await(self, node: ast.Await | ast.Yield | ast.YieldFrom, state: _Locals) -> Form:
        return self._done((type(node).__name__, self._given(node.value, state)), state)

    _value_of_Yield = _value_of_YieldFrom = _value_of_Await

    def _written(self, kind: str, values: Sequence[Form]) -> Form:
        """Return the form of a tuple or list literal. After ``a, b = value``, ``(a, b)`` is ``value`` itself."""
        if kind != "Tuple" or not values or values[0][0] != "item":
            return (kind, *values)
        whole = form_of(values[0][1])
        for position, value in enumerate(values):
            if value != self.decisions.item(whole, position):
                return (kind, *values)
        if self.unpacked.get(whole) != len(values):
            return (kind, *values)
        return whole

    def _either(self, one: ast.expr, other: ast.expr, test: Form, state: _Locals) -> tuple[Form, Form]:
        """Evaluate both sides of a conditional expression: return their values, and add their effects to the state."""
        states = state.branch(), state.branch()
        values = self.value(one, states[0]), self.value(other, states[1])
        state.join(*states)
        if states[0].effects or states[1].effects:
            ends = [self._and_then(each.effects, ("joins",)) for each in states]
            state.effects.append(("under", self.decisions.decide(test, *ends)))
        return values

    def _done(self, effect: Form, state: _Locals) -> Form:
        """Add an effect to the state, and return the form of its result."""
        effect = shortened(effect)
        count = state.calls[effect]
        state.calls[effect] += 1
        state.effects.append(effect)
        state.kept.clear()
        if count:
            return ("again", count, effect)
        return effect

    def _value_of_Call(self, node: ast.Call, state: _Locals) -> Form:
        name = ast.unparse(node.func)
        name = _SAME.get(name, name)
        if name in self.helpers and name not in self.inside and name.partition(".")[0] not in _hidden(state, name):
            return self._inline(self.helpers[name], name, node, state)
        if name == "os.environ.get" and len(node.args) == 2 and not node.keywords:
            return self._environment(node, state)
        is_builtin = isinstance(node.func, ast.Name) and name in _PURE and name not in state.names
        function: Form = ("name", name)
        owner: Form = ()
        if isinstance(node.func, ast.Attribute) and name not in _SAME.values():
            owner = self.value(node.func.value, state)
            if node.func.attr in _PURE_METHODS:
                owner = state.now(owner)
            function = self._attribute(owner, node.func.attr, state)
        elif name not in _SAME.values():
            function = self.value(node.func, state)
        arguments = self._values(node.args, state)
        keywords = tuple((one.arg or "**", self.value(one.value, state)) for one in node.keywords)
        if is_builtin:
            return self._builtin(name, arguments, keywords, state)

        if owner and name.endswith(".size") and not keywords:
            return self._size(owner, arguments, state)
        if name == "os.path.join" and arguments:
            arguments[:1] = _joined_paths(arguments[0])
        names = [one[0] for one in keywords]

        def made(each: Sequence[Form]) -> Form:
            given = tuple(zip(names, each[len(arguments) + 1 :], strict=True))
            return shortened(("call", each[0], tuple(each[1 : len(arguments) + 1]), given))

        if name == "next" and len(arguments) == 2 and arguments[0][0] == "generator":
            items = form_of(arguments[0][1])
            if len(items) == 4 and len(form_of(items[1])) == 1:
                return self._first(items, arguments[1], state)
        operands = [function, *arguments, *(form_of(one[1]) for one in keywords)]
        return self._called(node.func, made, operands, owner, state)

    def _called(
        self,
        function: ast.expr,
        made: Callable[[Sequence[Form]], Form],
        operands: Sequence[Form],
        owner: Form,
        state: _Locals,
    ) -> Form:
        """Return the result of a call, and add its effect if it has one.

        :param made: function that returns the call's form for its operands.
        :param operands: function and arguments.
        :param owner: object whose method is called; empty for a function.
        """
        name = _SAME.get(ast.unparse(function), ast.unparse(function))
        if name in _PURE_FUNCTIONS and name.partition(".")[0] not in state.names:
            return made(operands)
        if isinstance(function, ast.Attribute) and function.attr in _TESTS:
            return self._tested(made, operands)
        if isinstance(function, ast.Attribute) and _is_pure_method(name, len(operands) - 1):
            return made(operands)
        found = self._done_by_cases(made, operands, state)
        if owner:
            state.changes[owner] += 1
        return found

    def _builtin(self, name: str, arguments: list[Form], keywords: Form, state: _Locals) -> Form:
        """Return the result of calling a builtin that has no effect."""
        if name not in _OF_TYPES:
            arguments = [state.now(one) for one in arguments]
        if name == "bool" and len(arguments) == 1 and not keywords:
            return self.decisions.truth(arguments[0])
        if name in ("any", "all") and len(arguments) == 1 and not keywords:
            items = _iterated(arguments[0])
            found = self.decisions.any_of(items, depth=self.depth, negated=name == "all")
            self._consumed(_effects_of(items), found, state)
            return found
        for argument in arguments:
            if argument[0] == "generator":
                self._consumed(_effects_of(_iterated(argument)), argument, state)
        form = shortened(("call", ("name", name), tuple(_spelled(name, arguments)), keywords))
        if name in _TRUE_OR_FALSE:
            return self.decisions.decide(form, TRUE, FALSE)
        return form

    def _tested(self, make: Callable[[Sequence[Form]], Form], operands: Sequence[Form]) -> Form:
        """Return the result of a method that gives a truth value. ``startswith`` with a tuple is one test for each."""
        choices = [operands[-1]]
        if choices[0][0] == "Tuple" and len(operands) > 1:
            choices = [form_of(one) for one in choices[0][1:]]
        found = FALSE
        for choice in reversed(choices):
            found = self.decisions.decide(("truth", make([*operands[:-1], choice])), TRUE, found)
        return found

    def _first(self, items: Form, default: Form, state: _Locals) -> Form:
        """Return the result of ``next`` with a generator and a default."""
        _, parts, effects, value = items
        ((iterable, tests, _),) = (form_of(part) for part in form_of(parts))
        plain = ((iterable, TRUE, 0),)
        found = self.decisions.any_match(plain, form_of(effects), form_of(tests))
        self._consumed(form_of(effects), found, state)
        return self.decisions.decide(found, ("first", plain, effects, tests, value), default)

    def _size(self, tensor: Form, places: Sequence[Form], state: _Locals) -> Form:
        """Return ``tensor.shape`` for ``tensor.size()``, and ``tensor.shape[i]`` for ``tensor.size(i)``."""
        shape = self._attribute(tensor, "shape", state)
        if places:
            return self.decisions.item(shape, places[0])
        return shape

    def _done_by_cases(self, make: Callable[[Sequence[Form]], Form], operands: Sequence[Form], state: _Locals) -> Form:
        """Add a call to the effects, and return its result.

        If an argument is a conditional, add a call to each branch: ``f(a if t else b)`` becomes
        ``f(a) if t else f(b)``.
        """
        if not self.decisions.splits(operands):
            return self._done(make(operands), state)
        position = decided_at(operands)
        test = form_of(operands[position][1])
        values = []
        ends = []
        branches = state.branch(), state.branch()
        for branch, side in zip(branches, operands[position][2:], strict=True):
            given = [*operands[:position], form_of(side), *operands[position + 1 :]]
            values.append(self._done_by_cases(make, given, branch))
            ends.append(self._and_then(branch.effects, ("joins",)))
        state.effects.append(("under", self.decisions.decide(test, *ends)))
        state.join(*branches)
        return self.decisions.decide(test, *values)

    def _environment(self, node: ast.Call, state: _Locals) -> Form:
        """Return ``default if get(name) is None else get(name)`` for ``os.environ.get(name, default)``."""
        found = self._value_of_Call(ast.Call(node.func, node.args[:1], []), state)
        lacks = self.decisions.compared("is", *sorted((found, NONE), key=text_of))
        return self.decisions.decide(lacks, self.value(node.args[1], state), found)

    def _inline(self, helper: FunctionNode, name: str, node: ast.Call, state: _Locals) -> Form:
        """Evaluate the body of a called helper: return the helper's result, and add its effects to the state."""
        arguments = helper.args
        if arguments.vararg or arguments.kwarg or any(isinstance(one, ast.Starred) for one in node.args):
            raise UnknownError
        parameters = [*arguments.posonlyargs, *arguments.args]
        static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in helper.decorator_list)
        if helper.decorator_list and not static:
            raise UnknownError
        bound: dict[str, Form] = {}
        if "." in name and not static:
            bound[parameters[0].arg] = self.value(ast.Name(name.partition(".")[0], ast.Load()), state)
            parameters = parameters[1:]
        given = self._values(node.args, state)
        if len(given) > len(parameters):
            raise UnknownError
        bound.update((parameter.arg, value) for parameter, value in zip(parameters, given, strict=False))
        for keyword in node.keywords:
            if keyword.arg is None:
                raise UnknownError
            bound[keyword.arg] = self.value(keyword.value, state)
        every = [*parameters, *arguments.kwonlyargs]
        defaults = [
            *([None] * (len(parameters) - len(arguments.defaults))),
            *arguments.defaults,
            *arguments.kw_defaults,
        ]
        for parameter, default in zip(every, defaults, strict=True):
            if parameter.arg not in bound:
                if default is None:
                    raise UnknownError
                bound[parameter.arg] = self.value(default, state)
        inside = state.branch()
        inside.names = bound
        self.inside.append(name)
        self.carried.append(())
        body = spelled(shaped_body(helper, with_reports=True))
        self.read(body)
        form = self.course(body, inside, FALLS)
        self.carried.pop()
        self.inside.pop()
        while form[0] == "then":
            state.effects.append(form_of(form[1]))
            form = form_of(form[2])
        state.join(inside)
        return self.decisions.result(form)

    def _value_of_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, state: _Locals
    ) -> Form:
        if any(isinstance(each, ast.NamedExpr) for each in walk(node)):
            raise UnknownError
        inside = state.branch()
        parts: list[Form] = []
        depth = self.depth
        for generator in node.generators:
            source = inside.now(self.value(generator.iter, inside))
            iterable = _iterated(source)
            if isinstance(node, ast.ListComp | ast.GeneratorExp) and _is_short(node, iterable):
                return self._unrolled(node, iterable, state)
            if source[0] == "generator" and len(iterable) == 4 and source[2] == self.depth:
                # A generator of a generator's items.
                parts += map(form_of, form_of(iterable[1]))
                inside.effects += map(form_of, form_of(iterable[2]))
                self._assign(generator.target, form_of(iterable[3]), inside)
                self.depth += len(form_of(iterable[1]))
                iterable, tests = map(form_of, parts.pop()[:2])
            else:
                self._assign(generator.target, ("each", self.depth), inside)
                self.depth += 1
                tests = TRUE
            for one in generator.ifs:
                tests = self.decisions.decide(tests, self.test(one, inside), FALSE)
            parts.append((iterable, tests, generator.is_async))
        if isinstance(node, ast.DictComp):
            value: Form = (self.value(node.key, inside), self.value(node.value, inside))
        else:
            value = self.value(node.elt, inside)
        self.depth = depth
        # A generator expression and a list comprehension yield the same items.
        kind = {ast.DictComp: "dict", ast.SetComp: "set"}.get(type(node), "list")
        form: Form = (kind, tuple(parts), tuple(inside.effects), value)
        if isinstance(node, ast.GeneratorExp):
            return ("generator", form, depth)
        form = shortened(form)
        state.join(inside)
        if inside.effects:
            return self._done(form, state)
        return form

    def _unrolled(self, node: ast.ListComp | ast.GeneratorExp, items: Form, state: _Locals) -> Form:
        """Return a comprehension's values as a written list."""
        values = []
        inside = state.branch()
        for item in items[1:]:
            self._assign(node.generators[0].target, form_of(item), inside)
            values.append(self.value(node.elt, inside))
        state.effects += inside.effects
        state.join(inside)
        if isinstance(node, ast.GeneratorExp):
            return ("generator", ("items", *values), self.depth)
        return ("List", *values)

    _value_of_SetComp = _value_of_GeneratorExp = _value_of_DictComp = _value_of_ListComp

    # Tests

    def test(self, node: ast.expr, state: _Locals) -> Form:
        """Return the form of an expression that is used as a test."""
        if isinstance(node, ast.BoolOp):
            return self._junction(node, state, self.test)
        return self.decisions.truth(state.now(self.value(node, state)))

    def _value_of_BoolOp(self, node: ast.BoolOp, state: _Locals) -> Form:
        return self._junction(node, state, self.value)

    def _junction(self, node: ast.BoolOp, state: _Locals, evaluate: Callable[[ast.expr, _Locals], Form]) -> Form:
        """Return the form of ``and`` or ``or``. An operand has effects only if the earlier operands don't decide."""
        is_and = isinstance(node.op, ast.And)
        values = [evaluate(node.values[0], state)]
        reached = TRUE
        for one in node.values[1:]:
            reached = self.decisions.decide(reached, self._goes_on(values[-1], is_and=is_and), FALSE)
            inside = state.branch()
            values.append(evaluate(one, inside))
            state.join(inside)
            if inside.effects:
                course = self._and_then(inside.effects, ("joins",))
                state.effects.append(("under", self.decisions.decide(reached, course, ("joins",))))
        found = values.pop()
        for value in reversed(values):
            found = self.decisions.decide(self._goes_on(value, is_and=is_and), found, value)
        return found

    def _goes_on(self, value: Form, *, is_and: bool) -> Form:
        """Return the test whether ``and`` or ``or`` evaluates the operand after ``value``."""
        test = self.decisions.truth(value)
        if is_and:
            return test
        return self.decisions.negated(test)

    def _value_of_Compare(self, node: ast.Compare, state: _Locals) -> Form:
        sides = self._values((node.left, *node.comparators), state)
        found = TRUE
        for left, right, operator in zip(sides, sides[1:], node.ops, strict=False):
            name, exchanged, negated = _COMPARED[type(operator)]
            if exchanged:
                left, right = right, left
            if name != "is":
                left, right = state.now(left), state.now(right)
            if name == "in":
                part = self.decisions.membership(left, right)
            else:
                if name in ("==", "is"):
                    left, right = sorted((left, right), key=text_of)
                part = self.decisions.compared(name, left, right)
            if negated:
                part = self.decisions.negated(part)
            found = self.decisions.decide(found, part, FALSE)
        return found


def _is_pure_method(name: str, arguments: int) -> bool:
    """Return True for a method without an effect: ``d.get(key)``, but not ``queue.get()`` or ``os.replace(a, b)``."""
    owner, _, method = name.rpartition(".")
    if method not in _PURE_METHODS or (owner == "os" and method == "replace"):
        return False
    fewest, most = _ARGUMENTS.get(method, (0, 9))
    return fewest <= arguments <= most


def _effects_of(items: Form) -> Form:
    """Return the effects of reading the items of a comprehension; empty for other iterables."""
    if items[0] in ("list", "set", "dict") and len(items) == 4:
        return form_of(items[2])
    return ()


def _is_short(node: ast.ListComp | ast.GeneratorExp, items: Form) -> bool:
    """Return True for a comprehension with one value for each of a few constants."""
    if items[0] != "items" or len(items) > _MOST_UNROLLED or len(node.generators) > 1 or node.generators[0].ifs:
        return False
    if any(isinstance(each, ast.Call) for each in walk(node.elt)):
        # A generator's calls are made one by one, until one of them decides.
        return False
    return all(form_of(one)[0] == "constant" for one in items[1:])


def _joined_paths(path: Form) -> list[Form]:
    """Return the parts of a path that ``os.path.join`` made; other paths are one part."""
    if path[:2] == ("call", ("attribute", ("attribute", ("name", "os"), "path", 0), "join", 0)) and path[3] == ():
        return [form_of(part) for part in form_of(path[2])]
    return [path]


def _told_apart(value: Form, state: _Locals) -> Form:
    """Return the form of a new list, dictionary or set. Earlier objects with the same contents have other forms."""
    count = state.made[value]
    state.made[value] += 1
    if count:
        return ("another", count, value)
    return value


def _hidden(state: _Locals, name: str) -> set[str]:
    """Return the local variables that could hide a function called ``name``; none for a method (``self.f``)."""
    if "." in name:
        return set()
    return set(state.names)


def _ended(end: Form, carried: Form) -> Form:
    if end == FALLS or end == ("joins",):
        return end
    return (*end, carried)


def _iterated(value: Form) -> Form:
    """Return what iterating over a value yields: the same form for a list, tuple or generator of the same items."""
    if value[0] in ("Tuple", "List"):
        return ("items", *value[1:])
    if value[0] == "generator":
        return form_of(value[1])
    return value


def _spelled(name: str, arguments: list[Form]) -> list[Form]:
    """Return equal forms for equivalent arguments of a builtin, such as ``min(a, b)`` and ``min(b, a)``."""
    if name in ("isinstance", "issubclass") and len(arguments) == 2:
        return [arguments[0], _choices(arguments[1])]
    if name in ("list", "tuple", "set", "sorted", "any", "all", "sum", "min", "max") and arguments:
        arguments = [_iterated(arguments[0]), *arguments[1:]]
    if name in ("min", "max"):
        arguments.sort(key=text_of)
    return arguments


def _choices(value: Form) -> Form:
    """Return the types in ``isinstance`` or ``except`` as a sorted tuple, without redundant subtypes."""
    if value[0] != "Tuple":
        return ("Tuple", value)
    types = set(map(form_of, value[1:]))
    for one in list(types):
        if any(_is_subtype(one, other) for other in types - {one}):
            types.discard(one)
    return ("Tuple", *sorted(types, key=text_of))


def _is_subtype(one: Form, other: Form) -> bool:
    """Return whether ``one`` and ``other`` are builtin types and ``one`` is derived from ``other``."""
    if one[0] != "name" or other[0] != "name":
        return False
    types = [getattr(builtins, str(each[1]), None) for each in (one, other)]
    return isinstance(types[0], type) and isinstance(types[1], type) and issubclass(types[0], types[1])


def _loaded(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    if isinstance(node, ast.Attribute):
        return ast.Attribute(node.value, node.attr, ast.Load())
    if isinstance(node, ast.Subscript):
        return ast.Subscript(node.value, node.slice, ast.Load())
    raise UnknownError


def _leaves_inside(statement: ast.If) -> bool:
    """Return whether an ``if``, or an ``if`` inside it, contains ``return``, ``raise``, ``break`` or ``continue``."""
    waiting: list[ast.AST] = [*statement.body, *statement.orelse]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return True
        if isinstance(node, ast.If):
            waiting += [*node.body, *node.orelse]
    return False


def _followed(body: Sequence[ast.stmt], rest: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """Return a branch followed by the statements after the ``if``; the branch alone if it always leaves the block."""
    if _leaves(body):
        return body
    return [*body, *rest]


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block always ends with ``return``, ``raise``, ``continue`` or ``break``."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)


def _loads(node: ast.AST) -> Counter[str]:
    """Return how often each name is read in a node."""
    return Counter(one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))


def _is_read_first(body: Sequence[ast.stmt], name: str) -> bool | None:
    """Return whether a block reads a variable before assigning it; None if neither is certain."""
    for statement in body:
        match statement:
            case ast.Assign():
                if _loads(statement)[name]:
                    return True
                if any(name in _in_order_of(one) for one in statement.targets):
                    return False
            case ast.If():
                if _loads(statement.test)[name]:
                    return True
                sides = [_is_read_first(block, name) for block in (statement.body, statement.orelse)]
                if True in sides:
                    return True
                if sides == [False, False]:
                    return False
            case ast.For() | ast.While():
                head = statement.iter if isinstance(statement, ast.For) else statement.test
                if _loads(head)[name] or _is_read_first(statement.body, name):
                    return True
            case _ if _loads(statement)[name]:
                return True
    return None


def _in_order_of(target: ast.expr) -> list[str]:
    return [one.id for one in walk(target) if isinstance(one, ast.Name)]


def _in_order(statement: ast.stmt) -> list[str]:
    """Return the local variables that a statement assigns, in the order of their first assignment."""
    found: dict[str, None] = {}
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
        if not isinstance(
            node, FunctionNode | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
        ):
            waiting = [*ast.iter_child_nodes(node), *waiting]
    return list(found)


def _assigned(statement: ast.stmt) -> set[str]:
    names = set(_in_order(statement))
    for node in ast.walk(statement):
        if isinstance(node, FunctionNode):
            names.add(node.name)
    return names


def _as_list(before: ast.stmt, loop: ast.stmt) -> ast.stmt | None:
    """Return an empty list and the loop that fills it as a list comprehension; None for other statements."""
    return listed(before, loop)
