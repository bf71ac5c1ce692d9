"""Check the tampers of what the wheels installed: modules, caches, libraries, data, metadata, scripts, whole wheels."""

from __future__ import annotations

from verifying import tampers_of_files
from verifying.checking import check, steps_of
from verifying.conftest import Cases
from verifying.tampering import Tamper
from verifying.verbs import Judge, Verb


@steps_of(tampers_of_files)
def test_tamper(cases: Cases, judge: Judge, tamper: Tamper, verb: Verb | None) -> None:
    check(cases, judge, tamper, verb)
