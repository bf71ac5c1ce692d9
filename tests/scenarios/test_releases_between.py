"""What upstream has taken, judged by its releases alone: no history is here, and what came when is told by trees."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, edit, git, numbered

BLOCK = b"def wanted(first, second):\n    total = first + second\n    return total * 2\n"
AFTER = b"line 20\n"
HAS = numbered(40).replace(AFTER, AFTER + BLOCK)
ON = HAS.replace(b"    return total * 2\n", b"    return total << 1\n")


@pytest.fixture
def wide(stack: Patchq) -> Patchq:
    """A fourth patch: three lines added."""
    put(stack, "b.txt", HAS)
    stack.ok("new", "up", "wide", "-s", "-m", "Double what is wanted\n\nFor the test.")
    return stack


def put(patchq: Patchq, name: str, content: bytes) -> None:
    """Write a file of the applied tree; a line that the patches before have changed stays so."""
    path = patchq.tree() / name
    changed = b"changed\n" in path.read_bytes().splitlines(keepends=True) if path.exists() else False
    path.write_bytes(content.replace(b"line 10\n", b"changed\n") if changed else content)


def releases(patchq: Patchq, upstream: Path, **files: bytes | dict[str, bytes]) -> None:
    """Releases with these contents of b.txt or of several files, oldest first, pinned and brought; then upstream goes."""
    for tag, content in files.items():
        ref = tag.replace("_", ".")
        commit_files(upstream, dict(content) if isinstance(content, dict) else {"b.txt": content}, ref)
        git(upstream, "tag", ref)
        patchq.ok("pin", "up", "--url", str(upstream), "--ref", ref, "--set", f"at-{ref}")
        patchq.ok("fetch", "--set", f"at-{ref}")
    upstream.rename(upstream.parent / "away")


def cells(patchq: Patchq, *refs: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What becomes of each patch at each ref, from the stack of v1."""
    onto = [word for ref in refs for word in ("--onto", ref)]
    told = json.loads(patchq.ok("forecast", "up", *onto, "--json"))
    return {(c["patch"].removeprefix("up/"), c["ref"]): c for c in told["cells"]}


def test_a_release_on_the_way_says_that_it_landed(wide: Patchq, upstream: Path) -> None:
    releases(wide, upstream, v1_5=HAS, v2=ON)
    cell = cells(wide, "v2")["wide", "v2"]
    assert (cell["outcome"], cell["grade"]) == ("absorbed", "contained")
    assert cell["evidence"] == "landed in v1.5; changed on since by v2"
    assert [(c["did"], c["commit"], c["release"]) for c in cell["commits"]] == [
        ("landed", "", "v1.5"), ("changed on", "", "v2")
    ]  # fmt: skip


def test_refs_that_are_asked_for_are_on_the_way_in_the_order_of_releases(wide: Patchq, upstream: Path) -> None:
    releases(wide, upstream, v1_5=HAS, v2=ON)
    found = cells(wide, "v2", "v1.5")
    assert found["wide", "v2"]["evidence"] == "landed in v1.5; changed on since by v2"
    assert found["wide", "v1.5"]["evidence"].startswith("b.txt: ")


@pytest.mark.parametrize("around", [b"line 21\n", b"line 20\n"])
def test_what_a_release_took_back_is_for_a_person(wide: Patchq, upstream: Path, around: bytes) -> None:
    """The lines around it are others by then, so that no revert shows."""
    last = numbered(40).replace(b"line 19\n", b"nineteen\n").replace(around, b"another\n")
    releases(wide, upstream, v1_5=HAS, v2=last)
    cell = cells(wide, "v2")["wide", "v2"]
    assert cell["outcome"] != "absorbed"
    assert "taken back or rewritten by v2" in cell["evidence"]


OWNERS, MINE = b"docs/ @first @second\n", b"docs/ @first @second @third\n"


@pytest.mark.parametrize(
    ("there", "outcome"),
    [
        (b"docs/ @first @second @third @fourth\n", "absorbed"),  # its own line, edited
        (b"docs/ @first @other\n", "conflict"),  # what it replaced, edited
        (b"docs/ @first @thirds @second\n", "conflict"),
        (b"docs/ @first @second\n", "conflict"),  # what it replaced, between other lines
        (b"all of it is with somebody else\n", "conflict"),
    ],
)
def test_a_line_that_was_edited_is_told_from_one_that_was_taken_back(
    stack: Patchq, upstream: Path, there: bytes, outcome: str
) -> None:
    """None of the patch's lines is left: what stands in their place says what became of them."""

    def owners(line: bytes, above: bytes = b"line 19\n") -> bytes:
        return numbered(40).replace(b"line 20\n", line).replace(b"line 19\n", above)

    commit_files(upstream, {"b.txt": owners(OWNERS)}, "Owners")
    git(upstream, "tag", "-f", "v1")
    stack.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    stack.ok("apply")
    put(stack, "b.txt", owners(MINE))
    stack.ok("new", "up", "owner", "-s", "-m", "A third owner\n\nFor the test.")
    releases(stack, upstream, v1_5=owners(MINE), v2=owners(there, b"nineteen\n"))
    assert cells(stack, "v2")["owner", "v2"]["outcome"] == outcome


def words(name: bytes, count: int) -> bytes:
    return b"".join(b"%s %d\n" % (name, n) for n in range(count))


@pytest.mark.parametrize("place", ["lib/b.txt", "other [b]*.txt"])
def test_a_file_that_went_elsewhere_step_by_step(wide: Patchq, upstream: Path, place: str) -> None:
    """From end to end it isn't the same file; from one release to the next it is."""
    on = ON.replace(b"line 2", b"the second ").replace(b"line 3", b"the third ")
    there = on.replace(b"line 1", b"the first ").replace(b"total", b"sum")
    gone: dict[str, Any] = {"b.txt": None}
    releases(wide, upstream, v1_5=HAS, v1_6=on, v2=gone | {place: there})
    cell = cells(wide, "v2")["wide", "v2"]
    assert (cell["outcome"], cell["evidence"]) == ("absorbed", "landed in v1.5; changed on since by v1.6")


@pytest.mark.parametrize(("count", "suffix", "outcome"), [(8, "txt", "absorbed"), (3, "txt", ""), (8, "md", "")])
def test_a_long_part_that_went_into_a_new_file_is_there(
    stack: Patchq, upstream: Path, count: int, suffix: str, outcome: str
) -> None:
    mine = numbered(40).replace(b"line 20\n", b"line 20\n" + words(b"a line of mine", count))
    put(stack, "b.txt", mine)
    stack.ok("new", "up", "long", "-s", "-m", "Many lines\n\nFor the test.")
    # What was around them is other lines now, so that they don't land again.
    left = numbered(40).replace(b"line 20\nline 21\n", b"twenty\ntwenty-one\n")
    new = words(b"a line of upstream's", 30) + words(b"a line of mine", count)
    releases(stack, upstream, v1_5=mine, v2={"b.txt": left, f"new.{suffix}": new})
    found = cells(stack, "v2")["long", "v2"]["outcome"]
    assert (found == "absorbed") is bool(outcome)


def test_what_a_release_took_back_as_it_was_lands_again(wide: Patchq, upstream: Path) -> None:
    releases(wide, upstream, v1_5=HAS, v2=numbered(40).replace(b"line 19\n", b"nineteen\n"))
    cell = cells(wide, "v2")["wide", "v2"]
    assert (cell["outcome"], cell["evidence"]) == ("merged", "")


def test_a_revert_that_shows_is_told_as_one(stack: Patchq, upstream: Path) -> None:
    put(stack, "b.txt", HAS.replace(b"line 35\n", b"mine\n"))
    stack.ok("new", "up", "wide", "-s", "-m", "Two parts\n\nFor the test.")
    # The other part is gone, too, to something else: so that it can't land again.
    last = numbered(40).replace(b"line 35\n", b"another's\n")
    releases(stack, upstream, v1_5=HAS.replace(b"line 35\n", b"mine\n"), v2=last)
    cell = cells(stack, "v2")["wide", "v2"]
    assert cell["outcome"] == "conflict"
    assert "reverted by v2: b.txt" in cell["evidence"]


def test_a_near_one_that_went_on_is_no_yes(wide: Patchq, upstream: Path) -> None:
    near = HAS.replace(b"total * 2", b"total * 3")
    releases(wide, upstream, v1_5=near, v2=near.replace(b"total * 3", b"total << 1"))
    assert cells(wide, "v2")["wide", "v2"]["outcome"] == "conflict"


@pytest.fixture
def two(wide: Patchq) -> Patchq:
    """A fifth patch, which goes on with the fourth's lines."""
    put(wide, "b.txt", ON)
    wide.ok("new", "up", "shift", "-s", "-m", "Shift\n\nFor the test.")
    return wide


def test_a_later_patch_that_upstream_has_is_taken_out_first(two: Patchq, upstream: Path) -> None:
    releases(two, upstream, v2=ON.replace(b"line 30\n", b"thirty\n"))
    found = cells(two, "v2")
    assert found["shift", "v2"]["outcome"] == "absorbed"
    assert found["wide", "v2"]["outcome"] == "absorbed"
    assert found["wide", "v2"]["evidence"] == "landed in v2; changed on since by shift (v2)"


def test_a_later_patch_that_upstream_has_otherwise_is_not(two: Patchq, upstream: Path) -> None:
    releases(two, upstream, v2=ON.replace(b"total << 1", b"total << one"))
    found = cells(two, "v2")
    assert "absorbed" not in (found["shift", "v2"]["outcome"], found["wide", "v2"]["outcome"])


def test_a_file_that_stands_as_a_later_patch_leaves_it_has_the_earlier_ones(wide: Patchq, upstream: Path) -> None:
    put(wide, "b.txt", ON)
    edit(wide.tree() / "a.txt", 20)
    wide.ok("new", "up", "more", "-s", "-m", "More than upstream has\n\nFor the test.")
    there = (wide.tree() / "b.txt").read_bytes()
    releases(wide, upstream, v2={"b.txt": there, "a.txt": numbered(40).replace(b"line 20\n", b"another\n")})
    found = cells(wide, "v2")
    assert found["more", "v2"]["outcome"] == "conflict"
    assert found["wide", "v2"]["outcome"] == "absorbed"


def test_a_patch_that_also_takes_an_earlier_one_back_is_there(wide: Patchq, upstream: Path) -> None:
    text = (wide.tree() / "b.txt").read_bytes().replace(b"changed\n", b"line 10\n")
    (wide.tree() / "b.txt").write_bytes(text.replace(b"total * 2", b"total << 1"))
    wide.ok("new", "up", "shift", "-s", "-m", "Shift, and line 10 again\n\nFor the test.")
    releases(wide, upstream, v1_5=ON, v2=ON.replace(b"line 11\n", b"eleven\n"))
    found = cells(wide, "v2")
    assert found["shift", "v2"]["outcome"] == "absorbed"
    assert found["wide", "v2"]["outcome"] == "absorbed"
    assert found["third", "v2"]["outcome"] != "absorbed"


def test_a_stack_that_takes_itself_back_is_not_upstreams(wide: Patchq, upstream: Path) -> None:
    put(wide, "b.txt", numbered(40))
    wide.ok("new", "up", "back", "-s", "-m", "Revert\n\nFor the test.")
    releases(wide, upstream, v2=numbered(40).replace(b"line 20\n", b"twenty\n").replace(b"line 21\n", b"21\n"))
    found = cells(wide, "v2")
    assert "absorbed" not in (found["back", "v2"]["outcome"], found["wide", "v2"]["outcome"])


def test_a_rebase_stops_with_the_same_evidence(wide: Patchq, upstream: Path) -> None:
    releases(wide, upstream, v1_5=HAS, v2=ON)
    told = json.loads(wide.fails(3, "rebase", "up", "--onto", "v2", "--json"))
    assert (told["stop"]["patch"], told["stop"]["outcome"]) == ("wide", "absorbed")
    assert told["stop"]["evidence"] == "landed in v1.5; changed on since by v2"


def test_a_part_of_a_file_that_went_is_told(stack: Patchq, upstream: Path) -> None:
    both = numbered(40).replace(b"line 5\n", b"line 5\n" + BLOCK).replace(AFTER, AFTER + BLOCK.upper())
    put(stack, "b.txt", both)
    stack.ok("new", "up", "wide", "-s", "-m", "Twice\n\nFor the test.")
    last = numbered(40).replace(b"line 5\n", b"line 5\n" + BLOCK).replace(b"line 20\n", b"line twenty\n")
    releases(stack, upstream, v1_5=both, v2=last)
    cell = cells(stack, "v2")["wide", "v2"]
    assert cell["outcome"] != "absorbed"
    assert "taken back or rewritten by v2" in cell["evidence"]


def sdist(folder: Path, version: str, content: bytes) -> str:
    """A release's source archive in a folder that serves as an index; its hash."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo(f"p-{version}/b.txt")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    folder.mkdir(exist_ok=True)
    (folder / f"p-{version}.tar.gz").write_bytes(out.getvalue())
    return hashlib.sha256(out.getvalue()).hexdigest()


def test_releases_that_are_asked_for_together_say_it_of_the_last(
    empty: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for version, content in (("1.0", numbered(40)), ("1.5", HAS), ("2.0", ON)):
        sdist(tmp_path / "index", version, content)
    empty.ok("pin", "up", "--archive", "p==1.0", "--ref", "1.0")
    empty.ok("fetch")
    empty.ok("apply")
    put(empty, "b.txt", HAS)
    empty.ok("new", "up", "wide", "-s", "-m", "Double\n\nFor the test.")
    assert cells(empty, "2.0")["wide", "2.0"]["outcome"] == "conflict"
    told = json.loads(empty.ok("forecast", "up", "--releases", ">1.0,<=2.0", "--json"))
    (cell,) = (c for c in told["cells"] if c["ref"] == "2.0")
    assert (cell["outcome"], cell["evidence"]) == ("absorbed", "landed in 1.5; changed on since by 2.0")


@pytest.mark.parametrize("has_host", [True, False], ids=["git host and index", "index only"])
def test_releases_keep_the_prefix_of_the_pinned_ref(
    empty: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_host: bool
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    git(tmp_path, "init", "-q", "up")
    for version, content in (("1.0", numbered(40)), ("2.0", numbered(41))):
        sdist(tmp_path / "index", version, content)
        commit_files(tmp_path / "up", {"b.txt": content})
        git(tmp_path / "up", "tag", f"llvmorg-{version}")
    source = ["--url", str(tmp_path / "up")] if has_host else []
    empty.ok("pin", "up", *source, "--archive", "p==1.0", "--ref", "llvmorg-1.0")
    empty.ok("apply")
    put(empty, "b.txt", HAS)
    empty.ok("new", "up", "wide", "-s", "-m", "Double\n\nFor the test.")
    told = json.loads(empty.ok("forecast", "up", "--releases", ">1.0", "--json"))
    assert [cell["ref"] for cell in told["cells"]] == ["llvmorg-2.0"]
