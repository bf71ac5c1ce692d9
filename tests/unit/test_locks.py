"""The locks of the test environment hold what pyproject.toml asks for, by hash, on every machine that they are for."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import re
import sys
from importlib import metadata
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from kit import ROOT
from patchq import extras

LOCKS = sorted((ROOT / "locks").glob("*.txt"))
#: What the README's test command installs: with the index's torch, or with a build for the CPU.
WAYS = [("tests", "torch"), ("tests", "torch-cpu")]


def entries(name: str) -> list[str]:
    """The entries of a lock, each on one line, without comments and options."""
    text = re.sub(r"^ *#.*\n", "", (ROOT / "locks" / f"{name}.txt").read_text(), flags=re.MULTILINE)
    return [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("--")]


@pytest.fixture(scope="module")
def lock() -> ModuleType:
    """The program that writes the locks."""
    loader = importlib.machinery.SourceFileLoader("ci_lock", str(ROOT / ".ci" / "lock"))
    spec = importlib.util.spec_from_loader("ci_lock", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules["ci_lock"] = module  # a dataclass looks itself up there
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", LOCKS, ids=lambda p: p.stem)
def test_each_pin_has_a_hash_and_no_index_is_named(path) -> None:
    found = entries(path.stem)
    assert found
    for entry in found:
        assert re.match(r"[a-z0-9.-]+==[^\s;]+(; [^\\]*?)?( +--hash=sha256:[0-9a-f]{64})+$", entry), entry
    assert "://" not in path.read_text()
    assert re.findall(r"^--.*$", path.read_text(), re.MULTILINE) == ["--only-binary :all:"]


@pytest.mark.parametrize(("name", "with_extras"), [("patchq", ()), ("patchq-all", ("all",))])
def test_what_patchq_itself_needs_is_part_of_what_the_tests_have(
    lock: ModuleType, name: str, with_extras: tuple[str, ...]
) -> None:
    """The action installs it without asking for dependencies: it must be whole, on each target."""
    pins = lock.parsed((ROOT / "locks" / "tests.txt").read_text())
    own = lock.parsed((ROOT / "locks" / f"{name}.txt").read_text())
    assert own == lock.own(pins, *with_extras)
    names = {canonicalize_name(pin.requirement.name) for pin in own}
    assert {canonicalize_name(requirement.name) for requirement in lock.requirements(*with_extras)} <= names
    assert "setuptools" in names
    # What of it is installed here asks for nothing that isn't in it.
    for each in sorted(names):
        with contextlib.suppress(metadata.PackageNotFoundError):
            needs = [Requirement(text) for text in metadata.requires(each) or ()]
            here = [n for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
            assert {canonicalize_name(n.name) for n in here} <= names, each
    assert not names & {"torch", "ruff"}
    assert ("pytest" in names) == bool(with_extras)


def test_the_base_is_small(lock: ModuleType) -> None:
    """Eleven direct dependencies, and with all of theirs and patchq at most 32 distributions on each target."""
    assert len(lock.requirements()) <= 11
    own = lock.parsed((ROOT / "locks" / "patchq.txt").read_text())
    for target in lock.GRID:
        installed = [pin for pin in own if lock.applies(pin.requirement, target)]
        assert len(installed) + 1 <= 32, target


def test_each_extra_has_the_libraries_that_it_is_asked_for(lock: ModuleType) -> None:
    """By import name: what `need` looks for is what the extra's requirements and those of the base install."""
    names = metadata.packages_distributions()
    for extra, libraries in extras.LIBRARIES.items():
        asked = {canonicalize_name(requirement.name) for requirement in lock.requirements(extra)}
        for library in libraries:
            its = {canonicalize_name(name) for name in names[library]}
            # griffe is griffelib's; cryptography comes by an extra of securesystemslib's
            assert its & (asked | {"griffelib", "cryptography"}), library
    everything = {str(requirement) for requirement in lock.requirements("all")}
    assert all({str(r) for r in lock.requirements(extra)} <= everything for extra in extras.LIBRARIES)


@pytest.mark.parametrize("way", WAYS, ids="+".join)
def test_what_pyproject_asks_for_is_locked_once(lock: ModuleType, way: tuple[str, ...]) -> None:
    asked = lock.requirements(*lock.EXTRAS)
    pins = [Requirement(entry.split(" --hash")[0]) for name in way for entry in entries(name)]
    wrong = []
    for target in lock.GRID:
        here: dict[str, list[str]] = {}
        for pin in pins:
            if lock.applies(pin, target):
                here.setdefault(canonicalize_name(pin.name), []).append(str(pin.specifier).removeprefix("=="))
        # What both xgrammar and the index's torch ask for is in both locks, as one version.
        wrong += [f"{name} {its} on {target}" for name, its in here.items() if len(set(its)) != 1]
        for requirement in asked:
            its = here.get(canonicalize_name(requirement.name), [])
            if lock.applies(requirement, target) and not any(Version(v) in requirement.specifier for v in its):
                wrong.append(f"{requirement} isn't satisfied by {its} on {target}: run .ci/lock")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("marker", "short"),
    [
        ("sys_platform == 'linux' and implementation_name == 'cpython'", None),
        ("python_full_version < '3.11' and sys_platform == 'linux'", 'python_version < "3.11"'),
        ("python_full_version == '3.11.*'", 'python_version >= "3.11" and python_version < "3.12"'),
        ("platform_machine == 'aarch64'", 'platform_machine == "aarch64"'),
        ("python_full_version >= '3.11.5' and os_name == 'posix'", 'python_full_version >= "3.11.5"'),
        ("python_full_version != '3.11.*'", 'python_full_version != "3.11.*"'),
        (
            "(python_full_version < '3.13' and platform_machine == 'aarch64') or platform_machine == 'x86_64'",
            'platform_machine == "x86_64" or python_version < "3.13" and platform_machine == "aarch64"',
        ),
    ],
)
def test_a_shortened_marker_says_the_same(lock: ModuleType, marker: str, short: str | None) -> None:
    before = Requirement(f"it==1; {marker}")
    after = lock.shortened(before)
    assert str(after.marker or "") == (short or "")
    for target in lock.GRID:
        for micro in (0, 4, 5, 12):
            assert lock.applies(after, target, micro) == lock.applies(before, target, micro), (target, micro)


def test_the_pages_install_as_the_readme_does() -> None:
    readme = (ROOT / "README.md").read_text().partition("<!-- command: test -->\n```sh\n")[2].partition("```")[0]
    install = readme.partition("python -m pytest")[0]
    assert install.count("pip install") == 4
    for page in ("CONTRIBUTING.md", "docs/how-to/renew-the-lock.md"):
        assert install in (ROOT / page).read_text(), f"{page} installs something else"
