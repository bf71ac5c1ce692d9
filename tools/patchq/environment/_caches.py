"""Compiled caches (``.pyc``), which Python loads in place of their sources.

They are compared by an interpreter of the version that wrote them. Where there is none, a cache is not judged, and
that is reported; one that Python would load whatever its source holds is refused in any case.
"""

from __future__ import annotations

import json
import posixpath
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.environment._files import Kind
from patchq.environment._imports import Interpreter, cache_paths
from patchq.environment.differences import Code, Findings, Level
from patchq.system import runner

#: Bytes of a source or a cache. No real one has more.
_MAX_SOURCE = 64 << 20
#: Seconds for the comparing.
_PATIENCE = 1800.0
_SCRIPT = Path(__file__).with_name("_compiled.py")
_CODES = {
    "forged": (Code.CACHE_FORGED, Level.PROBLEM),
    "unchecked": (Code.CACHE_UNCHECKED, Level.PROBLEM),
    "unreadable": (Code.CACHE_UNREADABLE, Level.PROBLEM),
    "stale": (Code.CACHE_STALE, Level.NOTE),
}


@dataclass(frozen=True, slots=True)
class _Cache:
    source: str
    path: str
    level: int


def judge_caches(
    interpreter: Interpreter, sources: Iterable[str], findings: Findings, *, root: str = "", python: str = ""
) -> None:
    """Judge each cache that the interpreter would look at for these sources.

    :param root: the folder that reported paths are relative to; empty for absolute ones.
    :param python: the program of that interpreter; without it, one of the same version on this machine is taken.
    """
    files = interpreter.files
    wrong: dict[str, list[str]] = {kind: [] for kind in _CODES}
    caches: list[_Cache] = []

    def shown(path: str) -> str:
        return posixpath.relpath(path, root) if root else path

    for name in sources:
        source = files.resolve(name)
        for path, level in cache_paths(name, interpreter.tag, interpreter.caches):
            kind = files.kind(path) if files.is_folder(posixpath.dirname(path)) else None
            if kind is None:
                continue
            if kind is not Kind.FILE or files.kind(source) is not Kind.FILE:
                wrong["unreadable"].append(f"{shown(path)} (is no plain file)")
            elif files.size(path) > _MAX_SOURCE or files.size(source) > _MAX_SOURCE:
                wrong["unreadable"].append(f"{shown(path)} (is too large)")
            else:
                caches.append(_Cache(source, path, level))
    chosen = python or _same_version(interpreter)
    unjudged: list[str] = []
    if chosen:
        jobs = [[files.span(c.source), files.mtime(c.source), files.span(c.path), c.level] for c in caches]
        for cache, (fault, word) in zip(caches, _compare(chosen, jobs), strict=True):
            if fault:
                wrong[fault].append(shown(cache.path) + (f" ({word})" if word else ""))
    else:
        for cache in caches:
            if _is_unchecked(files.read(cache.path, _MAX_SOURCE)):
                wrong["unchecked"].append(shown(cache.path))
            else:
                unjudged.append(shown(cache.path))
    for word, (code, severity) in _CODES.items():
        findings.add_any(code, wrong[word], level=severity)
    if unjudged:
        findings.note(Code.CACHE_UNJUDGED, (), str(len(unjudged)), "{}.{}".format(*interpreter.version))


def _is_unchecked(data: bytes) -> bool:
    return int.from_bytes(data[4:8], "little") == 1


def _same_version(interpreter: Interpreter) -> str:
    """Return a program of the interpreter's version on this machine, or empty."""
    if interpreter.version == sys.version_info[:2]:
        return sys.executable
    return shutil.which("python{}.{}".format(*interpreter.version)) or ""


def _compare(python: str, jobs: Sequence[object]) -> list[tuple[str, str]]:
    """Return what ``_compiled.py`` finds."""
    if not jobs:
        return []
    argv = [python, "-I", "-S", "-c", _SCRIPT.read_text()]
    data = json.dumps(jobs).encode()
    done = runner.run(argv, data=data, cwd=Path("/"), timeout=_PATIENCE, env={"PYTHONDONTWRITEBYTECODE": "1"})
    answers = json.loads(done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
    return [(str(kind), str(word)) for kind, word in answers]
