// Which tactics FlashInfer's MoE binding sets: its own untunedTactic() and setRunnerProfiles(), in METHODS, as members of
// a runner that has no more than they ask for. A line of standard input, "TILES1 TILES2 ROWS TOPK EXPERTS ID1 ID2
// [DTYPES]", tiles as 128x32s,128x128, with @90 for another architecture's, is answered by a line: the two tactics that are set, or the error.
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace tensorrt_llm::cutlass_extensions {
enum class Tile : int {};
enum class CutlassTileConfigSM90 { CtaShape128x16x128B };
enum class MainloopScheduleType { AUTO };
enum class EpilogueScheduleType { AUTO };
enum class ClusterShape { ClusterShape_1x1x1 };
inline std::tuple<int, int, int> enum_to_shape_tuple(Tile tile) { return {128, static_cast<int>(tile), 128}; }
struct CutlassGemmConfig {
  Tile tile_config_sm120{};
  bool swap_ab = false;
  int sm_version = 120;
  CutlassGemmConfig() = default;
  CutlassGemmConfig(CutlassTileConfigSM90, MainloopScheduleType, EpilogueScheduleType, ClusterShape) {}
};
}  // namespace tensorrt_llm::cutlass_extensions

template <class T>
using Optional = std::optional<T>;
template <class T>
using Array = std::vector<T>;

struct Check {
  bool good;
  std::ostringstream said{};
  template <class T>
  Check& operator<<(T const& word) {
    said << word;
    return *this;
  }
  ~Check() noexcept(false) {
    if (!good) throw std::runtime_error(said.str());
  }
};
#define TVM_FFI_ICHECK(condition) \
  Check { bool(condition) }
#define TVM_FFI_ICHECK_EQ(one, other) \
  Check { (one) == (other) }

enum class ActivationType { Swiglu, ClampedRelu2 };
using Config = tensorrt_llm::cutlass_extensions::CutlassGemmConfig;

struct Kernels {
  void setTactic(Config const& first, Config const& second) {
    for (auto const* config : {&first, &second}) {
      std::cout << "128x" << static_cast<int>(config->tile_config_sm120) << (config->swap_ab ? "s" : "")
                << (config == &first ? " " : "\n");
    }
  }
};

struct Runner {
  using Profile = Config;
  std::vector<Profile> mAllProfiles;
  int64_t mGemm1TacticCount = 0, mGemm2TacticCount = 0;
  bool mUseDeepSeekFP8BlockScaling = false, mxfp8 = true, fp8 = false;
  std::shared_ptr<Kernels> mKernelRunner = std::make_shared<Kernels>();
  bool isWMxfp4AMxfp8Quant() const { return mxfp8; }
  bool isWMxfp4AFp8Quant() const { return fp8; }
  bool requiresActivationFusionProfile(ActivationType) const { return false; }
  bool isActivationFusionProfileSupported(Profile const&) const { return true; }
  Profile const& defaultActivationFusionProfile() const { return mAllProfiles.front(); }

  METHODS

  // A release's setRunnerProfiles() is given more than the last one's.
  template <class R>
  static auto set(R& r, Optional<Array<int64_t>> ids, int64_t rows, int64_t experts, int)
      -> decltype(r.setRunnerProfiles(ids, ActivationType::Swiglu, rows, experts)) {
    return r.setRunnerProfiles(ids, ActivationType::Swiglu, rows, experts);
  }
  template <class R>
  static auto set(R& r, Optional<Array<int64_t>> ids, int64_t rows, int64_t experts, int)
      -> decltype(r.setRunnerProfiles(ids, rows, experts)) {
    return r.setRunnerProfiles(ids, rows, experts);
  }
  template <class R>
  static auto set(R& r, Optional<Array<int64_t>> ids, int64_t, int64_t, int)
      -> decltype(r.setRunnerProfiles(ids, ActivationType::Swiglu)) {
    return r.setRunnerProfiles(ids, ActivationType::Swiglu);
  }
  template <class R>
  static auto set(R& r, Optional<Array<int64_t>> ids, int64_t, int64_t, int)
      -> decltype(r.setRunnerProfiles(ids)) {
    return r.setRunnerProfiles(ids);
  }
};

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream given(line);
    std::string tiles[2], dtype;
    int64_t rows, top_k, experts, ids[2];
    given >> tiles[0] >> tiles[1] >> rows >> top_k >> experts >> ids[0] >> ids[1] >> dtype;
    Runner runner;
    runner.mxfp8 = dtype.empty();
    runner.fp8 = dtype == "fp8";
    for (int gemm : {0, 1}) {
      std::istringstream items(tiles[gemm] == "-" ? "" : tiles[gemm]);
      for (std::string item; std::getline(items, item, ',');) {
        Config config;
        config.tile_config_sm120 = static_cast<tensorrt_llm::cutlass_extensions::Tile>(std::stoi(item.substr(4)));
        config.swap_ab = item.find('s') != std::string::npos;
        if (auto const at = item.find('@'); at != std::string::npos) config.sm_version = std::stoi(item.substr(at + 1));
        runner.mAllProfiles.push_back(config);
        ++(gemm ? runner.mGemm2TacticCount : runner.mGemm1TacticCount);
      }
    }
    try {
      Runner::set(runner, Array<int64_t>{ids[0], ids[1]}, rows * top_k, experts, 0);
    } catch (std::exception const& error) {
      std::cout << "error " << error.what() << "\n";
    }
  }
}
