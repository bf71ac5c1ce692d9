// Prints the tiles that FlashInfer's heuristic offers a grouped GEMM on SM120, as MxNxBYTES, one a line. Arguments: whether
// FP8 meets FP4, whether the weights alone are narrow, and the architecture.
#include <cstdlib>
#include <iostream>

#include "cutlass_heuristic.cpp"

int main(int, char** argv) {
  using Config = tensorrt_llm::cutlass_extensions::CutlassGemmConfig;
  auto flags = Config::BLACKWELL | Config::GROUPED_GEMM | Config::FP4_ONLY;
  if (std::atoi(argv[1])) flags |= Config::FP8FP4_MIXED;
  if (std::atoi(argv[2])) flags |= Config::WEIGHT_ONLY;
  auto const param = static_cast<Config::CandidateConfigTypeParam>(flags);
  for (auto const& config : tensorrt_llm::kernels::cutlass_kernels::get_candidate_configs(std::atoi(argv[3]), 1, param))
    std::cout << config.toString() << "\n";
}
