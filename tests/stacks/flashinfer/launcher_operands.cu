// What a launcher of SM120's grouped GEMMs of FP8 activations and FP4 weights hands to its kernels, over the adapter of
// recording_adapter.h: "case, kernel: answer" lines. A case is a change of an input that has all operands. CUDA is
// this program's own: there needn't be a GPU.
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <cstdio>
#include <cstring>

#include "cutlass/arch/mma.h"
#include "cutlass_extensions/epilogue_helpers.h"
#include "tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.h"

namespace adapter = cutlass::gemm::device;
using Input = tensorrt_llm::kernels::cutlass_kernels::TmaWarpSpecializedGroupedGemmInput;
using Fusion = Input::EpilogueFusion;
using Tile = cute::Shape<cute::Int<128>, cute::Int<128>, cute::Int<128>>;
using Cluster = cute::Shape<cute::Int<1>, cute::Int<1>, cute::Int<1>>;
using Groups = Input::ProblemShape::UnderlyingProblemShape;
using cutlass::Status;

// CUDA's answers.
cudaError_t pending, loading, copying, waiting;
cudaStreamCaptureStatus capturing;
cudaStream_t const stream = static_cast<cudaStream_t>(adapter::point_to("stream"));
extern "C" {
cudaError_t cudaGetLastError() { return std::exchange(pending, cudaSuccess); }
cudaError_t cudaGetDevice(int* device) { return *device = 3, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr asked, int device) {
  *value = asked == cudaDevAttrMaxSharedMemoryPerBlockOptin && device == 3 ? 101376 : -1;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void const*) { return loading; }
cudaError_t cudaStreamIsCapturing(cudaStream_t asked, cudaStreamCaptureStatus* status) {
  *status = asked == stream ? capturing : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, void const* from, size_t size, cudaMemcpyKind kind, cudaStream_t asked) {
  auto const answer = from && asked == stream && kind == cudaMemcpyDeviceToHost ? copying : cudaErrorInvalidValue;
  if (answer == cudaSuccess) std::memcpy(to, from, size);
  if (answer != cudaSuccess) pending = answer;
  return answer;
}
cudaError_t cudaStreamSynchronize(cudaStream_t asked) {
  auto const answer = asked == stream ? waiting : cudaErrorInvalidValue;
  if (answer != cudaSuccess) pending = answer;
  return answer;
}
}

auto const at = adapter::point_to;

Input whole() {
  Input input{};
  input.shape_info = {8, static_cast<Groups*>(at("shapes")), nullptr};
  input.ptr_act = static_cast<void const**>(at("act"));
  input.ptr_weight = static_cast<void const**>(at("weight"));
  input.stride_act = at("act_stride");
  input.stride_weight = at("weight_stride");
  input.fpX_block_scaling_factors_act = static_cast<Input::ElementSF const**>(at("act_scales"));
  input.fpX_block_scaling_factors_weight = static_cast<Input::ElementSF const**>(at("weight_scales"));
  input.fpX_block_scaling_factors_stride_act = at("act_layout");
  input.fpX_block_scaling_factors_stride_weight = at("weight_layout");
  input.alpha_scale_ptr_array = static_cast<float const**>(at("alphas"));
  input.ptr_d = static_cast<void**>(at("output"));
  input.stride_d = at("output_stride");
  input.stride_c = at("c_stride");
  auto& finalize = input.fused_finalize_epilogue;
  finalize.ptr_final_output = at("final_output");
  finalize.ptr_bias = static_cast<void const**>(at("bias"));
  finalize.ptr_router_scales = static_cast<float const**>(at("router_scales"));
  finalize.ptr_source_token_index = static_cast<int const**>(at("token_index"));
  finalize.num_rows_in_final_output = 17;
  finalize.shape_override = 18;
  finalize.use_reduction = false;
  cute::get<0>(finalize.stride_final_output) = 19;
  cute::get<1>(finalize.stride_final_output_transposed) = 20;
  input.gemm_workspace = static_cast<uint8_t*>(at("workspace"));
  input.gemm_workspace_size = size_t{1} << 40;
  input.enable_pdl = true;
  return input;
}

template <Fusion F, bool SwapAB, class Output = __nv_bfloat16>
struct Asked {
  static char const* kernel() {
    if (!std::is_same_v<Output, __nv_bfloat16>) return "standard of FP16";
    if (F == Fusion::NONE) return SwapAB ? "swapped" : "standard";
    return SwapAB ? "finalize swapped" : "finalize";
  }

  static void launch(Input const& input, int* occupancy = nullptr, size_t* workspace = nullptr) {
    tensorrt_llm::kernels::cutlass_kernels_oss::tma_warp_specialized_generic_moe_gemm_kernelLauncher<
        cutlass::arch::Sm120, __nv_fp8_e4m3, __nv_fp4_e2m1, Output, void,
        tensorrt_llm::cutlass_extensions::EpilogueOpDefault, F, Tile, Cluster, true, false, false, SwapAB>(
        input, 9, 48, stream, occupancy, workspace, {}, {});
  }

  // What the launcher does with an input that `change` has changed.
  template <class Change>
  static void say(char const* name, Change change, int* occupancy = nullptr) {
    Input input = whole();
    input.swap_ab = SwapAB;
    input.fusion = F;
    change(input);
    adapter::noted.clear(), adapter::calls.clear();
    std::printf("%s, %s: ", name, kernel());
    try {
      launch(input, occupancy);
      std::printf("%s; %s\n", adapter::calls.c_str(), adapter::noted.c_str());
    } catch (std::exception const& error) {
      std::string text = error.what();
      text = text.substr(0, text.find(" ("));  // where it was thrown, and a backtrace
      std::printf("%s; refused: %s; pending %d\n", adapter::calls.c_str(), text.c_str(), int(pending));
    }
    waits = true;
    pending = loading = copying = waiting = cudaSuccess;
    capturing = cudaStreamCaptureStatusNone;
    adapter::implements = adapter::initializes = adapter::runs = Status::kSuccess;
  }

  static void all() {
    size_t needed = 0;
    // As calcMaxWorkspaceSize asks: nothing but the number of experts is known.
    Input bare{};
    bare.swap_ab = SwapAB;
    launch(bare, nullptr, &needed);
    std::printf("query, %s: %zu; %s\n", kernel(), needed, adapter::noted.c_str());

    say("whole", [](Input&) {});
    say("not asked to overlap", [](Input& input) { input.enable_pdl = false; });
    say("the kernel doesn't wait", [](Input&) { waits = false; });
    say("without bias", [](Input& input) { input.fused_finalize_epilogue.ptr_bias = nullptr; });
    say("reduced", [](Input& input) { input.fused_finalize_epilogue.use_reduction = true; });
    say("one row", [](Input& input) { input.fused_finalize_epilogue.num_rows_in_final_output = 1; });
    say("without alphas", [](Input& input) { input.alpha_scale_ptr_array = nullptr; });
    say("workspace that fits", [&](Input& input) { input.gemm_workspace_size = needed; });
    say("workspace a byte too small", [&](Input& input) { input.gemm_workspace_size = needed - 1; });

    int occupancy = 0;
    say("occupancy", [](Input&) {}, &occupancy);
    say("other orientation", [](Input& input) { input.swap_ab = !SwapAB; });
    say("other fusion", [](Input& input) { input.fusion = F == Fusion::NONE ? Fusion::FINALIZE : Fusion::NONE; });
    say("a C", [](Input& input) { input.ptr_c = static_cast<void const**>(at("c")); });
    say("no act", [](Input& input) { input.ptr_act = nullptr; });
    say("no weight", [](Input& input) { input.ptr_weight = nullptr; });
    say("no act stride", [](Input& input) { input.stride_act = nullptr; });
    say("no weight stride", [](Input& input) { input.stride_weight = nullptr; });
    say("no act scales", [](Input& input) { input.fpX_block_scaling_factors_act = nullptr; });
    say("no weight scales", [](Input& input) { input.fpX_block_scaling_factors_weight = nullptr; });
    say("no act layout", [](Input& input) { input.fpX_block_scaling_factors_stride_act = nullptr; });
    say("no weight layout", [](Input& input) { input.fpX_block_scaling_factors_stride_weight = nullptr; });
    say("no output", [](Input& input) { input.ptr_d = nullptr; });
    say("no output stride", [](Input& input) { input.stride_d = nullptr; });
    say("no final output", [](Input& input) { input.fused_finalize_epilogue.ptr_final_output = nullptr; });
    say("no router scales", [](Input& input) { input.fused_finalize_epilogue.ptr_router_scales = nullptr; });
    say("no token index", [](Input& input) { input.fused_finalize_epilogue.ptr_source_token_index = nullptr; });
    say("no row", [](Input& input) { input.fused_finalize_epilogue.num_rows_in_final_output = 0; });
    say("not implemented", [](Input& input) {
      input.shape_info = {8, nullptr, nullptr};
      adapter::implements = Status::kErrorInvalidProblem;
    });
    say("not initialized", [](Input& input) {
      input.shape_info = {8, nullptr, nullptr};
      adapter::initializes = Status::kErrorInternal;
      pending = cudaErrorInvalidValue;
    });
    say("not loaded", [](Input& input) {
      input.shape_info = {8, nullptr, nullptr};
      adapter::runs = Status::kErrorInternal;
      loading = cudaErrorNoKernelImageForDevice;
    });
    // Groups without a row or a column are left out; the ninth of the others is not told.
    static Groups shapes[12];
    for (int i = 0; i < 12; ++i) shapes[i] = {i == 1 ? 0 : 100 + i, i == 2 ? 0 : 200 + i, 300 + i};
    auto const with = [](Input& input, int groups) {
      adapter::initializes = Status::kErrorInternal;
      input.shape_info = {groups, shapes, nullptr};
    };
    say("eight groups told", [&](Input& input) { with(input, 10); });
    say("nine groups told", [&](Input& input) { with(input, 11); });
    say("ten groups told", [&](Input& input) { with(input, 12); });
    say("capturing", [&](Input& input) { with(input, 2), capturing = cudaStreamCaptureStatusActive; });
    say("not copied", [&](Input& input) { with(input, 2), copying = cudaErrorIllegalAddress; });
    say("not waited for", [&](Input& input) { with(input, 2), waiting = cudaErrorIllegalAddress; });
#ifndef NDEBUG
    // The kernel's own failure shows once it is waited for.
    say("failed later", [](Input&) { waiting = cudaErrorIllegalAddress; });
#endif
  }
};

int main() {
#ifdef NAME
  std::printf("name, named: %s\n", NAME.c_str());
#endif
  waits = true;
  Asked<Fusion::NONE, false>::all();
  Asked<Fusion::NONE, true>::all();
  Asked<Fusion::FINALIZE, false>::all();
  Asked<Fusion::FINALIZE, true>::all();
  Asked<Fusion::NONE, false, half>::all();
}
