// FlashInfer's kernels that lay out an expert's rows and their scales, and the functions that launch them, in SCALES and
// KERNELS as the tree has them, run on a CPU as MXFP8 for MXFP4 weights. A line of standard input, "KERNEL TOKENS TOPK
// EXPERTS WIDTH", KERNEL expand or activate, is answered by a line of JSON: the grid; how many scales are wrong among
// those of the rows; how many bytes beside them were written. With NEWER the tree is v0.7.2.post1's.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define CUTLASS_PRAGMA_UNROLL
#define ENABLE_FP8
#define ENABLE_FP4
#define TLLM_CHECK_WITH_INFO(condition, ...) \
  if (!(condition)) throw std::runtime_error(#condition)

struct Index {
  uint32_t x = 0;
};
Index threadIdx, blockIdx, gridDim, blockDim;

struct __nv_fp8_e4m3 {
  uint8_t bits;
};
struct __nv_fp4_e2m1 {
  uint8_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits = 0;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float) {}
};
using half = uint16_t;

using cudaStream_t = void*;
enum { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  int id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  int64_t gridDim, blockDim, dynamicSmemBytes;
  cudaStream_t stream;
  int numAttrs;
  cudaLaunchAttribute* attrs;
};
// None of these kernels' threads wait for another.
template <class Kernel, class... Arguments>
void cudaLaunchKernelEx(cudaLaunchConfig_t const* config, Kernel kernel, Arguments... arguments) {
  gridDim.x = config->gridDim;
  blockDim.x = config->blockDim;
  for (blockIdx.x = 0; blockIdx.x < config->gridDim; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < config->blockDim; ++threadIdx.x) kernel(arguments...);
  }
}

namespace cute {
template <class>
constexpr bool dependent_false = false;
}
namespace cutlass {
template <class T, int N>
struct Array {
  static constexpr int kElements = N;
  T v[N];
  T& operator[](int i) { return v[i]; }
  T const& operator[](int i) const { return v[i]; }
};
template <class T, int N, class Other>
Array<T, N> operator*(Array<T, N> a, Other) { return a; }
template <class T, int N, class Other>
Array<T, N> operator+(Array<T, N> a, Other) { return a; }
namespace epilogue::thread {
template <class T> struct GELU {};
template <class T> struct ReLu {};
template <class T> struct SiLu {};
template <class T> struct Relu2 {};
template <class T> struct Identity {};
template <class T> struct GELU_taylor {};
}  // namespace epilogue::thread
namespace arch {
template <class T, int Size>
void global_load(T& to, void const* from, bool) { std::memcpy(&to, from, Size); }
template <class T, int Size>
void global_store(T const& from, void* to, bool) { std::memcpy(to, &from, Size); }
}  // namespace arch
namespace platform {
template <class To, class From>
To bit_cast(From const& from) {
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
}  // namespace platform
}  // namespace cutlass
template <class From, class To>
To arrayConvert(From const&) { return To{}; }

enum class QuantizationSFLayout { SWIZZLED_128x4, SWIZZLED_8x4, LINEAR };
constexpr int CVT_ELTS_PER_THREAD = 8;
template <class T>
struct PackedVec {
  struct {
    T x, y;
  } elts[CVT_ELTS_PER_THREAD / 2];
};
constexpr uint8_t kScale = 0x7f, kUntouched = 0xee;
#ifdef NEWER
template <class T, int VecSize, int>
#else
template <class T, int VecSize>
#endif
uint64_t cvt_warp_fp16_to_mxfp8(PackedVec<T>&, uint8_t* scale) {
  if (scale) *scale = kScale;
  return 0;
}
#ifdef NEWER
template <class T, int VecSize, int, bool UE8M0, bool, class = std::false_type>
uint32_t cvt_warp_fp16_to_fp4(PackedVec<T>&, float, uint8_t*, float) { return 0; }
#else
template <class T, int VecSize, bool UE8M0>
uint32_t cvt_warp_fp16_to_fp4(PackedVec<T>&, float, uint8_t*) { return 0; }
#endif

namespace tensorrt_llm::common {
int getMultiProcessorCount() { return 48; }  // a GB10's
template <class T, T Value>
struct ConstExprWrapper {
  static constexpr T value = Value;
};
template <class T>
T ceilDiv(T a, T b) { return (a + b - 1) / b; }
template <class T>
T roundUp(T a, T b) { return ceilDiv(a, b) * b; }
}  // namespace tensorrt_llm::common
using tensorrt_llm::common::ceilDiv;
template <class T>
struct sizeof_bits {
  static constexpr int value = std::is_same_v<T, __nv_fp4_e2m1> ? 4 : 8 * sizeof(T);
};

struct TmaWarpSpecializedGroupedGemmInput {
  enum class FpXBlockScalingType { NONE, NVFP4, MXFPX };
  using ElementSF = uint8_t;
  static constexpr int NVFP4BlockScaleVectorSize = 16, MXFPXBlockScaleVectorSize = 32;
  static constexpr int MinNDimAlignmentNVFP4 = 128, MinNDimAlignmentMXFPX = 128;
  static constexpr int MinKDimAlignmentNVFP4 = 64, MinKDimAlignmentMXFPX = 128;
  static constexpr int64_t alignToSfDim(int64_t dim, int64_t alignment) {
    return (dim + alignment - 1) / alignment * alignment;
  }
};
struct Weights {
  uint8_t const* weight_block_scale;
  float const* act_global_scale;
};
struct QuantParams {
  struct {
    Weights fc1, fc2;
  } mxfp8_mxfp4, mxfp8_mxfp8, fp4;
};
enum class ActivationType { Gelu, Relu, Silu, Swiglu, Geglu, SwigluBias, Relu2, Identity };
struct ActivationParams {
  ActivationType activation_type;
  float const *swiglu_alpha = nullptr, *swiglu_beta = nullptr, *swiglu_limit = nullptr;
};
template <template <class> class Function, bool Gated>
struct Adaptor {
  static constexpr bool IS_GLU = Gated;
  float alpha, beta, limit;
  template <class T, class... Linear>
  T operator()(T const& x, Linear const&...) const { return x; }
};
template <template <class> class Function>
using IdentityAdaptor = Adaptor<Function, false>;
template <template <class> class Function>
using GLUAdaptor = Adaptor<Function, true>;
using SwigluBiasAdaptor = GLUAdaptor<cutlass::epilogue::thread::SiLu>;
using SwigluStepAdaptor = SwigluBiasAdaptor;
using SituAdaptor = SwigluBiasAdaptor;
constexpr int EXPAND_THREADS_PER_BLOCK = 256, ACTIVATION_THREADS_PER_BLOCK = 256;
constexpr int MAX_ACTIVATION_THREADS_PER_BLOCK = 256, WARP_SIZE = 32;

// Of v0.7.2.post1, what scales by NVFP4 or by a token's largest value asks for, which no case here has.
using Fp4Type = __nv_fp4_e2m1;
template <class>
struct IsNVFP44Over6Config : std::false_type {};
template <class Function>
auto dispatchNVFP44Over6Config(Function&& function) { return function(std::false_type{}, std::false_type{}); }
bool hasPerExpertActivationParams(ActivationParams const&) { return false; }
template <class Function>
void setPerExpertActivationParams(Function&, ActivationParams const&, int64_t) {}
struct FloatMaxOp {};
template <class>
struct AbsMaxOp {
  using Accum = float;
  static float zero() { return 0; }
  template <class T>
  static float update(float most, T const&) { return most; }
  static float to_float(float most) { return most; }
};
namespace cub {
template <class T, int N>
struct BlockReduce {
  struct TempStorage {};
  explicit BlockReduce(TempStorage&) {}
  T Reduce(T one, FloatMaxOp) { return one; }
};
}  // namespace cub
float computeSafeFP8QuantScale(float) { return 1; }
#define __shared__ static
void __syncthreads() { throw std::runtime_error("threads wait"); }

#define __CUDA_ARCH__ 1210
SCALES
#undef __CUDA_ARCH__
KERNELS

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream given(line);
    std::string kernel;
    int64_t tokens, top_k, experts, width;
    given >> kernel >> tokens >> top_k >> experts >> width;
    // Token t's choices, and the rows of each expert one after another.
    std::vector<int64_t> first{0};
    std::vector<int> source;
    for (int64_t expert = 0; expert < experts; ++expert) {
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t k = 0; k < top_k; ++k) {
          if ((t * 5 + k * 3) % experts == expert) source.push_back(k * tokens + t);
        }
      }
      first.push_back(source.size());
    }
    int64_t const scales = width / 32, padded = (scales + 3) / 4 * 4, rows = source.size();
    std::vector<uint8_t> input_sf(tokens * padded);
    for (size_t i = 0; i < input_sf.size(); ++i) input_sf[i] = i % 200 + 1;
    std::vector<uint8_t> sf((rows + experts * 128 + 128) * padded, kUntouched), weights(1), expected(sf);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t const expert = std::upper_bound(first.begin(), first.end(), row) - first.begin() - 1;
      int64_t const in_expert = row - first[expert];
      int64_t const start = (first[expert] + expert * 127 + 127) / 128 * 128 * padded;
      for (int64_t k = 0; k < padded; ++k) {
        int64_t const at = start + in_expert / 128 * (padded / 4) * 512 + k / 4 * 512 + in_expert % 32 * 16 +
                           in_expert % 128 / 32 * 4 + k % 4;
        int64_t const token = source[row] % tokens;
        expected[at] = k >= scales ? 0 : kernel == "expand" ? input_sf[token * padded + k] : kScale;
      }
    }
    QuantParams quant{};
    quant.mxfp8_mxfp4.fc1.weight_block_scale = quant.mxfp8_mxfp4.fc2.weight_block_scale = weights.data();
    std::vector<__nv_fp8_e4m3> in(tokens * width), out(rows * width);
    for (size_t i = 0; i < in.size(); ++i) in[i].bits = i % 251;
    if (kernel == "expand") {
      expandInputRowsKernelLauncher<__nv_fp8_e4m3, __nv_fp8_e4m3>(
          in.data(), out.data(), nullptr, nullptr, source.data(),
#ifdef NEWER
          nullptr,
#endif
          tokens, width, top_k, experts, quant, false, first.data(), sf.data(), input_sf.data(), false, nullptr,
#ifdef NEWER
          nullptr, nullptr, nullptr,
#endif
          true, nullptr);
    } else {
      std::vector<__nv_bfloat16> result(2 * rows * width);
      doActivation<__nv_fp8_e4m3, __nv_bfloat16, __nv_bfloat16>(
          out.data(), result.data(), nullptr, nullptr, true, first.data(),
#ifdef NEWER
          nullptr,
#endif
          experts, width, tokens * top_k, ActivationParams{ActivationType::Swiglu}, quant, false, sf.data(),
#ifdef NEWER
          nullptr, nullptr,
#endif
          true, nullptr);
    }
    size_t wrong = 0, beside = 0;
    for (size_t i = 0; i < sf.size(); ++i) {
      (expected[i] == kUntouched ? beside : wrong) += sf[i] != expected[i];
    }
    for (int64_t row = 0; kernel == "expand" && row < rows; ++row) {
      wrong += std::memcmp(&out[row * width], &in[source[row] % tokens * width], width) != 0;
    }
    std::cout << "{\"blocks\": " << gridDim.x << ", \"wrong\": " << wrong << ", \"beside\": " << beside << "}\n";
  }
}
