"""Ways to break vLLM's patches that add Triton kernels or compile FlashInfer's, in both sets.

Used by test_by_hand.py, which explains how to run them.
"""

from __future__ import annotations

from by_hand_vllm import ByHand
from by_hand_vllm import of as _of

ENVS, FLASHINFER = "vllm/envs.py", "vllm/utils/flashinfer.py"
QUANTIZER, CHOICE, BUILD = "vllm/mxfp8-triton-quantizer", "vllm/moe-triton-topk", "vllm/mxfp4-moe-build-first"
QUANTIZER_FILE = "vllm/model_executor/layers/quantization/utils/mxfp8_triton.py"
QUANTIZED = "vllm/model_executor/layers/quantization/utils/mxfp8_utils.py"
MXFP4, ORACLE = (
    "vllm/model_executor/layers/quantization/mxfp4.py",
    "vllm/model_executor/layers/fused_moe/oracle/mxfp4.py",
)
MOE = "vllm/model_executor/layers/fused_moe"
ROUTER = f"{MOE}/router/fused_topk_router.py"

_KERNEL = [
    ("a scale covers 256, not 448", "> 0x600000)", "> 0)"),
    ("a scale covers 480", "> 0x600000)", "> 0x700000)"),
    ("a block of exactly 448 gets the next scale", "> 0x600000)", ">= 0x600000)"),
    ("scales are those of E5M2", "(bits >> 23) - 8 +", "(bits >> 23) - 15 +"),
    ("a scale has another bias", "(bits >> 23) - 8 +", "(bits >> 23) - 7 +"),
    ("a small block's exponent wraps", "    exponent = tl.maximum(exponent, 0)\n", ""),
    ("values are multiplied by half the inverse", "((254 - exponent) << 23)", "((253 - exponent) << 23)"),
    ("the largest value keeps its sign", "tl.max(tl.abs(blocks), axis=2)", "tl.max(blocks, axis=2)"),
    ("blocks are of 16", "(BLOCK_M, 4, 32))\n", "(BLOCK_M, 8, 16))\n"),
    ("values are E5M2", "values.to(tl.float8e4nv)", "values.to(tl.float8e5)"),
    ("scales are in rows", "+ (rows % 32) * 16\n        + (rows % 128) // 32 * 4\n", "+ (rows % 128) * 4\n"),
    ("the groups of 32 rows lie 16 apart", "+ (rows % 128) // 32 * 4\n", "+ (rows % 128) // 32 * 16\n"),
    ("tiles of scales go down first", "tl.num_programs(1) + tile) * 512", "1 + tile * (num_rows // 128)) * 512"),
    ("only one tile of rows has scales", "((rows // 128).to(tl.int64) * tl.num_programs(1) + tile)", "tile"),
    ("values lie as far apart as the input's rows", "tl.int64) * num_cols + cols", "tl.int64) * row_stride + cols"),
    ("the input's rows are taken for adjacent", "tl.int64) * row_stride + cols", "tl.int64) * num_cols + cols"),
    ("rows' offsets have 32 bits", "rows[:, None].to(tl.int64) * row_stride + cols", "rows[:, None] * row_stride + cols"),
    ("a row beyond the end is read", "(rows[:, None] < num_rows) & (cols", "(rows[:, None] <= num_rows) & (cols"),
    ("a partial tile reads on into the next row", "mask = (rows[:, None] < num_rows) & (cols[None, :] < num_cols)",
     "mask = (rows[:, None] < num_rows) & (cols[None, :] >= 0)"),
    ("padding holds ones", "        other=0.0,\n", "        other=1.0,\n"),
    ("scales of padded rows aren't written", "padded_m, tiles = round_up(m, 128), ", "padded_m, tiles = round_up(m, 32), "),
    ("a partial tile has no scales", "triton.cdiv(k, 128)", "k // 128"),
    ("half a block is taken", "assert k % 32 == 0 and x.stride(1) == 1", "assert x.stride(1) == 1"),
    ("a transposed input is taken", "assert k % 32 == 0 and x.stride(1) == 1", "assert k % 32 == 0"),
    ("blocks of a tile's width are asked for", "assert k % 32 == 0 and", "assert k % 128 == 0 and"),
    ("the scales' shape is their rows'", "    return values, scales\n", "    return values, scales.view(padded_m, -1)\n"),
    ("scales are FP8", "    return values, scales\n", "    return values, scales.view(torch.float8_e4m3fn)\n"),
    ("values are bytes", "    return values, scales\n", "    return values.view(torch.uint8), scales\n"),
]  # fmt: skip

_SELECTION = [
    ("logits count as weights", "tl.exp(value - best), weights)", "value, weights)"),
    ("the sum is that of the raw exponentials", "tl.sum(tl.exp(x - best), 0)", "tl.sum(tl.exp(x), 0)"),
    ("weights always add up to one", "    if RENORMALIZE:\n        total", "    if True:\n        total"),
    ("weights never add up to one", "    if RENORMALIZE:\n        total", "    if False:\n        total"),
    ("renormalization is turned round", "    if RENORMALIZE:\n        total", "    if not RENORMALIZE:\n        total"),
    ("the same expert is chosen again", "        x = tl.where(experts == index, -float(\"inf\"), x)\n", ""),
    ("each chosen expert's logit becomes 0", "(experts == index, -float(\"inf\"), x)", "(experts == index, 0.0, x)"),
    ("the worst experts are chosen", "value, index = tl.max(x, 0, return_indices=True)",
     "value, index = tl.min(x, 0, return_indices=True)"),
    ("of equal logits any is the first", "value, index = tl.max(x, 0, return_indices=True)",
     "value, index = tl.max(x, 0, return_indices=True, return_indices_tie_break_left=False)"),
    ("rows' offsets have 32 bits", "row.to(tl.int64) * row_stride + experts", "row * row_stride + experts"),
    ("experts that aren't there have a logit of 0", "        other=-float(\"inf\"),\n    ).to", "        other=0.0,\n    ).to"),
    ("what lies behind a row is read as experts", "mask=experts < num_experts,\n        other", "mask=experts >= 0,\n        other"),
    ("the last expert is never chosen", "mask=experts < num_experts,\n", "mask=experts < num_experts - 1,\n"),
    ("logits' rows are taken for adjacent", "row.to(tl.int64) * row_stride + experts", "row.to(tl.int64) * num_experts + experts"),
    ("each token has the first one's experts", "logits_ptr + row.to(tl.int64) * row_stride + experts", "logits_ptr + experts"),
    ("results lie a power of two apart", "row.to(tl.int64) * TOP_K + slots", "row.to(tl.int64) * BLOCK_K + slots"),
    ("slots beyond the last are written", "    mask = slots < TOP_K\n", "    mask = slots < BLOCK_K\n"),
    ("source rows go token by token", "slots * tl.num_programs(0) + row", "row * TOP_K + slots"),
    ("source rows are all the token", "slots * tl.num_programs(0) + row", "row + slots * 0"),
    ("a strided row is taken", "assert gating_output.stride(-1) == 1 and top_k", "assert top_k"),
    ("more experts than there are may be asked for", "== 1 and top_k <= num_experts", "== 1"),
    ("all experts can't be asked for", "top_k <= num_experts", "top_k < num_experts"),
    ("one token is left alone", "if num_tokens > 0:", "if num_tokens > 1:"),
    ("no tokens are launched", "if num_tokens > 0:", "if num_tokens >= 0:"),
    ("the router's renormalization isn't handed on", "RENORMALIZE=renormalize,", "RENORMALIZE=True,"),
    ("softmax is that of half precision", "    ).to(tl.float32)\n    best", "    ).to(tl.bfloat16).to(tl.float32)\n    best"),
]  # fmt: skip

_PADDING = [
    ("tokens that aren't padding are marked", "(is_padding_ptr + row) != 0, -1, ids)", "(is_padding_ptr + row) == 0, -1, ids)"),
    ("padding is given to expert 0", "(is_padding_ptr + row) != 0, -1, ids)", "(is_padding_ptr + row) != 0, 0, ids)"),
    ("the first token's mark counts for all", "tl.load(is_padding_ptr + row)", "tl.load(is_padding_ptr)"),
    ("padding isn't marked", "HAS_PADDING=is_padding is not None,", "HAS_PADDING=False,"),
]  # fmt: skip

_BUILD = [
    ("the module of other dtypes is asked for", "choose(torch.float8_e4m3fn, torch.long)", "choose(torch.bfloat16, torch.long)"),
    ("weights are bytes", "choose(torch.float8_e4m3fn, torch.long)", "choose(torch.float8_e4m3fn, torch.uint8)"),
    ("the small module is used whatever FlashInfer decides", "if choose is not None and choose(torch.float8_e4m3fn, torch.long):",
     "if choose is not None:"),
    ("the full module is compiled where there is a small one", "variant = {\"mxfp4_only\": True}", "variant = {}"),
    ("the module that is named isn't the one that is loaded", "core.get_cutlass_fused_moe_module(str(capability.to_int()), **variant)",
     "core.get_cutlass_fused_moe_module(str(capability.to_int()))"),
    ("the full module is the one that is looked at", "jit.gen_cutlass_fused_moe_sm120_module(**variant)",
     "jit.gen_cutlass_fused_moe_sm120_module()"),
    ("SM100's module is looked at", "spec = jit.gen_cutlass_fused_moe_sm120_module(", "spec = jit.gen_cutlass_fused_moe_sm100_module("),
    ("nothing is loaded where compiling is off", "FLASHINFER_DISABLE_JIT\") and not spec.is_aot:", "FLASHINFER_DISABLE_JIT\"):"),
    ("what is compiled already isn't loaded", "FLASHINFER_DISABLE_JIT\") and not spec.is_aot:", "FLASHINFER_DISABLE_JIT\") or spec.is_compiled:"),
    ("compiling goes on where it is off", "    if os.environ.get(\"FLASHINFER_DISABLE_JIT\") and not spec.is_aot:\n        return\n", ""),
    ("each start has the message", "    if not spec.is_compiled:\n        logger.info_once(\n            \"Compiling FlashInfer's MoE",
     "    if True:\n        logger.info_once(\n            \"Compiling FlashInfer's MoE"),
    ("the message comes where nothing is compiled", "    if not spec.is_compiled:\n        logger.info_once(\n            \"Compiling FlashInfer's MoE",
     "    if spec.is_compiled:\n        logger.info_once(\n            \"Compiling FlashInfer's MoE"),
    ("the message names the file's name alone", "            spec.get_library_path().parent,\n", "            spec.get_library_path().name,\n"),
    ("the message names no module", "            spec.name,\n            spec.get_lib", "            \"fused_moe\",\n            spec.get_lib"),
    ("SM120's module is loaded on SM121", "str(capability.to_int()), **variant", "\"120\", **variant"),
    ("the architecture is a number", "str(capability.to_int()), **variant", "capability.to_int(), **variant"),
    ("the module is compiled, not loaded", "    core.get_cutlass_fused_moe_module(str(capability.to_int()), **variant)\n", "    spec.build(verbose=False)\n"),
    ("each layer compiles", "@functools.cache\ndef build_flashinfer_sm12x", "def build_flashinfer_sm12x"),
    ("each rank logs", "            scope=\"local\",\n        )\n    capability", "            scope=\"process\",\n        )\n    capability"),
]  # fmt: skip


def _switch(patch: str, variable: str) -> list[ByHand]:
    return _of(
        patch,
        ENVS,
        [
            (f"{variable} is on by default", f'os.getenv("{variable}", "0")', f'os.getenv("{variable}", "1")'),
            (f"{variable} is on where it is 0", f'int(os.getenv("{variable}", "0"))', f'os.getenv("{variable}", "")'),
            (f"another variable is {variable}", f'os.getenv("{variable}", "0")', f'os.getenv("{variable}S", "0")'),
        ],
    )


_BOTH = [
    *_of(QUANTIZER, QUANTIZER_FILE, _KERNEL),
    *_switch(QUANTIZER, "VLLM_MXFP8_TRITON_QUANTIZE"),
    *_switch(CHOICE, "VLLM_MOE_TRITON_TOPK"),
    *_of(BUILD, FLASHINFER, _BUILD),
]

DEFAULT = [
    *_BOTH,
    *_of(CHOICE, f"{MOE}/triton_topk.py", _SELECTION),
    *_of(
        CHOICE,
        f"{MOE}/fused_moe.py",
        [
            ("the choice's switch is turned round", "    if envs.VLLM_MOE_TRITON_TOPK:", "    if not envs.VLLM_MOE_TRITON_TOPK:"),
            ("the kernel always chooses", "    if envs.VLLM_MOE_TRITON_TOPK:", "    if True:"),
            (
                "ROCm uses the kernel",
                "        return rocm_aiter_ops.topk_softmax\n    if envs.VLLM_MOE_TRITON_TOPK:\n",
                "        if not envs.VLLM_MOE_TRITON_TOPK:\n            return rocm_aiter_ops.topk_softmax\n    if envs.VLLM_MOE_TRITON_TOPK:\n",
            ),
        ],
    ),
    *_of(
        QUANTIZER,
        MXFP4,
        [
            ("the switch is turned round", "if envs.VLLM_MXFP8_TRITON_QUANTIZE:", "if not envs.VLLM_MXFP8_TRITON_QUANTIZE:"),
            ("FlashInfer gives scales in rows", "x_quant, x_scale = mxfp8_quantize(x, True, 32)", "x_quant, x_scale = mxfp8_quantize(x, False, 32)"),
            ("FlashInfer pads to 128", "x_quant, x_scale = mxfp8_quantize(x, True, 32)", "x_quant, x_scale = mxfp8_quantize(x, True, 128)"),
            ("the kernel's values and scales are swapped", "x_quant, x_scale = mxfp8_quantize_swizzled(x)", "x_scale, x_quant = mxfp8_quantize_swizzled(x)"),
        ],
    ),
    *_of(
        BUILD,
        MXFP4,
        [
            (
                "all backends compile",
                "            self.mxfp4_backend == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8\n            and current",
                "            current",
            ),
            (
                "the backend of BF16 activations compiles",
                "self.mxfp4_backend == Mxfp4Backend.CUTLASS_BLACKWELL_MXFP4_MXFP8\n            and current",
                "self.mxfp4_backend == Mxfp4Backend.SM90_FI_MXFP4_BF16\n            and current",
            ),
            (
                "SM100 compiles SM12x's kernels",
                "is_device_capability_family(120)\n        ):\n            build_",
                "has_device_capability(100)\n        ):\n            build_",
            ),
            (
                "SM121 compiles nothing",
                "is_device_capability_family(120)\n        ):\n            build_",
                "is_device_capability(120)\n        ):\n            build_",
            ),
            ("nothing is compiled", "            build_flashinfer_sm12x_cutlass_moe()\n", "            pass\n"),
        ],
    ),
]  # fmt: skip

NEWEST = [
    *_BOTH,
    *_of(CHOICE, f"{MOE}/router/triton_topk.py", [*_SELECTION, *_PADDING]),
    *_of(
        CHOICE,
        ROUTER,
        [
            ("the choice's switch is turned round", "    if envs.VLLM_MOE_TRITON_TOPK:", "    if not envs.VLLM_MOE_TRITON_TOPK:"),
            ("the kernel always chooses", "    if envs.VLLM_MOE_TRITON_TOPK:", "    if True:"),
            (
                "ROCm uses the kernel",
                "        return rocm_aiter_ops.topk_softmax\n    if envs.VLLM_MOE_TRITON_TOPK:\n",
                "        if not envs.VLLM_MOE_TRITON_TOPK:\n            return rocm_aiter_ops.topk_softmax\n    if envs.VLLM_MOE_TRITON_TOPK:\n",
            ),
            (
                "weights aren't renormalized",
                "    triton_topk_softmax(\n        topk_weights,\n        topk_indices,\n        token_expert_indices,\n        gating_output,\n        renormalize,\n",
                "    triton_topk_softmax(\n        topk_weights,\n        topk_indices,\n        token_expert_indices,\n        gating_output,\n        False,\n",
            ),
            (
                "ids and source rows are swapped",
                "    triton_topk_softmax(\n        topk_weights,\n        topk_indices,\n        token_expert_indices,\n",
                "    triton_topk_softmax(\n        topk_weights,\n        token_expert_indices,\n        topk_indices,\n",
            ),
            (
                "padding never reaches the kernel",
                "        gating_output,\n        renormalize,\n        is_padding=_get_padding_mask(topk_indices.shape[0]),\n    )\n\n    return topk_weights, topk_indices\n\n\ndef vllm_topk_sigmoid",
                "        gating_output,\n        renormalize,\n    )\n\n    return topk_weights, topk_indices\n\n\ndef vllm_topk_sigmoid",
            ),
            (
                "padding is that of as many tokens as experts are chosen",
                "is_padding=_get_padding_mask(topk_indices.shape[0]),\n    )\n\n    return topk_weights, topk_indices\n\n\ndef vllm_topk_sigmoid",
                "is_padding=_get_padding_mask(topk_indices.shape[1]),\n    )\n\n    return topk_weights, topk_indices\n\n\ndef vllm_topk_sigmoid",
            ),
            (
                "the router gets ids for weights",
                "    return topk_weights, topk_indices\n\n\ndef vllm_topk_sigmoid",
                "    return topk_indices, topk_weights\n\n\ndef vllm_topk_sigmoid",
            ),
            (
                "renormalization is the default",
                "    renormalize: bool = False,\n) -> tuple[torch.Tensor, ...]:\n    triton_topk",
                "    renormalize: bool = True,\n) -> tuple[torch.Tensor, ...]:\n    triton_topk",
            ),
        ],
    ),
    *_of(
        QUANTIZER,
        QUANTIZED,
        [
            (
                "scales are swizzled where rows are asked for",
                "envs.VLLM_MXFP8_TRITON_QUANTIZE and is_sf_swizzled_layout and x.ndim == 2",
                "envs.VLLM_MXFP8_TRITON_QUANTIZE and x.ndim == 2",
            ),
            (
                "batches of matrices are given to the kernel",
                "envs.VLLM_MXFP8_TRITON_QUANTIZE and is_sf_swizzled_layout and x.ndim == 2",
                "envs.VLLM_MXFP8_TRITON_QUANTIZE and is_sf_swizzled_layout",
            ),
            (
                "the kernel is used where rows are asked for",
                "envs.VLLM_MXFP8_TRITON_QUANTIZE and is_sf_swizzled_layout and",
                "envs.VLLM_MXFP8_TRITON_QUANTIZE and not is_sf_swizzled_layout and",
            ),
            (
                "the kernel is always used",
                "envs.VLLM_MXFP8_TRITON_QUANTIZE and is_sf_swizzled_layout and",
                "is_sf_swizzled_layout and",
            ),
            (
                "the kernel's values and scales are swapped",
                "        return mxfp8_quantize_swizzled(x)\n",
                "        return mxfp8_quantize_swizzled(x)[::-1]\n",
            ),
            (
                "the kernel quantizes the contiguous rows' transpose",
                "        return mxfp8_quantize_swizzled(x)\n",
                "        return mxfp8_quantize_swizzled(x.T)\n",
            ),
            (
                "the kernel is used below SM100 alone",
                "    if envs.VLLM_MXFP8_TRITON_QUANTIZE and is_sf",
                "    if not current_platform.has_device_capability(100) and envs.VLLM_MXFP8_TRITON_QUANTIZE and is_sf",
            ),
        ],
    ),
    *_of(
        BUILD,
        ORACLE,
        [
            ("all backends compile", "backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8\n        and current", "current"),
            (
                "the backend of BF16 activations compiles",
                "backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8\n        and current",
                "backend == Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_BF16\n        and current",
            ),
            ("SM100 compiles SM12x's kernels", "is_device_capability_family(120)\n    ):\n        build_", "has_device_capability(100)\n    ):\n        build_"),
            ("SM121 compiles nothing", "is_device_capability_family(120)\n    ):\n        build_", "is_device_capability(120)\n    ):\n        build_"),
            ("SM100's family compiles", "is_device_capability_family(120)\n    ):\n        build_", "is_device_capability_family(100)\n    ):\n        build_"),
            ("nothing is compiled", "        build_flashinfer_sm12x_cutlass_moe()\n", "        pass\n"),
        ],
    ),
    *_of(
        BUILD,
        MXFP4,
        [
            (
                "gpt-oss compiles nothing",
                "select_mxfp4_moe_backend(moe)\n        build_mxfp4_moe_kernels(self.mxfp4_backend)\n",
                "select_mxfp4_moe_backend(moe)\n",
            ),
            ("other models compile nothing", "            build_mxfp4_moe_kernels(self.mxfp4_backend)\n", ""),
        ],
    ),
]  # fmt: skip
