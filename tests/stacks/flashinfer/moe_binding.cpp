// FlashInfer's real binding of the fused MoE, with a runner in the kernels' place that says what it is handed.
//
// Reads cases from standard input, one a line, and prints a line for each:
//   dtypes ACT WEIGHT OUT W4 MXFP8 PACKED         which runner, and the intermediate size that runMoe() made of 64
//   tactics TILES1 TILES2 ROWS TOPK EXPERTS ID1 ID2 [nvfp4]
//       what setTactic() gets; TILES as 128x32s,128x128; ID -1: untuned; MXFP4 with FP8 unless told otherwise
//   profile TILES1 TILES2 GEMM ID                 which tactic is profiled
#include <tvm/ffi/extra/module.h>

#include <iostream>
#include <sstream>
#include <string>

#include "cutlass_kernel_selector.h"
#include "moe_gemm_kernels.h"
#include "moe_kernels.h"
#include "tvm_ffi_utils.h"

static std::vector<tensorrt_llm::cutlass_extensions::CutlassGemmConfig> first_tactics, second_tactics;
static bool tactics_asked = false;
struct Stop {};

inline std::string say(tensorrt_llm::cutlass_extensions::CutlassGemmConfig const& config) {
  auto const shape = tensorrt_llm::cutlass_extensions::enum_to_shape_tuple(config.tile_config_sm120);
  return std::to_string(std::get<0>(shape)) + "x" + std::to_string(std::get<1>(shape)) + (config.swap_ab ? "s" : "");
}

namespace CUTLASS_MOE_GEMM_KERNELS_NAMESPACE {
struct RecordingInterface {
  std::string type;
  template <class Rows, class Hidden, class Inter, class... Rest>
  size_t getWorkspaceSize(Rows, Hidden, Inter inter_size, Rest&&...) {
    if (tactics_asked) throw Stop{};
    std::cout << type << " inter " << inter_size << "\n";
    throw Stop{};
  }
  template <class First, class Second>
  void setTactic(First const& first, Second const& second) {
    tactics = say(first) + " " + say(second);
  }
  template <class Gemm>
  auto getTactics(Gemm gemm) const {
    return gemm == MoeGemmId::GEMM_1 ? first_tactics : second_tactics;
  }
  template <class... Any>
  void runMoe(Any&&...) {}
  template <class... Any>
  int queryOccupancyForConfig(Any&&...) { return 0; }
  bool is_profiler = false, use_fused_finalize_ = true;
  std::string tactics;
};

template <class... Types>
std::string names() {
  std::string name = __PRETTY_FUNCTION__;
  name = name.substr(name.find("Types = {") + 9);
  name = name.substr(0, name.find('}'));
  for (auto& c : name) c = c == ' ' ? '_' : c;
  return name;
}

template <class Act, class Weight, class Out = Act, class In = Act, class BackBone = Out, auto... Rest>
struct RecordingRunner : RecordingInterface {
  template <class... Any>
  explicit RecordingRunner(Any&&...) {
    type = names<Act, Weight, Out, In>();
  }
};

struct RecordingProfiler {
  enum class GemmToProfile { Undefined, GEMM_1, GEMM_2, LAYER };
  GemmToProfile mGemmToProfile = GemmToProfile::Undefined;
  template <class... Any>
  void init(Any&&...) {}
  template <class... Any>
  size_t getWorkspaceSize(Any&&...) { return 0; }
  template <class... Any>
  void prepare(Any&&...) {}
  template <class Rows, class Profile, class... Any>
  void runProfiler(Rows, Profile const& profile, Any&&...) {
    std::cout << say(profile) << "\n";
  }
};
}  // namespace CUTLASS_MOE_GEMM_KERNELS_NAMESPACE

#define CutlassMoeFCRunnerInterface RecordingInterface
#define CutlassMoeFCRunner RecordingRunner
#define GemmProfilerBackend RecordingProfiler
#define private public
#include "flashinfer_cutlass_fused_moe_binding.cu"
#undef private

namespace {
using Config = tensorrt_llm::cutlass_extensions::CutlassGemmConfig;

DLDataType dtype(std::string const& name) {
  if (name == "fp8") return dl_float8_e4m3fn;
  if (name == "mxfp4") return dl_int64;
  if (name == "uint8") return dl_uint8;
  if (name == "fp16") return dl_float16;
  if (name == "bf16") return dl_bfloat16;
  return dl_float32;
}

std::vector<Config> tactics(std::string const& text) {
  std::vector<Config> found;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    int m, n;
    char x, swapped = 0;
    std::istringstream one(item);
    one >> m >> x >> n >> swapped;
    using Tile = tensorrt_llm::cutlass_extensions::CutlassTileConfigSM120;
    using namespace tensorrt_llm::cutlass_extensions;
    Config config{static_cast<Tile>(shape_tuple_to_enum(m, n, 128)), MainloopScheduleType::AUTO,
                  EpilogueScheduleType::AUTO, ClusterShape::ClusterShape_1x1x1};
    config.swap_ab = swapped == 's';
    found.push_back(config);
  }
  return found;
}

// A tensor of the host's without data: shapes and dtypes are all that is looked at.
struct Shaped {
  std::vector<int64_t> shape, strides;
  DLTensor tensor{};
  Shaped(std::vector<int64_t> sizes, DLDataType type) : shape(std::move(sizes)), strides(shape.size(), 1) {
    for (int i = static_cast<int>(shape.size()) - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
    tensor.device = DLDevice{kDLCPU, 0};
    tensor.ndim = static_cast<int>(shape.size());
    tensor.dtype = type;
    tensor.shape = shape.data();
    tensor.strides = strides.data();
  }
  operator tvm::ffi::TensorView() { return tvm::ffi::TensorView(&tensor); }
};

// A release's constructor and runMoe() take what the last one's took, and more.
template <class Runner = FusedMoeRunner>
Runner make(DLDataType act, DLDataType weight, DLDataType out, bool w4, bool mxfp8, bool packed) {
  if constexpr (std::is_constructible_v<Runner, DLDataType, DLDataType, DLDataType, bool, bool, bool, bool>) {
    return Runner(act, weight, out, false, w4, mxfp8, packed);
  } else {
    return Runner(act, weight, out, false, w4, mxfp8, packed, true, false);
  }
}
struct Made {
  FusedMoeRunner runner;
  template <class... Given>
  explicit Made(Given... given) : runner(make<>(given...)) {}
};

template <class Runner>
void run_moe(Runner& runner, int64_t rows, int64_t top_k, int64_t experts, int64_t packed,
             tvm::ffi::Optional<tvm::ffi::Array<int64_t>> ids) {
  DLDataType const act = runner.mActivationDtype, weight = runner.mWeightDtype;
  Shaped output({rows, 128}, runner.mOutputDtype), input({rows, 128}, act), chosen({rows, top_k}, dl_int32);
  // fc2's inner dimension is 64 elements of the weights' type.
  Shaped fc1({experts, 2 * 64 * packed, 128 / packed}, weight), fc2({experts, 128, 64}, weight);
  if constexpr (std::is_constructible_v<Runner, DLDataType, DLDataType, DLDataType, bool, bool, bool, bool>) {
    runner.runMoe(output, input, chosen, {}, fc1, {}, fc2, {}, {}, {}, {}, {}, {}, 1, 0, 1, 0, 1, 0, false, false,
                  ids, false);
  } else {
    runner.runMoe(output, input, chosen, {}, fc1, {}, fc2, {}, {}, {}, {}, {}, {}, {}, {}, {}, true, 1, 0, 1, 0, 1, 0,
                  false, false, ids, false);
  }
}

void answer(std::istringstream& given, std::string const& kind) {
  tactics_asked = kind == "tactics";
  if (kind == "dtypes") {
    std::string act, weight, out;
    bool w4, mxfp8, packed;
    given >> act >> weight >> out >> w4 >> mxfp8 >> packed;
    first_tactics = second_tactics = tactics("128x128");
    auto const made = std::make_unique<Made>(dtype(act), dtype(weight), dtype(out), w4, mxfp8, packed);
    auto& runner = made->runner;
    run_moe(runner, 4, 2, 8, runner.mInnerDimMultiplier, {});
    return;
  }
  std::string first, second;
  given >> first >> second;
  first_tactics = tactics(first);
  second_tactics = second == "-" ? std::vector<Config>{} : tactics(second);
  bool const nvfp4 = given.str().find("nvfp4") != std::string::npos;
  auto const made =
      std::make_unique<Made>(nvfp4 ? dl_bfloat16 : dl_float8_e4m3fn, dl_int64, dl_bfloat16, false, !nvfp4, false);
  auto& runner = made->runner;
  if (kind == "profile") {
    int64_t gemm, id;
    given >> gemm >> id;
    Shaped input({4, 128}, dl_float8_e4m3fn), fc1({8, 2048, 8}, dl_int64), fc2({8, 128, 64}, dl_int64);
    runner.runGemmProfile(input, fc1, {}, fc2, {}, 2, 1, 0, 1, 0, 1, 0, false, false, gemm, id, false, false,
                          ActivationType::Swiglu);
    return;
  }
  int64_t rows, top_k, experts, first_id, second_id;
  given >> rows >> top_k >> experts >> first_id >> second_id;
  auto const ids = tvm::ffi::Array<int64_t>{first_id, second_id};
  try {
    run_moe(runner, rows, top_k, experts, 16, ids);
  } catch (Stop const&) {
  }
  std::cout << runner.mKernelRunner->tactics << "\n";
}
}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream given(line);
    std::string kind;
    given >> kind;
    std::ostringstream said;
    auto* const before = std::cout.rdbuf(said.rdbuf());
    try {
      answer(given, kind);
    } catch (Stop const&) {
    } catch (std::exception const& error) {
      said.str(std::string("error ") + error.what());
    }
    std::cout.rdbuf(before);
    auto text = said.str();
    for (auto& c : text) c = c == '\n' ? ' ' : c;
    std::cout << text << "\n";
  }
}
