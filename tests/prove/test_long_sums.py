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
from tests.support.slow import each, slow

# Small tiles, which take less long.
COOPERATIVE: dict[str, Any] = {"threadblock": "128x64x64", "stages": 4}
PINGPONG: dict[str, Any] = {"threadblock": "64x64x64", "schedule": "pingpong", "stages": 4}
TMA: dict[str, Any] = {"threadblock": "64x64x64", "warp": "32x32"}

LOOP = "for (index_t k = 0; k < K; ++k) {"
STEPS = "const int steps = int("
PRODUCER = "for (int n = 0; n < steps; ++n) {\n        barrier_wait(empty(stage)"
CONSUMER = "for (int n = 0; n < steps; ++n) {\n      barrier_wait(full(stage)"
OTHER_CONSUMER = "for (int n = 0; n < steps; ++n) {\n      // While K block kb"
START = "int stage = 0, phase = 0;"
NEXT = "stage = stage + 1 < kStages ? stage + 1 : 0;\n    if (stage == 0) phase ^= 1;"
AT = "const int k = n * kTileK;"
EMPTY = "barrier_wait(empty(stage), phase ^ 1);  // true at once the first time round\n"
EXPECT = "barrier_expect(full(stage), bytes);\n"
COPY = "copy_box(a, a_boxes, k, row0, full(stage));"
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
    each(12, [
        ("naive", {}, 4),
        ("block_1d", {"dtype": "i8", "layout": "ccc"}, 4),  # threads without a column
        ("shared_row", {}, 4),  # a loop in the loop
        ("shared_row", {"chunk": 100}, 4),
        ("tiles", {}, 4),
        ("gemv", {"few": "columns"}, 4),
        ("multistage", {}, 4),  # stages
        ("simt", {"sliced_k": 2, "threadblock": "64x64x16"}, 2),  # stages and phases
        ("mma", {}, 2),
        ("skinny", {}, 4),
        ("thread_tile_2d", {"epilogue": "linear_bias_gelu", "batched": True}, 4),
        ("naive", {"epilogue": "silu(x) * up[row, col] + 1", "dtype": "f64"}, 4),
        # Warps that copy, and warps that multiply.
        ("wgmma", COOPERATIVE, 2),
        ("wgmma", PINGPONG | {"batched": True}, 2),
        ("wgmma", {"dtype": "e4m3_f32", "layout": "rcr", "promote": 512}, 2),
        ("wgmma", {"threadblock": "128x128x64", "cluster": "2x1", "epilogue": "linear_bias"}, 2),
        ("mma_tma", TMA, 2),
        ("mma_tma", {"dtype": "f64", "layout": "rcr"}, 2),
        # Slices of K, and a group.
        ("mma", {"split_k": 3}, 1),
        ("simt", {"split_k": 2, "threadblock": "64x64x8"}, 1),
        ("wgmma", COOPERATIVE | {"split_k": 2}, 1),
        ("mma", {"grouped": True}, 2),
        ("mma", {"grouped_k": True, "layout": "crr"}, 2),
        ("wgmma", PINGPONG | {"grouped": True}, 2),
        ("mma_tma", TMA | {"grouped_k": True, "layout": "crr"}, 2),
    ]),
)  # fmt: skip
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
        pytest.param(  # where lines are units
            "skinny", "const index_t last = col", "const int last = col", marks=pytest.mark.slow
        ),
        pytest.param(
            "tiles", "const bool in_a = row < M && k0 + x < K;",
            "const bool in_a = row < M && int(k0) + x < K;", marks=pytest.mark.slow,
        ),
        pytest.param(
            "shared_row", "K - k0 < kChunk ? int(K - k0) : kChunk", "min(int(K - k0), kChunk)",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_numbers_of_32_bits_are_wrong(variant: str, old: str, new: str) -> None:
    tunables: dict[str, Any] = {"chunk": 100} if variant == "shared_row" else {}
    source = plant(make_spec(variant, **tunables), (old, new))
    assert is_wrong(results(source))


@pytest.mark.parametrize("epilogue", ["linear", "linear_bias_gelu", "x + row"])
def test_sums_that_end_before_anything_is_skipped(epilogue: str) -> None:
    edit = (LOOP, "for (int k = 0; k < int(K); ++k) {")
    assert is_wrong(results(plant(make_spec("naive", epilogue=epilogue), edit)))


@pytest.mark.slow
def test_sums_that_are_wrong_where_rounds_are_skipped_for_a_trial() -> None:
    spec = make_spec(
        "wgmma", dtype="e4m3_f16", layout="rcr", threadblock="128x128x128", stages=2, promote=128
    )
    parts = "for (; n + 1 < steps; n += 2) {"
    few = parts.replace("< steps", "< (steps < 700 ? steps : 700)")
    assert is_wrong(results(plant(spec, (parts, few))))


@slow
@pytest.mark.parametrize(
    ("variant", "old", "new"),
    [
        (
            "naive", LOOP, "for (index_t k = 0; k < (K < 5000000000 ? K : 5000000000); ++k) {",
        ),
        ("tiles", TILES, TILES.replace("k0 < K", "int(k0) < K")),
    ],
)  # fmt: skip
def test_loops_that_do_not_end(variant: str, old: str, new: str) -> None:
    # Of rounds that the compiler unrolls, only that they take too long is told.
    told = "ran longer than 10 seconds" if variant == "naive" else "goes on behind the end of K"
    with pytest.raises(BudgetError, match=f"{told} at CUDA line"):
        results(plant(make_spec(variant), (old, new)))


@slow
@pytest.mark.parametrize(
    "loop",
    [
        # From both ends, in two halves, and in parts of 4096.
        "for (index_t i = 0; i < K; ++i) { const index_t k = i % 2 ? K - 1 - i / 2 : i / 2;",
        "for (int half = 0; half < 2; ++half) for (index_t k = half ? K / 2 : 0; "
        "k < (half ? K : K / 2); ++k) {",
        "for (index_t k0 = 0; k0 < K; k0 += 4096) "
        "for (index_t k = k0; k < K && k < k0 + 4096; ++k) {",
    ],
)
def test_nothing_is_said_of_other_loops(loop: str) -> None:
    assert not is_wrong(results(plant(make_spec("naive"), (LOOP, loop))))


@slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (PRODUCER, PRODUCER.replace("int n", "unsigned short n")),
        (CONSUMER, CONSUMER.replace("int n", "short n")),
        (AT, AT.replace("n *", "(unsigned short)(n) *")),
        (AT, "const int k = n * kTileK << 1 >> 1;"),
        (STEPS, STEPS.replace("int(", "(unsigned short)(")),
    ],
)
def test_numbers_of_few_bits_in_warps_with_loops_of_their_own(old: str, new: str) -> None:
    assert is_wrong(results(plant(make_spec("wgmma", **COOPERATIVE), (old, new))))


@slow
@pytest.mark.parametrize(
    ("variant", "tunables", "edits"),
    [
        # A division by 3, as a product of 32 bits.
        ("mma_tma", TMA | {"stages": 3},
         [(START, START + " unsigned count = 0;"),
          (NEXT, "const unsigned times = ++count * 43691u >> 17; stage = count - 3 * times; "
           "phase = times & 1;")]),
        ("mma_tma", TMA,
         [(OTHER_CONSUMER, OTHER_CONSUMER.replace("int n", "unsigned short n"))]),
        ("wgmma", COOPERATIVE | {"grouped": True},
         [(PRODUCER, PRODUCER.replace("int n", "unsigned short n"))]),
        (
            "mma", {"split_k": 3}, [("index_t(i * 8 + k) * ldb", "int((i * 8 + k) * ldb)")],
        ),
        ("mma", {"grouped": True}, [("index_t(i * 8 + k) * ldb", "int((i * 8 + k) * ldb)")]),
    ],
)  # fmt: skip
def test_products_and_counts_of_few_bits(
    variant: str, tunables: dict[str, Any], edits: list[tuple[str, str]]
) -> None:
    assert is_wrong(results(plant(make_spec(variant, **tunables), *edits)))


@slow
@pytest.mark.parametrize(
    ("variant", "tunables"),
    [
        ("mma", {"split_k": 0}),
        ("simt", {"split_k": 0}),
        ("mma", {"split_k": 100}),
        ("wgmma", {"split_k": 40}),
        ("mma_tma", {"split_k": 0}),
    ],
)
def test_many_slices(variant: str, tunables: dict[str, Any]) -> None:
    """Of which the first and the last one run."""
    spec = make_spec(variant, **tunables)
    found = results(render(spec))
    assert found
    assert not is_wrong(found)


@pytest.mark.slow
def test_where_slices_begin_in_32_bits() -> None:
    even = (
        "first = slice * each + (slice < more ? slice : more);\n"
        "  last = first + each + (slice < more ? 1 : 0);"
    )
    source = plant(
        make_spec("mma", dtype="f64", split_k=0, threadblock="64x64x16", warp="32x32", stages=3),
        (even, "first = slice * steps / slices; last = (slice + 1) * steps / slices;"),
    )
    with pytest.raises(BudgetError):
        results(source)


@pytest.mark.slow
def test_slices_that_do_not_end() -> None:
    edit = ("const int each = steps", "const unsigned short each = steps")
    with pytest.raises(BudgetError, match="goes on behind the end of K at CUDA line"):
        results(plant(make_spec("wgmma", **COOPERATIVE, split_k=2), edit))


@slow
@pytest.mark.parametrize(
    "edits",
    [
        [("#pragma unroll 1\n    " + CONSUMER, "#pragma unroll 2\n    " + CONSUMER)],
        [("#pragma unroll 1\n      " + PRODUCER, "#pragma unroll 3\n      " + PRODUCER)],
        [(EMPTY, ""), (EXPECT, ""), (COPY, EMPTY + EXPECT + COPY)],
        [(START, START + " unsigned count = 0;"),
         (NEXT, "++count; stage = count % kStages; phase = count / kStages % 2;")],
        [(CONSUMER, CONSUMER.replace("(int n = 0; n < steps; ++n) {",
                                     "(int left = steps; left > 0; --left) {"
                                     "const int n = steps - left;"))],
    ],
)  # fmt: skip
def test_other_ways_to_take_turns_are_right(edits: list[tuple[str, str]]) -> None:
    found = results(plant(make_spec("wgmma", **COOPERATIVE), *edits))
    assert len(found) == 2
    assert not is_wrong(found)


@pytest.mark.parametrize(
    ("tunables", "old", "new"),
    [
        # From the end, and for the producer in two halves, and in parts of 512.
        ({}, AT, "const int k = (steps - 1 - n) * kTileK;"),
        pytest.param(
            {}, PRODUCER, "for (int half = 0; half < 2; ++half) "
            "for (int n = half ? steps / 2 : 0; "
            + PRODUCER.replace("for (int n = 0; n < steps;", "n < (half ? steps : steps / 2);"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {}, PRODUCER, "for (int n0 = 0; n0 < steps; n0 += 512) "
            + PRODUCER.replace("n = 0; n < steps;", "n = n0; n < steps && n < n0 + 512;"),
            marks=pytest.mark.slow,
        ),
        # Slices that take turns, step by step.
        pytest.param(
            {"split_k": 2}, AT, "const int k = ((n - first) * 2 + w / tiles_d) * kTileK;",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_nothing_is_said_of_other_loops_of_warps(
    tunables: dict[str, Any], old: str, new: str
) -> None:
    assert not is_wrong(results(plant(make_spec("wgmma", **COOPERATIVE, **tunables), (old, new))))


@slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (AT, "const int k = n * kTileK & 0xffff;"),
        ("(K + kTileK - 1) / kTileK", "(K + (K > 65536 ? 0 : kTileK - 1)) / kTileK"),
    ],
)
def test_counts_of_16_bits_are_wrong(old: str, new: str) -> None:
    """A sum of twice as many products is wrong, too: so one of them runs from end to end."""
    assert is_wrong(results(plant(make_spec("wgmma", **COOPERATIVE), (old, new))))


def test_kernels_that_are_left_out() -> None:
    assert why_not(make_spec("mma", split_k=133))
    assert not results(render(make_spec("wgmma", dtype="f32_6xbf16")))  # packs its operands
