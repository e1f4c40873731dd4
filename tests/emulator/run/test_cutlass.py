"""CUTLASS 2.x kernels as NVRTC compiles them: bitwise right on small integers, no findings."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.cutlass_kernels import KERNELS, CutlassKernel, compile_ptx, run


@pytest.mark.slow  # quickly, one is watched for races in test_races.py
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernel(kernel: CutlassKernel) -> None:
    m, n, k = kernel.tile[0] + 16, kernel.tile[1] + 32, 80
    result, exact, report = run(kernel, m, n, k)
    assert report.findings == []
    assert np.array_equal(result, exact)
    if kernel.instruction != (1, 1, 1):  # CUTLASS also compiles instructions that an arch lacks
        assert f"m{'n'.join(map(str, kernel.instruction[:2]))}k" in compile_ptx(kernel)
