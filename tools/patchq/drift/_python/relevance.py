"""Decision whether an upstream change of a function affects a patch of the same function.

Data flow is followed by names and ignores the order of statements. The decision is therefore cautious: some changes
are reported without need, but few that matter are missed.
"""

from __future__ import annotations

import ast
import copy
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from patchq.drift._python.facts import PythonFile
from patchq.drift._python.shape import FunctionNode, bound_names, clone, shaped_body, walk

#: Most levels of nested helpers to inline.
_MOST_HELPERS = 6
_EXITS = ast.Return | ast.Raise | ast.Continue | ast.Break
#: Statements that end a function unless a condition holds.
_CHECK = re.compile(r"^Assert |_CHECK\b|\bassert\b")
_HEADERS = ("test", "iter", "target", "items", "subject")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Simple statement, or header of a compound statement.

    :ivar text: normalized text of the statement.
    :ivar leaves: True if the statement ends the function or a loop, or is a barrier.
    :ivar around: headers of the compound statements around it, outermost first.
    :ivar receiver: object whose method is called without using the result: ``items`` in ``items.append(x)``.
    """

    text: str
    reads: frozenset[str]
    writes: frozenset[str]
    leaves: bool
    around: tuple[str, ...]
    receiver: str = ""

    def without(self, names: set[str]) -> Step:
        """Remove the receiver from the names that the step reads and writes, if the receiver is in ``names``."""
        if self.receiver not in names:
            return self
        mine = frozenset({self.receiver})
        return replace(self, reads=self.reads - mine, writes=self.writes - mine)


def concerns(old: ast.stmt, patched: ast.stmt, new: ast.stmt) -> bool:
    """Return whether an upstream change of a Python function from ``old`` to ``new`` affects a patch of ``old``.

    :param patched: the old function with the patch.
    """
    sides = [python_steps(node) for node in (old, patched, new)]
    return steps_concern(*sides, variables={name for node in (old, patched, new) for name in bound_names(node)})


def steps_concern(before: Sequence[Step], after: Sequence[Step], there: Sequence[Step], *, variables: set[str]) -> bool:
    """Return whether an upstream change of a function affects a patch of the function.

    It does if the changed steps decide whether the patched place is reached, set variables that the patch reads, or
    read variables that the patch sets.

    :param before: steps of the old function.
    :param after: steps of the old function with the patch.
    :param there: steps of the new function.
    :param variables: names of local variables. Other names, such as modules, carry no data.
    """
    mine = [op for op in _differences(before, after) if op[0] != "equal"]
    if not mine:
        return True
    touched = [s for _, i1, i2, j1, j2 in mine for s in (*before[i1:i2], *after[j1:j2])]
    # Two method calls on one object, such as two options added to a parser, don't affect each other.
    called = {s.receiver for s in touched if s.receiver}
    called -= _reads([s.without(called) for s in touched])
    touched = [s.without(called) for s in touched]
    first, last = mine[0][1], max(i2 for _, _, i2, _, _ in mine)
    steps = [*before, *after, *there]
    variables = variables | {name for name in _reads(steps) | _writes(steps) if name.startswith("self.")}
    around = {header for s in touched for header in s.around}
    tests = [s for s in (*before, *after) if any(header.endswith(s.text) for header in around)]
    read = _reads([*touched, *tests])
    needed = _closure([*before, *there], read & variables, variables, backward=True)
    given = _closure([*before, *there], _writes(touched) & variables, variables, backward=False)
    for tag, i1, i2, j1, j2 in _differences(before, there):
        if tag == "equal":
            continue
        changed = [s.without(called) for s in (*before[i1:i2], *there[j1:j2])]
        if (i1 < last or i1 == i2 == last) and any(s.leaves or s.writes & needed for s in changed):
            return True
        if (i2 > first or i1 == i2 == first) and any(s.reads & given for s in changed):
            return True
        if any(i1 < end and i2 > start for _, start, end, _, _ in mine):
            return True
    return _surroundings(before, mine) != _surroundings_in(before, there, mine)


def changed_before(before: Sequence[Step], there: Sequence[Step], called: str) -> tuple[str, str] | None:
    """Return the first changed step in a caller on which its call of a function depends.

    The call depends on earlier steps that set variables it reads, and on earlier steps that can leave the caller.

    :return: text of the step in the old and in the new version (empty if a version lacks it); None if none changed.
    """
    at = next((n for n, step in enumerate(before) if _calls(step, called)), None)
    if at is None or not any(_calls(step, called) for step in there):
        return None
    needed = set(before[at].reads)
    for tag, i1, i2, j1, j2 in _differences(before, there):
        if tag == "equal" or i1 > at:
            continue
        for step in (*before[i1:i2], *there[j1:j2]):
            ends = step.leaves or _CHECK.search(step.text)
            if not _calls(step, called) and (ends or step.writes & needed):
                was = before[i1].text if i1 < i2 else ""
                return was.partition(" ")[2], (there[j1].text if j1 < j2 else "").partition(" ")[2]
    return None


def _calls(step: Step, called: str) -> bool:
    return re.search(rf"\b{re.escape(called)}\b *[(<]", step.text) is not None


def python_steps(node: ast.stmt) -> list[Step]:
    """Return the steps of a Python function."""
    return list(_steps(shaped_body(node), ()))


def _reads(steps: Iterable[Step]) -> set[str]:
    """Return the names that some of the steps read."""
    found: set[str] = set()
    for step in steps:
        found |= step.reads
    return found


def _writes(steps: Iterable[Step]) -> set[str]:
    """Return the names that some of the steps set."""
    found: set[str] = set()
    for step in steps:
        found |= step.writes
    return found


def _differences(one: Sequence[Step], other: Sequence[Step]) -> Sequence[tuple[str, int, int, int, int]]:
    sides = [step.text for step in one], [step.text for step in other]
    return difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes()


def _surroundings(before: Sequence[Step], mine: Sequence[tuple[str, int, int, int, int]]) -> list[tuple[str, ...]]:
    return [step.around for _, i1, i2, _, _ in mine for step in _near(before, i1, i2)]


def _surroundings_in(
    before: Sequence[Step], there: Sequence[Step], mine: Sequence[tuple[str, int, int, int, int]]
) -> list[tuple[str, ...]]:
    """Return the headers around the same steps in the new version. A removed step keeps its old headers."""
    same: dict[int, int] = {}
    for tag, i1, i2, j1, _ in _differences(before, there):
        if tag == "equal":
            same.update((i, j1 + i - i1) for i in range(i1, i2))
    found = []
    for _, i1, i2, _, _ in mine:
        for number in _near_numbers(len(before), i1, i2):
            step = there[same[number]] if number in same else before[number]
            found.append(step.around)
    return found


def _near_numbers(count: int, start: int, end: int) -> list[int]:
    return [n for n in range(start - 1, end + 1) if 0 <= n < count]


def _near(steps: Sequence[Step], start: int, end: int) -> list[Step]:
    return [steps[n] for n in _near_numbers(len(steps), start, end)]


def _closure(steps: Sequence[Step], names: set[str], variables: set[str], *, backward: bool) -> set[str]:
    """Return ``names`` and all variables that influence them (``backward``) or that they influence (otherwise)."""
    found = set(names)
    grown = True
    while grown:
        grown = False
        for step in steps:
            ends, others = (step.writes, step.reads) if backward else (step.reads, step.writes)
            if ends & found and not others & variables <= found:
                found |= others & variables
                grown = True
    return found


def _steps(body: Iterable[ast.stmt], around: tuple[str, ...]) -> Iterator[Step]:
    for node in body:
        blocks = [b for name in ("body", "orelse", "finalbody") if (b := getattr(node, name, None))]
        handlers = getattr(node, "handlers", None) or getattr(node, "cases", None) or []
        if isinstance(node, FunctionNode | ast.ClassDef) or not (blocks or handlers):
            yield from _call_steps(node, around)
            continue
        heads = [h for name in _HEADERS if (h := getattr(node, name, None)) is not None]
        parts = [part for head in heads for part in (head if isinstance(head, list) else [head])]
        header = _step(node, parts, around)
        yield header
        for name in ("body", "orelse", "finalbody"):
            yield from _steps(getattr(node, name, None) or (), (*around, f"{name} {header.text}"))
        for handler in handlers:
            shown = [n for n in (getattr(handler, "type", None), getattr(handler, "pattern", None)) if n]
            inside = _step(handler, shown, around)
            yield inside
            yield from _steps(handler.body, (*around, inside.text))


def _call_steps(node: ast.stmt, around: tuple[str, ...]) -> Iterator[Step]:
    """Yield a simple statement as a step. If it is a call, yield a separate step for each keyword argument."""
    value = getattr(node, "value", None)
    if not isinstance(value, ast.Call) or not all(k.arg for k in value.keywords):
        yield _step(node, [node], around)
        return
    plain = copy.copy(node)
    plain.value = ast.Call(value.func, value.args, [])  # type: ignore[attr-defined]
    head = _step(plain, [plain], around)
    yield head
    for keyword in value.keywords:
        step = _step(keyword, [keyword.value], around)
        mutated = {_root(keyword.value)} if isinstance(node, ast.Expr) else set()
        yield replace(step, text=f"{keyword.arg}={step.text}", writes=head.writes | mutated - {"", "self"})


def _step(node: ast.AST, parts: Sequence[ast.AST], around: tuple[str, ...]) -> Step:
    reads: set[str] = set()
    writes: set[str] = set()
    for part in parts:
        for child in walk(part):
            if isinstance(child, ast.Name | ast.Attribute | ast.Subscript):
                name = _root(child)
                stored = isinstance(child.ctx, ast.Store | ast.Del)
                (writes if stored else reads).add(name)
            elif isinstance(child, ast.arg):
                writes.add(child.arg)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        writes |= _mutated(node.value)
    if isinstance(node, ast.AugAssign):
        reads |= writes
    text = f"{type(node).__name__} " + ";".join(ast.unparse(part) for part in parts)
    return Step(
        text=text,
        reads=frozenset(reads - {"", "self"}),
        writes=frozenset(writes - {"", "self"}),
        leaves=isinstance(node, _EXITS),
        around=around,
        receiver=_receiver(node),
    )


def _receiver(node: ast.AST) -> str:
    call = node.value if isinstance(node, ast.Expr) else None
    return _root(call.func.value) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""


def _mutated(call: ast.Call) -> set[str]:
    """Return the objects that a call may change if its result isn't used: its receiver and its arguments."""
    given: list[ast.expr] = [*call.args, *(k.value for k in call.keywords)]
    if isinstance(call.func, ast.Attribute):
        given.append(call.func.value)
    return {_root(each) for each in given if isinstance(each, ast.Name | ast.Attribute)}


def _root(node: ast.expr) -> str:
    """Return the variable at the start of an expression: ``x`` for ``x.a[0]``, but ``self.x`` for ``self.x.a``."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        inner = node.value
        if isinstance(node, ast.Attribute) and isinstance(inner, ast.Name) and inner.id == "self":
            return f"self.{node.attr}"
        node = inner
    return node.id if isinstance(node, ast.Name) else ""


def with_helpers(file: PythonFile, name: str, other: PythonFile) -> ast.stmt:
    """Return a function with its helpers inlined. Helpers are functions of the same file that ``other`` lacks."""
    node = file.nodes[name]
    helpers = {n for n in file.nodes if n not in other.facts and isinstance(file.nodes[n], FunctionNode)}
    if not helpers:
        return node
    expanded = clone(node)
    for _ in range(_MOST_HELPERS):
        writer = _Expand(file, name, helpers)
        expanded = writer.visit(expanded)
        if not writer.done:
            break
    return expanded


class _Expand(ast.NodeTransformer):
    """Transformer that replaces the calls of helpers by the helpers' statements."""

    def __init__(self, file: PythonFile, scope: str, helpers: set[str]) -> None:
        self.file, self.scope, self.helpers = file, scope, helpers
        self.done = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        body = self._body(node)
        if body and len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
            self.done = True
            return body[0].value
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        body = self._body(node.value)
        if body is None or any(isinstance(child, ast.Return) for each in body for child in walk(each)):
            return node
        self.done = True
        return body

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return self._with_result(node)

    def visit_Return(self, node: ast.Return) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return self._with_result(node)

    def _with_result(self, node: ast.Assign | ast.Return) -> ast.AST | list[ast.stmt]:
        body = self._body(node.value)
        returns = [child for each in body or () for child in walk(each) if isinstance(child, ast.Return)]
        if not body or (isinstance(node, ast.Assign) and returns != [body[-1]]) or not returns:
            return node
        self.done = True
        if isinstance(node, ast.Return):
            return body
        result = returns[0].value or ast.Constant(None)
        if len(node.targets) == 1 and ast.unparse(node.targets[0]) == ast.unparse(result):
            return body[:-1]
        return [*body[:-1], ast.copy_location(ast.Assign(node.targets, result), node)]

    def _body(self, node: ast.expr | None) -> list[ast.stmt] | None:
        """Return a called helper's statements, with arguments in place of parameters; None if it can't be inlined."""
        called = self.file.callee(node, self.scope) if isinstance(node, ast.Call) else ""
        helper = self.file.nodes.get(called)
        if called not in self.helpers or not isinstance(helper, FunctionNode) or not isinstance(node, ast.Call):
            return None
        arguments = helper.args
        if arguments.vararg or arguments.kwarg or any(isinstance(a, ast.Starred) for a in node.args):
            return None
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        if names[:1] in (["self"], ["cls"]):
            names = names[1:]
        given = dict(zip(names, node.args, strict=False))
        given.update((k.arg, k.value) for k in node.keywords if k.arg)
        if set(given) != {*names, *(a.arg for a in arguments.kwonlyargs)}:
            return None
        writer = _Arguments(given)
        return [writer.visit(clone(each)) for each in helper.body if not _is_text(each)]


def is_in_helpers(old_file: PythonFile, name: str, new_file: PythonFile, new_name: str) -> bool:
    """Return whether all words that a function lost occur in new functions of its file that it calls."""
    sides = [
        Counter(re.findall(r"\w+", ast.unparse(file.nodes[n]))) for file, n in ((old_file, name), (new_file, new_name))
    ]
    there: Counter[str] = Counter()
    for other, node in new_file.nodes.items():
        simple = other.rpartition(".")[2]
        if other not in old_file.nodes and isinstance(node, FunctionNode) and sides[1][simple]:
            there.update(re.findall(r"\w+", ast.unparse(node)))
    lost = set(sides[0] - sides[1])
    return bool(lost) and lost <= set(there)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Arguments(ast.NodeTransformer):
    """Transformer that replaces parameters by arguments."""

    def __init__(self, given: dict[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.given.get(node.id)
        if value is None or (isinstance(node.ctx, ast.Store) and not isinstance(value, ast.Name)):
            return node
        if isinstance(value, ast.Name):
            return ast.copy_location(ast.Name(value.id, node.ctx), node)
        return clone(value)
