"""Every kernel is right on the emulator; and verification is not fooled by kernels that are not."""

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.compile.nvrtc import compile_cuda
from gen.device.choose import choose_runner
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Case, Operands, run_kernel
from gen.errors import CheckError, CompileError, SpecError
from gen.kernels.launches import Plan
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove import compare
from gen.prove.compare import against_oracle
from gen.prove.inputs import draw_operands
from gen.prove.verify import default_shapes, verify
from gen.source.render import Source, render
from gen.spec.dtypes import DTYPES, SCALAR_DTYPES
from gen.spec.kernel import EPILOGUES, KernelSpec
from gen.spec.problem import ALIGNED, ALL_LAYOUTS, Alignment, GemmProblem, GemmShape
from tests.spec.test_spec import specs
from tests.support.branches import traced
from tests.support.slow import sift, slow
from tests.support.small import LINE, SCALAR, SMALL

SHAPES = [GemmShape(*s) for s in ((1, 1, 1), (9, 40, 23), (15, 11, 41), (5, 0, 3), (6, 7, 0))]
# Where tiles are never that small: full and ragged, slices, and steps along K as there are stages.
LARGER = [GemmShape(*s) for s in ((64, 128, 32), (65, 130, 100), (70, 9, 523))]
PAIRS = [(name, dtype) for name, row in VARIANTS.items() for dtype in row.dtypes]
# Those with a plan of their own: on tensor cores, then on CUDA cores.
WITH_PLAN = sorted(
    (name for name in SMALL if name not in SCALAR),
    key=lambda name: set(VARIANTS[name].dtypes) <= set(SCALAR_DTYPES),
)

# All layouts, but few for each type: CUTLASS's kernel of a type and a layout compiles for a second.
LAYOUTS: dict[str, tuple[str, ...]] = {
    "f32": ("rrr", "ccc"), "f64": ("ccc", "ccc", "rcr", "crc"),
    "i32": ("ccr", "rrc", "ccr", "rcc"), "f16": ("crr", "rcc"),
    "bf16": ("rrr", "ccc"), "i8": ("rcr", "crc"), "f16_f16": ("rcr",), "f16_f32": ("ccr",),
    "bf16_f32": ("crc",), "tf32": ("rrr", "ccr"), "e4m3": ("rcr", "crc"), "e4m3_f16": ("rrc",),
    "f32_6xbf16": ("crr",),
    "e4m3_f32": ("rrr",), "e5m2": ("ccr",), "e5m2_f16": ("rcc",), "e5m2_f32": ("crr",),
}  # fmt: skip

# Each kernel on CUDA cores with another type; on tensor cores, each branch of the templates.
QUICK = (
    *((v, d) for v, d in zip(SCALAR, itertools.cycle(SCALAR_DTYPES)) if d in VARIANTS[v].dtypes),
    *(
        ("thread_tile_1d", "i32"),
        ("thread_tile_2d", "f16"),
        ("thread_tile_2d", "i8"),
        ("vectorized", "f16"),
    ),
    *(("multistage", "f64"), ("multistage", "i32")),
    *(("simt", dtype) for dtype in ("f32", "f64", "i32")),
    *(("gemv", dtype) for dtype in ("f32", "f64", "i32", "f16")),  # lines along K, and across
    *(("skinny", dtype) for dtype in ("f16", "bf16", "f16_f32", "bf16_f32")),
    *(("mma", dtype) for dtype in ("f16_f16", "f16_f32", "bf16_f32", "tf32", "f64")),
    ("mma_m16n8k8", "f16"),
    *(("mma_tma", dtype) for dtype in ("f16_f16", "f16_f32", "bf16", "bf16_f32", "tf32", "i8")),
    ("mma_tma", "f64"),
    *(("wgmma", dtype) for dtype in ("f16", "f16_f16", "bf16", "i8", "e4m3", "f32_6xbf16")),
)


def small(variant: str, dtype: str | None = None, layout: str = "rrr", **more: Any) -> KernelSpec:
    """A kernel with small tiles."""
    dtype = dtype or VARIANTS[variant].dtypes[0]
    line = str((128 if (variant, dtype) == ("mma_tma", "f64") else 64) // DTYPES[dtype].factor.size)
    row = {
        key: value.replace(LINE, line) if isinstance(value, str) else value
        for key, value in (SMALL[variant] | more).items()
    }
    return make_spec(variant, dtype=dtype, layout=layout, **row)


def layout_of(variant: str, dtype: str) -> str:
    """One of the type's layouts, another one for the next template of the same kind."""
    rows = [VARIANTS[name] for name in (SCALAR if variant in SCALAR else WITH_PLAN)]
    number = list(dict.fromkeys(row.template for row in rows)).index(VARIANTS[variant].template)
    return LAYOUTS[dtype][number % len(LAYOUTS[dtype])]


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


@slow
def test_quick_cases_take_all_branches() -> None:
    """Of the templates, that all types and layouts take."""
    with traced([]) as branches:
        for variant, dtype in QUICK:
            render(small(variant, dtype, layout_of(variant, dtype)))
        for dtype, layout, more in QUICK_WIDE:
            render(small("wgmma", dtype, layout, **{"split_k": 1, **more}))
        for variant, dtype, layout, more in FEW:
            render(small(variant, dtype, layout, **more))
        quick = branches.seen.copy()
        for variant, dtype in PAIRS:
            for layout in ALL_LAYOUTS:
                if variant != "narrow" or not layout.startswith("rc"):  # lines across K
                    render(small(variant, dtype, layout))
    lacking = sorted(branches.seen - quick)
    assert not lacking, "\n".join(f"{branch}: {branches.source(branch)}" for branch in lacking)


# More kernels are compared by test_check.py.
COMPARED = [
    *(case for case in QUICK[::4] if case[0] in SCALAR),
    ("mma", "tf32"),
]


@pytest.mark.parametrize(("variant", "dtype"), sift(PAIRS, COMPARED))
def test_every_kernel_and_dtype(variant: str, dtype: str, runner: EmulatorRunner) -> None:
    assert complaints(small(variant, dtype, layout_of(variant, dtype)), runner) == []


# All default tiles are verified by `make run`, too.
@pytest.mark.parametrize("variant", sift(VARIANTS, ["naive"]))
@pytest.mark.slow
def test_every_edge_of_the_default_tile(variant: str, runner: EmulatorRunner) -> None:
    spec = make_spec(variant)
    assert [r.message for r in verify(spec, runner) if not r.ok] == []


def test_results_that_are_rounded_twice() -> None:
    """What is a tie in f16 once f32 has it: -6350 + 2^-12 is between -6352 and -6348."""
    spec = make_spec("naive", dtype="f16")
    problem = GemmProblem.packed(GemmShape(1, 1, 1), spec.layouts, 1, 2.0**-12)
    a, b, c = (np.full((1, 1), x, np.float16) for x in (-127, 50, 1))
    for got, right in ((-6352, True), (-6348, True), (-6344, False), (-6356, False)):
        operands = Operands(a, b, c, c)
        _, message = against_oracle(
            spec, problem, operands, np.full((1, 1), got, np.float16), "integer"
        )
        assert bool(message) != right


def test_a_gpu_smaller_than_a_cluster_has_one() -> None:
    spec = small("wgmma", "f16", "rcr", threadblock="64x64x32", cluster="2x2", split_k=1)
    problem = GemmProblem.packed(GemmShape(300, 200, 64), spec.layouts)
    grids = [spec.plan(problem, ALIGNED, n).launches[-1].grid[0] for n in (1, 3, 7, 8, 132)]
    assert grids == [4, 4, 4, 8, 24]


FINISHED = [
    ("mma", "linear_bias_relu", "i8", "rcr", 1),
    ("mma_tma", "linear_bias_relu", "f16", "rcc", 0),
    ("mma", "linear_bias", "f16", "rcc", 0),
    ("mma_tma", "linear_bias", "i8", "rcr", 1),
    ("mma", "linear_bias_gelu", "f16_f16", "ccc", 0),
    ("mma_tma", "linear_bias_gelu", "bf16_f32", "rcr", 1),
    ("mma_tma", "linear_bias", "f16", "rcc", 0),
    ("mma", "linear_bias", "i8", "rcr", 1),
    ("mma_tma", "linear_bias_relu", "i8", "rcr", 1),
    ("mma", "linear_bias_relu", "f16", "rcc", 0),
    ("mma_tma", "linear_bias_gelu", "f16_f16", "ccc", 0),
    ("mma", "linear_bias_gelu", "bf16_f32", "rcr", 1),
    ("wgmma", "linear_bias_relu", "f16", "rcc", 0),
    ("wgmma", "linear_bias_gelu", "bf16_f32", "rcr", 1),
]


# Of wgmma: tiles of several wgmmas, pieces of a tile's columns in turn, clusters, ping-pong.
WIDE: list[tuple[str, str, dict[str, Any]]] = [
    ("f16", "rrr", {"threadblock": "64x128x32", "cluster": "2x1"}),
    ("bf16", "crc", {"threadblock": "128x64x32", "cluster": "1x2"}),
    ("f16_f16", "rcr", {"threadblock": "256x16x32", "epilogue": "linear_bias"}),
    ("f16_f32", "ccr", {"threadblock": "256x48x32", "split_k": 0}),
    ("f16", "ccc", {"threadblock": "128x128x32", "cluster": "2x2"}),
    ("i8", "rcr", {"threadblock": "64x64x64", "cluster": "4x1"}),
    ("tf32", "rcc", {"threadblock": "64x112x16", "cluster": "1x4", "epilogue": "linear_bias_gelu"}),
    ("f16", "rrr", {"threadblock": "64x64x32", "cluster": "4x2"}),
    ("bf16", "crr", {"schedule": "pingpong", "threadblock": "64x64x64", "cluster": "1x8"}),
    ("e4m3", "rcr", {"threadblock": "64x64x64", "cluster": "2x4"}),
    ("f16", "rcr", {"threadblock": "128x96x32", "cluster": "1x1x2"}),
    ("bf16_f32", "crr", {"threadblock": "64x64x32", "cluster": "1x1x4", "epilogue": "linear_bias"}),
    ("tf32", "rrc", {"threadblock": "256x32x16", "cluster": "1x1x2"}),
    ("e5m2", "rcr", {"threadblock": "64x64x64", "cluster": "1x1x4", "promote": 128}),
    ("i8", "ccc", {"threadblock": "192x32x64", "cluster": "1x1x2", "batched": True}),
    ("tf32", "rcr", {"threadblock": "64x80x32", "cluster": "1x1x4"}),
    ("f32_6xbf16", "rcr", {"threadblock": "256x32x32", "epilogue": "linear_bias"}),
    ("bf16", "crr", {"schedule": "pingpong", "epilogue": "linear_bias_relu"}),
    ("f16_f32", "rcr", {"schedule": "pingpong", "threadblock": "128x48x32", "cluster": "2x1"}),
    ("e4m3", "ccr", {"schedule": "pingpong", "threadblock": "64x96x64", "split_k": 3}),
    ("f16_f16", "crc", {"schedule": "pingpong", "stages": 5, "epilogue": "linear_bias"}),
    ("i8", "rrr", {"schedule": "pingpong", "threadblock": "192x32x64", "stream_k": 1}),
    ("e4m3", "rcr", {"threadblock": "64x96x64", "promote": 64, "stream_k": 1}),
    ("bf16_f32", "crc", {"threadblock": "64x64x32", "stages": 6, "burst": 3}),
    ("f16", "rcr", {"schedule": "pingpong", "threadblock": "64x48x32", "stages": 4, "burst": 2}),
    ("f16", "rcr", {"threadblock": "64x80x32", "cluster": "2x1", "epilogue": "linear_bias_relu"}),
    ("bf16_f32", "rcr", {"threadblock": "64x48x32", "epilogue": "linear_bias_gelu"}),
    ("f16_f16", "rcr", {"threadblock": "128x112x32"}),
    ("f16", "rcr", {"schedule": "pingpong", "threadblock": "128x176x32", "stream_k": 1}),
    ("f16", "rcr", {"threadblock": "64x80x32", "grouped": True}),
    ("f16", "crr", {"threadblock": "64x64x32", "split_k": 2}),
    ("f32_6xbf16", "rcc", {"threadblock": "64x64x32", "stages": 2}),
]
QUICK_WIDE = [WIDE[1], WIDE[-2], WIDE[-1]]

# Kernels for few rows or columns, with lines of either operand along K and across.
FEW: list[tuple[str, str, str, dict[str, Any]]] = [
    ("slim", "f16", "rrr", {}),
    ("slim", "bf16", "rcr", {}),
    ("slim", "f16_f32", "crc", {"few": "columns"}),
    ("slim", "f16", "rrc", {"few": "columns"}),
    ("slim", "f16", "ccr", {"arch": "sm_90", "cluster": "1x1x4"}),
    ("slim", "f16", "crr", {"arch": "sm_90", "cluster": "1x1x4"}),
    ("narrow", "f16", "ccr", {"few": "columns"}),
    ("narrow", "f32", "crr", {"few": "columns", "cluster": "1x1x2", "arch": "sm_90"}),
    ("gemv", "f32", "ccc", {"few": "columns"}),
    ("gemv", "f64", "rcr", {"few": "columns"}),
    ("gemv", "f16", "rcr", {}),
    ("gemv", "f64", "ccr", {}),
    ("gemv", "f64", "rcr", {"vectors": 1}),
    ("gemv", "f64", "crr", {"vectors": 1}),
    ("skinny", "f16", "rcr", {"few": "columns"}),
    ("skinny", "bf16", "crr", {"few": "columns"}),
]


@pytest.mark.parametrize(("variant", "dtype", "layout", "more"), FEW, ids=str)
def test_few_rows_or_columns(
    variant: str, dtype: str, layout: str, more: dict[str, Any], runner: EmulatorRunner
) -> None:
    assert complaints(small(variant, dtype, layout, **more), runner) == []


@slow
@pytest.mark.parametrize(("dtype", "layout", "more"), WIDE, ids=str)
def test_wgmmas_tiles_and_clusters(
    dtype: str, layout: str, more: dict[str, Any], runner: EmulatorRunner
) -> None:
    spec = small("wgmma", dtype, layout, **{"split_k": 1, **more})
    shapes = [GemmShape(1, 1, 1), GemmShape(65, 130, 100), GemmShape(300, 261, 40)]
    assert [r.message for r in verify(spec, runner, shapes) if not r.ok] == []


@slow
@pytest.mark.parametrize(("variant", "epilogue", "dtype", "layout", "split_k"), FINISHED)
def test_epilogues(
    variant: str, epilogue: str, dtype: str, layout: str, split_k: int, runner: EmulatorRunner
) -> None:
    spec = small(variant, dtype, layout, epilogue=epilogue, split_k=split_k)
    assert complaints(spec, runner) == []


STREAMS = [
    ("f16", "rcc", "linear_bias_relu", 4),
    ("f16_f16", "crr", "linear", 2),
    ("i8", "rcr", "linear_bias", 5),
    ("tf32", "rcr", "linear", 3),
    ("bf16_f32", "ccc", "linear_bias_gelu", 7),
    ("f32_6xbf16", "rrr", "linear_bias_relu", 3),
]


@slow
@pytest.mark.parametrize(
    ("dtype", "layout", "epilogue", "multiprocessors"), sift(STREAMS, STREAMS[:1])
)
def test_tiles_that_blocks_share(
    dtype: str, layout: str, epilogue: str, multiprocessors: int
) -> None:
    spec = small("wgmma", dtype, layout, epilogue=epilogue, split_k=1, stream_k=1)
    runner = EmulatorRunner(multiprocessors=multiprocessors)
    assert complaints(spec, runner) == []


_TEAMS = {"threadblock": "32x32x16", "sliced_k": 2}
STREAMS_ON_CUDA_CORES: list[tuple[str, str, dict[str, Any], int]] = [
    ("f32", "rcr", {}, 2),
    ("f32", "rrr", {**_TEAMS, "batched": True}, 4),
    ("f64", "crc", {**_TEAMS, "epilogue": "linear_bias_gelu"}, 3),
    ("i32", "ccr", {"epilogue": "linear_bias", "arch": "sm_90"}, 5),
]


@pytest.mark.parametrize(
    ("dtype", "layout", "more", "multiprocessors"),
    sift(STREAMS_ON_CUDA_CORES, STREAMS_ON_CUDA_CORES[:1]),
)
def test_tiles_that_blocks_share_on_cuda_cores(
    dtype: str, layout: str, more: dict[str, Any], multiprocessors: int
) -> None:
    spec = small("simt", dtype, layout, split_k=1, stream_k=1, **more)
    runner = EmulatorRunner(multiprocessors=multiprocessors)
    assert complaints(spec, runner) == []


# On CUDA cores all epilogues are one function's; layouts and functions differ from type to type.
EPILOGUES_OF_SUMS = [
    (variant, dtype, epilogue)
    for variant in SCALAR
    for dtype in VARIANTS[variant].dtypes
    for epilogue in EPILOGUES[1:]
    if DTYPES[dtype].scalar.is_float or not epilogue.endswith("gelu")
]
_FEW = {("tiles", "f32", "linear_bias"), ("block_1d", "i32", "linear_bias_relu")}


@pytest.mark.parametrize(
    ("variant", "dtype", "epilogue"),
    sift(
        EPILOGUES_OF_SUMS,
        [
            case
            for case in EPILOGUES_OF_SUMS
            if case in _FEW or case[::2] == ("naive", "linear_bias_gelu")
        ],
    ),
)
def test_epilogues_on_cuda_cores(
    variant: str, dtype: str, epilogue: str, runner: EmulatorRunner
) -> None:
    spec = small(variant, dtype, layout_of(variant, dtype), epilogue=epilogue)
    assert complaints(spec, runner) == []


INTEGER = [pair for pair in PAIRS if not DTYPES[pair[1]].scalar.is_float]


@pytest.mark.parametrize(("variant", "dtype"), INTEGER)
def test_integers_have_no_gelu(variant: str, dtype: str) -> None:
    with pytest.raises(
        SpecError, match=rf"needs sums in floating point, not {dtype}; use epilogue=l"
    ):
        make_spec(variant, dtype=dtype, epilogue="linear_bias_gelu")


@slow
@pytest.mark.parametrize(
    ("dtype", "layout", "tunables"),
    [
        ("f16", "crr", {"arch": "sm_75", "stages": 1}),
        ("f16", "rcc", {"arch": "sm_75", "stages": 2, "split_k": 3}),
        ("f16", "crr", {"threadblock": "128x64x64", "warp": "16x64", "swizzle": 1}),
        ("f16_f16", "crc", {"arch": "sm_75", "stages": 2, "split_k": 3}),
        ("tf32", "crc", {"stages": 1}),
        ("i8", "crc", {"stages": 2}),
        ("bf16", "crc", {"stages": 5, "instruction": "m16n8k8"}),
    ],
)
def test_ways_to_copy(
    dtype: str, layout: str, tunables: dict[str, Any], runner: EmulatorRunner
) -> None:
    assert complaints(small("mma", dtype, layout, **tunables), runner) == []


@slow
def test_half_a_warp_transposes(runner: EmulatorRunner) -> None:
    spec = small("vectorized", "f32", "rrr", threadblock="16x64x16", thread_tile="8x8")
    assert spec.threads[0] == 16
    assert [r.message for r in verify(spec, runner, [GemmShape(27, 70, 35)]) if not r.ok] == []


@slow
@pytest.mark.parametrize(
    ("dtype", "layout", "tunables"),
    [
        pytest.param(
            "f16", "rcr", {"threadblock": "96x96x64", "warp": "48x48", "stages": 4}, marks=slow
        ),
        ("f16", "crr", {"threadblock": "128x64x32", "warp": "64x32", "stages": 3, "split_k": 3}),
        pytest.param(
            "f16_f16",
            "rrc",
            {"threadblock": "64x64x32", "stages": 5, "split_k": "auto"},
            marks=slow,
        ),
        pytest.param(
            "i8",
            "rcr",
            {"threadblock": "64x32x64", "warp": "32x16", "stages": 6, "split_k": 1},
            marks=slow,
        ),
        pytest.param(
            "tf32",
            "rcr",
            {"threadblock": "64x96x32", "warp": "32x32", "stages": 3, "split_k": 1},
            marks=slow,
        ),
        pytest.param(
            "bf16",
            "rcr",
            {"threadblock": "16x64x64", "warp": "16x32", "stages": 4, "split_k": 1},
            marks=slow,
        ),
    ],
)
def test_teams_that_take_turns_along_k(
    dtype: str, layout: str, tunables: dict[str, Any], runner: EmulatorRunner
) -> None:
    spec = small("mma_tma", dtype, layout, sliced_k=2, **tunables)
    assert complaints(spec, runner) == []


@pytest.mark.slow
def test_operands_are_tried_in_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aligned and not, whole units and not: with and without packing."""
    seen, plan = set(), KernelSpec.plan

    def watch(spec: KernelSpec, problem: GemmProblem, alignment: Alignment, many: int) -> Plan:
        made = plan(spec, problem, alignment, many)
        seen.add((alignment.a, problem.lda % 16 == 0, len(made.launches)))
        return made

    monkeypatch.setattr(KernelSpec, "plan", watch)
    spec = small("mma", split_k=1)
    assert all(r.ok for r in verify(spec, EmulatorRunner(), [GemmShape(65, 66, 67)]))
    assert seen == {(False, False, 2), (True, True, 1), (True, False, 2)}


def test_a_write_before_d_is_found(runner: EmulatorRunner) -> None:
    spec = make_spec("naive", threads=32)
    old = "D[c_at(row, col, ldd)] ="
    text = render(spec).text.replace(old, f"D[-1] = 7;\n    {old}")
    module = compile_cuda(text, name="wrong.cu")
    problem = GemmProblem.packed(GemmShape(2, 3, 4), spec.layouts)
    with pytest.raises(CheckError, match="D-4 of 24 is out of bounds"):
        run_kernel(
            spec, runner, module, Case(problem, draw_operands(spec, problem, "integer"), {"D": 1})
        )


def with_known_layout(spec: KernelSpec) -> KernelSpec:
    """The same kernel with one of LAYOUTS, where that can be built."""
    layout = layout_of(spec.variant, spec.dtypes.name)
    try:
        return make_spec(**{**json.loads(spec.to_json()), "layout": layout})
    except SpecError:
        return spec


@slow
@pytest.mark.parametrize(
    ("examples", "drawn"),
    [
        pytest.param(4, specs().map(with_known_layout), id="few"),
        pytest.param(100, specs(), id="many"),
    ],
)
def test_any_kernel_on_any_shape(examples: int, drawn: st.SearchStrategy[KernelSpec]) -> None:
    @settings(max_examples=examples)
    @given(drawn, st.integers(0, 70), st.integers(0, 70), st.integers(0, 70))
    def holds(spec: KernelSpec, m: int, n: int, k: int) -> None:
        (result,) = verify(spec, EmulatorRunner(), [GemmShape(m, n, k)])
        assert result.message == ""
        assert result.ok

    holds()


@pytest.mark.parametrize("variant", sift(["naive", "tiles", "rec_tiles"], ["tiles"]))
def test_more_rows_than_a_grid_has_blocks(variant: str, runner: EmulatorRunner) -> None:
    tunables = {"threads": 1} if variant == "naive" else {"tile": 1}
    spec = make_spec(variant, dtype="i32", layout="ccr", **tunables)
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

ADDS_C = "if (beta != 0) x += beta * scalar_t(C[c_at(row, col, ldc)]);"
FINISHES = "epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd);"  # where it is called


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("scalar_t x = alpha * sum;", "scalar_t x = sum;", "D[0, 0] is"),
        (ADDS_C, ADDS_C.removeprefix("if (beta != 0) "), "C[0, 0] of 1x1 (C+0 of 0)"),
        pytest.param(ADDS_C, "", "D[0, 0] is", marks=slow),
        ("k < K", "k + 1 < K", "D[0, 0] is"),
        ("k < K", "k <= K", "memcheck"),
        pytest.param("col >= N", "col > N", "memcheck", marks=slow),
        ("row < M", "row < M - 1", "is nan"),
        (FINISHES, FINISHES.replace("ldd)", "ldd + (ldd == N ? 0 : 1))"), "memcheck"),
        ("sum += a * b;", "sum += a * b + accumulator_t(1) / (1 << 22);", "D[0, 0] is"),
        pytest.param("sum += a * b;", "sum = a * b;", "D[0, 0] is", marks=slow),
        (
            FINISHES,
            FINISHES.replace("alpha,", "alpha == 1 && beta == 0 ? 2 : alpha,"),
            "alpha=1, beta=0",
        ),
    ],
)
def test_a_wrong_kernel_is_found(
    old: str, new: str, complaint: str, runner: EmulatorRunner
) -> None:
    spec = make_spec("naive", threads=32)
    source = render(spec)
    assert source.text.count(old) == 1
    wrong = dataclasses.replace(source, text=source.text.replace(old, new))
    found = complaints(spec, runner, wrong)
    assert found
    assert complaint in " ".join(found)


@pytest.mark.parametrize(
    ("double", "single"), [("erf(", "erff("), ("0.70710678118654752", "0.70710678f")]
)
def test_a_gelu_that_is_not_computed_in_double_precision_is_found(
    double: str, single: str, runner: EmulatorRunner
) -> None:
    spec = make_spec("naive", dtype="f64", threads=32, epilogue="linear_bias_gelu")
    source = render(spec)
    assert source.text.count(double) == 1
    wrong = dataclasses.replace(source, text=source.text.replace(double, single))
    assert "the error is beyond the bound" in " ".join(complaints(spec, runner, wrong))


def test_a_write_between_the_rows_of_d_is_found(runner: EmulatorRunner) -> None:
    spec = make_spec("naive", threads=32)
    source = render(spec)
    new = "if (col + 1 == N && row + 1 < M && ldd > N) D[c_at(row, N, ldd)] = 7;\n    " + FINISHES
    assert source.text.count(FINISHES) == 1
    wrong = dataclasses.replace(source, text=source.text.replace(FINISHES, new))
    assert "the gap between rows of D was overwritten" in " ".join(complaints(spec, runner, wrong))


@slow
def test_sums_taken_for_d_although_beta_is_not_0_are_found(runner: EmulatorRunner) -> None:
    tiles = {"threadblock": "64x64x32", "warp": "32x32", "stages": 2}
    spec = make_spec("mma_tma", dtype="f16_f16", **tiles)
    source = render(spec)
    old, new = "if (out.alpha == 1 && out.beta == 0) {", "if (out.alpha == 1) {"
    assert old in source.text
    wrong = dataclasses.replace(source, text=source.text.replace(old, new))
    (result,) = verify(spec, runner, [GemmShape(64, 64, 32)], wrong)
    assert "alpha=1, beta=-2" in result.message


def test_an_error_just_beyond_the_bound_is_found() -> None:
    exact, bound = np.array([[1.0, 2.0]]), np.array([[0.25, 0.25]])
    assert compare._within(np.array([[1.25, 1.75]]), exact, bound) == (1.0, "")
    worst, message = compare._within(np.array([[1.25, 1.74]]), exact, bound)
    assert worst > 1
    assert message.startswith("D[0, 1] is 1.74")
    worst, message = compare._within(np.array([[1.0, np.inf]]), exact, bound)
    assert worst == np.inf
    assert message


def test_a_kernel_that_does_not_compile_is_an_error(runner: EmulatorRunner) -> None:
    spec = make_spec("naive")
    broken = dataclasses.replace(render(spec), text='extern "C" __global__ void f() { nonsense; }')
    with pytest.raises(CompileError, match="nonsense"):
        list(verify(spec, runner, SHAPES, broken))
