"""Questions that are asked at once."""

from __future__ import annotations

import threading

import pytest

from patchq.system.together import at_once


def test_answers_come_in_order_and_all_are_asked_at_once() -> None:
    all_there = threading.Barrier(3, timeout=10)

    def ask(number: int) -> int:
        all_there.wait()
        return number * 2

    assert at_once(ask, [3, 1, 2]) == [6, 2, 4]
    assert at_once(ask, []) == []


def test_the_first_error_is_raised_when_all_have_ended() -> None:
    ended: list[int] = []

    def ask(number: int) -> None:
        ended.append(number)
        if number:
            raise ValueError(number)

    with pytest.raises(ValueError, match="2"):
        at_once(ask, [2, 0, 1])
    assert sorted(ended) == [0, 1, 2]
