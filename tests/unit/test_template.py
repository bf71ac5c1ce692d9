"""The copy that tests begin with is what the commands leave."""

from __future__ import annotations

import json
from pathlib import Path

from kit import Patchq, edit, git
from patchq.system import fsio


def test_a_copy_is_what_the_commands_would_have_left(stack: Patchq, stack_template: Path, tmp_path: Path) -> None:
    template = stack_template
    made = Patchq(template / "project")
    assert stack.ok("status").replace(str(tmp_path), "") == made.ok("status").replace(str(template), "")
    ours, theirs = stack.snapshot(), made.snapshot()
    assert ours.pop("lock") == theirs.pop("lock").replace(str(template).encode(), str(tmp_path).encode())
    assert ours == theirs
    private = Path(".patchq")
    for path in stack.root.rglob("*"):
        place = path.relative_to(stack.root)
        if path.is_file():
            assert str(template).encode() not in path.read_bytes(), place
        if place.parts[:3] != (".patchq", "journal", "objects"):  # by digests of what names its place
            assert (made.root / place).lstat().st_mode == path.lstat().st_mode, place
    names = [sorted(p.relative_to(r).as_posix() for p in r.rglob("*")) for r in (stack.root, made.root)]
    differ = set(names[0]) ^ set(names[1])
    assert {Path(name).parts[:3] for name in differ} <= {(*private.parts, "journal", "objects")}


def test_what_is_remembered_of_its_files_holds(stack: Patchq) -> None:
    state = json.loads(stack.layout.state("up").read_bytes())
    for name, (mtime, size, inode), *_ in state["patches"]:
        found = stack.patch_file(name).stat()
        assert (mtime, size, inode) in ((0, 0, 0), (found.st_mtime_ns, found.st_size, found.st_ino))
    assert stack.layout.state("up").read_bytes() == fsio.dump_json(state)
    assert git(stack.tree(), "diff-files", "--name-only") == ""


def test_its_history_can_be_taken_back(stack: Patchq) -> None:
    before = stack.snapshot()
    edit(stack.tree() / "b.txt", 25)
    stack.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")
    stack.ok("undo")
    git(stack.tree(), "checkout", "--", "b.txt")
    assert stack.snapshot() == before
    for _ in range(3):  # the patches
        stack.ok("undo")
        git(stack.tree(), "checkout", "--", ".")
    assert not (stack.layout.stack("up", "v1") / "series").exists()
    stack.ok("undo")  # `apply`
    stack.ok("undo")  # `pin`
    assert "has no pins yet" in stack.fails(1, "list")
