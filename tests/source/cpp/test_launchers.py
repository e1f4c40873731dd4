"""Launchers of C and C++ programs: on default streams, in CUDA graphs, and on two GPUs, in turn, at
once, and with each other's streams.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.device.context import Gpu, gpu
from gen.device.driver import call
from gen.errors import SpecError
from gen.kernels.registry import make_spec, retarget
from gen.source.render import render
from gen.spec.dtypes import DTYPES
from tests.source.cpp.test_cpp import bundle_files
from tests.source.cpp.test_embed import write
from tests.support.programs import need, run

pytestmark = pytest.mark.gpu

INVALID_HANDLE = 400  # cudaErrorInvalidResourceHandle, and CUDA_ERROR_INVALID_HANDLE
SIZE, POINTER, BYTES = ctypes.c_longlong, ctypes.c_void_p, ctypes.c_size_t
SHAPE = (200, 136, 131)  # rows of A are no whole units of 16 bytes

# Launchers of one kernel, with what it is made of: rec_tiles needs more than 48 KiB of shared
# memory, and mma a workspace, for packed operands and for slices of K.
KERNELS: dict[str, dict[str, Any]] = {
    "naive": {"dtype": "f32"},
    "rec_tiles": {"dtype": "f64", "tile": 32, "coarsen": 8},
    "mma": {"dtype": "f16", "split_k": 2},
    "mma_tma": {"dtype": "f16", "split_k": 2},
    "wgmma": {"dtype": "f16", "stream_k": 1, "threadblock": "64x64x64"},
    "simt": {"dtype": "f32", "stream_k": 1, "threadblock": "32x32x8", "warp": "32x32"},
}
LAUNCHERS = [*KERNELS, *(f"{variant} embedded" for variant in KERNELS), "bundle"]
BUNDLE = "--variant mma --dtype f16 --split-k 2 --aligned\n--variant mma --dtype f16\n"
TYPES = {"f16": (np.float16, ctypes.c_float), "f32": (np.float32, ctypes.c_float),
         "f64": (np.float64, ctypes.c_double)}  # fmt: skip


class Problem(ctypes.Structure):
    """The gemm_problem of a bundle's header."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("type", "layout", "epilogue")),
        *((name, SIZE) for name in "MNK"),
        ("alpha", ctypes.c_double),
        *(("A", POINTER), ("lda", SIZE), ("B", POINTER), ("ldb", SIZE)),
        ("beta", ctypes.c_double),
        *(("C", POINTER), ("ldc", SIZE), ("D", POINTER), ("ldd", SIZE), ("bias", POINTER)),
    ]


class Launcher:
    """A launcher in a shared library: D = 2 * A @ B on the current device."""

    def __init__(self, library: ctypes.CDLL, name: str, dtype: str) -> None:
        self.dtype, scalar = TYPES[dtype]
        self._is_bundle = name == "gemm"
        self._launch = library[f"{name}_launch"]
        workspace = f"{name}_workspace"
        self._workspace = library[workspace] if hasattr(library, workspace) else None
        operands = [POINTER, SIZE] * 2
        room = [POINTER, BYTES] if self._workspace else []
        if self._is_bundle:
            self._launch.argtypes = [POINTER, *room, POINTER]
            return
        self._launch.argtypes = [*[SIZE] * 3, scalar, *operands, scalar, *operands, *room, POINTER]
        if self._workspace:
            self._workspace.argtypes = [*[SIZE] * 3, *operands, POINTER]

    def workspace(self, a: int, b: int) -> int:
        """Bytes that a launch needs beside its matrices."""
        if self._workspace is None:
            return 0
        m, n, k = SHAPE
        found = BYTES()
        if self._is_bundle:
            status = self._workspace(ctypes.byref(self._problem(a, b, 0)), ctypes.byref(found))
        else:
            status = self._workspace(m, n, k, a, k, b, n, ctypes.byref(found))
        assert status == 0
        return found.value

    def __call__(self, a: int, b: int, d: int, space: int, nbytes: int, stream: Any) -> int:
        """What the launcher returns."""
        m, n, k = SHAPE
        room = (space, nbytes) if self._workspace else ()
        if self._is_bundle:
            problem = self._problem(a, b, d)
            return int(self._launch(ctypes.byref(problem), *room, int(stream)))
        operands = (m, n, k, 2, a, k, b, n, 0, None, 0, d, n)
        return int(self._launch(*operands, *room, int(stream)))

    def _problem(self, a: int, b: int, d: int) -> Problem:
        m, n, k = SHAPE
        type_ = list(DTYPES).index("f16")
        return Problem(type_, 0, 0, m, n, k, 2, a, k, b, n, 0, None, 0, d, n, None)


class Work:
    """A product on one GPU, on a stream of its own."""

    def __init__(self, on: Gpu, launcher: Launcher) -> None:
        m, n, k = SHAPE
        self.on, self.launcher = on, launcher
        self.stream = call("cuStreamCreate", 1)  # does not wait for the default stream
        size = np.dtype(launcher.dtype).itemsize
        self.a, self.b, self.d = (
            int(call("cuMemAlloc", count * size)) for count in (m * k, k * n, m * n)
        )
        self.nbytes = launcher.workspace(self.a, self.b)
        self.space = int(call("cuMemAlloc", self.nbytes + 1))

    def draw(self, seed: int) -> np.ndarray:
        """New A and B, and a D of 99; what D is to become."""
        m, n, k = SHAPE
        rng = np.random.default_rng(seed)
        a, b = (rng.integers(-2, 3, size).astype(self.launcher.dtype) for size in ((m, k), (k, n)))
        d = np.full((m, n), 99, self.launcher.dtype)
        for address, array in ((self.a, a), (self.b, b), (self.d, d)):
            call("cuMemcpyHtoD", address, array.ctypes.data, array.nbytes)
        call("cuCtxSynchronize")
        return (2 * (a.astype(np.float64) @ b)).astype(self.launcher.dtype)

    def launch(self, stream: Any = None) -> int:
        """What the launcher returns."""
        to = self.stream if stream is None else stream
        return self.launcher(self.a, self.b, self.d, self.space, self.nbytes, to)

    def result(self) -> np.ndarray:
        """D, when all that is queued has ended."""
        m, n, _ = SHAPE
        d = np.empty((m, n), self.launcher.dtype)
        call("cuCtxSynchronize")
        call("cuMemcpyDtoH", d.ctypes.data, self.d, d.nbytes)
        return d

    def check(self, seed: int) -> None:
        """One launch."""
        want = self.draw(seed)
        assert self.launch() == 0
        np.testing.assert_array_equal(self.result(), want)


@contextmanager
def work(on: Gpu, launcher: Launcher) -> Iterator[Work]:
    """A product on a GPU, which is the current one inside."""
    with on:
        made = Work(on, launcher)
        yield made
        for address in (made.a, made.b, made.d, made.space):
            call("cuMemFree", address)
        call("cuStreamDestroy", made.stream)


@pytest.fixture(scope="module")
def gpus() -> list[Gpu]:
    """The last of them first: it is not the one that is current by default."""
    count = call("cuDeviceGetCount")
    return [gpu(index) for index in reversed(range(min(count, 2)))]


@pytest.fixture(scope="module")
def two(gpus: list[Gpu]) -> list[Gpu]:
    if len(gpus) < 2:
        pytest.skip("needs two GPUs")
    return gpus


@pytest.fixture(scope="module", params=LAUNCHERS)
def launcher(
    request: pytest.FixtureRequest,
    gpus: list[Gpu],
    tmp_path_factory: pytest.TempPathFactory,
) -> Launcher:
    folder = tmp_path_factory.mktemp("launcher")
    if request.param == "bundle":
        bundle_files(folder, BUNDLE)
        return Launcher(built(folder, "gemm.cu", "native"), "gemm", "f16")
    variant, _, how = request.param.partition(" ")
    spec = make_spec(variant, name=f"gemm_{variant}", **KERNELS[variant])
    try:
        fitting = {one.target(spec.arch): retarget(spec, one.target(spec.arch)) for one in gpus}
    except SpecError as error:
        pytest.skip(str(error))
    if how:
        source = write(folder, spec, list(fitting))
        need("g++")
        run("g++", "-std=c++17", "-shared", "-fPIC", source, "-o", "gemm.so", cwd=folder)
        library = ctypes.CDLL(str(folder / "gemm.so"))
    else:
        (folder / "gemm.cu").write_text(render(spec).text)
        arch = "sm_90a" if variant in ("mma_tma", "wgmma") else "native"
        library = built(folder, "gemm.cu", arch)
    return Launcher(library, spec.name, spec.dtypes.name)


def built(folder: Path, source: str, arch: str) -> ctypes.CDLL:
    """A shared library by nvcc."""
    need("nvcc")
    command = ("nvcc", "-std=c++17", f"-arch={arch}", "-shared", "-Xcompiler=-fPIC", source)
    run(*command, "-o", "gemm.so", cwd=folder)
    return ctypes.CDLL(str(folder / "gemm.so"))


def test_in_turn(launcher: Launcher, two: list[Gpu]) -> None:
    for seed, on in enumerate(two + two):
        with work(on, launcher) as product:
            product.check(seed)


def test_at_once(launcher: Launcher, two: list[Gpu]) -> None:
    """Two threads for each GPU."""
    done: list[int] = []

    def thread(on: Gpu, first: int) -> None:
        with work(on, launcher) as product:
            for seed in range(first, first + 25):
                product.check(seed)
                done.append(seed)

    threads = [threading.Thread(target=thread, args=(two[i % 2], 25 * i)) for i in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize("handle", [0, 1, 2])  # the default stream, the legacy one, the thread's
def test_default_streams_are_those_of_the_current_gpu(
    handle: int, launcher: Launcher, gpus: list[Gpu]
) -> None:
    for seed, on in enumerate(gpus):
        with work(on, launcher) as product:
            want = product.draw(seed)
            assert product.launch(handle) == 0
            np.testing.assert_array_equal(product.result(), want)


def test_in_a_graph(launcher: Launcher, gpus: list[Gpu]) -> None:
    for on in gpus:
        with work(on, launcher) as product:
            product.check(0)  # the code is loaded
            mode = on.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
            call("cuStreamBeginCapture", product.stream, mode)
            status = product.launch()
            graph = call("cuStreamEndCapture", product.stream)
            assert status == 0
            executable = call("cuGraphInstantiate", graph, 0)
            for seed in (1, 2):
                want = product.draw(seed)
                call("cuGraphLaunch", executable, product.stream)
                np.testing.assert_array_equal(product.result(), want)
            call("cuGraphExecDestroy", executable)
            call("cuGraphDestroy", graph)


@pytest.mark.parametrize("index", [0, 1])
def test_a_stream_of_another_gpu_is_refused(index: int, launcher: Launcher, two: list[Gpu]) -> None:
    """D is as it was, and so are both GPUs."""
    on, other = two[index], two[1 - index]
    with other:
        stream = call("cuStreamCreate", 1)
    with work(on, launcher) as product:
        product.draw(0)
        assert product.launch(stream) == INVALID_HANDLE
        with other:
            call("cuCtxSynchronize")
        assert (product.result() == 99).all()
        product.check(1)
    with work(other, launcher) as product:
        product.check(2)
    with other:
        call("cuStreamDestroy", stream)
