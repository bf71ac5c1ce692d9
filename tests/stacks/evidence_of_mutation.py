"""Write what `patchq test --mutate --json` found as evidence: a row a patch, its survivors named.

    patchq test --mutate PATCH… --at-most 12 --json | python tests/stacks/evidence_of_mutation.py docs/evidence/mutation-vllm.json

A number behind the file is another --at-most than 12, a name behind that another set than gb10. Rows of patches that the
answer doesn't have stay as they are; mutation.md beside the file is made again of all of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from evidence import EVIDENCE, ROOT, measured, outdated

from patchq.environment.machine import this_machine
from patchq.mutation.strength import NOT_REACHED
from patchq.project.project import Project

WHAT = (
    "Mutants of each patch's own lines, each followed by that patch's proof. `of` is all that there are where `sampled` "
    "is false, else so many were chosen by the seed: a share of a sample, not of all"
)
PAGE = """\
# How strong the proofs are

A mutant is a patch with one small change. [Mutation testing](../how-to/prove-patches.md#how-strong-is-a-proof) runs the
patch's proof on each mutant; a proof that fails has killed it. A mutant that survives shows a gap in the proof. [The second
list](blind.md) has mutants by other authors. The JSON files have the results of each patch, with the command to repeat
them. `python tests/stacks/evidence.py` writes this page.
"""
HEAD = """\
| survivor | change |
|---|---|
"""


def row(found: dict[str, Any], seed: int, at_most: int, set_name: str) -> dict[str, Any]:
    """What became of a patch's mutants."""
    total = len(found["mutants"])
    of = f" --set {set_name}" if set_name else ""
    return {
        "patch": found["patch"], "proof": found["proof"], "message": found["message"], "killed": found["killed"],
        "survived": found["survived"], "equivalent": found["equivalent"], "not_tried": found["not_tried"],
        "of": total, "in_all": found["in_all"], "sampled": found["in_all"] > total, "score": found["score"],
        "command": f"patchq test --mutate {found['patch']}{of} --at-most {at_most} --seed {seed}",
        "survivors": [
            {key: m[key] for key in ("name", "path", "line", "operator", "before", "after")}
            for m in found["mutants"] if m["state"] == "survived"
        ],
        **measured(set_name, found["patch"], found["proof"]),
    }  # fmt: skip


def rows_of(pattern: str) -> dict[str, dict[str, Any]]:
    """By set, the rows of all files of a name, by patch."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(EVIDENCE.glob(pattern)):
        body = json.loads(path.read_text())
        found.setdefault(body["set"], {}).update({row["patch"]: row for row in body["rows"]})
    return found


def survivor(patch: str, mutant: dict[str, Any]) -> str:
    """Return the row of a mutant that no proof killed."""
    path = mutant["path"].rpartition("/")[2]
    return f"| `{patch}`, `{path}` | {mutant['operator']}: `{mutant['before'].strip()}` |"


def summary(set_name: str, patches: set[str], killed: dict[str, Any], run: dict[str, Any]) -> str:
    """Return the section of a set: totals, and the survivors."""
    rows = [killed[patch] for patch in sorted(killed) if killed[patch]["killed"] + killed[patch]["survived"]]
    dead, alive = sum(row["killed"] for row in rows), sum(row["survived"] for row in rows)
    statements = [found for found in run.values() if found.get("executable")]
    executed, executable = sum(f["run"] for f in statements), sum(f["executable"] for f in statements)
    changed = Counter(outdated(row, set_name) for row in rows)
    text = (
        f"\n## `{set_name}`\n\n"
        f"Proofs killed {dead} of the {dead + alive} mutants that ran, a random sample of all {sum(r['in_all'] for r in rows)}. "
        f"{len(rows)} of {len(patches)} patches have results. "
        f"After these runs, {changed['proof']} proofs and {changed['patch'] + changed['patch and proof']} patches changed. "
        f"Proofs run {executed} of the {executable} Python statements of {len(statements)} patches "
        "(`tests/stacks/lines_of_proofs.py`).\n"
    )
    alive_rows = [survivor(row["patch"], mutant) for row in rows for mutant in row["survivors"]]
    return text + "\n" + HEAD + "\n".join(alive_rows) + "\n"


def page() -> str:
    """The page of all that was measured."""
    mutants, lines = rows_of("mutation-*.json"), rows_of("lines-*.json")
    project = Project.find(ROOT)
    sections = []
    for set_name in ("gb10", "gb10-newest"):
        patches = {f"{stack.pin.upstream}/{name}" for stack in project.stacks(set_name) for name in stack.names}
        sections.append(summary(set_name, patches, mutants.get(set_name, {}), lines.get(set_name, {})))
    return PAGE + "".join(sections)


def main(target: Path, at_most: int = 12, set_name: str = "gb10") -> None:
    answer = json.load(sys.stdin)
    before = json.loads(target.read_text()) if target.exists() else {"rows": []}
    rows = {r["patch"]: r for r in before["rows"]}
    reached = [p for p in answer["patches"] if p["message"] != NOT_REACHED]
    rows |= {p["patch"]: row(p, answer["seed"], at_most, set_name) for p in reached}
    body = {
        "what": WHAT,
        "set": set_name,
        "machine": this_machine().facts(),
        "rows": [rows[name] for name in sorted(rows)],
    }
    target.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    (EVIDENCE / "mutation.md").write_text(page())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:4])
