"""`gen check` of kernels whose blocks share operands: clean, and with a mistake."""

from __future__ import annotations

import numpy as np
import pytest

import gen
from gen.kernels.registry import make_spec
from gen.prove.check import check
from gen.spec.problem import GemmShape
from tests.prove.test_defects import plant
from tests.support.slow import slow

SHAPES = [GemmShape(129, 130, 264)]  # stages come round twice
MASK = ("address % (1 << 18) >> 4", "address >> 4")  # what is left out


def checked(layout: str, *changes: tuple[str, str]) -> list[str]:
    """What is found in a kernel with changes; it is right, or nothing but that."""
    tile = {"threadblock": "64x128x64", "stages": 2, "split_k": 1}
    spec = make_spec("wgmma", layout=layout, cluster="2x1", **tile)
    report = check(plant(spec, *changes), SHAPES, first=True)
    assert not report.error
    wrong = [text for _, text in report.mismatches]
    return [f"{one.finding.check}: {one.finding.message}" for one in report.findings] + wrong


@slow
@pytest.mark.parametrize("cluster", ["1x1x2", "1x1x4", "2x1x4", "1x2x2", "2x2x2"])
def test_a_sum_over_blocks(cluster: str) -> None:
    spec = make_spec("wgmma", layout="rcr", cluster=cluster, threadblock="64x64x64", stages=2)
    report = check(plant(spec), SHAPES, first=True)
    assert [*report.findings, *report.mismatches, *filter(None, [report.error])] == []


@pytest.mark.parametrize("cluster", ["1x1x4", "2x1x4"])
@pytest.mark.parametrize("layout", ["rcr", "rcc"])
def test_a_sum_over_blocks_has_one_order(layout: str, cluster: str) -> None:
    """Whichever block finishes an element: rows and columns are in other pieces there."""
    tile = {"threadblock": "64x64x32", "stages": 2}
    kernel = gen.Kernel(
        "wgmma", dtype="f16_f32", layout=layout, cluster=cluster, device="cpu", **tile
    )
    rng = np.random.default_rng(1)
    a = rng.standard_normal((40, 200)).astype(np.float16)
    b = rng.standard_normal((200, 40)).astype(np.float16, order="F")
    whole = kernel(a, b)
    np.testing.assert_array_equal(kernel(a[16:], b), whole[16:])
    np.testing.assert_array_equal(kernel(a, b[:, 24:]), whole[:, 24:])


@slow
def test_nothing_found() -> None:
    assert checked("rrr") == []


def test_a_descriptor_with_the_rank_in_its_leading_offset() -> None:
    """What a GPU multiplies then is something else, in all blocks but the first of a cluster."""
    found = checked("rrr", MASK)
    assert "memcheck: wgmma.mma_async: the descriptor of B has the rank of the block" in found[0]
    assert "bits above 18" in found[0]


@slow
def test_lines_along_k_have_no_leading_offset() -> None:
    assert checked("rcr", MASK) == []


@slow
def test_a_relaxed_arrival_releases_nothing() -> None:
    arrive = "mbarrier.arrive.shared::cluster"
    found = checked("rrr", (arrive, "mbarrier.arrive.relaxed.cluster.shared::cluster"))
    assert any(text.startswith("racecheck") and "still in flight" in text for text in found)
