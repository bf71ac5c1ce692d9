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

UMA, RESERVE = "vllm/unified-memory", "vllm/unified-memory-reserve"
PROFILING = "vllm/unified-memory-profiling"
MEM_UTILS, WORKER = "vllm/utils/mem_utils.py", "vllm/v1/worker/gpu_worker.py"
WORKER_UTILS, RUNNER = "vllm/v1/worker/utils.py", "vllm/v1/worker/gpu_model_runner.py"

MEMORY = [
    *of(
        UMA,
        MEM_UTILS,
        [
            (
                "the page cache does not count as free memory on UMA",
                "        return psutil.virtual_memory().available\n    return torch.accelerator",
                "        return psutil.virtual_memory().free\n    return torch.accelerator",
            ),
            (
                "memory that others release during a capture is a negative graph size on UMA",
                "    return max(taken, 0) if is_integrated_device(device) else taken\n",
                "    return taken\n",
            ),
            (
                "what torch holds is no lower bound of what this instance consumed",
                "        consumed = max(consumed, current.torch_memory - baseline.torch_memory, 0)\n",
                "        consumed = max(consumed, 0)\n",
            ),
            (
                "the error of a discrete GPU whose memory others release never fires",
                """\
    if is_integrated_device(baseline.device_):
        consumed = max(consumed, current.torch_memory - baseline.torch_memory, 0)
    return consumed
""",
                """\
    consumed = max(consumed, current.torch_memory - baseline.torch_memory, 0)
    return consumed
""",
            ),
            (
                "a snapshot of one device measures the free memory of the current one",
                "        self.free_memory = get_free_memory(device)\n",
                "        self.free_memory = get_free_memory()\n",
            ),
        ],
    ),
    *of(
        UMA,
        WORKER,
        [
            (
                "sleep may grow the memory of a discrete GPU, but not of a UMA one",
                "        assert freed_bytes >= 0 or is_integrated_device(), (\n",
                "        assert freed_bytes >= 0 or not is_integrated_device(), (\n",
            ),
            (
                "memory that others release on UMA still fails the start",
                "            assert profile_result.total_consumed >= 0, (\n",
                "            assert init_free_memory >= free_gpu_memory, (\n",
            ),
        ],
    ),
    *of(
        UMA,
        RUNNER,
        [
            (
                "the size of the captured graphs is the difference of two kinds of readings",
                """\
            torch.accelerator.empty_cache()
            start_free_gpu_memory = get_free_memory()
""",
                """\
            torch.accelerator.empty_cache()
            start_free_gpu_memory = torch.accelerator.get_memory_info()[0]
""",
            ),
        ],
    ),
    *of(
        UMA,
        "vllm/v1/worker/gpu/spec_decode/eagle/utils.py",
        [
            (
                "Eagle's loader compares weights on the CPU where CUDA reports too little",
                "    if w.is_cuda and get_free_memory(w.device) < w.numel() * 2:\n",
                "    if w.is_cuda and torch.accelerator.get_memory_info(w.device)[0] < w.numel() * 2:\n",
            ),
        ],
    ),
    *of(
        UMA,
        "vllm/v1/worker/mm_encoder_model_runner.py",
        [
            (
                "the encoder runner still asks CUDA for the size of its graphs",
                """\
            start_free_memory = get_free_memory()
            encoder_runner.capture()
            graph_memory = get_memory_taken(start_free_memory)
""",
                """\
            start_free_memory = torch.accelerator.get_memory_info()[0]
            encoder_runner.capture()
            graph_memory = start_free_memory - torch.accelerator.get_memory_info()[0]
""",
            ),
        ],
    ),
    *of(
        RESERVE,
        WORKER_UTILS,
        [
            (
                "a reserve of 0 is taken for none given, and 5% are kept",
                "    if cache_config.unified_memory_reserve_bytes is not None:\n",
                "    if cache_config.unified_memory_reserve_bytes:\n",
            ),
            (
                "the default reserve shrinks with the memory that is free at startup",
                "    return init_snapshot.total_memory // 20\n",
                "    return init_snapshot.free_memory // 20\n",
            ),
            (
                "a GPU with memory of its own keeps a reserve, too",
                """\
    if not current_platform.is_integrated_gpu(init_snapshot.device_.index):
        return 0
    if cache_config""",
                """\
    if cache_config""",
            ),
            (
                "the reserve is taken from the whole memory, not from what is available",
                "    allowed_memory = init_snapshot.free_memory - reserve\n",
                "    allowed_memory = init_snapshot.total_memory - reserve\n",
            ),
            (
                "a machine with less than the reserve left gives a negative budget",
                "    if allowed_memory <= 0:\n",
                "    if init_snapshot.free_memory <= 0:\n",
            ),
            (
                "an instance that asks for little gets all that the reserve leaves",
                "    if allowed_memory < requested_memory:\n",
                "    if allowed_memory != requested_memory:\n",
            ),
            (
                "an engine whose weights another process holds keeps no reserve",
                "        return keep_unified_memory_reserve(engine_memory, init_snapshot, cache_config)\n",
                "        return engine_memory\n",
            ),
        ],
    ),
    *of(
        RESERVE,
        "vllm/config/cache.py",
        [
            (
                "another reserve compiles the model again, as it is part of the hash",
                '            "unified_memory_reserve_bytes",\n',
                "",
            ),
        ],
    ),
    *of(
        RESERVE,
        "vllm/engine/arg_utils.py",
        [
            (
                "--unified-memory-reserve-bytes is parsed and has no effect",
                "            unified_memory_reserve_bytes=self.unified_memory_reserve_bytes,\n",
                "",
            ),
        ],
    ),
    *of(
        RESERVE,
        WORKER,
        [
            (
                "the suggested --kv-cache-memory takes the reserve of the machine",
                "                - get_unified_memory_reserve(self.init_snapshot, self.cache_config)\n",
                "",
            ),
        ],
    ),
    *of(
        PROFILING,
        WORKER,
        [
            (
                "the profiling run may take only as much as the weights leave of the limit",
                "    limit = (snapshot.torch_memory + allowed_memory) / snapshot.total_memory\n",
                "    limit = allowed_memory / snapshot.total_memory\n",
            ),
            (
                "profiling raises a limit that was set on the process before",
                "    torch.cuda.set_per_process_memory_fraction(min(limit, fraction), worker.device)\n",
                "    torch.cuda.set_per_process_memory_fraction(min(limit, 1.0), worker.device)\n",
            ),
            (
                "a limit that was set on the process is gone after profiling",
                """\
    finally:
        torch.cuda.set_per_process_memory_fraction(fraction, worker.device)
""",
                """\
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, worker.device)
""",
            ),
            (
                "profiling is limited on discrete GPUs, too",
                """\
        not is_integrated_device()
        or torch.cuda.memory.get_allocator_backend() != "native"
""",
                """\
        not is_integrated_device()
        and torch.cuda.memory.get_allocator_backend() != "native"
""",
            ),
            (
                "with a given KV cache, profiling may take the reserve of the machine",
                "        allowed_memory = snapshot.free_memory - reserve - kv_cache_memory_bytes\n",
                "        allowed_memory = snapshot.free_memory - kv_cache_memory_bytes\n",
            ),
            (
                "what the weights took is not subtracted from the limit, as the snapshots are swapped",
                """\
        allowed_memory = worker.requested_memory - get_consumed_memory(
            init_snapshot, snapshot
        )
""",
                """\
        allowed_memory = worker.requested_memory - get_consumed_memory(
            snapshot, init_snapshot
        )
""",
            ),
            (
                "profiling starts although nothing is left for it",
                "    if allowed_memory <= 0:\n        raise ValueError(\n",
                "    if snapshot.free_memory <= 0:\n        raise ValueError(\n",
            ),
            (
                "with a given KV cache, profiling is limited by the utilization that is ignored there",
                "                limit_profiling_memory(self, kv_cache_memory_bytes),\n",
                "                limit_profiling_memory(self),\n",
            ),
            (
                "the profiling of CUDA graphs is not limited",
                """\
            with limit_profiling_memory(self):
                cudagraph_memory_estimate = self.model_runner.profile_cudagraph_memory()
""",
                """\
            cudagraph_memory_estimate = self.model_runner.profile_cudagraph_memory()
""",
            ),
            (
                "a discrete GPU without memory for the KV cache fails with the error for UMA",
                "        if is_integrated_device() and self.available_kv_cache_memory_bytes <= 0:\n",
                "        if self.available_kv_cache_memory_bytes <= 0:\n",
            ),
        ],
    ),
]

TARGETS, BUILD_FIRST = "vllm/targets-beside-activation", "vllm/mxfp4-moe-build-first"
SINKS = "vllm/attention-sinks-switch"
QUANT_ARGS, UTILS_FLASHINFER = "vllm/config/quantization.py", "vllm/utils/flashinfer.py"
ORACLE = "vllm/model_executor/layers/fused_moe/oracle/mxfp4.py"
MXFP4 = "vllm/model_executor/layers/quantization/mxfp4.py"

TARGETS_AND_SWITCHES = [
    *of(
        TARGETS,
        QUANT_ARGS,
        [
            (
                "targets go with a weight for the experts if it has an activation",
                "            self.moe.weight is None and self.moe.activation is not None\n",
                "            self.moe.activation is not None\n",
            ),
            (
                "targets go with linear if the experts have an activation alone",
                "        if self.linear is not None or (self.moe is not None and not activation_only):\n",
                "        if not activation_only and (self.linear is not None or self.moe is not None):\n",
            ),
        ],
    ),
    *of(
        TARGETS,
        ORACLE,
        [
            (
                "MXFP4 experts that use the activation are refused, as their read is not counted",
                "    return args.read_moe_activation()\n",
                "    return args.moe.activation if args.moe is not None else None\n",
            ),
        ],
    ),
    *of(
        TARGETS,
        "vllm/model_executor/layers/quantization/modelopt.py",
        [
            (
                "NVFP4 experts of ModelOpt that use the activation are refused, as their read is not counted",
                "        return args.read_moe_activation() if args is not None else None\n",
                "        return args.moe.activation if args is not None and args.moe is not None else None\n",
            ),
        ],
    ),
    *of(
        TARGETS,
        BASE_CONFIG,
        [
            (
                "experts are refused if their method uses the activation, and taken if it doesn't",
                "                and num_moe_activation_reads() == reads_before\n",
                "                and num_moe_activation_reads() != reads_before\n",
            ),
            (
                "reads are counted after the method was made, so every method seems to read nothing",
                """\
    reads_before = num_moe_activation_reads()
    base_quant_method = quant_config.get_quant_method(layer, prefix)
""",
                """\
    base_quant_method = quant_config.get_quant_method(layer, prefix)
    reads_before = num_moe_activation_reads()
""",
            ),
            (
                "a linear layer that the checkpoint quantized is refused for not using the activation of experts",
                """\
            if (
                isinstance(layer, RoutedExperts)
                and num_moe_activation_reads() == reads_before
            ):
""",
                """\
            if num_moe_activation_reads() == reads_before:
""",
            ),
            (
                "experts that the checkpoint left alone silently ignore the activation",
                """\
        if isinstance(layer, RoutedExperts):
            quant_config.online_quantization_config.check_moe_activation_is_used(
                f"{prefix} is not quantized"
            )
        return base_quant_method
""",
                """\
        return base_quant_method
""",
            ),
        ],
    ),
    *of(
        TARGETS,
        ONLINE,
        [
            (
                "an activation without targets is refused where it has no effect",
                "        if self.args.targets is not None and self.args.moe is not None:\n",
                "        if self.args.moe is not None:\n",
            ),
            (
                "a target that quantizes the experts silently overrides their activation",
                """\
            self.check_moe_activation_is_used(
                f"{prefix} is quantized by the target {target_pattern}"
            )
""",
                "",
            ),
        ],
    ),
    *of(
        BUILD_FIRST,
        ORACLE,
        [
            (
                "the module of SM12x is compiled for every backend there, and on B200 for this backend",
                """\
        backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8
        and current_platform.is_device_capability_family(120)
""",
                """\
        backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8
        or current_platform.is_device_capability_family(120)
""",
            ),
            (
                "nothing is compiled ahead on a GB10, only on SM120",
                """\
        backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8
        and current_platform.is_device_capability_family(120)
""",
                """\
        backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8
        and current_platform.is_device_capability(120)
""",
            ),
            (
                "the module is compiled for the backend with BF16 activations instead",
                """\
        backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8
        and current_platform.is_device_capability_family(120)
""",
                """\
        backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_BF16
        and current_platform.is_device_capability_family(120)
""",
            ),
        ],
    ),
    *of(
        BUILD_FIRST,
        MXFP4,
        [
            (
                "gpt-oss compiles its experts' module with the weights loaded",
                """\
        self.mxfp4_backend, self.experts_cls = select_mxfp4_moe_backend(moe)
        build_mxfp4_moe_kernels(self.mxfp4_backend)
""",
                """\
        self.mxfp4_backend, self.experts_cls = select_mxfp4_moe_backend(moe)
""",
            ),
            (
                "other MXFP4 models compile their experts' module with the weights loaded",
                """\
                moe
            )
            build_mxfp4_moe_kernels(self.mxfp4_backend)
""",
                """\
                moe
            )
""",
            ),
        ],
    ),
    *of(
        BUILD_FIRST,
        UTILS_FLASHINFER,
        [
            (
                "FlashInfer is asked about weights in uint8, which it never has for MXFP4",
                "    if choose is not None and choose(torch.float8_e4m3fn, torch.long):\n",
                "    if choose is not None and choose(torch.float8_e4m3fn, torch.uint8):\n",
            ),
            (
                "a module that is not built ahead of time is compiled although JIT is disabled",
                '    if os.environ.get("FLASHINFER_DISABLE_JIT") and not spec.is_aot:\n',
                '    if os.environ.get("FLASHINFER_DISABLE_JIT") and spec.is_aot:\n',
            ),
            (
                "each start logs a compilation of minutes, also where the module exists",
                "    if not spec.is_compiled:\n        logger.info_once(\n",
                "    if not spec.is_aot:\n        logger.info_once(\n",
            ),
            (
                "the full module is compiled ahead where the small one is used",
                "    core.get_cutlass_fused_moe_module(str(capability.to_int()), **variant)\n",
                "    core.get_cutlass_fused_moe_module(str(capability.to_int()))\n",
            ),
            (
                "the log names the full module and asks if that is compiled",
                "    spec = jit.gen_cutlass_fused_moe_sm120_module(**variant)\n",
                "    spec = jit.gen_cutlass_fused_moe_sm120_module()\n",
            ),
        ],
    ),
    *of(
        SINKS,
        "vllm/v1/attention/sink_utils.py",
        [
            (
                "layers without sinks count as layers with sinks",
                "    if not has_sinks:\n        return False\n    if envs",
                "    if envs",
            ),
            (
                "sinks are dropped without a warning",
                "        logger.warning_once(\n",
                "        logger.debug_once(\n",
            ),
        ],
    ),
    *of(
        SINKS,
        "vllm/envs.py",
        [
            (
                "sinks are dropped by default",
                '        "VLLM_ATTENTION_SINKS", "auto", ["auto", "false"]\n',
                '        "VLLM_ATTENTION_SINKS", "false", ["auto", "false"]\n',
            ),
            (
                "any other value of VLLM_ATTENTION_SINKS is taken for auto",
                """\
    "VLLM_ATTENTION_SINKS": env_with_choices(
        "VLLM_ATTENTION_SINKS", "auto", ["auto", "false"]
    ),
""",
                """\
    "VLLM_ATTENTION_SINKS": lambda: os.getenv("VLLM_ATTENTION_SINKS", "auto"),
""",
            ),
        ],
    ),
    *of(
        SINKS,
        "vllm/model_executor/layers/attention/attention.py",
        [
            (
                "backends that don't take sinks are given them as an argument",
                '            extra_impl_args.pop("sinks", None)\n',
                '            extra_impl_args["sinks"] = None\n',
            ),
            (
                "the layer still has sinks after the switch dropped them",
                '        self.has_sink = use_sinks(extra_impl_args.get("sinks") is not None)\n',
                '        self.has_sink = extra_impl_args.get("sinks") is not None\n',
            ),
        ],
    ),
    *of(
        SINKS,
        "vllm/v1/attention/backend.py",
        [
            (
                "backends without sinks are rejected although the switch drops the sinks",
                "        has_sink = use_sinks(has_sink)\n",
                "",
            ),
        ],
    ),
    *of(
        SINKS,
        VLLM_FLASHINFER,
        [
            (
                "FlashInfer's layers apply the sinks that the switch drops",
                "        if not use_sinks(sinks is not None):\n            sinks = None\n",
                "",
            ),
        ],
    ),
    *of(
        SINKS,
        "vllm/v1/attention/backends/triton_attn.py",
        [
            (
                "Triton's layers apply the sinks that the switch drops",
                "        self.sinks = sinks if use_sinks(sinks is not None) else None\n",
                "        self.sinks = sinks\n",
            ),
        ],
    ),
    *of(
        SINKS,
        "vllm/v1/attention/backends/flash_attn.py",
        [
            (
                "FlashAttention's layers apply the sinks that the switch drops",
                "        self.sinks = sinks if use_sinks(sinks is not None) else None\n",
                "        self.sinks = sinks\n",
            ),
        ],
    ),
]

SINK_NAME, SINKS_LEFT_OUT = "flashinfer/attention-sink-jit-uri", "flashinfer/sinks-left-out"
PROFILE, SCALES = "flashinfer/moe-mxfp4-build-profile", "flashinfer/jit-module-scales"
STAGES, UNTUNED = "flashinfer/sm120-finalize-stages", "flashinfer/moe-untuned-tiles"
JOBS = "flashinfer/jit-jobs-by-memory"
COLLECT, SKIPPED = "flashinfer/topk-collect-sync", "flashinfer/topk-skipped-rows"
SINK_WRAPPER, SINK_MODULES = "flashinfer/attention/_core.py", "flashinfer/jit/attention/modules.py"
DECODE, PREFILL, FI_UTILS = "flashinfer/decode.py", "flashinfer/prefill.py", "flashinfer/utils.py"

FLASHINFER_ATTENTION = [
    *of(
        SINK_NAME,
        SINK_WRAPPER,
        [
            (
                "modules for sinks that differ in the dtype of the KV cache share a name",
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
                "modules for sinks that differ in the head dimension of the values share a name",
                """\
                head_dim_qk,
                head_dim_vo,
                PosEncodingMode[pos_encoding_mode].value,
""",
                """\
                head_dim_qk,
                head_dim_qk,
                PosEncodingMode[pos_encoding_mode].value,
""",
            ),
            (
                "a window of one token has the name of no window",
                "                window_left >= 0,\n                use_fp16_qk_reduction,\n",
                "                window_left > 0,\n                use_fp16_qk_reduction,\n",
            ),
            (
                "the name never has another QK reduction than the default",
                "                window_left >= 0,\n                use_fp16_qk_reduction,\n",
                "                window_left >= 0,\n",
            ),
            (
                "modules of FA2 and FA3 for sinks share a name",
                """\
            get_batch_prefill_attention_sink_uri(
                backend,
""",
                """\
            get_batch_prefill_attention_sink_uri(
                "fa2",
""",
            ),
        ],
    ),
    *of(
        SINK_NAME,
        SINK_MODULES,
        [
            (
                "modules for sinks that differ in the positional encoding share a name",
                '''\
        f"posenc_{pos_encoding_mode}_"
        f"use_swa_{use_sliding_window}_"
        f"f16qk_{use_fp16_qk_reduction}"''',
                '''\
        f"use_swa_{use_sliding_window}_"
        f"f16qk_{use_fp16_qk_reduction}"''',
            ),
            (
                "modules for sinks with and without a sliding window share a name",
                '''\
        f"use_swa_{use_sliding_window}_"
        f"f16qk_{use_fp16_qk_reduction}"''',
                '''\
        f"f16qk_{use_fp16_qk_reduction}"''',
            ),
            (
                "modules that are built ahead of time have the name of an FP16 QK reduction",
                """\
    use_sliding_window: bool,
    use_fp16_qk_reduction: bool = False,
) -> str:
    return (
        f"batch_prefill_with_attention_sink""",
                """\
    use_sliding_window: bool,
    use_fp16_qk_reduction: bool = True,
) -> str:
    return (
        f"batch_prefill_with_attention_sink""",
            ),
        ],
    ),
    *of(
        SINKS_LEFT_OUT,
        DECODE,
        [
            (
                "decode with FA3 still ignores sinks",
                '        if sinks is not None and self.resolved_backend in ("fa2", "fa3"):\n',
                '        if sinks is not None and self.resolved_backend == "fa2":\n',
            ),
            (
                "the CUDA-core decode of an auto wrapper still ignores sinks",
                '        if sinks is not None and self.resolved_backend in ("fa2", "fa3"):\n',
                '        if sinks is not None and self._backend in ("fa2", "fa3"):\n',
            ),
            (
                "the decode of cuDNN and cute-dsl, which apply sinks, refuses them",
                '        if sinks is not None and self.resolved_backend in ("fa2", "fa3"):\n',
                '        if sinks is not None and self.resolved_backend != "trtllm-gen":\n',
            ),
            (
                "decode with FA2 and FA3 is refused without sinks, too",
                '        if sinks is not None and self.resolved_backend in ("fa2", "fa3"):\n',
                '        if self.resolved_backend in ("fa2", "fa3"):\n',
            ),
            (
                "a decode wrapper with a JIT module still ignores sinks",
                '        if sinks is not None and self.resolved_backend in ("fa2", "fa3"):\n',
                """\
        if (
            sinks is not None
            and self._jit_module is None
            and self.resolved_backend in ("fa2", "fa3")
        ):
""",
            ),
        ],
    ),
    *of(
        SINKS_LEFT_OUT,
        PREFILL,
        [
            (
                "prefill with FA2, which auto selects on most GPUs, still ignores sinks",
                '        if sinks is not None and self._backend in ("fa2", "fa3"):\n',
                '        if sinks is not None and self._backend == "fa3":\n',
            ),
            (
                "only a wrapper that was never planned refuses sinks, as auto is checked",
                '        if sinks is not None and self._backend in ("fa2", "fa3"):\n',
                '        if sinks is not None and self._backend == "auto":\n',
            ),
            (
                "prefill with FA2 and FA3 is refused without sinks",
                '        if sinks is not None and self._backend in ("fa2", "fa3"):\n',
                '        if sinks is None and self._backend in ("fa2", "fa3"):\n',
            ),
        ],
    ),
    *of(
        SCALES,
        FI_UTILS,
        [
            (
                "scales are refused where the wrapper derives the scale of the logits from them",
                '    if "sm_scale" not in given_scalar_names:\n',
                '    if "sm_scale" not in scalar_names:\n',
            ),
            (
                "scales are refused although the module declares scalars for them that are derived",
                "        if scale is None or name in scalar_names:\n",
                "        if scale is None or name in given_scalar_names:\n",
            ),
            (
                "a scale of the keys is not refused if the queries have none",
                "        if scale is None or name in scalar_names:\n            continue\n",
                "        if scale is None or name in scalar_names:\n            return\n",
            ),
            (
                "a scale of the queries is accepted if the module declares one for the keys",
                '    for name, scale in (("scale_q_scalar", q_scale), ("scale_k_scalar", k_scale)):\n',
                '    for name, scale in (("scale_k_scalar", q_scale), ("scale_q_scalar", k_scale)):\n',
            ),
            (
                "a scale in a tensor is waited for, and accepted if it is one",
                "        if isinstance(scale, (int, float)) and scale == 1:\n",
                "        if scale == 1:\n",
            ),
            (
                "every scale that is a number is left out without an error",
                "        if isinstance(scale, (int, float)) and scale == 1:\n",
                "        if isinstance(scale, (int, float)):\n",
            ),
        ],
    ),
    *of(
        SCALES,
        DECODE,
        [
            (
                "decode takes the dtypes of a module's tensors for the names of its scalars",
                "            self._jit_additional_scalar_names = list(jit_args[9])\n",
                "            self._jit_additional_scalar_names = list(jit_args[8])\n",
            ),
            (
                "decode checks the scale of the queries for the keys as well",
                """\
                self._jit_additional_scalar_names,
                self._jit_additional_scalar_names,
                q_scale,
                k_scale,
            )
""",
                """\
                self._jit_additional_scalar_names,
                self._jit_additional_scalar_names,
                q_scale,
                q_scale,
            )
""",
            ),
        ],
    ),
    *of(
        SCALES,
        PREFILL,
        [
            (
                "paged prefill takes a module's tensors for scalars that the caller passed",
                """\
                    self._jit_additional_scalar_names[
                        : len(additional_args) - len(self._jit_additional_tensor_names)
                    ],
""",
                """\
                    self._jit_additional_scalar_names[: len(additional_args)],
""",
            ),
            (
                "ragged prefill with a JIT module still ignores scales",
                """\
            # All of its scalars are the caller's: none is derived here.
            check_jit_scales(
                self._jit_additional_scalar_names,
                self._jit_additional_scalar_names,
                q_scale,
                k_scale,
            )
""",
                "",
            ),
        ],
    ),
]

BINDING = "csrc/fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu"
JIT_MOE, JIT_CORE, JIT_CPP = "flashinfer/jit/fused_moe.py", "flashinfer/jit/core.py", "flashinfer/jit/cpp_ext.py"
JIT_UTILS, MOE_CORE = "flashinfer/jit/utils.py", "flashinfer/fused_moe/core.py"
TOPK_CUH = "include/flashinfer/topk.cuh"
LAUNCHER = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.inl"

FLASHINFER_MOE = [
    *of(
        PROFILE,
        JIT_MOE,
        [
            (
                "calls with other activations get the small module, which refuses them",
                "    mxfp4 = x_dtype == torch.float8_e4m3fn and weight_dtype == torch.long\n",
                "    mxfp4 = weight_dtype == torch.long\n",
            ),
            (
                "the small module is compiled although the full one exists",
                "        or not gen_cutlass_fused_moe_sm120_module(mxfp4_only=False).is_compiled\n",
                "        or not gen_cutlass_fused_moe_sm120_module(mxfp4_only=True).is_compiled\n",
            ),
            (
                "both modules have the same name, and the second one that is asked for is the first",
                '        module_name or f"fused_moe_{variant}",\n',
                '        module_name or f"fused_moe_{device_arch}",\n',
            ),
            (
                "both modules generate their sources into one folder",
                '    output_dir = jit_env.FLASHINFER_GEN_SRC_DIR / f"cutlass_instantiations/{variant}"\n',
                '    output_dir = jit_env.FLASHINFER_GEN_SRC_DIR / f"cutlass_instantiations/{device_arch}"\n',
            ),
            (
                "the small module is compiled from the sources of the full one, and misses symbols",
                """\
        variant += "_mxfp4min"
        nvcc_flags = nvcc_flags + ["-DFLASHINFER_MOE_MXFP4_ONLY"]
""",
                """\
        variant += "_mxfp4min"
""",
            ),
            (
                "the full module lacks the GEMMs of BF16 activations with FP8 weights",
                '    "bf16_fp8",\n',
                "",
            ),
            (
                "the ahead-of-time build makes the small module unless full is asked for",
                '        mxfp4_only = _sm120_moe_profile() == "mxfp4_minimal"\n',
                '        mxfp4_only = _sm120_moe_profile() != "full"\n',
            ),
        ],
    ),
    *of(
        PROFILE,
        MOE_CORE,
        [
            (
                "a GB10 (SM121) never uses the small module",
                """\
    if device_arch in ("120", "121") and use_sm120_moe_mxfp4_only(
        x_dtype, weight_dtype
    ):
""",
                """\
    if device_arch == "120" and use_sm120_moe_mxfp4_only(x_dtype, weight_dtype):
""",
            ),
        ],
    ),
    *of(
        PROFILE,
        BINDING,
        [
            (
                "the small module refuses FP8 activations with one scale a tensor",
                "    if (isWMxfp4AMxfp8Quant() || isWMxfp4AFp8Quant()) {\n      mInnerDimMultiplier = 16;  "
                "// 16 FP4 -> 1 LONG\n      mKernelRunner = switch_output_type<__nv_fp8_e4m3, __nv_fp4_e2m1>"
                "(mOutputDtype);\n    } else {\n      TVM_FFI_LOG",
                "    if (isWMxfp4AMxfp8Quant()) {\n      mInnerDimMultiplier = 16;  "
                "// 16 FP4 -> 1 LONG\n      mKernelRunner = switch_output_type<__nv_fp8_e4m3, __nv_fp4_e2m1>"
                "(mOutputDtype);\n    } else {\n      TVM_FFI_LOG",
            ),
        ],
    ),
    *of(
        PROFILE,
        "flashinfer/fused_moe/runners.py",
        [
            (
                "a runner asks for its module with the dtypes of activations and weights swapped",
                "                str(self._device_arch), self._x_dtype, self._weight_dtype\n",
                "                str(self._device_arch), self._weight_dtype, self._x_dtype\n",
            ),
        ],
    ),
    *of(
        UNTUNED,
        BINDING,
        [
            (
                "rows that just fill a tile start with the next larger one",
                "      if (is_small && rows_per_expert <= tile_n(config) &&\n",
                "      if (is_small && rows_per_expert < tile_n(config) &&\n",
            ),
            (
                "the largest of the small tiles is taken instead of the smallest",
                "          (!best.swap_ab || tile_n(config) < tile_n(best))) {\n",
                "          (!best.swap_ab || tile_n(config) > tile_n(best))) {\n",
            ),
            (
                "a tile of 128 with A and B swapped counts as small",
                "config.swap_ab && tile_n(config) < 128;",
                "config.swap_ab && tile_n(config) <= 128;",
            ),
            (
                "the rows of an average expert are rounded down, so some don't fit into the tile",
                "    int64_t const rows_per_expert = (rows + experts - 1) / experts;\n",
                "    int64_t const rows_per_expert = rows / experts;\n",
            ),
            (
                "the second GEMM starts with a tactic of the first one",
                "            ? untunedTactic(mGemm1TacticCount, mGemm2TacticCount, rows, experts)\n",
                "            ? untunedTactic(0, mGemm1TacticCount, rows, experts)\n",
            ),
            (
                "no GEMM gets a small tile, as its weights are never both kinds of MXFP4",
                "    if (!isWMxfp4AMxfp8Quant() && !isWMxfp4AFp8Quant()) return best;\n",
                "    if (!isWMxfp4AMxfp8Quant() || !isWMxfp4AFp8Quant()) return best;\n",
            ),
            (
                "the second GEMM never gets a small tile, as the loop ends at its count",
                "    for (size_t i = first; i < first + count; ++i) {\n",
                "    for (size_t i = first; i < count; ++i) {\n",
            ),
            (
                "tiles are compared by M, which is 128 for all small ones",
                "      return std::get<1>(\n          tensorrt_llm::cutlass_extensions::enum_to_shape_tuple("
                "config.tile_config_sm120));\n",
                "      return std::get<0>(\n          tensorrt_llm::cutlass_extensions::enum_to_shape_tuple("
                "config.tile_config_sm120));\n",
            ),
            (
                "a call counts its tokens and forgets that each goes to several experts",
                """\
    setRunnerProfiles(profile_ids, base_activation_type, num_rows * experts_per_token,
                      num_experts_total);

    auto stream = get_stream(input.device());

    WorkspaceInfo""",
                """\
    setRunnerProfiles(profile_ids, base_activation_type, num_rows,
                      num_experts_total);

    auto stream = get_stream(input.device());

    WorkspaceInfo""",
            ),
            (
                "the rows of all ranks are divided among the experts of one rank",
                """\
    setRunnerProfiles(profile_ids, base_activation_type, num_rows * experts_per_token,
                      num_experts_total);

    auto stream = get_stream(input.device());

    WorkspaceInfo""",
                """\
    setRunnerProfiles(profile_ids, base_activation_type, num_rows * experts_per_token,
                      num_experts_on_rank);

    auto stream = get_stream(input.device());

    WorkspaceInfo""",
            ),
        ],
    ),
]

FLASHINFER_STAGES = [
    *of(
        STAGES,
        LAUNCHER,
        [
            (
                "the finalize kernels reserve no room for alignment",
                "sizeof(typename CollectiveEpilogue::SharedStorage) + SmemAlignment)>;",
                "sizeof(typename CollectiveEpilogue::SharedStorage))>;",
            ),
            (
                "the room for alignment is added to what the stages may take",
                "sizeof(typename CollectiveEpilogue::SharedStorage) + SmemAlignment)>;",
                "sizeof(typename CollectiveEpilogue::SharedStorage) - SmemAlignment)>;",
            ),
            (
                "the room that the finalize epilogue takes is counted by the default epilogue",
                "sizeof(typename CollectiveEpilogue::SharedStorage) + SmemAlignment)>;",
                "sizeof(typename CollectiveEpilogueDefault::SharedStorage) + SmemAlignment)>;",
            ),
            (
                "room for alignment is reserved for all epilogues but the finalize one",
                "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 1024 : 0;",
                "constexpr int SmemAlignment = IsSM120 && !IsFinalizeFusion ? 1024 : 0;",
            ),
            (
                "room for alignment is reserved on SM100 instead of SM120",
                "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 1024 : 0;",
                "constexpr int SmemAlignment = IsSM10x && IsFinalizeFusion ? 1024 : 0;",
            ),
            (
                "128 bytes are reserved for an alignment of 1024",
                "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 1024 : 0;",
                "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 128 : 0;",
            ),
            (
                "finalize kernels with tiles of 128x128 lose a stage, as 16 times the alignment is reserved",
                "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 1024 : 0;",
                "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 16 * 1024 : 0;",
            ),
            (
                "finalize kernels without A and B swapped reserve no room for alignment",
                "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 1024 : 0;",
                "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion && SwapAB ? 1024 : 0;",
            ),
        ],
    ),
]

FLASHINFER_JOBS_AND_TOPK = [
    *of(
        JOBS,
        JIT_CORE,
        [
            (
                "a module's memory for its compilers is not kept, each has 3 GiB",
                "        compiler_gib=compiler_gib,\n    )\n",
                "    )\n",
            ),
            (
                "a build of several modules counts the memory of the last one",
                "        compiler_gib = max(compiler_gib, spec.compiler_gib)\n",
                "        compiler_gib = spec.compiler_gib\n",
            ),
            (
                "a build of several modules is logged only if the last one is missing",
                "        is_cold_build |= not spec.jit_library_path.exists()\n",
                "        is_cold_build = not spec.jit_library_path.exists()\n",
            ),
        ],
    ),
    *of(
        JOBS,
        JIT_CPP,
        [
            (
                "with little memory ninja gets no jobs at all, which is no limit",
                "    jobs = max(available // (compiler_gib << 30), 1)\n",
                "    jobs = available // (compiler_gib << 30)\n",
            ),
            (
                "a compiler counts as megabytes, so that nothing is limited",
                "    jobs = max(available // (compiler_gib << 30), 1)\n",
                "    jobs = max(available // (compiler_gib << 20), 1)\n",
            ),
            (
                "jobs are limited where memory is sufficient, and not where it is short",
                "    if jobs >= default_jobs:\n        return None\n",
                "    if jobs <= default_jobs:\n        return None\n",
            ),
        ],
    ),
    *of(
        JOBS,
        JIT_MOE,
        [
            (
                "a compiler of the fused MoE counts as 3 GiB",
                "        compiler_gib=9,  # 7 to 10 GiB for a grouped GEMM\n",
                "",
            ),
        ],
    ),
    *of(
        JOBS,
        JIT_UTILS,
        [
            (
                "the page cache of a checkpoint that was just read counts as used in a container",
                """\
            current -= min(_cgroup_page_cache_bytes("/sys/fs/cgroup"), current)
""",
                "",
            ),
            (
                "the page cache of a container's children is not counted in cgroup v1",
                '                _cgroup_page_cache_bytes("/sys/fs/cgroup/memory", "total_"), usage\n',
                '                _cgroup_page_cache_bytes("/sys/fs/cgroup/memory"), usage\n',
            ),
            (
                "the larger one of the machine's memory and the container's limit counts",
                "    return min(candidates) if candidates else None\n",
                "    return max(candidates) if candidates else None\n",
            ),
        ],
    ),
    *of(
        COLLECT,
        TOPK_CUH,
        [
            (
                "the threads of a CTA leave the collection one by one",
                "  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.\n"
                "  __syncthreads();\n",
                "",
            ),
            (
                "only the threads of a warp wait for each other after the collection",
                "to its peers.\n  __syncthreads();\n",
                "to its peers.\n  __syncwarp();\n",
            ),
            (
                "the threads of a CTA order their writes after the collection and don't wait",
                "to its peers.\n  __syncthreads();\n",
                "to its peers.\n  __threadfence_block();\n",
            ),
            (
                "a row's only CTA doesn't wait for its threads after the collection",
                "to its peers.\n  __syncthreads();\n",
                "to its peers.\n  if constexpr (!SINGLE_CTA) __syncthreads();\n",
            ),
            (
                "a CTA with peers doesn't wait for its threads after the collection",
                "to its peers.\n  __syncthreads();\n",
                "to its peers.\n  if constexpr (SINGLE_CTA) __syncthreads();\n",
            ),
            (
                "a chunk with no more elements than the block has threads is collected without waiting",
                "to its peers.\n  __syncthreads();\n",
                "to its peers.\n  if (actual_chunk_size > BLOCK_THREADS) __syncthreads();\n",
            ),
            (
                "a CTA that has elements above the pivot doesn't wait after the collection",
                "to its peers.\n  __syncthreads();\n",
                "to its peers.\n  if (local_gt_count == 0) __syncthreads();\n",
            ),
        ],
    ),
    *of(
        SKIPPED,
        TOPK_CUH,
        [
            (
                "rows without a selection take a turn with the histograms",
                "cta_in_group, tx, num_selected++, local_gt_count, local_eq_count);",
                "cta_in_group, tx, iter, local_gt_count, local_eq_count);",
            ),
            (
                "each selection starts with the same histogram, which the one before has used",
                "cta_in_group, tx, num_selected++, local_gt_count, local_eq_count);",
                "cta_in_group, tx, num_selected, local_gt_count, local_eq_count);",
            ),
            (
                "selections take their turn with the histograms by the row's index",
                "cta_in_group, tx, num_selected++, local_gt_count, local_eq_count);",
                "cta_in_group, tx, row_idx, local_gt_count, local_eq_count);",
            ),
            (
                "a row without a selection clears a histogram that a peer may still read",
                """\
      // The histograms stay as they are: the last selection cleared the one that the next starts
      // with, and a peer may still be about to read its others.
      continue;
""",
                """\
      if constexpr (!SINGLE_CTA) {
        constexpr uint32_t NUM_ROUNDS = sizeof(OrderedType);
        if (cta_in_group == 0) {
          for (uint32_t i = tx; i < RADIX; i += BLOCK_THREADS) {
            state->histogram[((num_selected + 1) * NUM_ROUNDS) % 3][i] = 0;
          }
        }
      }
      continue;
""",
            ),
            (
                "the leading CTA sets the sum to 0 while peers may still read the one of the row before",
                "        if (iter > 0) AdvanceRadixGroupBarrier(state, barrier_phase, ctas_per_group, tx);\n",
                "",
            ),
            (
                "the second row of a group doesn't wait for the peers to read the first row's sum",
                "        if (iter > 0) AdvanceRadixGroupBarrier(state, barrier_phase, ctas_per_group, tx);\n",
                "        if (iter > 1) AdvanceRadixGroupBarrier(state, barrier_phase, ctas_per_group, tx);\n",
            ),
            (
                "a CTA waits for its own threads alone before the sum is set to 0",
                "        if (iter > 0) AdvanceRadixGroupBarrier(state, barrier_phase, ctas_per_group, tx);\n",
                "        if (iter > 0) __syncthreads();\n",
            ),
            (
                "the default path, which isn't deterministic, doesn't wait before the sum is set to 0",
                "        if (iter > 0) AdvanceRadixGroupBarrier(state, barrier_phase, ctas_per_group, tx);\n",
                "        if (DETERMINISTIC && iter > 0) AdvanceRadixGroupBarrier(state, barrier_phase, "
                "ctas_per_group, tx);\n",
            ),
        ],
    ),
]

SMEM = "cutlass/array-smem-capacity"
ARCH = "include/cutlass/arch/arch.h"
COOPERATIVE = "include/cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_cooperative.hpp"
PINGPONG = "include/cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_pingpong.hpp"
ASSERTION = """\
  // Past the capacity only cudaFuncSetAttribute fails, at launch, as kErrorInternal.
  static_assert(cutlass::arch::CheckSmemCapacity<ArchTag, SharedStorageSize, TileShape>::value);
"""

CUTLASS = [
    *of(
        SMEM,
        ARCH,
        [
            (
                "all architectures but SM120 must do with the shared memory of SM120",
                "  static_assert(ArchTag::kMinComputeCapability != 120 || SharedStorageSize",
                "  static_assert(ArchTag::kMinComputeCapability == 120 || SharedStorageSize",
            ),
            (
                "kernels of SM90 and SM100 must do with the shared memory of SM120, too",
                "  static_assert(ArchTag::kMinComputeCapability != 120 || SharedStorageSize",
                "  static_assert(SharedStorageSize",
            ),
            (
                "a kernel that needs exactly the capacity of SM120 doesn't compile",
                "SharedStorageSize <= sm120_smem_capacity_bytes,",
                "SharedStorageSize < sm120_smem_capacity_bytes,",
            ),
            (
                "a kernel of SM120 may need as much shared memory as SM100 has",
                "SharedStorageSize <= sm120_smem_capacity_bytes,",
                "SharedStorageSize <= sm100_smem_capacity_bytes,",
            ),
        ],
    ),
    *of(
        SMEM,
        COOPERATIVE,
        [
            ("the cooperative array kernel checks nothing", ASSERTION, ""),
            (
                "the cooperative array kernel counts its tensors, not its pipelines and tensor maps",
                ASSERTION,
                ASSERTION.replace("SharedStorageSize", "int(sizeof(typename SharedStorage::TensorStorage))"),
            ),
        ],
    ),
    *of(
        SMEM,
        PINGPONG,
        [
            ("the pingpong array kernel checks nothing", ASSERTION, ""),
            (
                "the pingpong array kernel is checked as the SM90 kernel that it is written for",
                ASSERTION,
                ASSERTION.replace("<ArchTag,", "<cutlass::arch::Sm90,"),
            ),
        ],
    ),
]

MUTANTS: list[ByHand] = [
    *PLATFORM_AND_PLANS,
    *TRITON_KERNELS,
    *LM_HEAD_AND_XQA,
    *PLAN_GROUPS,
    *MEMORY,
    *TARGETS_AND_SWITCHES,
    *FLASHINFER_ATTENTION,
    *FLASHINFER_MOE,
    *FLASHINFER_STAGES,
    *FLASHINFER_JOBS_AND_TOPK,
    *CUTLASS,
]
