"""Kernels with small tiles, for what runs many of them."""

from __future__ import annotations

from typing import Any

from gen.errors import SpecError
from gen.kernels.registry import VARIANTS, make_spec

# One row for each kernel: tunables that make its tiles small, so that few elements are many tiles.
# LINE stands for as many elements as 64 bytes hold: see `small`.
LINE = "LINE"
SMALL: dict[str, dict[str, Any]] = {
    "naive": {"threads": 32},
    "thread_1d": {"threads": 48},
    "block_1d": {"threads": 32, "grid": 3},
    "shared_row": {"threads": 32, "chunk": 20, "grid": 3},
    "tiles": {"tile": 7},
    "rec_tiles": {"tile": 4, "coarsen": 3},
    "thread_tile_1d": {"threadblock": "16x8x4", "thread_tile": "4x1"},
    "thread_tile_2d": {"threadblock": "16x16x8", "thread_tile": "4x2"},
    "vectorized": {"threadblock": "16x32x8", "thread_tile": "4x4"},
    "warp_tiled": {"threadblock": "32x32x8", "warp": "16x32", "thread_tile": "4x4"},
    "multistage": {"threadblock": "32x32x8", "warp": "16x32", "thread_tile": "4x4"},
    "simt": {"threadblock": "32x32x8", "warp": "32x32", "split_k": 0},
    "mma": {"threadblock": f"64x64x{LINE}", "warp": "32x32", "stages": 3, "split_k": 0},
    "mma_m16n8k8": {"threadblock": f"64x64x{LINE}", "warp": "32x32", "stages": 3, "split_k": 0},
    "mma_tma": {"threadblock": f"64x64x{LINE}", "warp": "32x32", "stages": 2, "split_k": 0},
    "wgmma": {"threadblock": f"64x64x{LINE}", "stages": 2, "split_k": 0},
    "gemv": {"threads": 64, "vectors": 3},
    "narrow": {"threads": 64, "vectors": 4},
    "skinny": {"threads": 64, "strip": 16, "ahead": 2},
    "slim": {},
}
# In the order of the rows here: cases of what is there stay as they are where a kernel comes.
SCALAR = [name for name in SMALL if not VARIANTS[name].planner]


def takes(variant: str, layout: str) -> bool:
    """Whether a kernel is there for a layout: one that reads lines across K is not for all."""
    try:
        make_spec(variant, layout=layout)
    except SpecError:
        return False
    return True
