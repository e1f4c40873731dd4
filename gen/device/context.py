"""A GPU: its primary context, its pool of memory, and the kernels that are loaded there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from gen.device.driver import (
    LoadedKernel,
    OutOfMemory,
    bindings,
    call,
    shared_memory_attributes,
)
from gen.device.gpus import own_arch
from gen.errors import CheckError
from gen.kernels.launches import Launch
from gen.requirements import cuda_core

if TYPE_CHECKING:
    from cuda.core import Buffer, ObjectCode, Stream

    from gen.compile.nvrtc import Module
    from gen.spec.kernel import KernelSpec


class Gpu:
    """One GPU: its primary context, which frameworks use as well, and its pool of memory.

    Inside of `with` it is the thread's current one.
    """

    format = "cubin"

    def __init__(self, index: int) -> None:
        call("cuInit", 0)
        self.driver = bindings()
        self.index = index
        self._context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", index))
        device = cuda_core().Device(index)
        major, minor = device.compute_capability
        self.arch = own_arch(10 * major + minor)
        self.name = device.name
        self.multiprocessors = int(device.properties.multiprocessor_count)
        with self:
            # Keeps what is given back, instead of asking the system for it each time.
            self.pool: Any = device.memory_resource

    def target(self, arch: str) -> str:
        """This GPU's own architecture, with the features that only it has (`sm_90a`)."""
        return self.arch

    def enter(self) -> bool:
        """Makes the GPU the calling thread's current one; whether it was another."""
        if self.driver.cuCtxGetCurrent()[1] == self._context:
            return False
        call("cuCtxPushCurrent", self._context)
        return True

    def leave(self) -> None:
        """Undoes an `enter` that has changed something."""
        call("cuCtxPopCurrent")

    def __enter__(self) -> Gpu:
        call("cuCtxPushCurrent", self._context)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def room(self, spec: KernelSpec, module: Module) -> int:
        """The multiprocessors that a kernel's blocks can have at the same time.

        Clusters lie within groups of multiprocessors, whose sizes differ from GPU to GPU: large
        ones may leave some over, of which the driver knows. This GPU is the current one.
        """
        if not spec.has_large_clusters:
            return self.multiprocessors
        size, shared = spec.cluster_blocks, spec.geometry.dynamic_shared
        threads = math.prod(spec.threads)
        kernel = self.load(module, Launch(spec.name, (size, 1, 1), (threads, 1, 1), shared, {}))
        return kernel.clusters() * size

    def load(self, module: Module, launch: Launch) -> LoadedKernel:
        """A kernel of a cubin, ready to be launched on this GPU, which is the current one.

        Raises CheckError where the GPU does not take it.
        """
        with _cuda_core(f"{launch.kernel} cannot be loaded"):
            kernel = _loaded(module.code).get_kernel(launch.kernel)
        # The driver also launches kernels of no context, but on whichever GPU the stream is of.
        function = call("cuKernelGetFunction", kernel.handle)
        for name, value in shared_memory_attributes(launch).items():
            attribute = getattr(self.driver.CUfunction_attribute, name)
            try:
                call("cuFuncSetAttribute", function, attribute, value)
            except CheckError as error:
                wanted = f"{launch.shared_bytes} bytes of shared memory"
                raise CheckError(f"{launch.kernel} gets no {wanted} here: {error}") from None
        return LoadedKernel(function, launch)

    def memory(self, size: int, stream: Stream) -> Buffer:
        """New memory for a stream, on which it also goes back. Raises OutOfMemory."""
        try:
            with _cuda_core(f"{size} bytes of memory cannot be allocated"):
                buffer: Buffer = self.pool.allocate(max(size, 1), stream=stream)
        except CheckError as error:
            if "OUT_OF_MEMORY" not in str(error):
                raise
            raise OutOfMemory(
                f"the GPU has no {size / 2**30:.1f} GiB left; use a smaller shape"
            ) from None
        return buffer

    def has(self, stream: int) -> bool:
        """Whether a stream is of this GPU, or the driver does not say."""
        status, context = self.driver.cuStreamGetCtx(stream)
        return bool(status) or bool(context == self._context)

    def synchronize(self, stream: int) -> None:
        """Waits for all that is queued on a stream."""
        with self:
            call("cuStreamSynchronize", stream)


@cache
def gpu(index: int) -> Gpu:
    """The GPU with this ordinal."""
    return Gpu(index)


@cache
def _loaded(cubin: bytes) -> ObjectCode:
    """A cubin, loaded for all of its kernels and all GPUs."""
    code: ObjectCode = cuda_core().ObjectCode.from_cubin(cubin)
    _ = code.handle  # loads it: later, threads might do so at once
    return code


@contextmanager
def _cuda_core(what: str) -> Iterator[None]:
    """cuda.core's errors, which have no public class, as CheckError."""
    try:
        yield
    except Exception as error:
        raise CheckError(f"{what}: {error}") from None
