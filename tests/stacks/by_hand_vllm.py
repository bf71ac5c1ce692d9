"""Ways to break vLLM's patches that their proofs once didn't see, or that a mended patch was broken in.

Each is one edit of lines that a patch has: ``old``, which the patched file has once, becomes ``new``.
Used by test_by_hand.py, which says how to run them.
"""

from __future__ import annotations

from typing import NamedTuple


class ByHand(NamedTuple):
    """A mutation that a person thought of; ``patch`` is ``upstream/name``, whose proof must see it."""

    name: str
    patch: str
    path: str
    old: str
    new: str


FLASHINFER = "vllm/v1/attention/backends/flashinfer.py"
MXFP4 = "vllm/model_executor/layers/quantization/mxfp4.py"
GROUPS, GROUP_UTILS = "vllm/attention-hyperparameter-groups", "vllm/v1/attention/backends/utils.py"
MUTANTS = [
    ByHand(
        "decode is handed the dtype of the KV cache as the output's",
        "vllm/decode-plan-o-data-type",
        FLASHINFER,
        """\
            o_data_type=self.model_config.dtype,
            fixed_split_size=self.decode_fixed_split_size,
""",
        """\
            o_data_type=self.kv_cache_dtype,
            fixed_split_size=self.decode_fixed_split_size,
""",
    ),
    ByHand(
        "no layer is tagged a draft's",
        "vllm/attention-hyperparameter-groups",
        "vllm/attention/layer.py",
        "        self.is_draft = compilation_backends.model_tag in DRAFT_MODEL_TAGS\n",
        "        self.is_draft = False\n",
    ),
    ByHand(
        "the sink wrapper of CUDA graphs has no buffer for pages",
        "vllm/flashinfer-fa2-sinks",
        FLASHINFER,
        "                    paged_kv_indices_buf=paged_kv_indices,\n",
        "",
    ),
    ByHand(
        "a decode with sinks is planned without what makes batches invariant",
        "vllm/flashinfer-fa2-sinks",
        FLASHINFER,
        """\
                fixed_split_size=self.decode_fixed_split_size,
                disable_split_kv=self.disable_split_kv,
                **_o_data_type_kwargs(wrapper, self.model_config.dtype),
""",
        """\
                **_o_data_type_kwargs(wrapper, self.model_config.dtype),
""",
    ),
    ByHand(
        "each rank of TP adds the bias",
        "vllm/mxfp4-qkv-o",
        MXFP4,
        "        return _apply_marlin(layer, x, bias)\n",
        "        return _apply_marlin(layer, x, layer.bias)\n",
    ),
    ByHand(
        "ROCm keeps its sinks",
        "vllm/attention-sinks-switch",
        "vllm/v1/attention/backends/rocm_attn.py",
        "        self.sinks = sinks if use_sinks(sinks is not None) else None\n",
        "        self.sinks = sinks\n",
    ),
    ByHand(
        "the second runner's steps are tagged as nothing",
        "vllm/forward-context-run-tags",
        "vllm/v1/worker/gpu/model_runner.py",
        "                is_dummy_run=dummy_run,\n",
        "",
    ),
    ByHand(
        "precompiled kernels count where there are none",
        "vllm/mxfp4-sm12x-cutlass",
        "vllm/utils/flashinfer.py",
        """\
    if importlib.util.find_spec("flashinfer_jit_cache") is None:
        return False
""",
        """\
    if importlib.util.find_spec("flashinfer_jit_cache") is not None:
        return False
""",
    ),
    ByHand(
        "a decode under context parallelism is planned for one rank's heads",
        "vllm/attention-hyperparameter-groups",
        FLASHINFER,
        "            self.num_qo_heads * self.dcp_world_size,\n",
        "            self.num_qo_heads,\n",
    ),
    ByHand(
        "ROCm loses Triton",
        "vllm/mxfp4-backend-option",
        MXFP4,
        '        return {"triton": Mxfp4Backend.TRITON} if usable else {}\n',
        "        return {}\n",
    ),
    ByHand(
        "any cache of kernels counts",
        "vllm/mxfp4-sm12x-cutlass",
        "vllm/utils/flashinfer.py",
        '    if not (jit_env.FLASHINFER_AOT_DIR / name / f"{name}.so").exists():\n',
        "    if not jit_env.FLASHINFER_AOT_DIR:\n",
    ),
    ByHand(
        "torch's CUDA is taken for a toolkit",
        "vllm/mxfp4-sm12x-cutlass",
        "vllm/utils/flashinfer.py",
        '    return os.access(nvcc, os.X_OK) and is_cuda_version_at_least("12.9")\n',
        '    return is_cuda_version_at_least("12.9")\n',
    ),
    ByHand(
        "lm_head keeps its BF16 weight",
        "vllm/mxfp4-lm-head",
        MXFP4,
        "        self._created = weakref.ref(layer.weight)\n",
        "        weight = layer.weight\n        self._created = lambda: weight\n",
    ),
    ByHand(
        "experts are tuned for one rank's tokens",
        "vllm/mxfp4-tune-bucket",
        MXFP4,
        "        self.tune_max_num_tokens = moe.dp_size * max(\n",
        "        self.tune_max_num_tokens = max(\n",
    ),
    ByHand(
        "no full graphs for a decode with drafted tokens",
        "vllm/flashinfer-fa2-sinks",
        FLASHINFER,
        "        if has_trtllm_support or runs_fa2_sinks(vllm_config):\n",
        "        if has_trtllm_support:\n",
    ),
    ByHand(
        "a decode with drafted tokens is prefilled",
        "vllm/flashinfer-fa2-sinks",
        FLASHINFER,
        "            1, supports_spec_as_decode=can_use_trtllm or runs_fa2_sinks(vllm_config)\n",
        "            1, supports_spec_as_decode=can_use_trtllm\n",
    ),
    ByHand(
        "graphs of one length are replayed for another",
        "vllm/flashinfer-fa2-sinks",
        FLASHINFER,
        "                key = group, batch_size, query_len\n",
        "                key = group, batch_size, 1\n",
    ),
    ByHand(
        "draft steps plan the target's groups",
        "vllm/attention-hyperparameter-groups",
        FLASHINFER,
        "            groups=self.draft_groups,\n",
        "",
    ),
    # FlashInfer's plans.
    ByHand(
        "layers that differ in window share a plan",
        GROUPS,
        GROUP_UTILS,
        "            params.window_left,\n            params.logits_soft_cap or 0.0,  # 0 and None both mean no cap\n            params.sm_scale,\n",
        "            -1,\n            params.logits_soft_cap or 0.0,  # 0 and None both mean no cap\n            params.sm_scale,\n",
    ),
    ByHand(
        "layers that differ in scale share a plan",
        GROUPS,
        GROUP_UTILS,
        "            params.window_left,\n            params.logits_soft_cap or 0.0,  # 0 and None both mean no cap\n            params.sm_scale,\n",
        "            params.window_left,\n            params.logits_soft_cap or 0.0,  # 0 and None both mean no cap\n            0.125,\n",
    ),
    ByHand(
        "no cap and a cap of 0 are planned apart",
        GROUPS,
        GROUP_UTILS,
        "            params.window_left,\n            params.logits_soft_cap or 0.0,  # 0 and None both mean no cap\n            params.sm_scale,\n",
        "            params.window_left,\n            params.logits_soft_cap,  # 0 and None both mean no cap\n            params.sm_scale,\n",
    ),
    ByHand(
        "groups are in the layers' order",
        GROUPS,
        GROUP_UTILS,
        "        key=lambda names: all(per_layer_params[name].is_draft for name in names),\n",
        "        key=lambda names: 0,\n",
    ),
    ByHand(
        "a group with one draft's layer is a draft's",
        GROUPS,
        GROUP_UTILS,
        "        key=lambda names: all(per_layer_params[name].is_draft for name in names),\n",
        "        key=lambda names: any(per_layer_params[name].is_draft for name in names),\n",
    ),
    ByHand(
        "each layer takes the first group's plan",
        GROUPS,
        FLASHINFER,
        "        return self.layer_to_group[layer.layer_name]\n",
        "        return 0\n",
    ),
    ByHand(
        "a draft step plans all groups",
        GROUPS,
        FLASHINFER,
        "            groups=self.draft_groups,\n",
        "            groups=None,\n",
    ),
    ByHand(
        "one group is planned",
        GROUPS,
        FLASHINFER,
        "            groups = range(len(self.groups))\n",
        "            groups = range(1)\n",
    ),
    ByHand(
        "each step makes new wrappers",
        GROUPS,
        FLASHINFER,
        "            self._prefill_wrappers[group] = prefill_wrapper\n",
        "",
    ),
    ByHand(
        "one group is looked up",
        GROUPS,
        FLASHINFER,
        "            layer_to_group=self.layer_to_group if len(self.groups) > 1 else None,\n",
        "            layer_to_group=self.layer_to_group,\n",
    ),
]
