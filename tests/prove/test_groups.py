"""Grouped kernels are right, and mistakes in their groups are found."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.compile.nvrtc import Module, compile_cuda
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Case, groups, results, run_kernel
from gen.errors import SpecError
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.far_tiles import far_tiles
from gen.prove.groups import MANY, draw_ends
from gen.prove.inputs import draw_operands
from gen.prove.trials import PACKED, Trial
from gen.prove.verify import run_trial
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Batch, GemmProblem, GemmShape, group_rows
from tests.prove.test_verify import small
from tests.support.slow import each, sift

GROUPED = [name for name, row in VARIANTS.items() if "grouped" in row.tunable_names]
ENDS = {
    "ragged": (3, 3, 20, 84, 85, 100),
    "one row each": tuple(range(1, 90)),
    "all in one": (0, 0, 100, 100),
    "rows behind": (17, 40),
    "none": (0, 0, 0),
    "that fall": (50, 30, -7, 60, 2**31 - 1, 5),
    "that fall late": (*range(1, 33), 7, 20, 90),
    "many": tuple(100 * i // MANY for i in range(1, MANY + 1)),
}


def kernel(variant: str, **more: Any) -> KernelSpec:
    alone = {"cluster": "1x1", "stream_k": 0} if variant == "wgmma" else {}
    return small(variant, **{"grouped": True, "split_k": 1, **alone, **more})


def grouped(ends: tuple[int, ...], spec: KernelSpec) -> GemmProblem:
    problem = PACKED.problem(GemmShape(100, 24, 40), spec.layouts, 2, -1)
    stride = problem.batched(spec.layouts, len(ends)).batch.stride_b
    return replace(problem, batch=Batch(len(ends), stride_b=stride), ends=ends)


def complaint(source: Source, problem: GemmProblem, kind: str = "integer") -> str:
    spec = source.spec
    assert spec
    module = compile_cuda(source.text, name="x.cu", arch=spec.arch)
    trial = Trial(problem, kind, multiprocessors=3)
    runner = EmulatorRunner(("race",), multiprocessors=3)
    return run_trial(spec, runner, module, trial).message


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9), st.integers(0, 50))
def test_groups_share_no_rows(ends: list[int], rows: int) -> None:
    found = group_rows(ends, rows)
    clamped = np.maximum.accumulate(np.clip([0, *ends], 0, rows))
    assert found == [*zip(clamped.tolist(), clamped[1:].tolist(), strict=False)]


@given(st.integers(0, 300), st.randoms(use_true_random=False))
def test_drawn_ends_are_offsets(rows: int, draw: random.Random) -> None:
    ends = draw_ends(rows, 64, 64, draw)
    assert ends
    assert all(-(2**31) <= end < 2**31 for end in ends)


_EVERY = [(variant, name) for variant in GROUPED for name in ENDS]
SLOW_ENDS = ("many", "ragged", "that fall")
_QUICK = [("mma", name) for name in ENDS if name not in SLOW_ENDS] + [("wgmma", "ragged")]


@pytest.mark.parametrize(("variant", "name"), sift(_EVERY, _QUICK))
def test_groups_are_right(variant: str, name: str) -> None:
    spec = kernel(variant)
    assert complaint(render(spec), grouped(ENDS[name], spec)) == ""


@pytest.mark.parametrize(
    ("variant", "more"),
    each(
        4,
        [
            ("mma", {"dtype": "i8", "layout": "rrr"}),
            ("mma", {"dtype": "f64", "layout": "rcr"}),
            ("mma_tma", {"dtype": "f64", "layout": "rrr", "threadblock": "64x64x16"}),
            ("mma", {"epilogue": "silu(x) * up[row, col] + by_row[row] * M"}),
            ("mma", {"epilogue": "silu(x + bias[group, col]) * scale[group] + group"}),
            ("wgmma", {"layout": "rcr", "epilogue": "linear_bias"}),
        ],
    ),
)
@pytest.mark.slow
def test_types_and_epilogues(variant: str, more: dict[str, str]) -> None:
    spec = kernel(variant, **more)
    problem = grouped(ENDS["ragged"][:-1], spec)
    operands = {o.ld: problem.ldd for o in spec.operands if o.ld}
    problem = replace(problem, operands=tuple(operands.items()))
    assert complaint(render(spec), problem, "random") == ""


@pytest.mark.parametrize("variant", sift(GROUPED, ["mma"]))
def test_bits_are_those_of_single_products(variant: str) -> None:
    spec, alone = kernel(variant), kernel(variant, grouped=False)
    problem = grouped(ENDS["ragged"], spec)
    operands = draw_operands(spec, problem, "random")
    runner = EmulatorRunner()
    found = run_kernel(spec, runner, _module(spec), Case(problem, operands))
    whole, begin = results(spec, problem, found), 0
    for one, its in groups(problem, operands):
        single = run_kernel(alone, runner, _module(alone), Case(one, its))
        rows = whole[begin : begin + one.shape.m]
        assert rows.tobytes() == results(alone, one, single).tobytes()
        begin += one.shape.m


@pytest.mark.parametrize(("new", "right"), [("gridDim.z - 1", True), ("gridDim.z", False)])
@pytest.mark.slow
def test_packing_strides_over_matrices(
    monkeypatch: pytest.MonkeyPatch, new: str, right: bool
) -> None:
    """As with more of them than a grid is deep."""
    monkeypatch.setattr("gen.kernels.tensor_cores.operands.MOST_DEEP", 2)
    spec = kernel("mma")
    source = render(spec)
    text = source.text.replace("gridDim.z - 1", new)
    problem = grouped(ENDS["ragged"], spec)
    odd = replace(problem, ldb=problem.ldb + 1)
    batch = odd.batched(spec.layouts, len(ENDS["ragged"])).batch
    odd = replace(odd, batch=Batch(batch.products, stride_b=batch.stride_b))
    assert (complaint(Source(source.name, text, spec), odd) == "") == right


def _module(spec: KernelSpec) -> Module:
    return compile_cuda(render(spec).text, name="x.cu", arch=spec.arch)


@pytest.mark.parametrize(
    ("variant", "old", "new"),
    each(
        9,
        [
            ("mma", "end = min(ahead, rows)", "end = ahead"),
            ("mma", "end = max(end, before);", ""),
            ("mma", "if (lane == 0) begin = before;", ""),
            ("mma", "if (lane >= apart) until", "until"),
            ("mma", "until += tiles;", ""),
            ("mma", "its.row0 += row;", ""),
            ("mma", "place.group * stride_b", "stride_b"),
            ("mma", "{place.row_end, int(N)", "{int(M), int(N)"),
            ("mma", "__syncthreads();  // rows of D have", "// rows of D have"),
            ("wgmma", "b_count > 1 ? place.group : 0", "0"),
            ("wgmma", " && row0 + Staging::kRows <= out.rows", ""),
            ("wgmma", "{place.row_end, cols", "{rows, cols"),
        ],
    ),
)
def test_mistakes_are_found(variant: str, old: str, new: str) -> None:
    spec = kernel(variant)
    source = render(spec)
    assert old in source.text
    wrong = Source(source.name, source.text.replace(old, new), spec)
    some = (ENDS[name] for name in ("ragged", "that fall late", "that fall", "one row each"))
    assert any(complaint(wrong, grouped(ends, spec)) for ends in some)


@pytest.mark.parametrize(
    ("old", "new"),
    sift(
        [
            ("bias + place.group * N", "bias"),
            ("scale[place.group]", "scale[0]"),
            ("group};", "row0};"),
        ],
        [("group};", "row0};")],
    ),
)
@pytest.mark.slow
def test_mistakes_with_operands_of_groups_are_found(old: str, new: str) -> None:
    spec = kernel("mma", epilogue="(x + bias[group, col]) * scale[group] + group")
    source = render(spec)
    assert old in source.text
    for text, right in ((source.text, True), (source.text.replace(old, new), False)):
        problem = grouped(ENDS["ragged"], spec)
        assert (complaint(Source(source.name, text, spec), problem) == "") == right


@pytest.mark.parametrize(
    ("old", "new", "right"),
    sift(
        [("", "", True), ("place.group * stride_b", "int(place.group * stride_b)", False)],
        [("place.group * stride_b", "int(place.group * stride_b)", False)],
    ),
)
def test_matrices_beyond_32_bits(old: str, new: str, right: bool) -> None:
    source = render(kernel("mma"))
    text = source.text.replace(old, new)
    module = compile_cuda(text, name="far.cu", arch="sm_80")
    assert source.spec
    found = [not (one.findings or one.message) for one in far_tiles(source.spec, module)]
    assert all(found) == right


@pytest.mark.parametrize(
    ("variant", "more", "message"),
    [
        ("mma", {"split_k": 2}, "use split_k=1 or grouped=false"),
        ("mma", {"batched": True}, "use batched=false or grouped=false"),
        ("mma", {"layout": "crr"}, "row-major, as in rrr and rcr; use grouped=false"),
        ("mma", {"layout": "rcc"}, "row-major, as in rrr and rcr; use grouped=false"),
        ("wgmma", {"cluster": "2x1"}, "use cluster=1x1 or grouped=false"),
        ("wgmma", {"stream_k": 1}, "use stream_k=0 or grouped=false"),
        ("wgmma", {"dtype": "f32_6xbf16"}, "use grouped=false"),
        ("tiles", {}, "no tunable 'grouped'"),
    ],
)
def test_refusals(variant: str, more: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_spec(variant, grouped=True, **more)
