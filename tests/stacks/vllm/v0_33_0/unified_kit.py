"""A faked machine with a GPU, on which vLLM's real worker sizes its KV cache.

The memory of an integrated GPU is the machine's: other processes, other vLLM instances and this one share it. A discrete
GPU has memory of its own. Amounts are in GiB where a name or a docstring gives no unit.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
GIB = 1 << 30
#: Memory of a GB10, as CUDA and the system report it.
GB10 = 121.7
MEMORY, WORKER, UTILS = "vllm.utils.mem_utils", "vllm.v1.worker.gpu_worker", "vllm.v1.worker.utils"


class Wedged(AssertionError):
    """The machine ran out of memory: a GB10 stops responding here."""


@dataclass
class Process:
    """Memory of one vLLM process, in bytes, and the share of the GPU that torch lets it allocate."""

    allocated: int = 0
    cached: int = 0
    peak: int = 0
    fraction: float = 1.0
    #: Part of what is allocated that the next collection of garbage frees.
    garbage: int = 0

    @property
    def reserved(self) -> int:
        return self.allocated + self.cached


@dataclass
class Machine:
    """Memory of a machine in bytes. `current` is the process whose calls of torch are answered."""

    load: Load
    patch: pytest.MonkeyPatch
    integrated: bool = True
    total: int = int(GB10 * GIB)
    others: int = 0
    #: Page cache that the system would give up, which CUDA counts as used.
    page_cache: int = 3 * GIB
    #: Added to others' memory when memory is read next, one after the other.
    changes: list[int] = field(default_factory=list)
    processes: list[Process] = field(default_factory=lambda: [Process()])
    lowest: int = int(GB10 * GIB)
    #: Number of this GPU. The machine's other GPU, 1 or 0, is discrete, with memory of its own.
    number: int = 0
    second_free: int = 7 * GIB
    second_total: int = 80 * GIB
    current_device: int = 0
    #: Allocator of torch: another one than "native" can't be limited.
    allocator: str = "native"

    @property
    def current(self) -> Process:
        return self.processes[-1]

    @property
    def available(self) -> int:
        return self.total - self.others - sum(process.reserved for process in self.processes)

    def read(self) -> int:
        """Return the available memory in bytes, after what others took or released in the meantime."""
        if self.changes:
            self.others += self.changes.pop(0)
        return self.available

    def index(self, device: Any) -> int:
        """Return the number of a device; without one, of the current device."""
        index = device if device is None or isinstance(device, int) else torch.device(device).index
        return self.current_device if index is None else index

    def get_memory_info(self, device: Any = None) -> tuple[int, int]:
        if self.index(device) != self.number:
            return self.second_free, self.second_total
        free = self.read()
        return max(free - self.page_cache, 0) if self.integrated else free, self.total

    def virtual_memory(self) -> SimpleNamespace:
        return SimpleNamespace(available=self.read(), total=self.total)

    def is_integrated_gpu(self, device_id: int | None = 0) -> bool:
        """Return whether a device shares the machine's memory, which the other GPU never does."""
        assert device_id in (None, 0, 1)
        return self.integrated and self.index(device_id) == self.number

    def allocate(self, amount: float) -> None:
        """Allocate by torch: within its limit, from its cache first."""
        size, process = int(amount * GIB), self.current
        process.cached, fresh = max(process.cached - size, 0), max(size - process.cached, 0)
        if process.reserved + size > process.fraction * self.total:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {amount} GiB")
        if fresh > self.available:
            if self.integrated:
                raise Wedged(f"{fresh / GIB:.1f} GiB were allocated with {self.available / GIB:.1f} GiB available")
            raise torch.OutOfMemoryError("CUDA out of memory")
        process.allocated += size
        process.peak = max(process.peak, process.allocated)
        self.lowest = min(self.lowest, self.available)

    def free(self, amount: float) -> None:
        """Free what torch allocated, into its cache."""
        self.current.allocated -= int(amount * GIB)
        self.current.cached += int(amount * GIB)

    def collect(self, generation: int = 2) -> int:
        """Collect garbage, into torch's cache. vLLM does so around each measurement; Python's own takes a second."""
        self.current.allocated -= self.current.garbage
        self.current.cached += self.current.garbage
        self.current.garbage = 0
        return 0

    def empty_cache(self) -> None:
        self.current.cached = 0

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self.must_be_this(device)
        self.current.peak = self.current.allocated

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        if self.index(device) != self.number:
            return {}
        return {"allocated_bytes.all.peak": self.current.peak, "allocated_bytes.all.current": self.current.allocated}

    def memory_reserved(self, device: Any = None) -> int:
        return self.current.reserved if self.index(device) == self.number else 0

    def must_be_this(self, device: Any) -> None:
        assert self.index(device) == self.number, "another GPU than the worker's"

    def get_fraction(self, device: Any = None) -> float:
        self.must_be_this(device)
        return self.current.fraction

    def set_fraction(self, fraction: float, device: Any = None) -> None:
        self.must_be_this(device)
        assert 0 <= fraction <= 1
        self.current.fraction = fraction

    def install(self) -> Machine:
        """Let vLLM and torch see this machine."""
        platform = SimpleNamespace(
            device_type="cuda", device_name="cuda", is_integrated_gpu=self.is_integrated_gpu, is_cuda_alike=lambda: True,
            is_rocm=lambda: False, is_xpu=lambda: False, is_cpu=lambda: False,
        )  # fmt: skip
        for name in (MEMORY, WORKER, UTILS):
            self.patch.setattr(self.load(name), "current_platform", platform)
        self.patch.setattr(self.load(MEMORY).psutil, "virtual_memory", self.virtual_memory)
        for name in ("get_memory_info", "memory_stats", "memory_reserved", "empty_cache", "reset_peak_memory_stats"):
            self.patch.setattr(torch.accelerator, name, getattr(self, name))
        self.patch.setattr(torch.accelerator, "synchronize", lambda device=None: None)
        self.patch.setattr(gc, "collect", self.collect)
        self.patch.setattr(torch.cuda, "get_per_process_memory_fraction", self.get_fraction)
        self.patch.setattr(torch.cuda, "set_per_process_memory_fraction", self.set_fraction)
        self.patch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: self.allocator)
        return self


@dataclass
class Instance:
    """One vLLM instance: its model's needs in GiB, and what happens to other memory while it starts."""

    machine: Machine
    utilization: float
    weights: float = 20
    peak: float = 2
    graphs: float = 1
    options: dict[str, Any] = field(default_factory=dict)
    external: float = 0
    #: GiB that others take, or release if negative, while the weights are loaded and while the model is profiled.
    taken_while_loading: float = 0
    taken_while_profiling: float = 0
    events: list[str] = field(default_factory=list)
    worker: Any = None

    def profile_run(self, **given: Any) -> None:
        self.events.append("profiled")
        self.machine.others += int(self.taken_while_profiling * GIB)
        self.spike(self.peak)

    def profile_cudagraph_memory(self) -> int:
        self.events.append("graphs")
        self.spike(self.graphs)
        return int(self.graphs * GIB)

    def spike(self, amount: float) -> None:
        self.machine.allocate(amount)
        self.machine.free(amount)

    def size_kv_cache(self) -> int:
        """Start as far as the size of the KV cache, in bytes. Raise ValueError if vLLM refuses."""
        machine, load = self.machine, self.machine.load
        module, memory, config = load(WORKER), load(MEMORY), load("vllm.config")
        cache = config.CacheConfig(gpu_memory_utilization=self.utilization, **self.options)
        device = torch.device(f"cuda:{machine.number}")
        snapshot = memory.MemorySnapshot(device=device)
        requested = load(UTILS).request_memory(snapshot, cache, int(self.external * GIB))
        machine.allocate(self.weights)
        machine.others += int(self.taken_while_loading * GIB)
        mode = load("vllm.config.compilation").CUDAGraphMode.FULL
        self.worker = worker = SimpleNamespace(
            device=device, init_snapshot=snapshot, requested_memory=requested, cache_config=cache,
            randomize_dummy_inputs=False, use_v2_model_runner=False, parallel_config=SimpleNamespace(),
            vllm_config=SimpleNamespace(compilation_config=SimpleNamespace(cudagraph_mode=mode)),
            model_config=SimpleNamespace(multimodal_config=None, enforce_eager=False),
            model_runner=SimpleNamespace(
                model_memory_usage=int(self.weights * GIB), profile_run=self.profile_run,
                profile_cudagraph_memory=self.profile_cudagraph_memory,
            ),
            _scoped_allocator_max_split=lambda **given: contextlib.nullcontext(),
        )  # fmt: skip
        for name in ("maybe_apply_startup_plan", "set_current_vllm_config"):
            machine.patch.setattr(module, name, lambda *args: contextlib.nullcontext())
        machine.patch.setattr(module, "reserve_mm_ipc_gpu_memory", lambda size, *rest: size)
        return int(module.Worker.determine_available_memory(worker))

    def start(self) -> float:
        """Start, allocate KV cache and graphs, and return the size of the KV cache in GiB."""
        size = self.size_kv_cache() / GIB
        # What upstream raises a ValueError for, once the workers have answered.
        if size <= 0:
            raise ValueError(f"No available memory for the cache blocks: {size:.1f} GiB")
        self.machine.allocate(size)
        self.machine.allocate(self.graphs)
        self.spike(self.peak)
        self.machine.processes.append(Process())
        return size
