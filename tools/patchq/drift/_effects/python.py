"""Restore the old text of Python functions that were rewritten without a change of their effect."""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from patchq.drift._effects.restored import NOTHING, RestoredLines, replaced
from patchq.drift._effects.trials import FunctionVersion, do_the_same
from patchq.drift._python.shape import FunctionNode, bound_names, walk
from patchq.drift.bodies import parse

#: Two spellings of one decorator.
_CACHE_OF_ANY_SIZE = ast.dump(ast.parse("functools.lru_cache(maxsize=None)", mode="eval").body)
_CACHE = ast.dump(ast.parse("functools.cache", mode="eval").body)
#: Node of a function by its qualified name.
_Functions = dict[str, FunctionNode]
#: Function that returns the old and the new content of the module from which a statement imports.
Imported = Callable[[ast.ImportFrom], tuple[bytes | None, bytes | None]]


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
    try:
        trees = ast.parse(old), ast.parse(new)
    except (SyntaxError, ValueError, RecursionError):
        return []
    texts = old.split(b"\n"), new.split(b"\n")
    functions = tuple(dict(_functions(tree.body, "")) for tree in trees)
    changed = {}
    for name, node in functions[1].items():
        before = functions[0].get(name)
        if before is not None and not _same_text(before, node, texts) and _same_signature(before, node):
            changed[name] = before
    if not changed:
        return []
    constants = tuple(_constants(tree) for tree in trees)
    only = [_lacking(constants[side], constants[1 - side], trees[1 - side]) for side in (0, 1)]
    bound = list(map(bound_names, trees))
    uneven: dict[str, set[str]] = {}
    for name, before in changed.items():
        calls = _calls_of(before), _calls_of(functions[1][name])
        uneven[name] = set((calls[0] - calls[1]) + (calls[1] - calls[0])).difference(patched)
    wanted = set().union(*uneven.values())
    others = []
    for side in (0, 1):
        kept_helpers = _same_functions(functions[side], functions[1 - side], texts[side], texts[1 - side])
        imported_helpers = _imported_helpers(trees[side], wanted, imported, side)
        others.append(kept_helpers | imported_helpers)
    for side in (0, 1):
        elsewhere = bound[1 - side].union(*map(_free_names, others[1 - side].values()))
        for name, value in _imports(trees[side]):
            if name not in elsewhere:
                only[side][name] = value
    same = {name: value for name, value in constants[0].items() if _is_equal(value, constants[1].get(name))}
    found = []
    used: set[str] = set()
    for name, before in changed.items():
        node = functions[1][name]
        mine = kept.get(name.rpartition(".")[2], ())
        if (bound_names(before) - bound_names(node)).intersection(mine):
            continue
        gone = _helpers(name, functions[0], functions[1])
        if any(helper.rpartition(".")[2] in patched and _calls(before, helper) for helper in gone):
            continue
        helpers = []
        for side in (0, 1):
            available = {helper: others[side][helper] for helper in uneven[name] & others[side].keys()}
            helpers.append(available | _helpers(name, functions[side], functions[1 - side]))
        known = _properties(name.rpartition(".")[0], functions, texts)
        # A constant that both versions mention is compared by its name: its value may change again.
        known |= {key: same[key] for key in _mentioned(before, same) ^ _mentioned(node, same)}
        versions = [
            FunctionVersion(one, helpers[side], {**only[side], **known}, mine)
            for side, one in enumerate((before, node))
        ]
        if not do_the_same(*versions):
            continue
        replaced = _body_lines(before), _body_lines(node)
        if None in replaced or before.col_offset != node.col_offset:
            continue
        (start, end), (first, last) = replaced[0] or (0, 0), replaced[1] or (0, 0)
        lines = texts[0][start - 1 : end]
        lines += _needed(before, gone, functions[0], texts[0], used)
        found.append(RestoredLines(first, last, tuple(lines)))
        used |= {helper for helper in helpers[1] if _calls(node, helper)}
        used |= _mentioned(node, constants[1].keys() - constants[0].keys())
    return [*found, *_unused(used, functions, texts, found, new), *_unused_constants(used, trees[1], found, new)]


def _functions(body: Sequence[ast.stmt], owner: str) -> Iterator[tuple[str, FunctionNode]]:
    for node in body:
        if isinstance(node, FunctionNode):
            yield owner + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _functions(node.body, owner)


@functools.lru_cache(maxsize=8)
def _every(tree: ast.Module) -> list[ast.AST]:
    return walk(tree)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of global names that are assigned once, to a constant, a dotted name or a tuple of these."""
    stored: Counter[str] = Counter()
    for node in _every(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, FunctionNode | ast.ClassDef):
            stored[node.name] += 1
        elif isinstance(node, ast.alias):
            stored[node.asname or node.name] += 1
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        target, value = None, None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        if isinstance(target, ast.Name) and value is not None and stored[target.id] == 1 and _is_fixed(value):
            found[target.id] = value
    return found


def _imports(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield each imported name with its full name, such as ``json.loads``."""
    for node in _every(tree):
        if isinstance(node, ast.ImportFrom):
            module = _module_of(node)
            for one in node.names:
                yield one.asname or one.name, _dotted([*module, one.name])
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.asname:
                    yield one.asname, _dotted(one.name.split("."))


def _full_names(tree: ast.Module) -> dict[str, str]:
    """Return the full names of all imported names of a module."""
    found = {}
    for node in _every(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                found[one.name] = one.name
    for name, value in _imports(tree):
        found[name] = ast.unparse(value)
    return found


def _calls_of(node: FunctionNode) -> Counter[str]:
    """Return how often a function calls each function by its name."""
    calls = (each.func for each in walk(node) if isinstance(each, ast.Call))
    return Counter(function.id for function in calls if isinstance(function, ast.Name))


def _same_functions(
    mine: _Functions, other: _Functions, text: list[bytes], other_text: list[bytes]
) -> dict[str, FunctionNode]:
    """Return the functions that both versions of a module have with the same text.

    Methods, and functions with another decorator than ``functools.cache``, are left out.
    """
    found = {}
    for name, node in mine.items():
        is_plain = "." not in name and all(ast.dump(one) == _CACHE for one in node.decorator_list)
        if is_plain and name in other and _same_text(node, other[name], (text, other_text)):
            found[name] = node
    return found


def _imported_helpers(tree: ast.Module, called: set[str], imported: Imported, side: int) -> dict[str, FunctionNode]:
    """Return the functions that a version of a file imports and that are new, or have the same text in both versions.

    :param called: names of the functions to look for.
    :param side: 0 for the old version, 1 for the new one.
    """
    found: dict[str, FunctionNode] = {}
    for node in _every(tree):
        if not isinstance(node, ast.ImportFrom) or not called & {one.asname or one.name for one in node.names}:
            continue
        contents = imported(node)
        mine, other = contents[side], contents[1 - side]
        module = parse(mine) if mine is not None else None
        if module is None:
            continue
        functions = dict(_functions(module.body, ""))
        theirs, here = _full_names(module), _full_names(tree)
        place = ast.unparse(_dotted(_module_of(node)))
        theirs |= {name: f"{place}.{name}" for name in functions}
        same = {each for each, full in theirs.items() if here.get(each, full) == full}
        for one in node.names:
            helper = functions.get(one.name)
            name = one.asname or one.name
            if helper is None or name not in called or (other is not None and not _is_same_in(helper, other)):
                continue
            if all(each in same or hasattr(builtins, each) for each in _free_names(helper)):
                found[name] = helper
    return found


def _free_names(node: FunctionNode) -> set[str]:
    """Return the names that a function takes from its module."""
    return {each.id for each in walk(node) if isinstance(each, ast.Name)} - bound_names(node)


def _is_same_in(helper: FunctionNode, source: bytes) -> bool:
    """Return whether a version of a module has the same function, or none of its name."""
    if f"def {helper.name}(".encode() not in source:
        return True
    other = parse(source)
    found = dict(_functions(other.body, "")).get(helper.name) if other is not None else None
    return found is not None and ast.dump(found) == ast.dump(helper)


def _module_of(node: ast.ImportFrom) -> list[str]:
    """Return the parts of a module's name; of a relative one, its dots are the first part."""
    return ["." * node.level] * bool(node.level) + (node.module or "").split(".") * bool(node.module)


def _dotted(names: Sequence[str]) -> ast.expr:
    found: ast.expr = ast.Name(names[0], ast.Load())
    for name in names[1:]:
        found = ast.Attribute(found, name, ast.Load())
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


def _lacking(mine: Mapping[str, ast.expr], other: Mapping[str, ast.expr], tree: ast.Module) -> dict[str, ast.expr]:
    """Return the constants in ``mine`` that the other version (``other`` and ``tree``) doesn't mention."""
    mentioned = {node.id for node in _every(tree) if isinstance(node, ast.Name)} | set(other)
    mentioned |= {node.asname or node.name for node in _every(tree) if isinstance(node, ast.alias)}
    return {name: value for name, value in mine.items() if name not in mentioned}


def _helpers(name: str, mine: _Functions, other: _Functions) -> dict[str, FunctionNode]:
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
    owner: str, functions: tuple[_Functions, ...], texts: tuple[list[bytes], list[bytes]]
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
    """Return whether two functions have the same parameters, defaults and decorators. Annotations don't count."""
    sides = []
    for node in (one, other):
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        names = [[each.arg for each in part] for part in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)]
        stars = [each.arg for each in (arguments.vararg, arguments.kwarg) if each]
        values = [*arguments.defaults, *arguments.kw_defaults, *node.decorator_list]
        dumps = [ast.dump(value).replace(_CACHE_OF_ANY_SIZE, _CACHE) for value in values if value]
        sides.append((type(node), len(every), names, stars, dumps))
    return sides[0] == sides[1]


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


def _calls(node: FunctionNode, helper: str) -> bool:
    return any(isinstance(call, ast.Call) and ast.unparse(call.func) == helper for call in walk(node))


def _needed(
    node: FunctionNode, helpers: Mapping[str, FunctionNode], mine: _Functions, text: list[bytes], used: set[str]
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
    functions: tuple[_Functions, ...],
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
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        if name in used and len(re.findall(rb"\b%s\b" % name.encode(), rest)) == 1:
            last = node.end_lineno or node.lineno
            yield RestoredLines(node.lineno, last, (b"",) * (last - node.lineno + 1))
