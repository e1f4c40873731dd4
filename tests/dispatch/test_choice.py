"""What measured times make of the model's, and that C++'s lines do the same."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gen.device.gpus import GPUS
from gen.dispatch import choice, nearness, words
from gen.dispatch.folders import Places
from gen.dispatch.learnt import place
from gen.dispatch.nearness import ONE, OWN, Point
from gen.dispatch.ranking import INTERPOLATED, MEASURED, MODELLED, Product, rank
from gen.dispatch.table import Table
from gen.kernels.formulas import evaluate
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import ALL_LAYOUTS, Alignment, GemmShape, parse_layout
from tests.hardware import near
from tests.support import tuned

H200 = GPUS["h200"]
PLACE = (1000, 500, 4000, 1, 0, 0)


def product(m: int, n: int, k: int, layout: str = "rcr") -> Product:
    return Product.packed(GemmShape(m, n, k), parse_dtype("f16"), parse_layout(layout))


def point(ratio: float, *sizes: int, own: int = OWN, odd: int = 0, count: int = 1) -> Point:
    m, n, k = sizes or PLACE[:3]
    return Point(m, n, k, count, odd, own, round(ratio * ONE))


def ratio(*points: Point) -> float:
    return nearness.corrected(10**9, PLACE, points) / 10**9


def test_without_points_a_time_is_the_models() -> None:
    for time in (0, 1, 12345, 2**44 - 1, 2**62):
        assert nearness.corrected(time, PLACE, ()) == pytest.approx(time, abs=ONE)
    assert nearness.corrected(123456789, PLACE, ()) == 123456789


def test_the_nearer_the_more_a_point_counts() -> None:
    assert ratio(point(1.5)) == pytest.approx(1.5, rel=1e-3)
    found = [ratio(point(1.5, m, 500, 4000)) for m in (1100, 1500, 2000, 3000, 3900)]
    assert found == sorted(found, reverse=True)
    assert found[2] == pytest.approx(1.5, abs=0.1)
    assert found[-1] > 1
    assert ratio(point(1.5, 4100, 500, 4000)) == 1
    assert ratio(point(1.5, 2000, 1000, 500)) == 1 == ratio(point(1.5, odd=1), point(2, count=9))
    assert ratio(point(1.5, 2000, 500, 4000)) > ratio(point(1.5, 2000, 500, 4000, own=1)) > 1.2
    both = ratio(point(1.5), point(0.5, 1100, 500, 4000))
    assert both == pytest.approx(1.5, rel=0.01)
    mirrored = ratio(point(1.5, 500, 500, 4000))
    assert mirrored == pytest.approx(ratio(point(1.5, 2000, 500, 4000)), rel=1e-3)


size = st.integers(1, 2**18)


@given(
    time=st.integers(0, 2**60),
    at=st.tuples(size, size, size, st.integers(1, 2**54), st.booleans(), st.booleans()),
    points=st.lists(
        st.builds(
            Point, size, size, size, st.integers(1, 2**20), st.integers(0, 3),
            st.sampled_from([1, OWN]), st.integers(nearness.LEAST, nearness.MOST),
        ),
        max_size=4,
    ),
)  # fmt: skip
def test_times_are_those_of_the_lines_that_c_has(
    time: int, at: nearness.Place, points: list[Point]
) -> None:
    """They fit 64 bits in every line, and between the ratios."""
    sizes = dict(zip(("m", "n", "k", "count", "odd_a", "odd_b"), map(int, at), strict=True))
    weights = weighted = 0
    for one in points:
        found = evaluate(nearness.WEIGHT, {**sizes, **one._asdict()})
        assert max(found.values()) < 2**63
        weights += found["weight"]
        weighted += found["weight"] * one.at_ratio
        where = nearness.counted((one.at_m, one.at_n, one.at_k))
        assert nearness.may_count(at, where) or not found["weight"]
    given = {"time": time, "weights": weights, "weighted": weighted}
    found = evaluate(nearness.CORRECTED, given)
    assert max(found.values()) < 2**63
    assert nearness.corrected(time, at, points) == found["corrected"]
    ratios = [ONE, *(one.at_ratio for one in points)]
    assert min(ratios) - 1 <= found["ratio"] <= max(ratios)


# --- the ranking


def test_measured_times_are_what_is_ranked(tmp_path: Path) -> None:
    problem = product(1024, 2048, 512)
    known = tuned.table([problem], "h200")
    places = tuned.places(tmp_path, known)
    found = choice.rank(problem, H200, "sm_90a", None, places)
    measured = [each for each in found if each.basis == MEASURED]
    assert [each.time / 1e6 for each in measured] == pytest.approx(
        sorted(entry.us for entry in known.entries), rel=1e-3
    )
    assert {each.basis for each in found} == {MEASURED, INTERPOLATED}
    assert "measured by gen tune" in words.rests(found, H200)
    assert choice.rank(problem, H200, "sm_90a") == rank(problem, H200, "sm_90a")
    assert choice.rank(problem, GPUS["h100"], "sm_90a", None, places)[0].basis == MODELLED
    far = choice.rank(product(64, 64, 64), H200, "sm_90a", None, places)
    assert far == rank(product(64, 64, 64), H200, "sm_90a")


def test_neighbours_correct_the_model(tmp_path: Path) -> None:
    """A kernel by its own ratio there; others of its variant by the mean of theirs."""
    there, here = product(1024, 2048, 512), product(1100, 2048, 512)
    first, second, *others = rank(there, H200, "sm_90a")
    entries = [tuned.entry(first, there, "h200", 2 * first.time / 1e6),
               tuned.entry(second, there, "h200", second.time / 1e6)]  # fmt: skip
    places = tuned.places(tmp_path, Table(tuple(entries), {tuned.RUN.name: tuned.RUN}))
    found = {each.spec: each for each in choice.rank(here, H200, "sm_90a", None, places)}
    assert {each.basis for each in found.values()} == {INTERPOLATED}
    assert found[first.spec].time > 1.9 * found[first.spec].modelled
    assert found[second.spec].time == pytest.approx(found[second.spec].modelled, rel=0.01)
    same = next(each for each in others if each.spec.variant == first.spec.variant)
    assert found[same.spec].time == pytest.approx(2**0.5 * found[same.spec].modelled, rel=0.1)
    assert choice.rank(here, H200, "sm_90a", None, places)[0].spec != first.spec


def test_other_places_of_the_same_shape_are_interpolated(tmp_path: Path) -> None:
    problem = product(1024, 2048, 512)
    places = tuned.places(tmp_path, tuned.table([problem], "h200"))

    def bases(other: Product, **tunables: str) -> set[str]:
        found = choice.rank(other, H200, "sm_90a", tunables, places)
        return {each.basis for each in found}

    assert bases(replace(problem, lda=520)) == {INTERPOLATED}
    assert bases(replace(problem, lda=513)) == {MODELLED}  # which is packed
    assert bases(replace(problem, alignment=Alignment(False, True))) == {MODELLED}
    assert bases(problem, epilogue="linear_bias_relu") == {INTERPOLATED}
    assert bases(product(1024, 2048, 512, "rcc")) == {MODELLED}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Times of some problems in all layouts."""
    shapes = [(1024, 2048, 512), (1024, 1024, 1024), (2048, 600, 4096), (1001, 1003, 1005)]
    problems = [product(*shape, layout) for shape in shapes for layout in ALL_LAYOUTS]
    folder = tmp_path_factory.mktemp("tuned")
    tuned.places(folder, tuned.table(problems, "h200"))
    return folder


sides = st.integers(70, 512).map(lambda side: 8 * side) | st.integers(500, 4000)


starts = st.sampled_from([(True, True), (True, True), (False, True), (True, False)])


@given(m=sides, n=sides, k=sides, layout=st.sampled_from(ALL_LAYOUTS), aligned=starts)
@example(m=1000, n=2000, k=520, layout="rcc", aligned=(True, True))  # where D is transposed
@settings(max_examples=30, deadline=None)
def test_a_ranking_has_the_times_that_points_give(
    tables: Path, m: int, n: int, k: int, layout: str, aligned: tuple[bool, bool]
) -> None:
    """Kernels share sums there, and in C++ each has points with operands as it has them."""
    problem = replace(product(m, n, k, layout), alignment=Alignment(*aligned))
    places = Places((tables,), strict=True)
    known = choice.learnt(H200, problem.dtypes, problem.layouts, places)
    for each in choice.rank(problem, H200, "sm_90a", None, places):
        points = known.points(each.spec, [problem])
        at = place(each.spec, problem)
        assert each.time == nearness.corrected(each.modelled, at, points)


def test_orders_of_sums_follow_from_the_model_alone(tmp_path: Path) -> None:
    problem = product(64, 4096, 4096)
    places = tuned.places(tmp_path, tuned.table([problem], "h200", 40, seed=5))
    modelled = choice.rank(problem, H200, "sm_90a", invariant=True)
    found = choice.rank(problem, H200, "sm_90a", None, places, invariant=True)
    assert {each.spec for each in found} == {each.spec for each in modelled}


def test_batches_are_near_batches(tmp_path: Path) -> None:
    problem = replace(product(256, 256, 256), batch=64)
    places = tuned.places(tmp_path, tuned.table([problem], "h200"))
    batched = {"batched": True}

    def basis(count: int) -> str:
        other = replace(problem, batch=count)
        return choice.rank(other, H200, "sm_90a", batched, places)[0].basis

    assert [basis(count) for count in (64, 60, 4)] == [MEASURED, INTERPOLATED, MODELLED]


def test_entries_of_kernels_that_are_gone_are_left_out(tmp_path: Path) -> None:
    problem = product(1024, 2048, 512)
    known = tuned.table([problem], "h200", 4)
    bad = [{"variant": "gone"}, {"threadblock": "7x7x7"}, {"tail": 3}]
    entries = [
        entry._replace(spec={**entry.spec, **change})
        for entry, change in zip(known.entries, bad, strict=False)
    ]
    places = tuned.places(tmp_path, Table((*entries, known.entries[3]), known.runs))
    found = choice.rank(problem, H200, "sm_90a", None, places)
    assert sum(each.basis == MEASURED for each in found) == 1
    choice.learnt(H200, problem.dtypes, problem.layouts, places).prepare()
    assert choice.rank(problem, H200, "sm_90a", None, places) == found


def test_records_correct_each_other_as_the_page_says() -> None:
    """Little where the model was fitted to them, much where it is off for a kernel."""
    records = near.read(near.H200)
    fitted, off = (near.errors(records, factors) for factors in ({}, near.off(records)))
    assert len(fitted.near) == len(off.near) > 50
    assert statistics.median(fitted.near) <= statistics.median(fitted.alone) + 0.01
    assert statistics.median(off.near) <= statistics.median(off.alone) / 2
