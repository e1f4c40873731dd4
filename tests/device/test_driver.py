"""What the driver is asked, through cuda.bindings and cuda.core as they are: see fake_libcuda.c.

Each test runs a function of this file in a process of its own, whose libcuda writes down its calls.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda import core

from gen.api.gpu import Launcher
from gen.bench.contenders import Unsupported
from gen.bench.device import GpuLost, MeasuredGpu
from gen.bench.peers import cutlass2
from gen.bench.work import Work
from gen.compile.nvrtc import Module, include_paths
from gen.device import context, driver
from gen.device.choose import choose_runner
from gen.device.context import Gpu
from gen.device.driver import OutOfMemory, Parameters
from gen.device.first_gpu import FirstGpu
from gen.device.tensor_map import encode
from gen.doctor import examine
from gen.errors import CheckError, GenError, UsageError
from gen.kernels.launches import Launch, Plan, Pointer, TensorMap
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GemmShape, parse_layout
from tests import ROOT
from tests.support.programs import need, run
from tests.support.slow import slow

LIBCUDA = Path(__file__).parent / "fake_libcuda.c"


def module(name: str) -> Module:
    return Module(name, "", "sm_90a", "cubin", name.encode(), "", {}, 0.0, False)


CUBIN = module("cubin")
ONE = (1, 1, 1)
MAP = TensorMap(Pointer("A", 16), "f16", (64, 8), 128, (64, 4), 64)
NO_MAP = TensorMap(Pointer("A"), "f16", (64, 0), 128, (64, 4), 64)
BUFFER, OTHER = 0x700000000, 0x700000100  # what is allocated first, and then


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fake libcuda is."""
    need("gcc")
    made = tmp_path_factory.mktemp("libcuda")
    warnings = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
    include = [f"-I{path}" for path in include_paths()]
    library = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1")
    run("gcc", *warnings, *include, LIBCUDA, *library, "-ldl", cwd=made)
    return made


def asked(folder: Path, function: Callable[[], None], parameters: str = "") -> list[str]:
    """What the function asks of the driver."""
    log = folder / "log"
    log.write_text("")
    run(
        *(sys.executable, "-c", f"import {__name__} as tests; tests.{function.__name__}()"),
        cwd=ROOT, LD_LIBRARY_PATH=str(folder), LOG=str(log), PARAMETERS=parameters,
        CUDA_VISIBLE_DEVICES="0,1",
    )  # fmt: skip
    return log.read_text().splitlines()


def some(lines: list[str], *words: str) -> list[str]:
    """The lines that start with one of the words."""
    return [line for line in lines if line.startswith(words)]


# --- the runner


def on_the_runner() -> None:
    runner: Any = choose_runner("gpu")
    assert (runner.name, runner.multiprocessors) == ("Fake 0", 132)
    assert runner.target("sm_80") == "sm_90a"
    array = np.arange(4, dtype=np.int32).reshape(2, 2)
    buffer = runner.upload(array, "A")
    np.testing.assert_array_equal(runner.download(buffer), array)
    described = runner.tensor_map(MAP, buffer, 16)
    args = [np.int32(-7), buffer, np.uint64(9), described, np.float32(2.5), np.float64(1)]
    assert runner.launch(CUBIN, "gemm", (1, 2, 3), (4, 5, 6), args, 50_000) == []
    assert runner.launch(CUBIN, "gemm", (0, 2, 3), (4, 5, 6), args, 50_000) == []
    assert runner.launch(CUBIN, "gemm_pack", ONE, ONE, [runner.tensor_map(NO_MAP, buffer, 0)]) == []
    runner.synchronize()
    os.environ["FAIL"] = "cuLaunchKernelEx"
    failed = "gemm failed on Fake 0: cuLaunchKernelEx failed: CUDA_ERROR"
    with pytest.raises(CheckError, match=failed):
        runner.launch(CUBIN, "gemm", ONE, ONE, args)
    del os.environ["FAIL"]
    runner._gpu.fill(buffer.address + array.nbytes, b"\0", 1)
    with pytest.raises(CheckError, match="a byte beside A was overwritten: offset 16 of 16 bytes"):
        runner.download(buffer)
    runner.free(buffer)


def test_the_runner(folder: Path) -> None:
    lines = asked(folder, on_the_runner, "gemm=illmfl gemm_pack=m")
    guard = 4096
    address, size = BUFFER + guard, 2 * guard + 16
    assert some(lines, "cuMem")[:3] == [
        f"cuMemAllocFromPoolAsync {size} 0x3000 0x2000",
        f"cuMemcpyHtoDAsync {BUFFER:#x} {size} 0x2000",
        f"cuMemcpyDtoHAsync {BUFFER:#x} {size} 0x2000",
    ]
    first = lines.index("cuLibraryLoadData cubin")
    given = f"-7 {address:x} 9 6,{address + 16:x},40,8,80,40,4,2 2.5 3ff0000000000000"
    assert lines[first : lines.index("cuCtxSynchronize") + 1] == [
        "cuLibraryLoadData cubin",
        "cuLibraryGetKernel 0x4000 gemm",
        "cuKernelGetFunction gemm 0x1000",
        "cuFuncSetAttribute gemm@0 8 50000",
        f"gemm@0 (1, 2, 3) (4, 5, 6) 50000 0x2000: {given}",
        "cuStreamSynchronize 0x2000",
        "cuLibraryGetKernel 0x4000 gemm_pack",  # the cubin is loaded already
        "cuKernelGetFunction gemm_pack 0x1000",
        "gemm_pack@0 (1, 1, 1) (1, 1, 1) 0 0x2000: 0,0,0,0,0,0,0,0",
        "cuStreamSynchronize 0x2000",
        "cuCtxSynchronize",
    ]
    assert f"cuMemFreeAsync {BUFFER:#x} 0x2000" in lines


# --- launches and memory


def launched_early() -> None:
    gpu = FirstGpu()
    kernel = gpu.load(CUBIN, Launch("gemm", (7, 1, 1), (32, 2, 1), 1000, {}, True, True))
    block = (ctypes.c_longlong * 2)(5, 6)
    one, two = Parameters([block, 1]), Parameters([block, np.int64(2)])
    for parameters in (one, two, one):
        kernel(gpu.stream, parameters)
        block[1] += 1
    assert kernel.parameter_bytes(3) == 16


@slow
def test_kernels_that_start_early(folder: Path) -> None:
    lines = asked(folder, launched_early, "gemm=bl")
    assert lines[lines.index("cuKernelGetFunction gemm 0x1000") + 1 :] == [
        "cuFuncSetAttribute gemm@0 9 100",
        "gemm@0 early (7, 1, 1) (32, 2, 1) 1000 0x2000: 5,6 1",
        "gemm@0 early (7, 1, 1) (32, 2, 1) 1000 0x2000: 5,7 2",
        "gemm@0 early (7, 1, 1) (32, 2, 1) 1000 0x2000: 5,8 1",
        "cuFuncGetParamInfo gemm@0 3",
    ]


def moved_memory() -> None:
    gpu = FirstGpu()
    one, other = gpu.allocate(16), gpu.allocate(0)
    at, there = int(one.handle), int(other.handle)
    gpu.write(at, np.arange(4, dtype=np.int32))
    gpu.copy(there, at, 8)
    found = np.empty(4, np.int32)
    gpu.read(there, found)
    np.testing.assert_array_equal(found, [0, 1, 0, 0])
    for pattern in (b"\1", b"\2\1", b"\4\3\2\1"):
        gpu.fill(at, pattern, 3)
        gpu.read(at, found)
        assert found.tobytes().startswith(pattern * 3)
    gpu.free(one)
    gpu.free(other)
    with pytest.raises(OutOfMemory, match=r"the GPU has no 1.0 GiB left; use a smaller shape"):
        gpu.allocate(2**30)


@pytest.mark.slow
def test_memory(folder: Path) -> None:
    lines = some(asked(folder, moved_memory), "cuMem")
    assert [line for line in lines if "DtoH" not in line] == [
        "cuMemAllocFromPoolAsync 16 0x3000 0x2000",
        "cuMemAllocFromPoolAsync 1 0x3000 0x2000",
        f"cuMemcpyHtoDAsync {BUFFER:#x} 16 0x2000",
        f"cuMemcpyDtoDAsync {OTHER:#x} {BUFFER:#x} 8 0x2000",
        f"cuMemsetD8Async {BUFFER:#x} 0x1 3 0x2000",
        f"cuMemsetD16Async {BUFFER:#x} 0x102 3 0x2000",
        f"cuMemsetD32Async {BUFFER:#x} 0x1020304 3 0x2000",
        f"cuMemFreeAsync {BUFFER:#x} 0x2000",
        f"cuMemFreeAsync {OTHER:#x} 0x2000",
        "cuMemAllocFromPoolAsync 1073741824 0x3000 0x2000",
    ]


def on_two_gpus() -> None:
    first, second = context.gpu(0), context.gpu(1)
    assert (second.arch, second.multiprocessors, second.target("sm_75")) == ("sm_80", 131, "sm_80")
    assert second is context.gpu(1)
    assert second.enter()
    assert not second.enter()
    for gpu in (second, first):
        with gpu:
            gpu.load(CUBIN, Launch("gemm", ONE, ONE, 0, {}))
    second.leave()
    assert [first.has(0), first.has(1), second.has(0), second.has(1)] == [True, False, False, True]
    second.synchronize(9)


@slow
def test_a_kernel_is_of_one_gpu(folder: Path) -> None:
    lines = asked(folder, on_two_gpus)
    start = lines.index("cuCtxPopCurrent 0x1001") + 1  # its pool is known
    assert lines[start:] == [
        "cuCtxPushCurrent 0x1001",
        "cuCtxPushCurrent 0x1001",
        "cuLibraryLoadData cubin",
        "cuLibraryGetKernel 0x4000 gemm",
        "cuKernelGetFunction gemm 0x1001",
        "cuCtxPopCurrent 0x1001",
        "cuCtxPushCurrent 0x1000",
        "cuLibraryGetKernel 0x4000 gemm",
        "cuKernelGetFunction gemm 0x1000",
        "cuCtxPopCurrent 0x1000",
        "cuCtxPopCurrent 0x1001",
        "cuCtxPushCurrent 0x1001",
        "cuStreamSynchronize 0x9",
        "cuCtxPopCurrent 0x1001",
    ]


# --- no failure passes in silence


def failed() -> None:
    gpu = FirstGpu()
    memory = gpu.allocate(64)
    at, array = int(memory.handle), np.zeros(4, np.int32)
    plain = Launch("gemm", ONE, ONE, 50_000, {})
    kernel = gpu.load(CUBIN, plain)
    parameters, encoded = Parameters([]), encode(MAP, 0)
    plan = Plan((Launch("gemm", ONE, ONE, 0, {"A": Pointer("A")}),), 4096)
    launcher = Launcher(gpu, CUBIN, plan, parse_dtype("f32"))
    steps: dict[str, Callable[[], object]] = {
        "cuInit": lambda: Gpu(0),
        "cuDeviceGet": lambda: Gpu(0),
        "cuDevicePrimaryCtxRetain": lambda: Gpu(0),
        "cuDriverGetVersion": driver.cuda_version,
        "cuDeviceGetCount": driver.gpus_here,
        "cuCtxPushCurrent": gpu.__enter__,
        "cuCtxPopCurrent": gpu.leave,
        "cuCtxSynchronize": lambda: choose_runner("gpu").synchronize(),  # type: ignore[attr-defined]
        "cuStreamSynchronize": gpu.sync,
        "cuMemAllocFromPoolAsync": lambda: gpu.allocate(64),
        "cuMemcpyHtoDAsync": lambda: gpu.write(at, array),
        "cuMemcpyDtoHAsync": lambda: gpu.read(at, array),
        "cuMemcpyDtoDAsync": lambda: gpu.copy(at, at, 4),
        "cuMemsetD8Async": lambda: gpu.fill(at, b"1", 1),
        "cuMemsetD16Async": lambda: gpu.fill(at, b"12", 1),
        "cuMemsetD32Async": lambda: gpu.fill(at, b"1234", 1),
        "cuLibraryLoadData": lambda: gpu.load(module("other"), plain),
        "cuLibraryGetKernel": lambda: gpu.load(CUBIN, plain),
        "cuKernelGetFunction": lambda: gpu.load(CUBIN, plain),
        "cuFuncSetAttribute": lambda: gpu.load(CUBIN, plain),
        "cuFuncGetParamInfo": lambda: kernel.parameter_bytes(0),
        "cuLaunchKernelEx": lambda: kernel(gpu.stream, parameters),
        "cuTensorMapEncodeTiled": lambda: encode(MAP, 0),
        "cuTensorMapReplaceAddress": lambda: driver.call("cuTensorMapReplaceAddress", encoded, 64),
    }
    said = dict.fromkeys(steps, "nothing")
    for name, step in steps.items():
        os.environ["FAIL"] = name
        try:
            step()
        except GenError as error:
            said[name] = str(error)
    assert [x for x in said.items() if "CUDA_ERROR_ILLEGAL_ADDRESS" not in x[1]] == []
    for name in ("cuMemAllocFromPoolAsync", "cuLaunchKernelEx", "cuMemFreeAsync"):
        os.environ["FAIL"] = name
        with pytest.raises(CheckError, match=f"{name} failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
            launcher(0x2000, (0,) * 6 + (1, 0))
        with pytest.raises(UsageError, match="stream is of another GPU than the arrays"):
            launcher(0x2001, (0,) * 6 + (1, 0))
    os.environ["FAIL"] = "cuInit"
    reason = "the driver reports that cuInit failed: CUDA_ERROR_ILLEGAL_ADDRESS"
    assert driver.why_no_gpu() == reason


def test_every_failure_is_an_error(folder: Path) -> None:
    assert "cuLibraryLoadData other" in asked(folder, failed)


# --- calls from Python


def called(text: str = "griddepcontrol.wait;") -> None:
    gpu = context.gpu(0)
    args = {
        "M": np.int64(3), "alpha": np.float32(0), "A": Pointer("A", 16), "left": MAP,
        "beta": np.float32(0), "right": NO_MAP, "space": Pointer("workspace", 4),
    }  # fmt: skip
    launches = (
        Launch("gemm_pack", (2, 1, 1), (32, 1, 1), 0, {"bias": Pointer("bias")}, True),
        Launch("gemm", (1, 2, 3), (4, 5, 6), 50_000, args, True, True),
    )
    made = replace(CUBIN, text=text)
    launcher = Launcher(gpu, made, Plan(launches, 4096), parse_dtype("f16"))
    assert gpu.enter()
    for a, alpha in ((0x1000, 2), (0x1000, 3.5), (0x2000, 1)):
        launcher(0x2000, (a, 0, 0, 0, 0xB, 0, alpha, -1))


def called_without_waits() -> None:
    called("")


def test_what_does_not_wait_does_not_start_early(folder: Path) -> None:
    lines = asked(folder, called_without_waits, "gemm=lflmfml gemm_pack=l")
    assert [line.split()[1] for line in lines if line.startswith("gemm@0 (")] == ["(1,"] * 3
    assert not any(" early " in line for line in lines)


def test_a_call(folder: Path) -> None:
    lines = asked(folder, called, "gemm=lflmfml gemm_pack=l")
    asked_for = lines[lines.index("cuFuncSetAttribute gemm@0 8 50000") :]

    def call(a: int, space: int, alpha: str) -> list[str]:
        matrix, spaces = f"6,{a + 16:x},40,8,80,40,4,2", f"{space + 4:x}"
        return [
            "cuMemAllocFromPoolAsync 4096 0x3000 0x2000",
            "gemm_pack@0 early (2, 1, 1) (32, 1, 1) 0 0x2000: b",
            f"gemm@0 early (1, 2, 3) (4, 5, 6) 50000 0x2000: 3 {alpha} {a + 16:x} {matrix} -1"
            f" 0,0,0,0,0,0,0,0 {spaces}",
            f"cuMemFreeAsync {space:#x} 0x2000",
        ]

    first, second = call(0x1000, BUFFER, "2"), call(0x1000, BUFFER + 4096, "3.5")
    third = call(0x2000, BUFFER + 2 * 4096, "1")
    first.insert(2, "cuTensorMapEncodeTiled 0x1010")
    third.insert(2, "cuTensorMapReplaceAddress 0x2010")
    assert asked_for == [
        "cuFuncSetAttribute gemm@0 8 50000",
        "cuFuncSetAttribute gemm@0 9 100",
        "cuCtxPopCurrent 0x1000",
        "cuCtxPushCurrent 0x1000",
        *(*first, *second, *third),
    ]


# --- measuring


def measured() -> None:
    gpu = MeasuredGpu()
    facts = (gpu.name, gpu.arch, gpu.uuid, gpu.l2_bytes, gpu.multiprocessors)
    assert facts == ("Fake 0", "sm_90a", "00000000-0000-0000-0000-000000000000", 4096, 132)
    core.system = None  # type: ignore[assignment]  # NVML would know of a GPU that is really there
    assert gpu.driver_version() == "CUDA 13.1"
    order: list[str] = []
    assert gpu.elapsed(lambda: order.append("timed"), lambda: order.append("before")) == 1.5
    assert order == ["before", "timed"]
    os.environ["FAIL"] = "cuStreamSynchronize"
    lost = "a kernel failed on Fake 0: cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS"
    with pytest.raises(GpuLost, match=lost):
        gpu.sync()
    del os.environ["FAIL"]
    found = next(check for check in examine() if check.name == "GPU")
    assert found.found == "Fake 0 (sm_90), Fake 1 (sm_80), driver for CUDA 13.1"


@slow
def test_the_gpu_to_measure_on(folder: Path) -> None:
    lines = asked(folder, measured)
    assert some(lines, "cuEvent", "cuStream") == [
        "cuEventRecord 0x5000 0x2000",
        "cuEventRecord 0x5001 0x2000",
        *["cuStreamSynchronize 0x2000"] * 2,
    ]


def with_cutlass() -> None:
    gpu, dtypes, layouts = MeasuredGpu(), parse_dtype("f32"), parse_layout("rrr")
    work = Work(gpu, dtypes, layouts, GemmShape(8, 8, 8))
    peer = cutlass2.contenders(dtypes)[0]
    cutlass2._compile = lambda *_: CUBIN  # type: ignore[assignment]
    prepared = peer.prepare(work)
    for i in (0, 1, 0):
        prepared.queue(gpu.stream, *work.pointers(i))
    os.environ["FAIL"] = "cuFuncSetAttribute"
    with pytest.raises(Unsupported, match="gemm gets no 60000 bytes of shared memory here"):
        peer.prepare(work)


@slow
def test_cutlass_computes_its_launch(folder: Path) -> None:
    lines = asked(folder, with_cutlass, "prepare=iiilllllllllill gemm=b")
    (setup, _) = some(lines, "prepare@0 ")
    assert setup.startswith("prepare@0 (1, 1, 1) (1, 1, 1) 0 0x2000: 8 8 8 7")
    assert "cuFuncSetAttribute gemm@0 8 60000" in lines
    assert some(lines, "gemm@0 ") == ["gemm@0 (2, 3, 4) (128, 1, 1) 60000 0x2000: 0,0"] * 3
