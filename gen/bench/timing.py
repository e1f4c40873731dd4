"""The interleaved timer: contenders take turns, so that what drifts touches all of them alike.

Nothing here knows of GEMMs, and all but `launch_sampler` nothing of GPUs.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from gen.bench.device import GpuLost
from gen.errors import CheckError

if TYPE_CHECKING:
    from gen.bench.device import MeasuredGpu

EVENTS, GRAPH = "events", "graph"

# A launch from Python costs microseconds, through Triton a tenth of a millisecond; shorter kernels
# would wait for it.
GRAPH_BELOW_MS = 0.5
# Above, the gap before a launch does not count, and an untimed launch ahead would cost more.
ALONE_ABOVE_MS = 20.0

# Above, a first launch says how long the next ones take; nothing that happens once takes so long.
_CERTAIN_MS = 200.0

_SAMPLE_MS = 5.0
_GRAPH_MOST = 500  # launches, but for a graph that has to go through more sets of operands

_TRIALS, _TRIAL_SECONDS = 3, 1.0


@dataclass(frozen=True)
class Sampling:
    """How one contender is measured: `launches` in each of `rounds` samples."""

    method: str
    launches: int
    rounds: int
    ahead: bool
    note: str = ""


def plan(ms: float, sets: int, rounds: int, limit_s: float, kernels: int = 1) -> Sampling:
    """How to measure what takes about `ms`, within `limit_s` seconds if that is possible.

    A graph goes through all sets of operands, as the caches demand. kernels: of one launch.
    """
    launches = max(1, round(_SAMPLE_MS / max(ms, 1e-4)))
    if ms < GRAPH_BELOW_MS * kernels:
        return Sampling(GRAPH, max(sets, min(launches, _GRAPH_MOST)), rounds, ahead=True)
    ahead = ms < ALONE_ABOVE_MS
    fitting = int(limit_s * 1000 // (ms * (launches + ahead)))
    if fitting >= rounds:
        return Sampling(EVENTS, launches, rounds, ahead)
    fewer = max(1, fitting)
    times = "once" if fewer == 1 else f"{fewer} times"
    return Sampling(EVENTS, launches, fewer, ahead, f"slow: measured {times}, not {rounds}")


class Sampler(NamedTuple):
    """One contender's turn: `sample` gives milliseconds a launch, `rounds` times at most."""

    sample: Callable[[], float]
    rounds: int


def turns(names: Sequence[str], rounds: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """(round, name) in the order of measuring.

    Each round starts with another contender, so that none always comes after the same one's heat.
    """
    for number in range(max(rounds.values(), default=0)):
        active = [name for name in names if number < rounds[name]]
        shift = number % len(active)
        for name in (*active[shift:], *active[:shift]):
            yield number, name


def interleave(
    samplers: Mapping[str, Sampler],
    after_round: Callable[[], object] = lambda: None,
    rest_s: float = 0.0,
    settle_s: float = 0.0,
    found: dict[str, list[float]] | None = None,
) -> dict[str, list[float]]:
    """Every contender's samples, in milliseconds a launch.

    rest_s: seconds without work before each sample. settle_s: seconds of the contender's own work
    before it, after which the clock is what its power leaves, not what the one before has left.
    found: what is returned, which then has the samples until now if this is interrupted.
    """
    found = {} if found is None else found
    found |= {name: [] for name in samplers}
    last = 0
    for number, name in turns(list(samplers), {n: s.rounds for n, s in samplers.items()}):
        if number != last:
            after_round()
            last = number
        time.sleep(rest_s)
        settled = time.perf_counter() + settle_s
        while time.perf_counter() < settled:
            samplers[name].sample()
        found[name].append(samplers[name].sample())
    after_round()
    return found


class Summary(NamedTuple):
    """Median, half the distance between the quartiles, and that as a fraction of the median."""

    median: float
    spread: float | None
    noise: float | None


def summarize(samples: Sequence[float]) -> Summary:
    """What is reported of samples; the spread of one alone is not known."""
    median = statistics.median(samples)
    if len(samples) < 2:
        return Summary(median, None, None)
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    spread = (high - low) / 2
    return Summary(median, spread, spread / median if median else 0.0)


def estimate(gpu: MeasuredGpu, launch: Callable[[int], None], kernels: int = 1) -> float:
    """About how many milliseconds a launch takes: the least of a few, after one to warm up."""
    first = gpu.elapsed(lambda: launch(0))
    if first > _CERTAIN_MS:
        return first
    best, stop = float("inf"), time.perf_counter() + 0.05
    for i in range(5):
        best = min(best, gpu.elapsed(lambda i=i: launch(i), before=lambda i=i: launch(i + 1)))  # type: ignore[misc]
        if time.perf_counter() > stop:
            break
    if best < GRAPH_BELOW_MS * kernels:  # else it may be the time of the launches from Python
        graph = gpu.graph(lambda: launch(0))
        best = min(best, *(gpu.elapsed(lambda: graph.launch(gpu.stream)) for _ in range(3)))
    return best


def launch_sampler(gpu: MeasuredGpu, launch: Callable[[int], None], chosen: Sampling) -> Sampler:
    """The turn of a contender on a GPU; `launch(i)` queues one launch on the i-th set.

    Each sample goes on with the sets where the last one ended: where operands lie in memory is
    worth a percent or two, and belongs to the spread.
    """
    sets = count()

    def queue() -> None:
        for _ in range(chosen.launches):
            launch(next(sets))

    if chosen.method == GRAPH:
        graph = gpu.graph(queue)

        def queue() -> None:
            graph.launch(gpu.stream)

        before = queue
    else:

        def before() -> None:
            launch(next(sets))

    def sample() -> float:
        return gpu.elapsed(queue, before if chosen.ahead else None) / chosen.launches

    return Sampler(sample, chosen.rounds)


def ranked(
    gpu: MeasuredGpu, launches: Sequence[Callable[[int], None]], seconds: float = math.inf
) -> tuple[list[int], int]:
    """Which of several candidates are fastest, tried briefly; how many were tried in `seconds`.

    One that cannot be launched is left out. Raises GpuLost.
    """
    times: dict[int, float] = {}
    stop = time.perf_counter() + seconds
    tried = 0
    for tried, launch in enumerate(launches, 1):
        try:
            times[tried - 1] = estimate(gpu, launch)
        except GpuLost:
            raise
        except CheckError:
            continue
        if time.perf_counter() > stop:
            break
    return sorted(times, key=lambda i: times[i]), tried


def fastest(gpu: MeasuredGpu, launches: Sequence[Callable[[int], None]]) -> int:
    """Which of a few candidates is fastest, by the method of the later measurement."""

    def measured(launch: Callable[[int], None]) -> float:
        chosen = plan(estimate(gpu, launch), 1, _TRIALS, _TRIAL_SECONDS)
        sampler = launch_sampler(gpu, launch, chosen)
        return min(sampler.sample() for _ in range(chosen.rounds))

    times = [measured(launch) for launch in launches]
    return times.index(min(times))
