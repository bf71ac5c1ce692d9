"""Compare the JSON output and the written files of two versions of patchq on the same project.

    python benchmarks/same_answers.py BEFORE [AFTER]

BEFORE and AFTER are commits of this project. The default of AFTER is the work tree. Each version works on its own clone
of BEFORE's stacks and lock, and starts with `apply` on an empty store. Paths, times and process ids are replaced before
the comparison; everything else must be equal.
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
from pathlib import Path

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


def answers(code: Path, project: Path) -> tuple[list[tuple[int, str]], dict[str, str]]:
    said = [run(verb.split(), project, code) for verb in VERBS]
    written = digests(project, ["dist/*", "patches/**/*", "upstream.lock", "*.bundle", "*.patchq", "*.tar*"])
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
        same = old == new
        differ += not same
        print(f"{'same' if same else 'DIFFERS'}  exit {old[0]}  {len(old[1]):>8} bytes  patchq {verb}")
        if not same and given.show:
            print(json.dumps({"before": old, "after": new}, indent=1))
    gone = {n for n in written.keys() | written_after.keys() if written.get(n) != written_after.get(n)}
    print(f"{len(written)} files written, {len(gone)} differ", *sorted(gone))
    return 1 if differ or gone else 0


if __name__ == "__main__":
    sys.exit(main())
