"""What is written or compared in bulk: the same as one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_reorder import make_stack

from patchq.formats.header import Ident
from patchq.git import command
from patchq.git.command import Outside, author_ident, is_plain
from patchq.git.fastimport import commit_trees
from patchq.git.merges import MergeObjects
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git, init_store, scratch
from patchq.stacks.export import PatchNames


def test_changes_between_many_trees(tmp_path: Path) -> None:
    """With files that come and go, names with newlines and quotes, and pairs that don't differ."""
    store, base, entries = make_stack(tmp_path, random.Random(5), 20)
    odd = store.run("hash-object", "-w", "--stdin", data=b"x\n").strip()
    for name in (b"a\nb", b'"q"', b":x"):
        listed = store.run("ls-tree", "-z", entries[-1].commit.tree) + b"100644 blob %s\t%s\0" % (odd, name)
        tree = store.run("mktree", "-z", data=listed).decode().strip()
        commit = store.commit_tree(tree, [entries[-1].commit.commit], entries[-1].commit.author, "odd\n")
        entries.append(type(entries[0])("odd", store.log(f"{entries[-1].commit.commit}..{commit}")[0]))
    trees = [store.tree_of([base])[0], *(e.commit.tree for e in entries)]
    pairs = [(one, two) for one in trees[::3] for two in trees]
    assert store.changes_between(pairs) == [store.changes(one, two) for one, two in pairs]
    assert store.changes_between([]) == []


IDENTS = [
    Ident("A B", "a@example.org", 1767323045, "+0100"), Ident("Größe", "a@example.org", 0, "+0000"),
    Ident("A B", "a@example.org", 1 << 35, "-1130"), Ident("A B.", "a@example.org", 5, "+0100"),
    Ident("A B", "a@example.org", 5, "-0000"), Ident("A (x)", "a+b@example.org", 5, "+0530"),
    Ident("A B", "a", 5, "+0059"), Ident("A B", "a@example.org", 5, "+1459"),
]  # fmt: skip


@pytest.mark.parametrize("ident", IDENTS, ids=str)
def test_a_plain_author_is_as_git_writes_it(tmp_path: Path, ident: Ident, monkeypatch: pytest.MonkeyPatch) -> None:
    date = f"@{ident.when} {ident.zone}"
    found = author_ident(Outside(tmp_path), ident.name, ident.email, date)
    monkeypatch.setattr(command, "is_plain", lambda author: False)
    assert found == author_ident(Outside(tmp_path), ident.name, ident.email, date)


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("odd", [False, True])
def test_commits_have_the_ids_of_commit_tree(tmp_path: Path, count: int, odd: bool) -> None:
    store = init_store(tmp_path / "store.git")
    empty = store.run("mktree", data=b"").decode().strip()
    who = IDENTS[3] if odd else IDENTS[0]
    assert is_plain(who) != odd
    base = store.commit_tree(empty, (), who, "base\n")
    blob = store.run("hash-object", "-w", "--stdin", data=b"x\n").decode().strip()
    made = []
    for number in range(count):
        tree = store.run("mktree", data=f"100644 blob {blob}\tf{number % 7}\n".encode()).decode().strip()
        made.append((tree, who, f"Change {number}\n\nGröße.\n"))
    wanted, tip = [], base
    for tree, author, message in made:
        tip = store.commit_tree(tree, [tip], author, message)
        wanted.append(tip)
    assert commit_trees(store, base, made) == wanted  # type: ignore[arg-type]


def test_free_names() -> None:
    names = PatchNames(["a", "B", "a-3"])
    assert [names.take(name) for name in ("a", "a", "b", "A", "c", "a-2", "a")] == [
        "a-2", "a-4", "b-2", "A-5", "c", "a-2-2", "a-6",
    ]  # fmt: skip


def test_objects_of_a_scratch_repository_are_those_of_fast_import(tmp_path: Path) -> None:
    """The commits have the same ids, and git makes the same index of the pack."""
    rng = random.Random(3)
    sides = []
    for number in range(60):
        files = {}
        for _ in range(rng.randrange(6)):
            path = rng.choice([b"%05d", b"a/%d", b"a.b/%d/x", b"a-b%d", b"a/b/c%d", b"\xff\n%d"]) % number
            content = rng.randbytes(rng.choice([0, 1, 15, 16, 2047, 2048, 70_000]))
            files[path] = (rng.choice([b"100644", b"100755", b"120000"]), content)
        sides.append((files, rng.randrange(number + 1)))

    def write(git: Git) -> tuple[list[str], str]:
        with MergeObjects(git, set()) as objects:
            marks = [0]
            for files, parent in sides:
                entries = {path: TreeEntry(mode, objects.blob(content)) for path, (mode, content) in files.items()}
                marks.append(objects.commit("", entries, parent=marks[parent]))
            first = objects.commit("", {b"f": TreeEntry(b"100644", objects.blob(b"x\n"))})
        ids = [objects.id(mark) for mark in marks[1:]]
        (tree,) = git.tree_of([objects.id(first)])
        with MergeObjects(git, set()) as objects:
            base = objects.commit(tree)
            edited = objects.commit(tree, {b"a/b": TreeEntry(b"100644", objects.blob(b"y\n")), b"f": None}, parent=base)
        return ids, objects.id(edited)

    with scratch() as git:
        found = write(git)
        assert b"missing" not in git.run("cat-file", "--batch-check", data="\n".join(found[0]).encode())
        git.run("fsck", "--full", "--strict")
        packs = sorted((git.folder / "objects" / "pack").glob("*.pack"))
        assert len(packs) == 3  # of both blocks, and of the edited tree
        for pack in packs:
            git.run("index-pack", "-o", str(tmp_path / "index"), str(pack))
            assert (tmp_path / "index").read_bytes() == pack.with_suffix(".idx").read_bytes()
            (tmp_path / "index").unlink()
    assert found == write(init_store(tmp_path / "store.git"))
