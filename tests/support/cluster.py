"""A cluster of Dask on this machine, made of processes as a user starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import ROOT

_DASK = (sys.executable, "-m", "dask")


@dataclass
class Machines:
    """A scheduler and its workers; `address` is that of the scheduler."""

    folder: Path
    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, *options: str, env: Mapping[str, str] | None = None, name: str = "", threads: int = 1
    ) -> subprocess.Popen[bytes]:
        """Starts one more worker, with a cache of compiled code of its own."""
        name = name or f"worker-{len(self.workers)}"
        command = (*_DASK, "worker", self.address, "--nthreads", str(threads), "--no-dashboard")
        own = {"GEN_CACHE_DIR": str(self.folder / name), **(env or {})}
        self.workers.append(_start(self.folder, name, *command, *options, env=own))
        return self.workers[-1]


def _start(
    folder: Path, name: str, *command: str, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@contextmanager
def machines(folder: Path, workers: int, *options: str) -> Iterator[Machines]:
    """A scheduler with so many workers, which all end with it."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    command = ("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
    scheduler = _start(folder, "scheduler", *_DASK, *command, env={})
    found = Machines(folder, "", scheduler)
    try:
        wait_until(lambda: file.is_file() and file.stat().st_size)
        found.address = json.loads(file.read_text())["address"]
        for _ in range(workers):
            found.start(*options)
        yield found
    finally:
        for process in (*found.workers, scheduler):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until a function says so."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "nothing has happened"
        time.sleep(0.05)
