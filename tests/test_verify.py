"""Every kernel is right on the emulator; and verification is not fooled by kernels that are not."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gen import execute
from gen import verify as verification
from gen.errors import CheckError, CompileError
from gen.inputs import draw_operands
from gen.nvrtc import compile_cuda
from gen.plan import Alignment, Plan
from gen.registry import VARIANTS, make_spec, plan
from gen.render import Source, render
from gen.runner import EmulatorRunner, choose_runner
from gen.spec import ALL_LAYOUTS, DTYPES, EPILOGUES, GemmProblem, GemmShape, KernelSpec
from gen.verify import default_shapes, run_kernel, verify
from tests.test_spec import specs

# One row for each kernel: tunables that make its tiles small, so that few elements are many tiles.
# LINE stands for as many elements as 64 bytes hold: see `small`.
LINE = "LINE"
SMALL: dict[str, dict[str, Any]] = {
    "naive": {"threads": 32},
    "tiles": {"tile": 7},
    "rec_tiles": {"tile": 4, "coarsen": 3},
    "thread_1d": {"threads": 48},
    "block_1d": {"threads": 32, "grid": 3},
    "shared_row": {"threads": 32, "chunk": 20, "grid": 3},
    "mma": {"threadblock": f"64x64x{LINE}", "warp": "32x32", "stages": 3, "split_k": 0},
    "mma_tma": {"threadblock": f"64x64x{LINE}", "warp": "32x32", "stages": 2, "split_k": 0},
}
SHAPES = [GemmShape(*s) for s in ((1, 1, 1), (9, 40, 23), (15, 11, 41), (5, 0, 3), (6, 7, 0))]
# Where tiles are never that small: full and ragged, slices, and steps along K as there are stages.
LARGER = [GemmShape(*s) for s in ((64, 128, 32), (65, 130, 100), (70, 9, 523))]
PAIRS = [(name, dtype) for name, row in VARIANTS.items() for dtype in row.dtypes]
SCALAR = [name for name, row in VARIANTS.items() if not row.planner]
TENSOR = [name for name in VARIANTS if name not in SCALAR]


def small(variant: str, dtype: str | None = None, layout: str = "rrr", **more: Any) -> KernelSpec:
    """A kernel with small tiles."""
    dtype = dtype or VARIANTS[variant].dtypes[0]
    line = str(64 // DTYPES[dtype].input.size)
    row = {
        key: value.replace(LINE, line) if isinstance(value, str) else value
        for key, value in (SMALL[variant] | more).items()
    }
    return make_spec(variant, dtype=dtype, layout=layout, **row)


@pytest.fixture(scope="module")
def runner() -> EmulatorRunner:
    found = choose_runner("cpu")
    assert isinstance(found, EmulatorRunner)
    return found


def complaints(spec: KernelSpec, runner: EmulatorRunner, source: Source | None = None) -> list[str]:
    shapes = [*SHAPES, *(LARGER if spec.warp else [])]
    return [r.message for r in verify(spec, runner, shapes, source) if not r.ok]


def test_every_kernel_has_a_row() -> None:
    assert set(SMALL) == set(VARIANTS)


@pytest.mark.parametrize(("variant", "dtype"), PAIRS)
def test_every_kernel_and_dtype(variant: str, dtype: str, runner: EmulatorRunner) -> None:
    # A different layout for each pair, so that together they are all tried.
    layout = ALL_LAYOUTS[PAIRS.index((variant, dtype)) % len(ALL_LAYOUTS)]
    assert complaints(small(variant, dtype, layout), runner) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_edge_of_the_default_tile(variant: str, runner: EmulatorRunner) -> None:
    spec = make_spec(variant)
    assert [r.message for r in verify(spec, runner) if not r.ok] == []


@pytest.mark.parametrize("variant", TENSOR)
@pytest.mark.parametrize("epilogue", EPILOGUES[1:])
def test_epilogues(variant: str, epilogue: str, runner: EmulatorRunner) -> None:
    dtypes = ["f16_f16", "bf16_f32"] if epilogue.endswith("gelu") else ["f16", "i8"]
    for dtype, layout, split_k in zip(dtypes, ("ccc", "rcr"), (0, 1), strict=True):
        spec = small(variant, dtype, layout, epilogue=epilogue, split_k=split_k)
        assert complaints(spec, runner) == []


@pytest.mark.parametrize(
    ("dtype", "tunables"),
    [
        ("f16", {"arch": "sm_75", "stages": 1}),
        ("f16_f16", {"arch": "sm_75", "stages": 2, "split_k": 3}),
        ("tf32", {"stages": 1}),
        ("i8", {"stages": 2}),
        ("bf16", {"stages": 5, "instruction": "m16n8k8"}),
        ("f16_f32", {"threadblock": "128x64x64", "warp": "16x64", "swizzle": 1}),
    ],
)
def test_ways_to_copy(dtype: str, tunables: dict[str, Any], runner: EmulatorRunner) -> None:
    assert complaints(small("mma", dtype, "crc", **tunables), runner) == []


@pytest.mark.parametrize(
    ("dtype", "layout", "tunables"),
    [
        ("f16", "rcr", {"threadblock": "96x96x64", "warp": "48x48", "stages": 4}),
        ("f16", "crr", {"threadblock": "128x64x32", "warp": "64x32", "stages": 3, "split_k": 3}),
        ("f16_f16", "rrc", {"threadblock": "64x64x32", "stages": 5, "split_k": "auto"}),
        ("i8", "rcr", {"threadblock": "64x32x64", "warp": "32x16", "stages": 6, "split_k": 1}),
        ("tf32", "rcr", {"threadblock": "64x96x32", "warp": "32x32", "stages": 3, "split_k": 1}),
        ("bf16", "rcr", {"threadblock": "16x64x64", "warp": "16x32", "stages": 4, "split_k": 1}),
    ],
)
def test_teams_that_take_turns_along_k(
    dtype: str, layout: str, tunables: dict[str, Any], runner: EmulatorRunner
) -> None:
    spec = small("mma_tma", dtype, layout, sliced_k=2, **tunables)
    assert complaints(spec, runner) == []


def test_operands_are_tried_in_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aligned and not, whole units and not: with and without packing."""
    seen = set()

    def watch(spec: KernelSpec, problem: GemmProblem, alignment: Alignment, many: int) -> Plan:
        made = plan(spec, problem, alignment, many)
        seen.add((alignment.a, problem.lda % 16 == 0, len(made.launches)))
        return made

    monkeypatch.setattr(execute, "plan", watch)
    spec = small("mma", split_k=1)
    assert all(r.ok for r in verify(spec, EmulatorRunner(), [GemmShape(65, 66, 67)]))
    assert seen == {(False, False, 2), (True, True, 1), (True, False, 2)}


def test_a_write_before_d_is_found(runner: EmulatorRunner) -> None:
    spec = make_spec("naive", threads=32)
    old = "D[c_at(row, col, ldd)] ="
    text = render(spec).text.replace(old, f"D[-1] = 7;\n    {old}")
    module = compile_cuda(text, name="wrong.cu")
    problem = GemmProblem.packed(GemmShape(2, 3, 4), spec.layouts)
    with pytest.raises(CheckError, match="an element before D was overwritten"):
        run_kernel(spec, runner, module, problem, draw_operands(spec, problem, "integer"), 1)


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
        (EPILOGUE, "result += beta * static_cast<accumulator_t>(C[i]);", "C+0 of 0 is out"),
        (EPILOGUE, "", "D(0, 0) is"),
        ("k < K", "k + 1 < K", "D(0, 0) is"),
        ("k < K", "k <= K", "memcheck"),
        ("col >= N", "col > N", "memcheck"),
        ("row < M", "row < M - 1", "is nan"),
        ("D[c_at(row, col, ldd)]", "D[c_at(row, col, ldd + (ldd == N ? 0 : 1))]", "memcheck"),
        ("sum += a * b;", "sum += a * b + accumulator_t(1) / (1 << 22);", "D(0, 0) is"),
        ("sum += a * b;", "sum = a * b;", "D(0, 0) is"),
        (
            "epilogue(sum, alpha,",
            "epilogue(sum, alpha == 1 && beta == 0 ? 2 : alpha,",
            "alpha=1, beta=0",
        ),
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
