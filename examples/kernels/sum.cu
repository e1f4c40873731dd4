// gen-launch: --grid 2 --block 128 --arg in=f32[256]:integers --arg out=f32[2]:poison
__global__ void sum(const float* in, float* out) {
  __shared__ float part[128];
  const int t = threadIdx.x;
  part[t] = in[blockIdx.x * 128 + t];
  for (int half = 64; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}
