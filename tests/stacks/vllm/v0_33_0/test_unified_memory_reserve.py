"""The memory that the rest of a machine keeps where the GPU shares the machine's memory. A discrete GPU keeps none."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from unified_kit import GB10, GIB, MEMORY, UTILS, WORKER, Instance, Load, Machine
from unified_memory_table import CASES, outcome

OPTION = "unified_memory_reserve_bytes"
#: By default 5 % of the machine's memory stay available.
RESERVE = GB10 / 20
PAGE = Path(__file__).resolve().parents[4] / "docs" / "evidence" / "unified-memory.md"


@pytest.fixture
def machine(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(upstream_import, monkeypatch).install()


def cache_config(load: Load, utilization: float, **options: Any) -> Any:
    config = load("vllm.config").CacheConfig
    assert OPTION in {f.name for f in dataclasses.fields(config)}
    return config(gpu_memory_utilization=utilization, **options)


def requested(machine: Machine, utilization: float, free: float, device: str = "cuda:0", external: float = 0,
              **options: Any) -> float:  # fmt: skip
    """Return the GiB that an instance may use on a device with so many GiB free."""
    snapshot = machine.load(MEMORY).MemorySnapshot(
        total_memory=machine.total, free_memory=int(free * GIB), device=torch.device(device), auto_measure=False
    )
    cache = cache_config(machine.load, utilization, **options)
    return float(machine.load(UTILS).request_memory(snapshot, cache, int(external * GIB))) / GIB


def test_a_reserve_stays_available(machine: Machine, log: list[str]) -> None:
    assert requested(machine, 0.8, 101.7) == pytest.approx(101.7 - RESERVE)
    (line,) = [line for line in log if "unified-memory-reserve-bytes" in line]
    assert line.startswith("WARNING 101.7 GiB of the 121.7 GiB ")
    assert "6.08 GiB" in line
    assert line.endswith("using 95.61 GiB instead of the requested 97.36 GiB.")


def test_utilization_is_what_it_was_where_the_reserve_is_free(machine: Machine, log: list[str]) -> None:
    assert requested(machine, 0.75, 101.7) == pytest.approx(0.75 * GB10)
    (line,) = [line for line in log if "unified-memory-reserve-bytes" in line]
    assert line.startswith("INFO 101.7 GiB of the 121.7 GiB ")
    assert line.endswith("using the requested 91.27 GiB.")


@pytest.mark.parametrize(("spare", "level"), [(0, "INFO"), (-1, "WARNING")])
def test_the_last_byte_makes_the_difference(machine: Machine, log: list[str], spare: int, level: str) -> None:
    """What leaves exactly the reserve is not lowered."""
    wanted = requested(machine, 0.5, 121)
    log.clear()
    free = int(wanted * GIB) + 8 * GIB + spare
    assert requested(machine, 0.5, free / GIB, **{OPTION: 8 * GIB}) == wanted + spare / GIB
    (line,) = [line for line in log if "unified-memory-reserve-bytes" in line]
    assert line.startswith(level)


@pytest.mark.parametrize(("reserve", "expected"), [(0, 100), (1, 99.1), (8, 92.1), (20, 80.1)])
def test_the_reserve_is_an_option_in_bytes(machine: Machine, reserve: int, expected: float) -> None:
    utilization = 100 / GB10
    assert requested(machine, utilization, 100.1, **{OPTION: reserve * GIB}) == pytest.approx(expected)


def test_no_reserve_says_nothing(machine: Machine, log: list[str]) -> None:
    assert requested(machine, 0.8, 97.5, **{OPTION: 0}) == pytest.approx(0.8 * GB10)
    assert not [line for line in log if "reserve" in line]


@pytest.mark.parametrize("free", [4, 6])
def test_it_refuses_where_less_than_the_reserve_is_available(machine: Machine, free: int) -> None:
    with pytest.raises(ValueError, match="stay reserved") as refused:
        requested(machine, 0.02, free, **{OPTION: 6 * GIB})
    for number in (f"{free}.0 GiB of the 121.7 GiB", "6.0 GiB of them", "--unified-memory-reserve-bytes"):
        assert number in str(refused.value)


def test_it_refuses_where_less_than_requested_is_available(machine: Machine) -> None:
    with pytest.raises(ValueError, match=re.escape("(101.7/121.7 GiB) on startup is less than desired")):
        requested(machine, 0.85, 101.7)


def test_weights_that_another_process_holds(machine: Machine) -> None:
    """The engine's part of the utilization is lowered, too."""
    assert requested(machine, 0.8, 40, external=60, **{OPTION: 8 * GIB}) == pytest.approx(32)
    assert requested(machine, 0.8, 40, external=70, **{OPTION: 8 * GIB}) == pytest.approx(0.8 * GB10 - 70)


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_a_discrete_gpu_keeps_no_reserve(machine: Machine, log: list[str], device: str) -> None:
    machine.integrated = device == "cuda:1"
    assert requested(machine, 0.8, 98, device, **{OPTION: 8 * GIB}) == pytest.approx(0.8 * GB10)
    assert requested(machine, 0.8, 40, device, 60, **{OPTION: 8 * GIB}) == pytest.approx(0.8 * GB10 - 60)
    assert not [line for line in log if "reserve" in line]


@pytest.mark.parametrize("utilization", [0.8, 0.83])
def test_the_machine_keeps_its_reserve_in_the_end(machine: Machine, utilization: float) -> None:
    machine.others = 20 * GIB
    Instance(machine, utilization).start()
    assert machine.available / GIB == pytest.approx(RESERVE, abs=0.01)


def test_a_second_instance_gets_what_the_first_got(machine: Machine) -> None:
    """`config/cache.py`: a per-instance limit. It does not matter if there is another instance."""
    first, second = (Instance(machine, 0.45).start() for _ in range(2))
    assert first == second == pytest.approx(0.45 * GB10 - 23)


@pytest.mark.parametrize("integrated", [True, False])
def test_the_suggested_size_leaves_the_reserve(
    machine: Machine, log: list[str], integrated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--kv-cache-memory` "to fully utilize gpu memory" is less than all of it."""
    machine.integrated, machine.others = integrated, 20 * GIB
    cache_config(machine.load, 0.7)
    instance = Instance(machine, 0.7)
    instance.size_kv_cache()
    suggested = suggestion(machine, instance, log, monkeypatch)
    spent = 20 + 3 + 150 / 1024
    assert suggested["fit into requested memory"] == pytest.approx(0.7 * GB10 - spent, abs=0.01)
    assert suggested["fully utilize gpu memory"] == pytest.approx(
        101.7 - spent - (RESERVE if integrated else 0), abs=0.01
    )


def suggestion(
    machine: Machine, instance: Instance, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    """Return the sizes of the KV cache in GiB that vLLM suggests after warm-up."""

    class Suggested(Exception):
        pass

    def stop(*given: Any) -> None:
        raise Suggested

    module = machine.load(WORKER)
    for name in ("kernel_warmup", "has_compiled_submodule"):
        monkeypatch.setattr(module, name, lambda *given: None)
    monkeypatch.setattr(module, "maybe_save_startup_plan", stop)
    worker = instance.worker
    worker.vllm_config = SimpleNamespace(compilation_config=SimpleNamespace(mode=None))
    worker.model_runner.maybe_remove_all_loras = lambda config: None
    worker.model_runner.lora_config = None
    worker.model_config.enforce_eager = True
    worker.peak_activation_memory, worker.cudagraph_memory_estimate = 3 * GIB, 0
    with pytest.raises(Suggested):
        module.Worker._compile_or_warm_up_model(worker)
    (line,) = [line for line in log if "--kv-cache-memory=" in line]
    found = re.findall(r"--kv-cache-memory=(-?\d+)` \(([-0-9.]+) GiB\) to ([a-z ]+?)(?:,|\.)", line)
    assert len(found) == 2
    return {purpose: int(size) / GIB for size, _, purpose in found}


@pytest.mark.parametrize(
    ("words", "expected"),
    [((), None), (("8G",), 8 * GIB), (("8g",), 8 * 10**9), (("0",), 0)],
    ids=lambda given: str(given),
)
def test_the_option_arrives_in_the_configuration(
    upstream_import: Load, parse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], expected: int | None,
) -> None:  # fmt: skip
    module = upstream_import("vllm.engine.arg_utils")
    make_model_config = module.EngineArgs.create_model_config
    monkeypatch.setattr(module.EngineArgs, "create_model_config", lambda self: self)
    args = parse(*(f"--unified-memory-reserve-bytes={word}" for word in words))
    assert not isinstance(args, str), args
    assert getattr(args, OPTION, "absent") == expected

    class Made(Exception):
        pass

    def made(**given: Any) -> None:
        raise Made(given.get(OPTION, "absent"))

    monkeypatch.setattr(module.EngineArgs, "create_model_config", make_model_config)
    monkeypatch.setattr(module, "CacheConfig", made)
    monkeypatch.setattr(module, "current_platform", upstream_import("vllm.platforms").current_platform)
    with pytest.raises(Made) as found:
        args.create_engine_config()
    assert found.value.args == (expected,)


def test_the_option_is_no_part_of_a_graph(upstream_import: Load) -> None:
    plain, other = (cache_config(upstream_import, 0.8, **given) for given in ({}, {OPTION: 5}))
    assert plain.compute_hash() == other.compute_hash()
    assert getattr(plain, OPTION) is None


def test_a_negative_reserve_is_refused(upstream_import: Load) -> None:
    assert getattr(cache_config(upstream_import, 0.8, **{OPTION: 0}), OPTION) == 0
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        cache_config(upstream_import, 0.8, **{OPTION: -1})


def documented() -> list[list[str]]:
    """Return the cells of the page's table of KV caches."""
    lines = iter(PAGE.read_text().splitlines())
    next(line for line in lines if line.startswith("| instances | utilization |"))
    next(lines)
    table = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


@pytest.mark.parametrize("n", range(len(CASES)))
def test_the_documented_sizes(machine: Machine, n: int) -> None:
    """The page's last column is of these patches; the one before it is of upstream."""
    cache_config(machine.load, 0.8)
    *first, expected = documented()[n]
    assert first[:4] == CASES[n].cells()
    assert outcome(CASES[n]) == expected


def test_all_sizes_are_documented() -> None:
    assert len(documented()) == len(CASES)
