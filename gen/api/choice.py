"""variant="auto": the kernel for a problem, by rules that fit on a page.

Tensor cores where the element types and the GPU have them, else `rec_tiles`. On tensor cores, the
tile of D with which multiprocessors are done first: what counts is how many tiles the busiest has,
and that an element of a smaller tile takes longer. Where even the smallest tiles are too few,
slices of a long K are summed apart as well.
"""

from __future__ import annotations

from typing import Any

from gen.api.problem import Call
from gen.errors import SpecError
from gen.registry import VARIANTS
from gen.spec import compute_capability
from gen.tensor_rules import TURING_DTYPES, along_k
from gen.variant import Variant, ceil_div

BEST_SCALAR = "rec_tiles"
BEST_TENSOR = ("mma_tma", "mma")  # the first that the GPU has

# Rows and columns of D that a block computes, the largest first; the time of an element, relative;
# and how. On Hopper, more of K is on its way where tiles are small, and two teams share those too
# small for one; its times are of f16 at 1536 to 8192 a side on an H200 (docs/tensor-cores.md).
TILES: dict[str, tuple[tuple[int, int, float, dict[str, Any]], ...]] = {
    "mma_tma": (
        (128, 256, 1.0, {"warp": "64x64", "stages": 3}),
        (256, 128, 1.01, {"warp": "64x64", "stages": 3}),
        (128, 192, 1.02, {"warp": "64x48", "stages": 4}),
        (128, 128, 1.08, {"warp": "64x64", "stages": 5}),
        (64, 128, 1.24, {"warp": "32x64", "stages": 8}),
        (96, 96, 1.25, {"warp": "32x48", "stages": 7, "sliced_k": 2}),
        (64, 64, 1.6, {"warp": "32x32", "stages": 8}),
    ),
    "mma": (
        (128, 256, 1.0, {"warp": "64x64"}),
        (128, 128, 1.2, {"warp": "64x64"}),
        (64, 128, 1.35, {"warp": "32x64"}),
        (64, 64, 1.8, {"warp": "32x32"}),
    ),
}
# Sums in f16 take half of the registers, and leave room for larger tiles.
LARGER_TILES = (
    (256, 256, 0.965, {"warp": "128x64", "stages": 3}),
    (256, 224, 0.98, {"warp": "64x112", "stages": 3}),
    (192, 256, 0.965, {"warp": "96x64", "stages": 3}),
)
LINE = {"mma_tma": 128, "mma": 64}
TURING_TILES = TILES["mma"][1:]  # larger ones take too many registers beside their loads

# Slices of K pay where fewer of the multiprocessors than this have a tile, and a tile takes more
# steps along K than this: the sums are a second kernel, which takes as long as some ten steps.
BUSY, STEPS = 0.75, 16


def choose(
    call: Call, arch: str, multiprocessors: int, tunables: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The variant and its tunables; those that the caller has set stay.

    Raises SpecError for an epilogue that only tensor cores have, with types that they lack.
    """
    row = _tensor_variant(call, compute_capability(arch))
    if row is None:
        _check_epilogue(call, tunables, arch)
        return BEST_SCALAR, {k: v for k, v in tunables.items() if k != "epilogue"}
    chosen = _tile(call, row, compute_capability(arch), multiprocessors)
    if tunables.keys() & (chosen.keys() - {"stages"}):
        return row.name, tunables  # tiles go together: one by hand, all by hand
    if "stages" in tunables:
        chosen.pop("sliced_k", None)  # teams leave each other sums where the stages were
    return row.name, {**chosen, **tunables}


def _tensor_variant(call: Call, cc: int) -> Variant | None:
    s, dtype = call.problem.shape, call.dtypes.name
    for row in (VARIANTS[name] for name in BEST_TENSOR):
        has_dtype = dtype in (row.dtypes if cc >= 80 else TURING_DTYPES)
        if row.runs_on(cc) and has_dtype and max(s.m, s.n, s.k) <= row.most:
            return row
    return None


def _tile(call: Call, row: Variant, cc: int, multiprocessors: int) -> dict[str, Any]:
    s, size = call.problem.shape, call.dtypes.input.size
    # With a column-major D the kernel computes its transpose.
    rows, cols = (s.m, s.n) if call.layouts.c else (s.n, s.m)
    candidates = TILES[row.name] if cc >= 80 else TURING_TILES
    if row.name == "mma_tma" and call.dtypes.accumulator.size == 2:
        candidates = LARGER_TILES + candidates
    tiles = [tile for tile in candidates if _can_be_copied(tile[:2], call)]

    def count(tile: tuple[int, int, float, dict[str, Any]]) -> int:
        return ceil_div(rows, tile[0]) * ceil_div(cols, tile[1])

    def time(tile: tuple[int, int, float, dict[str, Any]]) -> float:
        return ceil_div(count(tile), multiprocessors) * tile[0] * tile[1] * tile[2]

    step = LINE[row.name] // size
    sliced = count(tiles[-1]) < BUSY * multiprocessors and s.k > STEPS * step
    m, n, _, how = tiles[-1] if sliced else min(tiles, key=time)
    return {"threadblock": f"{m}x{n}x{step}", **how, "split_k": 0 if sliced else 1}


def _can_be_copied(sides: tuple[int, int], call: Call) -> bool:
    """Lines that do not run along K are copied 64 elements at a time (those of 2 bytes)."""
    return call.dtypes.input.size != 2 or all(
        side % 64 == 0 or along for side, along in zip(sides, along_k(call.layouts), strict=True)
    )


def _check_epilogue(call: Call, tunables: dict[str, Any], arch: str) -> None:
    epilogue = tunables.get("epilogue", "linear")
    if epilogue != "linear":
        way = "use dtype='tf32', or" if call.dtypes.name == "f32" else "use f16, or"
        raise SpecError(
            f"epilogue={epilogue} needs tensor cores, and {arch} has none for "
            f"{call.dtypes.name}; {way} add what follows the product yourself"
        )
