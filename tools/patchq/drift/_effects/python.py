"""Restore the old text of Python functions that were rewritten without a change of their effect."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from patchq.drift._effects.modules import (
    Functions,
    Imported,
    ModuleVersion,
    free_names,
    have_other_meanings,
    read_module,
)
from patchq.drift._effects.restored import NOTHING, RestoredLines, replaced
from patchq.drift._effects.trials import FunctionVersion, do_the_same
from patchq.drift._python.shape import FunctionNode, bound_names, names_in, walk

#: Two spellings of one decorator.
_CACHE_OF_ANY_SIZE = ast.dump(ast.parse("functools.lru_cache(maxsize=None)", mode="eval").body)
_CACHE = ast.dump(ast.parse("functools.cache", mode="eval").body)


def restore_python(
    old: bytes,
    new: bytes,
    kept: Mapping[str, Collection[str]] = NOTHING,
    imported: Imported = lambda node: (None, None),
    patched: Collection[str] = (),
) -> list[RestoredLines]:
    """Return the replacements in the new file that give functions with an unchanged effect their old bodies.

    If the new version split a part off into a new function, the replacements also remove the new function. If the new
    version moved a function's body into its callers, the replacements put the old function back.

    :param kept: for each function that patches change, by its last name, the words that they add to it. It isn't
        restored if its new version has lost a local variable with such a name.
    :param imported: function that returns the old and the new content of the module from which a statement imports.
    :param patched: names of functions that patches change or mention. They aren't taken for the code that they have in
        upstream, and aren't put back.
    """
    sides = read_module(old), read_module(new)
    if sides[0] is None or sides[1] is None:
        return []
    return _Restoration((sides[0], sides[1]), kept, imported, set(patched)).lines(new)


class _Restoration:
    """Comparison of the functions of two versions of a module.

    The parameters are those of :func:`restore_python`.
    """

    def __init__(
        self,
        modules: tuple[ModuleVersion, ModuleVersion],
        kept: Mapping[str, Collection[str]],
        imported: Imported,
        patched: set[str],
    ) -> None:
        self.modules, self.kept, self.patched = modules, kept, patched
        self.functions = modules[0].functions, modules[1].functions
        self.texts = modules[0].lines, modules[1].lines
        #: Old versions of the functions whose text has changed, by their names.
        self.changed: dict[str, FunctionNode] = {}
        #: Functions that one version of a changed function calls more often than the other.
        self.uneven: dict[str, set[str]] = {}
        for name, node in modules[1].functions.items():
            before = modules[0].functions.get(name)
            if before is not None and not _same_text(before, node, self.texts) and _same_signature(before, node):
                calls = _calls_of(before), _calls_of(node)
                self.changed[name] = before
                self.uneven[name] = set((calls[0] - calls[1]) + (calls[1] - calls[0])) - patched
        self.constants = tuple(map(_constants, modules))
        #: What each name stands for that only one version has.
        self.only = [_lacking(self.constants[side], self.constants[1 - side], modules[1 - side]) for side in (0, 1)]
        wanted = set().union(*self.uneven.values())
        self.others = []
        for side in (0, 1):
            found = modules[side].same_functions(modules[1 - side])
            self.others.append(found | modules[side].imported_helpers(wanted, imported, side))
        for side in (0, 1):
            elsewhere = modules[1 - side].bound.union(*map(free_names, self.others[1 - side].values()))
            for name, value in modules[side].imports().items():
                if name not in elsewhere:
                    self.only[side][name] = value

    def lines(self, new: bytes) -> list[RestoredLines]:
        """Return the replacements in the new file."""
        found = []
        #: Names of helpers and constants that the replaced functions use.
        used: set[str] = set()
        for name, before in self.changed.items():
            node = self.functions[1][name]
            gone = self._helpers(name, 0)
            replaced = _body_lines(before), _body_lines(node)
            if None in replaced or before.col_offset != node.col_offset or not self._is_same(name, gone):
                continue
            (start, end), (first, last) = replaced[0] or (0, 0), replaced[1] or (0, 0)
            lines = self.texts[0][start - 1 : end]
            lines += _needed(before, gone, self.functions[0], self.texts[0], used)
            found.append(RestoredLines(first, last, tuple(lines)))
            used |= {helper for helper in self._available(name, 1) if _calls(node, helper)}
            used |= _mentioned(node, self.constants[1].keys() - self.constants[0].keys())
        unused = _unused(used, self.functions, self.texts, found, new)
        return [*found, *unused, *_unused_constants(used, self.modules[1].tree, found, new)]

    def _is_same(self, name: str, gone: Mapping[str, FunctionNode]) -> bool:
        """Return whether both versions of a function do the same.

        :param gone: functions that only the old version of the module has, and that the function can call.
        """
        functions = before, node = self.changed[name], self.functions[1][name]
        mine = self.kept.get(name.rpartition(".")[2], ())
        if (bound_names(before) - bound_names(node)).intersection(mine):
            return False
        if any(helper.rpartition(".")[2] in self.patched and _calls(before, helper) for helper in gone):
            return False
        if have_other_meanings(self.modules, functions):
            return False
        known = _properties(name.rpartition(".")[0], self.functions, self.texts)
        same = {key: value for key, value in self.constants[0].items() if _is_equal(value, self.constants[1].get(key))}
        # A constant that both versions mention is compared by its name: its value may change again.
        known |= {key: same[key] for key in _mentioned(before, same) ^ _mentioned(node, same)}
        versions = []
        for side, function in enumerate(functions):
            version = FunctionVersion(function, self._available(name, side), {**self.only[side], **known}, mine)
            version.variables = self.modules[side].variables
            versions.append(version)
        return do_the_same(*versions)

    def _available(self, name: str, side: int) -> Functions:
        """Return the functions that a version of a function can call, and whose code stands for the call."""
        others = self.others[side]
        return {helper: others[helper] for helper in self.uneven[name] & others.keys()} | self._helpers(name, side)

    def _helpers(self, name: str, side: int) -> Functions:
        mine = dict(self.functions[side])
        for key in self.functions[side]:
            if not self.modules[side].is_single(key):
                del mine[key]
        return _helpers(name, mine, self.functions[1 - side])


def _constants(module: ModuleVersion) -> dict[str, ast.expr]:
    """Return the values of global names that are assigned once, to a constant, a dotted name or a tuple of these."""
    stored: Counter[str] = Counter()
    for node in module.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, FunctionNode | ast.ClassDef):
            stored[node.name] += 1
        elif isinstance(node, ast.alias):
            stored[node.asname or node.name] += 1
    found: dict[str, ast.expr] = {}
    for node in module.tree.body:
        target, value = None, None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        if isinstance(target, ast.Name) and value is not None and stored[target.id] == 1 and _is_fixed(value):
            found[target.id] = value
    return found


def _is_fixed(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return all(map(_is_fixed, value.elts))
    if isinstance(value, ast.Attribute):
        # A member of an enumeration.
        return isinstance(value.value, ast.Name) and value.value.id[:1].isupper()
    return all(isinstance(node, ast.Constant | ast.UnaryOp | ast.USub) for node in walk(value))


def _is_equal(one: ast.expr, other: ast.expr | None) -> bool:
    return other is not None and ast.dump(one) == ast.dump(other)


def _mentioned(node: ast.AST, names: Collection[str]) -> set[str]:
    return {each.id for each in walk(node) if isinstance(each, ast.Name) and each.id in names}


def _lacking(mine: Mapping[str, ast.expr], other: Mapping[str, ast.expr], module: ModuleVersion) -> dict[str, ast.expr]:
    """Return the constants in ``mine`` that the other version (``other`` and ``module``) doesn't mention."""
    mentioned = names_in(module.tree) | module.bound | set(other)
    return {name: value for name, value in mine.items() if name not in mentioned}


def _helpers(name: str, mine: Functions, other: Functions) -> dict[str, FunctionNode]:
    """Return the functions that only ``mine`` has, by the names under which the function ``name`` can call them.

    The names are ``f`` for a function, and ``self.f``, ``cls.f`` and ``Owner.f`` for a method of the same class.
    """
    owner = name.rpartition(".")[0]
    found: dict[str, FunctionNode] = {}
    for helper, node in mine.items():
        if helper in other or helper == name:
            continue
        place, _, short = helper.rpartition(".")
        if not place:
            found[short] = node
        elif place == owner:
            found |= {f"self.{short}": node, f"cls.{short}": node, f"{place}.{short}": node}
    return found


def _properties(
    owner: str, functions: tuple[Functions, ...], texts: tuple[list[bytes], list[bytes]]
) -> dict[str, ast.expr]:
    """Return the expressions that a class's unchanged properties return: ``{"self.size": <expression>}``.

    Omit a property that another class of the file also defines, because that class may be a subclass.
    """
    found: dict[str, ast.expr] = {}
    if not owner:
        return found
    names = Counter(name.rpartition(".")[2] for name in functions[1])
    for name, node in functions[1].items():
        place, _, short = name.rpartition(".")
        before = functions[0].get(name)
        if place != owner or names[short] > 1 or before is None or not node.decorator_list:
            continue
        last = node.body[-1]
        header = [ast.unparse(one) for one in (*node.decorator_list, node.args)]
        is_simple = header == ["property", "self"] and _is_described(node.body[:-1])
        if is_simple and _same_text(before, node, texts) and isinstance(last, ast.Return) and last.value:
            found[f"self.{short}"] = last.value
    return found


def _is_described(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block is empty or consists only of a docstring."""
    return not body or (len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))


def _same_text(one: FunctionNode, other: FunctionNode, texts: tuple[list[bytes], list[bytes]]) -> bool:
    sides = []
    for node, lines in zip((one, other), texts, strict=True):
        sides.append(lines[node.lineno - 1 : node.end_lineno])
    return sides[0] == sides[1]


def _same_signature(one: FunctionNode, other: FunctionNode) -> bool:
    """Return whether two functions have the same parameters, defaults and decorators.

    Annotations don't count, except those of Triton's constants.
    """
    sides = []
    for node in (one, other):
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        names = [[each.arg for each in part] for part in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)]
        stars = [each.arg for each in (arguments.vararg, arguments.kwarg) if each]
        values = [*arguments.defaults, *arguments.kw_defaults, *node.decorator_list]
        dumps = [ast.dump(value).replace(_CACHE_OF_ANY_SIZE, _CACHE) for value in values if value]
        fixed = [ast.dump(one) for one in walk(node) if isinstance(one, ast.arg | ast.AnnAssign) and _is_constexpr(one)]
        sides.append((type(node), len(every), names, stars, dumps, fixed))
    return sides[0] == sides[1]


def _is_constexpr(node: ast.arg | ast.AnnAssign) -> bool:
    return node.annotation is not None and "constexpr" in ast.unparse(node.annotation)


def _body_lines(node: FunctionNode) -> tuple[int, int] | None:
    """Return the first and last line of a function's body; None if the body begins on the line of the header."""
    first = node.body[0]
    decorators = getattr(first, "decorator_list", [])
    start = min([first.lineno, *(one.lineno for one in decorators)])
    header = max(
        [node.lineno, *(one.end_lineno or 0 for one in ast.walk(node.args) if isinstance(one, ast.expr | ast.arg))]
    )
    if node.returns:
        header = max(header, node.returns.end_lineno or 0)
    if start <= header:
        return None
    return start, node.end_lineno or start


def _calls_of(node: FunctionNode) -> Counter[str]:
    """Return how often a function calls each function by its name."""
    found: Counter[str] = Counter()
    for each in walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            found[each.func.id] += 1
    return found


def _calls(node: FunctionNode, helper: str) -> bool:
    return any(isinstance(call, ast.Call) and ast.unparse(call.func) == helper for call in walk(node))


def _needed(
    node: FunctionNode, helpers: Mapping[str, FunctionNode], mine: Functions, text: list[bytes], used: set[str]
) -> list[bytes]:
    """Return the lines of old helpers that must be put back because the old body of ``node`` calls them.

    :param used: names of helpers that have already been put back. The names of the returned helpers are added.
    """
    lines: list[bytes] = []
    for name, helper in helpers.items():
        if _calls(node, name) and name not in used:
            used.add(name)
            first = min([helper.lineno, *(one.lineno for one in helper.decorator_list)])
            lines += [b"", *text[first - 1 : helper.end_lineno]]
    return lines


def _unused(
    used: set[str],
    functions: tuple[Functions, ...],
    texts: tuple[list[bytes], list[bytes]],
    done: Sequence[RestoredLines],
    new: bytes,
) -> Iterator[RestoredLines]:
    """Yield blank lines in place of each new helper that nothing calls after the replacements in ``done``."""
    rest, _ = replaced(new, done)
    for name, helper in functions[1].items():
        short = name.rpartition(".")[2]
        if name in functions[0] or not any(one.rpartition(".")[2] == short for one in used):
            continue
        if rest.count(short.encode()) == 1:
            first = min([helper.lineno, *(one.lineno for one in helper.decorator_list)])
            last = helper.end_lineno or first
            yield RestoredLines(first, last, (b"",) * (last - first + 1))


def _unused_constants(
    used: set[str], tree: ast.Module, done: Sequence[RestoredLines], new: bytes
) -> Iterator[RestoredLines]:
    """Yield blank lines in place of each new constant that nothing mentions after the replacements in ``done``."""
    rest, _ = replaced(new, done)
    for node in tree.body:
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
        elif isinstance(node, ast.AnnAssign):
            name = ast.unparse(node.target)
        else:
            continue
        if name in used and len(re.findall(rb"\b%s\b" % name.encode(), rest)) == 1:
            last = node.end_lineno or node.lineno
            yield RestoredLines(node.lineno, last, (b"",) * (last - node.lineno + 1))
