"""Tree drafts are chosen by FlashInfer's top_k on long rows, if it has one, and by torch elsewhere.

vLLM's real EagleProposer.propose_tree; a tensor that says that it is on a GPU stands for one that is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import first_of, need

Load = Callable[[str], ModuleType]
EQUIVALENT_MUTANTS = {
    "4b2bb40c8b": "logits have two dimensions: the second is the last one",
    "b53607a9cc": "the last dimension is torch's own default",
    "c73df7e08c": "logits have two dimensions: the second is the last one",
}
#: Eagle's and others' from v0.20.0.
PROPOSER = "vllm.v1.spec_decode.llm_base_proposer", "vllm.v1.spec_decode.eagle"


class OnGpu(torch.Tensor):
    is_cuda = True  # type: ignore[assignment]


@pytest.fixture
def calls(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Calls of FlashInfer's top_k, answered by torch's."""
    seen: list[tuple[int, ...]] = []

    def top_k(x: torch.Tensor, k: int, sorted: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        assert sorted, "the most likely draft is the first child"
        assert x.is_contiguous(), "FlashInfer reads rows that lie one after the other"
        seen.append((*x.shape, k))
        values, indices = torch.topk(x.as_subclass(torch.Tensor), k, dim=-1)
        return values, indices

    monkeypatch.setattr(upstream_import("flashinfer"), "top_k", top_k, raising=False)
    return seen


def logits(vocabulary: int, gpu: bool) -> torch.Tensor:
    made = torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(2))
    return made.as_subclass(OnGpu) if gpu else made


@pytest.mark.parametrize(
    ("vocabulary", "gpu", "has", "expected"),
    [
        (201088, True, True, [(3, 201088, 4)]),
        (10000, True, True, [(3, 10000, 4)]),
        (9999, True, True, []),
        (201088, False, True, []),
        (201088, True, False, []),
    ],
)
def test_which_and_what(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[int, ...]], vocabulary: int, gpu: bool,
    has: bool, expected: list[tuple[int, ...]],
) -> None:  # fmt: skip
    module = first_of(upstream_import, *PROPOSER)
    choose = need(module, "_top_k_ids")
    monkeypatch.setattr(module, "has_flashinfer_top_k", lambda: has)
    x = logits(vocabulary, gpu)
    ids = choose(x, 4)
    assert calls == expected
    assert torch.equal(ids.as_subclass(torch.Tensor), torch.topk(x.as_subclass(torch.Tensor), 4, dim=-1).indices)


def test_rows_that_lie_apart_are_put_together(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[int, ...]]
) -> None:
    module = first_of(upstream_import, *PROPOSER)
    choose = need(module, "_top_k_ids")
    monkeypatch.setattr(module, "has_flashinfer_top_k", lambda: True)
    wider = logits(12000, True)
    x = wider[:, :11000]
    assert not x.is_contiguous()
    ids = choose(x, 3)
    assert calls == [(3, 11000, 3)]
    assert torch.equal(ids.as_subclass(torch.Tensor), torch.topk(x.as_subclass(torch.Tensor), 3, dim=-1).indices)


@dataclass
class Common:
    """What propose_tree reads and replaces of the metadata that all layers share."""

    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor | None = None
    num_actual_tokens: int = 0
    max_query_len: int = 0


class Model:
    """A draft model that says the same at each call."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def __call__(self, hidden_states: torch.Tensor, **given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return hidden_states, hidden_states

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.logits


@pytest.fixture
def proposer(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The real proposer for three requests and a tree of 4 children, or of 2 with 2 each; its model says ``level``."""
    module = first_of(upstream_import, *PROPOSER)
    monkeypatch.setattr(module, "set_forward_context", lambda *a, **k: nullcontext())

    def make(levels: int, level: torch.Tensor) -> Any:
        made = object.__new__(getattr(module, "SpecDecodeBaseProposer", None) or module.EagleProposer)
        builder = object.__new__(module.TreeAttentionMetadataBuilder)
        builder.kv_cache_spec = SimpleNamespace(block_size=16)
        drafting = SimpleNamespace(
            max_seq_len=9, seq_lens=torch.full((3,), 5), block_table=torch.zeros(3, 2, dtype=torch.int64),
            num_actual_tokens=6,
        )  # fmt: skip
        monkeypatch.setattr(type(builder), "build_for_drafting", lambda *a, **k: drafting)
        group = type("Group", (), {"get_metadata_builder": lambda self: builder, "layer_names": []})()
        made.__dict__.update(
            runner=type("Runner", (), {"attn_groups": [[group]]})(), draft_attn_groups=[group],
            cu_drafts_per_level=[4] if levels == 1 else [2, 6], child_drafts_per_level=[4] if levels == 1 else [2, 2],
            input_ids=torch.zeros(8, dtype=torch.int64), positions=torch.zeros(8, dtype=torch.int64),
            hidden_states=torch.zeros(8, 4), tree_draft_pos_offsets=torch.zeros(8, 4, dtype=torch.int64),
            arange=torch.arange(9), max_model_len=99, block_size=16, attn_layer_names=[],
            use_cuda_graph=False, vllm_config=None, model=Model(level), _get_slot_mapping=lambda *a: None,
            cudagraph_dispatcher=SimpleNamespace(
                dispatch=lambda tokens, *a, **k: (module.CUDAGraphMode.NONE, SimpleNamespace(num_tokens=tokens))
            ),
        )  # fmt: skip
        return made

    return make


@pytest.mark.parametrize("levels", [1, 2])
def test_the_tree_asks_for_it(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, proposer: Callable[..., Any], levels: int
) -> None:
    """At the root, and at the level below it, whose rows are the drafts of all requests."""
    module = first_of(upstream_import, *PROPOSER)
    need(module, "_top_k_ids")
    asked: list[tuple[int, ...]] = []

    def note(x: torch.Tensor, k: int) -> torch.Tensor:
        asked.append((*x.shape, k))
        return torch.topk(x, k, dim=-1).indices

    monkeypatch.setattr(module, "_top_k_ids", note)
    root, below = logits(12000, False), torch.randn(6, 12000, generator=torch.Generator().manual_seed(4))
    made = proposer(levels, below)
    drafts = made.propose_tree(3, root, torch.zeros(3, dtype=torch.int64), torch.zeros(3, 4), Common(torch.ones(3)))
    assert asked == ([(3, 12000, 4)] if levels == 1 else [(3, 12000, 2), (6, 12000, 2)])
    assert torch.equal(drafts[0], root.topk(asked[0][-1], dim=-1).indices)
    if levels == 2:
        assert torch.equal(drafts[1], below.topk(2, dim=-1).indices.view(3, 4))


@pytest.mark.parametrize("has", [False, True])
def test_whether_flashinfer_has_one(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    module, flashinfer = upstream_import("vllm.utils.flashinfer"), upstream_import("flashinfer")
    monkeypatch.setattr(module, "has_flashinfer", lambda: True)
    found = need(module, "has_flashinfer_top_k")
    assert hasattr(flashinfer, "top_k"), "the pinned FlashInfer has it"
    if not has:
        monkeypatch.delattr(flashinfer, "top_k")
    found.cache_clear()
    assert found() is has
    found.cache_clear()


def test_a_missing_flashinfer_is_not_asked(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    module = upstream_import("vllm.utils.flashinfer")
    found = need(module, "has_flashinfer_top_k")
    monkeypatch.setattr(module, "has_flashinfer", lambda: False)
    found.cache_clear()
    assert found() is False
    monkeypatch.setattr(module, "has_flashinfer", lambda: True)
    monkeypatch.setattr(module, "_get_submodule", lambda name: None)
    found.cache_clear()
    assert found() is False
    found.cache_clear()
