"""`deps`: the true graph of stacks whose dependencies are known, and of the real ones that it is minimal and enough."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kit import Patchq, edit, git, numbered


def new(patchq: Patchq, name: str, *requires: str) -> None:
    says = "".join(f"\nRequires: {r}" for r in requires)
    patchq.ok("new", "up", name, "-s", "-m", f"{name.title()}\n\nFor the test.\n{says}")


def graph(patchq: Patchq) -> dict[str, set[str]]:
    """Direct needs by short names."""
    found = json.loads(patchq.ok("deps", "--json"))["patches"]
    return {p["patch"].split("/")[1]: {n.split("/")[1] for n in p["direct"]} for p in found}


@pytest.fixture
def applied(patchq: Patchq) -> Patchq:
    patchq.ok("apply")
    return patchq


def test_far_apart_in_one_file_is_no_dependency(stack: Patchq) -> None:
    assert graph(stack) == {"first": set(), "second": set(), "third": set()}
    commutes = json.loads(stack.ok("deps", "--json"))["patches"][0]["commutes"]
    assert commutes == ["up/second", "up/third"]


def test_a_chain_names_the_nearest_and_lists_all(applied: Patchq) -> None:
    for name, text in (("one", b"1\n"), ("two", b"2\n"), ("three", b"3\n")):
        edit(applied.tree() / "a.txt", 5, text)
        new(applied, name)
    assert graph(applied) == {"one": set(), "two": {"one"}, "three": {"two"}}
    last = json.loads(applied.ok("deps", "--json"))["patches"][2]
    assert last["needs"] == ["up/one", "up/two"]
    assert last["commutes"] == []


def test_a_diamond(applied: Patchq) -> None:
    tree = applied.tree()
    (tree / "new.txt").write_bytes(numbered(40))
    new(applied, "base")
    edit(tree / "new.txt", 5)
    new(applied, "left")
    edit(tree / "new.txt", 30)
    new(applied, "right")
    edit(tree / "new.txt", 5, b"joined\n")
    edit(tree / "new.txt", 30, b"joined\n")
    new(applied, "join")
    assert graph(applied) == {"base": set(), "left": {"base"}, "right": {"base"}, "join": {"left", "right"}}


def test_interleaved_hunks(applied: Patchq) -> None:
    tree = applied.tree()
    edit(tree / "a.txt", 5)
    edit(tree / "b.txt", 5)
    new(applied, "both")
    edit(tree / "a.txt", 20)
    new(applied, "between")
    edit(tree / "b.txt", 5, b"again\n")
    edit(tree / "a.txt", 35)
    new(applied, "after")
    assert graph(applied) == {"both": set(), "between": set(), "after": {"both"}}


def test_a_rename_between_is_followed(applied: Patchq) -> None:
    tree = applied.tree()
    edit(tree / "a.txt", 5)
    new(applied, "first")
    git(tree, "mv", "a.txt", "c.txt")
    new(applied, "moved")
    edit(tree / "c.txt", 30)
    new(applied, "on-the-new-name")
    found = graph(applied)
    # A rename alone is carried with its file's other changes, and so is an edit under the new name.
    assert found["moved"] == set()
    assert found["on-the-new-name"] == set()


def test_a_file_in_the_place_of_a_folder(applied: Patchq) -> None:
    tree = applied.tree()
    git(tree, "rm", "-q", "-r", "pkg")
    new(applied, "gone")
    (tree / "pkg").write_bytes(b"a file\n")
    new(applied, "instead")
    assert graph(applied) == {"gone": set(), "instead": {"gone"}}


def test_what_is_only_said_is_shown_as_that(applied: Patchq) -> None:
    edit(applied.tree() / "a.txt", 5)
    new(applied, "one")
    edit(applied.tree() / "b.txt", 5)
    new(applied, "two", "up/one")
    assert "up/two: declares Requires: up/one" in applied.ok("deps")
    dot = applied.ok("deps", "--dot")
    assert '"up/two" -> "up/one" [style=dashed];' in dot
    assert dot.startswith("digraph")


def test_nothing_is_touched_and_a_stack_that_is_not_applied_will_do(stack: Patchq) -> None:
    stack.ok("apply", "--to", "first")
    before = stack.snapshot()
    assert set(graph(stack)) == {"first", "second", "third"}
    assert stack.snapshot() == before
    assert "no" in stack.fails(1, "deps", "nowhere")


@pytest.mark.index
def test_of_the_real_stacks_it_is_enough_and_minimal() -> None:
    """Each patch's needs, and it, are carried onto the bare base; without any one of them they are not."""
    from patchq.errors import ConflictError
    from patchq.git.replay import pick
    from patchq.project.project import Project
    from patchq.stacks.apply import carried_stacks

    project = Project.find(Path(__file__).parents[2], wait=600)
    done = subprocess.run(
        ["patchq", "--project", project.layout.root, "deps", "--json"], capture_output=True, check=True
    )
    needs = {p["patch"]: p["needs"] for p in json.loads(done.stdout)["patches"]}
    set_name = project.choose_set("")
    with project.locked("test"):
        stacks = carried_stacks(project, project.stacks(set_name), set_name)

    def carries(upstream: str, wanted: list[str]) -> bool:
        (carried,) = (c for c in stacks if c.stack.pin.upstream == upstream)
        before = onto = project.store.tree_of([carried.base])[0]
        for name, info in carried.commits:
            parent, before = before, info.tree
            if f"{upstream}/{name}" in wanted:
                try:
                    onto = pick(project.store, upstream, name, parent, info.tree, onto)
                except ConflictError:
                    return False
        return True

    assert sum(map(len, needs.values())) > 10
    for patch, its in needs.items():
        upstream = patch.split("/")[0]
        assert carries(upstream, [*its, patch]), f"{patch} needs more than {its}"
        for left_out in its:
            rest = [n for n in its if n != left_out]
            assert not carries(upstream, [*rest, patch]), f"{patch} doesn't need {left_out}"
