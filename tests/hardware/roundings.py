"""How f32 becomes tf32: by cvt.rna, and by the TMA as it copies a box of a map of TFLOAT32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gen.compile import nvrtc
from gen.device.runner import Runner
from gen.kernels.launches import Pointer, TensorMap
from tests.emulator.pipeline_kernels import HELPERS

WAYS = ("cvt.rna", "TMA")
BOX = (8, 256)  # elements along x and y: lines of 32 bytes, as long as their swizzle

SOURCE = (
    HELPERS
    + r"""
// A block copies 2048 elements, which both dimensions of a box are, in their order.
extern "C" __global__ void copied(const __grid_constant__ Map map, u32* out) {
  __shared__ __align__(1024) u32 box[2048];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    init(&bar, 1);
    fence_init();
    expect(&bar, sizeof box);
    tensor(box, &map, 0, 256 * blockIdx.x, &bar);
  }
  __syncthreads();
  wait(&bar, 0);
  for (int i = threadIdx.x; i < 2048; i += blockDim.x) {
    const int at = 4 * i;
    out[2048 * blockIdx.x + i] = box[(at ^ (at >> 7 & 1) << 4) / 4];  // the swizzle of 32 bytes
  }
}
extern "C" __global__ void converted(const u32* in, u32* out) {
  for (int i = threadIdx.x; i < 2048; i += blockDim.x) {
    const int at = 2048 * blockIdx.x + i;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out[at]) : "f"(__uint_as_float(in[at])));
  }
}
"""
)

# What may become of the 13 bits that tf32 lacks.
_KEPT = np.uint32(0xFFFFE000)
RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "to nearest, ties to even": lambda x: x + np.uint32(0xFFF) + (x >> 13 & 1) & _KEPT,
    "to nearest, ties away from zero": lambda x: x + np.uint32(0x1000) & _KEPT,
    "toward zero": lambda x: x & _KEPT,
    "unchanged": lambda x: x,
}
CLASSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ties": lambda x: np.isfinite(x) & ((x.view(np.uint32) & 0x1FFF) == 0x1000),
    "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(np.float32).smallest_normal),
    "overflow": lambda x: np.isfinite(x) & (np.abs(x) >= np.uint32(0x7F7FF000).view(np.float32)),
    "other numbers": np.isfinite,
    "infinity": np.isinf,
    "NaN": np.isnan,
}


def drawn(count: int) -> np.ndarray:
    """Bits of float32 (uint32), whole boxes of them and at least `count`: of every class some."""
    rng = np.random.default_rng(32)
    random = rng.integers(0, 2**32, count, np.uint32)
    upper = random[: count // 16] & _KEPT
    near = [upper | np.uint32(low) for low in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
    tiny = random[: count // 16] & np.uint32(0x807FFFFF)
    edges = [0, 1, 0xFFF, 0x1000, 0x1001, 0x3000, 0x007FEFFF, 0x007FF000, 0x007FFFFF, 0x00800000,
             0x7F7FE000, 0x7F7FEFFF, 0x7F7FF000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7F801000,
             0x7F802000, 0x7FBFFFFF, 0x7FC00000, 0x7FFFF000, 0x7FFFFFFF]  # fmt: skip
    both = np.array([*edges, *(x | 1 << 31 for x in edges)], np.uint32)
    bits = np.concatenate([both, *near, tiny, random])
    return np.concatenate([bits, np.zeros(-bits.size % (BOX[0] * BOX[1]), np.uint32)])


def results(runner: Runner, bits: np.ndarray, way: str) -> np.ndarray:
    """What becomes of float32 bits (uint32, whole boxes) on a device: uint32."""
    module = nvrtc.compile_cuda(SOURCE, arch=runner.target("sm_90a"), format=runner.format)
    blocks = bits.size // (BOX[0] * BOX[1])
    given, out = runner.upload(bits, "in"), runner.upload(np.zeros_like(bits), "out")
    lines = bits.size // BOX[0]
    described = TensorMap(Pointer("in"), "tf32", (BOX[0], lines), 4 * BOX[0], BOX, 4 * BOX[0])
    name, first = "converted", given
    if way == "TMA":
        name, first = "copied", runner.tensor_map(described, given, 0)
    findings = runner.launch(module, name, (blocks, 1, 1), (32, 1, 1), [first, out])
    assert not findings, findings
    return runner.download(out)


def compare(gpu: Runner, cpu: Runner, count: int = 2**20) -> int:
    """Prints what the GPU does with each class of numbers; how many the emulator does otherwise."""
    bits, wrong = drawn(count), 0
    values = bits.view(np.float32)
    for way in WAYS:
        got, emulated = (results(runner, bits, way) for runner in (gpu, cpu))
        print(f"{way} of {bits.size} float32")
        left = np.ones(bits.shape, np.bool_)
        for name, of in CLASSES.items():
            mine = left & of(values)
            left &= ~mine
            fits = [rule for rule, make in RULES.items() if (make(bits) == got)[mine].all()]
            bad = np.flatnonzero(mine & (got != emulated))
            wrong += bad.size
            print(
                f"  {name:14} {np.count_nonzero(mine):8}: {'; '.join(fits) or 'none of the rules'}"
            )
            for at in bad[:4]:
                words = (bits[at], got[at], emulated[at])
                print("    {:08x} is {:08x}, on the emulator {:08x}".format(*map(int, words)))
    return wrong
