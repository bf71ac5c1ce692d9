"""Refs that are fetched together: what is wrong with one of them is found, and nothing of it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import Patchq, git, release
from test_keyring import Signer, signers, trust  # noqa: F401


def kept(patchq: Patchq) -> set[str]:
    said = git(patchq.layout.store, "for-each-ref", "--format=%(refname)", "refs/patchq/base/git/up")
    return {name.rpartition("/")[2] for name in said.split()}


def test_one_that_nobody_signed_is_not_kept(
    stack: Patchq,
    upstream: Path,
    signers: tuple[Signer, Signer],  # noqa: F811
) -> None:
    ours, other = signers
    for n, signer in ((2, ours), (3, other), (4, ours)):
        release(upstream, f"w{n}", {"other.txt": b"%d\n" % n})
        signer.sign(upstream, "tag", "-s", f"v{n}", "-m", "x")
    git(upstream, "tag", "-d", "v1")
    ours.sign(upstream, "tag", "-s", "v1", "-m", "one", git(upstream, "rev-parse", "w2^").strip())
    trust(stack, ours)
    for _ in range(2):  # the second time its commit is here
        said = stack.fails(1, "forecast", "up", "--onto", "v2", "--onto", "v3", "--onto", "v4")
        assert "v3" in said
        assert "v3" not in kept(stack)
    stack.ok("forecast", "up", "--onto", "v2", "--onto", "v4")
    assert kept(stack) == {"v1", "v2", "v4"}


def test_a_commit_that_is_here_by_chance_without_all_of_it(stack: Patchq, upstream: Path) -> None:
    for n in (2, 3, 4):
        release(upstream, f"v{n}", {"other.txt": b"%d\n" % n})
    commit = git(upstream, "rev-parse", "v3").strip()
    text = git(upstream, "cat-file", "commit", commit).encode() + b"\n"
    git(stack.layout.store, "hash-object", "-t", "commit", "-w", "--stdin", data=text)
    assert git(stack.layout.store, "cat-file", "-t", commit).strip() == "commit"
    stack.ok("forecast", "up", "--onto", "v2", "--onto", "v3", "--onto", "v4")
    assert kept(stack) == {"v1", "v2", "v3", "v4"}
    git(stack.layout.store, "rev-list", "--objects", "--quiet", commit)


@pytest.mark.parametrize(
    ("ref", "misnamed", "right"),
    [
        ("v1.0;x", "v1.0;x", "v1.0%3Bx"),
        ("v1.0;x", "v1.0%3bx", "v1.0%3Bx"),
        ("release/1.0", "release/1.0", "release%2F1.0"),
        ("v2.0", "v%32.0", "v2.0"),
    ],
)
def test_a_stack_in_a_folder_of_another_name_is_refused(
    stack: Patchq, upstream: Path, ref: str, misnamed: str, right: str
) -> None:
    git(upstream, "tag", ref, "v1")
    stack.ok("pin", "up", "--url", str(upstream), "--ref", ref)
    folder = stack.layout.stack("up", "v1").parent / misnamed
    folder.parent.mkdir(exist_ok=True)
    stack.layout.stack("up", "v1").rename(folder)
    for verb in ("apply", "check", "list"):
        said = stack.fails(1, verb)
        assert f"error: {folder} is not read" in said
        assert f"rename that folder to {right}" in said
    folder.rename(stack.layout.stack("up", ref))
    assert "3 patches" in stack.ok("apply")
