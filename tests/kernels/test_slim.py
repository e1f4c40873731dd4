"""The kernel for few rows or columns wherever lines begin: results, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import gen
from gen.compile.nvrtc import compile_cuda
from gen.device.emulated import EmulatorRunner
from gen.errors import SpecError
from gen.kernels.registry import make_spec
from gen.prove.far_indices import far_results
from gen.prove.verify import verify
from gen.source.render import render
from gen.spec.problem import ALL_LAYOUTS, GemmShape
from tests.prove.test_verify import small
from tests.support.small import SMALL


@pytest.mark.parametrize(
    ("tunables", "shape"),
    [
        ({}, (9, 150, 77)),
        ({"vectors": 32, "few": "columns", "layout": "ccr"}, (150, 33, 70)),
        ({"vectors": 16, "layout": "rcr", "strip": 256, "threads": 512}, (17, 270, 201)),
        ({"strip": 248, "threads": 512}, (8, 500, 130)),
        ({"strip": 24, "few": "columns", "layout": "crr"}, (50, 8, 65)),
        ({"arch": "sm_90", "cluster": "1x1x4", "layout": "crr"}, (3, 131, 300)),
        ({"arch": "sm_90", "cluster": "1x1x8", "layout": "rcr", "few": "columns"}, (70, 5, 40)),
    ],
)
def test_results_are_right(tunables: dict[str, object], shape: tuple[int, int, int]) -> None:
    spec = make_spec("slim", **tunables)  # type: ignore[arg-type]
    (found,) = verify(spec, EmulatorRunner(), [GemmShape(*shape)])
    assert found.ok, found.message


@pytest.mark.parametrize("few", ["rows", "columns"])
@pytest.mark.parametrize("layout", ALL_LAYOUTS[:4])
def test_operands_begin_anywhere(layout: str, few: str) -> None:
    """Lines of every distance, and matrices that begin beside a multiple of 16 bytes."""
    rng = np.random.default_rng(0)

    def matrix(rows: int, cols: int, row_major: bool, offset: int, gap: int) -> np.ndarray:
        lines, length = (rows, cols) if row_major else (cols, rows)
        whole = rng.integers(-4, 5, offset + lines * (length + gap)).astype(np.float16)
        found = whole[offset:].reshape(lines, length + gap)[:, :length]
        return found if row_major else found.T

    for offset, gap in ((0, 1), (1, 0), (3, 5), (5, 2), (7, 7)):
        m, n, k = (5, 37, 75) if few == "rows" else (37, 5, 75)
        a = matrix(m, k, layout[0] == "r", offset, gap)
        b = matrix(k, n, layout[1] == "r", 7 - offset, 7 - gap)
        d = gen.matmul(a, b, variant="slim", few=few, device="cpu", **SMALL["slim"])
        assert np.array_equal(d, (a.astype(float) @ b.astype(float)).astype(np.float16))


def test_far_lines_that_begin_anywhere() -> None:
    """Whole units of a line that begins beside a multiple of 16 bytes, beyond 32 bits."""
    spec = small("slim")
    module = compile_cuda(render(spec).text, arch=spec.arch)
    for found in far_results(spec, module, watched=False):
        assert not found.findings
        assert not found.message, found.shape


@pytest.mark.parametrize(("arch", "blocks"), [("sm_80", 2), ("sm_90", 2)])
def test_sums_stay_in_registers(arch: str, blocks: int) -> None:
    """Of as many blocks as there is shared memory for."""
    source = render(make_spec("slim", arch=arch))
    assert f"constexpr int kBlocks = {blocks};" in source.text
    module = compile_cuda(source.text, arch=arch, format="cubin")
    (used,) = module.resources.values()
    assert (used.spill_stores, used.spill_loads, used.stack_bytes) == (0, 0, 0)


def test_what_does_not_go_together() -> None:
    with pytest.raises(SpecError, match=r"vectors=12 is not a multiple of 8: .*; use vectors=8"):
        make_spec("slim", vectors=12)
    with pytest.raises(SpecError, match=r"threads=384 is not a multiple of 256: a warp for every"):
        make_spec("slim", threads=384)
    with pytest.raises(SpecError, match=r"sm_80 has no clusters; use cluster=1x1 or arch=sm_90"):
        make_spec("slim", cluster="1x1x8")
    with pytest.raises(SpecError, match=r"strip=128 is not 56, 120, 248, for 512 threads and"):
        make_spec("slim", strip=128, threads=512)
    with pytest.raises(SpecError, match=r"strip=128 is not a multiple of 256: .* of 512 threads"):
        make_spec("slim", strip=128, threads=512, layout="rcr")
    with pytest.raises(SpecError, match=r"256 sums for each of 256 threads are more than 128"):
        make_spec("slim", strip=248, vectors=32)
