"""Tensor maps on a GPU: what TMA needs to know of a matrix, as the driver encodes it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.errors import CheckError

if TYPE_CHECKING:
    from cuda.bindings.driver import CUtensorMap
    from cuda.core import Kernel, Stream

    from gen.plan import TensorMap

# tf32 is copied as it is in memory: the tensor cores ignore what they do not use.
_ELEMENTS = {
    "f16": "FLOAT16", "bf16": "BFLOAT16", "tf32": "FLOAT32", "f32": "FLOAT32",
    "i8": "UINT8", "i32": "INT32",
}  # fmt: skip


def encode(described: TensorMap, address: int) -> CUtensorMap:
    """The 128 bytes that a kernel takes; zeros for a map of nothing.

    `address` is that of the matrix, a multiple of 16 bytes. Raises CheckError.
    """
    from cuda.bindings import driver

    if 0 in described.dims:
        return driver.CUtensorMap()
    element = f"CU_TENSOR_MAP_DATA_TYPE_{_ELEMENTS[described.element]}"
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{described.swizzle}B"
    status, encoded = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, element),
        2,
        address,
        [driver.cuuint64_t(n) for n in described.dims],
        [driver.cuuint64_t(described.pitch)],
        [driver.cuuint32_t(n) for n in described.box],
        [driver.cuuint32_t(1)] * 2,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, swizzle),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CheckError(f"the driver refuses {described}: {driver.CUresult(status).name}")
    return encoded


def launch(stream: Stream, config: Any, kernel: Kernel, args: Sequence[Any]) -> None:
    """As cuda.core's launch, whose arguments cannot be structures: queues a kernel.

    `args` are addresses, numpy scalars and what `encode` has made.
    """
    from cuda import core
    from cuda.bindings import driver

    if not any(isinstance(arg, driver.CUtensorMap) for arg in args):
        core.launch(stream, config, kernel, *args)
        return
    values = [arg if isinstance(arg, driver.CUtensorMap) else np.array([arg]) for arg in args]
    pointers = (ctypes.c_void_p * len(values))(
        *(v.ctypes.data if isinstance(v, np.ndarray) else v.getPtr() for v in values)
    )
    how, attributes = driver.CUlaunchConfig(), []
    if config.programmatic_stream_serialization:
        early = driver.CUlaunchAttribute()
        kinds = driver.CUlaunchAttributeID
        early.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        attributes.append(early)
    how.gridDimX, how.gridDimY, how.gridDimZ = config.grid
    how.blockDimX, how.blockDimY, how.blockDimZ = config.block
    how.sharedMemBytes, how.hStream = config.shmem_size, stream.handle
    how.attrs, how.numAttrs = attributes, len(attributes)
    function = driver.CUfunction(int(kernel.handle))
    (status,) = driver.cuLaunchKernelEx(how, function, ctypes.addressof(pointers), 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CheckError(f"cuLaunchKernelEx failed: {driver.CUresult(status).name}")
