"""Who may be measured on a problem: compiled, not too slow, and right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gen.bench.check import Expected, all_expected, check
from gen.bench.contenders import Contender, NotInstalled, Prepared, Recipe, Unsupported, compile_all
from gen.bench.device import GpuLost
from gen.bench.results import ABSENT, FAILED, NO_MEMORY, OURS, SKIPPED, WRONG, Row
from gen.bench.work import Outline, Work
from gen.device.driver import OutOfMemory
from gen.errors import CheckError, GenError

if TYPE_CHECKING:
    from gen.bench.problem import Problem

# A problem of more operations is first tried with a short sum, to see whether it takes too long.
_PROBE_ABOVE = 2**33
_PROBE_K = 128


def compile_ahead(
    arch: str, problems: Sequence[Problem], say: Callable[[str], object]
) -> Mapping[Recipe, str]:
    """Compiles what all problems need, at once: while something is measured, nothing compiles.

    What it took, each with the reason why it cannot be compiled, if so.
    """
    recipes: dict[Recipe, None] = {}
    for problem in problems:
        outline = Outline(arch, problem.dtypes, problem.layouts, problem.shape)
        for contender in problem.contenders:
            with suppress(Unsupported):  # `prepare` says so again, in its row
                recipes |= dict.fromkeys(contender.recipes(outline))

    def progress(done: int) -> None:
        say(f"compiling, {done} of {len(recipes)} ready")

    if recipes:
        progress(0)
    return compile_all(recipes, progress)


def admit_all(
    problem: Problem,
    work: Work,
    limit_s: float,
    ready: dict[str, tuple[Row, Prepared]],
    say: Callable[[str], object],
) -> Iterator[Row]:
    """Fills `ready` with the contenders that may be measured; the rows of the others."""
    say(f"{problem}: what is right")
    wanted = all_expected(work)
    for contender in problem.contenders:
        say(f"{problem}: checking {contender.name}")
        try:
            row, prepared = admit(contender, problem, work, wanted, limit_s)
        except GpuLost as error:
            yield replace(problem.row(contender), check=FAILED, note=str(error))
            raise GpuLost(
                f"{contender.name} on {problem}: {error}; no more can be measured in this "
                "process, the same command with --resume measures the rest"
            ) from None
        if prepared is None:
            yield row
        else:
            ready[contender.name] = (row, prepared)


def admit(
    contender: Contender, problem: Problem, work: Work, wanted: Sequence[Expected], limit_s: float
) -> tuple[Row, Prepared | None]:
    """A contender that may be measured, or the row that says why not."""
    row = problem.row(contender)
    try:
        too_slow = _too_slow(contender, work, limit_s)
        if too_slow:
            return replace(row, check=SKIPPED, note=too_slow), None
        prepared = contender.prepare(work)
    except NotInstalled as error:
        return replace(row, check=ABSENT, note=str(error)), None
    except Unsupported as error:
        return replace(row, check=SKIPPED, note=str(error)), None
    except OutOfMemory as error:
        return replace(row, check=NO_MEMORY, note=str(error)), None
    except GpuLost:
        raise
    except GenError as error:
        return replace(row, check=FAILED, note=str(error)), None
    try:
        message = check(work, prepared, wanted)
    except GpuLost:
        prepared.close()
        raise
    except CheckError as error:
        prepared.close()
        return replace(row, check=FAILED, note=str(error)), None
    if message:
        prepared.close()
        return replace(row, check=WRONG, note=message), None
    return replace(row, workspace=prepared.workspace, note=prepared.note), prepared


def _too_slow(contender: Contender, work: Work, limit_s: float) -> str:
    """Why a kernel of ours is not even started, if so: nothing can stop it once it runs."""
    k = work.shape.k
    if contender.kind != OURS or work.flops < _PROBE_ABOVE or k <= _PROBE_K:
        return ""
    short = work.shortened(_PROBE_K)
    prepared = contender.prepare(short)
    seconds = math.inf
    for _ in range(2):  # the first launch of a kernel may have to load it
        ms = work.gpu.elapsed(lambda: prepared.queue(work.gpu.stream, *work.pointers(0)))
        seconds = min(seconds, ms * k / _PROBE_K / 1e3)
        if seconds <= limit_s:
            break
    prepared.close()
    if seconds <= limit_s:
        return ""
    about = float(f"{seconds:.2g}")
    return f"would take about {about:g} s, more than the limit of {limit_s:g} s"
