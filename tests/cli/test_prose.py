"""Wording of the code and the documentation: habits that make sentences hard to read stay rare.

The limits are a smoke alarm. A sentence that is reworded only to pass them is no improvement.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import prose
from kit import ROOT


@pytest.mark.parametrize(("name", "limit"), [("tools/patchq", 0.3), ("docs", 0.6), ("README.md", 0.6)])
def test_habits_are_rare(name: str, limit: float) -> None:
    found = prose.count(ROOT / name)
    assert found.words > 500
    assert found.openings <= 0.02 * found.docstrings
    assert {habit for habit in prose.HABITS if found.rate(habit) > limit} == set(), "\n".join(found.places)


def test_the_counts_see_habits(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        'def f(x):\n    """What stands at hand."""\n    raise UserError("nobody made it anew", hint="mend it")\n'
    )
    found = prose.count(tmp_path)
    assert (found.docstrings, found.openings) == (1, 1)
    assert found.hits == {
        "at hand, stands, comes to": 2,
        "anew, beside, once more": 1,
        "nobody, whoever": 1,
        "mend, walled, parked": 1,
    }
