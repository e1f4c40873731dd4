"""The operands of the row-major product, as a kernel has them, and how they are packed.

What is computed is always a row-major D = A * B. Where D is column-major that is its transpose,
B' * A': then "a" is what the caller calls B, transposed, and "b" the caller's A.
"""

from __future__ import annotations

from dataclasses import dataclass

from gen.kernels.formulas import Fact
from gen.kernels.tensor_cores.tiles import is_transposed
from gen.spec.arch import MAX_GRID_YZ, UNIT, WARP
from gen.spec.kernel import KernelSpec

PACKED_LINE = 128  # bytes: what packed lines start at multiples of
HELPER_THREADS = 256  # a block of the kernels that pack and reduce, which stride over the rest
MOST_PACKING = 1 << 16  # blocks for each operand; they stride over what is beyond
MOST_DEEP = MAX_GRID_YZ // 2  # blocks along z for each operand that is packed
_MOST_ELEMENTS = 2**58  # of all copies: 64 bits count the bytes of both operands
KSTRIDED_LINE = 128  # bytes of a line that does not run along K


@dataclass(frozen=True)
class Operand:
    """An operand of the row-major product, as a kernel has it.

    letter: "a" or "b". matrix, ld: what the caller calls it. size: bytes of an element.
    given_along_k: whether it is contiguous along K where it is given. transposed: whether packing
    makes it so: see `is_transposed`. line: bytes of a line
    in shared memory. fragments: of it, 16 rows of A or columns of B each, that a warp multiplies.
    sharers: blocks of a cluster that have the same tiles of it, and copy a part each. parts: that
    its elements are split into while they are packed; a packed line has all first parts, then all
    second ones, and so on. several: what counts those of a batch, or of groups, which have one
    each; "" where there is but one. opaque: whether only CUDA's headers declare its type. extent:
    rows of A or columns of B of a work tile. spread: blocks of a cluster that have other ones.
    grouped: whether products are groups, whose tiles end anywhere.
    """

    letter: str
    matrix: str
    ld: str
    size: int
    given_along_k: bool
    line: int
    fragments: int
    sharers: int = 1
    parts: int = 1
    several: str = ""
    opaque: bool = False
    extent: int = 0
    spread: int = 1
    grouped: bool = False

    @property
    def batched(self) -> bool:
        """Whether there may be one for each product."""
        return bool(self.several)

    @property
    def stride(self) -> str:
        """What the caller calls the elements from one to that of the next product."""
        return f"stride_{self.matrix.lower()}"

    @property
    def transposed(self) -> bool:
        """Whether its lines do not run along K, but have to."""
        return is_transposed(self.given_along_k, self.size)

    @property
    def along_k(self) -> bool:
        """Whether the kernel reads it in lines along K."""
        return self.given_along_k or self.transposed

    @property
    def has_short_boxes(self) -> bool:
        """Whether TMA copies no more lines of groups than all of them have."""
        return self.grouped and self.along_k and self.parts == 1

    @property
    def ends(self) -> bool:
        """Whether TMA copies nothing of a tile that is beyond the matrix's edge.

        A second map has boxes as large as what the last ones have of the matrix.
        """
        return not self.grouped and self.parts == 1

    @property
    def may_lack_tiles(self) -> bool:
        """Whether a block of a cluster may have a tile that is wholly beyond the edge."""
        return self.ends and self.spread > 1

    @property
    def panel(self) -> int:
        """Elements of a line in shared memory that does not run along K."""
        return KSTRIDED_LINE // self.size

    @property
    def shares_lines(self) -> bool:
        """Whether blocks of a cluster copy some lines each of all panels, too few to share."""
        return not self.along_k and self.extent // self.panel % self.sharers != 0

    def box_lines(self, step: int) -> int:
        """Lines of a box that do not run along K, of a step's."""
        return step // self.sharers if self.shares_lines else step

    @property
    def packed_by_block(self) -> tuple[int, int]:
        """Lines, and elements of each, that a block of the packing kernel copies at a time.

        A warp has some lines, its lanes neighbouring chunks of each, or more of short ones; to
        transpose, a block has a tile.
        """
        if self.transposed:
            return PACKED_LINE // self.size, self.deep * UNIT // self.size
        return HELPER_THREADS // WARP * self.lines_of_turn, WARP * UNIT // self.size

    @property
    def lines_of_turn(self) -> int:
        """Lines of which each thread that packs has a chunk at a time; what splits has one."""
        return 2 if self.parts == 1 else 1

    @property
    def deep(self) -> int:
        """Chunks of each line of a tile that is transposed: 8 or 16 words for each thread."""
        return {1: 8, 4: 16}[self.size]

    @property
    def short_lanes(self) -> int:
        """Lanes of a warp that packs, for a line of no more chunks."""
        return 8

    def facts(self) -> list[Fact]:
        """Whether it is packed; its lines and their distance, as the kernel reads them."""
        x, address = self.letter, self.letter.upper()
        rows = "M" if x == "a" else "N"
        lines, length = (rows, "K") if self.along_k else ("K", rows)
        whole = rounded(f"{x}_length", PACKED_LINE // self.size)
        if self.parts > 1:
            packs = Fact(f"packs_{x}", "K > 0", "it is split into parts", "bool")
            whole = f"{whole} * kParts"
        elif self.transposed:
            packs = Fact(f"packs_{x}", "K > 0", "its lines do not run along K", "bool")
        else:
            unit, why = UNIT // self.size, "its lines are not aligned"
            odd = f"{address} % {UNIT} != 0 || ld{x} % {unit} != 0"
            if self.batched:
                odd, why = f"{odd} || stride_{x} % {unit} != 0", "not aligned"
            packs = Fact(f"packs_{x}", f"K > 0 && ({odd})", why, "bool")
        ld = f"packs_{x} ? {whole} : ld{x}"
        return [
            packs,
            Fact(f"{x}_lines", f"packs_{x} ? {lines} : 0"),
            Fact(f"{x}_length", f"packs_{x} ? {length} : 0", "to pack", beside=True),
            Fact(f"{x}_ld", ld, "as the kernel reads it"),
            *(self._batch() if self.batched else []),
        ]

    def _batch(self) -> list[Fact]:
        """How many matrices there are; from one to the next, as the kernel reads them.

        They may overlap, where their copies would need more memory than there is. How much has to
        fit into 64 bits all the same, or else the launcher would take too small a workspace.
        """
        x = self.letter
        packed = f"{x}_count > 1 ? {x}_each : 0"
        return [
            Fact(f"{x}_count", f"stride_{x} > 0 ? {self.several} : 1", "matrices"),
            Fact(f"{x}_each", f"{x}_lines * {x}_ld", "elements of a copy"),
            Fact(f"{x}_most", f"{_MOST_ELEMENTS} / ({x}_each + 1)", "more than any memory has"),
            Fact(f"{x}_copies", f"{x}_count < {x}_most ? {x}_count : {x}_most"),
            Fact(f"{x}_stride", f"packs_{x} ? ({packed}) : stride_{x}", "between them"),
        ]

    @property
    def elements(self) -> str:
        """Those of the packed operand, where it is packed."""
        x = self.letter
        return f"{x}_copies * {x}_each" if self.batched else f"{x}_lines * {x}_ld"


def operands(spec: KernelSpec) -> tuple[Operand, Operand]:
    """The operands a and b of the row-major product."""
    order, size = spec.layouts, spec.dtypes.factor.size
    given = [("A", "lda", order.a), ("B", "ldb", not order.b)]
    if not order.c:
        given.reverse()
    assert spec.warp

    def operand(
        letter: str,
        matrix: str,
        ld: str,
        along_k: bool,
        lines: int,
        sharers: int,
        extent: int,
        spread: int,
    ) -> Operand:
        in_k = along_k or is_transposed(along_k, size)
        line = spec.threadblock.k * size if in_k else KSTRIDED_LINE
        parts = spec.dtypes.parts
        several = spec.several.number if matrix.lower() in spec.several.strided else ""
        return Operand(
            letter, matrix, ld, size, along_k, line, lines // 16, sharers, parts, several,
            opaque=bool(spec.dtypes.input.header), extent=extent, spread=spread,
            grouped=spec.grouped or spec.grouped_k,
        )  # fmt: skip

    (rows, columns), tile = spec.cluster, spec.threadblock
    return (
        operand("a", *given[0], spec.warp.m, columns, tile.m, rows),
        operand("b", *given[1], spec.warp.n, rows, tile.n, columns),
    )


def transposed(spec: KernelSpec) -> list[str]:
    """The operands that are always packed, as the caller calls them: "A", "B"."""
    return sorted(x.matrix for x in operands(spec) if spec.packs and x.transposed)


def packing(a: Operand, b: Operand) -> list[Fact]:
    """The packing kernel's grid: along x, as many blocks as either operand has pieces.

    A piece is some lines, and a part of each. Blocks find out themselves which they have, so that
    operands with few long lines and with many short ones fill the same grid. Short lines have
    fewer lanes each, as in `pack_lines`.
    """

    def lanes(x: Operand) -> list[Fact]:
        if x.transposed:
            return []
        short = x.short_lanes * UNIT // x.size
        text = f"{x.letter}_length > {short} ? {WARP} : {x.short_lanes}"
        return [Fact(f"{x.letter}_lanes", text, "for a line")]

    def pieces(x: Operand) -> str:
        (lines, part), its = x.packed_by_block, x.letter
        parts = f"(({its}_length + {part - 1}) / {part})"
        if x.transposed:
            return f"({its}_lines + {lines - 1}) / {lines} * {parts}"
        threads = lines * WARP
        return f"({its}_lines * {its}_lanes + {threads - 1}) / {threads} * {parts}"

    along = [
        *lanes(a),
        *lanes(b),
        Fact("a_pieces", pieces(a), "for blocks"),
        Fact("b_pieces", pieces(b), "for blocks"),
        Fact("pieces", _larger("a_pieces", "b_pieces")),
        Fact("pack_blocks", f"pieces < {MOST_PACKING} ? pieces : {MOST_PACKING}"),
    ]
    if not b.batched:
        return along
    if not a.batched:  # a block along z for A, all others for matrices of B
        most = f"b_count < {MOST_DEEP} ? b_count : {MOST_DEEP}"
        return [*along, Fact("pack_z", f"1 + (packs_b ? {most} : 0)")]
    counts = "packs_a && (!packs_b || a_count > b_count) ? a_count : b_count"
    return [
        *along,
        Fact("pack_count", counts),
        Fact("pack_z", f"pack_count < {MOST_DEEP} ? pack_count : {MOST_DEEP}"),
    ]


def _larger(a: str, b: str) -> str:
    return f"{a} > {b} ? {a} : {b}"


def rounded(text: str, multiple: int) -> str:
    return f"({text} + {multiple - 1}) / {multiple} * {multiple}"
