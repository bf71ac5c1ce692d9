"""Commands of shell scripts and Dockerfiles, each with the setup that precedes it."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchq.adopt.limits import MOST_COMMANDS, MOST_DOCKERFILE, too_large
from patchq.errors import FormatError
from patchq.extras import need
from patchq.system.sandbox import BESIDE

#: Commands that only affect later commands.
_SETTING = {"cd", "pushd", "popd", "set", "umask", "export", "shopt", "source", ".", "alias", "unset"}
#: Commands that edit files. A match for sed, perl or awk stops at the next such name, which keeps
#: the search linear.
_EDITS = re.compile(
    r"\b(?:sed|perl)\b(?:(?!\b(?:sed|perl)\b)[^|;&])*\s-\w*i|\bgit\s+(?:apply|am)\b|\bpatch\b\s+-|\b(?:cp|mv|rm|tee|install|truncate|ln|chmod)\b|"
    r"[^0-9&]>>?\s*[^&\s]|\bpython[0-9.]*\s+(?:-c|-\s|-$|<<|[^-]\S*\.py)|\bawk\b(?:(?!\bawk\b).)*inplace|\bed\b\s"
)
_WORD = re.compile(r"[\w./+@-]+")
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellStep:
    """Command of a script.

    :ivar text: command as written.
    :ivar where: file and line of the command.
    :ivar setup: commands to run before it.
    :ivar comment: comment above it.
    :ivar program: interpreter: a shell, or the one that the script names.
    """

    text: str
    where: str
    setup: tuple[str, ...] = ()
    comment: str = ""
    program: tuple[str, ...] = ("bash",)


def steps_of(text: str, where: str, line: int = 1) -> list[ShellStep]:
    """Return the commands of a shell script, split at ``&&`` and ``;``.

    A loop, or commands joined by ``||``, remain one command.

    >>> [s.text for s in steps_of("cd /x && sed -i s/a/b/ f; git apply y || true", "it")]
    ['sed -i s/a/b/ f', 'git apply y || true']
    """
    data = text.encode()
    root = _parser().parse(data).root_node
    if root.has_error:
        return [ShellStep(text=text, where=f"{where}:{line}")] if text.strip() else []
    found: list[ShellStep] = []
    setup: list[str] = []
    comments: list[tuple[int, str]] = []
    for node, told in _flat(root, data):
        at = node.start_point[0]
        if node.type == "comment":
            comments = [c for c in comments if c[0] == at - 1] and comments
            comments.append((at, told.lstrip("#! ")))
            continue
        if not node.is_named:
            continue
        if _sets_up(node):
            setup.append(told)
            continue
        above = " ".join(c for _, c in comments) if comments and comments[-1][0] == at - 1 else ""
        comments = []
        found.append(ShellStep(text=told, where=f"{where}:{line + at}", setup=tuple(setup), comment=above))
    return found


def _parser() -> Any:
    need("adopt", "reading shell commands")
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _flat(node: Any, data: bytes, end: int = 0) -> Iterator[tuple[Any, str]]:
    """Yield the commands below a node, each with its text.

    :param end: end of the last command's text, including redirections.
    """
    for child in node.children:
        last = end if end and child == node.children[-1] else child.end_byte
        if child.type == "list" and any(c.type == "&&" for c in child.children):
            yield from _flat(child, data, last)
        elif child.type == "redirected_statement" and child.children[0].type == "list":
            # In a shell, a redirection belongs to the last command only, unlike in the parsed tree.
            yield from _flat(child.children[0], data, last)
        else:
            yield child, data[child.start_byte : last].decode()


def _sets_up(node: Any) -> bool:
    if node.type in ("variable_assignment", "variable_assignments", "declaration_command", "function_definition"):
        return True
    return node.type == "command" and node.children[0].text.decode() in _SETTING


def script_steps(data: bytes, where: str) -> list[ShellStep]:
    """Return the commands of a script. A script for another interpreter is a single command."""
    text = data.decode("utf-8", "replace")
    first = text.split("\n", 1)[0]
    program = first.removeprefix("#!").split() if first.startswith("#!") else []
    if program[:1] == ["/usr/bin/env"]:
        program = program[1:]
    name = program[0].rsplit("/", 1)[-1] if program else "python3" if where.endswith(".py") else "bash"
    if name in ("sh", "bash", "dash"):
        if len(data) > MOST_COMMANDS:
            raise too_large(where, f"{len(data)} bytes of shell commands", MOST_COMMANDS)
        flags = [w for w in program[1:] if w.startswith("-")]
        return [replace(s, setup=(*(f"set {w}" for w in flags), *s.setup)) for s in steps_of(text, where)]
    return [ShellStep(text=text, where=f"{where}:1", program=("python3" if name.startswith("python") else name,))]


def is_dockerfile(path: Path) -> bool:
    """Return True for the name of a Dockerfile.

    Examples are ``Dockerfile``, ``Dockerfile.x``, ``x.dockerfile`` and ``Containerfile``.
    """
    return bool(re.fullmatch(r"(Dockerfile|Containerfile)([._-].*)?|.*\.(dockerfile|containerfile)", path.name, re.I))


def is_script(path: Path, data: bytes) -> bool:
    """Return True for a script, by its first line or its name."""
    return data.startswith(b"#!") or path.suffix in (".sh", ".bash", ".py")


def dockerfile_steps(data: bytes, where: str, files: Collection[bytes]) -> list[ShellStep]:
    """Return the commands of a Dockerfile that edit files of the tree, each with its setup.

    Files are matched by name. A ``COPY`` onto a file of the tree counts as a command. Files copied
    elsewhere are read from the build context.

    :raises FormatError: if the Dockerfile can't be parsed.
    """
    if len(data) > MOST_DOCKERFILE:
        raise too_large(where, f"{len(data)} bytes", MOST_DOCKERFILE)
    paths = [path.decode("utf-8", "replace") for path in files]
    known = {path.rsplit("/", 1)[-1] for path in paths}
    tails = {"/".join(path.split("/")[-2:]) for path in paths}
    found: list[ShellStep] = []
    setup: list[str] = []
    copied: list[tuple[str, str]] = []
    comment = ""
    left = MOST_COMMANDS
    for word, value, line in _instructions(data, where):
        if word == "COMMENT":
            comment = value
            continue
        if word == "FROM":
            setup, copied = [], []
        elif word in ("ENV", "ARG") and "=" in value:
            setup.append(f"export {value}")
        elif word == "WORKDIR":
            setup.append(f"cd {value}")
        elif word in ("COPY", "ADD") and not value.startswith("--from") and "://" not in value:
            names = [w for w in value.split() if not w.startswith("--")]
            copied += [(target, source) for source, target in _copies(names)]
            found += [
                ShellStep(
                    text=f"cp {BESIDE}/{source} {target}", where=f"{where}:{line}", setup=tuple(setup), comment=comment
                )
                for source, target in _copies(names)
                if "/".join(target.split("/")[-2:]) in tails
            ]
        elif word == "RUN":
            value = re.sub(r"^(--\S+\s+)+", "", value)
            if not _names_one(value, known):
                comment = ""
                continue
            left -= len(value)
            if left < 0:
                raise too_large(where, "too many bytes of shell commands that name files of the tree", MOST_COMMANDS)
            for step in steps_of(value, where, line):
                if _EDITS.search(" " + step.text) and _names_one(step.text, known):
                    text = _from_context(step.text, copied)
                    found.append(replace(step, text=text, setup=(*setup, *step.setup), comment=step.comment or comment))
        comment = ""
    return found


def _copies(names: list[str]) -> list[tuple[str, str]]:
    """Return each source of a ``COPY`` with the file that it is copied to."""
    if len(names) < 2:
        return []
    target = names[-1]
    many = len(names) > 2 or target.endswith("/")
    return [
        (s.removeprefix("./"), f"{target.rstrip('/')}/{s.rsplit('/', 1)[-1]}" if many else target) for s in names[:-1]
    ]


def _from_context(text: str, copied: list[tuple[str, str]]) -> str:
    for target, source in sorted((pair for pair in copied if pair[0] in text), key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![\w./-]){re.escape(target)}(?![\w/-])", f"{BESIDE}/{source}", text)
    return text


def _names_one(text: str, known: Collection[str]) -> bool:
    """Return True if commands name a file of the tree, or apply a patch."""
    if re.search(r"\bgit\s+(apply|am)\b|\bpatch\b\s", text):
        return True
    words = {word.rsplit("/", 1)[-1] for word in _WORD.findall(text)}
    return any(word in known and ("." in word or word == "CMakeLists") for word in words)


def _instructions(data: bytes, where: str) -> Iterator[tuple[str, str, int]]:
    """Yield each instruction with its value and line. A here-document is part of the value."""
    need("adopt", "reading a Dockerfile")
    from dockerfile_parse import DockerfileParser

    try:
        structure = DockerfileParser(fileobj=io.BytesIO(data)).structure
        lines = data.decode().split("\n")
    except (UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"{where} can't be read: {error}", hint="name its commands with --run") from None
    upto = 0
    for item in structure:
        start, end = item["startline"], item["endline"]
        if start < upto:
            continue  # part of a here-document
        word, value = item["instruction"], item["value"]
        if word == "RUN" and (here := _HEREDOC.search(value)):
            stop = next((n for n in range(end + 1, len(lines)) if lines[n].strip() == here[2]), len(lines))
            body = "\n".join(lines[end + 1 : stop])
            lone = not value[: here.start()].strip()
            value = body if lone else f"{value}\n{body}\n{here[2]}"
            upto = stop + 1
            yield word, value, start + 2 if lone else start + 1
        else:
            yield word, value, start + 1
