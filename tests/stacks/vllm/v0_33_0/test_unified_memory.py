"""A GPU that shares the host's memory: what is free, what graphs take, and what is left to the rest of the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import need

Load = Callable[[str], ModuleType]
EQUIVALENT_MUTANTS = {"ec5e5e3dca": "the smaller of two whole numbers is the same whichever comes first"}
GIB = 1 << 30
MEMORY, WORKER = "vllm.utils.mem_utils", "vllm.v1.worker.gpu_worker"
GRAPHS, RUNNER = "vllm.v1.worker.gpu.cudagraph_utils", "vllm.v1.worker.gpu_model_runner"


class Machine:
    """What CUDA and the operating system say is free, in GiB; lists are said one after the other."""

    def __init__(self, upstream_import: Load, monkeypatch: pytest.MonkeyPatch, integrated: bool) -> None:
        self.cuda: list[float] = [10]
        self.system: list[float] = [100]
        module = upstream_import(MEMORY)
        monkeypatch.setattr(module, "current_platform", SimpleNamespace(is_integrated_gpu=lambda index=0: integrated))
        info = lambda device=None: (int(self.next(self.cuda) * GIB), 120 * GIB)  # noqa: E731
        monkeypatch.setattr(torch.accelerator, "get_memory_info", info)
        monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
        for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
            monkeypatch.setattr(torch.accelerator, name, lambda *args: None)
        monkeypatch.setattr(torch.accelerator, "memory_stats", lambda device=None: {})
        monkeypatch.setattr(torch.accelerator, "memory_reserved", lambda device=None: 0)
        available = lambda: SimpleNamespace(available=int(self.next(self.system) * GIB))  # noqa: E731
        monkeypatch.setattr(module.psutil, "virtual_memory", available)

    @staticmethod
    def next(said: list[float]) -> float:
        return said.pop(0) if len(said) > 1 else said[0]


@pytest.fixture(params=[True, False], ids=["integrated", "discrete"])
def integrated(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def machine(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, integrated: bool) -> Machine:
    for name in (WORKER, GRAPHS, RUNNER):
        upstream_import(name)
    return Machine(upstream_import, monkeypatch, integrated)


@pytest.mark.parametrize("device", [None, "cuda:0", torch.device("cuda:0"), torch.device("cuda")])
def test_what_is_free(upstream_import: Load, machine: Machine, integrated: bool, device: Any) -> None:
    module = upstream_import(MEMORY)
    assert need(module, "get_free_memory")(device) == (100 if integrated else 10) * GIB
    snapshot = module.MemorySnapshot(device=torch.device("cuda:0"))
    assert (snapshot.free_memory, snapshot.total_memory) == ((100 if integrated else 10) * GIB, 120 * GIB)


@pytest.mark.parametrize("taken", [2, -3])
def test_a_sample_of_the_second_runner_is_never_negative(
    upstream_import: Load, machine: Machine, integrated: bool, taken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import(GRAPHS)
    mode = upstream_import("vllm.config.compilation").CUDAGraphMode.FULL
    for name in ("capture_pool", "graph_capture"):
        monkeypatch.setattr(module, name, lambda pool=None, *args, **given: contextlib.nullcontext(pool))
    monkeypatch.setattr(module, "is_global_first_rank", lambda: False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", lambda *args, **given: contextlib.nullcontext())
    offloader = SimpleNamespace(sync_prev_onload=lambda: None, join_after_forward=lambda: None)
    monkeypatch.setattr(module, "get_offloader", lambda: offloader)
    said, other = (machine.system, machine.cuda) if integrated else (machine.cuda, machine.system)
    said[:], other[:] = [50, 50 - taken], [7, 70, 3]
    samples: list[int] = []
    manager = object.__new__(module.CudaGraphManager)
    vars(manager).update(
        device="cuda:0", graphs={}, pool=None, vllm_config=None, _capture_mem_samples=samples, _graphs_captured=False,
        _capture_descs={mode: [module.BatchExecutionDescriptor(mode, 4, 4)]}, _max_full_descs_to_capture=None,
        use_breakable_cg=False, lora_capture_hook=None, _capture_stream=lambda desc: None, ubatch_runner=None,
    )  # fmt: skip
    manager.capture(lambda desc, warmup=False: lambda mode: None)
    assert samples == [max(taken, 0) * GIB]


@pytest.mark.parametrize("taken", [2, -3])
def test_what_graphs_take_is_never_negative(
    upstream_import: Load, machine: Machine, integrated: bool, taken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import(RUNNER)
    said = machine.system if integrated else machine.cuda
    other = machine.cuda if integrated else machine.system
    said[:], other[:] = [50, 50 - taken], [7, 70, 3]
    runner = one_graph(upstream_import, module, monkeypatch)
    assert module.GPUModelRunner.profile_cudagraph_memory(runner) == max(taken, 0) * GIB


def one_graph(upstream_import: Load, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The V1 runner with one FULL graph to capture; capturing does nothing."""
    mode = upstream_import("vllm.config.compilation").CUDAGraphMode.FULL
    nothing = lambda *args, **given: None  # noqa: E731
    context = lambda *args, **given: contextlib.nullcontext()  # noqa: E731
    platform = SimpleNamespace(graph_pool_handle=object)
    for name, value in {
        "set_current_vllm_config": context, "graph_capture": context, "current_platform": platform,
        "set_cudagraph_capturing_enabled": nothing,
    }.items():  # fmt: skip
        monkeypatch.setattr(module, name, value)
    for name in ("CUDAGraphWrapper", "BreakableCUDAGraphWrapper"):
        monkeypatch.setattr(module, name, SimpleNamespace(_all_instances=[], clear_all_graphs=nothing))
    dispatcher = SimpleNamespace(
        get_capture_descs=lambda: [(mode, [SimpleNamespace(num_tokens=4)])], cudagraph_keys={}, keys_initialized=True
    )
    return SimpleNamespace(
        vllm_config=None, cudagraph_dispatcher=dispatcher, max_model_len=16, max_num_tokens=16, device="cuda:0",
        lora_config=None, _freeze_gc=context, _init_minimal_kv_cache_for_profiling=nothing,
        _create_encoder_cudagraph_manager=nothing, _warmup_and_capture=nothing, _cleanup_profiling_kv_cache=nothing,
        maybe_remove_all_loras=nothing,
    )  # fmt: skip


@pytest.fixture
def available(upstream_import: Load, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., float]:
    """The KV cache in GiB that a worker decides on, of 120 GiB at a utilization of 0.9; free memory changes meanwhile."""
    module, memory = upstream_import(WORKER), upstream_import(MEMORY)
    graphs = {"taken": 0.0}

    def decide(
        *, start: float, end: float, peak: float = 0, graph: float = 0, utilization: float = 0.9, rocm: float = 0
    ) -> float:
        graphs["taken"] = graph
        machine.cuda[:] = machine.system[:] = [start]
        monkeypatch.setattr(torch.accelerator, "memory_reserved", lambda device=None: 0)
        initial = memory.MemorySnapshot(device=torch.device("cuda:0"))
        machine.cuda[:] = machine.system[:] = [end]
        monkeypatch.setattr(
            torch.accelerator, "memory_stats", lambda device=None: {"allocated_bytes.all.peak": int(peak * GIB)}
        )
        monkeypatch.setattr(torch.accelerator, "memory_reserved", lambda device=None: int(rocm * GIB))
        cache = SimpleNamespace(gpu_memory_utilization=utilization, kv_cache_memory_bytes=None)
        mode = upstream_import("vllm.config.compilation").CUDAGraphMode.FULL
        worker = SimpleNamespace(
            device=torch.device("cuda:0"), init_snapshot=initial, cache_config=cache, randomize_dummy_inputs=False,
            requested_memory=int(120 * utilization * GIB), use_v2_model_runner=False,
            vllm_config=SimpleNamespace(compilation_config=SimpleNamespace(cudagraph_mode=mode)),
            model_config=SimpleNamespace(multimodal_config=None), parallel_config=SimpleNamespace(),
            model_runner=SimpleNamespace(
                model_memory_usage=0, profile_run=lambda **given: None,
                profile_cudagraph_memory=lambda: int(graphs["taken"] * GIB),
            ),
            _scoped_allocator_max_split=lambda **given: contextlib.nullcontext(),
        )  # fmt: skip
        for name in ("maybe_apply_startup_plan", "set_current_vllm_config"):
            monkeypatch.setattr(module, name, lambda *args: contextlib.nullcontext())
        platform = SimpleNamespace(
            is_cuda_alike=lambda: True, is_rocm=lambda: rocm > 0, is_xpu=lambda: False,
            is_integrated_gpu=memory.current_platform.is_integrated_gpu,
        )  # fmt: skip
        monkeypatch.setattr(module, "current_platform", platform)
        monkeypatch.setattr(module, "reserve_mm_ipc_gpu_memory", lambda size, *rest: size)
        return float(module.Worker.determine_available_memory(worker)) / GIB

    return decide


def test_alone_nothing_changes(available: Callable[..., float]) -> None:
    assert available(start=120, end=50, peak=3, graph=2) == pytest.approx(108 - 70 - 5)


def test_the_rest_of_the_machine_keeps_its_share(available: Callable[..., float], integrated: bool) -> None:
    # 8 GiB were others' before; 30 more are taken while the model's 60 are loaded.
    found = available(start=112, end=22, peak=1, graph=1)
    assert found == pytest.approx(22 - 12 - 2 if integrated else 108 - 90 - 2)
    assert found + 2 + (12 if integrated else 4) == pytest.approx(22)


def test_what_others_release_is_not_ours(available: Callable[..., float], integrated: bool) -> None:
    if integrated:
        assert available(start=109, end=115, peak=1, utilization=0.9) == pytest.approx(115 - 12 - 1)
        assert available(start=109, end=80, utilization=0.5) == pytest.approx(80 - 60), "11 were others' from the start"
        assert available(start=125, end=100) == pytest.approx(108 - 25), "no more than was asked for"
    else:
        with pytest.raises(AssertionError, match="Error in memory profiling"):
            available(start=109, end=115)


def test_what_rocm_counts_instead_is_kept(available: Callable[..., float], integrated: bool) -> None:
    """There a release by others is no error: what torch reserved counts."""
    assert available(start=100, end=115, rocm=40) == pytest.approx(108 - 40)
    if integrated:
        assert available(start=70, end=75, rocm=20) == pytest.approx(75 - 12), "the limit is above it"
