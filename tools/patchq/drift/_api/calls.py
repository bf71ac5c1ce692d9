"""Check of a Python file for calls of functions with changed signatures, and for removed names.

``judge_call`` decides if one call fits a changed signature.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence

from patchq.drift._api.signatures import Api, Signature, SignatureChange
from patchq.drift.alarms import Alarm
from patchq.drift.bodies import parse

#: Minimum :func:`likeness` to treat ``x.method(…)``, with an ``x`` of unknown class, as a call of a known method.
LIKENESS = 0.5


def scan_source(
    source: bytes, path: str, upstream: str, old: Api, changed: Sequence[SignatureChange], gone: frozenset[str]
) -> list[Alarm]:
    """Return the alarms for a Python file; empty if the file can't be parsed."""
    tree = parse(source)
    if tree is None:
        return []
    visitor = _Calls(path, upstream, old, changed, gone)
    with contextlib.suppress(RecursionError):  # from expressions with thousands of terms
        visitor.collect(tree)
        visitor.visit(tree)
    return visitor.found


class _Calls(ast.NodeVisitor):
    """Visitor that resolves the names in a file, and records an alarm for each affected call and removed name."""

    def __init__(
        self, path: str, upstream: str, old: Api, changed: Sequence[SignatureChange], gone: frozenset[str]
    ) -> None:
        self.path, self.upstream, self.old, self.gone = path, upstream, old, gone
        self.changed = {c.old.path: c for c in changed}
        wanted = {c.old.path.rsplit(".", 1)[1] for c in changed}
        # Include unchanged functions of the same name, because a call may fit their signatures better.
        self.by_name: dict[str, list[Signature]] = {}
        for path, signature in old.functions.items() if wanted else ():
            name = path.rsplit(".", 1)[1]
            if name in wanted:
                self.by_name.setdefault(name, []).append(signature)
        self.imported: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self.literals: dict[tuple[str, str], ast.Dict | None] = {}
        self.scopes: list[str] = []
        self.found: list[Alarm] = []

    def collect(self, tree: ast.Module) -> None:
        """Record the imports from the package, and the variables that hold instances of its classes."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._record_import(node)
            elif isinstance(node, ast.ImportFrom):
                self._record_import_from(node)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                self._record_instance(node.targets, node.value)
            elif isinstance(node, ast.AnnAssign):
                self._record_instance([node.target], node.value)

    def _record_import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] != self.old.package:
                continue
            if alias.asname:
                self.imported[alias.asname] = alias.name
            else:
                self.imported[self.old.package] = self.old.package

    def _record_import_from(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module or node.module.split(".")[0] != self.old.package:
            return
        for alias in node.names:
            self.imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def _record_instance(self, targets: Sequence[ast.expr], value: ast.expr | None) -> None:
        """Record the assigned variables if the value is an instance of a class of the package."""
        if not isinstance(value, ast.Call):
            return
        made = self._resolve(value.func)
        if made in self.old.aliases and self.old.aliases[made] not in self.old.functions:
            for target in targets:
                self.instances[ast.unparse(target)] = self.old.aliases[made]

    def _resolve(self, node: ast.expr) -> str:
        """Return the dotted path of an expression that names an object of the package; empty for other expressions."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.imported:
            return ".".join([self.imported[node.id], *reversed(parts)])
        return ""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.scopes.append(node.name)
        self.generic_visit(node)
        self.scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_ClassDef = visit_FunctionDef

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level and node.module.split(".")[0] == self.old.package:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in self.gone or node.module in self.gone:
                    self._alarm("removed name", node.lineno, full, f"{full} is gone")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full = self._resolve(node)
        if full in self.gone:
            self._alarm("removed name", node.lineno, full, f"{full} is gone")
        self.generic_visit(node)

    def _alarm(self, kind: str, line: int, callee: str, message: str, call: str = "", fits: bool = False) -> None:
        function = ".".join(self.scopes) or "<module>"
        alarm = Alarm(
            kind=kind,
            upstream=self.upstream,
            path=self.path,
            line=line,
            function=function,
            callee=callee,
            message=message,
            call=call,
            fits=fits,
        )
        self.found.append(alarm)

    def _with_literal_keywords(self, node: ast.Call) -> ast.Call:
        """Return a call with ``**name`` expanded, if the calling function assigns a dict literal to ``name`` once."""
        keywords: list[ast.keyword] = []
        for keyword in node.keywords:
            literal = None
            if isinstance(keyword.value, ast.Name):
                literal = self.literals.get((self._scope(), keyword.value.id))
            if keyword.arg is not None or literal is None:
                keywords.append(keyword)
                continue
            for key, value in zip(literal.keys, literal.values, strict=True):
                assert isinstance(key, ast.Constant)
                keywords.append(ast.keyword(str(key.value), value))
        spelled = ast.Call(node.func, node.args, keywords)
        return ast.copy_location(spelled, node)

    def _scope(self) -> str:
        return ".".join(self.scopes)

    def visit_Assign(self, node: ast.Assign) -> None:
        name = ""
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        if name:
            place = (self._scope(), name)
            literal = None
            if isinstance(node.value, ast.Dict):
                literal = node.value
            if literal and not all(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in literal.keys):
                literal = None
            # A second assignment makes the value unknown.
            if place not in self.literals:
                self.literals[place] = literal
            else:
                self.literals[place] = None
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        node = self._with_literal_keywords(node)
        change = self._callee(node)
        if change is not None:
            for kind, message in judge_call(node, change):
                keywords = {k.arg for k in node.keywords if k.arg}
                fits = change.new.accepts(len(node.args), keywords)
                self._alarm(kind, node.lineno, change.old.path, message, ast.unparse(node), fits)

    def _callee(self, node: ast.Call) -> SignatureChange | None:
        full = self._resolve(node.func)
        if full:
            target = self.old.aliases.get(full, full)
            return self.changed.get(target) or self.changed.get(f"{target}.__init__")
        if not isinstance(node.func, ast.Attribute):
            return None
        held = self.instances.get(ast.unparse(node.func.value))
        if held:
            return self.changed.get(f"{held}.{node.func.attr}")
        candidates = self.by_name.get(node.func.attr, ())
        best = max(candidates, key=lambda c: (likeness(node, c), c.path in self.changed), default=None)
        if best is not None and likeness(node, best) >= LIKENESS:
            return self.changed.get(best.path)
        return None


def likeness(node: ast.Call, signature: Signature) -> float:
    """Return the similarity of a call to a signature, from 0 to 1.

    It is the share of arguments that are named like their parameters. It is 0 if the signature doesn't accept the call,
    or if fewer than three arguments are named like their parameters.
    """
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return 0.0
    keywords = {k.arg for k in node.keywords if k.arg}
    if not signature.accepts(len(node.args), keywords):
        return 0.0
    pairs = list(zip(node.args, signature.positional, strict=False))
    alike = sum(_named_like(a, p.name) for a, p in pairs) + len(keywords)
    total = len(node.args) + len(keywords)
    if alike >= 3:
        return alike / total
    return 0.0


def _named_like(node: ast.expr, name: str) -> bool:
    own = ""
    if isinstance(node, ast.Attribute):
        own = node.attr
    elif isinstance(node, ast.Name):
        own = node.id
    own, name = own.strip("_"), name.strip("_")
    return bool(own) and (own == name or own.startswith(name + "_") or own.endswith("_" + name))


def judge_call(node: ast.Call, change: SignatureChange) -> Iterator[tuple[str, str]]:
    """Yield the kind and message of each problem that a new signature causes for a call.

    Yield nothing if the old signature doesn't accept the call, or if the call contains ``*args`` or ``**kwargs``.
    """
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return
    old, new = change.old, change.new
    count, keywords = len(node.args), {k.arg for k in node.keywords if k.arg}
    if not old.accepts(count, keywords):
        return
    before, after = [p.name for p in old.positional], [p.name for p in new.positional]
    shifted = _shifted(count, old, new)
    if shifted:
        first = shifted[0]
        lands = "nothing"
        if first < len(after):
            lands = after[first]
        yield (
            "positional shift",
            (
                f"argument {first + 1} ({ast.unparse(node.args[first])}) was {before[first]}, is now {lands}; "
                f"{len(shifted)} arguments are bound to other parameters"
            ),
        )
    unknown = _unknown(keywords, old, new)
    if unknown:
        yield "unknown keyword", f"{', '.join(unknown)} is no longer a parameter"
    missing = _missing(set(after[:count]) | keywords, new)
    if missing and not shifted and not unknown:
        yield "missing argument", f"{', '.join(missing)} must now be passed"
    for name, was, now in _changed_defaults(set(before[:count]) | keywords, old, new):
        yield "changed default", f"{name} was {was}, is now {now}"


def _shifted(count: int, old: Signature, new: Signature) -> list[int]:
    """Return the indices of the positional arguments that another parameter now receives."""
    before, after = [p.name for p in old.positional], [p.name for p in new.positional]
    found = []
    for i in range(min(count, len(before))):
        same = i < len(after) and before[i] == after[i]
        if not same and not _just_renamed(i, old, new):
            found.append(i)
    return found


def _unknown(keywords: set[str], old: Signature, new: Signature) -> list[str]:
    """Return the keywords that the new signature no longer accepts."""
    found = []
    for name in sorted(keywords):
        if old.find(name) and new.find(name) is None and not new.takes("variadic keyword"):
            found.append(name)
    return found


def _missing(given: set[str], new: Signature) -> list[str]:
    """Return the required parameters that a call doesn't pass."""
    found = []
    for p in new.parameters:
        if p.default is None and not p.kind.startswith("variadic") and p.name not in given:
            found.append(p.name)
    return found


def _changed_defaults(given: set[str], old: Signature, new: Signature) -> Iterator[tuple[str, str, str]]:
    """Yield each parameter that a call doesn't pass and whose default changed: its name, old and new default."""
    for p in old.parameters:
        if p.name in given or p.default is None:
            continue
        now = next((q for q in new.parameters if q.name == p.name), None)
        if now and now.default is not None and now.default != p.default:
            yield p.name, p.default, now.default


def _just_renamed(index: int, old: Signature, new: Signature) -> bool:
    """Return whether a parameter only has a new name. Positional arguments aren't affected then."""
    before, after = old.positional, new.positional
    if index >= len(after) or len(before) != len(after):
        return False
    return before[index].name not in {p.name for p in after} and after[index].name not in {p.name for p in before}
