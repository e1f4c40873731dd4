"""Runs kernels that gen did not emit on the emulator: what they compute and what they do wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.emulator import (
    Counters,
    DeviceArray,
    EarlyAccesses,
    Emulator,
    Finding,
    GlobalRaces,
    LaunchReport,
    Observer,
    Printed,
    SameValues,
    SharedRaces,
    Totals,
    UninitializedReads,
)
from gen.errors import BudgetError, UsageError, python_words, said_in_python, unknown
from gen.foreign import elements
from gen.foreign.arguments import Memory, argument, in_order, numbers_of, parse_pairs
from gen.foreign.build import Built, Options, build, is_ptx
from gen.foreign.launch import LaunchText, launches_in, sizes
from gen.foreign.prepare import read_program, read_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MAX_FINDINGS = 20
INSTRUCTIONS_A_THREAD = 1_000_000  # after which a kernel is taken for endless

Size = int | tuple[int, ...]


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

    `arrays` and `before` are what buffers hold after and before them, by name, as numbers. `notes`
    are findings that spoil nothing. `stopped` says why a kernel was not run to its end.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    before: dict[str, np.ndarray] = field(default_factory=dict)
    stored: dict[str, np.ndarray] = field(default_factory=dict)  # `arrays` as they lie in memory
    types: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    printed: list[Printed] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)
    counters: Totals | None = None
    suppressed: int = 0
    instructions: int = 0
    seconds: float = 0.0
    stopped: str = ""
    left_out: list[str] = field(default_factory=list)  # of the source, and why

    @property
    def ok(self) -> bool:
        """Whether nothing was found, and everything ran."""
        return not self.findings and not self.stopped

    @property
    def changed(self) -> list[str]:
        """The buffers that the launches have written other bytes to."""
        return [name for name in self.arrays if not same(self.arrays[name], self.before[name])]


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays agree in every bit."""
    return one.tobytes() == other.tobytes()


@dataclass(frozen=True)
class Checks:
    """What to look for, and when to stop."""

    tools: tuple[str, ...] = TOOLS
    max_findings: int = MAX_FINDINGS
    budget: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for tool in self.tools:
            if tool not in TOOLS:
                raise unknown("tool", tool, TOOLS)

    def make(self) -> list[Observer]:
        """The emulator's checks that these tools stand for."""
        found: list[Observer] = []
        if "racecheck" in self.tools:
            found += [SharedRaces(), GlobalRaces(), EarlyAccesses()]
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


@dataclass(frozen=True)
class Step:
    """A launch whose kernel is compiled: texts or values of its arguments."""

    built: Built
    text: LaunchText
    values: Mapping[str, Any] = field(default_factory=dict)


def prepare(text: str, name: str, launches: Sequence[LaunchText]) -> list[Step]:
    """Compiles the kernels of launches of one file. Raises UsageError, CompileError."""
    known: dict[tuple[str | None, Options], Built] = {}
    steps = []
    for launch in launches:
        options = Options(
            launch.arch or "sm_80", tuple(map(Path, launch.include)), launch.define,
            launch.std or "c++17",
        )  # fmt: skip
        key = (launch.kernel, options)
        if key not in known:
            known[key] = build(text, name, launch.kernel, options)
        steps.append(Step(known[key], launch))
    return steps


def run_steps(steps: Sequence[Step], checks: Checks, counters: Counters | None = None) -> Outcome:
    """Runs launches in their order, with shared buffers; `counters` watch the last of them.

    Raises UsageError for bad arguments, CheckError for what the emulator does not support.
    """
    outcome = _run(steps, checks, checks.make(), counters)
    races = [finding for finding in outcome.findings if finding.kind == "WAW"]
    # A wild access loads bytes of ones, which are then the same everywhere.
    if not races or any(finding.check == "memcheck" for finding in outcome.findings):
        return outcome
    # Whether racing threads write the same value takes another run, which looks at the values.
    watch = SameValues()
    _run(steps, checks, [watch])
    outcome.notes = [finding for finding in races if watch.harmless(finding)]
    outcome.findings = [f for f in outcome.findings if f not in outcome.notes]
    return outcome


def _run(
    steps: Sequence[Step],
    checks: Checks,
    observers: Sequence[Observer],
    counters: Counters | None = None,
) -> Outcome:
    emulator = Emulator(checks.max_findings)
    memory = Memory(emulator, checks.seed)
    outcome = Outcome()
    for step in steps:
        outcome.left_out += [note for note in step.built.notes if note not in outcome.left_out]
        watching = [*observers, counters] if counters and step is steps[-1] else observers
        try:
            launched = _launch(step, memory, checks, watching)
        except BudgetError as error:
            advice = "raise instruction_budget"
            outcome.stopped = str(error).replace(advice, "use a larger --budget")
            break
        report = launched.report
        outcome.launched.append(launched)
        outcome.findings += [finding for finding in report.findings if checks.wants(finding)]
        outcome.printed += report.printed
        outcome.suppressed += report.suppressed
        outcome.instructions += report.instructions
        outcome.seconds += report.seconds
    for name, buffer in memory.buffers.items():
        outcome.types[name] = buffer.type
        outcome.before[name] = elements.values(buffer.array, buffer.type)
        outcome.stored[name] = buffer.now(emulator)
        outcome.arrays[name] = elements.values(outcome.stored[name], buffer.type)
    return outcome


def _launch(step: Step, memory: Memory, checks: Checks, observers: Sequence[Observer]) -> Launched:
    built, text = step.built, step.text
    texts = parse_pairs(text.arg)
    numbers = numbers_of(texts)
    numbers |= {k: int(v) for k, v in step.values.items() if isinstance(v, int | np.integer)}
    given = in_order({**texts, **step.values}, built.signature, built.kernel, built.title)
    arguments = []
    for (name, parameter, value), param in zip(given, built.kernel.params, strict=True):
        if isinstance(value, str):
            value = argument(name, value, parameter, param, memory, numbers)
        elif not isinstance(value, DeviceArray):
            value = _from_python(name, value, parameter, param, memory, numbers)
        arguments.append(value)
    grid, block = sizes(text.grid, "grid", numbers), sizes(text.block, "block", numbers)
    cluster = sizes(text.cluster, "cluster", numbers) if text.cluster else None
    dynamic = sizes(text.dynamic_shared, "dynamic-shared", numbers)[0]
    threads = int(np.prod([*grid, *block], dtype=object))
    memory.emulator.instruction_budget = checks.budget or INSTRUCTIONS_A_THREAD * max(threads, 1)
    report = memory.emulator.launch(
        built.ptx, built.symbol, grid, block, arguments, dynamic, built.lines, observers,
        cluster=cluster,
    )  # fmt: skip
    return Launched(built, grid, block, dynamic, report)


def _from_python(
    name: str, value: Any, parameter: Any, param: Any, memory: Memory, numbers: Mapping[str, int]
) -> Any:
    """A value of a caller in Python as an argument."""
    if isinstance(value, np.ndarray | Undefined):
        array = value.array if isinstance(value, Undefined) else value
        kind = elements.of_dtype(array.dtype)
        array = np.ascontiguousarray(array).view(elements.storage(kind))
        return memory.add(name, kind, array, not isinstance(value, Undefined)).device
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


def emulate(
    source: str | Path,
    kernel: str | None = None,
    grid: Size | str = 1,
    block: Size | str = 1,
    args: Mapping[str, Any] | Sequence[ArrayLike] = (),
    *,
    cluster: Size | str | None = None,
    dynamic_shared: int = 0,
    arch: str = "sm_80",
    tools: Sequence[str] = TOOLS,
    counters: bool = False,
    budget: int | None = None,
    max_findings: int = MAX_FINDINGS,
    include: Sequence[str | Path] = (),
    define: Sequence[str] = (),
    std: str = "c++17",
    seed: int = 0,
) -> Outcome:
    """Runs a CUDA kernel on the emulator, with its checks.

    source: CUDA or PTX, or a path of a file. kernel: its C++ name, where the file has several.
    grid, block: numbers, tuples or texts such as "(n+255)/256". cluster: the same, blocks of a
    cluster; default what the kernel declares (__cluster_dims__), or one. args: numpy arrays,
    numbers, None (a null pointer) and texts as `--arg` has them, by the parameters' names or in
    order.
    Arrays are copied: what they become is in `arrays` of the outcome. counters: count what the
    launch does to memory.
    Raises UsageError, CompileError, and CheckError for what the emulator does not support.
    """
    text, name = _source(source)
    counting = Counters() if counters else None
    checks = Checks(tuple(tools), max_findings, budget, seed)
    launch = LaunchText(
        kernel, _size(grid), _size(block), (), str(dynamic_shared), arch=arch,
        include=tuple(map(str, include)), define=tuple(define), std=std,
        cluster=None if cluster is None else _size(cluster),
    )  # fmt: skip
    with said_in_python():
        (step,) = prepare(text, name, [launch])
        if not isinstance(args, Mapping):
            args = _by_name(list(args), step.built)
        outcome = run_steps([Step(step.built, launch, dict(args))], checks, counting)
    outcome.stopped = python_words(outcome.stopped)
    outcome.counters = counting.totals() if counting else None
    return outcome


def _by_name(values: list[Any], built: Built) -> dict[str, Any]:
    params = built.kernel.params
    if len(values) != len(params):
        shown = str(built.signature or built.title)
        raise UsageError(f"{shown} has {len(params)} parameters, got {len(values)} arguments")
    if built.signature:
        return dict(zip((p.name for p in built.signature.parameters), values, strict=True))
    return {f"argument {at}": value for at, value in enumerate(values)}


def _size(size: Size | str) -> str:
    return (
        size
        if isinstance(size, str)
        else str(size)
        if isinstance(size, int)
        else (",".join(map(str, size)))
    )


def _source(source: str | Path) -> tuple[str, str]:
    if isinstance(source, Path) or (
        "\n" not in source and source.endswith((".cu", ".cuh", ".ptx"))
    ):
        return read_text(Path(source)), str(source)
    return source, "kernel.cu"


def launches_of(text: str, name: str, given: LaunchText) -> list[LaunchText]:
    """The launches that options ask for, or those of the file's comments.

    Options that say how to compile or check go to all of them. Raises UsageError where nothing
    says how to launch.
    """
    if given.starts:
        return [given]
    found = [given.over(launch) for launch in launches_in(text, name)]
    if not found:
        raise UsageError(_how_to_launch(text, name))
    return found


def _how_to_launch(text: str, name: str) -> str:
    """What a file that nobody said how to launch needs, with its kernels."""
    shown = []
    if not is_ptx(text):
        shown = [str(kernel) for _, kernel in read_program(text, name).kernels]
    kernels = f"; its kernels: {'; '.join(shown)}" if shown else ""
    return (
        f"{name} has no gen-spec line and no gen-launch line, which say how to launch the kernel; "
        "give --grid, --block and an --arg for each parameter, such as --arg A=f32[64,64]:random"
        f"{kernels}"
    )
