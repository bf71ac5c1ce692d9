"""Names and values of a definition, to tell changes of its meaning from other ways to write the same."""

from __future__ import annotations

import ast
import re
from collections import Counter

#: Tokens of a normalized text: local variables, strings, names and numbers, operators.
_TOKENS = re.compile(r"""%\d*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[\w.]+|[^\s\w,;(){}\[\]]+""")
#: Operators that Python's texts name by their classes.
_OPERATORS = {kind.__name__ for kind in (*ast.operator.__subclasses__(), ast.Lt, ast.LtE, ast.Gt, ast.GtE)}
_CLASSES = {name for name in vars(ast) if name[0].isupper()} - _OPERATORS
#: Values that other ways to write the same need or don't need.
_SMALL = {"==", "!=", "0", "1", "0u", "1u", "True", "False", "None", "true", "false", "nullptr"}
#: Names that are in other ways to write the same.
_IDIOMS = {
    *("all", "any", "bool", "dict", "enumerate", "filter", "hasattr", "getattr", "isinstance", "iter", "len", "list"),
    *("map", "next", "range", "reversed", "set", "tuple", "zip"),
    *("append", "copy", "extend", "get", "items", "join", "keys", "pop", "setdefault", "update", "values"),
    *("back", "begin", "data", "emplace_back", "empty", "end", "front", "move", "push_back", "size", "std"),
    *("alignas", "auto", "break", "case", "char", "const", "constexpr", "continue", "default", "do", "double", "else"),
    *("float", "for", "if", "inline", "int", "int32_t", "int64_t", "long", "reinterpret_cast", "return", "short"),
    *("size_t", "static", "static_cast", "switch", "typedef", "typename", "uint32_t", "uint64_t", "uint8_t"),
    *("maybe_unused", "nodiscard", "unsigned", "using"),
    *("void", "while"),
}
#: Operators of C++ that are in other ways to write the same, or are brackets of templates.
_MARKS = {"%", "&", "&&", "*", ".", ":", "::", "<", "=", ">", ">>", "?", "||", "!", "->", "#"}


def is_reworded(before: str, now: str) -> bool:
    """Return whether a new text has nothing to say that the old one doesn't, and leaves nothing out.

    The new text then has no name, value or operator more often than the old one, and all that are in the old one.
    A repetition may be gone. Names of local variables, keywords, and functions such as ``len`` don't count. If only
    the order differs, or if nothing replaces what is gone, the result is False.

    :param before: normalized text of a definition with numbered local variables, such as ``%0``.
    :param now: normalized text of the new version.
    """
    sides = [_tokens(text) for text in (before, now)]
    come, gone = sides[1] - sides[0], sides[0] - sides[1]
    if not come or any(_counts(token) or token in _SMALL for token in come):
        return False
    # Brackets of templates come and go in pairs; comparisons don't.
    if come["<"] - gone["<"] != come[">"] - gone[">"]:
        return False
    return not any(_counts(token) and not sides[1][token] for token in gone)


def _tokens(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for token in _TOKENS.findall(text):
        if token[0] in "'\"" and token[1:-1].isidentifier():
            # Attributes are strings in Python's texts.
            token = token[1:-1]
        if token[0] == "%":
            token = "%"
        if token not in _CLASSES:
            found[token] += 1
    return found


def _counts(token: str) -> bool:
    """Return whether a token says something by itself."""
    return token not in _SMALL and token not in _IDIOMS and token not in _MARKS
