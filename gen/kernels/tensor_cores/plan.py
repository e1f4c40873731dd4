"""How the tensor-core kernels run a problem: packing, the product, the sum over slices of K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gen.errors import SpecError
from gen.kernels import signature
from gen.kernels.formulas import evaluate
from gen.kernels.launches import (
    OFFSETS,
    WORKSPACE,
    Argument,
    Launch,
    Plan,
    Pointer,
    TensorMap,
    i64,
    matrices,
    of_epilogue,
)
from gen.kernels.tensor_cores.facts import facts, may_be_early
from gen.kernels.tensor_cores.operands import HELPER_THREADS, Operand, operands
from gen.kernels.tensor_cores.tiles import writes_d
from gen.spec.arch import UNIT, compute_capability
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GROUPS, Alignment, GemmProblem

MOST_SIZE = 2**31 - 4096  # M, N, K: where tiles and steps ahead end is an int


def parameters(spec: KernelSpec) -> tuple[signature.Parameter, ...]:
    """Those of the kernel that multiplies."""
    epilogue = signature.of_epilogue(spec)
    wanted = writes_d(spec.tunables), epilogue, spec.split_k != 1, spec.several, spec.stream_k
    if spec.row.persistent:
        edges = [x.letter for x in operands(spec) if x.ends]
        return signature.mma_tma(*wanted, may_be_early(spec), edges)
    return signature.mma(*wanted)


def _evaluate(
    spec: KernelSpec, problem: GemmProblem, alignment: Alignment, multiprocessors: int
) -> dict[str, int]:
    s, p, batch, tile = problem.shape, problem, problem.batch, spec.threadblock
    sides = [
        (s.m, int(not alignment.a), p.lda, batch.stride_a),
        (s.n, int(not alignment.b), p.ldb, batch.stride_b),
    ]
    if not spec.layouts.c:
        sides.reverse()
    (m, a, lda, stride_a), (n, b, ldb, stride_b) = sides
    given = {
        "M": m, "N": n, "K": s.k, "A": a, "lda": lda, "B": b, "ldb": ldb,
        spec.several.number: batch.products, "stride_a": stride_a, "stride_b": stride_b,
        "multiprocessors": multiprocessors, "kTileM": tile.m, "kTileN": tile.n, "kTileK": tile.k,
        "kParts": spec.dtypes.parts,
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
    packed = {"a": Pointer(WORKSPACE), "b": Pointer(WORKSPACE, found.get("b_offset", 0))}
    read = {x: packed[x] if found.get(f"packs_{x}") else given[x] for x in "ab"}
    line = {x.letter: getattr(problem, x.ld) for x in sides}
    values: dict[str, Argument] = {
        **matrices(problem, spec.dtypes, strided=True),
        **of_epilogue(spec, problem),
        **{name: i64(found[name]) for name in ("M", "N", spec.several.number) if name},
        "offsets": Pointer(OFFSETS),
        "A": read["a"], "lda": i64(found.get("a_ld", line["a"])),
        "B": read["b"], "ldb": i64(found.get("b_ld", line["b"])),
        "stride_a": i64(found.get("a_stride", found["stride_a"])),
        "stride_b": i64(found.get("b_stride", found["stride_b"])),
        **{name: i64(found[name]) for name in ("a_count", "b_count") if name in found},
        "slices": i64(found.get("slices", 1)),
        "partials": Pointer(WORKSPACE, _partials_at(found)) if _sums(found) else _null(),
        "flags": Pointer(WORKSPACE, found["flags_offset"]) if found.get("flags") else _null(),
        "count": i64(found.get("flags", 0)),
    }  # fmt: skip
    grid = (found["tiles"], found.get("slices", 1), 1)
    if spec.persistent:
        if (work := found.get("work", found["tiles"])) > spec.most_work:
            raise SpecError(
                f"{problem.shape} needs {work} work tiles, more than {spec.most_work}; "
                "use a smaller problem or larger tiles"
            )
        grid = (found["blocks"], 1, 1)
    if spec.row.persistent:
        values["early"] = _flag(found.get("early", 0))
        for x in sides:
            values[f"{x.letter}_map"] = _map(spec, x, read[x.letter], found, "box")
            if x.ends:
                values[f"{x.letter}_edge"] = _map(spec, x, read[x.letter], found, "edge")
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
    if found.get("packs_a") or found.get("packs_b"):
        launches.insert(0, _pack(spec, found, given, packed))
    if _sums(found) and "reduce_blocks" in found:
        grid = (found["reduce_blocks"], 1, 1)
        reduce = signature.reduce(signature.of_epilogue(spec), spec.batched)
        launches.append(_helper(f"{spec.name}_reduce", grid, reduce, values))
    return Plan(tuple(replace(each, early=dependent) for each in launches), found.get("bytes", 0))


def _pack(
    spec: KernelSpec,
    found: Mapping[str, int],
    given: Mapping[str, Pointer],
    packed: Mapping[str, Pointer],
) -> Launch:
    values: dict[str, Argument] = {}
    for x in "ab":
        values |= {
            f"{x}_lines": i64(found[f"{x}_lines"]), f"{x}_length": i64(found[f"{x}_length"]),
            x.upper(): given[x], f"ld{x}": i64(found[f"ld{x}"]),
            f"{x}_count": i64(found.get(f"{x}_count", 1)),
            f"stride_{x}": i64(found[f"stride_{x}"]),
            f"{x}_packed": packed[x], f"{x}_packed_ld": i64(found[f"{x}_ld"]),
        }  # fmt: skip
    deep = found["pack_z"] if spec.several == GROUPS else 2 * found.get("pack_z", 1)
    grid = (found["pack_blocks"], 1, deep)
    return _helper(f"{spec.name}_pack", grid, signature.pack(spec.several), values)


def _partials_at(found: Mapping[str, int]) -> int:
    """Where partial sums begin, or would end the workspace: it has nothing else without packing."""
    return found.get("partials_offset", found["bytes"] if "packs_a" in found else 0)


def _sums(found: Mapping[str, int]) -> bool:
    """Whether partial sums are kept."""
    return found.get("bytes", 0) > _partials_at(found)


def _helper(
    kernel: str,
    grid: tuple[int, int, int],
    wanted: tuple[signature.Parameter, ...],
    values: Mapping[str, Argument],
) -> Launch:
    args = {p.name: values[p.name] for p in wanted}
    return Launch(kernel, grid, (HELPER_THREADS, 1, 1), 0, args)


def _map(
    spec: KernelSpec, x: Operand, at: Pointer, found: Mapping[str, int], boxes: str
) -> TensorMap:
    """An operand as TMA copies it; a map of nothing where no step along K is ever made.

    boxes: "box" for those of whole tiles, "edge" for the last one.
    """
    rows, k, step = found["M" if x.letter == "a" else "N"], found["K"], spec.threadblock.k
    if x.along_k:
        dims, box, span = (k, rows), (step, found[f"{x.letter}_{boxes}"]), step
    else:
        width = found[f"{x.letter}_edge"] if boxes == "edge" else x.panel
        dims, box, span = (rows, k), (width, x.box_lines(step)), x.panel
    pitch = found[f"{x.letter}_ld"] * x.size
    return TensorMap(
        at,
        spec.dtypes.factor.name,
        dims if k else (0, 0),
        pitch,
        box,
        span * x.size,
        x.parts,
        (found[f"{x.letter}_count"], found[f"{x.letter}_apart"] * x.size) if x.batched else None,
        spec.grouped_k,
    )


def _map_of_d(
    spec: KernelSpec, problem: GemmProblem, found: Mapping[str, int], aligned: bool
) -> TensorMap:
    """D as TMA writes it; a map of nothing where its rows do not start at multiples of 16 bytes."""
    output, values = spec.dtypes.output, spec.geometry.values
    pitch = problem.ldd * output.size
    box = (values["staging_line"] // output.size, values["staged_rows"])
    apart = problem.batch.stride_d * output.size
    whole = aligned and pitch % UNIT == 0 and apart % UNIT == 0
    dims = (found["N"], found["M"]) if whole else (0, 0)
    count = problem.batch.products
    batch = (count, apart if count > 1 else pitch) if spec.stacked else None
    at = Pointer("D")
    return TensorMap(at, output.name, dims, pitch, box, box[0] * output.size, batch=batch)
