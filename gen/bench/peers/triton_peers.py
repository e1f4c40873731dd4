"""Triton as a peer, where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from gen.bench.peers.pytorch import first_line, tensors
from gen.spec.dtypes import DTypes

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Work

# What it multiplies and sums.
_PRODUCTS = (
    *(("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("i8", "i32")),
    *(("tf32", "f32"), ("e4m3", "f32"), ("e5m2", "f32")),
)

_Queue = Callable[["Stream", int, int, int], None]
_AGAIN = 4  # of the configurations, those that were fastest in a short try


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
            raise Unsupported(f"Triton refuses: {first_line(error)}") from None
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

        return _best(work, {config: _tma_queue(work, config) for config in CONFIGS})


class TritonGrouped(Peer):
    """A persistent kernel for groups of rows, whose ends it reads on the device.

    It loads by TMA and is the best of its configurations.
    """

    name, only_groups = "triton grouped", True

    def prepare(self, work: Work) -> Prepared:
        """See Contender. The configurations are measured here."""
        check_tma(work)
        import torch

        from gen.bench.peers.triton_grouped import CONFIGS

        ends = torch.tensor(work.problem.ends, dtype=torch.int32, device="cuda")
        return _best(work, {config: _groups_queue(work, config, ends) for config in CONFIGS})


def _best(work: Work, every: Mapping[Any, _Queue]) -> Prepared:
    """The fastest of the configurations that compile. Raises Unsupported where none does."""
    queues, why = {}, ""
    for config, queue in every.items():
        try:
            queue(work.gpu.stream, *work.pointers(0))  # compiles it
            work.gpu.sync()
        except GpuLost:
            raise
        except Exception as error:  # the compiler's own classes are not public
            why = first_line(error)
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


def _groups_queue(work: Work, config: Any, ends: Any) -> _Queue:
    import torch

    from gen.bench.peers.triton_grouped import descriptors, launch

    s, b_rows = work.shape, bool(work.layouts.b)
    stream = torch.cuda.ExternalStream(int(work.gpu.stream.handle))
    operands = tensors(work)

    @cache
    def described(d: int) -> tuple[Any, Any]:
        a, b, _ = operands[d]
        return descriptors(config, a, b if b_rows else b.mT, b_rows)

    def queue(_: Stream, a: int, b: int, d: int) -> None:
        with torch.cuda.stream(stream):
            out = operands[d][2]
            launch(config, described(d), out, ends, (s.n, s.k), b_rows, work.gpu.multiprocessors)

    return queue


def _tma_queue(work: Work, config: Any) -> _Queue:
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


def contenders(dtypes: DTypes) -> list[Contender]:
    """Triton's contenders for these types; with TMA those that tensor cores multiply."""
    types = multiplied(dtypes)
    if types not in _PRODUCTS:
        return [Lacking("triton", dtypes)]
    if types == ("f32", "f32"):
        return [Triton()]
    return [Triton(), TritonTma(), *([TritonGrouped()] if dtypes.input.size == 2 else [])]
