"""`check` warns where two patches change one definition, and says which wins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, git

MODULE = b"""\
def one():
    a = 1
    b = 2
    return a + b


class Two:
    def both(self):
        first = 1
        second = 2
        third = 3
        return first + second + third

    def other(self):
        return 0
"""


@pytest.fixture
def project(empty: Patchq, upstream: Path) -> Patchq:
    commit_files(upstream, {"pkg/mod.py": MODULE}, "mod")
    git(upstream, "tag", "v2")
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v2")
    empty.ok("apply")
    return empty


def change(patchq: Patchq, name: str, old: bytes, new: bytes, path: str = "pkg/mod.py", upstream: str = "up") -> None:
    file = patchq.tree(upstream) / path
    assert old in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(old, new))
    message = f"Change {name}\n\nBecause of the test.\n"
    patchq.ok("new", upstream, name, "-m", message, "--topic", "test", "-s")


def warnings(patchq: Patchq, *args: str) -> list[dict[str, Any]]:
    found = json.loads(patchq.run("check", *args, "--json").stdout)["findings"]
    return [f for f in found if f["rule"] == "one-definition"]


def test_different_lines_of_one_definition_need_no_warning(project: Patchq) -> None:
    change(project, "first", b"first = 1", b"first = 10")
    change(project, "second", b"third = 3", b"third = 30")
    assert warnings(project) == []
    change(project, "again", b"third = 30", b"third = 300")
    (one,) = warnings(project)
    assert (one["upstream"], one["ref"], one["patch"], one["level"]) == ("up", "v2", "again", "warning")
    assert one["message"] == (
        "Two.both in pkg/mod.py is changed by up/second and by up/again: "
        "the later patch wins: it changes 1 of the 1 lines that the earlier patch adds"
    )


def test_the_later_one_wins_where_it_changes_the_earlier_ones_lines(project: Patchq) -> None:
    change(project, "first", b"first = 1\n        second = 2", b"first = 10\n        second = 20")
    change(project, "second", b"second = 20", b"second = 200")
    change(project, "third", b"first = 10", b"first = 1")
    found = {f["patch"]: f["message"].split(": ", 1)[1] for f in warnings(project)}
    assert found["second"] == "the later patch wins: it changes 1 of the 2 lines that the earlier patch adds"
    said = [f["message"] for f in warnings(project) if f["patch"] == "third" and "up/first" in f["message"]]
    assert said[0].endswith("adds, and restores 1 of the lines that the earlier patch removes")


def test_what_takes_a_definition_away_wins(project: Patchq) -> None:
    change(project, "first", b"a = 1", b"a = 10")
    change(project, "second", b"def one():\n    a = 10\n    b = 2\n    return a + b\n\n\n", b"")
    (one,) = warnings(project)
    assert one["message"].endswith("the later patch removes it")


def test_a_patch_that_requires_the_other_knows_it(project: Patchq) -> None:
    change(project, "first", b"first = 1", b"first = 10")
    change(project, "second", b"first = 10", b"first = 100")
    path = project.patch_file("second", ref="v2")
    path.write_text(path.read_text().replace("Topic: test\n", "Topic: test\nRequires: up/first\n"))
    assert warnings(project) == []


def test_comments_are_no_change_and_text_alone_looks_at_nothing(project: Patchq) -> None:
    change(project, "first", b"first = 1", b"first = 10")
    change(project, "second", b"second = 2", b"second = 2  # two")
    assert warnings(project) == []
    change(project, "third", b"first = 10", b"first = 100")
    assert len(warnings(project)) == 1
    assert warnings(project, "--text") == []


def kept(patchq: Patchq) -> Path:
    return patchq.root / ".patchq" / "check" / "one-definition.json"


def test_what_was_found_is_kept_until_a_patch_is_another(project: Patchq) -> None:
    change(project, "first", b"first = 1", b"first = 10")
    change(project, "second", b"first = 10", b"first = 100")
    found = warnings(project)
    assert len(found) == 1
    before = kept(project).stat()
    assert warnings(project) == found
    assert kept(project).stat().st_ino == before.st_ino, "it is looked for once"
    change(project, "third", b"first = 100", b"first = 1000")
    assert "up/third" in warnings(project)[-1]["message"]
    project.ok("drop", "up/third")
    assert warnings(project) == found
    # A message decides too: no tree is another, and the second knows the first.
    path = project.patch_file("second", ref="v2")
    path.write_text(path.read_text().replace("Topic: test\n", "Topic: test\nRequires: up/first\n"))
    assert warnings(project) == []


@pytest.mark.parametrize(
    "damage",
    [lambda said: b"", lambda said: said[: len(said) // 2], lambda said: b"[]", lambda said: b'{"results": [1]}',
     lambda said: b'{"results": {"default": 3}}', lambda said: said.replace(b"the later patch wins", b"all is well"),
     lambda said: b"\0" * len(said), lambda said: b"[" * 100_000],
)  # fmt: skip
def test_what_is_kept_and_damaged_is_looked_for_again(project: Patchq, damage: Callable[[bytes], bytes]) -> None:
    change(project, "first", b"first = 1", b"first = 10")
    change(project, "second", b"first = 10", b"first = 100")
    found = warnings(project)
    whole = kept(project).read_bytes()
    assert damage(whole) != whole
    kept(project).write_bytes(damage(whole))
    assert warnings(project) == found
    assert kept(project).read_bytes() == whole


def test_where_it_cant_be_kept_it_is_looked_for_each_time(project: Patchq) -> None:
    change(project, "first", b"first = 1", b"first = 10")
    change(project, "second", b"first = 10", b"first = 100")
    kept(project).mkdir(parents=True)
    assert len(warnings(project)) == 1
    kept(project).rmdir()
    elsewhere = project.root / "elsewhere"
    elsewhere.write_bytes(b"{}")
    kept(project).symlink_to(elsewhere)
    assert "symbolic link" in project.run("check").stderr
    assert elsewhere.read_bytes() == b"{}"


def test_a_warning_fails_nothing(project: Patchq) -> None:
    change(project, "first", b"first = 1", b"first = 10")
    change(project, "second", b"first = 10", b"first = 100")
    proof = project.root / "tests" / "stacks" / "up" / "test_it.py"
    proof.parent.mkdir(parents=True)
    proof.write_text("def test_it() -> None:\n    pass\n")
    for name in ("first", "second"):
        path = project.patch_file(name, ref="v2")
        path.write_text(
            path.read_text().replace("Topic: test\n", "Topic: test\nProof: tests/stacks/up/test_it.py\n")
        )  # fmt: skip
    project.ok("apply")
    project.ok("export", "up")
    said = project.ok("check")
    assert "up/v2/second: warning: Two.both in pkg/mod.py" in said
    assert "all good: 2 patches in the default set; 1 warning\n" in said


@pytest.fixture
def siblings(project: Patchq, tmp_path: Path) -> Patchq:
    """Another upstream in the set: it has a copy of the file, and uses the first one's package."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    user = b"import pkg.mod\n\n\ndef use():\n    return pkg.mod.one()\n"
    commit_files(other, {"vendored/mod.py": MODULE, "user.py": user}, "first")
    git(other, "tag", "v1")
    project.ok("pin", "other", "--url", str(other), "--ref", "v1")
    with project.layout.lock.open("a") as lock:
        lock.write('\n[upstreams.up.build]\ndistribution = "pkg"\n')
    project.ok("apply")
    return project


def test_a_siblings_copy_is_told(siblings: Patchq) -> None:
    change(siblings, "first", b"first = 1", b"first = 10")
    assert warnings(siblings) == []
    change(siblings, "same", b"first = 1", b"first = 10", "vendored/mod.py", "other")
    (one,) = warnings(siblings)
    assert one["message"] == (
        "Two.both in pkg/mod.py is changed by other/same and by up/first: "
        "other has its own copy in vendored/mod.py, which a patch also changes"
    )


def test_what_a_sibling_assigns_at_run_time_wins(siblings: Patchq) -> None:
    change(siblings, "first", b"first = 1", b"first = 10")
    patched = b"import pkg.mod\n\npkg.mod.Two.both = lambda self: 0\n"
    change(siblings, "instead", b"import pkg.mod\n", patched, "user.py", "other")
    (one,) = warnings(siblings)
    assert one["message"] == (
        "Two.both in pkg/mod.py is changed by up/first and by other/instead: "
        "other/instead wins: user.py replaces it at run time"
    )


def foreseen(patchq: Patchq, *args: str) -> list[tuple[str, str, str]]:
    """At which ref which definition is changed by two, and which change stands."""
    found = json.loads(patchq.ok("forecast", "up", *args, "--json"))["shared"]
    return [(s["ref"], s["definition"], s["wins"]) for s in found]


def test_forecast_tells_it_of_a_ref_as_its_patches_land_there(siblings: Patchq, upstream: Path) -> None:
    change(siblings, "first", b"first = 1", b"first = 10")
    change(siblings, "second", b"third = 3", b"third = 30")
    change(siblings, "again", b"first = 10", b"first = 100")
    change(siblings, "same", b"first = 1", b"first = 10", "vendored/mod.py", "other")
    moved = MODULE.replace(b"def one", b"def zero():\n    return 0\n\n\ndef one")
    commit_files(upstream, {"pkg/mod.py": moved}, "moved")
    git(upstream, "tag", "v3")
    # Upstream goes another way in the line of the first: neither it nor the one after it lands.
    commit_files(upstream, {"pkg/mod.py": moved.replace(b"first = 1\n", b"first = 7\n")}, "another way")
    git(upstream, "tag", "v4")
    assert foreseen(siblings, "--onto", "v3") == [], "it takes time, and is asked for"
    within = [("Two.both", ""), ("Two.both", "up/again"), ("Two.both", "")]  # second, again, again
    copies = [("Two.both", "")] * 3
    assert foreseen(siblings, "--onto", "v3", "--onto", "v4", "--why") == [
        *(("v3", *one) for one in [*within, *copies]), ("v4", "Two.both", ""),
    ]  # fmt: skip
    said = siblings.ok("forecast", "up", "--onto", "v3", "--why")
    assert "v3 Two.both in pkg/mod.py: changed by up/first and by up/again: the later patch wins" in said
    assert "other has its own copy in vendored/mod.py" in said
