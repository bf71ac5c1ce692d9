"""`forecast`: each outcome of a patch on a ref, over real repositories whose history is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, edit, git, numbered
from patchq.system import runner


def cells(patchq: Patchq, *refs: str) -> dict[tuple[str, str], tuple[str, list[str]]]:
    told = json.loads(patchq.ok("forecast", "up", *(f"--onto={r}" for r in refs), "--json"))
    assert told["refs"] == list(refs)
    return {(c["patch"].split("/")[1], c["ref"]): (c["outcome"], c["paths"]) for c in told["cells"]}


def release(upstream: Path, tag: str, files: dict[str, bytes | None]) -> None:
    commit_files(upstream, files, tag)
    git(upstream, "tag", tag)


def with_line(content: bytes, line: int, text: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    lines[line - 1] = text
    return b"".join(lines)


def test_many_refs_are_asked_for_and_kept_together(
    stack: Patchq, upstream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2, 12):
        release(upstream, f"v{n}", {"other.txt": b"%d\n" % n})
    ran = []

    def counted(argv: list[str], run: Callable[..., Any] = runner.run, **how: Any) -> Any:
        ran.extend(word for word in argv if word in ("ls-remote", "fetch", "update-ref", "patch-id"))
        return run(argv, **how)

    monkeypatch.setattr(runner, "run", counted)
    found = cells(stack, *(f"v{n}" for n in range(2, 12)))
    assert {outcome for outcome, _ in found.values()} == {"clean"}
    assert {name: ran.count(name) for name in ran} == {"ls-remote": 2, "fetch": 1, "update-ref": 1, "patch-id": 1}
    refs = git(stack.layout.store, "for-each-ref", "refs/patchq/base/git/up").splitlines()
    assert {line.rpartition("/")[2]: line.split()[0] for line in refs} == {
        f"v{n}": git(upstream, "rev-parse", f"v{n}") for n in range(1, 12)
    }


def test_each_outcome(stack: Patchq, upstream: Path) -> None:
    a, b = numbered(40), numbered(40)
    git(upstream, "tag", "same")
    release(upstream, "moved", {"a.txt": b"above\n" + a})
    git(upstream, "checkout", "-q", "v1")
    release(upstream, "near", {"a.txt": with_line(a, 7, b"near the first\n")})
    git(upstream, "checkout", "-q", "v1")
    release(upstream, "has-it", {"a.txt": with_line(a, 5, b"changed\n")})
    git(upstream, "checkout", "-q", "v1")
    release(upstream, "differs", {"a.txt": with_line(a, 5, b"otherwise\n")})
    git(upstream, "checkout", "-q", "v1")
    release(upstream, "gone", {"b.txt": None, "other.txt": b"nothing alike\n" * 3})
    found = cells(stack, "same", "moved", "near", "has-it", "differs", "gone")

    def outcomes(ref: str) -> list[str]:
        return [found[name, ref][0] for name in ("first", "second", "third")]

    assert outcomes("same") == ["clean", "clean", "clean"]
    assert outcomes("moved") == ["offset", "offset", "clean"]
    assert outcomes("near") == ["merged", "clean", "clean"]
    assert outcomes("has-it") == ["absorbed", "clean", "clean"]
    assert outcomes("differs") == ["conflict", "clean", "clean"]
    assert outcomes("gone") == ["clean", "clean", "obsolete"]
    assert found["first", "differs"][1] == ["a.txt"]
    assert found["third", "gone"][1] == ["b.txt"]
    assert b == numbered(40)


def test_a_renamed_file_is_followed(stack: Patchq, upstream: Path) -> None:
    release(upstream, "renamed", {"a.txt": None, "deep/er/a.txt": numbered(40)})
    found = cells(stack, "renamed")
    assert [found[n, "renamed"][0] for n in ("first", "second", "third")] == ["merged", "merged", "clean"]


def test_a_block_that_moved_within_its_file(stack: Patchq, upstream: Path) -> None:
    """git's merge calls it a conflict, and so does a forecast, though the patch itself applies there without fuzz:
    upstream's edits say of one half that it stayed and of the other that it went and came."""
    lines = numbered(40).splitlines(keepends=True)
    release(upstream, "turned", {"a.txt": b"".join(lines[20:] + lines[:20])})
    found = cells(stack, "turned")
    assert [found[n, "turned"][0] for n in ("first", "second", "third")] == ["conflict", "offset", "clean"]


def test_what_comes_after_a_conflict_is_carried_without_it(stack: Patchq, upstream: Path) -> None:
    edit(stack.tree() / "a.txt", 5, b"on top of the first\n")
    stack.ok("new", "up", "top", "-s", "-m", "Top\n\nFor the test.")
    release(upstream, "differs", {"a.txt": with_line(numbered(40), 5, b"otherwise\n")})
    found = cells(stack, "differs")
    assert [found[n, "differs"][0] for n in ("first", "second", "third", "top")] == [
        "conflict", "clean", "clean", "conflict",
    ]  # fmt: skip


def test_a_pinned_ref_an_older_one_and_one_where_all_conflicts(stack: Patchq, upstream: Path) -> None:
    git(upstream, "checkout", "-q", "--orphan", "before")
    git(upstream, "rm", "-q", "-r", "-f", ".")
    release(upstream, "v0", {"a.txt": b"all\nelse\n", "b.txt": b"else\n"})
    found = cells(stack, "v1", "v0")
    assert {found[n, "v1"][0] for n in ("first", "second", "third")} == {"clean"}
    assert {found[n, "v0"][0] for n in ("first", "second", "third")} == {"conflict"}
    said = stack.ok("forecast", "up", "--onto", "v0", "--why")
    assert "v0: 3 need review (3 hunks, 2 files)" in said
    assert "v0 up/first: a.txt" in said


def test_blame_names_the_first_ref_and_the_cheapest(stack: Patchq, upstream: Path) -> None:
    a = numbered(40)
    release(upstream, "r1", {"a.txt": b"above\n" + a})
    release(upstream, "r2", {"a.txt": b"above\n" + with_line(a, 30, b"otherwise\n")})
    release(upstream, "r3", {"a.txt": b"above\n" + with_line(with_line(a, 30, b"otherwise\n"), 5, b"too\n")})
    release(upstream, "r4", {"a.txt": b"above\n" + with_line(a, 5, b"too\n")})
    refs = [f"--onto={r}" for r in ("r1", "r2", "r3", "r4")]
    told = json.loads(stack.ok("forecast", "up", *refs, "--json"))
    assert told["breaks"] == {"up/second": "r2", "up/first": "r3"}
    assert told["stops"] == {"r1": 0, "r2": 1, "r3": 2, "r4": 1}
    assert told["cheapest"] == "r1"
    said = stack.ok("forecast", "up", *refs[1:], "--blame").splitlines()
    assert "up/first conflicts first at r3" in said
    assert said[-1] == "cheapest: r4, 1 conflict"


def test_nothing_is_moved(stack: Patchq, upstream: Path) -> None:
    release(upstream, "next", {"a.txt": b"above\n" + numbered(40)})
    before = stack.snapshot()
    cells(stack, "next")
    after = stack.snapshot()
    # The base of the other ref is kept in the store, as `fetch` keeps it.
    before.pop("refs"), after.pop("refs")
    assert after == before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "no target ref is given"),
        (("--onto", "nowhere"), "has no tag or branch 'nowhere'"),
        (("--releases", ">=1"), "has no archive on the package index"),
    ],
)
def test_what_can_not_be_found_is_an_error(stack: Patchq, args: tuple[str, ...], words: str) -> None:
    done = stack.run("forecast", "up", *args)
    assert done.exit_code == 1, done.output
    assert words in done.output


def test_binary_files_modes_and_new_files(patchq: Patchq, upstream: Path) -> None:
    """What has no hunks is carried whole or stops; a mode alone is a change."""
    commit_files(upstream, {"image": bytes(range(256)) * 4}, "with an image")
    git(upstream, "tag", "-f", "v1")
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    patchq.ok("apply")
    tree = patchq.tree()
    (tree / "image").write_bytes(bytes(reversed(range(256))) * 4)
    patchq.ok("new", "up", "image", "-s", "-m", "Image\n\nFor the test.")
    (tree / "a.txt").chmod(0o755)
    patchq.ok("new", "up", "mode", "-s", "-m", "Mode\n\nFor the test.")
    (tree / "added.txt").write_bytes(b"new\n")
    patchq.ok("new", "up", "added", "-s", "-m", "Added\n\nFor the test.")
    release(upstream, "quiet", {"b.txt": b"else\n"})
    git(upstream, "checkout", "-q", "v1")
    release(upstream, "loud", {"image": b"\0other", "added.txt": b"theirs\n", "a.txt": b"above\n" + numbered(40)})
    git(upstream, "checkout", "-q", "v1")
    release(upstream, "in-the-way", {"added.txt/file": b"a folder\n"})
    found = cells(patchq, "quiet", "loud", "in-the-way")
    names = ("image", "mode", "added")
    assert [found[n, "quiet"][0] for n in names] == ["clean", "clean", "clean"]
    assert [found[n, "loud"][0] for n in names] == ["conflict", "clean", "conflict"]
    assert [found[n, "in-the-way"][0] for n in names] == ["clean", "clean", "conflict"]


def test_a_new_file_goes_where_its_folder_went(patchq: Patchq, upstream: Path) -> None:
    """And a conflict in a file that moved is told at the file's new place, by the lines where it begins."""
    files = {f"lib/{n}.txt": numbered(30 + n) for n in range(4)}
    commit_files(upstream, dict(files), "a folder")
    git(upstream, "tag", "-f", "v1")
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    patchq.ok("apply")
    (patchq.tree() / "lib" / "added.txt").write_bytes(b"new\n")
    patchq.ok("new", "up", "added", "-s", "-m", "Added\n\nFor the test.")
    edit(patchq.tree() / "lib" / "0.txt", 5)
    edit(patchq.tree() / "lib" / "0.txt", 25)
    patchq.ok("new", "up", "edited", "-s", "-m", "Edited\n\nFor the test.")
    moved = {f"src/lib/{n}.txt": numbered(30 + n) for n in range(4)}
    moved["src/lib/0.txt"] = with_line(with_line(numbered(30), 5, b"otherwise\n"), 25, b"otherwise\n")
    release(upstream, "moved", {**dict.fromkeys(files), **moved})
    told = json.loads(patchq.ok("forecast", "up", "--onto=moved", "--json"))
    assert [c["outcome"] for c in told["cells"]] == ["merged", "conflict"]
    (file,) = told["cells"][1]["files"]
    assert file["path"] == "src/lib/0.txt"
    assert len(file["lines"]) == 2
    assert "src/lib/0.txt (2 hunks)" in patchq.ok("forecast", "up", "--onto=moved", "--why")


def test_absorbed_is_graded_with_its_evidence(stack: Patchq, upstream: Path) -> None:
    edit(stack.tree() / "b.txt", 20, b"one thing\nanother thing\na third thing\n")
    stack.ok("new", "up", "long", "-s", "-m", "Long\n\nFor the test.")
    b = numbered(40)
    whole = with_line(b, 20, b"one thing\nanother thing\na third thing\n")
    release(upstream, "r1", {"b.txt": whole})
    release(upstream, "r2", {"b.txt": with_line(b, 20, b"    one thing\n    another thing\n    a third thing\n")})
    release(upstream, "r3", {"b.txt": with_line(b, 20, b"one thing\nanother thing\na fourth thing\n")})
    release(upstream, "r4", {"b.txt": with_line(b, 20, b"nothing alike\n")})
    refs = ("r1", "r2", "r3", "r4")
    told = json.loads(stack.ok("forecast", "up", *(f"--onto={r}" for r in refs), "--json"))
    found = {c["ref"]: (c["outcome"], c["grade"], c["evidence"]) for c in told["cells"] if c["patch"] == "up/long"}
    commits = [git(upstream, "rev-parse", ref)[:12] for ref in refs]
    assert found["r1"] == ("absorbed", "contained", f"b.txt: contained since r1; landed as {commits[0]} (r1)")
    assert found["r2"] == ("absorbed", "contained", f"b.txt: contained since r1; landed as {commits[0]} (r1)")
    assert found["r3"] == (
        "absorbed", "identical", f"landed as {commits[0]} (r1); changed on since by {commits[2]} (r3)",
    )  # fmt: skip
    assert found["r4"] == found["r3"]
    assert "up/long: upstream has b.txt: contained since r1" in stack.ok("forecast", "up", "--onto", "r1", "--why")


def test_blame_names_the_commit_its_author_and_pull_request(stack: Patchq, upstream: Path) -> None:
    lines = numbered(40).splitlines(keepends=True)
    wanted = {}
    for n in range(25):
        subject = f"Number {n}"
        if n == 6:
            lines[29], subject = b"otherwise\n", "Change the thirtieth line (#1234)"
        if n == 17:
            lines[4], subject = b"otherwise too\n", "Merge pull request #77 from somewhere"
        commit = commit_files(upstream, {"a.txt": b"".join(lines), f"n{n}.txt": b"n\n"}, subject)
        if n in (6, 17):
            wanted[n] = commit
        if n in (3, 11, 24):
            git(upstream, "tag", f"t{n}")
    refs = [f"--onto=t{n}" for n in (3, 11, 24)]
    told = json.loads(stack.ok("forecast", "up", *refs, "--blame", "--json"))
    found = {c["patch"]: c for c in told["culprits"]}
    assert {p: (c["ref"], c["commit"], c["pull_request"]) for p, c in found.items()} == {
        "up/second": ("t11", wanted[6], "1234"), "up/first": ("t24", wanted[17], "77"),
    }  # fmt: skip
    assert found["up/first"]["author"] == "Test Person <test@example.org>"
    assert all(c["tried"] <= 5 for c in found.values())
    said = stack.ok("forecast", "up", *refs, "--blame")
    assert (
        f"by {wanted[6][:12]} Change the thirtieth line (#1234) (Test Person <test@example.org>, pull request 1234)"
        in said
    )


def test_blame_without_history_says_so(stack: Patchq, upstream: Path) -> None:
    """The release is pinned and here, so the refs are told; its commits are away."""
    release(upstream, "r1", {"a.txt": b"else\n"})
    stack.ok("pin", "up", "--url", str(upstream), "--ref", "r1", "--set", "next")
    stack.ok("fetch", "--set", "next")
    upstream.rename(upstream.parent / "away")
    said = stack.ok("forecast", "up", "--onto", "r1", "--blame")
    assert "up/first conflicts first at r1" in said
    assert "no commits to blame: " in said
