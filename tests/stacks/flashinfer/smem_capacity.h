// Included before all else: an adapter in place of CUTLASS's, that compiles only for what a thread block of SM120
// can hold, and has no kernel to compile.
#pragma once
#define GemmUniversalAdapter LaunchingGemmUniversalAdapter
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#undef GemmUniversalAdapter

namespace cutlass::gemm::device {

template <int Bytes>
struct Needed {
  static_assert(Bytes <= cutlass::arch::sm120_smem_capacity_bytes, "more shared memory than a block has");
  static constexpr bool value = true;
};

template <class Kernel>
struct GemmUniversalAdapter {
  static_assert(Needed<Kernel::SharedStorageSize>::value);
  using GemmKernel = Kernel;
  using Arguments = typename Kernel::Arguments;
  static size_t get_workspace_size(Arguments const&) { return 0; }
  static Status can_implement(Arguments const&) { return Status::kSuccess; }
  Status initialize(Arguments const&, void* = nullptr, cudaStream_t = nullptr) { return Status::kSuccess; }
  Status run(cudaStream_t = nullptr, void* = nullptr, bool = false) { return Status::kSuccess; }
};

}  // namespace cutlass::gemm::device
