"""The kernel for few rows, or few columns, of D: its tunables, what follows from them, its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gen.kernels.cuda_cores.geometry import Values
from gen.kernels.cuda_cores.printed import printed
from gen.kernels.epilogues import EPILOGUE, epilogue_rule
from gen.kernels.formulas import Fact
from gen.kernels.tunables import Choice, Conflict, Integer, Word
from gen.kernels.variant import BATCHED, MAX_THREADS, Geometry, Pace, Variant
from gen.spec.arch import MAX_GRID_X, UNIT, WARP
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec, Tile
from gen.spec.problem import Layouts


def along_k(few: str, layouts: Layouts) -> bool:
    """Whether the operand that is read once is contiguous along K."""
    return layouts.a if few == "columns" else not layouts.b


def _usual_strip(chosen: Choice) -> int:
    return 4 if along_k(chosen.values["few"], chosen.layouts) else WARP


def _usual_threads(chosen: Choice) -> int:
    """More where lines run across K: of their 32 elements there are fewer blocks.

    There a thread has sums of 16 bytes of a line, times the few: where these are more than 32
    words, beside what it reads, 512 threads would have too few registers, and spill.
    """
    t, d = chosen.values, chosen.dtypes
    if along_k(t["few"], chosen.layouts):
        return 128
    words = t["vectors"] * UNIT // d.input.size * d.accumulator.size // 4
    return 512 if words <= 32 else 256


def geometry(t: Values, d: DTypes) -> Geometry:
    """What follows from the tunables of a kernel for few rows or columns."""
    by_rows, width, threads = t["few"] == "rows", UNIT // d.input.size, t["threads"]
    rows, cols = (t["vectors"], t["strip"]) if by_rows else (t["strip"], t["vectors"])
    tiles = "(M + kRows - 1) / kRows * ((N + kCols - 1) / kCols)"
    return Geometry(
        Tile(rows, cols, threads * width),
        (threads, 1),
        facts=(
            Fact("tiles", tiles, "of D"),
            Fact("grid_x", f"tiles < {MAX_GRID_X} ? tiles : {MAX_GRID_X}"),
        ),
        constants={"kRows": rows, "kCols": cols},
        static_shared=threads // WARP * rows * cols * d.accumulator.size,
        values={"tile_rows": rows, "tile_cols": cols, "width": width, "block": "kThreads"},
        strides="x",
    )


def few_rules(chosen: Choice) -> None:
    """What kernels for few rows or columns ask of their strips and threads. Raises Conflict."""
    t, width = chosen.values, UNIT // chosen.dtypes.input.size
    epilogue_rule(t["epilogue"], chosen.dtypes)
    if t["threads"] % WARP:
        raise Conflict(f"threads={t['threads']} is not a multiple of {WARP}", "threads")
    if along_k(t["few"], chosen.layouts):
        return
    lanes, rest = divmod(t["strip"], width)
    if rest or not lanes or WARP % lanes:
        raise Conflict(
            f"strip={t['strip']} is not {width}, which are {UNIT} bytes, times a divisor of {WARP}",
            "strip",
        )
    if t["strip"] > WARP:
        raise Conflict(f"strip={t['strip']} is more than a warp's {WARP} lanes", "strip")


def few_printed(spec: KernelSpec) -> Mapping[str, Any]:
    """What their templates print besides."""
    return {**printed(spec), "w_along": along_k(spec.tunables["few"], spec.layouts)}


def _printed(spec: KernelSpec) -> Mapping[str, Any]:
    """How it reads.

    ahead: whole steps apart from the last one, where that was faster on an H200: the compiler then
    asks for all that is read in a step at once, but there is twice the code. few_at_once: whether
    the few, where they are neighbours in memory, can be read 16 bytes at a time.
    """
    common = few_printed(spec)
    few, w_along = int(spec.tunables["vectors"]), common["w_along"]
    along = w_along and along_k(_OTHER[spec.tunables["few"]], spec.layouts)
    if spec.dtypes.input.size < 8:
        ahead = not along
    else:
        ahead = few > 1 if along else few > 2 and not w_along
    at_once = w_along and not along and few % (UNIT // spec.dtypes.input.size) == 0
    return {**common, "ahead": ahead, "few_at_once": at_once}


def few_grid(*vectors: int) -> Callable[[Choice], Sequence[Mapping[str, Any]]]:
    """What is chosen among: of rows or columns, so many for a block."""
    return lambda _: [{"few": few, "vectors": n} for few in ("rows", "columns") for n in vectors]


def _grid(chosen: Choice) -> Sequence[Mapping[str, Any]]:
    """What is chosen among. Of lines along K, twice as many for a block where elements are long: a
    thread then multiplies more often by what it has read of the few."""
    size = chosen.dtypes.input.size
    wide = [
        {"few": few, "vectors": n, "strip": 8}
        for few in ("rows", "columns")
        for n in (4, 8)
        if size >= 4 and along_k(few, chosen.layouts)
    ]
    return [*few_grid(1, 2, 4, 8)(chosen), *wide]


def _pace(dtypes: DTypes) -> Pace:
    """A lane multiplies what it has read, and adds up with its neighbours."""
    if dtypes.name == "i32":  # of an older version, which did not start early
        return Pace(
            "cuda", 0.218, wait_k=0.105, alone=224, last=3290, gather=2, start=355, code=248,
            registers=64, exact=True,
        )  # fmt: skip
    if dtypes.name == "i8":
        return Pace(
            "cuda", 0.186, along=1.55, wait_k=0.109, alone=312, last=3590, gather=0.864, start=355,
            code=146, registers=64, exact=True,
        )  # fmt: skip
    if dtypes.name == "f32":
        return Pace(
            "cuda", 0.239, along=3.7, wait=9, wait_k=0.00514, across_k=0.0056, small=0.55,
            alone=1010, last=3280, gather=1.45, start=3.5, across=108, code=764, registers=80,
            besides=33, sums=1.34, reduced=24, exact=True,
        )  # fmt: skip
    if dtypes.input.size == 2:
        return Pace(
            "cuda", 0.04, along=5.32, wait_k=0.0064, alone=52, last=3420, gather=2.79, start=16.3,
            code=534, registers=64, exact=True,
        )  # fmt: skip
    if dtypes.name == "f64":
        return Pace(
            "cuda", 0.132, along=2.34, wait=9.6, wait_k=0.00504, across_k=0.0155, small=0.074,
            alone=391, last=1070, gather=1.83, start=697, across=341, code=2770, registers=208,
            exact=True,
        )  # fmt: skip
    return Pace(
        "cuda", 0.04, along=9.8, wait_k=0.0064, alone=52, last=4230, gather=4.5, start=17,
        code=323, registers=64, exact=True,
    )  # fmt: skip


FEW = Word("few", "what D has few of", "rows", ("rows", "columns"))
_OTHER = {"rows": "columns", "columns": "rows"}

GEMV = Variant(
    "gemv",
    "few rows or columns: the large operand read but once",
    "kernels/gemv.cu.j2",
    (
        FEW,
        Integer("vectors", "of these few, those a block computes", 4, 1, 8, tag="v"),
        Integer("strip", "columns, or rows, of D per block", _usual_strip, 1, WARP),
        Integer("threads", "threads per block", _usual_threads, WARP, MAX_THREADS, tag="t"),
        EPILOGUE,
        BATCHED,
    ),
    geometry,
    rules=few_rules,
    printed=_printed,
    grid=_grid,
    pace=_pace,
    adds_as_aligned=True,
    waits=True,
)
