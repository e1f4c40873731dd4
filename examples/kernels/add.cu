#include <cstdio>

__global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) c[i] = a[i] + b[i];
}

int main() {
  add<<<4, 256>>>(nullptr, nullptr, nullptr, 1000);
  std::printf("done\n");
}
