"""Cache of the comparison of a thin wheel with its base."""

from __future__ import annotations

from pathlib import Path

from patchq.thin import _base


def test_a_cache_that_can_not_be_written_leaves_no_temporary_file(tmp_path: Path) -> None:
    taken = tmp_path / "caches" / "taken"
    taken.mkdir(parents=True)
    (taken / "file").touch()
    # A file can't replace a folder that isn't empty, so the last step fails.
    _base._remember(str(taken), "key")
    assert list(taken.parent.iterdir()) == [taken]
    _base._remember(str(taken.parent / "key"), "key")
    assert (taken.parent / "key").read_text() == "key"
