// Included before all else: an adapter in place of CUTLASS's, with no kernel to compile. It is asked for the workspace
// in place of its stages and shared memory, and notes the arguments that it would launch with.
#pragma once
#define GemmUniversalAdapter LaunchingGemmUniversalAdapter
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#undef GemmUniversalAdapter

namespace cutlass::gemm::device {

// A, B, their strides, their scales and the scales' layouts, as an SM120 kernel would be given them.
inline void const* noted[8];
inline bool noted_pdl;

template <class Mainloop>
auto note(Mainloop const& m, int) -> decltype(m.ptr_SFA, void()) {
  void const* const all[] = {m.ptr_A, m.ptr_B, m.dA, m.dB, m.ptr_SFA, m.ptr_SFB, m.layout_SFA, m.layout_SFB};
  for (int i = 0; i < 8; ++i) noted[i] = all[i];
}
template <class Mainloop>
void note(Mainloop const&, long) {}

template <class Kernel>
struct GemmUniversalAdapter {
  using GemmKernel = Kernel;
  using Arguments = typename Kernel::Arguments;
  static size_t get_workspace_size(Arguments const&) {
    return size_t(Kernel::CollectiveMainloop::DispatchPolicy::Stages) * 1000000 + Kernel::SharedStorageSize;
  }
  static Status can_implement(Arguments const&) { return Status::kSuccess; }
  Status initialize(Arguments const& args, void* = nullptr, cudaStream_t = nullptr) {
    note(args.mainloop, 0);
    return Status::kSuccess;
  }
  Status run(cudaStream_t = nullptr, void* = nullptr, bool launch_with_pdl = false) {
    noted_pdl = launch_with_pdl;
    return Status::kSuccess;
  }
};

// That adapter for a launcher's stage count: tells the bytes too that are kept from the stages, beyond the epilogue's own.
template <class StageCount>
struct Counting {
  template <class Kernel>
  struct Adapter : GemmUniversalAdapter<Kernel> {
    static size_t get_workspace_size(typename Kernel::Arguments const& args) {
      constexpr size_t kept = StageCount::bytes - sizeof(typename Kernel::CollectiveEpilogue::SharedStorage);
      return kept * 100'000'000 + GemmUniversalAdapter<Kernel>::get_workspace_size(args);
    }
  };
};

}  // namespace cutlass::gemm::device
