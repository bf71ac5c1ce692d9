"""Search for the site-packages folder of an image in the text of its Dockerfile."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from patchq.replay._instructions import Instruction

_LITERAL = re.compile(r"(?<![\w.+@*?/-])/(?:[\w.+@*?-]+/)*(?:site|dist)-packages")
_VENV = re.compile(r"(?:-m\s+venv|virtualenv|uv\s+venv)\s+(?:-\S+\s+)*(/[\w./+-]+)")
#: A variable of a virtual environment: ``VIRTUAL_ENV=/x``, ``PATH=/x/bin:$PATH``.
_VENV_VARIABLE = re.compile(r"VIRTUAL_ENV[= ]\"?(/[\w./+-]+)|\bPATH[= ]\"?(?!/usr|/bin|/sbin|/root)(/[\w./+-]+)/s?bin:")
_VERSION = re.compile(r"python(3\.\d+)?[*?\d.]*")
_IMAGE = re.compile(r"(?:^|/)python:(3\.\d+)")
_DEBIANS = re.compile(r"vllm|nvidia|cuda|ubuntu|debian|sglang|pytorch")
_PYTHON = "3.12"


def find_place(instructions: Sequence[Instruction], texts: Sequence[str], tops: Collection[str]) -> str:
    """Return the folder in which the package is installed.

    If the Dockerfile names such a folder, return this folder. Otherwise, return the folder in the virtual environment
    that the Dockerfile creates. Without a virtual environment, return the folder of the base image's Python.

    :param texts: texts of the Dockerfile and its scripts, with variables replaced.
    """
    version = _PYTHON
    for one in instructions:
        if one.word == "FROM" and (match := _IMAGE.search(one.value)):
            version = match[1]
    named = []
    for text in texts:
        for match in _LITERAL.finditer(text):
            path = _with_version(match[0], version)
            rest = re.match(r"/([\w.-]+)", text[match.end() :])
            named.append((bool(rest and rest[1].removesuffix(".py") in tops), path))
    for is_own, path in named:
        if is_own:
            return path
    if named:
        return named[0][1]
    for text in texts:
        match = _VENV.search(text) or _VENV_VARIABLE.search(text)
        if match:
            prefix = next(filter(None, match.groups())).rstrip("/")
            return f"{prefix}/lib/python{version}/site-packages"
    bases = [one.value for one in instructions if one.word == "FROM"]
    kind = "site"
    if any(_DEBIANS.search(base) for base in bases):
        kind = "dist"
    return f"/usr/local/lib/python{version}/{kind}-packages"


def _with_version(path: str, version: str) -> str:
    """Replace a wildcard in the name of a Python's library folder by the version.

    >>> _with_version("/usr/lib/python3.*/site-packages", "3.12")
    '/usr/lib/python3.12/site-packages'
    >>> _with_version("/usr/lib/python3/dist-packages", "3.12")
    '/usr/lib/python3/dist-packages'
    """
    parts = []
    for part in path.split("/"):
        if _VERSION.fullmatch(part) and re.search(r"[*?]", part):
            part = f"python{version}"
        parts.append(part)
    return "/".join(parts)
