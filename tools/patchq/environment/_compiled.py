"""Comparison of bytecode caches with their sources, run by an interpreter of the caches' version.

This script uses only the standard library, and runs in any Python from 3.8. It compiles each source and compares the
result with the code in the source's cache. Neither the source nor the cache is executed. The comparison runs in child
processes, because a damaged cache can crash the interpreter.
"""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import sys
import warnings
from typing import Any, List, Tuple

#: Memory limit of a child process, in bytes.
MAX_MEMORY = 8 << 30
#: Part of a file on this machine: path, offset and size.
Span = Tuple[str, int, int]
#: Source, its modification time, cache, optimisation level.
Job = Tuple[Span, int, Span, int]


def judge_all(jobs: List[Job]) -> List[Tuple[str, str]]:
    """Return a fault (such as ``"stale"``) and a detail for each job's cache; both are empty for a good cache."""
    answers = [("unreadable", "crashes the interpreter")] * len(jobs)
    share = -(-len(jobs) // (os.cpu_count() or 1)) or 1
    running = []
    for first in range(0, len(jobs), share):
        running.append(start(jobs, range(first, min(first + share, len(jobs)))))
    while running:
        pipe, child, numbers = running.pop(0)
        done = -1
        with os.fdopen(pipe, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                number, fault, detail = json.loads(line)
                answers[number] = (fault, detail)
                done = number
        status = os.waitpid(child, 0)[1]
        # Skip the cache that crashed the child.
        rest = range(max(done + 1, numbers.start) + 1, numbers.stop)
        if status and rest:
            running.append(start(jobs, rest))
    return answers


def start(jobs: List[Job], numbers: range) -> Tuple[int, int, range]:
    """Fork a child process that compares some of the caches and writes a line of JSON for each.

    Return the pipe to read from, the child's process id and ``numbers``.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return reading, child, numbers
    try:
        os.close(reading)
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        import resource

        hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, hard_limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("ignore")
        for number in numbers:
            try:
                fault, detail = judge(*jobs[number])
            except Exception as error:
                fault, detail = "unreadable", type(error).__name__
            os.write(writing, (json.dumps([number, fault, detail]) + "\n").encode())
        os._exit(0)
    finally:
        os._exit(1)


def judge(source_span: Span, mtime: int, cache_span: Span, level: int) -> Tuple[str, str]:
    """Return a fault (such as ``"stale"``) and a detail for a cache; both are empty for a good cache."""
    data, source = content(cache_span), content(source_span)
    # Header of a cache (PEP 552): magic number, flags, then a hash or time and size.
    flags = int.from_bytes(data[4:8], "little")
    if data[:4] != importlib.util.MAGIC_NUMBER or len(data) < 16 or flags & ~3:
        return "stale", ""
    if flags & 1:
        stamp = importlib.util.source_hash(source)
    else:
        stamp = little_endian(mtime) + little_endian(len(source))
    checked = flags != 1
    if checked and data[8:16] != stamp:
        return "stale", ""
    code = marshal.loads(data[16:])
    try:
        fresh = compile(source, source_span[0], "exec", dont_inherit=True, optimize=level)
    except (SyntaxError, ValueError):
        return "forged", "its source doesn't even compile"
    if not same(code, fresh):
        return "forged", ""
    return "" if checked else "unchecked", ""


def little_endian(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "little")


def content(span: Span) -> bytes:
    """Return the bytes at a span of a file."""
    path, offset, size = span
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        file.seek(offset)
        return file.read(size)


FIELDS = """
    co_code co_consts co_names co_varnames co_freevars co_cellvars co_argcount
    co_posonlyargcount co_kwonlyargcount co_nlocals co_stacksize co_flags co_firstlineno co_name
    co_qualname co_exceptiontable co_linetable
""".split()  # noqa: SIM905


def same(one: Any, other: Any) -> bool:
    """Return whether two constants, including code objects, are equal except for the file name."""
    if type(one) is not type(other):
        return False
    if isinstance(one, type(same.__code__)):
        return all(same(getattr(one, name, None), getattr(other, name, None)) for name in FIELDS)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, (str, bytes, int)):
        return bool(one == other)
    return repr(one) == repr(other)  # equal floats differ in sign: 0.0 and -0.0


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(judge_all(json.loads(sys.stdin.read()))) + "\n")
