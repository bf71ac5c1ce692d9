// Which of the input's pointers the SM120 mixed-input launcher hands to its kernels, standard and with A and B swapped:
// A, B, their strides, their scales and the scales' layouts, a line a kernel; then whether PDL was asked for.
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <cstdio>

#include "cutlass/arch/mma.h"
#include "cutlass_extensions/epilogue_helpers.h"
#include "tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.h"

using Input = tensorrt_llm::kernels::cutlass_kernels::TmaWarpSpecializedGroupedGemmInput;
using Fusion = Input::EpilogueFusion;
using Tile = cute::Shape<cute::Int<128>, cute::Int<128>, cute::Int<128>>;
using Cluster = cute::Shape<cute::Int<1>, cute::Int<1>, cute::Int<1>>;

template <Fusion F, bool SwapAB>
void run(Input input) {
  alignas(64) static char memory[8];
  char const* const names[] = {"act", "weight", "act_stride", "weight_stride", "act_scales", "weight_scales",
                               "act_layout", "weight_layout"};
  auto const at = [](int i) { return static_cast<void*>(memory + i); };
  input.swap_ab = SwapAB;
  input.fusion = F;
  input.shape_info = {8, nullptr, nullptr};
  input.ptr_act = static_cast<void const**>(at(0));
  input.ptr_weight = static_cast<void const**>(at(1));
  input.stride_act = at(2);
  input.stride_weight = at(3);
  input.fpX_block_scaling_factors_act = static_cast<Input::ElementSF const**>(at(4));
  input.fpX_block_scaling_factors_weight = static_cast<Input::ElementSF const**>(at(5));
  input.fpX_block_scaling_factors_stride_act = at(6);
  input.fpX_block_scaling_factors_stride_weight = at(7);
  input.ptr_d = static_cast<void**>(at(0));
  input.stride_d = at(0);
  input.gemm_workspace_size = size_t{1} << 40;
  auto& finalize = input.fused_finalize_epilogue;
  finalize.ptr_final_output = at(0);
  finalize.ptr_router_scales = static_cast<float const**>(at(0));
  finalize.ptr_source_token_index = static_cast<int const**>(at(0));
  finalize.num_rows_in_final_output = 4;
  input.enable_pdl = true;
  try {
    tensorrt_llm::kernels::cutlass_kernels_oss::tma_warp_specialized_generic_moe_gemm_kernelLauncher<
        cutlass::arch::Sm120, __nv_fp8_e4m3, __nv_fp4_e2m1, __nv_bfloat16, void,
        tensorrt_llm::cutlass_extensions::EpilogueOpDefault, F, Tile, Cluster, true, false, false, SwapAB>(
        input, 8, 48, cudaStream_t{}, nullptr, nullptr, {}, {});
  } catch (std::exception const&) {
    // Without a GPU what follows the launch asks CUDA in vain.
  }
  for (auto const* pointer : cutlass::gemm::device::noted) {
    auto const i = static_cast<char const*>(pointer) - memory;
    std::printf("%s ", 0 <= i && i < 8 ? names[i] : "?");
  }
  std::printf("%d\n", int(cutlass::gemm::device::noted_pdl));
}

int main() {
  run<Fusion::NONE, false>(Input{});
  run<Fusion::FINALIZE, true>(Input{});
}
