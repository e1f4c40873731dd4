"""What memcheck and a launch refuse or report, with the CUDA line."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Emulator, Finding
from gen.errors import CheckError, UsageError
from tests.emulator.emulator_kernels import compile_cuda, gemm_source, geometry, run_gemm

SCALE = """extern "C" __global__ void __launch_bounds__(128) scale(float* x, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    x[i] *= by;
}"""


def findings(source: str, kernel: str, count: int, threads: int, shared: int = 0) -> list[Finding]:
    """Run `kernel(float* A, ...)` on an array of `count` floats between two others."""
    emulator = Emulator()
    arrays = [emulator.alloc(np.ones(count, np.float32), name) for name in ("before", "A", "after")]
    report = emulator.launch(
        compile_cuda(source), kernel, (2, 1, 1), (threads, 1, 1), [arrays[1]], shared,
        source.splitlines(),
    )  # fmt: skip
    for array in (arrays[0], arrays[2]):
        assert (emulator.read(array) == 1).all()
    return report.findings


def kernel(body: str) -> str:
    return f'extern "C" __global__ void kernel(float* A) {{\n  int x = threadIdx.x;\n{body}\n}}\n'


def test_store_past_the_end() -> None:
    (finding,) = findings(kernel("  A[x + 1] = 2;"), "kernel", 64, 64)
    assert finding.check == "memcheck"
    assert finding.file_line == 3
    assert finding.address == "A+256 of 256"
    assert finding.threads == ((63, 0, 0),)
    assert finding.block == (0, 0, 0)
    assert "store of 4 bytes" in finding.message
    assert "out of bounds, by 2 threads" in finding.message
    assert str(finding).endswith("A[x + 1] = 2;")


def test_load_before_the_start_gives_nan_and_goes_on() -> None:
    source = kernel("  float v = A[x - 1];\n  __syncthreads();\n  A[x] = v + 1;")
    emulator = Emulator()
    a = emulator.alloc(np.arange(8, dtype=np.float32), "A")
    report = emulator.launch(compile_cuda(source), "kernel", (1, 1, 1), (8, 1, 1), [a])
    (finding,) = report.findings
    assert (finding.file_line, finding.address) == (3, "A-4 of 32")
    assert "load of 4 bytes" in finding.message
    result = emulator.read(a)
    assert np.isnan(result[0])
    assert result[1:].tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_only_running_lanes_are_checked() -> None:
    assert findings(kernel("  if (x < 10) A[x * 7 % 10] = 2;"), "kernel", 10, 64) == []
    (finding,) = findings(kernel("  if (x < 11)\n    A[x] = 2;"), "kernel", 10, 64)
    assert finding.threads == ((10, 0, 0),)
    assert finding.file_line == 4


def test_misaligned_access() -> None:
    source = kernel("  *reinterpret_cast<float2*>(A + 1) = make_float2(1, 2);")
    (finding,) = findings(source, "kernel", 8, 1)
    assert "misaligned" in finding.message
    assert (finding.address, finding.file_line) == ("A+4 of 32", 3)


def test_vector_access_that_straddles_the_end() -> None:
    source = kernel("  *reinterpret_cast<float4*>(A + 4) = make_float4(1, 2, 3, 4);")
    (finding,) = findings(source, "kernel", 6, 1)
    assert "16 bytes at A+16 of 24 is out of bounds" in finding.message


def test_wild_and_null_pointers() -> None:
    (finding,) = findings(kernel("  *(float*)((long long)A & 255) = x;"), "kernel", 8, 4)
    assert finding.address == "0x0"


def test_freed_memory() -> None:
    emulator = Emulator()
    x = emulator.alloc(np.ones(4, np.float32), "X")
    source = kernel("  float* p = reinterpret_cast<float*>(A); p[x] = 1;")
    ptx = compile_cuda(source)
    address = np.int64(x.address)
    assert emulator.launch(ptx, "kernel", (1, 1, 1), (4, 1, 1), [address]).findings == []
    emulator.free(x)
    assert len(emulator.launch(ptx, "kernel", (1, 1, 1), (4, 1, 1), [address]).findings) == 1
    with pytest.raises(UsageError, match="freed"):
        emulator.read(x)


RECTANGULAR = """extern "C" __global__ void kernel(float* A) {
  extern __shared__ float tile[];
  float* Bs = tile + 16 * 16;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int j = 0; j < 2; ++j)
    Bs[ty * 33 + tx + 16 * j] = 1;
  __syncthreads();
  A[threadIdx.x] = Bs[threadIdx.x];
}"""


def test_dynamic_shared_memory_overflow() -> None:
    (finding,) = findings(RECTANGULAR, "kernel", 256, 256, shared=3072)
    assert finding.file_line == 6
    assert finding.check == "memcheck"
    assert finding.address == "shared+3072 of 3072"
    assert findings(RECTANGULAR, "kernel", 256, 256, shared=1024 + 16 * 33 * 4) == []


def test_static_shared_memory_names_the_variable() -> None:
    body = "  __shared__ float s[8];\n  __shared__ double t[4];\n  s[0] = 1; t[x] = x;\n"
    body += "  reinterpret_cast<char*>(t)[8 * x + 1] = 3;\n"
    body += "  *reinterpret_cast<float*>(reinterpret_cast<char*>(s) + x + 1) = 2;\n"
    body += "  __syncthreads(); A[x] = s[x] + t[x];"
    (finding,) = findings(kernel(body), "kernel", 8, 2)
    assert "misaligned" in finding.message
    assert "(" in finding.address
    assert finding.file_line == 7


def test_off_by_one_in_m() -> None:
    source = gemm_source("naive", "f32").replace("row >= M", "row > M")
    _, _, report = run_gemm(
        compile_cuda(source), "f32", 37, 20, 9, *geometry("naive", 37, 20), source=source
    )
    lines = source.splitlines()
    assert report.findings
    assert all(finding.check == "memcheck" for finding in report.findings)
    assert {finding.address.split("+")[0] for finding in report.findings} == {"A", "C", "D"}
    load = next(f for f in report.findings if f.address.startswith("A"))
    assert "acc +=" in lines[load.file_line - 1]
    assert load.source == lines[load.file_line - 1]
    assert load.address == f"A+{37 * 9 * 4} of {37 * 9 * 4}"
    assert all(thread[1] == 5 for thread in load.threads)


def test_findings_are_limited_and_not_repeated() -> None:
    body = "".join(f"  A[x + {100 + i}] = 2;\n" for i in range(10))
    emulator = Emulator(max_findings=3)
    a = emulator.alloc(np.ones(4, np.float32))
    ptx = compile_cuda(kernel(body))
    assert len(emulator.launch(ptx, "kernel", (9, 1, 1), (4, 1, 1), [a]).findings) == 3


def launch(grid: tuple = (1, 1, 1), block: tuple = (4, 1, 1), args: list | None = None,
           shared: int = 0, name: str = "scale") -> np.ndarray:  # fmt: skip
    emulator = Emulator()
    x = emulator.alloc(np.ones(4, np.float32), "x")
    given = [x, np.int32(4), np.float32(3)] if args is None else args
    emulator.launch(compile_cuda(SCALE), name, grid, block, given, shared)
    return emulator.read(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": (2048, 1, 1)}, r"sizes from 1 to \(1024"),
        ({"block": (64, 64, 1)}, "4096 threads; at most 1024"),
        ({"block": (256, 1, 1)}, "256 threads.*at most 128"),
        ({"block": (0, 1, 1)}, "from 1"),
        ({"grid": (1, 70000, 1)}, "from 0"),
        ({"grid": (1, 1)}, "three sizes"),
        ({"grid": (2**31 - 1, 65535, 1)}, "instruction_budget"),
        ({"shared": 228 * 1024}, "smaller tiles"),
        ({"shared": -1}, "smaller tiles"),
        ({"args": []}, "has 3 parameters, got 0"),
        ({"args": [np.int64(0), np.int64(4), np.float32(1)]}, "argument 1.*8 bytes.*has 4"),
        ({"args": [np.int64(0), 4, np.float32(1)]}, "argument 1.*is a int.*np.int32"),
        ({"name": "scales"}, "unknown kernel 'scales'; did you mean scale?"),
    ],
)
def test_launches_that_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        launch(**options)


def test_huge_grids_are_bounded_by_the_budget() -> None:
    emulator = Emulator(instruction_budget=1_000_000)
    x = emulator.alloc(np.ones(4, np.float32), "x")
    args = [x, np.int32(4), np.float32(3)]
    with pytest.raises(CheckError, match="more than 1000000 thread-instructions"):
        emulator.launch(compile_cuda(SCALE), "scale", (2**31 - 1, 65535, 9), (4, 1, 1), args)


def test_empty_grid_runs_nothing() -> None:
    assert launch(grid=(0, 1, 1)).tolist() == [1, 1, 1, 1]
    assert launch().tolist() == [3, 3, 3, 3]


def test_arrays_keep_type_and_shape() -> None:
    emulator = Emulator()
    values = np.arange(24, dtype=np.float64).reshape(2, 3, 4)[:, ::2]
    device = emulator.alloc(values, "V")
    assert device.nbytes == values.nbytes
    assert device.address % 256 == 0
    copy = emulator.read(device)
    assert copy.dtype == values.dtype
    assert np.array_equal(copy, values)
    copy[:] = 0
    assert np.array_equal(emulator.read(device), values)


def test_module_variables_have_initial_values_and_persist() -> None:
    source = """__device__ int counter = 5; __constant__ short table[4] = {1, -2, 3, -4};
extern "C" __global__ void kernel(int* out) {
  out[threadIdx.x] = counter * 100 + table[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) counter = counter + 1;
}"""
    emulator = Emulator()
    out = emulator.alloc(np.zeros(4, np.int32))
    ptx = compile_cuda(source)
    emulator.launch(ptx, "kernel", (1, 1, 1), (4, 1, 1), [out])
    assert emulator.read(out).tolist() == [501, 498, 503, 496]
    emulator.launch(ptx, "kernel", (1, 1, 1), (4, 1, 1), [out])
    assert emulator.read(out).tolist() == [601, 598, 603, 596]


def test_struct_parameters_and_generic_addresses() -> None:
    source = """struct Pair { char tag; double value; int more[3]; };
__device__ __noinline__ int unused(int x) { return x; }
extern "C" __global__ void kernel(double* out, Pair p, int which) {
  __shared__ double s[4];
  double* where = threadIdx.x % 2 ? s : out;
  where[threadIdx.x] = p.value + p.more[which];
  __syncthreads();
  out[threadIdx.x] = where[threadIdx.x] * 2;
}"""
    emulator = Emulator()
    out = emulator.alloc(np.zeros(4))
    pair = np.zeros(1, np.dtype({"names": ["tag", "value", "more"], "formats": ["i1", "f8", "3i4"],
                                 "offsets": [0, 8, 16], "itemsize": 32}))[0]  # fmt: skip
    pair["value"], pair["more"] = 0.5, [10, 20, 30]
    report = emulator.launch(
        compile_cuda(source), "kernel", (1, 1, 1), (4, 1, 1), [out, pair, np.int32(2)]
    )
    assert report.findings == []
    assert emulator.read(out).tolist() == [61.0] * 4


def test_calls_by_address_are_refused_with_the_line() -> None:
    source = """__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int thrice(int x) { return 3 * x; }
extern "C" __global__ void kernel(int* out) {
  int (*f)(int) = out[1] ? twice : thrice;
  out[0] = f(out[1]);
}"""
    emulator = Emulator()
    out = emulator.alloc(np.zeros(2, np.int32))
    with pytest.raises(CheckError, match=r"not supported.*line [45]"):
        emulator.launch(compile_cuda(source), "kernel", (1, 1, 1), (1, 1, 1), [out])
