"""PyTorch and Triton as peers, where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from gen.bench import timing
from gen.bench.contenders import (
    Contender,
    Lacking,
    Peer,
    Prepared,
    Unsupported,
    check_single,
    check_tma,
    launcher,
)
from gen.bench.device import GpuLost
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

# What they multiply and sum, as they come. Wider integers than bytes are not for tensor cores, and
# sums in f16 would be a setting of the whole process.
_BOTH = (("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("i8", "i32"))
_NARROW = (("tf32", "f32"), ("e4m3", "f32"), ("e5m2", "f32"))
_PRODUCTS = {"torch": (*_BOTH, ("f64", "f64")), "triton": (*_BOTH, *_NARROW)}


_AGAIN = 4  # of the configurations, those that were fastest in a short try


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
    """A, B and D as tensors of PyTorch, for each set, by D's address; of a batch, with 3 axes."""
    s, layouts, dtypes = work.shape, work.layouts, work.dtypes
    found = {}
    for i in range(work.sets):
        a, b, d = work.pointers(i)
        found[d] = (
            _tensor(a, work.products, s.m, s.k, layouts.a, dtypes.input.name),
            _tensor(b, work.products, s.k, s.n, layouts.b, dtypes.input.name),
            _tensor(d, work.products, s.m, s.n, layouts.c, dtypes.output.name),
        )
    return found


class Torch(Peer):
    """`torch.mm`, or `torch.bmm` of a batch, as a program without any tuning calls it."""

    name = "torch"

    def prepare(self, work: Work) -> Prepared:
        """See Contender."""
        import torch

        if not work.dtypes.input.is_float:
            check_single(work)
            multiply = torch._int_mm
        else:
            multiply = torch.mm if work.products == 1 else torch.bmm
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
        check_single(work)
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
        except GpuLost:
            raise
        except Exception as error:  # the compiler's own classes are not public
            raise Unsupported(f"Triton refuses: {_first_line(error)}") from None
        return Prepared(queue, note=best_config(), keep=operands)


class TritonTma(Peer):
    """A persistent `tl.dot` kernel that loads and stores by TMA, the best of its configurations.

    Its sums of FP8 have fast accumulation, as Triton has it on Hopper.
    """

    name = "triton tma"

    def prepare(self, work: Work) -> Prepared:
        """See Contender. The configurations are measured here, as everything is."""
        check_single(work)
        check_tma(work)
        from gen.bench.peers.triton_tma import CONFIGS

        queues, why = {}, ""
        for config in CONFIGS:
            queue = _tma_queue(work, config)
            try:
                queue(work.gpu.stream, *work.pointers(0))  # compiles it
                work.gpu.sync()
            except GpuLost:
                raise
            except Exception as error:  # the compiler's own classes are not public
                why = _first_line(error)
            else:
                queues[config] = queue
        if not queues:
            raise Unsupported(f"Triton refuses: {why}")
        configs = list(queues)
        launches = [launcher(work, queues[config]) for config in configs]
        order, _ = timing.ranked(work.gpu, launches)
        best = order[:_AGAIN]
        chosen = configs[best[timing.fastest(work.gpu, [launches[i] for i in best])]]
        return Prepared(queues[chosen], note=chosen.name, keep=queues)


def _tma_queue(work: Work, config: Any) -> Callable[[Stream, int, int, int], None]:
    import torch

    from gen.bench.peers.triton_tma import descriptors, launch

    s, layouts = work.shape, work.layouts
    rows = (bool(layouts.a), bool(layouts.b), bool(layouts.c))
    stream = torch.cuda.ExternalStream(int(work.gpu.stream.handle))

    @cache
    def described(d: int) -> tuple[Any, Any, Any]:
        stored = (t if row else t.t() for t, row in zip(operands[d], rows, strict=True))
        return descriptors(config, tuple(stored), rows)

    operands = tensors(work)
    integer = not work.dtypes.accumulator.is_float

    def queue(_: Stream, a: int, b: int, d: int) -> None:
        with torch.cuda.stream(stream):
            launch(config, described(d), (s.m, s.n, s.k), rows, integer, work.gpu.multiprocessors)

    return queue


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def torch_contenders(dtypes: DTypes) -> list[Contender]:
    """PyTorch's contender for these types."""
    return [Torch() if multiplied(dtypes) in _PRODUCTS["torch"] else Lacking("torch", dtypes)]


def triton_contenders(dtypes: DTypes) -> list[Contender]:
    """Triton's contenders for these types; with TMA those that tensor cores multiply."""
    types = multiplied(dtypes)
    if types not in _PRODUCTS["triton"]:
        return [Lacking("triton", dtypes)]
    return [Triton()] if types == ("f32", "f32") else [Triton(), TritonTma()]
