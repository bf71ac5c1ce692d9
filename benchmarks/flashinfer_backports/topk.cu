// FlashInfer v0.6.1's radix top-k kernels that several blocks share a row in, behind C functions. For flashinfer_backports.py.
#include <cub/cub.cuh>
#include "math.cuh"
#include "topk.cuh"

extern "C" int mask_logits(float* logits, float* out, int k, int rows, int vocabulary, void* states, void* stream) {
  return flashinfer::sampling::RadixTopKMaskLogitsMultiCTA<float, int>(
      logits, out, nullptr, rows, k, vocabulary, static_cast<flashinfer::sampling::RadixRowState*>(states),
      static_cast<cudaStream_t>(stream));
}
extern "C" int top_k(float* logits, int* ids, float* values, int k, int rows, int vocabulary, void* states,
                     void* stream) {
  return flashinfer::sampling::RadixTopKMultiCTA<float, int>(
      logits, ids, values, nullptr, rows, k, vocabulary, static_cast<flashinfer::sampling::RadixRowState*>(states),
      static_cast<cudaStream_t>(stream));
}
