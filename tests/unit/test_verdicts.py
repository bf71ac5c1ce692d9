"""Every patch of the default set has a verdict on today's releases: carried there, retired or withdrawn, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchq.formats import ledger, lock, series

ROOT = Path(__file__).resolve().parents[2]
LOCK = lock.parse((ROOT / "upstream.lock").read_bytes())
UPSTREAMS = ("vllm", "flashinfer")


def names(upstream: str, set_name: str) -> list[str]:
    folder = ROOT / "patches" / upstream / LOCK.sets[set_name][upstream]
    return list(series.parse((folder / "series").read_bytes(), "series").names)


@pytest.mark.parametrize(("upstream", "patch"), [(u, patch) for u in UPSTREAMS for patch in names(u, LOCK.default_set)])
def test_a_patch_of_the_default_set(upstream: str, patch: str) -> None:
    newest = LOCK.sets["gb10-newest"][upstream]
    found = ledger.parse((ROOT / "patches" / upstream / "ledger.jsonl").read_bytes())
    attempts = sorted((a for a in found.attempts if a.patch == patch), key=lambda a: a.time)
    last = attempts[-1]
    here = patch in names(upstream, "gb10-newest")
    if last.onto != newest:
        assert last.outcome == "absorbed", f"{last.outcome} on {last.onto} is no verdict"
        assert not here
        return
    assert (last.outcome in ledger.CARRIED) is here
    if not here:
        assert last.outcome in ("absorbed", "obsolete", "withdrawn")
        assert last.how, "why"
        assert last.proof or last.how.startswith("withdrawn: "), "upstream's own behaviour is shown"


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_each_test_that_a_retirement_names_is_there(upstream: str) -> None:
    found = ledger.parse((ROOT / "patches" / upstream / "ledger.jsonl").read_bytes())
    named = [a.evidence.partition("::") for a in found.attempts if "::" in a.evidence]
    assert named
    for path, _, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), test
