"""GEMM kernels as people write them, and CUTLASS's: exact on small integers, on odd shapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gen.emulator import Emulator
from tests.emulator.emulator_kernels import (
    KERNELS,
    TYPES,
    compile_cuda,
    gemm_source,
    geometry,
    run_gemm,
)
from tests.support.slow import each, slow


def dynamic_shared(name: str, types: str) -> int:
    return (16 * 8 + 8 * 32) * np.dtype(TYPES[types][3]).itemsize if name == "rec_tiles" else 0


@pytest.mark.parametrize(("name", "types"), each(3, itertools.product(KERNELS, TYPES)))
def test_textbook_kernels(name: str, types: str) -> None:
    ptx = compile_cuda(gemm_source(name, types))
    m, n, k = 37, 53, 29
    grid, block = geometry(name, m, n)
    result, exact, report = run_gemm(
        ptx, types, m, n, k, grid, block, shared_bytes=dynamic_shared(name, types)
    )
    assert report.findings == []
    assert np.array_equal(result, exact)


@pytest.mark.parametrize("arch", ["compute_75", "compute_90"])
@pytest.mark.parametrize("types", ["f32", "f16", "half", "bf16", "s8"])
def test_architectures_spell_conversions_differently(types: str, arch: str) -> None:
    ptx = compile_cuda(gemm_source("tiles", types), arch)
    result, exact, report = run_gemm(ptx, types, 17, 33, 18, *geometry("tiles", 17, 33))
    assert report.findings == []
    assert np.array_equal(result, exact)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (16, 16, 16), (33, 1, 7), (1, 50, 3), (48, 32, 0), (100, 130, 5)]
)
@pytest.mark.parametrize("name", ["naive", "tiles", "shared_row", "block_1d"])
def test_shapes(name: str, m: int, n: int, k: int) -> None:
    ptx = compile_cuda(gemm_source(name, "f32"))
    result, exact, report = run_gemm(ptx, "f32", m, n, k, *geometry(name, m, n))
    assert report.findings == []
    assert np.array_equal(result, exact)


def test_c_is_not_read_when_beta_is_zero() -> None:
    ptx = compile_cuda(gemm_source("naive", "f32"))
    emulator = Emulator()
    a, d = emulator.alloc(np.ones((4, 4), np.float32)), emulator.alloc(np.zeros((4, 4), np.float32))
    four, wide, null = np.int32(4), np.int64(4), np.int64(0)
    args = [four, four, four, np.float32(1), a, wide, a, wide, np.float32(0), null, wide, d, wide]
    report = emulator.launch(ptx, "gemm", (1, 1, 1), (16, 16, 1), args)
    assert report.findings == []
    assert np.array_equal(emulator.read(d), np.full((4, 4), 4, np.float32))
    args[8] = np.float32(1)
    report = emulator.launch(ptx, "gemm", (1, 1, 1), (16, 16, 1), args)
    assert [finding.check for finding in report.findings] == ["memcheck"]


@pytest.mark.parametrize("chunk_threads", [1, 700, 1 << 20])
@pytest.mark.parametrize("name", ["naive", "tiles"])
def test_chunks_do_not_change_results(name: str, chunk_threads: int) -> None:
    ptx = compile_cuda(gemm_source(name, "f32"))
    emulator = Emulator(chunk_threads=chunk_threads)
    result, exact, report = run_gemm(
        ptx, "f32", 50, 40, 20, *geometry(name, 50, 40), emulator=emulator
    )
    assert report.findings == []
    assert np.array_equal(result, exact)
    whole = run_gemm(ptx, "f32", 50, 40, 20, *geometry(name, 50, 40))[2]
    assert report.instructions == whole.instructions > 50 * 40 * 20


@slow
@pytest.mark.parametrize("types", ["f32", "f64", "s32"])
def test_cutlass_simt(types: str) -> None:
    ptx = compile_cuda(gemm_source("cutlass", types))
    emulator = Emulator()
    info = emulator.alloc(np.zeros(2, np.int32))
    emulator.launch(ptx, "cutlass_info", (1, 1, 1), (1, 1, 1), [info])
    shared, threads = (int(value) for value in emulator.read(info))
    for m, n, k in ((64, 64, 8), (70, 130, 29)):
        grid = (-(-m // 64), -(-n // 64), 1)
        result, exact, report = run_gemm(
            ptx, types, m, n, k, grid, (threads, 1, 1), shared_bytes=shared, emulator=emulator
        )
        assert report.findings == []
        assert np.array_equal(result, exact)


def test_float_results_are_close_to_float64() -> None:
    """Values that are not integers, so that every rounding is in play."""
    ptx = compile_cuda(gemm_source("naive", "f64"))
    emulator, rng = Emulator(), np.random.default_rng(5)
    a, b = rng.standard_normal((20, 40)), rng.standard_normal((40, 20))
    da, db, dd = emulator.alloc(a), emulator.alloc(b), emulator.alloc(np.zeros((20, 20)))
    args = [np.int32(20), np.int32(20), np.int32(40), np.float64(1), da, np.int64(40)]
    args += [db, np.int64(20), np.float64(0), dd, np.int64(20), dd, np.int64(20)]
    emulator.launch(ptx, "gemm", (2, 2, 1), (16, 16, 1), args)
    error = np.abs(emulator.read(dd) - a @ b)
    assert (error <= 40 * 2.0**-53 * (np.abs(a) @ np.abs(b))).all()
    assert error.max() < 1e-12
