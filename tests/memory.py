"""Folders of tests in memory: what is synced or removed there waits for no disk.

Thousands of small projects are made and thrown away, each file of them synced; on a disk that is a third of what a run
takes. Where there is no such place, or a person said where tests are to write, all is as pytest has it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: A file system in memory, on Linux. A container's has 64 MB, which is not enough.
PLACE = Path("/dev/shm")
ROOM = 2 << 30
#: Says it to the workers.
_VARIABLE = "PATCHQ_TESTS_IN_MEMORY"
_FAILED = pytest.StashKey[bool]()
#: What is tested there: a folder, or a file. Most tests of whole upstreams are not:
#: their trees and wheels have gigabytes.
SMALL = (
    "scenarios", "git", "hostile", "reliability", "verifying", "test_template.py", "test_real_debian.py",
    "test_real_pr.py",
)  # fmt: skip


def choose(config: pytest.Config) -> None:
    """Choose once for a run, and remove what one that was killed left there."""
    if hasattr(config, "workerinput"):
        return
    os.environ.pop(_VARIABLE, None)
    if config.option.basetemp or "TMPDIR" in os.environ or not os.access(PLACE, os.W_OK):
        return
    for left in PLACE.glob("patchq-tests-*"):
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    if shutil.disk_usage(PLACE).free >= ROOM:
        os.environ[_VARIABLE] = str(PLACE / f"patchq-tests-{os.getpid()}")


def forget() -> None:
    """When a run ends."""
    if folder := os.environ.get(_VARIABLE):
        shutil.rmtree(folder, ignore_errors=True)


def note(item: pytest.Item, report: pytest.TestReport) -> None:
    """Note whether any phase of a test failed."""
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed


@contextmanager
def folder(item: pytest.Item, on_disk: Path) -> Iterator[Path]:
    """A test's folder; of one that failed it is moved to where pytest keeps it, ``on_disk``."""
    if not set(SMALL) & set(item.path.parts):
        yield on_disk
        return
    with shared(on_disk) as made:
        try:
            yield made
        finally:
            if made != on_disk and item.stash.get(_FAILED, False):
                shutil.copytree(made, on_disk, symlinks=True, dirs_exist_ok=True)


@contextmanager
def shared(on_disk: Path) -> Iterator[Path]:
    """A folder that several small tests may share, of a fixture of a wider scope."""
    root = os.environ.get(_VARIABLE)
    if not root:
        yield on_disk
        return
    Path(root).mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=on_disk.name, dir=root))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
