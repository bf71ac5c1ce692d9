// Runs the SM120 grouped GEMM launcher of MXFP8 x MXFP4, or of NVFP4, on an SM90 GPU (emulation.h) and compares with
// a float64 reference. Prints a JSON line per case; returns 1 if one is wrong.
// Compiled with TILE_M, TILE_N (K is 128), SWAP_AB and IS_NVFP4, with WITH_NONE and WITH_FINALIZE for what it is linked
// with of that launcher.
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "cute/tensor.hpp"
#include "cutlass/arch/mma.h"
#include "cutlass/util/packed_stride.hpp"
#include "cutlass_extensions/epilogue_helpers.h"
#include "tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.h"

using Input = tensorrt_llm::kernels::cutlass_kernels::TmaWarpSpecializedGroupedGemmInput;
using Fusion = Input::EpilogueFusion;
#if IS_NVFP4
using Scales = Input::NVFP4BlockScaledConfig;
using Activation = __nv_fp4_e2m1;
constexpr int kBlock = Input::NVFP4BlockScaleVectorSize;
#else
using Scales = Input::MXFPXBlockScaledConfig;
using Activation = __nv_fp8_e4m3;
constexpr int kBlock = Input::MXFPXBlockScaleVectorSize;
#endif
using bf16 = __nv_bfloat16;

#define CHECK(call)                                                                     \
  do {                                                                                  \
    cudaError_t const error = (call);                                                   \
    if (error != cudaSuccess) {                                                         \
      std::printf("{\"error\": \"%s: %s\"}\n", #call, cudaGetErrorString(error));       \
      std::exit(2);                                                                     \
    }                                                                                   \
  } while (0)

template <class T>
T* to_device(std::vector<T> const& host) {
  T* device = nullptr;
  CHECK(cudaMalloc(&device, std::max<size_t>(host.size(), 1) * sizeof(T)));
  CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

double e4m3(uint8_t bits) {
  int const e = bits >> 3 & 15, m = bits & 7;
  double const value = e ? std::ldexp(8 + m, e - 10) : std::ldexp(m, -9);
  return bits & 128 ? -value : value;
}

double e2m1(uint8_t bits) {
  static double const values[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  return bits & 8 ? -values[bits & 7] : values[bits & 7];
}

double scale_of(uint8_t bits) { return IS_NVFP4 ? e4m3(bits) : std::ldexp(1., bits - 127); }

// Rows of blocks of values, each block with a scale, as written for the kernel.
struct Operand {
  int64_t rows, k;
  std::vector<uint8_t> values;  // one per byte: E4M3, or E2M1 in the low bits
  std::vector<uint8_t> scales;  // [rows, k / kBlock], UE8M0, or UE4M3 for NVFP4
  bool fp4;

  double at(int64_t row, int64_t i) const {
    double const v = fp4 ? e2m1(values[row * k + i]) : e4m3(values[row * k + i]);
    return v * scale_of(scales[row * (k / kBlock) + i / kBlock]);
  }

  // 16 FP4 values are 8 bytes; for MXFP4 then 8 that no one may read: they hold 0x77.
  uint8_t* device_values() const {
    if (!fp4) return to_device(values);
    if (IS_NVFP4) {
      std::vector<uint8_t> pairs(values.size() / 2);
      for (size_t i = 0; i < pairs.size(); ++i) pairs[i] = values[2 * i] | values[2 * i + 1] << 4;
      return to_device(pairs);
    }
    std::vector<uint8_t> slots(values.size(), 0x77);
    for (size_t i = 0; i < values.size(); i += 16)
      for (int j = 0; j < 8; ++j) slots[i + j] = values[i + 2 * j] | values[i + 2 * j + 1] << 4;
    return to_device(slots);
  }

  // In CUTLASS's layout, padded to whole atoms with scales that would be seen if they were used.
  template <class Layout>
  uint8_t* device_scales(Layout const& layout) const {
    int64_t const blocks = k / kBlock, padded = (rows + 127) / 128 * 128 * ((blocks + 3) / 4 * 4);
    std::vector<uint8_t> out(std::max<int64_t>(padded, 1), IS_NVFP4 ? 0x7e : 0xfe);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t block = 0; block < blocks; ++block)
        out[layout(int(row), int(block * kBlock), 0)] = scales[row * blocks + block];
    return to_device(out);
  }
};

Operand random_operand(int64_t rows, int64_t k, bool fp4, int range, std::mt19937& random) {
  Operand found{rows, k, std::vector<uint8_t>(rows * k), std::vector<uint8_t>(rows * k / kBlock), fp4};
  for (auto& v : found.values) {
    v = fp4 ? random() % 16 : random() % 256;
    if (!fp4 && (v & 127) == 127) v ^= 1;  // not NaN
  }
  for (auto& s : found.scales) {
    // UE8M0 has exponents alone; of UE4M3 all fractions, and as many exponents as it has.
    int const most = IS_NVFP4 ? std::min(range, 6) : range, exponent = int(random() % (2 * most + 1)) - most;
    s = IS_NVFP4 ? (7 + exponent) << 3 | random() % 8 : 127 + exponent;
  }
  return found;
}

__global__ void reference(double const* a, double const* b, double* d, double* magnitude, int m,
                          int n, int k) {
  int const column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= n) return;
  double sum = 0, size = 0;
  for (int i = 0; i < k; ++i) {
    double const p = a[int64_t(row) * k + i] * b[int64_t(column) * k + i];
    sum += p;
    size += fabs(p);
  }
  d[int64_t(row) * n + column] = sum;
  magnitude[int64_t(row) * n + column] = size;
}

bool run_case(char const* name, std::vector<int> const& tokens, int n, int k, int range,
              bool finalize, unsigned seed) {
  std::mt19937 random(seed);
  int const groups = tokens.size();
  std::vector<Operand> acts, weights;
  std::vector<void const*> ptr_act, ptr_weight;
  std::vector<uint8_t const*> sf_act, sf_weight;
  std::vector<Input::StrideA> stride_act;
  std::vector<Input::StrideB> stride_weight;
  std::vector<Input::ProblemShape::UnderlyingProblemShape> shapes;
  using LayoutSF = decltype(Scales::tile_atom_to_shape_SFA(cute::make_shape(1, 1, 1, 1)));
  std::vector<LayoutSF> layout_act, layout_weight;
  std::vector<Input::StrideD> stride_d;
  std::vector<Input::StrideD_T> stride_d_t;
  std::vector<void*> ptr_d;
  std::vector<int64_t> offsets;
  int64_t total = 0;
  for (int m : tokens) {
    acts.push_back(random_operand(m, k, IS_NVFP4, range, random));
    weights.push_back(random_operand(n, k, true, range, random));
    // As moe_kernels does: swapped, the weights' rows are the first dimension.
    auto const [first, second] = SWAP_AB ? std::pair{n, m} : std::pair{m, n};
    shapes.push_back(cute::make_shape(int64_t(first), int64_t(second), int64_t(k)));
    auto const problem = cute::make_shape(first, second, k, 1);
    auto const sfa = Scales::tile_atom_to_shape_SFA(problem);
    auto const sfb = Scales::tile_atom_to_shape_SFB(problem);
    layout_act.push_back(SWAP_AB ? sfb : sfa);
    layout_weight.push_back(SWAP_AB ? sfa : sfb);
    ptr_act.push_back(acts.back().device_values());
    ptr_weight.push_back(weights.back().device_values());
    sf_act.push_back(acts.back().device_scales(layout_act.back()));
    sf_weight.push_back(weights.back().device_scales(layout_weight.back()));
    stride_act.push_back(cutlass::make_cute_packed_stride(Input::StrideA{}, {m, k, 1}));
    stride_weight.push_back(cutlass::make_cute_packed_stride(Input::StrideB{}, {n, k, 1}));
    stride_d.push_back(cutlass::make_cute_packed_stride(Input::StrideD{}, {m, n, 1}));
    stride_d_t.push_back(cutlass::make_cute_packed_stride(Input::StrideD_T{}, {n, m, 1}));
    offsets.push_back(total);
    total += m;
  }
  // With the finalize step each row goes, scaled and with its expert's bias, to a row of the output.
  int const out_rows = std::max<int64_t>(finalize ? (total + 1) / 2 : total, 1);
  bf16* out = nullptr;
  CHECK(cudaMalloc(&out, sizeof(bf16) * out_rows * n));
  CHECK(cudaMemset(out, finalize ? 0 : 0x7f, sizeof(bf16) * out_rows * n));
  std::vector<int> index(total);
  std::vector<float> router(total);
  for (int64_t i = 0; i < total; ++i) index[i] = i / 2, router[i] = .25f * (1 + random() % 4);
  std::vector<bf16> bias(int64_t(groups) * n);
  for (auto& b : bias) b = __float2bfloat16(int(random() % 9) - 4);
  int const* d_index = to_device(index);
  float const* d_router = to_device(router);
  bf16 const* d_bias = to_device(bias);
  std::vector<int const*> ptr_index;
  std::vector<float const*> ptr_router;
  std::vector<void const*> ptr_bias;
  for (int g = 0; g < groups; ++g) {
    ptr_d.push_back(out + offsets[g] * n);
    ptr_index.push_back(d_index + offsets[g]);
    ptr_router.push_back(d_router + offsets[g]);
    ptr_bias.push_back(d_bias + int64_t(g) * n);
  }

  Input input{};
  input.fpX_block_scaling_type = IS_NVFP4 ? Input::FpXBlockScalingType::NVFP4 : Input::FpXBlockScalingType::MXFPX;
  input.swap_ab = SWAP_AB;
  input.shape_info = {groups, to_device(shapes), nullptr};
  input.ptr_act = to_device(ptr_act);
  input.ptr_weight = to_device(ptr_weight);
  input.stride_act = to_device(stride_act);
  input.stride_weight = to_device(stride_weight);
  input.fpX_block_scaling_factors_act = to_device(sf_act);
  input.fpX_block_scaling_factors_weight = to_device(sf_weight);
  input.fpX_block_scaling_factors_stride_act = to_device(layout_act);
  input.fpX_block_scaling_factors_stride_weight = to_device(layout_weight);
  if (finalize) {
    input.fusion = Fusion::FINALIZE;
    input.setFinalizeFusionParams(out, n, out_rows, true);
    input.fused_finalize_epilogue.ptr_bias = to_device(ptr_bias);
    input.fused_finalize_epilogue.ptr_router_scales = to_device(ptr_router);
    input.fused_finalize_epilogue.ptr_source_token_index = to_device(ptr_index);
  } else {
    input.ptr_d = to_device(ptr_d);
    input.stride_d = SWAP_AB ? static_cast<void*>(to_device(stride_d_t)) : to_device(stride_d);
  }
  int sm_count = 0;
  CHECK(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, 0));

  using Tile = cute::Shape<cute::Int<TILE_M>, cute::Int<TILE_N>, cute::Int<128>>;
  using Cluster = cute::Shape<cute::Int<1>, cute::Int<1>, cute::Int<1>>;
#ifdef WITH_NONE
  constexpr Fusion kFirst = Fusion::NONE;
#else
  constexpr Fusion kFirst = Fusion::FINALIZE;
#endif
  auto launch = [&](size_t* workspace) {
    namespace oss = tensorrt_llm::kernels::cutlass_kernels_oss;
    using Tag = tensorrt_llm::cutlass_extensions::EpilogueOpDefault;
    auto* run = &oss::tma_warp_specialized_generic_moe_gemm_kernelLauncher<
        cutlass::arch::Sm120, Activation, __nv_fp4_e2m1, bf16, void, Tag, kFirst, Tile, Cluster, !IS_NVFP4, false, false,
        SWAP_AB>;
#if defined(WITH_NONE) && defined(WITH_FINALIZE)
    if (finalize)
      run = &oss::tma_warp_specialized_generic_moe_gemm_kernelLauncher<
          cutlass::arch::Sm120, Activation, __nv_fp4_e2m1, bf16, void, Tag, Fusion::FINALIZE, Tile, Cluster, !IS_NVFP4,
          false, false, SWAP_AB>;
#endif
    run(input, groups, sm_count, cudaStream_t{}, nullptr, workspace, {}, {});
  };
  launch(&input.gemm_workspace_size);
  CHECK(cudaMalloc(&input.gemm_workspace, input.gemm_workspace_size));
  try {
    launch(nullptr);
  } catch (std::exception const& error) {
    std::string const said(error.what());  // a line, then the stack
    std::printf("{\"case\": \"%s\", \"error\": \"%s\"}\n", name, said.substr(0, said.find('\n')).c_str());
    return false;
  }
  CHECK(cudaDeviceSynchronize());
  std::vector<bf16> got(int64_t(out_rows) * n);
  CHECK(cudaMemcpy(got.data(), out, got.size() * sizeof(bf16), cudaMemcpyDeviceToHost));

  std::vector<double> want(got.size()), size(got.size()), bound(got.size());
  for (int g = 0; g < groups; ++g) {
    int const m = tokens[g];
    if (!m) continue;
    std::vector<double> a(int64_t(m) * k), b(int64_t(n) * k), d(int64_t(m) * n), s(d.size());
    for (int64_t i = 0; i < int64_t(a.size()); ++i) a[i] = acts[g].at(i / k, i % k);
    for (int64_t i = 0; i < int64_t(b.size()); ++i) b[i] = weights[g].at(i / k, i % k);
    double *da = to_device(a), *db = to_device(b), *dd = to_device(d), *ds = to_device(s);
    reference<<<dim3((n + 127) / 128, m), 128>>>(da, db, dd, ds, m, n, k);
    CHECK(cudaMemcpy(d.data(), dd, d.size() * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(s.data(), ds, s.size() * 8, cudaMemcpyDeviceToHost));
    for (auto* p : {da, db, dd, ds}) CHECK(cudaFree(p));
    for (int row = 0; row < m; ++row)
      for (int column = 0; column < n; ++column) {
        int64_t const from = int64_t(row) * n + column, token = offsets[g] + row;
        if (!finalize) {
          want[token * n + column] = d[from];
          bound[token * n + column] = std::fabs(d[from]) / 256 + s[from] * 1e-6;
          continue;
        }
        double const value =
            router[token] * (d[from] + __bfloat162float(bias[int64_t(g) * n + column]));
        int64_t const to = int64_t(index[token]) * n + column;
        want[to] += value;
        // Each row is rounded to bf16, and so is the sum after it.
        bound[to] += std::fabs(value) / 64 + router[token] * s[from] * 1e-6;
      }
  }
  int64_t wrong = 0;
  double worst = 0, square = 0, total_square = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double const error = std::fabs(double(__bfloat162float(got[i])) - want[i]);
    if (!(error <= bound[i])) ++wrong;
    if (!total) continue;
    square += error * error;
    total_square += want[i] * want[i];
    worst = std::max(worst, error / std::max(bound[i], 1e-300));
  }
  if (!total) wrong = 0;
  auto const number = [](double value) { return std::isfinite(value) ? value : 1e99; };  // as JSON has no others
  std::printf(
      "{\"case\": \"%s\", \"format\": \"%s\", \"tile\": \"%dx%dx128\", \"swap_ab\": %s, \"finalize\": %s, \"groups\": %d, "
      "\"tokens\": %ld, \"n\": %d, \"k\": %d, \"wrong\": %ld, \"worst_of_bound\": %.3f, "
      "\"relative_error\": %.3e, \"workspace\": %zu}\n",
      name, IS_NVFP4 ? "NVFP4" : "MXFP8 x MXFP4", TILE_M, TILE_N, SWAP_AB ? "true" : "false", finalize ? "true" : "false", groups,
      long(total), n, k, long(wrong), number(worst), total ? number(std::sqrt(square / total_square)) : 0.,
      input.gemm_workspace_size);
  std::fflush(stdout);
  return wrong == 0;
}

int main() {
  bool good = true;
  for (bool finalize : {false, true}) {
#ifndef WITH_NONE
    if (!finalize) continue;
#endif
#ifndef WITH_FINALIZE
    if (finalize) continue;
#endif
    good &= run_case("one token", {1}, 256, 256, 2, finalize, 1);
    good &= run_case("ragged, empty experts", {0, 1, 7, 0, 128, 129, 33, 0}, 384, 512, 2, finalize, 2);
    good &= run_case("300 tokens, wide scales", {300, 17, 64}, 256, 384, 12, finalize, 3);
    good &= run_case("gpt-oss hidden size, padded", {5, 0, 40, 2}, 640, 2944, 3, finalize, 4);
    std::vector<int> many(128);
    for (int i = 0; i < 128; ++i) many[i] = i * 37 % 128 < 100 ? 0 : i % 5;
    good &= run_case("128 experts", many, 256, 256, 2, finalize, 5);
    std::vector<int> all;
    for (int m = 1; m <= 300; m += 1) all.push_back(m);
    good &= run_case("each count from 1 to 300", all, 128, 128, 2, finalize, 6);
  }
  return good ? 0 : 1;
}
