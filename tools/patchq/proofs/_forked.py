"""Server that runs pytest in forks: ``python -m patchq.proofs._forked``.

This module uses the standard library only.

A short run of pytest spends most of its time on importing modules from outside the trees: torch takes
seconds. Therefore, each run is a fork of a server. The first run reports which of these modules it imports, and
the server then imports them for the later runs. In a fork, these modules are hidden until the proof imports them
(:mod:`patchq.proofs._preloaded`). Modules of the trees and of the project are imported again in each fork.
Their bytecode is cached with a hash of the source, and Python checks this hash.

Requests on standard input are JSON objects, one per line: ``{"args", "env", "cwd", "trees", "bytecode",
"timeout", "learn"}``. Each response is a line with ``{"message", "ended", "code"}``. ``message`` is pytest's
output, ``ended`` is false after a timeout, and ``code`` is the exit code. If ``learn`` is true, the modules that
this run imports are preloaded for later forks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import py_compile
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from patchq.proofs._preloaded import Preloaded


def main() -> None:
    """Process requests until standard input ends."""
    ahead = Preloaded()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of imported modules must not mix with responses
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line), ahead)) + "\n")
        answers.flush()


def _answer(job: dict[str, Any], ahead: Preloaded) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        message, seen = Path(text) / "message", Path(text) / "seen"
        gc.freeze()  # exempt the imported modules from pytest's garbage collections
        child = os.fork()
        if not child:
            _run(job, message, seen, ahead)
        code = _wait(child, job["timeout"])
        ended = code is not None
        words = ""
        if message.exists():
            words = message.read_bytes().decode("utf-8", "replace")
        if ended and seen.exists():
            ahead.load(json.loads(seen.read_text()))
    return {"message": words, "ended": ended, "code": code or 0}


def _pytest(args: Sequence[str], bytecode: str) -> int:
    """Run pytest. Bytecode of the trees and the project is written to the folder ``bytecode``."""
    import pytest

    class BytecodeFolder:
        """Plugin that sets the bytecode folder after pytest has loaded the installed plugins.

        The bytecode of installed plugins is already next to their sources. Compiling the plugins again would
        take longer than a proof.
        """

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_load_initial_conftests(self) -> Iterator[None]:
            sys.pycache_prefix = bytecode
            return (yield)

    # pytest warns about preloaded libraries with a plugin. Proofs don't use their assertions.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*quiet, *args], [BytecodeFolder()]))


def _run(job: dict[str, Any], message: Path, seen: Path, ahead: Preloaded) -> None:
    """Run pytest in the fork as ``python -m pytest`` would, and exit."""
    code = 70
    try:
        os.setsid()
        out = os.open(message, os.O_WRONLY | os.O_CREAT, 0o600)
        for target in (1, 2):
            os.dup2(out, target)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(job["env"])
        os.chdir(job["cwd"])
        sys.dont_write_bytecode = True
        sys.argv = ["pytest", *job["args"]]
        ahead.hide()
        code = _pytest(job["args"], job["bytecode"])
        if job["learn"]:
            inside = [Path(job["trees"]).resolve(), Path(job["cwd"]).resolve()]
            _keep_bytecode(inside[0])
            patched = json.loads(job["env"].get("PATCHQ_IMPORTS", "{}"))
            seen.write_text(json.dumps([n for n in _outside(inside) if n.partition(".")[0] not in patched]))
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _outside(inside: Sequence[Path]) -> Iterator[str]:
    """Yield the names of imported modules whose files are in none of the folders ``inside``, in import order."""
    lies_in = _lies_in(inside)
    for name, module in list(sys.modules.items()):
        spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        # Modules with another name and modules made by tests can't be imported by name. pytest
        # must import its plugins itself, to rewrite their assertions.
        ours = not file or not spec or spec.name != name or type(spec.loader).__name__ == "AssertionRewritingHook"
        if not ours and not lies_in(str(file)):
            yield name


def _lies_in(inside: Sequence[Path]) -> Callable[[str], bool]:
    """Return a function that checks whether a file is in one of the given folders.

    The function resolves each parent folder only once.
    """
    known: dict[Path, bool] = {}

    def look(file: str) -> bool:
        folder = Path(file).parent
        if folder not in known:
            real = folder.resolve()
            known[folder] = any(f == real or f in real.parents for f in inside)
        return known[folder]

    return look


def _keep_bytecode(trees: Path) -> None:
    lies_in = _lies_in([trees])
    for module in list(sys.modules.values()):
        file = str(getattr(module, "__file__", None) or "")
        if file.endswith(".py") and lies_in(file):
            kept = Path(importlib.util.cache_from_source(file))
            now = importlib.util.source_hash(Path(file).read_bytes())
            if not kept.exists() or kept.read_bytes()[8:16] != now:
                py_compile.compile(file, str(kept), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def _wait(child: int, timeout: float | None) -> int | None:
    """Return the exit code of a child, or the negative number of its signal.

    If the timeout expires, kill the child's process group and return None.
    """
    end = None
    if timeout:
        end = time.monotonic() + timeout
    pause = 0.01
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if end is not None and time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    return os.waitstatus_to_exitcode(ended[1])


if __name__ == "__main__":
    main()
