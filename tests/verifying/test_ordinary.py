"""Environments as people make them: both commands accept each, without any allowance."""

from __future__ import annotations

import pytest

from verifying.conftest import Cases
from verifying.ordinary import ORDINARY, Ordinary
from verifying.verbs import Judge, Verb, answer_of, problems_of

#: None is that the environment runs the patched build. The command that starts the interpreter comes last.
STEPS = [(case, verb) for case in ORDINARY for verb in (None, *case.verbs)]


def named(value: Ordinary | Verb | None) -> str:
    if value is None:
        return "runs"
    return value.name.lower() if isinstance(value, Verb) else value.name


@pytest.mark.parametrize(("ordinary", "verb"), STEPS, ids=named)
def test_environment(cases: Cases, judge: Judge, ordinary: Ordinary, verb: Verb | None) -> None:
    case = cases.get(ordinary.change, ordinary.base)
    if verb is None:
        shown = case.environment.probe()
        assert shown.count('"answer": 42') == 2, shown
        assert '"tampered": null' in shown
        return
    done = judge.verify(verb, case)
    assert (done.exit_code, problems_of(answer_of(done))) == (0, []), done.output
