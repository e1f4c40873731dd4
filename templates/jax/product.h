// What gen.jax's handler and the libraries of its kernels share.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace gen_jax {

// D = epilogue(alpha * A * B + beta * C), of matrices in device memory, or a batch of that. C and the
// workspace are null where the kernel has none.
struct Product {
  long long m, n, k, batch;
  double alpha, beta;
  const void* a;
  const void* b;
  const void* c;
  void* d;
  long long lda, ldb, ldc, ldd;
  long long stride_a, stride_b, stride_c, stride_d;  // elements, from one product to the next
  const void* const* further;   // arrays that the epilogue takes, such as the bias
  const long long* further_ld;  // of each, where it is a matrix
  const double* numbers;        // that the epilogue takes
  void* workspace;
  std::size_t workspace_bytes;
  CUstream_st* stream;
};

}  // namespace gen_jax

// Queues a kernel; returns a CUresult.
extern "C" int gen_jax_launch(const gen_jax::Product& p);
