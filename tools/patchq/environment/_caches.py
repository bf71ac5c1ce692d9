"""Compiled caches (``.pyc``), which Python loads in place of their sources.

To compare a cache with its source, patchq needs an interpreter of the Python version that wrote the cache. Without such
an interpreter, the cache is reported as not checked. Python loads an "unchecked hash-based" cache (PEP 552) even if the
source differs, so such a cache is always a problem.
"""

from __future__ import annotations

import json
import posixpath
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.environment._files import FileKind, FileTree
from patchq.environment._imports import Interpreter, cache_paths
from patchq.environment.differences import Code, Findings, Level
from patchq.system import runner

#: Largest source or cache to compare, in bytes. Real files are smaller.
_MAX_SOURCE = 64 << 20
#: Time limit of the comparison, in seconds.
_TIMEOUT = 1800.0
_SCRIPT = Path(__file__).with_name("_compiled.py")
_CODES = {
    "forged": (Code.CACHE_FORGED, Level.PROBLEM),
    "unchecked": (Code.CACHE_UNCHECKED, Level.PROBLEM),
    "unreadable": (Code.CACHE_UNREADABLE, Level.PROBLEM),
    "stale": (Code.CACHE_STALE, Level.NOTE),
}


@dataclass(frozen=True, slots=True)
class _BytecodeCache:
    """Bytecode cache to compare with its source. ``level`` is the cache's optimisation level."""

    source: str
    path: str
    level: int


def judge_caches(
    interpreter: Interpreter,
    sources: Iterable[str],
    findings: Findings,
    *,
    root: str = "",
    python: str = "",
) -> None:
    """Report each bytecode cache that differs from its source, if the interpreter would load it.

    :param root: Folder to which reported paths are relative; empty for absolute paths.
    :param python: Program of the interpreter (default: a Python of the same version on this machine).
    """
    files = interpreter.files
    wrong: dict[str, list[str]] = {fault: [] for fault in _CODES}
    caches = []
    for cache in _existing(interpreter, sources):
        fault = _unreadable(files, cache)
        if fault:
            wrong["unreadable"].append(f"{_shown(cache, root)} ({fault})")
        else:
            caches.append(cache)
    chosen = python or _same_version(interpreter)
    skipped = 0
    if chosen:
        for cache, (fault, detail) in zip(caches, _compare(chosen, files, caches), strict=True):
            if fault:
                suffix = ""
                if detail:
                    suffix = f" ({detail})"
                wrong[fault].append(_shown(cache, root) + suffix)
    else:
        for cache in caches:
            if _is_unchecked(files.read(cache.path, _MAX_SOURCE)):
                wrong["unchecked"].append(_shown(cache, root))
            else:
                skipped += 1
    for fault, (code, level) in _CODES.items():
        findings.add_any(code, wrong[fault], level=level)
    if skipped:
        findings.note(Code.CACHE_UNJUDGED, (), str(skipped), _version(interpreter))


def _existing(interpreter: Interpreter, sources: Iterable[str]) -> Iterator[_BytecodeCache]:
    """Yield the existing caches of the sources."""
    files = interpreter.files
    for name in sources:
        source = files.resolve(name)
        for path, level in cache_paths(name, interpreter.tag, interpreter.caches):
            if files.is_folder(posixpath.dirname(path)) and files.kind(path) is not None:
                yield _BytecodeCache(source, path, level)


def _unreadable(files: FileTree, cache: _BytecodeCache) -> str:
    """Return the reason why a cache can't be compared; empty if there is none."""
    paths = (cache.path, cache.source)
    if any(files.kind(path) is not FileKind.FILE for path in paths):
        return "is not a regular file"
    if any(files.size(path) > _MAX_SOURCE for path in paths):
        return "is too large"
    return ""


def _shown(cache: _BytecodeCache, root: str) -> str:
    if root:
        return posixpath.relpath(cache.path, root)
    return cache.path


def _is_unchecked(data: bytes) -> bool:
    """Return whether a cache is hash-based and unchecked (PEP 552): Python loads it without reading the source."""
    return int.from_bytes(data[4:8], "little") == 1


def _version(interpreter: Interpreter) -> str:
    return "{}.{}".format(*interpreter.version)


def _same_version(interpreter: Interpreter) -> str:
    """Return a Python of the interpreter's version on this machine; empty if there is none."""
    if interpreter.version == sys.version_info[:2]:
        return sys.executable
    return shutil.which(f"python{_version(interpreter)}") or ""


def _compare(python: str, files: FileTree, caches: Sequence[_BytecodeCache]) -> list[tuple[str, str]]:
    """Run ``_compiled.py``, and return a fault and a detail for each cache; both are empty for a good cache."""
    if not caches:
        return []
    jobs = []
    for cache in caches:
        source = files.span(cache.source)
        jobs.append([source, files.mtime(cache.source), files.span(cache.path), cache.level])
    done = runner.run(
        [python, "-I", "-S", "-c", _SCRIPT.read_text()],
        data=json.dumps(jobs).encode(),
        cwd=Path("/"),
        timeout=_TIMEOUT,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
    )
    answers = json.loads(done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
    return [(str(fault), str(detail)) for fault, detail in answers]
