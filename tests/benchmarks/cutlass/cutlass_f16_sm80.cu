// D = alpha * A * B + beta * C in half precision on Ampere's tensor cores, by CUTLASS 2.x.
#include "cutlass/gemm/device/gemm.h"

using Row = cutlass::layout::RowMajor;
using half_t = cutlass::half_t;
using Gemm = cutlass::gemm::device::Gemm<
    half_t, Row, half_t, Row, half_t, Row, float, cutlass::arch::OpClassTensorOp,
    cutlass::arch::Sm80, cutlass::gemm::GemmShape<128, 256, 32>,
    cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<half_t, 8, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, 4>;

extern "C" int launch(
    int M, int N, int K, float alpha, const half_t* A, int lda, const half_t* B, int ldb,
    float beta, const half_t* C, int ldc, half_t* D, int ldd, cudaStream_t stream) {
  Gemm gemm;
  const Gemm::Arguments arguments({M, N, K}, {A, lda}, {B, ldb}, {C, ldc}, {D, ldd}, {alpha, beta});
  return int(gemm(arguments, nullptr, stream));
}
