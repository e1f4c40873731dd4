"""The rungs of docs/wgmma-ladder.md: what each counts on the emulator, how fast it is on a GPU.

    python -m tests.hardware.wgmma_ladder                    # the table of counters; no GPU
    python -m tests.hardware.wgmma_ladder --measure FILE     # all rungs and cuBLAS, in one run
    python -m tests.hardware.wgmma_ladder FILE               # the table of times

A measurement that was interrupted goes on. The tables are Markdown.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gen.bench.results import OURS, Row
from gen.device.gpus import find_gpu
from gen.errors import GenError
from gen.kernels.registry import make_spec
from gen.profile.count import profile
from gen.report import markdown
from gen.report.model import load
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape
from gen.tables import Cell, Table, count, number, ratio

COUNTED = GemmShape(512, 768, 512)  # whole tiles of every rung
MEASURED = ("4096", "8192")


class Rung(NamedTuple):
    """One idea, and the tunables of `wgmma` that have it."""

    idea: str
    tunables: dict[str, Any]

    @property
    def options(self) -> str:
        """As gen's commands take them."""
        return " ".join(f"--{k.replace('_', '-')} {v}" for k, v in self.tunables.items())

    @property
    def spec(self) -> KernelSpec:
        """f16, with B along K: as linear layers have their weights."""
        return make_spec("wgmma", dtype="f16", layout="rcr", **self.tunables)


def _rung(idea: str, threadblock: str = "", stages: int = 0, swizzle: int = 0, **more: Any) -> Rung:
    first = {"threadblock": threadblock, "stages": stages, "swizzle": swizzle}
    return Rung(idea, {k: v for k, v in first.items() if v} | more)


RUNGS = (
    _rung("one narrow wgmma", "64x16x32", 2, 1),
    _rung("a wider one", "64x64x32", 2, 1),
    _rung("the widest", "64x256x32", 2, 1),
    _rung("longer lines", "64x256x64", 2, 1),
    _rung("more stages", "64x256x64", 4, 1),
    _rung("two warpgroups", "128x256x64", 4, 1),
    _rung("room for D", "128x256x64", 3, 1),
    _rung("an order of tiles: the default", "128x256x64", 3, 16),
    _rung("multicast", cluster="2x1"),
    _rung("two wgmmas below each other", "256x192x64"),
    _rung("ping-pong", schedule="pingpong"),
    _rung("stream-K", stream_k=1),
)


def counters() -> Table:
    """What `gen profile` counts of each rung."""
    rows = []
    for i, rung in enumerate(RUNGS, 1):
        found = profile(render(rung.spec), COUNTED, find_gpu("h200"))
        seen = found.totals
        rows.append(
            [
                Cell(f"{i}"),
                Cell(rung.idea),
                count(seen.global_load.requests),
                count(seen.global_load.parts),
                count(seen.mma // 4),  # a warpgroup's four warps execute one
                count(seen.by_class["barrier"]),
                count(seen.instructions),
                count(rung.spec.geometry.dynamic_shared),
            ]
        )
    columns = ("", "rung", "boxes", "sectors", "wgmmas", "barriers", "instructions", "shared bytes")
    return Table(f"f16 rcr {COUNTED}", columns, rows)


def times(rows: Sequence[Row]) -> Table:
    """TFLOP/s of each rung, and cuBLAS's time over its."""
    shapes = list(dict.fromkeys(row.shape for row in rows))
    ours = [row for row in rows if row.kind == OURS]
    peers = {
        shape: min(
            (r.ms_median for r in rows if r.shape == shape and r.kind != OURS and r.ms_median),
            default=None,
        )
        for shape in shapes
    }
    lines = []
    for i, rung in enumerate(RUNGS, 1):
        cells = [Cell(f"{i}"), Cell(rung.idea)]
        for shape in shapes:
            given = json.loads(rung.spec.to_json())
            row = next((r for r in ours if r.shape == shape and r.spec == given), None)
            peer = peers[shape]
            ms = row.ms_median if row else None
            cells.append(number(row.tflops if row else None))
            cells.append(ratio(peer / ms if peer and ms else None))
        lines.append(cells)
    columns = ["", "rung"]
    for shape in shapes:
        columns += [f"TFLOP/s, {shape}", "of cuBLAS"]
    return Table("f16 rcr", columns, lines)


def measure(path: Path) -> int:
    """Runs `gen bench`; its exit code."""
    command = [sys.executable, "-m", "gen", "bench", "--peers", "cublas", "--resume"]
    command += ["--json", str(path), "--rest", "20"]
    for rung in RUNGS:
        command += ["--spec", rung.spec.to_json()]
    for shape in MEASURED:
        command += ["--shape", shape]
    return subprocess.run(command, check=False).returncode


def main(words: Sequence[str]) -> int:
    """Prints a table; the exit code."""
    try:
        match words:
            case []:
                print(markdown.table(counters()))
            case ["--measure", path] if not path.startswith("-"):
                return measure(Path(path))
            case [path] if not path.startswith("-"):
                (file,) = load([Path(path)]).files
                print(markdown.facts(file))
                print(markdown.table(times(file.results.rows)))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except GenError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
