"""CUTLASS 3.x as a peer on Hopper: the best of many configurations of TMA and wgmma, by nvcc."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from gen.bench import timing
from gen.bench.contenders import (
    FAST,
    Contender,
    Lacking,
    Peer,
    Prepared,
    Recipe,
    Unsupported,
    accumulations,
    check_single,
    check_tma,
    launcher,
)
from gen.bench.instructions import multiplied, wgmma_name
from gen.bench.peers.cutlass3_configs import CONFIGS, GROUPED, Config, source
from gen.compile import nvcc
from gen.errors import CheckError, CompileError, MissingError
from gen.kernels.formulas import ceil_div
from gen.spec.dtypes import DTypes
from gen.spec.problem import Layouts

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Outline, Work

ARCH = "sm_90a"  # the only one that has wgmma

# Stripes of blocks to try; which is best depends on the problem's size. Where all blocks run at the
# same time, their order does not matter.
_SWIZZLES = (1, 2, 4, 8)
_SWIZZLED = 4  # of the configurations, the best with the first swizzle


_Key = tuple[Config, int]  # and a swizzle
_Queue = Callable[["Stream", int, int, int], None]

# Inputs and sums, with which they are built.
_TYPES = (
    *(("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("tf32", "f32"), ("i8", "i32")),
    *(("e4m3", "f32"), ("e5m2", "f32")),
)

# Only elements of 16 bits may lie across K in shared memory, where wgmma takes them from.
_ALONG_K = ("tf32", "i8", "e4m3", "e5m2")


class _Problem(ctypes.Structure):
    """The source's `Problem`."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("m", "n", "k", "groups", "swizzle", "multiprocessors")),
        *((name, ctypes.c_void_p) for name in ("a", "b", "d")),
        *((name, ctypes.c_longlong) for name in ("lda", "ldb", "ldd", "stride_b")),
        *((name, ctypes.c_void_p) for name in ("ends", "workspace")),
    )


def _problem(work: Work, swizzle: int) -> _Problem:
    """All but addresses."""
    p, s = work.problem, work.shape
    some = (s.m, s.n, s.k, work.products, swizzle, work.gpu.multiprocessors)
    made = _Problem(*some, lda=p.lda, ldb=p.ldb, ldd=p.ldd, stride_b=p.batch.stride_b)
    if p.ends:
        made.array = (ctypes.c_int * len(p.ends))(*p.ends)  # lives as long as the problem
        made.ends = ctypes.addressof(made.array)
    return made


def _library(
    config: Config, dtypes: DTypes, layouts: Layouts, fast: bool, grouped: bool = False
) -> Path:
    try:
        return nvcc.library(source(config, dtypes, layouts, fast, grouped), ARCH)
    except (CompileError, MissingError) as error:
        raise Unsupported(f"{config.name} cannot be built: {error}") from None


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


def _queue(library: ctypes.CDLL, work: Work, problem: _Problem, stack: ExitStack) -> _Queue:
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


class _Candidates:
    """Launches on one problem, by configuration and swizzle; what they hold is on the stack.

    Raises Unsupported where there are none, OutOfMemory.
    """

    def __init__(
        self, work: Work, libraries: Mapping[Config, ctypes.CDLL], stack: ExitStack
    ) -> None:
        self._work, self._libraries, self._stack = work, libraries, stack
        self.workspace = {
            config: max(int(library.workspace_size(_problem(work, s))) for s in _SWIZZLES)
            for config, library in libraries.items()
        }
        self._memory = work.gpu.allocate(max(self.workspace.values()))
        stack.callback(work.gpu.free, self._memory)
        self.queues: dict[_Key, _Queue] = {}
        why = [self._add(config, _SWIZZLES[0]) for config in libraries]
        if not self.queues:
            raise Unsupported(why[-1])

    def _add(self, config: Config, swizzle: int) -> str:
        """Why CUTLASS refuses it, if it does."""
        problem = _problem(self._work, swizzle)
        problem.workspace = int(self._memory.handle)
        try:
            queue = _queue(self._libraries[config], self._work, problem, self._stack)
        except Unsupported as error:
            return str(error)
        self.queues[config, swizzle] = queue
        return ""

    def fastest(self) -> _Key:
        """First the configurations with one swizzle, then the best few of these with all."""
        gpu, shape, keys = self._work.gpu, self._work.shape, list(self.queues)
        order, _ = timing.ranked(gpu, self._launches(keys))
        if not order:
            raise Unsupported(f"none of {len(keys)} configurations can be launched")
        best = [keys[i] for i in order[:_SWIZZLED]]
        for config, _ in best:
            tiles = ceil_div(shape.m, config.m) * ceil_div(shape.n, config.n)
            many = tiles > gpu.multiprocessors and not self._work.grouped
            for swizzle in _SWIZZLES[1:] if many else ():
                self._add(config, swizzle)
        last = [*best, *(key for key in self.queues if key not in keys)]
        return last[timing.fastest(gpu, self._launches(last))]

    def _launches(self, keys: Sequence[_Key]) -> list[Callable[[int], None]]:
        return [launcher(self._work, self.queues[key]) for key in keys]


def _configs(outline: Outline) -> Sequence[Config]:
    return GROUPED if outline.grouped else CONFIGS


class Cutlass3(Peer):
    """The fastest of `CONFIGS` for each problem; of FP8, `fast` ones or those that are not."""

    def __init__(self, fast: bool = False) -> None:
        self._fast = fast
        self.name = f"cutlass3 {FAST}" if fast else "cutlass3"

    def ceiling(self, dtypes: DTypes, known: Mapping[str, float]) -> str:
        """See Contender."""
        return wgmma_name(*multiplied(dtypes))

    def recipes(self, outline: Outline) -> list[Recipe]:
        """See Contender: one for each configuration."""
        if not outline.grouped:
            check_single(outline)
        dtypes, layouts = outline.dtypes, outline.layouts
        if outline.arch != ARCH:
            raise Unsupported(f"CUTLASS 3.x is built for {ARCH}, and this GPU is {outline.arch}")
        element = multiplied(dtypes)[0]
        if element in _ALONG_K and (not layouts.a or layouts.b):
            raise Unsupported(f"wgmma takes {element} that lies along K alone, in the layout rcX")
        check_tma(outline)
        what = (dtypes, layouts, self._fast, outline.grouped)
        return [Recipe(_library, (config, *what)) for config in _configs(outline)]

    def prepare(self, work: Work) -> Prepared:
        """See Contender. Configuration and swizzle are chosen here."""
        libraries, why = {}, ""
        for config, recipe in zip(_configs(work), self.recipes(work), strict=True):
            try:
                libraries[config] = _load(recipe())
            except Unsupported as error:
                why = str(error)
        if not libraries:
            raise Unsupported(why)
        with ExitStack() as stack:
            candidates = _Candidates(work, libraries, stack)
            config, swizzle = candidates.fastest()
            queue, size = candidates.queues[config, swizzle], candidates.workspace[config]
            note = f"{config.name}, swizzle {swizzle}, of {len(libraries)} configurations"
            return Prepared(queue, size, stack.pop_all().close, note)


def contenders(dtypes: DTypes) -> list[Contender]:
    """The best that CUTLASS can do; with FP8 also the best with fast accumulation."""
    if multiplied(dtypes) not in _TYPES:
        return [Lacking("cutlass3", dtypes)]
    return [Cutlass3(fast) for fast in accumulations(dtypes)]
