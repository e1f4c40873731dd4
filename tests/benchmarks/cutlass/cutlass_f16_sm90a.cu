// D = alpha * A * B + beta * C in half precision with Hopper's TMA, by CUTLASS 3.x.
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

using cute::Int;
using cute::Shape;
using Row = cutlass::layout::RowMajor;
using half_t = cutlass::half_t;
using Tile = Shape<Int<128>, Int<256>, Int<64>>;
using Cluster = Shape<Int<1>, Int<1>, Int<1>>;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, half_t, Row, 8, half_t, Row, 8,
    cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;

using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, half_t, Row, 8, half_t, Row, 8, float,
    Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;

using Kernel = cutlass::gemm::kernel::GemmUniversal<
    Shape<int, int, int, int>, Mainloop, Epilogue, cutlass::gemm::PersistentScheduler>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

extern "C" int launch(
    int M, int N, int K, float alpha, const half_t* A, const half_t* B, float beta, const half_t* C,
    half_t* D, void* workspace, cudaStream_t stream) {
  using cutlass::make_cute_packed_stride;
  const Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {M, N, K, 1},
      {A, make_cute_packed_stride(Kernel::StrideA{}, {M, K, 1}), B,
       make_cute_packed_stride(Kernel::StrideB{}, {N, K, 1})},
      {{alpha, beta},
       C,
       make_cute_packed_stride(Kernel::StrideC{}, {M, N, 1}),
       D,
       make_cute_packed_stride(Kernel::StrideD{}, {M, N, 1})}};
  Gemm gemm;
  return int(gemm(arguments, workspace, stream));
}
