"""Eagle's speculator counts drafts that miss the CUDA graphs, and says so at the interval of the statistics."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import need

Load = Callable[[str], ModuleType]


#: A machine's clock, which began long before vLLM does.
START = 5000.0


@pytest.fixture
def graphs(upstream_import: Load) -> ModuleType:
    return upstream_import("vllm.v1.worker.gpu.spec_decode.eagle_cudagraph")


@pytest.fixture
def clock(graphs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [START]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_log(graphs: ModuleType, clock: list[float], log: list[str]) -> None:
    stats = need(graphs, "EagleCudaGraphStats")(10.0)
    for reqs, size in ((1, 1), (30, 32), (9, None), (12, None), (7, None), (2, 2)):
        stats.observe(reqs, size)
    assert (stats.num_hits, stats.num_misses, stats.max_missed_reqs) == (3, 3, 12)
    assert log == [], "not before its time"
    clock[0] = START + 10.0
    stats.observe(1, 1)
    (said,) = log
    assert said.startswith("INFO Eagle CUDA graphs: 3 of 7 drafts ran eagerly, the largest with 12 requests.")
    stats.observe(1, 1)
    assert len(log) == 1, "once an interval"
    clock[0] = START + 20.0
    stats.observe(1, 1)
    assert len(log) == 2, "and again after the next"
    assert "3 of 9" in log[1]


def test_one_miss_is_enough(graphs: ModuleType, clock: list[float], log: list[str]) -> None:
    stats = need(graphs, "EagleCudaGraphStats")(10.0)
    clock[0] = START + 9.9
    stats.observe(5, None)
    assert log == []
    clock[0] = START + 10.1
    stats.observe(1, 1)
    assert len(log) == 1, "said once the interval is over"
    assert "1 of 2 drafts ran eagerly, the largest with 5 requests" in log[0]
    clock[0] = START + 20.0
    stats.observe(1, 1)
    assert len(log) == 1, "the interval begins with the last log"


def test_nothing_is_said_without_misses(graphs: ModuleType, clock: list[float], log: list[str]) -> None:
    stats = need(graphs, "EagleCudaGraphStats")(10.0)
    clock[0] = START + 99.0
    stats.observe(4, 4)
    assert log == []


@pytest.mark.parametrize(("reqs", "size"), [(2, 2), (3, None)])
def test_each_draft_is_counted(
    upstream_import: Load, graphs: ModuleType, monkeypatch: pytest.MonkeyPatch, reqs: int, size: int | None
) -> None:
    module = upstream_import("vllm.v1.worker.gpu.spec_decode.eagle")
    stats = need(graphs, "EagleCudaGraphStats")(10.0)
    tokens, replayed = 2 * reqs, list[int]()
    made = object.__new__(module.EagleSpeculator)
    for name in ("gumbel_sample", "prepare_eagle_decode", "update_eagle_inputs", "build_attn_metadata"):
        monkeypatch.setattr(module, name, lambda *a, **k: torch.zeros(reqs, dtype=torch.int64))
    monkeypatch.setattr(module, "prepare_eagle_inputs", lambda *a: torch.arange(reqs))
    zeros = torch.zeros(reqs, dtype=torch.int64)
    start: Any = torch.arange(reqs + 1)
    start.gpu, start.np, start.cpu = start, start.numpy(), start.clone()  # where vLLM 0.13 has them
    made.__dict__.update(
        greedy_draft=True, num_speculative_steps=2, method="eagle", max_model_len=99, max_num_reqs=reqs + 5,
        temperature=torch.zeros(reqs), seeds=zeros.clone(), idx_mapping=zeros.clone(), draft_tokens=torch.zeros(reqs, 2, dtype=torch.int64),
        hidden_states=torch.zeros(tokens, 4), kv_cache_config=None, attn_metadata_builders=[],
        input_buffers=SimpleNamespace(positions=zeros.clone(), query_start_loc=start, seq_lens=zeros),
        block_tables=SimpleNamespace(compute_slot_mappings=lambda *a: None, input_block_tables=[]),
        run_model=lambda *a, **k: (torch.zeros(tokens, 4), torch.zeros(tokens, 4)),
        model=SimpleNamespace(compute_logits=lambda hidden: torch.zeros(reqs, 3)),
        cudagraph_manager=SimpleNamespace(
            get_cudagraph_size=lambda n: size, run=replayed.append, stats=stats
        ),
    )  # fmt: skip
    batch = SimpleNamespace(
        num_tokens_after_padding=tokens, num_reqs=reqs, attn_metadata={}, cu_num_logits=torch.arange(reqs + 1),
        positions=torch.zeros(tokens, dtype=torch.int64), seq_lens=zeros, idx_mapping=zeros,
    )  # fmt: skip
    sampling = SimpleNamespace(temperature=torch.zeros(reqs), seeds=zeros)
    made.propose(batch, sampling, torch.zeros(tokens, 4), None, zeros, zeros, zeros, zeros)
    assert (stats.num_hits, stats.num_misses, stats.max_missed_reqs) == ((1, 0, 0) if size else (0, 1, reqs))
    assert replayed == ([size] if size else [])


def test_the_interval_is_the_other_statistics(
    upstream_import: Load, graphs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_LOG_STATS_INTERVAL", "3")
    monkeypatch.setattr(graphs, "get_cudagraph_sizes", lambda *a: {})
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    config: Any = SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=2, max_num_batched_tokens=8),
        model_config=SimpleNamespace(max_model_len=99), parallel_config=SimpleNamespace(data_parallel_size=1),
        compilation_config=SimpleNamespace(cudagraph_mode=None, cudagraph_capture_sizes=[]),
    )  # fmt: skip
    manager = graphs.EagleCudaGraphManager(config, torch.device("cpu"))
    assert need(manager, "stats").log_interval == 3
