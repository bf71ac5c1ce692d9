"""Checks of this machine and of the project, for ``doctor``."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from patchq.environment.machine import nvcc_release
from patchq.environment.toolkits import WORK_S, Unusable, ended, judge
from patchq.environment.verify import START_S, interpreter
from patchq.errors import PatchqError
from patchq.git import person
from patchq.names import counted
from patchq.project.project import Project
from patchq.project.stack import load_state
from patchq.system import fsio, runner
from patchq.system.paths import LOCK_NAME

#: First git whose ``merge-tree`` merges in memory.
GIT_NEEDED = (2, 38)
#: Targets of the stacks' kernels.
ARCHS = ("sm_90a", "sm_100f", "sm_120a", "sm_120f", "sm_121a", "sm_121f")
#: Free space that a build needs, in GB.
_DISK_GB = 5
_NVCC_HINT = "install the CUDA toolkit, 12.9 or newer for the f suffix"
#: Program that prints the file from which a package is imported.
_FIND_ORIGIN = """\
import importlib.util, sys
spec = importlib.util.find_spec(sys.argv[1])
print(spec.origin if spec else "")
"""


class Health(str, Enum):
    """Severity of a check's result."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Result of one check, with a message and a hint."""

    topic: str
    level: Health
    message: str
    hint: str = ""


def _ok(topic: str, message: str) -> Diagnosis:
    return Diagnosis(topic=topic, level=Health.OK, message=message)


def _note(topic: str, message: str, hint: str = "") -> Diagnosis:
    return Diagnosis(topic=topic, level=Health.NOTE, message=message, hint=hint)


def _problem(topic: str, message: str, hint: str = "") -> Diagnosis:
    return Diagnosis(topic=topic, level=Health.PROBLEM, message=message, hint=hint)


def examine(project: Project | None) -> list[Diagnosis]:
    """Check git and nvcc; if a project is given, also check the project and its disk."""
    found = [_git(), *_nvcc()]
    if project is not None:
        found += _project(project)
    return found


def mounted(project: Project, folder: Path, python: str) -> list[Diagnosis]:
    """Check that ``python`` imports each built package from its tree mounted below ``folder``."""
    found = []
    for upstream in project.lock.upstreams.values():
        if upstream.build:
            tree = (folder / upstream.name).resolve()
            found.append(_mounted(upstream.build.package, tree, python))
    return found


def _mounted(package: str, tree: Path, python: str) -> Diagnosis:
    argv = [interpreter(python), "-c", _FIND_ORIGIN, package]
    try:
        out = runner.run(argv, cwd=Path("/"), timeout=START_S).stdout
    except PatchqError as error:
        if isinstance(error, runner.CommandError):
            message = error.output
        else:
            message = error.message
        return _problem(package, f"can't be looked up: {message}", "--python PATH")
    origin = out.decode("utf-8", "surrogateescape").strip()
    if not origin:
        message = f"not installed, not from {tree}"
    else:
        real = Path(origin).resolve()
        if tree in real.parents:
            return _ok(package, f"imported from {origin}, which is {real}")
        message = f"imported from {real}, not from {tree}"
    return _problem(package, message, "start it with the entry point, `patched`")


def _git() -> Diagnosis:
    try:
        text = runner.run(["git", "--version"]).stdout.decode().strip()
    except runner.CommandError:
        return _problem("git", "git is not installed", "install git 2.38 or newer")
    numbers = re.search(r"(\d+)\.(\d+)", text)
    if not numbers or (int(numbers[1]), int(numbers[2])) < GIT_NEEDED:
        return _problem("git", text, "git 2.38 or newer is needed")
    return _ok("git", text)


def targets(nvcc: str, archs: tuple[str, ...] = ARCHS) -> dict[str, str]:
    """Compile an empty kernel for each target.

    :returns: the compiler's error by target; empty if the compiler succeeded.
    """
    errors = {}
    with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
        source, cubin = Path(folder, "k.cu"), Path(folder, "k.cubin")
        source.write_text("__global__ void k() {}\n")
        for arch in archs:
            argv = [nvcc, "-cubin", f"-arch={arch}", "-o", str(cubin), str(source)]
            try:
                runner.run(argv, timeout=WORK_S)
            except runner.CommandError as error:
                if error.code > 0 and error.output:
                    errors[arch] = error.output.splitlines()[-1]
                else:
                    errors[arch] = ended(error)
            else:
                errors[arch] = ""
    return errors


def _nvcc() -> list[Diagnosis]:
    path, release = shutil.which("nvcc"), nvcc_release()
    if not path:
        message = "nvcc is not installed: FlashInfer can't compile kernels here, and proofs that need nvcc don't run"
        return [_note("nvcc", message, _NVCC_HINT)]
    errors = targets(path)
    good = [arch for arch, error in errors.items() if not error]
    if not good:
        judged = judge(os.path.realpath(path))
        if isinstance(judged, Unusable):
            message = f"nvcc {release} ({path}) can't be used: {judged.message}"
            return [_note("nvcc", message, judged.hint)]
    compiled = ", ".join(good) or "none of the targets"
    found = [_ok("nvcc", f"nvcc {release} ({path}) compiles for {compiled}")]
    for arch in ("sm_120f", "sm_121f"):
        if errors[arch]:
            hint = "the f suffix needs nvcc 12.9 or newer; the suffix a is used instead"
            found.append(_note("nvcc", f"{arch}: {errors[arch]}", hint))
    return found


def _repository(project: Project) -> list[Diagnosis]:
    """Check that git tracks the lock and the patches, but no file in ``.patchq``."""
    topic, root = "repository", project.layout.root
    if not person.has_repository(root):
        message = "the project is not in a git repository: its patches have no history"
        return [_note(topic, message, "`git init`, and commit it")]
    try:
        private = person.tracked(root, project.layout.private.name)
        missing = person.untracked(root, LOCK_NAME, "patches")
    except PatchqError as error:
        return [_problem(topic, error.message, error.hint)]
    found = []
    if private:
        message = f"git tracks {counted(len(private), 'private file')} in .patchq: {private[0]}"
        found.append(_problem(topic, message, "`git rm -r --cached .patchq`, and ignore it"))
    if missing:
        shown = ", ".join(missing[:3])
        if len(missing) > 3:
            shown += ", …"
        found.append(_note(topic, f"a clone would lack {shown}", "`git add` them"))
    return found or [_ok(topic, "git has the lock and the patches")]


def _project(project: Project) -> list[Diagnosis]:
    found = [_disk(project), *_repository(project)]
    pending = project.layout.private / "journal" / "pending.json"
    if pending.exists():
        hint = "`patchq apply` finishes the command; `patchq undo --pending` reverts it"
        found.append(_note("journal", "a command was interrupted", hint))
    for upstream in project.lock.upstreams:
        try:
            state = load_state(project.layout, upstream)
        except PatchqError as error:
            found.append(_problem(upstream, error.message, error.hint))
            continue
        if state and project.layout.store.exists() and not project.store.ref_or_none(state.tip):
            hint = "remove .patchq and run `patchq apply`"
            found.append(_problem(upstream, "the store has lost the applied commits", hint))
    owner = fsio.read_or_none(project.layout.private / "lock.owner")
    if owner:
        found.append(_note("lock", f"last taken by {owner.decode().strip()}"))
    return found


def _disk(project: Project) -> Diagnosis:
    free = shutil.disk_usage(project.layout.root).free >> 30
    message = f"{free} GB free"
    if free >= _DISK_GB:
        return _ok("disk", message)
    return _problem("disk", message, "a vLLM wheel and its copy need 2 GB, trees and caches more")
