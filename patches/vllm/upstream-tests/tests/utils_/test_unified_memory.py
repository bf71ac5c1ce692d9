# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Free memory on GPUs that share the host's memory (UMA), and on those that don't."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from vllm.utils import mem_utils
from vllm.utils.mem_constants import GiB_bytes
from vllm.utils.mem_utils import (
    MemorySnapshot,
    get_consumed_memory,
    get_free_memory,
    get_memory_taken,
)

pytestmark = pytest.mark.skip_global_cleanup

CUDA_FREE = 3 * GiB_bytes
AVAILABLE = 52 * GiB_bytes
TOTAL = 120 * GiB_bytes


@pytest.fixture(params=[True, False], ids=["integrated", "discrete"])
def integrated(request):
    platform = SimpleNamespace(
        device_type="cuda", is_integrated_gpu=lambda device_id=0: request.param
    )
    memory = SimpleNamespace(available=AVAILABLE)
    with (
        patch.object(mem_utils, "current_platform", platform),
        patch.object(mem_utils.psutil, "virtual_memory", lambda: memory),
        patch.object(
            torch.accelerator, "get_memory_info", lambda device=None: (CUDA_FREE, TOTAL)
        ),
    ):
        yield request.param


def _snapshot(free_memory: int, torch_memory: int = 0) -> MemorySnapshot:
    return MemorySnapshot(
        free_memory=free_memory,
        torch_memory=torch_memory,
        device="cuda:0",
        auto_measure=False,
    )


@pytest.mark.parametrize("device", [None, "cuda", "cuda:0", torch.device("cuda:0")])
def test_free_memory_is_the_systems_on_integrated_gpus(integrated, device):
    assert get_free_memory(device) == (AVAILABLE if integrated else CUDA_FREE)


def test_memory_taken_is_not_negative_on_integrated_gpus(integrated):
    free = get_free_memory()
    assert get_memory_taken(free + 7) == 7
    assert get_memory_taken(free - 7) == (0 if integrated else -7)


@pytest.mark.parametrize(
    "free_after, expected",
    [
        # Others took 5 GiB beside the 10 GiB of this process.
        (35 * GiB_bytes, 15 * GiB_bytes),
        # Others released 5 GiB, or more than this process took.
        (45 * GiB_bytes, 10 * GiB_bytes),
        (70 * GiB_bytes, 10 * GiB_bytes),
    ],
)
def test_released_memory_is_not_this_process_s(integrated, free_after, expected):
    before = _snapshot(50 * GiB_bytes, torch_memory=GiB_bytes)
    after = _snapshot(free_after, torch_memory=11 * GiB_bytes)
    if not integrated:
        expected = 50 * GiB_bytes - free_after
    assert get_consumed_memory(before, after) == expected
