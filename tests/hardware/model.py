"""A script: what the cost model of `gen.dispatch` says beside the times that docs/lab records.

    python -m tests.hardware.model [FILE.json]...

prints, for each kernel of the files (by default docs/lab/model/h200.json), the time that was
measured and the one that the model predicts, and then how far these are apart. A file has a GPU's
name and rows with a page, microseconds, a shape, and a specification as `gen bench --spec` takes
it.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from gen.device.gpus import GpuModel, find_gpu
from gen.dispatch.ranking import Product, Ranked, ranked
from gen.kernels.registry import make_spec
from gen.spec.problem import parse_shape
from tests import ROOT

H200 = ROOT / "docs" / "lab" / "model" / "h200.json"


class Record(NamedTuple):
    """A kernel that was measured, and what the model says of it. Times are in microseconds."""

    page: str
    shape: str
    measured: float
    found: Ranked

    @property
    def predicted(self) -> float:
        return self.found.time / 1e6

    @property
    def error(self) -> float:
        """How far the longer time is above the shorter one."""
        ratio = self.predicted / self.measured
        return max(ratio, 1 / ratio) - 1


def read(path: Path) -> list[Record]:
    """The records of a file."""
    contents = json.loads(path.read_text(encoding="utf-8"))
    return [_record(row, find_gpu(contents["gpu"])) for row in contents["rows"]]


def _record(row: dict[str, Any], gpu: GpuModel) -> Record:
    spec = make_spec(**row["spec"])
    product = Product.packed(parse_shape(row["shape"]), spec.dtypes, spec.layouts)
    return Record(row["page"], row["shape"], row["us"], ranked(spec, product, gpu))


def main() -> None:
    """Prints both times of each record; then, by kernel, the errors."""
    records = [r for path in sys.argv[1:] or [H200] for r in read(Path(path))]
    print("| kernel | tile | shape | measured, us | predicted | ratio | from |")
    print("|---|---|---|--:|--:|--:|---|")
    for r in records:
        t = r.found.spec.tunables
        how = " ".join(
            word
            for word, has in (
                (str(t.get("threadblock", t.get("tile", ""))), True),
                ("pingpong", t.get("schedule") == "pingpong"),
                ("stream-K", t.get("stream_k")),
                ("slices", r.found.spec.split_k != 1),
            )
            if has and word
        )
        spec = r.found.spec
        name = f"`{spec.variant}` {spec.dtypes.name} {spec.layouts}"
        cells = name, how, r.shape, f"{r.measured:.4g}", f"{r.predicted:.4g}"
        print("|", " | ".join([*cells, f"{r.predicted / r.measured:.2f}", r.page]), "|")
    print("\n| kernel | records | median error | largest |\n|---|--:|--:|--:|")
    for name in dict.fromkeys(r.found.spec.variant for r in records):
        _errors(f"`{name}`", [r for r in records if r.found.spec.variant == name])
    _errors("all", records)


def _errors(name: str, records: list[Record]) -> None:
    errors = [r.error for r in records]
    print(f"| {name} | {len(errors)} | {statistics.median(errors):.1%} | {max(errors):.0%} |")


if __name__ == "__main__":
    main()
