"""`matmul` and `linear`: what callers have to do with, before the operators."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from gen.api.operands import checked
from gen.dispatch.invariant import INVARIANT
from gen.errors import SpecError, UsageError, unknown
from gen.spec.epilogue import matrices
from gen.spec.kernel import EPILOGUES
from gen.torch import operators
from gen.torch.autocast import autocast, casts

_NUMBERS = (int, float, Real, torch.SymFloat, torch.SymInt)
Operands = Mapping[str, Any]  # tensors and numbers by name


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    epilogue: str = "linear",
    operands: Operands | None = None,
    invariant: str | None = None,
) -> Tensor:
    """x @ weight.T + bias, as torch.nn.functional.linear: x (..., K), weight (N, K), bias (N).

    The result (..., N) has the type of x, or float32 where x has 16 bits and the bias is float32.
    Under torch.autocast, all three are converted to its type. Gradients flow to all. epilogue,
    operands and invariant are those of `matmul`.

    Raises UsageError and SpecError for tensors that no kernel takes.
    """
    if epilogue != "linear" or operands:
        _check_linear(x, weight, bias)
        return matmul(
            x, weight.t(), bias=bias, epilogue=epilogue, operands=operands, invariant=invariant
        )
    check_invariant(invariant)
    if operators.is_alone(x, weight, None, bias) and x.dim() > 1 and weight.dim() == 2:
        return operators.alone_linear(x, weight, bias, invariant)
    _check_linear(x, weight, bias)
    if casts(x):
        x, weight, bias = autocast(x, weight, bias)
    if x.dim() == 1:
        return linear(x.unsqueeze(0), weight, bias, invariant=invariant).squeeze(0)
    if operators.is_transformed():
        return operators.product(x, weight.mT, None, bias, invariant=invariant)
    return operators.linear(x, weight, bias, invariant)


def matmul(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    bias: Tensor | None = None,
    epilogue: str = "linear",
    operands: Operands | None = None,
    invariant: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """epilogue(alpha * a @ b + beta * c + bias), with the shapes of torch.matmul, and gradients.

    a (..., M, K), b (..., K, N): vectors are a row and a column; batches broadcast, and one at one
    stride is one launch. c is (..., M, N), bias (..., N) is added to each row; their batches
    broadcast to the result's. A tensor of which neither of the last two strides is 1, or whose
    lines repeat, is copied first.

    The result has the type of c or bias where there is one, else that of a (int32 for int8,
    bfloat16 for float8). Under torch.autocast, a, b, c and bias are converted to its type, c and
    bias to that of out where there is one.

    epilogue: one of `gen.spec.EPILOGUES`, or an expression of x, such as "silu(x) * up[row, col]"
    (see `gen.spec.epilogue`), with operands: tensors and numbers by name, in place of a bias. A
    tensor is (..., M, N), (..., M) or (..., N), as it is indexed. Where a gradient is wanted,
    PyTorch computes the epilogue, of the product in the result's type.

    invariant: "rows" for rows of the result whose bits do not depend on other rows; so are those
    of the gradient of a. out: where the result goes; it has no gradient then. c may be out.

    Raises UsageError and SpecError for tensors that do not fit together or that no kernel takes.
    """
    check_invariant(invariant)
    if (
        c is None and out is None and operands is None and epilogue == "linear"
        and type(beta) in (int, float) and beta == 0
        and type(alpha) in (int, float) and operators.is_alone(a, b, None, bias)
        and a.dim() > 1 < b.dim()
    ):  # fmt: skip
        return operators.alone(a, b, None, bias, alpha, 0, invariant)
    check_tensors(A=a, B=b, C=c, bias=bias, out=out)
    checked(epilogue, operands)
    check_operands(a, operands)
    if not (isinstance(alpha, _NUMBERS) and isinstance(beta, _NUMBERS)):
        raise UsageError(
            f"alpha={alpha!r} and beta={beta!r} have to be numbers; multiply the result by a tensor"
        )
    if out is not None and not torch.compiler.is_compiling() and out.is_neg():
        raise UsageError("out is a negated view, which no kernel writes; pass what it is a view of")
    if casts(a):
        given = c, bias
        a, b, c, bias = autocast(a, b, c, bias)
        if out is not None:  # which has the result's type, and may be c
            c, bias = (None if x is None else x.to(out.dtype) for x in given)
    if not (a.dim() and b.dim()):
        raise SpecError("A and B are vectors or matrices, not numbers; multiply with *")
    row, column = a.dim() == 1, b.dim() == 1
    if row and column:
        raise SpecError("A and B are both vectors; make one of them a matrix: a.unsqueeze(0)")
    if row or column:
        lacks = -2 if row else -1
        a, b = (a.unsqueeze(0), b) if row else (a, b.unsqueeze(1))
        c, wide = _wider(c, lacks), _wider(out, lacks)
        found = matmul(
            a, b, c, alpha=alpha, beta=beta, bias=bias, epilogue=epilogue,
            operands=_with_dimension(epilogue, operands, lacks), invariant=invariant, out=wide,
        )  # fmt: skip
        return found.squeeze(lacks) if out is None else out
    if c is None and beta != 0:
        raise UsageError(f"beta={beta:g} needs c; pass c, which may be out itself")
    product = (a, b, c, bias, alpha, beta, invariant)
    if epilogue == "linear" and not operands and out is None:
        return operators.product(*product)
    own = own_of(epilogue, bias, operands or {})
    if out is None:
        run = operators.fused_or_apart if operators.is_transformed() else operators.fused
        return run(*product, *own)
    if operators.is_transformed():
        raise UsageError("torch.func cannot transform what writes to out; leave out out")
    tensors = (a, b, c, bias, out, *own[2])
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        raise UsageError(
            "out has no gradient, but one of the tensors requires one; leave out out, or call it "
            "under torch.no_grad()"
        )
    operators.matmul_out(*product, *own, out)
    return out


def check_invariant(invariant: str | None) -> None:
    """Raises UsageError for what a result cannot be asked not to depend on."""
    if invariant is not None and invariant not in INVARIANT:
        raise unknown("invariant", str(invariant), INVARIANT)


def _check_linear(x: Any, weight: Any, bias: Any) -> None:
    """Raises UsageError and SpecError for what `linear` does not take."""
    check_tensors(x=x, weight=weight, bias=bias)
    if not x.dim():
        raise SpecError("x is a number, not (..., K); multiply with *")
    if weight.dim() != 2:
        raise SpecError(
            f"weight has shape {tuple(weight.shape)}, not (N, K); use gen.torch.matmul for others"
        )


def check_operands(a: Tensor, operands: Operands | None) -> None:
    """Raises UsageError for tensors among them that are not dense, or not on the device of A."""
    for name, x in (operands or {}).items():
        if isinstance(x, Tensor):
            _check_tensor(name, x, "A", a)


def check_tensors(**tensors: Any) -> None:
    """Raises UsageError for what is no dense tensor, and for what is not where the first one is.

    C, out and the bias may be left out.
    """
    first, home = next(iter(tensors.items()))
    for name, x in tensors.items():
        if x is None and name not in ("A", "B", "x", "weight"):
            continue
        if not isinstance(x, Tensor):
            raise UsageError(
                f"{name} is a {type(x).__name__}; pass tensors of PyTorch, or use gen.matmul"
            )
        _check_tensor(name, x, first, home)


def _check_tensor(name: str, x: Tensor, first: str, home: Tensor) -> None:
    if x.layout is not torch.strided or x.is_nested:
        kind = "nested" if x.is_nested else x.layout
        raise UsageError(f"{name} is no dense tensor, but {kind}; pass a dense one")
    if x.device != home.device:  # of which PyTorch takes one, maybe meta, for all
        raise UsageError(f"{first} is on {home.device} and {name} on {x.device}; move one of them")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _matrices(epilogue: str) -> tuple[str, ...]:
    return tuple(matrices(epilogue))


def _with_dimension(epilogue: str, operands: Operands | None, lacks: int) -> Operands | None:
    """The operands with the dimension that the result lacks, because A or B is a vector."""
    if not operands:
        return operands
    like_result = _matrices(epilogue)
    return {n: _wider(x, lacks) if n in like_result else x for n, x in operands.items()}


def _wider(x: Any, lacks: int) -> Any:
    """A tensor with the dimension that the result lacks; what has none is refused later."""
    return x.unsqueeze(lacks) if isinstance(x, Tensor) and x.dim() else x


def own_of(
    epilogue: str, bias: Tensor | None, operands: Operands
) -> tuple[str, list[str], list[Tensor], list[float]]:
    """What the operators take of an epilogue: its text, names, tensors, numbers."""
    if epilogue not in EPILOGUES and bias is not None:
        raise UsageError(
            f"a bias is given, but epilogue={epilogue} has none; write it as an operand, such as "
            "x + bias[col]"
        )
    if epilogue in EPILOGUES and "bias" in epilogue and bias is None:
        raise UsageError(f"epilogue={epilogue} adds a bias; pass bias")
    tensors = {name: x for name, x in operands.items() if isinstance(x, Tensor)}
    values = {name: x for name, x in operands.items() if name not in tensors}
    for name, x in values.items():
        if not isinstance(x, _NUMBERS):
            raise UsageError(f"{name} is a {type(x).__name__}; pass a tensor or a number")
    return epilogue, [*tensors, *values], list(tensors.values()), list(values.values())
