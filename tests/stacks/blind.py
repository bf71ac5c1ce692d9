"""Run the mutants of the second list, which were written from the patches alone, and record each first result.

    python tests/stacks/blind.py --set gb10 [PATCH…]
    PATCHQ_SET=gb10-newest python tests/stacks/blind.py --set gb10-newest
    python tests/stacks/blind.py --page

Results are appended to ``docs/evidence/blind-SET.jsonl``, a line for each mutant. A mutant that has a result is not run
again, so an interrupted run resumes, and a repaired proof can't change its first score. ``--page`` writes
``docs/evidence/blind.md`` from these files.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import blind_gb10
import blind_gb10_newest
from by_hand_vllm import ByHand
from mutants import ROOT, forks_of, run_mutants, whole_of

from patchq.formats.outcomes import ProofState

EVIDENCE = ROOT / "docs" / "evidence"
MUTANTS = {"gb10": blind_gb10.MUTANTS, "gb10-newest": blind_gb10_newest.MUTANTS}
#: Seconds for one mutant. A proof that takes longer counts as failed, as it would in CI.
LIMIT = 300.0
PAGE = """\
# The second list of mutants

A mutant is a patch with one small change; a proof should fail on it. The authors of these mutants
(`tests/stacks/blind_gb10.py`, `blind_gb10_newest.py`) had read the patches, but not the proofs or [the first
list](mutation.md). The score counts the first run of each mutant. Proofs that were improved afterwards did not run again.

"""


def results_file(set_name: str) -> Path:
    """Return the file that holds a set's results."""
    return EVIDENCE / f"blind-{set_name}.jsonl"


def results(set_name: str) -> list[dict[str, Any]]:
    """Return the results that a set has so far."""
    path = results_file(set_name)
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def run(set_name: str, patches: list[str], most: int) -> None:
    """Run the mutants of ``patches``, or of all patches, that have no result yet; at most ``most`` of a patch.

    A fixed seed chooses them, so that the choice doesn't depend on the results.
    """
    known = {(row["patch"], row["mutant"]) for row in results(set_name)}
    waiting: dict[str, list[ByHand]] = collections.defaultdict(list)
    chosen = random.Random(0).sample(MUTANTS[set_name], len(MUTANTS[set_name]))
    count: collections.Counter[str] = collections.Counter()
    for mutant in chosen:
        count[mutant.patch] += 1
        if count[mutant.patch] > most:
            continue
        if (mutant.patch, mutant.name) not in known and (not patches or mutant.patch in patches):
            waiting[mutant.patch].append(mutant)
    for patch, mutants in waiting.items():
        run_patch(set_name, patch, mutants)


def run_patch(set_name: str, patch: str, mutants: list[ByHand]) -> None:
    """Run the mutants of one patch, one after the other, and append each result."""
    whole = whole_of(set_name)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with forks_of(whole, patch) as forks:
        for mutant in mutants:
            started = time.monotonic()
            (found,) = run_mutants(whole, [mutant], forks, timeout=LIMIT)
            row = {
                "patch": patch,
                "mutant": mutant.name,
                "killed": found.state in (ProofState.FAILED, ProofState.ERROR),
                "state": found.state,
                "message": found.message.partition("\n")[0].replace(f"{ROOT}/", "")[:200],
                "seconds": round(time.monotonic() - started, 1),
                "commit": commit.strip()[:10],
            }
            with results_file(set_name).open("a") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(row["state"], row["seconds"], patch, mutant.name, flush=True)


def interval(killed: int, tried: int) -> tuple[float, float]:
    """Return the Wilson score interval of a share, 95 %."""
    z = 1.96
    share = killed / tried
    middle = share + z * z / (2 * tried)
    width = z * math.sqrt(share * (1 - share) / tried + z * z / (4 * tried * tried))
    scale = 1 + z * z / tried
    return (middle - width) / scale, (middle + width) / scale


def page() -> str:
    """Return the page of all results."""
    parts = [PAGE]
    for set_name, mutants in MUTANTS.items():
        rows = results(set_name)
        parts.append(f"## `{set_name}`\n\n")
        if not rows:
            parts.append("Not run yet.\n\n")
            continue
        killed = sum(row["killed"] for row in rows)
        low, high = interval(killed, len(rows))
        parts.append(
            f"{killed} of {len(rows)} killed: {100 * killed / len(rows):.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f})."
            f" {len(mutants)} mutants were written; a fixed seed chooses their order.\n\n"
        )
        tried = collections.Counter(row["patch"] for row in rows)
        parts.append(f"{len(tried)} patches have {min(tried.values())} to {max(tried.values())} results each.")
        survivors = [row for row in rows if not row["killed"]]
        lost = collections.Counter(row["patch"] for row in survivors)
        worst = max((lost[patch] / tried[patch] for patch in lost), default=0)
        parts.append(f" The weakest proof kills {100 * (1 - worst):.0f} %. Survivors:\n\n")
        parts += [f"- `{row['patch']}` ({tried[row['patch']]} tried): {row['mutant']}\n" for row in survivors]
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def main() -> None:
    """Run the list, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patches", nargs="*", metavar="PATCH", help="patches to run; default: all of the set")
    parser.add_argument("--set", dest="set_name", choices=sorted(MUTANTS), default="gb10", help="set of the list")
    parser.add_argument("--most", type=int, default=100, metavar="N", help="mutants of each patch, chosen by a seed")
    parser.add_argument("--page", action="store_true", help="write docs/evidence/blind.md")
    options = parser.parse_args()
    if options.page:
        (EVIDENCE / "blind.md").write_text(page())
    else:
        run(options.set_name, options.patches, options.most)


if __name__ == "__main__":
    main()
