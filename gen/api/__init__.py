"""The product of arrays from Python: `gen.matmul`, `gen.grouped_matmul` and `gen.Kernel`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from gen.api import groups
from gen.api.kernel import Kernel
from gen.errors import UsageError

__all__ = ["Kernel", "grouped_matmul", "matmul"]

_Choices = tuple[str, str, str | None, str | None, str]  # as `matmul` has them, of its arguments

_kernels: dict[tuple[Any, ...], Kernel] = {}  # by choices, then tunables


def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    out: Any = None,
    bias: Any = None,
    epilogue: str = "linear",
    operands: Mapping[str, Any] | None = None,
    variant: str = "auto",
    dtype: str | None = None,
    invariant: str | None = None,
    stream: Any = None,
    device: str = "auto",
    **tunables: Any,
) -> Any:
    """D = epilogue(alpha * A @ B + beta * C), on the GPU that the arrays are on.

    a (M x K), b (K x N) and c (M x N): matrices of PyTorch, CuPy or NumPy, or anything with DLPack
    or `__cuda_array_interface__`, row-major or column-major, with any distance between lines; a
    vector as `a` is a row, as `b` a column, and the result then a vector. c is read unless beta
    is 0. More dimensions are those of a batch, which broadcast as those of numpy.matmul, c's to
    the result's; what lies at one stride for each operand is one launch, and nothing is copied.

    out: an array for the result, row-major or column-major; may be c. If left out, a new array of
    the framework of `a`, in the order of c, or else row-major. The result's element type is that of
    out, c or bias where there is one, else that of `a` (i32 for i8).

    bias: N elements, added to each row of D. epilogue: see `gen.spec.EPILOGUES`; a bias alone means
    `linear_bias`. It may also be an expression of x, what the product is without it, such as
    "silu(x) * up[row, col]"; operands: the arrays and numbers that it names, by name (see
    `gen.spec.epilogue`). variant, tunables: see `gen list`. dtype: a row of `gen.spec.DTYPES`,
    where the arrays leave a choice: `tf32` or `f32_6xbf16` (as exact as f32, on Hopper) for f32,
    `f16_f16` for sums in f16.

    invariant: "rows" for a kernel that gives a row of D the same bits whatever other rows A has,
    and however many: one order of sums for all M.

    stream: of cuda.core, PyTorch or CuPy, or a handle; if left out, the framework's current one, on
    which the call returns without waiting. device: "gpu", "cpu" (the emulator) or "auto", for NumPy
    arrays, which are copied to the device and back.

    Raises UsageError and SpecError for arrays that do not fit together or that no kernel takes,
    MissingError where device="gpu" and there is none, CheckError where the driver refuses.
    """
    choices = variant, epilogue, dtype, invariant, device
    try:
        kernel = None if tunables or bias is not None else _kernels.get(choices)
    except TypeError:  # what is no text, which is said below
        kernel = None
    if kernel is None:
        kernel = _kernel(choices, bias, tunables)
    return kernel.multiply(a, b, c, alpha, beta, out, bias, stream, operands)


def grouped_matmul(
    a: Any,
    b: Any,
    offsets: Any,
    c: Any = None,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    out: Any = None,
    bias: Any = None,
    epilogue: str = "linear",
    operands: Mapping[str, Any] | None = None,
    variant: str = "auto",
    dtype: str | None = None,
    stream: Any = None,
    device: str = "auto",
    **tunables: Any,
) -> Any:
    """Groups of A's rows, each times a matrix of its own, in one launch: a mixture of experts.

    a (M x K): the rows of all groups, one group behind the other; b (groups x K x N): a matrix for
    each; offsets: as many int32, the row behind the last one of each group, on the same device as
    a, which reads them when it runs: the call does not wait for them. Row i of group g of the
    result (M x N) is that of epilogue(alpha * a[i] @ b[g] + beta * c[i]).

    Groups may be empty. An end below one before counts as that one, and one beyond M as M. Rows
    behind the last group are not written: `out` keeps them, in a new array they have no value. a, c
    and out are row-major, the matrices of b all in one order.

    Where b is one matrix (K x N), groups are along K, as in the gradient of such matrices: offsets
    say where they end among the columns of a and the rows of b. The result (groups x M x N), c and
    out have a matrix for each; those of empty groups are epilogue(beta * c). a is column-major and
    b row-major, their elements have 16 bits or are f64.

    bias: N elements, the same for all groups, or groups x N. An epilogue of the user's own also has
    `group`, the number of a group, and operands with [group] or [group, col], one behind another.
    All else is as in `matmul`; kernels are those of tensor cores, on any GPU. Raises what `matmul`
    raises.
    """
    if offsets is None:
        raise UsageError("offsets is None; pass the end of each group, or use gen.matmul")
    if (invariant := tunables.pop("invariant", None)) is not None:
        raise UsageError(
            f"invariant={invariant!r} is for gen.matmul: kernels for groups have no order of sums "
            "for all M; leave it out"
        )
    if len(getattr(bias, "shape", ())) == 2:
        epilogue, operands = groups.with_bias(epilogue, operands, bias)
        bias = None
    kernel = _kernel((variant, epilogue, dtype, None, device), bias, tunables)
    return kernel.multiply(a, b, c, alpha, beta, out, bias, stream, operands, offsets)


def _kernel(choices: _Choices, bias: Any, tunables: dict[str, Any]) -> Kernel:
    """The kernel for these choices, made at their first call. Raises UsageError for no choices."""
    variant, epilogue, dtype, invariant, device = choices
    if bias is not None and epilogue == "linear":
        epilogue = "linear_bias"
    if "kernel" in tunables:
        raise UsageError("kernel is no argument of a product; use variant, or a gen.Kernel")
    key = variant, epilogue, dtype, invariant, device, *sorted(tunables.items())
    try:
        kernel = _kernels.get(key)
    except TypeError:
        names = "variant", "epilogue", "dtype", "invariant", "device"
        for name, value in (*zip(names, choices, strict=True), *tunables.items()):
            if isinstance(value, Hashable) and not isinstance(value, tuple):
                continue
            kind = type(value).__name__
            raise UsageError(f"{name} is a {kind}; pass a text or a number") from None
        raise
    if kernel is None:
        if epilogue != "linear":
            tunables["epilogue"] = epilogue
        kernel = _kernels[key] = Kernel(
            variant, dtype=dtype, invariant=invariant, device=device, **tunables
        )
    return kernel
