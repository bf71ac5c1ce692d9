"""The temporary file of an image's layers."""

from __future__ import annotations

import gc
import warnings
from typing import Any

from patchq.environment.image import Layers


def test_it_is_closed_without_a_warning_in_a_reference_cycle() -> None:
    layers: Any = Layers()
    layers.entries["self"] = layers
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del layers
        gc.collect()
    assert [str(one.message) for one in told] == []
