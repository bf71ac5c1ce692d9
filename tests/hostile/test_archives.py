"""Release archives that reach outside, run something, or overwhelm whoever unpacks them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Base, Case, World
from tars import member, tar, tricks

GOOD = (member("p-1/a.txt", b"a\n"), member("p-1/b/c.txt", b"c\n"), member("p-1/run.sh", b"#!/bin/sh\n", mode=0o755))
NAMES = tuple(tricks("", "", ""))


def archive(name: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        trick = tricks("p-1", str(world.outside), world.mark_code("archive"))[name]
        data = tar([*GOOD, *trick.more])
        if trick.whole:
            data = trick.whole(data)
        world.write(world.project / "p-1.tar.gz", trick.pack(data))

    return make


CASES = [
    Case(
        name=name,
        base=Base.EMPTY,
        make=archive(name),
        verbs=("pin p --archive ./p-1.tar.gz --ref v1", "apply", "status"),
    )
    for name in NAMES
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_archive(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 95
