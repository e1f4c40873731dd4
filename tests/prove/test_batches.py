"""Batched kernels are right, and mistakes in their batches are found."""

from dataclasses import replace

import pytest

from gen.compile.nvrtc import compile_cuda
from gen.device.emulated import EmulatorRunner
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.far_batches import far_batches
from gen.prove.launchers.call import Call
from gen.prove.launchers.check import check_launcher
from gen.prove.launchers.contract import expected
from gen.prove.reaching import reaching_trials
from gen.prove.verify import verify
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape
from tests.prove.test_verify import LARGER, SHAPES, small
from tests.support.slow import sift, slow

BATCHED = [name for name, row in VARIANTS.items() if "batched" in row.tunable_names]
QUICK = ["tiles", "gemv"]
FEW = [GemmShape(9, 8, 5), GemmShape(3, 5, 11)]


def complaints(source: Source, shapes: list[GemmShape]) -> list[str]:
    assert source.spec
    results = verify(source.spec, EmulatorRunner(("race",)), shapes, source)
    return [result.message for result in results if not result.ok]


@pytest.mark.parametrize("variant", sift(BATCHED, QUICK[1:]))
def test_batches_are_right(variant: str) -> None:
    layout = "rrr" if variant == "narrow" else "rcr"  # which reads lines across K
    spec = small(variant, layout=layout, batched=True)
    shapes = FEW if variant in QUICK else [*SHAPES, *(LARGER if spec.warp else [])]
    assert complaints(render(spec), shapes) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("first + blockIdx.z", "first"),
        ("first + blockIdx.z", "blockIdx.z + 1"),
        ("A += product * stride_a", "A += product * stride_b"),
        ("B += product * stride_b", "B += stride_b"),
        ("C += product * stride_c", "C += product * stride_d"),
        ("D += product * stride_d", "D += product * stride_c"),
    ],
)
def test_mistakes_are_found(old: str, new: str) -> None:
    source = render(small("tiles", batched=True))
    assert old in source.text
    wrong = Source(source.name, source.text.replace(old, new), source.spec)
    assert complaints(wrong, FEW)


@slow
@pytest.mark.parametrize("variant", BATCHED)
def test_launchers_carry_out_the_plan(variant: str) -> None:
    report = check_launcher(render(small(variant, layout="crc", batched=True)), always=True)
    assert not report.wrong
    assert not report.skipped


@pytest.mark.parametrize(("side", "code"), [(2**22, 9), (2**10, 1)])
def test_what_the_workspace_is_asked_comes_before_c_and_d(side: int, code: int) -> None:
    spec = small("mma", batched=True)
    p = GemmProblem.packed(GemmShape(side, side, 1), spec.layouts, 2, -1)
    far = replace(p, batch=p.batch._replace(stride_d=2**44 + 1))
    assert expected(spec, Call(far)) == (code, ())


BROKEN = [
    ("naive", "batch - first < most ? batch - first : most", "batch < most ? batch : most"),
    ("naive", "first += most", "first += most - 1"),
    ("naive", "if (batch > 1 && !follow && !beside)", "if (batch > 1 && !follow)"),
    ("naive", "K < 0 || batch < 0)", "K < 0)"),
    ("naive", "if (K > 0 && (stride_a < 0", "if ((stride_a < 0"),
    ("mma", "  if (size_t(batch) > kMost) return cudaErrorInvalidValue;\n", ""),
    ("mma", "|| stride_b % 8 != 0", "|| stride_b % 4 != 0"),
    ("naive", "if (beta != 0 && (stride_c < 0", "if (beta != 0 && C != D && (stride_c < 0"),
]


@slow
@pytest.mark.parametrize(("variant", "old", "new"), BROKEN)
def test_mistakes_of_launchers_are_found(variant: str, old: str, new: str) -> None:
    source = render(small(variant, batched=True))
    assert old in source.text
    wrong = Source(source.name, source.text.replace(old, new), source.spec)
    assert check_launcher(wrong).wrong


@pytest.mark.parametrize(
    "spec", [make_spec("naive", batched=True), make_spec("mma", layout="crr", grouped_k=True)]
)
def test_lines_of_a_given_length_leave_room_for_all_products(spec: KernelSpec) -> None:
    for trial in reaching_trials(spec, ["31", "32", "33"]):
        spec.plan(trial.problem, Alignment(True, True, True))  # or an error


@slow
def test_numbers_that_integers_do_not_hold_are_no_scalars() -> None:
    source = render(small("tiles", "i32"))
    text = source.text.replace("index_t(1) << 44", "index_t(2147483648)")
    assert check_launcher(replace(source, text=text)).wrong


def far(source: Source) -> bool:
    """Whether the last products of a batch beyond 32 bits are right."""
    assert source.spec
    module = compile_cuda(source.text, name="far.cu", arch=source.spec.arch)
    results = list(far_batches(source.spec, module))
    assert results
    return not any(one.findings or one.message for one in results)


@pytest.mark.parametrize("variant", sift(BATCHED, QUICK[:1]))
@pytest.mark.slow
def test_products_beyond_32_bits_are_right(variant: str) -> None:
    assert far(render(small(variant, layout="crc", batched=True)))
    own = "x * up[row, col] + shift_by[row]"
    assert far(render(small(variant, layout="crc", batched=True, epilogue=own)))


FAR = [
    ("tiles", "product * stride_d", "int(product * stride_d)"),
    ("tiles", "product * stride_d", "product * int(stride_d)"),
    ("tiles", "first + blockIdx.z", "blockIdx.z"),
    ("tiles", "const index_t product", "const int product"),
    ("mma", "i += gridDim.z / 2", "i += gridDim.z"),
    ("mma", "i * a_lines * a_packed_ld", "int(i * a_lines * a_packed_ld)"),
]


@pytest.mark.parametrize(("variant", "old", "new"), sift(FAR, FAR[2:4]))
@pytest.mark.slow
def test_mistakes_beyond_32_bits_are_found(variant: str, old: str, new: str) -> None:
    source = render(small(variant, batched=True))
    assert old in source.text
    assert not far(Source(source.name, source.text.replace(old, new), source.spec))
