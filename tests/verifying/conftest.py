"""The project, its wheels and the bases, once a session, and a copy of a base for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import memory
from kit import seal
from verifying.bases import make_bases
from verifying.images import Layer, base_layers
from verifying.project import Built, build_project
from verifying.rootfs import Base, walk
from verifying.tampering import Change, Show
from verifying.verbs import Case, Judge, Verb, answer_of, problems_of


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """All that is made once."""

    folder: Path
    built: Built
    bases: dict[str, Base]
    layers: dict[Path, list[Layer]]
    _shown: dict[tuple[str, Show], str] = field(default_factory=dict)
    _found: dict[tuple[str, Verb], list[str]] = field(default_factory=dict)

    def case(self, base: str, folder: Path, change: Change | None = None) -> Case:
        """Copy a base, change the copy, and make what a container would have of it."""
        environment = self.bases[base].copy(folder / "root")
        if change is not None:
            change(environment, self.built)
        return Case(environment=environment, moved=environment.relocated(folder / "moved"))

    def judge(self, folder: Path) -> Judge:
        """Return the commands, run in the project."""
        return Judge(project=self.built.patchq.root, folder=folder, layers=self.layers)

    def shown(self, base: str, show: Show) -> str:
        """Return what a base shows, for tampers to be compared with."""
        if (base, show) not in self._shown:
            with memory.shared(self.folder / "shown") as folder:
                self._shown[base, show] = show(self.case(base, folder).environment)
        return self._shown[base, show]

    def found(self, base: str, verb: Verb) -> list[str]:
        """Return what a command finds in a base itself: nothing, or no tamper shows anything."""
        if (base, verb) not in self._found:
            with memory.shared(self.folder / "found") as folder:
                done = self.judge(folder).verify(verb, self.case(base, folder))
                self._found[base, verb] = problems_of(answer_of(done))
        return self._found[base, verb]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """Build the wheels and the bases; in the end, check that no test wrote into a base."""
    with memory.shared(tmp_path_factory.mktemp("verifying")) as folder:
        made = make_workshop(folder)
        before = {name: stamps(base) for name, base in made.bases.items()}
        yield made
        for name, base in made.bases.items():
            assert stamps(base) == before[name], f"a test wrote into the base {name}"


def make_workshop(folder: Path) -> Workshop:
    """Build the wheels and the bases."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        seal(monkeypatch, folder / "home")
        built = build_project(folder, monkeypatch)
        bases = make_bases(folder, built)
    layers = {base.root: base_layers(base, folder / f"{name} layers") for name, base in bases.items()}
    return Workshop(folder=folder, built=built, bases=bases, layers=layers)


def stamps(base: Base) -> dict[str, tuple[int, int]]:
    """Return what a write in place would change."""
    found = [*walk(base.root), *((f"moved/{name}", status) for name, status in walk(base.moved))]
    return {name: (status.st_mtime_ns, status.st_size) for name, status in found if not name.endswith("__pycache__")}


@pytest.fixture(scope="module")
def place(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a folder on the file system of the bases, since hard links don't leave it."""
    with memory.shared(tmp_path_factory.mktemp("environments")) as folder:
        yield folder


@dataclass(kw_only=True)
class Cases:
    """Makes the environment that tests are about: one at a time, for all tests in a row that are about it."""

    workshop: Workshop
    folder: Path
    _current: tuple[Change, Case] | None = None

    def get(self, change: Change, base: str) -> Case:
        """Return a changed copy of a base."""
        if self._current is None or self._current[0] is not change:
            self.clear()
            place = self.folder / "case"
            place.mkdir()
            self._current = change, self.workshop.case(base, place, change)
        return self._current[1]

    def clear(self) -> None:
        self._current = None
        shutil.rmtree(self.folder / "case", ignore_errors=True)


@pytest.fixture(scope="module")
def cases(workshop: Workshop, place: Path) -> Cases:
    """Return what makes environments."""
    return Cases(workshop=workshop, folder=place)


@pytest.fixture
def judge(workshop: Workshop, place: Path) -> Judge:
    """Return the commands, run in the project."""
    return workshop.judge(place)
