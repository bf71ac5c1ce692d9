// What the SM120 mixed-input launcher answers on the host, where no GPU is needed: the workspace, and what
// it says where it can't launch. Linked with a unit of two kernels: NONE, and FINALIZE with A and B swapped.
// Prints "name: answer" lines; with any argument, only of the workspace.
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <cstdio>
#include <exception>

#include "cutlass/arch/mma.h"
#include "cutlass_extensions/epilogue_helpers.h"
#include "tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.h"

using Input = tensorrt_llm::kernels::cutlass_kernels::TmaWarpSpecializedGroupedGemmInput;
using Fusion = Input::EpilogueFusion;
using Tile = cute::Shape<cute::Int<128>, cute::Int<128>, cute::Int<128>>;
using Cluster = cute::Shape<cute::Int<1>, cute::Int<1>, cute::Int<1>>;

template <Fusion F, bool SwapAB>
void run(char const* name, Input input, size_t* workspace = nullptr) {
  try {
    tensorrt_llm::kernels::cutlass_kernels_oss::tma_warp_specialized_generic_moe_gemm_kernelLauncher<
        cutlass::arch::Sm120, __nv_fp8_e4m3, __nv_fp4_e2m1, __nv_bfloat16, void,
        tensorrt_llm::cutlass_extensions::EpilogueOpDefault, F, Tile, Cluster, true, false, false, SwapAB>(
        input, 8, 48, cudaStream_t{}, nullptr, workspace, {}, {});
    if (workspace) {
      std::printf("%s: %zu\n", name, *workspace);
    } else {
      std::printf("%s: launched\n", name);
    }
  } catch (std::exception const& error) {
    std::printf("%s: %s\n", name, error.what());
  }
}

int main(int argc, char**) {
  size_t needed = 0;
  // As calcMaxWorkspaceSize asks: nothing but the number of experts is known.
  run<Fusion::NONE, false>("workspace", Input{}, &needed);
  run<Fusion::FINALIZE, true>("workspace, finalize, swapped", Input{}, &needed);
  Input asked{};
  asked.swap_ab = true;
  run<Fusion::FINALIZE, true>("workspace, finalize, asked swapped", asked, &needed);
  if (argc > 1) return 0;  // the generic launcher says less

  // Pointers are only looked at for being there.
  void* const some = &needed;
  Input input{};
  input.shape_info = {8, nullptr, nullptr};
  input.ptr_act = input.ptr_weight = static_cast<void const**>(some);
  input.stride_act = input.stride_weight = input.stride_d = some;
  input.fpX_block_scaling_factors_act = input.fpX_block_scaling_factors_weight =
      static_cast<Input::ElementSF const**>(some);
  input.fpX_block_scaling_factors_stride_act = input.fpX_block_scaling_factors_stride_weight = some;
  input.ptr_d = static_cast<void**>(some);
  input.gemm_workspace = static_cast<uint8_t*>(some);
  input.gemm_workspace_size = size_t{1} << 30;
  run<Fusion::NONE, false>("no device", input);
  return 0;
}
