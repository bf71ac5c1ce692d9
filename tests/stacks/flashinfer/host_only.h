// Included before all else where CUTLASS is compiled as C++, by the host's compiler alone: what a kernel's body names and
// nvcc knows by itself. No kernel is run, and of none is there more than an address; see host_options() in moe_unit.py.
#pragma once
#include <cuda_runtime.h>

extern uint3 const threadIdx, blockIdx;
extern dim3 const blockDim, gridDim;
void __syncthreads();
int __syncthreads_and(int);
void __syncwarp(unsigned = 0);
int __float_as_int(float);
float __int_as_float(int);

// Its header goes by the version of nvcc, and then takes nvcc's own types for granted.
#pragma push_macro("__CUDACC_VER_MAJOR__")
#undef __CUDACC_VER_MAJOR__
#include "cutlass/arch/wmma.h"
#pragma pop_macro("__CUDACC_VER_MAJOR__")

// The kernel whose attributes are asked for, in the place of the one that holds instructions of a GPU's.
#include "cutlass/device_kernel.h"
namespace cutlass {
template <class Kernel>
void nothing(typename Kernel::Params const&) {}
template <class Kernel>
inline constexpr auto& no_kernel = nothing<Kernel>;
}  // namespace cutlass
#define device_kernel no_kernel
