"""Every patch of the default set has a verdict on today's releases: carried there, retired or withdrawn, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchq.formats import ledger, lock, series

ROOT = Path(__file__).resolve().parents[2]
LOCK = lock.parse((ROOT / "upstream.lock").read_bytes())
UPSTREAM = "vllm"


def names(set_name: str) -> list[str]:
    folder = ROOT / "patches" / UPSTREAM / LOCK.sets[set_name][UPSTREAM]
    return list(series.parse((folder / "series").read_bytes(), "series").names)


@pytest.mark.parametrize("patch", names(LOCK.default_set))
def test_a_patch_of_the_default_set(patch: str) -> None:
    newest = LOCK.sets["gb10-newest"][UPSTREAM]
    found = ledger.parse((ROOT / "patches" / UPSTREAM / "ledger.jsonl").read_bytes())
    attempts = sorted((a for a in found.attempts if a.patch == patch), key=lambda a: a.time)
    last = attempts[-1]
    here = patch in names("gb10-newest")
    if last.onto != newest:
        assert last.outcome == "absorbed", f"{last.outcome} on {last.onto} is no verdict"
        assert not here
        return
    assert (last.outcome in ledger.CARRIED) is here
    if not here:
        assert last.outcome in ("absorbed", "obsolete")
        assert last.how, "why"
        assert last.proof or last.how.startswith("withdrawn: "), "upstream's own behaviour is shown"


def test_each_test_that_a_retirement_names_is_there() -> None:
    found = ledger.parse((ROOT / "patches" / UPSTREAM / "ledger.jsonl").read_bytes())
    named = [a.evidence.partition("::") for a in found.attempts if "::" in a.evidence]
    assert named
    for path, _, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), test
