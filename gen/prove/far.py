"""Problems too large to store: by what is far away, in parts that processes may share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from gen.compile.nvrtc import Module
from gen.emulator import Observer
from gen.errors import CheckError, MissingError
from gen.prove.far_batches import far_batches
from gen.prove.far_indices import FarResult, far_results
from gen.prove.far_tiles import far_tiles
from gen.prove.long_sums import long_sums
from gen.spec.kernel import KernelSpec


class Far(NamedTuple):
    """What is far away, one of `FAR`; watched: whether races between lines are looked for."""

    what: str
    watched: bool = True


_PARTS = {"lines": far_results, "tiles": far_tiles, "products": far_batches, "sums": long_sums}
FAR = tuple(map(Far, _PARTS))
NEARER = (Far("lines", watched=False), Far("products"))  # in a second


class FarOutcome(NamedTuple):
    """What became of a part: its problems, what ended it early, and what was not tried, and why.

    lines: of CUDA that have run.
    """

    results: Sequence[FarResult] = ()
    error: CheckError | None = None
    skipped: str = ""
    lines: frozenset[int] = frozenset()


class _Lines(Observer):
    """The CUDA lines that have run in the launches that it watches: their programs know them."""

    def __init__(self) -> None:
        self._programs: dict[int, Any] = {}

    def begin(self, chunk: Any) -> None:
        """See Observer."""
        program = chunk.launch.program
        self._programs[id(program)] = program

    def run(self) -> frozenset[int]:
        """The lines."""
        return frozenset().union(*(each.lines_run() for each in self._programs.values()))


def run_far(
    spec: KernelSpec,
    module: Module,
    part: Far,
    deadline: float | None,
    observers: Sequence[Observer] = (),
) -> FarOutcome:
    """Runs the problems of a part. deadline, observers: see `far_indices.far_results`."""
    results: list[FarResult] = []
    lines, skipped, ended = _Lines(), "", None
    problems: Any = _PARTS[part.what]
    if not part.watched:
        problems = partial(problems, watched=False)
    try:
        for result in problems(spec, module, deadline, [lines, *observers]):
            results.append(result)
    except MissingError as error:
        skipped = f"{part.what} more than 2^32 elements behind the first: {error}"
    except CheckError as error:
        ended = error
    return FarOutcome(results, ended, skipped, lines.run())
