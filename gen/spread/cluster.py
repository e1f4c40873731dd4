"""Dask's workers, and how they share a job.

Dask's scheduler hands out the items, gives those of a lost worker to others, and moves compiled
code from where it was compiled to those who need it.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, cast

from gen.errors import CheckError, MissingError, counted
from gen.spread.connect import connect
from gen.spread.job import Item, Job, Result
from gen.spread.members import Members
from gen.spread.remote import Outcome, Run, compile_for, do_for

if TYPE_CHECKING:
    from distributed import Client, Future

_POLL = 0.02  # seconds between two looks at what is done
_CLOSE = 5.0  # seconds that a good-bye may take
_AHEAD = 8  # items that a worker has, or will have next: the others stay with us
_TRIES = 5  # at an item, each by workers that were all lost


class Cluster:
    """The workers of the scheduler at an address, or of the one whose `--scheduler-file` it is.

    `device` is what they run kernels on: auto, gpu or cpu; `say` is told what the user should know.
    `place` is the device, which all of them have. Raises MissingError where there is no scheduler
    or no worker, or where workers differ from each other or from this process.
    """

    def __init__(
        self, address: str, device: str, say: Callable[[str], object] = lambda _: None
    ) -> None:
        self._address, self._say = address, say
        self._client = connect(address)
        try:
            self._members = Members(self._client, address, device, say)
        except BaseException:
            self.close()
            raise
        model = self._members.model
        self.place, self.why_emulator = model.place, model.why_no_gpu
        self.name = counted(len(self._members), "worker")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the workers to others."""
        self._client.close(timeout=_CLOSE)

    def map(self, job: Job[Item, Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """See Workers.

        Raises MissingError where the scheduler ends, CheckError for an item that ends one worker
        after another.
        """
        tasks = _Tasks(self._client, self._members, job, items)
        try:
            while tasks.left:
                tasks.submit()
                batch = tasks.finished()
                errors = []
                for index, got in batch:
                    if isinstance(got, Outcome) and not got.error:
                        yield index, cast(Result, got.result)
                    else:
                        errors.append(self._error(got, job.title(items[index])))
                    if isinstance(got, Outcome) and got.spoilt:
                        self._restart(got.spoilt)
                if errors:
                    raise errors[0]
                if self._members.look():
                    tasks.rescue()
                if not batch:
                    time.sleep(_POLL)
        finally:
            tasks.cancel()

    def _error(self, got: Any, title: str) -> BaseException:
        """What to raise for an item that has no result."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        if isinstance(got, Outcome):
            assert got.error
            return got.error
        error = got[1] if isinstance(got, tuple) else got
        if isinstance(error, KilledWorker):
            return _killed(title)
        if isinstance(error, Exception) and not isinstance(error, CancelledError):
            return error
        return MissingError(
            f"the scheduler at {self._address} has gone; start it again, with its workers"
        )

    def _restart(self, worker: str) -> None:
        self._say(f"worker {worker} can do nothing more after a kernel failed; it is restarted")
        self._members.drop(worker)
        try:
            self._client.restart_workers([worker])
        except Exception as error:
            raise CheckError(
                f"worker {worker} can do nothing more after a kernel failed, and cannot be "
                f"restarted: {error}; start it again, without --no-nanny"
            ) from None


def _killed(title: str) -> CheckError:
    return CheckError(
        f"{title} has ended one worker after another; the workers' logs may say why, and "
        "--memory-limit 0 of dask worker lets them use all memory"
    )


@dataclass(frozen=True)
class _Given:
    """What some workers were told to do, any of them."""

    future: Future
    to: frozenset[str]


class _Tasks(Generic[Item, Result]):
    """Items on their way through the cluster: a few for each worker at a time."""

    def __init__(
        self, client: Client, members: Members, job: Job[Item, Result], items: Sequence[Item]
    ) -> None:
        from distributed import as_completed

        self._client, self._members, self._items = client, members, items
        self._run = Run(f"gen-{uuid.uuid4().hex[:12]}", job)
        self._needs = [tuple(dict.fromkeys(job.needs(item))) for item in items]
        self._users = Counter(need for needs in self._needs for need in needs)
        self._code: dict[Any, _Given] = {}  # by what it is for, as long as an item needs it
        self._waiting = deque(range(len(items)))
        self._flying: dict[str, tuple[int, _Given]] = {}  # by the future's key
        self._tries = Counter[int]()
        self._number = 0
        self._done = as_completed(loop=client.loop, with_results=True, raise_errors=False)

    @property
    def left(self) -> int:
        """Items without results."""
        return len(self._waiting) + len(self._flying)

    def submit(self) -> None:
        """Gives workers what to do next; what may have ended several of them, alone."""
        while self._waiting and len(self._members):
            suspect = self._tries[self._waiting[0]] > 1
            if len(self._flying) >= (1 if suspect else _AHEAD * len(self._members)):
                break
            index = self._waiting.popleft()
            code = [self._compiled(need, index) for need in self._needs[index]]
            given = self._give(index, do_for, self._items[index], code)
            self._flying[given.future.key] = index, given
            self._done.add(given.future)

    def finished(self) -> list[tuple[int, Any]]:
        """What has been done since, by index: an Outcome, or why there is none."""
        found = []
        for future, got in self._done.next_batch(block=False):
            future.release()  # or a worker that is lost later would do it again
            if future.key not in self._flying:  # rescued
                continue
            index, _ = self._flying.pop(future.key)
            found.append((index, got))
            for need in self._needs[index]:
                self._users[need] -= 1
                if not self._users[need]:
                    del self._code[need]
        return found

    def rescue(self) -> None:
        """Takes back what was given to workers that have all gone, to give it to others."""
        alive = self._members.addresses
        for need in [need for need, given in self._code.items() if not given.to & alive]:
            del self._code[need]
        for key, (index, given) in list(self._flying.items()):
            if not given.to & alive:
                del self._flying[key]
                self._client.cancel([given.future])
                self._waiting.appendleft(index)
                self._tries[index] += 1
                if self._tries[index] == _TRIES:
                    raise _killed(self._run.job.title(self._items[index]))

    def cancel(self) -> None:
        """Gives up what is not done."""
        if self._client.status == "running":
            self._client.cancel([given.future for _, given in self._flying.values()])

    def _compiled(self, need: Any, index: int) -> Future:
        """Code that somebody compiles, the first time that an item needs it."""
        if need not in self._code:
            self._code[need] = self._give(index, compile_for, need)
        return self._code[need].future

    def _give(self, index: int, function: Callable[..., Any], *args: Any) -> _Given:
        self._number += 1
        to = self._members.addresses
        future = self._client.submit(
            function,
            self._run,
            *args,
            key=f"{self._run.token}-{self._number}",
            priority=-index,
            workers=list(to),
        )
        return _Given(future, to)
