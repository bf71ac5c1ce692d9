"""The test that each tamper gets: it is real, and the commands refuse it."""

from __future__ import annotations

from types import ModuleType

import pytest

from verifying.conftest import Cases
from verifying.tampering import TAMPERS, Tamper
from verifying.verbs import Judge, Verb, answer_of, problems_of

#: The command that starts the interpreter comes last, as that may write caches.
ORDER = (Verb.FOLDER, Verb.LAYOUT, Verb.INSTALLED)


def steps_of(module: ModuleType) -> pytest.MarkDecorator:
    """Parametrize a test by a module's tampers and what is checked of each: None is that it is real."""
    pairs: list[tuple[Tamper, Verb | None]] = []
    for tamper in TAMPERS:
        if tamper.change.__module__ == module.__name__:
            pairs += [(tamper, None)] if not tamper.claim else []
            pairs += [(tamper, verb) for verb in ORDER if verb in tamper.verbs]
    return pytest.mark.parametrize(("tamper", "verb"), pairs, ids=_name)


def _name(value: Tamper | Verb | None) -> str:
    if value is None:
        return "real"
    return value.name.lower() if isinstance(value, Verb) else value.name


def check(cases: Cases, judge: Judge, tamper: Tamper, verb: Verb | None) -> None:
    """Check that a tamper changes what runs; with a verb, that this refuses it, and for the tamper's sake."""
    workshop, case = cases.workshop, cases.get(tamper.change, tamper.base)
    if verb is None:
        shown = tamper.shows(case.environment)
        print(shown)
        assert shown != workshop.shown(tamper.base, tamper.shows), "it changes nothing"
        return
    done = judge.verify(verb, case)
    problems = problems_of(answer_of(done))
    print("\n".join(problems))
    assert set(problems) - set(workshop.found(tamper.base, verb)), "it is accepted"
    assert done.exit_code == 1
