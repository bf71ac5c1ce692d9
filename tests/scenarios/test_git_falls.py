"""A git that falls over one merge, as 2.39's ort does by an assertion of its own: that costs the one patch it is of."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, numbered

ASSERTION = "git: merge-ort.c:2535: process_renames: Assertion `!opt->priv' failed."


@pytest.fixture
def falling(stack: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patchq:
    """`second`'s text is what a merge falls over, wherever that merge stands among those that are asked for together."""
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    git_ = shutil.which("git")
    program.write_text(
        f"""#!/bin/sh
case "$*" in *merge-tree*) ;; *) exec {git_} "$@" ;; esac
asked=$(cat)
while read -r ours theirs; do
  if {git_} ls-tree -r "$theirs" | cut -c13-52 | {git_} cat-file --batch | grep -q "^doomed"; then
    echo "{ASSERTION.replace("`", "'")}" >&2
    kill -ABRT $$
  fi
done <<END
$asked
END
printf '%s\\n' "$asked" | {git_} "$@"
"""
    )
    program.chmod(0o755)
    edit(stack.tree() / "a.txt", 35, b"doomed\n")
    stack.ok("new", "up", "doomed", "-m", "Doomed\n\nFor the test.")
    edit(stack.tree() / "b.txt", 30, b"after it\n")
    stack.ok("new", "up", "last", "-m", "Last\n\nFor the test.")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return stack


def lines(changed: dict[int, bytes]) -> bytes:
    found = numbered(40).splitlines(keepends=True)
    for line, text in changed.items():
        found[line - 1] = text
    return b"".join(found)


def beside(upstream: Path) -> None:
    """Upstream changes lines near those of all patches: they land by git's merge alone."""
    commit_files(upstream, {"a.txt": lines({7: b"seven\n", 32: b"thirtytwo\n"})}, "beside")
    git(upstream, "tag", "v2")
    commit_files(upstream, {"b.txt": lines({12: b"twelve\n", 32: b"thirtytwo\n"})}, "more of it")
    git(upstream, "tag", "v3")


def test_a_forecast_loses_that_patch_alone(falling: Patchq, upstream: Path) -> None:
    beside(upstream)
    told = json.loads(falling.ok("forecast", "up", "--onto", "v2", "--onto", "v3", "--onto", "v1", "--json"))
    cells = {(c["patch"].removeprefix("up/"), c["ref"]): c for c in told["cells"]}
    for ref in ("v2", "v3"):
        cell = cells["doomed", ref]
        assert (cell["outcome"], cell["needs_review"]) == ("conflict", True)
        assert cell["message"].startswith("git's own merge ended with SIGABRT: git: merge-ort.c:2535: process_renames")
        assert [f["path"] for f in cell["files"]] == ["a.txt"]
        assert [cells[name, ref]["outcome"] for name in ("first", "second")] == ["merged", "merged"]
    assert cells["last", "v3"]["outcome"] == "merged"
    assert cells["doomed", "v1"]["outcome"] == "clean"
    assert "v2 up/doomed: git's own merge ended with SIGABRT" in falling.ok("forecast", "up", "--onto", "v2", "--why")


def test_the_others_are_as_with_a_git_that_does_not_fall(
    falling: Patchq, upstream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(upstream)

    def others() -> dict[tuple[str, str], object]:
        told = json.loads(falling.ok("forecast", "up", "--onto", "v2", "--onto", "v3", "--json"))
        return {
            (c["patch"], c["ref"]): (c["outcome"], c["files"], c["message"])
            for c in told["cells"] if c["patch"] != "up/doomed"
        }  # fmt: skip

    found = others()
    monkeypatch.setenv("PATH", os.environ["PATH"].partition(":")[2])
    assert found == others()


def test_a_rebase_stops_there_with_both_sides(falling: Patchq, upstream: Path) -> None:
    beside(upstream)
    said = falling.fails(3, "rebase", "up", "--onto", "v2")
    assert "doomed stops: conflict" in said
    assert "git's own merge ended with SIGABRT" in said
    tree = falling.layout.tree("up@v2")
    stages = [line.split()[2:] for line in git(tree, "ls-files", "--unmerged").splitlines()]
    assert stages == [["1", "a.txt"], ["2", "a.txt"], ["3", "a.txt"]]
    assert b"thirtytwo\n" in (tree / "a.txt").read_bytes(), "upstream's, with the patches before it"
    assert b"doomed\n" not in (tree / "a.txt").read_bytes()
    assert "or replaced it" in falling.fails(3, "rebase", "up", "--continue")
    edit(tree / "a.txt", 35, b"doomed\n")
    falling.ok("rebase", "up", "--continue")
    assert len((falling.layout.stack("up", "v2") / "series").read_text().split()) == 5


def test_a_new_file_of_such_a_patch_is_there(falling: Patchq, upstream: Path) -> None:
    """What nobody else changed needs no decision."""
    falling.ok("drop", "last")
    (falling.tree() / "new.txt").write_bytes(b"new\n")
    git(falling.tree(), "add", "new.txt")
    (falling.tree() / "run.sh").unlink()
    falling.ok("export", "up", "--amend", "doomed")
    beside(upstream)
    falling.fails(3, "rebase", "up", "--onto", "v2")
    tree = falling.layout.tree("up@v2")
    assert (tree / "new.txt").read_bytes() == b"new\n"
    assert not (tree / "run.sh").exists()
    assert {line.split("\t")[1] for line in git(tree, "ls-files", "--unmerged").splitlines()} == {"a.txt"}


def test_what_a_patch_needs_is_told_all_the_same(falling: Patchq) -> None:
    """`deps` carries each patch onto trees without others."""
    assert "up/doomed" in falling.ok("deps")
    assert "git's own merge ended with SIGABRT" in falling.fails(3, "drop", "second")
    assert "up to date" in falling.ok("apply")


def test_a_merge_that_git_239_falls_over(empty: Patchq, tmp_path: Path) -> None:
    """A file is moved into a folder that upstream moves to where the file was, and removes it; newer ones answer.

    The patch moves a folder as well that upstream adds a file to: it is merged as whole trees.
    """
    upstream = tmp_path / "moving"
    upstream.mkdir()
    git(upstream, "init", "-q")
    first = {"tools/hello": numbered(20), "world": numbered(30), "a.txt": numbered(40), "old/x": b"x\n" * 9}
    commit_files(upstream, dict(first))
    git(upstream, "tag", "v1")
    then = {"tools/hello": None, "hello": numbered(20), "world": None, "a.txt": lines({12: b"x\n"}), "old/y": b"y\n"}
    commit_files(upstream, then)
    git(upstream, "tag", "v2")
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    empty.ok("apply")
    edit(empty.tree() / "a.txt", 10)
    empty.ok("new", "up", "before", "-m", "Before\n\nFor the test.")
    (empty.tree() / "world").rename(empty.tree() / "tools" / "world")
    (empty.tree() / "old").rename(empty.tree() / "new")
    git(empty.tree(), "add", "-A")
    empty.ok("new", "up", "moves", "-m", "Moves\n\nFor the test.")
    edit(empty.tree() / "a.txt", 30)
    empty.ok("new", "up", "after", "-m", "After\n\nFor the test.")
    told = json.loads(empty.ok("forecast", "up", "--onto", "v2", "--json"))
    cells = {c["patch"].removeprefix("up/"): c for c in told["cells"]}
    assert {name: c["outcome"] for name, c in cells.items()} == {
        "before": "merged", "moves": "conflict", "after": "clean",
    }  # fmt: skip
    if "2.39." in git(tmp_path, "--version"):
        assert "SIGABRT: git: merge-ort.c:" in cells["moves"]["message"]
    assert "moves stops: conflict" in empty.fails(3, "rebase", "up", "--onto", "v2")
    paths = {line.split("\t")[1] for line in git(empty.layout.tree("up@v2"), "ls-files", "--unmerged").splitlines()}
    assert "world" in paths
    assert "after" in empty.ok("rebase", "up", "--skip")


def test_a_git_that_was_killed_is_no_answer(falling: Patchq, upstream: Path, tmp_path: Path) -> None:
    """By whoever had a reason: memory, a shutdown."""
    program = tmp_path / "bin" / "git"
    program.write_text(program.read_text().replace("kill -ABRT", "kill -KILL"))
    beside(upstream)
    assert "ended with -9" in falling.fails(1, "forecast", "up", "--onto", "v2")
