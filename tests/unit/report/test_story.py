"""The way from one set to another, as the ledgers and the series tell it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit import ROOT, Patchq
from patchq.formats.ledger import Ledger, parse
from patchq.project.project import Project
from patchq.report.story import StoryWay, route, tell, way
from patchq.system.paths import Layout

PAGE = ROOT / "docs" / "explanation" / "from-0.13-to-0.33.md"


def line(patch: str, before: str, onto: str, outcome: str, minute: int, **more: Any) -> bytes:
    body = {
        "v": 3, "patch": patch, "patch_id": "0" * 40, "from_ref": before, "onto": onto, "outcome": outcome,
        "tool": "patchq 0", "time": f"2026-01-01T00:{minute:02d}:00Z", **more,
    }  # fmt: skip
    return json.dumps(body).encode() + b"\n"


def files(*hunks: int) -> list[dict[str, Any]]:
    return [{"path": f"f{n}", "hunks": count} for n, count in enumerate(hunks)]


LEDGER = (
    # Straight from v1 to v3 first, as a look.
    line("a", "v1", "v3", "conflict", 1, files=files(9))
    + line("b", "v1", "v3", "merged", 1)
    + line("c", "v1", "v3", "conflict", 1, files=files(0))
    # Then by v2.
    + line("a", "v1", "v2", "conflict", 2, files=files(2, 0))
    + line("a", "v1", "v2", "resolved", 3, how="by hand", lines=5, proof="passed")
    + line("b", "v1", "v2", "clean", 2)
    + line("c", "v1", "v2", "conflict", 2, files=files(1), how="later")
    + line("gone", "v1", "v1", "withdrawn", 1, how="harmful")
    + line("a", "v2", "v3", "offset", 4)
    + line("b", "v2", "v3", "absorbed", 4, how="theirs", evidence="f0: contained since v3")
    + line("c", "v1", "v3", "absorbed", 5, how="theirs too")
)
SERIES = {"v1": ("a", "b", "c"), "v2": ("a", "b"), "v3": ("a", "new")}


@pytest.fixture
def told() -> StoryWay:
    return way("up", parse(LEDGER), SERIES, "v1", "v3")


def test_the_way_goes_through_what_was_carried(told: StoryWay) -> None:
    assert told.refs == ("v1", "v2", "v3")
    assert route(parse(LEDGER).attempts, "v1", "v9") == ("v1", "v9")
    assert told.set_out == ("a", "b", "c")


def test_a_stop_counts_what_first_stopped_it_and_says_what_was_last(told: StoryWay) -> None:
    first, second = told.steps
    (stop,) = first.stops
    assert (stop.patch, stop.hunks, stop.files, stop.last.how, stop.last.lines) == ("a", 3, ("f0", "f1"), "by hand", 5)
    assert [(s.patch, s.hunks) for s in first.left] == [("c", 1)]
    assert (first.hunks, first.lines, first.alone) == (4, 5, (("clean", ("b",)),))
    assert (second.hunks, second.stops, second.left) == (0, (), ())


def test_a_look_from_further_back_is_told_beside_and_settles_nothing(told: StoryWay) -> None:
    first, second = told.steps
    assert first.straight == ()
    (straight,) = second.straight
    assert (straight.before, straight.tried, straight.stopped, straight.hunks, straight.along) == ("v1", 3, 1, 9, 4)
    assert second.alone == (("offset", ("a",)),)
    assert {a.patch for a in second.taken} == {"b", "c"}


def test_the_series_say_what_stands(told: StoryWay) -> None:
    assert told.steps[1].written == ("new",)
    assert told.last == ("a", "new")
    other = way("up", parse(LEDGER), {**SERIES, "v3": ()}, "v1", "v3")
    assert other.steps[1].missing == ("a",)


def test_each_patch_has_its_way(told: StoryWay) -> None:
    assert dict(told.lives) == {
        "a": ("resolved", "offset"), "b": ("clean", "upstream has it"), "c": ("left out", "upstream has it"),
        "new": ("", "written for it"),
    }  # fmt: skip


def test_without_a_ledger_only_the_ends_are_known() -> None:
    found = way("up", Ledger(), {"v1": ("a", "b"), "v2": ("a",)}, "v1", "v2")
    assert (found.output, found.set_out, found.last, found.steps[0].written) == (False, ("a", "b"), ("a",), ())


def test_dropped_patches_are_named_without_the_words_of_the_ledger(stack: Patchq) -> None:
    ledger = line("one", "v1", "v2", "resolved", 1) + line("two", "v1", "v2", "absorbed", 2, how="<b>|[x](y)")
    ledger += line("three", "v1", "v2", "obsolete", 3, how="gone") + line("four", "v1", "v2", "absorbed", 4)
    (stack.root / "patches" / "up" / "ledger.jsonl").write_bytes(ledger)
    lock = stack.layout.lock.read_text()
    more = f"""\n[upstreams.up.pins.v2]\ncommit = "{"0" * 40}"\n[sets.next]\nup = "v2"\n"""
    stack.layout.lock.write_text(lock + more)
    (stack.root / "patches" / "up" / "v2").mkdir()
    (stack.root / "patches" / "up" / "v2" / "series").write_text("")
    text = stack.ok("ledger", "--story", f"{stack.project.lock.default_set}..next")
    assert "Upstream has it: `two`, `four`." in text
    assert "No longer needed: `three`." in text
    assert "<b>" not in text
    assert "not in the series: `one`" in text


@pytest.mark.parametrize("given", ["one", "..two", "one.."])
def test_two_sets_are_asked_for(stack: Patchq, given: str) -> None:
    assert "FROM..TO" in stack.fails(2, "ledger", "--story", given)
    assert "no other option" in stack.fails(2, "ledger", "--story", "a..b", "--cost")


def test_a_set_that_is_not_there(stack: Patchq) -> None:
    stack.fails(1, "ledger", "--story", "nope..nope")


def test_the_page_is_current() -> None:
    """Renew it: patchq ledger --story gb10..gb10-newest > docs/explanation/from-0.13-to-0.33.md"""
    assert PAGE.read_text() == tell(Project(layout=Layout(Path(ROOT))), "gb10", "gb10-newest")


def test_the_ledger_and_the_series_agree_on_the_page() -> None:
    assert "not in the series" not in PAGE.read_text()
