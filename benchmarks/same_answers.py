"""Compare the JSON output and the written files of two versions of patchq on the same project.

    python benchmarks/same_answers.py BEFORE [AFTER] [--show]

BEFORE and AFTER are commits of this project. The default of AFTER is the work tree. Each version works on its own clone
of BEFORE's stacks and lock, and starts with `apply` on an empty store. Paths, times and process ids are replaced before
the comparison, and the fields that docs/reference/json.md lists as renamed. Added fields are counted. Lost fields and
other values are differences; written files must be equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: What is run, in order; each answers in JSON, with a code that is compared too.
VERBS = [
    "apply --json", "status --json", "list --json", "show vllm/blackwell-class --json", "check --json",
    "deps --json", "diff HEAD --json", "ledger vllm --json", "ledger flashinfer --json",
    "forecast vllm --onto v0.14.0 --onto v0.20.0 --onto v0.33.0 --json",
    "forecast flashinfer --onto v0.7.2.post1 --json", "drift vllm --from v0.13.0 --to v0.14.0 --json", "report --json", "bench show --json",
    "doctor --json", "build --json", "build --json", "export vllm --json", "export flashinfer --json",
    "move vllm/attention-sinks-switch --first --json", "undo --json", "drop vllm/moe-debug-switches --json", "undo --json",
    "apply --to vllm/blackwell-class --json", "apply --json", "pr no-such-patch --json", "fetch vllm --json", "status --json",
    "bundle all.bundle --json", "verify-installed --json",
]  # fmt: skip
#: Fields that have another name now, as docs/reference/json.md lists them.
RENAMED = {
    "said": "message", "fate": "status", "needs_you": "needs_review", "stand_in": "replacement",
    "tallies": "summaries", "retired": "dropped", "left_out": "dropped", "withdrawn": "dropped", "decided": "dropped",
}  # fmt: skip
_VARIES = [
    (re.compile(r'"(?:time|seconds|when|date|made|generated)": (?:"[^"]*"|[0-9.e+-]+)'), '"time": 0'),
    (re.compile(r"/tmp/patchq-[A-Za-z0-9_]+"), "TMP"),
]


def run(argv: list[str], cwd: Path, code: Path) -> tuple[int, str]:
    env = {**os.environ, "PYTHONPATH": str(code / "tools"), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-m", "patchq", *argv], cwd=cwd, env=env, capture_output=True, text=True)
    said = (done.stdout or done.stderr).replace(str(cwd), "PROJECT").replace(str(code), "CODE")
    for pattern, same in _VARIES:
        said = pattern.sub(same, said)
    return done.returncode, said


def checkout(commit: str, folder: Path) -> Path:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "checkout", "-q", commit], cwd=folder, check=True)
    return folder


def digests(folder: Path, patterns: list[str]) -> dict[str, str]:
    found = [p for pattern in patterns for p in folder.glob(pattern) if p.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(found)}


def differences(before: Any, after: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the kind and the place of each difference of two JSON values."""
    if isinstance(before, dict) and isinstance(after, dict):
        before = {key if key in after else RENAMED.get(key, key): value for key, value in before.items()}
        for key in before.keys() - after.keys():
            yield "lost", f"{place}.{key}"
        for key in after.keys() - before.keys():
            yield "added", f"{place}.{key}"
        for key in before.keys() & after.keys():
            yield from differences(before[key], after[key], f"{place}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield "length", place
        for one, other in zip(before, after, strict=False):
            yield from differences(one, other, f"{place}[]")
    elif before != after:
        yield "value", place


def compare(old: tuple[int, str], new: tuple[int, str]) -> Counter[tuple[str, str]]:
    """Count the differences of two answers by kind and place."""
    if old == new:
        return Counter()
    try:
        found = Counter(differences(json.loads(old[1]), json.loads(new[1])))
    except ValueError:
        found = Counter([("text", "")])
    if old[0] != new[0]:
        found["exit code", ""] = 1
    return found


def answers(code: Path, project: Path) -> tuple[list[tuple[int, str]], dict[str, str]]:
    said = [run(verb.split(), project, code) for verb in VERBS]
    written = digests(project, ["dist/**/*", "patches/**/*", "upstream.lock", "*.bundle", "*.patchq", "*.tar*"])
    return said, written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?")
    parser.add_argument("--show", action="store_true", help="what differs, in full")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="same-answers-") as text:
        folder = Path(text)
        before = checkout(given.before, folder / "before")
        after = checkout(given.after, folder / "after") if given.after else ROOT
        results = []
        for name, code in (("one", before), ("two", after)):
            project = checkout(given.before, folder / name / "project")
            results.append(answers(code, project))
            shutil.rmtree(project)
    (said, written), (said_after, written_after) = results
    differ = 0
    for verb, old, new in zip(VERBS, said, said_after, strict=True):
        found = compare(old, new)
        changed = sum(count for (kind, _), count in found.items() if kind != "added")
        differ += bool(changed)
        word = "DIFFERS" if changed else "added" if found else "same"
        print(f"{word:<8} exit {old[0]}  {len(old[1]):>8} bytes  patchq {verb}")
        for (kind, place), count in sorted(found.items()):
            print(f"         {kind} {place} ({count})")
        if changed and given.show:
            print(json.dumps({"before": old, "after": new}, indent=1))
    gone = {n for n in written.keys() | written_after.keys() if written.get(n) != written_after.get(n)}
    print(f"{len(written)} files written, {len(gone)} differ", *sorted(gone))
    return 1 if differ or gone else 0


if __name__ == "__main__":
    sys.exit(main())
