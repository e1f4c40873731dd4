"""Is an edited kernel as accurate as what `gen emit` writes?

The oracle's bound has room for sums in any order, so also for such as are rounded toward zero. But
errors to nearest mostly cancel out, where those in one direction add up: of positive numbers, with
a long K, they are tens of times as large. So both kernels are tried, and their errors compared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gen.compile import nvrtc
from gen.device.emulated import EmulatorRunner, default_budget
from gen.device.execute import Case, products, results, run_kernel
from gen.errors import CheckError
from gen.prove.compare import exact_results
from gen.prove.inputs import draw_operands
from gen.prove.trials import WHOLE, trial
from gen.source.render import render
from gen.spec import numerics
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

SHAPE = GemmShape(40, 24, 1000)
_SHAPES = (GemmShape(40, 24, 66), SHAPE)  # in short sums there is less that hides a few roundings
# Another order makes errors a few times as large: one sum in place of the eight of as many teams
# by the root of 8.
MOST = 4
_SURE = 8  # standard errors of a mean


class Errors(NamedTuple):
    """Of D's relative errors: the root mean square, the mean, and how far chance takes that."""

    size: float
    mean: float
    chance: float


def less_accurate(spec: KernelSpec, module: nvrtc.Module) -> tuple[GemmShape, str] | None:
    """What is to say of an edited kernel whose results are right, and worse than emitted ones.

    Nothing of integers, of epilogues of the user's own, and of f64, whose oracle errs as well.
    """
    if not spec.dtypes.accumulator.is_float or spec.dtypes.scalar.size == 8 or spec.fused:
        return None
    emitted = nvrtc.compile_cuda(render(spec).text, name=f"{spec.name}.cu", arch=spec.arch)
    for shape in _SHAPES if emitted.code != module.code else ():
        problem = trial(spec, shape, "positive", (1, 0), WHOLE).problem
        try:
            ours, theirs = (_errors(spec, each, problem) for each in (emitted, module))
        except CheckError as error:
            return shape, str(error)
        if text := complaint(ours, theirs):
            return shape, text
    return None


def complaint(ours: Errors, theirs: Errors) -> str:
    """What is to say of `theirs`, where right kernels have `ours`."""
    size = not theirs.size <= MOST * ours.size
    if not size and abs(theirs.mean) <= MOST * abs(ours.mean) + _SURE * theirs.chance:
        return ""
    what, number, other = (
        ("root mean square", theirs.size, ours.size) if size else ("mean", theirs.mean, ours.mean)
    )
    return (
        f"positive random inputs: the {what} of relative errors is {number:.3g}, and {other:.3g} "
        "of the kernel that gen emits: sums are rounded another way, such as toward zero"
    )


def _errors(spec: KernelSpec, module: nvrtc.Module, problem: GemmProblem) -> Errors:
    operands = draw_operands(spec, problem, "positive")
    runner = EmulatorRunner()
    runner.budget = default_budget(spec, problem)
    got = results(spec, problem, run_kernel(spec, runner, module, Case(problem, operands)))
    if spec.stacked:
        each = products(spec.layouts, problem, operands)
        exact = np.stack([exact_results(spec, one, own) for one, own in each])
    else:
        exact = exact_results(spec, problem, operands)
        got = got[: len(exact)]
    some = exact != 0  # not empty sums
    if not some.any():
        return Errors(0, 0, 0)
    errors = numerics.to_float64(got, spec.dtypes.output.name)[some] / exact[some] - 1
    chance = np.std(errors) / np.sqrt(errors.size)
    return Errors(float(np.sqrt(np.mean(errors**2))), float(np.mean(errors)), float(chance))
