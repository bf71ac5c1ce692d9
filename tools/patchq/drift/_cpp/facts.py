"""Facts about C++ and CUDA files: functions, macros, classes, constants, and the conditions around them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from patchq.drift._api.signatures import Parameter
from patchq.drift.bodies import Fact, folded, parse_cpp

#: Words in a declaration that affect neither calls nor results.
_IDLE = {
    "const",
    "inline",
    "static",
    "extern",
    "constexpr",
    "consteval",
    "mutable",
    "typename",
    "class",
    "struct",
    "std",
    "__forceinline__",
    "__inline__",
    "__noinline__",
    "noexcept",
    "override",
    "final",
    "register",
    "volatile",
}
#: Spellings of types, and the spelling that replaces each of them.
_TYPES = {
    "std::": "",
    "unsigned int": "uint32_t",
    "unsigned long long": "uint64_t",
    "unsigned char": "uint8_t",
    "unsigned": "uint32_t",
    "long long": "int64_t",
    "int32_t": "int",
    "uint": "uint32_t",
}
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\d[\w.\']*|->|::|<<|>>|[<>=!&|+\-*/]=|&&|\|\||\S')
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F']+|\d[\d']*)(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU])\b(?!\.)")
#: Nodes that declare a name in their ``declarator`` field.
_DECLARED = {
    "parameter_declaration",
    "optional_parameter_declaration",
    "declaration",
    "init_declarator",
    "for_range_loop",
}
#: Types of nodes that are names.
_USED_NAMES = ("qualified_identifier", "identifier", "type_identifier", "field_identifier")
_NAMES = {
    "identifier",
    "field_identifier",
    "type_identifier",
    "qualified_identifier",
    "operator_name",
    "destructor_name",
}
_TEMPLATE = "template_declaration"
_GUARDS = {"preproc_if", "preproc_ifdef", "preproc_elif", "preproc_elifdef", "preproc_else"}
_CLASSES = ("struct_specifier", "class_specifier", "union_specifier")
_DEVICE = {"__host__", "__device__", "__global__"}
#: Macros and functions whose string arguments are assembly, not messages.
_ASSEMBLY = ("asm", "__asm__")


@dataclass(slots=True)
class CppUse:
    """Use of a name in a C++ file.

    :ivar name: name as written in the file, such as ``f`` or ``ns::f``.
    :ivar arguments: number of arguments if the name is called; -1 if the name isn't called, or in a macro's text.
    :ivar call: source of the call.
    :ivar member: True if the name follows ``.`` or ``->``.
    """

    name: str
    line: int
    arguments: int = -1
    call: str = ""
    member: bool = False


@dataclass(slots=True)
class CppFile:
    """Definitions of a C++ or CUDA file.

    :ivar facts: facts of each name, one for each overload. Names contain their classes, but no namespaces.
    :ivar nodes: tree-sitter node of each definition, in the order of ``facts``.
    :ivar includes: included paths as written in the file.
    :ivar asserts: first and last line of each ``static_assert`` outside of functions, by its text.
    :ivar tokens: cache for :func:`body_of`: tokens by node; ``locals``: local variables by node.
    """

    source: bytes
    root: Any
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    nodes: dict[str, list[Any]] = field(default_factory=dict)
    includes: list[str] = field(default_factory=list)
    asserts: dict[str, tuple[int, int]] = field(default_factory=dict)
    tokens: dict[int, list[str]] = field(default_factory=dict)
    locals: dict[int, set[str]] = field(default_factory=dict)

    def text(self, node: Any) -> str:
        """Return the source of a node."""
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def function_at(self, line: int) -> tuple[str, int]:
        """Return the name and overload number (from 0) of the innermost function or macro that contains a line."""
        best, place, start = "", 0, -1
        for name, nodes in self.nodes.items():
            for number, node in enumerate(nodes):
                if self.facts[name][number].kind not in ("function", "macro"):
                    continue
                first = node.start_point[0]
                last = _last_line(node)
                if first < line <= last and first > start:
                    best, place, start = name, number, first
        return best, place

    def guards_at(self, line: int) -> tuple[str, ...]:
        """Return the preprocessor conditions around a line, outermost first."""
        node = self.root.descendant_for_point_range((line - 1, 0), (line - 1, 0))
        return _guards(self, node)

    def uses(self, lines: set[int]) -> Iterator[CppUse]:
        """Yield the uses of names on the given lines."""
        yield from _uses(self, self.root, lines)


def _last_line(node: Any) -> int:
    row, column = node.end_point
    return int(row if column == 0 else row + 1)


def read_cpp(source: bytes) -> CppFile:
    """Return the facts of a file."""
    found = CppFile(source, parse_cpp(source))
    waiting: list[tuple[Any, str, tuple[str, ...]]] = [(found.root, "", ())]
    while waiting:
        node, scope, guards = waiting.pop()
        inside, around = _read(found, node, scope, guards)
        if node.type in ("compound_statement", "preproc_def", "preproc_function_def", "enumerator_list"):
            continue
        for child in reversed(node.children):
            if child.child_count:
                branch = around
                if node.type in _GUARDS and child.type in ("preproc_else", "preproc_elif", "preproc_elifdef"):
                    branch = (*guards, *_negated(found, node))
                waiting.append((child, inside, branch))
    return found


def _read(file: CppFile, node: Any, scope: str, guards: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Add the definition in a node to the file. Return the scope and the guards for the node's children."""
    kind = node.type
    if kind in _GUARDS:
        return scope, (*guards, *_condition(file, node))
    if kind == "preproc_include":
        path = node.child_by_field_name("path")
        if path is not None:
            file.includes.append(file.text(path).strip('<>"'))
    elif kind in ("preproc_def", "preproc_function_def"):
        _macro(file, node, guards)
    elif kind == "static_assert_declaration":
        file.asserts.setdefault(" ".join(tokens_of(file, node)), (node.start_point[0] + 1, node.end_point[0] + 1))
    elif kind in ("function_definition", "declaration", "field_declaration"):
        read = _function if kind == "function_definition" else _declaration
        read(file, node, scope, guards)
    elif kind in _CLASSES:
        return _class(file, node, scope, guards), guards
    elif kind == "enum_specifier":
        _enum(file, node, scope, guards)
    elif kind in ("alias_declaration", "type_definition"):
        name = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        shown = node.child_by_field_name("type")
        if name is not None and shown is not None and _name_of_class(shown) != name:
            _add(file, _value(scope + file.text(name), node, spelled_type(file.text(shown)), guards), node)
    elif kind == "using_declaration" and not scope:
        _using(file, node, guards)
    return scope, guards


def _using(file: CppFile, node: Any, guards: tuple[str, ...]) -> None:
    """Add the name that ``using a::b;`` makes known."""
    if node.children[1].type == "qualified_identifier":
        shown = spelled_type(file.text(node.children[1]))
        _add(file, _value(shown.rpartition("::")[2], node, shown, guards), node)


def _value(name: str, node: Any, value: str, guards: tuple[str, ...]) -> Fact:
    return Fact(name=name, line=node.start_point[0] + 1, kind="value", value=value, guards=guards)


def _add(file: CppFile, fact: Fact, node: Any) -> None:
    file.facts.setdefault(fact.name, []).append(fact)
    file.nodes.setdefault(fact.name, []).append(node)


def _macro(file: CppFile, node: Any, guards: tuple[str, ...]) -> None:
    name = file.text(node.child_by_field_name("name"))
    parameters = node.child_by_field_name("parameters")
    value = node.child_by_field_name("value")
    text = " ".join(_macro_tokens(file.text(value))) if value is not None else ""
    found = None
    if parameters is not None:
        found = tuple(Parameter(file.text(p), "macro", None) for p in parameters.named_children)
    fact = Fact(
        name=name,
        line=node.start_point[0] + 1,
        kind="macro",
        parameters=found,
        value=spelled_number(text),
        guards=guards,
    )
    if node.parent is not None and node.parent.type == "preproc_ifdef" and _is_include_guard(file, node.parent, name):
        return
    _add(file, fact, node)


def _macro_tokens(text: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*$", " ", text)
    return [t for t in _TOKEN.findall(text.replace("\\\n", " ").replace("\\\r\n", " ")) if t != "\\"]


def _function(file: CppFile, node: Any, scope: str, guards: tuple[str, ...]) -> None:
    declarator = _function_declarator(node)
    if declarator is None:
        return
    named = declarator.child_by_field_name("declarator")
    fact = Fact(
        name=_name(file, scope, named),
        line=node.start_point[0] + 1,
        kind="function",
        parameters=_parameters(file, declarator),
        value=_result(file, node),
        guards=guards,
        traits=_template(file, node),
    )
    _add(file, fact, node)


def _result(file: CppFile, node: Any) -> str:
    """Return a function's return type; for a CUDA function, add words such as ``__global__`` and launch bounds."""
    shown = node.child_by_field_name("type")
    found = [spelled_type(file.text(shown))] if shown is not None else []
    found += sorted(child.type for child in node.children if child.type in _DEVICE)
    found += ["".join(file.text(child).split()) for child in node.children if child.type == "launch_bounds"]
    return " ".join(found)


def namespace_of(file: CppFile, node: Any) -> str:
    """Return the named namespaces around a node, such as ``a::b``."""
    found: list[str] = []
    while node is not None:
        named = node.child_by_field_name("name") if node.type == "namespace_definition" else None
        if named is not None:
            found.insert(0, file.text(named))
        node = node.parent
    return "::".join(found)


def asserts_of(file: CppFile, node: Any) -> set[str]:
    """Return the text of each ``static_assert`` in a node."""
    found = set()
    waiting = [node]
    while waiting:
        child = waiting.pop()
        if child.type == "static_assert_declaration":
            found.add(" ".join(tokens_of(file, child)))
        waiting.extend(c for c in child.children if c.child_count)
    return found


def _template(file: CppFile, node: Any) -> tuple[str, ...]:
    """Return the kind and default of each template parameter: ``class`` and ``int=4`` for ``<class T, int N = 4>``."""
    above = node.parent
    listed = above.child_by_field_name("parameters") if above is not None and above.type == _TEMPLATE else None
    found = []
    for child in listed.named_children if listed is not None else ():
        if child.type == "comment":
            continue
        text, _, default = _COMMENT.sub(" ", file.text(child)).partition("=")
        words = _WORD.findall(text)
        named = words[-1] if len(words) > 1 else ""
        kind = spelled_type(text.removesuffix(" ").removesuffix(named)) or "class"
        found.append(f"{kind}={spelled_number(default.strip())}" if default else kind)
    return tuple(found)


def _name(file: CppFile, scope: str, node: Any) -> str:
    """Return a declared name with its classes, but without its namespaces and template arguments."""
    text = "?"
    if node is not None:
        text = _plain(file, node)
    return text if "::" in text else scope + text


def _function_declarator(node: Any) -> Any:
    waiting = node.child_by_field_name("declarator")
    while waiting is not None and waiting.type != "function_declarator":
        waiting = waiting.child_by_field_name("declarator") or next(
            (c for c in waiting.named_children if c.type.endswith("declarator")), None
        )
    return waiting


def _parameters(file: CppFile, declarator: Any) -> tuple[Parameter, ...]:
    found = []
    listed = declarator.child_by_field_name("parameters")
    for child in listed.named_children if listed is not None else ():
        if child.type == "comment" or file.text(child) == "void":
            continue
        default = child.child_by_field_name("default_value")
        inside = child.child_by_field_name("declarator")
        name = _declared_name(file, inside) if inside is not None else ""
        end = default.start_byte if default is not None else child.end_byte
        text = file.source[child.start_byte : end].decode("utf-8", "replace").rstrip().removesuffix("=")
        if name:
            text = re.sub(rf"\b{re.escape(name)}\b(?!.*\b{re.escape(name)}\b)", "", text, flags=re.DOTALL)
        value = spelled_number(file.text(default)) if default is not None else None
        found.append(Parameter(name, spelled_type(text), value))
    return tuple(found)


def _declared_name(file: CppFile, node: Any) -> str:
    while node is not None:
        if node.type in ("identifier", "field_identifier"):
            return file.text(node)
        inside = node.child_by_field_name("declarator")
        if inside is None:
            inside = next((c for c in node.named_children if c.type.endswith(("declarator", "identifier"))), None)
        node = inside
    return ""


def spelled_type(text: str) -> str:
    """Return a C++ type in a normalized spelling: ``uint32_t`` for ``const unsigned int``."""
    tokens = [t for t in _TOKEN.findall(_COMMENT.sub(" ", text)) if t not in _IDLE]
    words = " ".join(tokens)
    for spelled, same in _TYPES.items():
        words = re.sub(rf"(?<!\w){re.escape(spelled)}(?!\w)", same, words)
    return "".join(words.replace(":: ", "::").removeprefix("::").split())


def spelled_number(text: str) -> str:
    """Return a constant's value in a normalized spelling, with arithmetic evaluated: ``8`` for ``(2u * 4)``."""
    text = " ".join(text.split())
    while text.startswith("(") and text.endswith(")") and _closes_last(text):
        text = text[1:-1].strip()
    whole = _SUFFIX.sub(lambda m: m[1].replace("'", ""), text)
    value = folded(whole)
    if value != whole or value.isdigit():
        return value
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?[fF]?", text):
        return repr(float(text.rstrip("fF")))
    return " ".join(_TOKEN.findall(text)) if text not in ("NULL", "nullptr") else "0"


def _closes_last(text: str) -> bool:
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(text) - 1
    return False


def _declaration(file: CppFile, node: Any, scope: str, guards: tuple[str, ...]) -> None:
    """Add the functions, constants and fields that a declaration declares."""
    shown = node.child_by_field_name("type")
    kind = spelled_type(file.text(shown)) if shown is not None else ""
    for child in node.children_by_field_name("declarator"):
        declarator = child if child.type == "function_declarator" else None
        if declarator is None and child.type.endswith("declarator") and child.type != "init_declarator":
            declarator = _function_declarator(child)
        if declarator is not None and not _is_pointer_to_function(declarator):
            fact = Fact(
                name=_name(file, scope, declarator.child_by_field_name("declarator")),
                line=node.start_point[0] + 1,
                kind="function",
                parameters=_parameters(file, declarator),
                value=_result(file, node),
                guards=guards,
                traits=("declared", *_template(file, node)),
            )
            _add(file, fact, node)
            continue
        value = child.child_by_field_name("value") or node.child_by_field_name("default_value")
        name = _declared_name(file, child)
        if name:
            fact = _value(scope + name, node, spelled_number(file.text(value)) if value is not None else "", guards)
            _add(file, replace(fact, traits=(kind + _dimensions(file, child),)), node)


def _dimensions(file: CppFile, node: Any) -> str:
    """Return the lengths of a declared array, such as ``[2][4]``; empty for other declarations."""
    found = ""
    while node is not None and node.type != "array_declarator":
        node = node.child_by_field_name("declarator")
    while node is not None and node.type == "array_declarator":
        size = node.child_by_field_name("size")
        found = f"[{file.text(size) if size is not None else ''}]{found}"
        node = node.child_by_field_name("declarator")
    return found


def _is_pointer_to_function(node: Any) -> bool:
    inside = node.child_by_field_name("declarator")
    return inside is not None and inside.type == "parenthesized_declarator"


def _class(file: CppFile, node: Any, scope: str, guards: tuple[str, ...]) -> str:
    named, body = _name_of_class(node), node.child_by_field_name("body")
    if named is None or body is None:
        return scope
    name = _name(file, scope, named)
    bases = []
    for child in node.children:
        if child.type == "base_class_clause":
            bases = [
                _name(file, "", c).rpartition("::")[2] for c in child.named_children if c.type != "access_specifier"
            ]
    fact = Fact(
        name=name,
        line=node.start_point[0] + 1,
        kind="class",
        guards=guards,
        bases=tuple(bases),
        traits=_template(file, node),
    )
    _add(file, fact, node)
    return name + "::"


def _name_of_class(node: Any) -> Any:
    """Return the node of a class's name, also in ``typedef struct {…} name;``; None if there is none."""
    named = node.child_by_field_name("name")
    above = node.parent
    if named is None and above.type == "type_definition" and node.type in _CLASSES:
        other = above.child_by_field_name("declarator")
        return other if other is not None and other.type == "type_identifier" else None
    return named


def _enum(file: CppFile, node: Any, scope: str, guards: tuple[str, ...]) -> None:
    named, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if body is None:
        return
    prefix = f"{_name(file, scope, named)}::" if named is not None else scope
    last, after = "", 0
    for child in body.named_children:
        if child.type != "enumerator":
            continue
        value = child.child_by_field_name("value")
        if value is not None:
            last, after = spelled_number(file.text(value)), 0
        text = str(int(last or 0) + after) if not last or last.isdigit() else f"{last} + {after}" if after else last
        after += 1
        _add(file, _value(prefix + file.text(child.child_by_field_name("name")), child, text, guards), child)


def _condition(file: CppFile, node: Any) -> list[str]:
    """Return the condition of a preprocessor directive such as ``#if``; empty for ``#else`` and an include guard."""
    if node.type == "preproc_else":
        return []
    named = node.child_by_field_name("name")
    if named is not None:
        name = file.text(named)
        negative = file.source[node.start_byte : node.start_byte + 12].replace(b" ", b"").startswith(b"#ifndef")
        if negative and _is_include_guard(file, node, name):
            return []
        return [f"{'!' if negative else ''}defined({name})"]
    condition = node.child_by_field_name("condition")
    if condition is None:
        return []
    text = "".join(_TOKEN.findall(file.text(condition)))
    return [re.sub(r"defined(?!\()(\w+)", r"defined(\1)", re.sub(r"defined\s+(\w+)", r"defined(\1)", text))]


def _is_include_guard(file: CppFile, node: Any, name: str) -> bool:
    first = next((c for c in node.named_children if c.type not in ("identifier", "comment")), None)
    if first is None or first.type != "preproc_def":
        return False
    return file.text(first.child_by_field_name("name")) == name and first.child_by_field_name("value") is None


def _negated(file: CppFile, node: Any) -> list[str]:
    return [f"!({condition})" for condition in _condition(file, node)]


def _guards(file: CppFile, node: Any) -> tuple[str, ...]:
    """Return the preprocessor conditions around a node, outermost first."""
    found: list[str] = []
    below = None
    while node is not None:
        if node.type in _GUARDS:
            branch = below is not None and below.type in ("preproc_else", "preproc_elif", "preproc_elifdef")
            found[:0] = _negated(file, node) if branch else _condition(file, node)
        below, node = node, node.parent
    return tuple(found)


def _uses(file: CppFile, node: Any, lines: set[int]) -> Iterator[CppUse]:
    first, last = node.start_point[0] + 1, node.end_point[0] + 1
    if node.type == "comment" or lines.isdisjoint(range(first, last + 1)):
        return
    within = node.children
    if node.type == "preproc_arg":
        yield from _macro_uses(file, node, lines)
        within = []
    elif node.type == "call_expression":
        yield _call_use(file, node)
        if node.child_by_field_name("function").type == "identifier":
            within = node.children_by_field_name("arguments")
    elif node.type in _USED_NAMES and first in lines:
        yield CppUse(_plain(file, node), first, member=node.type == "field_identifier")
        within = []
        if node.type == "qualified_identifier":
            within = [child for child in node.children if child.type not in _NAMES]
    for child in within:
        yield from _uses(file, child, lines)


def _macro_uses(file: CppFile, node: Any, lines: set[int]) -> Iterator[CppUse]:
    """Yield the names in a macro's text on the given lines. The text isn't parsed."""
    for number, line in enumerate(file.text(node).split("\n"), node.start_point[0] + 1):
        if number not in lines:
            continue
        text = re.sub(r"//.*|/\*.*?(\*/|$)|\"[^\"]*\"", "", line)
        for name in _WORD.findall(text):
            yield CppUse(name, number, call=text.strip())


def _call_use(file: CppFile, node: Any) -> CppUse:
    """Return the use of the called function's name."""
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    member = function.type == "field_expression"
    named = function.child_by_field_name("field") if member else function
    count = -1
    if arguments is not None:
        count = sum(c.type != "comment" for c in arguments.named_children)
    return CppUse(_plain(file, named), node.start_point[0] + 1, count, " ".join(file.text(node).split()), member)


def _plain(file: CppFile, node: Any) -> str:
    """Return a name without its template arguments."""
    text = "".join(file.text(node).split())
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def calls_of(file: CppFile, name: str) -> list[tuple[str, int]]:
    """Return, for each call of a function or macro with this simple name, the calling function and the line."""
    found = []
    for use in file.uses(_lines_with(file.source, name)):
        if use.arguments >= 0 and use.name.rpartition("::")[2] == name:
            found.append((file.function_at(use.line)[0], use.line))
    return found


def _lines_with(source: bytes, name: str) -> set[int]:
    word = name.encode()
    return {number for number, line in enumerate(source.split(b"\n"), 1) if word in line}


def body_of(file: CppFile, node: Any, keep: frozenset[str] = frozenset(), *, masked: bool = False) -> str:
    """Return the normalized tokens of a definition, without comments, messages and the names of local variables.

    :param keep: local variables whose names are kept.
    :param masked: also ignore numbers and operators.
    """
    local = local_names(file, node) - keep
    numbers: dict[str, int] = {}
    found = []
    if node.id not in file.tokens:
        file.tokens[node.id] = list(tokens_of(file, node))
    for token in file.tokens[node.id]:
        if token in local:
            token = "%" if masked else f"%{numbers.setdefault(token, len(numbers))}"
        elif masked and (token[0].isdigit() or token in ("<", ">", "<=", ">=", "==", "!=", "+", "-", "&&", "||")):
            token = "~"
        found.append(token)
    text = " ".join(found)
    return _without_aliases(text) if " using " in text else text


def statements_of(file: CppFile, node: Any) -> str:
    """Return the part of :func:`body_of` in a function's braces, without casts in ``return`` to the return type."""
    head, brace, inside = body_of(file, node).partition("{")
    if node.type != "function_definition" or not brace:
        return head + brace + inside
    numbers: dict[str, str] = {}
    for token in re.findall(r"%\d+", inside):
        numbers.setdefault(token, f"%{len(numbers)}")
    inside = re.sub(r"%\d+", lambda m: numbers[m[0]], inside)
    shown = node.child_by_field_name("type")
    if shown is not None:
        cast = f"return static_cast < {' '.join(tokens_of(file, shown))} > ("
        inside = re.sub(rf"{re.escape(cast)} (.*?) \) ;", r"return \1 ;", inside)
    return inside


def _without_aliases(body: str) -> str:
    """Replace type aliases in the tokens of a function: ``using T = int ; T x ;`` becomes ``int x ;``."""
    for alias, target in re.findall(r"using (%?\w+) = ([^;]+?) ;", body):
        body = body.replace(f"using {alias} = {target} ;", "")
        body = " ".join(target if token == alias else token for token in body.split())
    return " ".join(body.split())


def has_moved(old: CppFile, new: CppFile, before: str, after: str) -> bool:
    """Return whether all words that a function lost occur in new functions that it calls."""
    sides = [Counter(re.findall(r"(?<!%)\b\w+", body)) for body in (before, after)]
    lost = set(sides[0] - sides[1])
    there: set[str] = set()
    for name in new.facts:
        if name not in old.facts and name.rpartition("::")[2] in sides[1]:
            for node in new.nodes[name]:
                there.update(re.findall(r"(?<!%)\b\w+", body_of(new, node)))
    return bool(lost) and lost <= there


def local_names(file: CppFile, node: Any) -> set[str]:
    """Return the parameters and local variables of a function, template or macro."""
    if node.id not in file.locals:
        file.locals[node.id] = _local_names(file, node)
    return file.locals[node.id]


def _local_names(file: CppFile, node: Any) -> set[str]:
    found = set()
    waiting = [node.parent if node.parent is not None and node.parent.type == "template_declaration" else node]
    while waiting:
        child = waiting.pop()
        if child.type in _DECLARED and child.type != "for_range_loop":
            for declared in child.children_by_field_name("declarator"):
                if declared.type != "function_declarator":
                    found.add(_declared_name(file, declared))
        elif child.type == "for_range_loop":
            found.add(_declared_name(file, child.child_by_field_name("declarator")))
        elif child.type == "type_parameter_declaration" or child.type == "preproc_params":
            found.update(file.text(c) for c in child.named_children)
        waiting.extend(c for c in child.children if c.child_count)
    return found - {""}


def head_of(file: CppFile, node: Any) -> tuple[str, ...]:
    """Return a function's return type, its template parameters and the types of its parameters."""
    for name, nodes in file.nodes.items():
        for fact, each in zip(file.facts[name], nodes, strict=True):
            if each == node:
                return (fact.value, *fact.traits, *(p.kind for p in fact.parameters or ()))
    return ()


def tokens_of(file: CppFile, node: Any) -> Iterator[str]:
    """Yield the normalized tokens of a node."""
    kind = node.type
    whole = _tokens_without_children(file, node)
    if whole is not None:
        yield from whole
        return
    if kind == "update_expression" and node.parent.type in ("expression_statement", "for_statement"):
        yield from tokens_of(file, node.child_by_field_name("argument"))
        yield from ("+=" if "++" in file.text(node) else "-=", "1")
        return
    if kind in _RESPELLED and (parts := list(_respelled(file, node))):
        for part in parts:
            if isinstance(part, str):
                yield part
            else:
                yield from tokens_of(file, part)
        return
    if kind == "cast_expression":
        yield from ("static_cast", "<")
        yield from tokens_of(file, node.child_by_field_name("type"))
        yield from (">", "(")
        yield from tokens_of(file, node.child_by_field_name("value"))
        yield ")"
        return
    if kind == "declaration" and len(node.children_by_field_name("declarator")) > 1:
        yield from _separate(file, node)
        return
    children = node.children
    if kind in _GUARDS and (condition := _condition(file, node)):
        yield "#if"
        yield from condition
        shown = node.child_by_field_name("name") or node.child_by_field_name("condition")
        children = [c for c in children[1:] if c != shown and file.text(c).strip()]
    if (kind == "compound_statement" and _is_single(node)) or (
        kind == "parenthesized_expression" and (node.parent.type in _NEEDS_NO_PARENTHESES or _is_redundant(file, node))
    ):
        children = children[1:-1]
    for child in children:
        yield from tokens_of(file, child)


def _tokens_without_children(file: CppFile, node: Any) -> Sequence[str] | None:
    """Return the normalized tokens of a node that has no children or doesn't need them; None for other nodes."""
    kind = node.type
    if kind in ("comment", "attribute_declaration", "attribute_specifier"):
        return ()
    if kind == "preproc_arg":
        return list(_macro_tokens(file.text(node)))
    if kind in _MESSAGES:
        return (file.text(node) if _in_assembly(file, node) else '""',)
    text = file.text(node)
    if not node.children:
        if text in _IDLE or (text == "::" and _after_std(file, node)):
            return ()
        return ({"NULL": "nullptr"}.get(text, spelled_number(text) if text[:1].isdigit() else text),)
    if kind in ("binary_expression", "parenthesized_expression") and (value := folded(text)).isdigit():
        return (value,)
    return None


_NEEDS_NO_PARENTHESES = {
    "return_statement",
    "init_declarator",
    "assignment_expression",
    "argument_list",
    "parenthesized_expression",
}


#: Types of nodes for which the same code can be written in several ways.
_RESPELLED = {
    "assignment_expression",
    "binary_expression",
    "call_expression",
    "field_expression",
    "if_statement",
    "init_declarator",
    "primitive_type",
    "sized_type_specifier",
    "unary_expression",
}
#: Macros that fail with a message unless a condition holds.
_CHECKS = re.compile(r"(?:\w+_)?I?CHECK|assert")
_MESSAGES = {"string_literal", "concatenated_string", "raw_string_literal"}
_LITERALS = {"null", "number_literal", "true", "false"}


def _respelled(file: CppFile, node: Any) -> Iterator[Any]:
    """Yield the tokens and nodes of the normalized spelling of a node; nothing if the node is already normalized."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    shown = ""
    if operator is not None:
        shown = file.text(operator)
    match node.type:
        case "primitive_type" | "sized_type_specifier":
            yield spelled_type(file.text(node)) or file.text(node)
        case "binary_expression" if shown in ("==", "!=") and left.type in _LITERALS and right.type not in _LITERALS:
            yield from (right, shown, left)
        case "assignment_expression" if shown == "=" and right.type == "binary_expression":
            inside = right.child_by_field_name("left")
            if file.text(inside) == file.text(left):
                combined = file.text(right.child_by_field_name("operator")) + "="
                yield from (left, combined, right.child_by_field_name("right"))
        case "unary_expression" if shown == "!":
            yield from _negation(file, node.child_by_field_name("argument"))
        case "if_statement" | "init_declarator" | "field_expression" | "call_expression":
            yield from _RESPELLERS[node.type](file, node)


def _without_else(_file: CppFile, node: Any) -> Iterator[Any]:
    """Yield ``if (t) return; f();`` for ``if (t) return; else f();``; nothing if both branches can continue."""
    alternative = node.child_by_field_name("alternative")
    first = node.child_by_field_name("consequence")
    if alternative is not None and _leaves(first):
        yield from ("if", node.child_by_field_name("condition"), first)
        block = alternative.named_children[-1]
        if block.type == "compound_statement":
            yield from block.named_children
        else:
            yield block


def _assigned(_file: CppFile, node: Any) -> Iterator[Any]:
    """Yield ``a = b`` for ``a{b}``."""
    value = node.child_by_field_name("value")
    if value is not None and value.type == "initializer_list" and value.named_child_count == 1:
        yield from (node.child_by_field_name("declarator"), "=", value.named_children[0])


def _by_arrow(file: CppFile, node: Any) -> Iterator[Any]:
    """Yield ``a->b`` for ``(*a).b``."""
    inside = node.child_by_field_name("argument")
    if inside.type == "parenthesized_expression":
        inside = inside.named_children[0]
    if inside.type == "pointer_expression" and file.text(inside).startswith("*"):
        yield from (inside.child_by_field_name("argument"), "->", node.child_by_field_name("field"))


def _without_message(file: CppFile, node: Any) -> Iterator[Any]:
    """Yield a check macro without its message: ``CHECK(x)`` for ``CHECK(x, "text")``; nothing for other calls."""
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if arguments is not None and _CHECKS.fullmatch(file.text(function)):
        kept = itertools.takewhile(lambda child: child.type not in _MESSAGES, arguments.named_children)
        yield from (function, "(", *kept, ")")


_RESPELLERS: Mapping[str, Callable[[CppFile, Any], Iterator[Any]]] = {
    "if_statement": _without_else,
    "init_declarator": _assigned,
    "field_expression": _by_arrow,
    "call_expression": _without_message,
}


def _leaves(node: Any) -> bool:
    """Return whether a branch ends with ``return``, ``continue``, ``break`` or ``throw``."""
    last = node.named_children[-1] if node.type == "compound_statement" and node.named_children else node
    return last.type in ("return_statement", "continue_statement", "break_statement", "throw_statement")


def _negation(file: CppFile, node: Any) -> Iterator[Any]:
    """Yield the negation of a comparison: ``a != b`` for ``(a == b)``, or the reverse; nothing for other nodes."""
    inside = node.named_children[0] if node.type == "parenthesized_expression" else node
    if inside.type != "binary_expression":
        return
    operator = inside.child_by_field_name("operator")
    opposite = {"==": "!=", "!=": "=="}.get(file.text(operator))
    if opposite:
        yield from (inside.child_by_field_name("left"), opposite, inside.child_by_field_name("right"))


#: Sets of operators with equal precedence, the highest precedence first.
_LEVELS = ({"*", "/", "%"}, {"+", "-"}, {"<<", ">>"}, {"<", ">", "<=", ">="}, {"==", "!="}, {"&&"}, {"||"})
_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}


def _is_redundant(file: CppFile, node: Any) -> bool:
    """Return whether the parentheses of an expression can be removed without changing its meaning."""
    inside = next((c for c in node.named_children if c.type != "comment"), None)
    around = node.parent
    if inside is None or inside.type != "binary_expression" or around.type != "binary_expression":
        return False
    operators = [file.text(each.child_by_field_name("operator")) for each in (inside, around)]
    if not all(operator in _LEVEL for operator in operators):
        return False
    levels = [_LEVEL[operator] for operator in operators]
    if around.child_by_field_name("left") == node:
        return levels[0] <= levels[1]
    return levels[0] < levels[1] or (levels[0] == levels[1] and operators[1] in ("+", "&&", "||"))


def _separate(file: CppFile, node: Any) -> Iterator[str]:
    """Yield the tokens of a declaration with a separate declaration for each variable: ``int a; int b;``."""
    declarators = node.children_by_field_name("declarator")
    head: list[str] = []
    for child in node.children:
        if child in declarators:
            break
        head += tokens_of(file, child)
    for declarator in declarators:
        yield from head
        yield from tokens_of(file, declarator)
        yield ";"


def _is_single(node: Any) -> bool:
    branch = node.parent.type in ("if_statement", "else_clause", "for_statement", "while_statement", "for_range_loop")
    return branch and sum(c.type != "comment" for c in node.named_children) == 1


def _after_std(file: CppFile, node: Any) -> bool:
    before = node.prev_sibling
    return before is not None and file.text(before) == "std"


def _in_assembly(file: CppFile, node: Any) -> bool:
    above = node.parent
    while above is not None and above.type not in ("expression_statement", "declaration", "function_definition"):
        if above.type.startswith("gnu_asm") or file.text(above)[:8].startswith(_ASSEMBLY):
            return True
        above = above.parent
    return above is not None and file.text(above)[:8].startswith(_ASSEMBLY)
