// Included before all else: an adapter in place of CUTLASS's, with no kernel to compile. It is asked for the workspace
// in place of its stages and shared memory, and notes the arguments that it would launch with.
#pragma once
#define GemmUniversalAdapter LaunchingGemmUniversalAdapter
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#undef GemmUniversalAdapter

#include <string>
#include <typeinfo>
#include <vector>

namespace cutlass::gemm::device {

// What a test's operands point to: each to a byte of its own, which has a name.
inline char memory[64];
inline std::vector<std::string> pointees;
inline void* point_to(char const* name) {
  for (size_t i = 0; i < pointees.size(); ++i)
    if (pointees[i] == name) return memory + i;
  pointees.push_back(name);
  return memory + pointees.size() - 1;
}

// The arguments of the last call, a word each, and the calls.
inline std::string noted, calls;
// What can_implement(), initialize() and run() answer.
inline Status implements, initializes, runs;

inline void note(char const* name, std::string const& value) { noted += std::string(name) + "=" + value + " "; }
inline void note(char const* name, double value) { note(name, std::to_string(value)); }
inline void note(char const* name, bool value) { note(name, std::string(value ? "true" : "false")); }
template <class Integer>
auto note(char const* name, Integer value) -> std::enable_if_t<std::is_integral_v<Integer>> {
  note(name, std::to_string(value));
}
inline void note(char const* name, void const* pointer) {
  size_t const i = static_cast<char const*>(pointer) - memory;
  note(name, !pointer ? std::string("null") : i < pointees.size() ? pointees[i] : std::string("elsewhere"));
}
// A stride: what the type fixes has an underscore.
template <class... T>
void note(char const* name, cute::tuple<T...> const& stride) {
  std::string all;
  cute::for_each(stride, [&](auto const& step) {
    all += (cute::is_static<std::decay_t<decltype(step)>>::value ? "_" : "") + std::to_string(int64_t(step)) + ",";
  });
  note(name, all);
}

template <class T>
void note_type(char const* name) {
  note(name, std::string(typeid(std::remove_cv_t<T>).name()));
}
template <class Pointer>
using Pointee = std::remove_pointer_t<std::remove_cv_t<std::remove_pointer_t<Pointer>>>;

template <class Thread>
auto note_fusion(Thread const& t, int) -> decltype(t.ptr_out, void()) {
  note_type<Pointee<decltype(t.ptr_out)>>("type_out"), note_type<Pointee<decltype(t.bias_ptr)>>("type_bias");
  note("alpha", double(t.alpha)), note("alpha_ptr", t.alpha_ptr), note("alphas", t.alpha_ptr_array);
  note("dAlpha", t.dAlpha), note("bias", t.bias_ptr), note("dBias", t.dBias), note("scales", t.scale_ptr_array);
  note("dScale", t.dScale), note("out", t.ptr_out), note("dOut", t.dOut), note("index", t.ptr_index);
  note("modulo", t.index_modulo), note("shape", t.shape_override), note("reduction", t.use_reduction);
}
template <class Thread>
auto note_fusion(Thread const& t, long) -> decltype(t.beta_ptr_array, void()) {
  note("alpha", double(t.alpha)), note("alpha_ptr", t.alpha_ptr), note("alphas", t.alpha_ptr_array);
  note("dAlpha", t.dAlpha), note("beta", double(t.beta)), note("beta_ptr", t.beta_ptr), note("betas", t.beta_ptr_array);
}
template <class Thread>
void note_fusion(Thread const&, ...) {}

// All that a block-scaled kernel would be given; of others nothing is asked.
template <class Kernel, class Arguments>
auto note_all(Arguments const& args, int) -> decltype(args.mainloop.ptr_SFA, void()) {
  noted.clear();
  note("grouped", args.mode == gemm::GemmUniversalMode::kGrouped), note("groups", args.problem_shape.groups());
  note("shapes", args.problem_shape.problem_shapes), note("device", args.hw_info.device_id);
  note("processors", args.hw_info.sm_count), note("swizzle", args.scheduler.max_swizzle_size);
  note("along_n", args.scheduler.raster_order == Kernel::TileScheduler::RasterOrderOptions::AlongN);
  auto const& m = args.mainloop;
  note("A", m.ptr_A), note("B", m.ptr_B), note("dA", m.dA), note("dB", m.dB), note("SFA", m.ptr_SFA);
  note("SFB", m.ptr_SFB), note("layout_SFA", m.layout_SFA), note("layout_SFB", m.layout_SFB);
  note_fusion(args.epilogue.thread, 0);
  note("C", args.epilogue.ptr_C), note("D", args.epilogue.ptr_D);
  // CUTLASS leaves these unset where there is no output but the fusion's.
  note_type<Pointee<decltype(m.ptr_A)>>("type_A"), note_type<Pointee<decltype(m.ptr_B)>>("type_B");
  note_type<Pointee<decltype(m.ptr_SFA)>>("type_SF"), note_type<Pointee<decltype(args.epilogue.ptr_D)>>("type_D");
  if (args.epilogue.ptr_D) note("dD", args.epilogue.dD), note("step_D", std::remove_pointer_t<decltype(args.epilogue.dD)>{});
}
template <class Kernel, class Arguments>
void note_all(Arguments const&, long) {}

template <class Kernel>
struct GemmUniversalAdapter {
  using GemmKernel = Kernel;
  using Arguments = typename Kernel::Arguments;
  static size_t get_workspace_size(Arguments const& args) {
    calls = "workspace";
    note_all<Kernel>(args, 0);
    return size_t(Kernel::CollectiveMainloop::DispatchPolicy::Stages) * 1000000 + Kernel::SharedStorageSize;
  }
  static Status can_implement(Arguments const& args) {
    calls += " can_implement";
    note_all<Kernel>(args, 0);
    return implements;
  }
  Status initialize(Arguments const& args, void* workspace = nullptr, cudaStream_t = nullptr) {
    calls += " initialize";
    note_all<Kernel>(args, 0);
    note("workspace", workspace);
    return initializes;
  }
  Status run(cudaStream_t stream = nullptr, void* workspace = nullptr, bool launch_with_pdl = false) {
    calls += " run";
    note("stream", stream), note("workspace_in_run", workspace), note("pdl", launch_with_pdl);
    return runs;
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
