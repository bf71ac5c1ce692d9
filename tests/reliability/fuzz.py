"""The coverage-guided fuzzer over every parser: ``python tests/reliability/fuzz.py [NAME…] --seconds N``.

Each parser of ``parsers.py`` is run by atheris (libFuzzer) on mutations of this project's own files,
guided by which branches of patchq, tomllib, tarfile and json they reach. A finding is an exception
that is not explained, more than ten seconds or more than a gigabyte for one input; it is minimised
and belongs into ``fixtures/NAME/``, which every run of the tests goes through.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "tools")]

NAMES = (
    "lock", "series", "header", "diff", "ledger", "measurement", "measurements", "targets", "state", "archive",
    "bundle", "scripts", "recipes", "import", "resolutions",
)  # fmt: skip


def one(name: str, options: list[str]) -> None:
    """Become libFuzzer for one parser; doesn't return."""
    _become(_instrumented(), name, options)


def each() -> None:
    """Run libFuzzer for one parser after another, each in a process of its own, forked after the imports.

    Standard input has a line of JSON for each: the parser, options, and the file for what libFuzzer says;
    the answer is a line with its exit code.
    """
    parsers = _instrumented()
    for line in sys.stdin:
        name, options, said = json.loads(line)
        child = os.fork()
        if child == 0:
            out = os.open(said, os.O_WRONLY | os.O_CREAT)
            os.dup2(out, 1)
            os.dup2(out, 2)
            _become(parsers, name, options)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _instrumented() -> ModuleType:
    import atheris

    with atheris.instrument_imports(include=["patchq", "tomllib", "tarfile", "json"]):
        import parsers

    return parsers


def _become(parsers: ModuleType, name: str, options: list[str]) -> None:
    import atheris

    def try_one(data: bytes) -> None:
        parsers.holds(name, data)

    atheris.Setup([sys.argv[0], *options], try_one)
    atheris.Fuzz()


def fuzz(name: str, seconds: int, keep: Path | None = None) -> dict[str, Any]:
    """Fuzz a parser in a process of its own; returns its figures.

    :param keep: a folder for inputs that reach something new, to go on from; a temporary one if None.
    """
    return fuzz_each([name], seconds, keep=keep)[name]


def fuzz_each(
    names: Sequence[str], seconds: int, runs: int = -1, keep: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Fuzz parsers, one after the other; what instruments them is started once.

    :param seconds: for each, at most.
    :param runs: so many inputs for each, at most; any number if negative.
    """
    import parsers

    with tempfile.TemporaryDirectory() as text:
        orders = []
        for name in names:
            folder = Path(text) / name
            corpus = keep / name if keep else folder / "corpus"
            for path in (folder, corpus):
                path.mkdir(parents=True, exist_ok=True)
            for number, seed in enumerate(parsers.seeds(name)):
                (corpus / f"seed-{number}").write_bytes(seed)
            options = [
                f"-max_total_time={seconds}", f"-runs={runs}", "-timeout=10", "-rss_limit_mb=1024", "-max_len=65536",
                "-print_final_stats=1", f"-artifact_prefix={folder}/", str(corpus),
            ]  # fmt: skip
            orders.append(json.dumps([name, options, str(folder / "message")]))
        argv = [sys.executable, __file__, "--each"]
        done = subprocess.run(argv, input="\n".join(orders), capture_output=True, text=True, check=True)
        codes = map(int, done.stdout.split())
        return {name: _figures(name, seconds, Path(text) / name, c) for name, c in zip(names, codes, strict=True)}


def _figures(name: str, seconds: int, folder: Path, code: int) -> dict[str, Any]:
    said = (folder / "message").read_text(errors="replace")
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", said)
    covered = re.findall(r" cov: (\d+) ", said)
    found = [p for p in folder.iterdir() if p.name.startswith(("crash-", "timeout-", "oom-", "leak-"))]
    figures: dict[str, Any] = {
        "parser": name, "seconds": seconds, "inputs": int(runs[1]) if runs else 0,
        "edges": int(covered[-1]) if covered else 0, "findings": len(found),
    }  # fmt: skip
    if found or code:
        figures["message"] = said[-2500:]
        figures["input"] = _minimised(name, found[0], folder).decode("latin-1") if found else ""
    return figures


def _minimised(name: str, path: Path, folder: Path) -> bytes:
    """Return the shortest input that libFuzzer finds in half a minute which still falls over.

    If a busy machine needs more than two minutes for that, return the shortest input until then.
    """
    smaller = folder / "smaller"
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, __file__, "--one", name, "-minimize_crash=1", "-max_total_time=30", "-timeout=10",
             "-rss_limit_mb=1024", f"-exact_artifact_path={smaller}", str(path)],
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
    return smaller.read_bytes() if smaller.exists() else path.read_bytes()


def main() -> int:
    """Fuzz the named parsers, or all; a line of JSON each. Exit code 1 with a finding."""
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], sys.argv[3:])
    if sys.argv[1:2] == ["--each"]:
        each()
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], default=NAMES, metavar="NAME")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--corpus", type=Path, help="where inputs that reach something new are kept")
    given = parser.parse_args()
    bad = 0
    for name in given.names:
        figures = fuzz(name, given.seconds, given.corpus)
        bad += figures["findings"]
        print(json.dumps(figures), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
