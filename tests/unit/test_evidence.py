"""The evidence files name the patches that they are of, and their pages say which have changed since."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "stacks"))
from evidence import EVIDENCE, change_id, here, pages, row_files, since, stack_patches

ROWS = row_files()
WHOLE = [path for path in sorted(EVIDENCE.glob("*.json")) if path not in ROWS]
STACK = "vllm v0.33.0"
PATCH = b"""\
Subject: Why

- a list's item

diff --git a/x.py b/x.py
index 1..2 100644
--- a/x.py
+++ b/x.py
@@ -7,3 +7,3 @@ def f():
 same
-old
+new
"""


def content(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_pages_are_of_today() -> None:
    old = [path.name for path, text in pages().items() if path.read_text() != text]
    assert not old, "`python tests/stacks/evidence.py` writes them again"


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_a_file_names_its_date_and_patches(path: Path) -> None:
    found = content(path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert all(found["patches"].values()), "`python tests/stacks/evidence.py record` writes them"


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_the_patches_are_those_that_were_found_installed(path: Path) -> None:
    found = content(path)
    said = "\n".join(found.get("verify-installed", []))
    installed = re.findall(r"(?:live|left out, as it must be compiled): (\S+)", said)
    named = [f"{stack.split()[0]}/{name}" for stack, names in found["patches"].items() for name in names]
    assert not installed or sorted(installed) == sorted(named)


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_a_row_names_what_it_was_measured_with(path: Path) -> None:
    for row in content(path)["rows"]:
        assert {"patch_id", "proof_id", "commit"} <= set(row), row["patch"]


def test_a_patch_is_told_by_the_lines_that_it_changes() -> None:
    moved = PATCH.replace(b"-7,3 +7,3", b"-9,3 +10,3").replace(b"1..2", b"3..4").replace(b"Why", b"Because")
    assert change_id(moved.replace(b"- a list's", b"- another list's")) == change_id(PATCH)
    assert change_id(PATCH.replace(b"+new", b"+newer")) != change_id(PATCH)


def test_what_changed_came_or_went_is_named() -> None:
    now = stack_patches(STACK, here)
    changed, new = list(now)[:2]
    then = {**now, changed: "0" * 12, "away": "1" * 12}
    del then[new]
    assert since(STACK, now, whole=True) == ""
    assert since(STACK, then, whole=True) == f"{STACK}: changed `{changed}`; 1 new; gone `away`"
    assert since(STACK, then, whole=False) == f"{STACK}: changed `{changed}`; gone `away`"
    assert since("vllm v0.0.1", now, whole=True) == "vllm v0.0.1 is gone"
