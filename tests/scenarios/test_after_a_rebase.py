"""What follows a rebase: the new set becomes the default, what it replaces goes, and stacks are published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, numbered


def release(upstream: Path, *tags: str) -> None:
    for tag in tags:
        commit_files(upstream, {"new.txt": tag.encode()}, tag)
        git(upstream, "tag", tag)


def keep(patchq: Patchq) -> None:
    """Commit the project."""
    if not (patchq.root / ".git").exists():
        git(patchq.root, "init", "-q")
    git(patchq.root, "add", "-A")
    git(patchq.root, "commit", "-q", "--allow-empty", "-m", "kept")


def sets(patchq: Patchq) -> list[str]:
    return list(patchq.project.lock.sets)


def refs(patchq: Patchq) -> list[str]:
    return list(patchq.project.lock.upstreams["up"].pins)


@pytest.fixture
def moved(stack: Patchq, upstream: Path) -> Patchq:
    """The stack carried onto v2, and from there onto v3."""
    release(upstream, "v2", "v3")
    keep(stack)
    stack.ok("rebase", "up", "--onto", "v2")
    keep(stack)
    stack.ok("rebase", "up", "--onto", "v3", "--set", "default-up-v2")
    return stack


def test_names_of_sets_do_not_grow(moved: Patchq) -> None:
    assert sets(moved) == ["default", "default-up-v2", "default-up-v3"]


def test_use_clears_what_the_set_was_made_from(moved: Patchq) -> None:
    ledger = (moved.root / "patches" / "up" / "ledger.jsonl").read_bytes()
    said = moved.ok("use", "default-up-v3")
    assert "the default set is default-up-v3 (it was default)" in said
    assert (sets(moved), refs(moved)) == (["default-up-v3"], ["v3"])
    assert moved.project.lock.default_set == "default-up-v3"
    assert [p.name for p in (moved.root / "patches" / "up").iterdir() if p.is_dir()] == ["v3"]
    assert (moved.root / "patches" / "up" / "ledger.jsonl").read_bytes() == ledger
    moved.ok("apply")
    assert (moved.tree() / "new.txt").read_bytes() == b"v3"
    assert "no-pin" not in moved.run("check").output
    moved.ok("use", "default-up-v3")  # again: nothing more goes
    assert refs(moved) == ["v3"]


def test_use_is_undone(moved: Patchq) -> None:
    before = moved.snapshot()
    moved.ok("use", "default-up-v3")
    moved.ok("undo")
    assert moved.snapshot() == before


def test_use_keeps_a_newer_set_and_one_of_another_name(moved: Patchq, upstream: Path) -> None:
    moved.ok("pin", "up", "--url", str(upstream), "--ref", "v1", "--set", "other")
    keep(moved)
    found = json.loads(moved.ok("use", "default-up-v2", "--json"))
    assert (found["sets"], found["pins"]) == (["default"], [])
    assert sets(moved) == ["default-up-v2", "default-up-v3", "other"]
    assert (moved.layout.stack("up", "v1") / "series").exists()
    assert json.loads(moved.ok("use", "other", "--json"))["sets"] == []


def test_use_keeps_a_set_of_the_name_that_the_rebase_did_not_come_from(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", "v3")
    stack.ok("pin", "up", "--url", str(upstream), "--ref", "v2", "--set", "next")
    assert "`patchq apply --set next` first" in stack.fails(1, "build", "--set", "next")
    output = stack.ok("import", "up", str(stack.patch_file("second")), "--set", "next")
    assert "next: `patchq apply --set next`" in output
    stack.ok("rebase", "up", "--onto", "v3", "--from", "v2")
    keep(stack)
    output = stack.ok("use", "default-up-v3")
    assert sets(stack) == ["default", "next", "default-up-v3"]
    assert refs(stack) == ["v1", "v2", "v3"]
    assert "the ledger doesn't show that default-up-v3 was rebased from default or next" in output
    assert "kept default: `patchq use default-up-v3 --replaces default` removes it" in output
    stack.ok("use", "default-up-v3", "--replaces", "next")
    assert sets(stack) == ["default", "default-up-v3"]
    assert refs(stack) == ["v1", "v3"]


def test_check_prints_commands_for_the_set_of_each_stack(moved: Patchq) -> None:
    lock = moved.layout.lock
    lock.write_text(lock.read_text().replace('[sets.default-up-v2]\nup = "v2"\n', ""))
    assert sets(moved) == ["default", "default-up-v3"]
    findings = json.loads(moved.run("check", "--json").output)["findings"]
    hints = {f["ref"]: f["hint"] for f in findings if f["patch"] == "first" and f["rule"] == "proof"}
    assert "reword up/first --trailer 'Proof: " in hints["v1"]
    assert hints["v2"] == "the stack of v2 is in no set, so no command changes it"
    assert "reword up/first --set default-up-v3 --trailer 'Proof: " in hints["v3"]


def test_what_git_does_not_have_is_not_cleared(moved: Patchq) -> None:
    edit(moved.patch_file("first"), 5)
    before = moved.snapshot()
    said = moved.fails(1, "use", "default-up-v3")
    assert "git's history lacks the current state of patches/up/v1/first.patch" in said
    assert moved.snapshot() == before
    moved.ok("use", "default-up-v3", "--keep")
    assert sets(moved) == ["default", "default-up-v2", "default-up-v3"]


def test_without_a_repository_nothing_is_cleared(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2")
    stack.ok("rebase", "up", "--onto", "v2")
    assert "git's history has none of the files to remove" in stack.fails(1, "use", "default-up-v2")


def test_the_containers_go_with_the_set_and_a_name_is_kept(moved: Patchq) -> None:
    lock = moved.layout.lock
    lock.write_text(
        lock.read_text()
        + '\n# What the containers are made of.\n[environments.default]\nimage = "image:1"\n\n'
        + '[environments.default.env]\nONE = "1"\n\n[mismatches.default]\nlib = "v1\'s"\n\n'
        + '[mismatches."default-up-v3"]\nlib = "v3\'s"\n'
    )
    keep(moved)
    said = moved.ok("use", "default-up-v2")
    assert "default-up-v2 takes over the container settings of default" in said
    assert moved.project.lock.environments["default-up-v2"].env == {"ONE": "1"}
    assert "# What the containers are made of.\n[environments.default-up-v2]" in lock.read_text()
    keep(moved)
    moved.ok("use", "default-up-v3", "--as", "default")
    assert (sets(moved), refs(moved)) == (["default"], ["v3"])
    assert moved.project.lock.sets["default"] == {"up": "v3"}
    assert moved.project.lock.mismatches == {"default": {"lib": "v3's"}}
    assert moved.project.lock.environments["default"].image == "image:1"


def test_use_refuses_while_a_rebase_from_it_is_under_way(moved: Patchq, upstream: Path) -> None:
    commit_files(upstream, {"a.txt": b"all else\n"}, "v4")
    git(upstream, "tag", "v4")
    keep(moved)
    moved.fails(3, "rebase", "up", "--onto", "v4")
    assert "a rebase of up from the set default is under way" in moved.fails(1, "use", "default-up-v3")
    assert "no set 'nope'" in moved.fails(1, "use", "nope")


def test_skipping_the_only_patch_says_that_nothing_was_made(patchq: Patchq, upstream: Path) -> None:
    patchq.ok("apply")
    edit(patchq.tree() / "a.txt", 5)
    patchq.ok("new", "up", "only", "-s", "-m", "Only\n\nFor the test.")
    commit_files(upstream, {"a.txt": b"all else\n"}, "v2")
    git(upstream, "tag", "v2")
    patchq.fails(3, "rebase", "up", "--onto", "v2")
    said = patchq.ok("rebase", "up", "--skip")
    assert "no patch is left (1 left out): no stack, pin or set was written, only the ledger" in said
    assert "default-up-v2" not in said
    assert "1 dropped at v2: skipped (`patchq rebase up --onto v2 --only only`" in patchq.ok(
        "rebase", "up", "--onto", "v2"
    )
    patchq.fails(3, "rebase", "up", "--onto", "v2", "--only", "only")
    assert json.loads(patchq.ok("rebase", "up", "--skip", "--json"))["set_name"] == ""


def test_rebase_tells_each_patch_and_each_proof_as_it_goes(stack: Patchq, upstream: Path) -> None:
    proof = stack.root / "tests" / "stacks" / "up" / "test_second.py"
    proof.parent.mkdir(parents=True)
    proof.write_text("def test_it() -> None:\n    pass\n")
    path = stack.patch_file("second")
    path.write_text(path.read_text().replace("Topic: test\n", "Topic: test\nProof: tests/stacks/up/test_second.py\n"))
    stack.ok("apply")
    changed = numbered(40).replace(b"line 30\n", b"changed\n")
    commit_files(upstream, {"a.txt": changed}, "v2")
    git(upstream, "tag", "v2")
    done = stack.run("rebase", "up", "--onto", "v2", "--retire")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[2:] == [  # it was fetched, and from where it is carried
        "1/3 first: merged",
        "  the proof of second on the bare up v2 …",
        "  the proof of second: passed",
        "2/3 second: absorbed",
        "3/3 third: clean",
    ]
    stack.ok("undo")
    assert stack.run("rebase", "up", "--onto", "v2", "--retire", "--json").stderr == ""


def test_move_says_what_it_did(stack: Patchq) -> None:
    assert "up: moved third after first, by 1 place\n" in stack.ok("move", "third", "--after", "first")
    assert "up: moved second to the start of the stack, by 2 places\n" in stack.ok("move", "second", "--first")
    assert "nothing changed (3 patches)" in stack.ok("move", "second", "--first")


def test_undo_after_new_goes_on(stack: Patchq) -> None:
    """The template made first, second and third with `new`."""
    before = (stack.tree() / "a.txt").read_bytes(), (stack.tree() / "b.txt").read_bytes()
    stack.ok("undo")
    stack.ok("undo")
    assert [p["name"] for p in json.loads(stack.ok("list", "--json"))["patches"]] == ["first"]
    # What the two patches did are edits now, and nothing of it is lost.
    assert ((stack.tree() / "a.txt").read_bytes(), (stack.tree() / "b.txt").read_bytes()) == before
    assert git(stack.tree(), "diff", "--name-only").split() == ["a.txt", "b.txt"]
    edit(stack.tree() / "a.txt", 12, b"by hand\n")
    assert "the worktree was edited" in stack.fails(1, "undo")


def test_undo_after_new_takes_back_what_is_beside_it(stack: Patchq) -> None:
    stack.ok("move", "third", "--first")
    edit(stack.tree() / "pkg" / "mod.py", 2, b"    return 2\n")
    stack.ok("new", "up", "fourth", "-m", "Four")
    stack.ok("undo")
    assert "undone: move up/third" in stack.ok("undo")
    assert [p["name"] for p in json.loads(stack.ok("list", "--json"))["patches"]] == ["first", "second", "third"]
    assert (stack.tree() / "pkg" / "mod.py").read_bytes().endswith(b"return 2\n")


# Publishing


def test_a_stack_is_published_as_branch_and_tag(stack: Patchq, tmp_path: Path) -> None:
    keep(stack)
    found = json.loads(stack.ok("publish", "--json"))
    (one,) = found["stacks"]
    assert one["branch"] == "patchq/default/up"
    assert one["tag"] == f"patchq/up-v1-{found['stack_id'][:8]}"
    assert git(stack.root, "rev-parse", one["branch"]) == one["commit"]
    said = ["Change b.txt at 10", "Change a.txt at 30", "Change a.txt at 5", "up v1"]
    assert git(stack.root, "log", "--format=%s", one["branch"]).splitlines() == said
    assert git(stack.root, "rev-parse", f"{one['tag']}^{{commit}}") == one["commit"]
    assert f"stack id {found['stack_id']}" in git(stack.root, "cat-file", "tag", one["tag"])
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "-b", one["branch"], str(stack.root), str(clone))
    assert (clone / "a.txt").read_bytes() == (stack.tree() / "a.txt").read_bytes()
    # Again: nothing moves; after a change the branch follows, and the old tag stays.
    stack.ok("publish")
    edit(stack.tree() / "b.txt", 20)
    stack.ok("new", "up", "fourth", "-m", "Four", "-s")
    again = json.loads(stack.ok("publish", "--json"))
    assert again["stacks"][0]["was"] == one["commit"]
    assert git(stack.root, "rev-parse", "patchq/default/up") == again["stacks"][0]["commit"] != one["commit"]
    assert len(git(stack.root, "tag").split()) == 2


def test_the_tag_of_one_patch_counts_it(patchq: Patchq) -> None:
    patchq.ok("apply")
    edit(patchq.tree() / "a.txt", 5)
    patchq.ok("new", "up", "only")
    keep(patchq)
    (one,) = json.loads(patchq.ok("publish", "--json"))["stacks"]
    assert "\n\nup v1 with 1 patch\n\n" in git(patchq.root, "cat-file", "tag", one["tag"])
    # A tag of an earlier version of patchq, with another text, stays.
    git(patchq.root, "tag", "-f", "-m", "up v1 with 1 patches", one["tag"], one["commit"])
    older = git(patchq.root, "rev-parse", one["tag"])
    patchq.ok("publish")
    assert git(patchq.root, "rev-parse", one["tag"]) == older


def test_a_branch_on_which_somebody_works_is_not_moved(stack: Patchq, tmp_path: Path) -> None:
    fork = tmp_path / "fork.git"
    git(tmp_path, "init", "-q", "--bare", str(fork))
    stack.ok("publish", "up", "--to", str(fork))
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "-b", "patchq/default/up", str(fork), str(clone))
    commit_files(clone, {"mine.txt": b"mine"}, "mine")
    git(clone, "push", "-q")
    assert "someone else pushed to the branch" in stack.fails(1, "publish", "--to", str(fork))
    assert git(fork, "rev-parse", "patchq/default/up") == git(clone, "rev-parse", "HEAD")


def test_a_branch_whose_tag_is_gone_gets_it_again(stack: Patchq, tmp_path: Path) -> None:
    fork = tmp_path / "fork.git"
    git(tmp_path, "init", "-q", "--bare", str(fork))
    args = ("publish", "up", "--to", str(fork))
    stack.ok(*args)
    published = git(fork, "for-each-ref")
    (tag,) = git(fork, "tag").split()
    git(fork, "tag", "-d", tag)
    stack.ok(*args, "--dry-run")
    stack.ok(*args)
    assert git(fork, "for-each-ref") == published


def test_a_fork_gets_the_stack_on_upstreams_own_commit(stack: Patchq, upstream: Path, tmp_path: Path) -> None:
    release(upstream, "v2")
    stack.ok("rebase", "up", "--onto", "v2")
    stack.ok("apply", "--set", "default-up-v2")
    fork, empty = tmp_path / "fork.git", tmp_path / "empty.git"
    git(tmp_path, "clone", "-q", "--bare", str(upstream), str(fork))
    git(tmp_path, "init", "-q", "--bare", str(empty))
    args = ("publish", "up", "--set", "default-up-v2", "--on-upstream", "--to")
    assert "it lacks upstream's history" in stack.fails(1, *args, str(empty))
    stack.ok(*args, str(fork))
    branch = "patchq/default-up-v2/up"
    assert git(fork, "merge-base", branch, "v2") == git(upstream, "rev-parse", "v2")
    assert git(fork, "rev-parse", branch) == git(stack.tree(), "rev-parse", "HEAD")


def test_what_is_not_applied_is_not_published(stack: Patchq, tmp_path: Path) -> None:
    fork = tmp_path / "fork.git"
    git(tmp_path, "init", "-q", "--bare", str(fork))
    assert "would be written" in stack.ok("publish", "--to", str(fork), "--dry-run")
    assert "can't be read" in stack.fails(1, "publish", "--to", str(tmp_path / "nowhere"))
    stack.ok("apply", "--to", "first")
    assert "only partly applied" in stack.fails(1, "publish", "--to", str(fork))
    assert git(fork, "for-each-ref") == ""
