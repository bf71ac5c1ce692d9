"""What is printed for people to type can be pasted into a shell: refs, paths and addresses in it are quoted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import patchq
from kit import Patchq, git

PACKAGE = Path(patchq.__file__).parent
#: What holds no character that a shell reads: names by `check_name`, ids, and what is quoted already.
PLAIN = {
    "arch", "base", "commit", "from_commit", "how", "i", "name", "names", "options", "owner", "package", "patch",
    "profile", "resolve", "set_name", "stem", "tip", "tree", "upstream", "COMPRESSOR", "lacks", "only", "set_option",
    "test",
}  # fmt: skip
#: Calls that quote, or return a name that `check_name` accepts.
QUOTED = ("sh(", "name_for(", "' '.join(map(sh, ")
_BEGINS = re.compile(r"(?:patchq [a-z]|git [a-z-]|gh [a-z]|python -m|--[a-z]|\0 [a-z])")


def holes(text: ast.JoinedStr) -> Iterator[str]:
    """Yield what is put into the commands of an f-string: into what is between backquotes, or in the whole of it."""
    parts = [str(p.value).replace("\0", "") if isinstance(p, ast.Constant) else "\0" for p in text.values]
    values = iter([p for p in text.values if isinstance(p, ast.FormattedValue)])
    pieces = "".join(parts).split("`")
    for number, piece in enumerate(pieces):
        command = _BEGINS.match(piece) if number % 2 else number == 0 and re.match("patchq [a-z]|git -C", piece)
        for _ in range(piece.count("\0")):
            value = next(values).value
            if command:
                yield ast.unparse(value)


def test_what_is_to_be_typed_is_quoted() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for hole in holes(node) if isinstance(node, ast.JoinedStr) else ():
                if not hole.startswith(QUOTED) and re.sub(r"\[.*\]$|.*\.", "", hole) not in PLAIN:
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {hole}")
    assert not wrong, "names.sh quotes a word of a command"


def test_a_ref_with_characters_of_a_shell(stack: Patchq, upstream: Path) -> None:
    ref = "v1;touch${IFS}evil"
    git(upstream, "tag", ref, "v1")
    assert f"patchq pin up --ref '{ref}' …" in stack.fails(1, "drift", "up", "--from", "v1", "--to", ref)
    stack.ok("pin", "up", "--url", str(upstream), "--ref", ref)
    assert f"patchq rebase up --onto '{ref}'" in stack.ok("forecast", "up", "--from", "v1", "--onto", ref)
