// FlashInfer v0.6.1's expandInputRows and doActivation, MXFP8 for MXFP4 weights, behind C functions: of the tree as it is,
// or without one patch. For flashinfer_backports.py.
#include "kernels.cuh"

namespace ck = tensorrt_llm::kernels::cutlass_kernels;
using bf16 = __nv_bfloat16;

extern "C" void expand(uint8_t const* in, uint8_t* out, int const* source, int64_t tokens, int64_t width, int top_k,
                       int experts, int64_t* first, uint8_t* sf, uint8_t const* input_sf, int pdl, void* stream) {
  ck::QuantParams quant{};
  quant.mxfp8_mxfp4.fc1.weight_block_scale = reinterpret_cast<decltype(quant.mxfp8_mxfp4.fc1.weight_block_scale)>(sf);
  ck::expandInputRowsKernelLauncher<__nv_fp8_e4m3, __nv_fp8_e4m3>(
      reinterpret_cast<__nv_fp8_e4m3 const*>(in), reinterpret_cast<__nv_fp8_e4m3*>(out), nullptr, nullptr, source,
      tokens, width, top_k, experts, quant, false, first, sf, input_sf, false, nullptr, pdl,
      static_cast<cudaStream_t>(stream));
}
extern "C" void activate(uint8_t* out, void const* result, void const* bias, int64_t const* first, int experts,
                         int64_t width, int64_t rows, float const* alpha, float const* beta, float const* limit,
                         uint8_t* sf, int pdl, void* stream) {
  ck::QuantParams quant{};
  quant.mxfp8_mxfp4.fc2.weight_block_scale = reinterpret_cast<decltype(quant.mxfp8_mxfp4.fc2.weight_block_scale)>(sf);
  ck::doActivation<__nv_fp8_e4m3, bf16, bf16>(
      reinterpret_cast<__nv_fp8_e4m3*>(out), static_cast<bf16 const*>(result), nullptr, static_cast<bf16 const*>(bias),
      true, first, experts, width, rows, ck::ActivationParams(ck::ActivationType::SwigluBias, alpha, beta, limit),
      quant, false, sf, pdl, static_cast<cudaStream_t>(stream));
}
