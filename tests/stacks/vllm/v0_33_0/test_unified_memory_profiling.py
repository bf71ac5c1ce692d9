"""What profiling may take where the GPU shares the machine's memory. On a discrete GPU nothing limits it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from unified_kit import GB10, GIB, Instance, Load, Machine, Wedged

RESERVE = GB10 / 20


@pytest.fixture
def machine(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(upstream_import, monkeypatch, others=20 * GIB).install()


def refusal(instance: Instance) -> str:
    """Return the message of the ValueError before profiling, or of the memory error in it. The machine must go on."""
    try:
        size = instance.size_kv_cache() / GIB
    except Wedged as error:
        raise AssertionError(f"the machine ran out of memory: {error}") from error
    except (ValueError, torch.OutOfMemoryError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"not refused; the KV cache has {size:.1f} GiB")


def test_a_run_that_would_take_the_machine_fails(machine: Machine) -> None:
    """vLLM #46307: 48 GiB of weights at 0.7, and a peak that takes the rest of the machine."""
    said = refusal(Instance(machine, 0.7, weights=48, peak=60))
    assert said.startswith("OutOfMemoryError: Profiling may take 37.19 GiB: what is left of the 85.19 GiB that this ")
    assert "101.7 GiB of the machine's 121.7 GiB were available on startup and 53.7 GiB are available now." in said
    assert "max_num_batched_tokens" in said
    assert "Tried to allocate 60 GiB" in said
    assert machine.lowest / GIB >= RESERVE
    assert machine.current.fraction == 1, "the limit is gone"


@pytest.mark.parametrize("utilization", [0.45, 0.8])
def test_the_limit_is_what_the_instance_may_use(machine: Machine, utilization: float, log: list[str]) -> None:
    """The smaller of its utilization and what leaves the machine its reserve. Nothing is logged where it suffices."""
    left = min(utilization * GB10, 101.7 - RESERVE) - 20
    fits = Instance(machine, utilization, peak=left - 1.1, graphs=1).size_kv_cache() / GIB
    assert fits == pytest.approx(0.1, abs=0.01)
    assert machine.current.fraction == 1, "the limit is gone"
    assert not [line for line in log if "Profiling may take" in line]
    machine.processes = [type(machine.current)()]
    assert "OutOfMemoryError" in refusal(Instance(machine, utilization, peak=left + 0.01))


def test_what_others_take_while_loading_lowers_the_limit(machine: Machine) -> None:
    said = refusal(Instance(machine, 0.6, peak=24, taken_while_loading=30))
    assert said.startswith("OutOfMemoryError: Profiling may take 23.02 GiB: ")


def test_what_others_release_does_not_raise_the_limit(machine: Machine) -> None:
    machine.others = 60 * GIB
    said = refusal(Instance(machine, 0.45, weights=25, peak=31, taken_while_loading=-40))
    assert said.startswith("OutOfMemoryError: Profiling may take 29.76 GiB: ")


@pytest.mark.parametrize("taken", [70.0, 75.0])
def test_it_refuses_before_profiling_where_nothing_is_left(machine: Machine, taken: float) -> None:
    instance = Instance(machine, 0.7, taken_while_loading=taken)
    said = refusal(instance)
    assert said.startswith(
        f"ValueError: Profiling may take {85.19 - 20 - taken:.2f} GiB: what is left of the 85.19 GiB"
    )
    assert "121.7 GiB were available on startup" in said
    assert "unified_memory_reserve_bytes" in said
    assert instance.events == []


@pytest.mark.parametrize("options", [{}, {"kv_cache_memory_bytes": 60 * GIB}])
def test_the_gpu_may_be_the_machine_s_second(machine: Machine, options: dict[str, Any]) -> None:
    """The first one is discrete: neither its memory nor its limit counts."""
    machine.number = machine.current_device = 1
    machine.current.fraction = 0.9
    said = refusal(Instance(machine, 0.7, peak=70, options=options))
    assert said.startswith(f"OutOfMemoryError: Profiling may take {15.61 if options else 65.19} GiB: ")
    assert machine.current.fraction == 0.9


def test_graphs_are_limited_too(machine: Machine) -> None:
    said = refusal(Instance(machine, 0.45, graphs=40))
    assert said.startswith("OutOfMemoryError: Profiling may take 34.76 GiB: ")
    assert machine.current.fraction == 1, "the limit is gone"


def test_it_refuses_where_nothing_is_left_for_graphs(machine: Machine) -> None:
    instance = Instance(machine, 0.7, taken_while_profiling=66)
    assert refusal(instance).startswith("ValueError: Profiling may take -0.81 GiB: ")
    assert instance.events == ["profiled"]


def test_no_kv_cache_is_negative(machine: Machine) -> None:
    """Others took memory while it was profiled, after the limit was set."""
    instance = Instance(machine, 0.7, peak=10, graphs=5, taken_while_profiling=52)
    said = refusal(instance)
    assert said.startswith("ValueError: No memory is left for the KV cache: this instance may use 85.19 GiB, of which ")
    for number in ("72.0 GiB", "15.0 GiB", "121.7 GiB"):
        assert number in said
    assert instance.events == ["profiled", "graphs"]


def test_no_kv_cache_is_empty(machine: Machine) -> None:
    """The last byte that is left makes the difference."""
    left = Instance(machine, 0.7, peak=10, graphs=5, taken_while_profiling=50).size_kv_cache()
    for spare in (1, 0):
        machine.processes, machine.others = [type(machine.current)()], 20 * GIB
        instance = Instance(machine, 0.7, peak=10, graphs=5, taken_while_profiling=50 + (left - spare) / GIB)
        if spare:
            assert instance.size_kv_cache() == 1
        else:
            assert refusal(instance).startswith("ValueError: No memory is left for the KV cache: ")


@pytest.mark.parametrize("options", [{}, {"kv_cache_memory_bytes": 60 * GIB}])
def test_another_error_is_left_as_it_is(machine: Machine, options: dict[str, Any]) -> None:
    def fails(**given: Any) -> None:
        assert machine.current.fraction < 1, "profiling is not limited"
        raise RuntimeError("no such kernel")

    instance = Instance(machine, 0.7, options=options)
    instance.profile_run = fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match=r"^no such kernel$"):
        instance.size_kv_cache()
    assert machine.current.fraction == 1, "the limit is gone"


def test_memory_that_is_left_goes_to_the_kv_cache(machine: Machine) -> None:
    size = Instance(machine, 0.7, peak=10, graphs=5, taken_while_profiling=50).size_kv_cache() / GIB
    assert size == pytest.approx(0.7 * GB10 - 20 - 50 - 15)


class TestSizeOfTheKvCacheIsGiven:
    """`--kv-cache-memory-bytes`: the utilization limits nothing, what is available does."""

    def instance(self, machine: Machine, size: float, **given: Any) -> Instance:
        return Instance(machine, 0.5, options={"kv_cache_memory_bytes": int(size * GIB)}, **given)

    def test_it_fits(self, machine: Machine) -> None:
        assert self.instance(machine, 60, peak=101.7 - RESERVE - 20 - 60.1).size_kv_cache() == 60 * GIB
        assert machine.current.fraction == 1, "the limit is gone"

    def test_profiling_is_limited(self, machine: Machine) -> None:
        said = refusal(self.instance(machine, 60, peak=101.7 - RESERVE - 20 - 59.9))
        assert said.startswith("OutOfMemoryError: Profiling may take 15.61 GiB: what is left of the available memory, ")
        assert "less 60.0 GiB for the KV cache and the machine's reserve of 6.08 GiB" in said

    def test_it_refuses_before_profiling(self, machine: Machine) -> None:
        instance = self.instance(machine, 101.7 - RESERVE - 20)
        assert refusal(instance).startswith("ValueError: Profiling may take ")
        assert instance.events == []

    def test_the_reserve_is_the_option_s(self, machine: Machine) -> None:
        instance = self.instance(machine, 70, peak=11)
        instance.options["unified_memory_reserve_bytes"] = 0
        assert instance.size_kv_cache() == 70 * GIB

    @pytest.mark.parametrize("garbage", [False, True])
    def test_memory_in_torch_s_cache_is_available(self, machine: Machine, garbage: bool) -> None:
        """What loading the weights freed, or leaves to the collection of garbage."""
        if garbage:
            machine.current.allocated = machine.current.garbage = 30 * GIB
        else:
            machine.current.cached = 30 * GIB
        assert self.instance(machine, 66, peak=10, weights=15).size_kv_cache() == 66 * GIB


def test_a_lower_limit_of_the_user_s_is_kept(machine: Machine) -> None:
    machine.current.fraction = 0.3
    assert "OutOfMemoryError" in refusal(Instance(machine, 0.7, peak=20))
    assert machine.current.fraction == 0.3


def test_an_allocator_without_limits_is_left_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.allocator = "pluggable"
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", unwanted)
    assert Instance(machine, 0.7, peak=10).size_kv_cache() / GIB == pytest.approx(0.7 * GB10 - 20 - 11)


def unwanted(*given: Any) -> None:
    raise AssertionError("a limit was set")


@pytest.mark.parametrize("options", [{}, {"kv_cache_memory_bytes": 60 * GIB}])
def test_a_discrete_gpu_is_not_limited(
    machine: Machine, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.integrated = False
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", unwanted)
    # More than its utilization allows.
    instance = Instance(machine, 0.5, peak=50, options=options)
    expected = 60 if options else 0.5 * GB10 - 20 - 51
    assert instance.size_kv_cache() / GIB == pytest.approx(expected)
    assert instance.events[0] == "profiled"
