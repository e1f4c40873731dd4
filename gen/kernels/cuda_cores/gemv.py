"""The kernel for few rows, or few columns, of D: its tunables, what follows from them, its row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gen.kernels.cuda_cores.geometry import Values
from gen.kernels.cuda_cores.printed import printed
from gen.kernels.epilogues import EPILOGUE, epilogue_rule
from gen.kernels.formulas import Fact, ceil_div
from gen.kernels.tunables import Choice, Conflict, Integer, Word
from gen.kernels.variant import BATCHED, MAX_THREADS, Geometry, Pace, Variant
from gen.spec.arch import MAX_GRID_X, SECTOR, UNIT, WARP
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec, Tile
from gen.spec.problem import GemmShape, Layouts

_THREADS = 128  # of a block, where lines run along K
_NARROW_STRIP = 2  # lines of a block
_DEPTH = 8  # elements along K that a thread has at a time, of lines across K


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
        return _THREADS
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
    """What their templates print besides.

    lets_next_start: whether blocks of the next kernel may take their places while this one runs.
    Where there are few blocks for each multiprocessor, some then have more of them than others.
    """
    along = along_k(spec.tunables["few"], spec.layouts)
    return {
        **printed(spec),
        "w_along": along,
        "lets_next_start": along and spec.tunables["strip"] <= _NARROW_STRIP,
    }


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
    return {**common, "ahead": ahead, "few_at_once": at_once, "depth": _DEPTH}


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


# Where D has so few: columns, or rows, of a block, and its threads. The fewer there are in all, and
# the longer they are, the more threads have to share each.
_ALONG_K = {
    1: ((2, 128), (2, 256), (4, 256), (4, 512), (1, 1024), (4, 1024)),
    2: ((2, 256), (4, 256), (4, 512), (8, 512)),
    4: ((4, 256), (4, 512), (8, 512)),
}
# A block's bytes of a line, and its threads. Single sectors are slow to move: they are for few.
_ACROSS_K = ((SECTOR, 1024), (4 * SECTOR, 1024))


class Few(NamedTuple):
    """What D has few of: how many a block has that has all of them, and how long these are."""

    few: str
    vectors: int
    long: int


def few_of(shape: GemmShape) -> Iterator[Few]:
    """Rows, columns, or both, where there are no more than blocks are made for."""
    for few, count, long in (("rows", shape.m, shape.n), ("columns", shape.n, shape.m)):
        for vectors in _ALONG_K:
            if count <= vectors:
                yield Few(few, vectors, long)
                break


def _fitted(
    chosen: Choice, shape: GemmShape, products: int, multiprocessors: int
) -> Sequence[Mapping[str, Any]]:
    """What is besides chosen among where D has few rows or columns: as many threads as read K."""
    size = chosen.dtypes.input.size
    found: list[Mapping[str, Any]] = []
    for few, vectors, long in few_of(shape):
        if along_k(few, chosen.layouts):
            blocks = _long_blocks(vectors, shape.k * size // UNIT)
            if size == 8:  # doubles need so many registers that blocks of 512 and more are alone
                room = multiprocessors // products
                blocks = [(s, t) for s, t in blocks if t < 512 or ceil_div(long, s) <= room]
        else:
            at_once = 1 if long * size % UNIT else UNIT // size  # of lines without gaps
            blocks = [
                (line // size, threads)
                for line, threads in _ACROSS_K
                if (line > SECTOR or long * products * size // line <= 2 * multiprocessors)
                and threads * at_once * size // line * _DEPTH <= shape.k
            ]
        found += [
            {"few": few, "vectors": vectors, "strip": strip, "threads": threads}
            for strip, threads in blocks
        ]
    return found


def _long_blocks(vectors: int, units: int) -> list[tuple[int, int]]:
    """Those of `_ALONG_K` for lines of so many pieces of 16 bytes: of more threads than usual, all
    have a whole one twice, so that the last step is not most of the work."""
    return [
        (strip, threads)
        for strip, threads in _ALONG_K[vectors]
        if threads * (1 if threads == _THREADS else 2) <= units
    ]


def _pace(dtypes: DTypes) -> Pace:
    """A lane multiplies what it has read, and adds up with its neighbours. Along K it does so in
    whole steps, with zeros behind the end; of single bytes, few times are known to say so."""
    across = _pace_across(dtypes)
    if dtypes.input.size == 2:
        lengthwise = Pace(
            "cuda", 0.549, wait_k=0.0032, across_k=0.0241, small=1.66, alone=737, last=95,
            gather=0.9, start=970, across=46, code=1490, registers=64, flows=True,
        )  # fmt: skip
    elif dtypes.name == "f32":
        lengthwise = across._replace(last=2450, exact=False)
    else:
        lengthwise = across._replace(exact=dtypes.input.size == 1)
    return across._replace(lengthwise=lengthwise)


def _pace_across(dtypes: DTypes) -> Pace:
    """The pace where the long operand's lines run across K."""
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
            "cuda", 0.145, along=3.36, wait=1.25, wait_k=0.0433, across_k=0.00892, small=0.43,
            alone=642, last=5110, gather=1.04, thin=0.34, start=0, across=114, code=604,
            registers=80, besides=33, sums=1.34, reduced=16.3, exact=True,
        )  # fmt: skip
    if dtypes.input.size == 2:
        return Pace(
            "cuda", 0.0585, wait_k=0.0032, across_k=0.012, alone=58, last=3440, gather=1.6,
            start=303, across=46, code=458, registers=64, exact=True, flows=True,
        )  # fmt: skip
    if dtypes.name == "f64":
        return Pace(
            "cuda", 0.153, along=2.24, wait=2.2, wait_k=0.0005, small=0.006, alone=401, last=441,
            gather=1.78, thin=0.85, start=918, across=220, code=3990, registers=208, exact=True,
            flows=True,
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
    fitted=_fitted,
    pace=_pace,
    adds_as_aligned=True,
    waits=True,
)
