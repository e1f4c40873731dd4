"""What is chosen where the caller names no kernel: that it can be made, and what the model says."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gen.device.gpus import GPUS
from gen.dispatch import cost, ranking
from gen.dispatch.ranking import Product, choose, grids, model_of, rank, ranked
from gen.dispatch.weights import weigh
from gen.errors import SpecError
from gen.kernels.formulas import evaluate
from gen.kernels.registry import VARIANTS, make_spec
from gen.kernels.variant import Pace
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTYPES, parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALL_LAYOUTS, Alignment, GemmShape, parse_layout
from gen.tables import geometric_mean
from tests.hardware import drawn
from tests.hardware.model import H200, read
from tests.support.slow import slow


def product(dtype: str, m: int, n: int, k: int, layout: str = "rrr") -> Product:
    return Product.packed(GemmShape(m, n, k), parse_dtype(dtype), parse_layout(layout))


def chosen(
    dtype: str, arch: str, m: int, n: int, k: int, layout: str = "rrr", **tunables: Any
) -> KernelSpec:
    return choose(product(dtype, m, n, k, layout), model_of(arch, 132), arch, tunables)


def offered(variant: str, one: Product, **given: Any) -> list[Mapping[str, Any]]:
    """The tunables of a variant's kernels that an H200 may take for a problem, the first first."""
    found = rank(one, GPUS["h200"], "sm_90a", given)
    return [each.spec.tunables for each in found if each.spec.variant == variant]


def what(spec: KernelSpec) -> str:
    """The kernel, its tile, and how blocks share work."""
    t = spec.tunables
    words = [spec.variant, str(t.get("threadblock", "")).rpartition("x")[0]]
    words += ["turns"] * (t.get("schedule") == "pingpong")
    words += ["stream"] * bool(t.get("stream_k")) + ["slices"] * (t.get("split_k") == 0)
    words += [str(t.get("cluster"))] * (spec.cluster_blocks > 1)
    return " ".join(filter(None, words))


# The fastest of 14 tiles of an H200, and the schedules beside these: docs/lab/tensor-cores.md.
# Narrower tiles, and blocks that share tiles along K, of an H100: docs/lab/hopper.md.
@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((256, 256, 256), "wgmma 64x32"),
        ((512, 512, 512), "wgmma 64x32"),
        ((768, 768, 768), "wgmma 64x80"),
        ((1024, 1024, 1024), "wgmma 64x128"),
        ((1280, 1280, 1280), "wgmma 128x128"),
        ((1536, 1536, 1536), "wgmma 128x160"),
        ((2048, 2048, 2048), "wgmma 256x128"),
        ((3072, 3072, 3072), "wgmma 128x192 turns"),
        ((4096, 4096, 4096), "wgmma 128x128 turns stream"),
        ((128, 4096, 4096), "wgmma 64x64"),
        ((256, 6144, 4096), "wgmma 128x96"),
        ((512, 4096, 4096), "wgmma 128x128"),
        ((1024, 4096, 4096), "wgmma 256x128"),
        ((1024, 6144, 4096), "wgmma 256x192"),
        ((64, 4096, 14336), "wgmma 64x64 1x1x2"),
        ((128, 4096, 14336), "wgmma 128x64 1x1x2"),
    ],
)
def test_the_tiles_that_were_the_fastest_of_an_h200_are_near_the_first(
    shape: tuple[int, int, int], wanted: str
) -> None:
    """By the model alone. Measured times, which come with gemmgen, say which are the fastest.

    Among the grid's, as they were measured: widths that are fitted to the problem come before them.
    """
    one = product("f16", *shape, "rcr")
    grid = grids(one.dtypes, one.layouts, "sm_90a", {})
    found = [each for each in rank(one, GPUS["h200"], "sm_90a") if each.spec in grid]
    wanted_time = next(each.time for each in found if what(each.spec) == wanted)
    assert wanted_time <= 1.07 * found[0].time


@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 5])
def test_a_gpu_smaller_than_a_cluster_has_times(multiprocessors: int) -> None:
    gpu = model_of("sm_90a", multiprocessors, "NVIDIA H100")
    given = {"cluster": "1x1x4", "threadblock": "64x64x64"}
    found = rank(product("f16", 64, 4096, 14336, "rcr"), gpu, "sm_90a", given)
    assert all(each.time > 0 for each in found)


@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_teams_hold_lines_along_k(dtype: str) -> None:
    for shape in ((1024, 1024, 1024), (1001, 999, 1003)):
        first = rank(product(dtype, *shape, "rcr"), GPUS["h200"], "sm_90a")[0].spec
        assert what(first) == "simt 64x128"
        assert first.tunables["held"]


@pytest.mark.parametrize("few", ["rows", "columns"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i8"])
def test_few_long_sums_have_more_threads(dtype: str, few: str) -> None:
    def threads(long: int, k: int) -> int:
        m, n = (1, long) if few == "rows" else (long, 1)
        return int(offered("gemv", product(dtype, m, n, k, "rcr"), few=few)[0]["threads"])

    assert threads(300, 30_000) > threads(30_000, 300)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("few", ["rows", "columns"])
@pytest.mark.parametrize(("dtype", "pieces"), [("f16", 8), ("f32", 4), ("f64", 2)])
@pytest.mark.parametrize("units", [1, 255, 256, 511, 512, 1023, 1024, 2048])
def test_more_threads_than_usual_read_k_twice(
    dtype: str, pieces: int, units: int, few: str, count: int
) -> None:
    m, n = (count, 900) if few == "rows" else (900, count)
    found = offered("gemv", product(dtype, m, n, units * pieces, "rcr"))
    threads = {int(each["threads"]) for each in found if each["few"] == few}
    wanted = {128, 256, 512} | ({1024} if count == 1 else set())
    if dtype == "f64" and count == 1:  # large blocks of doubles are alone: 900 lines need more
        wanted -= {512, 1024}
    assert threads == {each for each in wanted if each == 128 or 2 * each <= units}


def test_large_blocks_of_doubles_are_for_as_many_long_lines_as_fit() -> None:
    def threads(long: int) -> set[int]:
        found = offered("gemv", product("f64", 4, long, 8192, "rcr"), few="rows")
        return {int(each["threads"]) for each in found}

    assert 512 in threads(132 * 4)
    assert max(threads(132 * 8 + 1)) == 256


@pytest.mark.parametrize(
    ("n", "k", "there"),
    [(2001, 511, False), (2001, 512, True), (2000, 512, False), (2000, 4096, True)],
)
def test_threads_across_k_have_lines_of_their_own(n: int, k: int, there: bool) -> None:
    """1,024 threads of a block with 16 columns: of odd lines each reads an element, else 8."""
    own = {"few": "rows", "strip": 16, "threads": 1024}
    found = offered("gemv", product("f16", 1, n, k, "rrr"))
    assert any(own.items() <= each.items() for each in found) == there


def test_each_block_of_a_cluster_has_a_step() -> None:
    def count(k: int) -> int:
        found = offered("narrow", product("f32", 1, 900, k, "rrr"))
        return sum(each["threads"] == 128 for each in found)

    # A block reads 16 elements a thread: 256 k of 8 columns, 64 k of 32.
    assert [count(k) for k in (1, 511, 512, 2047, 2048)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("few", ["rows", "columns"])
def test_few_of_both_are_offered_either_way(few: str) -> None:
    found = offered("gemv", product("f64", 3, 4, 8192, "rcr"))
    assert any((each["few"], each["threads"]) == (few, 512) for each in found)


def test_what_a_single_row_is_offered_is_not_offered_to_many() -> None:
    one, many = (offered("gemv", product("f32", m, 4096, 8192, "rcr")) for m in (1, 5))
    assert len(one) - len(many) == 6


def test_registers_of_gemv_are_no_more_than_a_thread_has() -> None:
    wide = make_spec("gemv", dtype="f32", layout="rcr", arch="sm_90", vectors=8, strip=32)
    assert weigh(wide, GPUS["h200"]).weights.resident == 2  # by compiling it: 255 registers


def test_places_outside_of_d_decide_a_tie() -> None:
    one = product("f16", 64, 64, 8192, "rcr")
    tile = {"arch": "sm_90a", "layout": "rcr", "threadblock": "64x64x64", "stages": 8}
    alone = ranked(make_spec("wgmma", **tile, cluster="1x1x4"), one, GPUS["h200"])
    beside = ranked(make_spec("wgmma", **tile, cluster="1x2x4"), one, GPUS["h200"])
    assert beside.value("lacking")
    assert alone.time < beside.time


def test_what_else_is_chosen() -> None:
    tiles = {512: "64x32", 1024: "64x128", 2048: "64x256", 4096: "128x256 stream"}
    for side, tile in tiles.items():
        assert what(chosen("f32", "sm_90a", side, side, side)) == f"simt {tile}", side
    assert what(chosen("f32", "sm_90a", 32, 4096, 14336)).startswith("simt 32x256")
    along = chosen("f32", "sm_90a", 32, 4096, 14336, "rcr")
    assert what(along).startswith("simt 32x128")
    assert along.tunables["held"] == 1
    assert what(chosen("f64", "sm_90a", 4096, 4096, 4096)) == "mma_tma 128x128"
    assert what(chosen("f16", "sm_80", 4096, 4096, 4096)) == "mma 128x256"
    assert what(chosen("f32", "sm_75", 4096, 4096, 4096)) == "warp_tiled 128x128"
    assert what(chosen("i32", "sm_80", 64, 64, 65536)).endswith("slices")
    for few, shape, layout, variant in (
        ("rows", (1, 8192, 8192), "rrr", "gemv"),
        ("rows", (4, 8192, 8192), "rrr", "narrow"),
        ("columns", (8192, 1, 8192), "rcr", "gemv"),
    ):
        spec = chosen("f32", "sm_80", *shape, layout)
        assert (spec.variant, spec.tunables["few"]) == (variant, few)
    odd = product("f16", 4096, 4096, 4096, "rcr")
    packed = replace(odd, lda=4097, ldb=4097)
    gpu, arch = GPUS["h200"], "sm_90a"
    assert rank(packed, gpu, arch)[0].value("packing") > 0
    assert rank(packed, gpu, arch)[0].time > rank(odd, gpu, arch)[0].time
    elsewhere = replace(odd, alignment=Alignment(False, True, True))
    assert rank(elsewhere, gpu, arch)[0].value("moved_a") == 4096 * 4096


def test_what_is_never_near_is_left_out_unless_it_is_asked_for() -> None:
    """Kernels for few where there are many; tiles of mma.sync where there is wgmma."""

    def names(m: int, arch: str = "sm_90a", k: int = 4096, **tunables: object) -> set[str]:
        found = rank(product("f16", m, m, k), GPUS["h200"], arch, tunables)
        return {what(each.spec) for each in found}

    assert any(name.startswith("gemv") for name in names(512))
    assert not any(name.startswith(("gemv", "skinny", "slim")) for name in names(513))
    assert not any(name.startswith("narrow") for name in names(513, epilogue="linear_bias"))
    assert any(name.startswith("gemv") for name in names(513, few="rows"))
    assert any(name.startswith("gemv") for name in names(513, "sm_90"))
    huge = product("f16", 3 * 10**9, 600, 600)  # more than tensor cores' kernels take
    assert rank(huge, GPUS["h200"], "sm_90a")[0].spec.variant == "slim"
    assert "vectorized" in {each.spec.variant for each in rank(huge, GPUS["h200"], "sm_90a")}
    small = {"wgmma 64x128 slices", "mma 64x128 slices"}
    assert small <= names(512, k=65536)
    assert not small & names(513, k=65536)
    assert "wgmma 192x192 slices" in names(513, k=65536)
    assert not {"mma 128x256", "mma_tma 128x256"} & names(4096)
    assert "mma 128x256" in names(4096, "sm_90")
    assert "mma_tma 128x256" in names(4096, warp="64x64")
    odd_tile = chosen("f16", "sm_90a", 1000, 1000, 4096, "rcr", threadblock="96x96x64")
    assert what(odd_tile).startswith("mma_tma 96x96")
    rungs = {"tiles": {16}, "rec_tiles": {16}, "vectorized": set()}
    found = rank(product("f16", 9, 9, 9), GPUS["h200"], "sm_90a")
    for rung, tiles in rungs.items():
        specs = [each.spec for each in found if each.spec.variant == rung]
        assert {spec.tunables["tile"] for spec in specs} == tiles


def test_tunables_of_the_caller_stay() -> None:
    relu = {"epilogue": "linear_bias_relu"}
    assert chosen("f32", "sm_75", 64, 64, 64, **relu).epilogue == "linear_bias_relu"
    spec = chosen("f16", "sm_90a", 4096, 4096, 4096, cluster="2x1")
    assert (spec.variant, spec.cluster) == ("wgmma", (2, 1))
    spec = chosen("f16", "sm_90a", 1024, 1024, 1024, warp="64x64")  # which wgmma does not have
    assert (spec.variant, spec.tunables["warp"]) == ("mma_tma", "64x64")
    tile = {"threadblock": "96x128x32", "warp": "48x64"}
    assert chosen("f16", "sm_75", 9, 9, 9, **tile).stages == 2
    assert chosen("f16", "sm_80", 9, 9, 9, pack=1, **tile).stages == 4
    assert chosen("f16", "sm_80", 64, 64, 64, split_k=0).split_k == 0
    with pytest.raises(SpecError, match=r"warp.m=100 is not a multiple of 16; use"):
        chosen("f16", "sm_80", 9, 9, 9, warp="100x64")
    with pytest.raises(
        SpecError, match="no kernel with f16 for sm_80 has the tunable 'tail'; they"
    ):
        chosen("f16", "sm_80", 9, 9, 9, tail=3)
    with pytest.raises(SpecError, match="f16 for sm_80 has cluster=2x1x4: wgmma has, with other"):
        rank(product("f16", 64, 64, 64), GPUS["a100"], "sm_80", {"cluster": "2x1x4"})
    with pytest.raises(SpecError, match="has tile, warp together; leave one out"):
        chosen("f16", "sm_80", 9, 9, 9, tile=3, warp="64x64")


def test_a_new_row_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new kernel is a new row: here one for small f32 problems, with two tiles to choose from."""
    new = replace(
        VARIANTS["tiles"],
        name="new",
        dtypes=("f32",),
        most=1000,
        grid=lambda _: [{"tile": 32}, {"tile": 16}],
        pace=lambda _: Pace("cuda", 0.99, registers=32),
    )
    monkeypatch.setattr(ranking, "VARIANTS", {**VARIANTS, "new": new})
    ranking.candidates.cache_clear()
    assert chosen("f32", "sm_80", 1000, 1000, 1000).variant == "new"
    assert chosen("f32", "sm_80", 1001, 256, 9).variant != "new"
    assert chosen("f16", "sm_75", 256, 256, 9).variant != "new"
    ranking.candidates.cache_clear()


def test_where_no_kernel_has_the_types() -> None:
    with pytest.raises(SpecError, match=r"no kernel for sm_75 has tf32 at 9x9x9; use f32, f64, "):
        chosen("tf32", "sm_75", 9, 9, 9)
    with pytest.raises(SpecError, match="no kernel for sm_80 has tf32 at 1x1x2147483648; use f3"):
        chosen("tf32", "sm_80", 1, 1, 2**31)


ON_HOPPER = ("f32_6xbf16",)
SINCE = {"bf16_f32": 80, "tf32": 80, **dict.fromkeys((n for n in DTYPES if n[0] == "e"), 89)}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_that_there_is_gets_a_kernel(arch: str, dtype: str) -> None:
    """One that a plan can be made of, also of little and of nothing."""
    lacks = compute_capability(arch) < SINCE.get(dtype, 0)
    if lacks or (dtype in ON_HOPPER and arch != "sm_90a"):
        with pytest.raises(SpecError, match=f"no kernel for {arch} has {dtype} at 1x1x1; use f32"):
            chosen(dtype, arch, 1, 1, 1)
        return
    for m, n, k in ((0, 1, 1), (1, 1, 0), (1, 70_000, 64), (1023, 1025, 9000), (6144, 6144, 64)):
        wanted = product(dtype, m, n, k, "crc")
        found = rank(wanted, model_of(arch, 132), arch)
        assert [each.time for each in found] == sorted(each.time for each in found)
        assert found[0].time > 0
        assert found[0].spec.dtypes.name == dtype


sizes = st.integers(0, 2**31 - 4096) | st.integers(0, 300)


@given(m=sizes, n=sizes, k=sizes, ld=st.integers(0, 2**31), at=st.sampled_from([0, 2, 4, 8]),
       gpu=st.sampled_from(list(GPUS.values())), layout=st.sampled_from(ALL_LAYOUTS),
       kernel=st.sampled_from([("mma", "f16", {"split_k": 0}), ("gemv", "f64", {"vectors": 1}),
                               ("naive", "f64", {}), ("shared_row", "i8", {"chunk": 1}),
                               ("simt", "f64", {"threadblock": "32x32x32", "warp": "32x32",
                                                "sliced_k": 8, "split_k": 0})]))  # fmt: skip
@example(m=2**31, n=2**31, k=2**31, ld=1, at=2, gpu=GPUS["rtx3060"], layout="rrr",
         kernel=("gemv", "f64", {"vectors": 1}))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_times_are_those_of_the_lines_that_c_has(
    m: int, n: int, k: int, ld: int, at: int, gpu: Any, layout: str, kernel: Any
) -> None:
    """They fit 64 bits, whatever the problem is, in every line."""
    variant, dtype, tunables = kernel
    spec = make_spec(variant, dtype=dtype, layout=layout, arch="sm_80", **tunables)
    weights = weigh(spec, gpu).weights
    values = (m, n, k, 1, at, max(ld, 1), 0, max(ld, 1), gpu.sms, *weights)
    found = evaluate(cost.FACTS, dict(zip((*cost.GIVEN, *weights._fields), values, strict=True)))
    computed = cost.compute(*values)
    assert tuple(found[name] for name in cost.NAMES) == computed
    assert all(0 <= value < 2**63 for value in computed)


def test_other_gpus_count_as_the_nearest_one() -> None:
    assert model_of("sm_90a", 132).name == "h200"
    assert model_of("sm_80", 108) == GPUS["a100"]
    half = model_of("sm_80", 54)
    assert (half.sms, half.tensor, half.clock) == (54, 156, pytest.approx(GPUS["a100"].clock))
    assert model_of("sm_87", 16).capability == 86
    assert model_of("sm_121", 48).capability == 120


def test_the_model_is_as_near_to_what_was_measured_as_the_page_says() -> None:
    errors = sorted(record.error for record in read(H200))
    assert len(errors) > 140
    assert statistics.median(errors) <= 0.058
    assert errors[len(errors) * 9 // 10] <= 0.3


@slow
def test_the_models_first_is_as_good_as_the_page_says() -> None:
    """Among the kernels that were measured of problems that nobody chose."""
    outcomes = drawn.read()
    assert len(outcomes) > 290
    assert (geometric_mean([one.first for one in outcomes]) or 0) >= 0.96
    assert (geometric_mean([one.tuned for one in outcomes]) or 0) >= 0.99
    assert sum(one.first < 0.8 for one in outcomes) <= 12


def test_a_batch_has_the_tiles_of_all_its_products() -> None:
    spec, gpu = make_spec("simt", arch="sm_80"), GPUS["a100"]
    one = product("f32", 256, 256, 256)
    many = ranked(spec, replace(one, batch=10), gpu)
    assert many.value("tiles") == 10 * ranked(spec, one, gpu).value("tiles")


def test_groups_are_as_uneven_as_nobody_knows() -> None:
    """The time is the mean of those with rows spread up to twice the average."""
    gpu = GPUS["h200"]
    spec = make_spec("wgmma", layout="rrr", grouped=True)
    many = replace(product("f16", 256, 2048, 2048), batch=64)
    found = ranked(spec, many, gpu).time
    equal = replace(spec, tunables={**spec.tunables, "grouped": False})
    times = [
        ranked(equal, replace(many, shape=replace(many.shape, m=32 + 64 * i)), gpu).time
        for i in range(8)
    ]
    assert found == sum(times) // 8
    turns = rank(many, gpu, "sm_90a", {"grouped": True})[0].spec
    assert turns.tunables["schedule"] == "pingpong"  # which is the fastest on that GPU
    near = replace(many, shape=replace(many.shape, m=257))  # counts as 256
    assert ranked(spec, near, gpu).time == found
