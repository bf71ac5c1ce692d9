"""How far the reliability tests go, and what they found: the short form on each run, or the long one.

``PATCHQ_RELIABILITY=long`` tries every point, ``PATCHQ_RELIABILITY_EACH`` so many of each verb at random, by
``PATCHQ_RELIABILITY_SEED``; ``PATCHQ_RELIABILITY_RESULTS`` names a folder that each test writes its figures to.
``python tests/reliability/long_form.py`` sets them.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from zlib import crc32

LONG = os.environ.get("PATCHQ_RELIABILITY") == "long"
EACH = int(os.environ.get("PATCHQ_RELIABILITY_EACH", "0"))
SEED = os.environ.get("PATCHQ_RELIABILITY_SEED", "")


def chosen(points: int, name: str, short: int = 4, every: int = 1) -> Sequence[int]:
    """Which of ``points`` (from 1) are tried: all in the long form, about ``short`` of them otherwise.

    The short form's are spread evenly, and begin elsewhere for each ``name``. Where points are asked for at random,
    one is taken of each of as many stretches of the same length.

    :param every: in the long form only each so-manieth, where a point takes seconds.
    """
    if EACH:
        pick, count = random.Random(f"{SEED} {name}"), min(EACH, points)
        bounds = [1 + points * n // count for n in range(count + 1)]
        return [pick.randrange(low, high) for low, high in pairwise(bounds)]
    step = every if LONG else max(1, points // short)
    return range(1 + crc32(name.encode()) % step, points + 1, step)


def record(kind: str, **figures: object) -> None:
    """Keep a result for the long form's report."""
    if folder := os.environ.get("PATCHQ_RELIABILITY_RESULTS"):
        Path(folder, f"{kind}-{uuid.uuid4().hex}.json").write_text(json.dumps({"kind": kind, **figures}))
