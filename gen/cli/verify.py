"""`gen verify`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated

import typer

from gen.cli import verify_table
from gen.cli.options import ALL, ARCH, JSON, LAYOUT, VARIANT, select
from gen.cli.progress import progress
from gen.cli.tables import Growing
from gen.cli.workers import JOBS, ON, Team, team
from gen.errors import SpecError, UsageError
from gen.kernels.registry import with_defaults_of
from gen.kernels.tunables import Value
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, parse_shape
from gen.spread.processes import cores

if TYPE_CHECKING:
    from gen.device.runner import Runner
    from gen.prove.proofs import Proofs
    from gen.prove.verify import ShapeResult
    from gen.spread.place import Place


def verify(
    variant: Annotated[list[str] | None, VARIANT] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", metavar="TYPE", help="Element types; default: all; repeatable."),
    ] = None,
    layout: Annotated[list[str] | None, LAYOUT] = None,
    arch: Annotated[str | None, ARCH] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="MxNxK",
            help="Problem size; default: sizes that reach every edge of a tile; repeatable.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="DEVICE", help="Where to run: auto, gpu, or cpu (the emulator)."
        ),
    ] = "auto",
    each: Annotated[bool, typer.Option("--each", help="Print a row for each shape.")] = False,
    json: Annotated[bool, JSON] = False,
    jobs: Annotated[int | None, JOBS] = None,
    on: Annotated[str | None, ON] = None,
    **tunables: Value | None,
) -> None:
    from gen.prove.proofs import Proofs

    if on and jobs:
        raise UsageError(f"--on {on} has its own workers; leave out --jobs {jobs}")
    specs = select(variant or [ALL], dtype or [], layout or ["rrr"], arch, tunables)
    shapes = [parse_shape(text) for text in shape] if shape else None
    named = [*(variant or ()), *(dtype or ())]
    job = Proofs(device)
    with team(on, device, jobs=jobs or cores()) as who:
        right = _verify(specs, shapes, who, job, each or bool(shape), json, named)
    if not right:
        raise typer.Exit(1)


def _verify(
    specs: Sequence[KernelSpec],
    shapes: Sequence[GemmShape] | None,
    who: Team,
    job: Proofs,
    each: bool,
    json: bool,
    named: Collection[str],
) -> bool:
    from gen.prove.limits import emulated
    from gen.prove.proofs import Proof
    from gen.prove.verify import default_shapes

    place = who.place
    specs = _runnable(specs, place, named)
    if place.finds_reads:  # the emulator
        emulated(shapes or ())
    every = [[Proof(spec, shape) for shape in shapes or default_shapes(spec)] for spec in specs]
    proofs = [proof for some in every for proof in some]
    titles = (
        [str(p.shape) for p in proofs] if each else [verify_table.shapes_of(len(e)) for e in every]
    )
    found = _Found([len(some) for some in every], each)
    table: Growing | None = None
    try:
        with progress("verifying", len(proofs)) as step:
            if not json:
                table = verify_table.growing_results(specs, titles, place.name)
            for index, result in who.map(job, proofs, step):
                found.results[index] = result
                for row in found.rows():
                    if table:
                        table.add(verify_table.result_row(row, place.name))
    finally:  # also what was done before an interruption or an error
        kernels, left = found.kernels()
        if json:
            verify_table.results_as_json(found.in_order(), place.name, not left)
        elif table and kernels:
            for row in found.rows(last=True):
                table.add(verify_table.result_row(row, place.name))
            verify_table.failures(kernels, each, left)
    return not left and all(result.ok for group in kernels for result in group)


class _Found:
    """Results by their indices, which come in any order; `counts` of them for each kernel.

    A kernel of which a result is wrong is known, one is right when all of them are.
    """

    def __init__(self, counts: Sequence[int], each: bool) -> None:
        self.results: dict[int, ShapeResult] = {}
        ends = list(accumulate(counts))
        self._kernels = [range(end - count, end) for end, count in zip(ends, counts, strict=True)]
        self._rows = deque([range(i, i + 1) for i in range(sum(counts))] if each else self._kernels)

    def in_order(self) -> list[ShapeResult]:
        """All of them."""
        return self._of(range(self._kernels[-1].stop))

    def kernels(self) -> tuple[list[list[ShapeResult]], int]:
        """The results of each kernel that is known, and how many are not."""
        known = [self._of(kernel) for kernel in self._kernels if self._known(kernel)]
        return known, len(self._kernels) - len(known)

    def rows(self, last: bool = False) -> Iterator[list[ShapeResult]]:
        """The rows that can be printed next, in their order: `last`, if something is missing."""
        while self._rows and (last or len(self._of(self._rows[0])) == len(self._rows[0])):
            row = self._rows.popleft()
            if self._known(row):
                yield self._of(row)

    def _known(self, indices: range) -> bool:
        found = self._of(indices)
        return len(found) == len(indices) or not all(result.ok for result in found)

    def _of(self, indices: range) -> list[ShapeResult]:
        return [self.results[i] for i in indices if i in self.results]


def _runnable(
    specs: Sequence[KernelSpec], place: Place | Runner, named: Collection[str] = ()
) -> list[KernelSpec]:
    """The kernels that the device has the instructions and the memory for; notes on the others.

    Raises SpecError where there are none, or none with the name of a kernel or of element types in
    `named`, or not the kernel that has both.
    """
    found, why = [], {}
    for spec in specs:
        try:
            found.append(with_defaults_of(spec, place.target(spec.arch)))
        except SpecError as error:
            why[spec.variant, spec.dtypes.name] = error
    have = {name for spec in found for name in (spec.variant, spec.dtypes.name)}
    for (variant, dtype), reason in why.items():
        own = {variant, dtype} & set(named)
        if not found or len(own) == 2 or own - have:
            raise reason
    for (variant, dtype), reason in why.items():
        print(f"note: {variant} {dtype} is left out on {place.name}: {reason}", file=sys.stderr)
    return found
