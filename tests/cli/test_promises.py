"""Each promise of the pages on security and reliability names tests that hold it, and those tests are there."""

from __future__ import annotations

import ast
import re

import pytest

from kit import ROOT

PAGES = ["SECURITY.md", "docs/explanation/trust.md", "docs/reference/reliability.md"]
_TABLE = re.compile(r"^\| promise \| tests \|\n\|---\|---\|\n((?:\|.*\|\n)+)", re.MULTILINE)


def promises(page: str) -> list[tuple[str, list[str]]]:
    """Return the promises of a page, each with its tests."""
    (table,) = _TABLE.findall((ROOT / page).read_text())
    found = []
    for row in table.splitlines():
        promise, held_by = (cell.strip() for cell in row.strip("|").split(" | "))
        tests = held_by.split(", ")
        assert all(re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", test) for test in tests), row
        found.append((promise, [test.strip("`") for test in tests]))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_promises_in_one_table(page: str) -> None:
    found = promises(page)
    assert len({promise for promise, _ in found}) == len(found) > 5


def test_each_named_test_exists() -> None:
    named = sorted({test for page in PAGES for _, tests in promises(page) for test in tests})
    there = set()
    for file in {test.partition("::")[0] for test in named}:
        for node in ast.parse((ROOT / file).read_text()).body:
            if isinstance(node, ast.FunctionDef):
                there.add(f"{file}::{node.name}")
    assert set(named) <= there
