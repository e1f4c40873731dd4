"""How far a command is, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gen.cli.tables import seconds

if TYPE_CHECKING:
    from rich.progress import Progress


class Steps:
    """How far a command is: called after each step, told by `now` what comes next."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self._start = self._said = time.monotonic()

    def __call__(self) -> None:
        """One step is done. Where nobody sees a bar, a line says so from time to time."""
        self.done += 1
        at = time.monotonic()
        if at - self._said > _SILENCE and self.done < self.total:
            self._said = at
            left = (at - self._start) / self.done * (self.total - self.done)
            text = f"{self.title}: {self.done} of {self.total}, about {seconds(left)} left"
            print(text, file=sys.stderr, flush=True)

    def now(self, text: str) -> None:
        """What is running."""
        self.title = text


_SILENCE = 30.0  # seconds


class _Bar(Steps):
    def __init__(self, title: str, total: int, bar: Progress) -> None:
        super().__init__(title, total)
        self._bar, self._task = bar, bar.add_task(title, total=total)

    def __call__(self) -> None:
        self._bar.advance(self._task)

    def now(self, text: str) -> None:
        self._bar.update(self._task, description=text)


@contextmanager
def progress(title: str, total: int) -> Iterator[Steps]:
    """Says on standard error how far a command is: a bar with an estimate on a terminal."""
    if not sys.stderr.isatty():
        yield Steps(title, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    # What is printed meanwhile goes above the bar, but for what goes to a file or a pipe.
    shown = sys.stdout.isatty()
    with Progress(*columns, console=console, transient=True, redirect_stdout=shown) as bar:
        yield _Bar(title, total, bar)


@contextmanager
def status() -> Iterator[Callable[[str], object]]:
    """A line on standard error that says what happens now; in a pipe, one line after another."""
    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update
