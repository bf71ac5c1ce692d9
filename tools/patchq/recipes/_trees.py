"""Parsers for the languages in which recipes are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchq.errors import UserError
from patchq.extras import need

#: Limit in characters of a recipe to parse. The parsers need quadratic time for some invalid text.
MOST_PARSED = 256 << 10


def parse(language: str, text: str) -> Any:
    """Return the root node of a text's syntax tree.

    :param language: ``bash``, ``nix`` or ``ruby``.
    :raises UserError: if the parsers are not installed, or the text is too long for them.
    """
    if len(text) > MOST_PARSED:
        raise UserError(
            f"the recipe has {len(text)} characters; the limit is {MOST_PARSED}",
            hint="import the patch files instead of the recipe",
        )
    need("adopt", "reading recipes")
    import tree_sitter

    return tree_sitter.Parser(tree_sitter.Language(_grammar(language))).parse(text.encode()).root_node


def _grammar(language: str) -> object:
    if language == "bash":
        import tree_sitter_bash

        return tree_sitter_bash.language()
    if language == "nix":
        import tree_sitter_nix

        return tree_sitter_nix.language()
    import tree_sitter_ruby

    return tree_sitter_ruby.language()


def text_of(node: Any) -> str:
    """Return the source text of a node."""
    return str(node.text.decode("utf-8", "replace"))


def line_of(node: Any) -> int:
    """Return the line number of a node."""
    return int(node.start_point[0]) + 1


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and all nodes below it, in the order of the text."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(node.children)
