"""Plans: what is launched, with what, and where in the workspace; no kernel runs here."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.errors import SpecError
from gen.kernels.launches import Plan, Pointer, TensorMap
from gen.kernels.registry import VARIANTS, make_spec
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALIGNED, Alignment, GemmProblem, GemmShape, parse_layout
from tests.spec.test_spec import specs
from tests.support.slow import slow

NULL = np.uint64(0)
NAMES = ["M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "D", "ldd"]


def made(
    spec: KernelSpec,
    m: int,
    n: int,
    k: int,
    alignment: Alignment = ALIGNED,
    multiprocessors: int = 132,
    **problem: Any,
) -> Plan:
    shape = GemmShape(m, n, k)
    packed = GemmProblem.packed(shape, spec.layouts, **problem)
    return spec.plan(packed, alignment, multiprocessors)


def main(steps: Plan, spec: KernelSpec) -> dict[str, Any]:
    return dict(steps.launch(spec.name).args)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not VARIANTS[v].planner])
def test_scalar_kernels_are_launched_once(variant: str) -> None:
    dtypes = VARIANTS[variant].dtypes
    spec = make_spec(variant, dtype="f32" if "f32" in dtypes else dtypes[0])
    steps = made(spec, 5, 7, 3, Alignment(False, False, False), alpha=2, beta=0.5)
    (launch,) = steps.launches
    assert (launch.kernel, steps.workspace_bytes) == (spec.name, 0)
    assert list(launch.args) == NAMES
    assert [launch.args[x] for x in ("M", "N", "K", "A", "D")] == [
        5, 7, 3, Pointer("A"), Pointer("D"),
    ]  # fmt: skip
    assert launch.args["alpha"] == 2
    assert isinstance(launch.args["beta"], np.float32)


@slow
@given(specs(), st.tuples(*(st.integers(1, 300),) * 3), st.tuples(*(st.booleans(),) * 3))
def test_arguments_are_the_kernels_parameters(
    spec: KernelSpec, size: tuple[int, int, int], aligned: tuple[bool, bool, bool]
) -> None:
    text = render(spec).text
    for launch in made(spec, *size, Alignment(*aligned)).launches:
        kernel = re.search(
            rf'extern "C" __global__(?:[^(]*\([^)]*\))+[^(]* {launch.kernel}\((.*?)\) {{',
            text,
            re.S,
        )
        assert kernel, launch.kernel
        parameters = re.sub(r"//.*", "", kernel[1]).split(",")
        assert [p.split()[-1] for p in parameters] == list(launch.args)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_empty_result_needs_no_launch(variant: str) -> None:
    spec = make_spec(variant)
    for m, n, k in ((0, 5, 7), (5, 0, 7), (0, 0, 0)):
        steps = made(spec, m, n, k, Alignment(False, False, False))
        assert (steps.launches, steps.workspace_bytes) == ((), 0)


def test_aligned_operands_are_used_where_they_are() -> None:
    spec = make_spec("mma", layout="crr", split_k=2, epilogue="linear_bias")
    steps = made(spec, 128, 264, 64)
    assert [s.kernel for s in steps.launches] == [spec.name, f"{spec.name}_reduce"]
    args = main(steps, spec)
    assert list(args) == ["M", "N", "K", "A", "lda", "B", "ldb", "slices", "partials"]
    assert (args["A"], args["lda"], args["B"], args["ldb"]) == (
        Pointer("A"), 128, Pointer("B"), 264,
    )  # fmt: skip
    # Two tiles of 128 x 256, two steps along K.
    assert steps.launch(spec.name).grid == (2, 2, 1)
    assert steps.launch(spec.name).block == (256, 1, 1)
    assert (args["slices"], args["partials"]) == (2, Pointer("workspace", 0))
    assert steps.workspace_bytes == 2 * 128 * 512 * 4  # sums of whole tiles
    assert not any(launch.early for launch in steps.launches)
    newer = made(make_spec("mma", arch="sm_90a", split_k=2), 128, 264, 64)
    assert all(launch.early for launch in newer.launches)
    reduce = steps.launches[-1]
    assert list(reduce.args) == [
        "M", "N", "alpha", "beta", "C", "ldc", "D", "ldd", "bias", "slices", "partials",
    ]  # fmt: skip
    assert reduce.args["bias"] == Pointer("bias")
    assert reduce.grid == (128 * 512 // 4 // 32, 1, 1)


def test_an_operand_out_of_line_is_packed() -> None:
    spec = make_spec("mma", layout="ccr")
    # A is stored as 33 lines of 100 elements, B as 200 of 33, none in whole units of 16 bytes;
    # packed lines start at multiples of 128 bytes.
    steps = made(spec, 100, 200, 33)
    pack, kernel = steps.launches
    assert pack.kernel == f"{spec.name}_pack"
    assert dict(pack.args) == {
        "a_lines": 33, "a_length": 100, "A": Pointer("A"), "lda": 100,
        "a_packed": Pointer("workspace", 0), "a_packed_ld": 128,
        "b_lines": 200, "b_length": 33, "B": Pointer("B"), "ldb": 33,
        "b_packed": Pointer("workspace", 33 * 256), "b_packed_ld": 64,
    }  # fmt: skip
    assert pack.grid == (4, 1, 2)  # of 64 short lines, or 16
    assert (kernel.args["A"], kernel.args["lda"]) == (Pointer("workspace", 0), 128)
    assert (kernel.args["B"], kernel.args["ldb"]) == (Pointer("workspace", 33 * 256), 64)
    assert steps.workspace_bytes == 33 * 256 + 200 * 128


def test_only_the_operand_that_needs_it_is_packed() -> None:
    spec = make_spec("mma")
    steps = made(spec, 64, 64, 64, Alignment(True, False, True))
    pack = steps.launch(f"{spec.name}_pack")
    assert (pack.args["a_lines"], pack.args["b_lines"]) == (0, 64)
    assert pack.args["A"] == Pointer("A")
    args = main(steps, spec)
    assert (args["A"], args["B"]) == (Pointer("A"), Pointer("workspace", 0))


@pytest.mark.parametrize(("dtype", "unit"), [("tf32", 32), ("i8", 128)])
def test_other_sizes_than_2_bytes_are_transposed_by_packing(dtype: str, unit: int) -> None:
    spec = make_spec("mma", dtype=dtype, layout="rrr")
    steps = made(spec, 32, 48, 80)
    pack = steps.launch(f"{spec.name}_pack")
    assert pack.args["a_lines"] == 0
    assert (pack.args["b_lines"], pack.args["b_length"]) == (48, 80)
    assert pack.args["b_packed_ld"] == -(-80 // unit) * unit
    (only,) = made(make_spec("mma", dtype=dtype, layout="rcr"), 32, 48, 80).launches
    assert only.kernel != pack.kernel


@pytest.mark.parametrize(
    ("dtype", "layout", "shape", "grid"),
    [
        # 16 lines a piece and 512 bytes of each, or a tile: 32 lines and 256 bytes, or 128 of each.
        ("f16", "rcr", (100, 200, 1000), (13 * 4, 1, 2)),  # A and B are at odd addresses
        ("f16", "ccr", (556, 624, 8870), (555 * 3, 1, 2)),  # long lines of B, many of A
        ("f16", "rcr", (20_000, 20_000, 20_000), (65_536, 1, 2)),
        ("i8", "crr", (100, 200, 1000), (2 * 8, 1, 2)),
        ("tf32", "crr", (100, 200, 1000), (7 * 16, 1, 2)),
        ("tf32", "rrr", (100, 20, 1000), (7 * 8, 1, 2)),
        ("tf32", "rrr", (10, 200, 1000), (7 * 16, 1, 2)),
        ("tf32", "ccr", (100, 20, 9000), (4 * 141, 1, 2)),
        ("i8", "crr", (1, 1, 1), (1, 1, 2)),
    ],
)
def test_packing_has_as_many_blocks_as_have_work(
    dtype: str, layout: str, shape: tuple[int, int, int], grid: tuple[int, int, int]
) -> None:
    spec = make_spec("mma", dtype=dtype, layout=layout)
    steps = made(spec, *shape, Alignment(False, False, False))
    assert steps.launch(f"{spec.name}_pack").grid == grid


def test_a_column_major_result_is_its_transpose() -> None:
    """The operand a is B', of N rows."""
    spec = make_spec("mma", layout="rrc", threadblock="128x64x32", warp="32x32")
    steps = made(spec, 64, 1280, 33)
    pack = steps.launch(f"{spec.name}_pack")
    assert (pack.args["A"], pack.args["B"]) == (Pointer("B"), Pointer("A"))
    assert pack.args["a_lines"] == 0  # B: 33 lines of 1280 elements, in whole units
    assert (pack.args["b_lines"], pack.args["b_length"]) == (64, 33)
    assert steps.launch(spec.name).grid == (10, 1, 1)
    args = main(steps, spec)
    assert (args["B"], args["ldb"]) == (Pointer("workspace", 0), 64)
    assert (args["A"], args["lda"], args["M"]) == (Pointer("B"), 1280, 1280)


def test_an_empty_sum_needs_no_packing() -> None:
    for variant in ("mma", "mma_tma", "wgmma"):
        spec = make_spec(variant, split_k=0)
        steps = made(spec, 5, 7, 0, Alignment(False, False, False))
        (launch,) = steps.launches
        assert (launch.args["slices"], launch.args["partials"]) == (1, NULL)


@pytest.mark.parametrize(
    ("split_k", "shape", "multiprocessors", "slices"),
    [
        (1, (128, 256, 4096), 132, None),
        (3, (128, 256, 4096), 132, 3),
        (300, (128, 256, 4096), 132, 128),  # no more than steps along K
        (3, (128, 256, 32), 132, 1),  # the reduction writes D all the same
        (0, (128, 256, 4096), 132, 32),  # at least four steps each
        (0, (128, 256, 65536), 132, 128),  # as few as have no more than 16 steps each
        (0, (256, 256, 65536), 132, 64),
        (0, (128 * 8, 256 * 8, 65536), 132, 2),
        (0, (128 * 9, 256 * 8, 65536), 132, 1),  # more than half of the GPU has a tile
        (0, (128, 256, 32), 132, 1),
        (0, (128, 256, 4096), 4, 4),
    ],
)
def test_slices(
    split_k: int, shape: tuple[int, int, int], multiprocessors: int, slices: int | None
) -> None:
    spec = make_spec("mma", split_k=split_k)
    steps = made(spec, *shape, multiprocessors=multiprocessors)
    tiles = (shape[0] // 128) * (shape[1] // 256)
    assert steps.launch(spec.name).grid == (tiles, slices or 1, 1)
    assert main(steps, spec).get("slices") == slices
    kernels = [s.kernel for s in steps.launches]
    reduces = split_k > 1 or (slices or 1) > 1
    assert kernels == [spec.name, *([f"{spec.name}_reduce"] if reduces else [])]


def test_tensor_maps_describe_the_operands() -> None:
    spec = make_spec("mma_tma", layout="rrr", threadblock="128x256x32")
    args = main(made(spec, 1000, 504, 64), spec)
    assert list(args) == [
        "M", "N", "K", "alpha", "a_map", "b_map", "a_edge", "b_edge", "d_map", "beta", "C", "ldc",
        "D", "ldd", "early",
    ]  # fmt: skip
    assert args["a_map"] == TensorMap(Pointer("A"), "f16", (64, 1000), 128, (32, 128), 64)
    assert args["b_map"] == TensorMap(Pointer("B"), "f16", (504, 64), 1008, (64, 32), 128)
    assert args["d_map"] == TensorMap(Pointer("D"), "f16", (504, 1000), 1008, (64, 64), 128)
    other = make_spec("mma_tma", dtype="i8", layout="rcc")
    maps = main(made(other, 1001, 504, 64), other)
    assert maps["a_map"] == TensorMap(Pointer("B"), "i8", (64, 504), 64, (128, 128), 128)
    assert maps["b_map"] == TensorMap(Pointer("A"), "i8", (64, 1001), 64, (128, 256), 128)
    assert maps["d_map"].dims == (0, 0)  # ldd is 1001: rows start anywhere


def test_the_last_boxes_have_no_more_lines_than_the_matrix() -> None:
    spec = make_spec("mma_tma", layout="rcr", threadblock="128x256x32")
    for m, n, last in ((16, 300, (16, 44)), (128, 256, (128, 256)), (385, 255, (1, 255))):
        args = main(made(spec, m, n, 64), spec)
        assert (args["a_map"].box, args["b_map"].box) == ((32, 128), (32, 256))
        assert (args["a_edge"].box, args["b_edge"].box) == tuple((32, lines) for lines in last)
    strided = make_spec("mma_tma", layout="crr", threadblock="128x256x32")  # lines along M and N
    args = main(made(strided, 16, 24, 64), strided)
    assert args["a_map"].box == args["b_map"].box == (64, 32)
    for m, n, last in ((16, 24, (16, 24)), (64, 129, (64, 8)), (70, 121, (8, 64))):
        args = main(made(strided, m, n, 64), strided)
        assert (args["a_edge"].box, args["b_edge"].box) == tuple((chunks, 32) for chunks in last)
        assert args["a_edge"].swizzle == args["b_edge"].swizzle == 128
    shared = make_spec("wgmma", layout="rcr", threadblock="128x96x64", cluster="2x4")
    args = main(made(shared, 70, 50, 64), shared)
    assert (args["a_map"].box, args["b_map"].box) == ((64, 32), (64, 48))
    assert (args["a_edge"].box, args["b_edge"].box) == ((64, 6), (64, 2))
    lines = make_spec("wgmma", layout="rrr", threadblock="128x64x64", cluster="4x2")
    args = main(made(lines, 70, 50, 64), lines)
    assert (args["b_map"].box, args["b_edge"].box) == ((64, 16), (56, 16))  # of each step


def test_tensor_maps_of_nothing_are_empty() -> None:
    spec = make_spec("mma_tma")
    args = main(made(spec, 5, 7, 0), spec)
    assert args["a_map"].dims == args["b_map"].dims == (0, 0)


def test_blocks_that_stay_are_no_more_than_multiprocessors() -> None:
    spec = make_spec("mma_tma", split_k=2)
    assert made(spec, 128, 256, 640).launch(spec.name).grid == (2, 1, 1)
    assert made(spec, 1280, 2560, 640).launch(spec.name).grid == (132, 1, 1)
    assert made(spec, 1280, 2560, 640, multiprocessors=4).launch(spec.name).grid == (4, 1, 1)


def test_the_next_kernel_starts_early_after_one_tile_a_block_without_packing() -> None:
    spec = make_spec("mma_tma", split_k=2)
    for size, early in (((128, 256, 640), 1), ((1280, 2560, 640), 0), ((128, 256, 641), 0)):
        assert main(made(spec, *size), spec)["early"] == early
    always_packs = make_spec("mma_tma", dtype="i8", layout="rrr")
    assert "early" not in main(made(always_packs, 128, 256, 640), always_packs)
    assert "prefetch_box" not in render(always_packs).text


@pytest.mark.parametrize(
    ("variant", "arch", "split_k", "room"),
    [
        ("mma_tma", "sm_90a", 3, True),
        ("mma_tma", "sm_90a", 0, True),
        ("mma_tma", "sm_90a", 1, False),  # no reduction follows
        ("wgmma", "sm_90a", 3, True),
        ("mma", "sm_90", 3, True),
        ("mma", "sm_80", 3, False),  # it does not start early
    ],
)
def test_room_is_made_for_a_reduction_that_starts_early(
    variant: str, arch: str, split_k: int, room: bool
) -> None:
    """As the emitted launcher does."""
    spec = make_spec(variant, arch=arch, split_k=split_k)
    steps = made(spec, 128, 256, 641)
    rooms = {launch.kernel: launch.all_shared for launch in steps.launches}
    assert rooms == {kernel: room and kernel == spec.name for kernel in rooms}
    assert ("cudaSharedmemCarveoutMaxShared" in render(spec).text) == room


def test_blocks_share_tiles_where_a_round_would_not_be_full() -> None:
    spec = make_spec("wgmma", threadblock="128x64x64", stream_k=1)
    tile, clear = 128 * 64 * 4, f"{spec.name}_clear"
    for tiles, multiprocessors, shared in (
        (5, 4, True),
        (8, 4, False),
        (3, 4, False),
        (9, 2, True),
    ):
        steps = made(spec, 128 * tiles, 64, 640, multiprocessors=multiprocessors)
        blocks = min(tiles, multiprocessors)
        args = main(steps, spec)
        assert steps.launch(spec.name).grid == (blocks, 1, 1)
        assert [s.kernel for s in steps.launches] == [clear] * shared + [spec.name]
        if not shared:
            assert (args["partials"], args["flags"], steps.workspace_bytes) == (NULL, NULL, 0)
            continue
        assert args["partials"] == Pointer("workspace", 0)
        assert args["flags"] == Pointer("workspace", blocks * tile)
        helper = steps.launch(clear)
        assert (helper.grid, helper.block) == ((1, 1, 1), (256, 1, 1))
        assert dict(helper.args) == {"count": 8 * blocks, "flags": args["flags"]}
        assert steps.workspace_bytes == blocks * tile + 8 * blocks * 4
    assert not made(spec, 128 * 5, 64, 0, multiprocessors=4).workspace_bytes  # no steps to share
    packed = made(spec, 128 * 5, 64, 641, multiprocessors=4)
    assert [s.kernel for s in packed.launches] == [f"{spec.name}_pack", clear, spec.name]
    assert all(launch.early for launch in packed.launches)


def test_blocks_on_cuda_cores_share_tiles_too() -> None:
    tile = {"threadblock": "128x64x16", "sliced_k": 2}  # two blocks on a multiprocessor
    for tunables, dtype, held, sums, warps in (
        ({}, "f32", 1, 128 * 256 * 4, 8),
        (tile, "i32", 2, 2 * 128 * 64 * 4, 4),
        ({}, "f64", 1, 128 * 128 * 8, 8),
    ):
        spec = make_spec("simt", dtype=dtype, stream_k=1, **tunables)
        m, n, _ = spec.threadblock
        for tiles, multiprocessors, shared in ((9, 4, True), (8, 4, False), (3, 4, False)):
            steps = made(spec, m * tiles, n, 77, multiprocessors=multiprocessors)
            blocks = min(tiles, held * multiprocessors)
            assert steps.launch(spec.name).grid == (blocks, 1, 1)
            names = [f"{spec.name}_clear"] * shared + [spec.name]
            assert [launch.kernel for launch in steps.launches] == names
            args = main(steps, spec)
            if shared:
                assert args["partials"] == Pointer("workspace", 0)
                assert args["flags"] == Pointer("workspace", blocks * sums)
                assert steps.workspace_bytes == blocks * (sums + 4 * warps)
            else:
                assert (args["partials"], args["flags"], steps.workspace_bytes) == (NULL, NULL, 0)
        assert not made(spec, m * 9, n, 0, multiprocessors=4).workspace_bytes


def test_teams_have_room_for_the_rows_that_they_finish() -> None:
    tile = {"threadblock": "96x96x64", "warp": "48x48", "stages": 4, "layout": "rcr"}
    one, two = (make_spec("mma_tma", **tile, sliced_k=n).geometry for n in (1, 2))
    assert (one.threads, two.threads) == ((160, 1), (288, 1))
    assert (one.values["staged_rows"], one.values["slots"]) == (16, 3)
    assert (two.values["staged_rows"], two.values["slots"]) == (16, 2)  # the first team's, at most


def test_producers_hand_registers_over_where_sums_take_many() -> None:
    for warp, threadblock, producers in (
        ("64x64", "128x256x64", 4),
        ("64x32", "128x128x64", 1),
        ("64x64", "128x128x64", 1),  # 4 consumers have enough
    ):
        values = make_spec("mma_tma", threadblock=threadblock, warp=warp).geometry.values
        assert values["producers"] == producers


def test_a_block_of_the_reduction_has_fewer_sums_where_slices_are_many() -> None:
    tile = {"threadblock": "64x64x64", "warp": "32x32", "stages": 4}
    for slices, width in ((16, 32), (17, 16), (64, 16), (65, 8)):
        for split_k in (slices, 0):  # told, or chosen: one tile, and so many multiprocessors
            spec = make_spec("mma_tma", **tile, split_k=split_k)
            steps = made(spec, 64, 64, 64 * 4 * slices, multiprocessors=slices)
            assert steps.launches[-1].grid == (64 * 64 // 4 // width, 1, 1)


def test_what_is_too_large_is_refused() -> None:
    for size in ((2**31 - 4095, 1, 1), (1, 2**31, 1), (1, 1, 2**40)):
        with pytest.raises(SpecError, match=r"[MNK]=\d+ is more than mma takes; use 2147479552"):
            made(make_spec("mma"), *size)
    with pytest.raises(SpecError, match="blocks along x, more than 2147483647"):
        made(make_spec("mma"), 2**31 - 4096, 2**31 - 4096, 1)
    with pytest.raises(SpecError, match="blocks along x"):
        made(make_spec("naive"), 1, 2**40, 1)
    with pytest.raises(SpecError, match="work tiles, more than 2147418112"):
        made(make_spec("mma_tma"), 2**31 - 4096, 2**31 - 4096, 1)


@given(
    specs(("mma", "mma_tma", "wgmma")),
    st.tuples(st.integers(1, 700), st.integers(1, 700), st.integers(1, 700)),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.integers(0, 9),
)
def test_the_workspace_has_room_for_everything(
    spec: KernelSpec, size: tuple[int, int, int], aligned: tuple[bool, bool, bool], padding: int
) -> None:
    steps = made(spec, *size, Alignment(*aligned), 7, padding=padding)
    parts = []
    for launch in steps.launches:
        values = dict(launch.args)
        for side in "ab":
            at = values.get(f"{side}_packed", NULL)
            if isinstance(at, Pointer) and values[f"{side}_lines"]:
                ld = int(values[f"{side}_packed_ld"])
                assert ld * spec.dtypes.factor.size % 16 == 0
                assert ld >= values[f"{side}_length"]
                parts.append((at, int(values[f"{side}_lines"]) * ld * spec.dtypes.factor.size))
    args = main(steps, spec)
    if isinstance(args.get("partials"), Pointer):
        rows, cols = size[:2] if spec.layouts.c else size[1::-1]
        tile = spec.threadblock
        tiles = -(-rows // tile.m) * -(-cols // tile.n)
        sums = tile.m * tile.n
        if spec.stream_k:
            size_of_sum = spec.dtypes.accumulator.size
            parts.append((args["partials"], min(tiles, 7) * sums * size_of_sum))
            count = int(steps.launch(f"{spec.name}_clear").args["count"])
            parts.append((args["flags"], 4 * count))
        else:
            parts.append((args["partials"], int(args["slices"]) * tiles * sums * 4))
    end = 0
    for pointer, nbytes in parts:
        assert pointer.buffer == "workspace"
        assert pointer.offset % 256 == 0
        assert pointer.offset >= end
        end = pointer.offset + nbytes
    assert end <= steps.workspace_bytes <= end + 255


def test_layouts_with_one_line_each() -> None:
    """Every layout and alignment gives the launches that its operands need."""
    for layout in ("rrr", "rcr", "ccr", "crc", "rcc"):
        order = parse_layout(layout)
        spec = make_spec("mma", dtype="tf32", layout=layout)
        kernels = {s.kernel for s in made(spec, 64, 64, 64).launches}
        along_k = (order.a, not order.b)
        assert (f"{spec.name}_pack" in kernels) == (not all(along_k))
