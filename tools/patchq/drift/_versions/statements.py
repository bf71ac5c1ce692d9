"""Statements of Python, C++ and CUDA files, each with the names that it contains, except local variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from patchq.drift._cpp import facts as cpp_facts
from patchq.drift._cpp.facts import CppFile
from patchq.drift._python.facts import PythonFile
from patchq.drift._python.shape import FunctionNode, bound_names, clone, dump_of, reports, walk

#: Word of a string that may be the name of a macro, an option or a registered object.
_NAME = re.compile(r"[A-Za-z]\w*_\w+")
_WORD = re.compile(r"[A-Za-z_]\w{3,}")
#: Minimum length of a string that counts as a message. Messages are compared like names.
_MESSAGE = 30
#: Number of characters at the start of a message by which it is recognized.
_START = 40
#: Minimum length of ``a.b``, without the dot, to count as distinctive.
_CHAIN = 10
#: Minimum length of a lower-case name without ``_`` to count as distinctive.
_LONG = 9
_HEADERS = ("test", "iter", "target", "items", "subject")
_BLOCKS = ("body", "orelse", "finalbody")
_TABLES = ast.Dict | ast.List | ast.Set | ast.Tuple


class Statement:
    """Simple statement, header of a compound statement or definition, or entry of a list or dictionary.

    :ivar line: first line; ``last``: last line.
    :ivar scope: function or class that contains the statement; empty at module level.
    :ivar text: normalized source without comments and messages, with ``%`` in place of each local variable.
    :ivar words: distinctive names except local variables, and the starts of messages.
    :ivar sets: names that the statement defines or assigns.
    :ivar shown: source on one line, shortened if it is long.
    :ivar raw: in C++, the text with the real names of local variables; ``local``: these names.
    """

    raw = ""
    local: frozenset[str] = frozenset()
    words: frozenset[str]
    sets: frozenset[str]
    text: str
    shown: str

    def __init__(self, line: int, last: int, scope: str) -> None:
        self.line, self.last, self.scope = line, last, scope


class _PythonStatement(Statement):
    """Python statement whose text and words are computed when needed."""

    def __init__(
        self,
        node: ast.AST,
        parts: Sequence[ast.AST],
        span: tuple[int, int],
        scope: str,
        local: frozenset[str],
        names: Iterable[str],
        shown: Iterable[str],
    ) -> None:
        super().__init__(*span, scope)
        self._node, self._parts, self._local = node, parts, local
        self._names, self._shown = names, shown

    @cached_property
    def _both(self) -> tuple[frozenset[str], frozenset[str]]:
        sets = {name for name in self._names if is_distinctive(name)}
        words = sets | set(self._shown)
        for part in self._parts:
            words |= _words(part, self._local)
            sets |= _stored(part) & words
        return frozenset(words), frozenset(sets)

    @property
    def words(self) -> frozenset[str]:  # type: ignore[override]
        return self._both[0]

    @property
    def sets(self) -> frozenset[str]:  # type: ignore[override]
        return self._both[1]

    @cached_property
    def text(self) -> str:  # type: ignore[override]
        kind = "Assign" if isinstance(self._node, ast.AnnAssign) else type(self._node).__name__
        return f"{kind} {' '.join(sorted(self._names))} " + " ".join(_masked(p, self._local) for p in self._parts)

    @cached_property
    def shown(self) -> str:  # type: ignore[override]
        return _source(self._node, self._parts)


class _CppStatement(Statement):
    """C++ statement whose text and words are computed when needed.

    :param parts: nodes of the statement, without those of the statements in it.
    :param function: innermost function that contains the statement.
    """

    def __init__(self, file: CppFile, node: Any, parts: Sequence[Any], scope: str, function: Any) -> None:
        last = max([node.start_point[0], *(part.end_point[0] for part in parts)])
        super().__init__(node.start_point[0] + 1, last + 1, scope)
        self._file, self._node, self._parts, self._function = file, node, parts, function

    @cached_property
    def _tokens(self) -> list[str]:
        tokens: list[str] = []
        for part in self._parts:
            tokens += cpp_facts.tokens_of(self._file, part)
        return _without_casts(tokens)

    @cached_property
    def _names(self) -> frozenset[str]:
        """Local variables of the function, and parameters that the statement declares."""
        declares = self._node.type in ("declaration", "field_declaration") and _declares_function(self._node)
        nodes = [self._function, self._node if declares else None]
        return frozenset().union(*(cpp_facts.local_names(self._file, node) for node in nodes if node is not None))

    @cached_property
    def text(self) -> str:  # type: ignore[override]
        tokens = ("%" if token in self._names else token for token in self._tokens if token not in ("(", ")"))
        return f"{self._node.type} {' '.join(tokens)}"

    @cached_property
    def words(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(token for token in self._tokens if token not in self._names and is_distinctive(token))

    @cached_property
    def sets(self) -> frozenset[str]:  # type: ignore[override]
        return self.words & _assigned(self._file, self._node, self._parts)

    @property
    def shown(self) -> str:  # type: ignore[override]
        return _on_one_line(" ".join(self._file.text(part) for part in self._parts))

    @property
    def raw(self) -> str:  # type: ignore[override]
        return " ".join(self._tokens)

    @property
    def local(self) -> frozenset[str]:  # type: ignore[override]
        return self._names.intersection(self._tokens)


class _MacroLine(Statement):
    """Line of a macro's definition."""

    def __init__(self, line: int, scope: str, text: str) -> None:
        super().__init__(line, line, scope)
        self.text = self.shown = text
        self.words = self.sets = frozenset(word for word in _WORD.findall(text) if is_distinctive(word))


def on_lines(statements: Iterable[Statement], lines: Collection[int]) -> list[Statement]:
    """Return the statements that contain at least one of the given lines."""
    found = []
    for statement in statements if lines else ():
        if any(line in lines for line in range(statement.line, statement.last + 1)):
            found.append(statement)
    return found


def python_statements(file: PythonFile) -> list[Statement]:
    """Return the statements of a Python file."""
    reader = _PythonReader()
    reader.block(file.tree.body if file.tree else (), "", frozenset())
    return reader.found


def _on_one_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


class _PythonReader:
    """Collector of the statements of one Python file."""

    def __init__(self) -> None:
        self.found: list[Statement] = []

    def block(self, body: Iterable[ast.stmt], scope: str, local: frozenset[str]) -> None:
        for node in body:
            if isinstance(node, FunctionNode | ast.ClassDef):
                self._definition(node, scope, local)
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                self._statement(node, scope, local)

    def _definition(self, node: FunctionNode | ast.ClassDef, scope: str, local: frozenset[str]) -> None:
        name = f"{scope}.{node.name}" if scope else node.name
        inside = local
        parts: list[ast.AST] = [*node.decorator_list]
        names = {node.name}
        shown: set[str] = set()
        if isinstance(node, FunctionNode):
            inside = local | (bound_names(node) - _imported(node))
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                shown |= _words(argument.annotation, local) if argument.annotation else set()
            for default in (*arguments.defaults, *arguments.kw_defaults):
                shown |= _words(default, local) if default else set()
        else:
            parts += node.bases
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        last = max(first, node.body[0].lineno - 1)
        self._add(node, parts, (first, last), name, local, names, shown)
        self.block(node.body, name, inside)

    def _statement(self, node: ast.stmt, scope: str, local: frozenset[str]) -> None:
        blocks = [block for name in _BLOCKS if (block := getattr(node, name, None))]
        handlers = getattr(node, "handlers", None) or getattr(node, "cases", None) or []
        if not blocks and not handlers:
            self._simple(node, scope, local)
            return
        heads: list[ast.AST] = []
        for name in _HEADERS:
            head = getattr(node, name, None)
            heads += head if isinstance(head, list) else [head] if head is not None else []
        last = max([node.lineno, *(getattr(head, "end_lineno", None) or 0 for head in heads)])
        self._add(node, heads, (node.lineno, last), scope, local)
        for block in blocks:
            self.block(block, scope, local)
        for handler in handlers:
            self.block(handler.body, scope, local)

    def _simple(self, node: ast.stmt, scope: str, local: frozenset[str]) -> None:
        value = getattr(node, "value", None)
        span = (node.lineno, node.end_lineno or node.lineno)
        if isinstance(node, ast.Expr) and isinstance(value, ast.Constant):
            return
        if isinstance(value, _TABLES) and _elements(value):
            for entry in _elements(value):
                first = min(part.lineno for part in entry)
                last = max(part.end_lineno or part.lineno for part in entry)
                self._add(node, list(entry), (first, last), scope, local)
            return
        self._add(node, [node], span, scope, local)

    def _add(
        self,
        node: ast.AST,
        parts: Sequence[ast.AST],
        span: tuple[int, int],
        scope: str,
        local: frozenset[str],
        names: Iterable[str] = (),
        shown: Iterable[str] = (),
    ) -> None:
        self.found.append(_PythonStatement(node, parts, span, scope, local, names, shown))


def _source(node: ast.AST, parts: Sequence[ast.AST]) -> str:
    """Return the source of a statement, or of a compound statement's header, on one line."""
    if isinstance(node, FunctionNode | ast.ClassDef):
        return f"{'class' if isinstance(node, ast.ClassDef) else 'def'} {node.name}"
    return _on_one_line(" ".join(map(ast.unparse, parts)))


def is_distinctive(word: str) -> bool:
    """Return whether a name is unlikely to mean something else in another place.

    >>> [is_distinctive(word) for word in ("window_left", "FIPrefill", "findall", "__init__")]
    [True, True, False, False]
    """
    if not _WORD.fullmatch(word) or word.startswith("__"):
        return False
    return len(word) >= _LONG or not word.islower() or "_" in word.strip("_")


def names_in(word: str) -> list[str]:
    """Return the names in a statement's word, which may be a chain ``a.b`` or the start of a message."""
    return re.findall(r"\w+", word.rpartition(" ")[0] if " " in word else word)


def _stored(node: ast.AST) -> set[str]:
    """Return the names and attributes that a part of a statement assigns, and macros that ``"-DNAME"`` defines."""
    found = set()
    for child in walk(node):
        if isinstance(child, ast.Attribute | ast.Name) and isinstance(child.ctx, ast.Store):
            found.add(child.attr if isinstance(child, ast.Attribute) else child.id)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value.startswith("-D"):
            found |= _string_words(child.value)  # the definition of a macro
    return found


def _imported(node: ast.AST) -> set[str]:
    """Return the names that the import statements in a function bind."""
    found = set()
    for child in walk(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for alias in child.names:
                found.add(alias.asname or alias.name.partition(".")[0])
    return found


def _elements(node: ast.expr) -> list[list[ast.expr]]:
    """Return the elements of a list, tuple or set, or the pairs of a dict."""
    if isinstance(node, ast.Dict):
        return [[part for part in pair if part] for pair in zip(node.keys, node.values, strict=True)]
    return [[element] for element in getattr(node, "elts", ())]


def _words(node: ast.AST, local: frozenset[str]) -> set[str]:
    found: set[str] = set()
    for child in walk(node):
        if isinstance(child, ast.Attribute):
            found.add(child.attr)
            owner = child.value
            above = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if above and above not in local and len(above) + len(child.attr) >= _CHAIN:
                found.add(f"{above}.{child.attr}")
        elif isinstance(child, ast.Name) and child.id not in local:
            found.add(child.id)
        elif isinstance(child, ast.keyword) and child.arg:
            found.add(child.arg)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            found |= _string_words(child.value)
    return {word for word in found if is_distinctive(word) or " " in word or "." in word}


def _string_words(text: str) -> set[str]:
    """Return the names in a string and, if the string is a message, its first characters."""
    found = set(_NAME.findall(text.removeprefix("-D")))
    if _WORD.fullmatch(text):
        found.add(text)
    if len(text) >= _MESSAGE and " " in text:
        found.add(text[:_START])
    return found


class _Masked(ast.NodeTransformer):
    """Transformer that replaces each local variable by ``%``."""

    def __init__(self, local: frozenset[str]) -> None:
        self.local = local

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("%", ast.Load()) if node.id in self.local else node


def _masked(node: ast.AST, local: frozenset[str]) -> str:
    """Return the normalized source of a part of a statement, with ``%`` in place of each local variable."""
    value = getattr(node, "value", None)
    if isinstance(node, ast.Expr) and isinstance(value, ast.Call) and reports(value.func):
        return "report"
    if isinstance(node, ast.AnnAssign):
        node = ast.Assign([node.target], node.value or ast.Constant(None), lineno=0)
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        node = ast.Raise(node.exc.func)
    return dump_of(_Masked(local).visit(clone(node)))


#: Nodes of C++ that contain other statements or definitions.
_CONTAINERS = {
    "translation_unit",
    "namespace_definition",
    "declaration_list",
    "field_declaration_list",
    "compound_statement",
    "template_declaration",
    "linkage_specification",
    "preproc_if",
    "preproc_ifdef",
    "preproc_else",
    "preproc_elif",
    "preproc_elifdef",
    "enumerator_list",
    "else_clause",
    "case_statement",
}
_COMPOUND = {"if_statement", "for_statement", "while_statement", "for_range_loop", "do_statement", "switch_statement"}
_CLASSES = {"struct_specifier", "class_specifier", "union_specifier", "enum_specifier"}
_IDLE_NODES = {"comment", "preproc_include", "using_declaration", "access_specifier", ";", "{", "}", ":"}


def cpp_statements(file: CppFile) -> list[Statement]:
    """Return the statements of a C++ or CUDA file."""
    found: list[Statement] = []
    waiting: list[tuple[Any, str, Any]] = [(file.root, "", None)]
    while waiting:
        node, scope, function = waiting.pop()
        if node.type in _CONTAINERS:
            condition = node.child_by_field_name("name") or node.child_by_field_name("condition")
            if condition is not None and node.type.startswith("preproc"):
                found.append(_CppStatement(file, node, [condition], scope, function))
            waiting += [(child, scope, function) for child in node.named_children]
        elif node.type in _IDLE_NODES:
            continue
        elif node.type == "function_definition":
            body = node.child_by_field_name("body")
            name = file.function_at(node.start_point[0] + 1)[0] or scope
            heads = [c for c in node.children if c != body and c.type != "field_initializer_list"]
            found.append(_CppStatement(file, node, heads, name, node))
            for child in node.children:
                if child.type == "field_initializer_list":
                    found += [_CppStatement(file, each, [each], name, node) for each in child.named_children]
            if body is not None:
                waiting.append((body, name, node))
        elif node.type in _CLASSES and node.child_by_field_name("body") is not None:
            body = node.child_by_field_name("body")
            found.append(_CppStatement(file, node, [c for c in node.children if c != body], scope, function))
            waiting.append((body, scope, function))
        elif node.type in _COMPOUND:
            inner = [c for c in node.named_children if c.type.endswith(("statement", "else_clause"))]
            found.append(_CppStatement(file, node, [c for c in node.children if c not in inner], scope, function))
            waiting += [(child, scope, function) for child in inner]
        elif node.type in ("preproc_def", "preproc_function_def"):
            found += _macro_statements(file, node)
        else:
            found.append(_CppStatement(file, node, [node], scope, function))
    return found


def _declares_function(node: Any) -> bool:
    return any(child.type == "function_declarator" for child in node.children_by_field_name("declarator"))


def _without_casts(tokens: list[str]) -> list[str]:
    """Remove casts: the tokens of ``static_cast<int>(x)`` become those of ``(x)``."""
    found = []
    depth = 0
    casting = False
    for token in tokens:
        if token == "static_cast":
            casting = True
        elif casting and not depth and token != "<":
            casting = False
            found.append(token)
        elif casting:
            depth += (token == "<") - (token == ">") - 2 * (token == ">>")
        else:
            found.append(token)
    return found


def _assigned(file: CppFile, node: Any, parts: Sequence[Any]) -> set[str]:
    """Return the names that a statement declares or assigns, or whose methods it calls."""
    found: set[str] = set()
    waiting = list(parts)
    while waiting:
        child = waiting.pop()
        target = None
        if child.type in ("assignment_expression", "update_expression"):
            target = child.child_by_field_name("left") or child.child_by_field_name("argument")
        elif child.type in ("init_declarator", "declaration", "field_declaration", "field_initializer", "enumerator"):
            target = child.child_by_field_name("declarator") or child.child_by_field_name("name")
            target = target or (child.named_children[0] if child.named_children else None)
        elif child.type in ("alias_declaration", *_CLASSES):
            target = child.child_by_field_name("name")
        elif child.type == "function_declarator":
            target = child.child_by_field_name("declarator")
        elif child.type == "call_expression" and node.type == "expression_statement":
            called = child.child_by_field_name("function")
            target = called.child_by_field_name("argument") if called.type == "field_expression" else None
        if target is not None:
            found.update(_WORD.findall(file.text(target)))
        waiting += child.named_children
    return found


def _macro_statements(file: CppFile, node: Any) -> Iterator[Statement]:
    """Yield each line of a macro definition as a statement, because the text of macros isn't parsed."""
    name = file.text(node.child_by_field_name("name"))
    for number, line in enumerate(file.text(node).rstrip("\n").split("\n"), node.start_point[0] + 1):
        text = " ".join(re.sub(r"//.*|/\*.*?(\*/|$)", " ", line).rstrip("\\ ").split())
        if text:
            yield _MacroLine(number, name, text)
