"""Count the lines that each patch adds and its proof runs.

    python -m pip install coverage
    python tests/stacks/lines_of_proofs.py docs/evidence/lines-gb10.json --set gb10 [PATCH…]

Each proof runs in a fork of its own, with coverage there and in the Python processes that it starts. Rows of other
patches stay; `python tests/stacks/evidence.py` puts them into the table.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest
from evidence import measured

from patchq.environment.machine import this_machine
from patchq.project.project import Project
from patchq.proofs.plan import Proof, WholeSet, planning, proofs_of
from patchq.stacks.apply import apply

ROOT = Path(__file__).parents[2]
WHAT = (
    "Lines that a patch adds to Python files: `executable` of them hold a statement, `run` of these its proof runs, in "
    "its own process and in Python processes that it starts. `not_measured` are its lines in other files (CUDA, C++, CMake). "
    "A statement counts where it begins. Code that a proof compiles from text without the name of its file isn't seen"
)


@dataclass(frozen=True, kw_only=True)
class Added:
    """A patch's lines in the patched trees.

    :ivar python: line numbers by file.
    :ivar other: how many lines are in files of other languages.
    """

    python: dict[Path, set[int]]
    other: int


def added_by(project: Project, whole: WholeSet, proof: Proof) -> Added:
    """Return the lines that are a patch's, upstream's tests apart."""
    commit, changed = whole.patch(proof.name)
    tip = whole.variant.tips[proof.upstream]
    python: dict[Path, set[int]] = {}
    other = 0
    for path in sorted(whole.store.list_tree(tip, changed)):
        name = path.decode()
        lines = set(whole.store.lines_of(commit, tip, path, since=whole.base(proof.upstream)))
        if name.startswith("tests/") or not lines:
            continue
        if name.endswith(".py"):
            python[project.layout.tree(proof.upstream).resolve() / name] = lines
        elif not name.endswith((".md", ".txt", ".rst")):
            other += len(lines)
    return Added(python=python, other=other)


def run_traced(proof: Proof, files: list[Path], scratch: Path) -> tuple[int, coverage.Coverage]:
    """Run a proof in a fork; return pytest's exit status and what was traced."""
    settings = scratch / "coveragerc"
    include = "\n  ".join(map(str, files))
    settings.write_text(f"[run]\nparallel = true\ndata_file = {scratch / 'data'}\ninclude =\n  {include}\n")
    child = os.fork()
    if not child:
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        tracer = coverage.Coverage(config_file=str(settings))
        tracer.start()
        status = pytest.main(["-q", "-p", "no:cacheprovider", *proof.files])
        tracer.stop()
        tracer.save()
        os._exit(int(status))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = coverage.Coverage(config_file=str(settings))
    found.combine([str(scratch)], keep=True)
    return status, found


def row(proof: Proof, added: Added, set_name: str) -> dict[str, Any]:
    """Return a patch's row."""
    found: dict[str, Any] = {
        "patch": proof.name,
        "proof": list(proof.files),
        **measured(set_name, proof.name, proof.files),
    }
    found |= {"not_measured": added.other}
    if not added.python:
        return found | {"executable": 0, "run": 0, "missed": []}
    with tempfile.TemporaryDirectory() as scratch:
        status, traced = run_traced(proof, sorted(added.python), Path(scratch))
        if status:
            return found | {"message": f"the proof ended with {status}"}
        executable, missed = 0, []
        for file, lines in sorted(added.python.items()):
            _, statements, _, missing, _ = traced.analysis2(str(file))
            executable += len(lines & set(statements))
            name = file.relative_to(ROOT.resolve() / ".patchq/trees").as_posix()
            missed += [f"{name}:{line}" for line in sorted(lines & set(missing))]
    return found | {"executable": executable, "run": executable - len(missed), "missed": missed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("patches", nargs="*")
    parser.add_argument("--set", dest="set_name", required=True)
    parser.add_argument("--python-only", action="store_true", help="Leave proofs out that need a compiler.")
    asked = parser.parse_intermixed_args()
    os.environ["PATCHQ_SET"] = asked.set_name
    project = Project.find(ROOT, wait=600)
    apply(project, set_name=asked.set_name)
    with planning(project, asked.set_name) as whole:
        proofs = [proof for proof in proofs_of(whole.stacks, asked.patches) if not proof.on]
        added = {proof.name: added_by(project, whole, proof) for proof in proofs}
    import torch  # noqa: F401  # the forks have it then; it is what takes longest

    before = json.loads(asked.target.read_text()) if asked.target.exists() else {"rows": []}
    rows = {found["patch"]: found for found in before["rows"]}
    for proof in proofs:
        if asked.python_only and "nvcc" in proof.needs and added[proof.name].python:
            continue
        rows[proof.name] = row(proof, added[proof.name], asked.set_name)
        body = {"what": WHAT, "set": asked.set_name, "machine": this_machine().facts(),
                "rows": [rows[name] for name in sorted(rows)]}  # fmt: skip
        asked.target.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
