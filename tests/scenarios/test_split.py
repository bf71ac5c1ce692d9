"""``split``: files and hunks of a patch become a patch of their own; the tree stays the same."""

from __future__ import annotations

import json
import random

import pytest

from kit import Patchq, edit, git
from test_fold import applies_alone


@pytest.fixture
def wide(patchq: Patchq) -> Patchq:
    """A patch with three hunks in a.txt, one in b.txt, a new file and a proof."""
    patchq.ok("apply")
    for line in (5, 20, 35):
        edit(patchq.tree() / "a.txt", line)
    edit(patchq.tree() / "b.txt", 10)
    (patchq.tree() / "new.txt").write_bytes(b"new\n")
    message = "Wide\n\nWhy.\n\nTopic: test\nProof: tests/stacks/up/test_wide.py\nNeeds: nvcc\n"
    patchq.ok("new", "up", "wide", "-m", message, "-s")
    edit(patchq.tree() / "a.txt", 21)
    patchq.ok("new", "up", "above", "-m", "Above\n\nWhy.\n\nRequires: up/wide\n")
    return patchq


def head(patchq: Patchq) -> str:
    return git(patchq.tree(), "rev-parse", "HEAD^{tree}")


def changed(patchq: Patchq, name: str) -> list[str]:
    return [line for line in patchq.patch_file(name).read_text().splitlines() if line.startswith(("diff --git", "@@"))]


def test_parts_are_listed(wide: Patchq) -> None:
    lines = wide.ok("split", "wide").splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "--hunk a.txt:1", "--hunk a.txt:2", "--hunk a.txt:3", "--hunk b.txt:1", "--file new.txt",
    ]  # fmt: skip
    assert json.loads(wide.ok("split", "wide", "--json"))["parts"][1]["line"] == 17


def test_files_and_hunks_move_to_the_new_patch(wide: Patchq) -> None:
    tree, above = head(wide), wide.patch_file("above").read_bytes()
    said = wide.ok("split", "wide", "narrow", "--hunk", "a.txt:2", "--file", "new.txt", "-m", "Narrow\n\nWhy.")
    assert "added narrow" in said
    assert "wide keeps the proof tests/stacks/up/test_wide.py; narrow has no proof" in said
    assert "up/above requires wide" in said
    assert head(wide) == tree
    assert wide.patch_file("above").read_bytes() == above
    assert (wide.layout.stack("up", "v1") / "series").read_text().split() == [
        "wide.patch",
        "narrow.patch",
        "above.patch",
    ]
    assert changed(wide, "narrow")[0].startswith("diff --git a/a.txt")
    assert [line[:18] for line in changed(wide, "narrow") if line[0] == "@"] == ["@@ -17,7 +17,7 @@ ", "@@ -0,0 +1 @@"]
    text = wide.patch_file("narrow").read_text()
    assert "Topic: test\n" in text
    assert "Signed-off-by: Test Person" in text
    assert "Proof:" not in text
    assert "Needs:" not in text
    applies_alone(wide)
    wide.ok("undo")
    assert "new.txt" in wide.patch_file("wide").read_text()
    wide.ok("redo")
    assert head(wide) == tree


@pytest.mark.parametrize("keeper", ["new", "both"])
def test_the_user_chooses_who_keeps_the_proof(wide: Patchq, keeper: str) -> None:
    wide.ok("split", "wide", "narrow", "--file", "b.txt", "--proof-to", keeper, "--before")
    assert (wide.layout.stack("up", "v1") / "series").read_text().split()[0] == "narrow.patch"
    assert "Proof: tests/stacks/up/test_wide.py" in wide.patch_file("narrow").read_text()
    assert ("Proof:" in wide.patch_file("wide").read_text()) == (keeper == "both")
    applies_alone(wide)


def test_what_cannot_be_split_is_refused(wide: Patchq) -> None:
    before = wide.snapshot()
    assert "nothing would be left in the patch" in wide.fails(
        1, "split", "wide", "narrow", "--file", "a.txt", "--hunk", "b.txt:1", "--file", "new.txt"
    )
    assert "has 3 hunks in a.txt, not 4" in wide.fails(1, "split", "wide", "narrow", "--hunk", "a.txt:4")
    assert "did you mean a.txt?" in wide.fails(1, "split", "wide", "narrow", "--file", "a.tx")
    assert "can only move as a whole" in wide.fails(1, "split", "wide", "narrow", "--hunk", "new.txt:1")
    assert "has a patch above already" in wide.fails(1, "split", "wide", "above", "--file", "a.txt")
    assert "no file or hunk is named" in wide.fails(1, "split", "wide", "narrow")
    assert wide.snapshot() == before


def test_a_rename_stays_with_the_patch(patchq: Patchq) -> None:
    patchq.ok("apply")
    git(patchq.tree(), "mv", "a.txt", "moved.txt")
    edit(patchq.tree() / "moved.txt", 5)
    edit(patchq.tree() / "moved.txt", 30)
    (patchq.tree() / "b.txt").chmod(0o755)
    patchq.ok("new", "up", "wide", "-m", "Wide\n\nWhy.")
    tree = head(patchq)
    patchq.ok("split", "wide", "narrow", "--hunk", "moved.txt:1", "--file", "b.txt")
    assert head(patchq) == tree
    assert "rename to moved.txt" in patchq.patch_file("wide").read_text()
    assert "new mode 100755" in patchq.patch_file("narrow").read_text()
    applies_alone(patchq)


@pytest.mark.parametrize("seed", range(4))
def test_any_choice_of_parts_gives_the_same_tree(patchq: Patchq, seed: int) -> None:
    dice = random.Random(seed)
    patchq.ok("apply")
    for name in ("a.txt", "b.txt"):
        path = patchq.tree() / name
        lines = path.read_bytes().splitlines(keepends=True)
        for at in sorted(dice.sample(range(40), 6), reverse=True):
            lines[at : at + dice.randrange(3)] = [b"new %d\n" % n for n in range(dice.randrange(3))]
        path.write_bytes(b"".join(lines) + dice.choice([b"", b"no newline"]))
    (patchq.tree() / "new.txt").write_bytes(b"new")
    patchq.ok("new", "up", "wide", "-m", "Wide\n\nWhy.")
    edit(patchq.tree() / "a.txt", dice.randrange(1, 30))
    patchq.ok("new", "up", "above", "-m", "Above\n\nWhy.")
    tree, above = head(patchq), patchq.patch_file("above").read_bytes()
    parts = json.loads(patchq.ok("split", "wide", "--json"))["parts"]
    chosen = dice.sample(parts, dice.randrange(1, len(parts)))
    args = []
    for part in chosen:
        args += ["--hunk", f"{part['path']}:{part['hunk']}"] if part["hunk"] else ["--file", part["path"]]
    before = patchq.snapshot()
    patchq.ok("split", "wide", "narrow", *args, *dice.choice([[], ["--before"]]))
    assert head(patchq) == tree
    assert patchq.patch_file("above").read_bytes() == above
    applies_alone(patchq)
    patchq.ok("undo")
    assert patchq.snapshot() == before
