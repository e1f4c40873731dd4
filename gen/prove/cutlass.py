"""What a GEMM has to compute, on the device at hand: a CUTLASS kernel without tensor cores.

The oracle and the bounds of its errors are in `gen.oracle`, and are names of this module, too.
Matrices here are two-dimensional arrays of storage (see `gen.numerics`): A is M x K, B is K x N,
C and D are M x N; `dtype` is a name of `gen.spec.DTYPES`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Protocol

import numpy as np

from gen.compile import nvrtc
from gen.device.execute import arguments, uploaded
from gen.device.runner import Runner
from gen.errors import CheckError, CompileError, MissingError, UsageError
from gen.kernels.launches import matrices
from gen.prove.oracle import After
from gen.requirements import get, named
from gen.source.templates import render_template
from gen.spec import numerics
from gen.spec.arch import MAX_GRID_YZ
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec, Tile
from gen.spec.problem import GemmProblem, parse_layout

CUTLASS_TYPES = {
    "f32": "float",
    "f64": "double",
    "i32": "int",
    "f16": "cutlass::half_t",
    "bf16": "cutlass::bfloat16_t",
    "tf32": "float",
    "i8": "int8_t",
    "e4m3": "cutlass::float_e4m3_t",
    "e5m2": "cutlass::float_e5m2_t",
}

# CUTLASS has multiply-adds outside of tensor cores for every type of A and B but these.
_LACKS_MULTIPLY_ADD = ("bf16", "e4m3", "e5m2")

# Small tiles: little code to compile and to emulate, little waste on odd shapes.
_TILE = Tile(32, 32, 8)
_WARP = Tile(16, 16, 8)
_THREADS = 32 * (_TILE.m // _WARP.m) * (_TILE.n // _WARP.n)

_HEADERS = ("nvidia-cutlass", "nvidia-cuda-cccl", "cuda-toolkit")

_MAX_INT = 2**31 - 1


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
        "reference/cutlass.cu.j2",
        name=cutlass_name(dtype, layout),
        layouts=layouts,
        input=CUTLASS_TYPES[dtypes.input.name],
        # Sums in f16 that are exact are so in f32: the epilogue's type serves for both.
        accumulator=CUTLASS_TYPES[dtypes.scalar.name],
        output=CUTLASS_TYPES[dtypes.output.name],
        has_multiply_add=dtypes.input.name not in _LACKS_MULTIPLY_ADD,
        rows="M" if layouts.c else "N",
        cols="N" if layouts.c else "M",
        tile=_TILE,
        warp=_WARP,
        threads=_THREADS,
        **operands,
    )


def _order(row_major: bool) -> str:
    return "Row" if row_major else "Column"


def compiled(dtype: str, layout: str, arch: str, format: str) -> nvrtc.Module:
    """The reference kernel as the cache on disk has it, or compiled.

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
            f"get headers that go together: {get(*map(named, _HEADERS))}"
        ) from None


cutlass_module = cache(compiled)


def after(spec: KernelSpec, operands: Operands) -> After:
    """What a kernel does after the linear part, with the bias at hand."""
    return After(spec.epilogue, getattr(operands, "bias", None))


def cutlass_gemm(
    runner: Runner, spec: KernelSpec, problem: GemmProblem, operands: Operands
) -> np.ndarray:
    """D by CUTLASS on `runner`: M x N, of the output's storage.

    Only the types, layouts, architecture and epilogue of `spec` matter; an epilogue that is more
    than alpha * A * B + beta * C is exact for integers (see `_with_bias`), and GELU is left out.
    K = 0 is run like any other K; an empty D needs no launch. Raises CheckError where the device's
    checks find something, UsageError for sizes beyond CUTLASS's 32-bit coordinates, MissingError
    as `compiled`.
    """
    shape, dtypes, layouts = problem.shape, spec.dtypes, spec.layouts
    output = dtypes.output.name
    empty = np.full((shape.m, shape.n), numerics.poison(output), numerics.storage_dtype(output))
    if empty.size == 0:
        return empty
    follows = after(spec, operands)
    problem, c = _with_bias(problem, operands.c, follows, output)
    grid = _grid(problem, layouts.c)
    module = cutlass_module(dtypes.name, str(layouts), runner.target(spec.arch), runner.format)
    storages = {
        "A": numerics.pack(operands.a, layouts.a, problem.lda, dtypes.input.name),
        "B": numerics.pack(operands.b, layouts.b, problem.ldb, dtypes.input.name),
        "C": numerics.pack(c, layouts.c, problem.ldc, output),
        "D": numerics.pack(empty, layouts.c, problem.ldd, output),
    }
    named = {name: f"CUTLASS's {name}" for name in storages}
    with uploaded(runner, storages, names=named) as places:
        findings = runner.launch(
            module,
            cutlass_name(dtypes.name, str(layouts)),
            grid,
            (_THREADS, 1, 1),
            arguments(matrices(problem, dtypes), places, runner),
        )
        if findings:
            raise CheckError(f"the CUTLASS reference itself: {findings[0]}")
        d = runner.download(places["D"].buffer)
    result = numerics.unpack(d, shape.m, shape.n, layouts.c, problem.ldd)
    return _rectified(result, output) if follows.epilogue.endswith("relu") else result


def _with_bias(
    problem: GemmProblem, c: np.ndarray, follows: After, output: str
) -> tuple[GemmProblem, np.ndarray]:
    """The problem whose linear part has the bias in it: 1 * (beta * C + bias) in place of beta * C.

    That is exact for small integers, also in bf16.
    """
    if follows.bias is None:
        return problem, c
    bias = numerics.to_float64(follows.bias, output)
    total = np.broadcast_to(bias, c.shape)
    if problem.beta != 0:
        total = total + problem.beta * numerics.to_float64(c, output)
    if not numerics.is_float(output):
        total = total.astype(np.int64)
    return replace(problem, beta=1), numerics.from_integers(total, output)


def _rectified(matrix: np.ndarray, output: str) -> np.ndarray:
    # After rounding, which changes no sign.
    values = numerics.to_float64(matrix, output)
    return np.where(values < 0, matrix.dtype.type(0), matrix)


def _grid(problem: GemmProblem, row_major: bool) -> tuple[int, int, int]:
    shape = problem.shape
    leading = {f"ld{x}": getattr(problem, f"ld{x}") for x in "abcd"}
    for name, value in {"M": shape.m, "N": shape.n, "K": shape.k, **leading}.items():
        if value > _MAX_INT:
            raise UsageError(f"{name}={value} is beyond CUTLASS's 32-bit coordinates; use less")
    rows, columns = (shape.m, shape.n) if row_major else (shape.n, shape.m)
    grid = (-(-rows // _TILE.m), -(-columns // _TILE.n), 1)
    if grid[1] > MAX_GRID_YZ:
        raise UsageError(
            f"{'N' if row_major else 'M'}={columns} needs {grid[1]} blocks along y in the CUTLASS "
            f"reference, and a grid has {MAX_GRID_YZ}; use at most {MAX_GRID_YZ * _TILE.n}"
        )
    return grid
