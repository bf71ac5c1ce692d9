"""The page of the last long run says what its results say."""

from __future__ import annotations

import json

import long_form


def test_the_tables_are_those_of_the_results() -> None:
    found = json.loads(long_form.RESULTS.read_text())
    text = long_form.PAGE.read_text()
    assert long_form.page(text, found) == text


def test_the_results_are_of_a_long_run_without_a_fault() -> None:
    found = json.loads(long_form.RESULTS.read_text())
    verbs = {row["verb"] for row in found["killed"]}
    assert {"apply cold", "apply fresh", "export", "import", "pin", "undo", "build lib", "new", "drop", "move"} <= verbs
    assert {f"rebase {what}, then goes on" for what in ("onto", "continue", "skip", "abort")} <= verbs
    assert all(row["findings"] == 0 for row in found["fuzz"])
    # Every point, not some.
    assert all(row["before"] + row["after"] == row["points"] for row in found["killed"] if "before" in row)
