"""What the primitive becomes: a custom call on GPUs, a callback to the emulator on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import mlir

from gen import api
from gen.api.call import BIAS, RESULT, A, Arguments, B, Call
from gen.api.host import check_emulated
from gen.api.operands import Own
from gen.api.views import View
from gen.device import context, driver
from gen.errors import MissingError, UsageError
from gen.jax import libraries
from gen.jax.primitive import Product, matmul_p
from gen.spec.arch import UNIT
from gen.spec.epilogue import MATRIX
from gen.spec.kernel import EPILOGUES
from gen.spec.problem import ALIGNED, Alignment, GemmShape

# Launchers want a workspace at a multiple of so many bytes; XLA gives memory at one of fewer.
WORKSPACE_ALIGNED = 256


# --- GPUs


def on_gpu(*operands: Array, product: Product) -> Array:
    """The product as a custom call, whose kernel is chosen and compiled now.

    Raises MissingError without a GPU or a C++ compiler, CompileError, SpecError.
    """
    result = product.result(*operands)
    if 0 in result.shape:
        return jnp.zeros(result.shape, result.dtype)
    return call(*operands, product=product, gpu=present_gpu())


def present_gpu() -> Any:
    """The GPU that kernels are chosen for, for which XLA knows the handler.

    Raises MissingError without a GPU or a C++ compiler, CompileError.
    """
    if (why := driver.why_no_gpu()) is not None:
        raise MissingError(
            f"gen.jax chooses kernels for the GPU that is here, and finds none ({why}); trace "
            "the function on the machine that runs it"
        )
    libraries.register()
    return context.gpu(jax.local_devices(backend="cuda")[0].local_hardware_id)


def call(*operands: Array, product: Product, gpu: Any) -> Array:
    """The custom call for a GPU (see `gen.api.origin.Target`); its target is registered."""
    called = fitted(product, operands)
    result = product.result(*operands)
    return launched(_kernel(product), called, operands, result, gpu, has_c=product.has_c)


def launched(
    wanted: api.Kernel, called: Call, operands: tuple[Array, ...], result: jax.ShapeDtypeStruct,
    gpu: Any, *, has_c: bool = False, c_is_result: bool = False,
) -> Array:  # fmt: skip
    """The custom call of a kernel that is chosen and compiled now.

    has_c: whether the third operand is C. c_is_result: the same, and the result is in its place.
    """
    # The first launch's operands are aligned, the others' perhaps not.
    whole = [all(begins[i] % UNIT == 0 for begins in called.offsets) for i in (A, B, RESULT)]
    least = Alignment(*whole)
    spec, arch = wanted.choose(called, gpu, least)
    problem, batch = called.problem, called.problem.batch
    plans = (spec.plan(problem, which, gpu.multiprocessors) for which in (ALIGNED, least))
    space = max(plan.workspace_bytes for plan in plans)
    results = [result]
    if spec.row.takes_workspace:
        results.append(jax.ShapeDtypeStruct((space + WORKSPACE_ALIGNED,), jnp.uint8))
    places = [*range(BIAS), *([BIAS] if spec.has_bias else range(BIAS + 1, len(called.names)))]
    aliases = {2: 0} if c_is_result else None
    numbers = [problem.value(one.name, 0) for one in spec.operands if not one.index]
    found, *_ = jax.ffi.ffi_call(libraries.TARGET, results, input_output_aliases=aliases)(
        *operands,
        library=libraries.kernel(spec, arch),
        has_c=has_c or c_is_result,
        alpha=np.float64(problem.alpha),
        beta=np.float64(problem.beta),
        sizes=_int64(*_sizes(problem.shape), batch.products),
        leading=_int64(problem.lda, problem.ldb, problem.ldc, problem.ldd),
        strides=_int64(*batch[1:]),
        further_ld=_int64(*(problem.value(f"ld_{name}", 0) for name in called.own)),
        numbers=np.array(numbers, np.float64),
        offsets=_int64(*(begins[i] for begins in called.offsets for i in places)),
    )
    return found


def fitted(product: Product, operands: tuple[Any, ...]) -> Call:
    """What the operands, in memory of XLA, come to. Raises SpecError."""
    batch = product.result(*operands).shape[:-2]
    a, b, c, further = product.named(operands)
    views = {
        name: view(x, 2 if index == MATRIX else 1, batch)
        for (name, index), x in zip(product.further.items(), further.values(), strict=True)
    }
    bias = views.pop("bias", None) if product.epilogue in EPILOGUES else None
    arguments = Arguments(
        view(a, 2, batch, product.transpose_a), view(b, 2, batch, product.transpose_b),
        None if c is None else view(c, 2, batch), None, bias,
    )  # fmt: skip
    own = Own(views, dict(product.numbers))
    return _kernel(product).fitted(arguments, product.alpha, product.beta, own)


def _kernel(product: Product) -> api.Kernel:
    return api.Kernel(dtype=product.row, epilogue=product.epilogue, invariant=product.invariant)


# What jax.default_matmul_precision calls tf32.
_TF32 = ("tensorfloat32", "TF32_TF32_F32")


def precise(a: Array, dtype: str | None) -> str | None:
    """The row for float32 operands that JAX's own switch asks for; else what the caller does.

    Raises UsageError for what is no name of one.
    """
    if dtype is not None and not isinstance(dtype, str):
        raise UsageError(
            f"dtype={dtype!r} is no text; use the name of a row of element types, such as "
            "'f16_f32' for a result in float32, or leave it out and convert the arrays"
        )
    if dtype is None and a.dtype == jnp.float32:
        return "tf32" if jax.config.jax_default_matmul_precision in _TF32 else None
    return dtype


def view(x: Any, axes: int, batch: tuple[int, ...], transposed: bool = False) -> View:
    """An operand in memory of XLA, row by row; with transposed, as its transposed matrices."""
    shape, lead = tuple(x.shape), x.ndim - axes
    strides = [prod(shape[i + 1 :]) for i in range(x.ndim)]
    steps = [0 if shape[i] == 1 else strides[i] for i in range(lead)]
    steps = [0] * (len(batch) - lead) + steps
    ends, own = shape[lead:], strides[lead:]
    if transposed:
        ends, own = ends[::-1], own[::-1]
    return View(0, (*batch, *ends), (*steps, *own), x.dtype, 0)


def _int64(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


# --- the CPU


def on_cpu(*operands: Array, product: Product) -> Array:
    """The product on the emulator. Raises UsageError where it would take too long."""
    result = product.result(*operands)
    called = fitted(product, operands)
    check_emulated(_sizes(called.problem.shape), "jax.numpy.matmul", prod(called.batch_shape))
    found: Array = jax.pure_callback(partial(_emulate, product, result), result, *operands)
    return found


def _emulate(product: Product, result: jax.ShapeDtypeStruct, *operands: Any) -> np.ndarray:
    a, b, c, further = product.named(tuple(map(np.asarray, operands)))
    a = np.swapaxes(a, -1, -2) if product.transpose_a else a
    b = np.swapaxes(b, -1, -2) if product.transpose_b else b
    found = np.empty(result.shape, result.dtype)
    bias = further.pop("bias", None) if product.epilogue in EPILOGUES else None
    api.matmul(
        np.broadcast_to(a, (*result.shape[:-2], *a.shape[-2:])), b, c, alpha=product.alpha,
        beta=product.beta, bias=bias, out=found, epilogue=product.epilogue, dtype=product.row,
        operands={**further, **dict(product.numbers)}, invariant=product.invariant, device="cpu",
    )  # fmt: skip
    return found


def _sizes(shape: GemmShape) -> tuple[int, int, int]:
    return shape.m, shape.n, shape.k


# --- elsewhere


def _nowhere(*_: Array, product: Any) -> Array:
    raise UsageError(
        "gen.jax has kernels for CUDA, and its emulator for the CPU; jit for one of these backends"
    )


def lower(primitive: Primitive, gpu: Callable[..., Array], cpu: Callable[..., Array]) -> None:
    """Tells JAX what a primitive becomes."""
    for rule, platform in ((gpu, "cuda"), (cpu, "cpu"), (_nowhere, None)):
        lowered = mlir.lower_fun(rule, multiple_results=False)
        mlir.register_lowering(primitive, lowered, platform=platform)


lower(matmul_p, on_gpu, on_cpu)
