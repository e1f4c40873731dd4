"""PyTorch and Triton as peers, where they are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gen.bench.contenders import Contender, Lacking, Peer, Prepared, Unsupported
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

# What they multiply and sum, as they come. Wider integers than bytes are not for tensor cores, and
# sums in f16 would be a setting of the whole process.
_BOTH = (("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("i8", "i32"))
_PRODUCTS = {"torch": (*_BOTH, ("f64", "f64")), "triton": (*_BOTH, ("tf32", "f32"))}


class _Memory:
    """Device memory as the CUDA array interface describes it."""

    def __init__(self, address: int, shape: tuple[int, int], dtype: str) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": _CODES[dtype],
            "version": 3,
        }


def _tensor(address: int, rows: int, columns: int, row_major: bool, dtype: str) -> Any:
    import torch

    shape = (rows, columns) if row_major else (columns, rows)
    tensor = torch.as_tensor(_Memory(address, shape, dtype), device="cuda")
    tensor = tensor.view(getattr(torch, _TORCH[dtype]))
    return tensor if row_major else tensor.t()


def tensors(work: Work) -> dict[int, tuple[Any, Any, Any]]:
    """A, B and D as tensors of PyTorch, for each set, by D's address."""
    s, layouts, dtypes = work.shape, work.layouts, work.dtypes
    found = {}
    for i in range(work.sets):
        a, b, d = work.pointers(i)
        found[d] = (
            _tensor(a, s.m, s.k, layouts.a, dtypes.input.name),
            _tensor(b, s.k, s.n, layouts.b, dtypes.input.name),
            _tensor(d, s.m, s.n, layouts.c, dtypes.output.name),
        )
    return found


class Torch(Peer):
    """`torch.mm`, as a program without any tuning calls it."""

    name = "torch"

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        import torch

        multiply = torch.mm if work.dtypes.input.is_float else torch._int_mm
        operands = tensors(work)
        stream = torch.cuda.ExternalStream(int(work.gpu.stream.handle))

        def queue(_: Stream, a: int, b: int, d: int) -> None:
            left, right, out = operands[d]
            with torch.cuda.stream(stream):
                multiply(left, right, out=out)

        try:
            queue(work.gpu.stream, *work.pointers(0))  # its own workspace, before any capture
            work.gpu.sync()
        except RuntimeError as error:
            raise Unsupported(f"PyTorch refuses: {_first_line(error)}") from None
        return Prepared(queue, keep=operands)


class Triton(Peer):
    """A blocked `tl.dot` kernel in the usual shape, the best of a dozen configurations."""

    name = "triton"

    def prepare(self, work: Work) -> Prepared:
        """See Contender. The configurations are measured here, by Triton's own autotuner."""
        import torch

        from gen.bench.peers.triton_kernel import best_config, multiply

        operands = tensors(work)
        stream = torch.cuda.ExternalStream(int(work.gpu.stream.handle))
        precision = "tf32" if multiplied(work.dtypes)[0] == "tf32" else "ieee"

        def queue(_: Stream, a: int, b: int, d: int) -> None:
            with torch.cuda.stream(stream):
                multiply(*operands[d], precision)

        try:
            queue(work.gpu.stream, *work.pointers(0))
            work.gpu.sync()
        except Exception as error:  # the compiler's own classes are not public
            raise Unsupported(f"Triton refuses: {_first_line(error)}") from None
        return Prepared(queue, note=best_config(), keep=operands)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def torch_contenders(dtypes: DTypes) -> list[Contender]:
    """PyTorch's contender for these types."""
    return [Torch() if multiplied(dtypes) in _PRODUCTS["torch"] else Lacking("torch", dtypes)]


def triton_contenders(dtypes: DTypes) -> list[Contender]:
    """Triton's contender for these types."""
    return [Triton() if multiplied(dtypes) in _PRODUCTS["triton"] else Lacking("triton", dtypes)]
