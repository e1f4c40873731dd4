"""Processes of this machine that share a job."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from gen.errors import CheckError, GenError
from gen.spread.job import Here, Item, Job, Result

_ALONE = 1.0  # seconds of CPU time: about what other processes take to be ready, and some work
_OURS = ("gen", "cuda", "numpy", "jinja2", "ml_dtypes")  # packages that processes import, too


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


class Processes:
    """Processes of this machine: at most `count`, and as many as its free memory has room for.

    This process works alone for the first second, unless `prepare` was called, which is enough for
    much of the work, and then hands out what is left. Items that need the same code go
    to the same process, which compiles and translates it once, until there is nothing else to do.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def map(self, job: Job[Item, Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """See Workers.

        An error is that of the first item that has one, as in `Here`. Raises CheckError where
        somebody else ends a process.
        """
        costs = [job.cost(item) for item in items]
        memory = max((cost.nbytes for cost in costs), default=0)
        fitting = free_memory() // memory if memory else self._count
        fresh, done = copy(job), 0
        alone = 0 if _prepared else _ALONE
        until = time.process_time() + alone
        if min(self._count, fitting, len(items)) <= 1:
            until = float("inf")
        here, server = Here().map(job, items), False
        while done < len(items) and time.process_time() + costs[done].seconds < until:
            yield next(here)
            done += 1
            if not server and time.process_time() > until - alone / 2:
                server = True
                _start_server(job)
        if left := range(done, len(items)):
            with _Team(fresh, items, left, min(self._count, fitting, len(left))) as team:
                yield from team.results()


class _Answer(NamedTuple):
    """What became of an item: an error that ends the job, or a result."""

    item: int
    result: Any
    error: BaseException | None = None


class _Warned(NamedTuple):
    """A warning that is to be shown once, however many processes have it."""

    message: str
    category: type[Warning]
    file: str
    line: int


class _Member:
    """A process, the item that it has, and those that it will have next."""

    def __init__(self, job: Job[Any, Any]) -> None:
        _start_server(job)
        self.connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_work, args=(job, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.busy: int | None = None
        self.group: deque[int] = deque()

    def end(self) -> None:
        """Gives up what it does."""
        self.process.kill()
        self.process.join()
        self.connection.close()


class _Team:
    """Processes that share those items whose indices are `left`."""

    def __init__(
        self, job: Job[Any, Any], items: Sequence[Any], left: Sequence[int], count: int
    ) -> None:
        self._job, self._items = job, items
        groups: dict[Any, deque[int]] = {}
        for index in left:
            groups.setdefault(tuple(job.needs(items[index])), deque()).append(index)
        self._groups = list(groups.values())
        self._fresh = deque(self._groups)  # of which nobody has had an item
        self._members: list[_Member] = []
        self._count = count
        self._wrong: _Answer | None = None
        self._shown: dict[Any, Any] = {}

    def __enter__(self) -> _Team:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.end()

    def results(self) -> Iterator[tuple[int, Any]]:
        """See Workers."""
        for _ in range(self._count):
            self._members.append(_Member(self._job))
            self._give(self._members[-1])
        while busy := {m.connection: m for m in self._members if m.busy is not None}:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                answer = self._answer(busy[connection])
                if answer and answer.error:
                    self._stop_behind(answer)
                elif answer:
                    yield answer.item, answer.result
                self._give(busy[connection])
        if self._wrong and self._wrong.error:
            raise self._wrong.error

    def _give(self, member: _Member) -> None:
        """The next item of a process that has none: of its group, of a new one, of the largest."""
        if member.busy is not None:
            return
        while not member.group and self._fresh:
            member.group = self._fresh.popleft()
        if group := member.group or max(self._groups, key=len):
            member.group, member.busy = group, group.popleft()
            with suppress(OSError):  # it has ended: there will be no answer
                member.connection.send((member.busy, self._items[member.busy]))

    def _stop_behind(self, wrong: _Answer) -> None:
        """What comes before an error is still done: it may have another one."""
        self._wrong = min(self._wrong or wrong, wrong, key=lambda answer: answer.item)
        for group in self._groups:
            while group and group[-1] > wrong.item:
                group.pop()

    def _answer(self, member: _Member) -> _Answer | None:
        """What a process says; None for a warning."""
        assert member.busy is not None
        try:
            said = member.connection.recv()
        except (EOFError, OSError):
            member.process.join()
            raise CheckError(
                f"{self._job.title(self._items[member.busy])} has ended its process "
                f"({_reason(member.process.exitcode or 0)}); where memory is scarce, use --jobs 1"
            ) from None
        if isinstance(said, _Warned):
            warnings.warn_explicit(*said, registry=self._shown)
            return None
        assert isinstance(said, _Answer)
        member.busy = None
        return said


def _reason(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _work(job: Job[Any, Any], connection: Connection) -> None:
    """What a process does for another, until that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which ends this process through its parent

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: object = None,
    ) -> None:
        connection.send(_Warned(str(message), category, filename, lineno))

    warnings.showwarning = show
    ready = False
    while True:
        try:
            index, item = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if not ready:
                job.start()
                ready = True
            answer = _Answer(index, job(item))
        except (GenError, MemoryError) as error:  # another one is a bug, and shows its place
            answer = _Answer(index, None, error)
        with suppress(BrokenPipeError):
            connection.send(answer)


_CONTEXT = multiprocessing.get_context("forkserver")


_prepared = False


def prepare(*modules: str) -> None:
    """Lets other processes be made ready while this one does what comes before a long job.

    modules: what they are going to import.
    """
    global _prepared
    _prepared = True
    _start_server_with(modules)


def _start_server(job: Job[Any, Any]) -> None:
    """Starts the process that others are forked from, if it does not run, for a job.

    It imports what was imported here until now, which takes longer than many an item.
    """
    ours = [name for name in sys.modules if name.partition(".")[0] in _OURS]
    _start_server_with([type(job).__module__, *ours])


def _start_server_with(modules: Sequence[str]) -> None:
    """Starts it, if it does not run; it gets ready by itself, and imports once for all of them.

    They have no threads of numpy's, which would wait for each other, and SIGINT is blocked, since
    they end through their parent: it would interrupt their imports, aloud.
    """
    _CONTEXT.set_forkserver_preload(list(modules))
    threads = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(threads)
    os.environ.setdefault(threads, "1")
    resource_tracker.ensure_running()  # which unblocks SIGINT when it starts
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if before is None:
            del os.environ[threads]


def free_memory() -> int:
    """Bytes that processes may take without swapping: of this machine, or of its control group."""
    (line,) = (
        line
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        if line.startswith("MemAvailable:")
    )
    free = 1024 * int(line.split()[1])
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # there is none, or it has no limit: "max"
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        free = min(free, limit - int((group / "memory.current").read_text(encoding="ascii")))
    return max(free, 0)
