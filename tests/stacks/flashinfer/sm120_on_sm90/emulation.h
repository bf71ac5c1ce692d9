// What an SM120 block-scaled kernel needs and SM90 lacks, done with what SM90 has, so that the kernel's
// own source, built for sm_90a, computes on a Hopper GPU. For tests only; slow, and exact but for the
// order of sums: FP4 to FP8 is exact, and the scales are powers of two.
//
// TMA is the exception: SM90 has no format that unpacks FP4 on its way to shared memory. The test hands
// over weights that are unpacked already (16 values in 8 bytes, then 8 bytes of nothing), and a copy of
// CUTLASS's collective in which they are bytes (emulate.py writes it).
#pragma once

#define SM100_SU4_DU8x16_x4_LDSM_N SM100_SU4_DU8x16_x4_LDSM_N_upstream
#include <cute/arch/copy_sm100.hpp>
#undef SM100_SU4_DU8x16_x4_LDSM_N
#include <cute/arch/mma_sm120.hpp>

#include <cuda_fp4.h>
#include <cuda_fp8.h>

namespace cute {

// ldmatrix.m8n16.x4.b8x16.b4x16_p64: lane 8*i+r has the address of row r of matrix i, 16 values in 8
// bytes; lane l receives, of each matrix, values 4*(l%4) to +3 of row l/4, a byte each, in the low bits.
struct SM100_SU4_DU8x16_x4_LDSM_N {
  using SRegisters = uint128_t[1];
  using DRegisters = uint32_t[4];

  CUTE_DEVICE static void copy(uint128_t const& smem_src, uint32_t& dst0, uint32_t& dst1,
                               uint32_t& dst2, uint32_t& dst3) {
    uint32_t const address = cast_smem_ptr_to_uint(&smem_src);
    int const lane = threadIdx.x % 32;
    uint32_t* const dst[4] = {&dst0, &dst1, &dst2, &dst3};
    uint32_t out[4];
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) {
      uint32_t const row = __shfl_sync(0xffffffff, address, 8 * i + lane / 4);
      uint16_t packed;
      asm volatile("ld.shared.u16 %0, [%1];\n" : "=h"(packed) : "r"(row + 2 * (lane % 4)));
      uint32_t const p = packed;
      out[i] = (p & 0xf) | ((p & 0xf0) << 4) | ((p & 0xf00) << 8) | ((p & 0xf000) << 12);
    }
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) *dst[i] = out[i];
  }
};

namespace sm120_on_sm90 {

// Four E2M1 values, each in bits 5 to 2 of its byte, as E4M3.
CUTE_HOST_DEVICE uint32_t e2m1_to_e4m3(uint32_t v) {
  uint32_t out = 0;
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) {
    uint32_t const bits = (v >> (8 * i + 2)) & 0xf;
    uint32_t const e = (bits >> 1) & 3, m = bits & 1;
    // 0.5 is E2M1's only subnormal; E4M3's bias is 7, E2M1's 1.
    uint32_t const magnitude = e ? ((e + 6) << 3) | (m << 2) : (m ? 6 << 3 : 0);
    out |= (magnitude | (bits & 8) << 4) << (8 * i);
  }
  return out;
}

// Eight or sixteen values, as float or float2, rounded to E2M1: the first in the lowest bits.
template <class T, size_t N>
CUTE_HOST_DEVICE auto to_e2m1(T const (&values)[N]) {
  constexpr size_t count = N * sizeof(T) / sizeof(float);
  float const* const flat = reinterpret_cast<float const*>(values);
  std::conditional_t<count == 16, uint64_t, uint32_t> out = 0;
  CUTE_UNROLL
  for (size_t i = 0; i < count; ++i)
    out |= decltype(out)(__nv_cvt_float_to_fp4(flat[i], __NV_E2M1, cudaRoundNearest) & 15) << (4 * i);
  return out;
}

// The lane that has the scale of a row of A, and of a column of B, in a block-scaled MMA of SM120. Those two and the
// places of the results are checked against CuTe's MMA_Traits (test_sm120_on_sm90.py).
CUTE_HOST_DEVICE constexpr int lane_of_sfa(int row) { return 4 * (row % 8) + row / 8; }
CUTE_HOST_DEVICE constexpr int lane_of_sfb(int column) { return 4 * column; }

// Row and column of a lane's results 0 to 3.
CUTE_HOST_DEVICE constexpr int row_of(int lane, int result) { return lane / 4 + 8 * (result / 2); }
CUTE_HOST_DEVICE constexpr int column_of(int lane, int result) { return 2 * (lane % 4) + result % 2; }

// mma.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32 of E4M3 operands.
CUTE_DEVICE void scaled_mma(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1,
                            uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float c0, float c1,
                            float c2, float c3, uint8_t sfa, uint8_t sfb) {
  float p[4];
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};\n"
      : "=f"(p[0]), "=f"(p[1]), "=f"(p[2]), "=f"(p[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.f));
  int const lane = threadIdx.x % 32;
  int const upper = __shfl_sync(0xffffffff, int(sfa), lane_of_sfa(row_of(lane, 0)));
  int const lower = __shfl_sync(0xffffffff, int(sfa), lane_of_sfa(row_of(lane, 2)));
  int const left = __shfl_sync(0xffffffff, int(sfb), lane_of_sfb(column_of(lane, 0)));
  int const right = __shfl_sync(0xffffffff, int(sfb), lane_of_sfb(column_of(lane, 1)));
  d0 = c0 + ldexpf(p[0], upper + left - 254);
  d1 = c1 + ldexpf(p[1], upper + right - 254);
  d2 = c2 + ldexpf(p[2], lower + left - 254);
  d3 = c3 + ldexpf(p[3], lower + right - 254);
}

// The half2 of values 2 * pair and 2 * pair + 1 of eight that are packed in a register; zeros unless it is asked for.
CUTE_DEVICE uint32_t e2m1_to_half2(uint32_t packed, int pair, bool asked) {
  __half2_raw const raw = __nv_cvt_fp4x2_to_halfraw2(__nv_fp4x2_storage_t(packed >> (8 * pair)), __NV_E2M1);
  return asked ? uint32_t(raw.x) | uint32_t(raw.y) << 16 : 0;
}

// A byte's scale of a lane, as UE4M3.
CUTE_DEVICE float ue4m3_of(uint32_t scales, int block, int lane) {
  uint32_t const byte = __shfl_sync(0xffffffff, scales, lane) >> (8 * block) & 0xff;
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(byte), __NV_E4M3)));
}

// mma.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64 of E2M1 operands with UE4M3 scales. A lane has eight values of
// a row in each of A's registers, from k = 8 * (lane % 4), the last two registers from 32 on: two lanes of four have a
// block of 16. Half precision's MMA takes four of a lane's values at once, here those of one block, the others being 0.
// Not inlined: a kernel has hundreds of them, and would take many minutes to compile.
static __device__ __noinline__ void scaled_fp4_mma(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2,
                                uint32_t a3, uint32_t b0, uint32_t b1, float c0, float c1, float c2, float c3,
                                uint32_t sfa, uint32_t sfb) {
  int const lane = threadIdx.x % 32;
  float d[4] = {c0, c1, c2, c3};
  CUTE_UNROLL
  for (int block = 0; block < 4; ++block) {
    bool const here = lane % 4 / 2 == block % 2;
    uint32_t const upper = block < 2 ? a0 : a2, lower = block < 2 ? a1 : a3, right = block < 2 ? b0 : b1;
    float p[4] = {};
    CUTE_UNROLL
    for (int pair = 0; pair < 4; pair += 2)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
          : "+f"(p[0]), "+f"(p[1]), "+f"(p[2]), "+f"(p[3])
          : "r"(e2m1_to_half2(upper, pair, here)), "r"(e2m1_to_half2(lower, pair, here)),
            "r"(e2m1_to_half2(upper, pair + 1, here)), "r"(e2m1_to_half2(lower, pair + 1, here)),
            "r"(e2m1_to_half2(right, pair, here)), "r"(e2m1_to_half2(right, pair + 1, here)));
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i)
      d[i] += p[i] * (ue4m3_of(sfa, block, lane_of_sfa(row_of(lane, i))) *
                      ue4m3_of(sfb, block, lane_of_sfb(column_of(lane, i))));
  }
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}

}  // namespace sm120_on_sm90

namespace SM120::BLOCKSCALED {

struct EmulatedRegisters {
  using DRegisters = float[4];
  using ARegisters = uint32_t[4];
  using BRegisters = uint32_t[2];
  using CRegisters = float[4];
  using SFARegisters = uint8_t[1];
  using SFBRegisters = uint8_t[1];
};

template <>
struct SM120_16x8x32_TN_VS<float_e4m3_t, float_e2m1_t, float, float_ue8m0_t, 32> : EmulatedRegisters {
  CUTE_DEVICE static void fma(float& d0, float& d1, float& d2, float& d3, uint32_t const& a0,
                              uint32_t const& a1, uint32_t const& a2, uint32_t const& a3,
                              uint32_t const& b0, uint32_t const& b1, float const& c0,
                              float const& c1, float const& c2, float const& c3,
                              uint8_t const& sfa, uint8_t const& sfb) {
    using namespace sm120_on_sm90;
    scaled_mma(d0, d1, d2, d3, a0, a1, a2, a3, e2m1_to_e4m3(b0), e2m1_to_e4m3(b1), c0, c1, c2, c3,
               sfa, sfb);
  }
};

template <>
struct SM120_16x8x32_TN_VS<float_e2m1_t, float_e4m3_t, float, float_ue8m0_t, 32> : EmulatedRegisters {
  CUTE_DEVICE static void fma(float& d0, float& d1, float& d2, float& d3, uint32_t const& a0,
                              uint32_t const& a1, uint32_t const& a2, uint32_t const& a3,
                              uint32_t const& b0, uint32_t const& b1, float const& c0,
                              float const& c1, float const& c2, float const& c3,
                              uint8_t const& sfa, uint8_t const& sfb) {
    using namespace sm120_on_sm90;
    scaled_mma(d0, d1, d2, d3, e2m1_to_e4m3(a0), e2m1_to_e4m3(a1), e2m1_to_e4m3(a2),
               e2m1_to_e4m3(a3), b0, b1, c0, c1, c2, c3, sfa, sfb);
  }
};

template <>
struct SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16> : EmulatedRegisters {
  using SFARegisters = uint32_t[1];
  using SFBRegisters = uint32_t[1];
  CUTE_DEVICE static void fma(float& d0, float& d1, float& d2, float& d3, uint32_t const& a0,
                              uint32_t const& a1, uint32_t const& a2, uint32_t const& a3,
                              uint32_t const& b0, uint32_t const& b1, float const& c0,
                              float const& c1, float const& c2, float const& c3,
                              uint32_t const& sfa, uint32_t const& sfb) {
    sm120_on_sm90::scaled_fp4_mma(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3, sfa, sfb);
  }
};

}  // namespace SM120::BLOCKSCALED
}  // namespace cute
