"""`patchq.records` makes the same classes as Python's `dataclass`."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from patchq import records

BOTH = (dataclasses.dataclass, records.dataclass)


def classes(decorate: Callable[..., Any]) -> list[Any]:
    """Return the same records, made by one of the decorators."""

    @decorate(frozen=True, slots=True)
    class Plain:
        """A point.

        :ivar x: left
        """

        x: int
        y: int = 2
        kind: ClassVar[str] = "point"

    @decorate(frozen=True, slots=True, kw_only=True)
    class Named:
        many: list[int] = field(default_factory=list)
        hidden: str = field(default="h", repr=False)
        ignored: int = field(default=0, compare=False)
        later: dict[str, int] = field(default_factory=dict, init=False, compare=False)
        fixed: int = field(default=7, init=False)
        needed: str

    @decorate(frozen=True, slots=True)
    class Checked(Plain):
        name: str = field(default="n", kw_only=True)
        __self__ = None

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    @decorate(frozen=True, slots=True)
    class Empty:
        pass

    @decorate(frozen=True, slots=True)
    class One:
        only: float

    @decorate(frozen=True, slots=True)
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

    @decorate(frozen=True, slots=True, order=True)
    class Ordered:
        x: int

    @decorate(slots=True)
    class Changing:
        x: int = 1

    return [Plain, Named, Checked, Empty, One, Own, Ordered, Changing]


def outcome(work: Callable[[], object]) -> object:
    """Return the result, or the type and message of the error."""
    try:
        return work()
    except Exception as error:
        return type(error), str(error)


CALLS: list[Callable[[list[Any]], object]] = [
    lambda c: repr(c[0](1)),
    lambda c: repr(c[1](needed="x", hidden="y")),
    lambda c: repr((c[2](1, name="m"), c[3](), c[4](1.5), c[5](1), c[6](1), c[7]())),
    lambda c: c[0](),
    lambda c: c[0](1, 2, 3),
    lambda c: c[1]("x"),
    lambda c: c[1](needed="x", fixed=1),
    lambda c: c[2](-1),
    lambda c: (c[0](1) == c[0](1, 2), c[0](1) == c[0](2), c[0](1) == (1, 2), c[0](1) == c[2](1), c[3]() == c[3]()),
    lambda c: (c[1](needed="x", ignored=1) == c[1](needed="x"), c[1](needed="x") == c[1](needed="y")),
    lambda c: (hash(c[0](1)), hash(c[3]()), hash(c[4](1.5)), hash(c[6](1)), len({c[2](1), c[2](1), c[2](2)})),
    lambda c: hash(c[1](needed="x")),
    lambda c: hash(c[7]()),
    lambda c: setattr(c[0](1), "x", 2),
    lambda c: delattr(c[4](1.5), "only"),
    lambda c: [dataclasses.asdict(c[0](1)), dataclasses.astuple(c[1](needed="x"))],
    lambda c: repr((dataclasses.replace(c[0](1), y=9), dataclasses.replace(c[1](needed="x"), many=[1]))),
    lambda c: dataclasses.replace(c[0](1), z=9),
    lambda c: repr((copy.copy(c[0](1)), copy.deepcopy(c[1](needed="x", many=[1])))),
    lambda c: c[1](needed="x").many is c[1](needed="x").many,
    lambda c: [list(inspect.signature(cls).parameters) for cls in c],
    lambda c: [cls.__match_args__ for cls in c],
    lambda c: [hasattr(cls(*args), "__dict__") for cls, args in zip(c, [(1,), (), (1,), ()], strict=False) if cls is not c[1]],
    lambda c: c[0].__doc__,
    lambda c: c[4](float("nan")) == c[4](float("nan")),
    lambda c: sorted([c[6](2), c[6](1)])[0].x,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_both_decorators_give_the_same(number: int) -> None:
    theirs, ours = map(classes, BOTH)
    call = CALLS[number]
    assert outcome(lambda: call(ours)) == outcome(lambda: call(theirs))


@records.dataclass(frozen=True, slots=True)
class Stored:
    x: int
    y: str = "y"


def test_no_field_can_be_added() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Stored(1).z = 2  # type: ignore[attr-defined]


def test_a_record_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Stored(1))) == Stored(1)
