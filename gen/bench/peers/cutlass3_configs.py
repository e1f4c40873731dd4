"""Configurations of CUTLASS 3.x on Hopper, and their source."""

from __future__ import annotations

from typing import NamedTuple

from gen.bench.contenders import TMA_ALIGNMENT
from gen.prove.cutlass import CUTLASS_TYPES
from gen.source.templates import render_template
from gen.spec.dtypes import DTypes
from gen.spec.problem import Layouts

PINGPONG, COOPERATIVE = "pingpong", "cooperative"
PERSISTENT, STREAM_K = "", "stream-k"

_SCHEDULES = {PINGPONG: "Pingpong", COOPERATIVE: "Cooperative"}
_SCHEDULERS = {PERSISTENT: "PersistentScheduler", STREAM_K: "StreamKScheduler"}

# Along K, a tile is as wide as a row of the widest swizzled layout.
_TILE_K_BYTES = 128


class Config(NamedTuple):
    """One instance of CUTLASS's collectives: rows and columns of a tile, blocks of a cluster."""

    m: int
    n: int
    cluster: tuple[int, int]
    schedule: str
    scheduler: str = PERSISTENT

    @property
    def name(self) -> str:
        """What results call it."""
        words = (f"{self.m}x{self.n}", "{}x{}".format(*self.cluster), self.schedule)
        return " ".join(filter(None, (*words, self.scheduler)))


# Two warpgroups share a cooperative tile, so that it has 128 rows at least; stream-K divides those.
CONFIGS = (
    Config(64, 32, (1, 1), PINGPONG),
    Config(64, 64, (1, 1), PINGPONG),
    Config(64, 128, (1, 1), PINGPONG),
    Config(64, 128, (2, 1), PINGPONG),
    Config(64, 128, (1, 2), PINGPONG),
    Config(64, 256, (1, 1), PINGPONG),
    Config(64, 256, (2, 1), PINGPONG),
    Config(128, 128, (1, 1), PINGPONG),
    Config(128, 128, (2, 1), PINGPONG),
    Config(128, 128, (1, 2), PINGPONG),
    Config(128, 128, (2, 1), COOPERATIVE),
    Config(128, 192, (2, 1), COOPERATIVE),
    Config(128, 256, (1, 1), COOPERATIVE),
    Config(128, 256, (2, 1), COOPERATIVE),
    Config(128, 256, (1, 2), COOPERATIVE),
    Config(256, 128, (1, 1), COOPERATIVE),
    Config(256, 128, (2, 1), COOPERATIVE),
    Config(256, 128, (1, 2), COOPERATIVE),
    Config(128, 64, (1, 1), COOPERATIVE, STREAM_K),
    Config(128, 128, (1, 1), COOPERATIVE, STREAM_K),
    Config(128, 256, (2, 1), COOPERATIVE, STREAM_K),
)


# Of groups, whose rows are few, and where stream-K is not offered.
GROUPED = (
    Config(64, 128, (1, 1), PINGPONG),
    Config(64, 256, (1, 1), PINGPONG),
    Config(128, 128, (1, 1), PINGPONG),
    Config(128, 128, (1, 2), PINGPONG),
    Config(128, 256, (1, 1), COOPERATIVE),
    Config(128, 256, (1, 2), COOPERATIVE),
    Config(256, 128, (1, 1), COOPERATIVE),
)


def source(
    config: Config, dtypes: DTypes, layouts: Layouts, fast: bool = False, grouped: bool = False
) -> str:
    """CUDA source of one configuration; `fast` sums FP8 as wgmma does, without other registers.

    grouped: of groups of rows, whose sizes and addresses the kernel reads on the device.
    """

    def order(row_major: bool) -> str:
        return "Row" if row_major else "Column"

    pointers = "PtrArray" if grouped else ""
    warps, schedule = f"{pointers}TmaWarpSpecialized", _SCHEDULES[config.schedule]
    # Of one product, the epilogue of warpgroups that take turns has no name of its own.
    alone = config.schedule == PINGPONG and not grouped
    return render_template(
        f"bench/cutlass3{'_grouped' if grouped else ''}.cu.j2",
        name=config.name,
        what="groups of rows of D = A * B by a CUTLASS 3.x kernel"
        if grouped
        else "D = A * B by a CUTLASS 3.x kernel",
        config=config,
        pointer="*" if grouped else "",
        tile_k=_TILE_K_BYTES // dtypes.input.size,
        input=CUTLASS_TYPES[dtypes.input.name],
        accumulator=CUTLASS_TYPES[dtypes.accumulator.name],
        output=CUTLASS_TYPES[dtypes.output.name],
        layout_a=order(layouts.a),
        layout_b=order(layouts.b),
        layout_d=order(layouts.c),
        lead_a=0 if layouts.a else 1,
        lead_b=1 if layouts.b else 0,  # CUTLASS has B as N x K
        lead_d=0 if layouts.c else 1,
        alignment=TMA_ALIGNMENT // dtypes.input.size,
        alignment_d=TMA_ALIGNMENT // dtypes.output.size,
        schedule=f"Kernel{warps}{schedule}{'FP8FastAccum' if fast else ''}",
        epilogue=warps if alone else f"{warps}{schedule}",
        scheduler=_SCHEDULERS[config.scheduler],
    )
