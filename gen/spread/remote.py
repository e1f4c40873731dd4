"""What runs in a worker of Dask: one thing at a time, in the thread that has the device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

from gen.compile.cache import Entry, adopt, recorded
from gen.errors import GenError
from gen.spread.job import Item, Job, Result

_RESTARTS = 60.0  # seconds in which a process is restarted that can do nothing more


@dataclass(frozen=True)
class Run(Generic[Item, Result]):
    """A job as workers get it."""

    token: str
    job: Job[Item, Result]


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """A result, or an error. `spoilt` is the address of a worker that can do nothing more."""

    result: Result | None
    error: GenError | None
    spoilt: str


def compile_for(run: Run[Any, Any], need: object) -> list[Entry]:
    """Compiled code, to be sent to those who need it.

    What does not compile is compiled again with the item that needs it, whose error that is.
    """
    job = _started(run)
    with recorded() as entries:
        try:
            job.compile(need)
        except GenError:
            return []
    return entries


def do_for(run: Run[Item, Result], item: Item, code: Sequence[Sequence[Entry]]) -> Outcome[Result]:
    """Does an item, with what was compiled for it."""
    from distributed import get_worker

    job, result, error = _started(run), None, None
    adopt(entry for entries in code for entry in entries)
    try:
        result = job(item)
    except GenError as reason:
        error = reason
    global _spoilt
    _spoilt = job.spoilt()
    return Outcome(result, error, get_worker().address if _spoilt else "")


_spoilt = False
_jobs: dict[str, Job[Any, Any]] = {}


def _started(run: Run[Item, Result]) -> Job[Item, Result]:
    """The job, ready for items."""
    if _spoilt:
        from distributed import Reschedule

        time.sleep(_RESTARTS)
        raise Reschedule
    if run.token not in _jobs:
        run.job.start()
        _jobs.clear()  # of other runs, with their devices
        _jobs[run.token] = run.job
    return _jobs[run.token]
