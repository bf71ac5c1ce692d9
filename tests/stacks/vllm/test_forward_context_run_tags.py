"""The forward context says whether a run serves requests, is a dummy, or profiles the memory."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import need

Load = Callable[[str], ModuleType]


@pytest.fixture
def context(upstream_import: Load) -> ModuleType:
    return upstream_import("vllm.forward_context")


def tags(context: ModuleType) -> tuple[bool, bool]:
    current = context.get_forward_context()
    return need(current, "is_dummy_run"), need(current, "is_profile_run")


def tagged(context: ModuleType, config: Any, **given: bool) -> Any:
    """Set a forward context with these tags."""
    known = set(inspect.signature(context.set_forward_context).parameters)
    assert set(given) <= known, "the forward context knows no dummy runs"
    return context.set_forward_context(None, config, **given)


@pytest.mark.parametrize("given", [{}, {"is_dummy_run": True}, {"is_dummy_run": True, "is_profile_run": True}])
def test_what_is_set_is_read_and_ends_with_the_run(context: ModuleType, config: Any, given: dict[str, bool]) -> None:
    with context.set_forward_context(None, config):
        with tagged(context, config, **given):
            assert tags(context) == (given.get("is_dummy_run", False), given.get("is_profile_run", False))
        assert tags(context) == (False, False), "a real run is tagged as nothing"


def test_untagged_is_a_real_run(context: ModuleType, config: Any) -> None:
    made = context.create_forward_context(None, config)
    assert (need(made, "is_dummy_run"), need(made, "is_profile_run")) == (False, False)
    defaults = {f.name: f.default for f in dataclasses.fields(context.ForwardContext)}
    assert (defaults["is_dummy_run"], defaults["is_profile_run"]) == (False, False)


class Model:
    """Called as a model is; notes the tags of each call."""

    def __init__(self, context: ModuleType) -> None:
        self.context = context
        self.seen: list[tuple[bool, bool]] = []

    def __call__(self, **kwargs: Any) -> torch.Tensor:
        self.seen.append(tags(self.context))
        return torch.zeros(8, 4)


@pytest.mark.parametrize("profile", [False, True])
def test_the_first_runners_dummy_run(
    upstream_import: Load, context: ModuleType, config: Any, monkeypatch: pytest.MonkeyPatch, profile: bool
) -> None:
    module = upstream_import("vllm.v1.worker.gpu_model_runner")
    model = Model(context)
    buffer = SimpleNamespace(gpu=torch.zeros(8, dtype=torch.int64))
    descriptor = SimpleNamespace(num_tokens=8, num_reqs=None)
    none = module.CUDAGraphMode.NONE
    runner = SimpleNamespace(
        vllm_config=config, model=model, uniform_decode_query_len=1, max_num_tokens=8, lora_config=None,
        scheduler_config=SimpleNamespace(max_num_seqs=8, max_num_batched_tokens=8), supports_mm_inputs=False, enable_prompt_embeds=False,
        uses_mrope=False, uses_xdrope_dim=0, input_ids=buffer, positions=buffer, use_aux_hidden_state_outputs=False,
        speculative_config=None, model_config=SimpleNamespace(is_encoder_decoder=False), device="cpu",
        _determine_batch_execution_and_padding=lambda **k: (none, descriptor, False, None, None),
        maybe_dummy_run_with_lora=lambda *a, **k: contextlib.nullcontext(), _init_model_kwargs=lambda *a: {},
        maybe_randomize_inputs=lambda *a, **k: contextlib.nullcontext(), _register_layerwise_nvtx_hooks=lambda: None,
        eplb_step=lambda **k: None,
    )  # fmt: skip
    monkeypatch.setattr(module, "get_pp_group", lambda: SimpleNamespace(is_first_rank=True))
    monkeypatch.setattr(module, "maybe_create_ubatch_slices", lambda *a: (None, None))
    module.GPUModelRunner._dummy_run(runner, 8, is_profile=profile)
    assert model.seen == [(True, profile)]


@pytest.mark.parametrize(("profile", "expected"), [(False, (True, False)), (True, (True, True))])
def test_the_second_runners(
    upstream_import: Load, context: ModuleType, config: Any, monkeypatch: pytest.MonkeyPatch, profile: bool,
    expected: tuple[bool, bool],
) -> None:  # fmt: skip
    module = upstream_import("vllm.v1.worker.gpu.model_runner")
    model = Model(context)
    dummy = SimpleNamespace(
        num_reqs=2, num_tokens=8, attn_metadata=None, num_scheduled_tokens=None, input_ids=None, positions=None,
        logits_indices=torch.tensor([0, 4]), mrope_positions=None,
    )  # fmt: skip
    runner = SimpleNamespace(
        vllm_config=config, model=model, max_num_reqs=4, max_num_tokens=8, input_buffers=None, device="cpu", dp_size=1,
        lora_config=None, maybe_dummy_run_with_lora=lambda *a, **k: contextlib.nullcontext(),
        _dummy_sampler_run=lambda hidden: None, do_spec_decode=False, uses_mrope=False,
        parallel_config=SimpleNamespace(data_parallel_size=1),
    )  # fmt: skip
    known = inspect.signature(context.set_forward_context).parameters
    assert "is_profile_run" in known, "the forward context knows no profile runs"
    runner._dummy_run = lambda *a, **k: module.GPUModelRunner._dummy_run(runner, *a, **k)
    monkeypatch.setattr(module.InputBatch, "make_dummy", lambda **k: dummy)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *a: None)
    if profile:
        module.GPUModelRunner.profile_run(runner)
    else:
        runner._dummy_run(8)
    assert model.seen == [expected]


@pytest.mark.parametrize("dummy", [False, True])
def test_the_second_runners_step(
    upstream_import: Load, context: ModuleType, config: Any, monkeypatch: pytest.MonkeyPatch, dummy: bool
) -> None:
    """A step that serves requests is tagged as nothing; one that an idle DP rank takes part in is a dummy."""
    module = upstream_import("vllm.v1.worker.gpu.model_runner")
    assert "is_dummy_run" in inspect.signature(context.set_forward_context).parameters, "it knows no dummy runs"
    model = Model(context)
    batch = SimpleNamespace(
        attn_metadata=None, num_tokens_after_padding=8, input_ids=None, positions=torch.zeros(8), num_draft_tokens=0,
        logits_indices=torch.tensor([0, 4]), idx_mapping=None, idx_mapping_np=None, mrope_positions=None,
        expanded_idx_mapping=None,  # from v0.14.0
    )  # fmt: skip
    runner = SimpleNamespace(
        vllm_config=config, model=model, max_num_reqs=4, input_buffers=None, device="cpu", input_prep_event=None,
        get_cudagraph_and_dp_padding=lambda scheduled: (module.CUDAGraphMode.NONE, 8, None), lora_config=None,
        update_states=lambda scheduled: None, prepare_inputs=lambda *a: batch, uses_mrope=False,
        prepare_dummy_attn_metadata=lambda batch: None,
        req_states=SimpleNamespace(make_sampling_metadata=lambda *a: None),
    )  # fmt: skip
    monkeypatch.setattr(module, "async_barrier", lambda event: contextlib.nullcontext(), raising=False)
    monkeypatch.setattr(module.InputBatch, "make_dummy", lambda **k: batch)
    step = SimpleNamespace(total_num_scheduled_tokens=0 if dummy else 8)
    inspect.unwrap(module.GPUModelRunner.execute_model)(runner, step, dummy_run=dummy)
    assert model.seen == [(dummy, False)]


def test_each_micro_batch(
    upstream_import: Load, context: ModuleType, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import("vllm.v1.worker.gpu_ubatch_wrapper")
    made: list[Any] = []

    def note(forward_contexts: list[Any], **rest: Any) -> list[None]:
        made.extend(forward_contexts)
        return []

    monkeypatch.setattr(module, "make_ubatch_contexts", note)
    wrapper = SimpleNamespace(vllm_config=config, comm_stream=None, ready_barrier=None)
    arguments = inspect.signature(module.UBatchWrapper._make_ubatch_metadata).parameters
    given: dict[str, Any] = dict.fromkeys(list(arguments)[1:])
    given |= {"ubatch_slices": [None, None], "dp_metadata": [None, None]}
    given["cudagraph_runtime_mode"] = module.CUDAGraphMode.NONE
    for tags in ({}, {"is_dummy_run": True}, {"is_dummy_run": True, "is_profile_run": True}):
        made.clear()
        # It goes on to slice the inputs, of which there are none.
        with tagged(context, config, **tags), contextlib.suppress(TypeError, AttributeError, ValueError):
            module.UBatchWrapper._make_ubatch_metadata(wrapper, **given)
        assert [(need(c, "is_dummy_run"), need(c, "is_profile_run")) for c in made] == [
            (tags.get("is_dummy_run", False), tags.get("is_profile_run", False))
        ] * 2


def test_eagles_drafter(upstream_import: Load, context: ModuleType, config: Any) -> None:
    module = upstream_import("vllm.v1.spec_decode.eagle")
    model = Model(context)
    drafter = SimpleNamespace(
        vllm_config=config, model=model, use_cuda_graph=False, num_speculative_tokens=2, supports_mm_inputs=False,
        input_ids=torch.zeros(8), hidden_states=torch.zeros(8, 4), _get_positions=lambda n: torch.zeros(n),
        _pad_batch_across_dp=lambda **k: (8, None), dp_rank=0, positions=torch.zeros(8), uses_mrope=False,
    )  # fmt: skip
    module.EagleProposer.dummy_run(drafter, 8)
    assert model.seen == [(True, False)] * 2
