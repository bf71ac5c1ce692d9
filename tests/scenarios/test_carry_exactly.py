"""A change lands where upstream's own edits put its lines, or not at all: real repositories, real rebases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, git, numbered

BODY = "".join(f"    {line}\n" for line in (
    "log('begins')", "n = int(n)", "check(n)", "total = n * 2", "if n < 0:", "    return 0", "total += rest(n)",
    "log(total)", "store(total)", "return total",
))  # fmt: skip
FIXED = BODY.replace("n < 0", "n <= 0")


def function(name: str, body: str = BODY) -> str:
    return f"def {name}(n):\n{body}\n\n"


def release(upstream: Path, tag: str, text: str | bytes, path: str = "m.py") -> None:
    commit_files(upstream, {path: text.encode() if isinstance(text, str) else text}, tag)
    git(upstream, "tag", "-f", tag)


def fork(patchq: Patchq, upstream: Path, before: str | bytes, after: str | bytes, name: str = "fix") -> None:
    """A stack of one patch on v1, which changes m.py."""
    release(upstream, "v1", before)
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    patchq.ok("apply")
    (patchq.tree() / "m.py").write_bytes(after.encode() if isinstance(after, str) else after)
    patchq.ok("new", "up", name, "-s", "-m", "Fix\n\nFor the test.")


def cell(patchq: Patchq, ref: str = "v2") -> dict[str, Any]:
    (found,) = json.loads(patchq.ok("forecast", "up", "--onto", ref, "--json"))["cells"]
    assert isinstance(found, dict)
    return found


def carried(patchq: Patchq, ref: str = "v2") -> bytes:
    """The file after a rebase that finished."""
    told = json.loads(patchq.ok("rebase", "up", "--onto", ref, "--json"))
    patchq.ok("apply", "--set", told["set_name"])
    return (patchq.tree() / "m.py").read_bytes()


@pytest.mark.parametrize("between", ["", function("h", "    return n\n")])
@pytest.mark.parametrize("first", ["f", "g"])
def test_a_fix_that_upstream_has_is_not_put_into_another_function(
    patchq: Patchq, upstream: Path, between: str, first: str
) -> None:
    """v2 has the fix in f() and a new g() with the body that f() had, before or after it."""
    head, tail = numbered(12).decode(), function("last", "    return None\n")
    fork(patchq, upstream, head + function("f") + tail, head + function("f", FIXED) + tail)
    parts = [function("f", FIXED), between, function("g")]
    release(upstream, "v2", head + "".join(parts if first == "f" else parts[::-1]) + tail)
    found = cell(patchq)
    assert found["outcome"] in ("absorbed", "conflict"), found
    done = patchq.run("rebase", "up", "--onto", "v2")
    assert done.exit_code == 3, done.output


def test_a_place_with_the_same_number_in_another_function_is_not_the_place(patchq: Patchq, upstream: Path) -> None:
    """The lines stand at the very line that the hunk names, but upstream put another function there."""
    lead, same = "".join(f"# {n}\n" for n in range(20)), function("f")
    fork(patchq, upstream, lead + same + function("z", "    return 1\n"),
         lead + function("f", FIXED) + function("z", "    return 1\n"))  # fmt: skip
    # Its own f() stands further down and does it otherwise; at its old place is a function of the same words.
    release(upstream, "v2", lead + function("g") + function("z", "    return 1\n")
            + function("f", FIXED.replace("rest(n)", "others(n)")))  # fmt: skip
    assert cell(patchq)["outcome"] not in ("clean", "offset", "merged")


def test_a_block_that_upstream_has_elsewhere_is_not_added_twice(patchq: Patchq, upstream: Path) -> None:
    block = "".join(f"def helper_{n}(x):\n    return x + {n}\n\n\n" for n in range(6))
    parts = [function(name, f"    return {n} + n\n") for n, name in enumerate("abcdefgh")]
    fork(patchq, upstream, "".join(parts), "".join([*parts[:2], block, *parts[2:]]))
    release(upstream, "v2", "".join([*parts[:6], block, *parts[6:]]))
    found = cell(patchq)
    assert found["outcome"] == "absorbed", found
    assert patchq.run("rebase", "up", "--onto", "v2").exit_code == 3


def test_an_offset_says_how_far_and_against_what(patchq: Patchq, upstream: Path) -> None:
    before = numbered(40)
    after = before.replace(b"line 10\n", b"ten\n").replace(b"line 30\n", b"thirty\n")
    fork(patchq, upstream, before, after)
    release(upstream, "v2", b"new\n" * 3 + before.replace(b"line 20\n", b""))
    found = cell(patchq)
    assert (found["outcome"], found["offsets"]) == ("offset", [{"path": "m.py", "lines": [3, 2]}])
    assert found["checked"] == "line map v1..v2"
    said = patchq.ok("forecast", "up", "--onto", "v2", "--why")
    assert "offset +2..+3" in said
    assert "checked against the line map v1..v2" in said
    told = json.loads(patchq.ok("rebase", "up", "--onto", "v2", "--json"))
    (step,) = told["steps"]
    assert (step["offsets"], step["checked"]) == (found["offsets"], found["checked"])
    (line,) = (patchq.root / "patches/up/ledger.jsonl").read_text().splitlines()
    assert json.loads(line)["offsets"] == found["offsets"]
    assert json.loads(line)["checked"] == found["checked"]
    assert "offset +2..+3, checked against the line map v1..v2" in patchq.ok("ledger")
    report = json.loads(patchq.ok("report", "--json"))
    assert "+2..+3, checked against the line map v1..v2" in report["matrices"][0]["rows"]["fix"][1]["evidence"]
    patchq.ok("undo")
    assert "offset +2..+3 (m.py), checked against the line map v1..v2" in patchq.ok("rebase", "up", "--onto", "v2")


def test_lines_that_stand_there_twice_are_for_git(patchq: Patchq, upstream: Path) -> None:
    """Upstream copied the lines to another place: the map says which ones are meant, git's merge says so too."""
    before = numbered(40)
    fork(patchq, upstream, before, before.replace(b"line 10\n", b"ten\n"))
    copied = b"".join(b"line %d\n" % n for n in range(5, 16))
    release(upstream, "v2", b"above\n" + before + b"between\n" + copied)
    assert cell(patchq)["outcome"] == "merged"
    assert carried(patchq) == b"above\n" + before.replace(b"line 10\n", b"ten\n") + b"between\n" + copied


def twice(patchq: Patchq, upstream: Path) -> str:
    """A patch whose block upstream has further down, with another change that upstream has not; what it should be."""
    block = "".join(f"def helper_{n}(x):\n    return x + {n}\n\n\n" for n in range(6))
    parts = [function(name, f"    return {n} + n\n") for n, name in enumerate("abcdefgh")]
    changed = [p.replace("return 0 + n", "return n") for p in parts]
    fork(patchq, upstream, "".join(parts), "".join([*changed[:4], block, *changed[4:]]))
    release(upstream, "v2", "".join([*parts[:6], block, *parts[6:]]))
    return "".join([*changed[:6], block, *changed[6:]])


def test_a_block_that_git_would_add_twice_is_a_conflict_of_its_own(patchq: Patchq, upstream: Path) -> None:
    wanted = twice(patchq, upstream)
    found = cell(patchq)
    assert found["outcome"] == "conflict", found
    assert found["message"] == "m.py: upstream has added these lines already; git's merge adds them again"
    assert [f["path"] for f in found["files"]] == ["m.py"]
    assert found["message"] in patchq.ok("forecast", "up", "--onto", "v2", "--why")
    said = patchq.fails(3, "rebase", "up", "--onto", "v2")
    assert found["message"] in said
    parked = patchq.layout.tree("up@v2")
    text = (parked / "m.py").read_text()
    assert text.count("<<<<<<< up v2\n") == text.count(">>>>>>> fix (written for v1)\n") == 1
    assert text.count("def helper_3(x):\n") == 2
    assert "    return n\n" in text  # the rest of the patch is there
    assert git(parked, "diff", "--name-only", "--diff-filter=U") == "m.py"
    (parked / "m.py").write_text(wanted)
    patchq.ok("rebase", "up", "--continue", "--no-proof")
    assert "resolved" in patchq.ok("ledger")


def test_such_a_conflict_is_replayed_and_given_up(patchq: Patchq, upstream: Path) -> None:
    wanted = twice(patchq, upstream)
    patchq.fails(3, "rebase", "up", "--onto", "v2")
    parked = patchq.layout.tree("up@v2")
    before = (parked / "m.py").read_bytes()
    patchq.ok("rebase", "up", "--abort")
    patchq.fails(3, "rebase", "up", "--onto", "v2")
    assert (parked / "m.py").read_bytes() == before
    patchq.fails(3, "rebase", "up", "--continue")  # markers are left
    (parked / "m.py").write_text(wanted)
    patchq.ok("rebase", "up", "--continue", "--no-proof")
    patchq.ok("undo")
    said = patchq.fails(3, "rebase", "up", "--onto", "v2")  # no proof says that it is right: a person is to look
    assert "the recorded resolution of m.py resolves it" in said
    assert (parked / "m.py").read_text() == wanted
