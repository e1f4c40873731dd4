"""The CUTLASS reference, the oracle, the error bounds and the conversions under them."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen import nvrtc, reference
from gen.dtypes import ELEMENT_TYPES, SCALAR_DTYPES, TENSOR_DTYPES
from gen.errors import CheckError, CompileError, MissingError, UsageError
from gen.inputs import draw_operands
from gen.numerics import (
    from_float64,
    is_float,
    overflow_threshold,
    pack,
    poison,
    smallest_subnormal,
    storage_dtype,
    to_float64,
    unit_roundoff,
    unpack,
)
from gen.registry import make_spec
from gen.runner import EmulatorRunner
from gen.spec import (
    ALL_LAYOUTS,
    DTYPES,
    EPILOGUES,
    GemmProblem,
    GemmShape,
    parse_dtype,
    parse_layout,
)

FLOATS = [name for name in SCALAR_DTYPES if is_float(name)]
FLOAT_TYPES = [*FLOATS, "tf32"]
# On tensor cores: with sums in f32 and in f16.
TENSOR_FLOATS = [name for name in TENSOR_DTYPES if name != "i8"]


@dataclass
class Operands:
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray


def integers(rng, shape, dtype, most=8):
    values = rng.integers(-most, most + 1, shape)
    if is_float(dtype):
        return from_float64(values.astype(np.float64), dtype)
    return values.astype(storage_dtype(dtype))


def operands(dtype, m, n, k, most=8, seed=0):
    rng, types = np.random.default_rng(seed), parse_dtype(dtype)
    return Operands(
        integers(rng, (m, k), types.input.name, most),
        integers(rng, (k, n), types.input.name, most),
        integers(rng, (m, n), types.output.name, most),
    )


def rounded_oracle(x, alpha, beta, dtype):
    exact = reference.oracle(x.a, x.b, x.c, alpha, beta, dtype)
    output = parse_dtype(dtype).output.name
    return from_float64(exact, output) if is_float(output) else exact


def bits(matrix):
    return np.ascontiguousarray(matrix).view(f"u{matrix.itemsize}")


# Conversions


def test_bf16_rounds_as_fractions_do():
    # Every bf16 number, the middle to its neighbour, and a hair to either side of the middle.
    low = np.arange(0, 0x7F7F, dtype=np.uint16)
    left, right = to_float64(low, "bf16"), to_float64(low + np.uint16(1), "bf16")
    middle = (left + right) / 2
    even = np.where(low % 2 == 0, low, low + 1).astype(np.uint16)
    for sign, flag in ((1.0, 0), (-1.0, 0x8000)):
        flag = np.uint16(flag)
        assert np.array_equal(from_float64(sign * left, "bf16"), low | flag)
        assert np.array_equal(from_float64(sign * middle, "bf16"), even | flag)
        below = sign * middle * (1 - 2.0**-52)
        above = sign * middle * (1 + 2.0**-52)
        assert np.array_equal(from_float64(below, "bf16"), low | flag)
        assert np.array_equal(from_float64(above, "bf16"), (low + np.uint16(1)) | flag)


def test_bf16_specials():
    values = np.array([np.inf, -np.inf, 1e300, -0.0, 1e-300, np.nan, 2.0**-134, 3.4e38])
    got = from_float64(values, "bf16")
    assert got[:5].tolist() == [0x7F80, 0xFF80, 0x7F80, 0x8000, 0x0000]
    assert np.isnan(to_float64(got[5:6], "bf16")).all()
    assert got[6:].tolist() == [0x0000, 0x7F80]


@given(st.floats(width=64, allow_nan=False, allow_infinity=False), st.sampled_from(FLOAT_TYPES))
def test_rounding_is_to_nearest(x, dtype):
    got = float(to_float64(from_float64(np.array([x]), dtype), dtype)[0])
    if abs(x) >= overflow_threshold(dtype) and dtype != "f64":
        assert got == np.copysign(np.inf, x)
    else:
        allowed = Fraction(unit_roundoff(dtype)) * abs(Fraction(x))
        assert abs(Fraction(got) - Fraction(x)) <= max(
            allowed, Fraction(smallest_subnormal(dtype)) / 2
        )


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_all_16_bit_numbers_survive(dtype):
    everything = np.arange(65536, dtype=np.uint16).view(storage_dtype(dtype))
    values = to_float64(everything, dtype)
    number = ~np.isnan(values)
    assert np.array_equal(bits(from_float64(values, dtype))[number], bits(everything)[number])
    assert np.isnan(to_float64(from_float64(values, dtype), dtype)[~number]).all()


def test_limits_of_the_types():
    for dtype, info in (("f16", np.finfo(np.float16)), ("f32", np.finfo(np.float32))):
        assert unit_roundoff(dtype) == info.eps / 2
        assert smallest_subnormal(dtype) == info.smallest_subnormal
        threshold = overflow_threshold(dtype)
        assert np.isinf(from_float64(np.array(threshold), dtype))
        assert from_float64(np.array(np.nextafter(threshold, 0)), dtype) == info.max
    assert to_float64(np.array([1], np.uint16), "bf16")[0] == smallest_subnormal("bf16")
    assert struct.pack(">f", 1 + 2 * unit_roundoff("bf16"))[:2] == b"\x3f\x81"


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("row_major", [True, False])
def test_matrices_are_stored_as_blas_does(dtype, row_major):
    matrix = integers(np.random.default_rng(1), (4, 3), dtype)
    ld = 7
    storage = pack(matrix, row_major, ld, dtype)
    assert storage.ndim == 1
    positions = [(i * ld + j if row_major else j * ld + i) for i in range(4) for j in range(3)]
    assert storage.size == max(positions) + 1
    assert np.array_equal(storage[positions], matrix.reshape(-1))
    gaps = np.delete(storage, positions)
    assert (bits(gaps) == bits(np.array([poison(dtype)]))).all()
    assert np.array_equal(unpack(storage, 4, 3, row_major, ld), matrix)


def test_poison_spoils():
    for dtype in ELEMENT_TYPES:
        value = to_float64(np.array([poison(dtype)]), dtype)[0]
        assert np.isnan(value) or abs(value) > 100


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="leading dimension 2 is shorter than 3"):
        pack(np.zeros((4, 3)), True, 2, "f64")
    with pytest.raises(ValueError, match="5 elements hold no 2 lines of 3, 3 apart"):
        unpack(np.zeros(5), 2, 3, True, 3)
    assert pack(np.zeros((0, 3)), True, 3, "f64").size == 0
    assert unpack(np.zeros(0), 0, 3, True, 3).shape == (0, 3)


# The oracle


@pytest.mark.parametrize("dtype", DTYPES)
def test_oracle_is_the_definition(dtype):
    x = operands(dtype, 3, 4, 5)
    types = parse_dtype(dtype)
    a, b = (to_float64(v, types.input.name).tolist() for v in (x.a, x.b))
    c = to_float64(x.c, types.output.name).tolist()
    want = [
        [3 * sum(a[i][k] * b[k][j] for k in range(5)) - 2 * c[i][j] for j in range(4)]
        for i in range(3)
    ]
    assert reference.oracle(x.a, x.b, x.c, 3, -2, dtype).tolist() == want


@pytest.mark.parametrize("dtype", DTYPES)
def test_oracle_does_not_read_c_when_beta_is_0(dtype):
    x = operands(dtype, 3, 4, 5)
    want = reference.oracle(x.a, x.b, np.zeros_like(x.c), 2, 7, dtype)
    x.c[:] = poison(parse_dtype(dtype).output.name)
    assert np.array_equal(reference.oracle(x.a, x.b, x.c, 2, 0, dtype), want)
    assert np.isfinite(reference.error_bound(x.a, x.b, x.c, 2, 0, dtype)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_oracle_of_empty_sums(dtype):
    x = operands(dtype, 3, 4, 0)
    want = -2 * to_float64(x.c, parse_dtype(dtype).output.name)
    assert np.array_equal(reference.oracle(x.a, x.b, x.c, 3, -2, dtype), want)


def wrapped(value):
    return (value + 2**31) % 2**32 - 2**31


@given(st.data())
def test_integers_wrap_around(data):
    word = st.integers(-(2**31), 2**31 - 1)
    k = data.draw(st.integers(1, 6))
    a, b = (data.draw(st.lists(word, min_size=k, max_size=k)) for _ in "ab")
    c, alpha, beta = (data.draw(word) for _ in range(3))
    got = reference.oracle(
        np.array([a], np.int32), np.array([b], np.int32).T, np.array([[c]], np.int32),
        alpha, beta, "i32",
    )  # fmt: skip
    want = wrapped(alpha * sum(x * y for x, y in zip(a, b, strict=True)) + beta * c)
    assert got.dtype == np.int32
    assert got.item() == want


def test_i8_is_widened_before_it_is_multiplied():
    a = np.full((1, 3), -128, np.int8)
    got = reference.oracle(a, a.T, np.array([[5]], np.int32), 1, 1, "i8")
    assert got.item() == 3 * 128 * 128 + 5


def test_alpha_and_beta_are_the_kernels():
    one = np.ones((1, 1), np.float32)
    assert reference.oracle(one, one, one, 0.1, 0.3, "f32").item() == (
        float(np.float32(0.1)) + float(np.float32(0.3))
    )


def test_the_oracle_has_no_minus_zero_of_its_own():
    zero, minus = np.zeros((1, 1), np.float32), np.full((1, 1), -1, np.float32)
    assert not np.signbit(reference.oracle(zero, minus, zero, 2, 0, "f32")).any()


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


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_bounds_hold_for_right_results(dtype, data):
    k = data.draw(st.integers(0, 12))
    vector = st.lists(element(dtype), min_size=k, max_size=k)
    a, b = (from_float64(np.array(data.draw(vector)), dtype) for _ in "ab")
    c = from_float64(np.array([[data.draw(element(dtype))]]), dtype)
    scalar = st.sampled_from([0.0, 1.0, -2.0, 0.1, 1e-10, 1234.5])
    alpha, beta = data.draw(scalar), data.draw(scalar)
    order = data.draw(st.permutations(range(k)))
    matrices = (a.reshape(1, k), b.reshape(k, 1), c)
    exact = reference.oracle(*matrices, alpha, beta, dtype)
    bound = reference.error_bound(*matrices, alpha, beta, dtype)
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
    exact = reference.oracle(a, b, c, 1.5, -0.75, dtype)
    bound = reference.error_bound(a, b, c, 1.5, -0.75, dtype)
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
    error = np.abs(to_float64(total, "f16") - reference.oracle(a, b, c, 1, 0, "f16"))
    assert np.mean(error <= reference.error_bound(a, b, c, 1, 0, "f16")) < 0.2


def test_the_bound_is_highams():
    # One product of ones, K = 100: gamma_102 from the sum and alpha, no C.
    ones = np.ones((1, 100), np.float32)
    bound = reference.error_bound(ones, ones.T, ones[:, :1], 1, 0, "f32").item()
    assert bound == pytest.approx(100 * reference.gamma(102, 2.0**-24), rel=1e-5)
    assert reference.gamma(3, 0.25) == 3
    assert reference.gamma(4, 0.25) == np.inf


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


@pytest.mark.parametrize("dtype", TENSOR_FLOATS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_bounds_hold_on_tensor_cores(dtype, data):
    types, k = parse_dtype(dtype), data.draw(st.integers(0, 40))
    number = st.floats(-1, 1) | st.sampled_from([1.0, -1.0, 2.0**-12, 1 - 2.0**-10])
    vector = st.lists(number, min_size=k, max_size=k)
    a, b = (from_float64(np.array(data.draw(vector)), types.input.name) for _ in "ab")
    spec = make_spec("mma", dtype=dtype, epilogue="linear_bias_gelu")
    c, bias = (from_float64(np.array(data.draw(number)), types.output.name) for _ in "cb")
    matrices = (a.reshape(1, k), b.reshape(k, 1), c.reshape(1, 1), 1.5, -0.75, dtype)
    after = reference.After(data.draw(st.sampled_from(EPILOGUES)), bias.reshape(1))
    if after.epilogue == "linear":
        after = reference.After()
    exact = reference.oracle(*matrices, after)
    bound = reference.error_bound(*matrices, after, reference.sums_of(spec))
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
    exact = reference.oracle(x.a, x.b, x.c, 1.5, -0.75, dtype)
    sums = reference.sums_of(spec)
    bound = reference.error_bound(x.a, x.b, x.c, 1.5, -0.75, dtype, sums=sums)
    shorter = reference.oracle(x.a[:, : k // 2], x.b[: k // 2], x.c, 1.5, -0.75, dtype)
    for wrong in (shorter, 0 * exact, exact / 1.5, np.full_like(exact, np.nan)):
        assert np.mean(np.abs(wrong - exact) <= bound) < 0.1


def test_sums_that_are_too_long_have_no_bound():
    assert reference.sums_of(make_spec("mma", dtype="f16_f16"))(2**20)[0] == 2**18
    ones = np.ones((1, 2**14), np.float16)
    sums = reference.sums_of(make_spec("mma", dtype="f16_f16"))
    c = np.zeros((1, 1), np.float16)
    assert np.isinf(reference.error_bound(ones, ones.T, c, 1, 0, "f16_f16", sums=sums)).all()


def test_epilogues_are_their_definitions():
    a, b = np.array([[1.0, -2.0]], np.float32), np.array([[1.0], [1.0]], np.float32)
    c, bias = np.zeros((1, 1), np.float32), np.array([0.25], np.float32)
    for epilogue, want in (
        ("linear_bias", -0.75),
        ("linear_bias_relu", 0.0),
        ("linear_bias_gelu", -0.75 * 0.5 * (1 + math.erf(-0.75 / math.sqrt(2)))),
    ):
        got = reference.oracle(a, b, c, 1, 0, "f32", reference.After(epilogue, bias))
        assert got.item() == pytest.approx(want, rel=1e-15)


def test_overflow_has_no_bound():
    big = np.full((1, 2), 40000, np.float16)
    one, zero = np.ones((2, 1), np.float16), np.zeros((1, 1), np.float16)
    assert np.isinf(reference.error_bound(big, one, zero, 1, 0, "f16")).all()
    assert np.isfinite(reference.error_bound(big, one, zero, 0.5, 0, "f16")).all()
    huge = np.full((1, 2), 3e38, np.float32)
    assert np.isinf(reference.error_bound(huge, one, zero, 0.1, 0, "f32")).all()


def test_integers_have_no_tolerance():
    for dtype in ("i32", "i8"):
        x = operands(dtype, 2, 3, 4)
        assert not reference.error_bound(x.a, x.b, x.c, 3, 2, dtype).any()


# CUTLASS on the emulator


class Recorder(EmulatorRunner):
    """Keeps the last launch."""

    def launch(self, module, kernel, grid, block, args, shared_bytes=0):
        self.grid, self.block = grid, block
        return super().launch(module, kernel, grid, block, args, shared_bytes)


@pytest.fixture(scope="module")
def runner():
    return Recorder()


def kernel(dtype):
    """A variant that has these types."""
    return "naive" if dtype in SCALAR_DTYPES else "mma"


def run_cutlass(runner, dtype, layout, shape, alpha, beta, padding=0, most=8):
    spec = make_spec(kernel(dtype), dtype=dtype, layout=layout)
    problem = GemmProblem.packed(GemmShape(*shape), parse_layout(layout), alpha, beta, padding)
    x = operands(dtype, *shape, most)
    if beta == 0:
        x.c[:] = poison(spec.dtypes.output.name)
    got = reference.cutlass_gemm(runner, spec, problem, x)
    assert got.dtype == storage_dtype(spec.dtypes.output.name)
    return got, rounded_oracle(x, alpha, beta, dtype)


# Each type with two layouts, each layout with a type at least: a compilation takes a second.
PAIRS = [
    ("f32", "rrr"), ("f32", "ccc"), ("f64", "rcr"), ("f64", "crc"), ("i32", "ccr"), ("i32", "rrc"),
    ("f16", "crr"), ("f16", "rcc"), ("bf16", "rrr"), ("bf16", "ccc"), ("i8", "rcr"), ("i8", "crc"),
    ("f16_f16", "rcr"), ("f16_f32", "ccr"), ("bf16_f32", "crc"), ("tf32", "rrr"),
]  # fmt: skip


@pytest.mark.parametrize("epilogue", ["linear_bias", "linear_bias_relu"])
@pytest.mark.parametrize("beta", [-2, 0])
def test_cutlass_with_a_bias_is_right_to_the_bit(runner, epilogue, beta):
    for dtype, layout in (("f16", "crr"), ("i8", "crc"), ("bf16", "ccc")):
        spec = make_spec("mma", dtype=dtype, layout=layout, epilogue=epilogue)
        problem = GemmProblem.packed(GemmShape(9, 17, 5), spec.layouts, 3, beta, 1)
        x = draw_operands(spec, problem, "integer")
        got = reference.cutlass_gemm(runner, spec, problem, x)
        want = reference.oracle(x.a, x.b, x.c, 3, beta, dtype, reference.after(spec, x))
        if spec.dtypes.output.is_float:
            want = from_float64(want, spec.dtypes.output.name)
        assert np.array_equal(bits(got), bits(want))
        assert (to_float64(got, spec.dtypes.output.name) < 0).any() == (epilogue == "linear_bias")


@pytest.mark.parametrize(("dtype", "layout"), PAIRS)
def test_cutlass_is_right_to_the_bit(runner, dtype, layout):
    for case in (
        ((37, 53, 61), 3, -2, 3),  # odd sizes, lines apart
        ((5, 70, 9), 2, 0, 0),  # C is NaN
        ((64, 32, 8), 1, 1, 1),  # whole tiles
        ((1, 1, 1), -1, 1, 0),
        ((33, 2, 0), 2, 3, 5),  # an empty sum
    ):
        got, want = run_cutlass(runner, dtype, layout, *case)
        assert np.array_equal(bits(got), bits(want)), case


def test_all_pairs_are_covered():
    assert {dtype for dtype, _ in PAIRS} == set(DTYPES)
    assert {layout for _, layout in PAIRS} == set(ALL_LAYOUTS)


def test_cutlass_wraps_integers_around(runner):
    got, want = run_cutlass(runner, "i32", "rrc", (33, 5, 17), 2**31 - 1, -7, 1, most=2**31 - 2)
    assert np.array_equal(got, want)


def test_the_grid_follows_the_swizzle(runner):
    run_cutlass(runner, "f32", "rrr", (33, 97, 3), 1, 0)
    assert runner.grid == (2, 4, 1)
    run_cutlass(runner, "f32", "ccc", (33, 97, 3), 1, 0)
    assert runner.grid == (4, 2, 1)


@pytest.mark.parametrize("shape", [(0, 5, 7), (5, 0, 7), (0, 0, 0)])
def test_an_empty_result_needs_no_launch(shape):
    got, _ = run_cutlass(None, "f32", "rrr", shape, 1, 0)
    assert got.shape == shape[:2]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_cutlass_is_within_the_bounds(runner, dtype):
    rng, shape = np.random.default_rng(3), GemmShape(35, 33, 300)
    layout = dict(PAIRS)[dtype]
    spec = make_spec("naive", dtype=dtype, layout=layout)
    x = Operands(
        *(from_float64(rng.uniform(-1, 1, s), dtype) for s in ((35, 300), (300, 33), (35, 33)))
    )
    problem = GemmProblem.packed(shape, spec.layouts, 1.5, -0.75, 2)
    got = to_float64(reference.cutlass_gemm(runner, spec, problem, x), dtype)
    error = np.abs(got - reference.oracle(x.a, x.b, x.c, 1.5, -0.75, dtype))
    assert (error <= reference.error_bound(x.a, x.b, x.c, 1.5, -0.75, dtype)).all()


@pytest.mark.parametrize("layout", ALL_LAYOUTS)
def test_sources_differ_by_layout_alone(layout):
    text = reference.cutlass_source("bf16", layout)
    assert f" cutlass_gemm_bf16_{layout}(" in text
    assert text.isascii()
    assert "${" not in text
    assert "/*%" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_sources_are_all_different():
    names = {reference.cutlass_source(d, layout) for d in DTYPES for layout in ALL_LAYOUTS}
    assert len(names) == len(DTYPES) * len(ALL_LAYOUTS)


@pytest.mark.parametrize(("arch", "format"), [("sm_75", "ptx"), ("sm_90a", "cubin")])
def test_cutlass_compiles_for_other_architectures(arch, format):
    module = reference.cutlass_module("f16", "crr", arch, format)
    if format == "ptx":
        text = module.code.decode()
        assert not re.search(r"^\s*(call|st\.local|ld\.local)\b", text, re.MULTILINE)
    else:
        (used,) = module.resources.values()
        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


def test_headers_that_do_not_fit_are_missing_ones(monkeypatch):
    def fail(*args, **kwargs):
        raise CompileError("container/array.hpp:1: tuple_size redeclared")

    monkeypatch.setattr(nvrtc, "compile_cuda", fail)
    reference.cutlass_module.cache_clear()
    with pytest.raises(MissingError, match=r"tuple_size(?s:.*)pip install 'nvidia-cutlass==4\.2"):
        reference.cutlass_module("f64", "ccc", "sm_80", "ptx")


def test_sizes_beyond_cutlass_are_refused():
    spec = make_spec("naive")
    x = Operands(*np.zeros((3, 1, 1), np.float32))
    long = GemmProblem(GemmShape(1, 1, 1), 2**31, 1, 1, 1)
    with pytest.raises(UsageError, match="lda=2147483648 is beyond CUTLASS's 32-bit"):
        reference.cutlass_gemm(None, spec, long, x)
    wide = GemmProblem(GemmShape(1, 2**22, 1), 1, 1, 1, 1)
    x.c = np.lib.stride_tricks.as_strided(x.c, (1, 2**22), (0, 0))
    with pytest.raises(UsageError, match="N=4194304 needs 131072 blocks along y"):
        reference.cutlass_gemm(None, spec, wide, x)


def test_findings_in_cutlass_are_errors(monkeypatch):
    class Finder(EmulatorRunner):
        freed = 0

        def launch(self, *args, **kwargs):
            return ["a race"]

        def free(self, buffer):
            self.freed += 1

    finder = Finder()
    with pytest.raises(CheckError, match="the CUTLASS reference itself: a race"):
        run_cutlass(finder, "f32", "rrr", (1, 1, 1), 1, 0)
    assert finder.freed == 4
