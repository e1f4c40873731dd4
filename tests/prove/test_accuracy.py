"""Edited kernels whose results are right, and less accurate than those of what gen emits."""

from typing import Any

import pytest

from gen.compile import nvrtc
from gen.kernels.registry import make_spec
from gen.prove import check
from gen.prove.accuracy import Errors, complaint, less_accurate
from gen.source.render import Source
from tests.prove.test_defects import plant
from tests.support.slow import slow


def edited(old: str, new: str, variant: str, **tunables: Any) -> Source:
    """A kernel with an edit."""
    return plant(make_spec(variant, **tunables), (old, new))


def said(source: Source) -> str:
    """What the comparison with the emitted kernel says of an edited one."""
    assert source.spec is not None
    module = nvrtc.compile_cuda(source.text, name="edited.cu", arch=source.spec.arch)
    worse = less_accurate(source.spec, module)
    return worse[1] if worse else ""


def test_sums_rounded_toward_zero() -> None:
    long = edited("sum += a * b;", "sum = __fmaf_rz(a, b, sum);", "naive")
    assert "the root mean square of relative errors" in said(long)


FEW = edited(
    "sums.of[e] += others.of[e];",
    "sums.of[e] = __fadd_rz(sums.of[e], others.of[e]);",
    "simt",
    threadblock="64x64x32",
    sliced_k=4,
)


@slow
def test_a_few_roundings_toward_zero() -> None:
    assert "the mean of relative errors" in said(FEW)


@pytest.mark.slow
def test_is_part_of_gen_check() -> None:
    report = check.check(FEW)
    assert not report.findings
    (mismatch,) = report.mismatches
    assert "the mean of relative errors" in mismatch[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum += a * b;", "sum = __fadd_rn(__fmul_rn(a, b), sum);"),  # two roundings, to nearest
        ("sum += a * b;", "sum = fmaf(b, a, sum);"),
    ],
)
def test_other_right_sums(old: str, new: str) -> None:
    assert said(edited(old, new, "naive")) == ""


def test_another_order_of_sums() -> None:
    backwards = edited("for (index_t k = 0; k < K; ++k)", "for (index_t k = K; k-- > 0;)", "naive")
    assert said(backwards) == ""


def test_sums_without_teams_are_as_right() -> None:
    """An order with errors a few times as large is none to complain about."""
    assert not complaint(Errors(1e-7, 1e-10, 1e-9), Errors(2.8e-7, 3e-9, 9e-9))
    assert complaint(Errors(1e-7, 1e-10, 1e-9), Errors(float("nan"), 3e-9, 9e-9))
