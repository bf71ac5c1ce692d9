"""The long form of the reliability tests: every point, and minutes of fuzzing for each parser.

    python tests/reliability/long_form.py [--results FOLDER] [--only WORD] [--merge] [--history REPOSITORY]
    python tests/reliability/long_form.py --kills NUMBER [--seed TEXT]

Runs the tests of this folder with nothing left out, writes what they found to
``docs/reference/reliability.json`` and the tables of ``docs/reference/reliability.md`` from that.
Forty minutes on two cores. A failure is told and nothing is written.

The second form is one run of its own: at least so many kills, at random system calls of all verbs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = ROOT / "docs" / "reference" / "reliability.json"
PAGE = ROOT / "docs" / "reference" / "reliability.md"


#: Titles of the faults in the page, with their names in the results.
FAULTS = {
    "all processes killed": "every process killed",
    "one process killed": "the process that is there killed",
    "disk full": "the disk full from there on",
}
#: Columns of the conservation suite.
CONSERVED = ("cases", "pieces", "taken", "refused", "named", "unaccounted")


def collect(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What the tests wrote, by kind, in an order that doesn't depend on who was first; of a test run twice the last."""
    found: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime_ns):
        row = json.loads(path.read_text())
        which = tuple(str(row.get(key, "")) for key in ("verb", "fault", "parser", "history", "what", "seed"))
        found.setdefault(row.pop("kind"), {})[which] = row
    return {kind: [rows[which] for which in sorted(rows)] for kind, rows in sorted(found.items())}


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(str(c) for c in row) + " |" for row in rows)])


def tables(found: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """The page's tables, by the name of their marker."""
    killed = []
    for title, fault in FAULTS.items():
        rows = [row for row in found.get("killed", []) if row["fault"] == fault]
        tried = sum(row["before"] + row["after"] if "before" in row else row["tried"] for row in rows)
        killed.append((title, len(rows), f"{tried:,}"))
    parsers = (
        len(found.get("property", [])),
        f"{sum(row['inputs'] for row in found.get('property', [])):,}",
        f"{sum(row['inputs'] for row in found.get('fuzz', [])):,}",
        sum(row["findings"] for row in found.get("fuzz", [])),
    )
    undone = [(f"{r['sequences']:,}", f"{r['undone']:,}") for r in found.get("undo", [])]
    keys = ("cases", "took", "refused", "git", "meant", "different", "taken", "unexplained")
    compared = (
        [tuple(f"{sum(r[key] for r in found['differential']):,}" for key in keys)] if "differential" in found else []
    )
    compared_head = (
        "cases", "same tree", "refused by both", "left to git", "refused with a reason",
        "another tree", "taken, git refuses", "refused, no reason",
    )  # fmt: skip
    carried: dict[tuple[str, str], Counter[str]] = {}
    for row in found.get("carried", []):
        counts = carried.setdefault((row["history"].split(",")[0], row["what"]), Counter())
        counts.update({key: row[key] for key in ("tried", "landed", "moved", "alone")})
    for row in found.get("texts", []):
        outcomes = {key: n for key, n in row.items() if key != "seed"}
        landed = sum(outcomes.get(key, 0) for key in ("clean", "offset", "merged"))
        counts = carried.setdefault(("texts of few words", "patches, three in a row"), Counter())
        counts.update(tried=sum(outcomes.values()), landed=landed, moved=outcomes.get("offset", 0))
    for row in found.get("rebased", []):
        counts = carried.setdefault(("made", "stacks of three, with git rebase"), Counter())
        counts.update(tried=row["same"], landed=row["same"])
    conserved: Counter[str] = Counter()
    for row in found.get("conservation", []):
        conserved.update({key: row[key] for key in CONSERVED})
    heads = ("tried", "landed", "moved", "alone")
    merged = [(*which, *(f"{n[key]:,}" for key in heads), 0) for which, n in sorted(carried.items())]
    return {
        "differential": table(compared_head, compared),
        "carried": table(
            ("history", "what", "tried", "applied", "with moved lines", "stopped where git merges", "not as git"),
            merged,
        ),
        "conservation": table(CONSERVED, [[f"{conserved[key]:,}" for key in CONSERVED]]),
        "killed": table(("fault", "cases", "points"), killed),
        "parsers": table(("parsers", "inputs", "inputs of the fuzzer", "findings left"), [parsers]),
        "sampled": table(
            ("kills", "verbs", "lost", "minutes", "seed", "on"),
            [
                (r["kills"], r["verbs"], r["lost"], r["minutes"], f"`{r['seed']}`", r["on"])
                for r in found.get("sampled", [])
            ],
        ),
        "undo": table(("sequences of verbs", "undone, each compared"), undone),
    }


def page(text: str, found: dict[str, list[dict[str, Any]]]) -> str:
    """The page with its tables put in between their markers."""
    for name, body in tables(found).items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, count = re.subn(pattern, lambda m, body=body: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
        assert count == 1, f"{PAGE} has no place for {name}"
    return text


def run_tests(folder: Path, argv: Sequence[str], **settings: str) -> int:
    """The exit code of pytest, on both cores; the tests write their figures to ``folder``."""
    env = {**os.environ, **settings, "PATCHQ_RELIABILITY_RESULTS": str(folder)}
    every = [sys.executable, "-m", "pytest", "-n", "auto", "--dist=load", *argv]
    return subprocess.run(every, cwd=ROOT, env=env, check=False).returncode


#: The tests that kill a verb, of those with this word in their names; the rest of them fill the disk.
KILLED, KILLS = [str(path) for path in sorted(HERE.glob("test_killed*.py"))], "system_call and KILL_"


def kill_at_random(folder: Path, wanted: int, seed: str) -> int:
    """Kill verbs at random system calls, ``wanted`` times or more; pytest's exit code."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-k", KILLS, *KILLED]
    listed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tests = sum("::" in line for line in listed.splitlines())
    # One more of each: git's own work differs by a call or two from run to run, and a point may not be there.
    each, begun = wanted // tests + 2, time.monotonic()
    print(f"{tests} tests, {each} kills each, seed {seed}", flush=True)
    code = run_tests(folder, ["-k", KILLS, *KILLED], PATCHQ_RELIABILITY_EACH=str(each), PATCHQ_RELIABILITY_SEED=seed)
    rows = collect(folder).get("killed", [])
    kills, verbs = sum(row["met"] for row in rows), len({row["verb"] for row in rows})
    print(f"{kills} kills over {verbs} verbs", flush=True)
    if code or kills < wanted or len(rows) != tests:
        return code or 1
    # Each test says itself if anything was lost, and there is no row of one that failed.
    row = {
        "kills": kills, "verbs": verbs, "lost": 0, "seed": seed, "on": time.strftime("%Y-%m-%d"),
        "minutes": round((time.monotonic() - begun) / 60),
    }  # fmt: skip
    write(json.loads(RESULTS.read_text()) | {"sampled": [row]})
    return 0


def write(found: dict[str, list[dict[str, Any]]]) -> None:
    """Write the results, and the page's tables from them."""
    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(PAGE.read_text(), found))


def main() -> int:
    """Run, and write the results; pytest's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, help="keep the single results here")
    parser.add_argument("--only", default="", metavar="WORD", help="as pytest's -k; then nothing is written")
    parser.add_argument(
        "--history", type=Path, metavar="REPOSITORY",
        help="carry random commits of this one (a git directory with tags) onto its tags, beside git's merges",
    )  # fmt: skip
    parser.add_argument("--merge", action="store_true", help="write what is in --results, without running")
    parser.add_argument("--kills", type=int, default=0, metavar="NUMBER", help="only that: kill verbs at random")
    parser.add_argument("--seed", default=uuid.uuid4().hex[:8], metavar="TEXT", help="where, as a run before chose")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = (given.results or Path(text)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if given.kills:
            return kill_at_random(folder, given.kills, given.seed)
        code = 0
        if not given.merge:
            settings = {"PATCHQ_RELIABILITY": "long"}
            if given.history:
                settings["PATCHQ_RELIABILITY_HISTORY"] = str(given.history.resolve())
            only = ["-k", given.only] if given.only else []
            page_test = f"--ignore={HERE / 'test_report.py'}"  # it compares what this run is about to write
            code = run_tests(folder, [str(HERE), page_test, *only], **settings)
        if code == 0 and not given.only:
            kept = json.loads(RESULTS.read_text()).get("sampled", [])
            write(collect(folder) | {"sampled": kept})
        return code


if __name__ == "__main__":
    sys.exit(main())
