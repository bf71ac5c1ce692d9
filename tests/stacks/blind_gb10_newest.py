"""Wrong edits of the patches of the set ``gb10-newest``, written from the patches alone.

Their author read no proof and none of the lists ``by_hand_*.py``. Each mutant is one careless edit of lines that
a patch adds: ``old``, which the patched file contains once, becomes ``new``. The list is for one run, which
measures how many such edits the proofs detect.
"""

from __future__ import annotations

from by_hand_vllm import ByHand, of

MARLIN = "vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py"
FP4_WARNING, DCP_PLANS = "vllm/marlin-fp4-warning", "vllm/prefill-plan-keywords"
BLACKWELL, MXFP8 = "vllm/blackwell-class", "vllm/mxfp8-triton-quantizer"
TOPK, LM_HEAD = "vllm/moe-triton-topk", "vllm/mxfp4-lm-head"
XQA, GROUPS = "vllm/xqa-without-cubins", "vllm/attention-hyperparameter-groups"
VLLM_FLASHINFER = "vllm/v1/attention/backends/flashinfer.py"
ONLINE = "vllm/model_executor/layers/quantization/online/base.py"
BASE_CONFIG = "vllm/model_executor/layers/quantization/base_config.py"

PLATFORM_AND_PLANS = [
    *of(
        FP4_WARNING,
        MARLIN,
        [
            (
                "the FP4 warning appears on Blackwell and is missing on older GPUs",
                "    if current_platform.has_device_capability(100):\n        return\n",
                "    if not current_platform.has_device_capability(100):\n        return\n",
            ),
            (
                "SM12x still gets the FP4 warning, as only the family of SM100 is excused",
                "    if current_platform.has_device_capability(100):\n        return\n",
                "    if current_platform.is_device_capability_family(100):\n        return\n",
            ),
            (
                "Hopper, which has no FP4, gets no FP4 warning",
                "    if current_platform.has_device_capability(100):\n        return\n",
                "    if current_platform.has_device_capability(90):\n        return\n",
            ),
            (
                "B200 and B300 still get the FP4 warning",
                "    if current_platform.has_device_capability(100):\n        return\n",
                "    if current_platform.has_device_capability(120):\n        return\n",
            ),
            (
                "the FP4 warning is written at debug level",
                """\
    logger.warning_once(
        "Your GPU does not have native support for FP4 computation but "
        "FP4 quantization is being used. Weight-only FP4 compression will "
""",
                """\
    logger.debug_once(
        "Your GPU does not have native support for FP4 computation but "
        "FP4 quantization is being used. Weight-only FP4 compression will "
""",
            ),
            (
                "NVFP4 experts on an older GPU are prepared for Marlin without a warning",
                '    warn_if_no_native_fp4()\n\n    input_dtype = get_marlin_input_dtype(prefix="")\n',
                '    input_dtype = get_marlin_input_dtype(prefix="")\n',
            ),
        ],
    ),
    *of(
        FP4_WARNING,
        "vllm/model_executor/kernels/linear/nvfp4/marlin.py",
        [
            (
                "NVFP4 linear layers on an older GPU are prepared for Marlin without a warning",
                "        warn_if_no_native_fp4()\n        prepare_fp4_layer_for_marlin(layer)\n",
                "        prepare_fp4_layer_for_marlin(layer)\n",
            ),
        ],
    ),
    *of(
        FP4_WARNING,
        "vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors_moe/"
        "compressed_tensors_moe_w4a4_mxfp4.py",
        [
            (
                "MXFP4 experts of compressed-tensors are prepared for Marlin without a warning",
                "            warn_if_no_native_fp4()\n            prepare_moe_fp4_layer_for_marlin(layer)\n",
                "            prepare_moe_fp4_layer_for_marlin(layer)\n",
            ),
        ],
    ),
    *of(
        DCP_PLANS,
        VLLM_FLASHINFER,
        [
            (
                "the DCP context pass writes its output in the dtype of the query",
                "            block_tables=block_tables,\n            o_data_type=o_data_type,\n",
                "            block_tables=block_tables,\n            o_data_type=q_data_type,\n",
            ),
            (
                "the DCP context pass is planned without an output dtype",
                "            block_tables=block_tables,\n            o_data_type=o_data_type,\n",
                "            block_tables=block_tables,\n",
            ),
            (
                "the DCP plan for new tokens is made without an output dtype",
                "            q_data_type=q_data_type,\n            o_data_type=o_data_type,\n        )\n",
                "            q_data_type=q_data_type,\n        )\n",
            ),
            (
                "the DCP plan for new tokens gets the dtype of the KV cache for its output",
                "            q_data_type=q_data_type,\n            o_data_type=o_data_type,\n        )\n",
                "            q_data_type=q_data_type,\n            o_data_type=kv_cache_dtype,\n        )\n",
            ),
            (
                "the DCP context pass gets the dtype of the KV cache for its output",
                "            block_tables=block_tables,\n            o_data_type=o_data_type,\n",
                "            block_tables=block_tables,\n            o_data_type=kv_cache_dtype,\n",
            ),
            (
                "the builder gives DCP prefill the query dtype as output dtype",
                """\
                            o_data_type=self.model_config.dtype,
                            prefill_fixed_split_size=self.prefill_fixed_split_size,
""",
                """\
                            o_data_type=self.q_data_type_prefill,
                            prefill_fixed_split_size=self.prefill_fixed_split_size,
""",
            ),
            (
                "the builder gives DCP prefill BF16 as output dtype for FP16 models too",
                """\
                            o_data_type=self.model_config.dtype,
                            prefill_fixed_split_size=self.prefill_fixed_split_size,
""",
                """\
                            o_data_type=torch.bfloat16,
                            prefill_fixed_split_size=self.prefill_fixed_split_size,
""",
            ),
        ],
    ),
    *of(
        BLACKWELL,
        "vllm/platforms/interface.py",
        [
            (
                "Thor (SM110) does not count as Blackwell",
                "        return self.major in (10, 11, 12)\n",
                "        return self.major in (10, 12)\n",
            ),
            (
                "SM12x does not count as Blackwell",
                "        return self.major in (10, 11, 12)\n",
                "        return self.major in (10, 11)\n",
            ),
            (
                "Hopper counts as Blackwell and gets its attention priorities",
                "        return self.major in (10, 11, 12)\n",
                "        return self.major >= 9\n",
            ),
            (
                "the class of a capability is a method that is always true where it is read",
                "    @property\n    def is_blackwell_class(self) -> bool:\n",
                "    def is_blackwell_class(self) -> bool:\n",
            ),
            (
                "a platform without a capability counts as Blackwell",
                "        return capability is not None and capability.is_blackwell_class\n",
                "        return capability is None or capability.is_blackwell_class\n",
            ),
            (
                "the platform answers for the first GPU, no matter which one the caller names",
                "        capability = cls.get_device_capability(device_id=device_id)\n"
                "        return capability is not None and capability.is_blackwell_class\n",
                "        capability = cls.get_device_capability()\n"
                "        return capability is not None and capability.is_blackwell_class\n",
            ),
        ],
    ),
    *of(
        BLACKWELL,
        "vllm/platforms/cuda.py",
        [
            (
                "non-causal attention on Blackwell prefers FlashInfer, whose path is known to be wrong",
                "        if device_capability.is_blackwell_class and not use_non_causal:\n",
                "        if device_capability.is_blackwell_class:\n",
            ),
            (
                "causal attention prefers FlashInfer on every GPU",
                "        if device_capability.is_blackwell_class and not use_non_causal:\n",
                "        if device_capability.is_blackwell_class or not use_non_causal:\n",
            ),
            (
                "B200 loses FlashInfer as its first choice, as the list is for SM12x only",
                "        if device_capability.is_blackwell_class and not use_non_causal:\n",
                "        if device_capability.major == 12 and not use_non_causal:\n",
            ),
        ],
    ),
]

KERNEL = "vllm/model_executor/layers/quantization/utils/mxfp8_triton.py"
TRITON_TOPK = "vllm/model_executor/layers/fused_moe/router/triton_topk.py"
ROUTER = "vllm/model_executor/layers/fused_moe/router/fused_topk_router.py"

TRITON_KERNELS = [
    *of(
        MXFP8,
        KERNEL,
        [
            (
                "a block whose largest value is exactly 448 times a power of two gets twice the scale",
                "((bits & 0x7FFFFF) > 0x600000)",
                "((bits & 0x7FFFFF) >= 0x600000)",
            ),
            (
                "every block gets twice the scale that it needs",
                "    exponent = (bits >> 23) - 8 + ((bits",
                "    exponent = (bits >> 23) - 7 + ((bits",
            ),
            (
                "blocks of zeros and of tiny values get a scale below the smallest one, which wraps around",
                "    exponent = tl.maximum(exponent, 0)\n",
                "",
            ),
            (
                "values are multiplied by twice the inverse of their scale",
                "    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)\n",
                "    inverse = ((255 - exponent) << 23).to(tl.float32, bitcast=True)\n",
            ),
            (
                "rows past the first 128 write their scales outside their tile",
                "        + (rows % 128) // 32 * 4\n",
                "        + rows // 32 * 4\n",
            ),
            (
                "tiles of scales below the first 128 rows are placed by the number of row blocks",
                "((rows // 128).to(tl.int64) * tl.num_programs(1) + tile) * 512",
                "((rows // 128).to(tl.int64) * tl.num_programs(0) + tile) * 512",
            ),
            (
                "rows that are further apart than their length are read from the wrong place",
                "        x_ptr + rows[:, None].to(tl.int64) * row_stride + cols[None, :],\n",
                "        x_ptr + rows[:, None].to(tl.int64) * num_cols + cols[None, :],\n",
            ),
            (
                "scales of padding rows are left uninitialized",
                "    _mxfp8_quantize_kernel[(padded_m // block_m, tiles)](\n",
                "    _mxfp8_quantize_kernel[(triton.cdiv(m, block_m), tiles)](\n",
            ),
        ],
    ),
    *of(
        MXFP8,
        "vllm/model_executor/layers/quantization/utils/mxfp8_utils.py",
        [
            (
                "callers that ask for linear scales get swizzled ones",
                "    if envs.VLLM_MXFP8_TRITON_QUANTIZE and is_sf_swizzled_layout and x.ndim == 2:\n",
                "    if envs.VLLM_MXFP8_TRITON_QUANTIZE and x.ndim == 2:\n",
            ),
        ],
    ),
    *of(
        MXFP8,
        "vllm/envs.py",
        [
            (
                "setting VLLM_MXFP8_TRITON_QUANTIZE to 0 switches the kernel on",
                """\
    "VLLM_MXFP8_TRITON_QUANTIZE": lambda: bool(
        int(os.getenv("VLLM_MXFP8_TRITON_QUANTIZE", "0"))
    ),
""",
                """\
    "VLLM_MXFP8_TRITON_QUANTIZE": lambda: bool(
        os.getenv("VLLM_MXFP8_TRITON_QUANTIZE", "")
    ),
""",
            ),
        ],
    ),
    *of(
        TOPK,
        TRITON_TOPK,
        [
            (
                "with a number of experts that is no power of two, missing ones take part with a logit of 0",
                '        other=-float("inf"),\n    ).to(tl.float32)\n',
                "        other=0.0,\n    ).to(tl.float32)\n",
            ),
            (
                "experts with equal logits are struck out together",
                '        x = tl.where(experts == index, -float("inf"), x)\n',
                '        x = tl.where(x == value, -float("inf"), x)\n',
            ),
            (
                "the sum of the softmax is taken without subtracting the largest logit",
                "    total = tl.sum(tl.exp(x - best), 0)\n",
                "    total = tl.sum(tl.exp(x), 0)\n",
            ),
            (
                "weights are renormalized exactly where that was not asked for",
                "    if RENORMALIZE:\n",
                "    if not RENORMALIZE:\n",
            ),
            (
                "real tokens are marked as padding, and padding is routed",
                "        ids = tl.where(tl.load(is_padding_ptr + row) != 0, -1, ids)\n",
                "        ids = tl.where(tl.load(is_padding_ptr + row) == 0, -1, ids)\n",
            ),
            (
                "padding tokens are sent to the first expert instead of being skipped",
                "        ids = tl.where(tl.load(is_padding_ptr + row) != 0, -1, ids)\n",
                "        ids = tl.where(tl.load(is_padding_ptr + row) != 0, 0, ids)\n",
            ),
            (
                "logits whose rows are further apart than their length are read from the wrong place",
                "        logits_ptr + row.to(tl.int64) * row_stride + experts,\n",
                "        logits_ptr + row.to(tl.int64) * num_experts + experts,\n",
            ),
            (
                "the source rows are numbered token by token instead of slot by slot",
                "    source_rows = slots * tl.num_programs(0) + row\n",
                "    source_rows = row * TOP_K + slots\n",
            ),
        ],
    ),
    *of(
        TOPK,
        ROUTER,
        [
            (
                "the Triton kernel is called without the padding mask",
                """\
    triton_topk_softmax(
        topk_weights,
        topk_indices,
        token_expert_indices,
        gating_output,
        renormalize,
        is_padding=_get_padding_mask(topk_indices.shape[0]),
    )
""",
                """\
    triton_topk_softmax(
        topk_weights,
        topk_indices,
        token_expert_indices,
        gating_output,
        renormalize,
    )
""",
            ),
        ],
    ),
    *of(
        TOPK,
        "vllm/envs.py",
        [
            (
                "the Triton kernel chooses the experts by default",
                'int(os.getenv("VLLM_MOE_TRITON_TOPK", "0"))',
                'int(os.getenv("VLLM_MOE_TRITON_TOPK", "1"))',
            ),
        ],
    ),
]

LM_HEAD_AND_XQA = [
    *of(
        LM_HEAD,
        BASE_CONFIG,
        [
            (
                "a target quantizes the lm_head of a quantized checkpoint without naming it",
                """\
    if isinstance(
        layer, ParallelLMHead
    ) and not quant_config.online_quantization_config.quantizes_lm_head(prefix):
        return base_quant_method
    unquantized = (
""",
                """\
    unquantized = (
""",
            ),
            (
                "an lm_head in BF16 is requantized as if the checkpoint had quantized it",
                """\
        UnquantizedFusedMoEMethod,
        UnquantizedEmbeddingMethod,
    )
    checkpoint_is_quantized""",
                """\
        UnquantizedFusedMoEMethod,
    )
    checkpoint_is_quantized""",
            ),
        ],
    ),
    *of(
        LM_HEAD,
        ONLINE,
        [
            (
                "a model counts as tied only if both of its configs tie the embedding",
                '    return any(\n        getattr(config, "tie_word_embeddings", False)\n',
                '    return all(\n        getattr(config, "tie_word_embeddings", False)\n',
            ),
            (
                "a pattern like * names the lm_head, too",
                "            if pattern in matches and name and name in pattern\n",
                "            if pattern in matches and name\n",
            ),
            (
                "an lm_head inside another module is looked for by the name of that module",
                '        name = prefix.rpartition(".")[2]\n',
                '        name = prefix.partition(".")[0]\n',
            ),
            (
                "lm_head and * together are an ambiguous pair of targets",
                """\
        if issubclass(layer_cls, ParallelLMHead):
            targets = self.get_lm_head_targets(prefix) or targets
""",
                "",
            ),
            (
                "a pattern like * over an unquantized checkpoint quantizes the lm_head silently",
                """\
            issubclass(layer_cls, ParallelLMHead) and self.get_lm_head_targets(prefix)
        ):
""",
                """\
            issubclass(layer_cls, ParallelLMHead)
        ):
""",
            ),
        ],
    ),
    *of(
        LM_HEAD,
        "vllm/model_executor/layers/quantization/online/fp8.py",
        [
            (
                "a tied lm_head that the checkpoint quantized returns to the unquantized method",
                "        layer.quant_method = self.requantization_source or UnquantizedEmbeddingMethod()\n",
                "        layer.quant_method = UnquantizedEmbeddingMethod()\n",
            ),
            (
                "the loader still processes a tied lm_head layer by layer",
                "        get_layerwise_info(layer).reset()\n",
                "",
            ),
        ],
    ),
    *of(
        LM_HEAD,
        "vllm/model_executor/models/gpt_oss.py",
        [
            (
                "the lm_head of gpt-oss gets the configuration of AWQ, GPTQ and others",
                "    return quant_config if isinstance(quant_config, Mxfp4Config) else None\n",
                "    return quant_config\n",
            ),
        ],
    ),
    *of(
        XQA,
        "vllm/utils/flashinfer.py",
        [
            (
                "prefill on SM12x is said to have TRT-LLM kernels",
                "    if current_platform.is_device_capability_family(120):\n        return not is_prefill\n",
                "    if current_platform.is_device_capability_family(120):\n        return True\n",
            ),
            (
                "a GB10 (SM121) still asks the cubin host, only SM120 doesn't",
                "    if current_platform.is_device_capability_family(120):\n        return not is_prefill\n",
                "    if current_platform.is_device_capability(120):\n        return not is_prefill\n",
            ),
            (
                "B200 is answered like SM12x and loses TRT-LLM prefill",
                "    if current_platform.is_device_capability_family(120):\n        return not is_prefill\n",
                "    if current_platform.has_device_capability(100):\n        return not is_prefill\n",
            ),
            (
                "an offline Hopper takes XQA instead of FlashAttention 3 for sinks",
                "    if current_platform.is_device_capability_family(120):\n        return not is_prefill\n",
                """\
    if current_platform.is_device_capability(
        90
    ) or current_platform.is_device_capability_family(120):
        return not is_prefill
""",
            ),
            (
                "SM12x without FlashInfer's package of cubins still asks the cubin host",
                "    if current_platform.is_device_capability_family(120):\n        return not is_prefill\n",
                """\
    if current_platform.is_device_capability_family(120) and has_flashinfer_cubin():
        return not is_prefill
""",
            ),
            (
                "batch-invariant mode on SM12x gets XQA",
                """\
    if envs.VLLM_BATCH_INVARIANT:
        return False

    # SM12x has XQA decode only. It is compiled just in time, from sources that
    # FlashInfer ships: whether cubins can be downloaded doesn't matter, and
    # without it an offline machine has no FlashInfer decode with sinks.
    if current_platform.is_device_capability_family(120):
        return not is_prefill
""",
                """\
    # SM12x has XQA decode only. It is compiled just in time, from sources that
    # FlashInfer ships: whether cubins can be downloaded doesn't matter, and
    # without it an offline machine has no FlashInfer decode with sinks.
    if current_platform.is_device_capability_family(120):
        return not is_prefill

    if envs.VLLM_BATCH_INVARIANT:
        return False
""",
            ),
            (
                "Hopper's prefill is said to have TRT-LLM kernels",
                "    if current_platform.is_device_capability(90):\n        return not is_prefill\n",
                "    if current_platform.is_device_capability(90):\n        return True\n",
            ),
        ],
    ),
]

ATTENTION_UTILS = "vllm/v1/attention/backends/utils.py"
PLAN_GROUPS = [
    *of(
        GROUPS,
        VLLM_FLASHINFER,
        [
            (
                "decode is planned with the scale of the first group for all groups",
                """\
                        pos_encoding_mode="NONE",
                        sm_scale=plan_key.sm_scale,
""",
                """\
                        pos_encoding_mode="NONE",
                        sm_scale=self.plan_keys[0].sm_scale,
""",
            ),
            (
                "prefill is planned with the window of the first group for all groups",
                """\
                            causal=attn_metadata.causal,
                            sm_scale=plan_key.sm_scale,
                            window_left=plan_key.window_left,
""",
                """\
                            causal=attn_metadata.causal,
                            sm_scale=plan_key.sm_scale,
                            window_left=self.plan_keys[0].window_left,
""",
            ),
            (
                "decode wrappers of CUDA graphs are kept under another key than they are looked up by",
                "                self._decode_wrappers_cudagraph[key, batch_size, q_len_per_req] = (\n",
                "                self._decode_wrappers_cudagraph[key, q_len_per_req, batch_size] = (\n",
            ),
            (
                "layers that a drafter adds are never read",
                "        if self._num_layers_read != len(self.layer_names):\n",
                "        if self._num_layers_read > len(self.layer_names):\n",
            ),
            (
                "sinks count only if all layers of the group have them",
                "        self.has_sinks = any(key.has_sinks for key in self.plan_keys)\n",
                "        self.has_sinks = all(key.has_sinks for key in self.plan_keys)\n",
            ),
            (
                "a draft layer without sinks gets the wrapper for sinks because its target has them",
                """\
                if key.has_sinks and (
                    current_platform.is_device_capability(90)
                    or current_platform.is_device_capability_family(120)
                ):
                    assert not self.is_kvcache_nvfp4
""",
                """\
                if self.has_sinks and (
                    current_platform.is_device_capability(90)
                    or current_platform.is_device_capability_family(120)
                ):
                    assert not self.is_kvcache_nvfp4
""",
            ),
            (
                "DCP prefill of sliding layers runs on a kernel that has no window",
                """\
                    and key.window_left == -1
                    and not key.logits_soft_cap
""",
                """\
                    and not key.logits_soft_cap
""",
            ),
            (
                "a non-causal wrapper is made only if there is no causal one for the layer",
                "            if key not in self._noncausal_prefill_wrappers:\n",
                "            if key not in self._prefill_wrappers:\n",
            ),
            (
                "only the last decode wrapper that was planned is handed to the layers",
                "                    attn_metadata.decode.wrappers[plan_key] = decode_wrapper\n",
                "                attn_metadata.decode.wrappers[plan_key] = decode_wrapper\n",
            ),
        ],
    ),
    *of(
        GROUPS,
        ATTENTION_UTILS,
        [
            (
                "the builder keeps no soft cap as None, under which no layer finds its plan",
                """\
            # None and 0 both mean no cap.
            self.logits_soft_cap or 0.0,
""",
                """\
            self.logits_soft_cap,
""",
            ),
        ],
    ),
]

MUTANTS: list[ByHand] = [*PLATFORM_AND_PLANS, *TRITON_KERNELS, *LM_HEAD_AND_XQA, *PLAN_GROUPS]
