"""Carry against git's ort: no landing that is not git's, unless patchq stopped; see ``carrying.py``."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import carrying
import histories
import odd_histories
from extent import LONG, record
from kit import git
from patchq.git.mergetree import merges_trees
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git, scratch
from patchq.merge.patches import STOPS, read_patches, write_commits
from patchq.merge.threeway import carry
from patchq.names import CommitId

#: A real one, of `long_form.py --history`.
REAL = os.environ.get("PATCHQ_RELIABILITY_HISTORY", "")
#: Program of git 2.50 or newer, from `.ci/newer-git`.
NEWER = os.environ.get("PATCHQ_NEWER_GIT", "")


def _tell(history: str, found: tuple[carrying.Tally, carrying.Tally]) -> None:
    for what, tally in zip(("commits", "stacks of six"), found, strict=True):
        assert not tally.wrong, f"{what} of {history}: {tally}\n" + "\n".join(tally.wrong)
        landed = sum(n for outcome, n in tally.outcomes.items() if outcome not in STOPS)
        record(
            "carried", history=history, what=what, tried=tally.tried, landed=landed,
            moved=tally.outcomes["offset"], alone=len(tally.alone),
        )  # fmt: skip
        assert landed, f"nothing of {what} landed: there is nothing to compare"


@pytest.mark.skipif(not NEWER, reason="PATCHQ_NEWER_GIT names no git 2.50 or newer: .ci/newer-git FOLDER installs one")
@pytest.mark.parametrize("seed", range(1, 9 if LONG else 2))
def test_a_newer_git_gives_the_same_trees(tmp_path: Path, seed: int) -> None:
    with carrying.use_git(NEWER):
        assert merges_trees(), f"{NEWER} is older than git 2.50"
    assert not merges_trees(), "the git on the PATH is as new: there is nothing to compare"
    history = Git(histories.make(tmp_path / "history", seed, 200 if LONG else 60) / ".git")
    pairs, stacks = (250, 38) if LONG else (60, 4)
    found, differ = carrying.compare_gits(history, NEWER, pairs, stacks, seed, near=True)
    assert not differ, "\n".join(differ)
    assert not any(tally.wrong for tally in found)
    compared = sum(tally.tried for tally in found)
    record("newer_git", seed=seed, pairs=found[0].tried, stacks=stacks, patches=compared)
    assert compared > pairs


@pytest.mark.parametrize("seed", range(1, 9 if LONG else 3))
def test_a_commit_lands_as_git_merges_it(tmp_path: Path, seed: int) -> None:
    history = Git(histories.make(tmp_path / "history", seed, 200 if LONG else 60) / ".git")
    pairs, stacks = (500, 16) if LONG else (60, 4)
    found = carrying.sample(history, pairs, stacks, seed, near=True)
    assert not any(tally.lost for tally in found)
    _tell(f"made, number {seed}", found)


def test_odd_edits_land_as_git_merges_them() -> None:
    """Modes, links, submodules, folders that move or become files, blocks that repeat; see ``odd_histories.py``."""
    tally = carrying.Tally()
    for seed in range(1, 400 if LONG else 13):
        odd_histories.compare(seed, tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    landed = sum(n for outcome, n in tally.outcomes.items() if outcome not in STOPS)
    record(
        "carried", history="made, of odd edits", what="stacks of up to five", tried=tally.tried, landed=landed,
        moved=tally.outcomes["offset"], alone=len(tally.alone),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("there", "outcome", "path"),
    [(None, "merged", "lib/new.c"), (b"new\n", "absorbed", ""), (b"upstream's own\n", "conflict", "lib/new.c")],
    ids=["nothing there", "the same file there", "another file there"],
)
def test_a_new_file_follows_its_folder(tmp_path: Path, there: bytes | None, outcome: str, path: str) -> None:
    """As git has it: where upstream put a file of that name into the renamed folder, both are merged."""
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path], check=True)
    lines = {name: (odd_histories.PLAIN, f"{name}\n".encode() * 30) for name in ("one.c", "two.c")}
    new = (odd_histories.PLAIN, b"new\n")
    base = {f"old/{name}": file for name, file in lines.items()}
    renamed = {f"lib/{name}": file for name, file in lines.items()}
    target = {**renamed, "lib/new.c": (odd_histories.PLAIN, there)} if there else renamed
    ids = odd_histories.written(tmp_path, [(base, 0), ({**base, "old/new.c": new}, 1), (target, 1)])
    repository = Git(tmp_path)
    patches = read_patches(repository, [("new", repository.log("--no-walk", ids[1])[0])])
    (column,) = carry(repository, patches, [CommitId(ids[2])], CommitId(ids[0]))
    landing = column.landings[0]
    assert landing.outcome == outcome
    found = [f.path for f in landing.files] if outcome == "conflict" else [c.path.decode() for c in landing.changes]
    assert found == ([path] if path else [])


def test_a_new_file_at_the_old_path_of_a_renamed_one_is_kept(tmp_path: Path) -> None:
    """The stack renames a file, as upstream does, and later adds a copy of it at the old path."""
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path], check=True)
    text = b"".join(b"line %d\n" % n for n in range(30))
    before, renamed = {"old/a.c": (odd_histories.PLAIN, text)}, {"new/b.c": (odd_histories.PLAIN, text)}
    again = {"new/b.c": (odd_histories.PLAIN, text + b"more\n"), "old/a.c": (odd_histories.PLAIN, text)}
    ids = odd_histories.written(tmp_path, [(before, 0), (renamed, 1), (again, 2), (renamed, 1)])
    repository = Git(tmp_path)
    infos = [repository.log("--no-walk", commit)[0] for commit in ids[1:3]]
    patches = read_patches(repository, [("rename", infos[0]), ("copy", infos[1])])
    (column,) = carry(repository, patches, [CommitId(ids[3])], CommitId(ids[0]))
    assert [column.landings[n].outcome for n in (0, 1)] == ["absorbed", "merged"]
    assert {c.path for c in column.landings[1].changes} == {b"new/b.c", b"old/a.c"}


def test_a_new_file_stops_where_its_folder_was_split(tmp_path: Path) -> None:
    """Half of the folder's files went to one place, half to another: git can't tell where a new one belongs."""
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path], check=True)
    lines = {name: (odd_histories.PLAIN, f"{name}\n".encode() * 30) for name in ("1.c", "2.c", "3.c", "4.c")}
    base = {f"old/{name}": file for name, file in lines.items()}
    split = {f"{'one' if name < '3' else 'two'}/{name}": file for name, file in lines.items()}
    patched = {**base, "old/new.c": (odd_histories.PLAIN, b"new\n")}
    ids = odd_histories.written(tmp_path, [(base, 0), (patched, 1), (split, 1)])
    repository = Git(tmp_path)
    patches = read_patches(repository, [("new", repository.log("--no-walk", ids[1])[0])])
    (column,) = carry(repository, patches, [CommitId(ids[2])], CommitId(ids[0]))
    assert column.landings[0].outcome == "conflict"


@pytest.mark.skipif(not REAL, reason="needs a real history: long_form.py --history FOLDER")
@pytest.mark.parametrize("near", [False, True], ids=["any tag", "near tags"])
def test_a_real_commit_lands_as_git_merges_it(near: bool) -> None:
    found = carrying.sample(Git(Path(REAL)), 2000, 64, 1, near=near)
    _tell("real, onto tags near by" if near else "real, onto any tag", found)


@pytest.mark.parametrize("seed", range(16 if LONG else 3))
def test_a_stack_that_is_through_is_what_git_rebase_makes(tmp_path: Path, seed: int) -> None:
    """With git's own rebase, in a clone; where both finish, the trees are one."""
    folder = histories.make(tmp_path / "history", 100 + seed, 60)
    history, chance = Git(folder / ".git"), random.Random(seed)
    line = git(folder, "rev-list", "--first-parent", "--reverse", "main").split()
    tags = git(folder, "tag").split()
    same = 0
    for _ in range(24):
        if same == 2 and not LONG:
            break
        at = chance.randrange(1, len(line) - 3)
        # Tags near by, where more of them finish.
        near = sorted(tags, key=lambda tag: abs(int(tag[1:].partition(".")[0]) - at))
        tag = chance.choice(near[:4])
        commits = line[at : at + 3]
        target = CommitId(git(folder, "rev-parse", f"{tag}^{{commit}}"))
        infos = [history.log("--no-walk", c)[0] for c in commits]
        patches = read_patches(history, [(i.commit, i) for i in infos])
        (column,) = carry(history, patches, [target], infos[0].parents[0])
        landings = [column.landings[n] for n in range(len(patches))]
        if any(landing.outcome in STOPS for landing in landings):
            continue
        with scratch(history) as own:
            steps = [(p.commit, landing.changes) for p, landing in zip(patches, landings, strict=True)]
            tree = own.tree_of([write_commits(own, target, steps, column.contents)[-1]])[0]
        git(folder, "checkout", "-q", "-f", "--detach", commits[-1])
        rebase = ["git", "rebase", "-q", "--onto", target, infos[0].parents[0]]
        done = subprocess.run(rebase, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{commits} onto {tag} is through, and git stops: {done.stderr}"
        assert git(folder, "rev-parse", "HEAD^{tree}") == tree, f"{commits} onto {tag}"
        same += 1
    assert same, "no stack was through: there is nothing to compare"
    record("rebased", seed=seed, same=same)


def _text(chance: random.Random) -> list[bytes]:
    words = chance.choice(
        ([b"a", b"b", b""], [b"a", b"b", b"c", b"d", b"e", b"", b"}"], [b"%d" % n for n in range(200)])
    )
    end = b"\r\n" if chance.random() < 0.1 else b"\n"
    return [chance.choice(words) + end for _ in range(chance.choice((0, 1, 2, 5, 12, 30, 60)))]


def _edited(chance: random.Random, text: list[bytes], times: int) -> list[bytes]:
    """Lines put in, taken out, replaced; a block moved or doubled; the last newline there or not."""
    lines = list(text)
    for _ in range(times):
        at = chance.randrange(len(lines) + 1)
        end = min(len(lines), at + chance.choice((0, 1, 1, 2, 4, 9)))
        kind = chance.randrange(6)
        if kind < 3:
            lines[at:end] = _text(chance)[: chance.choice((0, 1, 1, 2, 5))]
        elif kind == 3:
            block = lines[at:end]
            del lines[at:end]
            to = chance.randrange(len(lines) + 1)
            lines[to:to] = block
        elif kind == 4:
            to = chance.randrange(len(lines) + 1)
            lines[to:to] = lines[at:end]
        elif lines:
            lines[-1] = lines[-1].removesuffix(b"\n") if chance.random() < 0.5 else lines[-1].rstrip(b"\n") + b"\n"
    return [line if line.endswith(b"\n") else line + b"\n" for line in lines[:-1]] + lines[-1:]


def _chain(repository: Git, layers: list[dict[str, bytes]]) -> tuple[str, list[tuple[str, int, CommitInfo]]]:
    """A commit with the first layer, and on it one for each file that a layer changes; with the file and the layer."""
    parts, wanted = [], []
    mark = 0

    def commit(files: dict[str, bytes]) -> None:
        nonlocal mark
        mark += 1
        parts.append(b"commit refs/heads/chain\nmark :%d\ncommitter n <n@n> %d +0000\ndata 2\nx\n" % (mark, 946684800))
        parts.append(b"from :%d\n" % (mark - 1) if mark > 1 else b"")
        for path, data in files.items():
            parts.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data))

    commit(layers[0])
    for number, (before, after) in enumerate(pairwise(layers), 1):
        for name in after:
            if before[name] != after[name]:
                commit({name: after[name]})
                wanted.append((name, number))
    argv = ["git", "fast-import", "--quiet", "--force"]
    subprocess.run(argv, cwd=repository.folder, input=b"".join(parts), check=True)
    root = repository.line("rev-list", "--max-parents=0", "refs/heads/chain")
    infos = repository.log(f"{root}..refs/heads/chain")
    return root, [(name, number, info) for (name, number), info in zip(wanted, infos, strict=True)]


@pytest.mark.parametrize("seed", range(24 if LONG else 3))
def test_texts_of_few_words(seed: int) -> None:
    """Each file is a case of its own: what it was, what upstream made of it, and three patches in a row."""
    chance = random.Random(seed)
    names = [f"f{n:03}" for n in range(300)]
    texts = [{name: _text(chance) for name in names}]
    for _ in range(3):
        texts.append({n: _edited(chance, t, chance.choice((0, 1, 1, 2))) for n, t in texts[-1].items()})
    # Upstream's own way, or on from where one of the patches was.
    starts = {name: texts[chance.choice((0, 0, 0, 1, 2, 3))][name] for name in names}
    upstream = {n: b"".join(_edited(chance, t, chance.choice((0, 1, 2, 3)))) for n, t in starts.items()}
    layers = [{n: b"".join(t) for n, t in layer.items()} for layer in texts]
    with scratch() as repository:
        root, steps = _chain(repository, layers)
        target, _ = _chain(repository, [upstream])
        patches = read_patches(repository, [(f"{name} {number}", info) for name, number, info in steps])
        (column,) = carry(repository, patches, [CommitId(target)], CommitId(root))
        landed = {(name, number): column.landings[n] for n, (name, number, _) in enumerate(steps)}
        now, outcomes = dict(upstream), Counter(landing.outcome for landing in landed.values())
        for number in range(1, 4):
            base, ours = _chain(repository, [layers[number - 1]])[0], _chain(repository, [now])[0]
            trees = repository.tree_of([base, ours, _chain(repository, [layers[number]])[0]])
            ids = carrying.import_trees(repository, [(trees[0], 0), (trees[1], 1), (trees[2], 1)])
            (merge,) = repository.merge([(CommitId(ids[1]), CommitId(ids[2]))])
            conflicts = {stage.path.decode() for stage in merge.stages}
            entries = repository.list_tree(merge.tree)
            contents = repository.read_blobs(entry.blob for entry in entries.values())
            for name in names:
                landing = landed.get((name, number))
                if landing is None or landing.outcome in STOPS:
                    continue
                where = f"{name}, patch {number}, {landing.outcome}: {layers[number - 1][name]!r} to {layers[number][name]!r}"
                assert name not in conflicts, f"{where} onto {now[name]!r}: git stops"
                expected = contents[entries[name.encode()].blob]
                found = column.content(landing.changes[0].new.blob) if landing.changes else now[name]
                assert found == expected, f"{where} onto {now[name]!r}: {found!r}, and not {expected!r}"
                now[name] = expected
    assert {"clean", "offset", "merged", "absorbed", "conflict"} <= outcomes.keys()
    record("texts", seed=seed, **outcomes)
