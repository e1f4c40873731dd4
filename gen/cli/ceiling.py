"""`gen ceiling`."""

from __future__ import annotations

from typing import Annotated

import typer

from gen.cli import tables
from gen.cli.options import JSON
from gen.cli.progress import status


def ceiling(
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what was measured before.")
    ] = False,
    json: Annotated[bool, JSON] = False,
) -> None:
    from gen.bench.ceiling import COPY, L2, ceilings
    from gen.bench.device import MeasuredGpu

    gpu = MeasuredGpu()
    with status() as say:
        found = ceilings(gpu, fresh, say)
    if json:
        tables.as_json({"gpu": gpu.name, "driver": gpu.driver_version(), "ceilings": found})
        return
    units = {COPY: "GB/s", L2: "GB/s"}
    rows = [
        (name, f"{value:.1f}" if value < 1000 else f"{value:.0f}", units.get(name, _unit(name)))
        for name, value in found.items()
    ]
    tables.table(("ceiling", "rate", "unit"), rows, right=("rate",))
    print(f"{gpu.name}, driver {gpu.driver_version()}")


def _unit(name: str) -> str:
    return "TOP/s" if name.endswith(("i32", "dp4a")) else "TFLOP/s"
