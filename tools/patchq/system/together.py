"""Questions asked at once, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def at_once(ask: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What ``ask`` answers to each of a few, in their order; of what it raises the first, when all have ended.

    A pool of threads does that too, and its import takes longer than what is asked here.
    """
    every = list(items)
    answers: list[R | BaseException] = [RuntimeError("not asked")] * len(every)

    def run(number: int) -> None:
        try:
            answers[number] = ask(every[number])
        except BaseException as error:
            answers[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(every))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found: list[R] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found
