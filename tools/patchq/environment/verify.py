"""Check that a Python environment runs the patched build, for ``verify-installed``.

Also list the environment's prebuilt FlashInfer kernels.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from patchq.environment._caches import judge_caches
from patchq.environment._files import FileKind, Folder
from patchq.environment._imports import Interpreter, path_files
from patchq.environment._loader import judge_variables
from patchq.environment._startup import judge_environment, judge_startup
from patchq.environment.differences import Code, Difference, Findings, Level, printable
from patchq.environment.installed import (
    InstalledEnvironment,
    InstalledPackage,
    Location,
    PackageState,
    Reference,
    Start,
    judge_package,
    thin_packages,
)
from patchq.errors import UserError
from patchq.formats.distinfo import canonical
from patchq.formats.verification import Verification
from patchq.system import runner

_PROBE = Path(__file__).with_name("_probe.py")
#: Time limit for the start of an interpreter, in seconds.
START_S = 120.0


class KernelUse(str, Enum):
    """Relation of prebuilt kernels to the installed FlashInfer."""

    #: Kernels of this stack, which FlashInfer loads.
    OWN = "own"
    #: Kernels that the installed FlashInfer doesn't load.
    OTHER = "other"
    #: Kernels that upstream's FlashInfer loads, even if they were built from another stack.
    MAYBE = "maybe"
    #: The distribution flashinfer-cubin.
    CUBINS = "cubins"
    #: The distribution flashinfer-jit-cache, not built by patchq.
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrebuiltKernels:
    """Prebuilt kernels of FlashInfer, in a distribution or in a cache folder.

    :ivar place: Name of the distribution, or path of the cache folder.
    :ivar count: Number of kernels in a cache folder.
    """

    place: str
    version: str
    count: int
    use: KernelUse


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallVerdict:
    """Result of checking the environment of the interpreter ``python``.

    :ivar differences: Differences of the environment as a whole; each package has differences of its own.
    :ivar cache: Folder in which the environment's FlashInfer stores the kernels that it compiles.
    """

    python: str
    packages: tuple[InstalledPackage, ...]
    differences: tuple[Difference, ...] = ()
    kernels: tuple[PrebuiltKernels, ...] = ()
    cache: str = ""

    @property
    def ok(self) -> bool:
        if any(one.level is Level.PROBLEM for one in self.differences):
            return False
        return bool(self.packages) and all(package.is_right for package in self.packages)


def verify(
    python: str,
    packages: Mapping[str, str],
    expected: str = "",
    references: Sequence[Reference] = (),
    *,
    optional: Mapping[str, str] | None = None,
    unpatched: Collection[str] = (),
    rules: Verification | None = None,
) -> InstallVerdict:
    """Check the environment of the interpreter ``python``.

    No package of the environment is imported. The interpreter is started twice. Without the environment's packages, it
    prints its settings. In a normal start, it prints its ``sys.path``. patchq itself reads the environment's files.

    :param packages: Import names by distribution; an import name may be empty. If the mapping is empty, all packages
        with a manifest are checked.
    :param expected: Required stack id of all packages, or its first characters. If empty, the packages need only have
        equal ids.
    :param references: Wheels to compare the packages with.
    :param optional: More packages, such as kernels. They are checked only if they contain a manifest.
    :param unpatched: Distributions that no patch changes.
    :param rules: Rules of the lock.
    :raises UserError: if the interpreter can't be run.
    """
    python = interpreter(python)
    rules = rules or Verification()
    _refuse_waiting_start(python)
    settings = _ask(python, ("-I", "-S"), {"look": "settings"})
    for site in settings["sites"]:
        for file in path_files(Folder(), site):
            _refuse_waiting(file.path)
    # Check start-up code before the interpreter runs it.
    before = Findings(frozenset(rules.allow), frozenset(rules.groups))
    clean = {"path": settings["stdlib"], "cache_prefix": ""}
    judge_startup(InstalledEnvironment(_interpreter(settings, clean)), before)
    names = sorted({package or name.replace("-", "_") for name, package in packages.items()})
    answer = _ask_start(python, names)
    environment = InstalledEnvironment(_interpreter(settings, answer))
    start = _start(answer)
    wanted = _wanted(environment, packages, optional or {})
    seen = []
    for name, package in wanted.items():
        found = judge_package(
            environment,
            name,
            package,
            start=start,
            expected=expected,
            references=references,
            unpatched=name in unpatched,
            python=settings["python"] or python,
        )
        seen.append(found)
    findings = Findings(frozenset(rules.allow), frozenset(rules.groups))
    ids = sorted({package.stack_id for package in seen if package.stack_id})
    if len(ids) > 1:
        findings.add(Code.DIFFERENT_STACKS, (), ", ".join(one[:8] for one in ids))
    sources = judge_environment(environment, wanted, findings)
    findings.found += [one for one in before.found if one not in findings.found]
    sources = [source for source in sources if source.endswith(".py")]
    judge_caches(environment.interpreter, sources, findings, python=python)
    judge_variables(settings["variables"], [environment], environment.files, findings)
    findings.add_any(Code.FINDERS, answer["finders"], level=Level.NOTE)
    cache = _kernel_cache(settings)
    return InstallVerdict(
        python=printable(settings["python"]),
        packages=tuple(seen),
        differences=tuple(findings.found),
        kernels=tuple(_kernels(environment, seen, cache)),
        cache=printable(str(cache)),
    )


def _refuse_waiting_start(python: str) -> None:
    """Refuse special files that Python would open when it starts."""
    program = Path(python)
    for folder in (program.parent, program.parent.parent, program.resolve().parent):
        for name in ("pyvenv.cfg", "pybuilddir.txt"):
            _refuse_waiting(f"{folder}/{name}")


def _refuse_waiting(path: str) -> None:
    """Raise UserError for a pipe or a device, because Python would open it at the start and wait for data."""
    if Folder().real_kind(path) is FileKind.SPECIAL:
        shown = printable(path)
        raise UserError(f"{shown} is not a regular file, and Python would wait for it", hint="remove it")


def interpreter(python: str) -> str:
    """Return the absolute path of the program ``python``, given its path or its name on PATH.

    :raises UserError: if there is no such program.
    """
    named = shutil.which(python) or python
    if os.sep in python:
        named = str(Path(python).expanduser())
    # Don't resolve the link, because its folder identifies a virtual environment.
    path = os.path.abspath(named)  # noqa: PTH100
    if Path(path).is_dir():
        hint = f"--python {python.rstrip('/')}/bin/python"
        raise UserError(f"{python} is a folder, not an interpreter", hint=hint)
    if not os.access(path, os.X_OK):
        raise UserError(f"there is no program {python}", hint=_PYTHON_HINT)
    return path


def module_file(python: str, name: str) -> Path | None:
    """Return the file that ``import name`` would load in an interpreter; None if there is no such module.

    For a package, return its folder. Nothing is imported, not even a parent package.

    :raises UserError: if the interpreter can't be run.
    """
    origin = _ask_start(python, [name])["specs"][name]["origin"]
    if origin:
        return Path(origin)
    return None


_PYTHON_HINT = "--python takes the path of an interpreter, such as .venv/bin/python"


def _ask_start(python: str, packages: Sequence[str]) -> Any:
    """Run ``at_start`` of ``_probe.py`` in an interpreter, and return the output as data."""
    answer = _ask(python, (), {"look": "start", "packages": packages})
    if not _is_start(answer):
        raise UserError(
            f"{python} doesn't print its path: start-up code prints other text",
            hint="check the .pth files and sitecustomize of that environment",
        )
    return answer


def _ask(python: str, options: Sequence[str], question: Mapping[str, Any]) -> Any:
    """Run ``_probe.py`` in an interpreter, and return the last line of its output as data."""
    argv = [python, *options, "-c", _PROBE.read_text()]
    reason = "it doesn't answer"
    try:
        done = runner.run(
            argv,
            data=json.dumps(question).encode(),
            cwd=Path("/"),
            timeout=START_S,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
        )
        answer = json.loads(done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
        if question["look"] == "start" or (isinstance(answer, dict) and "stdlib" in answer):
            return answer
    except runner.CommandError as error:
        reason = printable((error.output.splitlines() or [f"it ended with {error.code}"])[-1])
    except (ValueError, RecursionError):
        pass
    raise UserError(f"{python} can't be run: {reason}", hint=_PYTHON_HINT)


def _is_start(answer: Any) -> bool:
    """Return whether ``answer`` has the fields of ``at_start``. It lacks them if start-up code printed other text."""
    if not isinstance(answer, dict):
        return False
    if set(answer) != {"path", "cache_prefix", "finders", "specs", "loaded"}:
        return False
    if not all(_are_texts(answer[key]) for key in ("path", "finders", "loaded")):
        return False
    specs = answer["specs"]
    return _is_text(answer["cache_prefix"]) and isinstance(specs, dict) and all(map(_is_spec, specs.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_spec(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != {"origin", "places"}:
        return False
    return _is_text(value["origin"]) and _are_texts(value["places"])


def _start(answer: Mapping[str, Any]) -> Start:
    specs = {}
    for name, spec in answer["specs"].items():
        specs[name] = Location(spec["origin"], tuple(spec["places"]))
    return Start(specs=specs, loaded=frozenset(answer["loaded"]), finders=frozenset(answer["finders"]))


def _interpreter(settings: Mapping[str, Any], answer: Mapping[str, Any]) -> Interpreter:
    """Return the interpreter's settings. Site folders that a normal start doesn't show are appended to its path."""
    files = Folder()
    seen = {files.resolve(path) for path in answer["path"]}
    sites = []
    for site in dict.fromkeys(settings["sites"]):
        if files.is_folder(site):
            sites.append(site)
    hidden = []
    for site in sites:
        if files.resolve(site) not in seen:
            hidden.append(site)
    major, minor = settings["version"]
    return Interpreter(
        files=files,
        version=(major, minor),
        prefix=settings["prefix"],
        base=settings["base"],
        stdlib=tuple(settings["stdlib"]),
        path=(*answer["path"], *hidden),
        sites=tuple(sites),
        caches=answer["cache_prefix"],
    )


def _wanted(
    environment: InstalledEnvironment, packages: Mapping[str, str], optional: Mapping[str, str]
) -> dict[str, str]:
    """Return the import names of the packages to check, by distribution."""
    attested = environment.attested
    by_canonical: dict[str, str] = {}
    for name, package in attested.items():
        by_canonical.setdefault(canonical(name), package)
    wanted = {}
    for name, package in (packages or attested).items():
        wanted[name] = package or by_canonical.get(canonical(name), name.replace("-", "_"))
    for name, package in optional.items():
        if package in attested.values():
            wanted[name] = package
    return wanted | thin_packages([environment], wanted)


# Kernels of FlashInfer


def _kernel_cache(settings: Mapping[str, Any]) -> Path:
    """Return the folder in which FlashInfer keeps compiled kernels."""
    base = settings["variables"].get("FLASHINFER_WORKSPACE_BASE") or settings["home"]
    return Path(base, ".cache", "flashinfer")


def _kernels(environment: InstalledEnvironment, seen: Sequence[InstalledPackage], cache: Path) -> list[PrebuiltKernels]:
    flashinfer = None
    patched = set()
    for package in seen:
        if package.distribution == "flashinfer-python":
            flashinfer = flashinfer or package
        if package.stack_id:
            patched.add(package.distribution)
    uses = {"flashinfer-cubin": KernelUse.CUBINS, "flashinfer-jit-cache": KernelUse.FOREIGN}
    found = []
    for one in environment.distributions:
        if one.name in uses and one.name not in patched:
            version = printable(one.version)
            found.append(PrebuiltKernels(place=one.name, version=version, count=0, use=uses[one.name]))
    files = environment.files
    for version in files.listed(str(cache)):
        folder = f"{cache}/{version}"
        count = sum(path.endswith(".so") for path, _ in files.walk(folder))
        if count:
            kernels = PrebuiltKernels(
                place=printable(folder),
                version=printable(version),
                count=count,
                use=_use(version, flashinfer),
            )
            found.append(kernels)
    return found


def _use(version: str, flashinfer: InstalledPackage | None) -> KernelUse:
    """Return how a kernel cache of ``version`` relates to the installed FlashInfer."""
    if flashinfer and version == flashinfer.version:
        return KernelUse.OWN
    if flashinfer and flashinfer.state is PackageState.UPSTREAM and "+patchq." not in version:
        return KernelUse.MAYBE
    return KernelUse.OTHER
