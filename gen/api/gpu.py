"""Launches on a GPU with as little as possible between the caller and the driver.

What a problem needs is prepared once: kernels loaded, grids, parameters in memory as the driver
takes them. The addresses of all buffers, alpha and beta lie in one block of memory, which the
parameters of all launches point into: a call writes that block and launches.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gen.api.problem import scalar
from gen.api.views import framework_dtype
from gen.compile.nvrtc import Module
from gen.device import tensor_map
from gen.device.context import Gpu
from gen.device.driver import LoadedKernel, Parameters, call, check
from gen.errors import CheckError, MissingError, UsageError
from gen.kernels.launches import BIAS, WORKSPACE, Launch, Plan, Pointer, TensorMap
from gen.requirements import cuda_core
from gen.spec.dtypes import DTypes

if TYPE_CHECKING:
    from cuda.core.utils import StridedMemoryView

BUFFERS = ("A", "B", "C", "D", BIAS, WORKSPACE)
# What a call has: the addresses of these (of a workspace maybe 0), of the user's own operands
# before the workspace's, then alpha and beta.
Values = tuple[Any, ...]
_SPACE = -3  # the place of the workspace's

_WORD = 8  # bytes of an address
# alpha and beta: how `struct` writes them, and what makes infinite what is beyond their range.
_SCALARS: dict[str, tuple[str, Any]] = {
    "f32": ("f", ctypes.c_float), "f64": ("d", ctypes.c_double), "i32": ("i", ctypes.c_int32),
}  # fmt: skip


def new_array(
    gpu: Gpu, shape: tuple[int, ...], strides: tuple[int, ...], kind: str, stream: int
) -> StridedMemoryView:
    """New memory of a GPU as cuda.core's StridedMemoryView, which any framework takes by DLPack."""
    import numpy as np

    core = cuda_core()
    try:
        dtype = np.dtype(framework_dtype(kind))
    except TypeError:
        raise MissingError(f"{framework_dtype(kind)} needs the package ml_dtypes") from None
    size = int(np.prod(shape)) * dtype.itemsize
    with gpu:
        memory = gpu.memory(size, core.Stream.from_handle(stream))
    view: StridedMemoryView = core.utils.StridedMemoryView.from_buffer(
        memory, shape, strides, dtype=dtype
    )
    return view


class _Block:
    """Where the addresses of `buffers`, alpha and beta lie."""

    def __init__(self, dtypes: DTypes, buffers: Sequence[str]) -> None:
        self.buffers = buffers
        letter, self._kind = _SCALARS[dtypes.scalar.name]
        packed = struct.Struct(f"{len(buffers)}Q2{letter}")
        self._memory = ctypes.create_string_buffer(packed.size)
        self.write = partial(packed.pack_into, self._memory, 0)
        self._dtypes = dtypes

    def place(self, name: str) -> int:
        """Where the address of a buffer lies, or "alpha" or "beta"."""
        start = ctypes.addressof(self._memory)
        if name in self.buffers:
            return start + _WORD * self.buffers.index(name)
        size = ctypes.sizeof(self._kind)
        return start + _WORD * len(self.buffers) + size * ("alpha", "beta").index(name)

    def converted(self, values: Values) -> Values:
        """The same with alpha and beta that `write` takes: infinite where they are out of range.

        Raises UsageError, SpecError for what are no such numbers.
        """
        *addresses, alpha, beta = values
        numbers = scalar(alpha, "alpha", self._dtypes), scalar(beta, "beta", self._dtypes)
        return (*addresses, *(self._kind(number).value for number in numbers))


class _Map:
    """A tensor map among the parameters, encoded again where its matrix has moved."""

    def __init__(
        self, gpu: Gpu, described: TensorMap, which: int, pointers: Any, index: int
    ) -> None:
        self._which = which  # of the buffers
        self._described, self._offset = described, described.source.offset
        self._pointers, self._index = pointers, index
        self._replace = gpu.driver.cuTensorMapReplaceAddress
        self._address = -1
        self._encoded: Any = None

    def follow(self, values: Values) -> None:
        """Makes it the map of the matrix at its address of these."""
        address = values[self._which] + self._offset
        if address == self._address:
            return
        if self._encoded is None or 0 in self._described.dims:
            self._encoded = tensor_map.encode(self._described, address)
            self._pointers[self._index] = int(self._encoded.getPtr())
        else:
            (status,) = self._replace(self._encoded, address)
            check(status, "cuTensorMapReplaceAddress")
        self._address = address


class _Step:
    """One launch, with its parameters in memory as the driver takes them."""

    def __init__(self, gpu: Gpu, kernel: LoadedKernel, launch: Launch, block: _Block) -> None:
        parameters = Parameters(
            [0 if isinstance(arg, Pointer | TensorMap) else arg for arg in launch.args.values()]
        )
        self._memory = parameters  # whose address is what the driver gets
        self._values = parameters.values
        self._inside: list[tuple[int, int, int]] = []  # parameter, buffer, offset
        self._maps: list[_Map] = []
        for i, (name, arg) in enumerate(launch.args.items()):
            if isinstance(arg, TensorMap):
                which = block.buffers.index(arg.source.buffer)
                self._maps.append(_Map(gpu, arg, which, parameters.pointers, i))
            elif isinstance(arg, Pointer) and arg.offset:
                self._inside.append((i, block.buffers.index(arg.buffer), arg.offset))
            elif isinstance(arg, Pointer):
                parameters.pointers[i] = block.place(arg.buffer)
            elif name in ("alpha", "beta"):
                parameters.pointers[i] = block.place(name)
        self.config, self.queue = kernel.with_parameters(parameters)
        self.moves = bool(self._inside or self._maps)

    def follow(self, values: Values) -> None:
        """Writes what follows from addresses otherwise: offsets into buffers, tensor maps."""
        for i, which, offset in self._inside:
            self._values[i] = values[which] + offset
        for found in self._maps:
            found.follow(values)


class _Launches:
    """Memory for all launches of a call, with what a call needs of it, so that it looks up nothing.

    write: puts values where parameters point. steps: of each launch what follows addresses
    otherwise, or None, and the driver's function. stream: which the configurations have.
    """

    __slots__ = ("block", "configs", "made", "steps", "stream", "write")

    def __init__(self, block: _Block, made: Sequence[_Step]) -> None:
        self.block, self.write = block, block.write
        self.made = made
        self.steps = [(step.follow if step.moves else None, step.queue) for step in made]
        self.configs = [step.config for step in made]
        self.stream = -1

    def set(self, stream: int) -> None:
        """Makes it the stream of all launches."""
        for config in self.configs:
            config.hStream = stream
        self.stream = stream


class Launcher:
    """All launches of a problem on one GPU; safe to call from several threads.

    A workspace that is not given comes from the GPU's memory pool for each call, on the call's
    stream, and goes back there: one that is kept would be shared by streams, or by a captured graph
    and later calls. Inside a capture, the driver makes both a part of the graph.

    own: the arrays that an epilogue of the user's own takes.
    """

    def __init__(
        self, gpu: Gpu, module: Module, steps: Plan, dtypes: DTypes, own: Sequence[str] = ()
    ) -> None:
        self._gpu, self._dtypes = gpu, dtypes
        self.workspace_bytes = steps.workspace_bytes
        # An operand of one's own may be called bias: then a kernel has no other.
        fixed = ("" if name in own else name for name in BUFFERS[:-1])
        self._buffers = (*fixed, *own, WORKSPACE)
        # Only what waits by itself may start early, which files of older versions do not.
        waits = "griddepcontrol.wait" in module.text
        self._launched = [replace(each, early=each.early and waits) for each in steps.launches]
        with gpu:
            self._kernels = [gpu.load(module, launch) for launch in self._launched]
        # What no call uses just now: the driver has copied parameters when a launch returns. Taking
        # it from here and giving it back is faster than a lock, and threads do not wait.
        self._idle = [self._new()]

    def _new(self) -> _Launches:
        block = _Block(self._dtypes, self._buffers)
        both = zip(self._kernels, self._launched, strict=True)
        return _Launches(block, [_Step(self._gpu, *each, block) for each in both])

    def __call__(self, stream: int, values: Values) -> None:
        """Queues everything.

        Raises CheckError, and UsageError and SpecError for what the caller has given.
        """
        gpu = self._gpu
        entered = gpu.enter()
        try:
            if self.workspace_bytes and not values[_SPACE]:
                self._with_workspace(stream, values)
                return
            try:
                mine = self._idle.pop()
            except IndexError:  # threads have all of them
                mine = self._new()
            try:
                try:
                    mine.write(*values)
                except (struct.error, OverflowError):
                    mine.write(*mine.block.converted(values))
                if stream != mine.stream:
                    mine.set(stream)
                for follow, queue in mine.steps:
                    if follow:
                        follow(values)
                    (status,) = queue()
                    if status:
                        check(status, "cuLaunchKernelEx")
            finally:
                self._idle.append(mine)
        except CheckError:
            if gpu.has(stream):
                raise
            raise UsageError(
                f"stream is of another GPU than the arrays, which are on GPU {gpu.index}; pass "
                "one of that GPU (of its primary context)"
            ) from None
        finally:
            if entered:
                gpu.leave()

    def _with_workspace(self, stream: int, values: Values) -> None:
        pool = self._gpu.pool.handle
        space = call("cuMemAllocFromPoolAsync", self.workspace_bytes, pool, stream)
        try:
            self(stream, (*values[:_SPACE], int(space), *values[_SPACE + 1 :]))
        finally:
            call("cuMemFreeAsync", space, stream)


class Launchers:
    """Those of a batch that takes several: one after another, each with operands of its own."""

    def __init__(self, each: Sequence[tuple[Launcher, tuple[int, ...]]]) -> None:
        """Each launcher with the bytes by which it moves the addresses, as many as there are."""
        self._each = each
        self.workspace_bytes = max(launcher.workspace_bytes for launcher, _ in each)

    def __call__(self, stream: int, values: Values) -> None:
        """See Launcher."""
        for launcher, moves in self._each:
            moved = (at + move for at, move in zip(values, moves, strict=False))
            launcher(stream, (*moved, *values[len(moves) :]))
