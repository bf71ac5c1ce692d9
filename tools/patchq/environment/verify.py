"""``verify-installed``: is a Python environment really running the patched build."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.environment.differences import Difference, difference, printable
from patchq.environment.installed import Package, Reference, judge_package, with_problem
from patchq.environment.startup import judge_startup
from patchq.errors import UserError
from patchq.system import runner

_PROBE, _COMPILED = (Path(__file__).with_name(name) for name in ("probe.py", "compiled.py"))
#: Seconds for an interpreter to start, and for all files of an environment to be read.
START_S, FILES_S = 120.0, 1800.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in the environment of ``python``; ``ok`` only if nothing is wrong.

    ``differences`` are the environment's own: what runs at each start.
    ``cache`` is where its FlashInfer keeps what it compiles.
    """

    python: str
    packages: tuple[Package, ...]
    notes: tuple[str, ...]
    differences: tuple[Difference, ...] = ()
    cache: str = ""

    @property
    def ok(self) -> bool:
        wrong = any(d.level == "problem" for d in self.differences)
        return bool(self.packages) and not wrong and not any(p.problems for p in self.packages)


def verify(
    python: str,
    packages: Mapping[str, str],
    expected: str = "",
    references: Sequence[Reference] = (),
    optional: Mapping[str, str] | None = None,
    unpatched: Collection[str] = (),
) -> Verdict:
    """Look at the environment of the interpreter ``python``, as its imports would find things.

    Nothing that is looked at is imported. The interpreter is started once as anybody would, to ask for its path,
    and then without anything of the environment, to read the files.

    :param packages: distribution to import name, empty where that isn't known; none for every one that carries a
        manifest.
    :param expected: the stack id, or its beginning, that each package must be of; empty to take
        any, as long as all are of the same.
    :param references: wheels that the packages may have come from.
    :param optional: more of the same, looked at where they are there and carry a manifest: kernels, for one.
    :param unpatched: distributions that are to be upstream's own, as no patch changes them.
    :raises UserError: if the interpreter can't be run.
    """
    python = interpreter(python)
    wanted, more = dict(packages), dict(optional or {})
    start = _ask(python, (), _PROBE, {"look": "start", "packages": wanted}, START_S)
    if not _is_start(start):
        raise UserError(
            f"{python} does not tell its path: something else answers at its start",
            hint="look at the .pth files and sitecustomize of that environment",
        )
    told = _ask(python, ("-I", "-S"), _PROBE, {"look": "files", "packages": wanted, "optional": more, **start}, FILES_S)
    _judge_caches(python, start, told["packages"])
    versions: dict[str, list[str]] = {}
    for name, version in told["distributions"]:
        versions.setdefault(name, []).append(version)
    seen = [
        judge_package(facts, expected, references, versions, unpatched=facts["distribution"] in unpatched)
        for facts in told["packages"]
    ]
    ids = {p.stack_id for p in seen if p.stack_id}
    if len(ids) > 1:
        several = difference("different-stacks", (), ", ".join(sorted(i[:8] for i in ids)))
        seen = [with_problem(p, several) for p in seen]
    differences = judge_startup(told, start["finders"])
    notes = [*_notes(told, seen), *(d.said for d in differences if d.level == "note")]
    return Verdict(
        printable(told["python"]), tuple(seen), tuple(map(printable, notes)), tuple(differences),
        printable(told["jit_cache"]["folder"]),
    )  # fmt: skip


def interpreter(python: str) -> str:
    """The program that ``python`` means, as a shell here would take it: a path, or a name on PATH.

    :raises UserError: if there is no such program.
    """
    named = str(Path(python).expanduser()) if os.sep in python else shutil.which(python) or python
    # Not resolved: a virtual environment is known by where the link to its interpreter lies.
    path = os.path.abspath(named)  # noqa: PTH100
    if Path(path).is_dir():
        raise UserError(f"{python} is a folder, not an interpreter", hint=f"--python {python.rstrip('/')}/bin/python")
    if not os.access(path, os.X_OK):
        raise UserError(f"there is no program {python}", hint="--python PATH names an interpreter")
    return path


def _ask(python: str, options: Sequence[str], script: Path, question: Mapping[str, Any], limit: float) -> Any:
    """What a script answers in that interpreter; what something else has printed before is left alone."""
    argv = [python, *options, "-c", script.read_text()]
    try:
        done = runner.run(
            argv, data=json.dumps(question).encode(), cwd=Path("/"), timeout=limit,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        return json.loads(done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
    except runner.CommandError as error:
        said = printable((error.said.splitlines() or [f"it ended with {error.code}"])[-1])
    except (ValueError, RecursionError):
        said = "it doesn't answer"
    raise UserError(f"{python} can't be asked: {said}", hint="--python PATH names an interpreter")


def _is_start(told: Any) -> bool:
    """Whether an answer has the fields of ``probe.at_start``: code of the environment runs there, and may give any."""

    def texts(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(v, str) and "\0" not in v for v in value)

    def spec(value: Any) -> bool:
        return (
            isinstance(value, dict) and set(value) == {"origin", "places", "namespace"}
            and isinstance(value["origin"], str) and texts(value["places"])
        )  # fmt: skip

    return (
        isinstance(told, dict)
        and set(told) == {"path", "prefix", "cache_prefix", "finders", "specs", "loaded"}
        and all(texts(told[key]) for key in ("path", "finders", "loaded"))
        and texts([told["prefix"], told["cache_prefix"]])
        and isinstance(told["specs"], dict)
        and all(spec(value) for value in told["specs"].values())
    )


def _judge_caches(python: str, start: Mapping[str, Any], packages: Sequence[dict[str, Any]]) -> None:
    """Add to the facts of each package what its compiled caches are."""
    looked = [p for p in packages if "files" in p]
    if not looked:
        return
    question = {
        "cache_prefix": start["cache_prefix"],
        "packages": [
            {"root": p["root"], "sources": sorted(f for f in p["files"] if f.endswith(".py"))} for p in looked
        ],
    }
    answers = _ask(python, ("-I", "-S"), _COMPILED, question, FILES_S)
    for facts, caches in zip(looked, answers, strict=True):
        facts["caches"] = caches


def _notes(found: Mapping[str, Any], seen: Sequence[Package]) -> list[str]:
    notes = []
    flashinfer = next((p for p in seen if p.distribution == "flashinfer-python"), None)
    own_kernels = {p.distribution for p in seen if p.stack_id}
    for name, version in found["distributions"]:
        if name in ("flashinfer-cubin", "flashinfer-jit-cache") and name not in own_kernels:
            what = "kernels compiled from unpatched sources" if name.endswith("jit-cache") else "prebuilt cubins"
            own = "FlashInfer refuses it beside a patched version by its own check"
            notes.append(f"{name} {version} is installed: {what}; {own}")
    kernels = found["jit_cache"]["kernels"]
    folder = found["jit_cache"]["folder"]
    for version, count in kernels.items():
        if flashinfer and version == flashinfer.version:
            notes.append(f"{folder}/{version}: {count} kernels of this stack")
        elif flashinfer and flashinfer.state == "upstream" and "+patchq." not in version:
            notes.append(
                f"{folder}/{version}: {count} kernels, maybe of another stack: this FlashInfer would load them"
            )
        else:
            notes.append(f"{folder}/{version}: {count} kernels of another stack, not used by this one")
    return notes
