"""The test that each tamper gets: it is real, and the commands refuse it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from verifying.conftest import Cases
from verifying.tampering import TAMPERS, Tamper
from verifying.verbs import Judge, Verb, answer_of, problems_of

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "build-and-verify.md"
#: Lines of PAGE, "What verification does not check", and the tampers that pass for this reason: what no RECORD or lock describes.
LIMITS = {
    "the standard library": {
        "standard_library_changed", "site_changed", "encodings_changed", "importlib_changed",
        "extension_of_the_standard_library_replaced", "cache_of_the_standard_library_forged",
        "cache_of_the_standard_library_unchecked",
    },
    "the content of other distributions": {"module_of_setuptools_pth_changed_with_its_row"},
    "scripts that an image starts": {"entry_point_is_a_script"},
    "the folder in which you start Python": {"package_in_the_working_directory"},
}  # fmt: skip
#: `verify-image` knows the working folder of an image.
REFUSED = {("package_in_the_working_directory", Verb.LAYOUT)}
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


def limit_of(tamper: Tamper, verb: Verb) -> str:
    """Return the documented limit for which a tamper passes; empty for those that must be refused."""
    if (tamper.name, verb) in REFUSED:
        return ""
    return next((limit for limit, names in LIMITS.items() if tamper.name in names), "")


def check(cases: Cases, judge: Judge, tamper: Tamper, verb: Verb | None) -> None:
    """Check that a tamper changes what runs; with a verb, that this refuses it, and for the tamper's sake."""
    workshop, case = cases.workshop, cases.get(tamper.change, tamper.base)
    if verb is None:
        shown = tamper.shows(case.environment)
        print(shown)
        assert shown != workshop.shown(tamper.base, tamper.shows), "it changes nothing"
        return
    done = judge.verify(verb, case)
    if limit := limit_of(tamper, verb):
        assert f"- {limit}" in PAGE.read_text(), "a limit has to be in the page"
        assert done.exit_code == 0, "it is refused: take it out of LIMITS and of the page"
        return
    problems = problems_of(answer_of(done))
    print("\n".join(problems))
    assert set(problems) - set(workshop.found(tamper.base, verb)), "it is accepted"
    assert done.exit_code == 1
