"""Stand-ins for PyTorch's tensors and for a GPU: the launches run on the emulator.

Tensors lie in the emulator's memory. The GPU takes launches as the driver does, by the addresses of
parameters, so that all of `gen.api` but the driver itself is tried without a GPU.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gen import api
from gen.api import frameworks, kernel
from gen.compile.nvrtc import Module
from gen.device import context, driver, tensor_map
from gen.device.context import Gpu
from gen.device.driver import LoadedKernel
from gen.device.emulated import EmulatorRunner
from gen.kernels.launches import Launch, Pointer, TensorMap

ELEMENTS = ("float16", "float32", "int8", "int32", "uint8")


class FakeGpu(Gpu):
    """A GPU whose driver is the emulator; `log` has the name of each function that was called."""

    def __init__(self, arch: str = "sm_80", runs: bool = True) -> None:
        self.index, self.name = 0, "a fake"
        self.multiprocessors, self.format = 4, "ptx"
        self.arch, self._context = arch, 1
        self._runs = runs
        self.runner = EmulatorRunner(multiprocessors=4)
        self.log: list[str] = []
        self.spaces: dict[int, Any] = {}
        self.buffers: list[Any] = []
        self.streams: list[int] = []
        self.pool = SimpleNamespace(handle=7)
        self.driver = SimpleNamespace(
            CUlaunchConfig=lambda: SimpleNamespace(numAttrs=0),
            CUlaunchAttribute=lambda: SimpleNamespace(value=SimpleNamespace()),
            CUlaunchAttributeID=SimpleNamespace(
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="early"
            ),
            cuLaunchKernelEx=self._launch if runs else lambda *_: (0,),
            cuCtxGetCurrent=lambda: (0, 1),
            cuCtxPushCurrent=lambda _: (0,),
            cuCtxPopCurrent=lambda: (0, None),
            cuStreamGetCtx=lambda _: (0, 1),
            cuMemAllocFromPoolAsync=self._allocate,
            cuMemFreeAsync=self._free,
            cuTensorMapReplaceAddress=FakeMap.move,
        )

    def load(self, module: Module, launch: Launch) -> LoadedKernel:
        return LoadedKernel((module, launch), launch)

    def _allocate(self, size: int, pool: int, stream: int) -> tuple[int, int]:
        buffer = self.runner.upload(np.full(size, 0xFF, np.uint8), "workspace", False)
        self.spaces[buffer.address] = buffer
        self.log.append("allocate")
        return 0, buffer.address

    def _free(self, address: int, stream: int) -> tuple[int]:
        self.runner.free(self.spaces.pop(address))
        self.log.append("free")
        return (0,)

    def buffer(self, address: int) -> Any:
        """The memory that an address is in."""
        everything = [*self.spaces.values(), *self.buffers]
        return next(b for b in everything if b.address <= address < b.address + b.nbytes)

    def _launch(self, config: Any, function: Any, parameters: int, extra: int) -> tuple[int]:
        module, launch = function
        grid = config.gridDimX, config.gridDimY, config.gridDimZ
        block = config.blockDimX, config.blockDimY, config.blockDimZ
        pointers = (ctypes.c_void_p * len(launch.args)).from_address(parameters)
        args = [
            self._argument(arg, at) for arg, at in zip(launch.args.values(), pointers, strict=True)
        ]
        self.log.append(launch.kernel)
        self.streams.append(config.hStream)
        findings = self.runner.launch(
            module, launch.kernel, grid, block, args, config.sharedMemBytes, bool(config.numAttrs)
        )
        assert not findings, findings
        return (0,)

    def _argument(self, arg: Any, at: int) -> Any:
        if isinstance(arg, TensorMap):
            address = ctypes.c_uint64.from_address(at).value
            buffer = self.buffer(address)
            return self.runner.tensor_map(arg, buffer, address - buffer.address)
        kind = np.dtype(np.uint64) if isinstance(arg, Pointer) else arg.dtype
        return np.frombuffer(ctypes.string_at(at, kind.itemsize), kind)[0]


class FakeMap:
    """An encoded tensor map: its first 8 bytes are the address."""

    def __init__(self, described: TensorMap, address: int) -> None:
        self.value = ctypes.c_uint64(address)

    def move(self, address: int) -> tuple[int]:
        self.value.value = address
        return (0,)

    def getPtr(self) -> int:
        return ctypes.addressof(self.value)


class Tensor:
    """As torch.Tensor, on a GPU: a view of a buffer."""

    requires_grad = negated = False
    gpu: FakeGpu

    def __init__(self, base: Any, offset: int, shape: Any, strides: Any, dtype: str) -> None:
        self.base, self.offset, self.shape = base, offset, tuple(shape)
        self._strides, self.dtype = tuple(strides), f"torch.{dtype}"
        self.device_index = 0

    @classmethod
    def of(cls, array: np.ndarray) -> Tensor:
        """A contiguous tensor with the values of an array."""
        base = cls.gpu.runner.upload(np.ascontiguousarray(array).reshape(-1), "tensor")
        cls.gpu.buffers.append(base)
        strides = [int(np.prod(array.shape[i + 1 :])) for i in range(array.ndim)]
        return cls(base, 0, array.shape, strides, array.dtype.name)

    def __dlpack__(self) -> Any:
        raise AssertionError("PyTorch is asked directly")

    def data_ptr(self) -> int:
        return int(self.base.address) + self.offset * self.numpy_dtype.itemsize

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dtype.partition(".")[2])

    def is_neg(self) -> bool:
        return self.negated

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def get_device(self) -> int:
        return self.device_index

    def new_empty_strided(self, shape: Any, strides: Any, dtype: str) -> Tensor:
        name = dtype.partition(".")[2]
        if name == "uint8":  # a workspace, which lives as long as somebody holds it
            _, address = self.gpu._allocate(*shape, 0, 0)
            space = Tensor(self.gpu.spaces[address], 0, shape, (1,), name)
            weakref.finalize(space, self.gpu._free, address, 0)
            return space
        base = Tensor.of(np.full(shape, 99, name)).base
        return Tensor(base, 0, shape, strides, name)

    def t(self) -> Tensor:
        return Tensor(
            self.base, self.offset, self.shape[::-1], self._strides[::-1], self.numpy_dtype.name
        )

    def __getitem__(self, index: Any) -> Tensor:
        """Slices, as NumPy has them."""
        layout = np.lib.stride_tricks.as_strided(
            np.empty(1, np.int8), self.shape, self._strides, writeable=False
        )
        part = layout[index]
        offset = part.__array_interface__["data"][0] - layout.__array_interface__["data"][0]
        return Tensor(
            self.base, self.offset + offset, part.shape, part.strides, self.numpy_dtype.name
        )

    def numpy(self) -> np.ndarray:
        whole = self.gpu.runner.download(self.base)
        size = whole.itemsize
        return np.lib.stride_tricks.as_strided(
            whole[self.offset :], self.shape, [s * size for s in self._strides]
        ).copy()


Tensor.__module__ = "torch"


def install(patch: pytest.MonkeyPatch, arch: str = "sm_80", runs: bool = True) -> FakeGpu:
    """Makes `arch` the GPU that tensors are on. With `runs` False nothing is computed."""
    fake = FakeGpu(arch, runs)
    torch = SimpleNamespace(
        is_grad_enabled=lambda: True,
        cuda=SimpleNamespace(stream=lambda _: nullcontext(), ExternalStream=lambda *_: None),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 40 + device),
        Tensor=Tensor,
        nn=SimpleNamespace(Parameter=None),
        **{name: f"torch.{name}" for name in ELEMENTS},
    )
    patch.setitem(sys.modules, "torch", torch)
    patch.setattr(frameworks, "BY_TYPE", {})  # which knows another torch
    patch.setattr(kernel, "BY_TYPE", frameworks.BY_TYPE)
    patch.setattr(api, "_kernels", {})  # with what they have prepared for another GPU
    patch.setattr(context, "gpu", lambda index: fake)
    patch.setattr(driver, "bindings", lambda: fake.driver)
    patch.setattr(tensor_map, "encode", FakeMap)
    patch.setattr(Tensor, "gpu", fake, raising=False)
    return fake
