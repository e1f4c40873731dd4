"""Dask's workers that take part: who they are, who may not, who comes and goes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gen.errors import MissingError, counted
from gen.spread import place
from gen.spread.connect import worker_command

if TYPE_CHECKING:
    from distributed import Client

_JOIN = 30.0  # seconds in which a first worker should come
_LOOK = 2.0  # seconds between two looks at who is there


class Members:
    """The workers of a scheduler that are like each other and like this process.

    `device` is what they run kernels on: auto, gpu or cpu. Raises MissingError where there are none
    or where one of them cannot take part; one that comes later is told to `say`, and left out.
    """

    def __init__(self, client: Client, at: str, device: str, say: Callable[[str], object]) -> None:
        self._client, self._at, self._device, self._say = client, at, device, say
        self._like: dict[str, place.Worker] = {}
        self._refused: set[str] = set()
        self._next = 0.0
        self._wait()
        for wrong in self._admit(client.nthreads()):
            raise MissingError(wrong)
        self.model = next(iter(self._like.values()))
        self._alone = False

    def __len__(self) -> int:
        return len(self._like)

    @property
    def addresses(self) -> frozenset[str]:
        """Where they are."""
        return frozenset(self._like)

    def look(self) -> bool:
        """Sees from time to time who has come and gone; whether somebody has."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _LOOK
        before = self.addresses
        with suppress(OSError):  # the scheduler has gone: what it was asked to do says so
            there = self._client.nthreads()
            self._like = {a: worker for a, worker in self._like.items() if a in there}
            new = {a: n for a, n in there.items() if a not in self._like.keys() | self._refused}
            for wrong in self._admit(new):
                self._say(f"{wrong}; it is left out")
        if not self._like and not self._alone:
            self._say(f"no worker is left at {self._at}; waiting for one")
        self._alone = not self._like
        return before != self.addresses

    def drop(self, address: str) -> None:
        """A worker is to take part no more."""
        self._like.pop(address, None)
        self._refused.add(address)
        self._next = 0.0

    def _wait(self) -> None:
        until = time.monotonic() + _JOIN
        told = False
        while not self._client.nthreads():
            if time.monotonic() > until:
                raise MissingError(
                    f"the scheduler at {self._at} has no workers; start some with "
                    f"`{worker_command(self._at)}`"
                )
            if not told:
                self._say(f"waiting for a worker at {self._at}")
                told = True
            time.sleep(0.1)

    def _admit(self, threads: Mapping[str, int]) -> Iterator[str]:
        """Lets workers take part; why others cannot."""
        if not threads:
            return
        remote = "cpu" if self._device == "cpu" else "auto"  # to have no GPU is no error there
        found = self._client.run(place.here, remote, workers=list(threads), on_error="return")
        for address, worker in found.items():
            if isinstance(worker, OSError):  # it has gone again
                continue
            if wrong := self._wrong(threads[address], worker):
                self._refused.add(address)
                yield f"worker {address} {wrong}"
            else:
                self._like[address] = worker

    def _wrong(self, threads: int, worker: Any) -> str:
        if isinstance(worker, BaseException):
            if found := re.search(r"No module named '([\w.]+)'", str(worker)):
                return f"has no Python module {found[1]}; start it where gemmgen is the same"
            return f"cannot say what it is: {worker}"
        if threads != 1:
            return (
                f"has {counted(threads, 'thread')}, and does one thing at a time; start it with "
                "--nthreads 1, and --nworkers N for several on a machine"
            )
        if self._device == "gpu" and worker.why_no_gpu:
            return f"has no GPU: {worker.why_no_gpu}; use --device cpu for the emulator"
        for what, theirs, ours in (
            ("gemmgen", worker.gen, place.gen_version()),
            ("Python", worker.python, place.python_version()),
        ):
            if theirs != ours:
                return f"has {what} {theirs}, and here is {ours}; install the same"
        for other, known in self._like.items():
            if different := place.difference(worker, known):
                return f"has {different} as {other}; use workers that are alike"
            if worker.place.uuid and worker.place.uuid == known.place.uuid:
                return (
                    f"has the same {worker.place.name} as {other}; start one for each GPU, as "
                    "`dask cuda worker` does, or give each another CUDA_VISIBLE_DEVICES"
                )
        return ""
