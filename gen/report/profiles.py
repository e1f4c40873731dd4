"""What `gen profile --json` wrote, to be shown with the kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gen.bench.results import read_json
from gen.errors import UsageError
from gen.kernels.registry import spec_from_json
from gen.spec.names import portable_symbol
from gen.tables import Cell, Table, count, number


@dataclass(frozen=True)
class KernelProfile:
    """One kernel's counters on one shape: sentences, and tables of numbers.

    `kernel` is its name on any GPU: benchmarks and profiles are of kernels for different ones.
    """

    kernel: str
    title: str
    verdict: list[str]
    tables: list[Table]

    @property
    def id(self) -> str:
        """Part of the ids of its tables."""
        return re.sub(r"\W+", "-", self.title)


class Profiles(NamedTuple):
    """A file's profiles, and sentences that compare them."""

    kernels: Sequence[KernelProfile] = ()
    comparison: Sequence[str] = ()


def read(path: Path) -> Profiles:
    """The profiles in a file; none where it is of another kind. Raises UsageError."""
    try:
        content = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Profiles()  # said by the reader of benchmarks
    if not isinstance(content, dict) or "format" in content or "kernels" not in content:
        return Profiles()
    try:
        kernels = [_profile(fields, content["gpu"]) for fields in content["kernels"]]
        return Profiles(kernels, list(content.get("comparison", [])))
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not what gen profile --json writes: {error}") from None


def _profile(fields: Mapping[str, Any], gpu: str) -> KernelProfile:
    title = f"Counters on {fields['shape']}, as on {gpu}"
    tables = [_totals(fields), _lines(fields["lines"])]
    spec = spec_from_json(json.dumps(fields["spec"]))
    return KernelProfile(portable_symbol(spec), title, list(fields["verdict"]), tables)


def _totals(fields: Mapping[str, Any]) -> Table:
    """Every counter that is not 0: instructions, then accesses by kind."""
    rows = []
    for name, value in fields["counters"].items():
        if isinstance(value, (int, float)) and value:
            rows.append([Cell(_words(name)), count(value), *[Cell("")] * 3])
        elif isinstance(value, dict) and value.get("requests"):
            each = value["parts"] / value["requests"]
            best = value["ideal"] / value["requests"]
            counts = (count(value["parts"]), count(value["requests"]))
            rows.append([Cell(_words(name)), *counts, number(each), number(best)])
    columns = ["counter", "count", "requests", "each", "at best"]
    note = "Of global memory sectors are counted, of shared memory wavefronts."
    return Table("Totals", columns, rows, note)


def _lines(lines: list[Mapping[str, Any]]) -> Table:
    rows = [
        [
            Cell(str(line["line"]), line["line"]),
            Cell(f"{line['space']} {line['kind']}"),
            count(line["parts"]),
            number(line["parts"] / line["requests"]),
            number(line["ideal"] / line["requests"]),
            Cell(line["text"]),
        ]
        for line in lines
        if line["requests"]
    ]
    columns = ["line", "access", "count", "each", "at best", "source"]
    return Table("By line", columns, rows)


def _words(name: str) -> str:
    return name.replace("_", " ")
