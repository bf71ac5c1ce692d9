"""A branch that was rebased is imported again: its patches are updated, not added twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit import Patchq, commit_files, git, with_lines


@pytest.fixture
def branch(upstream: Path) -> Path:
    """A branch of three commits on v1, in the upstream's clone."""
    git(upstream, "checkout", "-q", "-b", "ours", "v1")
    for number, (line, text) in enumerate(((3, "three"), (8, "eight"), (30, "thirty"))):
        data = (upstream / "a.txt").read_bytes().replace(b"line %d\n" % line, text.encode() + b"\n")
        (upstream / "a.txt").write_bytes(data)
        day = {"GIT_AUTHOR_DATE": f"2026-02-0{number + 1}T00:00:00Z"}
        git(upstream, "commit", "-qam", f"Spell {text}", env=day)
    return upstream


def again(branch: Path, *kept: str, first: bytes = b"three\n") -> None:
    """Make the branch again from some of its commits, as an interactive rebase does."""
    lines = git(branch, "log", "--format=%H %s", "v1..ours").splitlines()
    old = {line.rsplit(" ", 1)[1]: line.split()[0] for line in lines}
    git(branch, "checkout", "-q", "-B", "ours", "v1")
    for word in kept:
        git(branch, "cherry-pick", old[word])
        if word == "three" and first != b"three\n":
            data = (branch / "a.txt").read_bytes().replace(b"three\n", first)
            (branch / "a.txt").write_bytes(data)
            git(branch, "commit", "-qa", "--amend", "--no-edit")


def names(patchq: Patchq) -> list[str]:
    return [p["name"] for p in json.loads(patchq.ok("list", "--json"))["patches"]]


def message_of(mail: bytes) -> bytes:
    return mail.partition(b"\n")[2].partition(b"\ndiff --git")[0]


def test_a_rebased_branch_updates_its_patches(patchq: Patchq, branch: Path) -> None:
    patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    patchq.ok("reword", "spell-three", "--trailer", "Upstream-Status: Submitted [https://example.org/pull/1]")
    (branch / "b.txt").write_bytes((branch / "b.txt").read_bytes() + b"end\n")
    git(branch, "commit", "-qam", "End it", env={"GIT_AUTHOR_DATE": "2026-02-09T00:00:00Z"})
    again(branch, "three", "it", "thirty", first=b"THREE\n")
    kept = patchq.patch_file("spell-thirty").read_bytes()
    said = patchq.ok("import", "up", str(branch), "--range", "v1..ours", "--dry-run")
    assert "nothing was changed; the import gives 1 changed, 1 new, 1 equal, 1 gone" in said
    said = patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    for line in ("changed: spell-three", "new: end-it", "equal: spell-thirty"):
        assert f"up: {line}\n" in said
    assert (
        "up: gone: spell-eight: the branch no longer contains the patch's commit; to drop the patch: `patchq drop up/spell-eight`"
        in said
    )
    assert names(patchq) == ["spell-three", "end-it", "spell-eight", "spell-thirty"]
    data = patchq.patch_file("spell-three").read_text()
    assert "+THREE\n" in data
    assert "Upstream-Status: Submitted [https://example.org/pull/1]\n" in data
    assert f"Origin: {branch.name}@{git(branch, 'rev-parse', 'ours~2')}\n" in data
    assert data.count("Origin:") == data.count("Upstream-Status:") == 1
    assert message_of(patchq.patch_file("spell-thirty").read_bytes()) == message_of(kept)
    patchq.ok("drop", "up/spell-eight")
    patchq.ok("apply")
    assert (patchq.tree() / "a.txt").read_bytes() == (branch / "a.txt").read_bytes()
    said = patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    assert "nothing changed" in said
    assert "gone" not in said


def test_a_patch_that_changed_on_both_sides_is_kept(patchq: Patchq, branch: Path) -> None:
    patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    patchq.ok("apply")
    tree = patchq.tree() / "a.txt"
    tree.write_bytes(tree.read_bytes().replace(b"three\n", b"3\n"))
    patchq.ok("export", "up", "--amend", "spell-three")
    assert "nothing changed" in patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    again(branch, "three", "eight", "thirty", first=b"THREE\n")
    before = patchq.snapshot()
    said = patchq.fails(3, "import", "up", str(branch), "--range", "v1..ours")
    assert "since the last import, the diff was changed both in the branch and in up/spell-three" in said
    assert "`patchq apply up --fix spell-three`" in said
    assert patchq.snapshot() == before


def test_edits_that_can_not_be_compared_are_named(patchq: Patchq, branch: Path) -> None:
    """The repository of the branch has removed the commit that was imported."""
    patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    patchq.ok("apply")
    tree = patchq.tree() / "a.txt"
    tree.write_bytes(tree.read_bytes().replace(b"three\n", b"3\n"))
    patchq.ok("export", "up", "--amend", "spell-three")
    again(branch, "three", "eight", "thirty", first=b"THREE\n")
    git(branch, "reflog", "expire", "--expire=now", "--all")
    git(branch, "gc", "-q", "--prune=now")
    said = patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    assert "changed: spell-three: the commit of the last import no longer exists, so patchq" in said
    assert b"+THREE\n" in patchq.patch_file("spell-three").read_bytes()
    patchq.ok("undo")
    assert b"+3\n" in patchq.patch_file("spell-three").read_bytes()


def test_a_squashed_commit_names_the_one_to_drop(patchq: Patchq, branch: Path) -> None:
    patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    git(branch, "checkout", "-q", "-B", "ours", "v1")
    commit_files(branch, {"a.txt": with_lines({3: b"3\n", 8: b"8\n"})}, "Spell three")
    said = patchq.fails(3, "import", "up", str(branch), "--range", "v1..ours")
    assert "up/spell-eight: the patch conflicts with the branch's new commits in a.txt\n" in said
    assert "`patchq drop up/spell-eight && patchq drop up/spell-thirty`, then import again" in said
    said = patchq.fails(3, "import", "up", str(branch), "--range", "v1..ours", "--dry-run")
    rows = [line.split()[:2] for line in said.splitlines() if line.startswith("spell-")]
    assert rows == [["spell-three", "changed"], ["spell-thirty", "gone"], ["spell-eight", "conflict"]]
    assert "nothing was changed; the import gives 1 changed, 1 gone, 1 conflict" in said
    patchq.ok("drop", "up/spell-eight")
    patchq.ok("drop", "up/spell-thirty")
    patchq.ok("import", "up", str(branch), "--range", "v1..ours")
    patchq.ok("apply")
    assert (patchq.tree() / "a.txt").read_bytes() == with_lines({3: b"3\n", 8: b"8\n"})


def test_part_of_a_range_leaves_the_others_out(patchq: Patchq, branch: Path) -> None:
    patchq.ok("import", "up", str(branch), "--range", "v1..ours~1")
    said = patchq.ok("import", "up", str(branch), "--range", "ours~2..ours")
    assert "up: equal: spell-eight" in said
    assert "gone" not in said
    assert names(patchq) == ["spell-three", "spell-eight", "spell-thirty"]
