"""Refs as folders' names, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from patchq.system import paths


@given(st.text(max_size=30))
def test_ref_folders_round_trip(ref: str) -> None:
    folder = paths.ref_to_folder(ref)
    assert paths.folder_to_ref(folder) == ref
    assert "/" not in folder
    assert folder not in (".", "..")
