"""Ways to break FlashInfer's and CUTLASS's patches that their proofs once didn't see; see by_hand_vllm.py.

Each is a name, a patch, a file of the patched tree, what it has there once, and what that becomes.
"""

from __future__ import annotations

MOE = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm"
BINDING = "csrc/fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu"
MUTANTS: list[tuple[str, str, str, str, str]] = [
    (
        "head_dim_vo for head_dim_qk in the sink module's name",
        "flashinfer/attention-sink-jit-uri",
        "flashinfer/attention.py",
        """\
                head_dim_qk,
                head_dim_vo,
                PosEncodingMode\
""",
        """\
                head_dim_vo,
                head_dim_vo,
                PosEncodingMode\
""",
    ),
    (
        "head_dim_qk for head_dim_vo in the sink module's name",
        "flashinfer/attention-sink-jit-uri",
        "flashinfer/attention.py",
        """\
                head_dim_qk,
                head_dim_vo,
                PosEncodingMode\
""",
        """\
                head_dim_qk,
                head_dim_qk,
                PosEncodingMode\
""",
    ),
    (
        "another dtype_o in the sink module's name than it is compiled for",
        "flashinfer/attention-sink-jit-uri",
        "flashinfer/attention.py",
        """\
                q_data_type,  # dtype_o
                torch.int32,  # dtype_idx\
""",
        """\
                kv_data_type,  # dtype_o
                torch.int32,  # dtype_idx\
""",
    ),
    (
        "any float taken for a scale of one",
        "flashinfer/jit-module-scales",
        "flashinfer/utils.py",
        "(isinstance(scale, (int, float)) and scale == 1)",
        "isinstance(scale, (int, float))",
    ),
    (
        "SM90 always with PDL",
        "flashinfer/grouped-gemm-pdl",
        f"{MOE}/launchers/moe_gemm_tma_ws_launcher.inl",
        """\
#ifdef CUTLASS_ENABLE_GDC_FOR_SM90
  if constexpr (is_sm90) return CUTLASS_VERSION >= 430;
#endif\
""",
        "  if constexpr (is_sm90) return true;",
    ),
    (
        "multiplier 16 to 2 in the minimal profile",
        "flashinfer/moe-mxfp4-build-profile",
        BINDING,
        """\
      mInnerDimMultiplier = 16;  // 16 FP4 -> 1 LONG
      mKernelRunner = switch_output_type<__nv_fp8_e4m3, __nv_fp4_e2m1>(mOutputDtype);
    } else {\
""",
        """\
      mInnerDimMultiplier = 2;  // 16 FP4 -> 1 LONG
      mKernelRunner = switch_output_type<__nv_fp8_e4m3, __nv_fp4_e2m1>(mOutputDtype);
    } else {\
""",
    ),
    (
        "the choice before tuning inverted",
        "flashinfer/sm120-small-n-tiles",
        BINDING,
        "is_small && rows_per_expert <= tile_n(config)",
        "is_small && rows_per_expert > tile_n(config)",
    ),
    (
        "128x64 never dispatched",
        "flashinfer/sm120-small-n-tiles",
        f"{MOE}/moe_gemm_template_dispatch_tma_ws.h",
        """\
        SHAPE_CASE(120, 128, 64, 128)
""",
        "",
    ),
    (
        "8 KiB reserved on all architectures",
        "flashinfer/sm120-finalize-stages",
        f"{MOE}/launchers/moe_gemm_tma_ws_launcher.inl",
        "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 1024 : 0;",
        "constexpr int SmemAlignment = 8192;",
    ),
    (
        "the scales of A and B exchanged in the launcher",
        "flashinfer/sm120-namespace-launcher",
        f"{MOE}/launchers/moe_gemm_sm120_mixed_input_launcher.inl",
        """\
  mainloop.ptr_SFA = SwapAB ? sf_weight : sf_act;
  mainloop.ptr_SFB = SwapAB ? sf_act : sf_weight;\
""",
        """\
  mainloop.ptr_SFA = SwapAB ? sf_act : sf_weight;
  mainloop.ptr_SFB = SwapAB ? sf_weight : sf_act;\
""",
    ),
    (
        "a kernel that fits to the byte refused",
        "cutlass/array-smem-capacity",
        "include/cutlass/arch/arch.h",
        "SharedStorageSize <= sm120_smem_capacity_bytes",
        "SharedStorageSize < sm120_smem_capacity_bytes",
    ),
]
