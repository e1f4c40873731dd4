"""`gen.emulate`: a kernel that gen did not emit, run from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.emulator import Counters
from gen.errors import UsageError, python_words, said_in_python
from gen.foreign.build import Built
from gen.foreign.launch import LaunchText
from gen.foreign.prepare import read_text
from gen.foreign.running import MAX_FINDINGS, SECONDS, TOOLS, Checks, Outcome, run_steps
from gen.foreign.steps import Step, prepare

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Size = int | tuple[int, ...]


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
    time: float = SECONDS,
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
    launch does to memory. budget: thread-instructions, and time: seconds of CPU time, after which
    the kernel is stopped.
    Raises UsageError, CompileError, and CheckError for what the emulator does not support.
    """
    text, name = _source(source)
    counting = Counters() if counters else None
    checks = Checks(tuple(tools), max_findings, budget, seed, time)
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
