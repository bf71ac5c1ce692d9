"""``verify-installed``: is a Python environment really running the patched build."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.environment._caches import judge_caches
from patchq.environment._files import Folder, Kind
from patchq.environment._imports import Interpreter, path_files
from patchq.environment._loader import judge_variables
from patchq.environment._startup import judge_environment, judge_startup
from patchq.environment.differences import Code, Difference, Findings, Level, printable
from patchq.environment.installed import Environment, Location, Package, Reference, Start, judge_package
from patchq.errors import UserError
from patchq.formats.distinfo import canonical
from patchq.formats.verification import Verification
from patchq.system import runner

_PROBE = Path(__file__).with_name("_probe.py")
#: Seconds for an interpreter to start.
START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Prebuilt kernels of FlashInfer, by the distribution or the cache folder that holds them.

    :ivar count: how many, in a cache folder.
    :ivar use: ``own`` for those of this stack, ``other`` for those that this FlashInfer doesn't load, ``maybe`` for
        those that it would load whatever stack they are of, ``cubins`` and ``foreign`` for distributions.
    """

    place: str
    version: str
    count: int
    use: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found in the environment of ``python``.

    :ivar differences: the environment's own: what an interpreter runs and imports besides the packages.
    :ivar cache: where its FlashInfer keeps what it compiles.
    """

    python: str
    packages: tuple[Package, ...]
    differences: tuple[Difference, ...] = ()
    kernels: tuple[Kernels, ...] = ()
    cache: str = ""

    @property
    def ok(self) -> bool:
        wrong = any(one.level is Level.PROBLEM for one in self.differences)
        return bool(self.packages) and not wrong and all(package.is_right for package in self.packages)


def verify(
    python: str,
    packages: Mapping[str, str],
    expected: str = "",
    references: Sequence[Reference] = (),
    *,
    optional: Mapping[str, str] | None = None,
    unpatched: Collection[str] = (),
    rules: Verification | None = None,
) -> Verdict:
    """Look at the environment of the interpreter ``python``, as its imports would find things.

    Nothing that is looked at is imported. The interpreter is started once as anyone would, for its path, and once
    without anything of the environment, for its settings. The files are read from outside.

    :param packages: distribution to import name, empty where that isn't known; none for every one that carries a
        manifest.
    :param expected: the stack id, or its beginning, that each package must be of; empty to take
        any, as long as all are of the same.
    :param references: wheels that the packages may have come from.
    :param optional: more packages, looked at if they carry a manifest: kernels, for one.
    :param unpatched: distributions that are to be upstream's own, as no patch changes them.
    :param rules: what the lock allows.
    :raises UserError: if the interpreter can't be run.
    """
    python = interpreter(python)
    rules = rules or Verification()
    asked = sorted({package or name.replace("-", "_") for name, package in packages.items()})
    folders = (Path(python).parent, Path(python).parent.parent, Path(python).resolve().parent)
    _refuse_waiting(f"{folder}/{name}" for folder in folders for name in ("pyvenv.cfg", "pybuilddir.txt"))
    settings = _ask(python, ("-I", "-S"), {"look": "settings"})
    _refuse_waiting(file.path for site in settings["sites"] for file in path_files(Folder(), site))
    before = Findings(frozenset(rules.allow), frozenset(rules.groups))
    judge_startup(Environment(_interpreter(settings, {"path": settings["stdlib"], "cache_prefix": ""})), before)
    told = _ask(python, (), {"look": "start", "packages": asked})
    if not _is_start(told):
        raise UserError(
            f"{python} does not tell its path: something else answers at its start",
            hint="look at the .pth files and sitecustomize of that environment",
        )
    environment = Environment(_interpreter(settings, told))
    start = Start(
        specs={name: Location(spec["origin"], tuple(spec["places"])) for name, spec in told["specs"].items()},
        loaded=frozenset(told["loaded"]),
    )
    wanted = _wanted(environment, packages, optional or {})
    seen = [
        judge_package(
            environment, name, package, start=start, expected=expected, references=references,
            unpatched=name in unpatched, python=settings["python"] or python,
        )
        for name, package in wanted.items()
    ]  # fmt: skip
    findings = Findings(frozenset(rules.allow), frozenset(rules.groups))
    ids = sorted({package.stack_id for package in seen if package.stack_id})
    if len(ids) > 1:
        findings.add(Code.DIFFERENT_STACKS, (), ", ".join(one[:8] for one in ids))
    sources = judge_environment(environment, wanted, findings)
    findings.found += [one for one in before.found if one not in findings.found]
    judge_caches(environment.interpreter, [s for s in sources if s.endswith(".py")], findings, python=python)
    judge_variables(settings["variables"], [environment], environment.files, findings)
    findings.add_any(Code.FINDERS, set(told["finders"]), level=Level.NOTE)
    cache = _kernel_cache(settings)
    return Verdict(
        python=printable(settings["python"]), packages=tuple(seen), differences=tuple(findings.found),
        kernels=tuple(_kernels(environment, seen, cache)), cache=printable(str(cache)),
    )  # fmt: skip


def _refuse_waiting(paths: Iterable[str]) -> None:
    """:raises UserError: if one is a pipe or a device: Python opens it at its start, and waits."""
    files = Folder()
    for path in paths:
        if files.real_kind(path) is Kind.SPECIAL:
            raise UserError(f"{printable(path)} is no plain file, and Python would wait for it", hint="remove it")


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


def _ask(python: str, options: Sequence[str], question: Mapping[str, Any]) -> Any:
    """Return what ``_probe.py`` answers in that interpreter; what something else has printed before is ignored."""
    argv = [python, *options, "-c", _PROBE.read_text()]
    try:
        done = runner.run(
            argv, data=json.dumps(question).encode(), cwd=Path("/"), timeout=START_S,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        told = json.loads(done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
    except runner.CommandError as error:
        said = printable((error.said.splitlines() or [f"it ended with {error.code}"])[-1])
    except (ValueError, RecursionError):
        said = "it doesn't answer"
    else:
        if question["look"] == "start" or (isinstance(told, dict) and "stdlib" in told):
            return told
        said = "it doesn't answer"
    raise UserError(f"{python} can't be asked: {said}", hint="--python PATH names an interpreter")


def _is_start(told: Any) -> bool:
    """Return whether an answer has the fields of ``probe.at_start``: code of the environment may give any."""

    def texts(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(v, str) and "\0" not in v for v in value)

    def spec(value: Any) -> bool:
        return (
            isinstance(value, dict) and set(value) == {"origin", "places"} and isinstance(value["origin"], str)
            and "\0" not in value["origin"] and texts(value["places"])
        )  # fmt: skip

    return (
        isinstance(told, dict)
        and set(told) == {"path", "cache_prefix", "finders", "specs", "loaded"}
        and all(texts(told[key]) for key in ("path", "finders", "loaded"))
        and texts([told["cache_prefix"]])
        and isinstance(told["specs"], dict)
        and all(spec(value) for value in told["specs"].values())
    )


def _interpreter(settings: Mapping[str, Any], told: Mapping[str, Any]) -> Interpreter:
    """Return the interpreter's model. Site folders that the ordinary start hid are put at the end of its path."""
    files = Folder()
    seen = {files.resolve(path) for path in told["path"]}
    sites = [site for site in dict.fromkeys(settings["sites"]) if files.is_folder(site)]
    hidden = [site for site in sites if files.resolve(site) not in seen]
    major, minor = settings["version"]
    return Interpreter(
        files=files, version=(major, minor), prefix=settings["prefix"], base=settings["base"],
        stdlib=tuple(settings["stdlib"]), path=(*told["path"], *hidden), sites=tuple(sites),
        caches=told["cache_prefix"],
    )  # fmt: skip


def _wanted(environment: Environment, packages: Mapping[str, str], optional: Mapping[str, str]) -> dict[str, str]:
    """Return the packages to look at, with their import names."""
    attested = environment.attested
    wanted = dict(packages or attested)
    for name in [name for name, package in wanted.items() if not package]:
        theirs = [package for own, package in attested.items() if canonical(own) == canonical(name)]
        wanted[name] = theirs[0] if theirs else name.replace("-", "_")
    return wanted | {name: package for name, package in optional.items() if package in attested.values()}


# FlashInfer's own kernels


def _kernel_cache(settings: Mapping[str, Any]) -> Path:
    base = settings["variables"].get("FLASHINFER_WORKSPACE_BASE") or settings["home"]
    return Path(base, ".cache", "flashinfer")


def _kernels(environment: Environment, seen: Sequence[Package], cache: Path) -> list[Kernels]:
    flashinfer = next((p for p in seen if p.distribution == "flashinfer-python"), None)
    patched = {p.distribution for p in seen if p.stack_id}
    found = []
    for one in environment.distributions:
        if one.name in ("flashinfer-cubin", "flashinfer-jit-cache") and one.name not in patched:
            use = "foreign" if one.name.endswith("jit-cache") else "cubins"
            found.append(Kernels(place=one.name, version=printable(one.version), count=0, use=use))
    files = environment.files
    for version in files.listed(str(cache)):
        count = sum(path.endswith(".so") for path, _ in files.walk(f"{cache}/{version}"))
        if not count:
            continue
        use = "other"
        if flashinfer and version == flashinfer.version:
            use = "own"
        elif flashinfer and flashinfer.state == "upstream" and "+patchq." not in version:
            use = "maybe"
        found.append(Kernels(place=printable(f"{cache}/{version}"), version=printable(version), count=count, use=use))
    return found
