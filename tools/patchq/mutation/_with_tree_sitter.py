"""Mutation operators for C++, CUDA and Jinja, which work on tree-sitter's syntax trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from patchq.mutation._edit import Edit

_OTHER = {
    b"<": b"<=",
    b"<=": b"<",
    b">": b">=",
    b">=": b">",
    b"==": b"!=",
    b"!=": b"==",
    b"&&": b"||",
    b"||": b"&&",
    b"+": b"-",
    b"-": b"+",
    b"*": b"/",
    b"/": b"*",
    b"%": b"*",
    b"<<": b">>",
    b">>": b"<<",
    b"&": b"|",
    b"|": b"&",
}
_KIND = {
    b"<": "boundary moved",
    b"<=": "boundary moved",
    b">": "boundary moved",
    b">=": "boundary moved",
    b"==": "condition negated",
    b"!=": "condition negated",
    b"&&": "and for or",
    b"||": "and for or",
}


@cache
def _parser(language: str) -> Any:
    from importlib import import_module

    from tree_sitter import Language, Parser

    return Parser(Language(import_module(f"tree_sitter_{language}").language()))


def edits_by(language: str, content: bytes) -> Iterator[Edit]:
    """Yield the edits of a file.

    :param language: ``cuda`` or ``jinja``.
    """
    operators: Callable[[Any], Iterator[Edit]] = {"cuda": _cuda, "jinja": _jinja}[language]
    nodes = [_parser(language).parse(content).root_node]
    while nodes:
        node = nodes.pop()
        if node.type in ("comment", "preproc_include"):
            continue
        yield from operators(node)
        nodes += node.children


def _put(node: Any, new: bytes, operator: str) -> Edit:
    return Edit(start=node.start_byte, end=node.end_byte, new=new, operator=operator)


def _number(node: Any) -> Iterator[Edit]:
    digits = node.text.rstrip(b"uUlLfF")
    tail = node.text[len(digits) :]
    try:
        value = int(digits, 0)
    except ValueError:
        yield _put(node, b"(" + node.text + b" * 2 + 1)", "constant changed")
        return
    yield _put(node, str(value + 1).encode() + tail, "constant changed")
    if value > 1:
        yield _put(node, str(value - 1).encode() + tail, "constant changed")


def _list(node: Any, what: str) -> Iterator[Edit]:
    """Yield edits that swap neighbouring items, and one that drops the last item."""
    items = [c for c in node.named_children if c.type != "comment"]
    for one, two in pairwise(items):
        if one.text != two.text:
            middle = node.text[one.end_byte - node.start_byte : two.start_byte - node.start_byte]
            yield Edit(
                start=one.start_byte, end=two.end_byte, new=two.text + middle + one.text, operator=f"{what} swapped"
            )
    if items:
        if len(items) > 1:
            start = items[-2].end_byte
        else:
            start = items[-1].start_byte
        yield Edit(start=start, end=items[-1].end_byte, new=b"", operator=f"{what} dropped")


#: Name of a list's items, by the type of the list.
_ITEMS = {
    "argument_list": "argument",
    "template_argument_list": "template argument",
    "initializer_list": "element",
}
#: Name of the mutation that leaves a statement out, by its type.
_LEFT_OUT = {
    "expression_statement": "statement left out",
    "throw_statement": "statement left out",
    "static_assert_declaration": "statement left out",
    "break_statement": "jump left out",
    "continue_statement": "jump left out",
}


def _binary(node: Any) -> Iterator[Edit]:
    sign = node.child_by_field_name("operator")
    if sign is None:
        return
    if sign.text in _OTHER:
        yield _put(sign, _OTHER[sign.text], _KIND.get(sign.text, "other arithmetic"))
    if sign.text in (b"&&", b"||"):
        for side in ("left", "right"):
            yield _put(node, node.child_by_field_name(side).text, "condition shortened")


def _cuda(node: Any) -> Iterator[Edit]:
    kind = node.type
    if kind == "binary_expression":
        yield from _binary(node)
    elif kind == "condition_clause":
        yield Edit(start=node.start_byte, end=node.end_byte, new=b"(!" + node.text + b")", operator="condition negated")
    elif kind == "conditional_expression" or kind in ("preproc_if", "preproc_elif"):
        test = node.child_by_field_name("condition")
        yield _put(test, b"!(" + test.text + b")", "condition negated")
    elif kind in ("preproc_ifdef",):
        word = node.children[0]
        yield _put(word, b"#ifndef" if word.text == b"#ifdef" else b"#ifdef", "condition negated")
    elif kind == "unary_expression" and node.text[:1] in (b"!", b"-"):
        yield _put(node, node.child_by_field_name("argument").text, "operator left out")
    elif kind == "number_literal":
        yield from _number(node)
    elif kind in ("true", "false"):
        yield _put(node, b"false" if kind == "true" else b"true", "constant changed")
    elif kind in _ITEMS:
        yield from _list(node, _ITEMS[kind])
    elif kind in _LEFT_OUT:
        yield _put(node, b";", _LEFT_OUT[kind])
    elif kind == "if_statement":
        yield _put(node.child_by_field_name("consequence"), b"{}", "branch removed")


def _jinja(node: Any) -> Iterator[Edit]:
    if node.type in ("integer", "float"):
        yield from _number(node)
    elif node.type == "boolean":
        yield _put(node, b"false" if node.text.lower() == b"true" else b"true", "constant changed")
    elif node.type in ("binary_operator", "boolean_operator", "comparison_operator"):
        words = {**_OTHER, b"and": b"or", b"or": b"and"}
        for sign in node.children:
            if sign.text in words and not sign.is_named:
                yield _put(sign, words[sign.text], _KIND.get(sign.text, "condition changed"))
    elif node.type == "jinja_variable":
        yield _put(node, b"", "output left out")
    test = node.child_by_field_name("condition")
    if test is not None:
        yield _put(test, b"not (" + test.text + b")", "condition negated")
