"""`--on` and `--jobs`: this process, several of this machine, or the workers of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import typer

from gen.spread.job import Here, Item, Job, Result, Workers
from gen.spread.place import Place
from gen.spread.processes import Processes

if TYPE_CHECKING:
    from gen.cli.progress import Steps

ON = typer.Option(
    "--on",
    metavar="ADDRESS",
    help="Share the work among the workers of Dask's scheduler there; tcp://HOST:8786, or the "
    "file of its --scheduler-file.",
)
JOBS = typer.Option(
    "--jobs", metavar="N", min=1, help="Processes of the emulator; default: one for each CPU core."
)


class Team(NamedTuple):
    """Who works, and on what. `title` ends a sentence about it: " on 4 workers"."""

    workers: Workers
    place: Place
    title: str = ""

    def map(
        self, job: Job[Item, Result], items: Sequence[Item], step: Steps
    ) -> Iterator[tuple[int, Result]]:
        """See Workers; says how far that is."""
        titles = [job.title(item) + self.title for item in items]
        for text in titles[:1]:
            step.now(text)
        for index, result in self.workers.map(job, items):
            yield index, result
            step()
            for text in titles[index + 1 : index + 2]:
                step.now(text)


@contextmanager
def team(on: str | None, device: str, emulator: str = "", jobs: int = 1) -> Iterator[Team]:
    """Those who work on a device: auto, gpu or cpu; says which one, and `emulator` behind that one.

    jobs: processes of the emulator; a GPU has one. Raises UsageError, MissingError.
    """
    if on is None:
        from gen.spread.place import place_of

        place, why = place_of(device)
        _tell(place, emulator, why)
        yield Team(Processes(jobs) if place.finds_reads else Here(), place)
        return
    from gen.device.choose import check_device
    from gen.spread.cluster import Cluster

    check_device(device)
    with Cluster(on, device, _say) as cluster:
        title, place = f" on {cluster.name}", cluster.place
        _tell(place, emulator, cluster.why_emulator, title)
        yield Team(cluster, place, title)


def _tell(place: Place, emulator: str, why: str, title: str = "") -> None:
    more = emulator if place.finds_reads else ""
    reason = f" ({why})" if why else ""
    print(f"device: {place.name}{more}{title}{reason}", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
