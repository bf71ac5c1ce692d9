"""Runs of pytest that begin as copies of one process: ``python -m patchq.proofs._forked``. Standard library only.

Most of a short run is spent on importing what is in no tree: torch takes seconds, and is the same for all mutants. This
process imports what a first run was seen to import from elsewhere, and each further run is a fork of it, which sees
none of that until it imports it itself (:mod:`patchq.proofs._preloaded`). What comes from the trees, or from the
project, is imported by each run anew; its bytecode is kept with the source's hash, which Python compares before it
believes it.

One JSON object a line on standard input, ``{"args", "env", "cwd", "trees", "bytecode", "timeout", "learn"}``; one a
line as the answer, ``{"said", "ended", "code"}``: what pytest wrote, whether it ended in time, and its exit code. With
``learn`` the next runs have what this one imported.
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
    """Answer until standard input ends."""
    ahead = Preloaded()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what imported modules print is no answer
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line), ahead)) + "\n")
        answers.flush()


def _answer(job: dict[str, Any], ahead: Preloaded) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        said, seen = Path(text) / "said", Path(text) / "seen"
        gc.freeze()  # pytest collects garbage more than once in each run; of what was imported ahead there is none
        child = os.fork()
        if not child:
            _run(job, said, seen, ahead)
        code = _wait(child, job["timeout"])
        ended = code is not None
        words = said.read_bytes().decode("utf-8", "replace") if said.exists() else ""
        if ended and seen.exists():
            ahead.load(json.loads(seen.read_text()))
    return {"said": words, "ended": ended, "code": code or 0}


def _pytest(args: Sequence[str], bytecode: str) -> int:
    """Run pytest; the bytecode of the trees and the project is looked for in ``bytecode``."""
    import pytest

    class Imported:
        """Plugins that are installed come with the bytecode beside them: to compile them takes longer than a proof."""

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_load_initial_conftests(self) -> Iterator[None]:
            sys.pycache_prefix = bytecode
            return (yield)

    # Of libraries that have a plugin and are there already: their assertions aren't those of a proof.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*quiet, *args], [Imported()]))


def _run(job: dict[str, Any], said: Path, seen: Path, ahead: Preloaded) -> None:
    """In the fork: pytest, as ``python -m pytest`` would run it; never returns."""
    code = 70
    try:
        os.setsid()
        out = os.open(said, os.O_WRONLY | os.O_CREAT, 0o600)
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
    """The modules that came from neither the trees nor the project, in the order in which they were imported."""
    lies_in = _lies_in(inside)
    for name, module in list(sys.modules.items()):
        spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        # A module under another name, or one that was made in a test, can't be imported by its name; pytest's
        # plugins, whose assertions it rewrites, are its own to import.
        ours = not file or not spec or spec.name != name or type(spec.loader).__name__ == "AssertionRewritingHook"
        if not ours and not lies_in(str(file)):
            yield name


def _lies_in(inside: Sequence[Path]) -> Callable[[str], bool]:
    """Whether a file lies in one of these folders; each folder of files is looked up once."""
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
    """Return its exit code, or the negative number of its signal; None if it didn't end in time and was killed."""
    end = time.monotonic() + timeout if timeout else None
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
