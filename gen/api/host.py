"""NumPy arrays: to a GPU and back where there is one, else to the emulator."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from gen.api.problem import Call
from gen.compile.nvrtc import Module
from gen.device import driver
from gen.device.choose import choose_runner
from gen.device.emulated import EmulatorRunner, default_budget, default_time
from gen.device.execute import Operands, run_kernel
from gen.device.runner import Runner
from gen.errors import BudgetError, UsageError
from gen.spec import numerics
from gen.spec.kernel import KernelSpec

_RAISE = re.compile("raise (instruction|time)_budget")
_own = threading.local()  # a runner is for one thread


def runner(device: str) -> Runner:
    """This thread's runner for a device. Raises UsageError, MissingError as choose_runner."""
    runners: dict[str, Runner] = _own.__dict__.setdefault("runners", {})
    if device not in runners:
        runners[device] = choose_runner(device)
    return runners[device]


def check(arrays: tuple[Any, ...], out: Any) -> None:
    """Raises UsageError for arrays in host memory that are not NumPy's."""
    for name, array in zip(("A", "B", "C", "bias", "out"), (*arrays, out), strict=True):
        if array is not None and not isinstance(array, np.ndarray):
            raise UsageError(
                f"{name} is a {type(array).__name__} in host memory; pass a NumPy array "
                "(numpy.asarray(x)), or move it to a GPU"
            )


def multiply(
    call: Call,
    arrays: tuple[Any, ...],
    result: np.ndarray,
    device: str,
    build: Callable[[Runner], tuple[KernelSpec, Module]],
    time_budget: float | None = None,
) -> None:
    """Computes `result` from A, B, C and the bias. Raises FindingsError as run_kernel.

    time_budget: seconds that the emulator may take for a launch. Raises BudgetError beyond, and
    without one for a launch that takes far more than any of its kind should.
    """
    problem, shape, kind = call.problem, call.problem.shape, call.dtypes.output.name
    a, b, c, bias = (None if x is None else _storage(x) for x in arrays)
    assert a is not None
    assert b is not None
    size = (shape.m, shape.n)
    unread = np.full(size, numerics.poison(kind), numerics.storage_dtype(kind))
    operands = Operands(
        a.reshape(shape.m, shape.k),
        b.reshape(shape.k, shape.n),
        unread if c is None or problem.beta == 0 else c.reshape(size),
        numerics.pack(unread, call.layouts.c, problem.ldd, kind),
        bias,
    )
    with _first_gpu(device):
        on = runner(device)
        spec, module = build(on)
        if isinstance(on, EmulatorRunner):
            on.budget = None if time_budget else default_budget(spec, shape)
            on.time_budget = time_budget or default_time(shape)
        try:
            storage = run_kernel(spec, on, module, problem, operands)
        except BudgetError as error:
            raise BudgetError(_RAISE.sub("pass a larger time_budget", str(error))) from None
    found = numerics.unpack(storage, *size, call.layouts.c, problem.ldd)
    result[...] = found.view(result.dtype).reshape(result.shape)


def _storage(array: np.ndarray) -> np.ndarray:
    """The array as `numerics` stores its type: bfloat16 as bits."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _first_gpu(device: str) -> AbstractContextManager[Any]:
    """The first GPU as the thread's current one, which GpuRunner wants; then again the caller's."""
    if device == "cpu" or driver.why_no_gpu():
        return nullcontext()
    return driver.gpu(0)
