"""Print the KV cache that vLLM gives itself on a GB10, by each of some trees of vLLM, as a table in Markdown.

    python tests/stacks/vllm/v0_33_0/unified_memory_table.py upstream=BARE patched=.patchq/trees/vllm

Run it in the environment of the set `gb10-newest`.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
import torch
from unified_kit import GB10, GIB, Instance, Machine, Wedged


class Case(NamedTuple):
    """How many instances start one after the other, what else the machine holds, and the model; in GiB."""

    instances: int
    utilization: float
    others: float
    #: What others take while the weights of an instance are loaded.
    taken: float = 0
    weights: float = 20
    peak: float = 2

    def cells(self) -> list[str]:
        """Return the first cells of the case's row."""
        others = f"{self.others:g}" + (f", then {self.others + self.taken:g}" if self.taken else "")
        return [str(self.instances), f"{self.utilization:.2f}", others, f"{self.weights:g} and {self.peak:g}"]


CASES = [Case(n, u, others) for n in (1, 2) for u in (0.85, 0.45) for others in (0, 20, 60)]
CASES += [Case(1, 0.83, 20), Case(1, 0.77, 20), Case(2, 0.40, 20)]
CASES += [Case(1, 0.45, 20, taken=30), Case(1, 0.45, 60, taken=-20), Case(1, 0.70, 20, weights=48, peak=60)]


def outcome(case: Case) -> str:
    """Return the KV caches in GiB and what is left of the machine, or why an instance didn't start."""
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(importlib.import_module, patch, others=int(case.others * GIB)).install()
        sizes: list[str] = []
        for _ in range(case.instances):
            instance = Instance(machine, case.utilization, case.weights, case.peak, taken_while_loading=case.taken)
            try:
                sizes.append(f"{instance.start():.1f}")
            except (ValueError, AssertionError, torch.OutOfMemoryError) as error:
                return " + ".join([*sizes, failure(error)])
        return f"{' + '.join(sizes)} ({machine.available / GIB:.1f} left)"


def failure(error: Exception) -> str:
    """Return what a start ended with: an error of vLLM's, or a machine without memory."""
    if isinstance(error, Wedged):
        return "host out of memory"
    if negative := re.search(r"for the cache blocks: (-[0-9.]+)", str(error)):
        return negative[1]
    return "refused"


def rows() -> list[str]:
    logging.disable(logging.CRITICAL)
    return [outcome(case) for case in CASES]


def main(trees: list[str]) -> None:
    columns: dict[str, Any] = {}
    for tree in trees:
        label, _, folder = tree.partition("=")
        environment = {**os.environ, "PYTHONPATH": os.path.abspath(folder)}
        command = [sys.executable, __file__, "--rows"]
        run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
        columns[label] = json.loads(run.stdout.splitlines()[-1])
    first = ["instances", "utilization", f"others, of {GB10}", "weights and peak"]
    print(f"| {' | '.join([*first, *columns])} |")
    print("|---" * (len(columns) + len(first)) + "|")
    for n, case in enumerate(CASES):
        print(f"| {' | '.join([*case.cells(), *(column[n] for column in columns.values())])} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["--rows"]:
        print(json.dumps(rows()))
    else:
        main(sys.argv[1:])
