"""Kernels for groups along K are right, and mistakes in their groups are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gen.compile.nvrtc import compile_cuda
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Case, products, results, run_kernel
from gen.errors import SpecError
from gen.kernels.formulas import ceil_div
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.check_trials import check_trials
from gen.prove.far_tiles import far_tiles
from gen.prove.groups import MANY
from gen.prove.inputs import draw_operands
from gen.prove.trials import PACKED, RAGGED
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape
from tests.prove.test_groups import ENDS, SLOW_ENDS, complaint
from tests.prove.test_verify import small
from tests.support.slow import each, sift

GROUPED_K = [name for name, row in VARIANTS.items() if "grouped_k" in row.tunable_names]


def kernel(variant: str, **more: Any) -> KernelSpec:
    alone = {"cluster": "1x1", "stream_k": 0} if variant == "wgmma" else {}
    given = {"grouped_k": True, "layout": "crr", "split_k": 1, **alone, **more}
    return small(variant, **given)


def grouped(
    ends: tuple[int, ...], spec: KernelSpec, shared: str = "AB", ragged: bool = False
) -> GemmProblem:
    where = RAGGED if ragged else PACKED
    problem = where.problem(GemmShape(40, 24, 100), spec.layouts, 2, -1)
    return replace(where.batched(problem, spec.layouts, len(ends), shared), ends_k=ends)


_EVERY = [(variant, name) for variant in GROUPED_K for name in ENDS]
_QUICK = [("mma", name) for name in ENDS if name not in SLOW_ENDS] + [("wgmma", "that fall")]


@pytest.mark.parametrize(("variant", "name"), sift(_EVERY, _QUICK))
def test_groups_are_right(variant: str, name: str) -> None:
    spec = kernel(variant)
    assert complaint(render(spec), grouped(ENDS[name], spec)) == ""


@pytest.mark.parametrize(
    ("more", "kind", "shared"),
    each(
        5,
        [
            ({"dtype": "f64", "layout": "crc"}, "random", "AB"),
            (
                {"dtype": "bf16_f32", "epilogue": "silu(x) * up[row, col] + by_row[row]"},
                "random",
                "AB",
            ),
            ({"layout": "crc", "epilogue": "linear_bias"}, "special", "AB"),
            ({"stages": 2}, "integer", "ABC"),
            ({"stages": 1}, "special", "AB"),
        ],
    ),
)
def test_types_and_epilogues(more: dict[str, Any], kind: str, shared: str) -> None:
    spec = kernel("mma", **more)
    problem = grouped(ENDS["ragged"][:-1], spec, shared, ragged=True)
    operands = {o.ld: problem.ldd for o in spec.operands if o.ld}
    problem = replace(problem, operands=tuple(operands.items()))
    assert complaint(render(spec), problem, kind) == ""


@pytest.mark.parametrize(
    ("variant", "more"),
    each(
        2,
        [
            (
                "wgmma",
                {"schedule": "pingpong", "threadblock": "64x64x32", "stages": 3, "layout": "crc"},
            ),
            ("mma_tma", {"sliced_k": 2, "stages": 4}),
        ],
    ),
)
def test_shapes_of_pipelines(variant: str, more: dict[str, Any]) -> None:
    """Warpgroups with tiles of their own, and teams of warps: a tile may have no steps."""
    spec = kernel(variant, **more)
    assert complaint(render(spec), grouped(ENDS["ragged"], spec), "special") == ""


@pytest.mark.parametrize("variant", sift(GROUPED_K, ["mma"]))
def test_bits_are_those_of_single_products(variant: str) -> None:
    spec, alone = kernel(variant), kernel(variant, grouped_k=False)
    problem = grouped(ENDS["ragged"], spec)
    operands = draw_operands(spec, problem, "random")
    module, single = (compile_cuda(render(x).text, name="x.cu", arch=x.arch) for x in (spec, alone))
    runner = EmulatorRunner()
    found = results(spec, problem, run_kernel(spec, runner, module, Case(problem, operands)))
    for got, (one, its) in zip(found, products(spec.layouts, problem, operands), strict=True):
        want = results(alone, one, run_kernel(alone, runner, single, Case(one, its)))
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("variant", "old", "new"),
    each(
        9,
        [
            ("mma", "end = max(end, before);", ""),
            ("mma", "if (lane == 0) begin = before;", ""),
            ("mma", "its.group - first >= 32", "its.group - first > 32"),
            ("mma", "uint32_t(t) % tiles", "uint32_t(t)"),
            ("mma", "place.group * stride_c", "0"),
            ("mma", "place.group * stride_d", "stride_d"),
            ("mma", "A + place.begin * lda", "A + place.begin"),
            ("mma", "B + place.begin * ldb", "B"),
            ("mma", "place.end - place.begin", "int(K) - place.begin"),
            ("wgmma", "left < kTileK ? left : kTileK", "kTileK"),
            ("wgmma", "end = k + lines", "end = k"),
            ("wgmma", '"r"(kAbove), "r"(barrier)', '"r"(0), "r"(barrier)'),
            ("wgmma", "const int product = place.group", "const int product = 0"),
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
    ("old", "new", "right"),
    sift(
        [
            ("", "", True),
            ("place.group * stride_d", "int(place.group * stride_d)", False),
            ("place.begin * lda", "int(place.begin * lda)", False),
        ],
        [("place.group * stride_d", "int(place.group * stride_d)", False)],
    ),
)
def test_matrices_beyond_32_bits(old: str, new: str, right: bool) -> None:
    source = render(kernel("mma"))
    assert source.spec
    module = compile_cuda(source.text.replace(old, new), name="far.cu", arch=source.spec.arch)
    found = [not (one.findings or one.message) for one in far_tiles(source.spec, module)]
    assert all(found) == right


@pytest.mark.parametrize(
    ("variant", "more", "message"),
    [
        ("mma", {"split_k": 2}, "use split_k=1 or grouped_k=false"),
        ("mma", {"batched": True}, "use batched=false or grouped_k=false"),
        ("mma", {"grouped": True}, "use grouped=false"),
        ("mma", {"layout": "rrr"}, "have to be lines, as in crr and crc; use grouped_k=false"),
        ("mma", {"dtype": "i8"}, "transposed first; use grouped_k=false"),
        ("mma", {"dtype": "tf32"}, "transposed first; use grouped_k=false"),
        ("wgmma", {"cluster": "2x1"}, "use cluster=1x1 or grouped_k=false"),
        ("wgmma", {"stream_k": 1}, "use stream_k=0 or grouped_k=false"),
        ("tiles", {}, "no tunable 'grouped_k'"),
    ],
)
def test_refusals(variant: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_spec(variant, **{"layout": "crr", "grouped_k": True, **more})


def test_many_groups_are_tried_where_they_take_no_minutes() -> None:
    """Each has tiles of its own, also where it is empty."""
    spec = make_spec("wgmma", layout="crr", threadblock="64x64x64", grouped_k=True)
    groups = [
        (len(t.problem.ends_k or ()), ceil_div(t.shape.m, 64) * ceil_div(t.shape.n, 64))
        for t in check_trials(spec)
    ]
    assert all(count * tiles <= MANY or count <= 6 for count, tiles in groups)
    assert any(count == MANY for count, _ in groups)
