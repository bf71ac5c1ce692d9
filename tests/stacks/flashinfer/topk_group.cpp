// FlashInfer's radix top-k kernels over rows that several blocks share, in KERNELS as the tree has them, run on a CPU by
// a schedule; see cpu_grid.h. A line of standard input, "KERNEL ORDER", KERNEL mask, renorm or indices, ORDER as 2,0,1
// or a seed, is answered by a line of JSON about two launches over one state.
#include "cpu_grid.h"

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <unistd.h>

namespace cuda::std {
using ::std::numeric_limits;
}
namespace cub {
template <class T, int N>
struct BlockReduce {
  struct TempStorage {
    T part[N];
  };
  TempStorage& storage;
  explicit BlockReduce(TempStorage& given) : storage(given) {}
  T Sum(T part) {
    storage.part[threadIdx.x] = part;
    __syncthreads();
    T sum{};
    for (T p : storage.part) sum += p;
    __syncthreads();
    return sum;
  }
};
}  // namespace cub

inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

namespace flashinfer {
namespace math {
inline float ptx_rcp(float value) { return 1.f / value; }
}  // namespace math
template <class T, size_t N>
struct vec_t {
  T values[N];
  T& operator[](size_t i) { return values[i]; }
  void cast_load(T const* from) { std::copy(from, from + N, values); }
  void store(T* to) const { std::copy(values, values + N, to); }
};

namespace sampling {
using std::max;
using std::min;
alignas(16) thread_local uint8_t smem[1 << 13];
int load_counter(int* counter) { return Grid::get().load(counter); }
constexpr uint32_t RADIX_TOPK_MAX_DETERMINISTIC_CTAS_PER_GROUP = 256;  // of v0.7.2.post1

template <typename DType>
struct RadixTopKTraits;

KERNELS
}  // namespace sampling
}  // namespace flashinfer

using namespace flashinfer::sampling;
constexpr uint32_t kThreads = 256, kVocabulary = 700, kBlocks = 3, kChunk = 256, kRows = 5, kGroups = 2;

int main() {
  int32_t const most[kRows] = {kVocabulary, 7, 3, 1, 256};
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream given(line);
    std::string kernel, schedule;
    given >> kernel >> schedule;
    std::vector<size_t> order;
    unsigned seed = 0;
    if (schedule.find(',') == std::string::npos) {
      seed = std::stoul(schedule);
    } else {
      std::istringstream items(schedule);
      for (std::string item; std::getline(items, item, ',');) order.push_back(std::stoul(item));
    }
    std::vector<RadixRowState> states(kGroups);
    std::memset(static_cast<void*>(states.data()), 0, kGroups * sizeof(RadixRowState));
    std::vector<float> in(kRows * kVocabulary);
    for (size_t i = 0; i < in.size(); ++i) in[i] = (i * 7919 % in.size() + 1) / float(in.size());
    if (kernel == "mask") {
      for (float& x : in) x = 2 * x - 1;
    }
    size_t wrong = 0, unclean = 0;
    for (int launch = 0; launch < 2; ++launch) {
      std::vector<float> out(in.size(), -7.f);
      std::vector<int32_t> ids(in.size(), -1), k(most, most + kRows);
      auto run = [&] {
        if (kernel == "mask") {
          RadixTopKMaskLogitsKernel_MultiCTA<kThreads, 4, false, float, int32_t>(
              in.data(), out.data(), k.data(), 0, kVocabulary, kRows, states.data(), kChunk, kBlocks);
        }
#ifdef ALL_KERNELS
        if (kernel == "renorm") {
          RadixTopKRenormProbKernel_MultiCTA<kThreads, 4, false, float, int32_t>(
              in.data(), out.data(), k.data(), 0, kVocabulary, kRows, states.data(), kChunk, kBlocks);
        }
        if (kernel == "indices") {
          RadixTopKKernel_Unified<kThreads, 4, false, RadixTopKMode::Basic, float, int32_t>(
              in.data(), ids.data(), out.data(), k.data(), nullptr, nullptr, 0, kVocabulary, kVocabulary, kRows,
              states.data(), kChunk, kBlocks);
        }
#endif
      };
      auto const waiting = Grid::get().launch(kBlocks * kGroups, kThreads, order, seed, run);
      if (!waiting.empty()) {
        std::cout << "{\"launch\": " << launch << ", \"wait forever\": [";
        for (size_t b : waiting) std::cout << (b == waiting.front() ? "" : ", ") << b;
        std::cout << "], \"counter\": " << states[waiting.front() / kBlocks].arrival_counter << "}" << std::endl;
        _exit(0);  // their threads can't be ended
      }
      for (uint32_t row = 0; row < kRows; ++row) {
        float const* x = in.data() + row * kVocabulary;
        float const* y = out.data() + row * kVocabulary;
        std::vector<float> sorted(x, x + kVocabulary);
        std::sort(sorted.rbegin(), sorted.rend());
        float const least = sorted[most[row] - 1];
        double sum = 0;
        for (int32_t i = 0; i < most[row]; ++i) sum += sorted[i];
        for (uint32_t i = 0; i < kVocabulary; ++i) {
          if (kernel == "mask") {
            wrong += y[i] != (x[i] >= least ? x[i] : -std::numeric_limits<float>::infinity());
          } else if (kernel == "renorm") {
            wrong += std::abs(y[i] - (x[i] >= least ? x[i] / sum : 0)) > 1e-5;
          } else {
            int32_t const* at = ids.data() + row * kVocabulary;
            auto const found = std::find(at, at + most[row], int32_t(i)) - at;
            wrong += (found < most[row]) != (x[i] >= least) || (found < most[row] && y[found] != x[i]);
          }
        }
      }
      for (auto const& state : states) {
        unclean += state.arrival_counter != 0;
        for (auto const& histogram : state.histogram) {
          unclean += std::count_if(histogram, histogram + 256, [](uint32_t n) { return n != 0; });
        }
      }
    }
    std::cout << "{\"wrong\": " << wrong << ", \"unclean\": " << unclean << "}" << std::endl;
  }
}
