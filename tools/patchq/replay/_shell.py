"""Parser that splits shell scripts and Dockerfiles into commands, each with the setup commands before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from patchq.extras import need
from patchq.replay.limits import MOST_COMMANDS, too_large

#: Commands that only affect later commands.
_SETTING = {"cd", "pushd", "popd", "set", "umask", "export", "shopt", "source", ".", "alias", "unset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellStep:
    """Command of a script.

    :ivar text: command as written.
    :ivar where: file and line of the command.
    :ivar setup: setup commands, such as ``cd``, to run before the command.
    :ivar comment: comment above the command.
    :ivar program: interpreter of the command: a shell, or the program in the script's ``#!`` line.
    """

    text: str
    where: str
    setup: tuple[str, ...] = ()
    comment: str = ""
    program: tuple[str, ...] = ("bash",)


def steps_of(text: str, where: str, line: int = 1) -> list[ShellStep]:
    """Return the commands of a shell script, split at ``;`` and at the ``&&`` of its last line.

    A loop is returned as one command, and so are commands joined by ``||``. Commands joined by ``&&`` before the
    last line are also returned as one command, because the first of them may fail without ending the script.

    >>> [s.text for s in steps_of("cd /x && sed -i s/a/b/ f; git apply y || true", "it")]
    ['sed -i s/a/b/ f', 'git apply y || true']
    """
    data = text.encode()
    root = _parser().parse(data).root_node
    if root.has_error:
        if text.strip():
            return [ShellStep(text=text, where=f"{where}:{line}")]
        return []
    found: list[ShellStep] = []
    setup: list[str] = []
    comments: list[tuple[int, str]] = []
    try:
        nodes = list(_flat(root, data, is_last=True))
    except RecursionError:
        return [ShellStep(text=text, where=f"{where}:{line}")]
    for node, output in nodes:
        at = node.start_point[0]
        if node.type == "comment":
            comments = [c for c in comments if c[0] == at - 1] and comments
            comments.append((at, output.lstrip("#! ")))
            continue
        if not node.is_named:
            continue
        if _sets_up(node):
            setup.append(output)
            continue
        later = _folders_in(node)
        above = ""
        if comments and comments[-1][0] == at - 1:
            above = " ".join(c for _, c in comments)
        comments = []
        found.append(ShellStep(text=output, where=f"{where}:{line + at}", setup=tuple(setup), comment=above))
        setup += later
    return found


def _parser() -> Any:
    need("adopt", "reading shell commands")
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _flat(node: Any, data: bytes, end: int = 0, *, is_last: bool) -> Iterator[tuple[Any, str]]:
    """Yield the commands below a syntax node, each with its text.

    :param end: end of the last command's text, including redirections.
    :param is_last: True if the script fails when this node fails.
    """
    statements = []
    for child in node.children:
        if child.is_named and child.type != "comment":
            statements.append(child)
    for child in node.children:
        if end and child == node.children[-1]:
            last = end
        else:
            last = child.end_byte
        inner = child
        if child.type == "redirected_statement" and child.children[0].type == "list":
            # In a shell, a redirection belongs to the last command only, unlike in the parsed tree.
            inner = child.children[0]
        ends = is_last and (node.type == "list" or child == statements[-1])
        if inner.type == "list" and _is_and(inner) and (ends or _only_sets_up(inner)):
            yield from _flat(inner, data, last, is_last=is_last)
        else:
            yield child, data[child.start_byte : last].decode()


def _is_and(node: Any) -> bool:
    return any(child.type == "&&" for child in node.children)


def _only_sets_up(node: Any) -> bool:
    """Return True if all commands of a list except the last one are setup: ``cd x && sed …``."""
    first, *_ = node.children
    return _sets_up(first) or (
        first.type == "list" and _is_and(first) and _only_sets_up(first) and _sets_up(first.children[-1])
    )


def _folders_in(node: Any) -> list[str]:
    """Return the setup commands, such as ``cd``, among commands joined by ``&&``."""
    if node.type != "list" or not _is_and(node):
        return []
    found = []
    for child in node.children:
        if child.type == "list":
            found += _folders_in(child)
        elif child.type == "command" and _sets_up(child):
            found.append(child.text.decode())
    return found


def _sets_up(node: Any) -> bool:
    if node.type in ("variable_assignment", "variable_assignments", "declaration_command", "function_definition"):
        return True
    return node.type == "command" and node.children[0].text.decode() in _SETTING


def script_steps(data: bytes, where: str) -> list[ShellStep]:
    """Return the commands of a script. A script for an interpreter other than a shell is a single command."""
    text = data.decode("utf-8", "replace")
    first = text.split("\n", 1)[0]
    program = []
    if first.startswith("#!"):
        program = first.removeprefix("#!").split()
    if program[:1] == ["/usr/bin/env"]:
        program = program[1:]
    name = "bash"
    if program:
        name = program[0].rsplit("/", 1)[-1]
    elif where.endswith(".py"):
        name = "python3"
    if name in ("sh", "bash", "dash"):
        if len(data) > MOST_COMMANDS:
            raise too_large(where, f"{len(data)} bytes of shell commands", MOST_COMMANDS)
        flags = []
        for w in program[1:]:
            if w.startswith("-"):
                flags.append(w)
        steps: list[ShellStep] = []
        for s in steps_of(text, where):
            steps.append(replace(s, setup=(*(f"set {w}" for w in flags), *s.setup)))
        return steps
    return [ShellStep(text=text, where=f"{where}:1", program=("python3" if name.startswith("python") else name,))]
