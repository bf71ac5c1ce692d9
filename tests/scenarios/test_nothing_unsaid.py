"""What a verb doesn't take is named: text around a diff, unlisted patches, ignored files, comments, modes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, numbered, release, with_lines


@pytest.fixture
def mail(upstream: Path) -> bytes:
    """A mail that changes two files; the second has a mode change as well."""
    text = numbered(40).replace(b"line 8\n", b"line eight\n").replace(b"line 33\n", b"line thirty\n")
    git(upstream, "checkout", "-q", "v1")
    (upstream / "pkg" / "mod.py").chmod(0o755)
    commit_files(upstream, {"b.txt": text}, "Spell eight\n\nWhy.")
    return (git(upstream, "format-patch", "-1", "--stdout") + "\n").encode()


def names(patchq: Patchq) -> list[str]:
    return [line.split()[0] for line in patchq.ok("list").splitlines() if line.startswith("  ")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\n---\n", b"\n---\nChanged since v1.\n\n"),
        (b"\n-- \n", b"\nChanged since v1.\n\n-- \n"),
        (b"\n-- \n", b"\n-- \nChanged since v1.\n"),
    ],
)
def test_text_around_a_diff_is_named(patchq: Patchq, mail: bytes, tmp_path: Path, old: bytes, new: bytes) -> None:
    assert old in mail
    (tmp_path / "m.eml").write_bytes(mail)
    assert "left out" not in patchq.ok("import", "up", str(tmp_path / "m.eml"))
    patchq.ok("undo")
    (tmp_path / "m.eml").write_bytes(mail.replace(old, new, 1))
    output = patchq.ok("import", "up", str(tmp_path / "m.eml"))
    assert "m.eml: left out, because it isn't part of the diff: 'Changed since v1.'" in re.sub(
        r" \(mail 1\)", "", output
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\n@@ -30", b"\n> @@ -30"),
        (b"\nold mode 100644\nnew mode 100755\n", b"\nold mode\n 100644\nnew mode\n 100755\n"),
        (b"\ndiff --git a/pkg", b"\n diff --git a/pkg"),
    ],
)
@pytest.mark.parametrize("plain", [False, True], ids=["mail", "diff"])
def test_a_damaged_part_of_a_diff_is_refused(
    patchq: Patchq, mail: bytes, tmp_path: Path, old: bytes, new: bytes, plain: bool
) -> None:
    assert old in mail
    text = mail.replace(old, new, 1)
    (tmp_path / "m.eml").write_bytes(text[text.index(b"diff --git") :] if plain else text)
    output = patchq.run("import", "up", str(tmp_path / "m.eml"), "--author", "me")
    assert output.exit_code in (1, 3)
    assert "m.eml" in output.output
    assert not patchq.patch_file("m").exists()


def test_a_damaged_binary_patch_is_refused(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    """git stops reading there, applies what stands above it, and exits with 0."""
    commit_files(upstream, {"a.txt": with_lines({8: b"eight\n"}), "x.bin": bytes(range(256)) * 4}, "One")
    commit_files(upstream, {"a.txt": with_lines({9: b"nine\n"}), "x.bin": bytes(range(256)) * 4 + b"x"}, "Two")
    box = git(upstream, "format-patch", "-2", "--stdout", "--binary") + "\n"
    (tmp_path / "box").write_text(box)
    patchq.ok("import", "up", str(tmp_path / "box"))
    patchq.ok("undo")
    head, _, rest = box.rpartition("\n\ndelta ")
    assert rest
    (tmp_path / "box").write_text(f"{head}\n  \ndelta {rest}")
    assert "corrupt binary patch" in patchq.fails(1, "import", "up", str(tmp_path / "box"))


def test_a_symlink_that_was_cut_short_is_refused(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    patchq.ok("apply")
    (upstream / "b.txt").unlink()
    (upstream / "b.txt").symlink_to("a.txt")
    git(upstream, "commit", "-qam", "Link it")
    mail = git(upstream, "format-patch", "-1", "--stdout")
    (tmp_path / "m.eml").write_text(mail[: mail.index("--- /dev/null\n+++ b/b.txt")])
    before = patchq.snapshot()
    assert "b.txt is a symlink without a target" in patchq.fails(1, "import", "up", str(tmp_path / "m.eml"))
    assert patchq.snapshot() == before


def test_apply_refuses_a_damaged_hunk_below_a_quoted_name(stack: Patchq) -> None:
    """git itself reads such a patch, and would make an empty file of it."""
    (stack.tree() / "ü.txt").write_text("one\n")
    stack.ok("new", "up", "quoted", "-m", "Quoted\n\nWhy.")
    path = stack.patch_file("quoted")
    text = path.read_bytes()
    assert b"\n@@ -0,0" in text
    path.write_bytes(text.replace(b"\n@@ -0,0", b"\n\t@@ -0,0"))
    assert "quoted.patch" in stack.fails(1, "apply")


def test_a_new_file_keeps_its_folder(stack: Patchq) -> None:
    """A fixup below the patch that moved a file there: git takes that for a folder that moved back."""
    tree = stack.tree()
    (tree / "moved").mkdir()
    (tree / "run.sh").rename(tree / "moved" / "run.sh")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "fixup! Change b.txt at 10")
    (tree / "moved" / "new.txt").write_text("new\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "fixup! Change a.txt at 5")
    stack.ok("export", "up")
    assert (tree / "moved" / "new.txt").read_text() == "new\n"
    assert b"+++ b/moved/new.txt" in stack.patch_file("first").read_bytes()


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[: text.index(b"GIT binary patch")], lambda text: text.replace(b"GIT bin", b"\nGIT bin", 1)],
    ids=["cut", "blank line"],
)
@pytest.mark.parametrize("verb", ["apply", "import"])
def test_a_header_without_its_change_is_refused(stack: Patchq, tmp_path: Path, damage: object, verb: str) -> None:
    assert callable(damage)
    (stack.tree() / "x.bin").write_bytes(bytes(range(256)) * 4)
    stack.ok("new", "up", "binary", "-m", "Binary\n\nWhy.")
    (stack.tree() / "x.bin").write_bytes(bytes(range(256)) * 4 + b"x")
    edit(stack.tree() / "b.txt", 30)
    stack.ok("new", "up", "more", "-m", "More\n\nWhy.")
    text = damage(stack.patch_file("more").read_bytes())
    stack.ok("drop", "more")
    if verb == "import":
        (tmp_path / "more.patch").write_bytes(text)
        assert "more.patch" in stack.fails(1, "import", "up", str(tmp_path / "more.patch"))
        return
    stack.patch_file("more").write_bytes(text)
    series = stack.layout.stack("up", "v1") / "series"
    series.write_text(series.read_text() + "more.patch\n")
    assert "more.patch" in stack.fails(1, "apply")


@pytest.mark.parametrize("name", ["series", ".patches"])
def test_an_unlisted_patch_is_named(patchq: Patchq, mail: bytes, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "patches"
    folder.mkdir()
    (folder / "one.patch").write_bytes(mail)
    (folder / "other.patch").write_bytes(mail)
    (folder / name).write_text("one.patch\n# other.patch\n")
    output = patchq.ok("import", "up", str(folder))
    assert f"other.patch is not listed in {name}: left out" in output
    assert patchq.patch_file("one").exists()
    assert not patchq.patch_file("other").exists()


@pytest.mark.parametrize(
    "words", [("apply",), ("build",), ("list",), ("export", "up"), ("new", "up", "more", "-m", "More\n\nWhy.")]
)
def test_a_stack_without_its_series_is_not_empty(stack: Patchq, words: tuple[str, ...]) -> None:
    path = stack.layout.stack("up", "v1") / "series"
    path.unlink()
    edit(stack.tree() / "b.txt", 30)
    output = stack.fails(1, *words)
    assert f"{path} doesn't exist, but its folder has first.patch, second.patch, third.patch" in output
    assert f"`git checkout -- {path}` restores the series" in output
    assert not path.exists()


def test_check_reports_a_missing_series(stack: Patchq) -> None:
    path = stack.layout.stack("up", "v1") / "series"
    path.unlink()
    output = stack.fails(1, "check")
    assert f"{path} doesn't exist" in output
    assert f"`git checkout -- {path}` restores the series" in output
    for name in ("first", "second", "third"):
        stack.patch_file(name).unlink()
    stack.ok("check")
    stack.ok("apply")


def test_a_comment_outlives_its_patch(stack: Patchq) -> None:
    path = stack.layout.stack("up", "v1") / "series"
    path.write_text("# attention\nfirst.patch # keep an eye on it\n# moe\nsecond.patch\nthird.patch\n")
    stack.ok("drop", "first")
    assert path.read_text() == "# attention\n# keep an eye on it\n# moe\nsecond.patch\nthird.patch\n"


@pytest.fixture
def stopped(stack: Patchq, upstream: Path) -> Path:
    """The worktree of a rebase that has stopped and is resolved."""
    release(upstream, "v2", {"a.txt": with_lines({5: b"otherwise\n"}), ".gitignore": b"*.log\n"})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    folder = stack.layout.tree("up@v2")
    (folder / "a.txt").write_bytes(with_lines({5: b"otherwise, changed\n"}))
    return folder


@pytest.mark.parametrize("verb", [("rebase", "up", "--continue"), ("resolve", "up"), ("rebase", "up", "--abort")])
def test_ignored_files_of_a_conflict_are_kept(stack: Patchq, stopped: Path, verb: tuple[str, ...]) -> None:
    (stopped / "notes.log").write_text("precious\n")
    (stopped / "pkg" / "__pycache__").mkdir()
    (stopped / "pkg" / "__pycache__" / "x.log").write_text("a cache\n")
    output = stack.ok(*verb)
    kept = output.partition("ignored files are kept as the commit ")[2].split(":")[0]
    assert git(stack.layout.store, "show", f"{kept}:notes.log") == "precious"
    assert "__pycache__" not in output
    assert not stopped.exists()


def test_a_commit_in_a_conflict_is_named(stack: Patchq, stopped: Path) -> None:
    git(stopped, "commit", "-qam", "Resolve it\n\nBecause of this.")
    head = git(stopped, "rev-parse", "HEAD")
    output = stack.ok("rebase", "up", "--continue")
    assert f"the patch keeps its own message; your commits and their messages are kept as the commit {head}" in output
    assert head in git(stack.layout.store, "for-each-ref")


def test_a_binary_file_of_upstreams_is_dropped_by_name(empty: Patchq, upstream: Path) -> None:
    """git can't be asked for the commit of a line with a NUL byte."""
    commit_files(upstream, {"x.bin": b"\0base\n"}, "Binary")
    git(upstream, "tag", "-f", "v1")
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    empty.ok("apply")
    (empty.tree() / "x.bin").write_bytes(b"\0ours\n")
    edit(empty.tree() / "a.txt", 5)
    empty.ok("new", "up", "fix", "-m", "Fix\n\nWhy.")
    release(upstream, "v2", {"x.bin": b"\0theirs\n"})
    empty.fails(3, "rebase", "up", "--onto", "v2")
    (empty.layout.tree("up@v2") / "x.bin").write_bytes(b"\0both\n")
    assert "x.bin:1" in empty.fails(1, "rebase", "up", "--continue")
    empty.ok("rebase", "up", "--continue", "--drop-upstream-line", "x.bin")
