"""Count wording habits in docstrings, comments, messages and Markdown, per 1,000 words.

    python tests/prose.py [-l] PATH...

``-l`` lists the places. Messages are the ``help=``, ``hint=`` and first arguments of exceptions and of ``echo``.
Compare with pip's ``_internal``: 1 % of its docstrings open with What, Whether or Of; the rates are 0.17, 0.20, 0.06.
"""

from __future__ import annotations

import ast
import collections
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

OPENING = re.compile(r"(What|Whether|Where|Which|Who|Whose|That|Of|As|How|Those|One|All|By|To)\b")
HABITS = {
    "of which, of what": r"\bof (which|what|whom|those|whose)\b",
    "at hand, stands, comes to": r"\b(at hand|stands?|stood|comes? to|became|becomes? of|is told|are told|tells?)\b",
    "anew, beside, once more": r"\b(anew|beside|meanwhile|once more|all the same|thereby|therein|whom)\b",
    "nobody, whoever": r"\b(nobody|nobody's|whoever|somebody|somebody's)\b",
    "a person, people": r"\b(a person|people|persons?)\b",
    "is to be": r"\b(is|are) to (be|say|hold|look|prove|decide|have|do|come|go|stand)\b",
    "mend, walled, parked": r"\b(mend\w*|walled|parked|needs? you)\b",
}


@dataclass
class Counts:
    """Words, docstrings, docstrings that open badly, and hits of each habit."""

    words: int = 0
    docstrings: int = 0
    openings: int = 0
    hits: collections.Counter[str] = field(default_factory=collections.Counter)
    places: list[str] = field(default_factory=list)

    def rate(self, habit: str) -> float:
        """Return the hits of a habit per 1,000 words."""
        return 1000 * self.hits[habit] / max(self.words, 1)


def python_texts(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield kind, line and text of the docstrings, comments and messages of a module."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            if text := ast.get_docstring(node):
                yield "module" if isinstance(node, ast.Module) else "docstring", getattr(node, "lineno", 1), text
        elif isinstance(node, ast.Call):
            yield from (("message", node.lineno, text) for text in messages(node))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and len(token.string) > 12:
            yield "comment", token.start[0], token.string.lstrip("#: ")


def messages(call: ast.Call) -> Iterator[str]:
    """Yield the texts of a call that users read."""
    name = ast.unparse(call.func)
    read = [keyword.value for keyword in call.keywords if keyword.arg in ("help", "hint")]
    if name.endswith(("Error", "echo")) and call.args:
        read.append(call.args[0])
    for value in read:
        parts = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
        yield " ".join(part for part in parts if isinstance(part, str))


def markdown_texts(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the lines of a page without code."""
    body = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for number, line in enumerate(body.splitlines(), 1):
        yield "markdown", number, re.sub(r"`[^`]*`", "x", line)


def count(root: Path) -> Counts:
    """Count the habits in a file or in all files of a folder."""
    found = Counts()
    for path in [root] if root.is_file() else sorted(root.rglob("*")):
        if path.suffix == ".py":
            texts = python_texts(path)
        elif path.suffix == ".md":
            texts = markdown_texts(path)
        else:
            continue
        for kind, line, text in texts:
            found.words += len(text.split())
            if kind == "docstring":
                found.docstrings += 1
                if OPENING.match(text):
                    found.openings += 1
                    found.places.append(f"{path}:{line}: {text.splitlines()[0]}")
            for habit, pattern in HABITS.items():
                if hits := len(re.findall(pattern, text, re.IGNORECASE)):
                    found.hits[habit] += hits
                    found.places.append(f"{path}:{line}: [{habit}] {text.splitlines()[0][:100]}")
    return found


def main() -> None:
    """Print the counts of each path."""
    for argument in sys.argv[1:]:
        if argument == "-l":
            continue
        found = count(Path(argument))
        print(f"{argument}: {found.words} words, {found.openings} of {found.docstrings} docstrings open badly")
        for habit in HABITS:
            print(f"  {found.rate(habit):6.2f}  {habit}")
        if "-l" in sys.argv:
            print(*found.places, sep="\n")


if __name__ == "__main__":
    main()
