// A grouped MXFP8 x MXFP4 GEMM for SM120 with STAGES explicit stages; only its type is looked at.
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/group_array_problem_shape.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

using cute::_1;
using cute::_128;
using cute::Shape;

using Arch = cutlass::arch::Sm120;
using A = cutlass::mx_float8_t<cutlass::float_e4m3_t>;
using B = cutlass::mx_float4_t<cutlass::float_e2m1_t>;
using D = cutlass::bfloat16_t;
using GemmTile = Shape<_128, _128, _128>;
using Cluster = Shape<_1, _1, _1>;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    Arch, cutlass::arch::OpClassBlockScaledTensorOp, GemmTile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, D, Row*, 8, D, Row*, 8,
    cutlass::epilogue::collective::EpilogueScheduleAuto>::CollectiveOp;

using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    Arch, cutlass::arch::OpClassBlockScaledTensorOp, A, Row*, 16, B, Column*, 128, float, GemmTile, Cluster,
    cutlass::gemm::collective::StageCount<STAGES>, cutlass::gemm::SCHEDULE>::CollectiveOp;

using Kernel = cutlass::gemm::kernel::GemmUniversal<
    cutlass::gemm::GroupProblemShape<Shape<int, int, int>>, Mainloop, Epilogue>;

#ifdef MEASURE
template <int Bytes> struct Needs;
Needs<sizeof(typename Kernel::SharedStorage)> shown_by_the_compiler;
#else
static_assert(Kernel::SharedStorageSize > 0);
#endif
