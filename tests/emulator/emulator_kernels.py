"""CUDA kernels for the emulator's tests, and the way to compile and run them."""

from __future__ import annotations

import functools
from pathlib import Path

import cutlass_library
import numpy as np
from cuda import pathfinder
from cuda.bindings import nvrtc

from gen.emulator import Emulator, LaunchReport

HEADER = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
# name: (element, accumulator, output) in CUDA, and numpy's types for element and accumulator
TYPES = {
    "f32": ("float", "float", "float", np.float32, np.float32),
    "f64": ("double", "double", "double", np.float64, np.float64),
    "s32": ("int", "int", "int", np.int32, np.int32),
    "f16": ("__half", "float", "__half", np.float16, np.float32),
    "half": ("__half", "__half", "__half", np.float16, np.float16),
    "bf16": ("__nv_bfloat16", "float", "__nv_bfloat16", np.uint16, np.float32),
    "s8": ("signed char", "int", "int", np.int8, np.int32),
}

ARGUMENTS = """int M, int N, int K, Acc alpha,
    const T* __restrict__ A, long long lda, const T* __restrict__ B, long long ldb,
    Acc beta, const Out* C, long long ldc, Out* D, long long ldd"""

EPILOGUE = """
__device__ void epilogue(Acc alpha, Acc acc, Acc beta, const Out* C, Out* D) {
  Acc result = alpha * acc;
  if (beta != Acc(0)) result += beta * Acc(*C);
  *D = Out(result);
}
"""

KERNELS = {
    "naive": """
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  Acc acc = Acc(0);
  for (int k = 0; k < K; ++k) acc += Acc(A[row * lda + k]) * Acc(B[k * ldb + col]);
  epilogue(alpha, acc, beta, C + row * ldc + col, D + row * ldd + col);
""",
    "tiles": """
  __shared__ T As[16][16];
  __shared__ T Bs[16][16];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  Acc acc = Acc(0);
  for (int k0 = 0; k0 < K; k0 += 16) {
    As[ty][tx] = (row < M && k0 + tx < K) ? A[row * lda + k0 + tx] : T(0);
    Bs[ty][tx] = (col < N && k0 + ty < K) ? B[(k0 + ty) * ldb + col] : T(0);
    __syncthreads();
    for (int k = 0; k < 16; ++k) acc += Acc(As[ty][k]) * Acc(Bs[k][tx]);
    __syncthreads();
  }
  if (row < M && col < N) epilogue(alpha, acc, beta, C + row * ldc + col, D + row * ldd + col);
""",
    "rec_tiles": """
  extern __shared__ __align__(16) unsigned char raw[];
  T(*As)[8] = reinterpret_cast<T(*)[8]>(raw);
  T(*Bs)[32] = reinterpret_cast<T(*)[32]>(raw + 16 * 8 * sizeof(T));
  const int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
  const int row = blockIdx.y * 16 + ty, col = blockIdx.x * 32 + tx;
  Acc acc[2] = {Acc(0), Acc(0)};
  for (int k0 = 0; k0 < K; k0 += 8) {
    for (int i = thread; i < 16 * 8; i += 256) {
      const int r = blockIdx.y * 16 + i / 8, k = k0 + i % 8;
      As[i / 8][i % 8] = (r < M && k < K) ? A[r * lda + k] : T(0);
    }
    for (int i = thread; i < 8 * 32; i += 256) {
      const int k = k0 + i / 32, c = blockIdx.x * 32 + i % 32;
      Bs[i / 32][i % 32] = (k < K && c < N) ? B[k * ldb + c] : T(0);
    }
    __syncthreads();
    for (int k = 0; k < 8; ++k)
      for (int j = 0; j < 2; ++j) acc[j] += Acc(As[ty][k]) * Acc(Bs[k][tx + 16 * j]);
    __syncthreads();
  }
  for (int j = 0; j < 2; ++j)
    if (row < M && col + 16 * j < N)
      epilogue(alpha, acc[j], beta, C + row * ldc + col + 16 * j, D + row * ldd + col + 16 * j);
""",
    "thread_1d": """
  const long long id = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (id >= (long long)M * N) return;
  const int row = id / N, col = id % N;
  Acc acc = Acc(0);
  for (int k = 0; k < K; ++k) acc += Acc(A[row * lda + k]) * Acc(B[k * ldb + col]);
  epilogue(alpha, acc, beta, C + row * ldc + col, D + row * ldd + col);
""",
    "block_1d": """
  for (int row = blockIdx.x; row < M; row += gridDim.x)
    for (int col = threadIdx.x; col < N; col += blockDim.x) {
      Acc acc = Acc(0);
      for (int k = 0; k < K; ++k) acc += Acc(A[row * lda + k]) * Acc(B[k * ldb + col]);
      epilogue(alpha, acc, beta, C + row * ldc + col, D + row * ldd + col);
    }
""",
    "shared_row": """
  __shared__ T row_of_A[32];
  const int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  Acc acc = Acc(0);
  for (int k0 = 0; k0 < K; k0 += 32) {
    const int count = min(32, K - k0);
    for (int k = threadIdx.x; k < count; k += blockDim.x) row_of_A[k] = A[row * lda + k0 + k];
    __syncthreads();
    if (col < N)
      for (int k = 0; k < count; ++k) acc += Acc(row_of_A[k]) * Acc(B[(k0 + k) * ldb + col]);
    __syncthreads();
  }
  if (col < N) epilogue(alpha, acc, beta, C + row * ldc + col, D + row * ldd + col);
""",
}

CUTLASS = """
#include <cutlass/cutlass.h>
#include <cutlass/gemm/kernel/default_gemm.h>
#include <cutlass/epilogue/thread/linear_combination.h>
using Epilogue = cutlass::epilogue::thread::LinearCombination<T, 1, T, T>;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>;
using RowMajor = cutlass::layout::RowMajor;
using Gemm = typename cutlass::gemm::kernel::DefaultGemm<
    T, RowMajor, 1, T, RowMajor, 1, T, RowMajor, T, cutlass::arch::OpClassSimt,
    cutlass::arch::Sm50, cutlass::gemm::GemmShape<64, 64, 8>, cutlass::gemm::GemmShape<32, 32, 8>,
    cutlass::gemm::GemmShape<1, 1, 1>, Epilogue, Swizzle, 2, false,
    cutlass::arch::OpMultiplyAdd>::GemmKernel;
__device__ int info[2] = {(int)sizeof(typename Gemm::SharedStorage), Gemm::kThreadCount};
extern "C" __global__ void cutlass_info(int* out) { out[0] = info[0]; out[1] = info[1]; }
extern "C" __global__ void __launch_bounds__(Gemm::kThreadCount) gemm(ARGUMENTS) {
  extern __shared__ __align__(16) char storage[];
  cutlass::gemm::GemmCoord problem(M, N, K);
  Swizzle swizzle;
  auto grid = swizzle.get_tiled_shape(problem, {64, 64, 8}, 1);
  typename Gemm::Params params(problem, grid, {(T*)A, lda}, {(T*)B, ldb}, {(T*)C, ldc}, {D, ldd},
                               {alpha, beta});
  Gemm{}(params, *reinterpret_cast<typename Gemm::SharedStorage*>(storage));
}
"""


def geometry(name: str, m: int, n: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Grid and block, (x, y, z), of one of `KERNELS`."""
    return {
        "naive": ((-(-n // 16), -(-m // 16), 1), (16, 16, 1)),
        "tiles": ((-(-n // 16), -(-m // 16), 1), (16, 16, 1)),
        "rec_tiles": ((-(-n // 32), -(-m // 16), 1), (16, 16, 1)),
        "thread_1d": ((-(-m * n // 128), 1, 1), (128, 1, 1)),
        "block_1d": ((-(-m // 3), 1, 1), (64, 1, 1)),
        "shared_row": ((-(-n // 64), m, 1), (64, 1, 1)),
    }[name]


def gemm_source(name: str, types: str) -> str:
    """CUDA source of a GEMM kernel called `gemm`; `name` is a key of `KERNELS` or "cutlass"."""
    element, acc, out = TYPES[types][:3]
    header = HEADER if "__" in element else ""
    using = f"using T = {element};\nusing Acc = {acc};\nusing Out = {out};\n"
    if name == "cutlass":
        return using + CUTLASS.replace("ARGUMENTS", ARGUMENTS)
    signature = f'extern "C" __global__ void __launch_bounds__(256) gemm({ARGUMENTS})'
    return f"{header}{using}{EPILOGUE}{signature} {{{KERNELS[name]}}}\n"


@functools.cache
def compile_cuda(source: str, arch: str = "compute_80") -> str:
    """PTX of a CUDA source, with line information."""
    include = pathfinder.find_nvidia_header_directory("cudart")
    cutlass = Path(cutlass_library.__file__).parent / "source" / "include"
    options = [f"--gpu-architecture={arch}", "-lineinfo", "-std=c++17", "-default-device"]
    options += ["-diag-suppress=629,630,20044", f"-I{include}", f"-I{include}/cccl", f"-I{cutlass}"]
    options += ["--minimal"]  # no textures, for example: hundreds of kernels compile sooner
    options += ["--pch", "--pch-messages=false"] if "#include" in source else []
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    text = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.rstrip(b"\0").decode()


def encode(values: np.ndarray, dtype: type) -> np.ndarray:
    """Small integers as `dtype`, where uint16 stands for bf16 bits."""
    if dtype is np.uint16:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def decode(values: np.ndarray) -> np.ndarray:
    """Device values as float64."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def run_gemm(
    ptx: str,
    types: str,
    m: int,
    n: int,
    k: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    *,
    beta: int = 1,
    shared_bytes: int = 0,
    emulator: Emulator | None = None,
    source: str = "",
) -> tuple[np.ndarray, np.ndarray, LaunchReport]:
    """Run the kernel `gemm` on small integers; the result, the exact result, the report."""
    element, acc = TYPES[types][3:]
    output = np.int32 if types == "s8" else element
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    a, b, c = (rng.integers(-2, 3, shape) for shape in ((m, k), (k, n), (m, n)))
    emulator = emulator or Emulator()
    device = [
        emulator.alloc(encode(values, dtype), name)
        for values, dtype, name in ((a, element, "A"), (b, element, "B"), (c, output, "C"))
    ]
    d = emulator.alloc(encode(np.full((m, n), -77), output), "D")
    size, wide = np.int32, np.int64
    one, two = acc(beta), acc(2)
    args = [size(m), size(n), size(k), two, device[0], wide(k), device[1], wide(n), one]
    args += [device[2], wide(n), d, wide(n)]
    report = emulator.launch(
        ptx, "gemm", grid, block, args, shared_bytes, source.splitlines() or None
    )
    result = decode(emulator.read(d))
    for array in (*device, d):
        emulator.free(array)
    return result, (2 * (a @ b) + beta * c).astype(np.float64), report
