"""Hand-written tensor-core GEMM kernels for the emulator's tests: D = A * B, f16, row-major."""

from __future__ import annotations

import numpy as np

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, LaunchReport

HEADER = """
using u32 = unsigned;
using half = unsigned short;  // bits
__device__ void mma(u32 (&c)[REGISTERS], const u32 (&a)[2], u32 b) {
#if REGISTERS == 4
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};"
      : "+r"(c[0]), "+r"(c[1]) : "r"(a[0]), "r"(a[1]), "r"(b));
#endif
}
__device__ half to_half(u32 bits) {
  half h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(__uint_as_float(bits)));
  return h;
}
// One 16 x 8 tile of the accumulators, whose upper left element is (row, col).
__device__ void write(half* D, const u32 (&c)[REGISTERS], int row, int col, int M, int N) {
  for (int i = 0; i < 4; ++i) {
    int r = row + threadIdx.x % 32 / 4 + i / 2 * 8, n = col + threadIdx.x % 4 * 2 + i % 2;
    half value = REGISTERS == 4 ? to_half(c[i % REGISTERS]) : half(c[i / 2] >> i % 2 * 16);
    if (r < M && n < N) D[r * N + n] = value;
  }
}
"""

REGISTER_LOADS = """
extern "C" __global__ void gemm(const half* A, const half* B, half* D, int M, int N, int K) {
  int row = blockIdx.y * 16, col = blockIdx.x * 8, g = threadIdx.x / 4, t = threadIdx.x % 4;
  auto at = [](const half* X, int r, int c, int rows, int cols) {
    return r < rows && c < cols ? u32(X[r * cols + c]) : 0u;
  };
  u32 c[REGISTERS] = {};
  for (int k = 2 * t; k < K + 2 * t; k += 8) {
    u32 a[2], b = at(B, k, col + g, K, N) | at(B, k + 1, col + g, K, N) << 16;
    for (int i = 0; i < 2; ++i)
      a[i] = at(A, row + g + 8 * i, k, M, K) | at(A, row + g + 8 * i, k + 1, M, K) << 16;
    mma(c, a, b);
  }
  write(D, c, row, col, M, N);
}
"""

# 64 x 64 x 32 tiles, 2 warps of 32 x 64, two stages. A's rows have 4 chunks of 16 bytes, B's 8;
# chunks are swizzled so that ldmatrix has no bank conflicts. K and N are multiples of 8.
PIPELINE = """
__device__ void copy(u32 target, const void* source, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(target), "l"(source), "r"(inside ? 16 : 0));
}
__device__ u32 at_a(int row, int chunk) { return row * 64 + (chunk ^ row / 2 % 4) * 16; }
__device__ u32 at_b(int row, int chunk) { return 4096 + row * 128 + (chunk ^ row % 8) * 16; }
extern "C" __global__ void __launch_bounds__(64)
gemm(const half* A, const half* B, half* D, int M, int N, int K) {
  __shared__ __align__(128) char tiles[2][8192];
  u32 shared = __cvta_generic_to_shared(tiles);
  int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64, warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  auto fetch = [&](int step) {
    u32 tile = shared + step % 2 * 8192;
    for (int i = threadIdx.x; i < 256; i += 64) {
      int row = i / 4, chunk = i % 4, k = step * 32 + chunk * 8;
      bool inside = row0 + row < M && k < K;
      copy(tile + at_a(row, chunk), inside ? A + (row0 + row) * K + k : A, inside);
    }
    for (int i = threadIdx.x; i < 256; i += 64) {
      int row = i / 8, chunk = i % 8, k = step * 32 + row, n = col0 + chunk * 8;
      bool inside = k < K && n < N;
      copy(tile + at_b(row, chunk), inside ? B + k * N + n : B, inside);
    }
    asm volatile("cp.async.commit_group;");
  };
  u32 c[2][8][REGISTERS] = {};
  int steps = (K + 31) / 32;
  fetch(0);
  for (int step = 0; step < steps; ++step) {
    fetch(step + 1);  // beyond K it copies zeros
    asm volatile("cp.async.wait_group %0;" :: "n"(IN_FLIGHT));
    __syncthreads();
    u32 tile = shared + step % 2 * 8192;
    for (int k = 0; k < 4; ++k) {
      u32 a[2][2], b[8];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
          : "=r"(a[0][0]), "=r"(a[0][1]), "=r"(a[1][0]), "=r"(a[1][1])
          : "r"(tile + at_a(warp * 32 + lane, k)));
      for (int j = 0; j < 8; j += 4)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(b[j]), "=r"(b[j + 1]), "=r"(b[j + 2]), "=r"(b[j + 3])
            : "r"(tile + at_b(k * 8 + lane % 8, j + lane / 8)));
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 8; ++j) mma(c[i][j], a[i], b[j]);
    }
    __syncthreads();
  }
  asm volatile("cp.async.wait_all;");
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 8; ++j)
      write(D, c[i][j], row0 + warp * 32 + i * 16, col0 + j * 8, M, N);
}
"""

KERNELS = {"register_loads": (REGISTER_LOADS, 16, 8, 32), "pipeline": (PIPELINE, 64, 64, 64)}


def source(name: str, accumulator: str, in_flight: int = 1) -> str:
    """CUDA of one of `KERNELS`; `in_flight` copy groups are not waited for (1 is right)."""
    defines = f"#define REGISTERS {4 if accumulator == 'f32' else 2}\n"
    return f"{defines}#define IN_FLIGHT {in_flight}\n{HEADER}{KERNELS[name][0]}"


def run(
    name: str, accumulator: str, m: int, n: int, k: int, in_flight: int = 1,
    emulator: Emulator | None = None,
) -> tuple[np.ndarray, np.ndarray, LaunchReport]:  # fmt: skip
    """Run a kernel on small integers; the result, the exact result and the report."""
    text = source(name, accumulator, in_flight)
    _, rows, columns, threads = KERNELS[name]
    emulator = emulator or Emulator()
    rng = np.random.default_rng(m + n + k)
    a, b = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (k, n))
    device = [emulator.alloc(x.astype(np.float16), name) for name, x in (("A", a), ("B", b))]
    d = emulator.alloc(np.full((m, n), np.nan, np.float16), "D")
    report = emulator.launch(
        compile_cuda(text).code.decode(), "gemm", (-(-n // columns), -(-m // rows), 1),
        (threads, 1, 1), [*device, d, *(np.int32(i) for i in (m, n, k))],
        source_lines=text.splitlines(),
    )  # fmt: skip
    result = emulator.read(d)
    for array in (*device, d):
        emulator.free(array)
    return result, (a @ b).astype(np.float16), report
