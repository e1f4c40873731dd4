"""The corpus of Hopper kernels: its rows, what it takes for right, and the emulated runtime."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from gen.emulator import Emulator, parse_ptx
from gen.errors import CheckError, CompileError, UsageError
from gen.foreign import elements
from gen.source.cpp.bundle import read_bundle
from gen.source.cpp.bundle_files import render_bundle
from tests.hardware.emulated_runtime import Compiled, Program, compile_program
from tests.hardware.hopper_kernels import Row, bound, compare, cutlass, drawn, fast_cu, features
from tests.support.slow import slow

ROWS = [*cutlass(), *fast_cu(Path("fast.cu"))]


def row(kinds: str = "f16 f16 f16", sums: str = "f32", k: int = 64) -> Row:
    a, b, d = kinds.split()
    return Row("a kernel", Path("a.cu"), (), (8, 16, k), (a, b, d), sums=sums)


def test_rows() -> None:
    assert len(ROWS) == 23
    assert len({(one.name, one.flags) for one in ROWS}) == len(ROWS)
    for one in ROWS:
        m, n, k = one.shape
        lines = {"A": (m, k), "B": (k, n), "D": (m, n)}
        for (name, shape), kind in zip(lines.items(), one.kinds, strict=True):
            length = shape[0] if name in one.column_major else shape[1]
            assert length * elements.storage(kind).itemsize % 16 == 0  # for TMA


def test_flags_of_cutlass() -> None:
    flags = {one.name: one.flags for one in cutlass()}
    assert (
        "-DEPILOGUE=TmaWarpSpecializedCooperative" in flags["CUTLASS e4m3 cooperative, FastAccum"]
    )
    assert "-DEPILOGUE=TmaWarpSpecialized" in flags["CUTLASS f16 pingpong"]
    assert [name for name, given in flags.items() if "-DSTREAM_K=1" in given] == [
        "CUTLASS bf16 stream-K"
    ]


@pytest.mark.parametrize("kinds", ["f16 f16 f16", "tf32 tf32 f32", "e4m3 e4m3 f16", "i8 f16 f16"])
def test_operands_are_what_their_types_hold(kinds: str) -> None:
    for integers in (True, False):
        for values, kind in zip(drawn(row(kinds), integers), kinds.split(), strict=False):
            again = elements.values(elements.stored(values, kind), kind)
            assert np.array_equal(values, again)
            assert len(np.unique(values)) > 5


@pytest.mark.parametrize("integers", [True, False])
def test_wrong_results(integers: bool) -> None:
    one = row()
    a, b = drawn(one, integers)
    right = np.float64(np.float16(a @ b))
    assert compare(right, one, a, b, integers) == ""
    for wrong in (np.nan, right[3, 5] * 1.01 + 0.1):
        result = right.copy()
        result[3, 5] = wrong
        assert "D(3, 5) is" in compare(result, one, a, b, integers)
    a[0, 0] += 1  # a product that another element of A would give
    assert "of 128 differ" in compare(right, one, a, b, integers)


def test_bounds_of_sums() -> None:
    """Fewer bits, and longer sums, allow larger errors; all far less than the sums' size."""
    sizes = []
    for kinds, sums, k in (
        ("tf32 tf32 f32", "f32", 64), ("tf32 tf32 f32", "f32", 512), ("e4m3 e4m3 f32", "fp8", 512),
        ("f16 f16 f32", "f16", 512),
    ):  # fmt: skip
        one = row(kinds, sums, k)
        a, b = drawn(one, integers=False)
        sizes.append(float((bound(one, a, b) / (np.abs(a) @ np.abs(b))).max()))
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[1] < sizes[3]
    assert sizes[1] < 1e-4
    assert max(sizes) < 0.2


def test_features() -> None:
    text = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2}, {%r1, %r2}, %rd1, 1;\n"
    text += "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1];"
    assert features(text) == "m64n8k16.f32.f16, A in registers, TMA 3D"
    assert features("ret;") == ""


# -- the emulated runtime --------------------------------------------------------------------------

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry nothing(.param .u32 n, .param .align 64 .b8 map[128]) { ret; }
"""


@pytest.fixture
def program() -> Program:
    return Program(Compiled(Path("none.so"), PTX), parse_ptx(PTX), Emulator(), dry=True)


def longs(*values: int) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * 5)(*values)


def ints(*values: int) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 9)(*values)


def test_memory(program: Program) -> None:
    address = program._allocate(64)
    assert program._write(address + 8, ctypes.addressof(longs(7)), 8)
    assert program._fill(address + 16, 3, 4)
    buffer = program.emulator.memory.find(address)
    assert buffer is not None
    assert buffer.data[8:20].tolist() == [7, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3]
    assert buffer.valid is not None
    assert np.flatnonzero(buffer.valid).tolist() == list(range(8, 20))
    with pytest.raises(UsageError, match="outside of an array"):
        program._fill(address + 60, 0, 8)


def test_maps_in_the_arguments(program: Program) -> None:
    into = ctypes.create_string_buffer(128)
    address = program._allocate(4096)
    shape = (longs(64, 32), longs(128), ints(64, 16), ints(1, 1))
    program._encode(ctypes.addressof(into), ints(9, 2, 0, 3, 0), address, *shape)
    (tensor,) = program.maps
    assert (tensor.element, tensor.dims, tensor.strides) == ("bf16", (64, 32), (128,))
    assert (tensor.box, tensor.steps, tensor.swizzle) == ((64, 16), (1, 1), 128)
    assert tensor.buffer.address == address
    count = ctypes.c_int(5)
    args = (ctypes.c_void_p * 2)(ctypes.addressof(count), ctypes.addressof(into))
    program._launch(b"nothing", ints(2, 1, 1, 32, 1, 1, 2, 1, 1), 1024, args)
    (launch,) = program.launches
    assert (launch.grid, launch.block, launch.cluster) == ((2, 1, 1), (32, 1, 1), (2, 1, 1))
    assert [one.tobytes() for one in launch.args] == [
        np.int32(5).tobytes(), program.emulator.encode(tensor)
    ]  # fmt: skip


@pytest.mark.parametrize("numbers", [(9, 2, 1, 3, 0), (9, 2, 0, 4, 0), (9, 2, 0, 3, 1), (13, 2)])
def test_maps_that_the_emulator_lacks(program: Program, numbers: tuple[int, ...]) -> None:
    shape = (longs(64, 32), longs(128), ints(64, 16), ints(1, 1))
    with pytest.raises(CheckError, match="is not supported"):
        program._encode(0, ints(*numbers), program._allocate(4096), *shape)


SOURCE = """
#include <cuda_runtime.h>
struct Scale { int factor, offset; };
__global__ void scale(const int* in, int* out, Scale by) {
  out[threadIdx.x] = in[threadIdx.x] * by.factor + by.offset;
}
static int calls;  // of this program alone
extern "C" const char* run(int n, int* out, int wrong) {
  int values[64], *in;
  for (int i = 0; i < n; ++i) values[i] = i + calls;
  ++calls;
  cudaMalloc(&in, sizeof values);
  cudaMemcpy(in, values, n * sizeof(int), wrong ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
  scale<<<1, n>>>(in, out, Scale{3, 1});
  return wrong ? "as was asked for" : nullptr;
}
"""


@slow
@pytest.mark.nvcc
def test_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEN_CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "scale.cu"
    source.write_text(SOURCE)
    compiled = compile_program(source)
    assert compile_program(source) == compiled
    for _ in range(2):
        emulator = Emulator()
        out = emulator.alloc(np.zeros(32, np.int32), "out")
        one = Program(compiled, parse_ptx(compiled.ptx), emulator)
        one.run(32, out, 0)
        assert np.array_equal(emulator.read(out), np.arange(32) * 3 + 1)
        with pytest.raises(UsageError, match="as was asked for"):
            one.run(32, out, 1)
    source.write_text("error")
    with pytest.raises(CompileError):
        compile_program(source)


BUNDLE = """
--variant wgmma --dtype f16 --layout rcr --from 512x512x64 --aligned
--variant wgmma --dtype f16 --layout rcr --threadblock 64x64x64
"""
CALLER = """
#include "gemm.cu"
extern "C" const char* run(int M, int N, int K, void* A, void* B, void* D) {
  gemm_problem problem = {};
  problem.type = GEMM_F16, problem.layout = GEMM_RCR;
  problem.M = M, problem.N = N, problem.K = K, problem.alpha = 1;
  problem.A = A, problem.lda = K, problem.B = B, problem.ldb = K, problem.D = D, problem.ldd = N;
  size_t bytes;
  void* space = nullptr;
  if (gemm_workspace(&problem, &bytes) != cudaSuccess) return "the workspace";
  if (bytes > 0) cudaMalloc(&space, bytes);
  return gemm_launch(&problem, space, bytes, nullptr) == cudaSuccess ? nullptr : "the launch";
}
"""


@slow
@pytest.mark.nvcc
def test_a_program_with_a_bundle_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers, tensor maps and kernels as nvcc compiles them: the kernel that fits, packed."""
    monkeypatch.setenv("GEN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "gemm.kernels").write_text(BUNDLE)
    bundle = render_bundle(read_bundle(tmp_path / "gemm.kernels", arch="sm_90a"))
    for name, text in zip(("gemm.h", "gemm.cu"), bundle, strict=True):
        (tmp_path / name).write_text(text)
    source = tmp_path / "caller.cu"
    source.write_text(CALLER)
    compiled = compile_program(source)
    for shape, names in (
        ((520, 520, 72), ["gemm_wgmma_f16_rcr_1"]),
        ((72, 136, 67), ["gemm_wgmma_f16_rcr_2_pack", "gemm_wgmma_f16_rcr_2"]),
    ):
        m, n, k = shape
        one, emulator = row(k=k)._replace(shape=shape), Emulator()
        a, b = drawn(one, integers=True)
        d = emulator.alloc(np.full((m, n), np.nan, np.float16), "D")
        operands = (emulator.alloc(np.float16(x), "operand") for x in (a, b.T))
        program = Program(compiled, parse_ptx(compiled.ptx), emulator)
        program.run(*shape, *operands, d)
        assert [launch.kernel for launch in program.launches] == names
        assert np.array_equal(emulator.read(d), np.float16(a @ b))
