"""CUTLASS 2.x GEMM kernels for the emulator's tests, and the way to run them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gen.compile import nvrtc
from gen.emulator import Emulator, LaunchReport
from tests.emulator.emulator_kernels import decode, encode

# name: (in CUTLASS, numpy's storage)
ELEMENTS = {
    "f16": ("cutlass::half_t", np.float16),
    "bf16": ("cutlass::bfloat16_t", np.uint16),
    "tf32": ("cutlass::tfloat32_t", np.float32),
    "f32": ("float", np.float32),
    "f64": ("double", np.float64),
    "s8": ("int8_t", np.int8),
    "s32": ("int", np.int32),
}


@dataclass(frozen=True)
class CutlassKernel:
    """What `DefaultGemm` is asked for; `b` is the layout of B, C and D are row-major."""

    arch: int
    element: str
    accumulator: str
    output: str
    tile: tuple[int, int, int]
    warp: tuple[int, int, int]
    instruction: tuple[int, int, int]
    stages: int
    b: str = "Column"

    def __str__(self) -> str:
        tile, inner = ("x".join(map(str, size)) for size in (self.tile, self.instruction))
        types = f"{self.element}_{self.accumulator}"
        return f"sm{self.arch}_{types}_{inner}_{tile}_{self.stages}stages_{self.b.lower()}B"


TINY, SMALL, LARGE = (32, 32, 32), (64, 64, 32), (128, 128, 32)
KERNELS = [
    CutlassKernel(75, "f16", "f32", "f32", SMALL, (32, 32, 32), (16, 8, 8), 2),
    CutlassKernel(75, "f16", "f16", "f16", SMALL, (32, 32, 32), (16, 8, 8), 2, "Row"),
    CutlassKernel(75, "s8", "s32", "s32", (64, 64, 64), (32, 32, 64), (8, 8, 16), 2),
    CutlassKernel(80, "f16", "f32", "f16", SMALL, (32, 32, 32), (16, 8, 16), 3, "Row"),
    CutlassKernel(80, "f16", "f16", "f16", SMALL, (32, 32, 32), (16, 8, 16), 4),
    CutlassKernel(80, "f16", "f32", "f32", LARGE, (64, 64, 32), (16, 8, 16), 4, "Row"),
    CutlassKernel(80, "f16", "f16", "f16", LARGE, (64, 64, 32), (16, 8, 16), 3),
    CutlassKernel(80, "bf16", "f32", "bf16", SMALL, (32, 32, 32), (16, 8, 16), 3),
    CutlassKernel(80, "tf32", "f32", "f32", (64, 64, 16), (32, 32, 16), (16, 8, 8), 3),
    CutlassKernel(80, "s8", "s32", "s32", (64, 64, 64), (32, 32, 64), (16, 8, 32), 3),
    CutlassKernel(80, "f64", "f64", "f64", (32, 32, 16), (16, 16, 16), (8, 8, 4), 3),
    CutlassKernel(80, "f32", "f32", "f32", (64, 64, 8), (32, 32, 8), (1, 1, 1), 3, "Row"),
]
# Of each way to load and multiply one: a compilation takes seconds.
QUICK = [KERNELS[at] for at in (9,)]

SOURCE = """
#include <cutlass/cutlass.h>
#include <cutlass/gemm/kernel/default_gemm.h>
#include <cutlass/epilogue/thread/linear_combination.h>
using T = @element;
using Acc = @accumulator;
using Out = @output;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>;
using Tile = cutlass::gemm::GemmShape<@tile>;
using Gemm = typename cutlass::gemm::kernel::DefaultGemm<
    T, Row, @align, T, @b, @align, Out, Row, Acc, cutlass::arch::OpClass@class,
    cutlass::arch::Sm@arch, Tile, cutlass::gemm::GemmShape<@warp>,
    cutlass::gemm::GemmShape<@instruction>,
    cutlass::epilogue::thread::LinearCombination<Out, @width, Acc, Acc>, Swizzle, @stages, false,
    cutlass::arch::OpMultiplyAdd@saturate>::GemmKernel;
extern "C" __global__ void info(int* out) {
  out[0] = sizeof(typename Gemm::SharedStorage);
  out[1] = Gemm::kThreadCount;
}
extern "C" __global__ void __launch_bounds__(Gemm::kThreadCount)
gemm(int M, int N, int K, const T* A, const T* B, const Out* C, Out* D, Acc alpha, Acc beta) {
  extern __shared__ __align__(16) char storage[];
  cutlass::gemm::GemmCoord problem(M, N, K);
  auto grid = Swizzle().get_tiled_shape(problem, {Tile::kM, Tile::kN, Tile::kK}, 1);
  typename Gemm::Params params(problem, grid, {(T*)A, K}, {(T*)B, @ldb}, {(Out*)C, N}, {D, N},
                               {alpha, beta});
  Gemm{}(params, *reinterpret_cast<typename Gemm::SharedStorage*>(storage));
}
"""


def source(kernel: CutlassKernel) -> str:
    """CUDA source with the entries `gemm` and `info` (shared bytes and threads)."""
    simt = kernel.instruction == (1, 1, 1)
    size = np.dtype(ELEMENTS[kernel.element][1]).itemsize
    out_size = np.dtype(ELEMENTS[kernel.output][1]).itemsize
    words = {
        "element": ELEMENTS[kernel.element][0],
        "accumulator": ELEMENTS[kernel.accumulator][0],
        "output": ELEMENTS[kernel.output][0],
        "tile": ", ".join(map(str, kernel.tile)),
        "warp": ", ".join(map(str, kernel.warp)),
        "instruction": ", ".join(map(str, kernel.instruction)),
        "align": 1 if simt or kernel.element == "f64" else 16 // size,
        "width": 1 if simt or kernel.element == "f64" else 16 // out_size,
        "class": "Simt" if simt else "TensorOp",
        "arch": kernel.arch,
        "stages": kernel.stages,
        "saturate": "Saturate" if kernel.element == "s8" else "",
        "ldb": "K" if kernel.b == "Column" else "N",
        "b": kernel.b,
    }
    text = SOURCE
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(f"@{word}", str(words[word]))
    return text


def compile_ptx(kernel: CutlassKernel) -> str:
    """The kernel's PTX, from the cache where it was compiled before."""
    options = ["-default-device", "-diag-suppress=20044", f"-I{nvrtc.cutlass_include()}"]
    text = source(kernel)
    return nvrtc.compile_cuda(text, arch=f"sm_{kernel.arch}", options=options).code.decode()


def run(
    kernel: CutlassKernel, m: int, n: int, k: int, emulator: Emulator | None = None
) -> tuple[np.ndarray, np.ndarray, LaunchReport]:
    """D = 2 * A * B - C on small integers: the result, the exact result and the report."""
    emulator, ptx = emulator or Emulator(), compile_ptx(kernel)
    counts = emulator.alloc(np.zeros(2, np.int32))
    emulator.launch(ptx, "info", (1, 1, 1), (1, 1, 1), [counts])
    shared, threads = (int(value) for value in emulator.read(counts))
    rng = np.random.default_rng(m + 3 * n + 7 * k)
    a, b, c = (rng.integers(-2, 3, shape) for shape in ((m, k), (k, n), (m, n)))
    storage, acc, output = (
        ELEMENTS[x][1] for x in (kernel.element, kernel.accumulator, kernel.output)
    )
    device = [
        emulator.alloc(encode(values, dtype), name)
        for values, dtype, name in (
            (a, storage, "A"), (b.T if kernel.b == "Column" else b, storage, "B"), (c, output, "C"),
            (np.full((m, n), 77), output, "D"),
        )
    ]  # fmt: skip
    grid = (-(-m // kernel.tile[0]), -(-n // kernel.tile[1]), 1)
    args = [*(np.int32(size) for size in (m, n, k)), *device, acc(2), acc(-1)]
    report = emulator.launch(ptx, "gemm", grid, (threads, 1, 1), args, shared)
    result = decode(emulator.read(device[3]))
    for array in (counts, *device):
        emulator.free(array)
    return result, (2 * (a @ b) - c).astype(np.float64), report
