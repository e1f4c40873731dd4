"""What follows from the tunables of kernels whose threads hold a tile of D in registers.

threadblock.m and thread_tile.m count rows of what the kernel computes. Where D is column-major,
that is its transpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from math import gcd
from typing import Any, NamedTuple

from gen.kernels.cuda_cores.geometry import Values
from gen.kernels.formulas import Fact
from gen.kernels.tunables import Choice, sizes
from gen.kernels.variant import MAX_THREADS, Geometry
from gen.spec.arch import BANKS, REGISTERS, SECTOR, UNIT
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec, Tile
from gen.spec.problem import along_k

PAD = 4  # elements behind each line of a tile
# Of an operand that is transposed: lines that a warp copies at once, a sector of each; its vectors.
LINES, SECTOR_VECTORS = 16, 2

# Along x, a grid has as many blocks as anybody needs.
_TILES = (
    Fact("tiles_m", "(M + kTileM - 1) / kTileM"),
    Fact("tiles_n", "(N + kTileN - 1) / kTileN"),
    Fact("grid_x", "tiles_m * tiles_n", "a block for each tile of D"),
)


def block_and_thread(t: Values) -> tuple[Tile, Tile]:
    """threadblock and thread_tile; a thread's K is the threadblock's."""
    block = Tile._make(sizes(t["threadblock"]))
    return block, Tile._make((*sizes(t["thread_tile"]), block.k))


def threads_of(t: Values) -> int:
    """The threads of a block."""
    block, thread = block_and_thread(t)
    return (block.m // thread.m) * (block.n // thread.n)


def sums(t: Values, d: DTypes) -> int:
    """Registers of a thread that hold its results."""
    _, thread = block_and_thread(t)
    return thread.m * thread.n * d.accumulator.size // 4


def _blocks(threads: int, registers: int) -> int:
    """Blocks that a multiprocessor should hold, with so many registers for each thread."""
    most = min(REGISTERS // (threads * registers), MAX_THREADS // threads, 16)
    return max(most, 1)


def vector(d: DTypes) -> int:
    """Accumulators that move at once."""
    return UNIT // d.accumulator.size


def thread_tile(t: Values, d: DTypes) -> Geometry:
    """What follows from the tunables of `thread_tile_1d` and `thread_tile_2d`."""
    block, _ = block_and_thread(t)
    # A warp stores so many neighbours along K, of this many columns.
    pad = max(BANKS // d.accumulator.size // block.k, 1)
    return _register_tile(t, d, (block.m + block.n + pad) * block.k, pad=pad)


def vectorized(t: Values, d: DTypes) -> Geometry:
    """What follows from the tunables of `vectorized` and `warp_tiled`."""
    block, _ = block_and_thread(t)
    elements = (block.m + block.n + 2 * PAD) * block.k
    return _register_tile(t, d, elements, vector=vector(d))


def multistage(t: Values, d: DTypes) -> Geometry:
    """What follows from the tunables of `multistage`."""
    g = vectorized(t, d)
    return g._replace(static_shared=0, dynamic_shared=t["stages"] * g.static_shared)


class Copied(Enum):
    """What a thread copies at once."""

    ELEMENTS = "elements, through registers"
    VECTORS = "vectors, through registers"
    ASYNC = "vectors by cp.async, elements where it transposes"


class Operand(NamedTuple):
    """How the threads of a block copy a tile of A or B: `lines` rows or columns, `depth` along K.

    In memory it lies along K or not. All threads copy `at_once` lines of it at once, or where it
    does not lie along K and lines have to be whole, so many k. `near`: neighbours along K that a
    warp copies at once where it transposes. `width`: elements that a thread copies at once.
    """

    lines: int
    depth: int
    along_k: bool
    threads: int
    near: int
    width: int

    @property
    def at_once(self) -> int:
        """Lines that all threads copy at once, if it lies along K."""
        return min(self.lines, max(self.threads // self.near, 1))

    @property
    def beside(self) -> int:
        """Lines that a warp transposes at once: sixteen, or as many as all threads come in."""
        return gcd(LINES, self.at_once)

    @property
    def is_even(self) -> bool:
        """Whether all threads copy equal parts, each at equal distances."""
        if not self.along_k:
            deep, rest = divmod(self.threads * self.width, self.lines)
        else:
            deep, rest = divmod(self.threads, self.at_once)
            rest += deep % self.near + self.lines % self.at_once
            deep *= self.width
        return rest == 0 and deep > 0 and self.depth % deep == 0


def copies(chosen: Choice, copied: Copied) -> tuple[Operand, Operand]:
    """How the left and the right operand are copied."""
    block, _ = block_and_thread(chosen.values)
    threads = threads_of(chosen.values)

    def operand(lines: int, along: bool) -> Operand:
        width = 1 if copied is Copied.ELEMENTS else vector(chosen.dtypes)
        near = block.k if copied is Copied.ELEMENTS else SECTOR_VECTORS
        if copied is Copied.ASYNC and along:
            width, near = 1, SECTOR // chosen.dtypes.input.size
        return Operand(lines, block.k, along, threads, near, width)

    left, right = along_k(chosen.layouts)
    return operand(block.m, left), operand(block.n, right)


def printed(spec: KernelSpec, copied: Copied) -> Mapping[str, Mapping[str, Any]]:
    """Both operands as parts/vector_copy.cu.j2 has them."""
    chosen = Choice(spec.dtypes, spec.layouts, spec.arch, spec.tunables)
    words = (("A", "row", "kTileM"), ("B", "col", "kTileN"))
    return {
        matrix.lower(): {
            "letter": matrix.lower(),
            "matrix": matrix,
            "ld": f"ld{matrix.lower()}",
            "line": line,
            "count": f"{line}s",
            "lines": f"{line.title()}s",
            "tile": tile,
            "along_k": operand.along_k,
            "at_once": operand.at_once,
            "beside": operand.beside,
        }
        for (matrix, line, tile), operand in zip(words, copies(chosen, copied), strict=True)
    }


def _register_tile(t: Values, d: DTypes, elements: int, **values: Any) -> Geometry:
    block, thread = block_and_thread(t)
    threads = threads_of(t)
    warp = {"warp": Tile._make((*sizes(t["warp"]), block.k))} if "warp" in t else {}
    return Geometry(
        block,
        (threads, 1),
        facts=_TILES,
        constants={"kTileM": block.m, "kTileN": block.n},
        static_shared=elements * d.accumulator.size,
        values={
            "tile": block,
            "thread": thread,
            **warp,
            **values,
            "block": "kThreads",
            "blocks": _blocks(threads, max(sums(t, d) + 16 * d.accumulator.size, 96)),
        },
    )
