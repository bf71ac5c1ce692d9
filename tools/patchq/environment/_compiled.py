"""Run by an interpreter of the version that the caches are of: compiled caches, compared with their sources.

Standard library only, any Python from 3.8. A cache is what Python loads in a source's place, so each that it would
load is compared with what this interpreter makes of the source. Nothing is executed; the comparing happens in
children, for bytes that are no code can take an interpreter down.
"""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import sys
import warnings
from typing import Any, List, Tuple

#: Memory of a child.
MAX_MEMORY = 8 << 30
#: A file on this machine, an offset in it and a size.
Span = Tuple[str, int, int]
#: The source, its time of change, the cache, and its level of optimisation.
Job = Tuple[Span, int, Span, int]


def judge_all(jobs: List[Job]) -> List[Tuple[str, str]]:
    """Return for each job what is wrong with its cache: a kind, or nothing, and a word of it."""
    answers = [("unreadable", "crashes the interpreter")] * len(jobs)
    share = -(-len(jobs) // (os.cpu_count() or 1)) or 1
    running = [start(jobs, range(at, min(at + share, len(jobs)))) for at in range(0, len(jobs), share)]
    while running:
        pipe, child, numbers = running.pop(0)
        done = -1
        with os.fdopen(pipe, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                number, kind, said = json.loads(line)
                answers[number], done = (kind, said), number
        status = os.waitpid(child, 0)[1]
        rest = range(max(done + 1, numbers.start) + 1, numbers.stop)
        if status and rest:  # the one that it was at stays "crashes the interpreter"
            running.append(start(jobs, rest))
    return answers


def start(jobs: List[Job], numbers: range) -> Tuple[int, int, range]:
    """A child that judges some of the caches, a line of JSON each."""
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

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("ignore")
        for number in numbers:
            try:
                kind, said = judge(*jobs[number])
            except Exception as error:
                kind, said = "unreadable", type(error).__name__
            os.write(writing, (json.dumps([number, kind, said]) + "\n").encode())
        os._exit(0)
    finally:
        os._exit(1)


def judge(source_span: Span, mtime: int, cache_span: Span, level: int) -> Tuple[str, str]:
    """Return what is wrong with a cache: a kind, or nothing, and a word of it."""
    data, source = content(cache_span), content(source_span)
    flags = int.from_bytes(data[4:8], "little")
    if data[:4] != importlib.util.MAGIC_NUMBER or len(data) < 16 or flags & ~3:
        return "stale", ""
    stamp = (mtime & 0xFFFFFFFF).to_bytes(4, "little") + (len(source) & 0xFFFFFFFF).to_bytes(4, "little")
    if flags & 1:
        stamp = importlib.util.source_hash(source)
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
    return ("", "") if checked else ("unchecked", "")


def content(span: Span) -> bytes:
    path, offset, size = span
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        file.seek(offset)
        return file.read(size)


FIELDS = """
    co_code co_consts co_names co_varnames co_freevars co_cellvars co_argcount co_posonlyargcount co_kwonlyargcount
    co_nlocals co_stacksize co_flags co_firstlineno co_name co_qualname co_exceptiontable co_linetable
""".split()  # noqa: SIM905


def same(one: Any, other: Any) -> bool:
    """Whether two constants, code among them, are the same but for the name of the file."""
    if type(one) is not type(other):
        return False
    if isinstance(one, type(same.__code__)):
        return all(same(getattr(one, f, None), getattr(other, f, None)) for f in FIELDS)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    return one == other if isinstance(one, (str, bytes, int)) else repr(one) == repr(other)


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(judge_all(json.loads(sys.stdin.read()))) + "\n")
