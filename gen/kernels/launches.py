"""How a problem is run: the launches, in order, with their arguments, and the memory they need.

A plan names its buffers ("A", "B", "C", "D", "bias", "workspace") and knows no addresses, so that
it can be printed, tested and carried out by any runner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gen.kernels import signature
from gen.spec.dtypes import DTypes

if TYPE_CHECKING:
    import numpy as np

    from gen.spec.kernel import KernelSpec
    from gen.spec.problem import GemmProblem

Dim3 = tuple[int, int, int]

WORKSPACE, BIAS = "workspace", "bias"
MAP_BYTES = 128  # of a tensor map as a kernel's parameter


@dataclass(frozen=True)
class Pointer:
    """`offset` bytes into a buffer."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True)
class TensorMap:
    """A matrix in memory and the boxes that TMA copies of it (CUtensorMap).

    `dims` and `box` are elements, the contiguous dimension first; `pitch` is the bytes from one
    line to the next. `swizzle` is how many bytes of shared memory its pattern spans: 128, 64, 32.
    With a size of 0 in `dims` the map describes nothing, and is never used.
    """

    source: Pointer
    element: str
    dims: tuple[int, int]
    pitch: int
    box: tuple[int, int]
    swizzle: int


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
    """alpha or beta, as kernels take it."""
    from gen.spec.numerics import storage_dtype

    converted: np.generic = storage_dtype(dtypes.scalar.name).type(value)
    return converted


def matrices(problem: GemmProblem, dtypes: DTypes, has_bias: bool = False) -> dict[str, Argument]:
    """The arguments of a kernel that computes a whole GEMM: see `signature.matrices`."""
    s, p = problem.shape, problem
    values: dict[str, Argument] = {
        "M": i64(s.m), "N": i64(s.n), "K": i64(s.k), "alpha": scalar(p.alpha, dtypes),
        "A": Pointer("A"), "lda": i64(p.lda), "B": Pointer("B"), "ldb": i64(p.ldb),
        "beta": scalar(p.beta, dtypes), "C": Pointer("C"), "ldc": i64(p.ldc),
        "D": Pointer("D"), "ldd": i64(p.ldd), "bias": Pointer(BIAS),
    }  # fmt: skip
    return {p.name: values[p.name] for p in signature.matrices(has_bias)}


def one_launch(spec: KernelSpec, problem: GemmProblem, grid: Dim3, shared_bytes: int) -> Plan:
    """The plan of a kernel that does everything in one launch, without a workspace."""
    args = matrices(problem, spec.dtypes, spec.has_bias)
    return Plan((Launch(spec.name, grid, (*spec.threads, 1), shared_bytes, args),))
