"""The tiles of D that the tensor-core kernels choose among, where the caller names none.

On Hopper, more of K is on its way where tiles are small, and of `mma_tma` two teams share those too
small for one; its times are of f16 on an H200 (docs/tensor-cores.md): of `mma_tma` at 1536 to 8192
a side, of `wgmma` on 29 shapes from 256 a side to 1024 x 28672, that occupy most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gen.kernels.tensor_cores.rules import along_k, widens
from gen.kernels.tunables import Choice
from gen.kernels.variant import Candidate
from gen.spec.kernel import Tile

# Rows and columns of D that a block computes, the largest first; the time of an element, relative;
# and how.
_Row = tuple[int, int, float, dict[str, Any]]

_MMA: tuple[_Row, ...] = (
    (128, 256, 1.0, {"warp": "64x64"}),
    (128, 128, 1.2, {"warp": "64x64"}),
    (64, 128, 1.35, {"warp": "32x64"}),
    (64, 64, 1.8, {"warp": "32x32"}),
)
_TMA: tuple[_Row, ...] = (
    (128, 256, 1.0, {"warp": "64x64", "stages": 3}),
    (256, 128, 1.01, {"warp": "64x64", "stages": 3}),
    (128, 192, 1.02, {"warp": "64x48", "stages": 4}),
    (128, 128, 1.08, {"warp": "64x64", "stages": 5}),
    (64, 128, 1.24, {"warp": "32x64", "stages": 8}),
    (96, 96, 1.25, {"warp": "32x48", "stages": 7, "sliced_k": 2}),
    (64, 64, 1.6, {"warp": "32x32", "stages": 8}),
)
# Sums in f16 take half of the registers, and leave room for larger tiles.
_TMA_LARGER: tuple[_Row, ...] = (
    (256, 256, 0.965, {"warp": "128x64", "stages": 3}),
    (256, 224, 0.98, {"warp": "64x112", "stages": 3}),
    (192, 256, 0.965, {"warp": "96x64", "stages": 3}),
)


_WGMMA: tuple[_Row, ...] = (
    (256, 192, 1.0, {"stages": 3}),
    (128, 256, 1.01, {"stages": 3}),
    (256, 128, 1.0, {"stages": 4}),
    (192, 192, 1.0, {"stages": 4}),
    (128, 192, 1.01, {"stages": 5}),
    (192, 128, 1.01, {"stages": 5}),
    (128, 160, 1.01, {"stages": 5}),
    (128, 128, 1.02, {"stages": 6}),
    (64, 256, 1.04, {"stages": 5}),
    (128, 96, 1.04, {"stages": 7}),
    (64, 192, 1.07, {"stages": 6}),
    (64, 128, 1.12, {"stages": 8}),
    (128, 64, 1.35, {"stages": 8}),
    (64, 64, 1.95, {"stages": 8}),
)
# Promoted sums, those of fp8, take registers twice.
_WGMMA_PROMOTED: tuple[_Row, ...] = tuple(row for row in _WGMMA if row[0] <= 128 and row[1] <= 192)
# Sums in f16 leave room for larger tiles.
_WGMMA_LARGER: tuple[_Row, ...] = ((256, 256, 0.98, {"stages": 3}),)


def mma_candidates(chosen: Choice) -> Sequence[Candidate]:
    """Those of `mma`: none but its default where registers are short."""
    if widens(chosen):
        return ()
    # On Turing, larger ones take too many registers beside their loads.
    return _candidates(chosen, _MMA if chosen.cc >= 80 else _MMA[1:], 64)


def tma_candidates(chosen: Choice) -> Sequence[Candidate]:
    """Those of `mma_tma`, as of `mma`."""
    if widens(chosen):
        return ()
    larger = _TMA_LARGER if chosen.dtypes.accumulator.size == 2 else ()
    return _candidates(chosen, larger + _TMA, 128)


def wgmma_candidates(chosen: Choice) -> Sequence[Candidate]:
    """Those of `wgmma`."""
    if chosen.dtypes.input.is_fp8:
        return _candidates(chosen, _WGMMA_PROMOTED, 128)
    larger = _WGMMA_LARGER if chosen.dtypes.accumulator.size == 2 else ()
    return _candidates(chosen, larger + _WGMMA, 128)


def _candidates(chosen: Choice, rows: Sequence[_Row], line: int) -> Sequence[Candidate]:
    """Tiles with so many bytes along K."""
    tiles = [Tile(m, n, line // chosen.dtypes.input.size) for m, n, *_ in rows]
    return [
        Candidate(tile, time, {"threadblock": str(tile), **how})
        for tile, (*_, time, how) in zip(tiles, rows, strict=True)
        if _can_be_copied(tile, chosen)
    ]


def _can_be_copied(tile: Tile, chosen: Choice) -> bool:
    """Lines that do not run along K are copied 64 elements at a time (those of 2 bytes)."""
    sides = zip((tile.m, tile.n), along_k(chosen.layouts), strict=True)
    return chosen.dtypes.input.size != 2 or all(side % 64 == 0 or along for side, along in sides)
