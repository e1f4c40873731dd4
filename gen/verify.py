"""Proof that a kernel computes what it should, in two kinds of cases per shape.

- *integer*: integer-valued inputs so small that every sum is exact in the accumulator. The result
  must equal, bit for bit, a CUTLASS GEMM run on the same device and an independent numpy oracle.
- *random*: uniform inputs; every element must lie within the proven bound of its rounding errors
  (integer types have none: their sums wrap around, and must again be equal bit for bit).

Nothing is taken on trust: leading dimensions are longer than the rows, with poison in between; D
is full of poison before the launch; where beta is 0, C is poison too; buffers are guarded on all
sides.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gen import numerics, nvrtc, reference
from gen.errors import CheckError
from gen.registry import LaunchConfig, geometry, launch_config
from gen.render import Source, render
from gen.runner import Runner
from gen.spec import DTypes, GemmProblem, GemmShape, KernelSpec


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
    """What a shape is tried with. `padding` separates rows (or columns) in every matrix."""

    kind: str
    alpha: float
    beta: float
    padding: int


# alpha and beta are neither 0 nor 1, and exact in every accumulator; then beta = 0, packed.
CASES = {
    True: (Case("integer", 3, -2, 3), Case("integer", 2, 0, 0), Case("random", 1.5, -0.75, 5)),
    False: (Case("integer", 3, -2, 3), Case("integer", 2, 0, 0), Case("random", -7, 5, 5)),
}


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
    not compile; a mismatch or a finding is a result, not an error.
    """
    text = (source or render(spec)).text
    module = nvrtc.compile_cuda(
        text, name=f"{spec.name}.cu", arch=runner.target(spec.arch), format=runner.format
    )
    for shape in default_shapes(spec) if shapes is None else shapes:
        cases = (_run_case(spec, runner, module, shape, case) for case in _cases(spec))
        yield ShapeResult(spec, shape, tuple(cases))


def _cases(spec: KernelSpec) -> tuple[Case, ...]:
    return CASES[spec.dtypes.accumulator.is_float]


class Operands(NamedTuple):
    """A, B, C as matrices (m x k, k x n, m x n) of their storage dtype; D's storage before."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d_storage: np.ndarray


def _integer_range(dtypes: DTypes, k: int) -> int:
    """The largest magnitude of inputs for which alpha * A * B + beta * C is exact, at most 8.

    A float accumulator with p bits is exact up to 2^p: alpha (3) * k * r^2 + beta (2) * r.
    """
    bits = {"f32": 24, "f64": 53}.get(dtypes.accumulator.name, 31)
    r = 8
    while r > 1 and 3 * k * r * r + 2 * r >= 2**bits:
        r -= 1
    return r


def _draw(
    rng: np.random.Generator, shape: tuple[int, int], kind: str, dtype: str, most: int
) -> np.ndarray:
    storage = numerics.storage_dtype(dtype)
    if kind == "integer":
        values = rng.integers(-most, most + 1, shape)
        return (
            values.astype(storage)
            if storage.kind == "i"
            else numerics.from_float64(values.astype(np.float64), dtype)
        )
    if storage.kind == "i":
        info = np.iinfo(storage)
        return rng.integers(info.min, info.max, shape, storage, endpoint=True)
    return numerics.from_float64(rng.uniform(-1, 1, shape), dtype)


def _operands(spec: KernelSpec, problem: GemmProblem, kind: str) -> Operands:
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    seed = zlib.crc32(f"{problem} {kind}".encode())  # the same inputs in every run
    rng = np.random.default_rng(seed)
    most = _integer_range(spec.dtypes, k)
    input_, output = spec.dtypes.input.name, spec.dtypes.output.name
    a = _draw(rng, (m, k), kind, input_, most)
    b = _draw(rng, (k, n), kind, input_, most)
    c = _draw(rng, (m, n), kind, output, most)
    if problem.beta == 0:
        c = np.full_like(c, numerics.poison(output))
    d = numerics.pack(np.full_like(c, numerics.poison(output)), spec.layouts.c, problem.ldd, output)
    return Operands(a, b, c, d)


def _run_case(
    spec: KernelSpec, runner: Runner, module: nvrtc.Module, shape: GemmShape, case: Case
) -> CaseResult:
    problem = GemmProblem.packed(shape, spec.layouts, case.alpha, case.beta, case.padding)
    operands = _operands(spec, problem, case.kind)
    seconds = 0.0
    try:
        start = time.perf_counter()
        storage = run_kernel(spec, runner, module, problem, operands)
        seconds = time.perf_counter() - start
        worst, message = _compare(spec, runner, problem, case.kind, operands, storage)
    except CheckError as error:
        worst, message = np.inf, str(error)
    if message:
        message = f"{case.kind} inputs, alpha={case.alpha}, beta={case.beta}: {message}"
    return CaseResult(case.kind, problem, not message, worst, seconds, message)


def run_kernel(
    spec: KernelSpec,
    runner: Runner,
    module: nvrtc.Module,
    problem: GemmProblem,
    operands: Operands,
) -> np.ndarray:
    """Launches once and returns D's storage.

    Raises CheckError with the first finding of the device's checks. A shape with an empty D is
    launched as well, with one block, and must not write anything.
    """
    shape, acc = problem.shape, numerics.storage_dtype(spec.dtypes.accumulator.name).type
    config = launch_config(spec, shape) or LaunchConfig(
        (1, 1, 1), (*spec.threads, 1), geometry(spec).dynamic_shared
    )
    layouts, input_, output = spec.layouts, spec.dtypes.input.name, spec.dtypes.output.name
    storages = (
        ("A", numerics.pack(operands.a, layouts.a, problem.lda, input_)),
        ("B", numerics.pack(operands.b, layouts.b, problem.ldb, input_)),
        ("C", numerics.pack(operands.c, layouts.c, problem.ldc, output)),
        ("D", operands.d_storage),
    )
    buffers: list[Any] = [runner.upload(array, name) for name, array in storages]
    try:
        a, b, c, d = buffers
        i64 = np.int64
        args = [
            *(i64(shape.m), i64(shape.n), i64(shape.k), acc(problem.alpha)),
            *(a, i64(problem.lda), b, i64(problem.ldb)),
            *(acc(problem.beta), c, i64(problem.ldc), d, i64(problem.ldd)),
        ]
        findings = runner.launch(
            module, spec.name, config.grid, config.block, args, config.shared_bytes
        )
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            raise CheckError(f"{findings[0]}{more}")
        return runner.download(d)
    finally:
        for buffer in buffers:
            runner.free(buffer)


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
    exact = reference.oracle(
        operands.a, operands.b, operands.c, problem.alpha, problem.beta, dtypes.name
    )
    if kind == "integer" or not dtypes.accumulator.is_float:
        if dtypes.output.is_float:
            exact = numerics.from_float64(exact, dtypes.output.name)
        cutlass = reference.cutlass_gemm(runner, spec, problem, operands)
        for other, name in ((exact, "the oracle"), (cutlass, "CUTLASS")):
            message = _first_difference(got, other, dtypes.output.name, name)
            if message:
                return np.inf, message
        return 0.0, ""
    bound = reference.error_bound(
        operands.a, operands.b, operands.c, problem.alpha, problem.beta, dtypes.name
    )
    return _within(numerics.to_float64(got, dtypes.output.name), exact, bound)


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
