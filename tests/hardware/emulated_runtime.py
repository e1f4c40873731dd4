"""CUDA programs whole, the host's code with them, on the emulator.

nvcc compiles a file to a shared library whose calls of the CUDA runtime and driver end here, in
place of libcudart and libcuda: memory is the emulator's, tensor maps become `TensorMap`s, and a
launch runs the PTX that nvcc has made of the same file. No GPU and no driver are needed.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from gen.compile import nvcc
from gen.compile.cache import cache_dir
from gen.emulator import DeviceArray, Emulator, LaunchReport, Observer, PtxModule, TensorMap
from gen.errors import CheckError, CompileError, MissingError, UsageError

RUNTIME = Path(__file__).with_name("emulated_runtime.cpp")
# Device code is kept as PTX, so that ptxas does not run.
FLAGS = (
    "-shared", "-Xcompiler=-fPIC", "-cudart=none", "-gencode=arch=compute_90a,code=compute_90a",
    "-std=c++17", "--expt-relaxed-constexpr", "-lineinfo", "-DNDEBUG", "-w",
)  # fmt: skip

# What cuda.h numbers: the types and swizzles of tensor maps.
TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32", "tf32")
SWIZZLES = (0, 32, 64, 128)

_Pointer = ctypes.c_void_p
_Size = ctypes.c_size_t
_Numbers = ctypes.POINTER(ctypes.c_uint)
_Longs = ctypes.POINTER(ctypes.c_uint64)
_CALLS = {
    "allocate": ctypes.CFUNCTYPE(_Pointer, _Size),
    "write": ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Pointer, _Size),
    "fill": ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, ctypes.c_int, _Size),
    "encode": ctypes.CFUNCTYPE(
        ctypes.c_int, _Pointer, _Numbers, _Pointer, _Longs, _Longs, _Numbers, _Numbers
    ),
    "launch": ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char_p, _Numbers, _Size, ctypes.POINTER(_Pointer)
    ),
}


class _Device(ctypes.Structure):
    _fields_ = list(_CALLS.items())


@dataclass(frozen=True)
class Compiled:
    """A program: its shared library, and the PTX of its kernels."""

    library: Path
    ptx: str


def compile_program(source: Path, flags: Sequence[str] = (), uses: Sequence[Path] = ()) -> Compiled:
    """Compiles a CUDA file, or finds on disk what was compiled of the same texts and flags.

    uses: files that it includes and that may change. Raises MissingError without nvcc,
    CompileError where nvcc refuses the file.
    """
    found = nvcc.find()
    if not found:
        raise MissingError(f"nvcc is not on the PATH; {nvcc.GET}")
    texts = [path.read_bytes() for path in (RUNTIME, source, *uses)]
    key = hashlib.sha256(b"\0".join([*texts, " ".join([*FLAGS, *flags]).encode()])).hexdigest()
    target = cache_dir() / "emulated" / key
    library, ptx = target / "program.so", target / "program.ptx"
    if not ptx.exists():
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as folder:
            built = Path(folder, library.name)
            keep = ["--keep", f"--keep-dir={folder}"]
            command = [found, *FLAGS, *flags, *keep, str(source), str(RUNTIME), "-o", str(built)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                log = done.stderr + done.stdout
                wrong = [line for line in log.splitlines() if "error" in line]
                raise CompileError((wrong or [log])[0], log)
            shutil.move(built, library)
            shutil.move(built.with_name(f"{source.stem}.ptx"), ptx)
    return Compiled(library, ptx.read_text())


@dataclass
class Launch:
    """One launch as the host's code asked for it."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    args: list[np.generic]


@dataclass
class Program:
    """A compiled program whose host's code runs here, on an emulator.

    maps, launches, reports: what it has asked for. dry: whether kernels are not run.
    """

    compiled: Compiled
    module: PtxModule
    emulator: Emulator
    observers: Callable[[], Sequence[Observer]] = list
    dry: bool = False
    maps: list[TensorMap] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    reports: list[LaunchReport] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)

    def run(self, *args: int | DeviceArray) -> None:
        """Call its function `run`: numbers as int, arrays as addresses.

        Raises what an emulated call has raised, else UsageError with what `run` says is wrong.
        """
        with tempfile.TemporaryDirectory() as folder:  # a copy, whose static variables are its own
            copy = shutil.copy(self.compiled.library, folder)
            library = ctypes.CDLL(str(copy))
        calls = {name: kind(self._guarded(name)) for name, kind in _CALLS.items()}
        library.emulate(ctypes.byref(_Device(**calls)))
        library.run.restype = ctypes.c_char_p
        message = library.run(
            *(_Pointer(a.address) if isinstance(a, DeviceArray) else ctypes.c_int(a) for a in args)
        )
        if self._errors:
            raise self._errors[0]
        if message:
            raise UsageError(message.decode())

    def _guarded(self, name: str) -> Callable[..., Any]:
        """A call that keeps its error for `run`, since C++ knows none, and gives 0 then."""
        call = getattr(self, f"_{name}")

        @wraps(call)
        def guarded(*args: Any) -> Any:
            try:
                return call(*args)
            except Exception as error:
                self._errors.append(error)
                return 0

        return guarded

    def _allocate(self, nbytes: int) -> int:
        name = f"allocation {len(self.emulator.memory.buffers)}"
        zeros = np.zeros(nbytes, np.uint8)
        return self.emulator.alloc(zeros, name, defined=False).address

    def _write(self, to: int, start: int, nbytes: int) -> int:
        return self._put(to, np.frombuffer(ctypes.string_at(start, nbytes), np.uint8))

    def _fill(self, to: int, value: int, nbytes: int) -> int:
        return self._put(to, np.full(nbytes, value & 0xFF, np.uint8))

    def _put(self, to: int, data: np.ndarray) -> int:
        buffer = self.emulator.memory.find(to)
        if buffer is None or to + data.size > buffer.base + buffer.nbytes:
            raise UsageError(f"the host writes {data.size} bytes to {to:#x}, outside of an array")
        part = slice(to - buffer.base, to - buffer.base + data.size)
        buffer.data[part] = data
        if buffer.valid is not None:
            buffer.valid[part] = True
        return 1

    def _encode(
        self, into: int, numbers: Any, address: int, dims: Any, strides: Any, box: Any, steps: Any
    ) -> int:
        kind, rank, interleave, swizzle, fill = numbers[:5]
        if interleave or fill or kind >= len(TYPES) or swizzle >= len(SWIZZLES):
            raise CheckError(
                f"a tensor map of type {kind}, interleave {interleave}, swizzle {swizzle}, fill "
                f"{fill} (of cuda.h) is not supported by the emulator"
            )
        buffer = self.emulator.memory.find(address)
        if buffer is None:
            raise UsageError(f"a tensor map of {address:#x}, which is no array")
        nbytes = buffer.base + buffer.nbytes - address
        array = DeviceArray(buffer.name, address, nbytes, np.uint8, (nbytes,), buffer)
        shape = (tuple(dims[:rank]), tuple(strides[: rank - 1]), tuple(box[:rank]))
        self.maps.append(TensorMap(array, TYPES[kind], *shape, tuple(steps[:rank]),
                                   SWIZZLES[swizzle]))  # fmt: skip
        ctypes.memmove(into, self.emulator.encode(self.maps[-1]), 128)
        return 1

    def _launch(self, name: bytes, sizes: Any, shared_bytes: int, args: Any) -> int:
        kernel = self.module.kernel(name.decode())
        raw = [ctypes.string_at(args[at], p.nbytes) for at, p in enumerate(kernel.params)]
        grid, block, cluster = (tuple(sizes[at : at + 3]) for at in (0, 3, 6))
        one = Launch(kernel.name, grid, block, cluster, shared_bytes, [np.void(x) for x in raw])
        self.launches.append(one)
        if not self.dry:
            asked = {"cluster": cluster} if any(cluster) else {}  # else the kernel may declare one
            self.reports.append(
                self.emulator.launch(
                    self.module, one.kernel, grid, block, one.args, shared_bytes,
                    observers=self.observers(), **asked,
                )
            )  # fmt: skip
        return 1
