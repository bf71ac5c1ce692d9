"""The verb: functions that a stack touches, between two refs."""

from __future__ import annotations

import json
from pathlib import Path

from kit import Patchq, commit_files, edit, git

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
            "pkg/mod.py": BODY.replace(b"x = 1", b"x = -a").replace(
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
