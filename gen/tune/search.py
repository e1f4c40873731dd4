"""`gen tune` as a function: for each problem, the model's first kernels are checked, then timed.

What is known is not measured again, and what cannot win is not measured at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import cpu_count
from typing import NamedTuple

from gen._version import __version__
from gen.bench import device, timing
from gen.bench.admission import admit, compile_ahead
from gen.bench.check import all_expected
from gen.bench.contenders import Ours, Prepared, launcher
from gen.bench.device import ClockWatch, GpuLost, MeasuredGpu
from gen.bench.problem import Problem
from gen.bench.results import FAILED, NO_MEMORY, Row
from gen.bench.sizes import sized
from gen.bench.work import Work
from gen.compile import nvrtc
from gen.device.driver import OutOfMemory, works
from gen.dispatch.ranking import Ranked
from gen.dispatch.table import Run
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from gen.spread.job import Job
from gen.tune.outcomes import Options, Outcome, entry_of

# Of the least time that the ratios of this problem allow: errors of the model are smaller.
_CAN_WIN = 0.75

_FEWEST = 3  # rounds that are a measurement, where it was interrupted
# What takes so much longer than the fastest at most may be as fast: it has so many rounds more.
_CLOSE, _MORE = 1.03, 2


class Found(NamedTuple):
    """A problem's outcome, and the run that has measured it."""

    outcome: Outcome | None
    run: Run


class Tuning(Job[Outcome | None, Found]):
    """The work of `gen tune`: an item is a problem as planned, or None to open the GPU.

    date: of the run, in UTC. An outcome that is measured in this process has what was measured
    before an exception: GpuLost after a kernel that failed while it ran, and KeyboardInterrupt.
    `say` is told what happens in this process.
    """

    gpu: MeasuredGpu

    def __init__(self, options: Options, date: str) -> None:
        self.options, self.date = options, date
        self.say: Callable[[str], object] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"options": self.options, "date": self.date, "say": None}

    def start(self) -> None:
        """See Job."""
        self.gpu = device.MeasuredGpu()
        self._watch = ClockWatch()
        self._driver = self.gpu.driver_version()

    def needs(self, item: Outcome | None) -> list[KernelSpec]:
        """See Job."""
        return [each.spec for each in item.left] if item else []

    def compile(self, need: KernelSpec) -> None:
        """See Job."""
        nvrtc.compile_cuda(
            render(need).text, name=f"{need.name}.cu", arch=self.gpu.arch, format="cubin"
        )

    def __call__(self, item: Outcome | None) -> Found:
        """See Job. Raises GpuLost."""
        if item and item.left:
            self._measure(item, item.left)
        return Found(item, self.run)

    def title(self, item: Outcome | None) -> str:
        """See Job."""
        if item is None:
            return "opening the GPU"
        p = item.product
        return f"tuning {p.dtypes.name} {p.layouts} {sized(p.shape, p.batch)}"

    def spoilt(self) -> bool:
        """See Job."""
        return not works()

    @property
    def run(self) -> Run:
        """Where and with what, and the clocks so far."""
        gpu, clocks = self.gpu, self._watch.summary()
        return Run(
            self.date, gpu.name, gpu.arch, gpu.multiprocessors, self._driver, __version__, clocks
        )

    def _say(self, text: str) -> None:
        if self.say:
            self.say(text)

    def _measure(self, found: Outcome, left: Sequence[Ranked]) -> None:
        product = found.product
        problem = Problem(product.dtypes, product.layouts, sized(product.shape, product.batch), ())
        self._say(f"{problem}: operands")
        try:
            work = Work(self.gpu, problem.dtypes, problem.layouts, problem.shape)
        except OutOfMemory as error:
            failed = problem.row(Ours(left[0].spec))
            found.failed.append(replace(failed, check=NO_MEMORY, note=str(error)))
            return
        ready: dict[KernelSpec, tuple[Row, Prepared]] = {}
        try:
            with work.provable():
                self._admit(found, left, problem, work, ready)
            self._say(f"{problem}: measuring {len(ready)} kernels in turns")
            self._time(found, work, ready)
        finally:
            for _, prepared in ready.values():
                prepared.close()
            work.close()

    def _admit(
        self,
        found: Outcome,
        left: Sequence[Ranked],
        problem: Problem,
        work: Work,
        ready: dict[KernelSpec, tuple[Row, Prepared]],
    ) -> None:
        """Fills `ready` with the kernels that are right and may win, in the order of the ranking.

        They are compiled as many at once as there are cores.
        """
        self._say(f"{problem}: what is right")
        wanted = all_expected(work)
        tried = {spec: entry.us for spec, entry in found.entries.items()}
        predicted = {each.spec: each.time / 1e6 for each in found.ranking}
        at_once = cpu_count() or 1
        for start in range(0, len(left), at_once):
            block = [
                each for each in left[start : start + at_once] if _may_win(each, tried, predicted)
            ]
            found.left_out += len(left[start : start + at_once]) - len(block)
            contenders = [Ours(each.spec) for each in block]
            compile_ahead(self.gpu.arch, [replace(problem, contenders=contenders)], self._say)
            for each, contender in zip(block, contenders, strict=True):
                self._say(f"{problem}: checking {contender.name}")
                try:
                    row, prepared = admit(contender, problem, work, wanted, self.options.limit_s)
                except GpuLost as error:
                    row = replace(problem.row(contender), check=FAILED, note=str(error))
                    found.failed.append(row)
                    raise GpuLost(
                        f"{contender.name} on {problem}: {error}; no more can be measured in this "
                        "process, the same command goes on with what is left"
                    ) from None
                if prepared is None:
                    found.failed.append(row)
                    continue
                ready[each.spec] = row, prepared
                tried[each.spec] = timing.estimate(self.gpu, launcher(work, prepared.queue)) * 1e3

    def _time(
        self, found: Outcome, work: Work, ready: Mapping[KernelSpec, tuple[Row, Prepared]]
    ) -> None:
        """Times all in turns, and then once more those whose order is not clear by that.

        What has been sampled counts where that is interrupted, too.
        """
        gpu, options = self.gpu, self.options
        samplers = {}
        names = {spec: str(i) for i, spec in enumerate(ready)}
        for spec, (_, prepared) in ready.items():
            launch = launcher(work, prepared.queue)
            ms = timing.estimate(gpu, launch)
            chosen = timing.plan(ms, work.sets, options.rounds, options.limit_s)
            samplers[names[spec]] = timing.launch_sampler(gpu, launch, chosen)
        samples: dict[str, list[float]] = {}
        more: dict[str, list[float]] = {}

        def saw() -> None:
            self._watch.saw(gpu.clocks())

        try:
            timing.interleave(samplers, saw, found=samples)
            close = {
                name: samplers[name]._replace(rounds=_MORE * samplers[name].rounds)
                for name in _close(samples)
            }
            timing.interleave(close, saw, found=more)
        finally:
            for spec, (row, _) in ready.items():
                own = samples.get(names[spec], []) + more.get(names[spec], [])
                if own and len(own) >= min(_FEWEST, samplers[names[spec]].rounds):
                    got = timing.summarize(own)
                    row = replace(row, ms_median=got.median, noise=got.noise, rounds=len(own))
                    found.entries[spec] = entry_of(spec, found.product, row, self.run)
                    found.measured.append(spec)


def _close(samples: Mapping[str, Sequence[float]]) -> list[str]:
    """Who is fastest, by name, and who may be; nobody where that is one alone."""
    medians = {name: timing.summarize(own).median for name, own in samples.items()}
    near = [name for name, ms in medians.items() if ms <= _CLOSE * min(medians.values())]
    return near if len(near) > 1 else []


def joined(one: Run, other: Run) -> Run:
    """A run of several GPUs of one model: with the clocks of both."""
    sm = [*one.clocks.get("sm", []), *other.clocks.get("sm", [])]
    bounds = {"sm": [min(sm), max(sm)]} if sm else {}
    return one._replace(clocks={**one.clocks, **other.clocks, **bounds})


def _may_win(
    each: Ranked, tried: Mapping[KernelSpec, float], predicted: Mapping[KernelSpec, float]
) -> bool:
    """Whether a kernel could be the fastest, were its time as much below the model's as any of its
    variant here.

    tried: microseconds of other kernels, of which predicted are the model's.
    """
    own = [spec for spec in tried if spec.variant == each.spec.variant]
    if not own:
        return True
    least = min(tried[spec] / predicted[spec] for spec in own)
    return each.time / 1e6 * least * _CAN_WIN < min(tried.values())
