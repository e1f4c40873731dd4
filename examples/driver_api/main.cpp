// D = alpha * A * B + beta * C in a program that an ordinary C++ compiler has built, without any
// header or library of CUDA: the driver's library is opened when the program runs.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "gemm_f32.h"

namespace {

void* libcuda = nullptr;

// Calls a function of the driver; ends the program if that fails.
template <class... Arguments>
void call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(libcuda, name));
  const int error = function ? function(arguments...) : -1;
  if (error == 0) return;
  std::printf("%s: error %d\n", name, error);
  std::exit(1);
}

// Memory that the CPU and the GPU both reach.
float* allocate(int elements) {
  unsigned long long address = 0;
  const unsigned attach_global = 1;
  call("cuMemAllocManaged", &address, elements * sizeof(float), attach_global);
  return reinterpret_cast<float*>(address);
}

}  // namespace

int main() {
  libcuda = dlopen("libcuda.so.1", RTLD_NOW);
  const auto init =
      libcuda ? reinterpret_cast<int (*)(unsigned)>(dlsym(libcuda, "cuInit")) : nullptr;
  if (init == nullptr || init(0) != 0) {
    std::printf("skipped: there is no GPU\n");
    return 77;
  }
  int device = 0;
  void* context = nullptr;
  call("cuDeviceGet", &device, 0);
  call("cuDevicePrimaryCtxRetain", &context, device);
  call("cuCtxSetCurrent", context);

  const int M = 123, N = 77, K = 45;
  const float alpha = 0.5f, beta = 2.0f;
  float *const A = allocate(M * K), *const B = allocate(K * N);
  float *const C = allocate(M * N), *const D = allocate(M * N);
  for (int i = 0; i < M * K; ++i) A[i] = float(i % 7 - 3);
  for (int i = 0; i < K * N; ++i) B[i] = float(i % 5 - 2);
  for (int i = 0; i < M * N; ++i) C[i] = float(i % 3 - 1);

  const int error = gemm_f32_launch(M, N, K, alpha, A, K, B, N, beta, C, N, D, N, nullptr);
  if (error != 0) {
    std::printf("gemm_f32_launch: error %d\n", error);
    return 1;
  }
  call("cuCtxSynchronize");

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
