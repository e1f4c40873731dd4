"""PyTorch as a peer, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gen.bench.contenders import (
    Contender,
    Lacking,
    Peer,
    Prepared,
    Unsupported,
    check_single,
)
from gen.bench.instructions import multiplied
from gen.spec.dtypes import DTypes

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Work

# PyTorch's names. bf16 has no code in the protocol by which tensors are made, and passes as int16.
_TORCH = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16"}
_TORCH |= {"i8": "int8", "i32": "int32", "tf32": "float32"}
_CODES = {"f32": "<f4", "f64": "<f8", "f16": "<f2", "bf16": "<i2", "i8": "|i1", "i32": "<i4"}
_CODES |= {"tf32": "<f4"}
_TORCH |= {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}  # nor have these
_CODES |= {"e4m3": "|u1", "e5m2": "|u1"}

# What it multiplies and sums, as it comes. Wider integers than bytes are not for tensor cores, and
# sums in f16 would be a setting of the whole process.
_PRODUCTS = (("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("f64", "f64"))


class _Memory:
    """Device memory as the CUDA array interface describes it."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": _CODES[dtype],
            "version": 3,
        }


def _tensor(
    address: int, products: int, rows: int, columns: int, row_major: bool, dtype: str
) -> Any:
    import torch

    shape = (rows, columns) if row_major else (columns, rows)
    memory = _Memory(address, (products, *shape) if products > 1 else shape, dtype)
    tensor = torch.as_tensor(memory, device="cuda").view(getattr(torch, _TORCH[dtype]))
    return tensor if row_major else tensor.mT


def tensors(work: Work) -> dict[int, tuple[Any, Any, Any]]:
    """A, B and D as tensors of PyTorch, for each set, by D's address.

    Those of a batch have 3 axes; of groups, B alone has them.
    """
    s, layouts, dtypes = work.shape, work.layouts, work.dtypes
    count = 1 if work.grouped else work.products
    found = {}
    for i in range(work.sets):
        a, b, d = work.pointers(i)
        found[d] = (
            _tensor(a, count, s.m, s.k, layouts.a, dtypes.input.name),
            _tensor(b, work.products, s.k, s.n, layouts.b, dtypes.input.name),
            _tensor(d, count, s.m, s.n, layouts.c, dtypes.output.name),
        )
    return found


class Torch(Peer):
    """`torch.mm`, or `torch.bmm` of a batch, as a program without any tuning calls it.

    Of groups it is a call of `torch.mm` for each.
    """

    name = "torch"

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        import torch

        if not work.dtypes.input.is_float:
            check_single(work)
            multiply = torch._int_mm
        else:
            multiply = torch.mm if work.products == 1 or work.grouped else torch.bmm
        calls = {d: [found] for d, found in tensors(work).items()}
        if work.grouped:
            calls = {d: _of_groups(work, *found) for d, (found,) in calls.items()}

        def queue(a: int, b: int, d: int) -> None:
            for left, right, out in calls[d]:
                multiply(left, right, out=out)

        made = _on_stream(work, queue)
        return replace(made, keep=calls, launches=work.products if work.grouped else 1)


class TorchGrouped(Peer):
    """PyTorch's own product of groups, whose ends the device reads."""

    name, only_groups = "torch grouped", True

    def prepare(self, work: Work) -> Prepared:
        """See Contender. It returns a new D each time, from memory that PyTorch keeps."""
        import torch

        operands = tensors(work)
        ends = torch.tensor(work.problem.ends, dtype=torch.int32, device="cuda")
        result: list[Any] = []

        def queue(a: int, b: int, d: int) -> None:
            left, right, _ = operands[d]
            result[:] = [torch._grouped_mm(left, right, offs=ends)]

        def collect(d: int) -> None:
            with torch.cuda.stream(_stream(work)):
                operands[d][2].copy_(*result)

        return replace(_on_stream(work, queue), keep=(operands, ends), collect=collect)


def _of_groups(work: Work, a: Any, b: Any, d: Any) -> list[tuple[Any, Any, Any]]:
    """The operands and the result of each product."""
    rows = [one.m for one in work.each]
    return list(zip(a.split(rows), b, d.split(rows), strict=True))


def _stream(work: Work) -> Any:
    import torch

    return torch.cuda.ExternalStream(int(work.gpu.stream.handle))


def _on_stream(work: Work, launch: Callable[[int, int, int], object]) -> Prepared:
    """What PyTorch's current stream gets, in the work's stream. Raises Unsupported."""
    import torch

    stream = _stream(work)

    def queue(_: Stream, a: int, b: int, d: int) -> None:
        with torch.cuda.stream(stream):
            launch(a, b, d)

    try:
        queue(work.gpu.stream, *work.pointers(0))  # its own workspace, before any capture
        work.gpu.sync()
    except RuntimeError as error:
        raise Unsupported(f"PyTorch refuses: {first_line(error)}") from None
    return Prepared(queue)


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def contenders(dtypes: DTypes) -> list[Contender]:
    """PyTorch's contenders for these types."""
    if multiplied(dtypes) not in _PRODUCTS:
        return [Lacking("torch", dtypes)]
    return [Torch(), *([TorchGrouped()] if dtypes.input.size == 2 else [])]
