// FlashInfer's radix top-k kernels over rows that several blocks share, in KERNELS as the tree has them, run on a CPU by
// a schedule; see cpu_grid.h. A line of standard input, "KERNEL ROWS ORDER", ROWS all or some, ORDER as 2,0,1 or a seed,
// is answered by a line of JSON about two launches over one state.
#include "cpu_grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>

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

// What v0.7.2.post1 has besides, and what its kernels are asked for in addition.
#ifdef V0_7
constexpr double kRenormDeterministicScale = 17592186044416.0;
template <class Policy, class Id>
inline constexpr bool IsDirectPageTableKernelPolicy = true;
template <class Policy, class... Args>
inline constexpr bool IsValidPageTableKernelArgs = true;
template <uint32_t Threads, bool Single, class Ordered, class... Args>
void RadixCollectIndicesDeterministic(Args&&...);
#define NOT_DETERMINISTIC false,
#define NO_STARTS nullptr, nullptr,
#define NO_SCRATCH nullptr,
#else
#define NOT_DETERMINISTIC
#define NO_STARTS
#define NO_SCRATCH
#endif

KERNELS
}  // namespace sampling
}  // namespace flashinfer

using namespace flashinfer::sampling;
// More threads than a histogram has values: a loop over one must not go by the other.
constexpr uint32_t kThreads = 288, kVocabulary = 700, kBlocks = 3, kChunk = 256, kRows = 8, kGroups = 2, kMost = 40;
// Of each row: how much is wanted, or how long it is. With `some`, nothing is selected in rows that are wanted whole,
// one or two after each other.
int32_t const kAll[kRows] = {3, 31, 256, 7, 699, 128, 256, 1};
int32_t const kSome[kRows] = {3, kVocabulary, kVocabulary, 7, kVocabulary, kVocabulary, 256, 1};
int32_t const kLengths[kRows] = {700, 40, 12, 600, 40, 3, 640, 700};

// Mask rows by RadixSelectOneRound, which no kernel calls.
void MaskByRounds(float const* in, float* out, int32_t const* wanted, RadixRowState* states) {
  uint32_t const group = blockIdx.x / kBlocks, block = blockIdx.x % kBlocks, tx = threadIdx.x;
  uint32_t *histogram = reinterpret_cast<uint32_t*>(smem), *sums = histogram + 256, *scalars = sums + 256;
  uint32_t* ordered = scalars + 8;
  using Traits = RadixTopKTraits<float>;
  int phase = 0;
  for (uint32_t row = group, turn = 0; row < kRows; row += kGroups, ++turn) {
    uint32_t const start = block * kChunk, size = std::min(kChunk, kVocabulary - start);
    LoadToSharedOrdered<kThreads, 4, float, Traits>(in + row * kVocabulary, ordered, start, size, tx);
    uint32_t prefix = 0, left = wanted[row];
    for (uint32_t round = 0; round < 4; ++round) {
      uint32_t const before = prefix, of = left;
      RadixSelectOneRound<kThreads, false, uint32_t>(ordered, size, histogram, sums, scalars, &states[group], before, of,
                                                     round, turn, phase, kBlocks, block, tx, &prefix, &left);
    }
    for (uint32_t i = tx; i < size; i += kThreads) {
      float const x = in[row * kVocabulary + start + i];
      out[row * kVocabulary + start + i] = x >= Traits::FromOrdered(prefix) ? x : Traits::NegInf();
    }
  }
}

struct Run {
  std::string kernel;
  std::vector<float> in, out;
  std::vector<int32_t> ids, wanted, lengths, table, offsets;
  std::vector<RadixRowState> states;

  Run(std::string const& which, std::string const& rows)
      : kernel(which), in(kRows * kVocabulary), table(in.size()), offsets(kRows), states(kGroups) {
    std::memset(static_cast<void*>(states.data()), 0, kGroups * sizeof(RadixRowState));
    int32_t const* most = rows == "some" ? kSome : kAll;
    wanted.assign(most, most + kRows);
    lengths.assign(kLengths, kLengths + kRows);
    for (size_t i = 0; i < in.size(); ++i) {
      size_t const row = i / kVocabulary, column = i % kVocabulary;
      // Four or five of each value, and values that differ in their last byte alone.
      float const level = ((column + 13 * row) * 7919 % 31 + 1) / 31.f;
      in[i] = __uint_as_float((__float_as_uint(level) & ~0xffu) | (column * 17 % 5 * 50));
      if (kernel == "mask" && column % 3 == 0) in[i] = -in[i];
      table[i] = int32_t(column * 31 % kVocabulary + row * kVocabulary);
    }
    for (uint32_t row = 0; row < kRows; ++row) offsets[row] = int32_t(1000 * row);
  }

  bool whole_rows() const { return kernel == "mask" || kernel == "renorm" || kernel == "rounds"; }
  uint32_t blocks() const { return kernel == "single" ? 1 : kBlocks; }
  uint32_t length(uint32_t row) const { return kernel == "pages" || kernel == "ragged" ? lengths[row] : kVocabulary; }
  uint32_t most(uint32_t row) const {
    return kernel == "pages" || kernel == "ragged" ? std::min<uint32_t>(kMost, lengths[row]) : wanted[row];
  }

  template <bool Single, RadixTopKMode Mode>
  void unified(int32_t const* given, uint32_t top_k) {
    RadixTopKKernel_Unified<kThreads, 4, Single, NOT_DETERMINISTIC Mode, float, int32_t>(
        in.data(), ids.data(), out.data(), given, lengths.data(), NO_STARTS nullptr, kVocabulary, top_k, kVocabulary,
        kRows, states.data(), NO_SCRATCH Single ? kVocabulary : kChunk, blocks());
  }

  void operator()() {
    if (kernel == "mask") {
      RadixTopKMaskLogitsKernel_MultiCTA<kThreads, 4, false, float, int32_t>(
          in.data(), out.data(), wanted.data(), 0, kVocabulary, kRows, states.data(), kChunk, kBlocks);
    } else if (kernel == "renorm") {
      RadixTopKRenormProbKernel_MultiCTA<kThreads, 4, false, NOT_DETERMINISTIC float, int32_t>(
          in.data(), out.data(), wanted.data(), 0, kVocabulary, kRows, states.data(), kChunk, kBlocks);
    } else if (kernel == "indices") {
      unified<false, RadixTopKMode::Basic>(wanted.data(), kVocabulary);
    } else if (kernel == "single") {
      unified<true, RadixTopKMode::Basic>(wanted.data(), kVocabulary);
    } else if (kernel == "pages") {
      unified<false, RadixTopKMode::PageTableTransform>(table.data(), kMost);
    } else if (kernel == "ragged") {
      unified<false, RadixTopKMode::RaggedTransform>(offsets.data(), kMost);
    } else if (kernel == "rounds") {
      MaskByRounds(in.data(), out.data(), wanted.data(), states.data());
    } else {
      _exit(2);
    }
  }

  // The column that an index of the output stands for; -1 where it stands for none.
  int32_t column(uint32_t row, int32_t id) const {
    if (kernel == "ragged") return id - offsets[row];
    if (kernel != "pages") return id;
    auto const first = table.begin() + row * kVocabulary, last = first + kVocabulary;
    auto const found = std::find(first, last, id);
    return found == last ? -1 : int32_t(found - first);
  }

  size_t wrong() const {
    size_t count = 0;
    for (uint32_t row = 0; row < kRows; ++row) {
      float const* x = in.data() + row * kVocabulary;
      std::vector<float> sorted(x, x + length(row));
      std::sort(sorted.rbegin(), sorted.rend());
      float const least = sorted[most(row) - 1];
      count += whole_rows() ? wrong_values(row, least) : wrong_indices(row, sorted);
    }
    return count;
  }

  size_t wrong_values(uint32_t row, float least) const {
    float const* x = in.data() + row * kVocabulary;
    float const* y = out.data() + row * kVocabulary;
    double sum = 0;
    for (uint32_t i = 0; i < kVocabulary; ++i) sum += x[i] >= least ? x[i] : 0;
    size_t count = 0;
    for (uint32_t i = 0; i < kVocabulary; ++i) {
      if (kernel == "renorm") {
        count += !(std::abs(y[i] - (x[i] >= least ? x[i] / sum : 0)) < 1e-6);
      } else {
        count += y[i] != (x[i] >= least ? x[i] : -std::numeric_limits<float>::infinity());
      }
    }
    return count;
  }

  // Places of the output with no index, one that is there before, another value than the index has, or a value that is
  // not as large as the one of that rank.
  size_t wrong_indices(uint32_t row, std::vector<float> const& sorted) const {
    bool const basic = kernel == "indices" || kernel == "single";
    int32_t const* given = ids.data() + row * (basic ? kVocabulary : kMost);
    float const* x = in.data() + row * kVocabulary;
    std::vector<bool> seen(length(row));
    std::vector<float> values;
    size_t count = 0;
    for (uint32_t place = 0; place < most(row); ++place) {
      int32_t const at = column(row, given[place]);
      if (at < 0 || at >= int32_t(length(row)) || seen[at]) {
        ++count;
        continue;
      }
      seen[at] = true;
      values.push_back(x[at]);
      if (basic) count += out[row * kVocabulary + place] != x[at];
    }
    std::sort(values.rbegin(), values.rend());
    for (size_t rank = 0; rank < values.size(); ++rank) count += values[rank] != sorted[rank];
    for (uint32_t place = most(row); !basic && place < kMost; ++place) count += given[place] != -1;
    return count;
  }

  // What the next launch finds in the state; and how often a block counted itself without a fence, so that what it
  // wrote might be seen later than the count, or what its peers wrote is not seen.
  size_t unclean() const {
    size_t count = std::exchange(Grid::get().unfenced, 0);
    for (auto const& state : states) {
      count += state.arrival_counter != 0;
      for (auto const& histogram : state.histogram) {
        count += std::count_if(histogram, histogram + 256, [](uint32_t n) { return n != 0; });
      }
    }
    return count;
  }
};

int main() {
#ifdef V0_7
  Grid::get().sees_others = false;  // its blocks leave a group by a release alone
#endif
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream given(line);
    std::string kernel, rows, schedule;
    given >> kernel >> rows >> schedule;
    std::vector<size_t> order;
    unsigned seed = 0;
    if (schedule.find(',') == std::string::npos) {
      seed = std::stoul(schedule);
    } else {
      std::istringstream items(schedule);
      for (std::string item; std::getline(items, item, ',');) order.push_back(std::stoul(item));
    }
    Run run(kernel, rows);
    Grid::get().tells = [&](int const* counter) {
      return std::any_of(run.states.begin(), run.states.end(),
                         [&](auto const& state) { return counter == &state.arrival_counter; });
    };
    size_t wrong = 0, unclean = 0;
    for (int launch = 0; launch < 2; ++launch) {
      run.out.assign(run.in.size(), -7.f);
      run.ids.assign(run.in.size(), 0);  // an index that is translated before it is written is one of the row
      auto const waiting = Grid::get().launch(run.blocks() * kGroups, kThreads, order, seed, std::ref(run));
      if (!waiting.empty()) {
        std::cout << "{\"launch\": " << launch << ", \"wait forever\": [";
        for (size_t b : waiting) std::cout << (b == waiting.front() ? "" : ", ") << b;
        std::cout << "], \"counter\": " << run.states[waiting.front() / kBlocks].arrival_counter << "}" << std::endl;
        _exit(0);  // their threads can't be ended
      }
      wrong += run.wrong();
      if (kernel == "rounds") {  // whoever calls it resets the state
        std::memset(static_cast<void*>(run.states.data()), 0, kGroups * sizeof(RadixRowState));
      }
      unclean += run.unclean();
    }
    std::cout << "{\"wrong\": " << wrong << ", \"unclean\": " << unclean << "}" << std::endl;
  }
}
