"""Nothing is written that can't be finished; and what can't be finished all the same can be given up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git
from patchq.errors import FormatError
from patchq.git.repository import Git
from patchq.git.worktree import Worktree
from patchq.names import CommitId
from patchq.project.journal import Journal
from patchq.system import fsio
from test_hostile import MAIL, add, new_file

LINK = (
    b"diff --git a/%s b/%s\nnew file mode 120000\nindex 0000000..1111111\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n"
    b"+a.txt\n\\ No newline at end of file\n"
)

PATHS = {
    ".gitmodules as a link": LINK.replace(b"%s", b".gitmodules"),
    "its short name as a link": LINK.replace(b"%s", b"GITMOD~1"),
    "in a folder": LINK.replace(b"%s", b"d/.gitmodules"),
    "a stream of .git": new_file(b".git::$INDEX_ALLOCATION/x")[len(MAIL) :],
    "the short name of .git": new_file(b"git~1/x")[len(MAIL) :],
    "what HFS+ takes for .git": new_file(".g\u200cit/x".encode())[len(MAIL) :],
    "a backslash before .git": new_file(b"a\\.git/x")[len(MAIL) :].replace(b"a\\.git/x", b"a\\\\.git/x"),
    "dots behind .git": new_file(b".git. . /x")[len(MAIL) :],
}


def pending(patchq: Patchq) -> Path:
    return patchq.layout.private / "journal" / "pending.json"


def quoted(text: bytes) -> bytes:
    """Paths with a backslash as git quotes them."""
    if b"\\\\" not in text:
        return text
    return text.replace(b"a/a\\\\.git/x", b'"a/a\\\\.git/x"').replace(b"b/a\\\\.git/x", b'"b/a\\\\.git/x"')


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("what", PATHS)
def test_a_patch_whose_tree_git_would_not_write_out(stack: Patchq, what: str, cold: bool) -> None:
    series = (stack.layout.stack("up", "v1") / "series").read_bytes()
    add(stack, MAIL + quoted(PATHS[what]))
    if cold:
        shutil.rmtree(stack.layout.private)
        stack.ok("fetch")
    before = stack.snapshot()
    said = stack.fails(1, "apply")
    assert "evil" in said
    assert "invalid path" in said or "reaches into .git" in said
    assert stack.snapshot() == before
    assert not pending(stack).exists()
    # And without it all is as it was.
    (stack.layout.stack("up", "v1") / "series").write_bytes(series)
    stack.patch_file("evil").unlink()
    stack.ok("apply")


def odd_commit(folder: Path, base: str, path: str) -> str:
    """A commit on ``base`` with a link at a path that git doesn't write out; made as a hostile host would, object by
    object: newer gits' own commands refuse it."""

    def tree(entries: list[tuple[str, str, str]]) -> str:
        entries.sort(key=lambda entry: (entry[1] + "/" * (entry[0] == "40000")).encode())
        data = b"".join(b"%s %s\0%s" % (mode.encode(), name.encode(), bytes.fromhex(at)) for mode, name, at in entries)
        return git(folder, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=data)

    *folders, name = path.split("/")
    entry = ("120000", name, git(folder, "hash-object", "-w", "--stdin", data=b"x"))
    for parent in reversed(folders):
        entry = ("40000", parent, tree([entry]))
    there = []
    for line in git(folder, "ls-tree", "-z", base).rstrip("\0").split("\0"):
        mode, _, at = line.partition("\t")[0].split()
        there.append((mode.lstrip("0"), line.partition("\t")[2], at))
    return git(folder, "commit-tree", tree([*there, entry]), "-p", base, "-m", "odd")


def odd_upstream(folder: Path, path: str) -> None:
    """An upstream whose own tree, at v1, has such a path."""
    git(folder, "tag", "-f", "v2", odd_commit(folder, "v1^{commit}", path))


def test_a_stale_index_hides_no_path_that_git_refuses(patchq: Patchq, upstream: Path) -> None:
    patchq.ok("apply")
    commit_files(upstream, {"a.txt": b"changed\n"})
    odd = odd_commit(upstream, "HEAD", "z/.g\u200cit")
    git(upstream, "tag", "-f", "v2", odd)
    patchq.ok("pin", "up", "--ref", "v2", "--set", "other")
    patchq.ok("fetch", "--set", "other")
    # As in a copied project: git must read the file to see that nothing changed.
    os.utime(patchq.tree() / "a.txt", (1, 1))
    store = Git(patchq.layout.store)
    head = CommitId(git(patchq.tree(), "rev-parse", "HEAD"))
    with pytest.raises(FormatError, match="refuses the path"):
        Worktree(store, "up", patchq.tree()).rehearse(head, CommitId(odd))


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("path", [".gitmodules", "x/.gitmodules", ".g\u200cit"])
def test_an_upstream_that_git_would_not_write_out(patchq: Patchq, upstream: Path, path: str, cold: bool) -> None:
    odd_upstream(upstream, path)
    if not cold:
        patchq.ok("apply")
    patchq.ok("pin", "up", "--ref", "v2", "--set", "default")
    patchq.ok("fetch")
    before = patchq.snapshot()
    said = patchq.fails(1, "apply")
    assert f"refuses the path {path!r}" in said
    assert "nothing was changed" in said
    assert patchq.snapshot() == before
    assert not pending(patchq).exists()
    patchq.ok("pin", "up", "--ref", "v1", "--set", "default")
    patchq.ok("apply")


def test_names_that_a_file_system_takes_for_one(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    add(stack, MAIL + new_file(b"A.txt")[len(MAIL) :])
    before = stack.snapshot()
    monkeypatch.setattr(fsio, "folds_case", lambda _: True)
    said = stack.fails(1, "apply")
    assert "a.txt and A.txt" in said or "A.txt and a.txt" in said
    assert stack.snapshot() == before
    assert not pending(stack).exists()
    monkeypatch.setattr(fsio, "folds_case", lambda _: False)
    stack.ok("apply")


def test_whether_a_file_system_folds_case_is_asked_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert not fsio.folds_case(folder)
    os.link(shutil.copy(__file__, folder / "x"), folder / "X")  # two names of one file
    assert fsio.folds_case(folder / "x")


# What is under way, given up


def interrupted(patchq: Patchq, monkeypatch: pytest.MonkeyPatch, *argv: str, at: str = "checkout") -> None:
    """A command that dies when its change is written down and its worktree is to move, or has moved."""

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if at == "checkout":
            patch.setattr(Worktree, "checkout", die)
            patch.setattr(Worktree, "adopt", die)
        else:
            patch.setattr(Journal, "_finish", die)
        assert patchq.run(*argv).exit_code == 130
    assert pending(patchq).exists()


@pytest.mark.parametrize("at", ["checkout", "end"])
@pytest.mark.parametrize(
    "argv", [("apply", "--to", "first"), ("drop", "first"), ("move", "third", "--first")], ids=" ".join
)
def test_a_command_is_given_up(stack: Patchq, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], at: str) -> None:
    before = stack.snapshot()
    interrupted(stack, monkeypatch, *argv, at=at)
    said = stack.ok("undo", "--pending")
    assert "abandoned: " in said
    assert not pending(stack).exists()
    assert stack.snapshot() == before
    assert git(stack.tree(), "status", "--porcelain") == ""
    assert "up to date" in stack.ok("apply")
    # It is no operation that could be undone.
    assert "third" in stack.ok("undo")


@pytest.mark.parametrize("at", ["checkout", "end"])
def test_a_worktree_that_was_being_made(stack: Patchq, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    git(stack.layout.store, "worktree", "remove", "--force", str(stack.tree()))
    stack.layout.state("up").unlink()
    interrupted(stack, monkeypatch, "apply", at=at)
    stack.ok("undo", "--pending")
    assert not stack.tree().exists()
    stack.ok("apply")


def test_half_a_checkout_is_taken_back(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as a killed checkout leaves them: some new, one cut short, one not there."""
    before = stack.snapshot()
    interrupted(stack, monkeypatch, "apply", "--to", "first")
    new = git(stack.layout.store, "show", "refs/heads/up~2:a.txt") + "\n"
    (stack.tree() / "a.txt").write_text(new[:100])
    (stack.tree() / "b.txt").unlink()
    stack.ok("undo", "--pending")
    assert stack.snapshot() == before


def test_what_a_person_did_meanwhile_is_kept(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(stack, monkeypatch, "drop", "first")
    edit(stack.tree() / "a.txt", 20, b"mine\n")
    for verb in ("apply", "undo", "fetch", "check"):
        said = stack.fails(1, verb)
        assert "was edited after a command was interrupted" in said
        assert "`patchq undo --pending`" in said
    said = stack.fails(1, "undo", "--pending")
    assert "a.txt was edited" in said
    assert b"mine\n" in (stack.tree() / "a.txt").read_bytes()
    (stack.tree() / "a.txt").rename(stack.root / "mine.txt")
    stack.ok("undo", "--pending")
    assert "up to date" in stack.ok("apply")
    assert stack.patch_file("first").exists()


def test_a_patch_file_that_a_person_edited_meanwhile_is_kept(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(stack, monkeypatch, "drop", "first")
    path = stack.layout.stack("up", "v1") / "series"
    path.write_bytes(path.read_bytes() + b"# mine\n")
    assert "`patchq undo --pending`" in stack.fails(1, "apply")
    said = stack.ok("undo", "--pending")
    assert "patches/up/v1/series was edited after that command, and is kept" in said
    assert path.read_bytes().endswith(b"# mine\n")
    stack.ok("apply")


def test_killed_while_giving_up(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on backwards, whichever command comes next."""
    before = stack.snapshot()
    interrupted(stack, monkeypatch, "drop", "first", at="end")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Worktree, "resume", die)
        patch.setattr(Worktree, "adopt", die)
        assert stack.run("undo", "--pending").exit_code == 130
    stack.ok("apply")
    assert stack.snapshot() == before


def test_nothing_is_pending(stack: Patchq) -> None:
    before = stack.snapshot()
    assert "no command is pending" in stack.fails(1, "undo", "--pending")
    assert stack.snapshot() == before


def test_a_pending_change_that_git_will_never_write_out(stack: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a patchq from before left it: all verbs failed for good, even when the patch was gone."""
    head = git(stack.tree(), "rev-parse", "HEAD")
    odd = odd_commit(stack.layout.store, head, ".gitmodules")
    before = stack.snapshot()
    pending(stack).parent.mkdir(exist_ok=True)
    pending(stack).write_bytes(fsio.dump_json({
        "version": 1, "verb": "apply", "summary": "apply up", "time": "2026-01-02T03:04:05Z", "files": {},
        "refs": [["refs/heads/up", head, odd]], "trees": [["up", head, odd, False]], "undoes": "",
    }))  # fmt: skip
    for verb in ("apply", "undo", "fetch", "check"):
        assert "`patchq undo --pending`" in stack.fails(1, verb)
    stack.ok("undo", "--pending")
    assert stack.snapshot() == before
    commit_files(stack.tree(), {"new.txt": b"x\n"}, "More\n\nWhy.")
    stack.ok("export", "up")
