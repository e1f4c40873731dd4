// D = alpha * A * B + beta * C by the committed kernel, compared with a loop on the CPU.
#include <cuda_runtime.h>

#include <cstdio>

#include "gemm_f32.h"

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: there is no GPU\n");
    return 77;
  }

  const int M = 123, N = 77, K = 45;
  const float alpha = 0.5f, beta = 2.0f;
  float *A, *B, *C, *D;  // managed: the CPU and the GPU both reach them
  cudaMallocManaged(&A, M * K * sizeof(float));
  cudaMallocManaged(&B, K * N * sizeof(float));
  cudaMallocManaged(&C, M * N * sizeof(float));
  cudaError_t error = cudaMallocManaged(&D, M * N * sizeof(float));
  if (error == cudaSuccess) {
    for (int i = 0; i < M * K; ++i) A[i] = float(i % 7 - 3);
    for (int i = 0; i < K * N; ++i) B[i] = float(i % 5 - 2);
    for (int i = 0; i < M * N; ++i) C[i] = float(i % 3 - 1);
    error = gemm_f32_launch(M, N, K, alpha, A, K, B, N, beta, C, N, D, N, nullptr);
  }
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error != cudaSuccess) {
    std::printf("gemm_f32: %s\n", cudaGetErrorString(error));
    return 1;
  }

  for (int row = 0; row < M; ++row) {
    for (int col = 0; col < N; ++col) {
      float sum = 0;
      for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
      const float expected = alpha * sum + beta * C[row * N + col];  // small numbers: exact
      if (!(D[row * N + col] == expected)) {
        std::printf("D[%d][%d] is %g instead of %g\n", row, col, D[row * N + col], expected);
        return 1;
      }
    }
  }
  std::printf("ok\n");
  return 0;
}
