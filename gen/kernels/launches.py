"""How a problem is run: the launches, in order, with their arguments, and the memory they need.

A plan names its buffers ("A", "B", "C", "D", "bias", those of the
user's own operands, "workspace") and knows no addresses, so that
it can be printed, tested and carried out by any runner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gen.kernels import signature
from gen.kernels.batches import launched
from gen.spec.dtypes import DTypes
from gen.spec.epilogue import MATRIX

if TYPE_CHECKING:
    import numpy as np

    from gen.spec.kernel import KernelSpec
    from gen.spec.problem import GemmProblem

Dim3 = tuple[int, int, int]

WORKSPACE, BIAS, OFFSETS = "workspace", "bias", "offsets"
MAP_BYTES = 128  # of a tensor map as a kernel's parameter


@dataclass(frozen=True)
class Pointer:
    """`offset` bytes into a buffer."""

    buffer: str
    offset: int = 0


# See TensorMap: a line of so many, in a dimension whose stride is 2^64 by ABOVE bytes, below 2^40.
ABOVE_BITS = 25
ABOVE = 1 << ABOVE_BITS


@dataclass(frozen=True)
class TensorMap:
    """A matrix in memory and the boxes that TMA copies of it (CUtensorMap).

    `dims` and `box` are elements, the contiguous dimension first; `pitch` is the bytes from one
    line to the next. `swizzle` is how many bytes of shared memory its pattern spans: 128, 64, 32.
    With a size of 0 in `dims` the map describes nothing, and is never used. Where a line has
    several `parts` of as many bytes, each a line of a matrix, boxes have the same place in all.
    `batch`: of a batched kernel, how many matrices there are, and the bytes from one to the next;
    a box is of one of them. `ragged`: of groups along lines, a box can end at any line, so that the
    next group's are outside: it begins as many lines as it has before line ABOVE of a dimension
    with no more, and two further dimensions, a line apart and back by ABOVE lines, bring it to its
    place. Addresses wrap around at 2^64, so that the map's own address is the matrix's.
    """

    source: Pointer
    element: str
    dims: tuple[int, int]
    pitch: int
    box: tuple[int, int]
    swizzle: int
    parts: int = 1
    batch: tuple[int, int] | None = None
    ragged: bool = False

    @property
    def tiled(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Sizes, strides in bytes and box, as cuTensorMapEncodeTiled takes them."""
        dims, strides, box = [*self.dims], [self.pitch], [*self.box]
        if self.ragged:
            back = 2**64 // ABOVE - self.pitch
            return (
                (dims[0], ABOVE, dims[1] + 1, ABOVE + 1),
                (self.pitch, self.pitch, back),
                (*box, 1, 1),
            )
        if self.batch:
            dims.append(self.batch[0])
            strides.append(self.batch[1])
            box.append(1)
        if self.parts > 1:
            dims.append(self.parts)
            strides.append(self.pitch // self.parts)
            box.append(self.parts)
        return tuple(dims), tuple(strides), tuple(box)


Argument = Any  # a Pointer, a TensorMap, or a numpy scalar of the parameter's size


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel; `args` are its parameters by name, in order.

    early: whether it may start while the kernel before it ends, because it waits by itself
    (programmatic dependent launch).
    all_shared: whether an SM's whole L1 cache is to be shared memory, so that beside this kernel's
    blocks there is room for those of the next one.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    args: Mapping[str, Argument]
    early: bool = False
    all_shared: bool = False


@dataclass(frozen=True)
class Plan:
    """All launches that a problem needs, one after another, and the bytes of their workspace."""

    launches: tuple[Launch, ...]
    workspace_bytes: int = 0

    def launch(self, kernel: str) -> Launch:
        """The launch of this kernel."""
        return next(launch for launch in self.launches if launch.kernel == kernel)


def resolve(
    args: Mapping[str, Argument],
    pointer: Callable[[Pointer], Any],
    tensor_map: Callable[[TensorMap], Any],
) -> list[Any]:
    """Arguments in order, with what the two functions give in place of names of buffers."""

    def value(arg: Argument) -> Any:
        if isinstance(arg, Pointer):
            return pointer(arg)
        return tensor_map(arg) if isinstance(arg, TensorMap) else arg

    return [value(arg) for arg in args.values()]


def i64(value: int) -> np.int64:
    """An index, as kernels take it."""
    import numpy as np

    return np.int64(value)


def scalar(value: float, dtypes: DTypes) -> np.generic:
    """alpha or beta, as kernels take it; infinity for what is beyond its type."""
    import numpy as np

    from gen.spec.numerics import storage_dtype

    with np.errstate(over="ignore"):
        converted: np.generic = storage_dtype(dtypes.scalar.name).type(value)
    return converted


def matrices(
    problem: GemmProblem, dtypes: DTypes, swapped: bool = False, strided: bool = False
) -> dict[str, Argument]:
    """The arguments of a kernel that computes a whole GEMM: see `signature.matrices`.

    swapped: whether it computes the transpose of D.
    """
    s, p, b = problem.shape, problem, problem.batch
    values: dict[str, Argument] = {
        "M": i64(s.m), "N": i64(s.n), "K": i64(s.k), "alpha": scalar(p.alpha, dtypes),
        "A": Pointer("A"), "lda": i64(p.lda), "B": Pointer("B"), "ldb": i64(p.ldb),
        "beta": scalar(p.beta, dtypes), "C": Pointer("C"), "ldc": i64(p.ldc),
        "D": Pointer("D"), "ldd": i64(p.ldd),
        "stride_a": i64(b.stride_a), "stride_b": i64(b.stride_b),
        "stride_c": i64(b.stride_c), "stride_d": i64(b.stride_d),
    }  # fmt: skip
    names = [p.name for p in signature.matrices(strided=strided)]
    return {name: values[signature.given_as(name, swapped)] for name in names}


def of_epilogue(spec: KernelSpec, problem: GemmProblem) -> dict[str, Argument]:
    """The arguments behind these: see `signature.of_epilogue`."""
    if spec.has_bias:
        return {BIAS: Pointer(BIAS)}
    found: dict[str, Argument] = {}
    for operand in spec.operands:
        if not operand.index:
            found[operand.symbol] = scalar(problem.value(operand.name, 1), spec.dtypes)
            continue
        found[operand.symbol] = Pointer(operand.name)
        if operand.index == MATRIX:
            found[operand.ld] = i64(int(problem.value(operand.ld, problem.ldd)))
    return found


def one_kernel(
    spec: KernelSpec, problem: GemmProblem, grid: Dim3, shared_bytes: int, early: bool
) -> Plan:
    """The plan of a kernel that does everything, without a workspace.

    That is one launch of a grid for each product; of a batch, as many as a grid can be deep.
    early: see `Launch`.
    """
    args = matrices(problem, spec.dtypes, spec.swapped, spec.batched)
    args |= of_epilogue(spec, problem)
    one = Launch(spec.name, grid, (*spec.threads, 1), shared_bytes, args, early)
    if not spec.batched:
        return Plan((one,))
    launches = (
        replace(one, grid=(*grid[:2], products), args={**args, "first": i64(first)})
        for first, products in launched(problem.batch.products)
    )
    return Plan(tuple(launches))
