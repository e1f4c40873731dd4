"""CUTLASS 2.x as a peer: its own kernels in several tile configurations, compiled by NVRTC."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gen.bench.contenders import (
    Contender,
    Lacking,
    Peer,
    Prepared,
    Recipe,
    Unsupported,
    check_single,
)
from gen.bench.instructions import multiplied, on_cuda_cores, on_tensor_cores
from gen.compile import nvrtc
from gen.device.driver import Parameters
from gen.errors import CheckError, CompileError
from gen.kernels.launches import Launch
from gen.prove.cutlass import CUTLASS_TYPES
from gen.source.templates import render_template
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTypes
from gen.spec.kernel import Tile
from gen.spec.problem import Layouts

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Outline, Work
    from gen.device.driver import LoadedKernel


class Config(NamedTuple):
    """One instance of CUTLASS's GEMM template."""

    threadblock: Tile
    warp: Tile
    stages: int
    instruction: Tile
    op_class: str
    arch_tag: str
    swizzle: int = 8

    @property
    def tensor(self) -> bool:
        """Whether it uses tensor cores."""
        return self.op_class == "OpClassTensorOp"

    @property
    def unit(self) -> str:
        """The instruction's shape."""
        i = self.instruction
        return f"m{i.m}n{i.n}k{i.k}" if self.tensor else "simt"

    @property
    def name(self) -> str:
        """What results call it."""
        unit = self.unit
        return f"cutlass {unit} {self.threadblock} w{self.warp.m}x{self.warp.n} s{self.stages}"


def _tensor(
    instruction: Tile,
    *choices: tuple[tuple[int, int, int], tuple[int, int], int],
    arch_tag: str = "Sm80",
) -> tuple[Config, ...]:
    return tuple(
        Config(Tile(*tb), Tile(*warp, tb[2]), stages, instruction, "OpClassTensorOp", arch_tag)
        for tb, warp, stages in choices
    )


def _simt(*choices: tuple[tuple[int, int, int], tuple[int, int], int]) -> tuple[Config, ...]:
    return tuple(
        Config(
            Tile(*tb),
            Tile(*warp, tb[2]),
            stages,
            Tile(1, 1, 1),
            "OpClassSimt",
            "Sm80" if stages > 2 else "Sm50",
        )
        for tb, warp, stages in choices
    )


_HALF = (
    ((256, 128, 32), (64, 64), 3),
    ((256, 128, 32), (64, 64), 4),
    ((128, 256, 32), (64, 64), 3),
    ((128, 256, 32), (64, 64), 4),
    ((128, 128, 32), (64, 64), 4),
    ((128, 128, 64), (64, 64), 3),
    ((128, 64, 64), (64, 32), 3),
    ((64, 128, 64), (32, 64), 3),
    ((64, 64, 64), (32, 32), 4),
)
_K16 = _tensor(Tile(16, 8, 16), *_HALF)
_K8 = _tensor(Tile(16, 8, 8), *_HALF[1:6:2])
_SIMT = _simt(
    ((128, 128, 8), (32, 64), 2),
    ((256, 128, 8), (64, 64), 2),
    ((128, 256, 8), (64, 64), 2),
    ((128, 128, 8), (32, 64), 4),
    ((128, 128, 8), (64, 32), 5),
    ((256, 128, 8), (64, 64), 4),
    ((128, 64, 8), (64, 32), 2),
    ((64, 64, 8), (32, 32), 4),
    ((32, 128, 8), (32, 32), 2),
)

_DOUBLE = (
    ((128, 128, 16), (32, 64), 3),
    ((128, 64, 16), (64, 32), 3),
    ((64, 64, 16), (32, 32), 4),
)

# By what is multiplied and summed.
CONFIGS: Mapping[tuple[str, str], tuple[Config, ...]] = {
    ("f32", "f32"): _SIMT,
    ("f64", "f64"): (
        *_simt(((128, 128, 8), (32, 64), 2), ((64, 64, 8), (32, 32), 2)),
        *_tensor(Tile(16, 8, 4), *_DOUBLE, arch_tag="Sm90"),
        *_tensor(Tile(8, 8, 4), *_DOUBLE),
    ),
    ("i32", "i32"): _simt(((128, 128, 8), (32, 64), 2), ((128, 64, 8), (64, 32), 2)),
    ("f16", "f32"): (*_K16, *_K8),
    ("f16", "f16"): (*_K16, *_K8),
    ("bf16", "f32"): _K16,
    ("tf32", "f32"): _tensor(
        Tile(16, 8, 8),
        ((128, 256, 16), (64, 64), 3),
        ((256, 128, 16), (64, 64), 3),
        ((128, 128, 16), (64, 64), 4),
        ((128, 128, 32), (64, 64), 3),
        ((64, 64, 32), (32, 32), 4),
    ),
    # Tensor cores take bytes from a row-major A and a column-major B alone.
    ("i8", "i32"): _tensor(
        Tile(16, 8, 32),
        ((128, 256, 64), (64, 64), 3),
        ((256, 128, 64), (64, 64), 3),
        ((128, 128, 64), (64, 64), 4),
        ((64, 64, 64), (32, 32), 4),
    ),
}


# What CUTLASS's tensor-core kernels get as f32 they multiply as TF32.
_TYPES = {"tf32": "float", **CUTLASS_TYPES}


def alignment(dtypes: DTypes, sizes: Sequence[int], most_bytes: int = 16) -> int:
    """How many elements CUTLASS may load at a time: the leading dimensions allow it."""
    if dtypes.name == "f64":
        return 1  # its tensor-core tiles are copied a number at a time
    elements = most_bytes // dtypes.input.size
    while elements > 1 and any(size % elements for size in sizes):
        elements //= 2
    return elements


def source(config: Config, dtypes: DTypes, layouts: Layouts, align: int, align_d: int) -> str:
    """CUDA source of one configuration."""
    tensor = config.tensor
    if layouts.c:
        sides = {"left": "a", "ld_left": "lda", "right": "b", "ld_right": "ldb"}
        left, right, rows, cols = layouts.a, layouts.b, "M", "N"
    else:
        sides = {"left": "b", "ld_left": "ldb", "right": "a", "ld_right": "lda"}
        left, right, rows, cols = not layouts.b, not layouts.a, "N", "M"
    saturate = tensor and not dtypes.accumulator.is_float
    return render_template(
        "bench/cutlass.cu.j2",
        name=config.name,
        config=config,
        input=_TYPES[dtypes.input.name],
        accumulator=_TYPES[dtypes.accumulator.name],
        output=_TYPES[dtypes.output.name],
        left_layout="Row" if left else "Column",
        right_layout="Row" if right else "Column",
        rows=rows,
        cols=cols,
        alignment=align if tensor else 1,
        output_alignment=align_d if tensor else 1,
        operator="OpMultiplyAddSaturate" if saturate else "OpMultiplyAdd",
        **sides,
    )


@cache
def _compile(
    config: Config, dtypes: DTypes, layouts: Layouts, align: int, align_d: int, arch: str
) -> nvrtc.Module:
    try:
        return nvrtc.compile_cuda(
            source(config, dtypes, layouts, align, align_d),
            name="cutlass_gemm.cu",
            arch=arch,
            format="cubin",
            options=["-default-device", "-diag-suppress=20044", f"-I{nvrtc.cutlass_include()}"],
            line_info=False,
        )
    except CompileError as error:
        raise Unsupported(f"CUTLASS does not compile: {error}") from None


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_int * 3),
        ("threads", ctypes.c_int),
        ("shared_bytes", ctypes.c_int),
    )


class Cutlass(Peer):
    """One configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.name = config.name

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """See Contender."""
        if self.config.tensor:
            return on_tensor_cores(self.config.unit, dtypes)
        return on_cuda_cores(dtypes)

    def recipes(self, outline: Outline) -> Sequence[Recipe]:
        """See Contender."""
        check_single(outline)
        p, dtypes, layouts = outline.problem, outline.dtypes, outline.layouts
        align = alignment(dtypes, (p.lda, p.ldb))
        if self.config.arch_tag == "Sm90" and compute_capability(outline.arch) < 90:
            raise Unsupported(f"{self.config.unit} of f64 begins with Hopper")
        if self.config.tensor:
            if dtypes.name == "i8" and (not layouts.a or layouts.b):
                raise Unsupported("CUTLASS multiplies bytes on tensor cores in the layout rcX only")
            if self.config.stages > 2 and align * dtypes.input.size < 4:
                raise Unsupported("CUTLASS's asynchronous copies take 4 bytes, and a row is odd")
        out = 16 // dtypes.output.size
        align_d = 1 if align == 1 else next(x for x in (8, 4, 2, 1) if x <= out and p.ldd % x == 0)
        return (Recipe(_compile, (self.config, dtypes, layouts, align, align_d, outline.arch)),)

    def prepare(self, work: Work) -> Prepared:
        """See Contender. The parameters for every set of operands are computed here."""
        gpu, (recipe,) = work.gpu, self.recipes(work)
        module = recipe()
        one = (1, 1, 1)
        setup = gpu.load(module, Launch("prepare", one, one, 0, {}))
        size = gpu.load(module, Launch("gemm", one, one, 0, {})).parameter_bytes(0)
        images, found = self._parameters(work, setup, size)
        launch = Launch("gemm", tuple(found.grid), (found.threads, 1, 1), found.shared_bytes, {})
        try:
            kernel = gpu.load(module, launch)
        except CheckError as error:
            raise Unsupported(str(error)) from None
        parameters = {work.pointers(i)[2]: Parameters([x]) for i, x in enumerate(images)}

        def queue(stream: Stream, a: int, b: int, d: int) -> None:
            kernel(stream, parameters[d])

        return Prepared(queue)

    def _parameters(
        self, work: Work, setup: LoadedKernel, size: int
    ) -> tuple[list[ctypes.Array[ctypes.c_char]], _Launch]:
        gpu, p, sets = work.gpu, work.problem, work.sets
        bytes_ = np.empty(size * sets, np.uint8)
        params, launch = gpu.allocate(bytes_.nbytes), gpu.allocate(ctypes.sizeof(_Launch))
        a, b, d = work.pointers(0)
        i32, i64 = np.int32, np.int64
        try:
            args = (
                *(i32(p.shape.m), i32(p.shape.n), i32(p.shape.k)),
                *(a, i64(p.lda), i64(work.stride_a), b, i64(p.ldb), i64(work.stride_b)),
                *(d, i64(p.ldd), i64(work.stride_d), i32(sets)),
                *(int(params.handle), int(launch.handle)),
            )
            setup(gpu.stream, Parameters(args))
            gpu.read(int(params.handle), bytes_)
            raw = np.empty(ctypes.sizeof(_Launch), np.uint8)
            gpu.read(int(launch.handle), raw)
        finally:
            gpu.free(params)
            gpu.free(launch)
        images = [
            ctypes.create_string_buffer(bytes_[i * size : (i + 1) * size].tobytes(), size)
            for i in range(sets)
        ]
        return images, _Launch.from_buffer_copy(raw.tobytes())


def contenders(dtypes: DTypes) -> list[Contender]:
    """A contender for each configuration that CUTLASS has for these types."""
    found: list[Contender] = [Cutlass(c) for c in CONFIGS.get(multiplied(dtypes), ())]
    return found or [Lacking("cutlass", dtypes)]
