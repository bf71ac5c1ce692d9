"""Ways in which a careless edit could break the patches of vLLM 0.13.0, the default set's.

Each is one edit of lines that a patch has: ``old``, which the patched file has once, becomes ``new``.
Used by test_by_hand.py, which says how to run them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ByHand(NamedTuple):
    """A mutation that a person thought of; ``patch`` is ``upstream/name``, whose proof must see it."""

    name: str
    patch: str
    path: str
    old: str
    new: str


def of(patch: str, path: str, edits: Iterable[tuple[str, str, str]]) -> list[ByHand]:
    """Return the mutants of one file of a patch, from their names, old and new text."""
    return [ByHand(name, patch, path, old, new) for name, old, new in edits]


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

_PLAN = [
    ("decode's data type and scale are swapped", "            data_type=data_type,\n            sm_scale=sm_scale,\n            rope_scale",
     "            data_type=sm_scale,\n            sm_scale=data_type,\n            rope_scale"),
    ("decode's scale is left to FlashInfer", "            data_type=data_type,\n            sm_scale=sm_scale,\n", "            data_type=data_type,\n"),
    ("decode's rope parameters are swapped", "rope_scale=rope_scale,\n            rope_theta=rope_theta,", "rope_scale=rope_theta,\n            rope_theta=rope_scale,"),
    ("decode copies synchronously", "non_blocking=non_blocking,\n", "non_blocking=False,\n"),
    ("decode copies with None", "non_blocking=non_blocking,\n", "non_blocking=None,\n"),
    ("decode's cache has the query's dtype", "            kv_data_type=kv_data_type,\n            data_type", "            kv_data_type=q_data_type,\n            data_type"),
    ("decode's window is left out", "            window_left=window_left,\n            logits_soft_cap=logits_soft_cap,\n            q_data_type=q_data_type,\n            kv_data_type=kv_data_type,\n            data_type",
     "            logits_soft_cap=logits_soft_cap,\n            q_data_type=q_data_type,\n            kv_data_type=kv_data_type,\n            data_type"),
    ("decode's heads are swapped", "num_qo_heads=num_qo_heads,\n            num_kv_heads=num_kv_heads,\n            head_dim=head_dim,",
     "num_qo_heads=num_kv_heads,\n            num_kv_heads=num_qo_heads,\n            head_dim=head_dim,"),
    ("decode splits where it must not", "            disable_split_kv=disable_split_kv,\n            **_o_data_type_kwargs(self, o_data_type),", "            **_o_data_type_kwargs(self, o_data_type),"),
    ("an older plan() is taken for a newer one", 'return "o_data_type" in parameters or "kwargs" in parameters', "return True"),
    ("a newer plan() is taken for an older one", 'return "o_data_type" in parameters or "kwargs" in parameters', "return False"),
    ("a plan() of keywords is taken for an older one", '"o_data_type" in parameters or "kwargs" in parameters', '"o_data_type" in parameters'),
    ("any plan() with a data type is a newer one", 'return "o_data_type" in parameters', 'return "data_type" in parameters'),
    ("decode's output is FP16 unless it is said", "    o_data_type: str | torch.dtype | None = None,\n", "    o_data_type: str | torch.dtype | None = torch.float16,\n"),
]  # fmt: skip

_PREFILL = [
    ("the output dtype is never passed", '{"o_data_type": dtype} if _accepts_o_data_type(type(wrapper).plan) else {}', "{}"),
    ("the output dtype is always passed", '{"o_data_type": dtype} if _accepts_o_data_type(type(wrapper).plan) else {}', '{"o_data_type": dtype}'),
    ("the output dtype is passed where it isn't taken", '{"o_data_type": dtype} if _accepts', '{"o_data_type": dtype} if not _accepts'),
    ("the context has no output dtype", "            **_o_data_type_kwargs(self._context, o_data_type),\n", ""),
    ("the new tokens have no output dtype", "            **_o_data_type_kwargs(self._new_tokens, o_data_type),\n", ""),
    ("the context's output has the cache's dtype", "_o_data_type_kwargs(self._context, o_data_type)", "_o_data_type_kwargs(self._context, kv_cache_dtype)"),
    ("the context has the decodes' last pages too", "paged_kv_last_page_len=paged_kv_last_page_len_cpu[prefill_start:],\n            num_qo_heads=num_qo",
     "paged_kv_last_page_len=paged_kv_last_page_len_cpu,\n            num_qo_heads=num_qo"),
    ("the context is of one rank's heads", "num_qo_heads=num_qo_heads * dcp_world_size,", "num_qo_heads=num_qo_heads,"),
    ("the context's page size is the head's", "            head_dim_qk=head_dim,\n            page_size=page_size,\n            causal=False", "            head_dim_qk=head_dim,\n            page_size=head_dim,\n            causal=False"),
    ("the context's pages start at the queries", "            paged_kv_indptr=paged_kv_indptr_cpu,\n            paged_kv_indices=paged_kv_indices,\n            paged_kv_last_page_len=paged_kv_last_page_len_cpu[prefill_start:],\n            num_qo_heads=num_qo",
     "            paged_kv_indptr=qo_indptr_cpu,\n            paged_kv_indices=paged_kv_indices,\n            paged_kv_last_page_len=paged_kv_last_page_len_cpu[prefill_start:],\n            num_qo_heads=num_qo"),
    ("cascade's shared queries come last", "[shared_qo_indptr_cpu, qo_indptr_cpu]", "[qo_indptr_cpu, shared_qo_indptr_cpu]"),
    ("cascade's shared pages come last", "[shared_kv_page_indices_cpu, paged_kv_indices]", "[paged_kv_indices, shared_kv_page_indices_cpu]"),
    ("cascade's page starts are swapped", "[shared_kv_page_indptr_cpu, paged_kv_indptr_cpu]", "[paged_kv_indptr_cpu, shared_kv_page_indptr_cpu]"),
    ("cascade's last pages are swapped", "                    shared_kv_last_page_len_cpu,\n                    paged_kv_last_page_len_cpu,\n", "                    paged_kv_last_page_len_cpu,\n                    shared_kv_last_page_len_cpu,\n"),
    ("cascade's heads are swapped", "                num_qo_heads=self.num_qo_heads,\n                num_kv_heads=self.num_kv_heads,\n                head_dim=self.head_dim,",
     "                num_qo_heads=self.num_kv_heads,\n                num_kv_heads=self.num_qo_heads,\n                head_dim=self.head_dim,"),
    ("cascade's page has the head's size", "                head_dim=self.head_dim,\n                page_size=self.page_size,", "                head_dim=self.page_size,\n                page_size=self.head_dim,"),
]  # fmt: skip

_TRTLLM_MOE = [
    ("the tile's argument is back", "                None,  # routed_scaling_factor\n", "                None,\n                None,\n"),
    ("the scaling factor is dropped too", "                None,  # routed_scaling_factor\n", ""),
    ("the scaling factor is 1", "                None,  # routed_scaling_factor\n", "                1.0,\n"),
    ("the tile takes the scaling factor's place", "                None,  # routed_scaling_factor\n", "                8,\n"),
    ("renormalization is turned round", "                None,  # routed_scaling_factor\n                1 if layer", "                None,\n                1 if not layer"),
    ("the router never renormalizes", "                None,  # routed_scaling_factor\n                1 if layer.renormalize else 0,", "                None,\n                0,"),
    ("the router always renormalizes", "                None,  # routed_scaling_factor\n                1 if layer.renormalize else 0,", "                None,\n                1,"),
    ("experts and scaling factor are swapped", "                self.num_experts,  # local num experts\n                None,  # routed_scaling_factor\n",
     "                None,\n                self.num_experts,\n"),
]  # fmt: skip

_FP4_WARNING = [
    ("the warning is turned round", "if current_platform.has_device_capability(100):", "if not current_platform.has_device_capability(100):"),
    ("SM90 has FP4", "if current_platform.has_device_capability(100):", "if current_platform.has_device_capability(90):"),
    ("SM89 has FP4", "if current_platform.has_device_capability(100):", "if current_platform.has_device_capability(89):"),
    ("SM100 has no FP4", "if current_platform.has_device_capability(100):", "if current_platform.has_device_capability(120):"),
    ("only SM100 itself has FP4", "if current_platform.has_device_capability(100):", "if current_platform.is_device_capability(100):"),
    ("only SM100's family has FP4", "if current_platform.has_device_capability(100):", "if current_platform.is_device_capability_family(100):"),
    ("only SM12x has FP4", "if current_platform.has_device_capability(100):", "if current_platform.is_device_capability_family(120):"),
    ("nobody is warned", "    if current_platform.has_device_capability(100):\n        return\n", "    return\n"),
    ("everybody is warned", "    if current_platform.has_device_capability(100):\n        return\n", ""),
    ("experts don't warn", '    _warn_if_no_native_fp4()\n\n    is_nvfp4 = hasattr(layer, "w13', '    is_nvfp4 = hasattr(layer, "w13'),
    ("linear layers don't warn", '    _warn_if_no_native_fp4()\n\n    is_nvfp4 = hasattr(layer, "weight', '    is_nvfp4 = hasattr(layer, "weight'),
    ("the warning is an information", "        return\n    logger.warning_once(\n", "        return\n    logger.info_once(\n"),
]  # fmt: skip

_CLASS = [
    ("SM11x is no Blackwell", "self.major in (10, 11, 12)", "self.major in (10, 12)"),
    ("SM12x is no Blackwell", "self.major in (10, 11, 12)", "self.major in (10, 11)"),
    ("SM10x is no Blackwell", "self.major in (10, 11, 12)", "self.major in (11, 12)"),
    ("Hopper is Blackwell", "self.major in (10, 11, 12)", "self.major in (9, 10, 11, 12)"),
    ("what comes after is Blackwell", "self.major in (10, 11, 12)", "self.major >= 10"),
    ("SM100 alone is Blackwell, by its number", "self.major in (10, 11, 12)", "self.to_int() in (100, 110, 120)"),
    ("the first device is asked", "cls.get_device_capability(device_id=device_id)\n        return capability is not None and capability.is_blackwell", "cls.get_device_capability()\n        return capability is not None and capability.is_blackwell"),
    ("no device is Blackwell", "return capability is not None and capability.is_blackwell_class", "return capability is None or capability.is_blackwell_class"),
    ("another device is the default", "def is_blackwell_class(cls, device_id: int = 0) -> bool:", "def is_blackwell_class(cls, device_id: int = 1) -> bool:"),
]  # fmt: skip
_CLASS_FA = [
    ("FA3 is refused on SM10x alone", "if device_capability.is_blackwell_class and fa_version", "if device_capability.major == 10 and fa_version"),
    ("FA3 is refused on SM12x alone", "if device_capability.is_blackwell_class and fa_version", "if device_capability.major == 12 and fa_version"),
    ("Hopper loses FA3", "if device_capability.is_blackwell_class and fa_version == 3:", "if fa_version == 3:"),
    ("Ada and Ampere lose a message of their own", "if device_capability.is_blackwell_class and fa_version == 3:", "if device_capability.major != 9 and fa_version == 3:"),
    ("FA2 is warned of", "if device_capability.is_blackwell_class and fa_version == 3:", "if device_capability.is_blackwell_class:"),
    ("another version is refused", "if device_capability.is_blackwell_class and fa_version == 3:", "if device_capability.is_blackwell_class and fa_version == 2:"),
    ("either is enough", "if device_capability.is_blackwell_class and fa_version == 3:", "if device_capability.is_blackwell_class or fa_version == 3:"),
]  # fmt: skip
_CLASS_CUDA = [
    ("FlashInfer is first on SM10x alone", "        if device_capability.is_blackwell_class:", "        if device_capability.major == 10:"),
    ("FlashInfer is first everywhere", "        if device_capability.is_blackwell_class:", "        if True:"),
    ("FlashInfer is first on all but Blackwell", "        if device_capability.is_blackwell_class:", "        if not device_capability.is_blackwell_class:"),
    ("FlashInfer is first on Hopper too", "        if device_capability.is_blackwell_class:", "        if device_capability.major >= 9:"),
    ("FlashInfer is first on Ada too", "        if device_capability.is_blackwell_class:", "        if device_capability.is_blackwell_class or device_capability == (8, 9):"),
]  # fmt: skip

_CUBINS = [
    ("cubins are there for SM100's family", "        current_platform.is_device_capability(100)\n        or current_platform.is_device_capability(103)\n",
     "        current_platform.is_device_capability_family(100)\n"),
    ("SM103 has no cubins", "        current_platform.is_device_capability(100)\n        or current_platform.is_device_capability(103)\n", "        current_platform.is_device_capability(100)\n"),
    ("SM100 has no cubins", "        current_platform.is_device_capability(100)\n        or current_platform.is_device_capability(103)\n", "        current_platform.is_device_capability(103)\n"),
    ("SM121 has cubins", "        or current_platform.is_device_capability(103)\n    )", "        or current_platform.is_device_capability(103)\n        or current_platform.is_device_capability(121)\n    )"),
    ("SM101 has cubins", "        or current_platform.is_device_capability(103)\n    )", "        or current_platform.is_device_capability(101)\n    )"),
    ("what compares higher has cubins", "        current_platform.is_device_capability(100)\n        or current_platform.is_device_capability(103)\n", "        current_platform.has_device_capability(100)\n"),
    ("cubins needn't be had", "    ) and has_nvidia_artifactory()\n", "    )\n"),
    ("cubins that can be had are enough", "    ) and has_nvidia_artifactory()\n", "    ) or has_nvidia_artifactory()\n"),
    ("SM100's cubins needn't be had", "    return (\n        current_platform.is_device_capability(100)\n        or current_platform.is_device_capability(103)\n    ) and has_nvidia_artifactory()",
     "    return current_platform.is_device_capability(100) or (\n        current_platform.is_device_capability(103) and has_nvidia_artifactory()\n    )"),
    ("SM103's cubins needn't be had", "    return (\n        current_platform.is_device_capability(100)\n        or current_platform.is_device_capability(103)\n    ) and has_nvidia_artifactory()",
     "    return current_platform.is_device_capability(103) or (\n        current_platform.is_device_capability(100) and has_nvidia_artifactory()\n    )"),
    ("attention asks for the download alone", "    return has_trtllm_gen_cubins()\n", "    return has_nvidia_artifactory()\n"),
    ("attention asks for the family", "    return has_trtllm_gen_cubins()\n", "    return current_platform.is_device_capability_family(100) and has_nvidia_artifactory()\n"),
    ("attention asks for what it is not", "    return has_trtllm_gen_cubins()\n", "    return not has_trtllm_gen_cubins()\n"),
]  # fmt: skip

SINK_UTILS, ABSTRACT, LAYER = (
    "vllm/attention/utils/sink_utils.py",
    "vllm/attention/backends/abstract.py",
    "vllm/attention/layer.py",
)
_SWITCH = [
    ("a model without sinks is warned of", "    if not has_sinks:\n        return False\n", ""),
    ("every layer has sinks", "    if not has_sinks:\n        return False\n", "    if not has_sinks:\n        return True\n"),
    ("false keeps the sinks", '== "false":', '== "true":'),
    ("auto drops the sinks", '== "false":', '!= "false":'),
    ("anything but auto and a warning keeps them", "        return False\n    return True\n", "    return True\n"),
    ("nothing is said", "        logger.warning_once(\n", "        logger.debug_once(\n"),
    ("no sinks at all", "    return True\n", "    return False\n"),
]  # fmt: skip
_SWITCH_ENVS = [
    ("sinks are dropped by default", '"VLLM_ATTENTION_SINKS", "auto", ["auto", "false"]', '"VLLM_ATTENTION_SINKS", "false", ["auto", "false"]'),
    ("true is a choice", '"VLLM_ATTENTION_SINKS", "auto", ["auto", "false"]', '"VLLM_ATTENTION_SINKS", "auto", ["auto", "false", "true"]'),
    ("false is no choice", '"VLLM_ATTENTION_SINKS", "auto", ["auto", "false"]', '"VLLM_ATTENTION_SINKS", "auto", ["auto"]'),
    ("any case is taken", '"VLLM_ATTENTION_SINKS", "auto", ["auto", "false"]', '"VLLM_ATTENTION_SINKS", "auto", ["auto", "false"], False'),
    ("another variable is read", '    "VLLM_ATTENTION_SINKS": env_with_choices(\n        "VLLM_ATTENTION_SINKS",', '    "VLLM_ATTENTION_SINKS": env_with_choices(\n        "VLLM_ATTENTION_SINK",'),
]  # fmt: skip

_GROUPS_BUILDER = [
    ("a draft step that has no group plans none", "        if not groups:\n", "        if groups is None:\n"),
    ("the draft's groups are the target's", "            if params.is_draft\n        }", "            if not params.is_draft\n        }"),
    ("all groups are the draft's", "            if params.is_draft\n        }", "        }"),
    ("sinks count if all groups have them", "any(group.has_sinks for group in self.groups)\n", "all(group.has_sinks for group in self.groups)\n"),
    ("the first group's sinks count", "any(group.has_sinks for group in self.groups)\n", "self.groups[0].has_sinks\n"),
    ("names are never checked", "        if len(self.groups) > 1:\n            self._check_layer_names(layer_names)\n", ""),
    ("names are always checked", "        if len(self.groups) > 1:\n            self._check_layer_names(layer_names)\n", "        self._check_layer_names(layer_names)\n"),
    ("a layer's name isn't compared", "            if name not in self.layer_to_group\n            or getattr(context.get(name), \"layer_name\", None) != name\n", "            if name not in self.layer_to_group\n"),
    ("a name that belongs to no attention is found in time", "            if name not in self.layer_to_group\n            or getattr(context.get(name), \"layer_name\", None) != name\n", "            if getattr(context.get(name), \"layer_name\", name) != name\n"),
    ("prefill is planned with the first group's parameters", "        params = self.groups[group]\n        wrapper = self._get_prefill_wrapper(group)\n", "        params = self.groups[0]\n        wrapper = self._get_prefill_wrapper(group)\n"),
    ("decode is planned with the first group's parameters", "        params = self.groups[group]\n        wrapper = self._get_decode_wrapper(", "        params = self.groups[0]\n        wrapper = self._get_decode_wrapper("),
    ("all groups prefill by one wrapper", "        prefill_wrapper = self._prefill_wrappers.get(group)\n", "        prefill_wrapper = self._prefill_wrappers.get(0)\n"),
    ("a layer's group is what the first layer has", "                decode_wrapper = attn_metadata.decode_wrappers[\n                    attn_metadata.group_of(layer)\n                ]", "                decode_wrapper = attn_metadata.decode_wrappers[0]"),
    ("a prefill's group is what the first layer has", "                prefill_wrapper = attn_metadata.prefill_wrappers[\n                    attn_metadata.group_of(layer)\n                ]", "                prefill_wrapper = attn_metadata.prefill_wrappers[0]"),
    ("cascade takes the last group's scale", "sm_scale=self.groups[0].sm_scale", "sm_scale=1.0"),
    ("context parallelism loses the cap", "                logits_soft_cap=params.logits_soft_cap,\n                q_data_type=self.q_data_type,\n                kv_cache_dtype", "                logits_soft_cap=None,\n                q_data_type=self.q_data_type,\n                kv_cache_dtype"),
    ("a draft step shares a prefix", "            common_prefix_len=0,\n            common_attn_metadata=common_attn_metadata,\n            fast_build=True,\n            groups", "            common_prefix_len=16,\n            common_attn_metadata=common_attn_metadata,\n            fast_build=True,\n            groups"),
]  # fmt: skip
_GROUPS_UTILS = [
    ("layers with and without sinks share a plan", "            params.sm_scale,\n            params.has_sinks,\n        )", "            params.sm_scale,\n        )"),
    ("layers that differ in cap share a plan", "            params.logits_soft_cap or 0.0,  # 0 and None both mean no cap\n", ""),
    ("a draft's layers have a plan of their own", "            params.has_sinks,\n        )", "            params.has_sinks,\n            params.is_draft,\n        )"),
    ("drafts come first", "        key=lambda names: all(per_layer_params[name].is_draft for name in names),\n", "        key=lambda names: not all(\n            per_layer_params[name].is_draft for name in names\n        ),\n"),
    ("a group's parameters are its last layer's name's", "[per_layer_params[names[0]] for names in groups]", "[per_layer_params[groups[0][0]] for names in groups]"),
    ("a draft's parameters differ", "is_draft: bool = field(default=False, compare=False)", "is_draft: bool = False"),
    ("a layer is a draft's unless it is said", 'getattr(layer, "is_draft", False)', 'getattr(layer, "is_draft", True)'),
    ("no layers are no groups", '    assert len(per_layer_params) > 0, "No attention layers found in the model."\n\n    layers_by_params', "    layers_by_params"),
]  # fmt: skip
_GROUPS_TAGS = [
    ("Medusa drafts nothing", '{"eagle_head", "medusa_head"}', '{"eagle_head"}'),
    ("Eagle drafts nothing", '{"eagle_head", "medusa_head"}', '{"medusa_head"}'),
    ("the served model drafts", '{"eagle_head", "medusa_head"}', '{"eagle_head", "medusa_head", "backbone"}'),
]  # fmt: skip

_FA2_UTILS = [
    ("SM121 has no sinks", "has_flashinfer() and current_platform.is_device_capability_family(120)", "has_flashinfer() and current_platform.is_device_capability(120)"),
    ("SM120 has no sinks", "has_flashinfer() and current_platform.is_device_capability_family(120)", "has_flashinfer() and current_platform.is_device_capability(121)"),
    ("Hopper takes FA2's sinks", "has_flashinfer() and current_platform.is_device_capability_family(120)", "has_flashinfer() and current_platform.has_device_capability(90)"),
    ("SM100 takes FA2's sinks", "has_flashinfer() and current_platform.is_device_capability_family(120)", "has_flashinfer() and current_platform.has_device_capability(100)"),
    ("sinks need no FlashInfer", "has_flashinfer() and current_platform.is_device_capability_family(120)", "current_platform.is_device_capability_family(120)"),
]  # fmt: skip
_FA2 = [
    ("turning TRT-LLM off turns sinks off", "        if supports_fa2_sinks():\n            return True\n\n", "        if supports_fa2_sinks() and force_use_trtllm_attention() is not False:\n            return True\n\n"),
    ("the backend isn't offered for sinks", "        if supports_fa2_sinks():\n            return True\n\n", ""),
    ("all attention layers must have sinks", "    return supports_fa2_sinks() and any(\n", "    return supports_fa2_sinks() and all(\n"),
    ("a layer without sinks counts", "isinstance(impl, FlashInferImpl) and impl.sinks is not None for impl", "isinstance(impl, FlashInferImpl) for impl"),
    ("other GPUs' drafted tokens are decodes", "    return supports_fa2_sinks() and any(\n", "    return any(\n"),
    ("context parallelism counts the sinks on each rank", "        if self.dcp_world_size > 1:\n            raise NotImplementedError(\n                \"FlashInfer's FA2", "        if self.dcp_world_size > 2:\n            raise NotImplementedError(\n                \"FlashInfer's FA2"),
    ("sinks are accepted on any GPU", "        if not supports_fa2_sinks():\n            raise", "        if False:\n            raise"),
    ("a soft cap is ignored", "        if any(group.has_sinks and group.logits_soft_cap for group in self.groups):", "        if False:"),
    ("another group's soft cap is refused", "any(group.has_sinks and group.logits_soft_cap for group", "any(group.logits_soft_cap for group"),
    ("cascade leaves the sinks out", "if use_cascade and (len(self.groups) > 1 or self.has_sinks):", "if use_cascade and len(self.groups) > 1:"),
    ("cascade takes any number of groups", "            if use_cascade and (len(self.groups) > 1 or self.has_sinks):", "            if use_cascade and self.has_sinks:"),
    ("sinks see all tokens", "            window_left=self.groups[group].window_left,\n            **buffers", "            window_left=-1,\n            **buffers"),
    ("all sink wrappers have the first group's window", "            window_left=self.groups[group].window_left,\n            **buffers", "            window_left=self.groups[0].window_left,\n            **buffers"),
    ("the sink module is compiled for the model's cache", "            kv_data_type=self.kv_cache_dtype,\n            head_dim_qk=self.head_dim,\n            head_dim_vo", "            kv_data_type=self.model_config.dtype,\n            head_dim_qk=self.head_dim,\n            head_dim_vo"),
    ("the sink module is compiled for the cache's queries", "            q_data_type=self.model_config.dtype,\n            kv_data_type", "            q_data_type=self.kv_cache_dtype,\n            kv_data_type"),
    ("the sink module is FA3's", '            backend="fa2",', '            backend="fa3",'),
    ("prefill has no sinks", "            if self.groups[group].has_sinks:\n                prefill_wrapper = self._make_sink_wrapper(group)\n            elif", "            if"),
    ("any group with sinks gives all prefills sinks", "            if self.groups[group].has_sinks:\n                prefill", "            if self.has_sinks:\n                prefill"),
    ("decodes of one token lose their sinks", "by_prefill = has_sinks or query_len > 1", "by_prefill = query_len > 1"),
    ("drafted tokens are decoded by the kernel of one", "by_prefill = has_sinks or query_len > 1", "by_prefill = has_sinks"),
    ("each decode is by prefill", "by_prefill = has_sinks or query_len > 1", "by_prefill = has_sinks or query_len >= 1"),
    ("decodes share a wrapper of any kind", "self._decode_wrappers.get((group, by_prefill))", "self._decode_wrappers.get((group, False))"),
    ("graphs' queries start in a buffer one too short", "                        batch_size + 1, dtype=torch.int32, device=self.device\n", "                        batch_size, dtype=torch.int32, device=self.device\n"),
    ("a decode's queries are one token each", "qo_indptr=self._decode_qo_indptr_cpu[: num_decodes + 1] * query_len,", "qo_indptr=self._decode_qo_indptr_cpu[: num_decodes + 1],"),
    ("a decode isn't causal", "                causal=True,\n                sm_scale=params.sm_scale,\n                window_left=params.window_left,\n                logits_soft_cap=params.logits_soft_cap,\n                q_data_type=self.q_data_type,\n                kv_data_type=self.kv_cache_dtype,\n                fixed_split_size=self.decode", "                causal=False,\n                sm_scale=params.sm_scale,\n                window_left=params.window_left,\n                logits_soft_cap=params.logits_soft_cap,\n                q_data_type=self.q_data_type,\n                kv_data_type=self.kv_cache_dtype,\n                fixed_split_size=self.decode"),
    ("a decode has all requests' last pages", "paged_kv_last_page_len=self.paged_kv_last_page_len_cpu[:num_decodes],", "paged_kv_last_page_len=self.paged_kv_last_page_len_cpu,"),
    ("a layer may disagree with its plan", "        if takes_sinks != (self.sinks is not None):", "        if takes_sinks and self.sinks is None:"),
    ("the scale of a quantized cache is left out", "        return self.sinks, self.scale * layer._k_scale_float", "        return self.sinks, self.scale"),
    ("the logits' scale is left out", "        return self.sinks, self.scale * layer._k_scale_float", "        return self.sinks, layer._k_scale_float"),
    ("the scale comes before the sinks", "        return self.sinks, self.scale * layer._k_scale_float", "        return self.scale * layer._k_scale_float, self.sinks"),
    ("decode applies the cache's scale twice", "                    decode_wrapper.run(\n                        decode_query,\n                        kv_cache_permute,\n                        *sink_args,\n                        k_scale=None if sink_args else layer._k_scale_float,", "                    decode_wrapper.run(\n                        decode_query,\n                        kv_cache_permute,\n                        *sink_args,\n                        k_scale=layer._k_scale_float,"),
    ("prefill applies the cache's scale twice", "                    prefill_wrapper.run(\n                        prefill_query,\n                        kv_cache_permute,\n                        *sink_args,\n                        k_scale=None if sink_args else layer._k_scale_float,", "                    prefill_wrapper.run(\n                        prefill_query,\n                        kv_cache_permute,\n                        *sink_args,\n                        k_scale=layer._k_scale_float,"),
    ("without sinks a quantized cache's scale is left out", "                    decode_wrapper.run(\n                        decode_query,\n                        kv_cache_permute,\n                        *sink_args,\n                        k_scale=None if sink_args else layer._k_scale_float,", "                    decode_wrapper.run(\n                        decode_query,\n                        kv_cache_permute,\n                        *sink_args,\n                        k_scale=None,"),
    ("a prefill without sinks loses a quantized cache's scale", "                    prefill_wrapper.run(\n                        prefill_query,\n                        kv_cache_permute,\n                        *sink_args,\n                        k_scale=None if sink_args else layer._k_scale_float,", "                    prefill_wrapper.run(\n                        prefill_query,\n                        kv_cache_permute,\n                        *sink_args,\n                        k_scale=None,"),
    ("a step's query length is its tokens", "                            num_input_tokens // num_decodes,\n", "                            num_input_tokens,\n"),
]  # fmt: skip

_PROBE = [
    ("the option is always set", 'if hasattr(torch._inductor.config, "assume_32bit_indexing"):', "if True:"),
    ("the option is never set", 'if hasattr(torch._inductor.config, "assume_32bit_indexing"):', "if False:"),
    ("the option is set where it is missing", 'if hasattr(torch._inductor.config, "assume_32bit_indexing"):', 'if not hasattr(torch._inductor.config, "assume_32bit_indexing"):'),
    ("another option is looked for", '"assume_32bit_indexing"):', '"assume_32_bit_indexing"):'),
    ("another module is looked at", "hasattr(torch._inductor.config,", "hasattr(torch._dynamo.config,"),
    ("a value is taken for the option", 'if hasattr(torch._inductor.config, "assume_32bit_indexing"):', 'if getattr(torch._inductor.config, "assume_32bit_indexing", False):'),
    ("the version decides", 'if hasattr(torch._inductor.config, "assume_32bit_indexing"):', 'if is_torch_equal_or_newer("2.10.0.dev"):'),
]  # fmt: skip

_BACKEND = [
    ("XPU has Marlin with LoRA", 'return {} if with_lora_support else {"marlin": Mxfp4Backend.MARLIN}', 'return {"marlin": Mxfp4Backend.MARLIN}'),
    ("ROCm has Triton with LoRA", "usable = has_triton_kernels() and not with_lora_support", "usable = has_triton_kernels()"),
    ("ROCm has Triton without its kernels", "usable = has_triton_kernels() and not with_lora_support", "usable = not with_lora_support"),
    ("a CPU has Marlin", "    if not current_platform.is_cuda():\n        return {}\n\n    available", "    available"),
    ("LoRA has FlashInfer's", "    if with_lora_support or not has_flashinfer():\n        return available", "    if not has_flashinfer():\n        return available"),
    ("FlashInfer's need no FlashInfer", "    if with_lora_support or not has_flashinfer():\n        return available", "    if with_lora_support:\n        return available"),
    ("SM90's CUTLASS is SM100's", 'available["cutlass"] = Mxfp4Backend.SM90_FI_MXFP4_BF16', 'available["cutlass"] = Mxfp4Backend.SM100_FI_MXFP4_MXFP8_CUTLASS'),
    ("TRT-LLM's two are swapped", 'available["trtllm"] = Mxfp4Backend.SM100_FI_MXFP4_BF16\n        available["trtllm_mxfp8"] = Mxfp4Backend.SM100_FI_MXFP4_MXFP8_TRTLLM',
     'available["trtllm"] = Mxfp4Backend.SM100_FI_MXFP4_MXFP8_TRTLLM\n        available["trtllm_mxfp8"] = Mxfp4Backend.SM100_FI_MXFP4_BF16'),
    ("SM103 has no TRT-LLM", '    elif current_platform.is_device_capability_family(100):\n        available["cutlass"]', '    elif current_platform.is_device_capability(100):\n        available["cutlass"]'),
    ("a model without a configuration is asked", "if model_config is not None and model_config.mxfp4_backend is not None:", "if model_config.mxfp4_backend is not None:"),
    ("the variable comes first", "    if model_config is not None and model_config.mxfp4_backend is not None:", "    if envs.VLLM_MXFP4_BACKEND is None and model_config is not None and model_config.mxfp4_backend is not None:"),
    ("the variable is ignored", "    if envs.VLLM_MXFP4_BACKEND is not None:\n        return envs.VLLM_MXFP4_BACKEND, \"VLLM_MXFP4_BACKEND\"\n", ""),
    ("auto asks the older variables", '        name = _auto_backend(available)\n    else:', '        name = _legacy_backend(available) or _auto_backend(available)\n    else:'),
    ("the older variables come after auto", "name = _legacy_backend(available) or _auto_backend(available)", "name = _auto_backend(available) or _legacy_backend(available)"),
    ("what is impossible is replaced", "        if name not in available:\n            raise", "        if name not in available:\n            name = _auto_backend(available)\n        if name not in available:\n            raise"),
    ("auto on SM100 is MXFP8", '        return "trtllm"\n', '        return "trtllm_mxfp8"\n'),
    ("auto on SM90 is CUTLASS", 'return "triton" if "triton" in available else "marlin"', 'return "triton" if "triton" in available else list(available)[-1]'),
    ("auto prefers Marlin", 'return "triton" if "triton" in available else "marlin"', 'return "marlin" if "marlin" in available else "triton"'),
    ("BF16's variable is SM100's alone", "            Mxfp4Backend.SM90_FI_MXFP4_BF16,\n            Mxfp4Backend.SM100_FI_MXFP4_BF16,\n", "            Mxfp4Backend.SM100_FI_MXFP4_BF16,\n"),
    ("Marlin's variable is Triton's", '"VLLM_MXFP4_USE_MARLIN": (Mxfp4Backend.MARLIN,)', '"VLLM_MXFP4_USE_MARLIN": (Mxfp4Backend.TRITON,)'),
    ("no backend is an error", "    if not available:\n        return Mxfp4Backend.NONE\n\n", ""),
    ("Triton runs on SM110", "<= current_platform.get_device_capability() < (11, 0)\n    )\n\n\ndef _available", "<= current_platform.get_device_capability() < (12, 0)\n    )\n\n\ndef _available"),
    ("a missing FlashInfer is warned of on any GPU", "        current_platform.is_cuda()\n        and (\n            current_platform.is_device_capability_family(100)\n            or current_platform.is_device_capability(90)\n        )\n        and not has_flashinfer()", "        current_platform.is_cuda()\n        and not has_flashinfer()"),
]  # fmt: skip
_BACKEND_ENVS = [
    ("the variable doesn't know trtllm_mxfp8", '["auto", "marlin", "triton", "cutlass", "trtllm", "trtllm_mxfp8"],', '["auto", "marlin", "triton", "cutlass", "trtllm"],'),
    ("the variable is Marlin by default", '        "VLLM_MXFP4_BACKEND",\n        None,\n', '        "VLLM_MXFP4_BACKEND",\n        "marlin",\n'),
]  # fmt: skip

_LEGACY = [
    ("nothing is said of a variable that selects", '                logger.warning_once(\n                    "%s is deprecated, use', '                logger.debug_once(\n                    "%s is deprecated, use'),
    ("nothing is said of a variable that is ignored", '        logger.warning_once(\n            "%s is deprecated and asks', '        logger.debug_once(\n            "%s is deprecated and asks'),
    ("the backend is named for the variable", "                    variable,\n                    name,\n                    name,\n", "                    name,\n                    variable,\n                    name,\n"),
    ("the enum's name is given", "                    variable,\n                    name,\n                    name,\n", "                    variable,\n                    backend.name,\n                    backend.name,\n"),
    ("auto isn't among the choices", '            variable,\n            ", ".join(["auto", *available]),', '            variable,\n            ", ".join(available),'),
    ("the first backend is the replacement", "                    variable,\n                    name,\n                    name,\n", "                    variable,\n                    next(iter(available)),\n                    next(iter(available)),\n"),
    ("one that is ignored ends the search", '            ", ".join(["auto", *available]),\n        )\n    return None', '            ", ".join(["auto", *available]),\n        )\n        return None\n    return None'),
    ("one that selects is said to be ignored too", "                    name,\n                    name,\n                )\n                return name\n", "                    name,\n                    name,\n                )\n                break\n"),
    ("a variable that selects is only an information", '                logger.warning_once(\n                    "%s is deprecated, use', '                logger.info_once(\n                    "%s is deprecated, use'),
]  # fmt: skip

_SM12X = [
    ("SM121 isn't asked", "    if not current_platform.is_device_capability_family(120):\n        return False\n    if not has_flashinfer_cutlass", "    if not current_platform.is_device_capability(120):\n        return False\n    if not has_flashinfer_cutlass"),
    ("every GPU is asked", "    if not current_platform.is_device_capability_family(120):\n        return False\n    if not has_flashinfer_cutlass", "    if not has_flashinfer_cutlass"),
    ("FlashInfer needn't have the MoE", "    if not has_flashinfer_cutlass_fused_moe():\n        return False\n    mod = _get_submodule(\"flashinfer\")\n    if not all(\n        hasattr(mod, name) for name in (\"mxfp8", "    mod = _get_submodule(\"flashinfer\")\n    if not all(\n        hasattr(mod, name) for name in (\"mxfp8"),
    ("one of the functions is enough", "    if not all(\n        hasattr(mod, name) for name in (\"mxfp8", "    if not any(\n        hasattr(mod, name) for name in (\"mxfp8"),
    ("kernels and a compiler are both needed", "_has_compiled_sm12x_moe() or _has_nvcc_for_sm12x()", "_has_compiled_sm12x_moe() and _has_nvcc_for_sm12x()"),
    ("kernels or a compiler aren't needed", "    if not (_has_compiled_sm12x_moe() or _has_nvcc_for_sm12x()):\n", "    if False:\n"),
    ("CUDA 12.8 compiles for SM12x", 'is_cuda_version_at_least("12.9")', 'is_cuda_version_at_least("12.8")'),
    ("CUDA 13 is needed", 'is_cuda_version_at_least("12.9")', 'is_cuda_version_at_least("13.0")'),
    ("nvcc needn't be executable", "os.access(nvcc, os.X_OK) and", "os.path.exists(nvcc) and"),
    ("a switched off compiler counts", '    if os.environ.get("FLASHINFER_DISABLE_JIT"):\n        return False\n    from flashinfer.jit.cpp_ext', "    from flashinfer.jit.cpp_ext"),
    ("a missing toolkit counts", "    except RuntimeError:\n        return False\n    # Without nvcc", "    except RuntimeError:\n        return True\n    # Without nvcc"),
    ("a cache of CUDA 12.8 serves SM121", "int(cuda[1]) >= 129", "int(cuda[1]) >= 128"),
    ("a cache of CUDA 12.9 doesn't serve SM121", "int(cuda[1]) >= 129", "int(cuda[1]) > 129"),
    ("a cache of unknown CUDA serves", "return cuda is not None and int", "return cuda is None or int"),
    ("SM120 needs a cache of 12.9 too", "    if current_platform.is_device_capability(120):\n        return True\n    # A cache made", "    # A cache made"),
    ("any cache serves SM12x", "    if current_platform.is_device_capability(120):\n        return True\n    # A cache made", "    if current_platform.is_device_capability_family(120):\n        return True\n    # A cache made"),
    ("SM100's module is looked for", 'name = "fused_moe_120"', 'name = "fused_moe_100"'),
    ("Marlin without a word", '        logger.warning_once(\n            "FlashInfer\'s CUTLASS MoE needs nvcc', '        logger.debug_once(\n            "FlashInfer\'s CUTLASS MoE needs nvcc'),
]  # fmt: skip
_SM12X_METHOD = [
    ("SM12x is offered nothing", '    elif has_flashinfer_sm12x_cutlass_moe():\n        available["cutlass"] = Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8\n', ""),
    ("SM12x is offered Hopper's", "        available[\"cutlass\"] = Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8\n    return available", "        available[\"cutlass\"] = Mxfp4Backend.CUTLASS_SM90_MXFP4_BF16\n    return available"),
    ("Hopper's CUTLASS is its default", '        "cutlass" in available\n        and available["cutlass"] == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8\n', '        "cutlass" in available\n'),
    ("SM12x's default stays Marlin", '        "cutlass" in available\n        and available["cutlass"] == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8\n', '        "cutlass" in available\n        and available["cutlass"] == Mxfp4Backend.CUTLASS_SM90_MXFP4_BF16\n'),
    ("an older name is another backend", "    SM100_FI_MXFP4_MXFP8_TRTLLM = 1\n    SM100_FI_MXFP4_MXFP8_CUTLASS = 2\n", "    SM100_FI_MXFP4_MXFP8_TRTLLM = 2\n    SM100_FI_MXFP4_MXFP8_CUTLASS = 1\n"),
]  # fmt: skip

_TUNE = [
    ("graphs alone are tuned for", "            self.max_capture_size or 0,\n            vllm_config.scheduler_config.max_num_batched_tokens,\n            1,\n", "            self.max_capture_size or 0,\n            1,\n"),
    ("graphs aren't tuned for", "            self.max_capture_size or 0,\n            vllm_config.scheduler_config", "            vllm_config.scheduler_config"),
    ("without graphs there is nothing to tune for", "            self.max_capture_size or 0,\n            vllm_config", "            self.max_capture_size,\n            vllm_config"),
    ("zero tokens are tuned for", "            vllm_config.scheduler_config.max_num_batched_tokens,\n            1,\n", "            vllm_config.scheduler_config.max_num_batched_tokens,\n            0,\n"),
    ("ranks of TP are counted", "self.tune_max_num_tokens = moe.dp_size * max(", "self.tune_max_num_tokens = moe.tp_size * max("),
    ("the smaller is tuned for", "self.tune_max_num_tokens = moe.dp_size * max(", "self.tune_max_num_tokens = moe.dp_size * min("),
    ("ranks are added", "self.tune_max_num_tokens = moe.dp_size * max(", "self.tune_max_num_tokens = moe.dp_size + max("),
    ("CUTLASS tunes for graphs", "                tune_max_num_tokens=self.tune_max_num_tokens,\n                **extra_kwargs", "                tune_max_num_tokens=max(self.max_capture_size or 0, 1),\n                **extra_kwargs"),
    ("TRT-LLM tunes for graphs", "                tune_max_num_tokens=self.tune_max_num_tokens,\n            )[0]", "                tune_max_num_tokens=max(self.max_capture_size or 0, 1),\n            )[0]"),
    ("CUTLASS tunes for each batch", "                tune_max_num_tokens=self.tune_max_num_tokens,\n                **extra_kwargs", "                tune_max_num_tokens=x.shape[0],\n                **extra_kwargs"),
    ("TRT-LLM tunes for each batch", "                tune_max_num_tokens=self.tune_max_num_tokens,\n            )[0]", "                tune_max_num_tokens=x.shape[0],\n            )[0]"),
]  # fmt: skip

_QUANTIZE = [
    ("vectors of weights are taken", "if x.dim() != 2 or x.shape[1] % 32 != 0:", "if x.shape[-1] % 32 != 0:"),
    ("half a block is taken", "if x.dim() != 2 or x.shape[1] % 32 != 0:", "if x.dim() != 2 or x.shape[1] % 16 != 0:"),
    ("rows must be blocks too", "if x.dim() != 2 or x.shape[1] % 32 != 0:", "if x.dim() != 2 or x.shape[1] % 64 != 0:"),
    ("rows' count must be a multiple", "if x.dim() != 2 or x.shape[1] % 32 != 0:", "if x.dim() != 2 or x.shape[0] % 32 != 0:"),
    ("the scale is rounded down", "torch.where(mantissa == 0.5, exponent - 1, exponent)", "exponent - 1"),
    ("the scale is a power too large at an edge", "    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)\n", ""),
    ("the largest value is 4", "amax(dim=-1) / 6)", "amax(dim=-1) / 4)"),
    ("the largest value is signed", "blocks.abs().amax(dim=-1) / 6", "blocks.amax(dim=-1) / 6"),
    ("a block of zeros has a scale of 1", "torch.where(mantissa == 0, -127, exponent)", "torch.where(mantissa == 0, 0, exponent)"),
    ("small scales wrap", ".clamp(-127, 127)", ".clamp(-128, 127)"),
    ("small scales are those of normal numbers", ".clamp(-127, 127)", ".clamp(-126, 127)"),
    ("large scales are cut", ".clamp(-127, 127)", ".clamp(-127, 15)"),
    ("values are multiplied by the scale", "torch.ldexp(blocks.abs(), -exponent.unsqueeze(-1))", "torch.ldexp(blocks.abs(), exponent.unsqueeze(-1))"),
    ("ties go away from zero", "(magnitude >= midpoint) if i % 2 else (magnitude > midpoint)", "magnitude >= midpoint"),
    ("ties go to zero", "(magnitude >= midpoint) if i % 2 else (magnitude > midpoint)", "magnitude > midpoint"),
    ("ties go to the odd neighbour", "if i % 2 else (magnitude > midpoint)", "if not i % 2 else (magnitude > midpoint)"),
    ("a midpoint is another", "(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)", "(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 4.5)"),
    ("the sign is lost", "    code |= torch.signbit(blocks).to(torch.uint8) << 3\n", ""),
    ("minus zero is plus zero", "torch.signbit(blocks)", "(blocks < 0)"),
    ("nibbles are swapped", "code[:, ::2] | (code[:, 1::2] << 4)", "code[:, 1::2] | (code[:, ::2] << 4)"),
    ("halves are packed", "code[:, ::2] | (code[:, 1::2] << 4)", "code[:, : code.shape[1] // 2] | (code[:, code.shape[1] // 2 :] << 4)"),
    ("the bias is 126", "(exponent + 127).to(torch.uint8)", "(exponent + 126).to(torch.uint8)"),
    ("blocks are of 16", "unflatten(1, (-1, 32))", "unflatten(1, (-1, 16))"),
    ("only the first rows are quantized", "for i in range(0, n, rows):", "for i in range(0, n - rows + 1, rows):"),
    ("rows of a chunk are counted without columns", "rows = max(_MXFP4_QUANT_CHUNK // k, 1)", "rows = max(_MXFP4_QUANT_CHUNK // k, 0)"),
    ("the result is on the host", "(n, k // 2), dtype=torch.uint8, device=x.device)", "(n, k // 2), dtype=torch.uint8)"),
]  # fmt: skip

_QKV_O = [
    ("o is qkv", '{"qkv_proj": "qkv", "o_proj": "o"}', '{"qkv_proj": "qkv", "o_proj": "qkv"}'),
    ("o_proj isn't known", '{"qkv_proj": "qkv", "o_proj": "o"}', '{"qkv_proj": "qkv"}'),
    ("the router is quantized", '{"qkv_proj": "qkv", "o_proj": "o"}', '{"qkv_proj": "qkv", "o_proj": "o", "router": "qkv"}'),
    ("a bias that isn't added is packed", "if kind is not None and not layer.skip_bias_add and _runs_in_mxfp4(kind):", "if kind is not None and _runs_in_mxfp4(kind):"),
    ("a layer's name may be anywhere", "_LINEAR_LAYERS.get(prefix.rsplit(\".\", 1)[-1])", "next((v for k, v in _LINEAR_LAYERS.items() if k in prefix), None)"),
    ("part of a name is enough", 'kind not in model_config.mxfp4_layers.split(",")', "kind not in model_config.mxfp4_layers"),
    ("a model without a configuration is asked", "if model_config is None or kind not in", "if kind not in"),
    ("a GPU without Marlin is ignored", "        raise ValueError(\n            f\"--mxfp4-layers={model_config.mxfp4_layers} needs Marlin", "        return False\n        raise ValueError(\n            f\"--mxfp4-layers={model_config.mxfp4_layers} needs Marlin"),
    ("Marlin may be on any platform", "if not (current_platform.is_cuda() and is_fp4_marlin_supported()):", "if not is_fp4_marlin_supported():"),
    ("Marlin may be on any CUDA", "if not (current_platform.is_cuda() and is_fp4_marlin_supported()):", "if not current_platform.is_cuda():"),
    ("LoRA is quantized", "    if vllm_config.lora_config is not None:\n        logger.warning_once(\n            \"LoRA", "    if False:\n        logger.warning_once(\n            \"LoRA"),
    ("LoRA is ignored without a word", "        logger.warning_once(\n            \"LoRA adapters", "        logger.debug_once(\n            \"LoRA adapters"),
    ("all is padded to 64", "return n if k % 128 == 0 and n % 64 == 0 else round_up(n, 128)", "return round_up(n, 64)"),
    ("all is padded to 128", "return n if k % 128 == 0 and n % 64 == 0 else round_up(n, 128)", "return round_up(n, 128)"),
    ("nothing is padded", "return n if k % 128 == 0 and n % 64 == 0 else round_up(n, 128)", "return n"),
    ("rows that fit are padded for their columns", "return n if k % 128 == 0 and n % 64 == 0 else", "return n if k % 64 == 0 and n % 64 == 0 else"),
    ("the input size is checked for 128", "    if k % 64 != 0:\n", "    if k % 128 != 0:\n"),
    ("the input size is checked for 32", "    if k % 64 != 0:\n", "    if k % 32 != 0:\n"),
    ("padding comes first", "pad(weight, (0, 0, 0, pad))", "pad(weight, (0, 0, pad, 0))"),
    ("the bias isn't padded", "        if bias is not None:\n            bias = torch.nn.functional.pad(bias, (0, pad))\n", ""),
    ("the bias's padding comes first", "pad(bias, (0, pad))", "pad(bias, (pad, 0))"),
    ("the bias isn't packed", "    if bias is not None:\n        packed.bias = Parameter(bias, requires_grad=False)\n", ""),
    ("padding is part of the output", "    return output if padded == n else output[..., :n]", "    return output"),
    ("the first padded columns are cut off", "output[..., :n]", "output[..., padded - n :]"),
    ("the padded shape is kept", "    layer.mxfp4_shape = (n, k)\n", "    layer.mxfp4_shape = tuple(weight.shape)\n"),
    ("Marlin's workspace isn't kept", "    layer.workspace = packed.workspace\n", "    layer.workspace = None\n"),
]  # fmt: skip
_QKV_O_CONFIG = [
    ("qkv is the default", '    mxfp4_layers: str = "moe"\n', '    mxfp4_layers: str = "moe,qkv"\n'),
    ("unknown names are taken", "        if unknown:\n            raise ValueError(\n                f\"--mxfp4-layers", "        if False:\n            raise ValueError(\n                f\"--mxfp4-layers"),
    ("spaces are part of a name", "{layer.strip() for layer in value.split(\",\")}", "{layer for layer in value.split(\",\")}"),
    ("all is nothing", "            layers.update(MXFP4_LAYERS)\n", "            layers.discard(\"all\")\n"),
    ("experts may be left out", "        layers.add(\"moe\")\n", ""),
    ("the order is the user's", 'return ",".join(layer for layer in MXFP4_LAYERS if layer in layers)', 'return value.replace("all", ",".join(MXFP4_LAYERS))'),
]  # fmt: skip

_LM_HEAD = [
    ("any embedding is a head", "            isinstance(layer, ParallelLMHead)\n            and prefix", "            prefix"),
    ("a head has any name", '            and prefix.rsplit(".", 1)[-1] == "lm_head"\n', ""),
    ("a head of a larger model isn't found", 'prefix.rsplit(".", 1)[-1] == "lm_head"', 'prefix == "lm_head"'),
    ("a name that ends like it is one", 'prefix.rsplit(".", 1)[-1] == "lm_head"', 'prefix.endswith("lm_head")'),
    ("qkv quantizes the head", '            and _runs_in_mxfp4("lm_head")\n', '            and _runs_in_mxfp4("qkv")\n'),
    ("the head is always quantized", '            and _runs_in_mxfp4("lm_head")\n', ""),
    ("a tied embedding is quantized", 'if getattr(hf_config, "tie_word_embeddings", False):', "if False:"),
    ("each head is tied", 'getattr(hf_config, "tie_word_embeddings", False)', 'getattr(hf_config, "tie_word_embedding", True)'),
    ("a tied embedding stays without a word", '                logger.warning_once(\n                    "The embedding is tied', '                logger.debug_once(\n                    "The embedding is tied'),
    ("another's weight is packed", "        if layer.weight is not self._created():", "        if layer.weight is None:"),
    ("its own weight is taken for another's", "        if layer.weight is not self._created():", "        if layer.weight is self._created():"),
    ("a head that stays keeps the method", "            layer.quant_method = UnquantizedEmbeddingMethod()\n            return\n", "            return\n"),
    ("another's weight stays without a word", '            logger.warning_once(\n                "lm_head got', '            logger.debug_once(\n                "lm_head got'),
    ("another's weight is unequal, not another", "        if layer.weight is not self._created():", "        if self._created() is None or not torch.equal(layer.weight, self._created()):"),
    ("the bias is dropped", "        return logits if bias is None else logits + bias\n", "        return logits\n"),
    ("the bias is added twice", "        logits = _apply_marlin(layer, x, bias=None)\n", "        logits = _apply_marlin(layer, x, bias=bias)\n"),
    ("the bias is Marlin's", "        logits = _apply_marlin(layer, x, bias=None)\n        return logits if bias is None else logits + bias\n", "        return _apply_marlin(layer, x, bias)\n"),
]  # fmt: skip

_TAGS = [
    ("a context is a dummy's by default", "    is_dummy_run: bool = False\n    # The dummy run", "    is_dummy_run: bool = True\n    # The dummy run"),
    ("a context that is made is a dummy's by default", "    ubatch_slices: UBatchSlices | None = None,\n    is_dummy_run: bool = False,\n    is_profile_run: bool = False,\n):\n    return ForwardContext(", "    ubatch_slices: UBatchSlices | None = None,\n    is_dummy_run: bool = True,\n    is_profile_run: bool = False,\n):\n    return ForwardContext("),
    ("a context that is set is a dummy's by default", "    is_dummy_run: bool = False,\n    is_profile_run: bool = False,\n):\n    \"\"\"", "    is_dummy_run: bool = True,\n    is_profile_run: bool = False,\n):\n    \"\"\""),
    ("the tags are swapped", "        is_dummy_run=is_dummy_run,\n        is_profile_run=is_profile_run,\n", "        is_dummy_run=is_profile_run,\n        is_profile_run=is_dummy_run,\n"),
    ("set tags are swapped", "        ubatch_slices,\n        is_dummy_run,\n        is_profile_run,\n", "        ubatch_slices,\n        is_profile_run,\n        is_dummy_run,\n"),
    ("set tags are lost", "        ubatch_slices,\n        is_dummy_run,\n        is_profile_run,\n", "        ubatch_slices,\n"),
    ("a profile run is no dummy", "        is_dummy_run=is_dummy_run,\n        is_profile_run=is_profile_run,\n", "        is_dummy_run=is_dummy_run and not is_profile_run,\n        is_profile_run=is_profile_run,\n"),
]  # fmt: skip
_TAGS_SITES = [
    ("Eagle's dummy run is real", "vllm/v1/spec_decode/eagle.py", "                is_dummy_run=True,\n", ""),
    ("Eagle's dummy run is a profile", "vllm/v1/spec_decode/eagle.py", "                is_dummy_run=True,\n", "                is_dummy_run=True,\n                is_profile_run=True,\n"),
    ("the second runner's dummy run is real", "vllm/v1/worker/gpu/model_runner.py", "                is_dummy_run=True,\n                is_profile_run=is_profile,\n", "                is_profile_run=is_profile,\n"),
    ("the second runner's profile isn't tagged", "vllm/v1/worker/gpu/model_runner.py", "            skip_attn=True,\n            is_profile=True,\n", "            skip_attn=True,\n"),
    ("the second runner's dummies all profile", "vllm/v1/worker/gpu/model_runner.py", "        is_profile: bool = False,\n", "        is_profile: bool = True,\n"),
    ("the second runner's steps are dummies", "vllm/v1/worker/gpu/model_runner.py", "                is_dummy_run=dummy_run,\n", "                is_dummy_run=True,\n"),
    ("the second runner's steps are turned round", "vllm/v1/worker/gpu/model_runner.py", "                is_dummy_run=dummy_run,\n", "                is_dummy_run=not dummy_run,\n"),
    ("the first runner's dummy run is real", "vllm/v1/worker/gpu_model_runner.py", "                    is_dummy_run=True,\n", ""),
    ("the first runner's dummies all profile", "vllm/v1/worker/gpu_model_runner.py", "                    is_profile_run=is_profile,\n", "                    is_profile_run=True,\n"),
    ("the first runner's profile is no dummy", "vllm/v1/worker/gpu_model_runner.py", "                    is_dummy_run=True,\n", "                    is_dummy_run=not is_profile,\n"),
    ("micro-batches are real", "vllm/v1/worker/gpu_ubatch_wrapper.py", "                    is_dummy_run=outer.is_dummy_run,\n", ""),
    ("micro-batches don't profile", "vllm/v1/worker/gpu_ubatch_wrapper.py", "                    is_profile_run=outer.is_profile_run,\n", ""),
    ("micro-batches' tags are swapped", "vllm/v1/worker/gpu_ubatch_wrapper.py", "                    is_dummy_run=outer.is_dummy_run,\n                    is_profile_run=outer.is_profile_run,\n", "                    is_dummy_run=outer.is_profile_run,\n                    is_profile_run=outer.is_dummy_run,\n"),
    ("micro-batches are all dummies", "vllm/v1/worker/gpu_ubatch_wrapper.py", "is_dummy_run=outer.is_dummy_run", "is_dummy_run=True"),
]  # fmt: skip

_DISPATCH = [
    ("each call has its line", '        logger.info_once(\n            "MXFP4 experts run by', '        logger.info(\n            "MXFP4 experts run by'),
    ("weights' shapes are swapped", "            str(tuple(layer.w13_weight.shape)),\n", "            str(tuple(layer.w2_weight.shape)),\n"),
    ("activations' shape is their dtype", "            str(activation.dtype),\n            str(layer.w13", "            str(activation.shape),\n            str(layer.w13"),
    ("the backend isn't named", "            function,\n            self.mxfp4_backend.name,\n", "            function,\n            function,\n"),
    ("other GPUs are warned of", "        if not (\n            current_platform.is_cuda()\n            and current_platform.is_device_capability_family(120)\n        ):\n            return\n        if self.mxfp4", "        if self.mxfp4"),
    ("SM121 isn't warned of", "            and current_platform.is_device_capability_family(120)\n        ):\n            return\n        if self", "            and current_platform.is_device_capability(120)\n        ):\n            return\n        if self"),
    ("SM100 is warned of", "            and current_platform.is_device_capability_family(120)\n        ):\n            return\n        if self", "            and current_platform.has_device_capability(100)\n        ):\n            return\n        if self"),
    ("ROCm's numbers are CUDA's", "            current_platform.is_cuda()\n            and current_platform.is_device_capability_family(120)\n        ):\n            return", "            current_platform.is_device_capability_family(120)\n        ):\n            return"),
    ("Marlin alone is warned of", "        if self.mxfp4_backend != Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8:\n            logger", "        if self.mxfp4_backend == Mxfp4Backend.MARLIN:\n            logger"),
    ("the native backend is warned of", "        if self.mxfp4_backend != Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8:\n            logger", "        if self.mxfp4_backend == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8:\n            logger"),
    ("MXFP8 activations are warned of", "        elif activation.dtype != torch.float8_e4m3fn:", "        elif activation.dtype == torch.float8_e4m3fn:"),
    ("BF16 activations alone are warned of", "        elif activation.dtype != torch.float8_e4m3fn:", "        elif activation.dtype == torch.bfloat16:"),
    ("Marlin has no line", '            self._log_dispatch(layer, "fused_marlin_moe", x)\n', ""),
    ("TRT-LLM has no line", '            self._log_dispatch(layer, "flashinfer.trtllm_fp4_block_scale_moe", x_quant)\n', ""),
    ("CUTLASS has no line", '            self._log_dispatch(layer, "flashinfer.cutlass_fused_moe", fi_input)\n', ""),
    ("Triton has no line", '            self._log_dispatch(layer, "triton_kernel_moe_forward", x)\n', ""),
    ("CUTLASS's activations are those before quantization", 'moe", fi_input)', 'moe", x)'),
    ("TRT-LLM's activations are those before quantization", 'block_scale_moe", x_quant)', 'block_scale_moe", x)'),
]  # fmt: skip
_DISPATCH_NVFP4 = [
    ("NVFP4's scales are warned of", "if self.w1_scale.shape[-1] * 16 <= w1.shape[-1]:", "if self.w1_scale.shape[-1] * 8 <= w1.shape[-1]:"),
    ("MXFP4's scales aren't warned of", "if self.w1_scale.shape[-1] * 16 <= w1.shape[-1]:", "if self.w1_scale.shape[-1] * 16 < w1.shape[-1]:"),
    ("the comparison is turned round", "if self.w1_scale.shape[-1] * 16 <= w1.shape[-1]:", "if self.w1_scale.shape[-1] * 16 >= w1.shape[-1]:"),
    ("bytes are taken for values", "if self.w1_scale.shape[-1] * 16 <= w1.shape[-1]:", "if self.w1_scale.shape[-1] * 32 <= w1.shape[-1]:"),
    ("rows are compared", "if self.w1_scale.shape[-1] * 16 <= w1.shape[-1]:", "if self.w1_scale.shape[-2] * 16 <= w1.shape[-2]:"),
]  # fmt: skip

DEBUG = "vllm/model_executor/layers/fused_moe/debug.py"
_DEBUG = [
    ("a log needs the even routing", "if not (envs.VLLM_MOE_ROUTING_LOG or envs.VLLM_MOE_WARMUP_FORCE_UNIFORM):", "if not (envs.VLLM_MOE_ROUTING_LOG and envs.VLLM_MOE_WARMUP_FORCE_UNIFORM):"),
    ("routing is looked into during capture", "    if _is_capturing():\n        return topk_weights, topk_ids\n", ""),
    ("real runs are spread", "if envs.VLLM_MOE_WARMUP_FORCE_UNIFORM and _is_dummy_run():", "if envs.VLLM_MOE_WARMUP_FORCE_UNIFORM:"),
    ("a log spreads dummy runs", "if envs.VLLM_MOE_WARMUP_FORCE_UNIFORM and _is_dummy_run():", "if _is_dummy_run():"),
    ("real runs alone are spread", "if envs.VLLM_MOE_WARMUP_FORCE_UNIFORM and _is_dummy_run():", "if envs.VLLM_MOE_WARMUP_FORCE_UNIFORM and not _is_dummy_run():"),
    ("no context is a dummy run's", "return is_forward_context_available() and get_forward_context().is_dummy_run", "return not is_forward_context_available() or get_forward_context().is_dummy_run"),
    ("a profile run alone is a dummy", "get_forward_context().is_dummy_run", "get_forward_context().is_profile_run"),
    ("experts beyond the last get tokens", "device=topk_ids.device) % num_experts", "device=topk_ids.device) % (num_experts + 1)"),
    ("the first experts get all tokens", "device=topk_ids.device) % num_experts", "device=topk_ids.device) % topk_ids.shape[-1]"),
    ("ids get another dtype", ".view_as(topk_ids).to(topk_ids.dtype)", ".view_as(topk_ids)"),
    ("each expert weighs one", "torch.full_like(topk_weights, 1 / topk_ids.shape[-1])", "torch.full_like(topk_weights, 1)"),
    ("weights stay", "        topk_weights = torch.full_like(topk_weights, 1 / topk_ids.shape[-1])\n", ""),
    ("experts without a token at the end aren't counted", "torch.bincount(topk_ids.flatten().long(), minlength=num_experts)", "torch.bincount(topk_ids.flatten().long())"),
    ("choices are counted for tokens", "            topk_ids.shape[0],\n            int((counts == 0)", "            topk_ids.numel(),\n            int((counts == 0)"),
    ("experts with a token are counted", "int((counts == 0).sum())", "int((counts != 0).sum())"),
    ("the fewest tokens are logged", "int(counts.max())", "int(counts.min())"),
    ("without a GPU it is always capturing", "torch.cuda.is_available() and torch", "not torch.cuda.is_available() or torch"),
    ("activations are logged during capture", "if not envs.VLLM_MXFP8_QUANT_LOG or _is_capturing():", "if not envs.VLLM_MXFP8_QUANT_LOG:"),
    ("activations are always logged", "if not envs.VLLM_MXFP8_QUANT_LOG or _is_capturing():", "if _is_capturing():"),
    ("what is finite is counted", "int((~torch.isfinite(x)).sum())", "int(torch.isfinite(x).sum())"),
    ("the largest value is signed", "float(x.abs().amax())", "float(x.amax())"),
    ("quantized values are those before", "float(values.abs().amax())", "float(x.abs().amax())"),
    ("the smallest scale is the largest", "int(x_scale.view(torch.uint8).min())", "int(x_scale.view(torch.uint8).max())"),
    ("alignment is turned round", "        x_quant.data_ptr() % 16 == 0,\n", "        x_quant.data_ptr() % 16 != 0,\n"),
    ("scales' alignment is the values'", "        x_scale.data_ptr() % 16 == 0,\n", "        x_quant.data_ptr() % 16 == 0,\n"),
]  # fmt: skip
_DEBUG_METHOD = [
    ("routing isn't looked into", "            topk_weights, topk_ids = debug_routing(\n                topk_weights, topk_ids, layer.global_num_experts\n            )\n", ""),
    ("a rank's experts are spread over", "topk_weights, topk_ids, layer.global_num_experts\n            )\n", "topk_weights, topk_ids, layer.local_num_experts\n            )\n"),
    ("activations aren't looked into", "                debug_quantized(x, x_quant, x_scale)\n", ""),
    ("values and scales are swapped for the log", "debug_quantized(x, x_quant, x_scale)", "debug_quantized(x, x_scale, x_quant)"),
    ("the even routing isn't used", "            topk_weights, topk_ids = debug_routing(\n", "            debug_routing(\n"),
]  # fmt: skip

_COUNTERS = [
    ("hits are misses", "        if cudagraph_size is not None:\n            self.num_hits", "        if cudagraph_size is None:\n            self.num_hits"),
    ("the last miss is the largest", "max(self.max_missed_reqs, num_reqs)", "num_reqs"),
    ("the smallest miss is logged", "max(self.max_missed_reqs, num_reqs)", "min(self.max_missed_reqs or num_reqs, num_reqs)"),
    ("hits are the largest too", "            self.num_misses += 1\n            self.max_missed_reqs = max(self.max_missed_reqs, num_reqs)\n", "            self.num_misses += 1\n        self.max_missed_reqs = max(self.max_missed_reqs, num_reqs)\n"),
    ("each draft logs", "        if now - self.last_log_time < self.log_interval:\n            return\n", ""),
    ("the interval has to be over", "now - self.last_log_time < self.log_interval", "now - self.last_log_time <= self.log_interval"),
    ("after the first interval each draft logs", "        self.last_log_time = now\n", ""),
    ("the first draft logs where the clock began long ago", "        self.last_log_time = time.monotonic()\n        self.num_hits", "        self.last_log_time = 0.0\n        self.num_hits"),
    ("the first draft logs", "        self.last_log_time = time.monotonic()\n        self.num_hits", "        self.last_log_time = float(\"-inf\")\n        self.num_hits"),
    ("hits alone are logged", "        if self.num_misses > 0:\n", "        if True:\n"),
    ("one miss isn't logged", "        if self.num_misses > 0:\n", "        if self.num_misses > 1:\n"),
    ("drafts are the hits", "                self.num_hits + self.num_misses,\n", "                self.num_hits,\n"),
    ("hits are logged as misses", "                self.num_misses,\n                self.num_hits + self", "                self.num_hits,\n                self.num_hits + self"),
    ("the interval is a second", "EagleCudaGraphStats(envs.VLLM_LOG_STATS_INTERVAL)", "EagleCudaGraphStats(1.0)"),
]  # fmt: skip
_COUNTERS_EAGLE = [
    ("drafts aren't counted", "        self.cudagraph_manager.stats.observe(num_reqs, cudagraph_size)\n", ""),
    ("only hits are counted", "        self.cudagraph_manager.stats.observe(num_reqs, cudagraph_size)\n        if cudagraph_size is not None:\n", "        if cudagraph_size is not None:\n            self.cudagraph_manager.stats.observe(num_reqs, cudagraph_size)\n"),
    ("requests and graphs are swapped", "stats.observe(num_reqs, cudagraph_size)", "stats.observe(cudagraph_size, num_reqs)"),
    ("tokens are counted", "stats.observe(num_reqs, cudagraph_size)", "stats.observe(num_tokens, cudagraph_size)"),
    ("the most requests are counted", "stats.observe(num_reqs, cudagraph_size)", "stats.observe(self.max_num_reqs, cudagraph_size)"),
]  # fmt: skip

_GREEDY = [
    ("greedy is the least likely", "return logits.argmax(dim=-1)", "return logits.argmin(dim=-1)"),
    ("greedy is over requests", "return logits.argmax(dim=-1)", "return logits.argmax(dim=0)"),
    ("greedy is turned round", "        if self.greedy_draft:\n", "        if not self.greedy_draft:\n"),
    ("greedy is for requests without a temperature", "        if self.greedy_draft:\n", "        if self.greedy_draft and not temperature.any():\n"),
    ("greedy is whenever no request has a temperature", "        if self.greedy_draft:\n", "        if self.greedy_draft or not temperature.any():\n"),
    ("gumbel ignores the temperature", "seeds, pos, apply_temperature=True)", "seeds, pos, apply_temperature=False)"),
    ("seeds and positions are swapped", "gumbel_sample(logits, temperature, seeds, pos,", "gumbel_sample(logits, temperature, pos, seeds,"),
    ("each step's noise is that of the token before", "logits, self.temperature[:num_reqs], self.seeds[:num_reqs], pos + 1\n", "logits, self.temperature[:num_reqs], self.seeds[:num_reqs], pos\n"),
    ("the first token's noise is that of the one before", "self.sample_draft(logits, temperature, seeds, pos + 1)", "self.sample_draft(logits, temperature, seeds, pos)"),
    ("steps have all requests' temperatures", "logits, self.temperature[:num_reqs], self.seeds[:num_reqs], pos + 1\n", "logits, self.temperature, self.seeds[:num_reqs], pos + 1\n"),
    ("the first token is always gumbel", "self.sample_draft(logits, temperature, seeds, pos + 1)", "gumbel_sample(\n            logits, temperature, seeds, pos + 1, apply_temperature=True\n        )"),
    ("all methods are greedy", 'draft_sample_method == "greedy"', 'draft_sample_method != "greedy"'),
]  # fmt: skip

_TREE = [
    ("a CPU's tensors are FlashInfer's", "        logits.is_cuda\n        and logits.shape", "        logits.shape"),
    ("short rows are FlashInfer's", "        and logits.shape[-1] >= _FLASHINFER_TOP_K_MIN_VOCAB\n", ""),
    ("rows of the length itself are torch's", "logits.shape[-1] >= _FLASHINFER_TOP_K_MIN_VOCAB", "logits.shape[-1] > _FLASHINFER_TOP_K_MIN_VOCAB"),
    ("the rows are counted", "logits.shape[-1] >= _FLASHINFER", "logits.shape[0] >= _FLASHINFER"),
    ("FlashInfer is taken to be there", "        and has_flashinfer_top_k()\n    ):", "    ):"),
    ("the length is another", "_FLASHINFER_TOP_K_MIN_VOCAB = 10000", "_FLASHINFER_TOP_K_MIN_VOCAB = 100000"),
    ("the order is any", "k, sorted=True)[1]", "k, sorted=False)[1]"),
    ("values are taken for ids", "k, sorted=True)[1]", "k, sorted=True)[0]"),
    ("rows may lie apart", "top_k(logits.contiguous(), k", "top_k(logits, k"),
    ("one more is chosen", "top_k(logits.contiguous(), k,", "top_k(logits.contiguous(), k + 1,"),
    ("the root asks torch", "            draft_token_ids = _top_k_ids(logits, num_children).view(batch_size, -1)\n        draft_token_ids_list", "            draft_token_ids = torch.topk(logits, num_children, dim=-1).indices.view(batch_size, -1)\n        draft_token_ids_list"),
    ("levels ask torch", "                draft_token_ids = _top_k_ids(logits, num_children).view(batch_size, -1)\n            draft_token_ids_list", "                draft_token_ids = torch.topk(logits, num_children, dim=-1).indices.view(batch_size, -1)\n            draft_token_ids_list"),
    ("torch chooses the least likely", "    return torch.topk(logits, k, dim=-1).indices\n", "    return torch.topk(logits, k, dim=-1, largest=False).indices\n"),
]  # fmt: skip
_TREE_UTILS = [
    ("any FlashInfer has it", 'return mod is not None and hasattr(mod, "top_k")', "return mod is not None"),
    ("another function is looked for", 'hasattr(mod, "top_k")', 'hasattr(mod, "topk")'),
    ("FlashInfer needn't be there", "    if not has_flashinfer():\n        return False\n    mod = _get_submodule(\"flashinfer\")\n    return mod is not None and hasattr(mod, \"top_k\")", "    mod = _get_submodule(\"flashinfer\")\n    return mod is not None and hasattr(mod, \"top_k\")"),
]  # fmt: skip

_MARLIN_FP8 = [
    ("SM121 is refused by Python", "current_platform.is_device_capability_family(120):", "current_platform.is_device_capability(120):"),
    ("SM120 is refused by Python", "current_platform.is_device_capability_family(120):", "current_platform.is_device_capability(121):"),
    ("SM100 is taken by Python", "current_platform.is_device_capability_family(120):", "current_platform.has_device_capability(100):"),
    ("Hopper is taken by Python", "current_platform.is_device_capability_family(120):", "current_platform.has_device_capability(90):"),
]  # fmt: skip
_MARLIN_CU = [
    ("majors from 12 on", "            major_capability == 12,", "            major_capability >= 12,"),
    ("SM12.0 alone", "            major_capability == 12,", "            major_capability * 10 + minor_capability == 120,"),
    ("SM12.1 alone", "            major_capability == 12,", "            major_capability * 10 + minor_capability == 121,"),
    ("SM10x too", "            major_capability == 12,", "            major_capability >= 10,"),
    ("minor 12", "            major_capability == 12,", "            minor_capability == 12,"),
]  # fmt: skip
_MARLIN_GENERATOR = [
    ("no kernels for 12.1", "if arch in [89, 120, 121]:", "if arch in [89, 120]:"),
    ("no kernels for 12.0", "if arch in [89, 120, 121]:", "if arch in [89, 121]:"),
    ("no kernels for 8.9", "if arch in [89, 120, 121]:", "if arch in [120, 121]:"),
    ("kernels for 9.0", "if arch in [89, 120, 121]:", "if arch in [89, 90, 120, 121]:"),
    ("kernels for all from 8.9 on", "if arch in [89, 120, 121]:", "if arch >= 89:"),
    ("kernels for 10.0", "if arch in [89, 120, 121]:", "if arch in [89, 100, 120, 121]:"),
]  # fmt: skip

UTILS_FLASHINFER = "vllm/utils/flashinfer.py"
MARLIN_UTILS = "vllm/model_executor/layers/quantization/utils/marlin_utils"
MXFP4_UTILS = "vllm/model_executor/layers/quantization/utils/mxfp4_utils.py"
EAGLE_V2 = "vllm/v1/worker/gpu/spec_decode/eagle"
_BACKENDS = "vllm/v1/attention/backends"
MUTANTS += [
    *of("vllm/decode-plan-o-data-type", FLASHINFER, _PLAN),
    *of("vllm/trtllm-moe-tile-tokens-dim", MXFP4, _TRTLLM_MOE),
    *of("vllm/marlin-fp4-warning", f"{MARLIN_UTILS}_fp4.py", _FP4_WARNING),
    *of("vllm/prefill-plan-keywords", FLASHINFER, _PREFILL),
    *of("vllm/blackwell-class", "vllm/platforms/interface.py", _CLASS),
    *of("vllm/blackwell-class", "vllm/attention/utils/fa_utils.py", _CLASS_FA),
    *of("vllm/blackwell-class", "vllm/platforms/cuda.py", _CLASS_CUDA),
    *of("vllm/trtllm-cubins", UTILS_FLASHINFER, _CUBINS),
    *of("vllm/attention-sinks-switch", SINK_UTILS, _SWITCH),
    *of("vllm/attention-sinks-switch", "vllm/envs.py", _SWITCH_ENVS),
    *of("vllm/attention-sinks-switch", ABSTRACT, [("a backend without sinks is rejected", "        has_sink = use_sinks(has_sink)\n", "")]),
    *of("vllm/attention-sinks-switch", LAYER, [
        ("the layer has its sinks", 'self.has_sink = use_sinks(extra_impl_args.get("sinks") is not None)', 'self.has_sink = extra_impl_args.get("sinks") is not None'),
        ("a backend without sinks is given None", '            extra_impl_args.pop("sinks", None)\n', '            extra_impl_args["sinks"] = None\n'),
        ("a backend without sinks is given them", "        if not self.has_sink:\n            # Not as None", "        if self.has_sink:\n            # Not as None"),
    ]),
    *of("vllm/attention-sinks-switch", f"{_BACKENDS}/utils.py", [
        ("a builder's parameters have sinks", 'has_sinks = use_sinks(getattr(impl, "sinks", None) is not None)', 'has_sinks = getattr(impl, "sinks", None) is not None'),
        ("a builder's parameters never have sinks", 'has_sinks = use_sinks(getattr(impl, "sinks", None) is not None)', 'has_sinks = use_sinks(getattr(impl, "sinks", None) is None)'),
    ]),
    *(ByHand(f"{name} keeps its sinks", "vllm/attention-sinks-switch", f"{_BACKENDS}/{name}.py",
             "        self.sinks = sinks if use_sinks(sinks is not None) else None\n", "        self.sinks = sinks\n")
      for name in ("cpu_attn", "flash_attn", "triton_attn")),
    *(ByHand(f"{name} drops its sinks", "vllm/attention-sinks-switch", f"{_BACKENDS}/{name}.py",
             "        self.sinks = sinks if use_sinks(sinks is not None) else None\n", "        self.sinks = None\n")
      for name in ("flash_attn", "rocm_attn")),
    *of("vllm/attention-sinks-switch", FLASHINFER, [("FlashInfer keeps its sinks", "if sinks is not None and use_sinks(True):", "if sinks is not None:")]),
    *of(GROUPS, FLASHINFER, _GROUPS_BUILDER),
    *of(GROUPS, GROUP_UTILS, _GROUPS_UTILS),
    *of(GROUPS, "vllm/compilation/backends.py", _GROUPS_TAGS),
    *of("vllm/flashinfer-fa2-sinks", UTILS_FLASHINFER, _FA2_UTILS),
    *of("vllm/flashinfer-fa2-sinks", FLASHINFER, _FA2),
    *of("vllm/inductor-config-probe", "vllm/compilation/decorators.py", _PROBE),
    *of("vllm/mxfp4-backend-option", MXFP4, _BACKEND),
    *of("vllm/mxfp4-backend-option", "vllm/envs.py", _BACKEND_ENVS),
    *of("vllm/mxfp4-backend-option", "vllm/config/model.py", [
        ("the command line doesn't know Triton", '"auto", "marlin", "triton", "cutlass", "trtllm", "trtllm_mxfp8"\n]', '"auto", "marlin", "cutlass", "trtllm", "trtllm_mxfp8"\n]'),
        ("the command line's default is auto", "    mxfp4_backend: Mxfp4BackendOption | None = None\n", '    mxfp4_backend: Mxfp4BackendOption | None = "auto"\n'),
    ]),
    *of("vllm/mxfp4-backend-option", "vllm/engine/arg_utils.py", [
        ("the option doesn't reach the model", "            mxfp4_backend=self.mxfp4_backend,\n", ""),
    ]),
    *of("vllm/mxfp4-legacy-variables", MXFP4, _LEGACY),
    *of("vllm/mxfp4-sm12x-cutlass", UTILS_FLASHINFER, _SM12X),
    *of("vllm/mxfp4-sm12x-cutlass", MXFP4, _SM12X_METHOD),
    *of("vllm/mxfp4-tune-bucket", MXFP4, _TUNE),
    *of("vllm/mxfp4-quantize-linear-scales", MXFP4_UTILS, _QUANTIZE),
    *of("vllm/mxfp4-qkv-o", MXFP4, _QKV_O),
    *of("vllm/mxfp4-qkv-o", "vllm/config/model.py", _QKV_O_CONFIG),
    *of("vllm/mxfp4-qkv-o", "vllm/engine/arg_utils.py", [("the option doesn't reach the model's layers", "            mxfp4_layers=self.mxfp4_layers,\n", "")]),
    *of("vllm/mxfp4-lm-head", MXFP4, _LM_HEAD),
    *of("vllm/mxfp4-lm-head", "vllm/config/model.py", [("all has no lm_head", 'MXFP4_LAYERS = ("moe", "qkv", "o", "lm_head")', 'MXFP4_LAYERS = ("moe", "qkv", "o")')]),
    *of("vllm/mxfp4-lm-head", "vllm/model_executor/models/gpt_oss.py", [("gpt-oss's head has no configuration", "            quant_config=vllm_config.quant_config,\n            prefix=maybe_prefix(prefix, \"lm_head\"),", "            prefix=maybe_prefix(prefix, \"lm_head\"),")]),
    *of("vllm/forward-context-run-tags", "vllm/forward_context.py", _TAGS),
    *(ByHand(name, "vllm/forward-context-run-tags", path, old, new) for name, path, old, new in _TAGS_SITES),
    *of("vllm/mxfp4-dispatch-line", MXFP4, _DISPATCH),
    *of("vllm/mxfp4-dispatch-line", "vllm/model_executor/layers/fused_moe/flashinfer_cutlass_moe.py", _DISPATCH_NVFP4),
    *of("vllm/moe-debug-switches", DEBUG, _DEBUG),
    *of("vllm/moe-debug-switches", MXFP4, _DEBUG_METHOD),
    *of("vllm/moe-debug-switches", "vllm/envs.py", [
        (f"{name} is on by default", f'os.getenv("{name}", "0")', f'os.getenv("{name}", "1")')
        for name in ("VLLM_MOE_ROUTING_LOG", "VLLM_MOE_WARMUP_FORCE_UNIFORM", "VLLM_MXFP8_QUANT_LOG")
    ]),
    *of("vllm/eagle-cudagraph-counters", f"{EAGLE_V2}_cudagraph.py", _COUNTERS),
    *of("vllm/eagle-cudagraph-counters", f"{EAGLE_V2}.py", _COUNTERS_EAGLE),
    *of("vllm/eagle-greedy-drafts", f"{EAGLE_V2}.py", _GREEDY),
    *of("vllm/eagle-greedy-drafts", "vllm/config/speculative.py", [("greedy is the default", '"greedy"] = "gumbel"', '"greedy"] = "greedy"')]),
    *of("vllm/eagle-tree-top-k", "vllm/v1/spec_decode/eagle.py", _TREE),
    *of("vllm/eagle-tree-top-k", UTILS_FLASHINFER, _TREE_UTILS),
    *of("vllm/marlin-fp8-input-sm12x", f"{MARLIN_UTILS}.py", _MARLIN_FP8),
    *(mutant for kernel, path in (("dense", "csrc/quantization/gptq_marlin"), ("moe", "csrc/moe/marlin_moe_wna16"))
      for mutant in (
          *of("vllm/marlin-fp8-input-sm12x", f"{path}/{'gptq_marlin' if kernel == 'dense' else 'ops'}.cu", [(f"{kernel}: {n}", o, w) for n, o, w in _MARLIN_CU]),
          *of("vllm/marlin-fp8-input-sm12x", f"{path}/generate_kernels.py", [(f"{kernel}: {n}", o, w) for n, o, w in _MARLIN_GENERATOR]),
      )),
]  # fmt: skip
