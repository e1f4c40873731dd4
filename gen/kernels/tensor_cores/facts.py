"""The facts of a launch: lines of C++ (`gen.kernels.formulas`), from M, N, K and the operands on.

The emitted launcher holds them and `plan` evaluates them: neither can drift from the other.
"""

from __future__ import annotations

from gen.kernels.formulas import Fact, evaluate
from gen.kernels.occupancy import occupancy
from gen.kernels.tensor_cores.operands import Operand, operands, packing, rounded, transposed
from gen.kernels.tensor_cores.tiles import lies_anywhere, sums, writes_d
from gen.spec.arch import MOST_REGISTERS, UNIT, WARP, compute_capability
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GROUPS

SECTION = 256  # bytes: what the parts of the workspace start at multiples of
STEPS_A_SLICE = 4  # along K, at least, where the number of slices is chosen by itself

# Registers of a thread, about, beside its sums and fragments; more of them where chunks are read
# wherever they lie. `held_blocks` is right with them in 382 of the 422 kernels of `mma` and `simt`
# that are chosen among on Hopper, and off by a block or two in the others.
_OTHERS, _ANYWHERE = 42, 16

# Groups of four sums that a block of the reduction adds up; its threads share the slices.
_REDUCE_WIDTH = Fact("width", "slices > 64 ? 8 : slices > 16 ? 16 : 32")


def reduce_width(slices: int) -> int:
    """What the reduction's width is where the number of slices is known when it is emitted."""
    return evaluate([_REDUCE_WIDTH], {"slices": slices})["width"]


def may_be_early(spec: KernelSpec) -> bool:
    """Whether the next kernel may start before this one ends; not after packing.

    How many tiles groups have, nobody knows before the kernels that write their sizes have ended.
    """
    return not transposed(spec) and spec.dtypes.parts == 1 and not spec.grouped


def facts(spec: KernelSpec) -> list[Fact]:
    """What a launch is worked out from, line by line, given M, N, K, A, lda, B, ldb of the product.

    A and B are addresses. Of a persistent kernel as many blocks stay as there are
    `multiprocessors`, and TMA feeds them. What is never packed leaves tiles, and slices of K.
    """
    if not spec.packs:
        if spec.grouped:
            return [*_tiles(spec), *_blocks(spec)]
        if spec.stream_k:
            return [*_tiles(spec), *_stream(spec)]
        return [*_tiles(spec), *([] if spec.split_k == 1 else [*_slices(spec), *_partials(spec)])]
    a, b = operands(spec)
    size = spec.dtypes.factor.size
    packed = f"b_offset + {rounded(_bytes(b.elements, size), SECTION)}"
    lines = [
        *a.facts(),
        *b.facts(),
        Fact("b_offset", rounded(_bytes(a.elements, size), SECTION), "bytes"),
        *_tiles(spec),
    ]
    if spec.stream_k:
        lines += _stream(spec, packed)
    elif spec.split_k == 1:
        lines.append(Fact("bytes", packed, "of the workspace"))
    else:
        lines += [*_slices(spec), *_partials(spec, packed)]
    if spec.row.persistent:
        lines += _persistent(spec, a, b)
    elif spec.grouped:
        lines += _blocks(spec)
    return [*lines, *packing(a, b)]


def _tiles(spec: KernelSpec) -> list[Fact]:
    """Work tiles, of all products; blocks of a cluster have one together.

    Where a group ends inside of a tile, the next one begins another.
    """
    if spec.several == GROUPS:
        rows = "(M + (kTileM - 1) * filled) / kTileM"
        return [
            Fact("filled", "groups < M ? groups : M", "groups with rows, at most"),
            Fact("tiles", f"{rows} * ((N + kTileN - 1) / kTileN)", "at most"),
        ]
    return [_whole_tiles(spec)]


def _whole_tiles(spec: KernelSpec) -> Fact:
    products = f" * {spec.several.number}" if spec.stacked else ""
    if spec.cluster == (1, 1):
        text = f"(M + kTileM - 1) / kTileM * ((N + kTileN - 1) / kTileN){products}"
        return Fact("tiles", text, "of D")
    text = f"(M + kSpanM - 1) / kSpanM * ((N + kSpanN - 1) / kSpanN){products}"
    return Fact("tiles", text, "a cluster's" if products else "of D, a cluster's")


_MOST = f"steps / {STEPS_A_SLICE}"


def auto_slices(places: str) -> list[Fact]:
    """How many slices of K there are where that is chosen by itself. places: for blocks."""
    return [
        Fact("most", f"{_MOST} > 1 ? {_MOST} : 1", f"slices of at least {STEPS_A_SLICE} steps"),
        Fact("fit", f"{places} / tiles", "slices of each tile that run at the same time"),
        Fact("wanted", "fit < 2 ? 1 : fit < most ? fit : most", "slices"),
        Fact("each", "(steps + wanted - 1) / wanted", "steps of a slice"),
        Fact("slices", "(steps + each - 1) / each", "as few as have no more steps"),
    ]


def _slices(spec: KernelSpec) -> list[Fact]:
    steps = Fact("steps", "K > kTileK ? (K + kTileK - 1) / kTileK : 1", "along K")
    if spec.split_k:
        return [steps, Fact("slices", f"steps < {spec.split_k} ? steps : {spec.split_k}", "of K")]
    held = held_blocks(spec)
    return [steps, *auto_slices(f"{held} * multiprocessors" if held > 1 else "multiprocessors")]


def _partials(spec: KernelSpec, offset: str = "") -> list[Fact]:
    """Partial sums, so far from the beginning of the workspace, which is all theirs without."""
    width = reduce_width(spec.split_k) if spec.split_k else f"({_REDUCE_WIDTH.text})"
    tiles, some = "tiles", []
    if writes_d(spec.tunables):
        tiles, some = "split", [Fact("split", "slices > 1 ? tiles : 0", "tiles of many slices")]
    sums = f"slices * {tiles} * kTileM * kTileN * {spec.dtypes.scalar.size}"
    size = Fact("bytes", sums, "of the workspace")
    behind = [Fact("partials_offset", offset), Fact("bytes", f"partials_offset + {sums}")]
    return [
        *some,
        *(behind if offset else [size]),
        Fact("reduce_blocks", f"{tiles} * (kTileM * kTileN / 4) / {width}"),
    ]


def _stream(spec: KernelSpec, offset: str = "") -> list[Fact]:
    """What blocks that share work tiles give each other: a tile of sums each, a flag for a warp.

    Teams that share each step have a tile of sums each.
    """
    sums = f"sharing * kTileM * kTileN * {spec.sliced_k * spec.dtypes.accumulator.size}"
    behind = [Fact("partials_offset", offset), Fact("flags_offset", f"partials_offset + {sums}")]
    return [
        *_blocks(spec),
        Fact("sharing", "K > 0 && tiles % blocks > 0 ? blocks : 0", "blocks that share tiles"),
        *(behind if offset else [Fact("flags_offset", sums, "bytes")]),
        Fact("flags", f"sharing * {giving_warps(spec)}", "for each warp of a tile one"),
        Fact("bytes", "flags_offset + flags * 4", "of the workspace"),
    ]


def giving_warps(spec: KernelSpec) -> int:
    """Warps that have the sums of a tile: of a persistent kernel, all but producers."""
    if not spec.row.persistent:
        return spec.threads[0] // WARP
    consumers, teams = (int(spec.geometry.values[name]) for name in ("consumers", "teams"))
    return consumers // teams


def _persistent(spec: KernelSpec, a: Operand, b: Operand) -> list[Fact]:
    work = "tiles" if spec.split_k == 1 else "work"
    # After packing, the next launch is likely to pack as well, which is slower among this kernel's
    # blocks.
    cluster = spec.cluster_blocks
    all_of_them = f"{work} * {cluster}" if cluster > 1 else work
    alone = f"{all_of_them} == blocks && !packs_a && !packs_b"
    early = Fact("early", alone, "the next kernel may start", "bool")
    boxes = [
        box
        for x, rows, tile in ((a, "M", "kTileM"), (b, "N", "kTileN"))
        for box in _boxes(x, rows, tile)
    ]
    return [
        *([] if spec.split_k == 1 else [Fact("work", "tiles * slices")]),
        *([] if spec.stream_k else _blocks(spec)),
        *([early] if may_be_early(spec) else []),
        *boxes,
        *(_apart(x) for x in (a, b) if x.batched),
    ]


def _apart(operand: Operand) -> Fact:
    """Elements between a batch's matrices as tensor maps have them: of a single one, any number."""
    x = operand.letter
    return Fact(f"{x}_apart", f"{x}_count > 1 ? {x}_stride : {x}_ld", "matrices, for the TMA")


def _boxes(x: Operand, rows: str, tile: str) -> list[Fact]:
    """What TMA copies in a box: it takes long for what a matrix does not have."""
    name, own = f"{x.letter}_box", f"{tile} / {x.sharers}" if x.sharers > 1 else tile
    if not x.along_k:
        unit = UNIT // x.size
        last = f"({rows} - 1) % {x.panel} / {unit} * {unit} + {unit}"
        edge = Fact(f"{x.letter}_edge", last, "elements of a line in the last panel")
        return [edge] if x.ends else []
    if x.has_short_boxes:
        return [Fact(name, f"{rows} < {tile} ? {rows} : {tile}", "lines of it")]
    box = Fact(name, own, "lines of it" + ", which a block copies" * (x.sharers > 1))
    edge = Fact(f"{x.letter}_edge", f"({rows} - 1) % {name} + 1", "of the last one")
    return [box, edge] if x.ends else [box]


def _blocks(spec: KernelSpec) -> list[Fact]:
    """Those that stay, in whole clusters."""
    if (held := held_blocks(spec)) > 1:
        return [
            Fact("places", f"{held} * multiprocessors", "of blocks, about"),
            Fact("blocks", "tiles < places ? tiles : places"),
        ]
    work, size = "tiles" if spec.split_k == 1 else "work", spec.cluster_blocks
    if size == 1:
        return [Fact("blocks", f"{work} < multiprocessors ? {work} : multiprocessors")]
    clusters = f"multiprocessors < {2 * size} ? 1 : multiprocessors / {size}"
    return [
        Fact("clusters", clusters, "that run at the same time"),
        Fact("blocks", f"({work} < clusters ? {work} : clusters) * {size}"),
    ]


def held_blocks(spec: KernelSpec, capability: int | None = None) -> int:
    """Blocks that a multiprocessor holds at the same time, about, as registers are an estimate.

    Where it holds fewer, the others begin when these have ended: nothing waits for them.
    capability: of the GPU, by default the one that the kernel is written for.
    """
    if spec.row.persistent:
        return 1
    assert spec.warp
    registers = sums(spec.warp, spec.dtypes) + (spec.warp.m + spec.warp.n) // 4 + _OTHERS
    registers += _ANYWHERE * lies_anywhere(spec.tunables, spec.dtypes)
    shared = spec.geometry.static_shared + spec.geometry.dynamic_shared
    cc = capability or compute_capability(spec.arch)
    return max(occupancy(cc, spec.threads[0], min(registers, MOST_REGISTERS), shared).blocks, 1)


def _bytes(elements: str, size: int) -> str:
    return f"{elements} * {size}" if size > 1 else elements
