# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a profiling run may allocate where the GPU shares the host's memory (UMA)."""

import contextlib
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from vllm.config import CacheConfig
from vllm.platforms import current_platform
from vllm.utils.mem_constants import GiB_bytes
from vllm.v1.worker import gpu_worker
from vllm.v1.worker.gpu_worker import limit_profiling_memory

TOTAL = 100 * GiB_bytes
WEIGHTS = 20 * GiB_bytes
MiB_bytes = GiB_bytes >> 10


@contextlib.contextmanager
def _machine(integrated: bool = True, free: int = 70 * GiB_bytes):
    """A device with 20 GiB of weights; yields the limits in bytes that were set."""
    limits: list[int] = []
    before = SimpleNamespace(
        free_memory=90 * GiB_bytes, total_memory=TOTAL, torch_memory=0
    )
    before.device_ = torch.device("cuda:0")
    now = SimpleNamespace(free_memory=free, total_memory=TOTAL, torch_memory=WEIGHTS)
    worker = SimpleNamespace(
        device=torch.device("cuda:0"),
        init_snapshot=before,
        requested_memory=50 * GiB_bytes,
        cache_config=CacheConfig(unified_memory_reserve_bytes=4 * GiB_bytes),
    )
    platform = SimpleNamespace(is_integrated_gpu=lambda device_id=0: integrated)
    with (
        patch.object(gpu_worker, "is_integrated_device", lambda: integrated),
        patch.object(gpu_worker, "MemorySnapshot", lambda device: now),
        patch("vllm.utils.mem_utils.is_integrated_device", lambda device: integrated),
        patch("vllm.v1.worker.utils.current_platform", platform),
        patch.object(torch.accelerator, "empty_cache", lambda: None),
        patch.object(torch.cuda.memory, "get_allocator_backend", lambda: "native"),
        patch.object(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0),
        patch.object(
            torch.cuda,
            "set_per_process_memory_fraction",
            lambda fraction, device: limits.append(round(fraction * TOTAL)),
        ),
    ):
        yield worker, limits


@pytest.mark.skip_global_cleanup
@pytest.mark.parametrize(
    "kv_gib, free_gib, allowed_gib",
    [
        # 50 GiB were requested, of which the weights take 20.
        (None, 70, 30),
        # Others took 10 GiB meanwhile, or released them.
        (None, 60, 20),
        (None, 80, 30),
        # The KV cache and the reserve of 4 GiB are not profiling's.
        (40, 70, 26),
    ],
)
@pytest.mark.parametrize("error", [None, torch.OutOfMemoryError])
def test_limit_is_set_and_lifted(kv_gib, free_gib, allowed_gib, error):
    kv_bytes = None if kv_gib is None else kv_gib * GiB_bytes
    with _machine(free=free_gib * GiB_bytes) as (worker, limits):
        raises = (
            pytest.raises(error, match=f"may take {allowed_gib}.0 GiB")
            if error
            else contextlib.nullcontext()
        )
        with raises, limit_profiling_memory(worker, kv_bytes):
            assert limits == [WEIGHTS + allowed_gib * GiB_bytes]
            if error:
                raise error("too much")
        assert limits == [WEIGHTS + allowed_gib * GiB_bytes, TOTAL]


@pytest.mark.skip_global_cleanup
@pytest.mark.parametrize("kv_gib, free_gib", [(None, 40), (66, 70)])
def test_refuses_before_profiling(kv_gib, free_gib):
    kv_bytes = None if kv_gib is None else kv_gib * GiB_bytes
    with (
        _machine(free=free_gib * GiB_bytes) as (worker, limits),
        pytest.raises(ValueError, match="Profiling may take 0.0 GiB"),
        limit_profiling_memory(worker, kv_bytes),
    ):
        pytest.fail("profiling was started")
    assert limits == []


@pytest.mark.skip_global_cleanup
def test_discrete_gpus_are_not_limited():
    with _machine(integrated=False) as (worker, limits), limit_profiling_memory(worker):
        pass
    assert limits == []


@pytest.mark.skipif(
    not current_platform.is_cuda()
    or torch.cuda.memory.get_allocator_backend() != "native",
    reason="needs the native CUDA allocator",
)
def test_torch_keeps_the_limit():
    device = torch.device("cuda:0")
    held = torch.empty(64 * MiB_bytes, dtype=torch.uint8, device=device)
    before = gpu_worker.MemorySnapshot(device=device)
    worker = SimpleNamespace(
        device=device, init_snapshot=before, requested_memory=256 * MiB_bytes
    )
    with patch.object(gpu_worker, "is_integrated_device", lambda: True):
        with limit_profiling_memory(worker):
            torch.empty(128 * MiB_bytes, dtype=torch.uint8, device=device)
        with (
            pytest.raises(torch.OutOfMemoryError, match="Profiling may take"),
            limit_profiling_memory(worker),
        ):
            torch.empty(512 * MiB_bytes, dtype=torch.uint8, device=device)
    torch.empty(512 * MiB_bytes, dtype=torch.uint8, device=device)
    del held
