"""Write the pages of docs/evidence, which name the patches that changed since each file was measured.

    python tests/stacks/evidence.py
    python tests/stacks/evidence.py record docs/evidence/NAME.json HEAD "flashinfer v0.6.1" [PATCH…]

`record` writes into a file which patches it was measured with: those of a stack as a commit has them, all or the named.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from patchq.formats.series import parse as parse_series
from patchq.project.project import Project

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs/evidence"
HEAD = """\
# Evidence

Each JSON file has a measurement and its machine. The last column names patches whose added or removed lines changed
since the measurement. [Serving](serving.md) and [mutants](mutation.md) have their own pages.
`python tests/stacks/evidence.py` writes this page.

| file | date | changes to its stacks since |
|---|---|---|
"""


def change_id(patch: bytes) -> str:
    """Return a digest of the lines that a patch file adds and removes, without their places."""
    diff = patch[patch.find(b"\ndiff --git ") :]
    lines = [line for line in diff.split(b"\n") if line.startswith((b"+", b"-"))]
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:12]


def stack_patches(stack: str, read: Callable[[str], bytes]) -> dict[str, str]:
    """Return the patches of a stack, "vllm v0.33.0", with their digests; ``read`` returns a file of the project.

    :raises OSError: if there is no such stack.
    """
    folder = "patches/" + stack.replace(" ", "/")
    names = parse_series(read(f"{folder}/series"), folder).names
    return {name: change_id(read(f"{folder}/{name}.patch")) for name in names}


def here(path: str) -> bytes:
    return (ROOT / path).read_bytes()


def at(commit: str) -> Callable[[str], bytes]:
    """Return what reads files of the project as a commit has them."""
    return lambda path: (
        subprocess.run(["git", "show", f"{commit}:{path}"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    )


def since(stack: str, then: dict[str, str], whole: bool) -> str:
    """Return which patches of a stack changed; empty if none did.

    :param whole: whether ``then`` names all patches that the stack had.
    """
    try:
        now = stack_patches(stack, here)
    except FileNotFoundError:
        return f"{stack} is gone"
    kinds = {
        "changed": [name for name in then if name in now and now[name] != then[name]],
        "gone": [name for name in then if name not in now],
    }
    said = [f"{kind} {', '.join(f'`{name}`' for name in names)}" for kind, names in kinds.items() if names]
    if whole and (new := len(now.keys() - then)):
        said.insert(1, f"{new} new")
    return f"{stack}: {'; '.join(said)}" if said else ""


def stale(found: dict[str, Any]) -> list[str]:
    """Return what became of the stacks that a file was measured with, those that are the same apart."""
    whole = not found.get("these patches alone", False)
    return [said for stack, then in found["patches"].items() if (said := since(stack, then, whole))]


def row_files() -> list[Path]:
    """The files whose rows name their own patch each: mutants, and lines that proofs run."""
    return sorted([*EVIDENCE.glob("mutation-*.json"), *EVIDENCE.glob("lines-*.json")])


def _ids(set_name: str, patch: str, proof: Sequence[str], read: Callable[[str], bytes]) -> dict[str, str]:
    project = Project.find(ROOT)
    upstream, _, name = patch.partition("/")
    ref = project.lock.sets[project.choose_set(set_name)][upstream]
    content = b"\n".join(read(file) for file in sorted({file.partition("::")[0] for file in proof}))
    return {
        "patch_id": change_id(read(f"patches/{upstream}/{ref}/{name}.patch")),
        "proof_id": hashlib.sha256(content).hexdigest()[:12],
    }


def measured(set_name: str, patch: str, proof: Sequence[str], commit: str = "") -> dict[str, str]:
    """Return what a row was measured with: digests of the patch and its proof, and the commit."""
    ids = _ids(set_name, patch, proof, at(commit) if commit else here)
    command = ["git", "rev-parse", "--short=10", commit or "HEAD"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return ids | {"commit": done.stdout.decode().strip()}


def outdated(found: dict[str, Any], set_name: str) -> str:
    """Return what of a row's patch and proof changed since; empty if neither did."""
    try:
        now = _ids(set_name, found["patch"], found["proof"], here)
    except (FileNotFoundError, KeyError):
        return "patch gone"
    return " and ".join(kind for kind in ("patch", "proof") if now[f"{kind}_id"] != found[f"{kind}_id"])


def page() -> str:
    """The page that lists the files."""
    lines = []
    for path in sorted(EVIDENCE.glob("*.json")):
        if path in row_files():
            continue
        found = json.loads(path.read_text())
        now = "; ".join(stale(found)) or "none"
        lines.append(f"| [{path.stem}]({path.name}) | {found['date']} | {now} |")
    return HEAD + "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """All pages that are written from the evidence files."""
    sys.path[:0] = [str(ROOT / "tests/serving"), str(Path(__file__).parent)]
    import page as serving  # type: ignore[import-not-found, unused-ignore]
    from evidence_of_mutation import page as mutation

    return {
        EVIDENCE / "files.md": page(),
        EVIDENCE / "mutation.md": mutation(),
        EVIDENCE / "serving.md": serving.page(),
    }


def record(target: Path, commit: str, stack: str, names: Sequence[str]) -> None:
    """Write into a file which patches of a stack it was measured with."""
    found = json.loads(target.read_text())
    found.setdefault("date", datetime.date.today().isoformat())
    every = stack_patches(stack, at(commit))
    found.setdefault("patches", {})[stack] = {name: every[name] for name in names or every}
    if names:
        found["these patches alone"] = True
    target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    if sys.argv[1:2] == ["record"]:
        record(Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:])
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
