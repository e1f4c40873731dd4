"""How long a kernel takes for a problem, in picoseconds: lines that C++ has, too.

The busiest multiprocessor decides: the work tiles that it has, one after another, or as many at a
time as it holds. Beside it, device memory has to move what the problem reads and writes. Then come
the kernels before and after: packing, and the sum over slices of K.

All is in integers, as `gen.kernels.formulas` has it: a bundle in C++ compares the same times as
Python does, and takes the same kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from gen.dispatch.weights import (
    FEW_ROWS,
    FEW_SLICES,
    HELPER,
    IDLING,
    LATE,
    LONG,
    MANY,
    SLICE,
    SUMMING,
    Weights,
)
from gen.kernels.formulas import Fact, function, last_of
from gen.kernels.tensor_cores.facts import auto_slices
from gen.kernels.tensor_cores.operands import KSTRIDED_LINE
from gen.kernels.tensor_cores.tiles import PLACED
from gen.spec.arch import UNIT

# Sizes beyond this count as this: no time is then too long for 64 bits, and the order of kernels
# does not change any more.
MOST = 2**18

# Of the product as the kernel has it, row-major: M, N, K, addresses and leading dimensions of its
# operands; then the GPU, and the weights.
GIVEN = ("M", "N", "K", "batch", "A", "lda", "B", "ldb", "multiprocessors")


def _size(name: str) -> Fact:
    x = name.upper()
    return Fact(name, f"{x} < 1 ? 1 : {x} < {MOST} ? {x} : {MOST}")


def _operand(x: str, lines: str) -> list[Fact]:
    """Whether it is packed; how slowly its lines come from the L2 cache: as measured where they are
    multiples of 128 bytes apart, of 32, or less."""
    slow = f"moved_{x} > 0 || pitch_{x} % 128 == 0 ? 4 : pitch_{x} % 32 == 0 ? 5 : 8"
    return [
        Fact(f"pitch_{x}", f"ld{x} * size", "bytes"),
        Fact(f"odd_{x}", f"{x.upper()} % {UNIT} > 0 || pitch_{x} % {UNIT} != 0", type="bool"),
        Fact(f"moved_{x}", f"packs_{x} + odd_{x} > 1 ? {lines} * k : 0", "elements to pack"),
        Fact(f"slow_{x}", slow, "in quarters"),
        Fact(f"loose_{x}", f"odd_{x} && moved_{x} == 0 ? small_{x} : 0", "small loads"),
    ]


def _slices() -> list[Fact]:
    """Those of a plan, or as many as are asked for."""
    found = []
    for fact in auto_slices("held * multiprocessors"):
        if fact.name == "wanted":
            found.append(fact._replace(name="suit"))
            fact = Fact("wanted", "split < 1 ? suit : steps < split ? steps : split", "slices")
        found.append(fact)
    return found


def _asked(x: str, lines: str, others: str) -> list[Fact]:
    """How long the L2 cache takes to answer for an operand that lies in few of its slices."""
    inside = f"({lines} < tile_{lines} ? {lines} : tile_{lines})"
    panels = f"({inside} * size + {KSTRIDED_LINE - 1}) / {KSTRIDED_LINE} * k"
    pieces = f"{inside} * ((k * size + {KSTRIDED_LINE - 1}) / {KSTRIDED_LINE})"
    slices = f"1 + {lines} * k * size * count / {SLICE}"
    each = f"asks_{x} / slices_{x} * asked"
    return [
        Fact(f"asks_of_{x}", f"run_{x} > 0 ? {pieces} : {panels}", "of a tile"),
        Fact(f"slices_{x}", slices, "of the cache"),
        Fact(f"asks_{x}", f"tiles * asks_of_{x} / cluster_{others}", "of all blocks"),
        Fact(f"answers_{x}", f"slices_{x} < {FEW_SLICES} ? {each} : 0"),
    ]


SIZES = (_size("m"), _size("n"), _size("k"))

# Products beyond this count as this many, for the same reason: tiles have up to
# 256 elements a side.
COUNT = (
    Fact(
        "largest", f"1 + {MOST**3} / ((m + 256) * (n + 256) * (k + 256))", "of products, that count"
    ),
    Fact("count", "batch < 1 ? 1 : batch < largest ? batch : largest", "products"),
)

# What follows from `SIZES` and `count`.
TIMES: Sequence[Fact] = (
    *_operand("a", "m"),
    *_operand("b", "n"),
    Fact("ragged", f"(turned > 0 ? m : n) * out % {UNIT} != 0", "lines of D", "bool"),
    Fact("span_m", "tile_m * cluster_m", "of the tiles of a cluster"),
    Fact("span_n", "tile_n * cluster_n"),
    Fact("columns", "(n + span_n - 1) / span_n * cluster_n", "of tiles"),
    Fact("tiles", "(m + span_m - 1) / span_m * cluster_m * columns * count", "of D"),
    Fact("steps", "K > tile_k ? (k + tile_k - 1) / tile_k : 1", "along K"),
    *_slices(),
    Fact("together", "lines > 0 ? columns : 1", "tiles, which a block has"),
    Fact("blocks", "tiles * slices * cluster_k / together"),
    Fact("cluster", "cluster_m * cluster_n * cluster_k", "blocks"),
    Fact("usable", f"cluster > 2 ? multiprocessors * {PLACED[0]} / {PLACED[1]} : multiprocessors"),
    Fact("room", "usable / cluster > 1 ? usable / cluster : 1", "for clusters"),
    Fact("most_blocks", "(blocks / cluster + room - 1) / room"),
    Fact("stretch", "(each + cluster_k - 1) / cluster_k", "steps of a block"),
    Fact("busiest", "most_blocks * together", "work tiles"),
    Fact("turns", "(busiest + resident - 1) / resident", "that they take"),
    Fact("copies", "(copy_a * slow_a + copy_b * slow_b) / 4", "of a step"),
    Fact("loose", "loose_a + loose_b"),
    Fact("busy", "math + loose"),
    Fact("step", "(busy > copies ? busy : copies) + wait"),
    Fact("single", "lone + loose"),
    Fact("inside", "(m < tile_m ? m : tile_m) * (n < tile_n ? n : tile_n)", "of D"),
    Fact("stores", "(tile_m * tile_n + 3 * inside) / 4 * store / 1024"),
    Fact("stored", "stores * (ragged ? rough : 16) / 16 / cluster_k"),
    Fact("tail", "hides > 0 ? last : last + stored", "of a work tile"),
    Fact("full", "busiest * stretch * step"),
    Fact("alone", "turns * stretch * (single > copies ? single : copies)"),
    Fact("ends", "turns * tail"),
    # Where many small blocks follow each other, the end of one passes beside the work of others.
    Fact("busily", "full + (flows > 0 ? tail : ends)"),
    Fact("lonely", "alone + ends"),
    Fact("whole", "busily > lonely ? busily : lonely", "each tile by one block"),
    Fact(
        "shares",
        "stream > 0 && tiles > held * multiprocessors && tiles % (held * multiprocessors) > 0",
        type="bool",
    ),
    Fact("evenly", "tiles * steps / multiprocessors * step"),
    Fact("shared", "evenly + (tiles / multiprocessors + 1) * tail + sharing", "by several"),
    Fact("ending", "hides > 0 ? stored : 0", "which nothing hides"),
    # Where the L2 cache decides, it is as busy with fewer blocks: sharing gains nothing.
    Fact("gains", "shares && copies <= busy", "by sharing", "bool"),
    Fact("briefly", "(gains ? shared : whole) + ending", "as fast as for a short time"),
    # Where tensor cores are busy for long, power decides, and less of it goes to waste where
    # warpgroups take turns.
    Fact("sags", f"briefly > {LONG} ? (briefly - {LONG}) / 1024 * sagging : 0"),
    Fact("multiplying", "briefly + sags"),
    # What is computed at the same time reads its rows of A and columns of B once.
    Fact("places", "room * cluster_m * cluster_n * resident", "for tiles"),
    Fact("line", "places / group"),
    Fact("beside", "line < 1 ? 1 : line < columns ? line : columns", "tiles along N"),
    Fact("below", "(places + beside - 1) / beside"),
    Fact("high", "below * tile_m < m ? below * tile_m : m"),
    Fact("wide", "beside * tile_n < n ? beside * tile_n : n"),
    Fact("read_once", "(m * spread_a + n * spread_b) / 16 * k * size", "bytes of A and B"),
    Fact("read_wide", "(high * spread_a + wide * spread_b) / 16 * k * size"),
    Fact("once", "read_once * count"),
    Fact("again", "(tiles + places - 1) / places * read_wide", "round by round"),
    Fact("kept", "read_once <= cache / 2 || again < once", "by the L2 cache", "bool"),
    Fact("written", "m * n * out * count * (ragged ? torn : 10) / 10 * scatter / 16"),
    # Blocks that share tiles are at different places along K: each reads what it needs.
    Fact("parted", "shares && kept ? tiles % multiprocessors + multiprocessors : 0", "tiles"),
    Fact("lines_of_b", "n * k * size > cache / 4 ? tile_n * k * size : 0", "bytes of a tile"),
    Fact("apart", "parted / ((m + tile_m - 1) / tile_m) * (parted > 0 ? (m - 1) / tile_m : 0)"),
    # Where a round has all tiles of few rows, those below each other read some of B again, later.
    Fact(
        "follow", f"m > span_m && m <= {FEW_ROWS} && tiles <= places && lines_of_b > 0", type="bool"
    ),
    Fact("late", f"follow ? n * k * size / {LATE} : 0", "bytes"),
    # Slices of K read pieces of more lines at a time, whose ends other pieces have as well.
    Fact("ends_a", "odd_a && moved_a == 0 ? m * strewn_a : 0", "in sixteenths"),
    Fact("ends_b", "odd_b && moved_b == 0 ? n * strewn_b : 0"),
    Fact("strewn", "slices > 1 ? (ends_a + ends_b) * k * size * count / 16 : 0", "bytes"),
    Fact(
        "moving",
        "((kept ? once : again) + apart * lines_of_b + late + strewn + written) / 1024 * kib",
        "from memory",
    ),
    Fact("moved", "(moved_a + moved_b) * count"),
    Fact("packing", f"moved > 0 ? {HELPER} + moved * packed / 1024 * kib : 0"),
    Fact("sums", "slices * tiles * tile_m * tile_n", "that are written, and read"),
    Fact("adding", f"slices > 1 ? {SUMMING} + sums * added / 1024 * kib : 0"),
    # All blocks ask for the same few lines, of an operand that has no more.
    *_asked("a", "m", "n"),
    *_asked("b", "n", "m"),
    Fact("working", "multiplying + answers_a + answers_b"),
    # The shorter one does not quite fit beside the longer one.
    Fact("longer", "working > moving ? working : moving"),
    Fact("product", "longer + (working + moving - longer) * 3 / 8"),
    # The many rows or columns of a kernel for few, which come from the caches, again and again.
    Fact("many", "few == 1 ? m > n : few == 2 && n > m", type="bool"),
    Fact("more", f"many ? product / {MANY} : 0"),
    # Blocks of a cluster that have no tile meet the others, too.
    Fact(
        "lacking", "(cluster_m > 1 && m <= tile_m) || (cluster_n > 1 && n <= tile_n)", type="bool"
    ),
    Fact("idling", f"lacking ? {IDLING} : 0"),
    Fact("time", "start + product + more + packing + adding + idling"),
)

FACTS = (*SIZES, *COUNT, *TIMES)
NAMES = tuple(fact.name for fact in FACTS)
AT = {name: place for place, name in enumerate(NAMES)}
_ALL = (*GIVEN, *Weights._fields)
compute, time = function(FACTS, _ALL), last_of(FACTS, _ALL)
