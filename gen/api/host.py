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
from gen.device import context, driver
from gen.device.choose import choose_runner
from gen.device.emulated import EmulatorRunner, default_budget, default_time
from gen.device.execute import Case, Operands, products, results, run_kernel
from gen.device.runner import Runner
from gen.errors import BudgetError, UsageError
from gen.kernels.launches import OFFSETS
from gen.spec import numerics
from gen.spec.epilogue import COLUMNS, MATRIX, ROWS, parse_epilogue
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Batch, GemmProblem

# Multiplications of a model's product that the emulator takes on: some seconds' worth. A kernel
# pads what it multiplies to whole tiles, so that a product counts as at least one of this many
# rows, columns and steps.
EMULATED, LEAST = 1 << 26, 16

_RAISE = re.compile("raise (instruction|time)_budget")
Arrays = Sequence[np.ndarray | None]  # A, B, C, the bias
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
            for one, its in _launched(call, spec, arrays, own, result):
                if isinstance(on, EmulatorRunner):
                    on.budget = None if time_budget else default_budget(spec, one)
                    on.time_budget = time_budget or default_time(one.shape, one.batch.products)
                storage = run_kernel(spec, on, module, Case(one, its))
                found.append(results(spec, one, storage).reshape(-1))
        except BudgetError as error:
            raise BudgetError(_RAISE.sub("pass a larger time_budget", str(error))) from None
    with np.errstate(over="ignore"):  # of what is beyond D's type, which becomes infinity
        result[...] = np.concatenate(found).reshape(result.shape)


def _launched(
    call: Call, spec: KernelSpec, arrays: Arrays, own: Further, result: np.ndarray
) -> Iterator[tuple[GemmProblem, Operands]]:
    """What each launch computes."""
    if call.grouped:
        yield _groups(call, spec, arrays, own, result)
        return
    for count, matrices, further in _alike(call, arrays, own):
        problem, operands = _operands(call, spec, count, matrices, further)
        apart = products(call.layouts, problem, operands)
        yield from [(problem, operands)] if spec.batched else apart


def _groups(
    call: Call, spec: KernelSpec, arrays: Arrays, own: Further, result: np.ndarray
) -> tuple[GemmProblem, Operands]:
    """All groups at once; rows that none has stay as they are in the result."""
    given, layouts = call.problem, call.layouts
    a, b, c, bias = arrays
    assert a is not None
    assert b is not None
    c = c if c is not None and given.beta != 0 else result
    strided, shared = spec.several.strided, ""
    for name in strided.upper():
        shared += name * (given.batch.stride(name) == 0)
    whole = GemmProblem.packed(given.shape, layouts, given.alpha, given.beta)
    batch = whole.batched(layouts, given.batch.products, shared=shared).batch
    strides = {f"stride_{name}": batch.stride(name) for name in strided}
    ends = tuple(own[OFFSETS].tolist())
    batch = Batch(batch.products, **strides)
    problem = replace(
        whole,
        batch=batch,
        operands=given.operands,
        ends=None if spec.grouped_k else ends,
        ends_k=ends if spec.grouped_k else None,
    )
    output = call.dtypes.output.name
    before = numerics.pack(result, layouts.c, problem.ldd, output, batch.stride_d)
    others = {name: x for name, x in own.items() if name != OFFSETS}
    b, c = (x[:1] if name in shared else x for name, x in (("B", b), ("C", c)))
    return problem, Operands(a, b, c, before, bias, others)


def _alike(
    call: Call, arrays: Arrays, own: Further
) -> Iterator[tuple[int, Sequence[np.ndarray], Further]]:
    """The batch, or where its epilogue takes others for each product, these one after another.

    That is: how many products; A, B and C with a dimension for them, of 1 where all have the same;
    what the epilogue takes, by name.
    """
    (m, n, k), products = _sizes(call), prod(call.batch_shape)
    a, b, c, bias = arrays
    assert a is not None
    assert b is not None
    ends = (a.ndim > 1) + (b.ndim > 1)  # of the result
    lead = call.result_shape[: len(call.result_shape) - ends]

    def spread(x: np.ndarray, axes: int, size: tuple[int, ...]) -> np.ndarray:
        """Of each product, or of all; `axes` has the array for each of the caller's products."""
        if x.size == prod(size):
            return x.reshape(1, *size)
        every = np.broadcast_to(x, (*lead, *x.shape[x.ndim - axes :]))
        # Of products whose rows are those of one: their rows, or what they share.
        if every.size == products * prod(size):
            return every.reshape(products, *size)
        found: np.ndarray = every.reshape(products, -1, *size)[:, 0]
        return found

    matrices = [spread(a, min(a.ndim, 2), (m, k)), spread(b, min(b.ndim, 2), (k, n))]
    if c is not None and call.problem.beta != 0:
        matrices.append(spread(c, ends, (m, n)))
    epilogue = parse_epilogue(call.epilogue) if call.epilogue else None
    further = {} if bias is None else {"bias": spread(bias, 1, (n,))}
    for name, x in own.items():
        index = epilogue.operand(name).index if epilogue else ""
        axes, size = {MATRIX: (ends, (m, n)), ROWS: (1, (m,)), COLUMNS: (1, (n,))}[index]
        further[name] = spread(x, axes, size)
    if all(len(x) == 1 for x in further.values()):
        yield products, matrices, {name: x[0] for name, x in further.items()}
        return
    for i in range(products):
        of_one = [x[i : i + 1] if len(x) > 1 else x for x in matrices]
        yield 1, of_one, {name: x[i % len(x)] for name, x in further.items()}


def _sizes(call: Call) -> tuple[int, int, int]:
    shape = call.problem.shape
    return shape.m, shape.n, shape.k


def _operands(
    call: Call, spec: KernelSpec, count: int, matrices: Sequence[np.ndarray], further: Further
) -> tuple[GemmProblem, Operands]:
    """The problem of a batch and its operands, with one dimension for it; of a call without one."""
    problem, kind = call.problem, call.dtypes.output.name
    (m, n, _), is_batch = _sizes(call), bool(call.batch_shape)
    a, b, *c = matrices
    unread = np.full((1, m, n), numerics.poison(kind), numerics.storage_dtype(kind))
    stacked = (a, b, *(c or [unread]))
    if is_batch:
        shared = "".join(x for x, one in zip("ABC", stacked, strict=True) if len(one) == 1)
        whole = GemmProblem.packed(problem.shape, call.layouts, problem.alpha, problem.beta)
        whole = replace(whole, operands=problem.operands)
        problem = whole.batched(call.layouts, count, shared=shared)
    batch = problem.batch
    every = np.repeat(unread, batch.products, axis=0)
    d = numerics.pack(every, call.layouts.c, problem.ldd, kind, batch.stride_d)
    bias = further["bias"] if spec.has_bias else None
    own = {} if spec.has_bias else further
    if not (is_batch or spec.batched):
        stacked = tuple(x[0] for x in stacked)
    return problem, Operands(stacked[0], stacked[1], stacked[2], d, bias, own)


def _first_gpu(device: str) -> AbstractContextManager[Any]:
    """The first GPU as the thread's current one, which GpuRunner wants; then again the caller's."""
    if device == "cpu" or driver.why_no_gpu():
        return nullcontext()
    return context.gpu(0)
