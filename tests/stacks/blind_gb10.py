"""Ways in which a careless edit could break the patches of the set gb10, written without its proofs.

The list was written from the patches alone, without reading the proofs or the lists in by_hand_*.py, and it is
meant to be run once: the share of mutants that no proof sees then measures the proofs. Each entry is one edit of
lines that a patch has, in the form of by_hand_vllm.py.
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
            '    return "o_data_type" in parameters or "kwargs" in parameters\n',
            '    return "data_type" in parameters or "kwargs" in parameters\n',
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
            "decode of each group is planned with the window of the first",
            """\
            sm_scale=params.sm_scale,
            window_left=params.window_left,
            logits_soft_cap=params.logits_soft_cap,
            q_data_type=self.q_data_type,
            kv_data_type=self.kv_cache_dtype,
            o_data_type""",
            """\
            sm_scale=params.sm_scale,
            window_left=self.groups[0].window_left,
            logits_soft_cap=params.logits_soft_cap,
            q_data_type=self.q_data_type,
            kv_data_type=self.kv_cache_dtype,
            o_data_type""",
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

BACKEND_OPTION = "vllm/mxfp4-backend-option"
MUTANTS += of(
    BACKEND_OPTION,
    MXFP4,
    [
        (
            "the variable has precedence over --mxfp4-backend",
            """\
    if model_config is not None and model_config.mxfp4_backend is not None:
        return model_config.mxfp4_backend, "--mxfp4-backend"
    if envs.VLLM_MXFP4_BACKEND is not None:
        return envs.VLLM_MXFP4_BACKEND, "VLLM_MXFP4_BACKEND"
""",
            """\
    if envs.VLLM_MXFP4_BACKEND is not None:
        return envs.VLLM_MXFP4_BACKEND, "VLLM_MXFP4_BACKEND"
    if model_config is not None and model_config.mxfp4_backend is not None:
        return model_config.mxfp4_backend, "--mxfp4-backend"
""",
        ),
        (
            "auto leaves the choice to the older variables",
            """\
    elif requested[0] == "auto":
        name = _auto_backend(available)
""",
            """\
    elif requested[0] == "auto":
        name = _legacy_backend(available) or _auto_backend(available)
""",
        ),
        (
            "LoRA gets a backend of FlashInfer, which has none",
            "    if with_lora_support or not has_flashinfer():\n        return available\n",
            "    if not has_flashinfer():\n        return available\n",
        ),
        (
            "a backend that can't run is replaced by another one without a message",
            """\
        if name not in available:
            raise ValueError(
                f"{option}={name} can't run on this platform"
                f"{' with LoRA' if with_lora_support else ''}. "
                f"Available: {', '.join(['auto', *available])}."
            )
""",
            """\
        if name not in available:
            name = _auto_backend(available)
""",
        ),
        (
            "trtllm runs MXFP8 activations and trtllm_mxfp8 BF16",
            """\
        available["trtllm"] = Mxfp4Backend.SM100_FI_MXFP4_BF16
        available["trtllm_mxfp8"] = Mxfp4Backend.SM100_FI_MXFP4_MXFP8_TRTLLM
""",
            """\
        available["trtllm"] = Mxfp4Backend.SM100_FI_MXFP4_MXFP8_TRTLLM
        available["trtllm_mxfp8"] = Mxfp4Backend.SM100_FI_MXFP4_BF16
""",
        ),
        (
            "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16 does nothing on Hopper",
            """\
            Mxfp4Backend.SM90_FI_MXFP4_BF16,
            Mxfp4Backend.SM100_FI_MXFP4_BF16,
        ),
        "VLLM_MXFP4_USE_MARLIN\"""",
            """\
            Mxfp4Backend.SM100_FI_MXFP4_BF16,
        ),
        "VLLM_MXFP4_USE_MARLIN\"""",
        ),
    ],
)
MUTANTS += [
    ByHand(
        "the option is parsed, but the config doesn't get it",
        BACKEND_OPTION,
        "vllm/engine/arg_utils.py",
        "            mxfp4_backend=self.mxfp4_backend,\n",
        "",
    ),
    ByHand(
        "an unset variable is auto, so that the older variables are never read",
        BACKEND_OPTION,
        ENVS,
        """\
        "VLLM_MXFP4_BACKEND",
        None,
""",
        """\
        "VLLM_MXFP4_BACKEND",
        "auto",
""",
    ),
]

LEGACY_USED = """\
                logger.warning_once(
                    "%s is deprecated, use --mxfp4-backend=%s or "
                    "VLLM_MXFP4_BACKEND=%s.",
                    variable,
                    name,
                    name,
                )
                return name
"""
LEGACY_IGNORED = """\
        logger.warning_once(
            "%s is deprecated and asks for a backend that can't run here: it is "
            "ignored. Use --mxfp4-backend with one of: %s.",
            variable,
            ", ".join(["auto", *available]),
        )
"""
MUTANTS += of(
    "vllm/mxfp4-legacy-variables",
    MXFP4,
    [
        (
            "the warning names a replacement that the option doesn't know",
            LEGACY_USED,
            LEGACY_USED.replace("name,\n                    name,", "backend.name,\n                    backend.name,"),
        ),
        (
            "the user of an older variable isn't warned",
            LEGACY_USED,
            LEGACY_USED.replace("warning_once", "debug_once"),
        ),
        (
            "a variable is said to be used, and then that it is ignored, as it is",
            LEGACY_USED,
            LEGACY_USED.replace("                return name\n", ""),
        ),
        (
            "a variable that can't be followed hides those after it",
            LEGACY_IGNORED,
            LEGACY_IGNORED + "        return None\n",
        ),
        (
            "the warning about an ignored variable names the last backend instead",
            LEGACY_IGNORED,
            LEGACY_IGNORED.replace("            variable,\n", "            name,\n"),
        ),
        (
            "a variable that is ignored gets no warning",
            LEGACY_IGNORED,
            "",
        ),
    ],
)

SM12X_CUTLASS = "vllm/mxfp4-sm12x-cutlass"
MUTANTS += of(
    SM12X_CUTLASS,
    MXFP4,
    [
        (
            "Hopper's default becomes CUTLASS",
            """\
    if (
        "cutlass" in available
        and available["cutlass"] == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8
    ):
        return "cutlass"
""",
            """\
    if "cutlass" in available:
        return "cutlass"
""",
        ),
        (
            "the alias of the CUTLASS backend is TRT-LLM's and the other way round",
            "    SM100_FI_MXFP4_MXFP8_TRTLLM = 1\n    SM100_FI_MXFP4_MXFP8_CUTLASS = 2\n",
            "    SM100_FI_MXFP4_MXFP8_TRTLLM = 2\n    SM100_FI_MXFP4_MXFP8_CUTLASS = 1\n",
        ),
    ],
)
MUTANTS += of(
    SM12X_CUTLASS,
    VLLM_FLASHINFER,
    [
        (
            "SM121 takes a cache of CUDA 12.8, which it can't load",
            "    return cuda is not None and int(cuda[1]) >= 129\n",
            "    return cuda is not None and int(cuda[1]) >= 128\n",
        ),
        (
            "SM121 takes any cache, and SM120 none of CUDA 12.8",
            "    if current_platform.is_device_capability(120):\n        return True\n",
            "    if current_platform.is_device_capability(121):\n        return True\n",
        ),
        (
            "without nvcc the version of torch's CUDA is enough",
            '    return os.access(nvcc, os.X_OK) and is_cuda_version_at_least("12.9")\n',
            '    return os.access(nvcc, os.X_OK) or is_cuda_version_at_least("12.9")\n',
        ),
        (
            "nvcc of CUDA 12.8 is said to compile for SM121",
            '    return os.access(nvcc, os.X_OK) and is_cuda_version_at_least("12.9")\n',
            '    return os.access(nvcc, os.X_OK) and is_cuda_version_at_least("12.8")\n',
        ),
        (
            "nvcc counts although FlashInfer's JIT is disabled",
            """\
    if os.environ.get("FLASHINFER_DISABLE_JIT"):
        return False
    from flashinfer.jit.cpp_ext""",
            """\
    from flashinfer.jit.cpp_ext""",
        ),
        (
            "both the cache and nvcc are needed",
            "    if not (_has_compiled_sm12x_moe() or _has_nvcc_for_sm12x()):\n",
            "    if not (_has_compiled_sm12x_moe() and _has_nvcc_for_sm12x()):\n",
        ),
    ],
)

TUNE_BUCKET = """\
        self.tune_max_num_tokens = moe.dp_size * max(
            self.max_capture_size or 0,
            vllm_config.scheduler_config.max_num_batched_tokens,
            1,
        )
"""
MUTANTS += of(
    "vllm/mxfp4-tune-bucket",
    MXFP4,
    [
        (
            "tuning ends at one token",
            TUNE_BUCKET,
            TUNE_BUCKET.replace("dp_size * max(", "dp_size * min("),
        ),
        (
            "tuning ends at the number of sequences",
            TUNE_BUCKET,
            TUNE_BUCKET.replace("max_num_batched_tokens", "max_num_seqs"),
        ),
        (
            "tuning ends at one rank's tokens, although the experts get those of all",
            TUNE_BUCKET,
            TUNE_BUCKET.replace("moe.dp_size * max(", "max("),
        ),
        (
            "tuning counts the ranks of tensor parallelism, which have the same tokens",
            TUNE_BUCKET,
            TUNE_BUCKET.replace("moe.dp_size", "moe.tp_size"),
        ),
        (
            "a model without CUDA graphs can't be loaded",
            TUNE_BUCKET,
            TUNE_BUCKET.replace("max_capture_size or 0", "max_capture_size"),
        ),
        (
            "TRT-LLM is still tuned up to the largest graph",
            """\
                tune_max_num_tokens=self.tune_max_num_tokens,
            )[0]
""",
            """\
                tune_max_num_tokens=max(self.max_capture_size, 1),
            )[0]
""",
        ),
        (
            "CUTLASS gets one tuning configuration for each batch size",
            """\
                tune_max_num_tokens=self.tune_max_num_tokens,
                **extra_kwargs,
""",
            """\
                tune_max_num_tokens=x.shape[0],
                **extra_kwargs,
""",
        ),
    ],
)

MUTANTS += of(
    "vllm/mxfp4-quantize-linear-scales",
    f"{QUANTIZATION}/utils/mxfp4_utils.py",
    [
        (
            "the even column is in the high nibble",
            "    return code[:, ::2] | (code[:, 1::2] << 4), (exponent + 127).to(torch.uint8)\n",
            "    return code[:, 1::2] | (code[:, ::2] << 4), (exponent + 127).to(torch.uint8)\n",
        ),
        (
            "midpoints go to the odd neighbour",
            "        code += (magnitude >= midpoint) if i % 2 else (magnitude > midpoint)\n",
            "        code += (magnitude > midpoint) if i % 2 else (magnitude >= midpoint)\n",
        ),
        (
            "a block whose largest value is 6 times a power of two gets the next larger scale",
            "    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)\n",
            "",
        ),
        (
            "the scale is rounded down, so that large values saturate",
            "    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)\n",
            "    exponent = exponent - 1\n",
        ),
        (
            "rows after the last full chunk are never quantized",
            "    for i in range(0, n, rows):\n",
            "    for i in range(0, max(n - rows, 0) + 1, rows):\n",
        ),
        (
            "scales have a bias of 126, so that weights are half as large",
            "    return code[:, ::2] | (code[:, 1::2] << 4), (exponent + 127).to(torch.uint8)\n",
            "    return code[:, ::2] | (code[:, 1::2] << 4), (exponent + 126).to(torch.uint8)\n",
        ),
        (
            "negative values set a bit of the next nibble instead of their sign",
            "    code |= torch.signbit(blocks).to(torch.uint8) << 3\n",
            "    code |= torch.signbit(blocks).to(torch.uint8) << 4\n",
        ),
        (
            "a scale below 2**-127 wraps around",
            "    exponent = torch.where(mantissa == 0, -127, exponent).clamp(-127, 127)\n",
            "    exponent = torch.where(mantissa == 0, -127, exponent).clamp(max=127)\n",
        ),
    ],
)

QKV_O = "vllm/mxfp4-qkv-o"
MUTANTS += of(
    QKV_O,
    MXFP4,
    [
        (
            "o is quantized by default, as there is an o in moe",
            '    if model_config is None or kind not in model_config.mxfp4_layers.split(","):\n',
            "    if model_config is None or kind not in model_config.mxfp4_layers:\n",
        ),
        (
            "a layer that leaves its bias to others gets it packed for Marlin",
            "            if kind is not None and not layer.skip_bias_add and _runs_in_mxfp4(kind):\n",
            "            if kind is not None and _runs_in_mxfp4(kind):\n",
        ),
        (
            "with LoRA the layers are quantized all the same, after a warning",
            """\
            model_config.mxfp4_layers,
        )
        return False
    return True
""",
            """\
            model_config.mxfp4_layers,
        )
    return True
""",
        ),
        (
            "a layer that needs padding isn't padded if either size suits a tile",
            "    return n if k % 128 == 0 and n % 64 == 0 else round_up(n, 128)\n",
            "    return n if k % 128 == 0 or n % 64 == 0 else round_up(n, 128)\n",
        ),
        (
            "the output keeps the columns of the padding",
            "    return output if padded == n else output[..., :n]\n",
            "    return output\n",
        ),
        (
            "a padded layer has a bias without padding",
            """\
        if bias is not None:
            bias = torch.nn.functional.pad(bias, (0, pad))
""",
            "",
        ),
    ],
)
MUTANTS += [
    ByHand(
        "all is the experts alone",
        QKV_O,
        "vllm/config/model.py",
        """\
        if "all" in layers:
            layers.update(MXFP4_LAYERS)
""",
        "",
    ),
    ByHand(
        "qkv and moe,qkv are the same, and hash apart",
        QKV_O,
        "vllm/config/model.py",
        '        layers.add("moe")\n',
        "",
    ),
]

LM_HEAD = "vllm/mxfp4-lm-head"
MUTANTS += of(
    LM_HEAD,
    MXFP4,
    [
        (
            "any head is quantized, not only lm_head",
            """\
            isinstance(layer, ParallelLMHead)
            and prefix.rsplit(".", 1)[-1] == "lm_head"
            and""",
            """\
            isinstance(layer, ParallelLMHead)
            and""",
        ),
        (
            "a head is quantized unasked",
            """\
            and prefix.rsplit(".", 1)[-1] == "lm_head"
            and _runs_in_mxfp4("lm_head")
""",
            """\
            and prefix.rsplit(".", 1)[-1] == "lm_head"
            and current_platform.is_cuda()
""",
        ),
        (
            "a config without tie_word_embeddings is taken for a tied one",
            '            if getattr(hf_config, "tie_word_embeddings", False):\n',
            '            if getattr(hf_config, "tie_word_embeddings", True):\n',
        ),
        (
            "a weight that belongs to another module is packed",
            "        if layer.weight is not self._created():\n",
            "        if self._created is None:\n",
        ),
        (
            "the BF16 weight is kept next to the packed one",
            "        self._created = weakref.ref(layer.weight)\n",
            "        weight = layer.weight\n        self._created = lambda: weight\n",
        ),
        (
            "a head that stays in BF16 is run as if it were packed",
            "            layer.quant_method = UnquantizedEmbeddingMethod()\n            return\n",
            "            return\n",
        ),
        (
            "the bias of the logits is dropped",
            "        return logits if bias is None else logits + bias\n",
            "        return logits\n",
        ),
    ],
)
MUTANTS += [
    ByHand(
        "the model doesn't hand its lm_head the quantization",
        LM_HEAD,
        "vllm/model_executor/models/gpt_oss.py",
        """\
            quant_config=vllm_config.quant_config,
            prefix=maybe_prefix(prefix, "lm_head"),
""",
        """\
            prefix=maybe_prefix(prefix, "lm_head"),
""",
    ),
]

RUN_TAGS = "vllm/forward-context-run-tags"
MUTANTS += [
    ByHand(
        "the context has the two tags in each other's place",
        RUN_TAGS,
        "vllm/forward_context.py",
        """\
        ubatch_slices,
        is_dummy_run,
        is_profile_run,
    )
""",
        """\
        ubatch_slices,
        is_profile_run,
        is_dummy_run,
    )
""",
    ),
    ByHand(
        "a context is created without the tag of the profile run",
        RUN_TAGS,
        "vllm/forward_context.py",
        "        is_dummy_run=is_dummy_run,\n        is_profile_run=is_profile_run,\n    )\n",
        "        is_dummy_run=is_dummy_run,\n    )\n",
    ),
    ByHand(
        "only the profile run is a dummy run for the V1 runner",
        RUN_TAGS,
        "vllm/v1/worker/gpu_model_runner.py",
        "                    is_dummy_run=True,\n                    is_profile_run=is_profile,\n",
        "                    is_dummy_run=is_profile,\n                    is_profile_run=is_profile,\n",
    ),
    ByHand(
        "each dummy run is a profile run for the V1 runner",
        RUN_TAGS,
        "vllm/v1/worker/gpu_model_runner.py",
        "                    is_dummy_run=True,\n                    is_profile_run=is_profile,\n",
        "                    is_dummy_run=True,\n                    is_profile_run=True,\n",
    ),
    ByHand(
        "the V2 runner tags runs that serve requests",
        RUN_TAGS,
        "vllm/v1/worker/gpu/model_runner.py",
        "                is_dummy_run=dummy_run,\n",
        "                is_dummy_run=not dummy_run,\n",
    ),
    ByHand(
        "the V2 runner doesn't tag its profile run",
        RUN_TAGS,
        "vllm/v1/worker/gpu/model_runner.py",
        "            skip_attn=True,\n            is_profile=True,\n",
        "            skip_attn=True,\n",
    ),
    ByHand(
        "micro-batches of a dummy run are tagged by the profile run alone",
        RUN_TAGS,
        "vllm/v1/worker/gpu_ubatch_wrapper.py",
        "                    is_dummy_run=outer.is_dummy_run,\n",
        "                    is_dummy_run=outer.is_profile_run,\n",
    ),
    ByHand(
        "the dummy run of Eagle's drafter looks like one that serves requests",
        RUN_TAGS,
        "vllm/v1/spec_decode/eagle.py",
        "                is_dummy_run=True,\n            ):\n",
        "            ):\n",
    ),
]

DISPATCH_LINE = "vllm/mxfp4-dispatch-line"
MUTANTS += [
    ByHand(
        "real NVFP4 experts are said to have scales for blocks of 32",
        DISPATCH_LINE,
        f"{FUSED_MOE}/flashinfer_cutlass_moe.py",
        "            if self.w1_scale.shape[-1] * 16 <= w1.shape[-1]:\n",
        "            if self.w1_scale.shape[-1] * 8 <= w1.shape[-1]:\n",
    ),
    ByHand(
        "scales for blocks of 32 in the NVFP4 path go unnoticed",
        DISPATCH_LINE,
        f"{FUSED_MOE}/flashinfer_cutlass_moe.py",
        "            if self.w1_scale.shape[-1] * 16 <= w1.shape[-1]:\n",
        "            if self.w1_scale.shape[-1] * 16 < w1.shape[-1]:\n",
    ),
]
MUTANTS += of(
    DISPATCH_LINE,
    MXFP4,
    [
        (
            "CUTLASS's line names the dtype before quantization, and warns about it",
            '            self._log_dispatch(layer, "flashinfer.cutlass_fused_moe", fi_input)\n',
            '            self._log_dispatch(layer, "flashinfer.cutlass_fused_moe", x)\n',
        ),
        (
            "the line shows the shape of w13 for w2",
            "            str(tuple(layer.w2_weight.shape)),\n",
            "            str(tuple(layer.w13_weight.shape)),\n",
        ),
        (
            "SM12x is warned about native experts, and not about others",
            "        if self.mxfp4_backend != Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8:\n",
            "        if self.mxfp4_backend == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8:\n",
        ),
        (
            "SM100 gets the warnings meant for SM12x, and SM12x none",
            """\
            current_platform.is_cuda()
            and current_platform.is_device_capability_family(120)
        ):
            return
        if self.mxfp4_backend""",
            """\
            current_platform.is_cuda()
            and current_platform.is_device_capability_family(100)
        ):
            return
        if self.mxfp4_backend""",
        ),
        (
            "only activations of BF16 are said not to be MXFP8",
            "        elif activation.dtype != torch.float8_e4m3fn:\n",
            "        elif activation.dtype == torch.bfloat16:\n",
        ),
        (
            "Marlin's experts run without the line",
            '            self._log_dispatch(layer, "fused_marlin_moe", x)\n',
            "",
        ),
    ],
)

DEBUG_SWITCHES = "vllm/moe-debug-switches"
MUTANTS += of(
    DEBUG_SWITCHES,
    f"{FUSED_MOE}/debug.py",
    [
        (
            "an even routing is captured in a CUDA graph and replayed for requests",
            """\
    if _is_capturing():
        return topk_weights, topk_ids

""",
            "",
        ),
        (
            "requests are routed evenly as well",
            "    if envs.VLLM_MOE_WARMUP_FORCE_UNIFORM and _is_dummy_run():\n",
            "    if envs.VLLM_MOE_WARMUP_FORCE_UNIFORM:\n",
        ),
        (
            "an even routing uses the first experts only",
            "        spread = torch.arange(topk_ids.numel(), device=topk_ids.device) % num_experts\n",
            "        spread = torch.arange(topk_ids.numel(), device=topk_ids.device) % topk_ids.shape[-1]\n",
        ),
        (
            "the weights of an even routing don't add up to one",
            "        topk_weights = torch.full_like(topk_weights, 1 / topk_ids.shape[-1])\n",
            "        topk_weights = torch.full_like(topk_weights, 1 / num_experts)\n",
        ),
        (
            "experts after the last one with a token aren't counted as without one",
            "        counts = torch.bincount(topk_ids.flatten().long(), minlength=num_experts)\n",
            "        counts = torch.bincount(topk_ids.flatten().long())\n",
        ),
        (
            "activations are logged whenever no graph is captured",
            "    if not envs.VLLM_MXFP8_QUANT_LOG or _is_capturing():\n",
            "    if not envs.VLLM_MXFP8_QUANT_LOG and _is_capturing():\n",
        ),
        (
            "values that are finite are counted as not finite",
            "        int((~torch.isfinite(values)).sum()),\n",
            "        int(torch.isfinite(values).sum()),\n",
        ),
    ],
)
MUTANTS += of(
    DEBUG_SWITCHES,
    MXFP4,
    [
        (
            "an even routing is computed and not used",
            """\
            topk_weights, topk_ids = debug_routing(
                topk_weights, topk_ids, layer.global_num_experts
            )
""",
            """\
            debug_routing(topk_weights, topk_ids, layer.global_num_experts)
""",
        ),
    ],
)

GREEDY = "vllm/eagle-greedy-drafts"
V2_EAGLE = "vllm/v1/worker/gpu/spec_decode/eagle.py"
MUTANTS += [
    ByHand(
        "drafts are greedy by default",
        GREEDY,
        "vllm/config/speculative.py",
        '    draft_sample_method: Literal["gumbel", "greedy"] = "gumbel"\n',
        '    draft_sample_method: Literal["gumbel", "greedy"] = "greedy"\n',
    ),
]
MUTANTS += of(
    GREEDY,
    V2_EAGLE,
    [
        (
            "gumbel drafts by argmax and greedy by noise",
            '        self.greedy_draft = self.speculative_config.draft_sample_method == "greedy"\n',
            '        self.greedy_draft = self.speculative_config.draft_sample_method == "gumbel"\n',
        ),
        (
            "a greedy draft is the request with the largest logit of each token",
            "            return logits.argmax(dim=-1)\n",
            "            return logits.argmax(dim=0)\n",
        ),
        (
            "gumbel drafts ignore the temperature",
            "        return gumbel_sample(logits, temperature, seeds, pos, apply_temperature=True)\n",
            "        return gumbel_sample(logits, temperature, seeds, pos, apply_temperature=False)\n",
        ),
        (
            "the first draft has the noise of the position before",
            "        draft_tokens = self.sample_draft(logits, temperature, seeds, pos + 1)\n",
            "        draft_tokens = self.sample_draft(logits, temperature, seeds, pos)\n",
        ),
        (
            "the first draft is drawn with noise though greedy was asked for",
            "        draft_tokens = self.sample_draft(logits, temperature, seeds, pos + 1)\n",
            """\
        draft_tokens = gumbel_sample(
            logits, temperature, seeds, pos + 1, apply_temperature=True
        )
""",
        ),
        (
            "drafts after the first are greedy whatever was asked for",
            """\
            draft_tokens = self.sample_draft(
                logits, self.temperature[:num_reqs], self.seeds[:num_reqs], pos + 1
            )
""",
            """\
            draft_tokens = logits.argmax(dim=-1)
""",
        ),
    ],
)

COUNTERS = "vllm/eagle-cudagraph-counters"
MUTANTS += [
    ByHand(
        "drafts that run eagerly aren't counted",
        COUNTERS,
        V2_EAGLE,
        """\
        self.cudagraph_manager.stats.observe(num_reqs, cudagraph_size)
        if cudagraph_size is not None:
""",
        """\
        if cudagraph_size is not None:
            self.cudagraph_manager.stats.observe(num_reqs, cudagraph_size)
""",
    ),
]
MUTANTS += of(
    COUNTERS,
    "vllm/v1/worker/gpu/spec_decode/eagle_cudagraph.py",
    [
        (
            "hits are counted as misses and misses as hits",
            "        if cudagraph_size is not None:\n            self.num_hits += 1\n",
            "        if cudagraph_size is None:\n            self.num_hits += 1\n",
        ),
        (
            "the line has the last eager draft's requests for the largest's",
            "            self.max_missed_reqs = max(self.max_missed_reqs, num_reqs)\n",
            "            self.max_missed_reqs = num_reqs\n",
        ),
        (
            "the line comes with each draft once the first interval is over",
            "            return\n        self.last_log_time = now\n        if self.num_misses > 0:\n",
            "            return\n        if self.num_misses > 0:\n",
        ),
        (
            "the line comes although no draft ran eagerly",
            "        self.last_log_time = now\n        if self.num_misses > 0:\n",
            "        self.last_log_time = now\n        if self.num_misses >= 0:\n",
        ),
        (
            "the line gives the hits for all drafts",
            "                self.num_hits + self.num_misses,\n",
            "                self.num_hits,\n",
        ),
        (
            "the interval is ten seconds, whatever that of other statistics is",
            "        self.stats = EagleCudaGraphStats(envs.VLLM_LOG_STATS_INTERVAL)\n",
            "        self.stats = EagleCudaGraphStats(10.0)\n",
        ),
    ],
)

MXFP8_TRITON = "vllm/mxfp8-triton-quantizer"
MUTANTS += of(
    MXFP8_TRITON,
    f"{QUANTIZATION}/utils/mxfp8_triton.py",
    [
        (
            "a block whose largest value is 448 times a power of two gets the next larger scale",
            "    exponent = (bits >> 23) - 8 + ((bits & 0x7FFFFF) > 0x600000).to(tl.int32)\n",
            "    exponent = (bits >> 23) - 8 + ((bits & 0x7FFFFF) >= 0x600000).to(tl.int32)\n",
        ),
        (
            "values above 448 times the scale saturate",
            "    exponent = (bits >> 23) - 8 + ((bits & 0x7FFFFF) > 0x600000).to(tl.int32)\n",
            "    exponent = (bits >> 23) - 8\n",
        ),
        (
            "rows with padding between them are read from the wrong place",
            "        x_ptr + rows[:, None].to(tl.int64) * row_stride + cols[None, :],\n",
            "        x_ptr + rows[:, None].to(tl.int64) * num_cols + cols[None, :],\n",
        ),
        (
            "tiles of scales after the first 128 rows are written over each other",
            "        ((rows // 128).to(tl.int64) * tl.num_programs(1) + tile) * 512\n",
            "        ((rows // 128).to(tl.int64) + tile) * 512\n",
        ),
        (
            "scales of a tile are in row order",
            "        + (rows % 32) * 16\n        + (rows % 128) // 32 * 4\n",
            "        + (rows % 128) * 4\n",
        ),
        (
            "scales of the padding are left unwritten",
            "    _mxfp8_quantize_kernel[(padded_m // block_m, tiles)](\n",
            "    _mxfp8_quantize_kernel[(triton.cdiv(m, block_m), tiles)](\n",
        ),
        (
            "the last columns of a width that is no multiple of 128 are never quantized",
            "    padded_m, tiles = round_up(m, 128), triton.cdiv(k, 128)\n",
            "    padded_m, tiles = round_up(m, 128), k // 128\n",
        ),
    ],
)
MUTANTS += of(
    MXFP8_TRITON,
    ENVS,
    [
        (
            "the Triton kernel is used unasked",
            '        int(os.getenv("VLLM_MXFP8_TRITON_QUANTIZE", "0"))\n',
            '        int(os.getenv("VLLM_MXFP8_TRITON_QUANTIZE", "1"))\n',
        ),
    ],
)

TRITON_TOPK = "vllm/moe-triton-topk"
MUTANTS += of(
    TRITON_TOPK,
    f"{FUSED_MOE}/triton_topk.py",
    [
        (
            "an expert is chosen for each slot again",
            '        x = tl.where(experts == index, -float("inf"), x)\n',
            "",
        ),
        (
            "weights are renormalized where the model doesn't",
            "    if RENORMALIZE:\n        total = tl.sum(weights, 0)\n",
            "    total = tl.sum(weights, 0)\n",
        ),
        (
            "source rows are in the order of tokens",
            "    source_rows = slots * tl.num_programs(0) + row\n",
            "    source_rows = row * TOP_K + slots\n",
        ),
        (
            "logits with a stride are read as if rows followed each other",
            "        logits_ptr + row.to(tl.int64) * row_stride + experts,\n",
            "        logits_ptr + row.to(tl.int64) * num_experts + experts,\n",
        ),
        (
            "a number of experts that is no power of two has experts with a logit of 0",
            '        other=-float("inf"),\n',
            "        other=0.0,\n",
        ),
        (
            "a top-k that is no power of two writes into the next token's slots",
            "    offsets = row.to(tl.int64) * TOP_K + slots\n    mask = slots < TOP_K\n",
            "    offsets = row.to(tl.int64) * TOP_K + slots\n    mask = slots < BLOCK_K\n",
        ),
    ],
)
MUTANTS += of(
    TRITON_TOPK,
    f"{FUSED_MOE}/fused_moe.py",
    [
        (
            "AITER's kernel on ROCm gives way to Triton's",
            """\
    if use_rocm_aiter:
        return rocm_aiter_ops.topk_softmax
    if envs.VLLM_MOE_TRITON_TOPK:
        return triton_topk_softmax
""",
            """\
    if envs.VLLM_MOE_TRITON_TOPK:
        return triton_topk_softmax
    if use_rocm_aiter:
        return rocm_aiter_ops.topk_softmax
""",
        ),
    ],
)

TREE_TOP_K = "vllm/eagle-tree-top-k"
MUTANTS += of(
    TREE_TOP_K,
    "vllm/v1/spec_decode/eagle.py",
    [
        (
            "FlashInfer gets rows on the CPU",
            "        logits.is_cuda\n        and logits.shape[-1] >= _FLASHINFER_TOP_K_MIN_VOCAB\n",
            "        logits.shape[-1] >= _FLASHINFER_TOP_K_MIN_VOCAB\n",
        ),
        (
            "FlashInfer gets short rows, and torch the long ones",
            "        and logits.shape[-1] >= _FLASHINFER_TOP_K_MIN_VOCAB\n",
            "        and logits.shape[-1] < _FLASHINFER_TOP_K_MIN_VOCAB\n",
        ),
        (
            "the number of rows decides, not their length",
            "        and logits.shape[-1] >= _FLASHINFER_TOP_K_MIN_VOCAB\n",
            "        and logits.shape[0] >= _FLASHINFER_TOP_K_MIN_VOCAB\n",
        ),
        (
            "the drafts are in no order",
            "        return top_k(logits.contiguous(), k, sorted=True)[1]\n",
            "        return top_k(logits.contiguous(), k)[1]\n",
        ),
        (
            "logits are taken for the ids of drafts",
            "        return top_k(logits.contiguous(), k, sorted=True)[1]\n",
            "        return top_k(logits.contiguous(), k, sorted=True)[0]\n",
        ),
        (
            "logits that are a slice reach FlashInfer with gaps between rows",
            "        return top_k(logits.contiguous(), k, sorted=True)[1]\n",
            "        return top_k(logits, k, sorted=True)[1]\n",
        ),
        (
            "the levels of a tree below the first still use torch",
            """\
                draft_token_ids = _top_k_ids(logits, num_children).view(batch_size, -1)
            draft_token_ids_list.append(draft_token_ids)
""",
            """\
                draft_token_ids = torch.topk(logits, num_children, dim=-1).indices.view(
                    batch_size, -1
                )
            draft_token_ids_list.append(draft_token_ids)
""",
        ),
    ],
)
MUTANTS += of(
    TREE_TOP_K,
    VLLM_FLASHINFER,
    [
        (
            "any FlashInfer is said to have top_k",
            '    return mod is not None and hasattr(mod, "top_k")\n',
            "    return mod is not None\n",
        ),
    ],
)

MARLIN_FP8 = "vllm/marlin-fp8-input-sm12x"
PYTHON_FP8_CHECK = "        ) and not current_platform.is_device_capability_family(120):\n"
MUTANTS += of(
    MARLIN_FP8,
    f"{QUANTIZATION}/utils/marlin_utils.py",
    [
        (
            "Python refuses FP8 activations on SM121",
            PYTHON_FP8_CHECK,
            PYTHON_FP8_CHECK.replace("_family", ""),
        ),
        (
            "Python accepts FP8 activations on SM100, and the kernel refuses them",
            PYTHON_FP8_CHECK,
            PYTHON_FP8_CHECK.replace("is_device_capability_family(120)", "has_device_capability(100)"),
        ),
        (
            "Python accepts FP8 activations on the family of SM100 instead",
            PYTHON_FP8_CHECK,
            PYTHON_FP8_CHECK.replace("120", "100"),
        ),
    ],
)
MUTANTS += [
    ByHand(
        "a build for 12.1 alone has no FP8 kernels of the MoE",
        MARLIN_FP8,
        "csrc/moe/marlin_moe_wna16/generate_kernels.py",
        "    if arch in [89, 120, 121]:\n",
        "    if arch in [89, 120]:\n",
    ),
    ByHand(
        "a build for 12.1 alone has no FP8 kernels of linear layers",
        MARLIN_FP8,
        "csrc/quantization/gptq_marlin/generate_kernels.py",
        "    if arch in [89, 120, 121]:\n",
        "    if arch in [89, 120, 12]:\n",
    ),
    ByHand(
        "a build for SM90 generates FP8 kernels, too",
        MARLIN_FP8,
        "csrc/quantization/gptq_marlin/generate_kernels.py",
        "    if arch in [89, 120, 121]:\n",
        "    if arch >= 89:\n",
    ),
    ByHand(
        "the MoE kernel refuses SM121 in the first request",
        MARLIN_FP8,
        "csrc/moe/marlin_moe_wna16/ops.cu",
        "            major_capability == 12,\n",
        "            major_capability * 10 + minor_capability == 120,\n",
    ),
    ByHand(
        "the linear kernel accepts SM100",
        MARLIN_FP8,
        "csrc/quantization/gptq_marlin/gptq_marlin.cu",
        "            major_capability == 12,\n",
        "            major_capability >= 10,\n",
    ),
]

BUILD_FIRST = "vllm/mxfp4-moe-build-first"
MUTANTS += of(
    BUILD_FIRST,
    MXFP4,
    [
        (
            "SM100 compiles the module for SM120",
            """\
            self.mxfp4_backend == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8
            and current_platform.is_device_capability_family(120)
        ):
            build""",
            """\
            self.mxfp4_backend == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8
        ):
            build""",
        ),
        (
            "Marlin on SM12x waits for a module that it doesn't use",
            """\
            self.mxfp4_backend == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8
            and current_platform.is_device_capability_family(120)
        ):
            build""",
            """\
            current_platform.is_device_capability_family(120)
        ):
            build""",
        ),
    ],
)
MUTANTS += of(
    BUILD_FIRST,
    VLLM_FLASHINFER,
    [
        (
            "the full module is loaded after the small one was compiled",
            "    core.get_cutlass_fused_moe_module(str(capability.to_int()), **variant)\n",
            "    core.get_cutlass_fused_moe_module(str(capability.to_int()))\n",
        ),
        (
            "the module is asked for by the major capability, which FlashInfer doesn't know",
            "    core.get_cutlass_fused_moe_module(str(capability.to_int()), **variant)\n",
            "    core.get_cutlass_fused_moe_module(str(capability.major), **variant)\n",
        ),
        (
            "a start with a compiled module says that it compiles, and the first start doesn't",
            "    if not spec.is_compiled:\n",
            "    if spec.is_compiled:\n",
        ),
        (
            "the module is compiled although FlashInfer's JIT is disabled",
            """\
    if os.environ.get("FLASHINFER_DISABLE_JIT") and not spec.is_aot:
        return
""",
            "",
        ),
        (
            "FlashInfer is asked about a module for BF16 activations",
            "    if choose is not None and choose(torch.float8_e4m3fn, torch.long):\n",
            "    if choose is not None and choose(torch.bfloat16, torch.long):\n",
        ),
        (
            "the small module is compiled although FlashInfer is set to the full one",
            "    if choose is not None and choose(torch.float8_e4m3fn, torch.long):\n",
            "    if choose is not None:\n",
        ),
    ],
)

KERNELS = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels"
LAUNCHERS = f"{KERNELS}/moe_gemm/launchers"
BINDING = "csrc/fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu"
JIT_MOE = "flashinfer/jit/fused_moe.py"
GENERATE_KERNELS = "flashinfer/jit/gemm/cutlass/generate_kernels.py"

MUTANTS += of(
    "flashinfer/arch-suffix",
    "flashinfer/compilation_context.py",
    [
        (
            "nvcc 12.9 compiles for one GPU instead of the family",
            '    return "f" if version is not None and version >= _NVCC_FAMILY else "a"\n',
            '    return "f" if version is not None and version > _NVCC_FAMILY else "a"\n',
        ),
        (
            "a suffix that the user wrote gets another one",
            "                if major == 12 and minor.isdigit():\n",
            "                if major == 12:\n",
        ),
        (
            "a GPU that was found gets both suffixes",
            "                    elif major >= 9:\n",
            "                    if major >= 9:\n",
        ),
        (
            "sm_121a goes to nvcc 12.8, which doesn't know it",
            '        needed = _NVCC_FAMILY if minor.endswith("f") or minor[0] != "0" else _NVCC_SM120\n',
            '        needed = _NVCC_FAMILY if minor.endswith("f") else _NVCC_SM120\n',
        ),
        (
            "without nvcc, as on a machine that only generates sources, each SM12x target is an error",
            "        if version is not None and version < needed:\n",
            "        if version is None or version < needed:\n",
        ),
        (
            "a module that has no SM12x is refused for a target of another one",
            "        _check_nvcc_targets(supported_cuda_archs)\n",
            "        _check_nvcc_targets(self.TARGET_CUDA_ARCHS)\n",
        ),
        (
            "the error names the version of the family for 12.0, which needs an older one",
            '                f"sm_{major}{minor} needs nvcc >= {needed}, but nvcc is {version}."\n',
            '                f"sm_{major}{minor} needs nvcc >= {_NVCC_FAMILY}, but nvcc is {version}."\n',
        ),
        (
            "nvcc 12.8 is handed the suffix of the family, which it doesn't know",
            '_NVCC_FAMILY = Version("12.9")\n',
            '_NVCC_FAMILY = Version("12.8")\n',
        ),
    ],
)

SINK_URI = "flashinfer/attention-sink-jit-uri"
MUTANTS += of(
    SINK_URI,
    "flashinfer/jit/attention/modules.py",
    [
        (
            "wrappers with different positional encodings share a module",
            '        f"posenc_{pos_encoding_mode}_"\n        f"use_swa_{use_sliding_window}_"\n        f"f16qk',
            '        f"use_swa_{use_sliding_window}_"\n        f"f16qk',
        ),
        (
            "wrappers with and without the QK reduction in FP16 share a module",
            """\
        f"posenc_{pos_encoding_mode}_"
        f"use_swa_{use_sliding_window}_"
        f"f16qk_{use_fp16_qk_reduction}" + ("_sm90" if backend == "fa3" else "")
""",
            """\
        f"posenc_{pos_encoding_mode}_"
        f"use_swa_{use_sliding_window}" + ("_sm90" if backend == "fa3" else "")
""",
        ),
    ],
)
MUTANTS += of(
    SINK_URI,
    "flashinfer/attention.py",
    [
        (
            "a module for an FP8 KV cache has the name of the one for BF16",
            """\
                q_data_type,
                kv_data_type,
                q_data_type,  # dtype_o
                torch.int32,  # dtype_idx
""",
            """\
                q_data_type,
                q_data_type,
                q_data_type,  # dtype_o
                torch.int32,  # dtype_idx
""",
        ),
        (
            "modules with different head dimensions of V have one name",
            "                head_dim_qk,\n                head_dim_vo,\n                PosEncodingMode",
            "                head_dim_qk,\n                head_dim_qk,\n                PosEncodingMode",
        ),
        (
            "a window of one token has the name of no window",
            "                window_left >= 0,\n                use_fp16_qk_reduction,\n            ),  # uri\n",
            "                window_left > 0,\n                use_fp16_qk_reduction,\n            ),  # uri\n",
        ),
        (
            "the name has the positional encoding NONE whatever it is",
            "                PosEncodingMode[pos_encoding_mode].value,\n                window_left >= 0,\n",
            "                PosEncodingMode.NONE.value,\n                window_left >= 0,\n",
        ),
        (
            "the name doesn't get the QK reduction",
            "                window_left >= 0,\n                use_fp16_qk_reduction,\n            ),  # uri\n",
            "                window_left >= 0,\n            ),  # uri\n",
        ),
    ],
)

MIXED_CONDITION = "      if ((config & CutlassGemmConfig::FP8FP4_MIXED) != 0) {\n"
MUTANTS += of(
    "flashinfer/sm120-mixed-candidates",
    f"{KERNELS}/cutlass_heuristic.cpp",
    [
        (
            "NVFP4 gets one tile, and mixed inputs those without a kernel",
            MIXED_CONDITION,
            MIXED_CONDITION.replace("!=", "=="),
        ),
        (
            "NVFP4 loses its tiles",
            MIXED_CONDITION,
            MIXED_CONDITION.replace("FP8FP4_MIXED", "FP4_ONLY"),
        ),
        (
            "mixed inputs are looked for by the flag of FP8 weights",
            MIXED_CONDITION,
            MIXED_CONDITION.replace("FP8FP4_MIXED", "FP8_ONLY"),
        ),
        (
            "mixed inputs are still offered the tiles without a kernel",
            """\
        return candidate_configs;
      }
      candidate_configs.push_back(
          CutlassGemmConfig{CutlassTileConfigSM120::CtaShape128x128x64B, MainloopScheduleType::AUTO,
""",
            """\
      }
      candidate_configs.push_back(
          CutlassGemmConfig{CutlassTileConfigSM120::CtaShape128x128x64B, MainloopScheduleType::AUTO,
""",
        ),
        (
            "mixed inputs are offered one tile without a kernel",
            """\
        return candidate_configs;
      }
      candidate_configs.push_back(
          CutlassGemmConfig{CutlassTileConfigSM120::CtaShape128x128x64B, MainloopScheduleType::AUTO,
                            EpilogueScheduleType::AUTO, ClusterShape::ClusterShape_1x1x1});
""",
            """\
        candidate_configs.push_back(CutlassGemmConfig{
            CutlassTileConfigSM120::CtaShape128x128x64B, MainloopScheduleType::AUTO,
            EpilogueScheduleType::AUTO, ClusterShape::ClusterShape_1x1x1});
        return candidate_configs;
      }
      candidate_configs.push_back(
          CutlassGemmConfig{CutlassTileConfigSM120::CtaShape128x128x64B, MainloopScheduleType::AUTO,
                            EpilogueScheduleType::AUTO, ClusterShape::ClusterShape_1x1x1});
""",
        ),
    ],
)

LEFT_OUT = "flashinfer/sinks-left-out"
LEFT_OUT_CHECK = '        if sinks is not None and self._backend != "trtllm-gen":\n'
MUTANTS += of(
    LEFT_OUT,
    "flashinfer/decode.py",
    [
        (
            "decode by CUDA cores, whose backend stays auto, ignores sinks",
            LEFT_OUT_CHECK,
            LEFT_OUT_CHECK.replace('!= "trtllm-gen"', 'not in ("trtllm-gen", "auto")'),
        ),
        (
            "decode refuses sinks by trtllm-gen alone, which applies them",
            LEFT_OUT_CHECK,
            LEFT_OUT_CHECK.replace("!=", "=="),
        ),
        (
            "decode refuses all backends but trtllm-gen, with sinks or not",
            LEFT_OUT_CHECK,
            LEFT_OUT_CHECK.replace("is not None and", "is not None or"),
        ),
    ],
)
MUTANTS += of(
    LEFT_OUT,
    "flashinfer/prefill.py",
    [
        (
            "prefill by FA3 ignores sinks",
            LEFT_OUT_CHECK,
            LEFT_OUT_CHECK.replace('!= "trtllm-gen"', '== "fa2"'),
        ),
        (
            "prefill checks the sinks of other calls than those that have them",
            LEFT_OUT_CHECK,
            LEFT_OUT_CHECK.replace("is not None", "is None"),
        ),
        (
            "prefill's error sends the user to the wrapper that raises it",
            '                "Use BatchAttentionWithAttentionSinkWrapper, or the trtllm-gen backend."\n',
            '                "Use BatchPrefillWithPagedKVCacheWrapper, or the trtllm-gen backend."\n',
        ),
    ],
)

MUTANTS += of(
    "flashinfer/grouped-gemm-pdl",
    f"{LAUNCHERS}/moe_gemm_tma_ws_launcher.inl",
    [
        (
            "SM100 is taken for SM90, and never launched with PDL",
            "constexpr bool is_sm90 = ArchTag::kMinComputeCapability < 100;",
            "constexpr bool is_sm90 = ArchTag::kMinComputeCapability <= 100;",
        ),
        (
            "SM90's kernels of CUTLASS 4.2 are said to wait",
            "  if constexpr (is_sm90) return CUTLASS_VERSION >= 430;\n",
            "  if constexpr (is_sm90) return CUTLASS_VERSION >= 420;\n",
        ),
        (
            "SM120's kernels are said to wait with any CUTLASS",
            "      !is_sm90 && ArchTag::kMinComputeCapability < 120;\n",
            "      !is_sm90 && ArchTag::kMinComputeCapability <= 120;\n",
        ),
        (
            "SM100 has PDL with a CUTLASS of 4.3 only",
            "  if constexpr (!is_sm90) return is_sm100 || CUTLASS_VERSION >= 430;\n",
            "  if constexpr (!is_sm90) return CUTLASS_VERSION >= 430;\n",
        ),
        (
            "kernels compiled without the flag are launched with PDL",
            "#endif\n  return false;\n}\n\ntemplate <bool FLAG, class GemmGrouped, bool A>\n",
            "#endif\n  return true;\n}\n\ntemplate <bool FLAG, class GemmGrouped, bool A>\n",
        ),
        (
            "kernels that don't wait are launched with PDL where the caller has it on",
            "tma_ws_input.enable_pdl && grouped_gemm_waits_for_grid<ArchTag>());",
            "tma_ws_input.enable_pdl || grouped_gemm_waits_for_grid<ArchTag>());",
        ),
        (
            "SM120 looks for the flag of SM90",
            "#ifdef CUTLASS_ENABLE_GDC_FOR_SM100\n  if constexpr (!is_sm90)",
            "#ifdef CUTLASS_ENABLE_GDC_FOR_SM90\n  if constexpr (!is_sm90)",
        ),
    ],
)

NS_LAUNCHER = "flashinfer/sm120-namespace-launcher"
MUTANTS += of(
    NS_LAUNCHER,
    f"{LAUNCHERS}/moe_gemm_sm120_mixed_input_kernel.inl",
    [
        (
            "the finalize step of a swapped kernel takes the bias by column",
            """\
      std::conditional_t<SwapAB,
                         cutlass::epilogue::fusion::ScaledAccPerRowBiasPerColScaleScatter<
""",
            """\
      std::conditional_t<!SwapAB,
                         cutlass::epilogue::fusion::ScaledAccPerRowBiasPerColScaleScatter<
""",
        ),
    ],
)
MUTANTS += of(
    NS_LAUNCHER,
    f"{LAUNCHERS}/moe_gemm_sm120_mixed_input_launcher.inl",
    [
        (
            "a swapped kernel scales its weights by the activations' scales",
            "  mainloop.ptr_SFA = SwapAB ? sf_weight : sf_act;\n  mainloop.ptr_SFB = SwapAB ? sf_act : sf_weight;\n",
            "  mainloop.ptr_SFA = sf_act;\n  mainloop.ptr_SFB = sf_weight;\n",
        ),
        (
            "a kernel takes operands that were written for the other orientation",
            '  TLLM_CHECK_WITH_INFO(input.swap_ab == Kernel::SwapAB, "%s was given swap_ab=%d",\n',
            '  TLLM_CHECK_WITH_INFO(input.swap_ab || !Kernel::SwapAB, "%s was given swap_ab=%d",\n',
        ),
    ],
)
MUTANTS += [
    ByHand(
        "the workspace of a swapped tactic is that of the kernel which isn't",
        NS_LAUNCHER,
        f"{KERNELS}/moe_gemm/moe_gemm_template_dispatch_tma_ws.h",
        "  input.swap_ab = gemm_config.swap_ab;\n  // Most",
        "  // Most",
    ),
    ByHand(
        "an unknown launcher is generic without a message",
        NS_LAUNCHER,
        JIT_MOE,
        """\
        raise ValueError(
            f"FLASHINFER_SM120_MOE_LAUNCHER is {launcher!r}, not generic or namespace."
        )
""",
        """\
        return "generic"
""",
    ),
    ByHand(
        "the modules of both launchers have one name",
        NS_LAUNCHER,
        JIT_MOE,
        '    variant = device_arch if sm120_launcher == "generic" else f"{device_arch}_ns"\n',
        "    variant = device_arch\n",
    ),
    ByHand(
        "NVFP4 goes to the launcher for mixed inputs, and mixed inputs to the generic one",
        NS_LAUNCHER,
        GENERATE_KERNELS,
        '                namespace_scope=launcher == "namespace" and act_type != weight_type,\n',
        '                namespace_scope=launcher == "namespace" and act_type == weight_type,\n',
    ),
    ByHand(
        "a kernel and its swapped one have one namespace",
        NS_LAUNCHER,
        GENERATE_KERNELS,
        "    namespace = f\"{output.strip('_')}_{fusion}_{m}x{n}x{k}_{swap_ab}\".lower()\n",
        "    namespace = f\"{output.strip('_')}_{fusion}_{m}x{n}x{k}\".lower()\n",
    ),
]

BUILD_PROFILE = "flashinfer/moe-mxfp4-build-profile"
MUTANTS += of(
    BUILD_PROFILE,
    JIT_MOE,
    [
        (
            "all FP8 activations, with FP8 weights as well, go to the module for MXFP4",
            "    mxfp4 = x_dtype == torch.float8_e4m3fn and weight_dtype == torch.long\n",
            "    mxfp4 = x_dtype == torch.float8_e4m3fn or weight_dtype == torch.long\n",
        ),
        (
            "the full module is compiled unless the variable says otherwise",
            '    profile = os.environ.get("FLASHINFER_FUSED_MOE_BUILD_PROFILE", "auto")\n',
            '    profile = os.environ.get("FLASHINFER_FUSED_MOE_BUILD_PROFILE", "full")\n',
        ),
        (
            "the small module is compiled although the full one is there",
            "        or not gen_cutlass_fused_moe_sm120_module(mxfp4_only=False).is_compiled\n",
            "        or gen_cutlass_fused_moe_sm120_module(mxfp4_only=False).is_compiled\n",
        ),
        (
            "the build ahead of time makes the full module although the small one is asked for",
            '        mxfp4_only = _sm120_moe_profile() == "mxfp4_minimal"\n',
            "        mxfp4_only = False\n",
        ),
        (
            "the small module has the name of the full one",
            '        variant += "_mxfp4min"\n',
            "",
        ),
        (
            "the small module lacks the runner of FP8 with FP4",
            '                for dtypes in (["fp8_fp4"] if mxfp4_only else _MOE_GEMM_DTYPES)\n',
            '                for dtypes in (["fp4_fp4"] if mxfp4_only else _MOE_GEMM_DTYPES)\n',
        ),
    ],
)
MUTANTS += [
    ByHand(
        "SM121 never uses the small module",
        BUILD_PROFILE,
        "flashinfer/fused_moe/core.py",
        '    if device_arch in ("120", "121") and use_sm120_moe_mxfp4_only(\n',
        '    if device_arch == "120" and use_sm120_moe_mxfp4_only(\n',
    ),
    ByHand(
        "the dtype of the output decides on the module",
        BUILD_PROFILE,
        "flashinfer/fused_moe/core.py",
        "        device_arch, input.dtype, fc1_expert_weights.dtype\n",
        "        device_arch, output.dtype, fc1_expert_weights.dtype\n",
    ),
]

SMALL_N = "flashinfer/sm120-small-n-tiles"
MUTANTS += [
    ByHand(
        "a tile is offered with a CUTLASS that doesn't compile it",
        SMALL_N,
        GENERATE_KERNELS,
        "    (128, 32, 128): (4, 5),\n",
        "    (128, 32, 128): (4, 0),\n",
    ),
    ByHand(
        "CUTLASS 4.5, the first with small tiles, gets none",
        SMALL_N,
        JIT_MOE,
        "        return tuple(t for t, needed in SM120_MIXED_TILES.items() if needed <= version)\n",
        "        return tuple(t for t, needed in SM120_MIXED_TILES.items() if needed < version)\n",
    ),
    ByHand(
        "the host's sources don't know of the tiles, and never offer them",
        SMALL_N,
        JIT_MOE,
        '        extra_cflags=tile_flags + (["-DFAST_BUILD"] if use_fast_build else []),\n',
        '        extra_cflags=["-DFAST_BUILD"] if use_fast_build else [],\n',
    ),
    ByHand(
        "modules with and without small tiles have one name",
        SMALL_N,
        JIT_MOE,
        '    variant += "".join(f"_n{n}" for n in small_n)\n',
        "",
    ),
    ByHand(
        "a list of tiles without 128x128 leaves it out",
        SMALL_N,
        JIT_MOE,
        "    tiles = [(128, 128, 128)]\n",
        "    tiles = []\n",
    ),
    ByHand(
        "experts with few rows start with the largest small tile",
        SMALL_N,
        BINDING,
        "          (!best.swap_ab || tile_n(config) < tile_n(best))) {\n",
        "          (!best.swap_ab || tile_n(config) > tile_n(best))) {\n",
    ),
    ByHand(
        "the rows of an average expert are rounded down, and don't fit",
        SMALL_N,
        BINDING,
        "    int64_t const rows_per_expert = (rows + experts - 1) / experts;\n",
        "    int64_t const rows_per_expert = rows / experts;\n",
    ),
    ByHand(
        "NVFP4 gets the tiles of mixed inputs, and mixed inputs those of NVFP4",
        SMALL_N,
        GENERATE_KERNELS,
        "        if cta_shape_mnk not in (mixed_shapes if is_mixed else cta_shapes_mnk):\n",
        "        if cta_shape_mnk not in (cta_shapes_mnk if is_mixed else mixed_shapes):\n",
    ),
]

MUTANTS += [
    ByHand(
        "decode with a JIT module ignores scales, and without one refuses them",
        "flashinfer/jit-module-scales",
        "flashinfer/decode.py",
        "        if self._jit_module is not None:\n            check_scales_left_out(q_scale, k_scale)\n",
        "        if self._jit_module is None:\n            check_scales_left_out(q_scale, k_scale)\n",
    ),
]
MUTANTS += of(
    "flashinfer/jit-module-scales",
    "flashinfer/prefill.py",
    [
        (
            "paged prefill with a JIT module ignores the scale of keys",
            "                check_scales_left_out(q_scale, k_scale)\n",
            "                check_scales_left_out(q_scale)\n",
        ),
        (
            "ragged prefill without a JIT module ignores scales",
            "        if self._jit_module is not None or not (is_float8(q) and args):\n",
            "        if self._jit_module is not None and not (is_float8(q) and args):\n",
        ),
        (
            "ragged prefill of FP8 without scale tensors ignores scales",
            "        if self._jit_module is not None or not (is_float8(q) and args):\n",
            "        if self._jit_module is not None or not is_float8(q):\n",
        ),
        (
            "ragged prefill ignores the scales of values and output",
            "            check_scales_left_out(q_scale, k_scale, v_scale, o_scale)\n",
            "            check_scales_left_out(q_scale, k_scale)\n",
        ),
    ],
)
MUTANTS += of(
    "flashinfer/jit-module-scales",
    "flashinfer/utils.py",
    [
        (
            "a scale of 1 is refused",
            "        if scale is not None and not (isinstance(scale, (int, float)) and scale == 1):\n",
            "        if scale is not None:\n",
        ),
        (
            "a scale in a tensor is read, which waits for the device and passes if it is 1",
            "        if scale is not None and not (isinstance(scale, (int, float)) and scale == 1):\n",
            "        if scale is not None and scale != 1:\n",
        ),
        (
            "each scale in a tensor passes",
            "        if scale is not None and not (isinstance(scale, (int, float)) and scale == 1):\n",
            "        if isinstance(scale, (int, float)) and scale != 1:\n",
        ),
    ],
)

ALIGNMENT = "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 1024 : 0;"
RESERVED = "sizeof(typename CollectiveEpilogue::SharedStorage) + SmemAlignment)>;"
MUTANTS += of(
    "flashinfer/sm120-finalize-stages",
    f"{LAUNCHERS}/moe_gemm_tma_ws_launcher.inl",
    [
        (
            "room is reserved for SM120's kernels without finalize",
            ALIGNMENT,
            ALIGNMENT.replace("IsFinalizeFusion", "!IsFinalizeFusion"),
        ),
        (
            "room is reserved on SM100 instead",
            ALIGNMENT,
            ALIGNMENT.replace("IsSM120", "IsSM10x"),
        ),
        (
            "room is reserved for all kernels but those that need it",
            ALIGNMENT,
            ALIGNMENT.replace("1024 : 0", "0 : 1024"),
        ),
        (
            "the room is computed and not reserved",
            RESERVED,
            RESERVED.replace(" + SmemAlignment", ""),
        ),
        (
            "the epilogue is said to take less than it does",
            RESERVED,
            RESERVED.replace("+ SmemAlignment", "- SmemAlignment"),
        ),
    ],
)

TACTIC_CHECK = "        TVM_FFI_ICHECK(id2 >= mGemm1TacticCount && id2 < static_cast<int64_t>(mAllProfiles.size()))\n"
TACTIC_USE = "        best_gemm2_profile = mAllProfiles.at(id2);\n"
MUTANTS += of(
    "flashinfer/moe-gemm2-tactic-ids",
    BINDING,
    [
        (
            "the second GEMM runs a tactic of the first one",
            TACTIC_CHECK,
            TACTIC_CHECK.replace("id2 >= mGemm1TacticCount", "id2 >= 0"),
        ),
        (
            "the first tactic of the second GEMM is refused",
            TACTIC_CHECK,
            TACTIC_CHECK.replace("id2 >= mGemm1TacticCount", "id2 > mGemm1TacticCount"),
        ),
        (
            "tactics of the second GEMM are refused, as they are above their number",
            TACTIC_CHECK,
            TACTIC_CHECK.replace("static_cast<int64_t>(mAllProfiles.size())", "mGemm2TacticCount"),
        ),
        (
            "the index is taken as relative again",
            TACTIC_USE,
            TACTIC_USE.replace("id2", "mGemm1TacticCount + id2"),
        ),
        (
            "the second GEMM runs the first one's tactic at the same place",
            TACTIC_USE,
            TACTIC_USE.replace("id2", "id2 - mGemm1TacticCount"),
        ),
        (
            "the first GEMM runs the second one's tactic",
            TACTIC_USE,
            TACTIC_USE.replace("best_gemm2_profile", "best_gemm1_profile"),
        ),
    ],
)

AOT = "flashinfer/aot-sm121"
AOT_CONDITION = "        if has_sm120 or has_sm121:\n            # One module serves both.\n"
MUTANTS += of(
    AOT,
    "flashinfer/aot.py",
    [
        (
            "a build for 12.1 still leaves out the MoE and the GEMMs",
            AOT_CONDITION,
            AOT_CONDITION.replace(" or has_sm121", ""),
        ),
        (
            "the MoE and the GEMMs are built only if both architectures are asked for",
            AOT_CONDITION,
            AOT_CONDITION.replace("or", "and", 1),
        ),
        (
            "a build for 12.0 leaves out the MoE and the GEMMs",
            AOT_CONDITION,
            AOT_CONDITION.replace("has_sm120 or ", ""),
        ),
        (
            "a build for 12.1 has the quantization of 12.0",
            "            jit_specs.append(gen_fp4_quantization_sm121_module())\n",
            "            jit_specs.append(gen_fp4_quantization_sm120_module())\n",
        ),
        (
            "a build for 12.0 alone has the quantization of 12.1 as well",
            "        if has_sm121:\n            jit_specs.append(gen_fp4_quantization_sm121_module())\n",
            "        if has_sm120 or has_sm121:\n            jit_specs.append(gen_fp4_quantization_sm121_module())\n",
        ),
    ],
)

WAITS_CONDITION = "    if _cutlass_version() >= (4, 3):\n"
MUTANTS += of(
    "flashinfer/grouped-gemm-waits",
    JIT_MOE,
    [
        (
            "CUTLASS 4.3, the first that waits, is compiled without the flag",
            WAITS_CONDITION,
            WAITS_CONDITION.replace(">=", ">"),
        ),
        (
            "CUTLASS 4.2 is compiled with the flag",
            WAITS_CONDITION,
            WAITS_CONDITION.replace("(4, 3)", "(4, 2)"),
        ),
        (
            "the module of SM90 is compiled without the flag",
            WAITS_CONDITION,
            WAITS_CONDITION.replace("if ", 'if device_arch == "120" and '),
        ),
        (
            "the flag of SM90 is left out",
            '            "-DCUTLASS_ENABLE_GDC_FOR_SM90=1",\n',
            "",
        ),
        (
            "the flag of SM100 and SM120 is left out",
            '            "-DCUTLASS_ENABLE_GDC_FOR_SM100=1",\n',
            "",
        ),
        (
            "the flags take the place of all others",
            '        nvcc_flags = nvcc_flags + [\n            "-DCUTLASS_ENABLE_GDC_FOR_SM90=1",\n',
            '        nvcc_flags = [\n            "-DCUTLASS_ENABLE_GDC_FOR_SM90=1",\n',
        ),
    ],
)

TOPK = "include/flashinfer/topk.cuh"
GROUP_RESET = "flashinfer/topk-group-reset"
MUTANTS += of(
    GROUP_RESET,
    TOPK,
    [
        (
            "no CTA finds itself the last, and the next launch starts with an old counter",
            "    int last = (barrier_phase + 1) * ctas_per_group - 1;\n",
            "    int last = (barrier_phase + 1) * ctas_per_group;\n",
        ),
        (
            "the first CTA to leave resets the state",
            "    int last = (barrier_phase + 1) * ctas_per_group - 1;\n",
            "    int last = barrier_phase * ctas_per_group;\n",
        ),
        (
            "the third histogram is left as it is",
            """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 3; ++buf) {
""",
            """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 2; ++buf) {
""",
        ),
        (
            "half of each histogram is left as it is",
            """\
                                                uint32_t* shared_is_last) {
  constexpr uint32_t RADIX = 256;
""",
            """\
                                                uint32_t* shared_is_last) {
  constexpr uint32_t RADIX = 128;
""",
        ),
        (
            "threads look for the last CTA before it is known",
            """\
    __threadfence();
  }
  __syncthreads();
  if (*shared_is_last) {
""",
            """\
    __threadfence();
  }
  if (*shared_is_last) {
""",
        ),
        (
            "a CTA leaves while its slower threads still work on its row",
            """\
  constexpr uint32_t RADIX = 256;
  __syncthreads();
  if (tx == 0) {
    __threadfence();
""",
            """\
  constexpr uint32_t RADIX = 256;
  if (tx == 0) {
    __threadfence();
""",
        ),
        (
            "the histograms are reset, and the counter isn't",
            """\
    if (tx == 0) {
      st_release(&state->arrival_counter, 0);
    }
  }
}
""",
            """\
  }
}
""",
        ),
        (
            "only the leading CTA of top_k leaves, and none is the last",
            """\
    RadixLeaveGroup<BLOCK_THREADS>(state, barrier_phase, ctas_per_group, tx, local_histogram);
  }

#undef shared_output_counter
""",
            """\
    if (cta_in_group == 0) {
      RadixLeaveGroup<BLOCK_THREADS>(state, barrier_phase, ctas_per_group, tx, local_histogram);
    }
  }

#undef shared_output_counter
""",
        ),
    ],
)

EXPAND_BLOCKS = "  int64_t const blocks = std::min(smCount * 8, std::max<int64_t>(num_rows * k, 1));\n"
ACTIVATION_BLOCKS = "  int64_t const blocks = std::min(smCount * 8, std::max<int64_t>(expanded_num_tokens, 1));\n"
MUTANTS += of(
    "flashinfer/moe-padding-rows",
    "csrc/fused_moe/cutlass_backend/cutlass_fused_moe_kernels.cuh",
    [
        (
            "expandInputRows of no rows is launched with no blocks, which CUDA refuses",
            EXPAND_BLOCKS,
            EXPAND_BLOCKS.replace("std::max<int64_t>(num_rows * k, 1)", "num_rows * k"),
        ),
        (
            "doActivation of no rows is launched with no blocks, which CUDA refuses",
            ACTIVATION_BLOCKS,
            ACTIVATION_BLOCKS.replace("std::max<int64_t>(expanded_num_tokens, 1)", "expanded_num_tokens"),
        ),
        (
            "expandInputRows is still launched with a block for each padding row",
            EXPAND_BLOCKS,
            EXPAND_BLOCKS.replace("(num_rows * k, 1)", "(num_rows * k, 128 * num_experts_per_node)"),
        ),
        (
            "doActivation is still launched with a block for each padding row",
            ACTIVATION_BLOCKS,
            ACTIVATION_BLOCKS.replace("_tokens, 1)", "_tokens, 128 * num_experts_per_node)"),
        ),
        (
            "expandInputRows has a block for each token, not for each of its experts",
            EXPAND_BLOCKS,
            EXPAND_BLOCKS.replace("(num_rows * k, 1)", "(num_rows, 1)"),
        ),
        (
            "doActivation fills the GPU with blocks for one token",
            ACTIVATION_BLOCKS,
            ACTIVATION_BLOCKS.replace("std::min(", "std::max("),
        ),
    ],
)

JOBS = "flashinfer/jit-jobs-by-memory"
MUTANTS += [
    ByHand(
        "a job counts as MiB, and memory is always sufficient",
        JOBS,
        "flashinfer/jit/cpp_ext.py",
        "    jobs = max(available // (compiler_gib << 30), 1)\n",
        "    jobs = max(available // (compiler_gib << 20), 1)\n",
    ),
    ByHand(
        "less memory than one job may take is no job, which ninja takes for no limit",
        JOBS,
        "flashinfer/jit/cpp_ext.py",
        "    jobs = max(available // (compiler_gib << 30), 1)\n",
        "    jobs = available // (compiler_gib << 30)\n",
    ),
    ByHand(
        "the line has the two numbers in each other's place",
        JOBS,
        "flashinfer/jit/cpp_ext.py",
        "            jobs,\n            default_jobs,\n",
        "            default_jobs,\n            jobs,\n",
    ),
    ByHand(
        "compilers of the fused MoE count as those of other modules",
        JOBS,
        JIT_MOE,
        "        compiler_gib=9,  # 7 to 10 GiB for a grouped GEMM\n",
        "",
    ),
    ByHand(
        "a build of several modules counts a job as the last one's",
        JOBS,
        "flashinfer/jit/core.py",
        "        compiler_gib = max(compiler_gib, spec.compiler_gib)\n",
        "        compiler_gib = spec.compiler_gib\n",
    ),
    ByHand(
        "a checkpoint that was just read leaves no memory in a container",
        JOBS,
        "flashinfer/jit/utils.py",
        "        used -= min(_cgroup_page_cache_bytes(cgroup), used)\n",
        "",
    ),
    ByHand(
        "a container's limit is ignored where the host has more",
        JOBS,
        "flashinfer/jit/utils.py",
        "    return min(available, default=None)\n",
        "    return max(available, default=None)\n",
    ),
    ByHand(
        "the page cache of the host counts as used",
        JOBS,
        "flashinfer/jit/utils.py",
        '            if line.startswith("MemAvailable:")\n',
        '            if line.startswith("MemFree:")\n',
    ),
]

CONVERGE = "__syncthreads();  // tx 0's release covers what other threads did before the last syncthreads\n"
SELECTION_BARRIER = f"""\
      {CONVERGE}\
      if (tx == 0) {{
        red_release(&state->arrival_counter, 1);
      }}
"""
MUTANTS += of(
    "flashinfer/topk-barrier-sync",
    TOPK,
    [
        (
            "a CTA announces its histogram before the last counts are in it",
            SELECTION_BARRIER,
            SELECTION_BARRIER.replace(f"      {CONVERGE}", ""),
        ),
        (
            "only the warp of thread 0 converges before the announcement",
            SELECTION_BARRIER,
            SELECTION_BARRIER.replace("__syncthreads();", "__syncwarp();"),
        ),
        (
            "the CTA converges after it was announced",
            SELECTION_BARRIER,
            SELECTION_BARRIER.replace(f"      {CONVERGE}", "") + f"      {CONVERGE}",
        ),
        (
            "thread 0 alone waits for its CTA, forever",
            SELECTION_BARRIER,
            SELECTION_BARRIER.replace(
                f"      {CONVERGE}      if (tx == 0) {{\n", f"      if (tx == 0) {{\n        {CONVERGE}"
            ),
        ),
        (
            "only the leading CTA converges, and its peers' counts are missing",
            SELECTION_BARRIER,
            SELECTION_BARRIER.replace("__syncthreads();", "if (cta_in_group == 0) __syncthreads();"),
        ),
        (
            "a fence orders what each thread wrote, and doesn't wait for it",
            SELECTION_BARRIER,
            SELECTION_BARRIER.replace("__syncthreads();", "__threadfence();"),
        ),
    ],
)

COLLECTED = """\
  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.
  __syncthreads();
"""
MUTANTS += of(
    "flashinfer/topk-collect-sync",
    TOPK,
    [
        (
            "only threads of a warp wait for each other before the next row",
            COLLECTED,
            COLLECTED.replace("__syncthreads", "__syncwarp"),
        ),
        (
            "one CTA per row still loads the next row too early",
            COLLECTED,
            COLLECTED.replace("__syncthreads", "if constexpr (!SINGLE_CTA) __syncthreads"),
        ),
        (
            "several CTAs per row still announce indices that aren't written",
            COLLECTED,
            COLLECTED.replace("__syncthreads", "if constexpr (SINGLE_CTA) __syncthreads"),
        ),
        (
            "a fence takes the place of the barrier",
            COLLECTED,
            COLLECTED.replace("__syncthreads", "__threadfence"),
        ),
        (
            "the barrier is in the loop, which threads leave after different numbers of turns",
            "    }\n  }\n" + COLLECTED,
            "    }\n    __syncthreads();\n  }\n",
        ),
    ],
)

SKIPPED = "flashinfer/topk-skipped-rows"
SKIPPED_WAIT = """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;
"""
MUTANTS += of(
    SKIPPED,
    TOPK,
    [
        (
            "a row after a skipped one starts with a histogram that nobody cleared",
            "        barrier_phase, ctas_per_group, cta_in_group, tx, num_selected++, local_gt_count);\n",
            "        barrier_phase, ctas_per_group, cta_in_group, tx, iter, local_gt_count);\n",
        ),
        (
            "each selected row starts with the same histogram",
            "        barrier_phase, ctas_per_group, cta_in_group, tx, num_selected++, local_gt_count);\n",
            "        barrier_phase, ctas_per_group, cta_in_group, tx, num_selected, local_gt_count);\n",
        ),
        (
            "a skipped row clears a histogram that a peer may still read",
            """\
      // with, and a peer may still be about to read its others.
      continue;
""",
            """\
      // with, and a peer may still be about to read its others.
      if constexpr (!SINGLE_CTA) {
        constexpr uint32_t NUM_ROUNDS = sizeof(OrderedType);
        if (cta_in_group == 0) {
          for (uint32_t i = tx; i < RADIX; i += BLOCK_THREADS) {
            state->histogram[((iter + 1) * NUM_ROUNDS) % 3][i] = 0;
          }
        }
      }
      continue;
""",
        ),
        (
            "the sum of the first row is overwritten while a peer reads it",
            SKIPPED_WAIT,
            SKIPPED_WAIT.replace("iter > 0", "iter > 1"),
        ),
        (
            "the group waits before the first row and before no other",
            SKIPPED_WAIT,
            SKIPPED_WAIT.replace("iter > 0", "iter == 0"),
        ),
        (
            "the wait isn't counted, so that the next one is over at once",
            SKIPPED_WAIT,
            SKIPPED_WAIT.replace("          barrier_phase++;\n", ""),
        ),
        (
            "peers don't announce themselves, and the leading CTA waits forever",
            SKIPPED_WAIT,
            SKIPPED_WAIT.replace("if (tx == 0) {", "if (tx == 0 && cta_in_group == 0) {"),
        ),
        (
            "each thread of a CTA announces it, and nobody is waited for",
            SKIPPED_WAIT,
            SKIPPED_WAIT.replace(
                "          if (tx == 0) {\n            red_release(&state->arrival_counter, 1);\n          }\n",
                "          red_release(&state->arrival_counter, 1);\n",
            ),
        ),
    ],
)

SMEM = "cutlass/array-smem-capacity"
SM90_KERNELS = "include/cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized"
SMEM_ASSERT = "  static_assert(cutlass::arch::CheckSmemCapacity<ArchTag, SharedStorageSize, TileShape>::value);\n"
MUTANTS += of(
    SMEM,
    "include/cutlass/arch/arch.h",
    [
        (
            "SM90's kernels have to fit into SM120's blocks, and SM120's needn't",
            "  static_assert(ArchTag::kMinComputeCapability != 120 || Shared",
            "  static_assert(ArchTag::kMinComputeCapability == 120 || Shared",
        ),
        (
            "a kernel that fills the shared memory exactly isn't compiled",
            "SharedStorageSize <= sm120_smem_capacity_bytes,\n",
            "SharedStorageSize < sm120_smem_capacity_bytes,\n",
        ),
        (
            "SM120's kernels may have as much shared memory as SM100's",
            "SharedStorageSize <= sm120_smem_capacity_bytes,\n",
            "SharedStorageSize <= sm100_smem_capacity_bytes,\n",
        ),
    ],
)
MUTANTS += [
    ByHand(
        "the cooperative kernel isn't checked",
        SMEM,
        f"{SM90_KERNELS}_cooperative.hpp",
        SMEM_ASSERT,
        "",
    ),
    ByHand(
        "the pingpong kernel isn't checked",
        SMEM,
        f"{SM90_KERNELS}_pingpong.hpp",
        SMEM_ASSERT,
        "",
    ),
    ByHand(
        "the pingpong kernel is checked as one for SM90",
        SMEM,
        f"{SM90_KERNELS}_pingpong.hpp",
        SMEM_ASSERT,
        SMEM_ASSERT.replace("<ArchTag,", "<cutlass::arch::Sm90,"),
    ),
    ByHand(
        "the cooperative kernel is checked without its epilogue",
        SMEM,
        f"{SM90_KERNELS}_cooperative.hpp",
        SMEM_ASSERT,
        SMEM_ASSERT.replace("SharedStorageSize", "int(sizeof(typename CollectiveMainloop::SharedStorage))"),
    ),
]
