"""A patch dropped or moved: what is merged and written again gives the very trees that merging each patch gives."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from extent import LONG
from kit import git
from patchq.errors import ConflictError
from patchq.git.replay import pick
from patchq.git.repository import Git, init_store
from patchq.names import CommitId, TreeId
from patchq.stacks import _reorder as reordering
from patchq.stacks._reorder import reorder
from patchq.stacks.reconcile import ReconciledEntry


def lines(*words: object) -> str:
    return "".join(f"{word}\n" for word in words)


def some_change(folder: Path, choose: random.Random) -> None:
    """An edit, an addition, a removal, a rename of a file or a folder, or a file where a folder was."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and ".git" not in p.parts)
    kind = choose.choice(["edit"] * 6 + ["add", "add", "remove", "rename", "folder", "mode", "instead"])
    one = choose.choice(files) if files else None
    if kind == "edit" and one:
        text = one.read_text().splitlines()
        at = choose.randrange(len(text)) if text else 0
        text[at : at + 1] = [f"{choose.random()}"] * choose.randrange(1, 3)
        one.write_text(lines(*text))
    elif kind == "remove" and one and len(files) > 2:
        one.unlink()
    elif kind == "rename" and one:
        to = folder / choose.choice("abc") / f"n{choose.randrange(99)}"
        if not to.exists() and not any(p.is_file() for p in to.parents if p != folder):
            to.parent.mkdir(exist_ok=True)
            one.rename(to)
    elif kind == "folder":
        old, new = folder / choose.choice("abc"), folder / choose.choice("defg")
        if old.is_dir() and not new.exists():
            old.rename(new)
    elif kind == "mode" and one:
        one.chmod(choose.choice([0o755, 0o644]))
    elif kind == "instead" and one and one.parent != folder:
        shutil.rmtree(one.parent)
        one.parent.write_text(lines(*range(5)))
    else:
        place = folder / choose.choice("abcd")
        if place.is_dir() or not place.exists():
            place.mkdir(exist_ok=True)
            (place / f"f{choose.randrange(9)}").write_text(lines(*(choose.random() for _ in range(9))))


def make_stack(folder: Path, choose: random.Random, count: int) -> tuple[Git, CommitId, list[ReconciledEntry]]:
    work = folder / "work"
    work.mkdir()
    git(work, "init", "-q")
    for name in "abc":
        (work / name).mkdir()
        for number in range(3):
            (work / name / f"f{number}").write_text(lines(*(f"{name}{number}{n}" for n in range(12))))
    git(work, "add", "-A")
    git(work, "commit", "-qm", "base")
    for number in range(count):
        some_change(work, choose)
        git(work, "add", "-A")
        git(work, "commit", "-q", "--allow-empty", "-m", f"p{number}\n\nWhy.")
    store = init_store(folder / "store.git")
    git(folder, "-C", str(store.folder), "fetch", "-q", str(work), "HEAD:refs/heads/all")
    commits = store.log("refs/heads/all")
    return store, commits[0].commit, [ReconciledEntry(f"p{n}", c) for n, c in enumerate(commits[1:])]


def one_by_one(
    store: Git, base: CommitId, before: list[ReconciledEntry], after: list[ReconciledEntry]
) -> list[TreeId] | None:
    """Each patch merged onto the one before it; None where one conflicts."""
    onto = store.tree_of([base])[0]
    trees = {base: onto} | {e.commit.commit: e.commit.tree for e in before}
    found = []
    try:
        for entry in after:
            onto = pick(store, "up", entry.name, trees[entry.commit.parents[0]], entry.commit.tree, onto)
            found.append(onto)
    except ConflictError:
        return None
    return found


@pytest.mark.parametrize("seed", range(25 if LONG else 10))
def test_the_same_trees_as_one_by_one(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reordering, "_FEW", 8 if seed % 3 == 0 else 1)
    choose = random.Random(seed)
    store, base, before = make_stack(tmp_path, choose, 12)
    for _ in range(6):
        number = choose.randrange(len(before))
        rest = [e for n, e in enumerate(before) if n != number]
        after = rest
        if choose.random() < 0.6:
            at = choose.randrange(len(before))
            after = [*rest[:at], before[number], *rest[at:]]
        wanted = one_by_one(store, base, before, after)
        try:
            done, same = reorder(store, "up", base, before, after, before[number].name)
        except ConflictError:
            assert wanted is None
            continue
        assert wanted == [e.commit.tree for e in done]
        assert [e.name for e in done] == [e.name for e in after]
        parents = [base, *(e.commit.commit for e in done)]
        log = store.log(f"{base}..{done[-1].commit.commit}")
        assert [c.parents for c in log] == [(p,) for p in parents[:-1]]
        old = {e.name: store.changes_of([e.commit.commit])[0] for e in before}
        for entry in done:
            now = store.changes_of([entry.commit.commit])[0]
            assert entry.name not in same or now == old[entry.name], "its file is kept, so its diff must be what it was"
