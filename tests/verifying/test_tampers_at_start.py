"""Check the tampers of what an interpreter runs and where it looks before it imports the package: start, path, variables."""

from __future__ import annotations

from verifying import tampers_at_start
from verifying.checking import check, steps_of
from verifying.conftest import Cases
from verifying.tampering import Tamper
from verifying.verbs import Judge, Verb


@steps_of(tampers_at_start)
def test_tamper(cases: Cases, judge: Judge, tamper: Tamper, verb: Verb | None) -> None:
    check(cases, judge, tamper, verb)
