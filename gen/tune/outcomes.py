"""What `gen tune` knows of a problem: its candidates as planned, and what they took."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from gen.bench.results import Row
from gen.device.gpus import GpuModel
from gen.dispatch import choice
from gen.dispatch.ranking import Product, Ranked, model_of
from gen.dispatch.table import Entry, Run, Table
from gen.source.versions import template_version
from gen.spec.kernel import KernelSpec


@dataclass(frozen=True)
class Options:
    """How many kernels are measured of a problem, in how many rounds, and for how long each.

    again: whether also those whose times are known.
    """

    candidates: int = 16
    rounds: int = 11
    limit_s: float = 3.0
    again: bool = False


@dataclass
class Outcome:
    """What is known of a problem's candidates: their times.

    `measured` are those whose times are new; `failed` are rows of `gen bench` that have no time;
    `left_out` could not have won.
    """

    product: Product
    ranking: Sequence[Ranked]
    entries: dict[KernelSpec, Entry] = field(default_factory=dict)
    measured: list[KernelSpec] = field(default_factory=list)
    failed: list[Row] = field(default_factory=list)
    left_out: int = 0

    @property
    def left(self) -> list[Ranked]:
        """What is to be measured."""
        return [each for each in self.ranking if each.spec not in self.entries]

    @property
    def first(self) -> Entry | None:
        """That of the model's first kernel."""
        return self.entries.get(self.ranking[0].spec)

    @property
    def best(self) -> tuple[KernelSpec, Entry] | None:
        """The fastest kernel."""
        return min(self.entries.items(), key=lambda one: one[1].us, default=None)

    @property
    def gain(self) -> float | None:
        """The time of the model's first kernel over that of the fastest."""
        return self.first.us / self.best[1].us if self.first and self.best else None

    def table(self, run: Run) -> Table:
        """What a run has measured of it."""
        entries = tuple(self.entries[spec] for spec in self.measured)
        return Table(entries, {run.name: run}).merged(Table())


def model_of_run(run: Run) -> GpuModel:
    """What the GPU of a run counts as."""
    return model_of(run.arch, run.multiprocessors, run.device)


def planned(product: Product, run: Run, known: Table, options: Options) -> Outcome:
    """A problem's candidates on the GPU of a run, with the times that need not be measured again.

    Raises SpecError where there is no kernel.
    """
    model = model_of_run(run)
    given = {"batched": True} if product.batch > 1 else {}
    ranking = candidates(choice.rank(product, model, run.arch, given), options.candidates)
    found = Outcome(product, ranking)
    times = {} if options.again else {entry.key: entry for entry in known.entries}
    for each in ranking:
        entry = times.get(entry_of(each.spec, product, _NOTHING, run).key)
        if entry and entry.templates == version_of(each.spec):
            found.entries[each.spec] = entry
    return found


# The model knows kernels of one variant beside each other better than variants: of `gemv` it has
# been wrong by 1.6 times.
_ASTRAY = 1.7


def candidates(ranking: Sequence[Ranked], count: int) -> list[Ranked]:
    """So many kernels of a ranking, in its order.

    They are the first of each variant that may be the fastest, and those that come first.
    """
    firsts = {each.spec.variant: each for each in reversed(ranking)}.values()
    likely = [each for each in firsts if each.time <= _ASTRAY * ranking[0].time]
    likely.sort(key=lambda each: each.time)
    chosen = list(dict.fromkeys(each.spec for each in (*likely, *ranking)))[:count]
    return [each for each in ranking if each.spec in chosen]


_NOTHING = Row("", "", "", "", "")


def entry_of(spec: KernelSpec, product: Product, row: Row, run: Run) -> Entry:
    """What is kept of a row of `gen bench`."""
    return Entry(
        model_of_run(run).key,
        str(product.shape),
        json.loads(spec.to_json()),
        round((row.ms_median or 0.0) * 1e3, 4),
        row.rounds,
        None if row.noise is None else round(row.noise, 5),
        version_of(spec),
        run.name,
        product.batch,
    )


def version_of(spec: KernelSpec) -> str:
    """That of a kernel's templates."""
    return template_version(spec.row.template)
