"""The oracle, and its error bounds: right results are within them, wrong ones are not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.compile.nvrtc import compile_cuda
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Case, run_kernel
from gen.emulator.warp.tensor_core import (
    FP8_WGMMA,
    SMALLEST,
    TO_F16,
    TO_F32,
    Factor,
    Sums,
    fp8_sums,
    multiply_add,
)
from gen.kernels.registry import make_spec
from gen.prove import kernel_sums, oracle
from gen.prove.inputs import draw_operands
from gen.prove.sums import gamma
from gen.source.render import render
from gen.spec.dtypes import DTYPES, SCALAR_DTYPES, TENSOR_DTYPES, parse_dtype
from gen.spec.kernel import EPILOGUES
from gen.spec.numerics import (
    from_float64,
    is_float,
    poison,
    smallest_subnormal,
    storage_dtype,
    to_float64,
    unit_roundoff,
    unpack,
)
from gen.spec.problem import GemmProblem, GemmShape
from tests.spec.test_numerics import integers
from tests.support.slow import each, sift

FLOATS = [name for name in SCALAR_DTYPES if is_float(name)]
# On tensor cores: with sums in f32 and in f16.
FP8 = [name for name in TENSOR_DTYPES if parse_dtype(name).input.is_fp8]
TENSOR_FLOATS = [name for name in TENSOR_DTYPES if name not in ("i8", *FP8)]


@dataclass
class Operands:
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray


def operands(dtype, m, n, k, most=8, seed=0):
    rng, types = np.random.default_rng(seed), parse_dtype(dtype)
    return Operands(
        integers(rng, (m, k), types.input.name, most),
        integers(rng, (k, n), types.input.name, most),
        integers(rng, (m, n), types.output.name, most),
    )


# The oracle


@pytest.mark.parametrize("dtype", each(2, DTYPES))
def test_oracle_is_the_definition(dtype):
    x = operands(dtype, 3, 4, 5)
    types = parse_dtype(dtype)
    a, b = (to_float64(v, types.input.name).tolist() for v in (x.a, x.b))
    c = to_float64(x.c, types.output.name).tolist()
    want = [
        [3 * sum(a[i][k] * b[k][j] for k in range(5)) - 2 * c[i][j] for j in range(4)]
        for i in range(3)
    ]
    assert oracle.oracle(x.a, x.b, x.c, 3, -2, dtype).tolist() == want


@pytest.mark.parametrize("dtype", DTYPES)
def test_oracle_does_not_read_c_when_beta_is_0(dtype):
    x = operands(dtype, 3, 4, 5)
    want = oracle.oracle(x.a, x.b, np.zeros_like(x.c), 2, 7, dtype)
    x.c[:] = poison(parse_dtype(dtype).output.name)
    assert np.array_equal(oracle.oracle(x.a, x.b, x.c, 2, 0, dtype), want)
    assert np.isfinite(oracle.error_bound(x.a, x.b, x.c, 2, 0, dtype)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_oracle_of_empty_sums(dtype):
    x = operands(dtype, 3, 4, 0)
    want = -2 * to_float64(x.c, parse_dtype(dtype).output.name)
    assert np.array_equal(oracle.oracle(x.a, x.b, x.c, 3, -2, dtype), want)


def wrapped(value):
    return (value + 2**31) % 2**32 - 2**31


@given(st.data())
def test_integers_wrap_around(data):
    word = st.integers(-(2**31), 2**31 - 1)
    k = data.draw(st.integers(1, 6))
    a, b = (data.draw(st.lists(word, min_size=k, max_size=k)) for _ in "ab")
    c, alpha, beta = (data.draw(word) for _ in range(3))
    got = oracle.oracle(
        np.array([a], np.int32), np.array([b], np.int32).T, np.array([[c]], np.int32),
        alpha, beta, "i32",
    )  # fmt: skip
    want = wrapped(alpha * sum(x * y for x, y in zip(a, b, strict=True)) + beta * c)
    assert got.dtype == np.int32
    assert got.item() == want


def test_i8_is_widened_before_it_is_multiplied():
    a = np.full((1, 3), -128, np.int8)
    got = oracle.oracle(a, a.T, np.array([[5]], np.int32), 1, 1, "i8")
    assert got.item() == 3 * 128 * 128 + 5


def test_alpha_and_beta_are_the_kernels():
    one = np.ones((1, 1), np.float32)
    assert oracle.oracle(one, one, one, 0.1, 0.3, "f32").item() == (
        float(np.float32(0.1)) + float(np.float32(0.3))
    )


def test_the_oracle_has_no_minus_zero_of_its_own():
    zero, minus = np.zeros((1, 1), np.float32), np.full((1, 1), -1, np.float32)
    assert not np.signbit(oracle.oracle(zero, minus, zero, 2, 0, "f32")).any()


# Error bounds: they hold for right results in any order, and are tight enough to fail wrong ones.


def computed(a, b, c, alpha, beta, dtype, order, fused):
    """A right kernel's D, for one element, with every operation in the accumulator's type."""
    acc = storage_dtype(parse_dtype(dtype).accumulator.name).type
    # A product of two f32 is exact in longdouble, and so is nearly every sum: one rounding.
    wide = np.longdouble if dtype == "f64" else np.float64
    total = acc(0)
    for i in order:
        if fused:
            total = acc(wide(a[i]) * wide(b[i]) + wide(total))
        else:
            total = acc(total + acc(acc(a[i]) * acc(b[i])))
    result = acc(alpha) * total
    return result + acc(beta) * acc(c) if beta else result


def element(dtype):
    limit = {"f16": 60000.0, "bf16": 1e30, "f32": 1e30, "f64": 1e250}[dtype]
    return st.one_of(
        st.floats(-1, 1), st.floats(-limit, limit), st.floats(0, 1).map(lambda x: x * 2.0**-20),
        st.sampled_from([1.0, -1.0, limit, -limit, 1 + 2.0**-7, smallest_subnormal(dtype)]),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", each(4, FLOATS))
@settings(max_examples=150)
@given(data=st.data())
@pytest.mark.slow
def test_bounds_hold_for_right_results(dtype, data):
    k = data.draw(st.integers(0, 12))
    vector = st.lists(element(dtype), min_size=k, max_size=k)
    a, b = (from_float64(np.array(data.draw(vector)), dtype) for _ in "ab")
    c = from_float64(np.array([[data.draw(element(dtype))]]), dtype)
    scalar = st.sampled_from([0.0, 1.0, -2.0, 0.1, 1e-10, 1234.5])
    alpha, beta = data.draw(scalar), data.draw(scalar)
    order = data.draw(st.permutations(range(k)))
    matrices = (a.reshape(1, k), b.reshape(k, 1), c)
    exact = oracle.oracle(*matrices, alpha, beta, dtype)
    bound = oracle.error_bound(*matrices, alpha, beta, dtype)
    with np.errstate(all="ignore"):
        values = (to_float64(a, dtype), to_float64(b, dtype), to_float64(c, dtype)[0, 0])
        result = computed(*values, alpha, beta, dtype, order, data.draw(st.booleans()))
        got = to_float64(from_float64(np.array([[result]]), dtype), dtype)
        if np.isfinite(got).all():
            assert np.abs(got - exact) <= bound
        else:
            assert np.isinf(bound).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_bounds_reject_what_is_wrong(dtype):
    rng = np.random.default_rng(5)
    a, b, c = (from_float64(rng.uniform(-1, 1, s), dtype) for s in ((9, 64), (64, 7), (9, 7)))
    exact = oracle.oracle(a, b, c, 1.5, -0.75, dtype)
    bound = oracle.error_bound(a, b, c, 1.5, -0.75, dtype)
    assert bound.shape == exact.shape
    assert bound.dtype == np.float64

    def accepted(got):
        return np.mean(np.abs(to_float64(from_float64(got, dtype), dtype) - exact) <= bound)

    assert accepted(exact) == 1
    a64, b64, c64 = (to_float64(x, dtype) for x in (a, b, c))
    assert accepted(1.5 * (a64[:, :-1] @ b64[:-1]) - 0.75 * c64) < 0.1  # K one short
    assert accepted(1.5 * (a64 @ b64)) < 0.1  # beta forgotten
    assert accepted(a64 @ b64 - 0.75 * c64) < 0.1  # alpha forgotten
    assert accepted(np.roll(exact, 1, axis=1)) < 0.1
    assert accepted(np.full_like(exact, np.nan)) == 0
    assert accepted(np.full_like(exact, np.inf)) == 0
    assert accepted(exact + 1.001 * bound + 2.01 * unit_roundoff(dtype) * np.abs(exact)) == 0


def test_a_sum_in_the_narrow_type_is_out_of_bounds():
    rng = np.random.default_rng(6)
    a, b = (from_float64(rng.uniform(0, 1, s), "f16") for s in ((4, 512), (512, 4)))
    c = np.zeros((4, 4), np.float16)
    total = np.zeros((4, 4), np.float16)
    for k in range(512):
        total += a[:, k : k + 1] * b[k : k + 1]
    error = np.abs(to_float64(total, "f16") - oracle.oracle(a, b, c, 1, 0, "f16"))
    assert np.mean(error <= oracle.error_bound(a, b, c, 1, 0, "f16")) < 0.2


def test_the_bound_is_highams():
    # One product of ones, K = 100: gamma_102 from the sum and alpha, no C.
    ones = np.ones((1, 100), np.float32)
    bound = oracle.error_bound(ones, ones.T, ones[:, :1], 1, 0, "f32").item()
    assert bound == pytest.approx(100 * gamma(102, 2.0**-24), rel=1e-5)
    assert gamma(3, 0.25) == 3
    assert gamma(4, 0.25) == np.inf


# Tensor cores: blocks of products, cut off where they are aligned, and results cut off or rounded.


def cut(x, unit):
    return np.trunc(x / unit) * unit


def on_tensor_cores(a, b, dtype, block):
    """A sum as the worst tensor core makes it: 24 bits everywhere, all cut off."""
    types, total = parse_dtype(dtype), 0.0
    for at in range(0, len(a), block):
        terms = np.array([total, *(a[at : at + block] * b[at : at + block])])
        largest = np.max(np.abs(terms))
        if largest == 0:
            continue
        # Less than the last bit of the largest term, whose significand may be anywhere in [1, 4).
        unit = 2.0 ** (np.floor(np.log2(largest)) - 23)
        total = np.sum(cut(terms, unit))
        if total:
            total = cut(total, 2.0 ** (np.floor(np.log2(abs(total))) - 23))
        if types.accumulator.name == "f16":
            total = float(np.float16(total))
    return total


@pytest.mark.parametrize("dtype", each(8, TENSOR_FLOATS))
@settings(max_examples=100)
@given(data=st.data())
def test_bounds_hold_on_tensor_cores(dtype, data):
    types, k = parse_dtype(dtype), data.draw(st.integers(0, 40))
    number = st.floats(-1, 1) | st.sampled_from([1.0, -1.0, 2.0**-12, 1 - 2.0**-10])
    vector = st.lists(number, min_size=k, max_size=k)
    a, b = (from_float64(np.array(data.draw(vector)), types.input.name) for _ in "ab")
    spec = make_spec("mma", dtype=dtype, epilogue="linear_bias_gelu")
    c, bias = (from_float64(np.array(data.draw(number)), types.output.name) for _ in "cb")
    matrices = (a.reshape(1, k), b.reshape(k, 1), c.reshape(1, 1), 1.5, -0.75, dtype)
    after = oracle.After(data.draw(st.sampled_from(EPILOGUES)), bias.reshape(1))
    if after.epilogue == "linear":
        after = oracle.After()
    exact = oracle.oracle(*matrices, after)
    bound = oracle.error_bound(*matrices, after, kernel_sums.sums_of(spec))
    x, y = to_float64(a, types.input.name), to_float64(b, types.input.name)
    total = np.float32(on_tensor_cores(x, y, dtype, data.draw(st.sampled_from([4, 8, 16]))))
    c, bias = (np.float32(to_float64(v, types.output.name)) for v in (c, bias))
    result = np.float32(1.5) * total - np.float32(0.75) * c
    if after.bias is not None:
        result += bias
    if after.epilogue.endswith("relu"):
        result = max(result, np.float32(0))
    if after.epilogue.endswith("gelu"):
        inner = np.float32(math.erf(result * np.float32(0.70710678)))
        result = np.float32(0.5) * result * (np.float32(1) + inner)
    got = to_float64(
        from_float64(np.array(result, np.float64), types.output.name), types.output.name
    )
    assert abs(got - exact.item()) <= bound.item()


@pytest.mark.parametrize("dtype", TENSOR_FLOATS)
@pytest.mark.parametrize("k", [64, 1024])
def test_bounds_on_tensor_cores_reject_what_is_wrong(dtype, k):
    spec = make_spec("mma", dtype=dtype, split_k=4)
    problem = GemmProblem.packed(GemmShape(9, 7, k), spec.layouts, 1.5, -0.75)
    x = draw_operands(spec, problem, "random")
    exact = oracle.oracle(x.a, x.b, x.c, 1.5, -0.75, dtype)
    sums = kernel_sums.sums_of(spec)
    bound = oracle.error_bound(x.a, x.b, x.c, 1.5, -0.75, dtype, sums=sums)
    shorter = oracle.oracle(x.a[:, : k // 2], x.b[: k // 2], x.c, 1.5, -0.75, dtype)
    for wrong in (shorter, 0 * exact, exact / 1.5, np.full_like(exact, np.nan)):
        assert np.mean(np.abs(wrong - exact) <= bound) < 0.1


@pytest.mark.parametrize(
    ("variant", "dtype", "k"),
    [("wgmma", "e4m3_f32", 1024), ("wgmma", "e5m2", 1024), ("mma", "e4m3", 256)],
)
def test_bounds_of_fp8_reject_what_is_wrong(variant, dtype, k):
    spec = make_spec(variant, dtype=dtype)
    problem = GemmProblem.packed(GemmShape(9, 7, k), spec.layouts, 1.5, 0)
    x = draw_operands(spec, problem, "random")
    x = x._replace(a=x.a & 0x7F, b=x.b & 0x7F, c=0 * x.c)  # positive
    exact = oracle.oracle(x.a, x.b, x.c, 1.5, 0, dtype)
    bound = oracle.error_bound(x.a, x.b, x.c, 1.5, 0, dtype, sums=kernel_sums.sums_of(spec))
    shorter = oracle.oracle(x.a[:, : k // 2], x.b[: k // 2], x.c, 1.5, 0, dtype)
    for wrong in (shorter, 0 * exact, exact / 1.5, np.full_like(exact, np.nan)):
        assert np.mean(np.abs(wrong - exact) <= bound) < 0.1


def test_sums_that_are_too_long_have_no_bound():
    sums = kernel_sums.sums_of(make_spec("mma", dtype="f16_f16"), kernel_sums.HOPPER)
    signs = np.where(np.arange(2**15) % 2, 1, -1)[None]
    assert np.isinf(sums(1.0 * signs, np.ones((2**15, 1)))).all()
    assert sums(1.0 * signs[:, : 2**14], np.ones((2**14, 1))) < 2**14


# An H200 and the emulator: sums by the rules that were measured.


def on_hopper(a, b, instruction, kind, half, order=1):
    """A * B as a warp makes it, one instruction after another."""
    rule = TO_F16 if half else TO_F32
    sums = np.zeros((1, 1, len(a), b.shape[1]), rule.dtype)
    for at in range(0, a.shape[1], instruction)[::order]:
        x, y = (np.float32(v) for v in (a[:, at : at + instruction], b[at : at + instruction]))
        factors = Factor(x[None, None], SMALLEST[kind]), Factor(y[None], SMALLEST[kind])
        sums = multiply_add(*factors, Sums(sums), rule).numbers
    return sums[0, 0].astype(np.float64)


@pytest.mark.parametrize("dtype", each(2, TENSOR_FLOATS))
@settings(max_examples=40)
@given(data=st.data())
def test_the_bound_of_an_h200_holds(dtype, data):
    types, k = parse_dtype(dtype), data.draw(st.integers(1, 200))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    spread = data.draw(st.sampled_from([0, 1, 5, 9]))
    a, b = (
        rng.uniform(data.draw(st.sampled_from([-1, 0, 0.99])), 1, shape)
        * 2.0 ** rng.integers(-spread, spread + 1, shape) * data.draw(st.sampled_from([1, 2.0**-9]))
        for shape in ((3, k), (k, 4))
    )  # fmt: skip
    name = types.input.name
    a, b = (to_float64(from_float64(x, name), name) for x in (a, b))
    spec = make_spec("mma", dtype=dtype)
    half = types.accumulator.name == "f16"
    with np.errstate(all="ignore"):
        got = on_hopper(a, b, spec.instruction.k, name, half, data.draw(st.sampled_from([1, -1])))
        bound = kernel_sums.sums_of(spec, kernel_sums.HOPPER)(a, b)
        error = np.abs(got - a @ b)
    assert ((error <= bound + k * smallest_subnormal(types.accumulator.name)) | np.isinf(got)).all()
    looser = kernel_sums.sums_of(spec)(a, b)
    assert (bound <= looser).all()


@pytest.mark.parametrize("dtype", each(3, ["f16_f32", "tf32", "f16_f16"]))
def test_a_kernel_on_the_emulator_sums_like_that(dtype):
    """Bit for bit, the K beyond the matrices included."""
    spec, runner = make_spec("mma", dtype=dtype), EmulatorRunner()
    types = spec.dtypes
    problem = GemmProblem.packed(GemmShape(21, 19, 75), spec.layouts, 1, 0)
    x = draw_operands(spec, problem, "random")
    module = compile_cuda(render(spec).text, arch=spec.arch, format="ptx")
    storage = run_kernel(spec, runner, module, Case(problem, x))
    a, b = (to_float64(v, types.input.name) for v in (x.a, x.b))
    half = types.accumulator.name == "f16"
    want = on_hopper(a, b, spec.instruction.k, types.input.name, half)
    got = unpack(storage, 21, 19, spec.layouts.c, problem.ldd)
    assert np.array_equal(to_float64(got, types.output.name), want)
    assert (want != a @ b).mean() > 0.8


def test_random_operands_of_tf32_have_more_bits_than_it_has():
    """None is halfway between two of its numbers: kernels may round it to either."""
    spec = make_spec("mma", dtype="tf32")
    x = draw_operands(spec, GemmProblem.packed(GemmShape(90, 90, 90), spec.layouts), "random")
    for matrix in (x.a, x.b):
        lost = matrix.view(np.uint32) & 0x1FFF
        assert len(np.unique(lost)) > 4000
        assert 0x1000 not in lost
        error = np.abs(to_float64(matrix, "tf32") / matrix.astype(np.float64) - 1)
        assert 0.9 < error.max() * 2**11 <= 1


def test_products_of_too_few_bits_are_out_of_bounds():
    """Where signs differ, and what holds for any kernel on any tensor core lets them pass."""
    spec = make_spec("mma", dtype="f16_f32")
    problem = GemmProblem.packed(GemmShape(20, 20, 256), spec.layouts, 1, 0)
    x = draw_operands(spec, problem, "random")
    a, b = x.a.astype(np.float64), x.b.astype(np.float64)
    products = (a[:, :, None] * b[None]).astype(np.float32)
    short = ((products.view(np.int32) + (1 << 10)) & -(1 << 11)).view(np.float32)  # 13 of 24 bits
    error = np.abs(short.astype(np.float64).sum(axis=1) - a @ b)
    assert np.mean(error <= kernel_sums.sums_of(spec, kernel_sums.HOPPER)(a, b)) < 0.5
    assert (error <= kernel_sums.any_tensor_core(0, spec.dtypes)(a, b)).all()


def of_fp8(a, b, kind, variant, promote, begin=0):
    """A * B as a warp makes it of fp8; by wgmma in parts, which end at multiples of `promote`."""
    more = -a.shape[1] % 32  # K beyond the matrices
    a, b = np.pad(a, ((0, 0), (0, more))), np.pad(b, ((0, more), (0, 0)))
    smallest, shape = SMALLEST[kind], (1, 1, len(a), b.shape[1])
    total, part = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for at in range(begin, a.shape[1], 32):
        x, y = (np.float32(v) for v in (a[:, at : at + 32], b[at : at + 32]))
        if variant == "mma":
            wide = Factor(x[None, None], SMALLEST["f16"]), Factor(y[None], SMALLEST["f16"])
            total = fp8_sums(*wide, Sums(total), TO_F32).numbers
            continue
        factors = Factor(x[None, None], smallest), Factor(y[None], smallest)
        part = multiply_add(*factors, Sums(part), FP8_WGMMA).numbers
        if promote and ((at + 32) % promote == 0 or at + 32 >= a.shape[1]):
            total, part = total + part, np.zeros(shape, np.float32)
    return np.float64(total + part)[0, 0]


@pytest.mark.parametrize("variant", sift(["mma", "wgmma"], ["wgmma"]))
@settings(max_examples=60)
@given(data=st.data())
def test_the_bound_of_fp8_on_an_h200_holds(variant, data):
    dtype, k = data.draw(st.sampled_from(["e4m3_f32", "e5m2_f32"])), data.draw(st.integers(1, 700))
    name = parse_dtype(dtype).input.name
    promote = data.draw(st.sampled_from([0, 128, 256])) if variant == "wgmma" else 0
    begin = data.draw(st.sampled_from([0, 128])) if k > 128 else 0  # of a slice
    tunables = {"promote": promote} if variant == "wgmma" else {}
    spec = make_spec(variant, dtype=dtype, split_k=2 if begin else 1, **tunables)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    spread = data.draw(st.sampled_from([0, 1, 4]))
    a, b = (
        rng.uniform(data.draw(st.sampled_from([-1, 0, 0.99])), 1, shape)
        * 2.0 ** rng.integers(-spread, spread + 1, shape) * data.draw(st.sampled_from([1, 2.0**-5]))
        for shape in ((3, k), (k, 4))
    )  # fmt: skip
    a, b = (to_float64(from_float64(x, name), name) for x in (a, b))
    got = of_fp8(a, b, name, variant, promote, begin)
    if begin:
        got = got + of_fp8(a[:, :begin], b[:begin], name, variant, promote)
    bound = kernel_sums.sums_of(spec, kernel_sums.HOPPER)(a, b)
    assert (np.abs(got - a @ b) <= bound).all()
    assert (bound <= kernel_sums.sums_of(spec)(a, b)).all()


def test_promotion_tightens_the_bound_of_fp8():
    spec = make_spec("wgmma", dtype="e4m3_f32")
    never = make_spec("wgmma", dtype="e4m3_f32", promote=0)
    problem = GemmProblem.packed(GemmShape(20, 20, 4096), spec.layouts, 1, 0)
    x = draw_operands(spec, problem, "random")
    a, b = (np.abs(to_float64(v, "e4m3")) for v in (x.a, x.b))
    bound, loose = (kernel_sums.sums_of(s)(a, b) for s in (spec, never))
    assert (bound < loose / 8).all()
    errors = [np.abs(of_fp8(a, b, "e4m3", "wgmma", n) - a @ b) for n in (0, 128)]
    assert (errors[0] <= loose).all()
    assert np.mean(errors[0]) > 8 * np.mean(errors[1])
    # What 14 bits make is no sum of mma.sync, which has 24.
    by_mma = kernel_sums.sums_of(make_spec("mma", dtype="e4m3_f32"), kernel_sums.HOPPER)(a, b)
    assert np.mean(errors[0] <= by_mma) < 0.1


@pytest.mark.parametrize(
    "tunables", [{"split_k": 3}, {"sliced_k": 2}, {"split_k": 2, "sliced_k": 2}], ids=str
)
def test_sums_in_parts_have_bounds(tunables):
    """Of slices of K, and of teams that take turns."""
    spec = make_spec("mma_tma", dtype="f16_f32", threadblock="128x128x64", **tunables)
    tile, k = spec.threadblock.k, 7 * spec.threadblock.k
    rng = np.random.default_rng(3)
    a, b = (np.float16(rng.uniform(0.5, 1, s)) * rng.choice((-1, 1), s) for s in ((5, k), (k, 6)))
    slices, teams = spec.split_k, spec.sliced_k
    parts, step_of = [], np.arange(k) // tile
    for chosen in np.array_split(np.arange(7), slices):
        for team in range(teams):
            own = np.isin(step_of, chosen[team::teams])
            parts.append(on_hopper(a[:, own], b[own], spec.instruction.k, "f16", False))
    total = np.zeros((5, 6), np.float32)
    for part in parts:
        total += part.astype(np.float32)
    bound = kernel_sums.sums_of(spec, kernel_sums.HOPPER)(*(x.astype(np.float64) for x in (a, b)))
    error = np.abs(total - a.astype(np.float64) @ b.astype(np.float64))
    assert (error <= bound).all()
    assert (bound < 400 * error.max()).all()


def test_sums_of_shared_tiles_have_bounds():
    """The first steps by one block and the last ones by another, each last to first."""
    spec = make_spec("wgmma", dtype="f16_f32", threadblock="64x64x64", stream_k=1)
    tile, k = spec.threadblock.k, 7 * spec.threadblock.k
    rng = np.random.default_rng(3)
    a, b = (np.float16(rng.uniform(0.5, 1, s)) for s in ((5, k), (k, 6)))
    total = np.zeros((5, 6), np.float32)
    for steps in (range(2, -1, -1), range(6, 2, -1)):
        own = np.concatenate([np.arange(tile) + tile * step for step in steps])
        total += on_hopper(a[:, own], b[own], spec.instruction.k, "f16", False).astype(np.float32)
    bound = kernel_sums.sums_of(spec, kernel_sums.HOPPER)(*(x.astype(np.float64) for x in (a, b)))
    error = np.abs(total - a.astype(np.float64) @ b.astype(np.float64))
    assert (error <= bound).all()
    assert (bound < 400 * error.max()).all()


def test_epilogues_are_their_definitions():
    a, b = np.array([[1.0, -2.0]], np.float32), np.array([[1.0], [1.0]], np.float32)
    c, bias = np.zeros((1, 1), np.float32), np.array([0.25], np.float32)
    for epilogue, want in (
        ("linear_bias", -0.75),
        ("linear_bias_relu", 0.0),
        ("linear_bias_gelu", -0.75 * 0.5 * (1 + math.erf(-0.75 / math.sqrt(2)))),
    ):
        got = oracle.oracle(a, b, c, 1, 0, "f32", oracle.After(epilogue, bias))
        assert got.item() == pytest.approx(want, rel=1e-15)


def test_overflow_has_no_bound():
    big = np.full((1, 2), 40000, np.float16)
    one, zero = np.ones((2, 1), np.float16), np.zeros((1, 1), np.float16)
    assert np.isinf(oracle.error_bound(big, one, zero, 1, 0, "f16")).all()
    assert np.isfinite(oracle.error_bound(big, one, zero, 0.5, 0, "f16")).all()
    huge = np.full((1, 2), 3e38, np.float32)
    assert np.isinf(oracle.error_bound(huge, one, zero, 0.1, 0, "f32")).all()


def test_integers_have_no_tolerance():
    for dtype in ("i32", "i8"):
        x = operands(dtype, 2, 3, 4)
        assert not oracle.error_bound(x.a, x.b, x.c, 3, 2, dtype).any()
