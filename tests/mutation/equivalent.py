"""Mutants that no check can find: (reason, part of "kernel: `Mutant.key`").

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
_LANES = "the lanes write the rows that they would have left to the TMA"
_SPEED = "every kernel waits for the ones before it: when it starts is a matter of speed"
_BASE = "on the emulator, shared memory begins at a multiple of 1024 bytes"
_WRAPS = "a funnel shift counts its bits modulo 32"
_CHUNK = "16 bytes that hold an element of the matrix lie in its allocation"
_BEHIND = "nobody uses what is behind the end of a packed line"
_SLOWER = "`end` is never too late: more chunks than necessary are read element by element"
_ONE_ROUND = "nine slices are added up in one round; found where there are more than 32"
_FEW = (
    "slices chosen for the emulator's four multiprocessors are fewer than a block's groups; "
    "found in mma split-k, which has the same line"
)
_TURNS = "all tiles have as many steps: if these are even, it does not matter which team is first"
_UNUSED = "a team adds up sums that it does not finish, too"
_OUTSIDE = "one more column of tiles, all outside of D"
_STEP = "one more step along K, of zeros"
_ONE_PIECE = "a row of D is one piece; found in the kernel where it is three"
_ALONG_K = "lines of both operands run along K: they are equally long"
_ASKED = "that phase of `empty` needs this warp, and cannot be over: the warp waits for the data"
_SLOTS = "a team has as many slots as blocks, and begins each tile with all of them free"
_NO_PIECE = "the piece behind the last one is worked out, and not used"

_PLACE = "const int place = byte / kLine{} + swizzle<kLine>(row, byte{} / 16);"
_PIECES = tuple(
    ((" * kPieceBytes", " % kLine"), wrong) for wrong in (("", " % kLine"), (" * kPieceBytes", ""))
)

_EXPLAINED: tuple[tuple[str, str], ...] = (
    (_EMPTY, "left < 1 ? 0 :"),
    (_NO_PIECE, "-> if (w <= work) piece("),
    (_FEWER, "-> stage = stage + 1 < kStages - 1 ?"),
    (_STAGED, "kStages * Left::kBytes);"),
    (_PADDING, "kStages * kStageBytes + 16);"),
    (_ZERO, "drop: tile.clear();"),
    (_ELSEWHERE, "row0 * int(out.ld"),
    (_ELSEWHERE, "line * int(ld)"),
    (_LANES, ") { -> if (true) {"),
    (_SPEED, "drop: let_next_start();"),
    (_SPEED, "drop: if (early) let_next_start();"),
    (_SPEED, "start: if (early) let_next_start(); -> let_next_start();"),
    (_BASE, "-> const uint32_t stages = begin;"),
    (_WRAPS, "-> const int bits = first * 8;"),
    (_CHUNK, "-> if (low + 2 * kChunk <= end"),
    (_BEHIND, "-> if (low >= first && low + 2 * kChunk <= end) {"),
    (_BEHIND, "-> if (low >= first && low + 2 * kChunk <= end && chunk * kChunk <= length) {"),
    (_SLOWER, "end = source + (lines - 1) * int(ld) + length;"),
    (_SLOWER, "end = source + lines * length;"),
    (_ONE_ROUND, "slice += 2 * kAtOnce * kGroups"),
    *(
        (_FEW, f"mma_tma split-k: reduction: {line}")
        for line in (
            "for (int slice = group; slice < slices; slice += kAtOnce * kGroups) { ->",
            "if (slice + i * kGroups < slices) parts[i] = *from; ->",
            "from += kGroups * distance; ->",
            "for (int g = 0; g < kGroups; ++g) { -> for (int g = 0; g < kGroups - 1; ++g) {",
        )
    ),
    (_SPEED, "drop: if (slices > 64) let_next_start();"),
    (_TURNS, "-> turn = 1 - turn;"),
    (_UNUSED, "-> take<0, WarpTile::kM>(tile);"),
    (_OUTSIDE, "mma_tma: start: const int tiles_n = (cols + kTileN - 1) / kTileN; -> "),
    (_OUTSIDE, "mma_tma f32: start: const int tiles_n = (cols + kTileN - 1) / kTileN; -> "),
    (_OUTSIDE, "mma_tma f16: start: const int tiles_n = (cols + kTileN - 1) / kTileN; -> "),
    (_OUTSIDE, "mma_tma sliced-k: start: const int tiles_n = (cols + kTileN - 1) / kTileN; -> "),
    (_STEP, "-> const int all_steps = (depth + kTileK) / kTileK;"),
    *(
        (_ONE_PIECE, f"{kernel}: boxes: {_PLACE.format(*right)} -> {_PLACE.format(*wrong)}")
        for kernel in ("mma_tma", "mma_tma f16", "mma_tma sliced-k", "mma_tma split-k")
        for right, wrong in _PIECES
    ),
    (_ALONG_K, "mma_tma f32: packing: is_left ? left_lines : right_lines, is_left ? left_length :"),
    (_ASKED, "-> const bool ready = barrier_test(empty(stage), phase);"),
    (_SLOTS, "mma_tma sliced-k: drop: if (lane == 0) wait_for_boxes<kSlots - 1>();"),
    (_SLOTS, "mma_tma sliced-k: boxes: if (lane == 0) wait_for_boxes<kSlots - 1>(); ->"),
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


def reason(kernel: str, key: str) -> str | None:
    """Why the mutant `key` of the kernel is equivalent; None if it should be found."""
    return next((why for why, part in _EXPLAINED if part in _full(kernel, key)), None)


def unused_explanations(found: Iterable[tuple[str, str]]) -> list[str]:
    """What is explained and fits none of these kernels' mutants."""
    every = [_full(kernel, key) for kernel, key in found]
    return [part for _, part in _EXPLAINED if not any(part in key for key in every)]


def _full(kernel: str, key: str) -> str:
    return f"{kernel}: {key}"
