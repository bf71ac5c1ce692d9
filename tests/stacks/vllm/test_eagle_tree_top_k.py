"""Tree drafts are chosen by FlashInfer's top_k on long rows, if it has one, and by torch elsewhere.

vLLM's real EagleProposer.propose_tree; a tensor that says that it is on a GPU stands for one that is.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from vllm_kit import first_of, need

Load = Callable[[str], ModuleType]
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


def test_the_tree_asks_for_it(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root level of a tree of one level, as propose_tree builds it."""
    module = first_of(upstream_import, *PROPOSER)
    need(module, "_top_k_ids")
    asked: list[tuple[int, ...]] = []

    def note(x: torch.Tensor, k: int) -> torch.Tensor:
        asked.append((*x.shape, k))
        return torch.topk(x, k, dim=-1).indices

    monkeypatch.setattr(module, "_top_k_ids", note)
    proposer = object.__new__(getattr(module, "SpecDecodeBaseProposer", None) or module.EagleProposer)
    builder = object.__new__(module.TreeAttentionMetadataBuilder)
    group = type("Group", (), {"get_metadata_builder": lambda self: builder})()
    proposer.__dict__.update(
        runner=type("Runner", (), {"attn_groups": [[group]]})(), draft_attn_groups=[group],
        cu_drafts_per_level=[4], child_drafts_per_level=[4],
        input_ids=torch.zeros(1, dtype=torch.int64), positions=torch.zeros(1, dtype=torch.int64),
        hidden_states=torch.zeros(1, 4), tree_draft_pos_offsets=torch.zeros(8, 4, dtype=torch.int64),
    )  # fmt: skip
    drafts = proposer.propose_tree(3, logits(12000, False), torch.zeros(3), torch.zeros(3, 4), None)
    assert asked == [(3, 12000, 4)]
    assert drafts[0].shape == (3, 4)


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
