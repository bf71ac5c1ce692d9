// One MXFP4 x MXFP4 product of 16 x 8 x 64 values, by CuTe's atom for SM120.
#include <cute/arch/mma_sm120.hpp>

__global__ void multiply(unsigned const* in, float* out) {
  using Mma = cute::SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<cutlass::float_e2m1_t, cutlass::float_e2m1_t, float,
                                                            cutlass::float_ue8m0_t, 32>;
  unsigned const* const mine = in + threadIdx.x * 8;
  float d[4];
  Mma::fma(d[0], d[1], d[2], d[3], mine[0], mine[1], mine[2], mine[3], mine[4], mine[5], 0.f, 0.f, 0.f, 0.f,
           static_cast<uint16_t>(mine[6]), static_cast<uint16_t>(mine[7]));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
