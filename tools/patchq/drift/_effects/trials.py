"""Find out by trial runs whether two versions of a function do the same."""

from __future__ import annotations

import ast
from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

from patchq.drift._effects.parts import changed_parts
from patchq.drift._effects.run import TrialRun
from patchq.drift._effects.values import MOST_ITEMS, Key, Surroundings, UnknownError
from patchq.drift._python.shape import FunctionNode, bound_names, clone, names_in, walk

#: Most repetitions of a run.
_MOST_ROUNDS = 8
#: Fewest and most runs.
_FEWEST, _MOST = 160, 6000
#: Number of runs before the search for what only one version has.
_FIRST = 8
#: How often a changed statement, and each result of a changed test, must occur in the runs.
_ENOUGH = 24
#: How often any other statement must occur.
_SOME = 6
#: Something that fewer runs reached is rare. Number of such runs to keep, and most seeds of a run.
_RARE, _MOST_RARE, _MOST_SEEDS = 24, 24, 6
#: Most statements and expressions of all runs together.
_MOST_STEPS = 1_000_000
#: Numbers above this one must be the same in both versions.
_GREATER = 16
#: Number of statements and expressions after which something that no run reached counts as out of reach.
_PATIENCE = 200_000


class FunctionVersion:
    """Version of a function, with the functions and constants that only this version of the file has.

    :ivar watched: names of local variables that patches read.
    :ivar is_cpp: the function is translated from C++.
    :ivar numbers: names of parameters that are numbers.
    :ivar variables: names of global variables.
    :ivar is_part: the function is a part of another one; its parameters are that one's variables.
    """

    variables: Collection[str] = ()
    is_part = False

    def __init__(
        self,
        node: FunctionNode,
        helpers: Mapping[str, FunctionNode],
        constants: Mapping[str, ast.expr],
        watched: Collection[str] = (),
        *,
        is_cpp: bool = False,
    ) -> None:
        self.is_cpp = is_cpp
        self.numbers = _ordered_names(node)
        self.node, self.helpers, self.constants, self.watched = node, helpers, constants, watched
        #: Number of statements and expressions that ran.
        self.steps = 0

    def run(
        self, surroundings: Surroundings, seeds: Sequence[int], watched: Collection[str]
    ) -> tuple[Key, Counter[Hashable]]:
        """Run the function: return what it did, and how often each statement and test ran."""
        reached: Counter[Hashable] = Counter()
        run = TrialRun(surroundings, seeds, helpers=self.helpers, constants=self.constants, reached=reached)
        run.is_part = self.is_part
        try:
            return run.run(self.node, watched, self.numbers), reached
        finally:
            self.steps += run.steps

    def part(self, node: FunctionNode) -> FunctionVersion:
        """Return a version of a part of the function."""
        found = FunctionVersion(node, self.helpers, self.constants, is_cpp=self.is_cpp)
        found.is_part = True
        found.numbers |= self.numbers
        found.variables = self.variables
        return found

    def bodies(self) -> Iterator[FunctionNode]:
        yield self.node
        mentioned = {ast.unparse(each.func) for each in walk(self.node) if isinstance(each, ast.Call)}
        yield from (helper for name, helper in self.helpers.items() if name in mentioned)


def _ordered_names(node: ast.AST) -> set[str]:
    """Return the names that a function compares with numbers by their order."""
    found: set[str] = set()
    for each in walk(node):
        match each:
            case ast.Compare(
                left=ast.Name(id=name),
                ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()],
                comparators=[ast.Constant(value=int())],
            ):
                found.add(name)
    return found


def do_the_same(old: FunctionVersion, new: FunctionVersion) -> bool:
    """Return whether trial runs of two versions of a function have the same results and effects.

    Each statement and each result of a test that only one version has must have occurred in a run. Otherwise, or if a
    version contains something that can't be run, the result is False.
    """
    if _numbers(old) != _numbers(new) or _imports_differ(old, new):
        return False
    if not old.helpers and not new.helpers and ast.dump(old.node) == ast.dump(new.node):
        return True
    watched = set(old.watched) & _variables(old.node) & _variables(new.node)
    # Parts first: they are smaller, and nothing before them keeps runs from reaching them.
    parts = changed_parts(old.node, new.node, watched)
    if parts and all(_do_the_same(old.part(one.old), new.part(one.new), one.kept) for one in parts):
        return True
    changed: set[int] = set()
    for one in parts:
        changed.update(one.copies)
    joined = changed_parts(old.node, new.node, watched, joined=True)
    if len(joined) == 1 < len(parts):
        (whole,) = joined
        mine = set(map(whole.copies.get, changed & whole.copies.keys()))
        if _do_the_same(old.part(whole.old), new.part(whole.new), whole.kept, mine):
            return True
    return _do_the_same(old, new, watched, changed)


def _do_the_same(
    old: FunctionVersion, new: FunctionVersion, watched: Collection[str], changed: Collection[Hashable] = ()
) -> bool:
    """Return whether trial runs have the same results and effects.

    :param changed: ids of statements that must occur often enough, in addition to those that only one version has.
    """
    versions = (old, new)
    nodes: list[ast.AST] = []
    for body in (*old.bodies(), *new.bodies()):
        nodes += walk(body)
    surroundings = Surroundings(_errors(nodes), _sizes(nodes), is_cpp=old.is_cpp)
    surroundings.variables = {*old.variables, *new.variables}
    search = _Search()
    try:
        for number in range(_MOST):
            if number == _FIRST:
                # Most versions that do something else have been told apart by now.
                search.needed = _needed(versions)
                for body in (*old.bodies(), *new.bodies()):
                    search.all.update(_statements(body))
                search.needed |= search.all.intersection(changed)
            seeds = search.seeds(number)
            reached = _same_run(versions, surroundings, seeds, watched)
            if reached is None:
                return False
            search.add(seeds, reached)
            if number >= _FEWEST and number % 40 == 0 and search.is_done():
                return True
            steps = old.steps + new.steps
            if steps > _MOST_STEPS or (steps > _PATIENCE and search.lacks()):
                return False
    except (UnknownError, RecursionError):
        return False
    return False


def _numbers(version: FunctionVersion) -> set[int]:
    """Return the greater numbers in a version. Which runs they make a difference for depends on code around them."""
    found: set[int] = set()
    for body in version.bodies():
        read = names_in(body)
        for node in [body, *(value for name, value in version.constants.items() if name in read)]:
            for each in walk(node):
                if isinstance(each, ast.Constant) and type(each.value) is int and each.value > _GREATER:
                    found.add(each.value)
    return found


def _imports_differ(old: FunctionVersion, new: FunctionVersion) -> bool:
    """Return whether the versions import something else under the same name."""
    sides = []
    for version in (old, new):
        found: dict[str, str] = {}
        for node in walk(version.node):
            if isinstance(node, ast.ImportFrom):
                found.update((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)
        sides.append(found)
    return any(sides[0][name] != sides[1][name] for name in sides[0].keys() & sides[1].keys())


class _Search:
    """Choice of the seeds of runs, such that the runs reach the changed code.

    :ivar needed: what the runs must reach often enough.
    :ivar all: what else they must reach: an earlier change may only make a difference there.
    :ivar reached: how often the runs reached each statement, and each result of a test.
    """

    def __init__(self) -> None:
        self.needed: set[Hashable] = set()
        self.all: set[Hashable] = set()
        self.reached: Counter[Hashable] = Counter()
        #: Seeds of the last runs that reached something rare.
        self._rare: deque[tuple[int, ...]] = deque(maxlen=_MOST_RARE)

    def seeds(self, number: int) -> tuple[int, ...]:
        """Return the seeds of a run: a new one, or those of a run that reached something rare, and a new one."""
        if number % 2 == 0 or not self._rare:
            return (number,)
        before = self._rare[number // 2 % len(self._rare)]
        return (*before[:_MOST_SEEDS], number)

    def add(self, seeds: tuple[int, ...], reached: Counter[Hashable]) -> None:
        if any(self.reached[one] < _RARE for one in reached):
            self._rare.append(seeds)
        self.reached.update(reached)

    def lacks(self) -> bool:
        """Return whether there is anything that no run has reached."""
        for one in (*self.all, *self.needed):
            reach = one[:2] if isinstance(one, tuple) else one
            if not self.reached[reach] and not _is_fixed(one, self.reached):
                return True
        return False

    def is_done(self) -> bool:
        """Return whether the runs reached all that they must reach often enough."""
        is_reached = all(self.reached[one] >= _SOME for one in self.all)
        return is_reached and all(_is_enough(one, self.reached) for one in self.needed)


def _is_enough(reach: Hashable, reached: Counter[Hashable]) -> bool:
    """Return whether runs reached something often enough."""
    if isinstance(reach, tuple):
        return reached[reach[:2]] >= _ENOUGH or _is_fixed(reach, reached)
    return reached[reach] >= _ENOUGH


def _is_fixed(reach: Hashable, reached: Counter[Hashable]) -> bool:
    """Return whether a test can have one result only: it needs no decision, or repeats an earlier test."""
    if not isinstance(reach, tuple) or len(reach) == 3:
        return False
    return reached[reach[0], "decided"] >= _ENOUGH or reached[reach[0]] >= _FEWEST


def _variables(node: FunctionNode) -> set[str]:
    """Return the local variables of a function, without those of comprehensions and nested functions."""
    found = {each.arg for each in walk(node.args) if isinstance(each, ast.arg)}
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            # The translation of a C++ variable ``x`` is ``x 1`` or ``x 2``.
            found.add(each.id.partition(" ")[0])
        if not isinstance(each, FunctionNode | ast.Lambda | ast.ClassDef | ast.comprehension):
            waiting += ast.iter_child_nodes(each)
    return found


def _same_run(
    versions: Sequence[FunctionVersion], surroundings: Surroundings, seeds: Sequence[int], watched: Collection[str]
) -> Counter[Hashable] | None:
    """Run both versions, again as long as a run finds out more about the unknown values.

    Return how often the runs reached each statement and test; None if the versions did something else.
    """
    for _ in range(_MOST_ROUNDS):
        findings = surroundings.findings
        (old, old_reached), (new, new_reached) = (version.run(surroundings, seeds, watched) for version in versions)
        if surroundings.findings == findings:
            return old_reached + new_reached if old == new else None
    return None


def _errors(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the names of the exceptions that the functions catch."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            found.update(ast.unparse(one) for one in kinds)
    return sorted(found)


def _sizes(nodes: Sequence[ast.AST]) -> list[int]:
    """Return numbers of items around the small constants of the functions."""
    found: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and type(node.value) is int and 0 < node.value < MOST_ITEMS:
            found.update((max(node.value - 1, 1), node.value, node.value + 1))
    return sorted(found)


def _needed(versions: Sequence[FunctionVersion]) -> set[Hashable]:
    """Return what runs must reach: the statements, and the results of tests, that only one version has."""
    sides = []
    for version in versions:
        found = []
        for body in version.bodies():
            exact, masked = _WithoutLocals(set()), _WithoutLocals(bound_names(body))
            for part, reach in _reaches(body):
                found.append((exact.text(part), masked.text(part), reach))
        sides.append(found)
    names = [bound_names(version.node) for version in versions]
    places = (0,) if names[0] == names[1] else (0, 1)
    needed: set[Hashable] = set()
    for mine, other in ((sides[0], sides[1]), (sides[1], sides[0])):
        rest = mine
        # First those with equal names, so that a new test of a variable isn't taken for the test of another one.
        for place in places:
            same = Counter((one[place], _kind(one[2])) for one in other)
            kept = []
            for one in rest:
                key = one[place], _kind(one[2])
                if same[key]:
                    same[key] -= 1
                else:
                    kept.append(one)
            rest = kept
        needed.update(one[2] for one in rest)
    return needed


def _statements(body: FunctionNode) -> Iterator[int]:
    """Yield the ids of the statements of a function, without those of nested functions and handlers of exceptions."""
    waiting: list[ast.AST] = list(body.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield id(node)
            if not isinstance(node, FunctionNode | ast.ClassDef):
                waiting += ast.iter_child_nodes(node)


def _reaches(body: FunctionNode) -> Iterator[tuple[ast.AST, Hashable]]:
    """Yield what runs can reach in a function, each with the code that it belongs to."""
    for node in walk(body):
        if isinstance(node, ast.stmt | ast.ExceptHandler) and node is not body:
            yield node, id(node)
        yield from _needed_of(node)


def _kind(reach: Hashable) -> Hashable:
    """Return the result of a test that must be reached; True if there is no test."""
    return reach[1] if isinstance(reach, tuple) else ...


class _WithoutLocals(ast.NodeTransformer):
    """Texts of statements and expressions without the names of local variables."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("%", node.ctx) if node.id in self.names else node

    def text(self, node: ast.AST) -> str:
        """Return the text of an expression, or of a statement without its blocks."""
        if not isinstance(node, ast.stmt | ast.ExceptHandler):
            return ast.dump(self.visit(clone(node)))
        parts = [type(node).__name__]
        for name, value in ast.iter_fields(node):
            if name not in ("body", "orelse", "finalbody", "handlers"):
                values = value if isinstance(value, list) else [value]
                parts += [self.text(one) if isinstance(one, ast.AST) else repr(one) for one in values]
        return " ".join(parts)


def _needed_of(node: ast.AST) -> Iterator[tuple[ast.AST, Hashable]]:
    """Yield what runs must reach in a statement or an expression, each with the code that it belongs to."""
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            yield from _results(node.test)
        case ast.BoolOp():
            for one in node.values:
                yield from _results(one)
        case ast.comprehension():
            for one in node.ifs:
                yield from _results(one)
        case ast.For():
            yield node.iter, (id(node), "item", "")
            yield node.iter, (id(node), "end", "")


def _results(test: ast.expr) -> Iterator[tuple[ast.AST, Hashable]]:
    """Yield what runs must reach of a test: both results; of a comparison with ``None``, any."""
    match test:
        case ast.Constant() | ast.BoolOp():
            # Of ``a and b``, each part must run.
            return
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _results(inner)
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            yield test, id(test)
        case ast.Compare(ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()]):
            # A counter, too, must have been on both sides of the limit.
            yield test, (id(test), True, "")
            yield test, (id(test), False, "")
        case _:
            yield test, (id(test), True)
            yield test, (id(test), False)
