// What a program asks of the device, answered as an SM121 would: its version, and what shared memory a block may have.
// Linked with --wrap for both functions.
#include <cuda_runtime_api.h>

namespace {
// SM90's block may have 232448.
constexpr int kSharedMemory = 101376;
}  // namespace

extern "C" {

cudaError_t __real_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t __wrap_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaError_t const status = __real_cudaDeviceGetAttribute(value, attribute, device);
  if (status != cudaSuccess) return status;
  if (attribute == cudaDevAttrComputeCapabilityMajor) *value = 12;
  if (attribute == cudaDevAttrComputeCapabilityMinor) *value = 1;
  if (attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin) *value = kSharedMemory;
  return status;
}

cudaError_t __real_cudaFuncSetAttribute(void const* function, cudaFuncAttribute attribute, int value);
cudaError_t __wrap_cudaFuncSetAttribute(void const* function, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > kSharedMemory) return cudaErrorInvalidValue;
  return __real_cudaFuncSetAttribute(function, attribute, value);
}

}  // extern "C"
