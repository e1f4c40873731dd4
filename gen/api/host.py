"""Arrays in host memory: to a GPU and back where there is one, else to the emulator."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from gen.api.problem import Call
from gen.compile.nvrtc import Module
from gen.device import driver
from gen.device.choose import choose_runner
from gen.device.emulated import EmulatorRunner, default_budget, default_time
from gen.device.execute import Operands, products, results, run_kernel
from gen.device.runner import Runner
from gen.errors import BudgetError, UsageError
from gen.spec import numerics
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem

# Multiplications of a model's product that the emulator takes on: some seconds' worth. A kernel
# pads what it multiplies to whole tiles, so that a product counts as at least one of this many
# rows, columns and steps.
EMULATED, LEAST = 1 << 26, 16

_RAISE = re.compile("raise (instruction|time)_budget")
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
    arrays: Sequence[np.ndarray | None],
    result: np.ndarray,
    device: str,
    build: Callable[[Runner], tuple[KernelSpec, Module]],
    time_budget: float | None = None,
    own: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> None:
    """Computes `result` from A, B, C and the bias, all as `numerics` stores their elements.

    own: arrays that an epilogue of the user's own takes.

    time_budget: seconds that the emulator may take for a launch. Raises BudgetError beyond, and
    without one for a launch that takes far more than any of its kind should. Raises FindingsError
    as run_kernel.
    """
    with _first_gpu(device):
        on = runner(device)
        spec, module = build(on)
        problem, operands = _operands(call, spec, arrays, own)
        apart = products(call.layouts, problem, operands)
        found = []
        try:
            for one, its in [(problem, operands)] if spec.batched else apart:
                if isinstance(on, EmulatorRunner):
                    on.budget = None if time_budget else default_budget(spec, one)
                    on.time_budget = time_budget or default_time(one.shape, one.batch.products)
                storage = run_kernel(spec, on, module, one, its)
                found.append(results(spec, one, storage))
        except BudgetError as error:
            raise BudgetError(_RAISE.sub("pass a larger time_budget", str(error))) from None
    result[...] = np.stack(found).reshape(result.shape)


def _operands(
    call: Call,
    spec: KernelSpec,
    arrays: Sequence[np.ndarray | None],
    own: Mapping[str, np.ndarray],
) -> tuple[GemmProblem, Operands]:
    """The problem of a call and its operands; a whole batch at once, with one dimension for it."""
    problem, shape, kind = call.problem, call.problem.shape, call.dtypes.output.name
    a, b, c, bias = arrays
    assert a is not None
    assert b is not None
    unread = np.full((1, shape.m, shape.n), numerics.poison(kind), numerics.storage_dtype(kind))
    lead = call.batch_shape
    ends = len(call.result_shape) - len(lead)  # fewer than two where A or B is a vector
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
    size = (shape.m, shape.n)
    extra = {name: x.reshape(size) if x.ndim == 2 else x for name, x in own.items()}
    if not (lead or spec.batched):
        return problem, Operands(stacked[0][0], stacked[1][0], stacked[2][0], d, bias, extra)
    return problem, Operands(*stacked, d, bias, extra)


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
