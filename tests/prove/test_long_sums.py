"""Sums beyond 32 bits, of which the emulator skips all but the ends."""

from __future__ import annotations

from typing import Any

import pytest

from gen.compile import nvrtc
from gen.errors import BudgetError
from gen.kernels.registry import make_spec
from gen.prove.far_indices import FarResult
from gen.prove.long_sums import long_sums, why_not
from gen.source.render import Source, render
from tests.prove.test_defects import plant

LOOP = "for (index_t k = 0; k < K; ++k) {"
TILES = "for (index_t k0 = 0; k0 < K; k0 += kTile) {"


def results(source: Source) -> list[FarResult]:
    """What a file's kernel does with long sums."""
    assert source.spec is not None
    module = nvrtc.compile_cuda(source.text, name="kernel.cu", arch=source.spec.arch)
    return list(long_sums(source.spec, module))


def is_wrong(found: list[FarResult]) -> bool:
    return any(result.findings or result.message for result in found)


@pytest.mark.parametrize(
    ("variant", "tunables", "count"),
    [
        ("naive", {}, 4),
        ("block_1d", {"dtype": "i8", "layout": "ccc"}, 4),  # threads without a column
        ("shared_row", {}, 4),  # a loop in the loop
        ("shared_row", {"chunk": 100}, 4),
        ("tiles", {}, 4),
        ("gemv", {"few": "columns"}, 4),
        ("multistage", {}, 4),  # stages
        ("simt", {"sliced_k": 2, "threadblock": "64x64x16"}, 2),  # stages and phases
        ("mma", {}, 1),
        ("skinny", {}, 4),
        ("thread_tile_2d", {"epilogue": "linear_bias_gelu", "batched": True}, 4),
        ("naive", {"epilogue": "silu(x) * up[row, col] + 1", "dtype": "f64"}, 4),
    ],
)
def test_kernels_add_up_both_ends(variant: str, tunables: dict[str, Any], count: int) -> None:
    found = results(render(make_spec(variant, **tunables)))
    assert len(found) == count
    assert not is_wrong(found)
    assert found[0].shape.k > 2**31 - 5000


@pytest.mark.parametrize(
    ("variant", "old", "new"),
    [
        ("naive", "static_cast<accumulator_t>(A[a_at(row, k, lda)])",
         "static_cast<accumulator_t>(A[a_at(row, unsigned(k), lda)])"),
        ("tiles", "const bool in_a = row < M && k0 + x < K;",
         "const bool in_a = row < M && int(k0) + x < K;"),
        pytest.param(
            "shared_row", "K - k0 < kChunk ? int(K - k0) : kChunk", "min(int(K - k0), kChunk)",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_numbers_of_32_bits_are_wrong(variant: str, old: str, new: str) -> None:
    tunables = {"chunk": 100} if variant == "shared_row" else {}
    source = plant(make_spec(variant, **tunables), (old, new))
    assert is_wrong(results(source))


@pytest.mark.parametrize("epilogue", ["linear", "linear_bias_gelu", "x + row"])
def test_sums_that_end_before_anything_is_skipped(epilogue: str) -> None:
    edit = (LOOP, "for (int k = 0; k < int(K); ++k) {")
    assert is_wrong(results(plant(make_spec("naive", epilogue=epilogue), edit)))


@pytest.mark.parametrize(
    ("variant", "old", "new"),
    [
        ("naive", LOOP, "for (index_t k = 0; k < (K < 5000000000 ? K : 5000000000); ++k) {"),
        ("tiles", TILES, TILES.replace("k0 < K", "int(k0) < K")),
    ],
)
def test_loops_that_do_not_end(variant: str, old: str, new: str) -> None:
    with pytest.raises(BudgetError, match="goes on behind the end of K at CUDA line"):
        results(plant(make_spec(variant), (old, new)))


@pytest.mark.parametrize(
    "loop",
    [
        # From both ends, in two halves, and in parts of 4096.
        "for (index_t i = 0; i < K; ++i) { const index_t k = i % 2 ? K - 1 - i / 2 : i / 2;",
        "for (int half = 0; half < 2; ++half) for (index_t k = half ? K / 2 : 0; "
        "k < (half ? K : K / 2); ++k) {",
        pytest.param(
            "for (index_t k0 = 0; k0 < K; k0 += 4096) "
            "for (index_t k = k0; k < K && k < k0 + 4096; ++k) {",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_nothing_is_said_of_other_loops(loop: str) -> None:
    assert not is_wrong(results(plant(make_spec("naive"), (LOOP, loop))))


def test_kernels_with_several_loops_are_left_out() -> None:
    assert why_not(make_spec("wgmma"))
    assert why_not(make_spec("mma", split_k=3))
