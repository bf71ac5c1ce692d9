// Linked in front of the launchers of FlashInfer's SM120 module where it is built for sm_90a (module.py): before
// each launch the weights are unpacked, as SM90's TMA can't do that on the way to shared memory (emulation.h).
//
// LAUNCHERS, defined by module.py, is a list of LAUNCHER(number, "symbol"), one per kernel.
#include <map>
#include <vector>

#include "cute/tensor.hpp"
#include "moe_gemm_kernels.h"

namespace {

using Input = tensorrt_llm::kernels::cutlass_kernels::TmaWarpSpecializedGroupedGemmInput;
using Shape = Input::ProblemShape::UnderlyingProblemShape;
using Cluster = cute::Shape<int32_t, int32_t, cute::_1>;

#define CHECK(call)                                                                       \
  do {                                                                                    \
    if (cudaError_t const error = (call); error != cudaSuccess)                           \
      throw std::runtime_error(std::string(#call ": ") + cudaGetErrorString(error));      \
  } while (0)

// 16 values, 8 bytes, become 16 bytes: the values, then 8 bytes that no one may read. They hold 0x77.
__global__ void unpack(Shape const* shapes, bool swap_ab, void const* const* from, void const** to, uint8_t* buffer,
                       int64_t each) {
  int const group = blockIdx.y;
  auto const [m, n, k] = shapes[group];
  int64_t const rows = swap_ab ? m : n, tokens = swap_ab ? n : m;
  if (blockIdx.x == 0 && threadIdx.x == 0) to[group] = buffer + group * each;
  if (tokens == 0) return;
  if (rows * k > each) __trap();
  auto const* const packed = static_cast<uint2 const*>(from[group]);
  auto* const slots = reinterpret_cast<uint4*>(buffer + group * each);
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * k / 16; i += int64_t(gridDim.x) * blockDim.x)
    slots[i] = make_uint4(packed[i].x, packed[i].y, 0x77777777, 0x77777777);
}

// The input with weights that TMA can load. Launches of a stream follow each other, so one buffer serves all; it is
// made, or made larger, while no graph is captured: in a capture the shapes can't be read.
Input unpacked(Input input, cudaStream_t stream) {
  static std::map<int, std::tuple<uint8_t*, void const**, int64_t>> buffers;  // by device: values, pointers, bytes a group
  int device = 0;
  CHECK(cudaGetDevice(&device));
  auto& [buffer, pointers, each] = buffers[device];
  int const groups = input.shape_info.groups();
  auto const* const shapes = static_cast<Shape const*>(input.shape_info.problem_shapes);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  CHECK(cudaStreamIsCapturing(stream, &capture));
  if (capture == cudaStreamCaptureStatusNone) {
    std::vector<Shape> host(groups);
    CHECK(cudaMemcpyAsync(host.data(), shapes, groups * sizeof(Shape), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    int64_t largest = 0;
    for (auto const& [m, n, k] : host) largest = std::max<int64_t>(largest, (input.swap_ab ? m : n) * k);
    if (largest > each || !buffer) {
      CHECK(cudaDeviceSynchronize());
      CHECK(cudaFree(buffer));
      CHECK(cudaFree(pointers));
      each = largest;
      CHECK(cudaMalloc(&buffer, std::max<int64_t>(each * groups, 1)));
      CHECK(cudaMalloc(&pointers, sizeof(void*) * groups));
    }
  }
  unpack<<<dim3(64, groups), 256, 0, stream>>>(shapes, input.swap_ab, input.ptr_weight, pointers, buffer, each);
  CHECK(cudaGetLastError());
  input.ptr_weight = pointers;
  return input;
}

}  // namespace

#define LAUNCHER(number, symbol)                                                                                     \
  void upstream##number(Input, int, int, cudaStream_t, int*, size_t*, Cluster, Cluster) __asm__("__real_" symbol);   \
  void wrapped##number(Input, int, int, cudaStream_t, int*, size_t*, Cluster, Cluster) __asm__("__wrap_" symbol);    \
  void wrapped##number(Input input, int experts, int processors, cudaStream_t stream, int* occupancy,                \
                       size_t* workspace, Cluster cluster, Cluster fallback) {                                       \
    bool const asked = occupancy || workspace;                                                                       \
    upstream##number(asked ? input : unpacked(input, stream), experts, processors, stream, occupancy, workspace,     \
                     cluster, fallback);                                                                             \
  }
LAUNCHERS
