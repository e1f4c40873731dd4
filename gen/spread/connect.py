"""How a scheduler of Dask is found."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from gen.errors import MissingError
from gen.requirements import EXTRAS, lacking

if TYPE_CHECKING:
    from distributed import Client

_CONNECT = 5.0  # seconds in which a scheduler should answer


def connect(on: str) -> Client:
    """A client of the scheduler at an address, or of the one that has written a file.

    Raises MissingError where there is none, or no Dask.
    """
    try:
        import dask
        from distributed import Client
    except ImportError as error:
        raise MissingError(str(lacking("--on", EXTRAS["cluster"], error))) from None
    for name in ("distributed", "distributed.client", "tornado"):  # what matters is told here
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        address = _scheduler_of(on)
        kind = asyncio.run(asyncio.wait_for(_kind(address), _CONNECT))
        if kind != "Scheduler":
            raise ValueError(f"what answers is a {kind.lower()}")
        with dask.config.set({"distributed.comm.timeouts.connect": _CONNECT}):
            return Client(address, timeout=_CONNECT, set_as_default=False)
    except Exception as error:  # of a file, an address, or a connection
        lines = str(error).splitlines() or [f"it says nothing for {_CONNECT:g} s"]
        raise MissingError(
            f"no scheduler of Dask answers at {on!r}: {lines[0].rstrip('.')}; start one with `dask "
            f"scheduler`, and workers with `{worker_command('tcp://HOST:8786')}`"
        ) from None


def _scheduler_of(on: str) -> str:
    """An address; that in a file which a scheduler has written. Raises ValueError."""
    if not Path(on).is_file():
        if ":" not in on:
            raise ValueError("it is neither HOST:PORT nor a file that a scheduler has written")
        return on
    found = json.loads(Path(on).read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not isinstance(found.get("address"), str):
        raise ValueError("the file is not one that a scheduler has written")
    return str(found["address"])


async def _kind(address: str) -> str:
    """What answers there. A client of Dask would wait forever for a server of something else."""
    from distributed import rpc
    from distributed.security import Security

    arguments = Security().get_connection_args("client")
    async with rpc(address, timeout=_CONNECT, connection_args=arguments) as there:
        return str((await there.identity())["type"])


def worker_command(address: str) -> str:
    """What starts a worker."""
    return f"dask worker {address} --nthreads 1"
