"""`gen verify`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gen.cli.options import ALL, ARCH, JSON, LAYOUT, VARIANT, select
from gen.errors import SpecError
from gen.kernels.registry import with_defaults_of
from gen.kernels.tunables import Value
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, parse_shape

if TYPE_CHECKING:
    from gen.device.runner import Runner
    from gen.prove.verify import ShapeResult


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
    **tunables: Value | None,
) -> None:
    """Run kernels; compare with CUTLASS and an oracle."""
    specs = select(variant or [ALL], dtype or [], layout or ["rrr"], arch, tunables)
    shapes = [parse_shape(text) for text in shape] if shape else None
    named = [*(variant or ()), *(dtype or ())]
    if not _verify(specs, shapes, device, each or bool(shape), json, named):
        raise typer.Exit(1)


def _verify(
    specs: Sequence[KernelSpec],
    shapes: Sequence[GemmShape] | None,
    device: str,
    each: bool,
    json: bool,
    named: Collection[str],
) -> bool:
    from gen.cli import tables
    from gen.device.choose import choose_runner
    from gen.device.driver import why_no_gpu
    from gen.prove.trials import emulated
    from gen.prove.verify import default_shapes
    from gen.prove.verify import verify as verify_kernel

    runner = choose_runner(device)
    reason = why_no_gpu() if device == "auto" else None
    print(f"device: {runner.name}" + (f" ({reason})" if reason else ""), file=sys.stderr)
    specs = _runnable(specs, runner, named)
    if runner.finds_reads:  # the emulator
        emulated(shapes or ())
    found: list[list[ShapeResult]] = []
    counts = [len(shapes or default_shapes(spec)) for spec in specs]
    try:
        with tables.progress("verifying", sum(counts)) as step:
            every = [shapes or default_shapes(spec) for spec in specs] if each else []
            titles = [str(shape) for some in every for shape in some]
            titles += [] if each else [tables.shapes_of(count) for count in counts]
            table = None if json else tables.growing_results(specs, titles, runner.name)
            for spec in specs:
                step.now(f"verifying {spec.variant} {spec.dtypes.name}")
                results = []
                for result in verify_kernel(spec, runner, shapes):
                    results.append(result)
                    if table and each:
                        table.add(tables.result_row([result], runner.name))
                    step()
                found.append(results)
                if table and not each:
                    table.add(tables.result_row(results, runner.name))
    finally:  # also what was done before an interruption or an error
        left = len(specs) - len(found)
        if json:
            tables.results_as_json(found, runner.name, not left)
        elif found:
            tables.failures(found, each, left)
    return all(result.ok for results in found for result in results)


def _runnable(
    specs: Sequence[KernelSpec], runner: Runner, named: Collection[str] = ()
) -> list[KernelSpec]:
    """The kernels that the device has the instructions and the memory for; notes on the others.

    Raises SpecError where there are none, or none with the name of a kernel or of element types in
    `named`, or not the kernel that has both.
    """
    found, why = [], {}
    for spec in specs:
        try:
            found.append(with_defaults_of(spec, runner.target(spec.arch)))
        except SpecError as error:
            why[spec.variant, spec.dtypes.name] = error
    have = {name for spec in found for name in (spec.variant, spec.dtypes.name)}
    for (variant, dtype), reason in why.items():
        own = {variant, dtype} & set(named)
        if not found or len(own) == 2 or own - have:
            raise reason
    for (variant, dtype), reason in why.items():
        print(f"note: {variant} {dtype} is left out on {runner.name}: {reason}", file=sys.stderr)
    return found
