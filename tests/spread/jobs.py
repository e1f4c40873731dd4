"""Jobs that say who did what: tests send them to workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from gen.compile.nvrtc import compile_cuda
from gen.errors import CheckError
from gen.spread.job import Job


class Done(NamedTuple):
    """An item, the process that did it, and whether its code came from the cache."""

    item: int
    process: int
    cached: bool = False


class Square(Job[int, Done]):
    """Appends a line to a file for each item that is begun, and for each that has ended."""

    def __init__(self, log: Path, seconds: float = 0.0) -> None:
        self.log, self.seconds = log, seconds

    def __call__(self, item: int) -> Done:
        self.say(f"begun {item}")
        time.sleep(self.seconds)
        self.act(item)
        self.say(f"ended {item}")
        return Done(item * item, os.getpid())

    def act(self, item: int) -> None:
        """What else it does."""

    def say(self, text: str) -> None:
        with self.log.open("a") as file:  # lines of several processes: each is one write
            file.write(f"{text} {os.getpid()}\n")


class Dies(Square):
    """The first process that gets to item 5 ends, as if somebody had killed it."""

    def act(self, item: int) -> None:
        if item == 5 and "killed" not in self.log.read_text():
            self.say("killed 5")
            os.kill(os.getpid(), signal.SIGKILL)


class Kills(Square):
    """Item 3 ends every process that tries it."""

    def act(self, item: int) -> None:
        if item == 3:
            os.kill(os.getpid(), signal.SIGKILL)


class Fails(Square):
    """Item 3 cannot be done."""

    def act(self, item: int) -> None:
        if item == 3:
            raise CheckError("item 3 cannot be done")


class Spoils(Square):
    """Item 2 leaves the process as a kernel does that failed on a GPU."""

    _last = 0

    def act(self, item: int) -> None:
        self._last = item

    def spoilt(self) -> bool:
        return self._last == 2


class Compiles(Square):
    """Two items need the same code; each process has a cache of its own."""

    TEXT = 'extern "C" __global__ void k%d() {}'

    def needs(self, item: int) -> list[int]:
        return [item // 2]

    def compile(self, need: int) -> None:
        self.say(f"compiled {need}")
        compile_cuda(self.TEXT % need, name="k.cu")

    def __call__(self, item: int) -> Done:
        time.sleep(self.seconds)
        found = compile_cuda(self.TEXT % (item // 2), name="k.cu")
        return Done(item * item, os.getpid(), found.cached)
