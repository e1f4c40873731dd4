"""How the tensor-core kernels run a problem: packing, the product, the sum over slices of K.

What is computed is always a row-major D = A * B. Where D is column-major that is its transpose,
B' * A': then "a" is what the caller calls B, transposed, and "b" the caller's A.

The facts of a launch are lines of C++ (`gen.kernels.formulas`), which the emitted launcher holds
and this module evaluates: neither can drift from the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gen.errors import SpecError
from gen.kernels import signature
from gen.kernels.formulas import Fact, evaluate
from gen.kernels.launches import (
    BIAS,
    WORKSPACE,
    Argument,
    Launch,
    Plan,
    Pointer,
    TensorMap,
    i64,
    matrices,
)
from gen.kernels.tensor_cores.tiles import writes_d
from gen.spec.arch import compute_capability
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem

UNIT = 16  # bytes: what is copied at a time, and what addresses are multiples of
PACKED_LINE = 128  # bytes: what packed lines start at multiples of
SECTION = 256  # bytes: what the parts of the workspace start at multiples of
HELPER_THREADS = 256  # a block of the kernels that pack and reduce, which stride over the rest
MOST_PACKING = 64  # blocks that share a line
KSTRIDED_LINE = 128  # bytes of a line that does not run along K: 64 elements of 2
MOST_SIZE = 2**31 - 4096  # M, N, K: where tiles and steps ahead end is an int
MOST_WORK = 2**31 - 1  # work tiles of all slices: kernels count them as int
STEPS_A_SLICE = 4  # along K, at least, where the number of slices is chosen by itself


@dataclass(frozen=True)
class Operand:
    """An operand of the row-major product, as a kernel has it.

    letter: "a" or "b". matrix, ld: what the caller calls it. size: bytes of an element.
    given_along_k: whether it is contiguous along K where it is given. transposed: whether packing
    makes it so, since ldmatrix transposes elements of 2 bytes and no others. line: bytes of a line
    in shared memory. fragments: of it, 16 rows of A or columns of B each, that a warp multiplies.
    sharers: blocks of a cluster that have the same tiles of it, and copy a part each.
    """

    letter: str
    matrix: str
    ld: str
    size: int
    given_along_k: bool
    line: int
    fragments: int
    sharers: int = 1

    @property
    def transposed(self) -> bool:
        """Whether its lines do not run along K, but have to."""
        return self.size != 2 and not self.given_along_k

    @property
    def along_k(self) -> bool:
        """Whether the kernel reads it in lines along K."""
        return self.given_along_k or self.transposed

    @property
    def packed_by_block(self) -> tuple[int, int]:
        """Lines, and elements of each, that a block of the packing kernel copies at a time.

        A warp has a line, its lanes neighbouring chunks; to transpose, a lane has a line, and the
        warps have neighbouring chunks.
        """
        warps, lanes = HELPER_THREADS // 32, 32
        lines, chunks = (lanes, warps) if self.transposed else (warps, lanes)
        return lines, chunks * UNIT // self.size

    def facts(self) -> list[Fact]:
        """Whether it is packed; its lines and their distance, as the kernel reads them."""
        x, address = self.letter, self.letter.upper()
        rows = "M" if x == "a" else "N"
        lines, length = (rows, "K") if self.along_k else ("K", rows)
        if self.transposed:
            packs = Fact(f"packs_{x}", "K > 0", "its lines do not run along K", "bool")
        else:
            odd = f"{address} % {UNIT} != 0 || ld{x} % {UNIT // self.size} != 0"
            packs = Fact(f"packs_{x}", f"K > 0 && ({odd})", "its lines are not aligned", "bool")
        ld = f"packs_{x} ? {_rounded(f'{x}_length', PACKED_LINE // self.size)} : ld{x}"
        return [
            packs,
            Fact(f"{x}_lines", f"packs_{x} ? {lines} : 0", "to pack"),
            Fact(f"{x}_length", f"packs_{x} ? {length} : 0"),
            Fact(f"{x}_ld", ld, "as the kernel reads it"),
        ]


def operands(spec: KernelSpec) -> tuple[Operand, Operand]:
    """The operands a and b of the row-major product."""
    order, size = spec.layouts, spec.dtypes.input.size
    given = [("A", "lda", order.a), ("B", "ldb", not order.b)]
    if not order.c:
        given.reverse()
    assert spec.warp

    def operand(
        letter: str, matrix: str, ld: str, along_k: bool, lines: int, sharers: int
    ) -> Operand:
        line = spec.threadblock.k * size if along_k or size != 2 else KSTRIDED_LINE
        return Operand(letter, matrix, ld, size, along_k, line, lines // 16, sharers)

    rows, columns = spec.cluster
    return operand("a", *given[0], spec.warp.m, columns), operand("b", *given[1], spec.warp.n, rows)


def transposed(spec: KernelSpec) -> list[str]:
    """The operands that are always packed, as the caller calls them: "A", "B"."""
    return sorted(x.matrix for x in operands(spec) if x.transposed)


def may_be_early(spec: KernelSpec) -> bool:
    """Whether the next kernel may start before this one ends; not after packing."""
    return not transposed(spec)


def bias_of(spec: KernelSpec) -> str:
    """What there is a bias for in the row-major product: "column", "row", or nothing."""
    return "" if not spec.has_bias else "column" if spec.layouts.c else "row"


# Groups of four sums that a block of the reduction adds up; its threads share the slices.
_REDUCE_WIDTH = Fact("width", "slices > 64 ? 8 : slices > 16 ? 16 : 32")


def reduce_width(slices: int) -> int:
    """What the reduction's width is where the number of slices is known when it is emitted."""
    return evaluate([_REDUCE_WIDTH], {"slices": slices})["width"]


def facts(spec: KernelSpec) -> list[Fact]:
    """What a launch is worked out from, line by line, given M, N, K, A, lda, B, ldb of the product.

    A and B are addresses. Of a persistent kernel as many blocks stay as there are
    `multiprocessors`, and TMA feeds them.
    """
    a, b = operands(spec)
    size = spec.dtypes.input.size
    packed = f"b_offset + {_rounded(_bytes('b_lines * b_ld', size), SECTION)}"
    lines = [
        *a.facts(),
        *b.facts(),
        Fact("b_offset", _rounded(_bytes("a_lines * a_ld", size), SECTION), "bytes"),
        _tiles(spec),
    ]
    if spec.stream_k:
        lines += _stream(spec, packed)
    elif spec.split_k == 1:
        lines.append(Fact("bytes", packed, "of the workspace"))
    else:
        lines += [*_slices(spec), *_partials(spec, packed)]
    if spec.row.persistent:
        lines += _persistent(spec, a, b)
    return [*lines, *_packing(a, b)]


def _tiles(spec: KernelSpec) -> Fact:
    """Work tiles; blocks of a cluster have one together."""
    if spec.cluster == (1, 1):
        return Fact("tiles", "(M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN)", "of D")
    text = "(M + kSpanM - 1) / kSpanM * ((N + kSpanN - 1) / kSpanN)"
    return Fact("tiles", text, "of D, a cluster's")


def _slices(spec: KernelSpec) -> list[Fact]:
    steps = Fact("steps", "K > kTileK ? (K + kTileK - 1) / kTileK : 1", "along K")
    if spec.split_k:
        return [steps, Fact("slices", f"steps < {spec.split_k} ? steps : {spec.split_k}", "of K")]
    most = f"steps / {STEPS_A_SLICE}"
    return [
        steps,
        Fact("most", f"{most} > 1 ? {most} : 1", f"slices of at least {STEPS_A_SLICE} steps"),
        Fact("fit", "multiprocessors / tiles", "slices of each tile that run at the same time"),
        Fact("wanted", "fit < 2 ? 1 : fit < most ? fit : most", "slices"),
        Fact("each", "(steps + wanted - 1) / wanted", "steps of a slice"),
        Fact("slices", "(steps + each - 1) / each", "as few as have no more steps"),
    ]


def _partials(spec: KernelSpec, offset: str) -> list[Fact]:
    width = reduce_width(spec.split_k) if spec.split_k else f"({_REDUCE_WIDTH.text})"
    tiles, some = "tiles", []
    if writes_d(spec.tunables):
        tiles, some = "split", [Fact("split", "slices > 1 ? tiles : 0", "tiles of many slices")]
    sums = f"slices * {tiles} * kTileM * kTileN * {spec.dtypes.scalar.size}"
    return [
        *some,
        Fact("partials_offset", offset),
        Fact("bytes", f"partials_offset + {sums}"),
        Fact("reduce_blocks", f"{tiles} * (kTileM * kTileN / 4) / {width}"),
    ]


def _stream(spec: KernelSpec, offset: str) -> list[Fact]:
    """What blocks that share work tiles give each other: a tile of sums each, a flag for a warp."""
    sums = f"kTileM * kTileN * {spec.dtypes.accumulator.size}"
    return [
        *_blocks(spec),
        Fact("sharing", "K > 0 && tiles % blocks > 0 ? blocks : 0", "blocks that share tiles"),
        Fact("partials_offset", offset),
        Fact("flags_offset", f"partials_offset + sharing * {sums}"),
        Fact("flags", f"sharing * {spec.geometry.values['consumers']}", "for each warp one"),
        Fact("bytes", "flags_offset + flags * 4", "of the workspace"),
    ]


def _persistent(spec: KernelSpec, a: Operand, b: Operand) -> list[Fact]:
    work = "tiles" if spec.split_k == 1 else "work"
    # After packing, the next launch is likely to pack as well, which is slower among this kernel's
    # blocks.
    cluster = math.prod(spec.cluster)
    all_of_them = f"{work} * {cluster}" if cluster > 1 else work
    alone = f"{all_of_them} == blocks && !packs_a && !packs_b"
    early = Fact("early", alone, "the next kernel may start", "bool")
    # TMA takes long for lines that a matrix does not have.
    boxes = [
        Fact(f"{x.letter}_box", f"{rows} < {tile} ? {rows} : {tile}", "lines of it")
        if x.sharers == 1
        else Fact(f"{x.letter}_box", f"{tile} / {x.sharers}", "lines of it, which a block copies")
        for x, rows, tile in ((a, "M", "kTileM"), (b, "N", "kTileN"))
        if x.along_k
    ]
    return [
        *([] if spec.split_k == 1 else [Fact("work", "tiles * slices")]),
        *([] if spec.stream_k else _blocks(spec)),
        *([early] if may_be_early(spec) else []),
        *boxes,
    ]


def _blocks(spec: KernelSpec) -> list[Fact]:
    """Those that stay, in whole clusters."""
    work, size = "tiles" if spec.split_k == 1 else "work", math.prod(spec.cluster)
    if size == 1:
        return [Fact("blocks", f"{work} < multiprocessors ? {work} : multiprocessors")]
    clusters = f"multiprocessors < {2 * size} ? 1 : multiprocessors / {size}"
    return [
        Fact("clusters", clusters, "that run at the same time"),
        Fact("blocks", f"({work} < clusters ? {work} : clusters) * {size}"),
    ]


def _packing(a: Operand, b: Operand) -> list[Fact]:
    """The packing kernel's grid: along x, blocks have lines of both operands; along y, parts.

    What is left of a line after whole parts, the first blocks pack, too.
    """

    def blocks(x: Operand, lines: str, length: str) -> tuple[str, str]:
        count, part = x.packed_by_block
        line = PACKED_LINE // x.size
        parts = f" / {part // line}" if part > line else ""
        return f"({lines} + {count - 1}) / {count}", f"({length} + {line - 1}) / {line}{parts}"

    if a.transposed == b.transposed:
        longest = (f"({_larger(f'a_{name}', f'b_{name}')})" for name in ("lines", "length"))
        x, parts = blocks(a, *longest)
        along = [
            Fact("pack_x", x, "blocks that pack"),
            Fact("pack_parts", parts, "of a line"),
        ]
    else:
        (a_x, a_parts), (b_x, b_parts) = (
            blocks(x, f"{x.letter}_lines", f"{x.letter}_length") for x in (a, b)
        )
        along = [
            Fact("a_blocks", a_x, "that pack it"),
            Fact("b_blocks", b_x, "that pack it"),
            Fact("pack_x", _larger("a_blocks", "b_blocks"), "blocks that pack"),
            Fact("a_parts", a_parts, "of its lines"),
            Fact("b_parts", b_parts, "of its lines"),
            Fact("pack_parts", _larger("a_parts", "b_parts")),
        ]
    most = f"pack_parts < {MOST_PACKING} ? pack_parts : {MOST_PACKING}"
    return [*along, Fact("pack_y", f"pack_parts < 1 ? 1 : {most}")]


def _larger(a: str, b: str) -> str:
    return f"{a} > {b} ? {a} : {b}"


def _bytes(elements: str, size: int) -> str:
    return f"{elements} * {size}" if size > 1 else elements


def _rounded(text: str, multiple: int) -> str:
    return f"({text} + {multiple - 1}) / {multiple} * {multiple}"


def parameters(spec: KernelSpec) -> tuple[signature.Parameter, ...]:
    """Those of the kernel that multiplies."""
    wanted = writes_d(spec.tunables), spec.has_bias, spec.split_k != 1
    if spec.row.persistent:
        return signature.mma_tma(*wanted, spec.stream_k, may_be_early(spec))
    return signature.mma(*wanted)


def _evaluate(
    spec: KernelSpec, problem: GemmProblem, alignment: Alignment, multiprocessors: int
) -> dict[str, int]:
    s, tile = problem.shape, spec.threadblock
    sides = [(s.m, int(not alignment.a), problem.lda), (s.n, int(not alignment.b), problem.ldb)]
    if not spec.layouts.c:
        sides.reverse()
    (m, a, lda), (n, b, ldb) = sides
    given = {
        "M": m, "N": n, "K": s.k, "A": a, "lda": lda, "B": b, "ldb": ldb,
        "multiprocessors": multiprocessors, "kTileM": tile.m, "kTileN": tile.n, "kTileK": tile.k,
        "kSpanM": spec.cluster[0] * tile.m, "kSpanN": spec.cluster[1] * tile.n,
    }  # fmt: skip
    return evaluate(facts(spec), given)


def _null() -> Argument:
    import numpy as np

    return np.uint64(0)


def _flag(value: int) -> Argument:
    import numpy as np

    return np.bool_(value)


def plan(
    spec: KernelSpec, problem: GemmProblem, alignment: Alignment, multiprocessors: int
) -> Plan:
    """All launches: packing, where an operand is packed; flags cleared, where blocks share tiles;
    the product; the reduction of slices.

    A persistent kernel has a block for each multiprocessor, others one for each tile and slice.
    """
    found = _evaluate(spec, problem, alignment, multiprocessors)
    dependent = compute_capability(spec.arch) >= 90  # kernels wait for the ones before
    sides = operands(spec)
    given = {x.letter: Pointer(x.matrix) for x in sides}
    packed = {"a": Pointer(WORKSPACE), "b": Pointer(WORKSPACE, found["b_offset"])}
    read = {x: packed[x] if found[f"packs_{x}"] else given[x] for x in "ab"}
    values: dict[str, Argument] = {
        **matrices(problem, spec.dtypes),
        **{name: i64(found[name]) for name in ("M", "N")},
        "A": read["a"], "lda": i64(found["a_ld"]), "B": read["b"], "ldb": i64(found["b_ld"]),
        "bias": Pointer(BIAS), "slices": i64(found.get("slices", 1)),
        "partials": Pointer(WORKSPACE, found["partials_offset"]) if _sums(found) else _null(),
        "flags": Pointer(WORKSPACE, found["flags_offset"]) if found.get("flags") else _null(),
        "count": i64(found.get("flags", 0)),
    }  # fmt: skip
    grid = (found["tiles"], found.get("slices", 1), 1)
    if spec.row.persistent:
        if (work := found.get("work", found["tiles"])) > MOST_WORK:
            raise SpecError(
                f"{problem.shape} needs {work} work tiles, more than {MOST_WORK}; "
                "use a smaller problem or larger tiles"
            )
        grid = (found["blocks"], 1, 1)
        values["early"] = _flag(found.get("early", 0))
        values |= {f"{x.letter}_map": _map(spec, x, read[x.letter], found) for x in sides}
        values["d_map"] = _map_of_d(spec, problem, found, alignment.d)
    main = Launch(
        spec.name,
        grid,
        (*spec.threads, 1),
        spec.geometry.dynamic_shared,
        {p.name: values[p.name] for p in parameters(spec)},
        all_shared=dependent and spec.split_k != 1,
    )
    launches = [main]
    if found.get("flags"):
        launches.insert(0, _helper(f"{spec.name}_clear", (1, 1, 1), signature.CLEAR, values))
    if found["packs_a"] or found["packs_b"]:
        launches.insert(0, _pack(spec, problem, found, given, packed))
    if _sums(found) and "reduce_blocks" in found:
        grid = (found["reduce_blocks"], 1, 1)
        reduce = signature.reduce(spec.has_bias)
        launches.append(_helper(f"{spec.name}_reduce", grid, reduce, values))
    return Plan(tuple(replace(each, early=dependent) for each in launches), found["bytes"])


def _pack(
    spec: KernelSpec,
    problem: GemmProblem,
    found: Mapping[str, int],
    given: Mapping[str, Pointer],
    packed: Mapping[str, Pointer],
) -> Launch:
    values: dict[str, Argument] = {}
    for x in "ab":
        ld = problem.lda if given[x] == Pointer("A") else problem.ldb
        values |= {
            f"{x}_lines": i64(found[f"{x}_lines"]), f"{x}_length": i64(found[f"{x}_length"]),
            x.upper(): given[x], f"ld{x}": i64(ld),
            f"{x}_packed": packed[x], f"{x}_packed_ld": i64(found[f"{x}_ld"]),
        }  # fmt: skip
    grid = (found["pack_x"], found["pack_y"], 2)
    return _helper(f"{spec.name}_pack", grid, signature.PACK, values)


def _sums(found: Mapping[str, int]) -> bool:
    """Whether partial sums are kept."""
    return found["bytes"] > found.get("partials_offset", found["bytes"])


def _helper(
    kernel: str,
    grid: tuple[int, int, int],
    wanted: tuple[signature.Parameter, ...],
    values: Mapping[str, Argument],
) -> Launch:
    args = {p.name: values[p.name] for p in wanted}
    return Launch(kernel, grid, (HELPER_THREADS, 1, 1), 0, args)


def _map(spec: KernelSpec, x: Operand, at: Pointer, found: Mapping[str, int]) -> TensorMap:
    """An operand as TMA copies it; a map of nothing where no step along K is ever made."""
    rows, k, step = found["M" if x.letter == "a" else "N"], found["K"], spec.threadblock.k
    dims, box = (rows, k), (64, step)
    if x.along_k:
        dims, box = (k, rows), (step, found[f"{x.letter}_box"])
    return TensorMap(
        at,
        spec.dtypes.input.name,
        dims if k else (0, 0),
        found[f"{x.letter}_ld"] * x.size,
        box,
        box[0] * x.size,
    )


def _map_of_d(
    spec: KernelSpec, problem: GemmProblem, found: Mapping[str, int], aligned: bool
) -> TensorMap:
    """D as TMA writes it; a map of nothing where its rows do not start at multiples of 16 bytes."""
    output, values = spec.dtypes.output, spec.geometry.values
    pitch = problem.ldd * output.size
    box = (values["staging_line"] // output.size, values["staged_rows"])
    dims = (found["N"], found["M"]) if aligned and pitch % UNIT == 0 else (0, 0)
    return TensorMap(Pointer("D"), output.name, dims, pitch, box, box[0] * output.size)
