// What a grouped GEMM for SM120 needs, what can_implement() says of it, and what initialize() returns. No matrix
// is needed: both look at the kernel alone. With -DSTAGES=N it is MXFP8 x MXFP4 with N stages, without
// MXFP4 x MXFP4 with as many as the builder chooses.
//
//   nvcc -std=c++17 --expt-relaxed-constexpr -DNDEBUG -DSTAGES=4 -gencode=arch=compute_121f,code=sm_121f \
//        -I cutlass/include -I cutlass/tools/util/include cutlass-error-internal.cu -o report && ./report
#include <cstdio>

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/group_array_problem_shape.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

using namespace cute;
using Arch = cutlass::arch::Sm120;
using D = cutlass::bfloat16_t;
using GemmTile = Shape<_128, _128, _128>;
using Cluster = Shape<_1, _1, _1>;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    Arch, cutlass::arch::OpClassBlockScaledTensorOp, GemmTile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, D, Row*, 8, D, Row*, 8,
    cutlass::epilogue::collective::EpilogueScheduleAuto>::CollectiveOp;
using B = cutlass::mx_float4_t<cutlass::float_e2m1_t>;
#ifdef STAGES
using A = cutlass::mx_float8_t<cutlass::float_e4m3_t>;
using Stages = cutlass::gemm::collective::StageCount<STAGES>;
constexpr int kAlignmentA = 16, kAlignmentB = 128;
#else
using A = B;
using Stages = cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>;
constexpr int kAlignmentA = 32, kAlignmentB = 32;
#endif
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    Arch, cutlass::arch::OpClassBlockScaledTensorOp, A, Row*, kAlignmentA, B, Column*, kAlignmentB, float, GemmTile,
    Cluster, Stages, cutlass::gemm::collective::KernelScheduleAuto>::CollectiveOp;
using Kernel =
    cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<Shape<int, int, int>>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

int main() {
  int limit = 0, major = 0, minor = 0;
  cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  std::printf("%d stages: the kernel needs %d bytes; an SM120 block may have %d, this device's (sm_%d%d) %d\n",
              Mainloop::DispatchPolicy::Stages, Kernel::SharedStorageSize,
              int(cutlass::arch::sm120_smem_capacity_bytes), major, minor, limit);
  Gemm::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  arguments.problem_shape = {1, nullptr, nullptr};
  arguments.hw_info.sm_count = 48;
  Gemm gemm;
  std::printf("can_implement(): %s\n", cutlassGetStatusString(Gemm::can_implement(arguments)));
  cudaGetLastError();
  void* workspace = nullptr;
  if (size_t const bytes = Gemm::get_workspace_size(arguments)) cudaMalloc(&workspace, bytes);
  cutlass::Status const status = gemm.initialize(arguments, workspace ? workspace : &limit);
  std::printf("initialize(): %s\n", cutlassGetStatusString(status));
  // The adapter has taken the error off the runtime, so it is asked for again.
  cudaError_t const cause = cudaFuncSetAttribute(cutlass::device_kernel<Kernel>,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::SharedStorageSize);
  std::printf("cudaFuncSetAttribute(MaxDynamicSharedMemorySize): %s\n", cudaGetErrorString(cause));
}
