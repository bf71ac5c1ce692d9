"""`rebase`: a stack carried to another ref, over real repositories whose history is known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, edit, git, numbered


def release(upstream: Path, tag: str, files: dict[str, bytes | None]) -> None:
    commit_files(upstream, files, tag)
    git(upstream, "tag", tag)


def with_lines(count: int, changed: dict[int, bytes]) -> bytes:
    lines = numbered(count).splitlines(keepends=True)
    for line, text in changed.items():
        lines[line - 1] = text
    return b"".join(lines)


def told(patchq: Patchq, code: int, *args: str) -> dict[str, Any]:
    done = patchq.run("rebase", *args, "--json")
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {s["patch"]: s["outcome"] for s in found["steps"]}


def ledger(patchq: Patchq) -> list[dict[str, Any]]:
    text = (patchq.root / "patches" / "up" / "ledger.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def parked(patchq: Patchq, ref: str = "v2") -> Path:
    return patchq.layout.tree(f"up@{ref}")


def series(patchq: Patchq, ref: str) -> list[str]:
    lines = (patchq.layout.stack("up", ref) / "series").read_text().split()
    return [line.removesuffix(".patch") for line in lines]


def test_what_lands_is_written_pinned_and_told(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": b"above\n" + numbered(40), "b.txt": with_lines(40, {14: b"else\n"})})
    before = stack.snapshot()
    found = told(stack, 0, "up", "--onto", "v2")
    assert found["state"] == "done"
    assert outcomes(found) == {"first": "offset", "second": "offset", "third": "clean"}
    assert series(stack, "v2") == ["first", "second", "third"]
    after = stack.snapshot()
    assert {k: v for k, v in after.items() if k in before and k not in ("lock", "refs")} == {
        k: v for k, v in before.items() if k not in ("lock", "refs")
    }
    lines = ledger(stack)
    assert [(x["patch"], x["from_ref"], x["onto"]) for x in lines] == [(n, "v1", "v2") for n in series(stack, "v2")]
    assert all(x["tool"].startswith("patchq ") and len(x["patch_id"]) == 40 for x in lines)
    stack.ok("apply", "--set", found["set_name"])
    assert b"above\n" in (stack.tree() / "a.txt").read_bytes()
    assert "changed\n" in (stack.tree() / "b.txt").read_text()
    assert not stack.layout.private.joinpath("rebase", "up.json").exists()
    assert not parked(stack).exists()


def test_what_is_carried_is_what_git_rebase_gives(stack: Patchq, upstream: Path, tmp_path: Path) -> None:
    files = {"a.txt": None, "moved/a.txt": with_lines(40, {20: b"else\n"}), "b.txt": b"top\n" + numbered(40)}
    release(upstream, "v2", files)
    told(stack, 0, "up", "--onto", "v2")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(stack.layout.store), str(clone), "-b", "up")
    git(clone, "fetch", "-q", str(upstream), "v2")
    base = git(clone, "rev-parse", "FETCH_HEAD")
    git(clone, "rebase", "-q", "--onto", base, "HEAD~3")
    stack.ok("apply", "--set", "default-up-v2")
    assert git(stack.tree(), "rev-parse", "HEAD^{tree}") == git(clone, "rev-parse", "HEAD^{tree}")


def test_a_conflict_is_parked_resolved_and_gone_on_from(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    found = told(stack, 3, "up", "--onto", "v2")
    assert found["state"] == "stopped"
    assert found["stop"]["patch"] == "first"
    assert found["stop"]["conflicts"] == [["a.txt", [5]]]
    assert (found["stop"]["carries"], found["stop"]["stops"]) == (2, 0)
    folder = parked(stack)
    assert Path(found["worktree"]) == folder
    text = (folder / "a.txt").read_text()
    assert "<<<<<<< up v2\notherwise\n||||||| " in text
    assert ">>>>>>> first (written for v1)\n" in text
    assert git(folder, "status", "--porcelain") == "UU a.txt"
    assert "up v1 onto v2: a rebase is under way; first stops in" in stack.ok("status")
    assert json.loads(stack.ok("status", "--json"))["rebases"][0]["stop"]["patch"] == "first"
    # The applied stack is as it was, and works.
    stack.ok("apply")
    assert "conflict markers are left in a.txt" in stack.fails(3, "rebase", "up", "--continue", "--no-proof")
    assert "is under way" in stack.fails(1, "rebase", "up", "--onto", "v2")
    (folder / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n"}))
    found = told(stack, 0, "--continue", "--no-proof", "--how", "both")
    assert outcomes(found) == {"first": "resolved", "second": "clean", "third": "clean"}
    stack.ok("apply", "--set", found["set_name"])
    assert (stack.tree() / "a.txt").read_bytes() == with_lines(40, {5: b"otherwise, changed\n", 30: b"changed\n"})
    line = ledger(stack)[0]
    assert (line["outcome"], line["how"], line["broke"]) == ("resolved", "both", "v2")
    assert line["files"] == [{"path": "a.txt", "hunks": 1}]
    assert line["lines"] == 4  # two lines of the old patch are gone, two of the new one came


PROOF = """\
import os, pathlib

def test_the_line() -> None:
    text = (pathlib.Path(os.environ["PATCHQ_TREES"]) / "up" / "a.txt").read_text()
    assert "changed" in text.splitlines()[4], text.splitlines()[4]
"""


@pytest.fixture
def proven(stack: Patchq) -> Patchq:
    """The stack, its first patch with a proof."""
    proof = stack.root / "tests" / "stacks" / "up" / "test_first.py"
    proof.parent.mkdir(parents=True)
    proof.write_text(PROOF)
    path = stack.patch_file("first")
    path.write_text(path.read_text().replace("Topic: test\n", "Topic: test\nProof: tests/stacks/up/test_first.py\n"))
    stack.ok("apply")
    return stack


def test_a_resolution_that_fails_its_proof_is_not_taken(proven: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    told(proven, 3, "up", "--onto", "v2")
    (parked(proven) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, wrong\n"}))
    said = proven.fails(5, "rebase", "up", "--continue")
    assert "its proof failed" in said
    assert "wrong" in said
    (parked(proven) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed too\n"}))
    found = told(proven, 0, "up", "--continue")
    assert found["steps"][0]["proof"] == "passed"
    assert ledger(proven)[0]["proof"] == "passed"


def test_a_resolution_is_replayed_and_told(proven: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    release(upstream, "v3", {"a.txt": with_lines(40, {5: b"otherwise\n"}), "new.txt": b"new\n"})
    told(proven, 3, "up", "--onto", "v2")
    (parked(proven) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n"}))
    told(proven, 0, "up", "--continue")
    cache = list((proven.root / "patches" / "up" / "rr-cache").glob("*/*"))
    assert sorted(p.name for p in cache) == ["postimage", "preimage"]
    said = proven.ok("rebase", "up", "--onto", "v3", "--from", "v1")
    assert "first: replayed; a.txt (1); by the recorded resolution of a.txt; proof passed" in said
    assert [x["outcome"] for x in ledger(proven)[3:]] == ["replayed", "clean", "clean"]
    assert ledger(proven)[3]["how"] == "by the recorded resolution of a.txt"
    proven.ok("apply", "--set", "default-up-v3")
    assert (proven.tree() / "a.txt").read_bytes() == with_lines(40, {5: b"otherwise, changed\n", 30: b"changed\n"})


@pytest.mark.parametrize("name", ["a\nb", 'a "b" \\n', "\udcff"], ids=["two lines", "quotes", "no text"])
def test_a_project_in_a_folder_of_any_name(stack: Patchq, upstream: Path, tmp_path: Path, name: str) -> None:
    """git reads the store's place out of files, line by line, and unquotes it."""
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    release(upstream, "v3", {"a.txt": with_lines(40, {5: b"otherwise\n"}), "new.txt": b"new\n"})
    stack.root.rename(tmp_path / name)
    patchq = Patchq(tmp_path / name)
    patchq.ok("apply")
    assert json.loads(patchq.ok("forecast", "up", "--onto", "v2", "--json"))["cells"][0]["outcome"] == "conflict"
    told(patchq, 3, "up", "--onto", "v2")
    (parked(patchq) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n"}))
    told(patchq, 0, "up", "--continue", "--no-proof")
    assert "the recorded resolution" in told(patchq, 3, "up", "--onto", "v3", "--from", "v1")["stop"]["message"]
    patchq.ok("conflict", "up")


def test_a_rewrite_is_not_recorded(stack: Patchq, upstream: Path) -> None:
    """Both sides changed 150 lines in a row: the conflict holds them three times."""
    mine, theirs = (b"".join(b"%s %d\n" % (word, n) for n in range(150)) for word in (b"mine", b"theirs"))
    commit_files(upstream, {"c.txt": numbered(150)}, "c")
    git(upstream, "tag", "v1b")
    stack.ok("pin", "up", "--url", str(upstream), "--ref", "v1b", "--set", "long")
    stack.ok("apply", "--set", "long")
    (stack.tree() / "c.txt").write_bytes(mine)
    stack.ok("new", "up", "long", "-s", "-m", "Long\n\nFor the test.")
    release(upstream, "v2", {"c.txt": theirs})
    assert told(stack, 3, "up", "--onto", "v2", "--set", "long")["stop"]["conflicts"] == [["c.txt", [1]]]
    (parked(stack) / "c.txt").write_bytes(b"written anew\n")
    told(stack, 0, "up", "--continue", "--no-proof", "--drop-upstream-line", "c.txt")
    assert not (stack.root / "patches" / "up" / "rr-cache").exists()


def test_a_replay_that_nothing_proves_is_for_a_person_to_look_at(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    release(upstream, "v3", {"a.txt": with_lines(40, {5: b"otherwise\n"}), "new.txt": b"new\n"})
    told(stack, 3, "up", "--onto", "v2")
    (parked(stack) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n"}))
    told(stack, 0, "up", "--continue", "--no-proof")
    found = told(stack, 3, "up", "--onto", "v3", "--from", "v1")
    assert "the recorded resolution of a.txt resolves it, but no proof confirms it" in found["stop"]["message"]
    assert (parked(stack, "v3") / "a.txt").read_bytes() == with_lines(40, {5: b"otherwise, changed\n"})
    found = told(stack, 0, "up", "--continue", "--no-proof")
    assert outcomes(found) == {"first": "replayed", "second": "clean", "third": "clean"}


def test_the_same_words_in_two_places_are_two_conflicts(stack: Patchq, upstream: Path) -> None:
    """rerere takes them for one, and puts back the other's conflict without labels."""
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n", 30: b"otherwise\n"})})
    told(stack, 3, "up", "--onto", "v2")
    (parked(stack) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n", 30: b"otherwise\n"}))
    found = told(stack, 3, "up", "--continue", "--no-proof")
    assert (found["stop"]["patch"], found["stop"]["message"]) == ("second", "")
    assert ">>>>>>> second (written for v1)" in (parked(stack) / "a.txt").read_text()


def test_a_resolution_replays_no_edit_away_from_its_conflict(proven: Patchq, upstream: Path) -> None:
    """A person changed f(), too, when they resolved line 5. In v3 f() is gone, and g() has the same words."""
    body = b"    n = int(n)\n    check(n)\n    if n < 0:\n        return 0\n    n = more(n)\n    return n\n\n"
    head = with_lines(40, {5: b"otherwise\n"})
    release(upstream, "v2", {"a.txt": head + b"def f(n):\n" + body + b"def g(n):\n" + body})
    release(upstream, "v3", {"a.txt": head + b"def g(n):\n" + body})
    told(proven, 3, "up", "--onto", "v2")
    resolved = with_lines(40, {5: b"otherwise, changed\n"}) + b"def f(n):\n" + body.replace(b"0\n    n", b"1\n    n")
    (parked(proven) / "a.txt").write_bytes(resolved + b"def g(n):\n" + body)
    told(proven, 0, "up", "--continue", "--drop-upstream-line", "a.txt:45")
    found = told(proven, 3, "up", "--onto", "v3", "--from", "v1")
    assert "changes lines outside the conflict" in found["stop"]["message"]
    assert told(proven, 0, "up", "--continue", "--drop-upstream-line", "a.txt")["steps"][0]["outcome"] == "replayed"


def test_a_poisoned_resolution_is_caught_and_told(proven: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    release(upstream, "v3", {"a.txt": with_lines(40, {5: b"otherwise\n"}), "new.txt": b"new\n"})
    told(proven, 3, "up", "--onto", "v2")
    (parked(proven) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, wrong\n"}))
    told(proven, 0, "up", "--continue", "--no-proof")
    found = told(proven, 3, "up", "--onto", "v3", "--from", "v1")
    assert "the recorded resolution of a.txt was tried, but then the proof failed" in found["stop"]["message"]
    assert "<<<<<<< up v3" in (parked(proven, "v3") / "a.txt").read_text()
    (parked(proven, "v3") / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n"}))
    assert outcomes(told(proven, 0, "up", "--continue"))["first"] == "resolved"
    # The right one took the wrong one's place.
    (post,) = (proven.root / "patches" / "up" / "rr-cache").glob("*/postimage")
    assert b"otherwise, changed\n" in post.read_bytes()


def test_a_stack_that_changed_during_the_rebase_is_not_overwritten(proven: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    told(proven, 3, "up", "--onto", "v2")
    # Meanwhile, somebody merges a branch that has a stack of this release.
    folder = proven.layout.stack("up", "v2")
    shutil.copytree(proven.layout.stack("up", "v1"), folder)
    edited = (folder / "first.patch").read_bytes().replace(b"Because of the test.", b"Because of my colleague.")
    (folder / "first.patch").write_bytes(edited)
    (parked(proven) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n"}))
    said = proven.fails(1, "rebase", "up", "--continue", "--no-proof")
    assert "the stack of up v2 was changed since the rebase began; nothing was written" in said
    assert (folder / "first.patch").read_bytes() == edited
    shutil.rmtree(folder)
    told(proven, 0, "up", "--continue", "--no-proof")
    assert series(proven, "v2") == ["first", "second", "third"]


def test_what_upstream_has_is_retired_only_with_its_proof(proven: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"changed\n"})})
    found = told(proven, 0, "up", "--onto", "v2")
    assert outcomes(found) == {"first": "absorbed", "second": "clean", "third": "clean"}
    assert series(proven, "v2") == ["second", "third"]
    line = ledger(proven)[0]
    assert (line["outcome"], line["grade"], line["proof"]) == ("absorbed", "identical", "passed on the bare upstream")
    assert line["evidence"] == f"a.txt: identical since v2; landed as {git(upstream, 'rev-parse', 'v2')[:12]} (v2)"
    # And it stays so: the ledger remembers.
    assert told(proven, 0, "up", "--onto", "v2")["state"] == "nothing"
    assert series(proven, "v1") == ["first", "second", "third"]


def test_what_upstream_seems_to_have_is_not_retired_against_its_proof(proven: Patchq, upstream: Path) -> None:
    """The lines are there, elsewhere; the proof looks for them in their place."""
    lines = with_lines(40, {5: b"changed\n"}).splitlines(keepends=True)
    release(upstream, "v2", {"a.txt": b"".join(lines[10:] + lines[:10])})
    found = told(proven, 3, "up", "--onto", "v2", "--retire")
    assert (found["stop"]["outcome"], found["stop"]["grade"]) == ("absorbed", "contained")
    assert "not retired: its proof on the bare up v2: failed" in found["stop"]["message"]


def test_without_a_proof_nothing_is_retired(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"changed\n"})})
    found = told(stack, 3, "up", "--onto", "v2", "--retire")
    assert "the patch names no proof" in found["stop"]["message"]


def test_edited_upstream_is_shown_and_asked_about(stack: Patchq, upstream: Path) -> None:
    edit(stack.tree() / "b.txt", 20, b"one thing\nanother thing\na third thing\n")
    stack.ok("new", "up", "long", "-s", "-m", "Long\n\nFor the test.")
    release(upstream, "v2", {"b.txt": with_lines(40, {20: b"one thing\nanother thing\na fourth thing\n"})})
    found = told(stack, 3, "up", "--onto", "v2", "--retire")
    assert (found["stop"]["patch"], found["stop"]["outcome"], found["stop"]["grade"]) == ("long", "conflict", "edited")
    assert found["stop"]["evidence"] == "b.txt: 75 % of its lines are there"


def test_on_a_persons_word_what_is_edited_upstream_is_retired_if_its_proof_agrees(
    proven: Patchq, upstream: Path
) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    release(upstream, "v3", {"a.txt": with_lines(40, {5: b"changed\nand more\n", 6: b""})})
    told(proven, 3, "up", "--onto", "v2")
    assert "no part of up/first was found in v2" in proven.fails(1, "rebase", "up", "--continue", "--retire")
    said = proven.fails(5, "rebase", "up", "--continue", "--retire", "--how", "it does the same")
    assert "up/first is not retired: its proof on the bare up v2: failed" in said
    told(proven, 0, "up", "--abort")
    proven.patch_file("first").write_text(
        proven.patch_file("first")
        .read_text()
        .replace("+changed\n", "+changed\n+and so on\n")
        .replace("-2,7 +2,7", "-2,7 +2,8")
    )
    proven.ok("apply")
    found = told(proven, 3, "up", "--onto", "v3", "--retire")
    assert (found["stop"]["patch"], found["stop"]["grade"]) == ("first", "edited")
    found = told(proven, 0, "up", "--continue", "--retire", "--how", "solved by a rewrite")
    assert outcomes(found)["first"] == "absorbed"
    line = ledger(proven)[0]
    assert (line["grade"], line["how"], line["proof"]) == (
        "edited",
        "solved by a rewrite",
        "passed on the bare upstream",
    )


def test_a_step_is_told_once(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": b"all\nelse\n", "b.txt": b"else\n"})
    assert "first stops" in stack.fails(3, "rebase", "up", "--onto", "v2")
    said = stack.fails(3, "rebase", "up", "--skip", "--how", "in a word")
    assert "first: conflict; a.txt (1); in a word" in said
    said = stack.fails(3, "rebase", "up", "--skip")
    assert "second: conflict" in said
    assert "first: " not in said


def test_where_everything_conflicts(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": b"all\nelse\n", "b.txt": b"else\n"})
    assert told(stack, 3, "up", "--onto", "v2")["stop"]["stops"] == 2
    for left in ("second", "third"):
        assert told(stack, 3, "up", "--skip")["stop"]["patch"] == left
    found = told(stack, 0, "up", "--skip", "--how", "rewritten upstream")
    assert set(outcomes(found).values()) == {"conflict"}
    # No patch, no stack, no pin: but the ledger knows.
    assert not stack.layout.stack("up", "v2").exists()
    assert "v2" not in stack.layout.lock.read_text()
    assert [x["how"] for x in ledger(stack)] == ["left out", "left out", "rewritten upstream"]
    assert not parked(stack).exists()


def test_leaving_out_all_that_stops_and_bringing_it_later(stack: Patchq, upstream: Path) -> None:
    edit(stack.tree() / "a.txt", 5, b"on top of the first\n")
    stack.ok("new", "up", "top", "-s", "-m", "Top\n\nFor the test.")
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    found = told(stack, 0, "up", "--onto", "v2", "--leave-out")
    assert outcomes(found) == {"first": "conflict", "second": "clean", "third": "clean", "top": "conflict"}
    assert series(stack, "v2") == ["second", "third"]
    # Again: what is there stays, what lacks is carried to its own place.
    found = told(stack, 3, "up", "--onto", "v2")
    assert found["stop"]["patch"] == "first"
    (parked(stack) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n"}))
    found = told(stack, 3, "up", "--continue", "--no-proof")
    assert found["stop"]["patch"] == "top"
    text = with_lines(40, {5: b"on top of the first\n", 30: b"changed\n"})
    (parked(stack) / "a.txt").write_bytes(text)
    told(stack, 0, "up", "--continue", "--no-proof")
    assert series(stack, "v2") == ["first", "second", "third", "top"]
    assert [x["outcome"] for x in ledger(stack)][4:] == ["resolved", "resolved"]
    stack.ok("apply", "--set", "default-up-v2")
    assert (stack.tree() / "a.txt").read_bytes() == text


def test_only_one_of_those_that_lack(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    assert "no patch nothing" in stack.fails(1, "rebase", "up", "--onto", "v2", "--only", "nothing")
    assert outcomes(told(stack, 0, "up", "--onto", "v2", "--only", "third")) == {"third": "clean"}
    assert outcomes(told(stack, 0, "up", "--onto", "v2", "--only", "up/second")) == {
        "second": "clean",
        "third": "clean",
    }
    assert series(stack, "v2") == ["second", "third"]
    assert [x["patch"] for x in ledger(stack)] == ["third", "second"]
    assert told(stack, 3, "up", "--onto", "v2")["stop"]["patch"] == "first"


def test_a_renamed_file_is_followed_past_what_the_new_stack_has(stack: Patchq, upstream: Path) -> None:
    """The patches that are there already know the file by its new path; the one to carry doesn't."""
    release(upstream, "v2", {"a.txt": None, "deep/er/a.txt": with_lines(40, {30: b"otherwise\n"})})
    found = told(stack, 0, "up", "--onto", "v2", "--leave-out")
    assert outcomes(found) == {"first": "merged", "second": "conflict", "third": "clean"}
    found = told(stack, 3, "up", "--onto", "v2")
    assert (found["stop"]["patch"], found["stop"]["outcome"]) == ("second", "conflict")
    assert found["stop"]["conflicts"] == [["deep/er/a.txt", [30]]]


def test_what_upstream_has_is_seen_in_a_file_that_it_renamed(stack: Patchq, upstream: Path) -> None:
    edit(stack.tree() / "b.txt", 20, b"one thing\nanother thing\na third thing\n")
    stack.ok("new", "up", "long", "-s", "-m", "Long\n\nFor the test.")
    indented = with_lines(40, {20: b"    one thing\n    another thing\n    a third thing\n"})
    release(upstream, "v2", {"b.txt": None, "deep/b.txt": indented})
    found = told(stack, 3, "up", "--onto", "v2")
    assert (found["stop"]["patch"], found["stop"]["outcome"], found["stop"]["grade"]) == (
        "long",
        "absorbed",
        "contained",
    )
    assert json.loads(stack.ok("forecast", "up", "--onto", "v2", "--json"))["cells"][-1]["grade"] == "contained"


def test_a_patch_no_longer_requires_one_that_was_left_out(stack: Patchq, upstream: Path) -> None:
    for name, needed in (("second", "first"), ("third", "second")):
        path = stack.patch_file(name)
        path.write_text(path.read_text().replace("Topic: test\n", f"Topic: test\nRequires: up/{needed}\n"))
    stack.ok("apply")
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n"})})
    found = told(stack, 0, "up", "--onto", "v2", "--leave-out")
    assert found["notes"] == ["second: Requires: up/first is removed, because v2 has no such patch"]
    texts = [(stack.layout.stack("up", "v2") / f"{n}.patch").read_text() for n in ("second", "third")]
    assert ["Requires: up/first" in texts[0], "Requires: up/second" in texts[1]] == [False, True]
    stack.ok("apply", "--set", found["set_name"])


def test_the_same_ref_and_an_older_one(stack: Patchq, upstream: Path) -> None:
    assert told(stack, 0, "up", "--onto", "v1")["state"] == "nothing"
    git(upstream, "checkout", "-q", "--orphan", "before")
    release(upstream, "v0", {"a.txt": numbered(39), "b.txt": numbered(40), "pkg/mod.py": None})
    assert outcomes(told(stack, 0, "up", "--onto", "v0")) == {"first": "clean", "second": "clean", "third": "clean"}
    stack.ok("apply", "--set", "default-up-v0")
    assert (stack.tree() / "a.txt").read_bytes() == with_lines(39, {5: b"changed\n", 30: b"changed\n"})


def test_where_the_file_is_gone(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": None})
    found = told(stack, 3, "up", "--onto", "v2")
    assert (found["stop"]["outcome"], found["stop"]["conflicts"]) == ("obsolete", [["a.txt", []]])
    assert git(parked(stack), "status", "--porcelain") == "DU a.txt"
    assert "a.txt: one side changed it" in stack.fails(3, "rebase", "up", "--continue", "--no-proof")
    found = told(stack, 3, "up", "--skip", "--how", "nobody needs a.txt")
    git(parked(stack), "rm", "-q", "a.txt")
    (parked(stack) / "c.txt").write_bytes(b"changed here now\n")
    assert "`--include c.txt`" in stack.fails(1, "rebase", "up", "--continue", "--no-proof")
    found = told(stack, 0, "up", "--continue", "--no-proof", "--include", "c.txt")
    assert outcomes(found) == {"first": "obsolete", "second": "resolved", "third": "clean"}
    assert series(stack, "v2") == ["second", "third"]


def test_abort_leaves_nothing_but_what_was_learnt(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines(40, {5: b"otherwise\n", 30: b"and this\n"})})
    before = stack.snapshot()
    told(stack, 3, "up", "--onto", "v2")
    (parked(stack) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise, changed\n", 30: b"and this\n"}))
    assert told(stack, 3, "up", "--continue", "--no-proof")["stop"]["patch"] == "second"
    (parked(stack) / "a.txt").write_bytes(b"precious\n")
    found = told(stack, 0, "up", "--abort")
    commit = found["notes"][0].split(" commit ")[1].split()[0]
    assert git(stack.layout.store, "show", f"{commit}:a.txt") == "precious"
    after = stack.snapshot()
    cache = {k for k in after if "rr-cache" in k}
    assert len(cache) == 2
    assert {k: v for k, v in after.items() if k not in cache and k != "refs"} == {
        k: v for k, v in before.items() if k != "refs"
    }
    assert "up@" not in after["refs"].decode()
    assert "no rebase of up is under way" in stack.fails(1, "rebase", "up", "--abort")
    # What was resolved is tried again.
    assert "the recorded resolution of a.txt resolves it" in told(stack, 3, "up", "--onto", "v2")["stop"]["message"]


def test_undo_takes_it_back(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"b.txt": b"top\n" + numbered(40)})
    before = stack.snapshot()
    told(stack, 0, "up", "--onto", "v2")
    stack.ok("undo")
    after = stack.snapshot()
    before.pop("refs"), after.pop("refs")
    assert after == before


def test_the_ledger_counts_and_keeps_what_it_can_not_read(stack: Patchq, upstream: Path) -> None:
    for n, ref in enumerate(("v2", "v3"), 1):
        release(upstream, ref, {"a.txt": with_lines(40, {5: b"otherwise %d\n" % n})})
        told(stack, 3, "up", "--onto", ref)
        (parked(stack, ref) / "a.txt").write_bytes(with_lines(40, {5: b"otherwise %d, mine\n" % n}))
        told(stack, 0, "up", "--continue", "--no-proof")
    found = json.loads(stack.ok("ledger", "--json"))["ledgers"][0]
    assert [(c["patch"], c["tried"], c["survived"], c["stopped"]) for c in found["costs"]] == [
        ("first", 2, 2, 2), ("second", 2, 2, 0), ("third", 2, 2, 0),
    ]  # fmt: skip
    assert found["hot"] == [{"path": "a.txt", "stopped": 2, "patches": 1}]
    assert "a.txt: stopped 1 patch, 2 times" in stack.ok("ledger", "--cost")
    path = stack.root / "patches" / "up" / "ledger.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], "{half a line", *lines[2:], lines[0]]))
    said = stack.fails(1, "ledger", "up")
    assert "ledger line 3" in said
    release(upstream, "v4", {"new.txt": b"new\n"})
    stack.ok("rebase", "up", "--onto", "v4", "--leave-out")
    assert "{half a line" in path.read_text().splitlines()
    assert len(json.loads(stack.fails(1, "ledger", "--json"))["ledgers"][0]["attempts"]) == 9
    assert "first" in stack.fails(1, "ledger", "--patch", "up/first")


def test_usage(stack: Patchq) -> None:
    assert "one of --onto" in stack.fails(2, "rebase", "up")
    assert "one of --onto" in stack.fails(2, "rebase", "up", "--onto", "v1", "--skip")
    assert "no rebase is under way" in stack.fails(1, "rebase", "--continue")
    assert "no rebase of up is under way" in stack.fails(1, "rebase", "up", "--continue")


def one_patch(patchq: Patchq, upstream: Path, files: dict[str, bytes], changes: dict[str, bytes | None]) -> None:
    """A stack of one patch on v1, which has these files too."""
    commit_files(upstream, dict(files), "with more")
    git(upstream, "tag", "-f", "v1")
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    patchq.ok("apply")
    for path, content in changes.items():
        full = patchq.tree() / path
        if content is None:
            full.unlink()
        else:
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_bytes(content)
    patchq.ok("new", "up", "fix", "-s", "-m", "Fix\n\nFor the test.")


def test_something_binary_that_both_changed_is_not_taken_for_resolved(empty: Patchq, upstream: Path) -> None:
    """git puts no markers into it: it leaves upstream's there, and the patch's would be lost without a word."""
    changes = {"x.bin": b"\0ours\n", "a.txt": with_lines(40, {5: b"changed\n"})}
    one_patch(empty, upstream, {"x.bin": b"\0base\n"}, changes)
    release(upstream, "v2", {"x.bin": b"\0theirs\n"})
    assert told(empty, 3, "up", "--onto", "v2")["stop"]["conflicts"] == [["x.bin", []]]
    assert "x.bin: one side changed it" in empty.fails(3, "rebase", "up", "--continue", "--no-proof")
    assert "x.bin: one side changed it" in empty.fails(3, "resolve", "up", "--dry-run")
    git(parked(empty), "add", "x.bin")  # upstream's will do
    assert outcomes(told(empty, 0, "up", "--continue", "--no-proof")) == {"fix": "resolved"}


def test_one_file_resolved_does_not_decide_of_another(empty: Patchq, upstream: Path, tmp_path: Path) -> None:
    """One has markers; of the other, which upstream removed, git leaves the patch's there."""
    changes = {path: with_lines(40, {5: b"changed\n"}) for path in ("a.txt", "x.txt")}
    one_patch(empty, upstream, {"x.txt": numbered(40)}, dict(changes))
    release(upstream, "v2", {"x.txt": None, "a.txt": with_lines(40, {5: b"otherwise\n"})})
    told(empty, 3, "up", "--onto", "v2")
    both = with_lines(40, {5: b"otherwise, changed\n"})
    (tmp_path / "a.txt").write_bytes(both)
    said = "x.txt: one side changed it"
    assert said in empty.fails(3, "resolve", "up", "--dry-run", "--from", str(tmp_path / "a.txt"))
    (parked(empty) / "a.txt").write_bytes(both)
    assert said in empty.fails(3, "rebase", "up", "--continue", "--no-proof")
    git(parked(empty), "rm", "-q", "-f", "x.txt")
    found = told(empty, 0, "up", "--continue", "--no-proof")
    empty.ok("apply", "--set", found["set_name"])
    assert not (empty.tree() / "x.txt").exists()
    assert (empty.tree() / "a.txt").read_bytes() == both


@pytest.mark.parametrize("now", ["link", "folder", "submodule"])
def test_where_the_file_is_something_else(empty: Patchq, upstream: Path, now: str) -> None:
    """Upstream has a link, a folder or a submodule where the patch's file was: both are kept, and a person decides."""
    one_patch(empty, upstream, {"x.txt": numbered(40)}, {"x.txt": with_lines(40, {5: b"changed\n"})})
    (upstream / "x.txt").unlink()
    if now == "link":
        (upstream / "x.txt").symlink_to("a.txt")
        git(upstream, "add", "-A")
    elif now == "folder":
        commit_files(upstream, {"x.txt/one": b"1\n", "x.txt/two": b"2\n"})
    else:
        git(upstream, "update-index", "--cacheinfo", f"160000,{git(upstream, 'rev-parse', 'HEAD')},x.txt")
    git(upstream, "commit", "-q", "--allow-empty", "-m", "another kind")
    git(upstream, "tag", "v2")
    told(empty, 3, "up", "--onto", "v2")
    assert "one side changed it" in empty.fails(3, "rebase", "up", "--continue", "--no-proof")
    assert "x.txt" in empty.ok("conflict", "up")
    beside = git(parked(empty), "ls-files", "-z", "--", "x.txt~*").split("\0")
    git(parked(empty), "rm", "-q", "-f", "--", *{name for name in beside if name})
    if now == "submodule":
        git(parked(empty), "update-index", "--cacheinfo", f"160000,{git(upstream, 'rev-parse', 'HEAD~1')},x.txt")
    else:
        git(parked(empty), "add", "x.txt")
    (parked(empty) / "a.txt").write_bytes(with_lines(40, {5: b"changed\n"}))
    found = told(empty, 0, "up", "--continue", "--no-proof", "--include", "a.txt")
    empty.ok("apply", "--set", found["set_name"])
    assert git(empty.tree(), "diff", "--name-only", git(upstream, "rev-parse", "v2"), "HEAD") == "a.txt"


def test_a_submodule_that_both_moved(empty: Patchq, upstream: Path) -> None:
    """git checks none out, nor can it add what it did not."""
    text = '[submodule "third"]\n\tpath = third\n\turl = https://example.org/third\n'
    (upstream / ".gitmodules").write_text(text)
    git(upstream, "add", ".gitmodules")
    for tag, n in (("v1", 1), ("v2", 2)):
        git(upstream, "update-index", "--add", "--cacheinfo", f"160000,{n:040},third")
        git(upstream, "commit", "-q", "-m", tag)
        git(upstream, "tag", "-f", tag)
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    empty.ok("apply")
    git(empty.tree(), "update-index", "--cacheinfo", f"160000,{3:040},third")
    git(empty.tree(), "commit", "-q", "-s", "-m", "Another third\n\nFor the test.")
    empty.ok("export", "up")
    assert told(empty, 3, "up", "--onto", "v2")["stop"]["conflicts"] == [["third", []]]
    assert "third: " in empty.ok("conflict", "up")
    assert "git update-index --cacheinfo" in empty.fails(3, "rebase", "up", "--continue", "--no-proof")
    told(empty, 0, "up", "--abort")
    told(empty, 3, "up", "--onto", "v2")
    git(parked(empty), "update-index", "--cacheinfo", f"160000,{4:040},third")
    found = told(empty, 0, "up", "--continue", "--no-proof")
    empty.ok("apply", "--set", found["set_name"])
    assert git(empty.tree(), "ls-tree", "HEAD", "third").split()[2] == f"{4:040}"


def test_a_new_file_in_a_folder_that_a_patch_took_away(empty: Patchq, upstream: Path) -> None:
    """Upstream moved the folder, and so did a patch. What a later patch puts into one of that name belongs there."""
    one_patch(empty, upstream, {"d/e.txt": numbered(20)}, {"d/e.txt": None, "lib/e.txt": numbered(20)})
    (empty.tree() / "d").mkdir(exist_ok=True)
    (empty.tree() / "d" / "new.txt").write_bytes(b"new\n")
    empty.ok("new", "up", "later", "-s", "-m", "Later\n\nFor the test.")
    release(upstream, "v2", {"d/e.txt": None, "lib/e.txt": numbered(20)})
    told(empty, 3, "up", "--onto", "v2")
    empty.ok("apply", "--set", told(empty, 0, "up", "--skip")["set_name"])
    assert (empty.tree() / "d" / "new.txt").read_bytes() == b"new\n"
    assert not (empty.tree() / "lib" / "new.txt").exists()


def test_a_new_file_where_a_submodule_is_now(empty: Patchq, upstream: Path) -> None:
    one_patch(empty, upstream, {"third/x.h": b"x\n"}, {"third/fix.h": numbered(9)})
    git(upstream, "rm", "-q", "-r", "third")
    git(upstream, "update-index", "--add", "--cacheinfo", f"160000,{git(upstream, 'rev-parse', 'HEAD')},third")
    git(upstream, "commit", "-q", "-m", "third is a submodule")
    git(upstream, "tag", "v2")
    assert "third" in told(empty, 3, "up", "--onto", "v2")["stop"]["conflicts"][0][0]


def test_a_conflict_that_git_only_has_words_for(empty: Patchq, upstream: Path) -> None:
    """The patch renames a folder's only file out of it; upstream did so too, and has another file there now, which
    would follow to a path that is taken. git stops, and has no entry of its index in conflict."""
    one_patch(empty, upstream, {"lib/y.txt": numbered(20)}, {"lib/y.txt": None, "new.txt": numbered(20)})
    release(upstream, "v2", {"lib/y.txt": None, "new.txt": numbered(20), "lib/new.txt": b"another\n"})
    assert told(empty, 3, "up", "--onto", "v2")["stop"]["conflicts"] == [["lib/new.txt", []], ["new.txt", []]]
    assert told(empty, 0, "up", "--skip")["state"] == "done"
