"""The two commands as a user runs them, on an environment where it lies and on the image of it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from patchq.cli import cli
from verifying.images import Layer, archived, difference, write_docker, write_layout
from verifying.rootfs import HANG, Environment


class Verb(Enum):
    """A command, and what it is given."""

    INSTALLED = "verify-installed"
    FOLDER = "verify-image of a folder"
    LAYOUT = "verify-image of an OCI layout"
    ARCHIVE = "verify-image of an OCI archive"
    COMPRESSED = "verify-image of an OCI layout packed with gzip"
    DOCKER = "verify-image of docker save"


BOTH = (Verb.INSTALLED, Verb.FOLDER, Verb.LAYOUT)
#: What an image's configuration says can't be seen in a folder.
CONFIGURED = (Verb.INSTALLED, Verb.LAYOUT)
FILES = (Verb.FOLDER, Verb.LAYOUT)


@dataclass(frozen=True, kw_only=True)
class Case:
    """An environment where it lies, and as its container has it."""

    environment: Environment
    moved: Path


@dataclass(kw_only=True)
class Judge:
    """Runs the commands in a project, in a folder for what is made on the way."""

    project: Path
    folder: Path
    #: The layers of each base.
    layers: dict[Path, list[Layer]]
    options: tuple[str, ...] = ()

    def image_layers(self, case: Case) -> list[Layer]:
        """Return an image's layers: its base's, what was changed, and those written by hand."""
        environment = case.environment
        assert environment.base is not None
        layers = list(self.layers[environment.base.root])
        changed = difference(environment.base.moved, case.moved)
        return [*layers, *(Layer.of(data) for data in (changed, *environment.layers))]

    def verify(self, verb: Verb, case: Case) -> Result:
        """Run a command."""
        place = self.folder / verb.name.lower()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        environment = case.environment
        if verb is Verb.INSTALLED:
            python = environment.path(environment.python)
            return self._run(["verify-installed", "--python", str(python)], environment)
        if verb is Verb.FOLDER:
            return self._run(["verify-image", str(case.moved)])
        layers = self.image_layers(case)
        if verb is Verb.DOCKER:
            image = write_docker(place / "image.tar", environment, layers)
        else:
            image = write_layout(place / "layout", environment, layers, compress=verb is Verb.COMPRESSED)
        if verb is Verb.ARCHIVE:
            image = archived(image, place / "image.tar")
        return self._run(["verify-image", str(image)])

    def _run(self, command: list[str], environment: Environment | None = None) -> Result:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (environment.environ() if environment else {}).items():
                patch.setenv(name, value)
            patch.chdir(environment.path(environment.directory) if environment else self.folder)
            with hang_limit(HANG):
                return CliRunner().invoke(
                    cli, ["--project", str(self.project), *command, *self.options, "--json"], prog_name="patchq"
                )


@contextmanager
def hang_limit(seconds: int) -> Iterator[None]:
    """Fail what takes so long that it must hang."""

    def hung(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer in {seconds} seconds")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def answer_of(done: Result) -> dict[str, Any]:
    """Return what a command answered; a traceback or another exit code than 0 and 1 is a failure."""
    assert done.exit_code in (0, 1), f"exit code {done.exit_code}\n{done.output}\n{done.exception!r}"
    assert "Traceback" not in done.output, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def problems_of(answer: dict[str, Any]) -> list[str]:
    """Return the sentences that an answer refuses an environment with."""
    if "error" in answer:
        return [answer["message"]]
    packages = [package for package in answer["packages"] if isinstance(package, dict)]
    found = [problem for package in packages for problem in package.get("problems", [])]
    found += answer.get("problems", [])
    for holder in (answer, *packages):
        for difference_ in holder.get("differences", []):
            if difference_["level"] == "problem":
                found.append(" ".join([difference_["message"], *difference_["paths"]]))
    return found
