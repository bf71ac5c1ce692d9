"""Refs of one repository are fetched over one connection, and one by one where it doesn't give them so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kit import Patchq, commit_files, git

REFS = ("v2", "v3", "v4")


@pytest.fixture
def many(patchq: Patchq, upstream: Path) -> Patchq:
    """A project with four refs of one upstream, and an empty store."""
    for ref in REFS:
        commit_files(upstream, {"c.txt": ref.encode()}, ref)
        git(upstream, "tag", ref)
        patchq.ok("pin", "up", "--url", str(upstream), "--ref", ref, "--set", f"set-{ref}")
    shutil.rmtree(patchq.root / ".patchq")
    return patchq


def bases(patchq: Patchq) -> list[str]:
    return git(patchq.layout.store, "for-each-ref", "--format=%(refname)", "refs/patchq/base").split()


def test_all_come_at_once(many: Patchq, upstream: Path) -> None:
    out = many.ok("fetch", "--all")
    assert [line for line in out.splitlines() if "fetching" in line] == [f"up: fetching 4 refs from {upstream}"]
    assert len(bases(many)) == 4
    assert git(many.layout.store, "rev-list", "--all", "--count").strip() == "4", "without their history"
    assert "fetching" not in many.ok("fetch", "--all")


def test_one_that_is_gone_keeps_no_other_from_coming(many: Patchq, upstream: Path) -> None:
    gone = git(upstream, "rev-parse", "v4").strip()
    text = many.layout.lock.read_text()
    many.layout.lock.write_text(text.replace(gone, "1" * 40))
    said = many.fails(1, "fetch", "--all")
    assert f"doesn't give commit {'1' * 40}" in said
    assert len(bases(many)) == 3


def test_a_folder_that_is_gone_is_told(many: Patchq, upstream: Path) -> None:
    upstream.rename(upstream.with_name("away"))
    assert "no such folder is there" in many.fails(1, "fetch", "--all")
