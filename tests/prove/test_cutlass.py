"""The CUTLASS reference on the emulator: right to the bit."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gen.compile import nvrtc
from gen.device.emulated import EmulatorRunner
from gen.errors import CheckError, CompileError, MissingError, UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove import cutlass, oracle
from gen.prove.inputs import draw_operands
from gen.spec.dtypes import DTYPES, parse_dtype
from gen.spec.numerics import (
    from_float64,
    is_float,
    poison,
    storage_dtype,
    to_float64,
)
from gen.spec.problem import ALL_LAYOUTS, GemmProblem, GemmShape, parse_layout
from tests.prove.test_oracle import Operands, operands
from tests.prove.test_verify import LAYOUTS
from tests.spec.test_numerics import bits
from tests.support.slow import sift, slow


def rounded_oracle(x, alpha, beta, dtype):
    exact = oracle.oracle(x.a, x.b, x.c, alpha, beta, dtype)
    output = parse_dtype(dtype).output.name
    return from_float64(exact, output) if is_float(output) else exact


class Recorder(EmulatorRunner):
    """Keeps the last launch."""

    def launch(self, module, kernel, grid, block, args, shared_bytes=0):
        self.grid, self.block = grid, block
        return super().launch(module, kernel, grid, block, args, shared_bytes)


@pytest.fixture(scope="module")
def runner():
    return Recorder()


def kernel(dtype):
    """A variant that has these types."""
    return next(name for name in ("naive", "mma", "wgmma") if dtype in VARIANTS[name].dtypes)


def run_cutlass(runner, dtype, layout, shape, alpha, beta, padding=0, most=8):
    spec = make_spec(kernel(dtype), dtype=dtype, layout=layout)
    problem = GemmProblem.packed(GemmShape(*shape), parse_layout(layout), alpha, beta, padding)
    x = operands(dtype, *shape, most)
    if beta == 0:
        x.c[:] = poison(spec.dtypes.output.name)
    got = cutlass.cutlass_gemm(runner, spec, problem, x)
    assert got.dtype == storage_dtype(spec.dtypes.output.name)
    return got, rounded_oracle(x, alpha, beta, dtype)


PAIRS = [(dtype, layout) for dtype, layouts in LAYOUTS.items() for layout in layouts]
QUICK = [("f32", "rrr"), ("i32", "ccr"), ("bf16", "rrr"), ("f16", "rcc")]  # as others compile


@slow
@pytest.mark.parametrize("epilogue", ["linear_bias", "linear_bias_relu"])
@pytest.mark.parametrize("beta", [-2, 0])
def test_cutlass_with_a_bias_is_right_to_the_bit(runner, epilogue, beta):
    for dtype, layout in (("f16", "crr"), ("i8", "crc"), ("bf16", "ccc")):
        spec = make_spec("mma", dtype=dtype, layout=layout, epilogue=epilogue)
        problem = GemmProblem.packed(GemmShape(9, 17, 5), spec.layouts, 3, beta, 1)
        x = draw_operands(spec, problem, "integer")
        got = cutlass.cutlass_gemm(runner, spec, problem, x)
        want = oracle.oracle(x.a, x.b, x.c, 3, beta, dtype, cutlass.after(spec, x))
        if spec.dtypes.output.is_float:
            want = from_float64(want, spec.dtypes.output.name)
        assert np.array_equal(bits(got), bits(want))
        assert (to_float64(got, spec.dtypes.output.name) < 0).any() == (epilogue == "linear_bias")


@pytest.mark.parametrize(("dtype", "layout"), sift(PAIRS, QUICK))
def test_cutlass_is_right_to_the_bit(runner, dtype, layout):
    for case in (
        ((37, 53, 61), 3, -2, 3),  # odd sizes, lines apart
        ((5, 70, 9), 2, 0, 0),  # C is NaN
        ((64, 32, 8), 1, 1, 1),  # whole tiles
        ((1, 1, 1), -1, 1, 0),
        ((33, 2, 0), 2, 3, 5),  # an empty sum
    ):
        got, want = run_cutlass(runner, dtype, layout, *case)
        assert np.array_equal(bits(got), bits(want)), case


def test_all_pairs_are_covered():
    assert {dtype for dtype, _ in PAIRS} == set(DTYPES)
    assert {layout for _, layout in PAIRS} == set(ALL_LAYOUTS)


@slow
def test_cutlass_wraps_integers_around(runner):
    got, want = run_cutlass(runner, "i32", "rrc", (33, 5, 17), 2**31 - 1, -7, 1, most=2**31 - 2)
    assert np.array_equal(got, want)


@slow
def test_the_grid_follows_the_swizzle(runner):
    run_cutlass(runner, "f32", "rrr", (33, 97, 3), 1, 0)
    assert runner.grid == (2, 4, 1)
    run_cutlass(runner, "f32", "ccc", (33, 97, 3), 1, 0)
    assert runner.grid == (4, 2, 1)


@pytest.mark.parametrize("shape", [(0, 5, 7), (5, 0, 7), (0, 0, 0)])
def test_an_empty_result_needs_no_launch(shape):
    got, _ = run_cutlass(None, "f32", "rrr", shape, 1, 0)
    assert got.shape == shape[:2]


@pytest.mark.parametrize("dtype", sift(["f32", "f16", "bf16"], ["f32"]))
@pytest.mark.slow
def test_cutlass_is_within_the_bounds(runner, dtype):
    rng, shape = np.random.default_rng(3), GemmShape(35, 33, 300)
    layout = dict(PAIRS)[dtype]
    spec = make_spec("naive", dtype=dtype, layout=layout)
    x = Operands(
        *(from_float64(rng.uniform(-1, 1, s), dtype) for s in ((35, 300), (300, 33), (35, 33)))
    )
    problem = GemmProblem.packed(shape, spec.layouts, 1.5, -0.75, 2)
    got = to_float64(cutlass.cutlass_gemm(runner, spec, problem, x), dtype)
    error = np.abs(got - oracle.oracle(x.a, x.b, x.c, 1.5, -0.75, dtype))
    assert (error <= oracle.error_bound(x.a, x.b, x.c, 1.5, -0.75, dtype)).all()


@pytest.mark.parametrize("layout", ALL_LAYOUTS)
def test_sources_differ_by_layout_alone(layout):
    text = cutlass.cutlass_source("bf16", layout)
    assert f" cutlass_gemm_bf16_{layout}(" in text
    assert text.isascii()
    assert "${" not in text
    assert "/*%" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_sources_are_all_different():
    names = {cutlass.cutlass_source(d, layout) for d in DTYPES for layout in ALL_LAYOUTS}
    assert len(names) == len(DTYPES) * len(ALL_LAYOUTS)


@slow
@pytest.mark.parametrize(("arch", "format"), [("sm_75", "ptx"), ("sm_90a", "cubin")])
def test_cutlass_compiles_for_other_architectures(arch, format):
    module = cutlass.cutlass_module("f16", "crr", arch, format)
    if format == "ptx":
        text = module.code.decode()
        assert not re.search(r"^\s*(call|st\.local|ld\.local)\b", text, re.MULTILINE)
    else:
        (used,) = module.resources.values()
        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


def test_headers_that_do_not_fit_are_missing_ones(monkeypatch):
    def fail(*args, **kwargs):
        raise CompileError("container/array.hpp:1: tuple_size redeclared")

    monkeypatch.setattr(nvrtc, "compile_cuda", fail)
    cutlass.cutlass_module.cache_clear()
    with pytest.raises(MissingError, match=r"tuple_size(?s:.*)pip install 'nvidia-cutlass==4\.2"):
        cutlass.cutlass_module("f64", "ccc", "sm_80", "ptx")


def test_sizes_beyond_cutlass_are_refused():
    spec = make_spec("naive")
    x = Operands(*np.zeros((3, 1, 1), np.float32))
    long = GemmProblem(GemmShape(1, 1, 1), 2**31, 1, 1, 1)
    with pytest.raises(UsageError, match="lda=2147483648 is beyond CUTLASS's 32-bit"):
        cutlass.cutlass_gemm(None, spec, long, x)
    wide = GemmProblem(GemmShape(1, 2**22, 1), 1, 1, 1, 1)
    x.c = np.lib.stride_tricks.as_strided(x.c, (1, 2**22), (0, 0))
    with pytest.raises(UsageError, match="N=4194304 needs 131072 blocks along y"):
        cutlass.cutlass_gemm(None, spec, wide, x)


def test_findings_in_cutlass_are_errors(monkeypatch):
    class Finder(EmulatorRunner):
        freed = 0

        def launch(self, *args, **kwargs):
            return ["a race"]

        def free(self, buffer):
            self.freed += 1

    finder = Finder()
    with pytest.raises(CheckError, match="the CUTLASS reference itself: a race"):
        run_cutlass(finder, "f32", "rrr", (1, 1, 1), 1, 0)
    assert finder.freed == 4
