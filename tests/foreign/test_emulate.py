"""Kernels that gen did not emit, run and checked: arguments, findings, references, products."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import gen
from gen.errors import UsageError
from gen.foreign import elements
from gen.foreign.launch import launches_in
from tests import ROOT
from tests.conftest import Gen
from tests.support.slow import slow

KERNELS = ROOT / "examples" / "kernels"
SCALE = """
template <typename T> __global__ void scale(T* x, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
"""


def write(text: str, name: str = "mine.cu") -> str:
    """A file in the current folder."""
    Path(name).write_text(text)
    return name


# -- Python ----------------------------------------------------------------------------------------


def test_arrays_go_in_and_come_out() -> None:
    x = np.arange(100, dtype=np.float32)
    outcome = gen.emulate(SCALE, "scale<float>", "(n+63)/64", 64, {"x": x, "by": 2.5, "n": 90})
    assert outcome.ok
    assert (outcome.arrays["x"][:90] == x[:90] * np.float32(2.5)).all()
    assert (outcome.arrays["x"][90:] == x[90:]).all()
    assert (x == np.arange(100)).all()
    assert outcome.changed == ["x"]


def test_messages_have_the_name_of_the_kernel() -> None:
    source = SCALE.replace("__global__ void", "__global__ __launch_bounds__(32) void")
    with pytest.raises(
        UsageError, match="64 threads, but scale<float> was compiled for at most 32"
    ):
        gen.emulate(source, "scale<float>", 1, 64, {"x": "f32[64]", "by": 2.5, "n": 64})


def test_counters_are_there_on_request() -> None:
    args = {"x": "f64[64]:ones", "by": 2, "n": 64}
    assert gen.emulate(SCALE, "scale<double>", 1, 64, args).counters is None
    found = gen.emulate(SCALE, "scale<double>", 1, 64, args, counters=True).counters
    assert found is not None
    assert found.global_load.requests == 2
    assert found.global_load.parts == 16


@pytest.mark.parametrize("kind", elements.NAMES)
def test_every_element_type_is_stored_and_read(kind: str) -> None:
    numbers = np.array([0, 1]) if kind == "bool" else np.array([0, 1, 2, 3, 4])
    assert (elements.values(elements.stored(numbers, kind), kind) == numbers).all()


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_small_floats_are_those_of_ml_dtypes(kind: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    theirs = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[kind]
    bits = np.arange(256, dtype=np.uint8)
    mine = elements.values(bits, kind)
    assert np.array_equal(mine, bits.view(theirs).astype(np.float32), equal_nan=True)
    most = float(np.nanmax(mine[np.isfinite(mine)]))
    numbers = np.random.default_rng(0).uniform(-most, most, 4096)
    assert (elements.stored(numbers, kind) == numbers.astype(theirs).view(np.uint8)).all()


@pytest.mark.parametrize(
    ("by", "n", "message"),
    [
        ("f32[3]", 1, "is a buffer, but T by is a number"),
        ("three", 1, "is not a number of type f32"),
        (2, "70000000000", "does not fit i32"),
        (2, "x", "parameter|bytes"),
        (2, "f16:1", "has 2 bytes as f16"),
    ],
)
def test_bad_arguments(by: object, n: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        gen.emulate(SCALE, "scale<float>", 1, 32, {"x": "f32[32]", "by": by, "n": n})


def test_arguments_that_do_not_fit_the_parameters() -> None:
    with pytest.raises(UsageError, match="there is no y; args lacks by, n"):
        gen.emulate(SCALE, "scale<float>", 1, 32, {"x": "f32[32]", "y": 1})
    with pytest.raises(UsageError, match="has 3 parameters, got 1 arguments"):
        gen.emulate(SCALE, "scale<float>", 1, 32, [np.zeros(3, np.float32)])


def test_messages_have_pythons_words() -> None:
    for message, wrong in (
        ("use a larger budget$", {"kernel": "spin", "budget": 1000}),
        ("use a larger time$", {"kernel": "spin", "budget": 10**12, "time": 0.1}),
        ("name one with kernel: ", {}),
        ("^grid 1,2,3,4 has 4 sizes", {"kernel": "spin", "grid": (1, 2, 3, 4)}),
    ):
        source = "__global__ void spin(volatile int* x) { while (true) *x += 1; }\n"
        source += "__global__ void k() {}"
        try:
            said = gen.emulate(source, args={"x": "i32[1]"}, **wrong).stopped
        except UsageError as error:
            said = str(error)
        assert re.search(message, said), said
        assert "--" not in said


def test_types_of_templates() -> None:
    source, args = "#include <cuda_fp16.h>\n" + SCALE, {"x": "[8]:ones", "by": 1.5, "n": 8}
    outcome = gen.emulate(source, "scale<__half>", block=8, args=args)
    assert outcome.types["x"] == "f16"
    assert (outcome.arrays["x"] == 1.5).all()
    with pytest.raises(UsageError, match=r"T\* x points to f16; write f16"):
        gen.emulate(source, "scale<__half>", args={**args, "x": "f32[8]"})


def test_rows_by_the_name_of_their_parameter() -> None:
    source = "__global__ void k(const int (*a)[4], int (&b)[2][4]) { b[1][2] = a[1][2]; }"
    outcome = gen.emulate(source, args={"a": "[2,4]:iota", "b": "i32[8]:zeros"})
    assert outcome.arrays["b"].tolist() == [0, 0, 0, 0, 0, 0, 6, 0]


def test_pointers_to_pointers() -> None:
    source = "__global__ void k(float* const* a, int* n) { *n = a[threadIdx.x] == nullptr; }"
    done = gen.emulate(source, args={"a": "u64[2]:zeros", "n": "[1]:zeros"})
    assert done.arrays["n"].tolist() == [1]
    with pytest.raises(UsageError, match="points to pointers"):
        gen.emulate(source, args={"a": "f32[2]:zeros", "n": "[1]:zeros"})


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_arrays_of_other_types_than_the_kernels(dtype: type) -> None:
    source = "__global__ void k(const float* a, float* b) { b[0] = a[0]; }"
    with pytest.raises(UsageError, match="const float\\* a points to f32"):
        gen.emulate(source, args={"a": np.ones(4, dtype), "b": np.ones(4, np.float32)})


def test_clusters_are_for_newer_gpus() -> None:
    with pytest.raises(UsageError, match="is for sm_90 and newer, and the code for sm_80"):
        gen.emulate("__global__ void k() {}", grid=2, cluster=2)


def test_an_exchange_whose_result_nobody_reads() -> None:
    source = "__global__ void k(int* a, int* b) { RESULT atomicExch(a + threadIdx.x, 7); }"
    for result, checks in (("", []), ("*b =", ["initcheck"])):
        text = source.replace("RESULT", result)
        done = gen.emulate(text, block=4, args={"a": "[4]:poison", "b": "[1]:zeros"})
        assert [one.check for one in done.findings if one.check == "initcheck"] == checks


def test_no_block_has_the_warps_of_another() -> None:
    """What %warpid says, where the number of a warp in its block is wanted."""
    source = """__global__ void k(int* out) {
      int warp; asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
      if (threadIdx.x % 32 == 0) out[2 * blockIdx.x + threadIdx.x / 32] = warp; }"""
    done = gen.emulate(source, grid=3, block=64, args={"out": "[6]:poison"})
    assert done.arrays["out"].tolist() == [1, 2, 3, 4, 5, 6]


def test_blocks_that_need_more_registers_than_there_are() -> None:
    sums = " + ".join(f"x[{i}]" for i in range(120))
    source = f"""__global__ void k(float* a) {{
      float x[120];
      for (int i = 0; i < 120; ++i) x[i] = a[threadIdx.x + 1024 * i];
      __syncthreads();
      for (int j = 0; j < 8; ++j)
        for (int i = 0; i < 120; ++i) x[i] = x[i] * x[(i + 7) % 120] + j;
      a[threadIdx.x] = {sums}; }}"""
    args = {"a": "[122880]:zeros"}
    with pytest.raises(UsageError, match="cudaErrorLaunchOutOfResources"):
        gen.emulate(source, block=1024, args=args)
    bounded = source.replace("void k", "void __launch_bounds__(1024) k")
    assert not gen.emulate(bounded, block=1024, args=args).findings


def test_ptx_by_the_names_and_lines_that_it_has() -> None:
    source = """.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to, .param .u32 value)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [value];
  st.global.u32 [%rd1+4], %r1;
  ret;
}
"""
    done = gen.emulate(source, args={"value": 3, "to": "i32[2]:zeros"})
    assert done.arrays["to"].tolist() == [0, 3]
    (found,) = gen.emulate(source, args={"to": "i32[1]:zeros", "value": 3}).findings
    assert (found.file_line, found.source.strip()) == (10, "st.global.u32 [%rd1+4], %r1;")


def test_pointers() -> None:
    source = """__global__ void k(float* a, const float* b, int* p, uchar4 s) {
      a[threadIdx.x] = b[threadIdx.x] + (p == nullptr) + s.y; }"""
    args = {"a": "f32[8]:iota", "b": "a+4", "p": "null", "s": "bytes:01020304"}
    outcome = gen.emulate(source, None, 1, 4, args)
    assert outcome.arrays["a"][:4].tolist() == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("fill", "expected"),
    [("zeros", [0, 0, 0]), ("ones", [1, 1, 1]), ("iota", [0, 1, 2]), ("3", [3, 3, 3])],
)
def test_contents(fill: str, expected: list[int]) -> None:
    source = "__global__ void k(int* x) {}"
    outcome = gen.emulate(source, None, 1, 1, {"x": f"i32[3]:{fill}"})
    assert outcome.arrays["x"].tolist() == expected
    assert not outcome.changed


# -- findings --------------------------------------------------------------------------------------

FINDINGS = {
    "memcheck": ("if (t == 0) x[n] = 1;", "Invalid __global__ write of size 4 bytes at x+256 is "
                 "out of bounds, 1 bytes after the nearest allocation x of 256 bytes"),
    "misaligned": ("*(float2*)(x + 1) = make_float2(1, 2);", "Invalid __global__ write of size 8 "
                   "bytes at x+4 is misaligned, by 64 threads"),
    "racecheck": ("s[t] = t; y[t] = s[63 - t];", "Race reported at __shared__ shared+"),
    "initcheck": ("y[t] = z[t];", "Uninitialized __global__ memory read of size 4 bytes at z+0"),
    "shared": ("y[t] = s[t];", "Uninitialized __shared__ memory read of size 4 bytes at shared+0"),
    "synccheck": ("if (t < 3) __syncthreads();", "Barrier error detected. Divergent thread(s) in "
                  "block: barrier reached by 3 of 64 threads"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FINDINGS)
def test_findings_have_the_words_of_compute_sanitizer(gen: Gen, kind: str) -> None:
    body, words = FINDINGS[kind]
    file = write(
        "__global__ void k(float* x, float* y, float* z, int n) {\n"
        "  __shared__ float s[64]; int t = threadIdx.x;\n"
        f"  {body}\n"
        "  if (n < 0) y[0] = s[t];\n}\n"
    )
    launch = ("--grid", "1", "--block", "64", "--arg", "x=f32[64]", "--arg", "y=f32[64]:zeros",
              "--arg", "z=f32[64]:poison", "--arg", "n=64")  # fmt: skip
    code, out, err = gen("check", file, *launch)
    assert (code, err) == (1, "")
    assert words in out
    assert "     3 |   " + body in out
    found = json.loads(gen("check", file, *launch, "--json").out)
    assert found["findings"][0]["file_line"] == 3
    tool = {"misaligned": "memcheck", "shared": "initcheck"}.get(kind, kind)
    assert found["findings"][0]["check"] == tool
    others = ",".join({"memcheck", "racecheck", "initcheck", "synccheck"} - {tool})
    assert gen("check", file, *launch, "--tool", others).code == 0


def test_a_race_of_equal_values_is_a_note(gen: Gen) -> None:
    text = "__global__ void k(int* flag) {{\n  flag[0] = {};\n}}\n"
    launch = ("--grid", "2", "--block", "32", "--arg", "flag=i32[1]:zeros")
    code, out, _ = gen("check", write(text.format("7")), *launch)
    assert code == 0
    assert "note" in out
    assert "both write the same value" in out
    code, out, _ = gen("check", write(text.format("threadIdx.x")), *launch)
    assert code == 1
    assert "write-after-write hazard" in out


def test_a_kernel_that_never_ends(gen: Gen) -> None:
    file = write("__global__ void k(volatile int* x) {\n  while (x[0] == 0) x[1] += 2;\n}\n")
    code, out, _ = gen("check", file, "--grid", "1", "--block", "1", "--arg", "x=i32[2]:zeros",
                       "--budget", "1000", "--tool", "memcheck")  # fmt: skip
    assert code == 1
    assert "stopped: " in out
    assert "use a larger --budget" in out


# -- references ------------------------------------------------------------------------------------


def test_references_and_expectations(gen: Gen) -> None:
    write("def f(x, by, n):\n    return x * by\ndef g(x):\n    return {'x': x + 1}\n", "refs.py")
    file = write("// gen-launch: --kernel scale<float> --grid 2 --block 32 --arg x=f32[50]:random "
                 "--arg by=3 --arg n=50\n" + SCALE)  # fmt: skip
    assert "as expected: x" in gen("check", file, "--reference", "refs.py:f").out
    code, out, _ = gen("check", file, "--reference", "refs.py:g")
    assert code == 1
    assert "mismatch: x[0] is " in out
    assert gen("run", file, "--save", "x=x.npy").code == 0
    assert gen("check", file, "--expect", "x=x.npy").code == 0
    np.save("x.npy", np.load("x.npy") + 1)
    assert gen("check", file, "--expect", "x=x.npy").code == 1
    assert gen("check", file, "--expect", "x=x.npy", "--tolerance", "10").code == 0
    for bad in ("nothing", "refs.py:none", "no_module:f"):
        assert gen("check", file, "--reference", bad).code == 2


def test_launches_of_a_file_share_buffers(gen: Gen) -> None:
    file = write("""
// gen-launch: --kernel twice --grid 1 --block 8 --arg x=f32[8]:ones
// gen-launch: --kernel "plus<3>" --grid 1 --block 8 --arg y=x --arg "z=f32[8]:poison"
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
template <int N> __global__ void plus(const float* y, float* z) {
  z[threadIdx.x] = y[threadIdx.x] + N;
}
""")  # fmt: skip
    code, out, _ = gen("run", file)
    assert code == 0
    assert "x: f32[8] = 2 2 2" in out
    assert "z: f32[8] = 5 5 5" in out
    assert gen("check", file).code == 0


def test_launch_lines_say_what_they_do_not_know() -> None:
    with pytest.raises(UsageError, match=r"the gen-launch line of f\.cu: '--gird'"):
        launches_in("// gen-launch: --gird 4\n", "f.cu")
    with pytest.raises(UsageError, match="lacks its value"):
        launches_in("// gen-launch: --grid\n", "f.cu")


# -- products --------------------------------------------------------------------------------------

GEMM = ("--kernel", "sgemm<16>", "--grid", "(N+15)/16,(M+15)/16", "--block", "16,16",
        "--gemm", "A=A,B=B,C=C,M=M,N=N,K=K,alpha=alpha,beta=beta")  # fmt: skip


def test_a_product_that_needs_whole_tiles(gen: Gen) -> None:
    file = str(KERNELS / "sgemm.cu")
    code, out, _ = gen("check", file, *GEMM)
    assert code == 1
    assert "right on 3 of 8 shapes (f32): 16x16x16" in out
    code, out, _ = gen("check", file, *GEMM, "--shape", "32x48x16")
    assert code == 0
    assert "right on 1 shape (f32)" in out


def test_a_wrong_product(gen: Gen) -> None:
    file = write((KERNELS / "sgemm.cu").read_text().replace("k < K", "k < K - 16"))
    code, out, _ = gen("check", file, *GEMM, "--shape", "16x16x32")
    assert code == 1
    assert "mismatch on 16x16x32: integer inputs, alpha=3, beta=-2: C(0, 0) is " in out


def test_products_of_other_types_and_layouts(gen: Gen) -> None:
    file = write("""
#include <cuda_fp16.h>
// gen-launch: --grid "(n*n+31)/32" --block 32 --gemm A=a,B=b,D=d,M=n,N=n,K=n,ldb=ldb --layout rcr
__global__ void k(const half* a, const half* b, float* d, int n, int ldb) {
  int at = blockIdx.x * blockDim.x + threadIdx.x, i = at / n, j = at % n;
  if (at >= n * n) return;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += __half2float(a[i * n + k]) * __half2float(b[j * ldb + k]);
  d[at] = sum;
}
""")
    code, out, err = gen("check", file)
    assert (code, err) == (0, "")
    assert "(f16_f32)" in out


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ("A=A,B=B", "lacks C or D"),
        ("A=A,B=B,E=C", "unknown role"),
        ("A=A,B=B,C=nope", "has no such parameter"),
    ],
)
def test_roles_that_do_not_fit(gen: Gen, roles: str, message: str) -> None:
    code, _, err = gen("check", str(KERNELS / "sgemm.cu"), *GEMM[:-1], roles)
    assert code == 2
    assert message in err


# -- the commands ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mine.cu",), "no gen-spec line and no gen-launch line"),
        (("mine.cu",), "its kernels: scale<...>(T* x, T by, int n)"),
        (("mine.cu", "--kernel", "scale<float>"), "arguments of scale<...>"),
        (("launched.cu", "--block", "8"), "has a gen-launch line, in whose place options"),
        (("mine.cu", "--tile", "8"), "leave out the options that choose one"),
        (("--variant", "tiles", "--block", "8"), "launch options go with exactly one file"),
        (("emitted.cu", "--block", "8"), "is an emitted file, whose gen-spec line says"),
        (("mine.cu", "--grid", "1", "--tool", "mem"), "unknown tool 'mem'"),
        (("mine.cu", "--grid", "1", "--tool", ""), "unknown tool ''"),
        (("mine.cu", "--grid", "1", "-I", "mine.cu"), "--include mine.cu is no folder"),
        (("mine.cu", "--kernel", "scale<int>", "--grid", "(m+1)/2", "--block", "4", "--arg",
          "x=i32[4]", "--arg", "by=1", "--arg", "n=4"), "name 'm' is not defined"),
    ],
)  # fmt: skip
def test_bad_usage(gen: Gen, arguments: tuple[str, ...], message: str) -> None:
    write(SCALE)
    write('// gen-spec: {"variant": "tiles", "dtype": "f32"}\n', "emitted.cu")
    write("// gen-launch: --grid 1 --block 8 --arg x=i32[8]\n" + SCALE, "launched.cu")
    code, _, err = gen("check", *arguments)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_the_grid_is_still_a_tunable(gen: Gen) -> None:
    code, out, _ = gen("check", "--variant", "block_1d", "--grid", "2", "--shape", "5x6x7")
    assert code == 0
    assert "grid2" in out


def test_profile_counts_a_launch(gen: Gen) -> None:
    launch = ("--kernel", "scale<float>", "--grid", "4", "--block", "64", "--gpu", "a100",
              "--arg", "by=2", "--arg", "n=256", "--arg", "x=f32[256]:ones")  # fmt: skip
    file = write(SCALE)
    found = json.loads(gen("profile", file, *launch, "--json").out)["kernels"][0]
    assert found["counters"]["global_load"]["requests"] == 8
    assert found["counters"]["global_load"]["parts"] == 32
    assert found["occupancy"]["max_warps"] == 64
    assert "line" in gen("profile", file, *launch).out
    code, _, err = gen("profile", file, *launch[:-1], "x=f32[200]")
    assert code == 1
    assert "gen check says more" in err


def test_null_pointers_are_named(gen: Gen) -> None:
    file = write("__global__ void k(int* x) {\n  x[threadIdx.x] = 1;\n}\n")
    code, out, _ = gen("check", file, "--grid", "1", "--block", "4", "--arg", "x=null")
    assert code == 1
    assert "Invalid __global__ write of size 4 bytes at 0x0 is out of bounds, a null pointer" in out


def test_what_a_kernel_prints(gen: Gen) -> None:
    file = write('#include <cstdio>\n__global__ void k(int n) {\n'
                 '  if (threadIdx.x < n) printf("%d of %d\\n", threadIdx.x, n);\n}\n')  # fmt: skip
    out = gen("run", file, "--grid", "1", "--block", "32", "--arg", "n=2").out
    assert out.splitlines() == [
        "block (0,0,0), thread (0,0,0): 0 of 2",
        "block (0,0,0), thread (1,0,0): 1 of 2",
        "no buffer has changed",
    ]


def test_a_run_that_a_gpu_would_stop(gen: Gen) -> None:
    file = write("__global__ void k(int* x) { x[threadIdx.x] = 1; }\n")
    code, out, _ = gen("run", file, "--grid", "1", "--block", "32", "--arg", "x=i32[31]:zeros")
    assert code == 1
    assert "wrong: Invalid __global__ write of size 4 bytes at x+124 is out of bounds" in out


CLUSTERS = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void swap(int* x) {
  __shared__ int s;
  auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) s = x[blockIdx.x];
  cluster.sync();
  const int other = cluster.num_blocks() - 1 - cluster.block_rank();
  if (threadIdx.x == 0) x[blockIdx.x] = *cluster.map_shared_rank(&s, other);
  cluster.sync();
}
"""


@slow
@pytest.mark.parametrize("cluster", [2, (4, 1, 1), "n/2"])
def test_clusters(cluster: int | tuple[int, ...] | str) -> None:
    source = CLUSTERS.replace("int* x", "int* x, int n")
    args = {"x": np.arange(8, dtype=np.int32), "n": 16}
    done = gen.emulate(source, "swap", 8, 32, args, cluster=cluster, arch="sm_90")
    assert done.ok, done.findings
    blocks = {2: 2, (4, 1, 1): 4, "n/2": 8}[cluster]
    assert list(done.arrays["x"]) == [i // blocks * blocks + blocks - 1 - i % blocks
                                      for i in range(8)]  # fmt: skip
    with pytest.raises(UsageError, match="no multiple of the cluster"):
        gen.emulate(source, "swap", 8, 32, args, cluster=3, arch="sm_90")


def test_fragments_of_neighbours_are_no_race() -> None:
    """The elements of a column lie in different lanes, and 4 bytes apart."""
    source = """
#include <mma.h>
using namespace nvcuda::wmma;
__global__ void multiply(const half* a, const half* b, float* c, int steps) {
  fragment<matrix_a, 16, 16, 16, half, col_major> left;
  fragment<matrix_b, 16, 16, 16, half, col_major> right;
  fragment<accumulator, 16, 16, 16, float> sums;
  fill_fragment(sums, 0.0f);
  for (int k = 0; k < steps; ++k) {
    load_matrix_sync(left, a, 16);
    load_matrix_sync(right, b, 16);
    mma_sync(sums, left, right, sums);
  }
  store_matrix_sync(c, sums, 16, mem_col_major);
}
"""
    args = {"a": "f16[256]:integers", "b": "f16[256]:integers", "c": "f32[256]:poison", "steps": 3}
    outcome = gen.emulate(source, block=32, args=args)
    assert (outcome.findings, outcome.notes) == ([], [])
    a, b = (outcome.arrays[name].astype(int).reshape(16, 16) for name in "ab")
    assert (outcome.arrays["c"].reshape(16, 16) == 3 * (b @ a)).all()
    empty = gen.emulate(source.replace("fill_fragment", "// "), block=32, args=args)
    assert "has no value, by 32 threads; it reaches the wmma" in empty.findings[0].message
