"""Launches on a GPU with as little as possible between the caller and the driver.

What a problem needs is prepared once: kernels loaded, grids, parameters in memory as the driver
takes them. The addresses of all buffers, alpha and beta lie in one block of memory, which the
parameters of all launches point into: a call writes that block and launches.
"""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gen.api.problem import whole
from gen.api.views import framework_dtype
from gen.compile.nvrtc import Module
from gen.device import tensor_map
from gen.device.context import Gpu
from gen.device.driver import Parameters, call, check
from gen.errors import CheckError, MissingError, UsageError
from gen.kernels.launches import BIAS, WORKSPACE, Launch, Plan, Pointer, TensorMap
from gen.spec.dtypes import DTypes

if TYPE_CHECKING:
    from cuda.core.utils import StridedMemoryView

BUFFERS = ("A", "B", "C", "D", BIAS, WORKSPACE)

_SCALARS: dict[str, Any] = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32}


def new_array(
    gpu: Gpu, shape: tuple[int, ...], kind: str, row_major: bool, stream: int
) -> StridedMemoryView:
    """New memory of a GPU as cuda.core's StridedMemoryView, which any framework takes by DLPack."""
    import numpy as np
    from cuda.core import Stream
    from cuda.core.utils import StridedMemoryView

    try:
        dtype = np.dtype(framework_dtype(kind))
    except TypeError:
        raise MissingError(f"{framework_dtype(kind)} needs the package ml_dtypes") from None
    size = int(np.prod(shape)) * dtype.itemsize
    with gpu:
        memory = gpu.memory(size, Stream.from_handle(stream))
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    if not row_major:
        strides = [math.prod(shape[:i]) for i in range(len(shape))]
    return StridedMemoryView.from_buffer(memory, shape, tuple(strides), dtype=dtype)


class _Block:
    """Where the addresses of `buffers`, alpha and beta lie."""

    def __init__(self, dtypes: DTypes, buffers: Sequence[str]) -> None:
        self.buffers = buffers
        self.addresses = (ctypes.c_uint64 * len(buffers))()
        self.scalars = (_SCALARS[dtypes.scalar.name] * 2)()

    def place(self, name: str) -> int:
        """Where the address of a buffer lies, or "alpha" or "beta"."""
        if name in self.buffers:
            return ctypes.addressof(self.addresses) + 8 * self.buffers.index(name)
        size = ctypes.sizeof(self.scalars) // 2
        return ctypes.addressof(self.scalars) + size * ("alpha", "beta").index(name)


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

    def follow(self, addresses: tuple[int, ...]) -> None:
        """Makes it the map of the matrix at its address of these."""
        address = addresses[self._which] + self._offset
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

    def __init__(self, gpu: Gpu, module: Module, launch: Launch, block: _Block) -> None:
        parameters = Parameters(
            [0 if isinstance(arg, Pointer | TensorMap) else arg for arg in launch.args.values()]
        )
        self._memory = parameters  # whose address is what the driver gets
        self._values, self.parameters = parameters.values, parameters.address
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
        # One after another: to start early takes a structure, and more of Python for each call.
        self.queue = gpu.load(module, replace(launch, early=False)).queue
        self.moves = bool(self._inside or self._maps)

    def follow(self, addresses: tuple[int, ...]) -> None:
        """Writes what follows from addresses otherwise: offsets into buffers, tensor maps."""
        for i, which, offset in self._inside:
            self._values[i] = addresses[which] + offset
        for found in self._maps:
            found.follow(addresses)


class Launcher:
    """All launches of a problem on one GPU; safe to call from several threads.

    A workspace that is not given comes from the GPU's memory pool for each call, on the call's
    stream, and goes back there: one that is kept would be shared by streams, or by a captured graph
    and later calls. Inside a capture, the driver makes both a part of the graph.

    own: the arrays that an epilogue of the user's own takes; their addresses follow the bias's.
    """

    def __init__(
        self, gpu: Gpu, module: Module, steps: Plan, dtypes: DTypes, own: Sequence[str] = ()
    ) -> None:
        self._gpu, self._lock = gpu, threading.Lock()
        self.workspace_bytes = steps.workspace_bytes
        self._is_integer = not dtypes.scalar.is_float
        # An operand of one's own may be called bias: then a kernel has no other.
        fixed = ("" if name in own else name for name in BUFFERS[:-1])
        block = _Block(dtypes, (*fixed, *own, WORKSPACE))
        self._write = struct.Struct(f"{len(block.buffers)}Q").pack_into
        self._addresses, self._scalars = block.addresses, block.scalars
        with gpu:
            self._made = [_Step(gpu, module, launch, block) for launch in steps.launches]
        # What a call needs of them, so that it looks up nothing.
        self._steps = [
            (step.follow if step.moves else None, step.queue, step.parameters)
            for step in self._made
        ]

    def __call__(self, stream: int, addresses: tuple[int, ...], alpha: Any, beta: Any) -> None:
        """Queues everything; `addresses` are those of the buffers, of a workspace maybe 0.

        Raises CheckError, and UsageError for what the caller has given.
        """
        if self._is_integer:
            alpha, beta = whole(alpha, "alpha"), whole(beta, "beta")
        gpu = self._gpu
        entered = gpu.enter()
        try:
            if self.workspace_bytes and not addresses[-1]:
                self._with_workspace(stream, addresses, alpha, beta)
                return
            with self._lock:  # the driver has copied the parameters when a launch returns
                self._write(self._addresses, 0, *addresses)
                scalars = self._scalars
                scalars[0] = alpha
                scalars[1] = beta
                for follow, queue, parameters in self._steps:
                    if follow:
                        follow(addresses)
                    (status,) = queue(stream, parameters, 0)
                    if status:
                        check(status, "cuLaunchKernel")
        except CheckError:
            if gpu.has(stream):
                raise
            raise UsageError(
                f"stream is of another GPU than the arrays, which are on GPU {gpu.index}; pass "
                "one of that GPU (of its primary context)"
            ) from None
        except TypeError:
            raise UsageError(f"alpha={alpha!r} and beta={beta!r} have to be numbers") from None
        finally:
            if entered:
                gpu.leave()

    def _with_workspace(
        self, stream: int, addresses: tuple[int, ...], alpha: Any, beta: Any
    ) -> None:
        pool = self._gpu.pool.handle
        space = call("cuMemAllocFromPoolAsync", self.workspace_bytes, pool, stream)
        try:
            self(stream, (*addresses[:-1], int(space)), alpha, beta)
        finally:
            call("cuMemFreeAsync", space, stream)


class Launchers:
    """Those of a batch that takes several: one after another, each with operands of its own."""

    def __init__(self, each: Sequence[tuple[Launcher, tuple[int, ...]]]) -> None:
        """Each launcher with the bytes by which it moves the addresses, as many as there are."""
        self._each = each
        self.workspace_bytes = max(launcher.workspace_bytes for launcher, _ in each)

    def __call__(self, stream: int, addresses: tuple[int, ...], alpha: Any, beta: Any) -> None:
        """See Launcher."""
        for launcher, moves in self._each:
            moved = (at + move for at, move in zip(addresses, moves, strict=False))
            launcher(stream, (*moved, *addresses[len(moves) :]), alpha, beta)
