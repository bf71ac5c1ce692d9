"""What is free, and what was taken, on a GPU that shares the host's memory. A discrete GPU is measured as upstream does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from unified_kit import GIB, MEMORY, WORKER, Instance, Load, Machine
from vllm_kit import need

GRAPHS, RUNNER = "vllm.v1.worker.gpu.cudagraph_utils", "vllm.v1.worker.gpu_model_runner"
RUNNER_V2, ENCODER = "vllm.v1.worker.gpu.model_runner", "vllm.v1.worker.mm_encoder_model_runner"
EAGLE = "vllm.v1.worker.gpu.spec_decode.eagle.utils"


@pytest.fixture(params=[True, False], ids=["integrated", "discrete"])
def integrated(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def machine(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, integrated: bool) -> Machine:
    for name in (WORKER, GRAPHS, RUNNER, RUNNER_V2, ENCODER, EAGLE):
        upstream_import(name)
    return Machine(upstream_import, monkeypatch, integrated, others=20 * GIB).install()


@pytest.fixture(params=[2, -3], ids=["taken", "released"])
def taken(request: pytest.FixtureRequest, machine: Machine) -> int:
    """Bytes that are taken between the first and the second reading of free memory."""
    machine.changes = [0, int(request.param) * GIB]
    return int(request.param) * GIB


@pytest.fixture
def measured(taken: int, integrated: bool) -> int:
    """Memory that a difference of two readings stands for."""
    return max(taken, 0) if integrated else taken


nothing = lambda *args, **given: None  # noqa: E731
context = lambda *args, **given: contextlib.nullcontext()  # noqa: E731


@pytest.mark.parametrize("device", [None, "cuda", "cuda:0", torch.device("cuda:0"), 0])
def test_free_memory(upstream_import: Load, machine: Machine, integrated: bool, device: Any) -> None:
    module = upstream_import(MEMORY)
    if device == 0 and not torch.accelerator.is_available():
        device = "cuda:0"  # torch makes a device of a number only where it has an accelerator.
    free, total = machine.get_memory_info()
    assert need(module, "get_free_memory")(device) == (machine.available if integrated else free)
    assert need(module, "is_integrated_device")(device) is integrated
    snapshot = module.MemorySnapshot(device=torch.device("cuda:0"))
    assert (snapshot.free_memory, snapshot.total_memory) == (machine.available if integrated else free, total)


def test_a_discrete_gpu_of_the_same_machine(upstream_import: Load, machine: Machine, integrated: bool) -> None:
    module = upstream_import(MEMORY)
    assert need(module, "get_free_memory")("cuda:1") == machine.second_free
    assert need(module, "is_integrated_device")("cuda:1") is False
    assert need(module, "get_memory_taken")(machine.second_free - 2 * GIB, "cuda:1") == -2 * GIB
    before = module.MemorySnapshot(device=torch.device("cuda:1"))
    assert (before.free_memory, before.total_memory) == (machine.second_free, machine.second_total)
    machine.second_free += 3 * GIB
    after = module.MemorySnapshot(device=torch.device("cuda:1"))
    assert need(module, "get_consumed_memory")(before, after) == -3 * GIB


@pytest.mark.parametrize("device", [None, "cuda"])
def test_the_current_device_is_asked_where_none_is_named(
    upstream_import: Load, machine: Machine, integrated: bool, device: str | None
) -> None:
    module = upstream_import(MEMORY)
    machine.current_device = 1
    assert need(module, "is_integrated_device")(device) is False
    assert module.get_free_memory(device) == machine.second_free
    assert module.get_memory_taken(machine.second_free - 2 * GIB, device) == -2 * GIB
    free = machine.available if integrated else machine.get_memory_info(0)[0]
    assert module.get_free_memory("cuda:0") == free
    assert module.get_memory_taken(free + GIB, "cuda:0") == GIB
    assert module.get_memory_taken(free - GIB, "cuda:0") == (0 if integrated else -GIB)


def test_memory_taken(upstream_import: Load, machine: Machine, taken: int, measured: int) -> None:
    module = upstream_import(MEMORY)
    before = need(module, "get_free_memory")()
    assert need(module, "get_memory_taken")(before) == measured


def test_graph_sample_of_the_second_runner(
    upstream_import: Load, machine: Machine, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import(GRAPHS)
    mode = upstream_import("vllm.config.compilation").CUDAGraphMode.FULL
    for name in ("capture_pool", "graph_capture"):
        monkeypatch.setattr(module, name, lambda pool=None, *args, **given: contextlib.nullcontext(pool))
    monkeypatch.setattr(module, "is_global_first_rank", lambda: False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", context)
    offloader = SimpleNamespace(sync_prev_onload=nothing, join_after_forward=nothing)
    monkeypatch.setattr(module, "get_offloader", lambda: offloader)
    samples: list[int] = []
    manager = object.__new__(module.CudaGraphManager)
    vars(manager).update(
        device="cuda:0", graphs={}, pool=None, vllm_config=None, _capture_mem_samples=samples, _graphs_captured=False,
        _capture_descs={mode: [module.BatchExecutionDescriptor(mode, 4, 4)]}, _max_full_descs_to_capture=None,
        use_breakable_cg=False, lora_capture_hook=None, _capture_stream=nothing, ubatch_runner=None,
    )  # fmt: skip
    manager.capture(lambda desc, warmup=False: nothing)
    assert samples == [measured]


def v1_runner(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    """Return what the first runner's methods read, with one FULL graph to capture. Capturing does nothing."""
    module = upstream_import(RUNNER)
    mode = upstream_import("vllm.config.compilation").CUDAGraphMode.FULL
    replaced: dict[str, Any] = {
        "set_current_vllm_config": context, "graph_capture": context, "lock_workspace": nothing,
        "current_platform": SimpleNamespace(graph_pool_handle=object), "set_cudagraph_capturing_enabled": nothing,
    }  # fmt: skip
    for name, value in replaced.items():
        monkeypatch.setattr(module, name, value)
    for name in ("CUDAGraphWrapper", "BreakableCUDAGraphWrapper"):
        monkeypatch.setattr(module, name, SimpleNamespace(_all_instances=[], clear_all_graphs=nothing))
    group = SimpleNamespace(local_rank=1)
    monkeypatch.setattr(upstream_import("vllm.distributed.parallel_state"), "get_world_group", lambda: group)
    runner = SimpleNamespace(
        vllm_config=None, max_model_len=16, max_num_tokens=16, device="cuda:0", lora_config=None,
        compilation_config=SimpleNamespace(cudagraph_mode=mode), encoder_cudagraph_manager=None,
        cudagraph_dispatcher=SimpleNamespace(
            get_capture_descs=lambda: [(mode, [SimpleNamespace(num_tokens=4)])], cudagraph_keys={}, keys_initialized=True
        ),
        _freeze_gc=context, _create_encoder_cudagraph_manager=nothing,
    )  # fmt: skip
    for name in ("_init_minimal_kv_cache_for_profiling", "_warmup_and_capture", "_cleanup_profiling_kv_cache",
                 "maybe_remove_all_loras", "_capture_cudagraphs", "_maybe_init_encoder_cudagraph_manager"):  # fmt: skip
        setattr(runner, name, nothing)
    vars(runner).update(changes)
    return runner


def test_graph_estimate_of_the_first_runner(
    upstream_import: Load, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = v1_runner(upstream_import, monkeypatch)
    assert upstream_import(RUNNER).GPUModelRunner.profile_cudagraph_memory(runner) == measured


def test_encoder_graph_estimate_of_the_first_runner(
    upstream_import: Load, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream counts no less than nothing here on any GPU."""
    encoder = SimpleNamespace(get_num_graphs_to_capture=lambda: 1, token_budgets=[4], capture=nothing, clear=nothing)
    none = SimpleNamespace(get_capture_descs=list, cudagraph_keys={}, keys_initialized=True)
    runner = v1_runner(
        upstream_import, monkeypatch, cudagraph_dispatcher=none, _create_encoder_cudagraph_manager=lambda: encoder
    )
    assert upstream_import(RUNNER).GPUModelRunner.profile_cudagraph_memory(runner) == max(taken, 0)


def test_captured_graphs_of_the_first_runner(
    upstream_import: Load, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = v1_runner(upstream_import, monkeypatch)
    assert upstream_import(RUNNER).GPUModelRunner.capture_model(runner) == measured


def test_captured_graphs_of_the_second_runner(upstream_import: Load, measured: int) -> None:
    manager = SimpleNamespace(needs_capture=lambda: True, capture=nothing)
    runner = SimpleNamespace(
        cudagraph_manager=manager, lora_config=None, input_buffers=None, pcp_manager=None, model=None, speculator=None,
        intermediate_tensors=None, block_tables=None, attn_groups=None, kv_cache_config=None, adaptive_verification=None,
        use_aux_hidden_state_outputs=False, maybe_setup_dummy_loras=context,
        model_state=SimpleNamespace(supports_mm_inputs=False, capture_inner_cudagraphs=nothing),
        kv_connector=SimpleNamespace(reset_capture_state=nothing),
    )  # fmt: skip
    assert upstream_import(RUNNER_V2).GPUModelRunner.capture_model(runner, profile_only=True) == measured


def test_captured_graphs_of_the_encoder_runner(upstream_import: Load, measured: int) -> None:
    manager = SimpleNamespace(get_num_graphs_to_capture=lambda: 1)
    encoder = SimpleNamespace(has_cudagraph=lambda: True, capture=nothing, cudagraph_manager=manager)
    runner = SimpleNamespace(model_state=SimpleNamespace(encoder_runner=encoder))
    assert upstream_import(ENCODER).MMEncoderModelRunner.capture_model(runner, profile_only=True) == measured


@pytest.fixture
def sleep(upstream_import: Load, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Put a worker to sleep, which takes the given bytes, and releases them where that is negative."""
    module = upstream_import(WORKER)
    monkeypatch.setattr(module, "has_kv_transfer_group", lambda: False)

    def asleep(change: int) -> None:
        def suspend(level: int) -> None:
            machine.others += change

        config = SimpleNamespace(model_config=SimpleNamespace(enable_nccl_comm_suspend=False))
        worker = SimpleNamespace(sleep_mode_backend=SimpleNamespace(suspend=suspend), vllm_config=config)
        module.Worker.sleep(worker, 1)

    return asleep


def test_sleep_reports_what_it_freed(
    machine: Machine, sleep: Callable[[int], None], log: list[str], integrated: bool
) -> None:
    machine.page_cache = 5 * GIB
    sleep(-8 * GIB)
    used = (machine.total - machine.available) / GIB
    assert f"INFO Sleep mode freed 8.0 GiB memory, {used:.1f} GiB memory is still in use." in log


def test_others_may_take_memory_during_sleep(sleep: Callable[[int], None], integrated: bool) -> None:
    if integrated:
        sleep(3 * GIB)
    else:
        with pytest.raises(AssertionError, match="Memory usage increased after sleeping"):
            sleep(3 * GIB)


def compares_on_the_gpu(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, device: str, elements: int) -> bool:
    """Return where Eagle compares a draft's lm_head with the target's: on the weight's own GPU, or on the CPU."""
    weight = SimpleNamespace(is_cuda=True, device=torch.device(device), numel=lambda: elements, cpu=lambda: "cpu")
    compared: list[Any] = []
    monkeypatch.setattr(torch, "equal", lambda *given: compared.append(given[0]) or True)
    draft, target = SimpleNamespace(weight=weight), SimpleNamespace(weight=weight)
    module = upstream_import(EAGLE)
    assert module._should_share(SimpleNamespace(has_own_lm_head=True), "has_own_lm_head", draft, target)
    assert compared in ([weight], ["cpu"])
    return compared == [weight]


@pytest.mark.parametrize("on_gpu", [True, False])
def test_eagle_compares_on_the_gpu_where_memory_is_free(
    upstream_import: Load, machine: Machine, integrated: bool, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the number of elements has to be free. On UMA, the page cache is."""
    machine.page_cache = machine.available - 2 * GIB
    elements = (machine.available if integrated else machine.get_memory_info()[0]) // 2 + (0 if on_gpu else 1)
    assert compares_on_the_gpu(upstream_import, monkeypatch, "cuda:0", elements) is on_gpu


@pytest.mark.parametrize("on_gpu", [True, False])
def test_eagle_asks_for_the_memory_of_the_weight_s_own_gpu(
    upstream_import: Load, machine: Machine, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements = machine.second_free // 2 + (0 if on_gpu else 1)
    assert elements * 2 < machine.get_memory_info()[0]
    assert compares_on_the_gpu(upstream_import, monkeypatch, "cuda:1", elements) is on_gpu


def test_an_instance_that_consumes_nothing_starts(machine: Machine) -> None:
    size = Instance(machine, 0.45, weights=0).size_kv_cache()
    assert size / GIB == pytest.approx(0.45 * machine.total / GIB - 3)


def test_what_others_take_while_the_model_is_loaded(machine: Machine) -> None:
    size = Instance(machine, 0.7, taken_while_loading=10, taken_while_profiling=5).size_kv_cache()
    assert size / GIB == pytest.approx(0.7 * machine.total / GIB - 20 - 15 - 3)


@pytest.mark.parametrize("released", [5, 15, 30])
def test_what_others_release_is_not_this_instance_s(machine: Machine, integrated: bool, released: float) -> None:
    """A discrete GPU is measured as upstream does: what is released counts, until more is released than was taken."""
    machine.others = 50 * GIB
    instance = Instance(machine, 0.45, weights=25, taken_while_loading=-released)
    budget = 0.45 * machine.total / GIB
    if integrated:
        assert instance.size_kv_cache() / GIB == pytest.approx(budget - 25 - 3)
    elif released < 25:
        assert instance.size_kv_cache() / GIB == pytest.approx(budget - 25 - 3 + released)
    else:
        with pytest.raises(AssertionError, match="Error in memory profiling"):
            instance.size_kv_cache()


def test_the_gpu_may_be_the_machine_s_second(machine: Machine, integrated: bool) -> None:
    machine.number = machine.current_device = 1
    machine.others = 50 * GIB
    machine.allocate(4)
    size = Instance(machine, 0.45, weights=25, taken_while_loading=-20).size_kv_cache() / GIB
    assert size == pytest.approx(0.45 * machine.total / GIB - (25 if integrated else 5) - 3)


def test_torch_s_own_memory_is_counted_from_the_first_snapshot(machine: Machine, integrated: bool) -> None:
    machine.others = 50 * GIB
    machine.allocate(4)
    size = Instance(machine, 0.45, weights=25, taken_while_loading=-20).size_kv_cache() / GIB
    assert size == pytest.approx(0.45 * machine.total / GIB - (25 if integrated else 5) - 3)


def test_nothing_is_consumed_where_torch_holds_less(upstream_import: Load, machine: Machine, integrated: bool) -> None:
    """Allocators that torch doesn't count, as sleep mode's, leave it with less than at the start."""
    module = upstream_import(MEMORY)
    machine.allocate(4)
    before = module.MemorySnapshot(device=torch.device("cuda:0"))
    machine.free(4)
    machine.empty_cache()
    after = module.MemorySnapshot(device=torch.device("cuda:0"))
    assert need(module, "get_consumed_memory")(before, after) == (0 if integrated else -4 * GIB)


@pytest.mark.parametrize("integrated", [False])
def test_what_rocm_counts_instead_is_kept(
    upstream_import: Load, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import(WORKER)
    monkeypatch.setattr(module.current_platform, "is_rocm", lambda: True)
    machine.others = 50 * GIB
    size = Instance(machine, 0.45, weights=10, taken_while_loading=-30).size_kv_cache() / GIB
    assert size == pytest.approx(0.45 * machine.total / GIB - 10 - 3)
