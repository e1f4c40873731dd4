// D = alpha * A * B + beta * C in float on CUDA cores, by CUTLASS 2.x.
#include "cutlass/gemm/device/gemm.h"

using Row = cutlass::layout::RowMajor;
using Gemm = cutlass::gemm::device::Gemm<float, Row, float, Row, float, Row>;

extern "C" int launch(
    int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
    const float* C, int ldc, float* D, int ldd, cudaStream_t stream) {
  Gemm gemm;
  const Gemm::Arguments arguments({M, N, K}, {A, lda}, {B, ldb}, {C, ldc}, {D, ldd}, {alpha, beta});
  return int(gemm(arguments, nullptr, stream));
}
