"""Syntax check for the files of a resolution, if a parser for them is installed."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from patchq.drift.bodies import count_cpp_errors, language_of, reads_cpp
from patchq.formats import toml


def broken(before: Sequence[Mapping[bytes, bytes]], after: Mapping[bytes, bytes]) -> tuple[str, str, list[str]]:
    """Return the first file with a syntax error, the parser's message, and the files that no parser can check.

    A resolved file may contain as many syntax errors as the file has on one of the sides.

    :param before: contents of the files on each side.
    :param after: contents of the files in the resolution.
    """
    unread = []
    for path, content in sorted(after.items()):
        versions = [side[path] for side in before if path in side]
        if content in versions:
            continue
        name = os.fsdecode(path)
        found = _errors(path, content)
        if found is None:
            unread.append(name)
            continue
        count, message = found
        most = 0
        for version in versions:
            errors = _errors(path, version)
            if errors:
                most = max(most, errors[0])
        if count > most:
            return name, message, unread
        if most and language_of(path) != "c++":
            unread.append(name)
    return "", "", unread


def _errors(path: bytes, content: bytes) -> tuple[int, str] | None:
    """Return the number of syntax errors in a file, with a message; None if no parser can check it."""
    suffix = PurePath(os.fsdecode(path)).suffix
    try:
        if suffix in (".py", ".pyi"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(content, os.fsdecode(path), "exec", dont_inherit=True)
        elif suffix == ".json":
            json.loads(content)
        elif suffix == ".toml":
            toml.loads(content)
        elif language_of(path) == "c++" and reads_cpp():
            return count_cpp_errors(content), "a syntax error"
        else:
            return None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return 1, str(error) or type(error).__name__
    return 0, ""
