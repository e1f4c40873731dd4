"""Mutants that no check can find: (reason, part of "kernel: `Mutant.key` #1").

The number counts mutants with the same key.
Nearly all do the same. A few are beyond what the checks try, as docs/checks.md says.
"""

from __future__ import annotations

from collections.abc import Iterable

_ROUNDS = "one more round in which every element is outside of D or of the sum"
_WALKED = "columns that threads walk over, beyond 2^31: as docs/checks.md says"
_SMALL = (
    "a count that fits: a chunk's elements, staged rows, blocks that share a line, a tile's rows"
)
_SIDES = "M, N and K are at most 2^31 - 4096: what counts lines in units of 32 or less fits"
_STEPS = "more steps along K than a short counts: K beyond 33,000, as docs/checks.md says"
_MORE_THAN_COUNTERS = (
    "K beyond 2^25, of a loop that changes more than counters there, as docs/checks.md says"
)
_NONE = "for K = 0 something is loaded that nobody uses"
_ZEROS = (
    "the operand is always packed: behind its K there are zeros, and lines that D does not have"
)
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
_BEHIND = "nobody uses what is behind the end of a packed line"
_SLOWER = "`end` is never too late: more chunks than necessary are read element by element"
_ONE_ROUND = "nine slices are added up in one round; found where there are more than 128"
_FEW = (
    "slices chosen for the emulator's four multiprocessors are fewer than a block's groups; "
    "found in mma split-k, which has the same line"
)
_FEW_SLICES = "the slices are added up in one round; found in mma split-k, which has more of them"
_NOBODY_WAITS = "where K is 0 nobody waits for a stage to be handed back"
_TURNS = "all tiles have as many steps: if these are even, it does not matter which team is first"
_UNUSED = "a team adds up sums that it does not finish, too"
_OUTSIDE = "one more column or row of tiles, all outside of D"
_AS_MULTIPROCESSORS = "there are no more slices than multiprocessors, of which no GPU has 256"
_STEP = "one more step along K, of zeros"
_ALONG_K = "lines of both operands run along K: they are equally long"
_ASKED = "that phase of `empty` needs this warp, and cannot be over: the warp waits for the data"
_ALIKE = "a permutation that writers and readers share: it only keeps them from bank conflicts"
_ONE_PANEL = "64 columns of B are one panel; found in mma_tma f16, where there are two"
_ONE_EACH = "64 rows of A, or columns of B, are one panel; found in wgmma split-k, where B has two"
_BRANCH = "a barrier that keeps a branch: without it ptxas makes slower code of the same results"
_AGAIN = "the same chunks are read again, at each k"
_NO_SUMS = "zeros are on their way to where no sums are; found in simt, where there are some"
_ROTATED = "each column's tiles in another order, each of them once"
_OVERWRITTEN = "the rows before are copied to the same place first, and overwritten"
_SLOTS = "a team has as many slots as blocks, and begins each tile with all of them free"
_ONE_GROUP = "one warpgroup has all 64 rows; found in wgmma, where there are two"
_CLIPPED = "a tile outside of D is computed, and nothing of it is stored: as right, and slower"
_SWAPPED = "each of two blocks copies the part of the other one"
_SHARES = "ranges differ in length: as right, and slower"
_WHOLE_TILE = "the block that finishes a tile computes all of it: as right, and slower"
_NOBODYS = "the last block gives nothing: nobody looks at its flags"
_IN_ORDER = "blocks run in the order of their numbers here, so that flags are set when looked at"
_NO_PIECE = "the piece behind the last one is worked out, and not used"

_FITS = "sides are at most 2^31 - 4096, blocks fewer than 2^31: the number fits in an int"
_LARGE_TILES = "a matrix has at most 2^44 elements: so many of a cluster's tiles fit in 32 bits"
_PRIME = "2^31 - 1 is prime: there are no grids of so many tiles"
_NOTHING_LEFT = "a limit and what is just beyond it become the same"
_MORE = "the launcher allows more shared memory than the launch asks for"
_NOT_FLOAT = "alpha and beta are integers already"
_WITHIN = (
    "rounded toward zero before it is rounded to fewer bits: within the bound, as docs/checks.md "
    "says"
)
_NAN_ANYWAY = "NaN times anything is NaN"
_BY_ELEMENT = "lines are read element by element: as right, and slower"
_WHOLE = "the last step, which is whole, is read as one that may not be"
_SPARE = "what is asked for is one element more than chunks of lines across K reach beyond a step"
_UNITS = "aligned lines, and the lanes' places in them, are whole units: nothing is between"
_UNREAD = "the compiler leaves out what is read and not used"
_ONE_ROW = "of a single row no other one begins anywhere; a single column is never whole"
_STRIDES = "another number of blocks shares the lines: they stride over what is beyond"
_TWICE = "blocks that are left over pack again, with the same result, what others pack"
_PROMOTED = "promoted twice as often: as right, and slower"
_NEVER = "there are few tiles where K is cut into slices, and few slices"
_SHIFTED_C = "C is not read there"
_LATER = "handed back or on later: as right, and slower"
_NO_STEPS = "another arrival where K is 0, and so in all tiles: the producer waits for none"
_ONE_GROUP = "one warpgroup multiplies, whose number is 0; found where there are two"
_REGISTERS = "promotion takes registers alone, and nothing of the stage"
_ENOUGH = (
    "as many registers as there are hold the sums, and ptxas makes do with them: slower at most"
)
_NO_PRODUCT = "0 times any integer is 0: it does not matter what is in shared memory"
_BEHIND_TILE = "a thread's next column is behind its tile, and so outside of D"
_ONE_VECTOR = "a thread has one vector of a row: there is no second round"
_NOT_MULTIPLIED = "zeros are copied to stages that nobody multiplies any more"
_PIECES = "K is a multiple of what a lane reads at once: no piece begins at K - 1"
_WHOLE_STEPS = "k0 is a multiple of a step: no such number is between the two"
_AS_MANY_LINES = "the threads copy no more lines at once than a step has"
_NO_GPU = "no GPU has the memory for partial sums of 2^36 bytes a slice"
_BLOCKS = "what a thread acquires, its block has seen, as docs/checks.md says"
_MOST_GROUPS = "2^31 - 65,536 matrices to pack, which takes hours here"
_NOWHERE = "what is added or loaded to behind an array of registers, the compiler leaves out"
_EIGHTS = "a work tile's sums are added up by a multiple of 8 blocks"
_EARLY = "what comes to L2 early is a matter of speed"
_EACH_ITS_OWN = "there are no more warps than this"

# Operands that run across K: what is left of a side of D, that of a tile, elements of a chunk.
_ACROSS = (
    ("a", "rows - row0", "kTileM", 8),
    *(("b", "cols - col0", "kTileN", n) for n in (2, 8)),
)
_TILES = "const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (cols + kTileN - 1) / kTileN;"
_TMA = ("mma_tma", "mma_tma f32", "mma_tma f16", "mma_tma sliced-k", "mma_tma split-k")
_WGMMA = ("wgmma", "wgmma split-k", "wgmma cluster")
_PART = "const uint32_t over = work % gridDim.x, more = range * over, part"
_STEP_OF = "step = steps"
_DESCRIPTOR = "const uint64_t begin = address >> 4, below = 8 * line >> 4, beside = panel >> 4;"
_ARGUMENTS = "plan.M, plan.N, K, alpha, a, plan.a_ld, b, plan.b_ld, "
_FINISH = "finish_rows(staging, tile, out, "
_LEFT = "left = room > 0"
_WAIT_FOR_ONE = 'if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory"); ->'

_EXPLAINED: tuple[tuple[str, str], ...] = (
    *(
        (_FITS, f"{kernel}: plan: {line}")
        for kernel, lines in (
            ("thread_1d", ("const index_t grid_x = blocks",)),
            ("naive", ("const index_t grid_y = rows",)),
            ("gemv", ("const index_t grid_x = tiles",)),
            ("block_1d", ("const index_t grid_x = M < 3",)),
            ("shared_row", ("const index_t grid_x = M < 7",)),
            ("gemv batched", ("const index_t products = batch - first",)),
            ("mma grouped", ("index_t places =", "index_t blocks =")),
            ("mma split-k", ("index_t slices = steps < 9",)),
            ("mma f16 split-k", ("index_t slices = steps < 3",)),
            ("mma i8", ("index_t a_ld = packs_a ?",)),
            ("mma_tma", ("index_t blocks =",)),
            ("wgmma stream-k", ("index_t sharing =", "index_t flags =")),
            ("wgmma cluster", ("index_t clusters =", "index_t blocks =")),
            ("wgmma grouped-k", ("index_t above = 0", "const index_t lines =")),
            (
                "mma tf32",
                ("index_t b_ld = packs_b ?",),
            ),
            (
                "simt sliced-k",
                (
                    "index_t steps =",
                    "index_t most =",
                    "index_t fit =",
                    "index_t wanted =",
                    "index_t each =",
                    "index_t slices =",
                    "index_t split =",
                    "index_t bytes =",
                    "index_t reduce_blocks =",
                    "*bytes = size_t(plan.bytes); -> *bytes = int(",
                ),
            ),
        )
        for line in lines
    ),
    *(
        (_FITS, f"-> const int {name} = ")
        for name in (
            *("a_lines", "b_lines", "a_count", "b_count", "a_box", "b_box"),
            *("pack_blocks", "pack_z", "pack_count"),
        )
    ),
    (_LARGE_TILES, "wgmma cluster: plan: index_t tiles ="),
    (_PRIME, "-> constexpr size_t kMost = 2147483646;"),
    *((_PRIME, f"{simt}: plan: if (size_t(plan.tiles) > kMost)") for simt in ("simt", "simt held")),
    (_NOTHING_LEFT, "-> const index_t grid_x = blocks < 2147483648 ?"),
    (_NOTHING_LEFT, "-> const index_t grid_x = blocks < 2147483646 ?"),
    (_NOTHING_LEFT, "-> const index_t grid_x = tiles < 2147483648 ?"),
    (_NOTHING_LEFT, "-> const index_t grid_y = rows < 65536 ?"),
    (_MORE, "SharedMemorySize, 49152);"),
    (
        _NOT_FLOAT,
        "naive i8: argument: M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, D, ldd,",
    ),
    (
        _NOT_FLOAT,
        f"mma i8: argument: {_ARGUMENTS}beta, C, ldc, D, ldd, bias); -> {_ARGUMENTS}scalar_t(int(",
    ),
    (_NEVER, "simt sliced-k: refusal: if (plan.reduce_blocks > 2147483647)"),
    (_NEVER, "mma_tma split-k: refusal: if (plan.reduce_blocks > 2147483647)"),
    (_EIGHTS, "-> if (plan.reduce_blocks > 2147483646)"),
    (_EIGHTS, "-> if (plan.reduce_blocks > 2147483648)"),
    *((_WITHIN, f"mma: rounding: {line}") for line in ("scalar_t x = out", "x += out", "y += out")),
    (_WITHIN, "mma batched: rounding: if (beta != 0) x += beta * scalar_t(C["),
    *(
        (
            _SHIFTED_C,
            f"{simt}: beta: if (out.beta != 0) x += out.beta * d.of[e]; -> if (__float_as_uint(",
        )
        for simt in ("simt", "simt held")
    ),
    (_NAN_ANYWAY, "gemv batched: beta: if (beta != 0) C += product * stride_c; -> if ((beta < 0"),
    (_SHIFTED_C, "gemv batched: beta: if (beta != 0) C += product * stride_c; -> if (__float_as_"),
    (
        _PIECES,
        "skinny: swap: multiply<true>(sums, row0, col0, M, N, K, A, lda, B, ldb); -> multiply"
        "<true>(sums, row0, col0, M, N, K - 1,",
    ),
    (_BY_ELEMENT, "skinny: edge: if constexpr (kAligned) { -> if constexpr (false) {"),
    (_SAME, "gemv: comparison: const index_t last = N - kCount, col = col0 + first < last ? col0"),
    (_WHOLE, "add(k0, true); -> for (; K - k0 > kDepth; k0 += kStep) add(k0, true);"),
    (_BY_ELEMENT, "slim: swap: if (is_inside(k, K)) { -> if (is_inside(k, K - 1)) {"),
    (
        _BY_ELEMENT,
        "inside = is_inside(k, K); -> const bool inside = is_inside(k, K - 1)",
    ),
    (_SPARE, "slim: swap: if (is_inside(k, K)) { -> if (is_inside(k, K + 1)) {"),
    (_BY_ELEMENT, "-> if (first > 0 && first + kWidth <= wanted) {"),
    (_BY_ELEMENT, "-> if (first >= 0 && first + (kWidth + 1) <= wanted) {"),
    (
        _BY_ELEMENT,
        "skinny: arithmetic: reinterpret_cast<size_t>(A) % 16 == 0 && lda % kWidth == 0 && -> "
        "reinterpret_cast<size_t>(A) % 16 == 0 && lda / kWidth",
    ),
    (_BY_ELEMENT, "-> if (aligned && count > kVector) {"),
    (
        _NO_PRODUCT,
        f"mma i8: epilogue: {_FINISH}out.beta != 0, bias, lane); -> {_FINISH}true,",
    ),
    (_BEHIND_TILE, "thread_tile_2d: comparison: for (int j = 0; j < kThreadN; ++j) { ->"),
    *(
        (why, f"{kernel}: {operator}: for (int j = 0; j < kThreadN; j += kVector) {{ ->")
        for kernel in ("vectorized", "warp_tiled", "multistage")
        for why, operator in ((_BEHIND_TILE, "comparison"), (_ONE_VECTOR, "accumulation"))
    ),
    *(
        (_NOT_MULTIPLIED, f"multistage: {operator}: if (k0 < K) {{ -> if ({condition}) {{")
        for operator, condition in (
            ("comparison", "k0 <= K"),
            ("swap", "k0 < K + 1"),
            ("edge", "true"),
        )
    ),
    (_WHOLE_STEPS, "-> const bool ready = k0 >= (kStages - 1) + kTileK;"),
    (_AS_MANY_LINES, f"simt: edge: {_LEFT} && line < kTileK ? depth - line : 0; -> {_LEFT} ?"),
    *(
        (_EARLY, f"const int a_matrix = {a}, b_matrix = {b}; #1")
        for a, b in (
            *((of_a, "b_count > 1 ? product : 0") for of_a in ("product", "0")),
            *(("a_count > 1 ? product : 0", of_b) for of_b in ("product", "0")),
        )
    ),
    (_UNITS, "-> multiply<true>(sums, row0, col0, M, N - 1, K, A, lda, B, ldb);"),
    (_SIDES, "-> const input_t* a = A + uint32_t(row0) * lda"),
    (_NO_GPU, "simt sliced-k: narrow: const index_t distance = index_t(tiles_m)"),
    (_NO_GPU, "-> const index_t begin = uint32_t(blockIdx.x) * kReduceWidth;"),
    *(
        (_SIDES, f"-> for (uint32_t {start}")
        for start in (
            "i = blockIdx.z / 2; i < count;",
            "i = blockIdx.z - 1; i < b_count;",
        )
    ),
    (_MOST_GROUPS, "-> for (int i = blockIdx.z - 1; i < b_count;"),
    (_MOST_GROUPS, "-> for (int i = blockIdx.z / 2; i < count;"),
    (_FITS, "-> const index_t distance = int(tiles_m) * tiles_n * batch * kFours;"),
    (_FITS, "-> const index_t distance = uint32_t(tiles_m) * tiles_n * batch * kFours;"),
    (_FITS, "-> for (uint32_t i = threadIdx.x; i < count; i += 256) flags[i] = 0;"),
    (_FITS, "-> for (int i = threadIdx.x; i < count; i += 256) flags[i] = 0;"),
    (_BY_ELEMENT, "sizeof(VectorOf<T>) == 0 && ld / kVector == 0;"),
    (_OUTSIDE, "strips = (N + 1 + kCols - 1) / kCols;"),
    (_OUTSIDE, "strips = (N + kCols + 1) / kCols;"),
    (_OUTSIDE, "-> for (index_t tile = blockIdx.x; tile <= groups * strips;"),
    (_UNITS, "-> multiply<kWidth>(sums, row0, col0, M, N - 1, K, A, lda, B, ldb);"),
    (_SHIFTED_C, "mma batched: epilogue: if (beta != 0) C += product * stride_c; -> if (true)"),
    (_MORE_THAN_COUNTERS, "-> const int lines = left, above = kAbove - lines"),
    (_NOWHERE, "gemv: comparison: for (int i = 0; i < kRows; ++i) { ->"),
    *(
        (_NOWHERE, f"gemv columns: {kind}: for (int n = 0; n < kCols; n += kCount) {{ ->")
        for kind in ("comparison", "sizes")
    ),
    (_STEPS, "-> for (; n < short(last); n += kTeams) {"),
    (_BLOCKS, "wgmma stream-k: stream: flag = flags + warp; -> flag = flags + warp / 2;"),
    *((_WITHIN, f"mma_tma: rounding: {x} += out.beta *") for x in "xy"),
    (_BY_ELEMENT, "-> struct alignas(kVector + sizeof(T)) VectorOf {"),
    (_BY_ELEMENT, "-> return aligned && (count >= kWidth);"),
    (_STEPS, "-> for (; n < (unsigned short)(last); n += kTeams) {"),
    (_OUTSIDE, "mma grouped: start: const int tiles_n = int((N + kTileN - 1) / kTileN), lane"),
    (_UNITS, "-> const uint4 read = k < K - 1 ?"),
    (_UNITS, "-> const index_t last = col < N - 1 ? K : 0;"),
    (_UNITS, "-> const index_t last = col < N ? K - 1 : 0;"),
    (_ROOM, "-> uint32_t b[(kWidth + 1)][kFragments]"),
    (_SAME, "-> a_lines[i] = A + (row < M - 1 ? row : M - 1) * lda;"),
    (_UNREAD, "-> for (int d = 0; d <= kWidth; ++d, from += ldb) {"),
    (_UNREAD, "-> for (int d = 0; d < (kWidth + 1); ++d, from += ldb) {"),
    (_UNREAD, "-> for (int e = 0; e <= kPiece; ++e) {"),
    (_ROUNDS, "k0 += 1 * kWarps * kSlab) {"),
    (_ROUNDS, "k0 += kSlabs * kWarps + kSlab) {"),
    (_WALKED, "block_1d: narrow: for (index_t col = threadIdx.x; col < N; col += kThreads) {"),
    (_WALKED, "shared_row: narrow: for (index_t col0 = 0; col0 < N; col0 += kThreads) {"),
    (_WALKED, "shared_row: narrow: if (col < N) epilogue("),
    (_ONE_ROW, "mma: wide: const bool aligned = is_aligned(out.D, out.ldd) && col0"),
    (_STRIDES, "-> const index_t parts = length / ("),
    (_STRIDES, "-> const index_t parts = (length - kChunk) / ("),
    (_TWICE, "kAcross; line < lines && first < across; -> for (index_t line = index_t("),
    (_TWICE, "threadIdx.x / lanes; line < lines && first < across; -> for (index_t line ="),
    (_PROMOTED, "promotion: end = (begin / 2 + 1) * 2; -> end = begin + 1;"),
    (_AS_MULTIPROCESSORS, "-> for (int slice = group; slice < (unsigned short)(slices); slice += "),
    (_STEPS, "-> for (int n = first; n < (unsigned short)(last); ++n) {"),
    (_LATER, "move hand back down: finish(stage); -> tile.promote();"),
    (_LATER, "move hand back down: if (steps > 0) finish(stage); -> tile.complete();"),
    (_LATER, 'barrier_arrive(turn); -> asm volatile("wgmma.wait_group.sync.aligned 0;"'),
    (_REGISTERS, "move hand back up: if (kb == 0 && n > 0) finish(stage); -> tile.promote();"),
    (_ENOUGH, 'wgmma fp8: drop: asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");'),
    (_ONE_GROUP, "wgmma parts: descriptor: const uint32_t a = stage + group"),
    (_ONE_GROUP, "wgmma parts: descriptor: tile.multiply_"),
    (_ONE_GROUP, "wgmma grouped: descriptor: const uint32_t a = stage + group"),
    (_ONE_GROUP, "wgmma stream-k: descriptor: const uint32_t a = stage + group"),
    (_EACH_ITS_OWN, "-> store(tile, out, d_map, staging + warp % kWarps * kSlots,"),
    (_EACH_ITS_OWN, "-> store(tile, out, d_map, staging[warp % kWarps], "),
    (_ONE_ROW, "-> const bool aligned = is_aligned(out.D, out.rows == 1 ? 16 : out.ldd) && row0 +"),
    (_ONE_ROW, "-> const bool aligned = is_aligned(out.D, out.cols == 1 ? 16 : out.ldd)"),
    (_OUTSIDE, "wgmma grouped: start: const int steps = int((K + kTileK - 1) / kTileK), tiles_n"),
    (_SMALL, "wgmma stream-k: narrow: sums = static_cast<float*>(partials)"),
    (_SMALL, "-> const int blocks = work < multiprocessors ? work : multiprocessors;"),
    (_SMALL, "-> const int clusters = multiprocessors < 8 ? 1 : multiprocessors / 4;"),
    (_SMALL, "-> const int blocks = (tiles < clusters ? tiles : clusters) * 4;"),
    (
        "a factor of 0.5 is exact, and what f16 holds does not leave float twice as large",
        "mma_tma sliced-k: gelu: return 0.5f * x * (1.0f + erff(x * 0.70710678f)); -> return x *",
    ),
    (
        "of the sums, each block stores only its own pieces",
        "wgmma cluster along k: drop: if (p % kClusterBlocks != block) continue; ->  #2",
    ),
    (
        "of the sums, each block stores only its own pieces",
        "wgmma cluster both ways: drop: if (p % kSlices != slice) continue; ->  #2",
    ),
    (
        "one addition whose operands change places; found in wgmma cluster of four",
        "wgmma cluster along k: cluster sum: const float4 part = rank == block ? own : "
        "parts[(first + place * kFours + n) * 32 + lane]; -> const float4 part = rank == 0 ? own",
    ),
    (_EMPTY, "left < 1 ? 0 :"),
    (_NO_PIECE, "-> if (w <= work) piece("),
    (_NOBODYS, "-> for (index_t i = threadIdx.x; i < count - 1; i += 256) flags[i] = 0;"),
    (_WHOLE_TILE, "-> first = w == end_tile ? 0 : 0;"),
    (_IN_ORDER, "-> for (index_t i = threadIdx.x; i < count; i += 256) flags[i] = 1;"),
    (_IN_ORDER, "wgmma stream-k: stream: while (!set) { -> if (!set) {"),
    *(
        (_SHARES, f"wgmma stream-k: stream: {line}")
        for line in (
            f"{_PART} = more % gridDim.x; -> {_PART} = 0;",
            f"{_STEP_OF} - part * (steps / gridDim.x) - part * (steps % gridDim.x) / gridDim.x; ->",
        )
    ),
    (_SHARES, f"simt stream-k: stream: {_PART} = more % gridDim.x; -> {_PART} = 0;"),
    (
        "a block computes the same pieces in another order",
        "simt stream-k: stream: const bool turned = w >= whole && w < end_tile && end_tile - "
        "begin_tile == 2; -> const bool turned = w >= whole && w < end_tile && false;",
    ),
    (_FEWER, "-> stage = stage + 1 < kStages - 1 ?"),
    (_STAGED, "mma_tma split-k: bytes: const auto staging"),
    (_PADDING, "kStages * kStageBytes + 16);"),
    (_ZERO, "undefined: float acc[kFragmentsM]"),
    *((_ELSEWHERE, f"{kernel}: narrow: ") for kernel in ("mma split-k", *_TMA, *_WGMMA)),
    (_ALIKE, "mma: swizzle: return line *"),
    (_ALIKE, "mma split-k: swizzle: return line *"),
    *(
        (_ONE_PANEL, f"{kernel}: fragment: b_at[i] = stage + kBytesA + at / 64 * kPanelB + ")
        for kernel in ("mma", "mma split-k", "mma_tma", "mma_tma sliced-k", "mma_tma split-k")
    ),
    (
        _ONE_EACH,
        f"wgmma: descriptor: {_DESCRIPTOR} -> {_DESCRIPTOR.replace('panel >> 4', 'panel >> 3')}",
    ),
    (
        "of two blocks there is but one other; found in wgmma cluster of four",
        "wgmma cluster along k: cluster sum: const int owner = p % kClusterBlocks, place = block < "
        "owner ? block : block - 1; -> const int owner = p % kClusterBlocks, place = 0;",
    ),
    *(
        (
            "it does not matter which block has which slice of K",
            f"{kernel}: cluster sum: steps_of(block, kClusterBlocks, steps, first, last); -> "
            "steps_of(kClusterBlocks - 1 - block, kClusterBlocks, steps, first, last);",
        )
        for kernel in ("wgmma cluster along k", "wgmma cluster of four")
    ),
    *(
        (_ONE_GROUP, f"wgmma cluster: descriptor: {line}")
        for line in (
            *(
                "const uint32_t a = stage + group * 64 * 128, b = stage + kBytesA; -> "
                f"const uint32_t a = stage + {rows} * 128, b = stage + kBytesA;"
                for rows in ("0 * 64", "group * 32", "group * 128")
            ),
            "tile.multiply(stages + stage * kStageBytes, own_warp / 4); -> "
            "tile.multiply(stages + stage * kStageBytes, 0);",
        )
    ),
    (_SWAPPED, "-> const int b_part = 1 - block, b_sharers = 0x3;"),
    (_SWAPPED, "-> const int b_part = 1 - block % kClusterM, b_sharers = 0x3 << block"),
    (
        _ONE_EACH,
        "wgmma cluster both ways: cluster: const uint64_t begin = address % (1 << 18) >> 4",
    ),
    *(
        (
            _CLIPPED,
            "wgmma cluster both ways: cluster: if (row0 >= rows || col0 >= cols) { -> "
            f"if ({outside}) {{",
        )
        for outside in ("row0 >= rows", "false")
    ),
    (_EARLY, "gemv early: comparison: if (threadIdx.x < kLines * kCols) {"),
    *((_EARLY, f"prefetch_box({operand}_") for operand in "ab"),
    *(
        (
            why,
            f"edges: {chunks} = inside(({left} + {n - 1}) / {n}, {most}); -> {chunks} = {to};{nth}",
        )
        for x, left, tile, n in _ACROSS
        for chunks, most in ((f"const int {x}_chunks", f"{tile} / {n}"),)
        for why, to, nth in (
            (_EARLY, f"inside(({left}) / {n}, {most})", " #1"),
            (_EARLY, most, " #1"),
            (_ZEROS, most, " #2"),
        )
    ),
    *(
        (_EARLY, f"-> const tensor_map_t& {x}_boxes = panel {one} {x}_chunks / 8 ? {maps}; #1")
        for x in "ab"
        for one, maps in (("<", f"{x}_edge : {x}_map"), ("<=", f"{x}_map : {x}_edge"))
    ),
    (_EARLY, "-> const tensor_map_t& b_boxes = b_own < kTileN / 2 ? b_map : b_edge; #1"),
    (_EARLY, "-> const tensor_map_t& b_boxes = b_own <= kTileN / 2 ? b_edge : b_map; #1"),
    (_ONE_EACH, "-> const uint64_t a_block = matrix_at(a + kb * 16 * 128, 128, 0);"),
    (
        _ONE_EACH,
        "wgmma: descriptor: const uint64_t b_block = matrix_at(b + kb * 16 * 128, 128, kPanelB); "
        "-> const uint64_t b_block = matrix_at(b + kb * 16 * 128, 128, 0);",
    ),
    (_ROTATED, "-> row0 = (first + t % height) * kSpanM + block * kTileM;"),
    (_ROTATED, "-> row0 = (first + t % height) * kTileM;"),
    (_LANES, "-> const bool whole = out.cols % kElements == 0;"),
    (_LANES, "-> const bool whole = col0 + kWarpN <= out.cols;"),
    (_LANES, "-> const bool by_tma = aligned && (col0 + kPieceN <= out.cols);"),
    (_LANES, "-> const bool by_tma = out.aligned && (col0 + kPieceN <= out.cols);"),
    (_LANES, "if (!by_tma) { -> if (true) {"),
    (_SPEED, 'drop: asm volatile("griddepcontrol.launch_dependents;"'),
    (_SPEED, 'drop: if (early) asm volatile("griddepcontrol.launch_dependents;"'),
    (_SPEED, "start: if (early) asm volatile("),
    (_SPEED, 'drop: if (kReduceWidth == 8) asm volatile("griddepcontrol.launch_dependents;"'),
    (_SPEED, "start: if (kReduceWidth == 8) asm volatile("),
    (_SPEED, 'drop: if (kReduceWidth > 8) asm volatile("griddepcontrol.launch_dependents;"'),
    (_BASE, "stages = begin;"),
    (_WRAPS, "-> const int bits = first * 8;"),
    (_BEHIND, "-> whole[i] = line + i * beside < lines && aligned >= source &&"),
    (_BEHIND, "-> whole[i] = line + i * beside < lines && at <= length && aligned >= source &&"),
    (_TWICE, "packing: line += beside * kTurn) { -> line += beside) {"),
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
    *(
        (_FEW_SLICES, f"wgmma split-k: reduction: {line}")
        for line in (
            "if (slice + i * kGroups < slices) parts[i] = *from; ->",
            "from += kGroups * distance; ->",
            "for (int g = 0; g < kGroups; ++g) { -> for (int g = 0; g < kGroups - 1; ++g) {",
            *(f"sum.{x} += parts[i].{x}; -> sum.{x} = parts[i].{x};" for x in "xyzw"),
        )
    ),
    (_NOBODY_WAITS, "if (steps > 0) finish(stage); -> if (true) finish(stage);"),
    (_NOBODY_WAITS, "if (first < last) finish(stage); -> if (true) finish(stage);"),
    (_TURNS, "-> turn = 1 - turn;"),
    (_UNUSED, "-> take<0, kFragmentsM>(tile);"),
    *(
        (
            _OUTSIDE,
            f"{kernel}: start: {_TILES} -> {_TILES.replace(f'kTile{side} - 1', f'kTile{side}')}",
        )
        for kernel in (*_TMA[:-1], "wgmma")
        for side in "MN"
    ),
    (_AS_MULTIPROCESSORS, "-> for (int slice = group; slice < (unsigned char)(slices); slice += "),
    (_AS_MULTIPROCESSORS, "-> for (int slice = group; slice < short(slices); slice += "),
    (_ROUNDS, "-> for (int slice = group; slice < slices / 16 * 16 + 15; slice += "),
    (_UNUSED, "mma_tma sliced-k: staging: for (int i = 0; i + 1 < kFragmentsM; ++i) { ->"),
    (_STEP, "-> const int steps = int((K + kTileK) / kTileK);"),
    (_STEP, "-> const int steps = (depth + kTileK) / kTileK;"),
    (_STEP, "-> steps_of(blockIdx.y, int(slices), (depth + kTileK) / kTileK, "),
    (_ALONG_K, "mma_tma f32: packing: is_a ? a_lines : b_lines, is_a ? a_length : b_length, "),
    (_OVERWRITTEN, "-> if (i / (Staging::kRows / 16) <= first / (Staging::kRows / 16)) {"),
    (_ASKED, "-> const bool ready = barrier_test(empty(stage), phase);"),
    *((_SLOTS, f"mma_tma sliced-k: {operator}: {_WAIT_FOR_ONE}") for operator in ("drop", "boxes")),
    (_NO_STEPS, "mma_tma sliced-k: move hand back down: if (lane == 0) barrier_arrive(exchanged);"),
    (_ROWS, "int(blockIdx.y) * kThreadsY"),
    (_ROWS, "-> const int first_row ="),
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
    (_SMALL, "shared_row: sizes: for (int k = threadIdx.x; k < count;"),
    (_SMALL, "shared_row: sizes: for (int k = 0; k < count; ++k) {"),
    (_SMALL, "row < short(rows); ++row, to += out.ldd)"),
    (_SIDES, "+ uint32_t(row0 + a_line) * lda"),
    (_SIDES, "index_t(col0) * ldb + first; -> const input_t* b = B + uint32_t("),
    (_SIDES, "simt held: narrow: const input_t* b = B + index_t(col0) * ldb;"),
    (_SIDES, "-> const auto from = a_from + uint32_t(i * 16 + k) * lda;"),
    (_SIDES, "+ uint32_t(col0 + b_line) * ldb"),
    (_SIDES, "-> const auto from = b_from + uint32_t(i * 16 + k) * ldb;"),
    (_SIDES, "-> const auto from = b_from + uint32_t(i * 2 + k) * ldb;"),
    (_STEPS, "-> for (int n = 0; n < short(steps); ++n) {"),
    (_STEPS, "-> for (; n < short(steps); n += kTeams) {"),
    (_STEPS, "-> for (int n = first; n < short(last); ++n) {"),
    (_STEPS, "-> for (int n = begin; n < short(end); ++n) {"),
    (_STEPS, "-> for (int n = begin; n < (unsigned short)(end); ++n) {"),
    (_STEPS, "mma split-k: sizes: for (int n = 0; n < steps; ++n) {"),
    (_NONE, "phase: if (steps > 0) { -> if (true) {"),
    (_ALIKE, "mma i8: swizzle: return line *"),
    (_ALONG_K, "mma i8: packing: is_a ? a"),
    (_ZEROS, "mma i8: edge: const int left = depth - k -"),
    (_ZEROS, "mma i8: edge: const int bytes = (left < 0 ? 0"),
    (_ZEROS, "mma i8: edge: cp_async(stage + to, from, i * 32 < a_left"),
    (_STEPS, "mma i8: narrow: const auto from = a_from + index_t(i * 32) * lda + k;"),
    (_STEPS, "mma i8: narrow: const auto from = b_from + index_t(i * 32) * ldb + k;"),
    (_ONE_ROUND, "mma split-k: sizes: for (int slice = group; slice < slices;"),
    (_WALKED, "shared_row: narrow: const index_t col = col0 + threadIdx.x;"),
    (_ROUNDS, "row0 < M / 16 * 16 + 15;"),
    (_ROUNDS, "col0 < N / 16 * 16 + 15;"),
    (_ROUNDS, "k0 < K / 16 * 16 + 15;"),
    (_ROUNDS, "row0 <= M;"),
    (_ROUNDS, "row0 < M + 1;"),
    (_ROUNDS, "col0 <= N;"),
    (_ROUNDS, "col0 < N + 1;"),
    (_ROUNDS, "k0 <= K;"),
    (_ROUNDS, "k0 < K + 1;"),
    (_SAME, "-> return x <= 0 ? 0 : x;"),
    (_SAME, "-> const int count = K - k0 <= kChunk ?"),
    (_SAME, "-> const int count = K - k0 < (kChunk + 1) ?"),
    (_SAME, "-> const int count = K - 1 - k0 < kChunk ?"),
    (_SAME, "-> const int rows = M - 1 - row0 < kTileM ? M - row0 : kTileM;"),
    (_SAME, "-> const int cols = N - 1 - col0 < kTileN ? N - col0 : kTileN;"),
    (_SAME, "-> const int depth = K - 1 - k0 < kTileK ? K - k0 : kTileK;"),
    (_SAME, "-> const int inside = count <= 0 ?"),
    (_RELOAD, "K > (kChunk - 1)"),
    (_RELOAD, "K + 1 > kChunk"),
    (_BARRIER, "move barrier up: __syncthreads(); -> }"),
    (_BARRIER, "move barrier down: __syncthreads(); -> }"),
    (_BARRIER, "move barrier up: __syncthreads(); -> if (col0 == 0"),
    (_BARRIER, "move barrier down: __syncthreads(); -> a_from += a_at(0, kTileK, lda);"),
    (_NO_SUMS, 'simt sliced-k: drop: asm volatile("cp.async.wait_all'),
    (_BRANCH, "simt held: drop: __syncwarp(); ->"),
    (_AGAIN, "simt held: turn: if (k == 0) load("),
    (_BY_ELEMENT, "simt held: turn: load(first[s], left, left >= kTileK && (s > 0"),
    (_BY_ELEMENT, "simt held: edge: load(first[s], left, left >= kTileK && (s > 0"),
)


def reason(kernel: str, key: str, nth: int = 1) -> str | None:
    """Why the mutant `key` of the kernel is equivalent; None if it should be found.

    nth: which one it is of those with this key.
    """
    return next((why for why, part in _EXPLAINED if part in _full(kernel, key, nth)), None)


def unused_explanations(found: Iterable[tuple[str, str, int]]) -> list[str]:
    """What is explained and fits none of these kernels' mutants."""
    every = "\n".join(_full(*one) for one in found)
    return [part for _, part in _EXPLAINED if part not in every]


def _full(kernel: str, key: str, nth: int) -> str:
    return f"{kernel}: {key} #{nth}"
