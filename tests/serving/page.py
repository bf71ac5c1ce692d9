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
The reference is transformers in float32. A cell has the figures of the patched build, then those of the unpatched one.
The first figure is the mean absolute error of the prompts' log-probabilities. The second, or only, one is the share of
generated tokens that are also the reference's first choice. *Same* means the same figures, and 8/8 that all eight prompts
got the same tokens. *BF16* above is the error of transformers in BF16. Brackets name changes to the reference. If a case
ran several times, the table has the newest result.

| error | reason |
|---|---|
| ValueError | the backend has no attention sinks on SM121 |
| TypeError | upstream has no such option |
| RuntimeError | vLLM 0.13.0 requires a third layer for the draft |
| KeyError | asynchronous scheduling returns log-probabilities of other rows |
"""
SERVERS = """
## The server's speed

Each figure divides the median speed of the patched servers by that of the unpatched ones. The parentheses compare two
servers of the same build: first patched, then unpatched. With two layers, the figures show only whether patches cost
time. In the first two rows, the builds differ no more than two servers of one build. The other runs had a prefix cache.

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


def cell(builds: dict[str, dict[str, Any]]) -> str:
    """Return the outcome of a case: patched; unpatched."""
    patched, unpatched = (engine(builds.get(build)) for build in BUILDS)
    same = builds.get("patched", {}).get("passes", {}).get("beside unpatched", {}).get("same_rows", "")
    if patched == unpatched:
        unpatched = "same"
    if unpatched and not patched:
        return f"unpatched: {unpatched}"
    other = ", ".join(filter(None, (unpatched, same.replace(" of ", "/"))))
    return "; ".join(filter(None, (patched, other)))


def name(row: dict[str, Any], body: dict[str, Any]) -> str:
    """Return the name of a row's case, with the changes to the reference."""
    otherwise = f" [{', '.join(row['reference otherwise'])}]" if row["reference otherwise"] else ""
    return ("the echo: " if body.get("model") else "") + row["case"] + otherwise


def newest(found: dict[str, dict[str, Any]]) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Return the rows to show, by case, set and build: the newest run with a result, else the newest.

    Repeats of a case within a run are left out.
    """
    shown: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    ended: set[tuple[str, str]] = set()
    for body in sorted(found.values(), key=lambda body: str(body["date"])):
        cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        for row in body["rows"]:
            if not row["case"].endswith(", again"):
                cases.setdefault((name(row, body), body["set"]), {})[row["build"]] = row
        for case, builds in cases.items():
            result = any("passes" in row for row in builds.values())
            if result or case not in ended:
                shown[case] = builds
            if result:
                ended.add(case)
    return shown


def table(found: dict[str, dict[str, Any]]) -> str:
    """Return the table of all cases, with a column for each set."""
    shown = newest(found)
    sets = {body["set"]: body for body in sorted(found.values(), key=lambda b: str(b["versions"]["patched"]["vllm"]))}
    titles = [f"`{name}`, vLLM {body['versions']['patched']['vllm'].partition('+')[0]}" for name, body in sets.items()]
    lines = [f"| engine | {' | '.join(titles)} |", "|---" * (len(sets) + 1) + "|"]
    for case in dict.fromkeys(case for case, _ in shown):
        cells = [cell(shown[case, name]) if (case, name) in shown else "" for name in sets]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def runs(found: dict[str, dict[str, Any]]) -> str:
    """Return the table of the runs."""
    lines = ["| run | stack | BF16 | not run, for lack of time |", "|---|---|---|---|"]
    for title, body in found.items():
        cells = [
            f"[{title}]({title}.json)",
            f"`{body['stack'][:8]}`",
            f"{body['BF16 of the reference itself']['mean']:.3f}",
            str(len(body["not run, the time was over"]) or ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
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


def page() -> str:
    """Return the page."""
    files = sorted(EVIDENCE.glob("serving-*.json"), reverse=True)
    found = {file.stem: json.loads(file.read_text()) for file in files}
    servers = "".join(f"{row}\n" for body in found.values() for run in body.get("served", []) for row in served(run))
    return HEAD.read_text() + "\n" + runs(found) + ROWS + "\n" + table(found) + SERVERS + servers


if __name__ == "__main__":
    print(page(), end="")
