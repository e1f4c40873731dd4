"""Mutants that no check can find: (reason, part of `Mutant.key`).

Nearly all do the same. A few are beyond what the checks try, as docs/checks.md says.
"""

from __future__ import annotations

from collections.abc import Iterable

_ROUNDS = "one more round in which every element is outside of D or of the sum"
_ROWS = "65,535 blocks along y of at most 1024 rows each: the product fits in 32 bits"
_ROOM = "an array that is larger than needed"
_SAME = "the two sides differ only where they have the same value"
_RELOAD = "the row is loaded again, with the same elements"
_BARRIER = "all threads of the block still meet at the barrier, between the same accesses"
_EMPTY = "nothing is left either way"
_FEWER = "producer and consumers use one stage less, all of them"
_STAGED = "with slices of K, D is staged only where K is one step; found in the kernel without them"
_PADDING = "what overlaps the barriers is the padding after the last row, which nobody writes"
_ZERO = "registers without a value are 0 on the emulator; the compiler need not make them so"
_ELSEWHERE = (
    "not tried with tensor maps, nor with slices of K; found in mma, which has the same line"
)
_FENCE = (
    "on the emulator, bulk copies count at an mbarrier whether or not a fence has shown it to them"
)
_LANES = "the lanes write the rows that they would have left to the TMA"

_EXPLAINED: tuple[tuple[str, str], ...] = (
    (_EMPTY, "left < 1 ? 0 :"),
    (_FEWER, "-> stage = stage + 1 < kStages - 1 ?"),
    (_STAGED, "kStages * Left::kBytes);"),
    (_PADDING, "kStages * kStageBytes + 16);"),
    (_ZERO, "drop: tile.clear();"),
    (_ELSEWHERE, "row0 * int(out.ld"),
    (_ELSEWHERE, "line * int(ld)"),
    (_FENCE, 'drop: asm volatile("fence.mbarrier_init'),
    (_LANES, ") { -> if (true) {"),
    (_ROWS, "int(blockIdx.y) * kThreadsY"),
    (_ROWS, "int(blockIdx.y) * kTile"),
    (_ROWS, "int(gridDim.y) * kThreadsY"),
    (_ROWS, "int(gridDim.y) * kTile"),
    (_ROOM, "-> __shared__ accumulator_t tile_a[(kTile + 1)]"),
    (_ROOM, "-> __shared__ accumulator_t tile_a[kTile][(kTile + 1)]"),
    (_ROOM, "-> __shared__ accumulator_t tile_b[(kTile + 1)]"),
    (_ROOM, "-> __shared__ accumulator_t tile_b[kTile][(kTile + 1)]"),
    (_ROOM, "-> __shared__ input_t row_of_a[(kChunk + 1)]"),
    (_ROOM, "-> accumulator_t sum[(kRowsPerThread + 1)]"),
    (_ROOM, "-> accumulator_t sum[kRowsPerThread][(kCoarsen + 1)]"),
    (_ROUNDS, "row0 <= M;"),
    (_ROUNDS, "row0 < M + 1;"),
    (_ROUNDS, "col0 <= N;"),
    (_ROUNDS, "col0 < N + 1;"),
    (_ROUNDS, "k0 <= K;"),
    (_ROUNDS, "k0 < K + 1;"),
    (_SAME, "-> const int count = K - k0 <= kChunk ?"),
    (_SAME, "-> const int count = K - k0 < (kChunk + 1) ?"),
    (_SAME, "-> const int count = K - 1 - k0 < kChunk ?"),
    (_RELOAD, "K > (kChunk - 1)"),
    (_RELOAD, "K + 1 > kChunk"),
    (_BARRIER, "move barrier up: __syncthreads(); -> }"),
    (_BARRIER, "move barrier down: __syncthreads(); -> }"),
    (_BARRIER, "move barrier up: __syncthreads(); -> if (col0 == 0"),
)


def reason(key: str) -> str | None:
    """Why the mutant called `key` is equivalent; None if it should be found."""
    return next((why for why, part in _EXPLAINED if part in key), None)


def unused_explanations(keys: Iterable[str]) -> list[str]:
    """What is explained and is no part of any mutant's key."""
    every = list(keys)
    return [part for _, part in _EXPLAINED if not any(part in key for key in every)]
