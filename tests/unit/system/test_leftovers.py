"""What a command that was cut off left in the store, and what is somebody else's."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from patchq.system import leftovers, runner
from patchq.system.paths import Layout


@pytest.mark.parametrize(
    ("content", "goes"),
    [
        (b"fast-import", True), (b"fast-import\n", True), (b"fast-i", True), (b"", True), (b"\0" * 11, True),
        (b"fetch-pack 7 on host", False), (b"fast-imported", False), (b"kept for a reason\n", False),
    ],
)  # fmt: skip
def test_the_mark_of_a_pack_goes_if_it_is_what_fast_import_wrote_or_a_part_of_it(
    tmp_path: Path, content: bytes, goes: bool
) -> None:
    layout = Layout(tmp_path)
    mark = layout.store / "objects/pack/pack-0123.keep"
    mark.parent.mkdir(parents=True)
    mark.write_bytes(content)
    with leftovers.cleared(layout, after_a_kill=True):
        assert mark.exists() is not goes


@pytest.mark.parametrize(("code", "stays"), [(-9, False), (1, True)], ids=["killed", "failed"])
def test_a_lock_goes_if_a_signal_ended_its_process_and_the_command_goes_on(
    tmp_path: Path, code: int, stays: bool
) -> None:
    layout = Layout(tmp_path)
    (layout.store / "refs").mkdir(parents=True)
    for path in (layout.private, layout.store / "refs"):
        path.mkdir(exist_ok=True)
    before, during = layout.store / "refs/before.lock", layout.store / "packed-refs.lock"
    before.touch()
    with leftovers.cleared(layout, after_a_kill=False):
        during.touch()
        with contextlib.suppress(runner.CommandError):
            raise runner.CommandError(["git", "update-ref"], code, b"", b"")
    assert before.exists()
    assert during.exists() is stays


@pytest.mark.parametrize("before", [b"", b"1" * 40 + b"\n"], ids=["no file", "a file"])
def test_the_list_of_shallow_commits_comes_back_if_a_fetch_was_cut_off(tmp_path: Path, before: bytes) -> None:
    layout = Layout(tmp_path)
    layout.store.mkdir(parents=True)
    path = layout.store / "shallow"
    if before:
        path.write_bytes(before)
    with contextlib.suppress(KeyboardInterrupt), leftovers.kept_shallow(layout.store):
        path.write_bytes(b"\0" * 41)
        raise KeyboardInterrupt
    with leftovers.cleared(layout, after_a_kill=True):
        assert (path.read_bytes() if path.exists() else b"") == before
    assert not (layout.store / "shallow.before").exists()
