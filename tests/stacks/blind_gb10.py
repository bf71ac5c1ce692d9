"""Ways in which a careless edit could break the patches of the set gb10, written without its proofs.

Whoever wrote this list read the patches alone: neither the proofs nor the lists of by_hand_*.py. It is meant to
be run once, as a test of the proofs. Each entry is one edit of lines that a patch has, as in by_hand_vllm.py.
"""

from __future__ import annotations

from by_hand_vllm import ByHand, of

ATTENTION_BACKENDS = "vllm/v1/attention/backends"
FLASHINFER_BACKEND = f"{ATTENTION_BACKENDS}/flashinfer.py"
BACKEND_UTILS = f"{ATTENTION_BACKENDS}/utils.py"
VLLM_FLASHINFER = "vllm/utils/flashinfer.py"
QUANTIZATION = "vllm/model_executor/layers/quantization"
MXFP4 = f"{QUANTIZATION}/mxfp4.py"
FUSED_MOE = "vllm/model_executor/layers/fused_moe"
ENVS = "vllm/envs.py"

MUTANTS: list[ByHand] = []

MUTANTS += of(
    "vllm/decode-plan-o-data-type",
    FLASHINFER_BACKEND,
    [
        (
            "a FlashInfer before 0.6.0 is handed an output dtype, too",
            '    return "o_data_type" in inspect.signature(plan).parameters\n',
            '    return "data_type" in inspect.signature(plan).parameters\n',
        ),
        (
            "decode plans queries with the dtype of the KV cache",
            "            q_data_type=q_data_type,\n            kv_data_type=kv_data_type,\n            data_type=data_type,\n",
            "            q_data_type=kv_data_type,\n            kv_data_type=kv_data_type,\n            data_type=data_type,\n",
        ),
        (
            "decode is planned without the softmax scale of the model",
            "            data_type=data_type,\n            sm_scale=sm_scale,\n",
            "            data_type=data_type,\n",
        ),
        (
            "a batch-invariant decode is planned with a split size that FlashInfer chooses",
            """\
            non_blocking=non_blocking,
            fixed_split_size=fixed_split_size,
""",
            """\
            non_blocking=non_blocking,
""",
        ),
        (
            "decode of a layer with a sliding window is planned without it",
            """\
            pos_encoding_mode=pos_encoding_mode,
            window_left=window_left,
""",
            """\
            pos_encoding_mode=pos_encoding_mode,
""",
        ),
        (
            "decode is planned with as many KV heads as query heads",
            """\
            num_qo_heads=num_qo_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            page_size=page_size,
            pos_encoding_mode=pos_encoding_mode,
""",
            """\
            num_qo_heads=num_qo_heads,
            num_kv_heads=num_qo_heads,
            head_dim=head_dim,
            page_size=page_size,
            pos_encoding_mode=pos_encoding_mode,
""",
        ),
        (
            "decode takes the page offsets for the lengths of the last pages",
            "            last_page_len=last_page_len_cpu,\n            num_qo_heads=num_qo_heads,\n",
            "            last_page_len=indptr_cpu,\n            num_qo_heads=num_qo_heads,\n",
        ),
    ],
)

MUTANTS += of(
    "vllm/trtllm-moe-tile-tokens-dim",
    MXFP4,
    [
        (
            "the MXFP4 call has one None too many again, and shifts what follows",
            "                None,  # routed_scaling_factor\n",
            "                None,\n                None,  # routed_scaling_factor\n",
        ),
        (
            "the MXFP4 call has no scaling factor, so the routing method is taken for it",
            "                None,  # routed_scaling_factor\n",
            "",
        ),
        (
            "scaling factor and routing method change places in the MXFP4 call",
            """\
                None,  # routed_scaling_factor
                1 if layer.renormalize else 0,  # routing_method_type, renormalize
""",
            """\
                1 if layer.renormalize else 0,  # routing_method_type, renormalize
                None,  # routed_scaling_factor
""",
        ),
        (
            "the MXFP4 call renormalizes where the model doesn't, and doesn't where it does",
            """\
                None,  # routed_scaling_factor
                1 if layer.renormalize else 0,  # routing_method_type, renormalize
""",
            """\
                None,  # routed_scaling_factor
                0 if layer.renormalize else 1,  # routing_method_type, renormalize
""",
        ),
        (
            "the MXFP4 call returns the rows of the experts before they are added up",
            """\
                None,  # routed_scaling_factor
                1 if layer.renormalize else 0,  # routing_method_type, renormalize
                True,  # do finalize
""",
            """\
                None,  # routed_scaling_factor
                1 if layer.renormalize else 0,  # routing_method_type, renormalize
                False,  # do finalize
""",
        ),
        (
            "the MXFP4 call passes tile_tokens_dim by keyword, which FlashInfer refuses",
            """\
                None,  # routed_scaling_factor
                1 if layer.renormalize else 0,  # routing_method_type, renormalize
                True,  # do finalize
                tune_max_num_tokens=self.tune_max_num_tokens,
""",
            """\
                None,  # routed_scaling_factor
                1 if layer.renormalize else 0,  # routing_method_type, renormalize
                True,  # do finalize
                tile_tokens_dim=None,
                tune_max_num_tokens=self.tune_max_num_tokens,
""",
        ),
    ],
)

FP4_WARNING_CHECK = """\
    if current_platform.has_device_capability(100):
        return
"""
MUTANTS += of(
    "vllm/marlin-fp4-warning",
    f"{QUANTIZATION}/utils/marlin_utils_fp4.py",
    [
        (
            "a GB10 is still said to have no FP4 support, as only the family of SM100 is let off",
            FP4_WARNING_CHECK,
            FP4_WARNING_CHECK.replace("has_device_capability", "is_device_capability_family"),
        ),
        (
            "Hopper gets no warning that it has no FP4 support",
            FP4_WARNING_CHECK,
            FP4_WARNING_CHECK.replace("100", "90"),
        ),
        (
            "SM100 is still said to have no FP4 support",
            FP4_WARNING_CHECK,
            FP4_WARNING_CHECK.replace("100", "120"),
        ),
        (
            "the warning comes where it is false and doesn't where it is true",
            FP4_WARNING_CHECK,
            FP4_WARNING_CHECK.replace("if current", "if not current"),
        ),
        (
            "linear layers on older GPUs get no warning",
            '    _warn_if_no_native_fp4()\n\n    is_nvfp4 = hasattr(layer, "weight_scale_2")\n',
            '    is_nvfp4 = hasattr(layer, "weight_scale_2")\n',
        ),
        (
            "experts on older GPUs get no warning",
            '    _warn_if_no_native_fp4()\n\n    is_nvfp4 = hasattr(layer, "w13_weight_scale_2")\n',
            '    is_nvfp4 = hasattr(layer, "w13_weight_scale_2")\n',
        ),
    ],
)

MUTANTS += of(
    "vllm/prefill-plan-keywords",
    FLASHINFER_BACKEND,
    [
        (
            "DCP's context is planned for the query heads of one rank",
            "            num_qo_heads=num_qo_heads * dcp_world_size,\n",
            "            num_qo_heads=num_qo_heads,\n",
        ),
        (
            "DCP's context is planned with the last pages of decodes",
            """\
            paged_kv_last_page_len=paged_kv_last_page_len_cpu[prefill_start:],
            num_qo_heads=num_qo_heads * dcp_world_size,
""",
            """\
            paged_kv_last_page_len=paged_kv_last_page_len_cpu,
            num_qo_heads=num_qo_heads * dcp_world_size,
""",
        ),
        (
            "DCP's new tokens have an output of the dtype of the KV cache",
            "            **_o_data_type_kwargs(self._new_tokens, o_data_type),\n",
            "            **_o_data_type_kwargs(self._new_tokens, kv_cache_dtype),\n",
        ),
        (
            "a plan() without the output dtype gets it, and one with it doesn't",
            '    return {"o_data_type": dtype} if _accepts_o_data_type(type(wrapper).plan) else {}\n',
            '    return {} if _accepts_o_data_type(type(wrapper).plan) else {"o_data_type": dtype}\n',
        ),
        (
            "decode is planned with the dtype of queries as the output's",
            "            **_o_data_type_kwargs(self, o_data_type),\n",
            "            **_o_data_type_kwargs(self, q_data_type),\n",
        ),
        (
            "cascade attention has the pages of the shared prefix at the wrong level",
            "                paged_kv_indices_arr=[shared_kv_page_indices_cpu, paged_kv_indices],\n",
            "                paged_kv_indices_arr=[paged_kv_indices, shared_kv_page_indices_cpu],\n",
        ),
        (
            "cascade attention is planned with as many KV heads as query heads",
            """\
                num_qo_heads=self.num_qo_heads,
                num_kv_heads=self.num_kv_heads,
                head_dim=self.head_dim,
                page_size=self.page_size,
                causal=True,
""",
            """\
                num_qo_heads=self.num_qo_heads,
                num_kv_heads=self.num_qo_heads,
                head_dim=self.head_dim,
                page_size=self.page_size,
                causal=True,
""",
        ),
        (
            "the context of DCP is planned for KV heads times ranks, too",
            """\
            num_kv_heads=num_kv_heads,
            head_dim_qk=head_dim,
            page_size=page_size,
            causal=False,  # This is context run
""",
            """\
            num_kv_heads=num_kv_heads * dcp_world_size,
            head_dim_qk=head_dim,
            page_size=page_size,
            causal=False,  # This is context run
""",
        ),
    ],
)

INTERFACE = "vllm/platforms/interface.py"
MUTANTS += [
    ByHand(
        "Thor, SM110, is no Blackwell",
        "vllm/blackwell-class",
        INTERFACE,
        "        return self.major in (10, 11, 12)\n",
        "        return self.major in (10, 12)\n",
    ),
    ByHand(
        "each GPU after Blackwell is Blackwell as well",
        "vllm/blackwell-class",
        INTERFACE,
        "        return self.major in (10, 11, 12)\n",
        "        return self.major >= 10\n",
    ),
    ByHand(
        "a platform without capabilities raises instead of being no Blackwell",
        "vllm/blackwell-class",
        INTERFACE,
        "        return capability is not None and capability.is_blackwell_class\n",
        "        return capability.is_blackwell_class\n",
    ),
    ByHand(
        "the class of a second GPU is that of the first",
        "vllm/blackwell-class",
        INTERFACE,
        """\
        capability = cls.get_device_capability(device_id=device_id)
        return capability is not None and capability.is_blackwell_class
""",
        """\
        capability = cls.get_device_capability()
        return capability is not None and capability.is_blackwell_class
""",
    ),
    ByHand(
        "the property is a method, true at each site on each GPU",
        "vllm/blackwell-class",
        INTERFACE,
        "    @property\n    def is_blackwell_class(self) -> bool:\n",
        "    def is_blackwell_class(self) -> bool:\n",
    ),
    ByHand(
        "FlashAttention 3 is refused on major 10 alone, and passed on for SM121",
        "vllm/blackwell-class",
        "vllm/attention/utils/fa_utils.py",
        "        if device_capability.is_blackwell_class and fa_version == 3:\n",
        "        if device_capability.major == 10 and fa_version == 3:\n",
    ),
    ByHand(
        "SM121 gets the attention priorities of Ampere, and FlashInfer isn't first",
        "vllm/blackwell-class",
        "vllm/platforms/cuda.py",
        "        if device_capability.is_blackwell_class:\n",
        "        if device_capability.major == 10:\n",
    ),
    ByHand(
        "Hopper gets the attention priorities of Blackwell",
        "vllm/blackwell-class",
        "vllm/platforms/cuda.py",
        "        if device_capability.is_blackwell_class:\n",
        "        if device_capability.is_blackwell_class or device_capability.major == 9:\n",
    ),
]

CUBINS = """\
    return (
        current_platform.is_device_capability(100)
        or current_platform.is_device_capability(103)
    ) and has_nvidia_artifactory()
"""
MUTANTS += of(
    "vllm/trtllm-cubins",
    VLLM_FLASHINFER,
    [
        (
            "SM103 is said to have no cubins",
            "        or current_platform.is_device_capability(103)\n",
            "        or current_platform.is_device_capability(101)\n",
        ),
        (
            "each major 10 is said to have cubins",
            "        or current_platform.is_device_capability(103)\n",
            "        or current_platform.is_device_capability_family(100)\n",
        ),
        (
            "SM120 is said to have cubins as it compares higher",
            "        or current_platform.is_device_capability(103)\n",
            "        or current_platform.has_device_capability(103)\n",
        ),
        (
            "cubins of SM100 are had although they can't be downloaded",
            CUBINS,
            """\
    return current_platform.is_device_capability(100) or (
        current_platform.is_device_capability(103) and has_nvidia_artifactory()
    )
""",
        ),
        (
            "cubins can be had wherever they can be downloaded, on each GPU",
            CUBINS,
            CUBINS.replace(") and has", ") or has"),
        ),
        (
            "TRT-LLM attention is supported in batch-invariant mode",
            """\
    if vllm_is_batch_invariant():
        return False

    return has_trtllm_gen_cubins()
""",
            """\
    return has_trtllm_gen_cubins()
""",
        ),
        (
            "TRT-LLM attention still checks the family, not the cubins",
            "    return has_trtllm_gen_cubins()\n",
            "    return current_platform.is_device_capability_family(100) and has_nvidia_artifactory()\n",
        ),
    ],
)

SINK_UTILS = "vllm/attention/utils/sink_utils.py"
MUTANTS += [
    ByHand(
        "a layer without sinks is said to have them",
        "vllm/attention-sinks-switch",
        SINK_UTILS,
        """\
    if not has_sinks:
        return False
    if envs.VLLM_ATTENTION_SINKS == "false":
""",
        """\
    if envs.VLLM_ATTENTION_SINKS == "false":
""",
    ),
    ByHand(
        "the switch warns that sinks are dropped, and keeps them",
        "vllm/attention-sinks-switch",
        SINK_UTILS,
        """\
            "up a backend, not to serve."
        )
        return False
""",
        """\
            "up a backend, not to serve."
        )
""",
    ),
    ByHand(
        "sinks are dropped unless asked for",
        "vllm/attention-sinks-switch",
        ENVS,
        '        "VLLM_ATTENTION_SINKS", "auto", ["auto", "false"]\n',
        '        "VLLM_ATTENTION_SINKS", "false", ["auto", "false"]\n',
    ),
    ByHand(
        "the switch takes 0 and does nothing",
        "vllm/attention-sinks-switch",
        ENVS,
        '        "VLLM_ATTENTION_SINKS", "auto", ["auto", "false"]\n',
        '        "VLLM_ATTENTION_SINKS", "auto", ["auto", "false", "0", "1"]\n',
    ),
    ByHand(
        "backends without sinks are still rejected when sinks are dropped",
        "vllm/attention-sinks-switch",
        "vllm/attention/backends/abstract.py",
        "        has_sink = use_sinks(has_sink)\n",
        "",
    ),
    ByHand(
        "a backend without the argument is handed sinks of None and raises",
        "vllm/attention-sinks-switch",
        "vllm/attention/layer.py",
        '            extra_impl_args.pop("sinks", None)\n',
        '            extra_impl_args["sinks"] = None\n',
    ),
    ByHand(
        "FlashInfer applies sinks that are to be dropped",
        "vllm/attention-sinks-switch",
        FLASHINFER_BACKEND,
        "        if sinks is not None and use_sinks(True):\n",
        "        if sinks is not None:\n",
    ),
    ByHand(
        "Triton applies sinks that are to be dropped",
        "vllm/attention-sinks-switch",
        f"{ATTENTION_BACKENDS}/triton_attn.py",
        "        self.sinks = sinks if use_sinks(sinks is not None) else None\n",
        "        self.sinks = sinks\n",
    ),
]

GROUPS = "vllm/attention-hyperparameter-groups"
MUTANTS += of(
    GROUPS,
    BACKEND_UTILS,
    [
        (
            "layers with different scales share a plan",
            """\
            params.sm_scale,
            params.has_sinks,
        )
        layers_by_params""",
            """\
            params.has_sinks,
        )
        layers_by_params""",
        ),
        (
            "no soft cap and a soft cap of 0 are two groups",
            "            params.logits_soft_cap or 0.0,  # 0 and None both mean no cap\n",
            "            params.logits_soft_cap,\n",
        ),
        (
            "a group that the target shares with its draft comes after the target's others",
            "        key=lambda names: all(per_layer_params[name].is_draft for name in names),\n",
            "        key=lambda names: any(per_layer_params[name].is_draft for name in names),\n",
        ),
        (
            "MLA's check of equal parameters fails for a draft with the target's",
            "    is_draft: bool = field(default=False, compare=False)\n",
            "    is_draft: bool = False\n",
        ),
    ],
)
MUTANTS += of(
    GROUPS,
    FLASHINFER_BACKEND,
    [
        (
            "a draft whose layers have no tag is planned for no group",
            "        if not groups:\n            groups = range(len(self.groups))\n",
            "        if groups is None:\n            groups = range(len(self.groups))\n",
        ),
        (
            "a draft step plans the target's groups as well",
            "            fast_build=True,\n            groups=self.draft_groups,\n",
            "            fast_build=True,\n",
        ),
        (
            "with two groups all layers use the plan of the first",
            "            layer_to_group=self.layer_to_group if len(self.groups) > 1 else None,\n",
            "            layer_to_group=self.layer_to_group if len(self.groups) > 2 else None,\n",
        ),
        (
            "a layer registered under another name fails in a forward, not in the builder",
            """\
            if name not in self.layer_to_group
            or getattr(context.get(name), "layer_name", None) != name
""",
            """\
            if name not in self.layer_to_group
""",
        ),
    ],
)

FA2_SINKS = "vllm/flashinfer-fa2-sinks"
MUTANTS += of(
    FA2_SINKS,
    VLLM_FLASHINFER,
    [
        (
            "SM100 runs sinks by the FA2 module, too",
            "    return has_flashinfer() and current_platform.is_device_capability_family(120)\n",
            "    return has_flashinfer() and current_platform.has_device_capability(100)\n",
        ),
    ],
)
MUTANTS += of(
    FA2_SINKS,
    FLASHINFER_BACKEND,
    [
        (
            "attention with sinks over an FP8 KV cache has the wrong temperature",
            "        return self.sinks, self.scale * layer._k_scale_float\n",
            "        return self.sinks, self.scale\n",
        ),
        (
            "a layer with sinks runs on a plan without them",
            "        if takes_sinks != (self.sinks is not None):\n",
            "        if takes_sinks and self.sinks is None:\n",
        ),
        (
            "a decode of several tokens is planned as one token a request",
            "                qo_indptr=self._decode_qo_indptr_cpu[: num_decodes + 1] * query_len,\n",
            "                qo_indptr=self._decode_qo_indptr_cpu[: num_decodes + 1],\n",
        ),
        (
            "a decode of several tokens without sinks runs on kernels for one token",
            "        by_prefill = has_sinks or query_len > 1\n",
            "        by_prefill = has_sinks\n",
        ),
        (
            "the sink module is compiled without the sliding window",
            "            window_left=self.groups[group].window_left,\n            **buffers,\n",
            "            window_left=-1,\n            **buffers,\n",
        ),
        (
            "cascade attention drops the sinks of the only group",
            "            if use_cascade and (len(self.groups) > 1 or self.has_sinks):\n",
            "            if use_cascade and len(self.groups) > 1:\n",
        ),
        (
            "a model with other layers than attention is said to have no sinks by FA2",
            """\
    return supports_fa2_sinks() and any(
        isinstance(impl, FlashInferImpl)""",
            """\
    return supports_fa2_sinks() and all(
        isinstance(impl, FlashInferImpl)""",
        ),
    ],
)

INDUCTOR_PROBE = """\
        if hasattr(torch._inductor.config, "assume_32bit_indexing"):
            inductor_config_patches["assume_32bit_indexing"] = True
"""
MUTANTS += of(
    "vllm/inductor-config-probe",
    "vllm/compilation/decorators.py",
    [
        (
            "the option is set where inductor doesn't have it",
            INDUCTOR_PROBE,
            INDUCTOR_PROBE.replace("if hasattr", "if not hasattr"),
        ),
        (
            "the option is looked for in the wrong module and never set",
            INDUCTOR_PROBE,
            INDUCTOR_PROBE.replace("_inductor.config", "_inductor"),
        ),
        (
            "a build of 2.10 that is older than the option raises as before",
            INDUCTOR_PROBE,
            INDUCTOR_PROBE.replace("if hasattr", 'if is_torch_equal_or_newer("2.10.0.dev") or hasattr'),
        ),
        (
            "a build of 2.10.0.dev that has the option doesn't set it",
            INDUCTOR_PROBE,
            INDUCTOR_PROBE.replace("if hasattr", 'if is_torch_equal_or_newer("2.10.0") and hasattr'),
        ),
        (
            "the option is set in the config of fx, which doesn't have it",
            INDUCTOR_PROBE,
            INDUCTOR_PROBE.replace("inductor_config_patches[", "fx_config_patches["),
        ),
        (
            "the option is switched off where it is there",
            INDUCTOR_PROBE,
            INDUCTOR_PROBE.replace("= True", "= False"),
        ),
    ],
)
