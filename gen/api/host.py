"""Arrays in host memory: to a GPU and back where there is one, else to the emulator."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from gen.api.call import Call
from gen.compile.nvrtc import Module
from gen.device import driver
from gen.device.choose import choose_runner
from gen.device.emulated import EmulatorRunner, default_budget, default_time
from gen.device.execute import Operands, products, results, run_kernel
from gen.device.runner import Runner
from gen.errors import BudgetError, UsageError
from gen.spec import numerics
from gen.spec.epilogue import COLUMNS, MATRIX, ROWS, parse_epilogue
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem

# Multiplications of a model's product that the emulator takes on: some seconds' worth. A kernel
# pads what it multiplies to whole tiles, so that a product counts as at least one of this many
# rows, columns and steps.
EMULATED, LEAST = 1 << 26, 16

_RAISE = re.compile("raise (instruction|time)_budget")
Arrays = Sequence[np.ndarray | None]
Further = Mapping[str, np.ndarray]  # what an epilogue takes, by name

_own = threading.local()  # a runner is for one thread


def runner(device: str) -> Runner:
    """This thread's runner for a device. Raises UsageError, MissingError as choose_runner."""
    runners: dict[str, Runner] = _own.__dict__.setdefault("runners", {})
    if device not in runners:
        runners[device] = choose_runner(device)
    return runners[device]


def check_emulated(sizes: Sequence[int], instead: str, products: int = 1) -> None:
    """Raises UsageError where products of M x N x K, as a model has them, would take too long.

    instead: a function of the arrays' framework for what is refused.
    """
    if products * prod(max(size, LEAST) for size in sizes) > EMULATED:
        many = f"{products} products" if products > 1 else "a product"
        raise UsageError(
            f"{many} of {' x '.join(map(str, sizes))} on the CPU is more than gen's emulator "
            f"should take on ({EMULATED:,} multiplications); move the arrays to a GPU, or use "
            f"{instead}"
        )


def multiply(
    call: Call,
    arrays: Arrays,
    result: np.ndarray,
    device: str,
    build: Callable[[Runner], tuple[KernelSpec, Module]],
    time_budget: float | None = None,
    own: Further = MappingProxyType({}),
) -> None:
    """Computes `result` from A, B, C and the bias, all as `numerics` stores their elements.

    own: arrays that an epilogue of the user's own takes.

    time_budget: seconds of CPU time that the emulator may take for a launch. Raises BudgetError
    beyond, and without one for a launch that takes far more than any of its kind should. Raises
    FindingsError as run_kernel.
    """
    with _first_gpu(device):
        on = runner(device)
        spec, module = build(on)
        found = []
        try:
            for lead, matrices, further in _alike(call, arrays, own):
                problem, operands = _operands(call, spec, lead, matrices, further)
                apart = products(call.layouts, problem, operands)
                for one, its in [(problem, operands)] if spec.batched else apart:
                    if isinstance(on, EmulatorRunner):
                        on.budget = None if time_budget else default_budget(spec, one)
                        on.time_budget = time_budget or default_time(one.shape, one.batch.products)
                    storage = run_kernel(spec, on, module, one, its)
                    found.append(results(spec, one, storage).reshape(-1))
        except BudgetError as error:
            raise BudgetError(_RAISE.sub("pass a larger time_budget", str(error))) from None
    result[...] = np.concatenate(found).reshape(result.shape)


def _alike(
    call: Call, arrays: Arrays, own: Further
) -> Iterator[tuple[tuple[int, ...], Arrays, Further]]:
    """The batch, or where its epilogue takes others for each product, these one after another.

    That is a shape; A, B and C; and by name what the epilogue takes, as a kernel takes it.
    """
    lead, shape = call.batch_shape, call.problem.shape
    *matrices, bias = arrays
    axes = (2, 2, len(call.result_shape) - len(lead))  # fewer where A or B is a vector
    further = own if bias is None else {"bias": bias}
    epilogue = parse_epilogue(call.epilogue) if call.epilogue else None
    index = {name: epilogue.operand(name).index if epilogue else COLUMNS for name in further}
    sizes = {MATRIX: (shape.m, shape.n), ROWS: (shape.m,)}
    ends = {name: axes[2] if index[name] == MATRIX else 1 for name in further}

    def alone(name: str, x: np.ndarray) -> np.ndarray:
        """Of what all products have, one. Rows of one product may be those of a batch."""
        return x.reshape(sizes[index[name]]) if index[name] in sizes else x[(0,) * (x.ndim - 1)]

    if not lead or all(prod(x.shape[: x.ndim - ends[name]]) == 1 for name, x in further.items()):
        yield lead, matrices, {name: alone(name, x) for name, x in further.items()}
        return

    def at(place: tuple[int, ...], x: np.ndarray, axes: int) -> np.ndarray:
        """What one product has."""
        every: np.ndarray = np.broadcast_to(x, (*lead, *x.shape[max(x.ndim - axes, 0) :]))
        found: np.ndarray = every[place]
        return found

    for place in np.ndindex(*lead):
        pairs = zip(matrices, axes, strict=True)
        yield (
            (1,),
            [None if x is None else at(place, x, n) for x, n in pairs],
            {name: alone(name, at(place, x, ends[name])) for name, x in further.items()},
        )


def _operands(
    call: Call, spec: KernelSpec, lead: tuple[int, ...], matrices: Arrays, further: Further
) -> tuple[GemmProblem, Operands]:
    """The problem of a batch and its operands, with one dimension for it; of a call without one."""
    problem, shape, kind = call.problem, call.problem.shape, call.dtypes.output.name
    a, b, c = matrices
    assert a is not None
    assert b is not None
    unread = np.full((1, shape.m, shape.n), numerics.poison(kind), numerics.storage_dtype(kind))
    ends = len(call.result_shape) - len(call.batch_shape)
    reads_c = c is not None and problem.beta != 0
    stacked = (
        _stacked(a, lead, 2, shape.m, shape.k),
        _stacked(b, lead, 2, shape.k, shape.n),
        _stacked(c, lead, ends, shape.m, shape.n) if reads_c and c is not None else unread,
    )
    if lead:
        shared = "".join(x for x, one in zip("ABC", stacked, strict=True) if len(one) == 1)
        whole = GemmProblem.packed(shape, call.layouts, problem.alpha, problem.beta)
        whole = replace(whole, operands=problem.operands)
        problem = whole.batched(call.layouts, prod(lead), shared=shared)
    batch = problem.batch
    every = np.repeat(unread, batch.products, axis=0)
    d = numerics.pack(every, call.layouts.c, problem.ldd, kind, batch.stride_d)
    bias = further["bias"] if spec.has_bias else None
    own = {} if spec.has_bias else further
    if not (lead or spec.batched):
        return problem, Operands(stacked[0][0], stacked[1][0], stacked[2][0], d, bias, own)
    return problem, Operands(*stacked, d, bias, own)


def _stacked(
    x: np.ndarray, lead: tuple[int, ...], ends: int, rows: int, columns: int
) -> np.ndarray:
    """The matrices of a batch, one behind the other; a single one where all products have it."""
    own = x.shape[: max(x.ndim - ends, 0)] if lead else ()
    if prod(own) == 1:
        return x.reshape(1, rows, columns)
    every = np.broadcast_to(x.reshape(*own, rows, columns), (*lead, rows, columns))
    return every.reshape(prod(lead), rows, columns)


def _first_gpu(device: str) -> AbstractContextManager[Any]:
    """The first GPU as the thread's current one, which GpuRunner wants; then again the caller's."""
    if device == "cpu" or driver.why_no_gpu():
        return nullcontext()
    return driver.gpu(0)
