"""Serve the made model by a set's wheels and by upstream's, and write the table.

    python tests/serving/checkpoint.py MODEL
    python tests/serving/run.py MODEL OUT --release 0.20.0 --patched PYTHON --unpatched PYTHON [--jobs 3] [--only CASE]

Each engine is a process of its own, with its log in OUT, some at a time on one GPU; one that hangs costs its row. The
references follow, then ``OUT/serving.json``. What is there already is kept, so a run can be taken up again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import comparing
import plan

HERE = Path(__file__).parent
#: Lines of an engine's log that say what was chosen.
SAYING = re.compile(
    r"(?i)\b(using .*(backend|marlin|attention|flash)|mxfp4.*backend|sinks?\b.*(drop|false|output)|mxfp4.layers|"
    r"attention backend|groups? of)"
)
#: What the table keeps of an engine's answer as it is.
KEPT = ("error", "raised in", "taken_for", "chosen", "attention", "methods", "weights", "accounting", "seconds")


def stem(text: str) -> str:
    """A case's or reference's name as a file's."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "plain"


def started(command: list[str], log: Path, limit: float, env: Mapping[str, str]) -> int:
    """Run to the end or the limit, with all its children; the exit status, or 124."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **env}, start_new_session=True
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return 124


def chosen_lines(log: str) -> list[str]:
    """What the engine said it chose, each once, without time and place."""
    found: dict[str, None] = {}
    for line in log.splitlines():
        said = re.sub(r"^.*?\[[\w.]+\.py:\d+\]\s*", "", line)
        if said != line and SAYING.search(said):
            found[said.strip()[:300]] = None
    return list(found)[:20]


def serve(case: plan.Case, build: str, python: str, given: argparse.Namespace) -> dict[str, Any]:
    """The engine's answer, or why there is none."""
    base = given.out / f"{stem(case.name)}.{build}"
    answer, log, spec = (Path(f"{base}{end}") for end in (".json", ".log", ".spec.json"))
    if not answer.exists() and time.monotonic() > given.until:
        return {"name": case.name, "error": "not run, the time was over"}
    if not answer.exists():
        size = json.loads((given.model / "target/config.json").read_text())["vocab_size"]
        prompts = plan.prompts(size, given.lengths)
        spec.write_text(json.dumps(plan.spec(case, str(given.model / "target"), str(given.model / "draft"), prompts)))
        status = started([python, str(HERE / "engine.py"), str(spec), str(answer)], log, given.limit, case.env)
        if not answer.exists():
            lines = log.read_text(errors="replace").splitlines()[-15:]
            answer.write_text(json.dumps({"name": case.name, "error": f"exit {status}", "said": lines}) + "\n")
    found: dict[str, Any] = json.loads(answer.read_text())
    found["chosen"] = chosen_lines(log.read_text(errors="replace")) if log.exists() else []
    print(f"{build:9} {case.name}: {found.get('error') or found.get('seconds')}", flush=True)
    return found


def truths(
    answers: Mapping[tuple[str, str], Mapping[str, Any]], cases: list[plan.Case], given: argparse.Namespace
) -> dict[plan.Truth, dict[comparing.Key, dict[str, Any]]]:
    """Every reference that a case is held against, over the sequences that those cases have; one process for all."""
    wanted: dict[plan.Truth, list[Mapping[str, Any]]] = {}
    for case in cases:
        wanted.setdefault(case.truth, []).extend(answers[case.name, build] for build in case.builds)
    if () in wanted:
        wanted[plan.ROUNDED] = wanted[()][:1]
    jobs = [{"otherwise": list(key), "sequences": comparing.sequences(held)} for key, held in wanted.items()]
    if given.known:
        return {key: begun(held, read_truths(given.known).get(key, {})) for key, held in wanted.items()}
    todo, out = given.out / "reference.jobs.json", given.out / "reference.json"
    if not out.exists() or not todo.exists() or json.loads(todo.read_text()) != jobs:
        todo.write_text(json.dumps(jobs))
        command = [given.reference, str(HERE / "reference.py"), str(given.model / "target"), str(todo), str(out)]
        log = given.out / "reference.log"
        if started(command, log, 4 * given.limit, {}):
            print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
    return read_truths(out) if out.exists() else {}


def read_truths(file: Path) -> dict[plan.Truth, dict[comparing.Key, dict[str, Any]]]:
    """What ``reference.py`` wrote."""
    found: dict[plan.Truth, dict[comparing.Key, dict[str, Any]]] = {}
    for job in json.loads(file.read_text()):
        rows = zip(map(tuple, job["sequences"]), job["rows"], strict=True)
        found[tuple(job["otherwise"])] = dict(rows)
    return found


def begun(
    held: list[Mapping[str, Any]], known: Mapping[comparing.Key, dict[str, Any]]
) -> dict[comparing.Key, dict[str, Any]]:
    """Of a reference made for another run on the same model and prompts, what it knows of these answers."""
    rows = [row for answer in held for rows in answer.get("passes", {}).values() for row in rows]
    found = {}
    for row in rows:
        sequence = (*row["prompt"], *row["tokens"])
        found[sequence] = known.get(sequence) or comparing.beginning(known, sequence, len(row["prompt"]))
    return found


def compared(
    case: plan.Case, build: str, answers: Mapping[tuple[str, str], Mapping[str, Any]],
    truth: Mapping[comparing.Key, Mapping[str, Any]],
) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
    """For each pass of a case, what it is off."""
    answer = answers[case.name, build]
    passes = answer.get("passes", {})
    for name, rows in passes.items():
        found = {"prompts": comparing.prompts(rows, truth), "greedy": comparing.greedy(rows, truth)}
        if name != "batched":
            found["beside batched"] = comparing.between(rows, passes["batched"])
            found["cached tokens"] = [row["cached"] for row in rows]
        yield name, found
    for label, other in (
        ("beside " + case.beside, (case.beside, build)),
        ("beside unpatched", (case.name, "unpatched")),
    ):
        if other == (case.name, build):
            continue
        others = answers.get(other, {}).get("passes", {})
        for name in (n for n in ("batched", "alone") if n in passes and n in others):
            yield label if name == "batched" else f"{label}, {name}", comparing.between(passes[name], others[name])


def speculation(counters: Mapping[str, float]) -> dict[str, float]:
    """Drafts, tokens drafted and accepted, from vLLM's counters."""
    wanted = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    return {name: counters[f"vllm:spec_decode_{name}"] for name in wanted if f"vllm:spec_decode_{name}" in counters}


def table(
    cases: list[plan.Case], answers: Mapping[tuple[str, str], Mapping[str, Any]],
    found: Mapping[plan.Truth, Mapping[comparing.Key, Mapping[str, Any]]],
) -> list[dict[str, Any]]:  # fmt: skip
    rows = []
    for case in cases:
        for build in case.builds:
            answer = answers[case.name, build]
            held = case.truth
            row: dict[str, Any] = {"case": case.name, "build": build, "reference otherwise": list(held)}
            for key in KEPT:
                if answer.get(key):
                    row[key] = answer[key]
            if answer.get("counters"):
                row["speculation"] = speculation(answer["counters"])
            if held in found and answer.get("passes"):
                row["passes"] = dict(compared(case, build, answers, found[held]))
            rows.append(row)
    return rows


def yardstick(found: Mapping[plan.Truth, Mapping[comparing.Key, Mapping[str, Any]]]) -> dict[str, Any]:
    """The reference's own error in BF16: what rounding alone does to this model."""
    truth, rounded = found.get((), {}), found.get(plan.ROUNDED, {})
    rows = [{"prompt": list(key), "tokens": [], **rounded[key]} for key in rounded if key in truth]
    return comparing.prompts(rows, truth) if rows else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--release", required=True)
    parser.add_argument("--patched", required=True, help="a Python that has the set's wheels")
    parser.add_argument("--unpatched", required=True, help="a Python that has upstream's")
    parser.add_argument("--reference", default=sys.executable, help="a Python that has torch and transformers")
    parser.add_argument("--jobs", type=int, default=2, help="engines at a time; each takes some 16 GB of the GPU")
    parser.add_argument("--limit", type=float, default=400, help="seconds that an engine may take")
    lengths = ",".join(map(str, plan.LENGTHS))
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=lengths)
    parser.add_argument("--time", type=float, default=7200, help="seconds after which no engine is started")
    parser.add_argument("--only", action="append", help="the case of this name; can be given again")
    parser.add_argument("--known", type=Path, help="the reference.json of another run on this model and these prompts")
    parser.add_argument("--no-reference", action="store_true", help="serve only")
    given = parser.parse_args()
    given.until = time.monotonic() + given.time
    given.out.mkdir(parents=True, exist_ok=True)
    cases = [case for case in plan.cases(given.release) if not given.only or case.name in given.only]
    todo = [(case, build) for case in cases for build in case.builds]
    # Those that FlashInfer compiles for take longest.
    todo.sort(key=lambda pair: pair[0].capability is None and "VLLM_USE_FLASHINFER_SAMPLER" not in pair[0].env)
    pythons = {"patched": given.patched, "unpatched": given.unpatched}
    answers = {}
    for exclusive, jobs in ((False, given.jobs), (True, 1)):
        some = [pair for pair in todo if pair[0].exclusive == exclusive]
        with ThreadPoolExecutor(jobs) as pool:
            done = pool.map(lambda pair: serve(pair[0], pair[1], pythons[pair[1]], given), some)
            answers |= {(case.name, build): found for (case, build), found in zip(some, done, strict=True)}
    if given.no_reference:
        return 0
    found = truths(answers, cases, given)
    first = next((a for a in answers.values() if "machine" in a), {})
    result = {
        "machine": first.get("machine"),
        "versions": {b: next((a["versions"] for (_, x), a in answers.items() if x == b and "versions" in a), None)
                     for b in pythons},
        "BF16 of the reference itself": yardstick(found),
        "rows": table(cases, answers, found),
    }  # fmt: skip
    (given.out / "serving.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
