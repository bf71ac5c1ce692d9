"""``doctor``: is this machine and this project fit for what the verbs do."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from patchq.environment.machine import nvcc_release
from patchq.environment.toolkits import WORK_S, Unusable, ended, judge
from patchq.environment.verify import START_S, interpreter
from patchq.errors import PatchqError
from patchq.git import person
from patchq.project.project import Project
from patchq.project.stack import load_state
from patchq.system import fsio, runner
from patchq.system.paths import LOCK_NAME

#: The first git whose merge-tree merges in memory.
GIT_NEEDED = (2, 38)
#: Targets that the kernels of the stacks are compiled for.
ARCHS = ("sm_90a", "sm_100f", "sm_120a", "sm_120f", "sm_121a", "sm_121f")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``level`` is ``ok``, ``note`` or ``problem``."""

    topic: str
    level: str
    said: str
    hint: str = ""


def examine(project: Project | None) -> list[Finding]:
    """Look at git, disk, nvcc and, where there is one, the project."""
    found = [_git(), *_nvcc()]
    if project is not None:
        found += _project(project)
    return found


def mounted(project: Project, folder: Path, python: str) -> list[Finding]:
    """Whether what ``python`` imports of each built package is what is mounted at ``folder``, tree by tree."""
    found = []
    for upstream in project.lock.upstreams.values():
        if not upstream.build:
            continue
        package, tree = upstream.build.package, (folder / upstream.name).resolve()
        script = "import importlib.util, sys; s = importlib.util.find_spec(sys.argv[1]); print(s.origin if s else '')"
        try:
            out = runner.run([interpreter(python), "-c", script, package], cwd=Path("/"), timeout=START_S).stdout
            origin = out.decode("utf-8", "surrogateescape").strip()
        except PatchqError as error:
            said = error.said if isinstance(error, runner.CommandError) else error.message
            found.append(Finding(package, "problem", f"can't be looked for: {said}", "--python PATH"))
            continue
        real = Path(origin).resolve() if origin else None
        if real and tree in real.parents:
            found.append(Finding(package, "ok", f"imported from {origin}, which is {real}"))
        else:
            said = f"imported from {real}" if real else "not installed"
            found.append(
                Finding(package, "problem", f"{said}, not from {tree}", "start it by the entry point, `patched`")
            )
    return found


def _git() -> Finding:
    try:
        text = runner.run(["git", "--version"]).stdout.decode().strip()
    except runner.CommandError:
        return Finding("git", "problem", "git is not there", "install git 2.38 or newer")
    numbers = re.search(r"(\d+)\.(\d+)", text)
    if not numbers or (int(numbers[1]), int(numbers[2])) < GIT_NEEDED:
        return Finding("git", "problem", text, "git 2.38 or newer is needed")
    return Finding("git", "ok", text)


def targets(nvcc: str, archs: tuple[str, ...] = ARCHS) -> dict[str, str]:
    """What ``nvcc`` says to each target when it compiles an empty kernel; empty text: it can."""
    said = {}
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        source = Path(text) / "k.cu"
        source.write_text("__global__ void k() {}\n")
        for arch in archs:
            try:
                runner.run(
                    [nvcc, "-cubin", f"-arch={arch}", "-o", str(Path(text) / "k.cubin"), str(source)], timeout=WORK_S
                )
                said[arch] = ""
            except runner.CommandError as error:
                said[arch] = error.said.splitlines()[-1] if error.code > 0 and error.said else ended(error)
    return said


def _nvcc() -> list[Finding]:
    path, release = shutil.which("nvcc"), nvcc_release()
    if not path:
        said = "nvcc is not there: FlashInfer can't compile kernels here, and nvcc proofs don't run"
        return [Finding("nvcc", "note", said, "install the CUDA toolkit, 12.9 or newer for the f suffix")]
    can = targets(path)
    good = [a for a, said in can.items() if not said]
    if not good and isinstance(judged := judge(os.path.realpath(path)), Unusable):
        return [Finding("nvcc", "note", f"nvcc {release} ({path}) can't be used: {judged.said}", judged.hint)]
    found = [Finding("nvcc", "ok", f"nvcc {release} ({path}) compiles for {', '.join(good) or 'none of the targets'}")]
    for arch in ("sm_120f", "sm_121f"):
        if can[arch]:
            found.append(
                Finding(
                    "nvcc", "note", f"{arch}: {can[arch]}", "the f suffix needs nvcc 12.9 or newer; a is used instead"
                )
            )
    return found


def _repository(project: Project) -> list[Finding]:
    """Whether the project's own repository has what a clone needs, and nothing that is this machine's alone."""
    root = project.layout.root
    if not person.has_repository(root):
        said = "the project is in no git repository: its patches have no history, and nobody can clone it"
        return [Finding("repository", "note", said, "`git init`, and commit it")]
    try:
        private = person.tracked(root, project.layout.private.name)
        missing = person.untracked(root, LOCK_NAME, "patches")
    except PatchqError as error:
        return [Finding("repository", "problem", error.message, error.hint)]
    found = []
    if private:
        said = f"git tracks {len(private)} files of .patchq, which is this machine's alone: {private[0]}"
        found.append(Finding("repository", "problem", said, "`git rm -r --cached .patchq`, and ignore it"))
    if missing:
        said = f"a clone would lack {', '.join(missing[:3])}" + (", …" if len(missing) > 3 else "")
        found.append(Finding("repository", "note", said, "`git add` them"))
    return found or [Finding("repository", "ok", "git has the lock and the patches")]


def _project(project: Project) -> list[Finding]:
    found = []
    free = shutil.disk_usage(project.layout.root).free >> 30
    level = "ok" if free >= 5 else "problem"
    found.append(
        Finding(
            "disk",
            level,
            f"{free} GB free",
            "" if free >= 5 else "a vLLM wheel and its copy need 2 GB, trees and caches more",
        )
    )
    found += _repository(project)
    pending = project.layout.private / "journal" / "pending.json"
    if pending.exists():
        found.append(
            Finding(
                "journal",
                "note",
                "a command was interrupted",
                "the next one finishes what it began: `patchq apply`; or `patchq undo --pending` gives it up",
            )
        )
    for upstream in project.lock.upstreams:
        try:
            state = load_state(project.layout, upstream)
        except PatchqError as error:
            found.append(Finding(upstream, "problem", error.message, error.hint))
            continue
        if state and project.layout.store.exists() and not project.store.ref_or_none(state.tip):
            found.append(
                Finding(
                    upstream,
                    "problem",
                    "the store has lost the applied commits",
                    "remove .patchq and run `patchq apply`",
                )
            )
    owner = fsio.read_or_none(project.layout.private / "lock.owner")
    if owner:
        found.append(Finding("lock", "note", f"last taken by {owner.decode().strip()}"))
    return found
