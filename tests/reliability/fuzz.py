"""The coverage-guided fuzzer over every parser: ``python tests/reliability/fuzz.py [NAME…] --seconds N``.

Each parser of ``parsers.py`` is run by atheris (libFuzzer) on mutations of this project's own files,
guided by which branches of patchq, tomllib, tarfile and json they reach. A finding is an exception
that is not explained, more than ten seconds or more than a gigabyte for one input; it is minimised
and belongs into ``fixtures/NAME/``, which every run of the tests goes through.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "tools")]

NAMES = (
    "lock", "series", "header", "diff", "ledger", "measurement", "measurements", "targets", "state", "archive",
    "bundle", "import", "resolutions",
)  # fmt: skip


def one(name: str, options: list[str]) -> None:
    """Become libFuzzer for one parser; doesn't return."""
    import atheris

    with atheris.instrument_imports(include=["patchq", "tomllib", "tarfile", "json"]):
        import parsers

    def try_one(data: bytes) -> None:
        parsers.holds(name, data)

    atheris.Setup([sys.argv[0], *options], try_one)
    atheris.Fuzz()


def fuzz(name: str, seconds: int, keep: Path | None = None) -> dict[str, Any]:
    """Fuzz a parser in a process of its own; returns its figures.

    :param keep: a folder for inputs that reach something new, to go on from; a temporary one if None.
    """
    import parsers

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        corpus = keep / name if keep else folder / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(parsers.seeds(name)):
            (corpus / f"seed-{number}").write_bytes(seed)
        options = [
            f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=1024", "-max_len=65536", "-print_final_stats=1",
            f"-artifact_prefix={folder}/", str(corpus),
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, *options], capture_output=True, text=True, errors="replace"
        )
        runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
        covered = re.findall(r" cov: (\d+) ", done.stderr)
        found = [p for p in folder.iterdir() if p.name.startswith(("crash-", "timeout-", "oom-", "leak-"))]
        figures: dict[str, Any] = {
            "parser": name, "seconds": seconds, "inputs": int(runs[1]) if runs else 0,
            "edges": int(covered[-1]) if covered else 0, "findings": len(found),
        }  # fmt: skip
        if found or done.returncode:
            figures["said"] = done.stdout[-2000:] + done.stderr[-500:]
            figures["input"] = _minimised(name, found[0], folder).decode("latin-1") if found else ""
        return figures


def _minimised(name: str, path: Path, folder: Path) -> bytes:
    """The shortest input that libFuzzer finds in half a minute which still falls over."""
    smaller = folder / "smaller"
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
