"""draft_sample_method="greedy" makes the V2 runner's Eagle draft by argmax; the default is as before."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import need

Load = Callable[[str], ModuleType]
LOGITS = torch.tensor([[0.1, 2.0, 1.0], [3.0, 0.0, 1.0]])


@pytest.fixture
def speculator(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The real EagleSpeculator's methods on buffers for two requests; Gumbel sampling is noted and draws token 2."""
    module = upstream_import("vllm.v1.worker.gpu.spec_decode.eagle")

    def make(greedy: bool, steps: int, temperature: float = 0.5) -> Any:
        made = object.__new__(module.EagleSpeculator)
        made.drawn = []

        def gumbel(logits: torch.Tensor, *given: torch.Tensor, apply_temperature: bool) -> torch.Tensor:
            assert torch.equal(logits, LOGITS)
            *rows, temperature, seeds, pos = given  # since vLLM 0.14 the rows of all requests, and which are meant
            if rows:
                temperature, seeds = temperature[rows[0]], seeds[rows[0]]
            made.drawn.append((temperature.tolist(), seeds.tolist(), pos.tolist(), apply_temperature))
            return torch.full((logits.shape[0],), 2)

        # vLLM 0.14 passes the rows of all requests, and copies as many from the sampling metadata.
        made.all_rows = "idx_mapping" in inspect.signature(module.gumbel_sample).parameters
        monkeypatch.setattr(module, "gumbel_sample", gumbel)
        monkeypatch.setattr(module, "update_eagle_inputs", lambda *a: None)
        monkeypatch.setattr(module, "prepare_eagle_inputs", lambda *a: torch.tensor([0, 1]))
        made.greedy_draft, made.num_speculative_steps, made.max_model_len = greedy, steps, 99
        made.method = "eagle"
        # As many rows as there may be requests: the third is none's.
        made.temperature, made.seeds = torch.tensor([temperature, 0.0, 0.9]), torch.tensor([7, 8, 9])
        made.idx_mapping = torch.tensor([0, 1])
        made.draft_tokens = torch.zeros(2, steps, dtype=torch.int64)
        made.hidden_states = torch.zeros(2, 4)
        start: Any = torch.tensor([0, 1, 2])
        start.gpu = start  # where vLLM 0.13 has it
        made.input_buffers = SimpleNamespace(positions=torch.tensor([4, 9]), query_start_loc=start)
        made.block_tables = SimpleNamespace(compute_slot_mappings=lambda *a: None)
        made.run_model = lambda *a, **k: (torch.zeros(2, 4), torch.zeros(2, 4))
        made.model = SimpleNamespace(compute_logits=lambda hidden: LOGITS)
        return made

    return make


def test_greedy_steps(speculator: Callable[..., Any]) -> None:
    made = speculator(True, 3)
    made.generate_draft(2, {}, None)
    assert made.draft_tokens[:, 1:].tolist() == [[1, 1], [0, 0]]
    assert made.drawn == []


def test_gumbel_steps_are_as_before(speculator: Callable[..., Any]) -> None:
    made = speculator(False, 2)
    made.generate_draft(2, {}, None)
    assert made.draft_tokens[:, 1].tolist() == [2, 2]
    assert made.drawn == [([0.5, 0.0], [7, 8], [5, 10], True)]


def test_gumbel_is_drawn_without_a_temperature_too(speculator: Callable[..., Any]) -> None:
    made = speculator(False, 2, temperature=0.0)
    need(made, "sample_draft")
    made.generate_draft(2, {}, None)
    assert made.drawn == [([0.0, 0.0], [7, 8], [5, 10], True)]


@pytest.mark.parametrize(("greedy", "expected"), [(True, [[1], [0]]), (False, [[2], [2]])])
def test_the_first_token(speculator: Callable[..., Any], greedy: bool, expected: list[list[int]]) -> None:
    made = speculator(greedy, 1)
    batch = SimpleNamespace(
        num_tokens_after_padding=2, num_reqs=2, attn_metadata={}, cu_num_logits=torch.tensor([0, 1, 2]),
        positions=torch.tensor([4, 9]), seq_lens=None, idx_mapping=torch.tensor([0, 1]),
    )  # fmt: skip
    rows = 3 if made.all_rows else 2
    sampling = SimpleNamespace(temperature=torch.tensor([0.5, 0.0, 0.9])[:rows], seeds=torch.tensor([7, 8, 9])[:rows])
    drafts = made.propose(batch, sampling, torch.zeros(2, 4), None, *[torch.zeros(2)] * 4)
    assert drafts.tolist() == expected
    assert made.drawn == ([] if greedy else [([0.5, 0.0], [7, 8], [5, 10], True)])


def test_the_option(upstream_import: Load) -> None:
    config = upstream_import("vllm.config.speculative").SpeculativeConfig
    fields = {f.name: f for f in dataclasses.fields(config)}
    assert "draft_sample_method" in fields
    assert fields["draft_sample_method"].default == "gumbel"
    with pytest.raises(ValueError, match="draft_sample_method"):
        config(method="ngram", num_speculative_tokens=1, draft_sample_method="nonsense")


@pytest.mark.parametrize(("value", "greedy"), [("gumbel", False), ("greedy", True)])
def test_the_speculator_reads_it(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, value: str, greedy: bool
) -> None:
    module = upstream_import("vllm.v1.worker.gpu.spec_decode.eagle")
    for name in ("InputBuffers", "EagleCudaGraphManager"):
        monkeypatch.setattr(module, name, lambda *a, **k: None)
    draft = SimpleNamespace(get_hidden_size=lambda: 4, get_inputs_embeds_size=lambda: 4, get_vocab_size=lambda: 3)
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(
            method="eagle", num_speculative_tokens=2, draft_model_config=draft, draft_sample_method=value
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=2, max_num_batched_tokens=8),
        model_config=SimpleNamespace(max_model_len=99, dtype=torch.float32),
    )
    assert need(module.EagleSpeculator(config, torch.device("cpu")), "greedy_draft") is greedy
