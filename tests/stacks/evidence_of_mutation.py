"""Write what `patchq test --mutate --json` found as evidence: a row a patch, its survivors named.

    patchq test --mutate PATCH… --at-most 12 --json | python tests/stacks/evidence_of_mutation.py docs/evidence/mutation-vllm.json

Rows of patches that the answer doesn't have stay as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from patchq.environment.machine import this_machine

WHAT = (
    "Mutants of each patch's own lines, each followed by that patch's proof. `of` is all that there are where `sampled` "
    "is false, else so many were chosen by the seed: a share of a sample, not of all"
)


def row(found: dict[str, Any], seed: int, at_most: int) -> dict[str, Any]:
    """What became of a patch's mutants."""
    total = len(found["mutants"])
    return {
        "patch": found["patch"], "proof": found["proof"], "said": found["said"], "killed": found["killed"],
        "survived": found["survived"], "equivalent": found["equivalent"], "not_tried": found["not_tried"],
        "of": total, "sampled": total == at_most, "score": found["score"],
        "command": f"patchq test --mutate {found['patch']} --at-most {at_most} --seed {seed}",
        "survivors": [
            {key: m[key] for key in ("name", "path", "line", "operator", "before", "after")}
            for m in found["mutants"] if m["state"] == "survived"
        ],
    }  # fmt: skip


def main(target: Path, at_most: int = 12) -> None:
    answer = json.load(sys.stdin)
    before = json.loads(target.read_text()) if target.exists() else {"rows": []}
    rows = {r["patch"]: r for r in before["rows"]}
    rows |= {p["patch"]: row(p, answer["seed"], at_most) for p in answer["patches"]}
    body = {"what": WHAT, "machine": this_machine().facts(), "rows": [rows[name] for name in sorted(rows)]}
    target.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
