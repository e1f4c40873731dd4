template <int Tile>
__global__ void sgemm(int M, int N, int K, float alpha, const float* A, const float* B,
                      float beta, float* C) {
  __shared__ float a[Tile][Tile], b[Tile][Tile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * Tile + y, col = blockIdx.x * Tile + x;
  float sum = 0;
  for (int k = 0; k < K; k += Tile) {
    a[y][x] = A[row * K + k + x];
    b[y][x] = B[(k + y) * N + col];
    __syncthreads();
    for (int i = 0; i < Tile; ++i) sum += a[y][i] * b[i][x];
    __syncthreads();
  }
  C[row * N + col] = alpha * sum + beta * C[row * N + col];
}
