"""`Emulator`: the rules of a launch, and the loop over chunks of blocks."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.emulator.memory.arrays import DeviceArray
from gen.emulator.memory.buffers import Buffer, aligned_bytes
from gen.emulator.memory.chances import Chances
from gen.emulator.memory.observer import Observer
from gen.emulator.memory.tensor_map import TensorMap
from gen.emulator.ptx.module import PtxKernel, PtxModule
from gen.emulator.ptx.parse import parse_ptx
from gen.emulator.run.device_memory import DeviceMemory
from gen.emulator.run.geometry import check_geometry, cluster_of
from gen.emulator.run.launch_state import LaunchState
from gen.emulator.run.parameters import laid_out
from gen.emulator.run.shared_variables import place_variables
from gen.emulator.run.system_calls import Printed
from gen.emulator.run.time_limit import TimeLimit
from gen.emulator.run.turns import Turns, resident_blocks, times
from gen.emulator.translate.program import Program, compile_kernel
from gen.emulator.warp.masks import Coordinates
from gen.emulator.watch.exited import ExitedBlocks
from gen.emulator.watch.findings import Finding, Findings
from gen.errors import BudgetError, PtxError, UsageError

UNLIMITED_THREADS = 1 << 32  # more than this needs an instruction budget
CHUNK_THREADS = 1 << 16
CHUNK_SCRATCH = 1 << 28  # bytes of shared and local memory that a chunk may take
OBSERVED_SCRATCH = 1 << 24  # the same where checks keep up to 16 bytes for each of these
MEMORY_LIMIT = 1 << 31  # bytes that a chunk may take, with its registers


@dataclass(frozen=True)
class LaunchReport:
    """What a launch did: findings, thread-instructions run, and seconds (without compiling).

    waits: whether threads may have waited for others to change memory.
    """

    findings: list[Finding]
    instructions: int
    seconds: float
    suppressed: int = 0  # findings that were like others, or beyond the limit
    printed: tuple[Printed, ...] = ()  # what printf has printed, in the order in which it ran
    waits: bool = False


class Emulator(DeviceMemory):
    """Executes PTX kernels on the CPU, on device memory of its own.

    max_findings: findings kept for each launch. chunk_threads: threads executed together, which
    changes only the speed. instruction_budget: thread-instructions after which a launch is stopped
    with BudgetError (None: no limit). time_budget: the same in seconds of CPU time. memory_limit:
    bytes of shared memory, local memory and registers that threads executed together may have; a
    launch of which one block needs more is refused. resident_blocks: blocks that run at the same
    time, of kernels whose blocks wait for each other; others start when these end (None: what an
    H200 holds). chances: what no kernel is promised, as launches are to have it.
    """

    def __init__(
        self,
        max_findings: int = 20,
        chunk_threads: int = CHUNK_THREADS,
        instruction_budget: int | None = None,
        time_budget: float | None = None,
        memory_limit: int = MEMORY_LIMIT,
        resident_blocks: int | None = None,
    ) -> None:
        self.resident_blocks = resident_blocks
        self.max_findings, self.chunk_threads = max_findings, chunk_threads
        self.instruction_budget, self.time_budget = instruction_budget, time_budget
        self.chances = Chances()
        self.deadline: float | None = None  # of all launches, as time.perf_counter gives it
        self.memory_limit = memory_limit
        super().__init__()
        self._modules: dict[str, PtxModule] = {}
        self._programs: dict[tuple[PtxModule, str], Program] = {}
        self._variables: dict[PtxModule, dict[str, DeviceArray]] = {}

    def lines_not_run(self, ptx: str | PtxModule) -> set[int]:
        """The CUDA lines of a module of which no instruction has run in any launch."""
        module = self._module(ptx)
        programs = [program for (of, _), program in self._programs.items() if of is module]
        return set(module.lines.difference(*(program.lines_run() for program in programs)))

    def launch(
        self,
        ptx: str | PtxModule,
        kernel: str,
        grid: Coordinates,
        block: Coordinates,
        args: Sequence[DeviceArray | TensorMap | np.generic],
        shared_bytes: int = 0,
        source_lines: Sequence[str] | None = None,
        observers: Sequence[Observer] = (),
        window: tuple[Coordinates, Coordinates] | None = None,
        cluster: Coordinates | None = None,
        variables: dict[str, DeviceArray] | None = None,
        abreast: Sequence[tuple[Coordinates, Sequence[DeviceArray | TensorMap | np.generic]]] = (),
    ) -> LaunchReport:
        """Run `kernel` on `grid` blocks of `block` threads, both (x, y, z).

        args: one DeviceArray, TensorMap or numpy scalar for each kernel parameter, of its size in
        bytes; np.void for a struct, in which tensor maps are as `encode` gives them.
        shared_bytes: dynamic shared memory per block. source_lines: the CUDA source, so that
        findings quote it. observers: checks and counters that watch the run. window: the first
        block and how many blocks along each axis to run of the grid, with the other blocks of their
        clusters; default all. cluster: blocks (x, y, z) of a cluster; default what the kernel
        declares, or one. variables: where those of the module are, by name, of which those that the
        kernel uses and that are not there yet are added; default those of the module's other
        launches. abreast: the grids and arguments of further launches, for which `runs_abreast` is
        to hold: all run together, in a fraction of the time, and findings count blocks along z as
        if those behind the first belonged to it, which has as many as any of them. Raises
        UsageError for what a GPU would refuse to launch, PtxError for PTX that is not understood,
        BudgetError for a budget that ran out.
        """
        module = self._module(ptx)
        entry = module.kernel(kernel)
        grids = [grid, *(of for of, _ in abreast)]
        for of in grids:
            check_geometry(entry, of, block)
        size = cluster_of(entry, grid, cluster)
        self._check_bounded(window[1] if window else grid, block)
        program = self._program(module, entry)
        findings = Findings(kernel, self.max_findings, source_lines or ())
        x, y, z = (max(along) for along in zip(*grids, strict=True))
        launch = LaunchState(
            program, (x, y, z), block, self.memory, findings, size,
            explicit_cluster=bool(cluster or entry.cluster), budget=self.instruction_budget,
            chances=self.chances, grids=grids,
        )  # fmt: skip
        launch.maps = self._maps
        launch.observers = [watch for watch in observers if watch.concerns(program)]
        if math.prod(size) > 1:
            launch.observers = [*launch.observers, ExitedBlocks()]
        place_variables(launch, module, entry, shared_bytes, self.chances.odd_places)
        room = self._room(launch)
        if "%envreg" in program.source:  # as if by cudaLaunchCooperativeKernel
            if math.prod(grid) > room:
                raise UsageError(
                    f"kernel '{kernel}' has a barrier for the whole grid, but of its "
                    f"{math.prod(grid)} blocks only {room} are resident at the same time; "
                    "use a smaller grid, or set resident_blocks"
                )
            empty = aligned_bytes(16)
            empty.fill(0)
            launch.workspace = self.memory.add("the grid's barrier", empty)
        params = self._params(entry, [args, *(further for _, further in abreast)], launch)
        start = time.perf_counter()
        launch.limit = TimeLimit(self.time_budget, self.deadline)
        try:
            known = self._variables.setdefault(module, {}) if variables is None else variables
            self._globals(launch, module, entry, known)
            self.memory.changes = 0 if launch.spins else None
            # Freeing one big block makes malloc keep large arrays on its heap from here on;
            # otherwise it maps and unmaps fresh pages for each, which takes ten times as long.
            del_after_use = np.empty(1 << 24, np.uint8)
            del del_after_use
            with np.errstate(all="ignore"):
                boxes = self._chunks(launch, *(window or ((0, 0, 0), (x, y, z * len(grids)))))
                Turns(launch, boxes, room).run()
        except BudgetError as error:
            error.findings = findings.ordered()
            raise
        finally:
            self.memory.changes = None
            if launch.workspace:
                self.memory.remove(launch.workspace)
            self.memory.remove(params)
        seconds = time.perf_counter() - start
        return LaunchReport(
            findings.ordered(), launch.instructions, seconds, findings.suppressed,
            tuple(launch.printed), launch.spins,
        )  # fmt: skip

    def runs_abreast(self, ptx: str | PtxModule, kernel: str) -> bool:
        """Whether launches of a kernel can run abreast: see `launch`.

        Not those of clusters, nor those whose blocks wait for each other.
        """
        module = self._module(ptx)
        program = self._program(module, entry := module.kernel(kernel))
        alone = program.spins or entry.cluster or "%envreg" in program.source
        return not alone and not self.chances.last_first

    def _check_bounded(self, grid: Coordinates, block: Coordinates) -> None:
        total = math.prod(grid) * math.prod(block)
        if self.instruction_budget is None and total > UNLIMITED_THREADS:
            raise UsageError(
                f"a launch of {total} threads would run for hours on a CPU; use a smaller problem, "
                "or set instruction_budget to bound it"
            )

    def _module(self, ptx: str | PtxModule) -> PtxModule:
        if isinstance(ptx, PtxModule):
            return ptx
        if ptx not in self._modules:
            self._modules[ptx] = parse_ptx(ptx)
        return self._modules[ptx]

    def _program(self, module: PtxModule, kernel: PtxKernel) -> Program:
        key = (module, kernel.name)
        if key not in self._programs:
            self._programs[key] = compile_kernel(kernel)
        return self._programs[key]

    def _params(
        self, kernel: PtxKernel, each: Sequence[Sequence[Any]], launch: LaunchState
    ) -> Buffer:
        """Lay the arguments of each launch out as its parameters, after checking them."""
        raw = [[self._bytes_of(kernel, at, arg) for at, arg in enumerate(args)] for args in each]
        data, launch.pitch = laid_out(kernel, raw)
        buffer = self.memory.add("parameters", data)
        buffer.constant = True
        launch.parameters.update({p.name: buffer.base + p.offset for p in kernel.params})
        return buffer

    def _bytes_of(self, kernel: PtxKernel, at: int, arg: Any) -> bytes:
        """An argument as the kernel sees it."""
        if isinstance(arg, DeviceArray):
            self._check_mapped(arg)
            return np.int64(arg.address).tobytes()
        if isinstance(arg, TensorMap):
            return self.encode(arg)
        if isinstance(arg, np.generic):
            return arg.tobytes()
        raise UsageError(
            f"argument {at} of '{kernel.name}' is a {type(arg).__name__}; "
            "pass a DeviceArray, a TensorMap or a numpy scalar such as np.int32(4)"
        )

    def _globals(
        self, launch: LaunchState, module: PtxModule, kernel: PtxKernel,
        known: dict[str, DeviceArray],
    ) -> None:  # fmt: skip
        """Allocate the module variables that the kernel names; they persist."""
        for name in sorted(
            launch.program.symbols - launch.addresses.keys() - launch.parameters.keys()
        ):
            variable = module.variables.get(name)
            if variable is None or variable.refused:
                why = variable.refused if variable else "it is not declared"
                raise PtxError(f"variable '{name}' of kernel '{kernel.name}': {why}, not supported")
            if name not in known or known[name].nbytes != variable.nbytes:
                known[name] = self.alloc_variable(name, variable)
            launch.addresses[name] = known[name].address

    def _room(self, launch: LaunchState) -> int:
        """Blocks that run at the same time."""
        most = resident_blocks(math.prod(launch.block), launch.shared_bytes)
        several = math.prod(launch.cluster)
        most = most if self.resident_blocks is None else self.resident_blocks
        return max(most // several, 1) * several if several > 1 else most

    def _chunks(
        self, launch: LaunchState, first: Coordinates, count: Coordinates
    ) -> Iterator[tuple[Coordinates, Coordinates]]:
        """Boxes (origin, size) that cover the blocks, wide in x, then y, of about equal sizes.

        They consist of whole clusters.
        """
        several, cluster = math.prod(launch.cluster), launch.cluster
        ends = [-(-(a + n) // c) for a, n, c in zip(first, count, cluster, strict=True)]
        starts = [a // c for a, c in zip(first, cluster, strict=True)]
        threads = math.prod(launch.block) * several
        scratch = launch.shared_bytes * several + threads * launch.local_bytes
        limit = OBSERVED_SCRATCH if launch.observers else CHUNK_SCRATCH
        room = min(self.chunk_threads // threads, limit // max(scratch, 1))
        room = max(1, min(room, self.memory_limit // self._block_bytes(launch)))
        room = 1 if self.chances.last_first else room
        steps = []
        counts = [end - start for start, end in zip(starts, ends, strict=True)]
        for extent in counts:
            pieces = -(-extent // room)
            steps.append(max(1, -(-extent // max(pieces, 1))))
            room = max(1, room // steps[-1])
        axes = [
            [(at, min(step, n - at)) for at in range(0, n, step)]
            for n, step in zip(counts, steps, strict=True)
        ]
        axes = [axis[::-1] if self.chances.last_first else axis for axis in axes]
        for (z, dz), (y, dy), (x, dx) in itertools.product(*reversed(axes)):
            origin = (starts[0] + x, starts[1] + y, starts[2] + z)
            yield times(origin, cluster), times((dx, dy, dz), cluster)

    def _block_bytes(self, launch: LaunchState) -> int:
        """Bytes that one block takes, or one cluster: UsageError if it is more than the limit."""
        blocks, program = math.prod(launch.cluster), launch.program
        threads = math.prod(launch.block) * blocks
        a_thread = 2 * launch.local_bytes + program.register_bytes
        total = launch.shared_bytes * blocks + threads * a_thread
        if total > self.memory_limit:
            raise UsageError(
                f"a {'block' if blocks == 1 else 'cluster'} of kernel '{program.kernel.name}' "
                f"takes {total} bytes: {threads} threads with {launch.local_bytes} bytes of local "
                "memory each, and their registers; the emulator's memory_limit is "
                f"{self.memory_limit}, use smaller arrays or raise it"
            )
        return max(total, 1)
