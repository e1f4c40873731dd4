"""What a GEMM has to compute: a CUTLASS kernel, an oracle in numpy, and the bounds of its errors.

Matrices here are two-dimensional arrays of storage (see `gen.numerics`): A is M x K, B is K x N,
C and D are M x N; `dtype` is a name of `gen.spec.DTYPES`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np

from gen import numerics, nvrtc
from gen.errors import CheckError, CompileError, MissingError, UsageError
from gen.inputs import kernel_arguments
from gen.render import render_template
from gen.runner import Runner
from gen.spec import GemmProblem, KernelSpec, Tile, parse_dtype, parse_layout

CUTLASS_TYPES = {
    "f32": "float",
    "f64": "double",
    "i32": "int",
    "f16": "cutlass::half_t",
    "bf16": "cutlass::bfloat16_t",
    "i8": "int8_t",
}

# CUTLASS has multiply-adds outside of tensor cores for every type but this one.
_LACKS_MULTIPLY_ADD = "bf16"

# Small tiles: little code to compile and to emulate, little waste on odd shapes.
_TILE = Tile(32, 32, 8)
_WARP = Tile(16, 16, 8)
_THREADS = 32 * (_TILE.m // _WARP.m) * (_TILE.n // _WARP.n)

_MAX_INT = 2**31 - 1
_MAX_GRID_Y = 65535


class Operands(Protocol):
    """A, B and C as matrices of their storage."""

    @property
    def a(self) -> np.ndarray:
        """M x K."""
        ...

    @property
    def b(self) -> np.ndarray:
        """K x N."""
        ...

    @property
    def c(self) -> np.ndarray:
        """M x N."""
        ...


def cutlass_name(dtype: str, layout: str) -> str:
    """The symbol of the reference kernel."""
    return f"cutlass_gemm_{dtype}_{layout}"


def cutlass_source(dtype: str, layout: str) -> str:
    """CUDA source of a CUTLASS GEMM with the arguments of the generated kernels.

    It is the same for every architecture. A block computes 32 x 32 elements of D; where D is
    row-major, its tiles along M lie on blockIdx.x, otherwise those along N. Raises UsageError.
    """
    dtypes, layouts = parse_dtype(dtype), parse_layout(layout)
    if layouts.c:
        operands = {"left": "A", "ld_left": "lda", "left_layout": _order(layouts.a)}
        operands |= {"right": "B", "ld_right": "ldb", "right_layout": _order(layouts.b)}
    else:  # a column-major matrix is its transpose, row-major: D' = B' A'
        operands = {"left": "B", "ld_left": "ldb", "left_layout": _order(not layouts.b)}
        operands |= {"right": "A", "ld_right": "lda", "right_layout": _order(not layouts.a)}
    return render_template(
        "cutlass_reference.cu.j2",
        name=cutlass_name(dtype, layout),
        layouts=layouts,
        input=CUTLASS_TYPES[dtypes.input.name],
        accumulator=CUTLASS_TYPES[dtypes.accumulator.name],
        output=CUTLASS_TYPES[dtypes.output.name],
        has_multiply_add=dtype != _LACKS_MULTIPLY_ADD,
        rows="M" if layouts.c else "N",
        cols="N" if layouts.c else "M",
        tile=_TILE,
        warp=_WARP,
        threads=_THREADS,
        **operands,
    )


def _order(row_major: bool) -> str:
    return "Row" if row_major else "Column"


@cache
def cutlass_module(dtype: str, layout: str, arch: str, format: str) -> nvrtc.Module:
    """The compiled reference kernel, compiled once per process and cached on disk.

    Raises MissingError where CUTLASS is missing or does not compile with the installed headers.
    """
    name = f"{cutlass_name(dtype, layout)}.cu"
    options = ["-default-device", "-diag-suppress=20044", f"-I{nvrtc.cutlass_include()}"]
    try:
        return nvrtc.compile_cuda(
            cutlass_source(dtype, layout),
            name=name,
            arch=arch,
            format=format,
            options=options,
            line_info=False,  # halves the PTX, and the lines are not the user's
        )
    except CompileError as error:
        raise MissingError(
            f"the CUTLASS headers do not compile here: {error}\n"
            "CUTLASS 4.2 goes with CUDA 13.0's headers; "
            "pip install 'nvidia-cutlass==4.2.*' 'cuda-toolkit[nvrtc,cudart,cccl,crt]==13.0.*'"
        ) from None


def cutlass_gemm(
    runner: Runner, spec: KernelSpec, problem: GemmProblem, operands: Operands
) -> np.ndarray:
    """D = alpha * A * B + beta * C by CUTLASS on `runner`: M x N, of the output's storage.

    Only the types, layouts and architecture of `spec` matter. K = 0 is run like any other K; an
    empty D needs no launch. Raises CheckError where the device's checks find something, UsageError
    for sizes beyond CUTLASS's 32-bit coordinates, MissingError as `cutlass_module`.
    """
    shape, dtypes, layouts = problem.shape, spec.dtypes, spec.layouts
    output = dtypes.output.name
    empty = np.full((shape.m, shape.n), numerics.poison(output), numerics.storage_dtype(output))
    if empty.size == 0:
        return empty
    grid = _grid(problem, layouts.c)
    module = cutlass_module(dtypes.name, str(layouts), runner.target(spec.arch), runner.format)
    storages = (
        ("A", numerics.pack(operands.a, layouts.a, problem.lda, dtypes.input.name)),
        ("B", numerics.pack(operands.b, layouts.b, problem.ldb, dtypes.input.name)),
        ("C", numerics.pack(operands.c, layouts.c, problem.ldc, output)),
        ("D", numerics.pack(empty, layouts.c, problem.ldd, output)),
    )
    buffers: list[Any] = []
    try:
        for name, storage in storages:
            buffers.append(runner.upload(storage, f"CUTLASS's {name}"))
        findings = runner.launch(
            module,
            cutlass_name(dtypes.name, str(layouts)),
            grid,
            (_THREADS, 1, 1),
            kernel_arguments(problem, dtypes, buffers),
        )
        if findings:
            raise CheckError(f"the CUTLASS reference itself: {findings[0]}")
        d = runner.download(buffers[3])
    finally:
        for buffer in buffers:
            runner.free(buffer)
    return numerics.unpack(d, shape.m, shape.n, layouts.c, problem.ldd)


def _grid(problem: GemmProblem, row_major: bool) -> tuple[int, int, int]:
    shape = problem.shape
    leading = {f"ld{x}": getattr(problem, f"ld{x}") for x in "abcd"}
    for name, value in {"M": shape.m, "N": shape.n, "K": shape.k, **leading}.items():
        if value > _MAX_INT:
            raise UsageError(f"{name}={value} is beyond CUTLASS's 32-bit coordinates; use less")
    rows, columns = (shape.m, shape.n) if row_major else (shape.n, shape.m)
    grid = (-(-rows // _TILE.m), -(-columns // _TILE.n), 1)
    if grid[1] > _MAX_GRID_Y:
        raise UsageError(
            f"{'N' if row_major else 'M'}={columns} needs {grid[1]} blocks along y in the CUTLASS "
            f"reference, and a grid has {_MAX_GRID_Y}; use at most {_MAX_GRID_Y * _TILE.n}"
        )
    return grid


def oracle(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: float, beta: float, dtype: str
) -> np.ndarray:
    """alpha * A * B + beta * C, M x N, with no rounding to the output's type.

    Floating-point types: float64, and longdouble for f64, so that the error is far below the
    kernel's (`error_bound` counts it in). Integer types: int32, modulo 2^32 as on a GPU. alpha and
    beta are first converted to the accumulator's type, as the kernel's arguments are; C is not read
    when beta is 0.
    """
    dtypes = parse_dtype(dtype)
    scalar = numerics.storage_dtype(dtypes.accumulator.name).type
    alpha, beta = scalar(alpha), scalar(beta)
    if not dtypes.accumulator.is_float:
        return _integer_oracle(a, b, c, int(alpha), int(beta))
    wide = _wide(dtype)
    result: np.ndarray
    # A sum that starts at +0 is never -0.
    product = _exact(a, dtypes.input.name, wide) @ _exact(b, dtypes.input.name, wide) + wide(0)
    result = wide(alpha) * product
    if beta != 0:
        result = result + wide(beta) * _exact(c, dtypes.output.name, wide)
    return result


def _integer_oracle(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: int, beta: int
) -> np.ndarray:
    # int64 arrays wrap around modulo 2^64, which 2^32 divides.
    wide = np.int64
    result = np.asarray(a.astype(wide) @ b.astype(wide)) * wide(alpha)
    if beta != 0:
        result = result + c.astype(wide) * wide(beta)
    return result.astype(np.int32)


def _wide(dtype: str) -> Any:
    return np.longdouble if dtype == "f64" else np.float64


def _exact(matrix: np.ndarray, name: str, wide: Any) -> np.ndarray:
    return numerics.to_float64(matrix, name).astype(wide)


def gamma(n: int, u: float) -> float:
    """n u / (1 - n u): the relative error of n roundings; infinite where n u >= 1.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1.
    """
    return n * u / (1 - n * u) if n * u < 1 else float("inf")


def error_bound(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: float, beta: float, dtype: str
) -> np.ndarray:
    """How far each element of a right D may be from `oracle`: float64, M x N; 0 for integer types.

    Holds for every order of summation, with or without fused multiply-adds, where each operation
    rounds to nearest. u is the unit roundoff of the accumulator, S = |A| |B|:

    - the sum (Higham, sec. 3.1):       gamma_K S
    - alpha * sum + beta * C:           |alpha| gamma_(K+2) S + gamma_2 |beta C| in all
    - products that underflow:          a subnormal unit each, K of them times |alpha|, and two
    - a narrower output:                its unit roundoff times the result, and its subnormal unit
    - the oracle's own roundings:       like the kernel's, with its unit roundoff

    It is infinite where the sum or the result can overflow. Operands have to be finite. Compare
    with `error <= bound`, which is False where the error is NaN.
    """
    dtypes = parse_dtype(dtype)
    if not dtypes.accumulator.is_float:
        return np.zeros((a.shape[0], b.shape[1]))
    acc, out, k = dtypes.accumulator.name, dtypes.output.name, a.shape[1]
    u = numerics.unit_roundoff(acc)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.abs(oracle(a, b, c, alpha, beta, dtype)).astype(np.float64)
        scalar = numerics.storage_dtype(acc).type
        alpha, beta = abs(float(scalar(alpha))), abs(float(scalar(beta)))
        sums = np.abs(numerics.to_float64(a, dtypes.input.name)) @ np.abs(
            numerics.to_float64(b, dtypes.input.name)
        )
        addend = beta * np.abs(numerics.to_float64(c, out)) if beta != 0 else np.zeros_like(sums)
        error = _rounding_error(k, alpha, sums, addend, u)
        error += _rounding_error(k, alpha, sums, addend, float(np.finfo(_wide(dtype)).eps))
        error += (alpha * k + 2) * numerics.smallest_subnormal(acc)
        largest_sum = sums * (1 + gamma(k, u))
        largest_partial = np.maximum(largest_sum, alpha * sums + addend + error)
        if out != acc:
            error += numerics.unit_roundoff(out) * (exact + error)
            error += numerics.smallest_subnormal(out)
        error *= 1 + 1e-6  # the roundings of these very lines, for K below 10^9
        # Written so that what is NaN after an overflow (0 * infinity) counts as one.
        safe = largest_partial < numerics.overflow_threshold(acc)
        safe &= exact + error < numerics.overflow_threshold(out)
        return np.where(safe, error, np.inf)


def _rounding_error(
    k: int, alpha: float, sums: np.ndarray, addend: np.ndarray, u: float
) -> np.ndarray:
    return alpha * gamma(k + 2, u) * sums + gamma(2, u) * addend
