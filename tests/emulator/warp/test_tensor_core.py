"""The sums of tensor cores against the same rules in rational numbers, and each rule by itself."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.emulator.warp import tensor_core
from gen.emulator.warp.tensor_core import (
    FP8_WGMMA,
    SMALLEST,
    TO_F16,
    TO_F32,
    Factor,
    Rule,
    Span,
    Sums,
    fp8_sums,
    multiply_add,
    span_of,
)
from tests.support.slow import sift

# The rules once more, of one element, with integers of any length.


def exponent(x: Fraction, smallest: int) -> int:
    """The largest e with 2**e <= |x|, but no less than the least normal number's."""
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return max(e, smallest)


def whole(x: Fraction, unit: int) -> Fraction:
    """`x` without what is less than 2**unit."""
    scale = Fraction(2) ** unit
    return math.trunc(x / scale) * scale


def one_sum(
    a: list[float], b: list[float], c: float, kinds: tuple[str, str], total: str, bits: int = 25
) -> float:
    """a . b + c; `total`: f16, f32, or m13, float32 with 13 bits of fraction."""
    terms = [(x * y, x, y) for x, y in zip(a, b, strict=True)]
    if not all(map(math.isfinite, [*a, *b, c])):
        odd = [p for p, x, y in terms if not (math.isfinite(x) and math.isfinite(y))]
        result = sum(odd + [c] * (not math.isfinite(c)))
        return result if not math.isfinite(result) else math.nan
    least = SMALLEST["f16" if total == "f16" else "f32"]
    exact = [
        (Fraction(x) * Fraction(y), exponent(Fraction(x), SMALLEST[kinds[0]])
         + exponent(Fraction(y), SMALLEST[kinds[1]]))
        for _, x, y in terms if x and y
    ]  # fmt: skip
    if c:
        exact.append((Fraction(c), exponent(Fraction(c), least)))
    if not exact:
        return 0.0
    top = max(e for _, e in exact)
    value = sum((whole(term, top - bits) for term, _ in exact), Fraction(0))
    if total == "f16":
        unit = Fraction(2) ** (exponent(value, -14) - 10) if value else Fraction(1)
        value = round(value / unit) * unit
        limit = 2**16
    else:
        kept = 13 if total == "m13" else 23
        value = whole(value, exponent(value, -126) - kept) if value else value
        limit = 2**128
    return math.copysign(math.inf, value) if abs(value) >= limit else float(value)


RULES = {"f32": TO_F32, "f16": TO_F16, "m13": FP8_WGMMA}


def model(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, kinds: tuple[str, str], rule: Rule
) -> np.ndarray:
    """A (row, k) times B (k, column) plus C, of one warp."""
    with np.errstate(all="ignore"):
        left = Factor(a.astype(np.float32)[None, None], SMALLEST[kinds[0]])
        right = Factor(b.astype(np.float32)[None], SMALLEST[kinds[1]])
        sums = multiply_add(left, right, Sums(c.astype(rule.dtype)[None, None]), rule)
    if sums.known:  # which nothing else would show
        assert np.abs(sums.numbers).max() <= sums.known.most
        assert (np.ldexp(sums.numbers.astype(np.float64), -sums.known.low) % 1 == 0).all()
    return sums.numbers[0, 0]


def dot(a: list[float], b: list[float], c: float, kind: str = "f16", total: str = "f32") -> float:
    """The model's sum of one element."""
    x, y, z = np.array([a]), np.array([b]).T, np.array([[c]])
    return float(model(x, y, z, (kind, kind), RULES[total])[0, 0])


TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn,
         "e5m2": ml_dtypes.float8_e5m2, "f32": np.float32}  # fmt: skip


def stored(bits: int, kind: str) -> float:
    """The number that the bits are, in a type of 8, 16, 19 or 32."""
    if kind == "tf32":
        bits, kind = bits << 13, "f32"
    size = np.dtype(TYPES[kind]).itemsize
    return float(np.array([bits], f"u{size}").view(TYPES[kind])[0])


WIDTH = {"f16": (16, 10), "bf16": (16, 7), "tf32": (19, 10), "e4m3": (8, 3), "e5m2": (8, 2),
         "f32": (32, 23)}  # fmt: skip


@st.composite
def numbers(draw: st.DrawFn, kind: str, count: int) -> list[float]:
    """Of exponents far apart or near to each other, among them zeros and subnormal numbers."""
    width, fraction = WIDTH[kind]
    top = (1 << width - 1 - fraction) - 1
    middle = draw(st.integers(0, top))
    spread = draw(st.sampled_from([0, 2, 8, 30, top]))
    special = draw(st.sampled_from([False, False, False, True]))
    found = []
    while len(found) < count:
        e = min(max(middle + draw(st.integers(-spread, spread)), 0), top)
        mantissa = draw(st.integers(0, (1 << fraction) - 1))
        bits = e << fraction | draw(st.sampled_from([mantissa, mantissa, mantissa, 0]))
        x = stored(bits | draw(st.integers(0, 1)) << width - 1, kind)
        if draw(st.integers(0, 9)) == 0:
            x = 0.0 * x if math.isfinite(x) else 0.0
        if special or math.isfinite(x):
            found.append(x)
    return found


def same(got: float, want: float) -> bool:
    return got == want or (math.isnan(got) and math.isnan(want))


FORMS = [
    ("f16", "f32", 16), ("f16", "f32", 8), ("bf16", "f32", 16), ("tf32", "f32", 8),
    ("tf32", "f32", 4), ("f16", "f16", 16), ("e4m3", "m13", 32), ("e5m2", "m13", 32),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "total", "k"), sift(FORMS, FORMS[5:6]))
@settings(max_examples=60)
@given(data=st.data())
def test_sums_are_the_rules(kind: str, total: str, k: int, data: st.DataObject) -> None:
    a, b = (data.draw(numbers(kind, k)) for _ in "ab")
    c = data.draw(numbers("f16" if total == "f16" else "f32", 1))[0]
    if data.draw(st.booleans()):  # of about the size of the products, so that they cancel out
        c = -one_sum(a, b, 0.0, (kind, kind), total)
    bits = RULES[total].fraction
    assert same(dot(a, b, c, kind, total), one_sum(a, b, c, (kind, kind), total, bits))


@pytest.mark.parametrize(("kind", "total", "exponent"), [("f16", "f16", 14), ("tf32", "f32", 80)])
def test_what_is_too_small_is_zero_without_a_sign(kind: str, total: str, exponent: int) -> None:
    a, b = [-(2.0**-exponent)] + [0.0] * 3, [2.0**-exponent] + [0.0] * 3
    assert math.copysign(1, dot(a, b, 0.0, kind, total)) == 1


def drawn(kind: str, shape: tuple[int, ...], spread: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of a type with exponents up to `spread` from 0 either way."""
    x = rng.uniform(1, 2, shape) * rng.choice((-1, 1), shape) * 2.0 ** rng.integers(
        -spread, spread + 1, shape)  # fmt: skip
    if kind == "tf32":
        return (x.astype(np.float32).view(np.int32) & -(1 << 13)).view(np.float32).astype(float)
    return np.asarray(x.astype(TYPES[kind])).astype(float)


@pytest.mark.parametrize("spread", [0, 3, 60])
@pytest.mark.parametrize(("kind", "total", "k"), [f for f in FORMS if f[0] in ("bf16", "tf32")])
def test_many_warps_at_once(
    kind: str, total: str, k: int, spread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the blocks in which they are computed, rows, columns and warps stay where they are.

    Exponents that float32 does not hold are among them.
    """
    rng = np.random.default_rng(spread)
    a, b = (drawn(kind, shape, spread, rng) for shape in ((2, 3, 8, k), (3, k, 8)))
    c = drawn("f32", (2, 3, 8, 8), spread, rng)
    args = (Factor(a.astype(np.float32), -126), Factor(b.astype(np.float32), -126),
            Sums(c.astype(np.float32)), TO_F32)  # fmt: skip
    got = multiply_add(*args).numbers
    monkeypatch.setattr(tensor_core, "_BLOCK", 300)
    assert np.array_equal(multiply_add(*args).numbers, got)
    for p, w, i, j in ((0, 0, 0, 0), (1, 2, 7, 3), (0, 1, 4, 7), (1, 0, 2, 5)):
        want = one_sum(a[p, w, i], b[w, :, j], c[p, w, i, j], (kind, kind), total)
        assert got[p, w, i, j] == want


# Each rule alone: what breaks it changes these sums.


def test_terms_keep_25_bits_below_the_largest() -> None:
    assert dot([1, 2.0**-13, 1], [1, 2.0**-12, -1], 0) == 2.0**-25  # with 24 bits: 0
    assert dot([1, 2.0**-13, 1], [1, 2.0**-13, -1], 0) == 0  # with 26: 2**-26


def test_wgmma_of_fp8_keeps_13() -> None:
    for kind in ("e4m3", "e5m2"):
        one, tiny = [1.0, 2.0**-6, 1], [1, 2.0**-7, -1]
        assert dot(one, tiny, 0, kind, "m13") == 2.0**-13
        assert dot(one, [1, 2.0**-8, -1], 0, kind, "m13") == 0
        assert dot([1.0], [1.0], 2.0**-13 + 2.0**-14, kind, "m13") == 1 + 2.0**-13


def test_c_is_aligned_with_the_products() -> None:
    assert dot([2.0**-13, 2.0**-13], [2.0**-13, 2.0**-13], 1) == 1
    assert dot([1, 1], [1, -1], 2.0**-26) == 0  # and cut off like them
    # 16 products that are each less than a unit of the sum are more together.
    assert dot([2.0**-12] * 16, [2.0**-12] * 16, 1) == 1 + 2.0**-20


def test_an_instruction_is_one_sum() -> None:
    # Of the first half, nothing is left beside the second one's products.
    a = [2.0**-13] * 8 + [1.0, 1.0] + [0.0] * 6
    b = [2.0**-13] * 8 + [1.0, -1.0] + [0.0] * 6
    assert dot(a, b, 0) == 0
    halves = dot(a[8:], b[8:], dot(a[:8], b[:8], 0))
    assert halves != 0


def test_what_is_cut_off_is_cut_toward_zero() -> None:
    almost = 1 - 2.0**-11
    assert dot([1, almost, 1], [1, 2.0**-25, -1], 0) == 0
    assert dot([1, almost, 1], [1, -(2.0**-25), -1], 0) == 0  # not -2**-25
    # The sum in float32, of 1 and three quarters of a unit, and the other way round.
    three = 3 * 2.0**-25
    assert dot([1, three], [1, 1], 0, "tf32") == 1
    assert dot([-1, -three], [1, 1], 0, "tf32") == -1


def test_a_zero_has_no_exponent() -> None:
    large, least = 2.0**15, 2.0**-24
    assert dot([large, 0, least], [0, large, 1], 0) == least
    assert dot([large, least], [0, least], 0) == least * least
    assert dot([0], [0], 2.0**-149) == 2.0**-149


def test_products_are_not_normalised() -> None:
    # 1.5 * 1.5 counts as an exponent of 0, not 1.
    assert dot([1.5, 2.0**-12, 1.5], [1.5, 2.0**-13, -1.5], 0) == 2.0**-25
    # A subnormal number has the exponent of the least normal one.
    least = 2.0**-24
    assert dot([least, 2.0**-14], [1, 2.0**-24], 0) == least + 2.0**-38
    assert dot([least, 2.0**-14, least], [1, 2.0**-24, -1], 0) == 2.0**-38
    assert dot([least, 2.0**-20, least], [1, 2.0**-20, -1], 0) == 0  # 14 + 25 bits below


def test_f16_sums_are_rounded_to_nearest_even() -> None:
    assert dot([1, 2.0**-11], [1, 1], 0, total="f16") == 1
    assert dot([1, 3 * 2.0**-11], [1, 1], 0, total="f16") == 1 + 2.0**-9
    assert dot([1, 2.0**-11, 2.0**-13], [1, 1, 2.0**-11], 0, total="f16") == 1 + 2.0**-10


def test_overflow_and_what_is_no_number() -> None:
    huge = 2.0**127
    assert dot([huge], [1], 0, "bf16") == huge
    assert dot([huge, huge], [1, 1], 0, "bf16") == math.inf
    assert dot([-huge, -huge], [1, 1], 0, "bf16") == -math.inf
    assert dot([huge, huge, huge], [2, 1, -1], -huge, "bf16") == huge  # only the sum counts
    assert dot([65504, 16], [1, 1], 0, total="f16") == math.inf
    assert dot([65504, 15], [1, 1], 0, total="f16") == 65504
    assert dot([math.inf, 1], [1, 5], 3) == math.inf
    for x, y, c in ((math.inf, 0, 1), (math.inf, 1, -math.inf), (math.nan, 1, 0), (1, 1, math.nan)):
        for total, bits, wide in (("f32", 0x7FFFFFFF, "u4"), ("f16", 0x7FFF, "u2")):
            got = model(np.array([[x]]), np.array([[y]]), np.array([[c]]), ("f16", "f16"),
                        RULES[total])  # fmt: skip
            assert got.view(wide)[0, 0] == bits


def test_an_infinity_is_no_matter_of_other_elements() -> None:
    a, b = np.array([[math.inf, 1], [2.0**127, 1]]), np.array([[1.5, math.nan], [1, 1]])
    got = model(a, b, np.zeros((2, 2)), ("bf16", "bf16"), TO_F32)
    assert got[:, 0].tolist() == [math.inf, 1.5 * 2.0**127]
    assert np.isnan(got[:, 1]).all()
    assert model(a / 2, b, np.zeros((2, 2)), ("bf16", "bf16"), TO_F32)[1, 0] == 1.5 * 2.0**126
    assert model(a * 2, b, np.zeros((2, 2)), ("tf32", "tf32"), TO_F32)[1, 0] == math.inf


def test_the_largest_sum_fits() -> None:
    largest = float(2 - 2.0**-10)
    a = [largest] * 16
    assert dot(a, a, largest) == float(whole(Fraction(16 * largest**2 + largest), 6 - 24))
    tiny = largest * 2.0**-14
    assert dot([tiny] * 16, a, 0) == 16 * largest**2 * 2.0**-14
    mixed = [largest + 0.0] * 15 + [2.0**-12]
    assert same(dot(mixed, a, largest), one_sum(mixed, a, largest, ("f16", "f16"), "f32"))


def test_mma_of_fp8_is_two_sums_and_an_addition() -> None:
    rng = np.random.default_rng(1)
    a, b = (drawn("e4m3", shape, 6, rng) for shape in ((16, 32), (32, 8)))
    c = drawn("f32", (16, 8), 6, rng).astype(np.float32)
    factors = [Factor(x.astype(np.float32), -14) for x in (a.reshape(2, 1, 8, 32), b[None])]
    got = fp8_sums(*factors, Sums(c.reshape(2, 1, 8, 8)), TO_F32).numbers.reshape(16, 8)
    for i in range(16):
        for j in range(8):
            parts = [[x for k, x in enumerate(line) if (k % 4 < 2) == first]
                     for first in (True, False) for line in (a[i], b[:, j])]  # fmt: skip
            first = one_sum(*parts[:2], 0.0, ("f16", "f16"), "f32")
            both = one_sum(*parts[2:], first, ("f16", "f16"), "f32")
            assert got[i, j] == np.float32(both) + c[i, j]


# What is known of accumulators without looking at them.


def test_integers_take_no_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that are exact are left to a matrix product, however long they become."""

    def never(*_: object) -> None:
        raise AssertionError("aligned")

    monkeypatch.setattr(tensor_core, "_aligned", never)
    rng = np.random.default_rng(2)
    exact, sums = np.zeros((2, 3, 8, 8)), Sums(np.zeros((2, 3, 8, 8), np.float32))
    for _ in range(40):
        a, b = (rng.integers(-8, 9, shape) for shape in ((2, 3, 8, 16), (3, 16, 8)))
        exact += a @ b
        sums = multiply_add(*(Factor(x.astype(np.float32), -14) for x in (a, b)), sums, TO_F32)
        assert sums.known
    assert np.array_equal(sums.numbers, exact)


def test_spans() -> None:
    of = lambda *x: span_of(np.array(x, np.float32))  # noqa: E731
    assert of(0, 0) == tensor_core.NOTHING
    assert of(-12, 8, 0) == Span(2, 12)
    assert of(0.75, 2.0**20) == Span(-2, 2.0**20)
    assert of(2.0**-20, -(2.0**20)) == Span(-20, 2.0**20)
    assert of(8, 9) == Span(0, 9)
    assert of(7, 8) == Span(0, 8)
    assert of(1, 15) == Span(-3, 15)  # one exponent, another's significand
    assert of(2.0**-149) == Span(-149, 2.0**-149)
    assert math.isinf(of(1, -math.inf).most)
    assert math.isinf(of(1, math.nan).most)
    assert span_of(np.array([4, 65504], np.float16)) == Span(-8, 65504)


@given(st.integers(0, 2**32 - 1), st.sampled_from([TO_F32, TO_F16, FP8_WGMMA]))
@settings(max_examples=10, deadline=None)
def test_what_is_zeros_is_left_out(seed: int, rule: Rule) -> None:
    """Columns of zeros, and warps whose rows are zeros: the same bits as among other numbers."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((1, 4, 16, 16), np.float32).astype(np.float16).astype(np.float32)
    b = rng.standard_normal((4, 16, 24), np.float32).astype(np.float16).astype(np.float32)
    c = (rng.standard_normal((1, 4, 16, 24)) * 2.0 ** rng.integers(-9, 9)).astype(rule.dtype)
    c[rng.random(c.shape) < 0.2] = -0.0
    a[:, rng.integers(0, 4, 3)] = 0
    b[..., rng.integers(0, 24, 12)] = 0
    smallest = SMALLEST["f16"]
    got = multiply_add(Factor(a, smallest), Factor(b, smallest), Sums(c), rule).numbers
    for warp, column in np.ndindex(4, 24):  # alone, nothing is left out of what has any number
        mine, here = np.s_[:, warp : warp + 1], np.s_[:, warp : warp + 1, :, column : column + 1]
        x, y = (np.ascontiguousarray(n) for n in (a[mine], b[here[1:]]))
        own = Sums(np.ascontiguousarray(c[here]))
        alone = multiply_add(Factor(x, smallest), Factor(y, smallest), own, rule).numbers
        assert got[here].tobytes() == alone.tobytes()
