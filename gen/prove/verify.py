"""Proof that a kernel computes what it should, in two kinds of cases per shape.

- *integer*: integer-valued inputs so small that every sum is exact in the accumulator. The result
  must equal, bit for bit, a CUTLASS GEMM run on the same device and an independent numpy oracle.
- *random*: uniform inputs; every element must lie within the proven bound of its rounding errors
  (integer types have none: their sums wrap around, and must again be equal bit for bit).

Nothing is taken on trust: leading dimensions are longer than the rows, with poison in between; D
is full of poison before the launch; where beta is 0, so is C, or it has no elements; buffers are
guarded on all sides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gen.compile import nvrtc
from gen.device.execute import FindingsError, Operands, run_kernel
from gen.device.runner import Runner
from gen.errors import BudgetError, CheckError, PtxError
from gen.prove import cutlass, oracle
from gen.prove.inputs import draw_operands
from gen.source.render import Source, render
from gen.spec import numerics
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

if TYPE_CHECKING:
    from gen.emulator import Finding


@dataclass(frozen=True)
class CaseResult:
    """One launch and its verdict.

    `worst` is the largest error as a fraction of its bound: 0 where all bits agree, infinite where
    an element without tolerance differs or is NaN. `message` is empty where `ok`.
    """

    kind: str
    problem: GemmProblem
    ok: bool
    worst: float
    seconds: float
    message: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class ShapeResult:
    """All cases of one kernel on one shape."""

    spec: KernelSpec
    shape: GemmShape
    cases: tuple[CaseResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every case is right."""
        return all(case.ok for case in self.cases)

    @property
    def worst(self) -> float:
        """The largest error of all cases, as a fraction of its bound."""
        return max(case.worst for case in self.cases)

    @property
    def seconds(self) -> float:
        """Time in the kernel, over all cases."""
        return sum(case.seconds for case in self.cases)

    @property
    def message(self) -> str:
        """What is wrong first, or nothing."""
        return next((case.message for case in self.cases if case.message), "")


class Case(NamedTuple):
    """What a shape is tried with. `padding` separates rows (or columns) in every matrix.

    Leading dimensions are multiples of `multiple` elements, and every matrix starts `skip` elements
    behind a well-aligned address.
    """

    kind: str
    alpha: float
    beta: float
    padding: int
    multiple: int = 1
    skip: int = 0


# alpha and beta are neither 0 nor 1, and exact in every accumulator; then beta = 0, packed. Last,
# what most callers want, and a kernel may treat apart: nothing but the product.
_RANDOM = {True: Case("random", 1.5, -0.75, 5), False: Case("random", -7, 5, 5)}
CASES = {
    exact: (Case("integer", 3, -2, 3), Case("integer", 2, 0, 0), random, Case("integer", 1, 0, 0))
    for exact, random in _RANDOM.items()
}
# The same where how a kernel runs depends on where the operands lie: nothing aligned; lines of
# whole units of 16 bytes, of any type; packed, so that it depends on the shape.
_UNIT = 16
PLANNED_CASES = {
    exact: (
        first._replace(skip=1),
        second._replace(multiple=_UNIT),
        third._replace(padding=0),
        product,
    )
    for exact, (first, second, third, product) in CASES.items()
}
# And where a line of D is whole units: a matrix that starts inside of one, though its lines are as
# long as units; lines of D in order and C's not, and the other way round (D's are 2 longer). The
# same goes for those of B and A if they are whole units, too. The last has an alpha of 1 and a beta
# that is not 0: a kernel that treats sums apart which are D as they are has to look at both.
WHOLE_LINES = (
    Case("integer", 2, -1, _UNIT, _UNIT, 1),
    Case("integer", 3, -2, _UNIT - 2),
    Case("integer", 1, -2, _UNIT),
)


def default_shapes(spec: KernelSpec) -> list[GemmShape]:
    """Shapes that reach every edge of a kernel, derived from its tile.

    One element; one less than the tile, the tile, one more; odd and even numbers of tiles; primes;
    an empty D, an empty sum; long and thin both ways and along K.
    """
    m, n, k = spec.threadblock
    sizes = [
        (1, 1, 1),
        (m - 1, n - 1, k - 1),
        (m, n, k),
        (m + 1, n + 1, k + 1),
        (2 * m, 3 * n, 2),
        (m + 1, n + 1, 2 * k),
        (3 * m - 1, 2 * n - 1, k + 1),
        (37, 53, 61),
        (0, 5, 7),
        (5, 0, 7),
        (5, 7, 0),
        (1, 521, 3),
        (523, 1, 3),
        (2, 3, 1031),
    ]
    return [GemmShape(*size) for size in dict.fromkeys(sizes)]


def verify(
    spec: KernelSpec,
    runner: Runner,
    shapes: Sequence[GemmShape] | None = None,
    source: Source | None = None,
) -> Iterator[ShapeResult]:
    """Runs a kernel on `runner` over shapes (see `default_shapes`), one result after another.

    `source` replaces the text that the specification renders to. Raises CompileError where it does
    not compile, PtxError for an instruction that the emulator does not know; a mismatch or a
    finding is a result, not an error.
    """
    text = (source or render(spec)).text
    module = nvrtc.compile_cuda(
        text, name=f"{spec.name}.cu", arch=runner.target(spec.arch), format=runner.format
    )
    for shape in default_shapes(spec) if shapes is None else shapes:
        yield verify_shape(spec, runner, module, shape)


def verify_shape(
    spec: KernelSpec,
    runner: Runner,
    module: nvrtc.Module,
    shape: GemmShape,
    reference_runner: Runner | None = None,
) -> ShapeResult:
    """Runs all cases of one shape.

    `reference_runner` runs CUTLASS instead of `runner`. Raises BudgetError where the runner has a
    budget and the kernel exceeds it, PtxError for an instruction that the emulator does not know.
    """
    on = reference_runner or runner
    cases = (_run_case(spec, runner, module, shape, case, on) for case in _cases(spec, shape))
    return ShapeResult(spec, shape, tuple(cases))


def _cases(spec: KernelSpec, shape: GemmShape) -> tuple[Case, ...]:
    exact = spec.dtypes.accumulator.is_float
    if not spec.row.depends_on_alignment:
        return CASES[exact]
    line = shape.n if spec.layouts.c else shape.m
    return PLANNED_CASES[exact] + (WHOLE_LINES if line % _UNIT == 0 else ())


def _run_case(
    spec: KernelSpec,
    runner: Runner,
    module: nvrtc.Module,
    shape: GemmShape,
    case: Case,
    reference_runner: Runner,
) -> CaseResult:
    problem = GemmProblem.packed(
        shape, spec.layouts, case.alpha, case.beta, case.padding, case.multiple
    )
    operands = draw_operands(spec, problem, case.kind)
    seconds, findings = 0.0, tuple["Finding", ...]()
    try:
        start = time.perf_counter()
        storage = run_kernel(spec, runner, module, problem, operands, case.skip)
        seconds = time.perf_counter() - start
        worst, message = _compare(spec, reference_runner, problem, case.kind, operands, storage)
    except (BudgetError, PtxError):  # nothing was tried to its end
        raise
    except FindingsError as error:
        worst, message, findings = np.inf, str(error), error.findings
    except CheckError as error:
        worst, message = np.inf, str(error)
    if message:
        message = f"{case.kind} inputs, alpha={case.alpha}, beta={case.beta}: {message}"
    return CaseResult(case.kind, problem, not message, worst, seconds, message, findings)


def _compare(
    spec: KernelSpec,
    runner: Runner,
    problem: GemmProblem,
    kind: str,
    operands: Operands,
    storage: np.ndarray,
) -> tuple[float, str]:
    """The worst error as a fraction of its bound, and what is wrong, if anything."""
    dtypes, shape = spec.dtypes, problem.shape
    got = numerics.unpack(storage, shape.m, shape.n, spec.layouts.c, problem.ldd)
    untouched = numerics.pack(got, spec.layouts.c, problem.ldd, dtypes.output.name)
    if untouched.tobytes() != storage.tobytes():
        return np.inf, "the gap between rows of D was overwritten"
    is_exact = kind == "integer" and not spec.epilogue.endswith("gelu")
    if not is_exact and dtypes.accumulator.is_float:
        return within_bound(spec, problem, operands, got)
    exact = oracle.oracle(*_arguments(spec, problem, operands))
    if dtypes.output.is_float:
        exact = numerics.from_float64(exact, dtypes.output.name)
    reference = cutlass.cutlass_gemm(runner, spec, problem, operands)
    for other, name in ((exact, "the oracle"), (reference, "CUTLASS")):
        message = _first_difference(got, other, dtypes.output.name, name)
        if message:
            return np.inf, message
    return 0.0, ""


_Inputs = tuple[np.ndarray, np.ndarray, np.ndarray, float, float, str, oracle.After]


def _arguments(spec: KernelSpec, problem: GemmProblem, x: Operands) -> _Inputs:
    after = oracle.After(spec.epilogue, x.bias)
    return x.a, x.b, x.c, problem.alpha, problem.beta, spec.dtypes.name, after


def within_bound(
    spec: KernelSpec, problem: GemmProblem, operands: Operands, got: np.ndarray
) -> tuple[float, str]:
    """D (M x N, of storage) against the oracle.

    Returns the worst error as a fraction of its bound, and what is wrong, if anything.
    """
    arguments = _arguments(spec, problem, operands)
    bound = oracle.error_bound(*arguments, sums=oracle.sums_of(spec))
    exact = oracle.oracle(*arguments)
    return _within(numerics.to_float64(got, spec.dtypes.output.name), exact, bound)


def _first_difference(got: np.ndarray, want: np.ndarray, dtype: str, who: str) -> str:
    # Bits, not values: NaN equals nothing, and 0 equals -0. A sum that starts at +0 never ends
    # at -0 unless alpha makes it so, on both sides alike.
    wrong = np.argwhere(_bits(got) != _bits(want))
    if not len(wrong):
        return ""
    i, j = (int(x) for x in wrong[0])
    values = (numerics.to_float64(x[i, j], dtype) for x in (got, want))
    left, right = (f"{float(v):.9g}" for v in values)
    return f"D({i}, {j}) is {left}, {who} has {right}; {len(wrong)} of {got.size} elements differ"


def _bits(matrix: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(matrix).view(f"u{matrix.itemsize}")


def _within(got: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> tuple[float, str]:
    error = np.abs(got - exact)
    good = error <= bound  # False for NaN
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / bound)
    worst = float(np.max(np.where(np.isnan(ratio), np.inf, ratio), initial=0.0))
    if good.all():
        return worst, ""
    i, j = (int(x) for x in np.argwhere(~good)[0])
    return worst, (
        f"D({i}, {j}) is {got[i, j]:.9g}, exact is {exact[i, j]:.9g}: the error is beyond the "
        f"bound {bound[i, j]:.3g}; {np.count_nonzero(~good)} of {got.size} elements"
    )
