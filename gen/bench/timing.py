"""The interleaved timer: contenders take turns, so that what drifts touches all of them alike.

Nothing here knows of GEMMs, and all but `launch_sampler` nothing of GPUs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gen.bench.device import MeasuredGpu

EVENTS, GRAPH = "events", "graph"

# A launch from Python costs some microseconds; shorter kernels would wait for it.
GRAPH_BELOW_MS = 0.05
# Above, the gap before a launch does not count, and an untimed launch ahead would cost more.
ALONE_ABOVE_MS = 20.0

# Below, what looks like a kernel's time may be that of its launches from Python: a kernel of many
# parameters, or of several launches, is asked for again as a graph.
_MAY_WAIT_MS = 0.5

# Above, a first launch says how long the next ones take; nothing that happens once takes so long.
_CERTAIN_MS = 200.0

_SAMPLE_MS = 5.0
_GRAPH_SAMPLE_MS = 1.0
_GRAPH_MOST = 2048

_TRIALS, _TRIAL_SECONDS = 3, 1.0


@dataclass(frozen=True)
class Sampling:
    """How one contender is measured: `launches` in each of `rounds` samples."""

    method: str
    launches: int
    rounds: int
    ahead: bool
    note: str = ""


def plan(ms: float, sets: int, rounds: int, limit_s: float) -> Sampling:
    """How to measure a kernel that takes about `ms`, within `limit_s` seconds if that is possible.

    A graph goes through all sets of operands, as the caches demand.
    """
    if ms < GRAPH_BELOW_MS:
        wanted = max(sets, round(_GRAPH_SAMPLE_MS / max(ms, 1e-4)))
        return Sampling(GRAPH, max(1, min(wanted, _GRAPH_MOST)), rounds, ahead=True)
    launches = max(1, round(_SAMPLE_MS / ms))
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
) -> dict[str, list[float]]:
    """Every contender's samples, in milliseconds a launch.

    rest_s: seconds without work before each sample.
    """
    found: dict[str, list[float]] = {name: [] for name in samplers}
    last = 0
    for number, name in turns(list(samplers), {n: s.rounds for n, s in samplers.items()}):
        if number != last:
            after_round()
            last = number
        time.sleep(rest_s)
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


def estimate(gpu: MeasuredGpu, launch: Callable[[int], None]) -> float:
    """About how many milliseconds a launch takes: the least of a few, after one to warm up."""
    first = gpu.elapsed(lambda: launch(0))
    if first > _CERTAIN_MS:
        return first
    best, stop = float("inf"), time.perf_counter() + 0.05
    for i in range(5):
        best = min(best, gpu.elapsed(lambda i=i: launch(i), before=lambda i=i: launch(i + 1)))  # type: ignore[misc]
        if time.perf_counter() > stop:
            break
    if best < _MAY_WAIT_MS:
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


def quick(gpu: MeasuredGpu, launch: Callable[[int], None]) -> float:
    """Milliseconds of one candidate among several, by the method of the later measurement."""
    chosen = plan(estimate(gpu, launch), 1, _TRIALS, _TRIAL_SECONDS)
    sampler = launch_sampler(gpu, launch, chosen)
    return min(sampler.sample() for _ in range(chosen.rounds))
