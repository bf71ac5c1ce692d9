# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The reserve that a machine keeps whose GPU shares the host's memory (UMA)."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest

from vllm.config import CacheConfig
from vllm.utils.mem_constants import GiB_bytes
from vllm.utils.mem_utils import MemorySnapshot
from vllm.v1.worker import utils
from vllm.v1.worker.utils import request_memory

pytestmark = pytest.mark.skip_global_cleanup


def _requested_gib(
    integrated: bool,
    free_gib: int,
    reserve_gib: int | None = None,
    utilization: float = 0.8,
    external_gib: int = 0,
) -> float:
    """What `request_memory` allows of 100 GiB."""
    reserve = None if reserve_gib is None else reserve_gib * GiB_bytes
    platform = SimpleNamespace(is_integrated_gpu=lambda device_id=0: integrated)
    snapshot = MemorySnapshot(
        free_memory=free_gib * GiB_bytes,
        total_memory=100 * GiB_bytes,
        device="cuda:0",
        auto_measure=False,
    )
    cache_config = CacheConfig(
        gpu_memory_utilization=utilization, unified_memory_reserve_bytes=reserve
    )
    with patch.object(utils, "current_platform", platform):
        requested = request_memory(snapshot, cache_config, external_gib * GiB_bytes)
    return requested / GiB_bytes


@pytest.mark.parametrize(
    "integrated, free_gib, reserve_gib, expected",
    [
        (True, 82, None, 77),
        (True, 82, 8, 74),
        (True, 82, 0, 80),
        (True, 90, None, 80),
        (False, 82, None, 80),
        (False, 82, 8, 80),
    ],
)
def test_reserve_lowers_the_requested_memory(
    integrated, free_gib, reserve_gib, expected
):
    assert _requested_gib(integrated, free_gib, reserve_gib) == expected


def test_utilization_is_a_limit_per_instance():
    """A second instance may use what the first may, while it is available."""
    first = _requested_gib(True, free_gib=100, utilization=0.45)
    second = _requested_gib(True, free_gib=100 - 45, utilization=0.45)
    assert first == second == 45


def test_reserve_counts_beside_external_weights():
    assert _requested_gib(True, free_gib=22, reserve_gib=8, external_gib=60) == 14
    assert _requested_gib(False, free_gib=22, reserve_gib=8, external_gib=60) == 20


def test_refuses_when_less_than_the_reserve_is_available():
    with pytest.raises(ValueError, match="5.0 GiB of the 100.0 GiB"):
        _requested_gib(True, free_gib=5, utilization=0.04)
    assert _requested_gib(False, free_gib=5, utilization=0.04) == 4
