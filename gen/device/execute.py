"""Carries out a plan on a runner: memory, addresses, launches, what the device's checks found."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gen.compile import nvrtc
from gen.device.runner import Runner
from gen.errors import CheckError
from gen.kernels.launches import (
    BIAS,
    OFFSETS,
    WORKSPACE,
    Argument,
    Launch,
    Plan,
    Pointer,
    TensorMap,
    resolve,
)
from gen.spec import numerics
from gen.spec.arch import UNIT
from gen.spec.epilogue import MATRIX, Operand
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ONE, Alignment, GemmProblem, Layouts, group_rows

if TYPE_CHECKING:
    from gen.emulator import Finding

POISON = 0xFF  # of every byte of a workspace: NaN in any float format


class Operands(NamedTuple):
    """A, B, C as matrices (m x k, k x n, m x n) of their storage dtype; D's storage before.

    `bias` has n elements of C's type, or is None where the kernel has none. Of a batched kernel,
    matrices have a dimension before these: of 1, where all products have the same. `own`: arrays
    of the operands of an epilogue of the user's own, by name, of its type's storage, of the shapes
    of `Operand.shape`; all products of a batch have the same. Of groups of rows, B alone has a
    dimension more, and of groups along K, C: a matrix for each group.
    """

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d_storage: np.ndarray
    bias: np.ndarray | None = None
    own: Mapping[str, np.ndarray] = MappingProxyType({})


def results(spec: KernelSpec, problem: GemmProblem, storage: np.ndarray) -> np.ndarray:
    """D in its storage: a matrix, or several."""
    s, batch = problem.shape, problem.batch
    several = (batch.products, batch.stride_d) if spec.stacked else None
    return numerics.unpack(storage, s.m, s.n, spec.layouts.c, problem.ldd, several)


def products(
    layouts: Layouts, problem: GemmProblem, operands: Operands
) -> Iterator[tuple[GemmProblem, Operands]]:
    """Each product of a batch, or each group along K, as a problem of its own.

    What has no dimension for that, as it is.
    """
    if operands.c.ndim == 2:
        yield problem, operands
        return
    a, b, shape, batch = operands.a, operands.b, problem.shape, problem.batch
    one = replace(problem, batch=ONE, ends_k=None)
    bounds = group_rows(problem.ends_k or (), shape.k)
    for i in range(batch.products):
        d = operands.d_storage[i * batch.stride_d :][: problem.extent("D", layouts)]
        c = operands.c[i if len(operands.c) > 1 else 0]
        if problem.ends_k is None:
            of_a, of_b = (x[i if len(x) > 1 else 0] for x in (a, b))
        else:
            begin, end = bounds[i]
            of_a, of_b = a[:, begin:end], b[begin:end]
            one = replace(one, shape=replace(shape, k=end - begin), group=i)
        yield one, Operands(of_a, of_b, c, d, operands.bias, operands.own)


def groups(problem: GemmProblem, operands: Operands) -> Iterator[tuple[GemmProblem, Operands]]:
    """Each group of rows as a problem of its own, but empty ones; without `ends`, the problem.

    Nothing of the epilogue's own operands.
    """
    if problem.ends is None:
        yield problem, operands
        return
    shape = problem.shape
    one = replace(problem, batch=ONE, ends=None)
    for i, (begin, end) in enumerate(group_rows(problem.ends, shape.m)):
        if begin < end:
            rows = slice(begin, end)
            b = operands.b[i if len(operands.b) > 1 else 0]
            own = replace(one, shape=replace(shape, m=end - begin))
            d = operands.d_storage[begin * problem.ldd : end * problem.ldd]
            yield own, Operands(operands.a[rows], b, operands.c[rows], d, operands.bias)


class FindingsError(CheckError):
    """What the device's checks found in a launch."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{findings[0]}{more}")
        self.findings = tuple(findings)


class Place(NamedTuple):
    """Where something starts: `offset` bytes into a runner's buffer."""

    buffer: Any
    offset: int = 0

    @property
    def address(self) -> int:
        """The byte's address on the device."""
        return int(self.buffer.address) + self.offset


def arguments(
    args: Mapping[str, Argument], places: Mapping[str, Place], runner: Runner
) -> list[Any]:
    """What `Runner.launch` takes: the arguments of a launch with addresses in place of names."""

    def pointer(arg: Pointer) -> np.uint64:
        return np.uint64(places[arg.buffer].address + arg.offset)

    def tensor_map(arg: TensorMap) -> Any:
        place = places[arg.source.buffer]
        return runner.tensor_map(arg, place.buffer, place.offset + arg.source.offset)

    return resolve(args, pointer, tensor_map)


def run_plan(
    runner: Runner, module: nvrtc.Module, steps: Plan, places: Mapping[str, Place]
) -> None:
    """Launches everything in order. Raises FindingsError with what the device's checks found."""
    for launch in steps.launches:
        args = arguments(launch.args, places, runner)
        findings = runner.launch(
            module,
            launch.kernel,
            launch.grid,
            launch.block,
            args,
            launch.shared_bytes,
            launch.early,
        )
        if findings:
            raise FindingsError(findings)


@contextmanager
def uploaded(
    runner: Runner,
    storages: Mapping[str, np.ndarray],
    undefined: Collection[str] = (),
    skips: Mapping[str, int] | None = None,
    names: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Place]]:
    """The arrays in memory of the runner, freed at the end.

    undefined: those that a kernel must not read before it has written. skips: how many elements
    into their buffers they start, if not at the beginning. names: what findings call them, if not
    as here.
    """
    places: dict[str, Place] = {}
    try:
        for name, storage in storages.items():
            skip = (skips or {}).get(name, 0)
            before = skip * storage.itemsize
            called, defined = (names or {}).get(name, name), name not in undefined
            buffer = runner.upload(behind(storage, skip), called, defined, before)
            places[name] = Place(buffer, before)
        yield places
    finally:
        for place in places.values():
            runner.free(place.buffer)


def _filler(dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(bytes([POISON] * dtype.itemsize), dtype)[0]


def download(runner: Runner, place: Place) -> np.ndarray:
    """What was uploaded, as it is now. Raises CheckError where something beside it was written."""
    whole = runner.download(place.buffer)
    skip = place.offset // whole.itemsize
    if whole[:skip].tobytes() != bytes([POISON] * place.offset):
        raise CheckError(f"an element before {place.buffer.name} was overwritten")
    return whole[skip:]


def storages(spec: KernelSpec, problem: GemmProblem, operands: Operands) -> dict[str, np.ndarray]:
    """The buffers that a problem starts with, by name, as BLAS stores matrices."""
    layouts, input_, output = spec.layouts, spec.dtypes.input.name, spec.dtypes.output.name
    bias = {} if operands.bias is None else {BIAS: operands.bias}
    p, batch = problem, problem.batch
    return {
        "A": numerics.pack(operands.a, layouts.a, p.lda, input_, batch.stride_a),
        "B": numerics.pack(operands.b, layouts.b, p.ldb, input_, batch.stride_b),
        "C": numerics.pack(operands.c, layouts.c, p.ldc, output, batch.stride_c),
        "D": operands.d_storage,
        **({OFFSETS: np.array(ends_of(spec, problem), np.int32)} if spec.grouped else {}),
        **bias,
        **{o.name: _stored(spec, problem, o, operands.own) for o in spec.operands if o.index},
    }


def ends_of(spec: KernelSpec, problem: GemmProblem) -> tuple[int, ...]:
    """Where groups end; of a problem that says nothing of groups, all in the last one."""
    ends, all_of_it = problem.ends, problem.shape.m
    if spec.grouped_k:
        ends, all_of_it = problem.ends_k, problem.shape.k
    return (0,) * (problem.batch.products - 1) + (all_of_it,) if ends is None else ends


def _stored(
    spec: KernelSpec, problem: GemmProblem, operand: Operand, own: Mapping[str, np.ndarray]
) -> np.ndarray:
    array = own[operand.name]
    if operand.index != MATRIX:
        return array
    ld = int(problem.value(operand.ld, problem.ldd))
    return numerics.pack(array, spec.layouts.c, ld, operand.element(spec.dtypes).name)


def alignment(places: Mapping[str, Place]) -> Alignment:
    """Which matrices start at a multiple of 16 bytes."""
    return Alignment(*(places[name].address % UNIT == 0 for name in "ABD"))


class Case(NamedTuple):
    """What a kernel runs once with.

    skips: elements between the start of each operand's buffer, which is well aligned, and the
    operand. in_place: C is D.
    """

    problem: GemmProblem
    operands: Operands
    skips: Mapping[str, int] = MappingProxyType({})
    in_place: bool = False


def stored_for(
    spec: KernelSpec, runner: Runner, case: Case
) -> tuple[GemmProblem, dict[str, np.ndarray]]:
    """The buffers of a run, and its problem with what nobody may look at."""
    problem, stored = case.problem, storages(spec, case.problem, case.operands)
    if case.in_place:
        stored["D"] = stored.pop("C")
    elif problem.beta == 0 and runner.finds_reads:
        stored["C"] = stored["C"][:0]  # it may be null
        if problem.lda % 2:  # and its leading dimension anything: nobody looks at either
            problem = replace(problem, ldc=0)
    return problem, stored


def run_kernel(
    spec: KernelSpec, runner: Runner, module: nvrtc.Module, case: Case, *, blocks: int = 0
) -> np.ndarray:
    """Runs a kernel once and returns D's storage.

    blocks: launch no more along the axes where the kernel's blocks stride, and of those that pack
    operands; 0 for as many as are planned. Raises FindingsError with what the device's checks
    found, CheckError for a write beside D or beside the workspace.
    """
    problem, stored = stored_for(spec, runner, case)
    undefined = () if case.in_place else ("D",)
    with uploaded(runner, stored, undefined, case.skips) as places:
        steps = planned(spec, problem, alignment(places), runner.room(spec, module), blocks)
        space = np.full(steps.workspace_bytes, POISON, np.uint8)
        own = {WORKSPACE: space} if space.size else {}
        with uploaded(runner, own, own) as more:
            run_plan(runner, module, steps, {"C": places["D"], **places, **more})
            for place in more.values():
                download(runner, place)
            return download(runner, places["D"])


def behind(storage: np.ndarray, skip: int) -> np.ndarray:
    """An array, flat, behind so many elements that nobody may touch."""
    before = np.full(skip, _filler(storage.dtype), storage.dtype)
    return np.concatenate([before, storage.reshape(-1)])


def planned(
    spec: KernelSpec, problem: GemmProblem, aligned: Alignment, multiprocessors: int, blocks: int
) -> Plan:
    """What is launched, with no more than so many blocks that stride: see `run_kernel`."""
    steps = spec.plan(problem, aligned, multiprocessors)
    if not blocks:
        return steps
    return striding(steps, spec.geometry.strides, blocks, spec.cluster_blocks)


def striding(steps: Plan, axes: str, blocks: int, cluster: int) -> Plan:
    """A plan with no more than so many blocks along these axes, where they stride over the rest.

    Of clusters, which are along x, there are so many.

    Those that pack operands stride along all three: along z, some have A's and some have B's.
    """

    def less(launch: Launch) -> Launch:
        x, y, z = launch.grid
        if "a_packed" in launch.args:
            return replace(launch, grid=(min(x, blocks), min(y, blocks), min(z, 2 * blocks)))
        few = zip(launch.grid, "xyz", (blocks * cluster, blocks, blocks), strict=True)
        x, y, z = (min(n, most) if at in axes else n for n, at, most in few)
        return replace(launch, grid=(x, y, z))

    return replace(steps, launches=tuple(map(less, steps.launches)))
