"""What is served, and beside what: one engine a case, patched and unpatched alike unless a case says otherwise.

A case's ``truth`` says what is otherwise in the reference that it is held against: layers in MXFP4, with scales that
are ``saturating`` or not, ``no sinks``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

#: Shorter and longer than a window of 128, one of each side of it, and more than one block of a chunked prefill.
LENGTHS = (7, 33, 64, 127, 129, 200, 500, 1100)
WHOLE = {"name": "batched", "max_tokens": 16, "prompt_logprobs": True}
ALONE = {**WHOLE, "name": "alone", "alone": True}
SM121 = (12, 1)
#: What is otherwise in a reference; nothing, for the checkpoint as it is.
Truth = tuple[str, ...]
NO_SINKS: Truth = ("no sinks",)
#: Not held against: what rounding to BF16 does to the reference itself.
ROUNDED: Truth = ("bfloat16",)


@dataclass(frozen=True)
class Case:
    """One engine.

    :ivar engine: arguments of ``vllm.LLM`` over the common ones; None leaves one of those out.
    :ivar builds: which of patched and unpatched are tried.
    :ivar beside: name of the case that its tokens are also compared with, same build.
    :ivar exclusive: run with no other engine on the GPU.
    """

    name: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    passes: tuple[Mapping[str, Any], ...] = (WHOLE,)
    env: Mapping[str, str] = field(default_factory=dict)
    capability: tuple[int, int] | None = None
    truth: Truth = ()
    builds: tuple[str, ...] = ("patched", "unpatched")
    beside: str = "marlin"
    draft: bool = False
    speculation: Mapping[str, Any] = field(default_factory=dict)
    exclusive: bool = False


GREEDY = {"name": "batched", "max_tokens": 48}
#: With the logits of the made model this is neither greedy nor noise.
SAMPLED = {**GREEDY, "temperature": 0.3}
#: FlashInfer's sampler masks logits to the top-k only where top-p follows, and refuses seeds of requests. Its kernel
#: skips rows without a top-k, which is every other row here.
FILTERED = {**SAMPLED, "top_k": [50, -1], "top_p": 0.95, "seed": None}
GRAPHS = {"enforce_eager": False, "compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8]}}
FLASHINFER = {"attention_backend": "FLASHINFER"}
EVERY_RELEASE = (
    Case("marlin", passes=(WHOLE, ALONE)),
    # Log-probabilities of the prompts fill the cache and don't read it; the second pass does.
    Case("chunked prefill, prefix cache", {"max_num_batched_tokens": 128, "enable_prefix_caching": True},
         (WHOLE, {**WHOLE, "prompt_logprobs": False, "name": "hit"})),
    Case("CUDA graphs", GRAPHS, (WHOLE, ALONE)),
    # What two runs of one build differ by, each of which compiles for itself.
    Case("marlin, again", passes=(WHOLE, ALONE), builds=("patched",)),
    Case("CUDA graphs, again", GRAPHS, (WHOLE, ALONE), builds=("patched",), beside="CUDA graphs"),
    Case("FlashInfer, taken for SM121", FLASHINFER, capability=SM121),
    Case("no draft", passes=(GREEDY,), beside="no draft"),
    Case("Eagle3", passes=(GREEDY,), draft=True, beside="no draft"),
    Case("Eagle3, FlashInfer, taken for SM121", FLASHINFER, (GREEDY,), capability=SM121, draft=True,
         beside="no draft"),
    Case("sinks off", env={"VLLM_ATTENTION_SINKS": "false"}, truth=NO_SINKS, builds=("patched",)),
    Case("Triton top-k", env={"VLLM_MOE_TRITON_TOPK": "1"}, builds=("patched",)),
    Case("FP8 KV cache", {"kv_cache_dtype": "fp8"}),
    Case("Triton experts", {"moe_backend": "triton"}),
    Case("FlashInfer, taken for SM121, FP8 KV", {**FLASHINFER, "kv_cache_dtype": "fp8"}, capability=SM121),
    Case("FlashInfer's sampler", passes=(FILTERED,), env={"VLLM_USE_FLASHINFER_SAMPLER": "1"},
         beside="FlashInfer's sampler"),
    # vLLM measures the free memory of the whole GPU, so no other engine may run.
    Case("own memory accounting", {**GRAPHS, "kv_cache_memory_bytes": None, "gpu_memory_utilization": 0.5},
         beside="CUDA graphs", exclusive=True),
)  # fmt: skip
#: ``--mxfp4-layers`` is there with the stacks up to v0.20.0.
LAYERS = (
    Case("layers qkv, o, lm_head", {"mxfp4_layers": "moe,qkv,o,lm_head"}, truth=("qkv", "o", "lm_head")),
    Case("layers qkv, o", {"mxfp4_layers": "moe,qkv,o"}, truth=("qkv", "o"), builds=("patched",)),
    Case("layers with LoRA", {"mxfp4_layers": "moe,qkv,o,lm_head", "enable_lora": True, "max_lora_rank": 8},
         builds=("patched",)),
)  # fmt: skip
#: Upstream's way in v0.33.0, with the lm_head by the patch alone.
ONLINE_QKV_O = {"re:.*qkv_proj": "mxfp4", "re:.*o_proj": "mxfp4"}
ONLINE = (
    Case("online qkv, o, lm_head",
         {"quantization_config": {"targets": {**ONLINE_QKV_O, "lm_head": "mxfp4"}}, "linear_backend": "marlin"},
         truth=("qkv", "o", "lm_head", "saturating")),
    Case("online qkv, o", {"quantization_config": {"targets": ONLINE_QKV_O}, "linear_backend": "marlin"},
         truth=("qkv", "o", "saturating"), builds=("unpatched",)),
)  # fmt: skip
#: What v0.13.0 has and later releases don't, and its patches with it.
SECOND_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
V0_13 = (
    Case("--mxfp4-backend marlin", {"mxfp4_backend": "marlin"}),
    Case("--mxfp4-backend triton", {"mxfp4_backend": "triton"}, builds=("patched",), beside="Triton experts"),
    Case("Eagle3, second runner", passes=(GREEDY,), env=SECOND_RUNNER, draft=True, beside="no draft"),
    Case("Eagle3, second runner, drafts by argmax", passes=(GREEDY,), env=SECOND_RUNNER, draft=True, beside="no draft",
         speculation={"draft_sample_method": "greedy"}, builds=("patched",)),
    # The answers are the target's own samples; how drafts are chosen decides only how many of them are used.
    Case("second runner, sampled", passes=(SAMPLED,), env=SECOND_RUNNER, beside="second runner, sampled"),
    Case("Eagle3, second runner, sampled", passes=(SAMPLED,), env=SECOND_RUNNER, draft=True,
         beside="second runner, sampled"),
    Case("Eagle3, second runner, sampled, drafts by argmax", passes=(SAMPLED,), env=SECOND_RUNNER, draft=True,
         speculation={"draft_sample_method": "greedy"}, builds=("patched",), beside="second runner, sampled"),
)  # fmt: skip


def as_v0_13(case: Case) -> Case:
    """v0.13.0 has no ``--moe-backend``: a variable asks for Marlin, and on SM90 Triton is what is taken without it.

    An engine in this process takes no drafts from its worker there, but where scheduling is asynchronous, which the
    second runner is made for. With drafts, log-probabilities are then those of other rows, so none are asked for.
    """
    if {case.engine.get("moe_backend"), case.engine.get("mxfp4_backend")} == {None}:
        case = replace(case, env={"VLLM_MXFP4_USE_MARLIN": "1", **case.env})
    if case.draft or SECOND_RUNNER.items() <= case.env.items():
        case = replace(case, engine={**case.engine, "async_scheduling": True})
    if case.draft:
        case = replace(case, passes=tuple({**wanted, "tokens_only": True} for wanted in case.passes))
    return replace(case, engine={**case.engine, "moe_backend": None})


def cases(release: str) -> list[Case]:
    """Of a vLLM release, such as ``0.20.0``."""
    major, minor = (int(part) for part in release.split(".")[:2])
    own = LAYERS if (major, minor) < (0, 27) else ONLINE
    all_of_them = [*EVERY_RELEASE[:9], *own, *EVERY_RELEASE[9:]]
    return [*map(as_v0_13, [*all_of_them, *V0_13])] if (major, minor) < (0, 14) else all_of_them


def prompts(vocabulary: int, lengths: Sequence[int] = LENGTHS, seed: int = 1) -> list[list[int]]:
    """Random tokens, without those that end or pad."""
    chosen = random.Random(seed)
    return [[chosen.randrange(2, vocabulary) for _ in range(length)] for length in lengths]


def spec(case: Case, model: str, draft: str, given: list[list[int]]) -> dict[str, Any]:
    """What ``engine.py`` takes."""
    engine: dict[str, Any] = {
        "skip_tokenizer_init": True, "max_model_len": 1536, "max_num_seqs": 16, "max_num_batched_tokens": 1536,
        "gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 1 << 29, "enforce_eager": True, "seed": 0,
        "moe_backend": "marlin", "enable_prefix_caching": False, **case.engine,
    }  # fmt: skip
    engine = {name: value for name, value in engine.items() if value is not None}
    if case.draft:
        engine["speculative_config"] = {"method": "eagle3", "model": draft, "num_speculative_tokens": 3}
        engine["speculative_config"] |= case.speculation
        engine["disable_log_stats"] = False
    return {
        "name": case.name, "model": model, "engine": engine, "prompts": given, "counters": case.draft,
        "passes": [dict(p) for p in case.passes], "capability": list(case.capability) if case.capability else None,
    }  # fmt: skip
