"""Runs launches on the emulator: what they compute, and what they do wrong."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gen.emulator import (
    Chances,
    Counters,
    DeviceArray,
    EarlyAccesses,
    Emulator,
    Finding,
    GlobalRaces,
    LaunchReport,
    MissedPhases,
    Observer,
    Printed,
    ReadOnlyLoads,
    SameValues,
    SharedRaces,
    Totals,
    UninitializedReads,
)
from gen.errors import BudgetError, GenError, UsageError, command_words, unknown
from gen.foreign import elements
from gen.foreign.arguments import argument, in_order, numbers_of, parse_pairs
from gen.foreign.buffers import Content, Memory, check_array
from gen.foreign.build import Built
from gen.foreign.launch import sizes
from gen.foreign.looser import with_loops
from gen.foreign.steps import Step
from gen.foreign.symbols import find_variables, is_pointer, set_variable, symbols_of
from gen.kernels.formulas import ceil_div
from gen.kernels.occupancy import blocks_by_registers
from gen.spec.arch import MOST_REGISTERS, REGISTERS, WARP

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MAX_FINDINGS = 20
MOST_FINDINGS = 1000  # of a launch that are looked at, however few are asked for
SECONDS = 60.0  # of CPU time for a launch
MOST_IN_TURN = 256  # blocks of a launch that is repeated with its blocks one by one
SECONDS_IN_TURN = 10.0  # of CPU time for that
SECONDS_LESS_OPTIMIZED = 10.0  # of CPU time for a repetition that looks for missing values
INSTRUCTIONS_A_THREAD = 1_000_000  # after which a kernel is taken for endless
# How blocks of a launch run: those that wait for each other run three times.
TOGETHER = "all at once"
FIRST, LAST = "one by one, from the first on", "one by one, from the last on"
_TARGET = re.compile(r"^\.target\s+(sm_(\d+)\w?)", re.MULTILINE)
_PIECE = 1 << 24  # bytes that are compared at a time


@dataclass(frozen=True)
class Launched:
    """One launch: its kernel, its sizes, and how it went."""

    built: Built
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    report: LaunchReport


@dataclass
class Outcome:
    """What launches came to.

    `arrays` and `before` are what buffers hold after and before them, by name, as numbers;
    `variables` are those among them that are variables of the file. `in_turn` has what came of
    other schedules that found nothing. `notes` are findings that spoil nothing. `stopped` says why
    a kernel was not run to its end.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    before: dict[str, np.ndarray] = field(default_factory=dict)
    stored: dict[str, np.ndarray] = field(default_factory=dict)  # `arrays` as they lie in memory
    types: dict[str, str] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    in_turn: dict[str, Outcome] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)  # what malloc has returned and nobody has freed
    printed: list[Printed] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)
    counters: Totals | None = None
    suppressed: int = 0
    instructions: int = 0
    seconds: float = 0.0
    stopped: str = ""
    left_out: list[str] = field(default_factory=list)  # also what the compiler warns of

    @property
    def ok(self) -> bool:
        """Whether nothing was found, and everything ran."""
        return not self.findings and not self.stopped

    @property
    def schedules(self) -> dict[str, Outcome]:
        """What came of each schedule, with words that say which it is where there are several."""
        if not self.in_turn:
            return {"": self}
        words = {TOGETHER: self, **self.in_turn}
        return {f"; blocks ran {schedule}": one for schedule, one in words.items()}

    @cached_property
    def changed(self) -> list[str]:
        """The buffers that the launches have written other bytes to."""
        return [name for name in self.arrays if not same(self.arrays[name], self.before[name])]


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays agree in every bit."""
    left, right = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (one, other))
    pieces = [slice(at, at + _PIECE) for at in range(0, left.size, _PIECE)]
    return left.size == right.size and all((left[at] == right[at]).all() for at in pieces)


@dataclass(frozen=True)
class Checks:
    """What to look for, and when to stop.

    seconds: of CPU time for a launch. deadline: of all launches, as time.perf_counter gives it.
    first: no launch comes behind one that is wrong.
    """

    tools: tuple[str, ...] = TOOLS
    max_findings: int = MAX_FINDINGS
    budget: int | None = None
    seed: int = 0
    seconds: float | None = SECONDS
    deadline: float | None = None
    first: bool = False

    def __post_init__(self) -> None:
        for tool in self.tools:
            if tool not in TOOLS:
                raise unknown("tool", tool, TOOLS)

    def within(self, seconds: float | None) -> Checks:
        """The same checks, all of which end so many seconds from now; without a number, these."""
        if seconds is None:
            return self
        return replace(self, seconds=None, deadline=time.perf_counter() + seconds)

    def make(self) -> list[Observer]:
        """The emulator's checks that these tools stand for."""
        found: list[Observer] = []
        if "racecheck" in self.tools:
            found += [SharedRaces(), GlobalRaces(), EarlyAccesses(), ReadOnlyLoads()]
        if "synccheck" in self.tools:
            found.append(MissedPhases())
        if "initcheck" in self.tools:
            found.append(UninitializedReads())
        return found

    def wants(self, finding: Finding) -> bool:
        """Whether a finding is one of these tools'; a trap is everybody's."""
        return finding.check in self.tools or finding.check not in TOOLS


@dataclass(frozen=True)
class Undefined:
    """An array that a kernel must not read before it has written there."""

    array: np.ndarray


def run_steps(steps: Sequence[Step], checks: Checks, counters: Counters | None = None) -> Outcome:
    """Runs launches in their order, with shared buffers; `counters` watch the last of them.

    Raises UsageError for bad arguments, CheckError for what the emulator does not support.
    """
    outcome, most = _looked_at(steps, checks, counters), checks.max_findings
    if outcome.ok and not counters and "initcheck" in checks.tools:
        _run_less_optimized(steps, checks, outcome)
    # Only now is it known which are the gravest, and which spoil nothing.
    for found in (outcome.findings, outcome.notes):
        outcome.suppressed += len(found[most:])
        del found[most:]
    return outcome


def _looked_at(steps: Sequence[Step], checks: Checks, counters: Counters | None) -> Outcome:
    outcome = _run(steps, checks, Emulator(), checks.make(), counters)
    if outcome.ok and not counters and "racecheck" in checks.tools:
        _run_in_turn(steps, checks, outcome)
    races = [finding for finding in outcome.findings if finding.kind == "WAW"]
    # A wild access loads bytes of ones, which are then the same everywhere.
    if not races or any(finding.check == "memcheck" for finding in outcome.findings):
        return outcome
    # Whether racing threads write the same value takes another run, which looks at the values.
    watch = SameValues()
    if _run(steps, checks, Emulator(), [watch]).stopped and not outcome.stopped:
        return outcome  # it has not come as far, and what it has not seen may be other values
    outcome.notes = [finding for finding in races if watch.harmless(finding)]
    outcome.findings = [f for f in outcome.findings if f not in outcome.notes]
    return outcome


def _run_in_turn(steps: Sequence[Step], checks: Checks, outcome: Outcome) -> None:
    """Adds what is found where blocks start one by one, from the first on and from the last on.

    Of blocks that wait for each other: together they are in step, and one that does not wait for
    all of the others has seen them come all the same.
    """
    several = [one for one in outcome.launched if one.report.waits and math.prod(one.grid) > 1]
    if not several or max(math.prod(one.grid) for one in several) > MOST_IN_TURN:
        return
    for schedule in (FIRST, LAST):
        emulator = Emulator(chunk_threads=1)
        emulator.chances = Chances(last_first=schedule == LAST)
        again = _run(steps, replace(checks, seconds=SECONDS_IN_TURN), emulator, checks.make())
        if again.findings:
            outcome.findings, outcome.suppressed = again.findings, again.suppressed
            return
        if again.stopped:
            outcome.left_out.append(f"a run with blocks {schedule}: {again.stopped}")
        else:
            outcome.in_turn[schedule] = again


def _run_less_optimized(steps: Sequence[Step], checks: Checks, outcome: Outcome) -> None:
    """Adds variables without a value that optimized code has no more: see `looser`."""
    less = with_loops(steps)
    if not less:
        return
    checks = replace(checks, tools=("initcheck",), seconds=SECONDS_LESS_OPTIMIZED)
    try:
        again = _run(less, checks, Emulator(), [])
    except GenError:  # an instruction that the emulator lacks
        return
    outcome.findings, outcome.suppressed = again.findings, again.suppressed
    if again.stopped:
        what = "a run of less optimized code, for variables without a value"
        outcome.left_out.append(f"{what}: {again.stopped}")


def _run(
    steps: Sequence[Step],
    checks: Checks,
    emulator: Emulator,
    observers: Sequence[Observer],
    counters: Counters | None = None,
) -> Outcome:
    emulator.max_findings = MOST_FINDINGS
    emulator.time_budget, emulator.deadline = checks.seconds, checks.deadline
    memory = Memory(emulator, checks.seed)
    outcome = Outcome()
    for step in steps:
        outcome.left_out += [note for note in step.built.notes if note not in outcome.left_out]
        watching = [*observers, counters] if counters and step is steps[-1] else observers
        try:
            launched = _launch(step, memory, checks, watching)
        except BudgetError as error:  # in which `_launch` has put the kernel's name
            outcome.stopped = command_words(error)
            outcome.findings += [finding for finding in error.findings if checks.wants(finding)]
            break
        report = launched.report
        outcome.launched.append(launched)
        outcome.findings += [finding for finding in report.findings if checks.wants(finding)]
        outcome.printed += report.printed
        outcome.suppressed += report.suppressed
        outcome.instructions += report.instructions
        outcome.seconds += report.seconds
        # Two writes may turn out to write the same value, which is not wrong.
        if checks.first and any(finding.kind != "WAW" for finding in outcome.findings):
            break
    outcome.leaks = emulator.leaks()
    for step in steps:
        find_variables(step.built, memory)
    for name, buffer in memory.buffers.items():
        outcome.types[name] = buffer.type
        outcome.before[name] = elements.values(buffer.array, buffer.type)
        outcome.stored[name] = buffer.now()
        if any(buffer.device is one for one in memory.variables.values()):
            outcome.variables.append(name)
        outcome.arrays[name] = elements.values(outcome.stored[name], buffer.type)
    return outcome


def _launch(step: Step, memory: Memory, checks: Checks, observers: Sequence[Observer]) -> Launched:
    built, text = step.built, step.text
    texts = parse_pairs(text.arg)
    numbers = numbers_of(texts)
    numbers |= {k: int(v) for k, v in step.values.items() if isinstance(v, int | np.integer)}
    every = {**texts, **step.values}
    symbols = symbols_of(built, every)
    # Arguments may point to variables, and variables to buffers that are arguments.
    pointers = {name: symbol for name, symbol in symbols.items() if is_pointer(built, symbol)}
    for name, symbol in symbols.items():
        if name not in pointers:
            set_variable(name, symbol, every[name], built, memory, numbers)
    own = {name: value for name, value in every.items() if name not in symbols}
    given = in_order(own, built)
    arguments = []
    for (name, parameter, value), param in zip(given, built.kernel.params, strict=True):
        if isinstance(value, str):
            value = argument(name, value, parameter, param, memory, numbers)
        elif not isinstance(value, DeviceArray):
            value = _from_python(name, value, parameter, param, memory, numbers)
        arguments.append(value)
    for name, symbol in pointers.items():
        set_variable(name, symbol, every[name], built, memory, numbers)
    grid, block = sizes(text.grid, "grid", numbers), sizes(text.block, "block", numbers)
    if 0 in grid:
        raise UsageError(
            f"--grid {text.grid} is {','.join(map(str, grid))}: a GPU refuses a launch without "
            "blocks (cudaErrorInvalidConfiguration); leave it out where there is no work"
        )
    cluster = sizes(text.cluster, "cluster", numbers) if text.cluster else None
    target = _TARGET.search(built.ptx)
    if cluster and math.prod(cluster) > 1 and target and int(target[2]) < 90:
        raise UsageError(
            f"--cluster {text.cluster} is for sm_90 and newer, and the code for {target[1]}; "
            "give --arch sm_90"
        )
    if target:
        _check_registers(built, target[1], block)
    dynamic = sizes(text.dynamic_shared, "dynamic-shared", numbers)[0]
    threads = int(np.prod([*grid, *block], dtype=object))
    memory.emulator.instruction_budget = checks.budget or INSTRUCTIONS_A_THREAD * max(threads, 1)
    try:
        report = memory.emulator.launch(
            built.ptx, built.symbol, grid, block, arguments, dynamic, built.lines, observers,
            cluster=cluster, variables=memory.variables,
        )  # fmt: skip
    except GenError as error:  # which knows the kernel by its symbol
        error.args = (str(error).replace(f"'{built.symbol}'", built.title),)
        raise
    return Launched(built, grid, block, dynamic, report)


def _check_registers(built: Built, arch: str, block: tuple[int, int, int]) -> None:
    """Refuses a block whose threads have more registers than a multiprocessor.

    Where the kernel says how large its blocks are, the compiler sees to that.
    """
    threads = math.prod(block)
    if threads * MOST_REGISTERS <= REGISTERS or built.kernel.max_threads or not built.recompile:
        return
    resources = built.recompile(arch, "cubin").resources.get(built.symbol)
    registers = resources.registers if resources else 0
    if registers and not blocks_by_registers(ceil_div(threads, WARP), registers):
        raise UsageError(
            f"--block {','.join(map(str, block))} has {threads} threads, each of {registers} "
            f"registers on {arch}: a GPU refuses the launch (cudaErrorLaunchOutOfResources); use "
            f"smaller blocks, or write __launch_bounds__({threads}) before the kernel's name"
        )


def _from_python(
    name: str, value: Any, parameter: Any, param: Any, memory: Memory, numbers: Mapping[str, int]
) -> Any:
    """A value of a caller in Python as an argument."""
    if isinstance(value, np.ndarray | Undefined):
        array = value.array if isinstance(value, Undefined) else value
        kind = elements.of_dtype(array.dtype)
        check_array(name, kind, parameter)
        array = np.ascontiguousarray(array).view(elements.storage(kind))
        defined = not isinstance(value, Undefined)
        return memory.add(name, Content(kind, array, None, defined)).device
    if value is None:
        return argument(name, "null", parameter, param, memory, numbers)
    if isinstance(value, np.generic) and value.nbytes == param.nbytes:
        return value
    if isinstance(value, bool | int | float | np.generic):
        return argument(name, str(value), parameter, param, memory, numbers)
    raise UsageError(
        f"argument {name} is a {type(value).__name__}; pass a numpy array, a number, None, or a "
        "text such as 'f32[64]:poison'"
    )
