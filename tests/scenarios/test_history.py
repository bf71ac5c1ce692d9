"""What upstream has taken, judged by its history: real commits, squashed, split, renamed, changed on, reverted."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, edit, git, numbered
from patchq.errors import SourceError
from patchq.forecast.blame import blame
from patchq.git.repository import partial_repository, scratch
from patchq.git.transport import fetch_history
from patchq.merge.patches import read_patches
from patchq.names import BlobId
from patchq.upstream.commits import Landed, Lineage
from patchq.upstream.history import History, fetch, fetched


def lines(count: int, changed: dict[int, bytes]) -> bytes:
    found = numbered(count).splitlines(keepends=True)
    for line, text in changed.items():
        found[line - 1] = text
    return b"".join(found)


BLOCK = b"def wanted(first, second):\n    total = first + second\n    return total * 2\n"
TEXT = {10: b"line 10\n" + BLOCK, 30: b"another way\n"}


@pytest.fixture
def wide(stack: Patchq) -> Patchq:
    """A fourth patch, of two files: three lines added and one changed in each."""
    for name in ("b.txt", "pkg/mod.py"):
        path = stack.tree() / name
        text = path.read_bytes()
        path.write_bytes(text.replace(b"line 20\n", b"line 20\n" + BLOCK).replace(b"return 1", b"return wanted(1, 2)"))
    stack.ok("new", "up", "wide", "-s", "-m", "Double what is wanted (#77)\n\nFor the test.")
    return stack


def has_it(upstream: Path, message: str = "Double what is wanted (#77)", **files: bytes) -> str:
    """Upstream makes the change of `wide`, on v1's files or these."""
    b = files.get("b", numbered(40)).replace(b"line 20\n", b"line 20\n" + BLOCK)
    return commit_files(upstream, {"b.txt": b, "pkg/mod.py": b"def f():\n    return wanted(1, 2)\n"}, message)


def changed_on(upstream: Path, message: str = "Go on") -> str:
    """The lines of `wide` become others."""
    b = (upstream / "b.txt").read_bytes().replace(b"    return total * 2\n", b"    return total << 1\n")
    text = (upstream / "pkg/mod.py").read_bytes().replace(b"wanted(1, 2)", b"wanted(first=1, second=2)")
    return commit_files(upstream, {"b.txt": b, "pkg/mod.py": text}, message)


def judged(patchq: Patchq, upstream: Path, ref: str = "v2", patch: str = "wide") -> dict[str, Any]:
    git(upstream, "tag", "-f", ref)
    told = json.loads(patchq.ok("forecast", "up", "--onto", ref, "--json"))
    (cell,) = [c for c in told["cells"] if c["patch"] == f"up/{patch}"]
    found: dict[str, Any] = cell
    return found


def test_what_landed_and_was_changed_on_is_upstreams(wide: Patchq, upstream: Path) -> None:
    landed = has_it(upstream)
    git(upstream, "tag", "v1.5")
    since = changed_on(upstream)
    cell = judged(wide, upstream)
    assert (cell["outcome"], cell["grade"], cell["needs_review"]) == ("absorbed", "identical", False)
    assert cell["evidence"] == (
        f"landed as {landed[:12]} (pull request 77, v1.5); changed on since by {since[:12]} (v2)"
    )


def test_the_same_without_the_history_is_for_a_person(wide: Patchq, upstream: Path) -> None:
    has_it(upstream)
    changed_on(upstream)
    git(upstream, "tag", "v2")
    wide.ok("pin", "up", "--url", str(upstream), "--ref", "v2", "--set", "next")
    wide.ok("fetch", "--set", "next")
    upstream.rename(upstream.parent / "away")
    told = json.loads(wide.ok("forecast", "up", "--onto", "v2", "--json"))
    assert [c["outcome"] for c in told["cells"] if c["patch"] == "up/wide"] == ["conflict"]


@pytest.mark.parametrize("message", ['Revert "Double what is wanted (#77)" (#78)', "Simplify"])
def test_what_was_reverted_is_not(wide: Patchq, upstream: Path, message: str) -> None:
    has_it(upstream)
    changed_on(upstream)
    back = commit_files(upstream, {"b.txt": numbered(40), "pkg/mod.py": b"def f():\n    return 1\n"}, message)
    commit_files(upstream, {"b.txt": lines(40, {19: b"else\n"}), "pkg/mod.py": b"def f():\n    return 3\n"}, "else")
    cell = judged(wide, upstream)
    assert (cell["outcome"], cell["grade"], cell["needs_review"]) == ("conflict", "edited", True)
    assert f"reverted by {back[:12]}" in cell["evidence"]


def test_a_revert_of_the_revert_brings_it_back(wide: Patchq, upstream: Path) -> None:
    has_it(upstream)
    commit_files(upstream, {"b.txt": numbered(40), "pkg/mod.py": b"def f():\n    return 1\n"}, "Revert it")
    again = has_it(upstream, 'Reapply "Double what is wanted"')
    changed_on(upstream)
    cell = judged(wide, upstream)
    assert (cell["outcome"], cell["grade"]) == ("absorbed", "identical")
    assert cell["evidence"].startswith(f"landed as {again[:12]}")


def test_a_part_that_is_taken_back_is_no_yes(wide: Patchq, upstream: Path) -> None:
    has_it(upstream)
    commit_files(upstream, {"pkg/mod.py": b"def f():\n    return 1\n"}, "Keep what f gave")
    b = (upstream / "b.txt").read_bytes().replace(b"    return total * 2\n", b"    return total << 1\n")
    commit_files(upstream, {"b.txt": b}, "Go on")
    cell = judged(wide, upstream)
    assert cell["outcome"] == "conflict"
    assert "pkg/mod.py" in cell["evidence"]


def test_a_file_that_is_taken_back_counts_by_its_lines(wide: Patchq, upstream: Path) -> None:
    (wide.tree() / "new.txt").write_bytes(numbered(40))
    edit(wide.tree() / "a.txt", 20)
    wide.ok("new", "up", "file", "-s", "-m", "A file\n\nFor the test.")
    has_it(upstream)
    a = numbered(40).replace(b"line 20\n", b"changed\n")
    commit_files(upstream, {"new.txt": numbered(40), "a.txt": a}, "A file")
    # With more in the same commit it doesn't look like a revert.
    commit_files(
        upstream, {"new.txt": None, "a.txt": a.replace(b"changed\n", b"on\n"), "c": numbered(30).upper()}, "Simplify"
    )
    cell = judged(wide, upstream, patch="file")
    assert cell["outcome"] != "absorbed"
    assert "reverted by" in cell["evidence"]


def test_a_step_that_takes_a_part_back_to_something_else_is_a_revert(wide: Patchq, upstream: Path) -> None:
    many = b"".join(b"one of many %d\n" % n for n in range(40))
    few = {b"line 20\n": b"changed\nto\nfour\nlines\n", b"line 15\n": b"other\nwords\nhere\n"}

    def put(path: Path) -> None:
        text = path.read_bytes()
        for old, new in few.items():
            text = text.replace(old, new)
        path.write_bytes(text)

    (wide.tree() / "more.txt").write_bytes(many)
    put(wide.tree() / "a.txt")
    wide.ok("new", "up", "many", "-s", "-m", "Many\n\nFor the test.")
    (upstream / "more.txt").write_bytes(many)
    put(upstream / "a.txt")
    commit_files(upstream, {}, "Many")
    a = numbered(40).replace(b"line 15\n", b"fifteen\n")
    back = commit_files(upstream, {"a.txt": a}, "Simplify")
    cell = judged(wide, upstream, patch="many")
    assert cell["outcome"] != "absorbed"
    assert f"reverted by {back[:12]}" in cell["evidence"]


def test_a_step_that_goes_on_with_most_and_takes_a_little_back_is_none(stack: Patchq, upstream: Path) -> None:
    """A line of a long new file is another now: that is no long part that was taken back."""
    many = b"".join(b"one of many %d\n" % n for n in range(40))
    for folder in (stack.tree(), upstream):
        (folder / "more.txt").write_bytes(many)
        edit(folder / "a.txt", 20, b"changed\n")
    stack.ok("new", "up", "many", "-s", "-m", "Many\n\nFor the test.")
    commit_files(upstream, {}, "Many")
    files = {"a.txt": numbered(40), "more.txt": many.replace(b"many 7", b"many more"), "b.txt": lines(40, {3: b"x\n"})}
    since = commit_files(upstream, files, "Go on")
    cell = judged(stack, upstream, patch="many")
    assert cell["outcome"] == "absorbed"
    assert f"changed on since by {since[:12]}" in cell["evidence"]


def test_a_part_that_never_came_is_no_yes(wide: Patchq, upstream: Path) -> None:
    b = numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK)
    commit_files(upstream, {"b.txt": b}, "Double what is wanted (#77)")
    commit_files(upstream, {"b.txt": b.replace(b"total * 2", b"total << 1")}, "Go on")
    cell = judged(wide, upstream)
    assert (cell["outcome"], cell["grade"]) == ("conflict", "edited")
    assert "incomplete: pkg/mod.py" in cell["evidence"]


def test_a_near_one_by_the_same_name_is_no_yes(wide: Patchq, upstream: Path) -> None:
    """Its pull request and subject are the patch's, its lines are not."""
    b = numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK.replace(b"* 2", b"* 3"))
    text = b"def f():\n    return wanted(1, 2)\n"
    commit_files(upstream, {"b.txt": b, "pkg/mod.py": text}, "Double what is wanted (#77)")
    assert judged(wide, upstream)["outcome"] == "conflict"


def test_the_same_line_at_fewer_places_is_no_yes(stack: Patchq, upstream: Path) -> None:
    """The commit that has the patch's name made three of its four changes, which are of the same words."""

    def with_it(*places: int) -> bytes:
        return lines(40, {n: b"line %d\nthe same words\n" % n for n in places})

    (stack.tree() / "b.txt").write_bytes(with_it(5, 15, 25, 35))
    stack.ok("new", "up", "again", "-s", "-m", "Say it again (#77)\n\nFor the test.")
    commit_files(upstream, {"b.txt": with_it(5, 15, 25)}, "Say it again (#77)")
    commit_files(upstream, {"b.txt": with_it(5, 15, 25).replace(b"the same words", b"other words")}, "Go on")
    cell = judged(stack, upstream, patch="again")
    assert cell["outcome"] != "absorbed"


def test_two_patches_that_upstream_squashed(wide: Patchq, upstream: Path) -> None:
    """`third` and `wide` in one commit, which does more besides, and is changed on."""
    both = has_it(upstream, "All at once (#80)", b=lines(40, {10: b"changed\n", 35: b"more\n"}))
    b = (upstream / "b.txt").read_bytes().replace(b"total * 2", b"total << 1").replace(b"changed\n", b"changed again\n")
    commit_files(upstream, {"b.txt": b, "pkg/mod.py": b"def f():\n    return wanted(2, 2)\n"}, "Go on")
    for name in ("third", "wide"):
        cell = judged(wide, upstream, patch=name)
        assert (cell["outcome"], cell["grade"]) == ("absorbed", "contained")
        assert f"landed as {both[:12]} (pull request 80, v2)" in cell["evidence"]


def test_a_patch_that_upstream_took_in_two_commits(wide: Patchq, upstream: Path) -> None:
    one = commit_files(upstream, {"b.txt": numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK)}, "One half (#81)")
    two = commit_files(upstream, {"pkg/mod.py": b"def f():\n    return wanted(1, 2)\n"}, "The other (#82)")
    changed_on(upstream)
    cell = judged(wide, upstream)
    assert (cell["outcome"], cell["grade"]) == ("absorbed", "contained")
    assert f"landed as {one[:12]} (pull request 81, v2), {two[:12]} (pull request 82, v2)" in cell["evidence"]


def test_a_file_that_was_renamed_before_and_after(wide: Patchq, upstream: Path) -> None:
    git(upstream, "mv", "b.txt", "c.txt")
    commit_files(upstream, {}, "Rename it")
    b = numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK)
    landed = commit_files(upstream, {"c.txt": b, "pkg/mod.py": b"def f():\n    return wanted(1, 2)\n"}, "Take it (#83)")
    git(upstream, "mv", "c.txt", "d.txt")
    commit_files(upstream, {}, "Rename it again")
    b = b.replace(b"total * 2", b"total << 1")
    commit_files(upstream, {"d.txt": b, "pkg/mod.py": b"def f():\n    return wanted(2, 2)\n"}, "Go on")
    cell = judged(wide, upstream)
    assert (cell["outcome"], cell["grade"]) == ("absorbed", "contained")
    assert f"landed as {landed[:12]}" in cell["evidence"]


def test_a_rename_that_upstream_took_with_the_rest_in_two_commits(stack: Patchq, upstream: Path) -> None:
    tree = stack.tree()
    (tree / "pkg/mod.py").rename(tree / "pkg/other.py")
    (tree / "b.txt").write_bytes(numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK))
    stack.ok("new", "up", "moved", "-s", "-m", "Move and double\n\nFor the test.")
    git(upstream, "mv", "pkg/mod.py", "pkg/other.py")
    one = commit_files(upstream, {}, "Move it (#90)")
    two = commit_files(upstream, {"b.txt": numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK)}, "The rest (#91)")
    b = (upstream / "b.txt").read_bytes().replace(b"total * 2", b"total << 1")
    commit_files(upstream, {"b.txt": b, "pkg/other.py": b"def f():\n    return 2\n"}, "Go on")
    cell = judged(stack, upstream, patch="moved")
    assert (cell["outcome"], cell["grade"]) == ("absorbed", "contained")
    assert f"landed as {one[:12]} (pull request 90, v2), {two[:12]} (pull request 91, v2)" in cell["evidence"]


def test_a_file_that_upstream_moved_elsewhere_is_not_gone(stack: Patchq, upstream: Path) -> None:
    """The patch removes it, and puts something else in its place; upstream has it still, under another name."""
    tree = stack.tree()
    (tree / "pkg/mod.py").unlink()
    (tree / "pkg/new.py").write_text("def g():\n    return 3\n")
    stack.ok("new", "up", "gone", "-s", "-m", "Remove it\n\nFor the test.")
    git(upstream, "mv", "pkg/mod.py", "pkg/other.py")
    commit_files(upstream, {"pkg/new.py": b"def g():\n    return 3\n"}, "Move it (#90)")
    assert judged(stack, upstream, patch="gone")["outcome"] != "absorbed"


def test_lines_that_moved_to_another_file_are_no_revert(proven: Patchq, upstream: Path) -> None:
    """git would add them a second time, where they were."""
    has_it(upstream)
    moved = {"b.txt": numbered(40), "lib.txt": BLOCK, "pkg/mod.py": b"def f():\n    return wanted(1, 2)  # lib\n"}
    commit_files(upstream, moved, "Move it")
    cell = judged(proven, upstream)
    assert (cell["outcome"], cell["grade"]) == ("absorbed", "identical")
    told = json.loads(proven.ok("rebase", "up", "--onto", "v2", "--json"))
    assert {s["patch"]: s["outcome"] for s in told["steps"]}["wide"] == "absorbed"


def test_what_would_land_once_more_is_upstreams(stack: Patchq, upstream: Path) -> None:
    """Upstream took a patch and moved what it adds to another file: it would land again, without a conflict."""
    text = (stack.tree() / "b.txt").read_bytes()
    (stack.tree() / "b.txt").write_bytes(text.replace(b"line 20\n", b"line 20\n" + BLOCK))
    stack.ok("new", "up", "wide", "-s", "-m", "Double what is wanted (#77)\n\nFor the test.")
    b = numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK)
    landed = commit_files(upstream, {"b.txt": b}, "Double what is wanted (#77)")
    commit_files(upstream, {"b.txt": numbered(40), "lib.txt": BLOCK}, "Move it")
    cell = judged(stack, upstream)
    assert (cell["outcome"], cell["grade"], cell["needs_review"]) == ("absorbed", "identical", False)
    assert f"landed as {landed[:12]}" in cell["evidence"]
    told = json.loads(stack.fails(3, "rebase", "up", "--onto", "v2", "--json"))
    assert (told["stop"]["patch"], told["stop"]["outcome"]) == ("wide", "absorbed")
    told = json.loads(stack.ok("rebase", "up", "--skip", "--json"))
    assert told["steps"][-1]["outcome"] == "absorbed"


PROOF = """\
import os, pathlib

def test_it() -> None:
    assert "wanted(" in (pathlib.Path(os.environ["PATCHQ_TREES"]) / "up" / "pkg" / "mod.py").read_text()
"""


@pytest.fixture
def proven(wide: Patchq) -> Patchq:
    """`wide` with a proof that upstream passes too, however it goes on."""
    proof = wide.root / "tests" / "stacks" / "up" / "test_wide.py"
    proof.parent.mkdir(parents=True)
    proof.write_text(PROOF)
    path = wide.patch_file("wide")
    with_proof = b"Topic: test\nProof: tests/stacks/up/test_wide.py\nSigned-off-by"
    path.write_bytes(path.read_bytes().replace(b"Signed-off-by", with_proof))
    wide.ok("apply")
    return wide


def ledger(patchq: Patchq) -> list[dict[str, Any]]:
    text = (patchq.root / "patches" / "up" / "ledger.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_rebase_retires_by_itself_what_is_identical_and_proven(proven: Patchq, upstream: Path) -> None:
    landed = has_it(upstream)
    changed_on(upstream)
    git(upstream, "tag", "v2")
    told = json.loads(proven.ok("rebase", "up", "--onto", "v2", "--json"))
    assert [s["outcome"] for s in told["steps"]] == ["clean", "clean", "clean", "absorbed"]
    line = ledger(proven)[-1]
    assert (line["patch"], line["grade"], line["proof"]) == ("wide", "identical", "passed on the bare upstream")
    assert f"landed as {landed[:12]}" in line["evidence"]


def test_without_a_proof_it_stops_and_a_reason_retires_it(wide: Patchq, upstream: Path) -> None:
    has_it(upstream)
    changed_on(upstream)
    git(upstream, "tag", "v2")
    told = json.loads(wide.fails(3, "rebase", "up", "--onto", "v2", "--json"))
    assert (told["stop"]["patch"], told["stop"]["outcome"]) == ("wide", "absorbed")
    said = wide.fails(5, "rebase", "up", "--continue", "--retire")
    assert "to drop the patch without a proof: `patchq rebase up --continue --retire --how REASON`" in said
    wide.ok("rebase", "up", "--continue", "--retire", "--how", "read both")
    line = ledger(wide)[-1]
    assert (line["outcome"], line["proof"]) == ("absorbed", "not run: the patch names no proof")
    assert line["how"].startswith("retired on evidence, with no proof: read both (landed as ")


def test_a_skipped_one_is_absorbed(wide: Patchq, upstream: Path) -> None:
    has_it(upstream)
    changed_on(upstream)
    git(upstream, "tag", "v2")
    wide.fails(3, "rebase", "up", "--onto", "v2")
    wide.ok("rebase", "up", "--skip")
    assert (ledger(wide)[-1]["patch"], ledger(wide)[-1]["outcome"]) == ("wide", "absorbed")
    assert "already has every patch" in wide.ok("rebase", "up", "--onto", "v2")


def test_the_table_of_evidence(proven: Patchq, upstream: Path) -> None:
    landed = has_it(upstream)
    git(upstream, "tag", "v1.5")
    changed_on(upstream)
    git(upstream, "tag", "v2")
    before = proven.snapshot()
    said = proven.ok("retire", "--onto", "v2", "--evidence")
    assert said.splitlines()[-3:-1] == [
        "| patch | what upstream has | commit | release | proof |", "|---|---|---|---|---|"
    ]  # fmt: skip
    row = [cell.strip() for cell in said.splitlines()[-1].split("|")[1:-1]]
    assert row[0] == "up/wide"
    assert row[2:] == [f"{landed[:12]} (#77)", "v1.5", "passed"]
    (evidence,) = json.loads(proven.ok("retire", "--onto", "v2", "--evidence", "--json"))["patches"]
    assert (evidence["state"], evidence["proof"]) == ("passed", "passed")
    after = proven.snapshot()
    before.pop("refs"), after.pop("refs")
    assert after == before


def test_retire_writes_the_ledger_and_the_next_rebase_leaves_it(proven: Patchq, upstream: Path) -> None:
    has_it(upstream)
    changed_on(upstream)
    git(upstream, "tag", "v2")
    assert "up/wide: retired at v2" in proven.ok("retire", "wide", "--onto", "v2")
    told = json.loads(proven.ok("forecast", "up", "--onto", "v2", "--json"))
    assert told["sources"][0]["absent"] == {"wide": "dropped at v2: upstream has it"}
    told = json.loads(proven.ok("rebase", "up", "--onto", "v2", "--json"))
    assert [s["patch"] for s in told["steps"]] == ["first", "second", "third"]
    proven.ok("undo")


def test_retire_wants_all_of_it_there_or_a_reason(wide: Patchq, upstream: Path) -> None:
    commit_files(upstream, {"b.txt": numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK)}, "A part")
    git(upstream, "tag", "v2")
    assert "doesn't have all of up/wide" in wide.fails(1, "retire", "wide", "--onto", "v2")
    said = wide.fails(5, "retire", "wide", "--onto", "v2", "--how", "another way")
    assert "the patch names no proof" in said
    assert "hint: upstream doesn't have the whole patch, so a proof must pass" in said
    assert "--how" not in said


def test_a_proof_that_ends_in_an_error_shows_nothing(proven: Patchq, upstream: Path) -> None:
    has_it(upstream)
    changed_on(upstream)
    git(upstream, "tag", "v2")
    (proven.root / "tests" / "stacks" / "up" / "test_wide.py").write_text("import nothing_like_that\n")
    said = proven.fails(5, "retire", "wide", "--onto", "v2")
    assert "up/wide is not retired: its proof on the bare v2: error: " in said
    assert "hint: an error doesn't show if the patch is still needed" in said


def test_a_history_without_files_brings_those_that_are_needed(wide: Patchq, upstream: Path) -> None:
    """As from a host: commits and trees alone, then the files of the commits that a patch is looked for in."""
    has_it(upstream)
    changed_on(upstream)
    for n in range(5):
        commit_files(upstream, {f"else{n}.txt": b"else %d\n" % n}, f"Else {n}")
    git(upstream, "tag", "v2")
    git(upstream, "config", "uploadpack.allowFilter", "true")
    url = f"file://{upstream}"
    partial = partial_repository(fetched(wide.project, "up", files=False))
    base, target = (fetch_history(partial, url, ref, files=False) for ref in ("v1", "v2"))
    every = [BlobId(line.split()[2]) for line in git(upstream, "ls-tree", "-r", "v2").splitlines()]
    with scratch(partial) as seen:
        assert set(seen.lacking(every)) == set(every)
    with scratch(wide.project.store, partial) as both:
        history = History(both, {}, partial, url)
        (info,) = both.log(git(wide.layout.store, "rev-parse", "up") + "^!")
        (patch,) = read_patches(wide.project.store, [("wide", info)])
        line = Lineage(both, both.log(f"{base}..{target}"), {}, history.need)
        verdict = Landed(line, {"wide": both.patch_ids_of([info.commit])[0]}).look(patch)
    assert verdict is not None
    assert (verdict.taken, verdict.identical) == (True, True)
    with scratch(partial) as seen:
        assert len(seen.lacking(every)) == len(every) - 2  # b.txt and pkg/mod.py
    with scratch(partial) as seen:
        History(seen, {}, partial, url).need(every)
        assert not seen.lacking(every), "those too of the commits that are here"
    # It stays what it is: another fetch into it doesn't miss the files.
    git(upstream, "tag", "v3")
    assert fetch_history(partial_repository(partial.folder), url, "v3", files=False)
    # And no command takes it for somebody else's.
    assert "applied, 4 of 4" in wide.ok("status")


def test_fetch_says_where_a_history_is(wide: Patchq, upstream: Path) -> None:
    assert f"up: its history is in {upstream}" in wide.ok("fetch", "--history")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_history_of_a_worktree_by_a_relative_path(wide: Patchq, upstream: Path, scheme: str) -> None:
    """Its objects are in another repository, so git fetches them, and not from the project's folder."""
    linked = upstream.parent / "linked"
    git(upstream, "worktree", "add", "-q", str(linked), "v1")
    lock = wide.layout.lock.read_text()
    relative = scheme + os.path.relpath(linked, wide.root)
    wide.layout.lock.write_text(lock.replace(f'"{upstream}"', f'"{relative}"'))
    assert "up: the history of v1" in wide.ok("fetch", "--history")
    assert "refs/history/" in git(fetched(wide.project, "up", files=False), "for-each-ref")


def merged_in(upstream: Path, main: str, *strategy: str) -> str:
    git(upstream, "checkout", "-q", main)
    commit_files(upstream, {"c.txt": b"main\n"}, "Another thing")
    git(upstream, "merge", "-q", "--no-ff", *strategy, "-m", "Merge branch 'side'", "side")
    return git(upstream, "rev-parse", "HEAD")


def test_a_commit_that_came_by_a_merge(wide: Patchq, upstream: Path) -> None:
    """The main line has one step for all that the side branch did."""
    main = git(upstream, "branch", "--show-current")
    git(upstream, "checkout", "-q", "-b", "side")
    landed, since = has_it(upstream), changed_on(upstream)
    merged_in(upstream, main)
    cell = judged(wide, upstream)
    assert (cell["outcome"], cell["grade"]) == ("absorbed", "identical")
    assert f"landed as {landed[:12]} (pull request 77, v2); changed on since by {since[:12]}" in cell["evidence"]


def test_a_merge_that_is_the_patch(wide: Patchq, upstream: Path) -> None:
    """Its side branch made the change in two commits."""
    main = git(upstream, "branch", "--show-current")
    git(upstream, "checkout", "-q", "-b", "side")
    b = numbered(40).replace(b"line 20\n", b"line 20\n" + BLOCK)
    commit_files(upstream, {"b.txt": b}, "One half")
    commit_files(upstream, {"pkg/mod.py": b"def f():\n    return wanted(1, 2)\n"}, "The other")
    merge = merged_in(upstream, main)
    cell = judged(wide, upstream)
    assert cell["outcome"] == "absorbed"
    assert f"landed as {merge[:12]}" in cell["evidence"]


@pytest.mark.parametrize("count", [1, 12])
def test_many_commits_of_a_side_branch_name_the_patch(wide: Patchq, upstream: Path, count: int) -> None:
    main = git(upstream, "branch", "--show-current")
    git(upstream, "checkout", "-q", "-b", "side")
    other = lines(40, {19: b"other\n"})
    commit_files(upstream, {"b.txt": other}, "Before it")
    landed = has_it(upstream, b=other)
    changed_on(upstream)
    for number in range(count):
        edit(upstream / "b.txt", 35, b"polish %d\n" % number)
        commit_files(upstream, {"b.txt": (upstream / "b.txt").read_bytes()}, f"Polish {number} (#77)")
    merged_in(upstream, main)
    cell = judged(wide, upstream)
    assert cell["outcome"] == "absorbed"
    assert f"landed as {landed[:12]}" in cell["evidence"]


@pytest.mark.parametrize("how", ["a revert", "a merge without it"])
def test_a_side_branch_that_did_not_bring_it(wide: Patchq, upstream: Path, how: str) -> None:
    main = git(upstream, "branch", "--show-current")
    git(upstream, "checkout", "-q", "-b", "side")
    has_it(upstream)
    if how == "a revert":
        git(upstream, "revert", "--no-edit", "HEAD")
    merged_in(upstream, main, *(("-s", "ours") if how == "a merge without it" else ()))
    cell = judged(wide, upstream)
    assert cell["outcome"] not in ("absorbed", "obsolete")


@pytest.mark.parametrize("others", [0, 4])
def test_a_note_that_a_release_clears_away(wide: Patchq, upstream: Path, others: int) -> None:
    """Many projects have a file for each change, and delete them all when the changelog is written."""
    for name, text in (("notes/7.txt", b"Double it.\n"), ("more.txt", b"more\n")):
        path = wide.tree() / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    wide.ok("new", "up", "noted", "-s", "-m", "Tell of it (#7)\n\nFor the test.")
    notes = {f"notes/{n}.txt": b"Another.\n" for n in range(others)}
    commit_files(upstream, {"notes/7.txt": b"Double it.\n", "more.txt": b"more\n"}, "Tell of it (#7)")
    commit_files(upstream, notes, "Other things")
    commit_files(upstream, {"notes/7.txt": None, **dict.fromkeys(notes)}, "Release")
    cell = judged(wide, upstream, patch="noted")
    assert (cell["outcome"] == "absorbed") == bool(others)


def test_without_a_git_source_history_and_blame_name_the_same_command(empty: Patchq) -> None:
    with tarfile.open(empty.root / "p-1.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("p-1/a.txt")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"a\n"))
    empty.ok("pin", "p", "--archive", "./p-1.tar.gz", "--ref", "v1")
    with pytest.raises(SourceError, match="p has no git source") as of_history:
        fetch(empty.project, "p")
    with pytest.raises(SourceError, match="p has no git source") as of_blame:
        blame(empty.project, "p", {"p/first": "v2"}, ["v2"])
    assert of_blame.value.hint == of_history.value.hint == "add the source: `patchq pin p --ref v1 --url GIT-URL`"
