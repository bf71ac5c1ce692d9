"""The long form of these tests: the wheels of this project's own sets, which have thousands of files.

    python tests/verifying/long_form.py [--set NAME] [--only WORD] [--fast]

The set must be applied and built: `patchq apply --set NAME && patchq build --set NAME`. Installs its wheels into an
environment, checks that both commands accept it, and that they refuse a dozen tampers. Ten minutes on two cores for
each set, and 8 GB in the temporary folder. Exit code 1 if an answer isn't as expected.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "tools")]

from kit import ROOT, Patchq  # noqa: E402
from verifying.bases import add_venv, bare, compile_all  # noqa: E402
from verifying.images import base_layers  # noqa: E402
from verifying.project import Built, composed, extension  # noqa: E402
from verifying.rootfs import Base, Environment, make_base  # noqa: E402
from verifying.tampering import cache_of, install_distribution, mark, write_cache  # noqa: E402
from verifying.verbs import Case, Judge, Verb, answer_of, problems_of  # noqa: E402

VERBS = (Verb.INSTALLED, Verb.FOLDER, Verb.LAYOUT)
Tamper = Callable[[Environment], None]


def nothing(environment: Environment) -> None:
    """Change nothing."""


def compiled(environment: Environment) -> None:
    compile_all(environment, "-j", "2")


def module_changed_with_its_row(environment: Environment) -> None:
    path = environment.packages / "vllm/envs.py"
    environment.write("vllm/envs.py", path.read_text() + "\nVLLM_OTHER = 1\n")
    environment.record("vllm/envs.py", "vllm")


def module_removed_with_its_row(environment: Environment) -> None:
    (environment.packages / "vllm/logger.py").unlink()
    environment.forget("vllm/logger.py", "vllm")


def kernel_changed_with_its_row(environment: Environment) -> None:
    name = "flashinfer/data/include/flashinfer/math.cuh"
    environment.write(name, (environment.packages / name).read_bytes() + b"\n// other\n")
    environment.record(name, "flashinfer_python")


def native_library_changed_with_its_row(environment: Environment) -> None:
    path = min((environment.packages / "vllm").glob("*.abi3.so"), key=lambda found: found.stat().st_size)
    name = str(path.relative_to(environment.packages))
    environment.write(name, path.read_bytes() + b"other")
    environment.record(name, "vllm")


def extension_in_front_of_a_module(environment: Environment) -> None:
    environment.write("vllm/envs.abi3.so", extension("_queue"))


def cache_that_nothing_checks(environment: Environment) -> None:
    source = environment.packages / "vllm/version.py"
    write_cache(environment, cache_of(source), mark(), source, flags=1)


def cache_with_the_time_of_its_source(environment: Environment) -> None:
    source = environment.packages / "flashinfer/jit/env.py"
    write_cache(environment, cache_of(source), mark(), source)


def pth_file(environment: Environment) -> None:
    environment.write("more.pth", mark())


def sitecustomize_module(environment: Environment) -> None:
    environment.write("sitecustomize.py", mark())


def plugin_of_a_third_party(environment: Environment) -> None:
    points = "[vllm.general_plugins]\nintruder = intruder:register\n"
    install_distribution(environment, "intruder", {"intruder.py": "def register():\n    pass\n"}, points)


def manifest_removed(environment: Environment) -> None:
    (environment.packages / "vllm/_patchq.json").unlink()
    environment.forget("vllm/_patchq.json", "vllm")


def package_in_the_standard_library(environment: Environment) -> None:
    library = environment.packages.parent.name
    environment.write(f"/usr/local/lib/{library}/vllm/__init__.py", "__version__ = '0'\n")


ORDINARY: tuple[Tamper, ...] = (nothing, compiled)
TAMPERS: tuple[Tamper, ...] = (
    module_changed_with_its_row, module_removed_with_its_row, kernel_changed_with_its_row,
    native_library_changed_with_its_row, extension_in_front_of_a_module, cache_that_nothing_checks,
    cache_with_the_time_of_its_source, pth_file, sitecustomize_module, plugin_of_a_third_party, manifest_removed,
    package_in_the_standard_library,
)  # fmt: skip


def real_wheels(name: str) -> Built:
    """Return the built wheels of a set of this project, for this machine."""
    patchq, dist = Patchq(ROOT), ROOT / "dist" / name
    found = {path.name.split("-")[0]: path for path in dist.glob("*.whl") if _fits(path)}
    if not found:
        raise SystemExit(f"error: no wheels in {dist}\nhint: patchq apply --set {name} && patchq build --set {name}")
    labels, variables = composed(patchq, "--set", name)
    return Built(
        patchq=patchq, wheels=found, upstream={}, other={}, labels=labels, variables=variables, dist=dist
    )  # fmt: skip


def _fits(wheel: Path) -> bool:
    return wheel.stem.endswith(("any", os.uname().machine))


def real_base(folder: Path, built: Built) -> Base:
    """Install the wheels into an environment as `compose` makes it."""
    without = make_base(bare(folder / "bare", built), folder / "bare moved")
    environment = without.copy(folder / "served")
    add_venv(environment)
    environment.pip("--no-compile", *built.wheels.values())
    environment.base = None
    return make_base(environment, folder / "served moved")


def run(name: str, only: str, verbs: tuple[Verb, ...], folder: Path) -> bool:
    """Check a set; print a line for each answer. Return whether all were as expected."""
    begun = time.monotonic()
    built = real_wheels(name)
    base = real_base(folder, built)
    layers = {base.root: base_layers(base, folder / "layers")} if Verb.LAYOUT in verbs else {}
    print(f"{name}: installed in {time.monotonic() - begun:.0f} s", flush=True)
    well = True
    known: dict[Verb, set[str]] = {}
    for change in (*ORDINARY, *TAMPERS):
        if only not in change.__name__ and change is not nothing:
            continue
        with tempfile.TemporaryDirectory(dir=folder) as text:
            place = Path(text)
            judge = Judge(project=ROOT, folder=place, layers=layers, options=("--set", name))
            environment = base.copy(place / "root")
            change(environment)
            case = Case(environment=environment, moved=environment.relocated(place / "moved"))
            for verb in verbs:
                begun = time.monotonic()
                done = judge.verify(verb, case)
                problems = set(problems_of(answer_of(done)))
                known.setdefault(verb, problems)
                as_expected = done.exit_code == 0 if change in ORDINARY else bool(problems - known[verb])
                well = well and as_expected
                word = "accepted" if done.exit_code == 0 else "refused"
                if change in TAMPERS and not as_expected:
                    word = "missed"
                line = f"{'ok' if as_expected else 'WRONG':6}{name:14}{change.__name__:38}{verb.value:32}{word}"
                print(f"{line}, {time.monotonic() - begun:.1f} s", flush=True)
                for problem in sorted(problems)[:3] if not as_expected else ():
                    print(f"      {problem[:200]}", flush=True)
    return well


def main() -> int:
    """Check the sets that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", action="append", dest="sets", help="the set; may be given again (default: gb10)")
    parser.add_argument("--only", default="", metavar="WORD", help="only changes with this word in their names")
    parser.add_argument("--fast", action="store_true", help="without images, whose layers take a minute")
    given = parser.parse_args()
    verbs = VERBS[:2] if given.fast else VERBS
    well = True
    for name in given.sets or ["gb10"]:
        with tempfile.TemporaryDirectory(prefix="patchq-verifying-") as folder:
            well = run(name, given.only, verbs, Path(folder)) and well
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
