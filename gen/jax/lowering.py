"""What the primitive becomes: a custom call on GPUs, a callback to the emulator on the CPU."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters import mlir

from gen import api
from gen.api.call import Arguments
from gen.api.host import check_emulated
from gen.api.views import View
from gen.device import driver
from gen.errors import MissingError, UsageError
from gen.jax import libraries
from gen.jax.primitive import Product, matmul_p
from gen.spec.problem import ALIGNED, Alignment

# Launchers want a workspace at a multiple of so many bytes; XLA gives memory at one of fewer.
WORKSPACE_ALIGNED = 256
_OPERANDS_ALIGNED = 16


def folded(product: Product, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    """The operands, where possible as one product: of one matrix B, and the lines of A's batch."""
    a, b, c, bias = product.named(operands)
    batch = product.result(operands).shape[:-2]
    alone = [x for x, axes in ((b, 2), (bias, 1)) if x is not None and prod(x.shape[:-axes]) != 1]
    shared = [x for x in (a, c) if x is not None and x.shape[:-2] != batch]
    if product.transpose_a or alone or shared:
        return operands
    flat = [(a, prod(a.shape[:-1])), (b, b.shape[-2]), (c, prod(a.shape[:-1]))]
    found = [x.reshape(rows, x.shape[-1]) for x, rows in flat if x is not None]
    return (*found, bias.reshape(-1)) if bias is not None else tuple(found)


# --- GPUs


def on_gpu(*operands: Array, product: Product) -> Array:
    """The product as a custom call, whose kernel is chosen and compiled now.

    Raises MissingError without a GPU or a C++ compiler, CompileError, SpecError.
    """
    result = product.result(operands)
    if 0 in result.shape:
        return jnp.zeros(result.shape, result.dtype)
    if (why := driver.why_no_gpu()) is not None:
        raise MissingError(
            f"gen.jax chooses kernels for the GPU that is here, and finds none ({why}); trace "
            "the function on the machine that runs it"
        )
    libraries.register()
    gpu = driver.gpu(jax.local_devices(backend="cuda")[0].local_hardware_id)
    return call(*operands, product=product, gpu=gpu)


def call(*operands: Array, product: Product, gpu: Any) -> Array:
    """The custom call for a GPU (see `gen.api.kernel.Target`); its target is registered."""
    result = product.result(operands)
    operands = folded(product, operands)
    out = product.result(operands)
    a, b, c, bias = product.named(operands)
    m, n, k = product.sizes(a.shape, b.shape)
    views = Arguments(
        _view(a, (m, k), product.transpose_a), _view(b, (k, n), product.transpose_b),
        None if c is None else _view(c, (m, n)), None, None if bias is None else _view(bias, (n,)),
    )  # fmt: skip
    kernel = api.Kernel(dtype=product.row, epilogue=product.epilogue)
    batch = out.shape[:-2]
    strides = [_strides(x, len(batch)) for x in (a, b, c, bias, out)]
    # The first product's operands are aligned, the others' perhaps not.
    least = Alignment(*(all(s % _OPERANDS_ALIGNED == 0 for s in strides[i]) for i in (0, 1, 4)))
    problem, spec, arch = kernel.choose(views, product.alpha, product.beta, gpu, least)
    plans = (spec.plan(problem, which, gpu.multiprocessors) for which in (ALIGNED, least))
    space = max(plan.workspace_bytes for plan in plans)
    results = [jax.ShapeDtypeStruct(out.shape, out.dtype)]
    if spec.row.takes_workspace:
        results.append(jax.ShapeDtypeStruct((space + WORKSPACE_ALIGNED,), jnp.uint8))
    found, *_ = jax.ffi.ffi_call(libraries.TARGET, results)(
        *operands,
        library=libraries.kernel(spec, arch),
        has_c=product.has_c,
        has_bias=product.has_bias,
        alpha=np.float64(product.alpha),
        beta=np.float64(product.beta),
        sizes=np.array([m, n, k], np.int64),
        leading=np.array([problem.lda, problem.ldb, problem.ldc, problem.ldd], np.int64),
        batch=np.array(batch, np.int64),
        strides=np.array(strides, np.int64).reshape(-1),
    )
    return found.reshape(result.shape)


def _view(x: Array, shape: tuple[int, ...], transposed: bool = False) -> View:
    """One of an operand's matrices, in memory of XLA: row-major unless it is transposed."""
    strides = (1,) if len(shape) == 1 else (1, shape[0]) if transposed else (shape[1], 1)
    return View(0, shape, strides, x.dtype, 0)


def _strides(x: Any, batch: int) -> list[int]:
    """The bytes from one product's operand to the next one's, along each axis of the batch."""
    if x is None:
        return [0] * batch
    steps = [prod(x.shape[axis + 1 :]) * x.dtype.itemsize for axis in range(batch)]
    return [step if size > 1 else 0 for step, size in zip(steps, x.shape, strict=False)]


# --- the CPU


def on_cpu(*operands: Array, product: Product) -> Array:
    """The product on the emulator. Raises UsageError where it would take too long."""
    result = product.result(operands)
    operands = folded(product, operands)
    out = product.result(operands)
    sizes = product.sizes(operands[0].shape, operands[1].shape)
    check_emulated(sizes, "jax.numpy.matmul", prod(out.shape[:-2]))
    emulate = partial(_emulate, product, out)
    found: Array = jax.pure_callback(emulate, out, *operands)
    return found.reshape(result.shape)


def _emulate(product: Product, out: jax.ShapeDtypeStruct, *operands: Any) -> np.ndarray:
    a, b, c, bias = product.named(tuple(map(np.asarray, operands)))
    a = np.swapaxes(a, -1, -2) if product.transpose_a else a
    b = np.swapaxes(b, -1, -2) if product.transpose_b else b
    batch = out.shape[:-2]
    pairs = ((a, 2), (b, 2), (c, 2), (bias, 1))
    wide = [x if x is None else np.broadcast_to(x, (*batch, *x.shape[-n:])) for x, n in pairs]
    found = np.empty(out.shape, out.dtype)
    for i in np.ndindex(*batch):
        left, right, plus, shift = (x if x is None else x[i] for x in wide)
        api.matmul(
            left, right, plus, alpha=product.alpha, beta=product.beta, bias=shift, out=found[i],
            epilogue=product.epilogue, dtype=product.row, device="cpu",
        )  # fmt: skip
    return found


# --- elsewhere


def _nowhere(*operands: Array, product: Product) -> Array:
    raise UsageError(
        "gen.jax has kernels for CUDA, and its emulator for the CPU; jit for one of these backends"
    )


for _lower, _platform in ((on_gpu, "cuda"), (on_cpu, "cpu"), (_nowhere, None)):
    mlir.register_lowering(
        matmul_p, mlir.lower_fun(_lower, multiple_results=False), platform=_platform
    )
