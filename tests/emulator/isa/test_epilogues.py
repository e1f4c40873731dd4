"""What epilogues and users' kernels need beyond a GEMM: modifiers, pairs of halves, calls."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, LaunchReport
from gen.errors import CheckError
from tests.emulator.isa.test_instructions import check, execute

NAN, TINY = float("nan"), 1e-40  # TINY is subnormal in f32


@pytest.mark.parametrize(
    ("code", "expected", "a", "b"),
    [
        ("add.ftz.f32 %d, %a, %b;", [1, 0], [TINY, TINY], [1, TINY]),
        ("add.f32 %d, %a, %b;", [np.float32(TINY) * 2], [TINY], [TINY]),
        ("mul.ftz.f32 %d, %a, %b;", [0, -0.0], [1e-20, -1e-20], [1e-20, 1e-20]),
        ("mul.ftz.sat.f32 %d, %a, %b;", [1, 0, 0.25], [2, -1, 0.5], [3, 1, 0.5]),
        ("fma.rn.sat.f32 %d, %a, %b, %a;", [0, 1], [NAN, 1], [1, 1]),
        ("fma.rn.ftz.f32 %d, %a, %b, %a;", [0], [TINY], [1]),
        ("add.rz.f32 %d, %a, %b;", [2.0**24, -(2.0**24)], [2.0**24, -(2.0**24)], [1, -1]),
        ("add.rp.f32 %d, %a, %b;", [1 + 2.0**-23], [1], [1e-30]),
        ("add.rm.f32 %d, %a, %b;", [1, 1 - 2.0**-24], [1, 1], [1e-30, -1e-30]),
        ("sub.rm.f32 %d, %a, %b;", [1 - 2.0**-24], [1], [1e-30]),
        ("mul.rp.f32 %d, %a, %b;", [1 + 3 * 2.0**-23], [1 + 2.0**-23], [1 + 2.0**-23]),
        ("fma.rz.f32 %d, %a, %a, %b;", [1 - 2.0**-24], [1], [-1e-30]),
        ("div.rm.f32 %d, %a, %b;", [np.nextafter(np.float32(1 / 3), np.float32(0))], [1], [3]),
        ("rcp.rz.f32 %d, %b;", [np.float32(0.1) - np.float32(2.0**-27)], [0], [10]),
        ("sqrt.rm.f32 %d, %b;", [np.float32(1.4142135)], [0], [2]),
        ("rcp.approx.ftz.f32 %d, %a;", [np.inf], [TINY], [0]),
        ("div.approx.f32 %d, %a, %b;", [-0.0, 2.0**-126, 2], [-88, 1, 6], [2.0**127, 2.0**126, 3]),
        ("sin.approx.f32 %d, %a;", [math.sin(1)], [1], [0]),
        ("cos.approx.ftz.f32 %d, %a;", [1], [TINY], [0]),
        ("tanh.approx.f32 %d, %a;", [math.tanh(0.5)], [0.5], [0]),
        ("lg2.approx.ftz.f32 %d, %a;", [-np.inf, 3], [TINY, 8], [0, 0]),
        ("min.ftz.NaN.f32 %d, %a, %b;", [NAN, 0], [NAN, TINY], [1, 1]),
        ("abs.ftz.f32 %d, %a;", [2, 0], [-2, -TINY], [0, 0]),
        ("cvt.ftz.sat.f32.f32 %d, %a;", [1, 0], [5, TINY], [0, 0]),
        ("cvt.rmi.ftz.f32.f32 %d, %a;", [-2], [-1.5], [0]),
        ("slct.f32.f32 %d, %a, 0f00000000, %b;", [3, 0, 3, 0], [3] * 4, [1, -1, -0.0, NAN]),
        ("set.lt.ftz.f32.f32 %d, %a, %b;", [1, 0], [1, TINY], [2, TINY * 2]),
    ],
)
def test_f32_modifiers(code: str, expected: list, a: list, b: list) -> None:
    check(code, "f4", expected, ("f4", a), ("f4", b))


def bits(kind: str, values: list[float]) -> list[int]:
    """Bit patterns of f16 or bf16 values."""
    if kind == "f16":
        return np.array(values, np.float16).view(np.uint16).tolist()
    return (np.array(values, np.float32).view(np.uint32) >> 16).tolist()


ONES, NONE = 0xFFFF, 0
HALVES = [
    ("add{}.{}", [3, -1], None), ("sub{}.{}", [-1, 3], None), ("mul{}.{}", [2, -2], None),
    ("fma.rn{}.{}", [3, -1], None), ("fma.rn.relu{}.{}", [3, 0], None),
    ("min{}.{}", [1, -2], None), ("max{}.{}", [2, 1], None), ("min.NaN{}.{}", [1, -2], None),
    ("neg{}.{}", [-1, -1], None), ("abs{}.{}", [1, 1], None), ("ex2.approx{}.{}", [2, 2], None),
    ("set.lt.{1}{0}.{1}", [1, 0], None), ("set.gtu.{1}{0}.{1}", [0, 1], None),
    ("set.lt.{2}{0}.{1}", None, [ONES, NONE]),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(("form", "expected", "raw"), HALVES)
def test_halves_alone_and_in_pairs(kind: str, form: str, expected: list, raw: list | None) -> None:
    """Two operations, on (1, 2) and (1, -2): one by one, and both at once in 32 bits."""
    x, y = bits(kind, [1, 1]), bits(kind, [2, -2])
    words = form.replace("{}", "{0}", 1).replace("{}", "{1}")
    opcode = form.split(".")[0].partition("{")[0]
    count = {"neg": 1, "abs": 1, "ex2": 1, "fma": 3}.get(opcode, 2)
    sources = {1: "%a", 2: "%a, %b", 3: "%a, %b, %a"}[count]
    flush = ".ftz" if form.startswith("ex2") and kind == "bf16" else ""
    single = words.replace("{0}.", f"{flush}.").replace("{0}", flush)
    single = single.format("", kind, "u16") + f" %d, {sources};"
    want = raw or bits(kind, expected)
    check(single, "u2", want, ("u2", x), ("u2", y))
    pair = words.replace("{0}.", f"{flush}.").replace("{0}", flush)
    pair = pair.format("", f"{kind}x2", "u32") + f" %d, {sources};"
    packed = [[low | high << 16] for low, high in (x, y, want)]
    check(pair, "u4", packed[2], ("u4", packed[0]), ("u4", packed[1]))


def test_saturated_and_flushed_halves() -> None:
    a, b = ("f2", [3, -3, 0.25, 2.0**-24]), ("f2", [1, 1, 0.5, 0])
    check("add.sat.f16 %d, %a, %b;", "f2", [1, 0, 0.75, 2.0**-24], a, b)
    check("add.ftz.f16 %d, %a, %b;", "f2", [4, -2, 0.75, 0], a, b)
    check("fma.rn.ftz.sat.f16 %d, %a, %b, %b;", "f2", [1, 0, 0.625, 0], a, b)
    check("tanh.approx.f16 %d, %b;", "f2", np.tanh([1, 1, 0.5, 0]), a, b)


def test_bf16_fma_rounds_once() -> None:
    """1 * (1 + 2^-7) + 2^-30: the product is no tie of bf16's, the sum is just above one."""
    tie, small = bits("bf16", [1.0 + 2.0**-7])[0], bits("bf16", [2.0**-70])[0]
    half = bits("bf16", [1.0 + 2.0**-7 + 2.0**-6])[0]
    # (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14, beside 2^-70: still one rounding
    check("fma.rn.bf16 %d, %a, %a, %b;", "u2", [bits("bf16", [1 + 2.0**-6])[0]],
          ("u2", [tie]), ("u2", [small]))  # fmt: skip
    assert half != tie


@pytest.mark.parametrize(
    ("code", "result", "expected", "dtype", "values"),
    [
        ("cvt.rz.f16x2.f32 %d, %a, %a;", "u4", [0x3C003C00], "f4", [1 + 2.0**-11 + 2.0**-12]),
        ("cvt.rn.relu.f16x2.f32 %d, %a, 0f3F800000;", "u4", [0x00003C00], "f4", [-2]),
        ("cvt.rn.relu.bf16x2.f32 %d, %a, %a;", "u4", [0], "f4", [-2]),
        ("cvt.rp.f32.s64 %d, %a;", "f4", [2.0**62 + 2.0**39], "i8", [2**62 + 1]),
        ("cvt.rz.f32.u64 %d, %a;", "f4", [2.0**64 - 2.0**40], "u8", [2**64 - 1]),
        ("cvt.rni.bf16.bf16 %d, %a;", "u2", [0x4000], "u2", [0x4020]),
        ("cvt.rzi.ftz.s32.f32 %d, %a;", "i4", [-7, 0], "f4", [-7.9, TINY]),
        ("cvt.rn.ftz.f16.f32 %d, %a;", "f2", [1.5, 0], "f4", [1.5, TINY]),
        ("testp.subnormal.f32 %p, %a; selp.s32 %d, 1, 0, %p;", "i4", [1, 0, 0], "f4", [TINY, 0, 1]),
        ("testp.finite.f32 %p, %a; selp.s32 %d, 1, 0, %p;", "i4", [1, 0, 0], "f4",
         [1, np.inf, NAN]),
    ],
)  # fmt: skip
def test_conversions(code: str, result: str, expected: list, dtype: str, values: list) -> None:
    check(code, result, expected, (dtype, values))


@pytest.mark.parametrize(
    ("code", "expected", "a", "b"),
    [
        ("add.cc.u32 %w0, %a, %b; addc.u32 %d, 0, 0;", [1, 0], [-1, 5], [1, 6]),
        ("add.cc.u32 %w0, %a, %b; addc.cc.u32 %w0, -1, 0; addc.u32 %d, 7, 0;", [8, 7],
         [-1, 5], [1, 6]),
        ("sub.cc.u32 %w0, %a, %b; subc.u32 %d, 10, 0;", [9, 10], [1, 6], [2, 5]),
        ("mad.lo.cc.u32 %w0, %a, %b, %a; madc.hi.u32 %d, %a, %b, 0;", [-1, 0], [-1, 3], [-1, 4]),
        ("mul24.lo.s32 %d, %a, %b;", [-3, 6], [0x01FFFFFF, 2], [3, 3]),
        ("mul24.lo.u32 %d, %a, %b;", [6], [0x01000002], [3]),
        ("sad.u32 %d, %a, %b, 1;", [5, 5], [3, 7], [7, 3]),
        ("bfind.u32 %d, %a;", [3, -1, 31], [8, 0, -1], [0] * 3),
        ("bfind.s32 %d, %a;", [3, -1, 2], [8, -1, -8], [0] * 3),
        ("bfind.shiftamt.u32 %d, %a;", [28, -1], [8, 0], [0] * 2),
        ("prmt.b32.f4e %d, %a, %b, 1;", [0x55443322 + 0x33000000 - 0x11000000 * 3],
         [0x44332211], [0x55]),
        ("prmt.b32.rc8 %d, %a, %b, 2;", [0x33333333], [0x44332211], [0]),
        ("prmt.b32.ecr %d, %a, %b, 1;", [0x22222211], [0x44332211], [0]),
        ("{.reg .b64 t; cvt.u64.u32 t, %a; isspacep.global %p, t;} selp.s32 %d, 1, 0, %p;", [1],
         [4], [0]),
        ("mov.u32 %d, %lanemask_lt;", [0, 1, 3], [0] * 3, [0] * 3),
        ("mov.u32 %d, %lanemask_ge;", [-1, -2, -4], [0] * 3, [0] * 3),
        ("match.any.sync.b32 %d, %a, 7;", [5, 2, 5], [9, 8, 9], [0] * 3),
        ("match.all.sync.b32 %d|%p, %a, 7;", [0] * 3, [9, 8, 9], [0] * 3),
        ("match.all.sync.b32 %d|%p, %b, 7;", [7] * 3, [9, 8, 9], [0] * 3),
        ("redux.sync.add.s32 %d, %a, 7;", [-4] * 3, [-9, 2, 3], [0] * 3),
        ("redux.sync.min.u32 %d, %a, 7;", [2] * 3, [-9, 2, 3], [0] * 3),
        ("redux.sync.xor.b32 %d, %a, 7;", [4] * 3, [1, 2, 7], [0] * 3),
    ],
)  # fmt: skip
def test_integers_and_lanes(code: str, expected: list, a: list, b: list) -> None:
    if "f4e" in code:
        expected = [0x55443322]
    check(code, "i4", np.array(expected).astype(np.int32), ("i4", a), ("i4", b))


def test_clocks_advance() -> None:
    code = "mov.u32 %w0, %clock; nanosleep.u32 100; mov.u32 %w1, %clock; sub.s32 %d, %w1, %w0;"
    assert (execute(code, "i4", np.zeros(3, "i4")) > 0).all()
    code = "mov.u64 %a, %clock64; mov.u64 %d, %globaltimer; sub.s64 %d, %d, %a;"
    assert (execute(code, "i8", np.zeros(3, "i8")) > 0).all()


def test_atomics_on_halves() -> None:
    for kind, one, total in (("f16x2", 0x40003C00, 0x50004C00), ("bf16x2", 0x40003F80, 0x42004180)):
        code = f"atom.global.add.noftz.{kind} %w0, [%at_b+0], %a; mov.b32 %d, %w0;"
        emulated = f"sub.s64 %at_b, %at_b, %off; {code}"
        lanes = np.arange(16)
        setup = ".reg .b64 %off; mul.wide.u32 %off, %lane, 4; "
        old = execute(setup + emulated, "u4", np.full(16, one, "u4"), np.zeros(16, "u4"))
        assert old[0] == 0
        last = np.array([total], "u4")
        assert (old[-1:] + 0 != last).all()
        assert len(set(old.tolist())) == len(lanes)


def run_cuda(source: str, threads: int, *arrays: np.ndarray, **options: object) -> tuple:
    """Run the CUDA kernel `test` on one block; the arrays and the report."""
    emulator = Emulator()
    device = [emulator.alloc(array) for array in arrays]
    ptx = compile_cuda(source, **options).code.decode()
    report: LaunchReport = emulator.launch(
        ptx, "test", (1, 1, 1), (threads, 1, 1), device, source_lines=source.splitlines()
    )
    return [emulator.read(array) for array in device], report


ACTIVATIONS = """
extern "C" __global__ void test(const float* in, float* out) {
  float x = in[threadIdx.x], *y = out + 8 * threadIdx.x;
  y[0] = 0.5f * x * (1 + erff(x * 0.70710678f));
  y[1] = x / (1 + __expf(-x));
  y[2] = tanhf(x);
  y[3] = expf(x);
  y[4] = logf(fabsf(x) + 1);
  y[5] = rsqrtf(x * x + 1) + sqrtf(fabsf(x));
  y[6] = sinf(x) + cosf(x);
  y[7] = powf(fabsf(x), 1.5f);
}
"""


@pytest.mark.parametrize("options", [[], ["-use_fast_math"]])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_activation_functions(options: list[str], arch: str) -> None:
    x = np.linspace(-4, 4, 64).astype(np.float32)
    (_, got), report = run_cuda(
        ACTIVATIONS, 64, x, np.zeros((64, 8), np.float32), options=options, arch=arch
    )
    assert report.findings == []
    z = x.astype(np.float64)
    erf = np.array([math.erf(v * math.sqrt(0.5)) for v in z])
    expected = [
        0.5 * z * (1 + erf), z / (1 + np.exp(-z)), np.tanh(z), np.exp(z), np.log(np.abs(z) + 1),
        1 / np.sqrt(z * z + 1) + np.sqrt(np.abs(z)), np.sin(z) + np.cos(z), np.abs(z) ** 1.5,
    ]  # fmt: skip
    assert np.allclose(got, np.stack(expected, axis=1), rtol=3e-6, atol=2e-6)


VOTES = """
extern "C" __global__ void test(const int* in, int* out) {
  int x = in[threadIdx.x], *y = out + 4 * threadIdx.x;
  y[0] = __syncthreads_count(x > 1);
  y[1] = __syncthreads_or(x == 7);
  y[2] = __syncthreads_and(x >= 0);
  if (threadIdx.x < 32) asm volatile("barrier.cta.arrive 1, 96;");
  else asm volatile("barrier.cta.sync 1, 96;");
  switch (x) {
    case 0: y[3] = 10; break;
    case 1: y[3] = in[1] * 3; break;
    case 2: y[3] = 12 - in[2]; break;
    case 3: y[3] = in[3] << 3; break;
    case 4: y[3] = 14 ^ in[1]; break;
    case 5: y[3] = __popc(in[5]); break;
    default: y[3] = 99;
  }
}
"""


def test_votes_of_a_block_arrivals_and_switches() -> None:
    x = np.arange(96, dtype=np.int32) % 7
    (_, got), report = run_cuda(VOTES, 96, x, np.zeros((96, 4), np.int32))
    assert report.findings == []
    assert (got[:, :3] == [(x > 1).sum(), 0, 1]).all()
    cases = [10, 3, 10, 24, 15, 2, 99]
    assert np.array_equal(got[:, 3], np.array(cases)[x])


def test_indexed_branches() -> None:
    code = (
        "T: .branchtargets L0, L1, L2;\nbrx.idx %a, T;\nL0: mov.u32 %d, 5; bra OUT;\n"
        "L1: mov.u32 %d, 6; bra OUT;\nL2: mov.u32 %d, 7;\nOUT:\n"
    )
    check(code, "i4", [7, 5, 6, 5], ("i4", [2, 0, 1, 0]))


def test_a_trap_is_a_finding() -> None:
    source = (
        'extern "C" __global__ void test(int* x) {\n'
        "  if (x[threadIdx.x] == 3)\n    __trap();\n  x[threadIdx.x] = 1;\n}\n"
    )
    (got,), report = run_cuda(source, 8, np.arange(8, dtype=np.int32))
    (finding,) = report.findings
    assert (finding.check, finding.file_line, finding.threads) == ("trap", 3, ((3, 0, 0),))
    assert got.tolist() == [1, 1, 1, 3, 1, 1, 1, 1]


CALLS = """
struct Pair { float a, b; int c; };
__device__ __noinline__ float iterate(float x, int n) {
  for (int i = 0; i < n; ++i) x = x * x + 1;
  return x;
}
__device__ __noinline__ Pair change(Pair p, float* y) {
  if (p.c < 0) return p;
  p.a += *y;
  p.c = iterate(p.b, 2);
  *y = 7;
  return p;
}
extern "C" __global__ void test(float* x, double* d) {
  int i = threadIdx.x;
  float y = x[i];
  Pair p{y, 2 * y, i - 1};
  p = change(p, &y);
  x[i] = p.a + iterate(p.c, i & 3) + y;
  d[i] = pow(d[i], 2.5);
  assert(d[i] < 10);
}
"""


def test_functions_and_assertions() -> None:
    def iterate(x: float, n: int) -> float:
        return x if n == 0 else iterate(x * x + 1, n - 1)

    x, d = np.array([0.5, 1, -0.5, 0.25], np.float32), np.array([1.5, 2, 4, 0.5])
    (got, powers), report = run_cuda(CALLS, 4, x, d)
    expected = []
    for i, y in enumerate(x.tolist()):
        a, c = (y, -1) if i == 0 else (2 * y, int(iterate(2 * y, 2)))
        expected.append(a + iterate(c, i & 3) + (y if i == 0 else 7))
    assert got.tolist() == expected
    assert np.allclose(powers, d**2.5, rtol=1e-14)
    (finding,) = report.findings
    assert (finding.check, finding.threads) == ("trap", ((2, 0, 0),))
    assert "assertion failed in 1 thread" in finding.message
    assert "assert(d[i] < 10);" in finding.source


def test_recursion_is_refused() -> None:
    source = (
        "__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) * f(n - 2) + n; }\n"
        'extern "C" __global__ void test(int* x) { x[0] = f(x[1]); }\n'
    )
    with pytest.raises(CheckError, match=r"recursive|call"):
        run_cuda(source, 1, np.arange(2, dtype=np.int32))


def test_what_is_not_known_is_refused_with_its_line() -> None:
    source = 'extern "C" __global__ void test(int* x) {\n  asm volatile("pmevent.mask 3;");\n}\n'
    with pytest.raises(CheckError, match=r"not supported.*pmevent\.mask.*CUDA line 2"):
        run_cuda(source, 8, np.arange(8, dtype=np.int32))


def test_integers_of_128_bits() -> None:
    """Long division mixes sub.cc with addc."""
    source = (
        "typedef unsigned __int128 wide;\n"
        'extern "C" __global__ void test(unsigned long long* x) {\n'
        "  unsigned long long* at = x + 8 * threadIdx.x;\n"
        "  const wide a = wide(at[1]) << 64 | at[0], b = wide(at[3]) << 64 | at[2];\n"
        "  const wide results[] = {a * b, a / b, a % b, a - b};\n"
        "  for (int i = 0; i < 4; ++i) {\n"
        "    at[2 * i] = results[i];\n"
        "    at[2 * i + 1] = results[i] >> 64;\n"
        "  }\n}\n"
    )
    rng = np.random.default_rng(4)
    x = rng.integers(0, 1 << 64, (64, 8), np.uint64) >> rng.integers(0, 64, (64, 8), np.uint64)
    x[rng.integers(0, 2, 64) > 0, 3] = 0
    x[:, 2] |= np.uint64(1)
    ptx = compile_cuda(source, options=["--device-int128"]).code.decode()
    emulator = Emulator()
    array = emulator.alloc(x)
    assert not emulator.launch(ptx, "test", (1, 1, 1), (64, 1, 1), [array]).findings
    for got, given in zip(emulator.read(array).tolist(), x.tolist(), strict=True):
        a, b = given[0] + (given[1] << 64), given[2] + (given[3] << 64)
        words = [low + (high << 64) for low, high in zip(got[::2], got[1::2], strict=True)]
        assert words == [a * b % (1 << 128), a // b, a % b, (a - b) % (1 << 128)]
