"""Write what `patchq test --mutate --json` found as evidence: a row a patch, its survivors named.

    patchq test --mutate PATCH… --at-most 12 --json | python tests/stacks/evidence_of_mutation.py docs/evidence/mutation-vllm.json

A number behind the file is another --at-most than 12, a name behind that another set than gb10. Rows of patches that the
answer doesn't have stay as they are; mutation.md beside the file is made again of all of them.
"""

from __future__ import annotations

import json
import sys
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

A mutant is the patch with one small change. [Mutation testing](../how-to/prove-patches.md#how-strong-is-a-proof) runs
the patch's proof on each mutant, and the proof should fail. [The second list](blind.md) has mutants by other authors. The
JSON files name each survivor and the command.

| column | meaning |
|---|---|
| killed | mutants for which the proof failed / mutants with a result, "of" all mutants. If not all ran, the sample is random |
| lines | Python statements of the patch that the proof runs / all (`tests/stacks/lines_of_proofs.py`) |
| changed | the part that changed after the run |

`python tests/stacks/evidence.py` writes this page.
"""
HEAD = """\
| patch | killed | lines | changed |
|---|---|---|---|
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


def lines_run(found: dict[str, Any] | None) -> str:
    """Return the cell of the lines that a proof runs."""
    if not found:
        return ""
    if found.get("message"):
        return str(found["message"])
    return f"{found['run']}/{found['executable']}" if found["executable"] else ""


def line(patch: str, found: dict[str, Any] | None, lines: dict[str, Any] | None, set_name: str) -> str:
    """Return a patch's row."""
    cells = ["", lines_run(lines), ""]
    if found:
        judged = found["killed"] + found["survived"]
        cells[0] = found["message"] or "no mutants"
        if judged:
            cells[0] = f"{found['killed']}/{judged} of {found['in_all']}"
        if found.get("since"):
            cells[0] += "; proof repaired since"
        cells[2] = outdated(found, set_name)
    return f"| {' | '.join([f'`{patch}`', *cells])} |"


def rows_of(pattern: str) -> dict[str, dict[str, Any]]:
    """By set, the rows of all files of a name, by patch."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(EVIDENCE.glob(pattern)):
        body = json.loads(path.read_text())
        found.setdefault(body["set"], {}).update({row["patch"]: row for row in body["rows"]})
    return found


def page() -> str:
    """The page of all that was measured, and of the patches of the two sets that weren't."""
    mutants, lines = rows_of("mutation-*.json"), rows_of("lines-*.json")
    project = Project.find(ROOT)
    tables = []
    for set_name in ("gb10", "gb10-newest"):
        patches = {f"{stack.pin.upstream}/{name}" for stack in project.stacks(set_name) for name in stack.names}
        killed, run = mutants.get(set_name, {}), lines.get(set_name, {})
        every = sorted({*patches, *killed})
        with_result = [patch for patch in every if patch in killed or patch in run]
        found = [line(patch, killed.get(patch), run.get(patch), set_name) for patch in with_result]
        rest = f"\nNot measured: {len(every) - len(with_result)} patches.\n"
        tables.append(f"\n## `{set_name}`\n\n{HEAD}" + "\n".join(found) + "\n" + rest)
    return PAGE + "".join(tables)


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
