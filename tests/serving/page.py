"""docs/evidence/serving.md from the JSON beside it: ``python tests/stacks/evidence.py`` writes it."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "stacks"))
from evidence import stale

EVIDENCE = Path(__file__).parents[2] / "docs/evidence"
BUILDS = ("patched", "unpatched")
HEAD = Path(__file__).with_name("page_head.md")


def figure(value: Any, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def lines(row: dict[str, Any]) -> Iterator[str]:
    """A line of the table for each pass of an engine, or one for why there is none."""
    name = row["case"] + ("" if not row["reference otherwise"] else f" [{', '.join(row['reference otherwise'])}]")
    if "passes" not in row:
        yield f"| {name} | {row['build']} | | {row['error'].splitlines()[0]} | | | | |"
        return
    beside = {"batched": "beside unpatched", "alone": "beside unpatched, alone"}
    for kind, found in row["passes"].items():
        if kind.startswith("beside"):
            continue
        prompts, greedy = found.get("prompts", {}), found.get("greedy", {})
        drafts = row.get("speculation", {})
        if drafts.get("num_draft_tokens"):
            kind_said = (
                f"{kind}, {drafts['num_accepted_tokens']:.0f} of {drafts['num_draft_tokens']:.0f} drafted accepted"
            )
        else:
            kind_said = f"{kind}, no draft counted" if drafts else kind
        if "accounting" in row:
            kind_said += f", KV cache {row['accounting']['available_kv_cache_memory_bytes']} bytes"
        same = row["passes"].get(beside.get(kind, ""), {}).get("same_rows", "")
        cells = [name, row["build"], kind_said, figure(prompts.get("mean")), figure(prompts.get("worst"), 2),
                 figure(prompts.get("top1")), figure(greedy.get("likeliest")), same]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def served(run: dict[str, Any]) -> Iterator[str]:
    """Servers asked in turn: tokens a second, medians over the rounds of a build and their span."""
    yield f"The OpenAI server, {run['servers']}; `{' '.join(run['arguments of each server'])}`:"
    yield ""
    yield "| | users | patched, t/s | unpatched, t/s | patched to unpatched | two patched | two unpatched |"
    yield "|---|---|---|---|---|---|---|"
    for turn in run["in turn"]:
        for kind in ("prefill", "decode"):
            yield f"| {kind}, {turn['rounds']} rounds a server | {turn['users']} | {speeds(turn[kind], statistics.median)} |"
    bench = run["vllm bench serve"]
    said = {name: [b["output_throughput"] for b in bench if b["build"] == name] for name in {b["build"] for b in bench}}
    yield (
        f"| `vllm bench serve`, {bench[0]['completed']} requests a server | {bench[0]['users']} "
        f"| {speeds(said, statistics.mean)} |"
    )


def speeds(said: dict[str, Any], middle: Callable[[list[float]], float]) -> str:
    """Cells of patched, unpatched, the ratio of the two, and that of the two servers of one build where there are two."""
    of = {build: [v for name in said if name.split(",")[0] == build for v in said[name]] for build in BUILDS}
    cells = [f"{middle(of[b]):.0f} ({min(of[b]):.0f} to {max(of[b]):.0f})" for b in BUILDS]
    cells.append(f"{middle(of['patched']) / middle(of['unpatched']):.2f}")
    again = [(said.get(b + ", again"), said[b]) for b in BUILDS]
    cells += [f"{middle(two) / middle(one):.2f}" if two else "" for two, one in again]
    return " | ".join(cells)


def table(found: dict[str, Any]) -> str:
    said = found["versions"]["patched"]
    nccl = next(version for name, version in said.items() if name.startswith("nvidia-nccl-"))
    rounded = found["BF16 of the reference itself"]
    wheels = found["sha256 of the wheels"]["patched"]
    checked = "as `verify-installed` found them, each file of them"
    if "verify-installed" not in found:
        checked = "each file compared with its row of RECORD"
    out = [
        f"## `{found['set']}`, stack `{found['stack'][:8]}`" + (", the echo" if found.get("model") else ""), "",
        f"{found['machine']['gpu']}, driver {found['machine']['driver']}; vLLM {said['vllm']}, FlashInfer "
        f"{said['flashinfer-python']}, torch {said['torch']}, triton {said['triton']}, NCCL {nccl}, "
        f"transformers {said['transformers']}.",
        f"Wheels: vLLM `{wheels['vllm'][:16]}…`, FlashInfer `{wheels['flashinfer-python'][:16]}…`, {checked}.",
        "", f"Since then: {'; '.join(stale(found)) or 'the stacks are the same'}.",
        "", f"Transformers in BF16 is itself off by {figure(rounded['mean'])} in the mean, at most "
        f"{figure(rounded['worst'], 2)}; the likeliest token is the same for {figure(rounded['top1'])}.", "",
        "| engine [what is otherwise in the reference] | build | pass | mean | worst | same likeliest | greedy: likeliest"
        " | rows as unpatched |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in found["rows"]:
        out += lines(row)
    for run in found.get("served", []):
        out += ["", *served(run)]
    if found["not run, the time was over"]:
        out += ["", "Not run, the time was over: " + "; ".join(found["not run, the time was over"]) + "."]
    return "\n".join(out)


def page() -> str:
    found = [json.loads(file.read_text()) for file in sorted(EVIDENCE.glob("serving-*.json"), reverse=True)]
    return HEAD.read_text() + "\n" + "\n\n".join(map(table, found)) + "\n"


if __name__ == "__main__":
    print(page(), end="")
