"""Ways to break FlashInfer's and CUTLASS's patches that their proofs once didn't see; see by_hand_vllm.py.

Each is a name, a patch, a file of the patched tree, what it has there once, and what that becomes.
"""

from __future__ import annotations

MOE = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm"
BINDING = "csrc/fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu"
TOPK = "include/flashinfer/topk.cuh"
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
    (
        "no block the last to leave",
        "flashinfer/topk-group-reset",
        TOPK,
        "    int last = (barrier_phase + 1) * ctas_per_group - 1;",
        "    int last = (barrier_phase + 1) * ctas_per_group;",
    ),
    (
        "the last block but one resets the state",
        "flashinfer/topk-group-reset",
        TOPK,
        "    int last = (barrier_phase + 1) * ctas_per_group - 1;",
        "    int last = (barrier_phase + 1) * ctas_per_group - 2;",
    ),
    (
        "barriers counted without the first",
        "flashinfer/topk-group-reset",
        TOPK,
        "    int last = (barrier_phase + 1) * ctas_per_group - 1;",
        "    int last = barrier_phase * ctas_per_group - 1;",
    ),
    (
        "threads don't wait for whether theirs is the last block",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    __threadfence();
  }
  __syncthreads();
  if (*shared_is_last) {\
""",
        """\
    __threadfence();
  }
  if (*shared_is_last) {\
""",
    ),
    (
        "two histograms of three cleared",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 3; ++buf) {
      for (uint32_t i = tx; i < RADIX; i += BLOCK_THREADS) {\
""",
        """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 2; ++buf) {
      for (uint32_t i = tx; i < RADIX; i += BLOCK_THREADS) {\
""",
    ),
    (
        "half of each histogram cleared",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 3; ++buf) {
      for (uint32_t i = tx; i < RADIX; i += BLOCK_THREADS) {\
""",
        """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 3; ++buf) {
      for (uint32_t i = tx; i < RADIX / 2; i += BLOCK_THREADS) {\
""",
    ),
    (
        "all blocks reset the state",
        "flashinfer/topk-group-reset",
        TOPK,
        "  if (*shared_is_last) {",
        "  if (true) {",
    ),
    (
        "the counter reset to one",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    if (tx == 0) {
      st_release(&state->arrival_counter, 0);
    }
  }
}\
""",
        """\
    if (tx == 0) {
      st_release(&state->arrival_counter, 1);
    }
  }
}\
""",
    ),
    (
        "top_k leaves without a reset",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    RadixLeaveGroup<BLOCK_THREADS>(state, barrier_phase, ctas_per_group, tx, local_histogram);
  }

#undef shared_output_counter
}\
""",
        """\
  }

#undef shared_output_counter
}\
""",
    ),
    (
        "top_k_mask_logits leaves without a reset",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    RadixLeaveGroup<BLOCK_THREADS>(state, barrier_phase, ctas_per_group, tx, local_histogram);
  }
}

template <typename DType, typename IdType>
cudaError_t RadixTopKMaskLogitsMultiCTA(\
""",
        """\
  }
}

template <typename DType, typename IdType>
cudaError_t RadixTopKMaskLogitsMultiCTA(\
""",
    ),
    (
        "top_k_renorm_probs leaves without a reset",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    RadixLeaveGroup<BLOCK_THREADS>(state, barrier_phase, ctas_per_group, tx, local_histogram);
  }
}

template <typename DType, typename IdType>
cudaError_t RadixTopKRenormProbMultiCTA(\
""",
        """\
  }
}

template <typename DType, typename IdType>
cudaError_t RadixTopKRenormProbMultiCTA(\
""",
    ),
    (
        "no barrier in RadixSelectOneRound",
        "flashinfer/topk-barrier-sync",
        TOPK,
        """\
    __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads
    if (tx == 0) {
      red_release(&state->arrival_counter, 1);
    }
    int target = (barrier_phase + 1) * ctas_per_group;
    wait_ge(&state->arrival_counter, target, tx);
    barrier_phase++;
    __syncthreads();

    // Read\
""",
        """\
    if (tx == 0) {
      red_release(&state->arrival_counter, 1);
    }
    int target = (barrier_phase + 1) * ctas_per_group;
    wait_ge(&state->arrival_counter, target, tx);
    barrier_phase++;
    __syncthreads();

    // Read\
""",
    ),
    (
        "no barrier in RadixSelectFromSharedMemory",
        "flashinfer/topk-barrier-sync",
        TOPK,
        """\
      __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads
      if (tx == 0) {
        red_release(&state->arrival_counter, 1);
      }
      int target\
""",
        """\
      if (tx == 0) {
        red_release(&state->arrival_counter, 1);
      }
      int target\
""",
    ),
    (
        "the barrier of RadixSelectOneRound after the release",
        "flashinfer/topk-barrier-sync",
        TOPK,
        """\
    __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads
    if (tx == 0) {
      red_release(&state->arrival_counter, 1);
    }\
""",
        """\
    if (tx == 0) {
      red_release(&state->arrival_counter, 1);
    }
    __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads\
""",
    ),
    (
        "the barrier of RadixSelectFromSharedMemory after the release",
        "flashinfer/topk-barrier-sync",
        TOPK,
        """\
      __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads
      if (tx == 0) {
        red_release(&state->arrival_counter, 1);
      }
      int target\
""",
        """\
      if (tx == 0) {
        red_release(&state->arrival_counter, 1);
      }
      __syncthreads();
      int target\
""",
    ),
    (
        "no barrier after the indices",
        "flashinfer/topk-collect-sync",
        TOPK,
        """\
  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.
  __syncthreads();\
""",
        "  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.",
    ),
    (
        "a barrier for one block a row alone",
        "flashinfer/topk-collect-sync",
        TOPK,
        """\
  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.
  __syncthreads();\
""",
        """\
  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.
  if constexpr (SINGLE_CTA) __syncthreads();\
""",
    ),
    (
        "a barrier for several blocks a row alone",
        "flashinfer/topk-collect-sync",
        TOPK,
        """\
  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.
  __syncthreads();\
""",
        """\
  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.
  if constexpr (!SINGLE_CTA) __syncthreads();\
""",
    ),
    (
        "skipped rows counted for the histograms",
        "flashinfer/topk-skipped-rows",
        TOPK,
        "num_selected++, local_gt_count",
        "iter, local_gt_count",
    ),
    (
        "each row by the histograms of the first",
        "flashinfer/topk-skipped-rows",
        TOPK,
        "num_selected++, local_gt_count",
        "0, local_gt_count",
    ),
    (
        "selected rows not counted",
        "flashinfer/topk-skipped-rows",
        TOPK,
        "num_selected++, local_gt_count",
        "num_selected, local_gt_count",
    ),
    (
        "every other turn with the histograms",
        "flashinfer/topk-skipped-rows",
        TOPK,
        "num_selected++, local_gt_count",
        "(num_selected += 2), local_gt_count",
    ),
    (
        "no wait in the second row",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 1) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
    (
        "no wait but in the second row",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter == 1) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
    (
        "a barrier that isn't counted",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);\
""",
    ),
    (
        "a wait for the barrier before",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = barrier_phase * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
    (
        "a block that isn't announced",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 0) {
          if (tx == 0) {
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
    (
        "the wait left to other blocks than the leading one",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          if (cta_in_group > 0) wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
]
