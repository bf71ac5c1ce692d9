"""The verb: functions that a stack touches, between two refs."""

from __future__ import annotations

import json
from pathlib import Path

from kit import Patchq, commit_files, edit, git, new_repository

BODY = b"def touched(a):\n    x = 1\n    y = 2\n    return a\n\n\ndef other(a):\n    return a\n\n\ndef third(a):\n    return a\n"


def test_a_touched_function_that_changed_elsewhere(patchq: Patchq, upstream: Path) -> None:
    """The patch still applies, but the function around it does something else now."""
    commit_files(upstream, {"pkg/mod.py": BODY})
    git(upstream, "tag", "v2")
    patchq.ok("pin", "up", "--ref", "v2")
    patchq.ok("apply")
    edit(patchq.tree() / "pkg" / "mod.py", 4, b"    return a + 1\n")
    patchq.ok("new", "up", "mine", "-m", "Mine\n\nWhy.")
    commit_files(
        upstream,
        {
            "pkg/mod.py": BODY.replace(b"x = 1", b"a = -a").replace(
                b"def other(a):\n    return a", b"def other(a):\n    return 0"
            )
        },
    )
    git(upstream, "tag", "v3")
    commit_files(upstream, {"pkg/mod.py": b"# only comments\n" + BODY})
    git(upstream, "tag", "v4")
    patchq.ok("pin", "up", "--ref", "v3", "--set", "next")
    patchq.ok("pin", "up", "--ref", "v4", "--set", "same")
    out = json.loads(patchq.fails(1, "drift", "up", "--from", "v2", "--to", "v3", "--json"))
    assert [(a["kind"], a["function"], a["patch"]) for a in out["alarms"]] == [("touched body", "touched", "mine")]
    assert "0 open" in patchq.ok("drift", "up", "--from", "v2", "--to", "v4")
    assert "0 open" in patchq.ok("drift", "up", "--from", "v2", "--to", "v2")
    assert "is not pinned" in patchq.fails(1, "drift", "up", "--from", "v2", "--to", "v9")
    assert "compared: 0 patches of up v3, which has no stack\n" in patchq.ok(
        "drift", "up", "--from", "v3", "--to", "v4"
    )
    assert "did you mean v2?" in patchq.fails(1, "drift", "up", "--from", "2", "--to", "v9")


HELPER = b"def helper(a, b=1):\n    return a + b\n"
CALLER = b"from pkg.helper import helper\n\n\ndef entry(a):\n    return a\n\n\ndef other(a):\n    return a\n"


def test_a_default_of_what_the_patch_calls_with_the_commit_that_changed_it(patchq: Patchq, upstream: Path) -> None:
    """The function that the patch touches is the same; one that it calls has another default."""
    commit_files(upstream, {"pkg/__init__.py": b"", "pkg/helper.py": HELPER, "pkg/caller.py": CALLER})
    git(upstream, "tag", "v2")
    patchq.ok("pin", "up", "--ref", "v2")
    patchq.ok("apply")
    edit(patchq.tree() / "pkg" / "caller.py", 5, b"    return helper(a)\n")
    patchq.ok("new", "up", "mine", "-m", "Mine\n\nWhy.")
    commit_files(upstream, {"pkg/helper.py": HELPER + b"\n\ndef more():\n    return 2\n"})
    commit_files(upstream, {"pkg/helper.py": HELPER.replace(b"b=1", b"b=2")})
    git(upstream, "tag", "v3")
    patchq.ok("pin", "up", "--ref", "v3", "--set", "next")
    out = json.loads(patchq.fails(1, "drift", "up", "--from", "v2", "--to", "v3", "--json"))
    (alarm,) = out["alarms"]
    assert (alarm["kind"], alarm["function"], alarm["callee"]) == ("changed default", "entry", "helper")
    assert (alarm["path"], alarm["at"]) == ("pkg/caller.py", "pkg/helper.py:1")
    assert (out["history"], alarm["commit"]) == (True, git(upstream, "rev-parse", "v3").strip())
    assert out["siblings"] is False
    said = patchq.fails(1, "drift", "up", "--from", "v2", "--to", "v3")
    assert "helper was (a, b=1), is now (a, b=2)" in said
    assert "not compared: calls from other upstreams" in said
    why = patchq.ok("forecast", "up", "--onto", "v3", "--from", "v2", "--why")
    assert "v3 drift: up pkg/caller.py:5 entry (patch mine): changed default" in why


def test_a_call_that_a_stack_fixes_is_marked_fixed(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    commit_files(upstream, {"pkg/__init__.py": b"", "pkg/helper.py": HELPER})
    git(upstream, "tag", "v2")
    commit_files(upstream, {"pkg/helper.py": HELPER.replace(b"b=1", b"c=0, b=1")})
    git(upstream, "tag", "v3")
    other = tmp_path / "other"
    other.mkdir()
    (other / "use.py").write_bytes(b"from pkg.helper import helper\n\n\ndef entry():\n    return helper(1, 2)\n")
    new_repository(other)
    patchq.ok("pin", "up", "--ref", "v2")
    patchq.ok("pin", "up", "--ref", "v3", "--set", "next")
    patchq.ok("pin", "other", "--url", str(other), "--ref", "v1")
    with patchq.layout.lock.open("a") as lock:
        lock.write('\n[upstreams.up.build]\ndistribution = "pkg"\npackage = "pkg"\n')
    args = ("drift", "up", "--from", "v2", "--to", "v3")
    (alarm,) = json.loads(patchq.fails(1, *args, "--json"))["alarms"]
    assert (alarm["kind"], alarm["state"]) == ("positional shift", "open")
    patchq.ok("apply")
    edit(patchq.tree("other") / "use.py", 5, b"    return helper(1, b=2)\n")
    patchq.ok("new", "other", "by-name", "-m", "Name the argument\n\nWhy.")
    (alarm,) = json.loads(patchq.ok(*args, "--json"))["alarms"]
    assert (alarm["kind"], alarm["state"]) == ("positional shift", "fixed")
    said = patchq.ok(*args)
    assert "fixed: other use.py:5 entry: positional shift in pkg.helper.helper" in said
    assert "0 open, 1 fixed by the stacks" in said


STATE = b"class StageState:\n    def __init__(self, count):\n        self.stage_count = count\n"
READER = b"from pkg.state import StageState\n\n\ndef entry(state: StageState):\n    return 0\n"


def test_changes_in_reach_are_counted_and_listed(patchq: Patchq, upstream: Path) -> None:
    """The patch reads an attribute; upstream changes another member of its class."""
    commit_files(upstream, {"pkg/__init__.py": b"", "pkg/state.py": STATE, "pkg/reader.py": READER})
    git(upstream, "tag", "v2")
    patchq.ok("pin", "up", "--ref", "v2")
    patchq.ok("apply")
    edit(patchq.tree() / "pkg" / "reader.py", 5, b"    return state.stage_count\n")
    patchq.ok("new", "up", "mine", "-m", "Mine\n\nWhy.")
    commit_files(upstream, {"pkg/state.py": STATE.replace(b"= count\n", b"= count\n        self.limit = 2\n")})
    git(upstream, "tag", "v3")
    commit_files(upstream, {"pkg/state.py": STATE.replace(b", count)", b", count: int)")})
    git(upstream, "tag", "v4")
    patchq.ok("pin", "up", "--ref", "v3", "--set", "next")
    patchq.ok("pin", "up", "--ref", "v4", "--set", "same")
    out = patchq.ok("drift", "up", "--from", "v2", "--to", "v3")
    assert "far: 0 findings, 1 change that may affect patches: `--far` lists them" in out
    listed = patchq.ok("drift", "up", "--from", "v2", "--to", "v3", "--far")
    assert "may affect patch mine: StageState.__init__ (pkg/state.py:4), both use StageState: self.limit = 2" in listed
    (far,) = json.loads(patchq.ok("drift", "up", "--from", "v2", "--to", "v3", "--json"))["far"]
    assert (far["patch"], far["path"], far["definition"]) == ("mine", "pkg/reader.py", "StageState.__init__")
    assert json.loads(patchq.ok("drift", "up", "--from", "v2", "--to", "v4", "--json"))["far"] == []


def test_one_definition_is_shown_once_for_a_patch(patchq: Patchq, upstream: Path) -> None:
    commit_files(upstream, {"pkg/__init__.py": b"", "pkg/helper.py": HELPER, "pkg/caller.py": CALLER})
    git(upstream, "tag", "v2")
    patchq.ok("pin", "up", "--ref", "v2")
    patchq.ok("apply")
    edit(patchq.tree() / "pkg" / "caller.py", 5, b"    return helper(a)\n")
    edit(patchq.tree() / "pkg" / "caller.py", 9, b"    return helper(a + 1)\n")
    patchq.ok("new", "up", "mine", "-m", "Mine\n\nWhy.")
    commit_files(upstream, {"pkg/helper.py": HELPER.replace(b"b=1", b"b=2")})
    git(upstream, "tag", "v3")
    patchq.ok("pin", "up", "--ref", "v3", "--set", "next")
    said = patchq.fails(1, "drift", "up", "--from", "v2", "--to", "v3")
    assert said.count("helper was (a, b=1), is now (a, b=2)") == 1
    assert "also for pkg/caller.py:9" in said
