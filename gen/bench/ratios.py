"""Our best kernel against the best peer: on each problem, and over classes of problems."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gen.bench.results import OURS, PEER, Results, Row, fastest, find
from gen.bench.sizes import parse_size
from gen.files import write
from gen.tables import geometric_mean

# Classes by the rows of A and D: of one product after another, memory sets the time of the first,
# tensor cores that of the last.
_BANDS = ((1, 8), (9, 63), (64, 511), (512, None))
_ALL = "all"


class Ratio(NamedTuple):
    """One problem: the fastest of our kernels and the fastest of the peers."""

    ours: Row
    peer: Row

    @property
    def value(self) -> float:
        """The peer's time over ours: above 1 we are faster."""
        return (self.peer.ms_median or 0.0) / (self.ours.ms_median or 1.0)

    @property
    def shape(self) -> str:
        """The problem's."""
        return self.ours.shape


class Class(NamedTuple):
    """Problems of the same types, layouts and about as many rows."""

    dtype: str
    layout: str
    rows: str
    ratios: Sequence[Ratio]

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return geometric_mean(found.value for found in self.ratios) or 0.0

    @property
    def least(self) -> Ratio:
        """The problem on which we are the slowest."""
        return min(self.ratios, key=lambda found: found.value)


def ratios(rows: Iterable[Row]) -> list[Ratio]:
    """One for each problem that a kernel of ours and a peer have solved, in the order of rows."""
    problems: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        problems.setdefault(row.problem, []).append(row)
    found = []
    for solved in problems.values():
        ours, peer = (fastest(find(solved, kind=kind)) for kind in (OURS, PEER))
        if ours and peer:
            found.append(Ratio(ours, peer))
    return found


def classes(found: Sequence[Ratio]) -> list[Class]:
    """The classes of these problems, and one of all for each type and layout with several."""
    groups: dict[tuple[str, str], dict[str, list[Ratio]]] = {}
    for one in found:
        group = groups.setdefault((one.ours.dtype, one.ours.layout), {name: [] for name in _NAMES})
        group[_band(parse_size(one.shape).m)].append(one)
        group[_ALL].append(one)
    made = []
    for types, group in groups.items():
        filled = {name: of for name, of in group.items() if of}
        if len(filled) == 2:  # one class alone is all
            del filled[_ALL]
        made += [Class(*types, name, of) for name, of in filled.items()]
    return made


def _name(least: int, most: int | None) -> str:
    return f"{least} to {most}" if most else f"{least} and more"


_NAMES = (*(_name(*band) for band in _BANDS), _ALL)


def _band(rows: int) -> str:
    return next(_name(*band) for band in _BANDS if band[1] is None or rows <= band[1])


def to_json(results: Results) -> str:
    """The results' text with one field more, `against_best_peer`."""
    found = ratios(results.rows)
    content: dict[str, Any] = json.loads(results.to_json())
    content["against_best_peer"] = {
        "problems": [
            {
                **dict(zip(("dtype", "layout", "shape"), one.ours.problem, strict=True)),
                "ours": one.ours.contender,
                "peer": one.peer.contender,
                "ratio": one.value,
            }
            for one in found
        ],
        "classes": [
            {
                "dtype": one.dtype,
                "layout": one.layout,
                "rows": one.rows,
                "problems": len(one.ratios),
                "geometric_mean": one.mean,
                "least": one.least.value,
                "least_shape": one.least.shape,
            }
            for one in classes(found)
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def save(results: Results, path: Path) -> None:
    """Writes the results with their ratios, as `results.save` does. Raises UsageError."""
    write(to_json(results).encode(), path)
