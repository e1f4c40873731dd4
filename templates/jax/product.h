// What gen.jax's handler and the libraries of its kernels share.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace gen_jax {

// D = epilogue(alpha * A * B + beta * C), of matrices in device memory. C, the bias and the workspace are
// null where the kernel has none.
struct Product {
  long long m, n, k;
  double alpha, beta;
  const void* a;
  const void* b;
  const void* c;
  const void* bias;
  void* d;
  long long lda, ldb, ldc, ldd;
  void* workspace;
  std::size_t workspace_bytes;
  CUstream_st* stream;
};

}  // namespace gen_jax

// Queues a kernel; returns a CUresult.
extern "C" int gen_jax_launch(const gen_jax::Product& p);
