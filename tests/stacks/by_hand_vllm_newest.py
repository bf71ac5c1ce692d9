"""Ways to break vLLM's patches of the set `gb10-newest` that their proofs must see.

Each is one edit of lines that a patch has: ``old``, which the patched file has once, becomes ``new``.
Used by test_by_hand.py, which explains how to run them.
"""

from __future__ import annotations

from by_hand_vllm import ByHand

MEMORY, UTILS = "vllm/utils/mem_utils.py", "vllm/v1/worker/utils.py"
WORKER, RUNNER = "vllm/v1/worker/gpu_worker.py", "vllm/v1/worker/gpu_model_runner.py"
MEASURED, RESERVED, LIMITED = (f"vllm/unified-memory{part}" for part in ("", "-reserve", "-profiling"))
ARGUMENTS = "vllm/engine/arg_utils.py"

MUTANTS = [
    # What is free, and what was taken.
    ByHand(
        "a discrete GPU beside an integrated one is taken for it",
        MEASURED,
        MEMORY,
        "    return current_platform.is_integrated_gpu(index)  # type: ignore[arg-type]\n",
        "    return current_platform.is_integrated_gpu(0)\n",
    ),
    ByHand(
        "all memory of the system is free",
        MEASURED,
        MEMORY,
        "        return psutil.virtual_memory().available\n    return torch.accelerator.get_memory_info(device)[0]\n",
        "        return psutil.virtual_memory().total\n    return torch.accelerator.get_memory_info(device)[0]\n",
    ),
    ByHand(
        "a device's total memory is free",
        MEASURED,
        MEMORY,
        "    return torch.accelerator.get_memory_info(device)[0]\n",
        "    return torch.accelerator.get_memory_info(device)[1]\n",
    ),
    ByHand(
        "the current device is asked whichever is named",
        MEASURED,
        MEMORY,
        "    if is_integrated_device(device):\n        return psutil",
        "    if is_integrated_device():\n        return psutil",
    ),
    ByHand(
        "no GPU's difference is negative",
        MEASURED,
        MEMORY,
        "    return max(taken, 0) if is_integrated_device(device) else taken\n",
        "    return max(taken, 0)\n",
    ),
    ByHand(
        "the discrete GPU's difference is the one that isn't negative",
        MEASURED,
        MEMORY,
        "    return max(taken, 0) if is_integrated_device(device) else taken\n",
        "    return taken if is_integrated_device(device) else max(taken, 0)\n",
    ),
    ByHand(
        "what was taken has the wrong sign",
        MEASURED,
        MEMORY,
        "    taken = free_before - get_free_memory(device)\n",
        "    taken = get_free_memory(device) - free_before\n",
    ),
    ByHand(
        "a snapshot asks CUDA",
        MEASURED,
        MEMORY,
        "        self.free_memory = get_free_memory(device)\n",
        "        self.free_memory = torch.accelerator.get_memory_info(device)[0]\n",
    ),
    ByHand(
        "what others took isn't counted",
        MEASURED,
        MEMORY,
        "        consumed = max(consumed, current.torch_memory - baseline.torch_memory, 0)\n",
        "        consumed = min(consumed, current.torch_memory - baseline.torch_memory)\n",
    ),
    ByHand(
        "what others release counts until nothing is left of it",
        MEASURED,
        MEMORY,
        "        consumed = max(consumed, current.torch_memory - baseline.torch_memory, 0)\n",
        "        consumed = max(consumed, 0)\n",
    ),
    ByHand(
        "torch's memory from before the first snapshot counts",
        MEASURED,
        MEMORY,
        "        consumed = max(consumed, current.torch_memory - baseline.torch_memory, 0)\n",
        "        consumed = max(consumed, current.torch_memory, 0)\n",
    ),
    ByHand(
        "torch's memory counts on discrete GPUs, too",
        MEASURED,
        MEMORY,
        "    if is_integrated_device(baseline.device_):\n        consumed = max",
        "    if True:\n        consumed = max",
    ),
    ByHand(
        "profiling goes by the difference alone",
        MEASURED,
        MEMORY,
        """\
    result.total_consumed = get_consumed_memory(
        result.before_create, result.after_profile
    )
""",
        """\
    result.total_consumed = (
        result.before_create.free_memory - result.after_profile.free_memory
    )
""",
    ),
    ByHand(
        "what was consumed before profiling doesn't count",
        MEASURED,
        MEMORY,
        "        result.before_create, result.after_profile\n    )\n",
        "        result.before_profile, result.after_profile\n    )\n",
    ),
    ByHand(
        "a start fails where others release memory",
        MEASURED,
        WORKER,
        "            assert profile_result.total_consumed >= 0, (\n",
        "            assert init_free_memory >= free_gpu_memory, (\n",
    ),
    ByHand(
        "sleep asks CUDA first",
        MEASURED,
        WORKER,
        "        free_bytes_before_sleep = get_free_memory()\n",
        "        free_bytes_before_sleep = torch.accelerator.get_memory_info()[0]\n",
    ),
    ByHand(
        "sleep asks CUDA afterwards",
        MEASURED,
        WORKER,
        "            free_bytes_after_sleep = get_free_memory()\n",
        "            free_bytes_after_sleep = torch.accelerator.get_memory_info()[0]\n",
    ),
    ByHand(
        "sleep fails where others take memory",
        MEASURED,
        WORKER,
        "        assert freed_bytes >= 0 or is_integrated_device(), (\n",
        "        assert freed_bytes >= 0, (\n",
    ),
    ByHand(
        "sleep may take memory on discrete GPUs",
        MEASURED,
        WORKER,
        "        assert freed_bytes >= 0 or is_integrated_device(), (\n",
        "        assert freed_bytes >= 0 or not is_integrated_device(), (\n",
    ),
    ByHand(
        "the first runner's samples are of what CUDA has free",
        MEASURED,
        RUNNER,
        "                        mem_before = get_free_memory()\n",
        "                        mem_before = torch.accelerator.get_memory_info()[0]\n",
    ),
    ByHand(
        "the first runner's encoder graphs are of what CUDA has free",
        MEASURED,
        RUNNER,
        "                    mem_before = get_free_memory()\n                    encoder",
        "                    mem_before = torch.accelerator.get_memory_info()[0]\n                    encoder",
    ),
    ByHand(
        "the first runner's captures are of what CUDA has free",
        MEASURED,
        RUNNER,
        "            start_free_gpu_memory = get_free_memory()\n",
        "            start_free_gpu_memory = torch.accelerator.get_memory_info()[0]\n",
    ),
    ByHand(
        "the second runner's captures are of what CUDA has free",
        MEASURED,
        "vllm/v1/worker/gpu/model_runner.py",
        "            start_free_gpu_memory = get_free_memory()\n",
        "            start_free_gpu_memory = torch.accelerator.get_memory_info()[0]\n",
    ),
    ByHand(
        "the second runner's samples are of what CUDA has free",
        MEASURED,
        "vllm/v1/worker/gpu/cudagraph_utils.py",
        "                            free_before = get_free_memory()\n",
        "                            free_before = torch.accelerator.get_memory_info()[0]\n",
    ),
    ByHand(
        "the encoder runner's captures are of what CUDA has free",
        MEASURED,
        "vllm/v1/worker/mm_encoder_model_runner.py",
        "            start_free_memory = get_free_memory()\n",
        "            start_free_memory = torch.accelerator.get_memory_info()[0]\n",
    ),
    ByHand(
        "Eagle's loader asks CUDA",
        MEASURED,
        "vllm/v1/worker/gpu/spec_decode/eagle/utils.py",
        "    if w.is_cuda and get_free_memory(w.device) < w.numel() * 2:\n",
        "    if w.is_cuda and torch.accelerator.get_memory_info(w.device)[0] < w.numel() * 2:\n",
    ),
    # The reserve.
    ByHand(
        "the reserve is a tenth",
        RESERVED,
        UTILS,
        "    return init_snapshot.total_memory // 20\n",
        "    return init_snapshot.total_memory // 10\n",
    ),
    ByHand(
        "the reserve is a share of what is available",
        RESERVED,
        UTILS,
        "    return init_snapshot.total_memory // 20\n",
        "    return init_snapshot.free_memory // 20\n",
    ),
    ByHand(
        "the option is in GiB",
        RESERVED,
        UTILS,
        "        return cache_config.unified_memory_reserve_bytes\n",
        "        return cache_config.unified_memory_reserve_bytes << 30\n",
    ),
    ByHand(
        "a reserve of 0 is the default one",
        RESERVED,
        UTILS,
        "    if cache_config.unified_memory_reserve_bytes is not None:\n",
        "    if cache_config.unified_memory_reserve_bytes:\n",
    ),
    ByHand(
        "discrete GPUs keep a reserve",
        RESERVED,
        UTILS,
        "    if not current_platform.is_integrated_gpu(init_snapshot.device_.index):\n        return 0\n",
        "",
    ),
    ByHand(
        "only discrete GPUs keep a reserve",
        RESERVED,
        UTILS,
        "    if not current_platform.is_integrated_gpu(init_snapshot.device_.index):\n        return 0\n",
        "    if current_platform.is_integrated_gpu(init_snapshot.device_.index):\n        return 0\n",
    ),
    ByHand(
        "the first device decides for all",
        RESERVED,
        UTILS,
        "    if not current_platform.is_integrated_gpu(init_snapshot.device_.index):\n",
        "    if not current_platform.is_integrated_gpu(0):\n",
    ),
    ByHand(
        "the reserve is of the total memory",
        RESERVED,
        UTILS,
        "    allowed_memory = init_snapshot.free_memory - reserve\n",
        "    allowed_memory = init_snapshot.total_memory - reserve\n",
    ),
    ByHand(
        "the reserve is added",
        RESERVED,
        UTILS,
        "    allowed_memory = init_snapshot.free_memory - reserve\n",
        "    allowed_memory = init_snapshot.free_memory + reserve\n",
    ),
    ByHand(
        "the reserve is what the utilization leaves, as it once was",
        RESERVED,
        UTILS,
        "    return init_snapshot.total_memory // 20\n",
        "    return int(init_snapshot.total_memory * (1 - cache_config.gpu_memory_utilization))\n",
    ),
    ByHand(
        "less than the reserve may be available",
        RESERVED,
        UTILS,
        '    if allowed_memory <= 0:\n        raise ValueError(\n            f"{numbers}. Stop',
        '    if allowed_memory < 0:\n        raise ValueError(\n            f"{numbers}. Stop',
    ),
    ByHand(
        "all that the reserve leaves is used whatever the utilization",
        RESERVED,
        UTILS,
        "    if allowed_memory < requested_memory:\n",
        "    if allowed_memory != requested_memory:\n",
    ),
    ByHand(
        "the reserve is only logged",
        RESERVED,
        UTILS,
        "        return allowed_memory\n    logger.info(",
        "        return requested_memory\n    logger.info(",
    ),
    ByHand(
        "weights of another process end the reserve",
        RESERVED,
        UTILS,
        "        return keep_unified_memory_reserve(engine_memory, init_snapshot, cache_config)\n",
        "        return engine_memory\n",
    ),
    ByHand(
        "only weights of another process keep the reserve",
        RESERVED,
        UTILS,
        "    return keep_unified_memory_reserve(requested_memory, init_snapshot, cache_config)\n",
        "    return requested_memory\n",
    ),
    ByHand(
        "the size that is suggested takes the reserve",
        RESERVED,
        WORKER,
        "                - get_unified_memory_reserve(self.init_snapshot, self.cache_config)\n",
        "",
    ),
    ByHand(
        "the option goes nowhere",
        RESERVED,
        ARGUMENTS,
        "            unified_memory_reserve_bytes=self.unified_memory_reserve_bytes,\n",
        "",
    ),
    ByHand(
        "the option has no units",
        RESERVED,
        ARGUMENTS,
        '                "unified_memory_reserve_bytes",\n                "safetensors',
        '                "safetensors',
    ),
    ByHand(
        "another reserve compiles another graph",
        RESERVED,
        "vllm/config/cache.py",
        '            "unified_memory_reserve_bytes",\n',
        "",
    ),
    ByHand(
        "a reserve may be negative",
        RESERVED,
        "vllm/config/cache.py",
        "    unified_memory_reserve_bytes: int | None = Field(default=None, ge=0)\n",
        "    unified_memory_reserve_bytes: int | None = Field(default=None)\n",
    ),
    ByHand(
        "by default nothing is kept",
        RESERVED,
        "vllm/config/cache.py",
        "    unified_memory_reserve_bytes: int | None = Field(default=None, ge=0)\n",
        "    unified_memory_reserve_bytes: int | None = Field(default=0, ge=0)\n",
    ),
    # The limit of profiling.
    ByHand(
        "discrete GPUs are limited",
        LIMITED,
        WORKER,
        '        not is_integrated_device()\n        or torch.cuda.memory.get_allocator_backend() != "native"\n',
        '        torch.cuda.memory.get_allocator_backend() != "native"\n',
    ),
    ByHand(
        "an allocator without limits is limited",
        LIMITED,
        WORKER,
        '        not is_integrated_device()\n        or torch.cuda.memory.get_allocator_backend() != "native"\n',
        "        not is_integrated_device()\n",
    ),
    ByHand(
        "torch's cache counts as used",
        LIMITED,
        WORKER,
        "    torch.accelerator.empty_cache()\n    init_snapshot = worker.init_snapshot\n",
        "    init_snapshot = worker.init_snapshot\n",
    ),
    ByHand(
        "profiling may take what the weights take as well",
        LIMITED,
        WORKER,
        """\
        allowed_memory = worker.requested_memory - get_consumed_memory(
            init_snapshot, snapshot
        )
""",
        "        allowed_memory = worker.requested_memory\n",
    ),
    ByHand(
        "profiling may take all that is available",
        LIMITED,
        WORKER,
        """\
        allowed_memory = worker.requested_memory - get_consumed_memory(
            init_snapshot, snapshot
        )
""",
        "        allowed_memory = snapshot.free_memory\n",
    ),
    ByHand(
        "what others release raises the limit",
        LIMITED,
        WORKER,
        """\
        allowed_memory = worker.requested_memory - get_consumed_memory(
            init_snapshot, snapshot
        )
""",
        "        allowed_memory = worker.requested_memory - (init_snapshot.free_memory - snapshot.free_memory)\n",
    ),
    ByHand(
        "a KV cache of a given size takes the reserve",
        LIMITED,
        WORKER,
        "        allowed_memory = snapshot.free_memory - reserve - kv_cache_memory_bytes\n",
        "        allowed_memory = snapshot.free_memory - kv_cache_memory_bytes\n",
    ),
    ByHand(
        "profiling may take the KV cache of a given size",
        LIMITED,
        WORKER,
        "        allowed_memory = snapshot.free_memory - reserve - kv_cache_memory_bytes\n",
        "        allowed_memory = snapshot.free_memory - reserve\n",
    ),
    ByHand(
        "a KV cache of a given size is limited by what was available before the weights",
        LIMITED,
        WORKER,
        "        allowed_memory = snapshot.free_memory - reserve - kv_cache_memory_bytes\n",
        "        allowed_memory = init_snapshot.free_memory - reserve - kv_cache_memory_bytes\n",
    ),
    ByHand(
        "profiling starts with nothing left",
        LIMITED,
        WORKER,
        '    if allowed_memory <= 0:\n        raise ValueError(\n            f"{numbers} Stop',
        '    if allowed_memory < 0:\n        raise ValueError(\n            f"{numbers} Stop',
    ),
    ByHand(
        "the limit doesn't count what torch holds",
        LIMITED,
        WORKER,
        "    limit = (snapshot.torch_memory + allowed_memory) / snapshot.total_memory\n",
        "    limit = allowed_memory / snapshot.total_memory\n",
    ),
    ByHand(
        "the limit is a share of what is available",
        LIMITED,
        WORKER,
        "    limit = (snapshot.torch_memory + allowed_memory) / snapshot.total_memory\n",
        "    limit = (snapshot.torch_memory + allowed_memory) / init_snapshot.free_memory\n",
    ),
    ByHand(
        "a lower limit of the user's is lifted",
        LIMITED,
        WORKER,
        "    torch.cuda.set_per_process_memory_fraction(min(limit, fraction), worker.device)\n",
        "    torch.cuda.set_per_process_memory_fraction(limit, worker.device)\n",
    ),
    ByHand(
        "the higher of two limits holds",
        LIMITED,
        WORKER,
        "    torch.cuda.set_per_process_memory_fraction(min(limit, fraction), worker.device)\n",
        "    torch.cuda.set_per_process_memory_fraction(max(limit, fraction), worker.device)\n",
    ),
    ByHand(
        "the limit stays",
        LIMITED,
        WORKER,
        "    finally:\n        torch.cuda.set_per_process_memory_fraction(fraction, worker.device)\n",
        "    finally:\n        pass\n",
    ),
    ByHand(
        "there is no limit afterwards where the user set one",
        LIMITED,
        WORKER,
        "    finally:\n        torch.cuda.set_per_process_memory_fraction(fraction, worker.device)\n",
        "    finally:\n        torch.cuda.set_per_process_memory_fraction(1.0, worker.device)\n",
    ),
    ByHand(
        "profiling is limited only where the KV cache has a given size",
        LIMITED,
        WORKER,
        "            limit_profiling_memory(self),\n            set_current_vllm_config(self.vllm_config),\n",
        "            set_current_vllm_config(self.vllm_config),\n",
    ),
    ByHand(
        "profiling isn't limited where the KV cache has a given size",
        LIMITED,
        WORKER,
        "                limit_profiling_memory(self, kv_cache_memory_bytes),\n",
        "",
    ),
    ByHand(
        "a given size is limited as if it weren't given",
        LIMITED,
        WORKER,
        "                limit_profiling_memory(self, kv_cache_memory_bytes),\n",
        "                limit_profiling_memory(self),\n",
    ),
    ByHand(
        "graphs aren't limited",
        LIMITED,
        WORKER,
        "            with limit_profiling_memory(self):\n",
        "            if True:\n",
    ),
    ByHand(
        "a KV cache may be negative",
        LIMITED,
        WORKER,
        "        if is_integrated_device() and self.available_kv_cache_memory_bytes <= 0:\n",
        "        if False:\n",
    ),
    ByHand(
        "a KV cache that isn't negative is refused",
        LIMITED,
        WORKER,
        "        if is_integrated_device() and self.available_kv_cache_memory_bytes <= 0:\n",
        "        if is_integrated_device():\n",
    ),
    ByHand(
        "discrete GPUs refuse a negative KV cache",
        LIMITED,
        WORKER,
        "        if is_integrated_device() and self.available_kv_cache_memory_bytes <= 0:\n",
        "        if self.available_kv_cache_memory_bytes <= 0:\n",
    ),
]
