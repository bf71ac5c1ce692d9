"""What a ref costs, in a line."""

from __future__ import annotations

from patchq.forecast.summary import ForecastCell, summary
from patchq.merge.patches import FileConflict


def cell(name: str, outcome: str, *files: FileConflict, known: bool = False, unproved: bool = False) -> ForecastCell:
    return ForecastCell(patch=f"up/{name}", ref="v2", outcome=outcome, files=files, known=known, unproved=unproved)


def test_each_patch_is_counted_once_and_only_work_is_work() -> None:
    cells = [
        *(cell(f"has-{n}", "absorbed", FileConflict("x", (1, 2))) for n in range(12)),
        *(cell(f"again-{n}", "replayed", FileConflict("x")) for n in range(3)),
        cell("one", "conflict", FileConflict("a", (1, 9)), FileConflict("b")),
        cell("two", "obsolete", FileConflict("b")),
    ]
    found = summary("v2", cells)
    assert found.message == "12 upstream has, 3 replay, 2 need review (4 hunks, 2 files)"
    assert found.needs == ("up/one", "up/two")


def test_what_is_there_lands_or_replays_unproved() -> None:
    cells = [cell("there", "conflict", FileConflict("a"), known=True), cell("moved", "offset")]
    assert summary("v2", cells).message == "1 already carried, 1 lands, none needs review"
    cells.append(cell("again", "replayed", FileConflict("a"), unproved=True))
    assert summary("v2", cells).message == "1 already carried, 1 lands, 1 needs review (1 hunk, 1 file)"


def test_what_rules_or_the_user_settled_lands() -> None:
    outcomes = ("clean", "offset", "merged", "by rule", "resolved")
    found = summary("v2", [cell(outcome, outcome) for outcome in (*outcomes, "replayed", "absorbed")])
    assert found.lands == tuple(f"up/{outcome}" for outcome in outcomes)
    assert (found.replays, found.upstream_has) == (("up/replayed",), ("up/absorbed",))
