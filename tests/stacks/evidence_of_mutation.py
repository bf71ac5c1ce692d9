"""Write what `patchq test --mutate --json` found as evidence: a row a patch, its survivors named.

    patchq test --mutate PATCH… --at-most 12 --json | python tests/stacks/evidence_of_mutation.py docs/evidence/mutation-vllm.json

A number behind the file is another --at-most than 12, a name behind that a set that isn't the default one. Rows of patches that the answer doesn't have stay as they are;
mutation.md beside the file is made anew of all of them.
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
PAGE = """\
# How strong the proofs are

Mutants of each patch's own lines, each followed by that patch's proof ([how](../how-to/prove-patches.md#how-strong-is-a-proof)).
`killed` counts mutants that the proof saw, of those that it was asked about; one that nobody could see is
`equivalent`, with its reason in the proof's file. Where fewer were `tried` than there are, the share is of a sample,
which the seed 0 chose. `mended since`: the proof was, and each survivor run again alone; see the JSON. This page is made of the JSON files beside it, which name each survivor and the command:
`python tests/stacks/evidence_of_mutation.py`. A patch that isn't in it was not measured yet.

"""
HEAD = """\
| patch | killed | | equivalent | tried |
|---|---|---|---|---|
"""


def row(found: dict[str, Any], seed: int, at_most: int, set_name: str) -> dict[str, Any]:
    """What became of a patch's mutants."""
    total = len(found["mutants"])
    of = f" --set {set_name}" if set_name else ""
    return {
        "patch": found["patch"], "proof": found["proof"], "said": found["said"], "killed": found["killed"],
        "survived": found["survived"], "equivalent": found["equivalent"], "not_tried": found["not_tried"],
        "of": total, "in_all": found["in_all"], "sampled": found["in_all"] > total, "score": found["score"],
        "command": f"patchq test --mutate {found['patch']}{of} --at-most {at_most} --seed {seed}",
        "survivors": [
            {key: m[key] for key in ("name", "path", "line", "operator", "before", "after")}
            for m in found["mutants"] if m["state"] == "survived"
        ],
    }  # fmt: skip


def line(found: dict[str, Any]) -> str:
    """A row of the page's table."""
    judged = found["killed"] + found["survived"]
    tried = found["of"] - found["not_tried"]
    killed = f"{found['killed']} of {judged}" if judged else "–"
    share = f"{100 * found['killed'] / judged:.0f} %" if judged else found["said"] or "no mutants"
    share += "; mended since" if found.get("since") else ""
    return f"| `{found['patch']}` | {killed} | {share} | {found['equivalent'] or ''} | {tried} of {found['in_all']} |"


def main(target: Path, at_most: int = 12, set_name: str = "") -> None:
    answer = json.load(sys.stdin)
    before = json.loads(target.read_text()) if target.exists() else {"rows": []}
    rows = {r["patch"]: r for r in before["rows"]}
    rows |= {p["patch"]: row(p, answer["seed"], at_most, set_name) for p in answer["patches"]}
    body = {
        "what": WHAT,
        "set": set_name,
        "machine": this_machine().facts(),
        "rows": [rows[name] for name in sorted(rows)],
    }
    target.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    files = [json.loads(path.read_text()) for path in sorted(target.parent.glob("mutation-*.json"))]
    sets: dict[str, list[str]] = {}
    for file in files:
        sets.setdefault(file.get("set", ""), []).extend(line(found) for found in file["rows"])
    tables = [
        (f"\n## `{name}`\n\n{HEAD}" if name else HEAD) + "\n".join(sorted(lines)) + "\n"
        for name, lines in sorted(sets.items())
    ]
    (target.parent / "mutation.md").write_text(PAGE + "".join(tables))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:4])
