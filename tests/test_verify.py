"""Every kernel is right on the emulator; and verification is not fooled by kernels that are not."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gen import verify as verification
from gen.errors import CompileError
from gen.registry import VARIANTS, make_spec
from gen.render import Source, render
from gen.runner import EmulatorRunner, choose_runner
from gen.spec import ALL_LAYOUTS, DTYPES, GemmShape, KernelSpec
from gen.verify import default_shapes, verify
from tests.test_spec import specs

# One row for each kernel: tunables that make its tiles small, so that few elements are many tiles.
SMALL = {
    "naive": {"threads": 32},
    "tiles": {"tile": 7},
    "rec_tiles": {"tile": 4, "coarsen": 3},
    "thread_1d": {"threads": 48},
    "block_1d": {"threads": 32, "grid": 3},
    "shared_row": {"threads": 32, "chunk": 20, "grid": 3},
}
SHAPES = [GemmShape(*s) for s in ((1, 1, 1), (9, 40, 23), (15, 11, 41), (5, 0, 3), (6, 7, 0))]


@pytest.fixture(scope="module")
def runner() -> EmulatorRunner:
    found = choose_runner("cpu")
    assert isinstance(found, EmulatorRunner)
    return found


def complaints(spec: KernelSpec, runner: EmulatorRunner, source: Source | None = None) -> list[str]:
    return [r.message for r in verify(spec, runner, SHAPES, source) if not r.ok]


def test_every_kernel_has_a_row() -> None:
    assert set(SMALL) == set(VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kernel_and_dtype(variant: str, dtype: str, runner: EmulatorRunner) -> None:
    # A different layout for each pair, so that together they are all tried.
    pair = list(VARIANTS).index(variant) + len(VARIANTS) * list(DTYPES).index(dtype)
    layout = ALL_LAYOUTS[pair % len(ALL_LAYOUTS)]
    spec = make_spec(variant, dtype=dtype, layout=layout, **SMALL[variant])
    assert complaints(spec, runner) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_edge_of_the_default_tile(variant: str, runner: EmulatorRunner) -> None:
    spec = make_spec(variant)
    assert [r.message for r in verify(spec, runner) if not r.ok] == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs(), st.integers(0, 70), st.integers(0, 70), st.integers(0, 70))
def test_any_kernel_on_any_shape(spec: KernelSpec, m: int, n: int, k: int) -> None:
    (result,) = verify(spec, EmulatorRunner(), [GemmShape(m, n, k)])
    assert result.message == ""
    assert result.ok


@pytest.mark.parametrize("variant", ["naive", "tiles", "rec_tiles"])
def test_more_rows_than_a_grid_has_blocks(variant: str, runner: EmulatorRunner) -> None:
    tunables = {"threads": 1} if variant == "naive" else {"tile": 1}
    spec = make_spec(variant, dtype="i32", **tunables)
    (result,) = verify(spec, runner, [GemmShape(65_537, 1, 1)])
    assert result.message == ""


@pytest.mark.parametrize("variant", VARIANTS)
def test_default_shapes_reach_every_edge(variant: str) -> None:
    spec = make_spec(variant)
    m, n, k = spec.threadblock
    shapes = default_shapes(spec)
    assert {s.m % m for s in shapes} >= {0, 1 % m, (m - 1) % m}
    assert {s.n % n for s in shapes} >= {0, 1 % n, (n - 1) % n}
    assert {s.k % k for s in shapes} >= {0, 1 % k, (k - 1) % k}
    assert {-(-s.n // n) % 2 for s in shapes if s.n > n} == {0, 1}  # odd and even numbers of tiles
    assert {0 in (s.m, s.n) for s in shapes} == {False, True}
    assert any(s.k == 0 and s.m and s.n for s in shapes)


# -- what is wrong is found ---------------------------------------------------------------------

EPILOGUE = "if (beta != accumulator_t(0)) result += beta * static_cast<accumulator_t>(C[i]);"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("accumulator_t result = alpha * sum;", "accumulator_t result = sum;", "D(0, 0) is"),
        (EPILOGUE, "result += beta * static_cast<accumulator_t>(C[i]);", "is nan"),
        (EPILOGUE, "", "D(0, 0) is"),
        ("k < K", "k + 1 < K", "D(0, 0) is"),
        ("k < K", "k <= K", "memcheck"),
        ("col >= N", "col > N", "memcheck"),
        ("row < M", "row < M - 1", "is nan"),
        ("D[c_at(row, col, ldd)]", "D[c_at(row, col, ldd + (ldd == N ? 0 : 1))]", "memcheck"),
        ("sum += a * b;", "sum += a * b + accumulator_t(1) / (1 << 22);", "D(0, 0) is"),
        ("sum += a * b;", "sum = a * b;", "D(0, 0) is"),
    ],
)
def test_a_wrong_kernel_is_found(
    old: str, new: str, complaint: str, runner: EmulatorRunner
) -> None:
    spec = make_spec("naive", threads=32)
    source = render(spec)
    assert old in source.text
    wrong = dataclasses.replace(source, text=source.text.replace(old, new))
    found = complaints(spec, runner, wrong)
    assert found
    assert complaint in " ".join(found)


def test_a_write_between_the_rows_of_d_is_found(runner: EmulatorRunner) -> None:
    spec = make_spec("naive", threads=32)
    source = render(spec)
    old = "D[c_at(row, col, ldd)] ="
    new = "if (col + 1 == N && row + 1 < M && ldd > N) D[c_at(row, N, ldd)] = 7;\n    " + old
    wrong = dataclasses.replace(source, text=source.text.replace(old, new))
    assert "the gap between rows of D was overwritten" in " ".join(complaints(spec, runner, wrong))


def test_an_error_just_beyond_the_bound_is_found() -> None:
    exact, bound = np.array([[1.0, 2.0]]), np.array([[0.25, 0.25]])
    assert verification._within(np.array([[1.25, 1.75]]), exact, bound) == (1.0, "")
    worst, message = verification._within(np.array([[1.25, 1.74]]), exact, bound)
    assert worst > 1
    assert message.startswith("D(0, 1) is 1.74")
    worst, message = verification._within(np.array([[1.0, np.inf]]), exact, bound)
    assert worst == np.inf
    assert message


def test_a_kernel_that_does_not_compile_is_an_error(runner: EmulatorRunner) -> None:
    spec = make_spec("naive")
    broken = dataclasses.replace(render(spec), text='extern "C" __global__ void f() { nonsense; }')
    with pytest.raises(CompileError, match="nonsense"):
        list(verify(spec, runner, SHAPES, broken))
