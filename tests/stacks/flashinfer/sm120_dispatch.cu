// Which kernel FlashInfer's dispatch takes on SM120 for a tile, as MxNxK of FP8 x FP4, "s" where A and B are swapped.
// The launchers are defined here, and say which one they are, or that they are told of the other orientation; "none" where the tile is refused.
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <cstdio>
#include <cstring>

#include "cutlass/arch/mma.h"
#include "cutlass_extensions/epilogue_helpers.h"
#include "moe_gemm_kernels.h"
#include "tensorrt_llm/kernels/cutlass_kernels/moe_gemm/moe_gemm_template_dispatch_tma_ws.h"

namespace tensorrt_llm::kernels::cutlass_kernels_oss {
#define LAUNCHER(N, SWAPPED, SAID)                                                                          \
  template <>                                                                                               \
  void tma_warp_specialized_generic_moe_gemm_kernelLauncher<                                                \
      cutlass::arch::Sm120, __nv_fp8_e4m3, __nv_fp4_e2m1, __nv_bfloat16, void,                              \
      tensorrt_llm::cutlass_extensions::EpilogueOpDefault, EpilogueFusion::NONE,                            \
      cute::Shape<cute::_128, cute::Int<N>, cute::_128>, cute::Shape<cute::_1, cute::_1, cute::_1>, true,   \
      false, false, SWAPPED>(TmaWarpSpecializedGroupedGemmInput input, int, int, cudaStream_t, int*,        \
                             size_t*, cute::Shape<int32_t, int32_t, cute::_1>,                              \
                             cute::Shape<int32_t, int32_t, cute::_1>) {                                     \
    std::puts(input.swap_ab == SWAPPED ? "128x" #N "x128" SAID : "told of the other orientation");          \
  }
#define BOTH(N) LAUNCHER(N, false, "") LAUNCHER(N, true, "s")
BOTH(32) BOTH(64) BOTH(128)
}  // namespace tensorrt_llm::kernels::cutlass_kernels_oss

int main(int argc, char** argv) {
  using namespace tensorrt_llm::cutlass_extensions;
  using Input = tensorrt_llm::kernels::cutlass_kernels::TmaWarpSpecializedGroupedGemmInput;
  for (int i = 1; i < argc; ++i) {
    int m, n, k;
    std::sscanf(argv[i], "%dx%dx%d", &m, &n, &k);
    CutlassGemmConfig config{static_cast<CutlassTileConfigSM120>(shape_tuple_to_enum(m, n, k)),
                             MainloopScheduleType::AUTO, EpilogueScheduleType::AUTO,
                             ClusterShape::ClusterShape_1x1x1};
    config.swap_ab = std::strchr(argv[i], 's') != nullptr;
    try {
      tensorrt_llm::kernels::cutlass_kernels_oss::calcMaxWorkspaceSizeTmaWarpSpecialized<
          __nv_fp8_e4m3, __nv_fp4_e2m1, __nv_bfloat16, Input::EpilogueFusion::NONE>(
          8, config, 48, Input::FpXBlockScalingType::MXFPX);
    } catch (std::exception const&) {
      std::puts("none");
    }
  }
}
