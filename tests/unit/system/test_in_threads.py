"""`runner.in_threads` keeps the order, and waits for all threads before it raises."""

from __future__ import annotations

import threading

import pytest

from patchq.system import runner


def test_results_come_in_the_order_of_the_items() -> None:
    second_is_done = threading.Event()

    def work(item: int) -> int:
        if item == 1:
            assert second_is_done.wait(10)
        else:
            second_is_done.set()
        return item * 10

    assert runner.in_threads(work, [1, 2]) == [10, 20]
    assert runner.in_threads(work, []) == []


def test_the_first_items_error_is_raised_after_all_have_ended() -> None:
    ended = []

    def work(item: int) -> None:
        ended.append(item)
        if item > 1:
            raise ValueError(item)

    with pytest.raises(ValueError, match=r"^2$"):
        runner.in_threads(work, [1, 2, 3])
    assert sorted(ended) == [1, 2, 3]
