"""Find out by trial runs whether two versions of a function do the same."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

from patchq.drift._effects.machine import EndlessError, Machine
from patchq.drift._effects.values import Key, Surroundings, UnknownError
from patchq.drift._python.shape import FunctionNode, bound_names, clone, walk

#: Most repetitions of a run.
_MOST_ROUNDS = 8
#: Fewest and most runs.
_FEWEST, _MOST = 240, 1500
#: How often a changed statement, and each result of a changed test, must occur in the runs.
_ENOUGH = 24
#: Most statements and expressions of all runs together.
_MOST_STEPS = 1_000_000
#: Greatest number of items that a constant of the function suggests.
_MOST_ITEMS = 9


class Version:
    """One version of a function, with the functions and constants that only this version of the file has.

    :ivar watched: names of local variables that patches read.
    """

    def __init__(
        self,
        node: FunctionNode,
        helpers: Mapping[str, FunctionNode],
        constants: Mapping[str, ast.expr],
        watched: Collection[str] = (),
    ) -> None:
        self.node, self.helpers, self.constants, self.watched = node, helpers, constants, watched
        #: How often statements and tests ran.
        #: See :class:`patchq.drift._effects.machine.Machine`.
        #: Number of statements and expressions that ran.
        self.steps = 0
        self.reached: Counter[Hashable] = Counter()

    def run(self, surroundings: Surroundings, seed: int) -> Key:
        machine = Machine(surroundings, seed, helpers=self.helpers, constants=self.constants, reached=self.reached)
        try:
            return machine.run(self.node, self.watched)
        finally:
            self.steps += machine.steps

    def bodies(self) -> Iterator[FunctionNode]:
        yield self.node
        mentioned = {ast.unparse(each.func) for each in walk(self.node) if isinstance(each, ast.Call)}
        yield from (helper for name, helper in self.helpers.items() if name in mentioned)


def do_the_same(old: Version, new: Version) -> bool:
    """Return whether trial runs of two versions of a function have the same results and effects.

    Each statement and each result of a test that only one version has must have occurred in a run. Otherwise, or if a
    version contains something that can't be run, the result is False.
    """
    versions = (old, new)
    nodes = [each for version in versions for body in version.bodies() for each in walk(body)]
    surroundings = Surroundings(_errors(nodes), _sizes(nodes))
    try:
        needed = _needed(versions)
        for seed in range(_MOST):
            if not _same_run(versions, surroundings, seed):
                return False
            if seed >= _FEWEST and all(old.reached[one] + new.reached[one] >= _ENOUGH for one in needed):
                return True
            if old.steps + new.steps > _MOST_STEPS:
                return False
    except (UnknownError, EndlessError, RecursionError):
        return False
    return False


def _same_run(versions: Sequence[Version], surroundings: Surroundings, seed: int) -> bool:
    """Run both versions with a seed, again as long as a run finds out more about the unknown values."""
    for _ in range(_MOST_ROUNDS):
        findings = surroundings.findings
        reached = [version.reached.copy() for version in versions]
        done = [version.run(surroundings, seed) for version in versions]
        if surroundings.findings == findings:
            return done[0] == done[1]
        for version, before in zip(versions, reached, strict=True):
            version.reached = before
    return False


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
        if isinstance(node, ast.Constant) and type(node.value) is int and 0 < node.value < _MOST_ITEMS:
            found.update((max(node.value - 1, 1), node.value, node.value + 1))
    return sorted(found)


def _needed(versions: Sequence[Version]) -> set[Hashable]:
    """Return what runs must reach: the statements, and the results of tests, that only one version has."""
    sides = []
    for version in versions:
        found: list[tuple[str, Hashable]] = []
        for body in version.bodies():
            masked = _Masked(bound_names(body))
            for node in walk(body):
                if isinstance(node, ast.stmt | ast.ExceptHandler) and node is not body:
                    found.append((masked.header(node), id(node)))
                found += [(f"{masked.text(node)} {place}", reach) for place, reach in enumerate(_needed_of(node))]
        sides.append(found)
    needed: set[Hashable] = set()
    for mine, other in ((sides[0], sides[1]), (sides[1], sides[0])):
        same = Counter(text for text, _ in other)
        for text, reach in mine:
            if same[text]:
                same[text] -= 1
            else:
                needed.add(reach)
    return needed


class _Masked(ast.NodeTransformer):
    """Texts of statements and expressions without the names of local variables."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("%", node.ctx) if node.id in self.names else node

    def text(self, node: ast.AST) -> str:
        return ast.dump(self.visit(clone(node)))

    def header(self, node: ast.AST) -> str:
        """Return a statement's text without its blocks."""
        parts = [type(node).__name__]
        for name, value in ast.iter_fields(node):
            if name not in ("body", "orelse", "finalbody", "handlers"):
                values = value if isinstance(value, list) else [value]
                parts += [self.text(one) if isinstance(one, ast.AST) else repr(one) for one in values]
        return " ".join(parts)


def _needed_of(part: ast.AST) -> Iterator[Hashable]:
    """Yield what runs must reach in a statement or an expression."""
    match part:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            yield from _results(part.test)
        case ast.BoolOp():
            for one in part.values:
                yield from _results(one)
        case ast.comprehension():
            for one in part.ifs:
                yield from _results(one)
        case ast.For():
            yield (id(part), "item")
            yield (id(part), "end")


def _results(test: ast.expr) -> Iterator[Hashable]:
    """Yield what runs must reach of a test: both results; of a comparison with ``None``, any."""
    match test:
        case ast.Constant() | ast.BoolOp():
            # Of ``a and b``, each part must run.
            return
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _results(inner)
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            yield id(test)
        case _:
            yield (id(test), True)
            yield (id(test), False)
