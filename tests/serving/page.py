"""docs/evidence/serving.md from the JSON beside it: ``python tests/serving/page.py > docs/evidence/serving.md``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVIDENCE = Path(__file__).parents[2] / "docs/evidence"
HEAD = Path(__file__).with_name("page_head.md")


def figure(value: Any, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def lines(row: dict[str, Any]) -> Iterator[str]:
    """A line of the table for each pass of an engine, or one for why there is none."""
    name = row["case"] + ("" if not row["reference otherwise"] else f" [{', '.join(row['reference otherwise'])}]")
    if "passes" not in row:
        yield f"| {name} | {row['build']} | | {row['error'].splitlines()[0]} | | | | |"
        return
    beside = row["passes"].get("beside unpatched", {})
    for kind, found in row["passes"].items():
        if kind.startswith("beside"):
            continue
        prompts, greedy = found.get("prompts", {}), found.get("greedy", {})
        same = beside.get("same_rows", "") if kind == "batched" else ""
        cells = [name, row["build"], kind, figure(prompts.get("mean")), figure(prompts.get("worst"), 2),
                 figure(prompts.get("top1")), figure(greedy.get("likeliest")), same]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def table(found: dict[str, Any]) -> str:
    said = found["versions"]["patched"]
    rounded = found["BF16 of the reference itself"]
    wheels = found["sha256 of the wheels"]["patched"]
    out = [
        f"## `{found['set']}`, stack `{found['stack'][:8]}`", "",
        f"{found['machine']['gpu']}, driver {found['machine']['driver']}; vLLM {said['vllm']}, FlashInfer "
        f"{said['flashinfer-python']}, torch {said['torch']}, triton {said['triton']}, NCCL {said['nvidia-nccl-cu13']}, "
        f"transformers {said['transformers']}.",
        f"Wheels: vLLM `{wheels['vllm'][:16]}…`, FlashInfer `{wheels['flashinfer-python'][:16]}…`, as `verify-installed` "
        "found them, each file of them.",
        "", f"Transformers in BF16 is itself off by {figure(rounded['mean'])} in the mean, at most "
        f"{figure(rounded['worst'], 2)}; the likeliest token is the same for {figure(rounded['top1'])}.", "",
        "| engine [what is otherwise in the reference] | build | pass | mean | worst | same likeliest | greedy: likeliest"
        " | rows as unpatched |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in found["rows"]:
        out += lines(row)
    if found["not run, the time was over"]:
        out += ["", "Not run, the time was over: " + "; ".join(found["not run, the time was over"]) + "."]
    return "\n".join(out)


def page() -> str:
    found = [json.loads(file.read_text()) for file in sorted(EVIDENCE.glob("serving-*.json"), reverse=True)]
    return HEAD.read_text() + "\n" + "\n\n".join(map(table, found)) + "\n"


if __name__ == "__main__":
    print(page(), end="")
