"""A script: how times near by correct the cost model, on the times that docs/lab records.

    python -m tests.hardware.near

Each record is predicted from those of other shapes with the same types and layouts, as if these had
been tuned; then again, with the times of each kernel off by a factor of its own, as on a GPU that
the model was not fitted to. Printed are the errors with and without what is near.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gen.device.gpus import GPUS
from gen.dispatch.learnt import Learnt
from gen.dispatch.lines import Lines
from gen.dispatch.ranking import INTERPOLATED, Product
from gen.dispatch.table import Entry, Run, Table
from gen.source.versions import template_version
from gen.spec.problem import parse_shape
from tests.hardware.model import H200, Record, read

RUN = Run("2026", "NVIDIA H200", "sm_90a", 132, "", "", {})
OFF = 0.35  # of the logarithm, at most: a factor of 0.70 to 1.42


class Errors(NamedTuple):
    """Of the same records, by the model alone and with what is near."""

    alone: Sequence[float]
    near: Sequence[float]


def errors(records: Sequence[Record], factors: Mapping[str, float]) -> Errors:
    """Of the records that have others near, with times multiplied by a factor of each variant."""
    times = [one.measured * factors.get(one.found.spec.variant, 1) for one in records]
    entries = [_entry(one, us) for one, us in zip(records, times, strict=True)]
    found = Errors([], [])
    for one, us in zip(records, times, strict=True):
        spec = one.found.spec
        others = [
            entry
            for entry in entries
            if entry.shape != one.shape and entry.spec["dtype"] == spec.dtypes.name
        ]
        known = Table(tuple(others), {RUN.name: RUN}).merged(Table())
        product = Product.packed(parse_shape(one.shape), spec.dtypes, spec.layouts)
        lines = Lines(known.to_json(), "records")
        there = Learnt([lines], GPUS["h200"], spec.dtypes, spec.layouts)
        (near,) = there.corrected(product, [one.found])
        if near.basis == INTERPOLATED:
            found.alone.append(_error(one.predicted, us))
            found.near.append(_error(near.time / 1e6, us))
    return found


def _entry(one: Record, us: float) -> Entry:
    spec = one.found.spec
    fields, version = json.loads(spec.to_json()), template_version(spec.row.template)
    return Entry("h200", one.shape, fields, us, 1, None, version, RUN.name)


def _error(predicted: float, measured: float) -> float:
    ratio = predicted / measured
    return max(ratio, 1 / ratio) - 1


def off(records: Sequence[Record]) -> dict[str, float]:
    """A factor for each variant."""
    draw = random.Random(0)
    names = dict.fromkeys(one.found.spec.variant for one in records)
    return {name: math.exp(draw.uniform(-OFF, OFF)) for name in names}


def main() -> None:
    """Prints a table."""
    records = read(H200)
    two = "model alone | with those near by"
    print(f"| times | records | median error, {two} | nine in ten, {two} |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, factors in (("as recorded", {}), ("each kernel off by a factor", off(records))):
        found = errors(records, factors)
        cells = [name, str(len(found.alone))]
        cells += [f"{statistics.median(each):.1%}" for each in found]
        cells += [f"{sorted(each)[len(each) * 9 // 10]:.0%}" for each in found]
        print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
