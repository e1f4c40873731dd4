// D = A * B by a CUTLASS 3.x kernel for sm_90a, with the host's code that launches it. Macros choose
// the kernel (see CUTLASS in hopper_kernels.py).

#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

using cute::Int;
using cute::Shape;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;

using A = TYPE_A;
using B = TYPE_B;
using D = TYPE_D;
using Accumulator = ACCUMULATOR;
using Tile = Shape<Int<TILE_M>, Int<TILE_N>, Int<TILE_K>>;
using Cluster = Shape<Int<CLUSTER_M>, Int<CLUSTER_N>, Int<1>>;

template <class T>
constexpr int alignment = 128 / cutlass::sizeof_bits<T>::value;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, Accumulator, Accumulator, void, Row,
    alignment<D>, D, Row, alignment<D>, cutlass::epilogue::EPILOGUE>::CollectiveOp;

using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, A, LAYOUT_A, alignment<A>, B, LAYOUT_B,
    alignment<B>, Accumulator, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(Epilogue::SharedStorage))>,
    cutlass::gemm::SCHEDULE>::CollectiveOp;

using Kernel = cutlass::gemm::kernel::GemmUniversal<
    Shape<int, int, int, int>, Mainloop, Epilogue, cutlass::gemm::SCHEDULER>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

// What is wrong, or nothing. The matrices are packed; there are so many multiprocessors.
extern "C" const char* run(int m, int n, int k, void* a, void* b, void* d, int multiprocessors) {
  Gemm::Arguments all{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {static_cast<A*>(a), cutlass::make_cute_packed_stride(Kernel::StrideA{}, {m, k, 1}),
       static_cast<B*>(b), cutlass::make_cute_packed_stride(Kernel::StrideB{}, {n, k, 1})},
      {{Accumulator(1), Accumulator(0)},
       nullptr,
       {},
       static_cast<D*>(d),
       cutlass::make_cute_packed_stride(Kernel::StrideD{}, {m, n, 1})}};
  all.hw_info.sm_count = multiprocessors;
#ifdef STREAM_K
  all.scheduler.decomposition_mode = decltype(all.scheduler.decomposition_mode)::StreamK;
#endif
  void* workspace = nullptr;
  if (size_t size = Gemm::get_workspace_size(all)) cudaMalloc(&workspace, size);
  Gemm gemm;
  cutlass::Status status = Gemm::can_implement(all);
  if (status == cutlass::Status::kSuccess) status = gemm.initialize(all, workspace);
  if (status == cutlass::Status::kSuccess) status = gemm.run();
  return status == cutlass::Status::kSuccess ? nullptr : cutlassGetStatusString(status);
}
