"""docs/evidence/serving.md from the JSON next to it: ``python tests/stacks/evidence.py`` writes it."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVIDENCE = Path(__file__).parents[2] / "docs/evidence"
BUILDS = ("patched", "unpatched")
HEAD = Path(__file__).with_name("page_head.md")
ROWS = """
The reference is transformers in float32. A cell has two figures: the mean absolute error of the prompts'
log-probabilities, and the share of generated tokens that are also the reference's first choice. A single figure is the
share. *BF16* is the error of transformers in BF16. Brackets name changes to the reference. The last column has *same* if
both builds have the same figures, and the number of prompts for which they generated the same tokens.

| error | reason |
|---|---|
| ValueError | the backend has no attention sinks on SM121 |
| TypeError | upstream has no such option |
| RuntimeError | vLLM 0.13.0 requires a third layer for the draft |
| KeyError | asynchronous scheduling returns log-probabilities of other rows |
| ended after 340 s | FlashInfer compiled its modules |
"""
SERVERS = """
## The server's speed

Each figure divides the median speed of the patched servers by that of the unpatched ones. The parentheses compare two
servers of the same build: first patched, then unpatched. The patches cost no measurable time: the builds differ no more
than two servers of one build. Runs with one server of each build had a prefix cache.

| servers of 0.33.0 | users | prefill | decode | `vllm bench serve` |
|---|---|---|---|---|
"""


def engine(row: dict[str, Any] | None) -> str:
    """Return the cell of an engine: its first pass, or the name of its error."""
    if row is None:
        return ""
    if "passes" not in row:
        return str(re.split("[:,\n]", row["error"])[0])
    found = next(iter(row["passes"].values()))
    figures = [found.get("prompts", {}).get("mean"), found.get("greedy", {}).get("likeliest")]
    parts = [f"{figure:.3f}" for figure in figures if figure is not None]
    drafts = row.get("speculation") or {}
    if drafts.get("num_draft_tokens"):
        parts.append(f"{drafts['num_accepted_tokens']:.0f}/{drafts['num_draft_tokens']:.0f} drafts")
    if "accounting" in row:
        parts.append(f"KV cache {row['accounting']['available_kv_cache_memory_bytes']} bytes")
    return ", ".join(parts)


def case_rows(found: dict[str, Any]) -> Iterator[str]:
    """Yield a row for each case of a run, with both builds. Repeats of a case in the same run are left out."""
    cases: dict[str, dict[str, dict[str, Any]]] = {}
    for row in found["rows"]:
        if row["case"].endswith(", again"):
            continue
        otherwise = f" [{', '.join(row['reference otherwise'])}]" if row["reference otherwise"] else ""
        cases.setdefault(row["case"] + otherwise, {})[row["build"]] = row
    for case, builds in cases.items():
        same = (
            builds.get("patched", {})
            .get("passes", {})
            .get("beside unpatched", {})
            .get("same_rows", "")
            .replace(" of ", "/")
        )
        patched, unpatched = (engine(builds.get(build)) for build in BUILDS)
        if patched == unpatched:
            unpatched = "same"
        cells = [case, patched, ", ".join(filter(None, (unpatched, same)))]
        yield f"| {' | '.join(cells)} |"


def table(name: str, found: dict[str, Any]) -> str:
    """Return the section of a run: its versions, its file and a table of its cases."""
    model = ", the echo" if found.get("model") else ""
    built = found["versions"]["patched"]
    packages = {"vLLM": "vllm", "FlashInfer": "flashinfer-python", "torch": "torch"}
    versions = [f"{title} {built[package].partition('+')[0]}" for title, package in packages.items()]
    bf16 = found["BF16 of the reference itself"]["mean"]
    lines = [
        f"\n### `{found['set']}`, stack `{found['stack'][:8]}`{model}\n",
        f"{', '.join(versions)}: [{name}]({name}.json). BF16: {bf16:.3f}.\n",
        "| engine | patched | unpatched |",
        "|---|---|---|",
        *case_rows(found),
    ]
    if found["not run, the time was over"]:
        lines += ["", f"Not run, for lack of time: {len(found['not run, the time was over'])}."]
    return "\n".join(lines) + "\n"


def speed(values: dict[str, list[float]]) -> str:
    """Return the ratio of the builds' medians, and those of two servers of one build if there are two."""
    every = {build: [v for name in values if name.split(",")[0] == build for v in values[name]] for build in BUILDS}
    ratio = statistics.median(every["patched"]) / statistics.median(every["unpatched"])
    again = [
        f"{statistics.median(values[f'{build}, again']) / statistics.median(values[build]):.2f}"
        for build in BUILDS
        if f"{build}, again" in values
    ]
    return f"{ratio:.2f}" + (f" ({', '.join(again)})" if again else "")


def served(run: dict[str, Any]) -> Iterator[str]:
    """Yield the rows of servers that were asked in turn."""
    name = run["servers"].partition(",")[0] + (", no prefix cache" if "without" in run["servers"] else "")
    bench = run["vllm bench serve"]
    output = {
        build: [b["output_throughput"] for b in bench if b["build"] == build] for build in {b["build"] for b in bench}
    }
    for turn in run["in turn"]:
        last = speed(output) if turn["users"] == bench[0]["users"] else ""
        yield f"| {name} | {turn['users']} | {speed(turn['prefill'])} | {speed(turn['decode'])} | {last} |"


def outcome(row: dict[str, Any]) -> str:
    """Return the error of a row, or the number of prompts with the same tokens from both builds."""
    if "passes" not in row:
        return engine(row)
    return str(row["passes"].get("beside unpatched", {}).get("same_rows", ""))


def keep_newest(found: dict[str, dict[str, Any]]) -> int:
    """Remove cases that a newer run of the set repeats with the same outcomes; return their number of rows."""
    seen: set[tuple[str, ...]] = set()
    removed = 0
    for body in sorted(found.values(), key=lambda body: str(body["date"]), reverse=True):
        cases: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in body["rows"]:
            cases.setdefault((row["case"], str(row["reference otherwise"])), []).append(row)
        kept = []
        for case, rows in cases.items():
            run = (body["set"], str(bool(body.get("model"))), *case)
            keys = {(*run, row["build"], outcome(row)) for row in rows}
            if keys <= seen:
                removed += len(rows)
            else:
                kept += rows
            seen |= keys
        body["rows"] = kept
    return removed


def page() -> str:
    """Return the page."""
    files = sorted(EVIDENCE.glob("serving-*.json"), reverse=True)
    found = {file.stem: json.loads(file.read_text()) for file in files}
    superseded = keep_newest(found)
    runs = "".join(table(name, body) for name, body in found.items())
    servers = "".join(f"{row}\n" for body in found.values() for run in body.get("served", []) for row in served(run))
    runs += f"\nThe JSON files also have {superseded} older results with the same outcomes.\n"
    return HEAD.read_text() + ROWS + runs + SERVERS + servers


if __name__ == "__main__":
    print(page(), end="")
