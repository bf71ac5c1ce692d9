"""Run by the Python environment that is looked at, after ``probe.py``: its compiled caches, against their sources.

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
from typing import Any, Dict, List, Tuple

#: Bytes of a source or a cache: nobody's are larger. Memory of a child.
MAX_SOURCE, MAX_MEMORY = 64 << 20, 8 << 30
Job = Tuple[str, str, int]


def caches(root: str, names: List[str]) -> Dict[str, Any]:
    """How many caches the sources ``names`` below ``root`` have, and which are not what this Python makes of them."""
    jobs = []
    for name in names:
        path = os.path.join(root, name)
        for level, word in enumerate(("", "1", "2")):
            try:
                cache = importlib.util.cache_from_source(path, optimization=word)
            except (NotImplementedError, ValueError):
                continue
            if os.path.lexists(cache):
                jobs.append((path, cache, level))
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
    wrong = [[os.path.relpath(job[1], root), kind, said] for job, (kind, said) in zip(jobs, answers) if kind]
    return {"checked": len(jobs), "wrong": wrong}


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


def judge(path: str, cache: str, level: int) -> Tuple[str, str]:
    """What is wrong with a cache: a kind, or nothing, and a word of it."""
    if os.path.islink(cache) or not os.path.isfile(cache):
        return "unreadable", "is no plain file"
    if os.path.getsize(cache) > MAX_SOURCE or os.path.getsize(path) > MAX_SOURCE:
        return "unreadable", "is too large to be one"
    with open(cache, "rb") as file:
        data = file.read()
    with open(path, "rb") as file:
        source = file.read()
    flags = int.from_bytes(data[4:8], "little")
    if data[:4] != importlib.util.MAGIC_NUMBER or len(data) < 16 or flags & ~3:
        return "stale", ""
    now = os.stat(path)
    stamp = (int(now.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (now.st_size & 0xFFFFFFFF).to_bytes(4, "little")
    if flags & 1:
        stamp = importlib.util.source_hash(source)
    checked = flags != 1
    if checked and data[8:16] != stamp:
        return "stale", ""
    code = marshal.loads(data[16:])
    try:
        fresh = compile(source, path, "exec", dont_inherit=True, optimize=level)
    except (SyntaxError, ValueError):
        return "forged", "its source doesn't even compile"
    if not same(code, fresh):
        return "forged", ""
    return ("", "") if checked else ("unchecked", "")


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
    question = json.loads(sys.stdin.read())
    sys.pycache_prefix = question["cache_prefix"] or None
    told = [caches(package["root"], package["sources"]) for package in question["packages"]]
    sys.stdout.write("\n" + json.dumps(told) + "\n")
