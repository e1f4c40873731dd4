"""CUTLASS 3.x as a peer on Hopper: TMA and wgmma in several configurations, built by nvcc."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gen.bench import timing
from gen.bench.contenders import Contender, Lacking, Peer, Prepared, Recipe, Unsupported, launcher
from gen.bench.instructions import multiplied, wgmma_name
from gen.compile import nvcc
from gen.errors import CheckError, CompileError, MissingError
from gen.kernels.formulas import ceil_div
from gen.prove.cutlass import CUTLASS_TYPES
from gen.source.render import render_template
from gen.spec.dtypes import DTypes
from gen.spec.kernel import Tile
from gen.spec.problem import Layouts

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Outline, Work

ARCH = "sm_90a"  # the only one that has wgmma

PINGPONG, COOPERATIVE = "pingpong", "cooperative"
PERSISTENT, STREAM_K = "", "stream-k"

_SCHEDULES = {
    PINGPONG: ("KernelTmaWarpSpecializedPingpong", "TmaWarpSpecialized"),
    COOPERATIVE: ("KernelTmaWarpSpecializedCooperative", "TmaWarpSpecializedCooperative"),
}
_SCHEDULERS = {PERSISTENT: "PersistentScheduler", STREAM_K: "StreamKScheduler"}

# TMA copies rows whose distance is a multiple of so many bytes.
_ALIGNMENT = 16

# Stripes of blocks to try; which is best depends on the problem's size. Where all blocks run at the
# same time, their order does not matter.
_SWIZZLES = (1, 2, 4, 8)


class Config(NamedTuple):
    """One instance of CUTLASS's collectives."""

    tile: Tile
    cluster: tuple[int, int]
    schedule: str
    scheduler: str = PERSISTENT

    @property
    def name(self) -> str:
        """What results call it."""
        words = ("cutlass3", f"{self.tile}", "{}x{}".format(*self.cluster))
        return " ".join(filter(None, (*words, self.schedule, self.scheduler)))


CONFIGS = (
    Config(Tile(128, 128, 64), (1, 1), PINGPONG),
    Config(Tile(128, 128, 64), (2, 1), PINGPONG),
    Config(Tile(128, 128, 64), (2, 1), COOPERATIVE),
    Config(Tile(128, 256, 64), (1, 1), COOPERATIVE),
    Config(Tile(128, 256, 64), (2, 1), COOPERATIVE),
    Config(Tile(256, 128, 64), (2, 1), COOPERATIVE),
    Config(Tile(64, 128, 64), (1, 1), PINGPONG),
    Config(Tile(128, 128, 64), (1, 1), COOPERATIVE, STREAM_K),
)

# Inputs and sums, with which it is built. (Of the other types wgmma multiplies, TF32 and bytes, it
# takes operands that lie along K alone.)
_TYPES = (("f16", "f32"), ("bf16", "f32"), ("f16", "f16"))


def source(config: Config, dtypes: DTypes, layouts: Layouts) -> str:
    """CUDA source of one configuration."""

    def order(row_major: bool) -> str:
        return "Row" if row_major else "Column"

    schedule, epilogue = _SCHEDULES[config.schedule]
    return render_template(
        "bench/cutlass3.cu.j2",
        name=config.name,
        config=config,
        input=CUTLASS_TYPES[dtypes.input.name],
        accumulator=CUTLASS_TYPES[dtypes.accumulator.name],
        output=CUTLASS_TYPES[dtypes.output.name],
        layout_a=order(layouts.a),
        layout_b=order(layouts.b),
        layout_d=order(layouts.c),
        lead_a=0 if layouts.a else 1,
        lead_b=1 if layouts.b else 0,  # CUTLASS has B as N x K
        lead_d=0 if layouts.c else 1,
        alignment=_ALIGNMENT // dtypes.input.size,
        alignment_d=_ALIGNMENT // dtypes.output.size,
        schedule=schedule,
        epilogue=epilogue,
        scheduler=_SCHEDULERS[config.scheduler],
    )


class _Problem(ctypes.Structure):
    """The source's `Problem`."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("m", "n", "k", "swizzle", "multiprocessors")),
        *((name, ctypes.c_void_p) for name in ("a", "b", "d")),
        *((name, ctypes.c_longlong) for name in ("lda", "ldb", "ldd")),
        ("workspace", ctypes.c_void_p),
    )


def _problem(work: Work, swizzle: int) -> _Problem:
    """All but addresses."""
    p, s = work.problem, work.shape
    some = (s.m, s.n, s.k, swizzle, work.gpu.multiprocessors)
    return _Problem(*some, lda=p.lda, ldb=p.ldb, ldd=p.ldd)


def _library(config: Config, dtypes: DTypes, layouts: Layouts) -> Path:
    try:
        return nvcc.library(source(config, dtypes, layouts), ARCH)
    except (CompileError, MissingError) as error:
        raise Unsupported(f"it cannot be built: {error}") from None


def _load(path: Path) -> ctypes.CDLL:
    """The library, its functions declared."""
    library, pointer = ctypes.CDLL(str(path)), ctypes.POINTER
    library.workspace_size.argtypes = [pointer(_Problem)]
    library.workspace_size.restype = ctypes.c_size_t
    library.create.argtypes = [pointer(_Problem), ctypes.c_void_p, pointer(ctypes.c_void_p)]
    library.launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.create.restype = library.launch.restype = ctypes.c_char_p
    library.destroy.argtypes, library.destroy.restype = [ctypes.c_void_p], None
    return library


def _queue(
    library: ctypes.CDLL, work: Work, problem: _Problem, stack: ExitStack
) -> Callable[[Stream, int, int, int], None]:
    """Launches, with an object for each set of operands that `stack` destroys."""
    objects = {}
    for i in range(work.sets):
        problem.a, problem.b, problem.d = work.pointers(i)
        made = ctypes.c_void_p()
        wrong = library.create(problem, int(work.gpu.stream.handle), made)
        if made:
            stack.callback(library.destroy, made)
        if wrong:
            raise Unsupported(f"CUTLASS refuses: {wrong.decode()}")
        objects[problem.d] = made

    def queue(stream: Stream, a: int, b: int, d: int) -> None:
        wrong = library.launch(objects[d], int(stream.handle))
        if wrong:
            raise CheckError(f"it cannot be launched: {wrong.decode()}")

    return queue


class Cutlass3(Peer):
    """One configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.name = config.name

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """See Contender."""
        return wgmma_name(*multiplied(dtypes))

    def recipe(self, outline: Outline) -> Recipe:
        """See Contender."""
        p, dtypes, arch = outline.problem, outline.dtypes, outline.gpu.arch
        if arch != ARCH:
            raise Unsupported(f"CUTLASS 3.x is built for {ARCH}, and this GPU is {arch}")
        inputs, outputs = _ALIGNMENT // dtypes.input.size, _ALIGNMENT // dtypes.output.size
        if p.lda % inputs or p.ldb % inputs or p.ldd % outputs:
            raise Unsupported(f"TMA takes rows that are multiples of {_ALIGNMENT} bytes apart")
        return Recipe(_library, (self.config, dtypes, outline.layouts))

    def prepare(self, work: Work) -> Prepared:
        """See Contender. The swizzle is chosen here."""
        library, gpu = _load(self.recipe(work)()), work.gpu
        tile, shape = self.config.tile, work.shape
        tiles = ceil_div(shape.m, tile.m) * ceil_div(shape.n, tile.n)
        swizzles = _SWIZZLES if tiles > gpu.multiprocessors else _SWIZZLES[:1]
        problems = {swizzle: _problem(work, swizzle) for swizzle in swizzles}
        size = max(int(library.workspace_size(problem)) for problem in problems.values())
        with ExitStack() as stack:
            memory = gpu.allocate(size)
            stack.callback(gpu.free, memory)
            queues, times = {}, {}
            for swizzle, problem in problems.items():
                problem.workspace = int(memory.handle)
                queues[swizzle] = _queue(library, work, problem, stack)
                times[swizzle] = timing.quick(gpu, launcher(work, queues[swizzle]))
            best = min(times, key=lambda swizzle: times[swizzle])
            return Prepared(queues[best], size, stack.pop_all().close, f"swizzle {best}")


def contenders(dtypes: DTypes) -> list[Contender]:
    """A contender for each configuration, for the types that they are built for."""
    if multiplied(dtypes) in _TYPES:
        return [Cutlass3(config) for config in CONFIGS]
    return [Lacking("cutlass3", dtypes)]
