"""The kernels whose mutants the suite makes: small tiles, and each template's branches."""

from __future__ import annotations

from tests.support.small import SCALAR, SMALL

# What an expression of the user's own can take.
OWN = "silu(x) * up[row, col] + shift_by[col] + one_row[row] * slope where slope=scalar"

# Several rows and columns per thread; more columns than threads, fewer than a chunk. A variant, and
# what else distinguishes it.
SPECS: dict[str, dict[str, object]] = {v: SMALL[v] for v in SCALAR} | {
    "tiles": {"tile": 6, "threads": 12},
    "naive i8": {**SMALL["naive"], "dtype": "i8", "epilogue": "linear_bias_relu"},
    "naive gelu": {**SMALL["naive"], "dtype": "bf16", "epilogue": "linear_bias_gelu"},
    "gemv batched": {**SMALL["gemv"], "batched": True},
    # The few beside each other in memory.
    "gemv columns": {"few": "columns", "threads": 64, "vectors": 4, "strip": 3, "layout": "rrr"},
    # The next kernel may start, and has the beginning of its lines fetched.
    "gemv early": {"arch": "sm_90", "layout": "rcr", "vectors": 1, "strip": 2, "threads": 32},
    # Blocks that share K, of an element read at a time where lines are not whole units.
    "narrow cluster": {**SMALL["narrow"], "arch": "sm_90", "cluster": "1x1x2", "dtype": "f64"},
    "tiles relu": {"tile": 6, "threads": 12, "epilogue": "linear_bias_relu"},
    "thread_1d own": {**SMALL["thread_1d"], "dtype": "f16", "epilogue": OWN},
    "tiles batched": {"tile": 8, "batched": True},
    "rec_tiles": {"tile": 4, "coarsen": 3, "threads": 8},
    "shared_row": {"threads": 32, "chunk": 72, "grid": 7},
    "simt": {"threadblock": "32x32x8", "warp": "32x16", "stages": 4},
    "simt sliced-k": {
        "threadblock": "32x32x32", "warp": "32x16", "stages": 3, "sliced_k": 2, "split_k": 0,
        "layout": "rcr",
    },
    # Chunks that wait in registers, of lines that begin anywhere.
    "simt held": {
        "threadblock": "32x32x16", "warp": "32x16", "stages": 4, "layout": "rcr", "held": 1,
    },
    # Blocks that share tiles, by teams of warps.
    "simt stream-k": {
        "threadblock": "32x32x16", "warp": "32x32", "stages": 3, "sliced_k": 2, "stream_k": 1,
    },
    "mma": {"threadblock": "64x64x32", "warp": "32x32", "stages": 3},
    "mma i8": {
        "dtype": "i8", "layout": "crr", "threadblock": "64x64x64", "warp": "32x32",
        "epilogue": "linear_bias_relu",
    },
    "mma tf32": {"dtype": "tf32", "threadblock": "64x64x16", "warp": "32x32", "stages": 3},
    # Elements copied one by one, loaded without ldmatrix; lines along K, and panels of 16 columns.
    "mma f64": {
        "dtype": "f64", "arch": "sm_90", "threadblock": "64x64x16", "warp": "32x32", "stages": 3,
    },
    # Operands read where they lie.
    "mma pack 0": {"pack": 0, "layout": "rrr"},
    "mma split-k": {"threadblock": "64x64x32", "warp": "32x32", "stages": 3, "split_k": 9},
    # Slices that are added in the type of D.
    "mma f16 split-k": {
        "dtype": "f16_f16", "threadblock": "64x64x32", "warp": "32x32", "stages": 3, "split_k": 3,
    },
    "mma own": {"threadblock": "64x64x32", "warp": "32x32", "stages": 3, "epilogue": OWN},
    "mma batched": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 3, "split_k": 0, "batched": True,
    },
    "mma grouped": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 3, "grouped": True,
        "epilogue": "(x + bias[group, col]) * scale[group]",
    },
    "mma grouped-k": {
        "layout": "crr", "threadblock": "64x64x32", "warp": "32x32", "stages": 3,
        "grouped_k": True,
    },
    "mma_tma": {"threadblock": "64x64x32", "warp": "32x32", "stages": 2},
    "mma_tma batched": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 2, "batched": True,
    },
    # Elements of 4 bytes, which stmatrix cannot move; three pieces of a row and three slots; four
    # steps in a tile of K.
    "mma_tma f32": {
        "dtype": "f16_f32", "layout": "rcc", "threadblock": "96x96x64", "warp": "48x48",
        "stages": 2, "epilogue": "linear_bias",
    },
    # Elements of 8 bytes in the TMA's order; lines along K, and panels of 16 columns.
    "mma_tma f64": {
        "dtype": "f64", "threadblock": "64x64x16", "warp": "32x32", "stages": 3,
    },
    # Sums that are D as they are; three slots of one block of 16 rows; two panels of B.
    "mma_tma f16": {
        "dtype": "f16_f16", "threadblock": "96x128x32", "warp": "48x64", "stages": 2,
    },
    # The teams finish two blocks of 16 rows and one; an epilogue that is called.
    "mma_tma sliced-k": {
        "threadblock": "96x64x32", "warp": "48x32", "stages": 3, "sliced_k": 2,
        "epilogue": "linear_bias_gelu",
    },
    "mma_tma split-k": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 3, "split_k": 0,
        "epilogue": "linear_bias_relu",
    },
    # Teams whose share of a slice has one step more than the other one's.
    "mma_tma teams": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 3, "sliced_k": 2, "split_k": 0,
    },
    # Lines of both operands along M or N.
    "wgmma": {"layout": "crr", "threadblock": "128x64x64", "stages": 2},
    # Two panels of B, lines of two lengths.
    # Blocks that share tiles; the same by two warpgroups, each with tiles of its own.
    "wgmma stream-k": {"threadblock": "64x64x32", "stages": 2, "stream_k": 1},
    "wgmma ping-pong": {
        "schedule": "pingpong", "threadblock": "64x64x32", "stages": 3, "stream_k": 1,
    },
    "wgmma split-k": {"threadblock": "128x128x32", "stages": 2, "split_k": 3},
    "wgmma grouped": {"layout": "rcr", "threadblock": "64x64x64", "stages": 2, "grouped": True},
    "wgmma grouped-k": {
        "layout": "crr", "threadblock": "64x64x64", "stages": 2, "grouped_k": True,
    },
    # Elements in three parts: of A, lines along K, of B, panels of 64 columns.
    "wgmma parts": {
        "dtype": "f32_6xbf16", "threadblock": "64x128x32", "stages": 2, "split_k": 1,
    },
    # Sums of 14 bits, promoted after one step, during the next one or before it, and after two;
    # registers that change hands.
    "wgmma fp8": {
        "dtype": "e4m3_f16", "layout": "rcr", "threadblock": "128x128x128", "stages": 2,
        "promote": 128,
    },
    "wgmma fp8 wide": {
        "dtype": "e5m2_f16", "layout": "rcr", "threadblock": "64x192x64", "stages": 2,
        "promote": 64,
    },
    "wgmma fp8 two steps": {
        "dtype": "e5m2_f16", "layout": "rcr", "threadblock": "64x128x64", "stages": 3,
        "promote": 128,
    },
    # Blocks below each other copy one of two panels of B each, for both.
    "wgmma cluster": {"threadblock": "64x128x64", "stages": 2, "cluster": "2x1"},
    # Blocks share tiles along K: one finishes two of three pieces; one of four adds three others.
    "wgmma cluster along k": {
        "layout": "rcr", "threadblock": "64x48x64", "stages": 2, "cluster": "1x1x2",
    },
    # Copies of two steps at once, one warpgroup after the other.
    "wgmma bursts": {
        "layout": "rcr", "schedule": "pingpong", "threadblock": "64x48x64", "stages": 4, "burst": 2,
    },
    "wgmma cluster of four": {
        "layout": "rcr", "threadblock": "64x64x64", "stages": 2, "cluster": "1x1x4",
    },
    # Two blocks share columns of B, and two others each of their work tiles.
    "wgmma cluster both ways": {
        "layout": "rcr", "threadblock": "64x32x64", "stages": 2, "cluster": "2x1x2",
    },
}  # fmt: skip
