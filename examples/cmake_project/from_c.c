// A GEMM on tensor cores from C, which has no type for half-precision numbers: the launcher takes
// any pointer to them. With a workspace, and compared with a loop on the CPU.
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gemm_f16.h"

enum { M = 123, N = 77, K = 45 };

// -2, -1, 0, 1, 2 as bits of IEEE binary16.
static const uint16_t halves[] = {0xC000, 0xBC00, 0x0000, 0x3C00, 0x4000};

static uint16_t a[M * K], b[K * N];
static float d[M * N];

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  printf("%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

int main(void) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    printf("skipped: there is no GPU\n");
    return 77;
  }
  for (int i = 0; i < M * K; ++i) a[i] = halves[i % 5];
  for (int i = 0; i < K * N; ++i) b[i] = halves[i % 3 + 1];

  void *A, *B, *D, *workspace = NULL;
  check(cudaMalloc(&A, sizeof a), "cudaMalloc");
  check(cudaMalloc(&B, sizeof b), "cudaMalloc");
  check(cudaMalloc(&D, sizeof d), "cudaMalloc");
  check(cudaMemcpy(A, a, sizeof a, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpy(B, b, sizeof b, cudaMemcpyHostToDevice), "cudaMemcpy");

  // K and N are odd, so that lines do not start at multiples of 16 bytes: they will be packed.
  size_t bytes;
  check(gemm_f16_workspace(M, N, K, A, K, B, N, &bytes), "gemm_f16_workspace");
  if (bytes > 0) check(cudaMalloc(&workspace, bytes), "cudaMalloc");
  if (gemm_f16_launch(M, N, K, 1, A, K, B, N, 0, NULL, 0, D, N, workspace, bytes - 1, NULL) !=
      cudaErrorInvalidValue) {
    printf("too small a workspace is not refused\n");
    return 1;
  }
  check(
      gemm_f16_launch(M, N, K, 1, A, K, B, N, 0, NULL, 0, D, N, workspace, bytes, NULL),
      "gemm_f16_launch");
  check(cudaMemcpy(d, D, sizeof d, cudaMemcpyDeviceToHost), "gemm_f16");

  for (int row = 0; row < M; ++row) {
    for (int col = 0; col < N; ++col) {
      int sum = 0;
      for (int k = 0; k < K; ++k) sum += ((row * K + k) % 5 - 2) * ((k * N + col) % 3 - 1);
      if (d[row * N + col] != (float)sum) {
        printf("D[%d][%d] is %g instead of %d\n", row, col, d[row * N + col], sum);
        return 1;
      }
    }
  }
  cudaFree(workspace);
  cudaFree(D);
  cudaFree(B);
  cudaFree(A);
  printf("ok\n");
  return 0;
}
