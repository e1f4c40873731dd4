"""The last tiles, or rows, of matrices too large to store."""

import dataclasses
import time

import pytest

from gen.compile.nvrtc import compile_cuda
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.far_tiles import far_tiles
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from tests.prove.test_verify import small
from tests.support.slow import each, sift, slow


def complaints(spec: KernelSpec, *edit: str) -> list[str]:
    source = render(spec)
    if edit:
        assert edit[0] in source.text
        source = dataclasses.replace(source, text=source.text.replace(*edit))
    module = compile_cuda(source.text, name=source.filename, arch=spec.arch)
    results = list(far_tiles(spec, module, time.perf_counter() + 60))
    assert results
    return [text for r in results for text in (*map(str, r.findings), r.message) if text]


@pytest.mark.parametrize("variant", sift(VARIANTS, ("thread_1d",)))
def test_every_kernel_is_right_at_the_end(variant: str) -> None:
    assert not complaints(small(variant, VARIANTS[variant].dtypes[0], "rrr"))


@slow
def test_clusters_are_right_at_the_end() -> None:
    assert not complaints(small("wgmma", "f16", "rcr", cluster="2x1", split_k=1))


@pytest.mark.parametrize("grid", [1, 3])
def test_few_blocks_do_not_walk_over_all_rows(grid: int) -> None:
    """Which would take hours."""
    assert not complaints(make_spec("block_1d", grid=grid))


@slow
def test_tiles_of_few_columns() -> None:
    assert not complaints(make_spec("gemv", layout="ccr", vectors=2, strip=16, dtype="i8"))


def test_more_tiles_than_a_grid_has_blocks() -> None:
    """Of 2^30 lines to pack, in slices of K."""
    assert not complaints(make_spec("mma_m16n8k8", dtype="bf16", split_k=4))


def test_tiles_of_few_rows() -> None:
    spec = make_spec("mma", dtype="f16", layout="rcr", threadblock="16x64x64", warp="16x16")
    assert not complaints(spec)


def test_a_row_that_is_counted_in_32_bits_is_found() -> None:
    spec = make_spec("block_1d", grid=3)
    assert complaints(spec, "D[c_at(row,", "D[c_at(unsigned(row),")


def test_tiles_that_are_counted_in_32_bits_are_found() -> None:
    assert complaints(make_spec("gemv"), "tile < groups * strips", "tile < int(groups * strips)")


@slow
def test_work_tiles_of_a_group_of_lines_are_more_than_32_bits_count() -> None:
    spec = make_spec("mma", threadblock="64x64x32", warp="32x32", swizzle=1024)
    assert not complaints(spec)
    assert complaints(spec, "most * tiles_n", "kGroup * tiles_n")


def test_tiles_of_a_group_that_are_counted_in_16_bits_are_found() -> None:
    spec = make_spec("mma", threadblock="64x64x32", warp="32x32", grouped=True)
    old = "const int tiles_m = (its.row_end"
    assert complaints(spec, old, old.replace("int", "unsigned short"))


@slow
def test_an_epilogue_that_takes_rows_in_32_bits_is_found() -> None:
    spec = make_spec("thread_1d", epilogue="col <= row ? x * scale[row] : row - x")
    assert not complaints(spec)
    assert complaints(spec, "aux.scale[row]", "aux.scale[unsigned(row)]")
    assert complaints(spec, "col <= row ?", "col <= int(row) ?")


@pytest.mark.parametrize("number", ["int", "unsigned"])
def test_rows_that_are_left_are_counted_in_32_bits(number: str) -> None:
    spec = make_spec("thread_tile_1d")
    found = complaints(spec, "M - row0 < kTileM", f"{number}(M - row0) < kTileM")
    assert len(found) == (2 if number == "int" else 1)
    assert all(message.startswith("in the first ") for message in found)


@pytest.mark.parametrize(
    ("variant", "options", "old", "new"),
    each(
        4,
        [
            ("skinny", {}, "tile < groups * strips", "tile < unsigned(groups * strips)"),
            (
                "skinny",
                {},
                "multiply<true>(sums, row0, col0",
                "multiply<true>(sums, row0, int(col0)",
            ),
            (
                "skinny",
                {},
                "multiply<true>(sums, row0, col0",
                "multiply<true>(sums, int(row0), col0",
            ),
            ("skinny", {}, "last = col < N ?", "last = int(col - N) < 0 ?"),
            ("gemv", {"layout": "ccr"}, "sums, row0, col0", "sums, row0, int(col0)"),
            (
                "gemv",
                {"few": "columns", "layout": "crc"},
                "col = col0 + i < N ? col0 + i : N - 1;",
                "col = int(col0 + i < N ? col0 + i : N - 1);",
            ),
        ],
    ),
)
@pytest.mark.slow
def test_few_rows_have_many_columns(
    variant: str, options: dict[str, str], old: str, new: str
) -> None:
    assert complaints(make_spec(variant, **options), old, new)
