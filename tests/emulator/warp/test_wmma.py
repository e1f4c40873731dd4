"""wmma and the shapes of mma that gen's kernels do not use, against products by numpy."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, SharedRaces
from tests.support.slow import each, slow

CUDA = {
    "f16": ("half", "half", np.float16),
    "bf16": ("__nv_bfloat16", "__nv_bfloat16", ml_dtypes.bfloat16),
    "tf32": ("float", "precision::tf32", np.float32),
    "s8": ("signed char", "signed char", np.int8),
    "u8": ("unsigned char", "unsigned char", np.uint8),
    "f64": ("double", "double", np.float64),
    "f32": ("float", "float", np.float32),
    "s32": ("int", "int", np.int32),
}
Case = tuple[tuple[int, int, int], str, str]
SIXTEEN = [(16, 16, 16), (32, 8, 16), (8, 32, 16)]
CASES: list[Case] = [
    *((size, "f16", sums) for size in SIXTEEN for sums in ("f16", "f32")),
    *((size, "bf16", "f32") for size in SIXTEEN),
    *((size, kind, "s32") for size in SIXTEEN for kind in ("s8", "u8")),
    ((16, 16, 8), "tf32", "f32"),
    ((8, 8, 4), "f64", "f64"),
]


def values(shape: tuple[int, ...], dtype: type, seed: int) -> np.ndarray:
    low = 0 if dtype == np.uint8 else -8
    return np.random.default_rng(seed).integers(low, 9, shape).astype(dtype)


def laid_out(matrix: np.ndarray, layout: str, pitch: int) -> np.ndarray:
    """A matrix in memory, its lines `pitch` elements apart."""
    lines = matrix if layout == "row" else matrix.T
    padded = np.zeros((len(lines), pitch), matrix.dtype)
    padded[:, : lines.shape[1]] = lines
    return padded


_FRAGMENTS = """#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void lanes(const {element}* from, {element}* to) {{
  fragment<{which}, {m}, {n}, {k}, {given}{layout}> x;
  load_matrix_sync(x, from, 32{order});
  for (int i = 0; i < 64; ++i) to[threadIdx.x * 64 + i] = i < x.num_elements ? x.x[i] : from[0];
}}
"""


def fragment_kernel(case: Case, which: str, layout: str) -> tuple[str, np.dtype]:
    """A kernel that writes 64 elements a lane: those of its fragment, then the matrix's first one.

    The matrix has lines of 32 elements, of the type that comes second.
    """
    (m, n, k), kind, sums = case
    of_sums = which == "accumulator"
    element, given, dtype = CUDA[sums if of_sums else kind]
    text = _FRAGMENTS.format(
        element=element, which=which, m=m, n=n, k=k,
        given=element if of_sums else given,
        layout="" if of_sums else f", {layout}_major",
        order=f", mem_{layout}_major" if of_sums else "",
    )  # fmt: skip
    return text, np.dtype(dtype)


LANES = [
    # Computed as 32x8x16 of the transposes: B in the place of A, the sums along columns.
    ((8, 32, 16), "f16", "f32", "accumulator", lambda g, t, i: (2 * t + i % 2, g + i // 2 * 8)),
    ((32, 8, 16), "f16", "f32", "accumulator", lambda g, t, i: (g + i // 2 * 8, 2 * t + i % 2)),
    ((8, 32, 16), "s8", "s32", "accumulator", lambda g, t, i: (2 * t + i % 2, g + i // 2 * 8)),
    ((8, 32, 16), "f16", "f32", "matrix_b",
     lambda g, t, i: (2 * t + i % 2 + i // 4 % 2 * 8, g + i // 2 % 2 * 8 + i // 8 * 16)),
    ((8, 8, 4), "f64", "f64", "matrix_a", lambda g, t, i: (g, t)),
    ((8, 8, 4), "f64", "f64", "matrix_b", lambda g, t, i: (t, g)),
]  # fmt: skip


@pytest.mark.parametrize("layout", each(2, ["row", "col"]))
@pytest.mark.parametrize(("size", "kind", "sums", "which", "place"), LANES)
def test_lanes_hold_what_they_hold_on_a_gpu(
    size: tuple[int, int, int], kind: str, sums: str, which: str, place: Any, layout: str
) -> None:
    """As an H200 has it (tests/hardware/compare_results.py compares all)."""
    text, dtype = fragment_kernel((size, kind, sums), which, layout)
    matrix = (np.arange(32 * 32) % 251).astype(dtype).reshape(32, 32)
    emulator = Emulator()
    out = emulator.alloc(np.zeros((32, 64), dtype), "to")
    ptx = compile_cuda(text).code.decode()
    emulator.launch(ptx, "lanes", (1, 1, 1), (32, 1, 1), [emulator.alloc(matrix, "from"), out])
    count = {"accumulator": 8, "matrix_a": 1}.get(which, 1 if kind == "f64" else 16)
    by_rows = matrix if layout == "row" else matrix.T
    for lane, held in enumerate(emulator.read(out)):
        expected = [by_rows[place(lane // 4, lane % 4, i)] for i in range(count)]
        assert held[:count].tolist() == expected


LAYOUTS = list(itertools.product(("row", "col"), repeat=3))


@pytest.mark.parametrize(
    "layouts",
    [pytest.param(x, marks=() if LAYOUTS.index(x) == 1 else slow) for x in LAYOUTS],
    ids="-".join,
)
@pytest.mark.parametrize(("size", "kind", "sums"), each(2, CASES))
def test_wmma_multiplies(
    size: tuple[int, int, int], kind: str, sums: str, layouts: tuple[str, str, str]
) -> None:
    (m, n, k), (element, given, dtype), total = size, CUDA[kind], CUDA[sums][0]
    la, lb, lc = layouts
    pitch = 48
    source = f"""
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__
void k(const {element}* A, const {element}* B, const {total}* C, {total}* D) {{
  __shared__ __align__(32) {element} tile[{pitch * max(size)}];
  for (int i = threadIdx.x; i < {pitch * (m if la == "row" else k)}; i += 32) tile[i] = A[i];
  __syncwarp();
  fragment<matrix_a, {m}, {n}, {k}, {given}, {la}_major> a;
  fragment<matrix_b, {m}, {n}, {k}, {given}, {lb}_major> b;
  fragment<accumulator, {m}, {n}, {k}, {total}> c;
  load_matrix_sync(a, tile, {pitch});
  load_matrix_sync(b, B, {pitch});
  load_matrix_sync(c, C, {pitch}, mem_{lc}_major);
  mma_sync(c, a, b, c);
  for (int i = 0; i < c.num_elements; ++i) c.x[i] = c.x[i] + {total}(1);
  store_matrix_sync(D, c, {pitch}, mem_{lc}_major);
}}
"""
    ptx = compile_cuda(source, format="ptx").code.decode()
    emulator = Emulator()
    a, b, c = values((m, k), dtype, 1), values((k, n), dtype, 2), values((m, n), CUDA[sums][2], 3)
    inputs = zip((a, b, c), layouts, "ABC", strict=True)
    args = [emulator.alloc(laid_out(x, y, pitch), name) for x, y, name in inputs]
    out = emulator.alloc(laid_out(c * 0, lc, pitch), "D")
    report = emulator.launch(
        ptx, "k", (1, 1, 1), (32, 1, 1), [*args, out], observers=[SharedRaces()]
    )
    assert not report.findings
    exact = a.astype(np.float64) @ b.astype(np.float64) + c + 1
    assert np.array_equal(emulator.read(out), laid_out(exact.astype(c.dtype), lc, pitch))


def one_wmma(a: list[float], b: list[float], c: float, kinds: str, result: str) -> np.ndarray:
    """D where all rows of A are `a`, all columns of B `b`, and C is `c`."""
    k = len(a)
    given = "precision::tf32" if kinds == "tf32" else kinds
    element, total = (CUDA[x][0] for x in ("tf32" if kinds == "tf32" else "f16", result))
    source = f"""
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const {element}* A, const {element}* B, {total}* D) {{
  fragment<matrix_a, 16, 16, {k}, {given}, row_major> a;
  fragment<matrix_b, 16, 16, {k}, {given}, col_major> b;
  fragment<accumulator, 16, 16, {k}, float> c;
  fragment<accumulator, 16, 16, {k}, {total}> d;
  load_matrix_sync(a, A, 0);
  load_matrix_sync(b, B, 0);
  fill_fragment(c, {c!r}f);
  for (int i = {k // 2}; i < a.num_elements; ++i) a.x[i] = a.x[i] {"+ half(7)" if k > 8 else ""};
  mma_sync(d, a, b, c);
  store_matrix_sync(D, d, 16, mem_row_major);
}}
"""
    emulator = Emulator()
    dtype = CUDA["tf32" if kinds == "tf32" else "f16"][2]
    args = [emulator.alloc(np.array(x, dtype)) for x in (a, b)]
    out = emulator.alloc(np.zeros((16, 16), CUDA[result][2]))
    ptx = compile_cuda(source, format="ptx").code.decode()
    assert not emulator.launch(ptx, "k", (1, 1, 1), (32, 1, 1), [*args, out]).findings
    return emulator.read(out)


def test_wmma_of_tf32_is_two_sums() -> None:
    """The first four of K leave nothing that the others' products would be cut off by."""
    tiny = [1.0, 1.0, 0, 0, 2.0**-13, 0, 0, 0]
    d = one_wmma(tiny, [1.0, -1.0, 0, 0, 2.0**-13, 0, 0, 0], 0.0, "tf32", "f32")
    assert (d == 2.0**-26).all()


def test_wmma_rounds_to_f16_behind_a_sum_in_f32() -> None:
    """Elements of A that repeat (here those from the ninth on) are not read."""
    a, b = ([1.0, x, 2.0**-13, *[0.0] * 13] for x in (2.0**-11, 1.0))
    b[2] = 2.0**-12
    d = one_wmma(a, b, 0.0, "half", "f16")
    assert (d == 1).all()  # 2**-25 is cut off before it could break the tie


def test_the_elements_of_a_fragment_lie_as_in_mma() -> None:
    """m16n16k16: a lane's accumulators are those of two m16n8k16, side by side."""
    source = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const float* C, const half* A, float* sums, float* lefts) {
  fragment<accumulator, 16, 16, 16, float> c;
  fragment<matrix_a, 16, 16, 16, half, row_major> a;
  load_matrix_sync(c, C, 16, mem_row_major);
  load_matrix_sync(a, A, 16);
  for (int i = 0; i < 8; ++i) sums[threadIdx.x * 8 + i] = c.x[i];
  for (int i = 0; i < 16; ++i) lefts[threadIdx.x * 16 + i] = float(a.x[i]);
}
"""
    ptx = compile_cuda(source, format="ptx").code.decode()
    emulator = Emulator()
    matrix = np.arange(256).reshape(16, 16)
    args = [
        emulator.alloc(x)
        for x in (
            matrix.astype(np.float32), matrix.astype(np.float16),
            np.zeros((32, 8), np.float32), np.zeros((32, 16), np.float32),
        )
    ]  # fmt: skip
    assert not emulator.launch(ptx, "k", (1, 1, 1), (32, 1, 1), args).findings
    sums, lefts = emulator.read(args[2]), emulator.read(args[3])
    for lane in range(32):
        g, t = lane // 4, 2 * (lane % 4)
        where = [(g + 8 * (i // 2 % 2), t + i % 2 + 8 * (i // 4)) for i in range(8)]
        assert sums[lane].tolist() == [matrix[at] for at in where]
        assert lefts[lane].tolist() == [matrix[at] for at in where] * 2


@pytest.mark.parametrize(("kind", "bits", "k"), [("s4", 4, 32), ("u4", 4, 32), ("b1", 1, 128)])
def test_wmma_of_integers_below_a_byte(kind: str, bits: int, k: int) -> None:
    combine = ", experimental::bmmaBitOpXOR" if kind == "b1" else ""
    source = f"""
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const void* A, const void* B, int* D) {{
  fragment<matrix_a, 8, 8, {k}, experimental::precision::{kind}, row_major> a;
  fragment<matrix_b, 8, 8, {k}, experimental::precision::{kind}, col_major> b;
  fragment<accumulator, 8, 8, {k}, int> c;
  load_matrix_sync(a, (const int*)A, {k});
  load_matrix_sync(b, (const int*)B, {k});
  fill_fragment(c, 5);
  {"b" if kind == "b1" else ""}mma_sync(c, a, b, c{combine});
  store_matrix_sync(D, c, 8, mem_row_major);
}}
"""
    ptx = compile_cuda(source, format="ptx").code.decode()
    a, b = (np.random.default_rng(seed).integers(0, 1 << bits, (8, k)) for seed in (1, 2))
    emulator = Emulator()
    args = [emulator.alloc(pack(x, bits)) for x in (a, b)]
    out = emulator.alloc(np.zeros((8, 8), np.int32))
    assert not emulator.launch(ptx, "k", (1, 1, 1), (32, 1, 1), [*args, out]).findings
    assert np.array_equal(emulator.read(out), bit_product(a, b.T, kind, "xor") + 5)


def pack(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Integers below a byte, the first in the lowest bits."""
    single = numbers[..., None] >> np.arange(bits) & 1
    return np.packbits(single.reshape(len(numbers), -1).astype(np.uint8), axis=1, bitorder="little")


def bit_product(a: np.ndarray, b: np.ndarray, kind: str, how: str) -> np.ndarray:
    if kind == "b1":
        both = a[:, :, None] ^ b[None] if how == "xor" else a[:, :, None] & b[None]
        return both.sum(axis=1)
    if kind == "s4":
        a, b = ((x ^ 8) - 8 for x in (a, b))
    return a @ b


# -- mma.sync: fragments by the formulas of the PTX manual, lane by lane ---------------------------


def left_places(lane: int, m: int, k: int, each: int) -> list[tuple[int, int]]:
    """Row and column of A that a lane holds: in a register `each` along k, rows in steps of 8."""
    return [
        (lane // 4 + row, at + lane % 4 * each + i)
        for at in range(0, k, 4 * each) for row in range(0, m, 8) for i in range(each)
    ]  # fmt: skip


def run_mma(name: str, a: np.ndarray, b: np.ndarray, result: str, arch: str) -> np.ndarray:
    """D of one warp: `a` and `b` have the 32 lanes' registers, as 32 (f64: 64) bits each; C = 1."""
    wide, f16 = a.dtype == np.float64, ".f16.e" in name
    count = result.count("r")
    kind = "f64" if wide else "b32"
    put = {"s32": "mov.b32 %c{0}, 1;", "f32": "mov.f32 %c{0}, 0f3F800000;",
           "f64": "mov.f64 %c{0}, 0d3FF0000000000000;"}  # fmt: skip
    sums = "f64" if wide else "f32" if ".f32." in name else "s32"
    one = "mov.b32 %c{0}, 0x3C003C00;" if f16 else put[sums]
    register = "b32" if sums == "s32" else sums
    lines = [one.format(i) for i in range(count)]
    size = 8 if wide else 4
    for matrix, regs in (("a", a.shape[1]), ("b", b.shape[1])):
        lines.append(f"mad.lo.u64 %at, %lane, {size * regs}, %{matrix}p;")
        lines += [f"ld.global.{kind} %{matrix}{i}, [%at+{size * i}];" for i in range(regs)]
    vector = {
        x: "{" + ", ".join(f"%{x}{i}" for i in range(n)) + "}"
        for x, n in (("a", a.shape[1]), ("b", b.shape[1]), ("c", count))
    }
    lines.append(f"{name} {vector['c']}, {vector['a']}, {vector['b']}, {vector['c']};")
    lines.append(f"mad.lo.u64 %at, %lane, {size * count}, %dp;")
    lines += [f"st.global.{register} [%at+{size * i}], %c{i};" for i in range(count)]
    ptx = (
        f".version 8.4\n.target {arch}\n.address_size 64\n"
        ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)\n{\n"
        ".reg .b64 %lane, %at, %ap, %bp, %dp;\n.reg .b32 %x;\n"
        f".reg .{kind} %a<16>, %b<16>;\n.reg .{register} %c<16>;\n"
        "ld.param.u64 %ap, [p0];\nld.param.u64 %bp, [p1];\nld.param.u64 %dp, [p2];\n"
        "mov.u32 %x, %tid.x;\ncvt.u64.u32 %lane, %x;\n" + "\n".join(lines) + "\nret;\n}\n"
    )
    emulator = Emulator()
    dtype = np.float16 if f16 else {"s32": np.int32, "f32": np.float32, "f64": np.float64}[sums]
    out = emulator.alloc(np.zeros((32, count * (1 + f16)), dtype))
    args = [emulator.alloc(a), emulator.alloc(b), out]
    assert not emulator.launch(ptx, "k", (1, 1, 1), (32, 1, 1), args).findings
    return emulator.read(out)


SHAPES = [
    *((16, k, "f64.f64.f64.f64", 1, np.float64) for k in (4, 8, 16)),
    *((m, k, f"s32.{x}.{y}.s32", 8, x + y) for m, k in ((8, 32), (16, 32), (16, 64))
      for x in ("s4", "u4") for y in ("s4", "u4")),
    *((m, k, f"s32.b1.b1.s32.{how}.popc", 32, how) for m, k in ((8, 128), (16, 128), (16, 256))
      for how in ("xor", "and")),
    *((16, k, f"{d}.{x}.{y}.{d}", 4, (x, y)) for k in (16, 32) for d in ("f16", "f32")
      for x in ("e4m3", "e5m2") for y in ("e4m3", "e5m2")),
]  # fmt: skip
FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize(("m", "k", "types", "each", "how"), SHAPES)
def test_mma_shapes(m: int, k: int, types: str, each: int, how: object) -> None:
    rng = np.random.default_rng(3)
    if each == 1:
        a, b = rng.integers(-9, 9, (m, k)).astype(float), rng.integers(-9, 9, (k, 8)).astype(float)
        exact = a @ b
    elif each == 4:
        kinds = [FP8[x] for x in how]
        a, b = (rng.integers(-6, 7, shape).astype(kind)
                for shape, kind in zip(((m, k), (k, 8)), kinds, strict=True))  # fmt: skip
        exact = a.astype(float) @ b.astype(float)
    else:
        a, b = (rng.integers(0, 1 << 32 // each, shape) for shape in ((m, k), (k, 8)))
        signed = [(x ^ 8) - 8 if each == 8 and f"{'ab'[i]}" and how[2 * i] == "s" else x
                  for i, x in enumerate((a, b))]  # fmt: skip
        exact = bit_product(a, b, "b1", str(how)) if each == 32 else signed[0] @ signed[1]
    lanes_a = np.array([[a[at] for at in left_places(i, m, k, each)] for i in range(32)])
    lanes_b = np.array([[b.T[at] for at in left_places(i, 8, k, each)] for i in range(32)])
    if each > 4:
        lanes_a, lanes_b = (pack(x, 32 // each).view(np.int32) for x in (lanes_a, lanes_b))
    elif each == 4:
        lanes_a, lanes_b = (x.view(np.int32) for x in (lanes_a, lanes_b))
    registers = "r" * (m // 8 * (1 if types[:3] == "f16" else 2))
    got = run_mma(f"mma.sync.aligned.m{m}n8k{k}.row.col.{types}", lanes_a, lanes_b, registers,
                  "sm_90")  # fmt: skip
    for lane in range(32):
        places = [(lane // 4 + row, lane % 4 * 2 + i) for row in range(0, m, 8) for i in range(2)]
        assert got[lane].tolist() == [exact[at] + 1 for at in places]


@pytest.mark.parametrize("sums", list(itertools.product(("f16", "f32"), repeat=2)), ids="-".join)
@pytest.mark.parametrize("layouts", list(itertools.product(("row", "col"), repeat=2)), ids="-".join)
def test_volta_mma(layouts: tuple[str, str], sums: tuple[str, str]) -> None:
    """m8n8k4: where each lane's elements are, as the PTX manual gives it."""
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-5, 6, (4, *shape)) for shape in ((8, 4), (4, 8), (8, 8)))
    result, given = sums
    operands = np.zeros((32, 8), np.float16)
    total = np.zeros((32, 8), np.float16 if given == "f16" else np.float32)

    def sum_place(lane: int, i: int, kind: str) -> tuple[int, int]:
        if kind == "f16":
            return lane % 4 + 4 * (lane >= 16), i
        return (lane & 1) + (i & 2) + 4 * (lane >= 16), (i & 4) + (lane & 2) + (i & 1)

    for lane in range(32):
        quad, high, own = lane // 4 % 4, 4 * (lane >= 16), lane % 4
        for i in range(4):
            operands[lane, i] = a[quad][(own + high, i) if layouts[0] == "row" else (i + high, own)]
            operands[lane, 4 + i] = b[quad][
                (i, own + high) if layouts[1] == "col" else (own, i + high)
            ]
        total[lane] = [c[quad][sum_place(lane, i, given)] for i in range(8)]
    count = {"f16": 4, "f32": 8}
    kind = {"f16": "b32", "f32": "f32"}
    body = [f"ld.global.b32 %w{i}, [%ap+{4 * i}];" for i in range(4)]
    body += [f"ld.global.{kind[given]} %c{i}, [%bp+{4 * i}];" for i in range(count[given])]
    names = {x: ", ".join(f"%{x}{i}" for i in range(n))
             for x, n in (("c", count[given]), ("d", count[result]))}  # fmt: skip
    body.append(
        f"mma.sync.aligned.m8n8k4.{layouts[0]}.{layouts[1]}.{result}.f16.f16.{given} "
        f"{{{names['d']}}}, {{%w0, %w1}}, {{%w2, %w3}}, {{{names['c']}}};"
    )
    body += [f"st.global.{kind[result]} [%dp+{4 * i}], %d{i};" for i in range(count[result])]
    ptx = (
        ".version 7.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)\n{\n"
        ".reg .b64 %ap, %bp, %dp;\n.reg .b32 %x, %w<4>;\n"
        f".reg .{kind[given]} %c<8>;\n.reg .{kind[result]} %d<8>;\n"
        "ld.param.u64 %ap, [p0];\nld.param.u64 %bp, [p1];\nld.param.u64 %dp, [p2];\n"
        "mov.u32 %x, %tid.x;\nmad.wide.u32 %ap, %x, 16, %ap;\n"
        f"mad.wide.u32 %bp, %x, {4 * count[given]}, %bp;\n"
        f"mad.wide.u32 %dp, %x, {4 * count[result]}, %dp;\n" + "\n".join(body) + "\nret;\n}\n"
    )
    emulator = Emulator()
    out = emulator.alloc(np.zeros((32, 8), np.float16 if result == "f16" else np.float32))
    args = [emulator.alloc(operands), emulator.alloc(total), out]
    assert not emulator.launch(ptx, "k", (1, 1, 1), (32, 1, 1), args).findings
    exact, got = a @ b + c, emulator.read(out)
    for lane in range(32):
        expected = [exact[lane // 4 % 4][sum_place(lane, i, result)] for i in range(8)]
        assert got[lane].tolist() == expected
