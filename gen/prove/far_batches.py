"""The last products of a batch too large to store, more than 2^32 elements behind the first.

They are more than a launch of a kernel on CUDA cores has, or two that far apart. All matrices are
mapped, and take room only where something is written: the operands of the last two products, and
what kernels make of them. Of each launch, only the blocks run that this takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.compile.nvrtc import Module
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Place, alignment, arguments, products
from gen.kernels.launches import BIAS, WORKSPACE, Dim3, Launch
from gen.kernels.tensor_cores.facts import STEPS_A_SLICE
from gen.prove.compare import against_oracle
from gen.prove.far_indices import SECONDS, FarResult, far_operands
from gen.prove.inputs import draw_operands
from gen.spec import numerics
from gen.spec.arch import MAX_GRID_YZ
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Batch, GemmProblem, GemmShape

if TYPE_CHECKING:
    from gen.emulator import Finding, Observer

_LAST = 2  # products that are computed: on CUDA cores, those of the last launch
_PRODUCTS = MAX_GRID_YZ + _LAST
_PACKED = MAX_GRID_YZ // 2  # matrices of an operand that the blocks of a grid pack
_MANY = (2**15 + 1) * MAX_GRID_YZ + _LAST  # more than 2^31
_STRIDE = 2**17 + 48  # times the products, more than 2^32 elements; in whole units of 16 bytes
_FAR = 2**32 + 2**12  # elements from one product to the next
_BUDGET = 10**9


def far_batches(
    spec: KernelSpec,
    module: Module,
    deadline: float | None = None,
    observers: Sequence[Observer] = (),
) -> Iterator[FarResult]:
    """Runs the last products, of one tile at most; not of a kernel whose blocks share tiles.

    deadline: see far_results. Raises MissingError where this machine does not map so much memory.
    """
    if not spec.batched or spec.stream_k:
        return
    steps = 2 * STEPS_A_SLICE if spec.split_k == 0 else 2  # two slices at least
    shape = GemmShape(5, 6, steps * min(spec.threadblock.k, 256) - 1)
    alone = GemmProblem.packed(shape, spec.layouts, 2, -1, 16, 16)
    length = shape.n if spec.layouts.c else shape.m
    alone = replace(alone, operands=far_operands(spec, length, 0))
    apart = (_STRIDE + 16 * i for i in range(4))  # a stride in place of another is another place
    yield _run(spec, module, replace(alone, batch=Batch(_PRODUCTS, *apart)), deadline, observers)
    yield _run(
        spec, module, replace(alone, batch=Batch(_LAST, *(_FAR + 16 * i for i in range(4)))),
        deadline, observers,
    )  # fmt: skip
    if spec.packs:
        yield _run(spec, module, _packed(spec), deadline, observers)
    if not spec.row.takes_workspace:  # products are numbered beyond 32 bits, too
        shape = GemmShape(1, 1, 1)
        alone = GemmProblem.packed(shape, spec.layouts, 2, -1)
        alone = replace(alone, operands=far_operands(spec, 1, 0))
        yield _run(
            spec, module, replace(alone, batch=Batch(_MANY, 1, 2, 3, 4)), deadline, observers
        )


def _packed(spec: KernelSpec) -> GemmProblem:
    """Operands to pack, whose copies are more than 2^32 elements.

    There are more of them than blocks: the blocks stride, and have the last ones in a fourth round.
    """
    tile = spec.threadblock
    shape = GemmShape(tile.m, tile.n, 2**16 // min(tile.m, tile.n) + 40)
    alone = GemmProblem.packed(shape, spec.layouts, 2, -1, 3)
    alone = replace(alone, operands=far_operands(spec, shape.n if spec.layouts.c else shape.m, 0))
    return alone.batched(spec.layouts, 3 * _PACKED + _LAST, 1)


def _run(
    spec: KernelSpec,
    module: Module,
    problem: GemmProblem,
    deadline: float | None,
    observers: Sequence[Observer],
) -> FarResult:
    """The last products."""
    count = problem.batch.products
    near = problem.extent("D", spec.layouts)
    last = replace(problem, batch=problem.batch._replace(products=_LAST, stride_d=near))
    given = draw_operands(spec, last, "integer")
    # A persistent kernel has a block, or a cluster, for each product, and for each of two slices.
    runner = EmulatorRunner(observers=observers, multiprocessors=2 * count * spec.cluster_blocks)
    runner.budget, runner.deadline = _BUDGET, deadline
    runner.time_budget = None if deadline else SECONDS
    places = {
        name: _placed(runner, spec, problem, name, matrices)
        for name, matrices in zip("ABC", given[:3], strict=True)
    }
    before = np.full_like(given.c, numerics.poison(spec.dtypes.output.name))
    places["D"] = _placed(runner, spec, problem, "D", before)
    if given.bias is not None:
        places[BIAS] = Place(runner.upload(given.bias, BIAS))
    for name, array in given.own.items():
        stored = array if spec.layouts.c else array.T
        places[name] = Place(runner.upload(stored.reshape(-1), name))
    plan = spec.plan(problem, alignment(places), runner.multiprocessors)
    places[WORKSPACE] = Place(runner.upload_zeros(max(plan.workspace_bytes, 1), WORKSPACE))
    found: list[Finding] = []
    for launch in plan.launches:
        for window in _windows(spec, launch, count):
            runner.window = window
            args = arguments(launch.args, places, runner)
            found += runner.launch(
                module, launch.kernel, launch.grid, launch.block, args, launch.shared_bytes
            )
    got = _matrices(spec, problem, "D", places["D"].buffer.buffer)
    message = ""
    for i, (one, own) in enumerate(products(spec.layouts, last, given)):
        _, wrong = against_oracle(spec, one, own, np.ascontiguousarray(got[i]), "integer")
        message = message or (wrong and f"in product {count - _LAST + i}, {wrong}")
    return FarResult(problem.shape, found, message)


def _matrices(spec: KernelSpec, problem: GemmProblem, name: str, memory: Any) -> np.ndarray:
    """Those of the last products in the memory of all."""
    layouts, types = spec.layouts, spec.dtypes
    count, length, ld = problem.lines(name, layouts)
    flat = memory.view(numerics.storage_dtype((types.input if name in "AB" else types.output).name))
    stride = problem.batch.stride(name)
    here = flat[(problem.batch.products - _LAST) * stride :]
    strides = tuple(n * flat.itemsize for n in (stride, ld, 1))
    lines = np.lib.stride_tricks.as_strided(here, (_LAST, count, length), strides)
    row_major = {"A": layouts.a, "B": layouts.b}.get(name, layouts.c)
    return lines if row_major else lines.swapaxes(1, 2)


def _placed(
    runner: EmulatorRunner, spec: KernelSpec, problem: GemmProblem, name: str, matrices: np.ndarray
) -> Place:
    before = (problem.batch.products - 1) * problem.batch.stride(name)
    elements = before + problem.extent(name, spec.layouts)
    buffer = runner.upload_zeros(elements * matrices.itemsize, name)
    _matrices(spec, problem, name, buffer.buffer)[...] = matrices
    return Place(buffer)


def _windows(spec: KernelSpec, launch: Launch, count: int) -> Iterator[tuple[Dim3, Dim3]]:
    """The first block and the number of blocks along each axis, of those that the products take."""
    x, y, z = launch.grid
    if not spec.row.takes_workspace:
        if z == count % MAX_GRID_YZ:  # the last launch has them all
            yield (0, 0, 0), (x, y, z)
        return
    if "a_packed" in launch.args:  # blocks along z of each operand in turn
        at = (count - _LAST) % (z // 2)
        yield (0, 0, 2 * at), (x, y, 2 * _LAST)
        return
    if launch.kernel != spec.name:  # the reduction, with as many blocks for each tile
        blocks = x // count * _LAST
        yield (x - blocks, 0, 0), (blocks, y, z)
        return
    # A persistent kernel has all tiles of a slice, then those of the next one.
    cluster = spec.cluster_blocks
    for end in range(count * cluster, x + 1, count * cluster):
        yield (end - _LAST * cluster, 0, 0), (_LAST * cluster, y, z)
