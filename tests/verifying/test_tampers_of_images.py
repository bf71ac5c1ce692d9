"""Check the tampers of an image itself: labels, evidence, and layers whose members are read in more than one way."""

from __future__ import annotations

from verifying import tampers_of_images
from verifying.checking import check, steps_of
from verifying.conftest import Cases
from verifying.tampering import Tamper
from verifying.verbs import Judge, Verb


@steps_of(tampers_of_images)
def test_tamper(cases: Cases, judge: Judge, tamper: Tamper, verb: Verb | None) -> None:
    check(cases, judge, tamper, verb)
