"""Embedded kernels ask the driver for what the plan says, and refuse the rest.

A driver that runs nothing writes down what it is asked: templates/prove/driver.cpp.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.kernels.registry import make_spec
from gen.prove.launchers.program import Program
from tests.prove.test_verify import SCALAR, WITH_PLAN, small
from tests.source.cpp.test_embed import EMBEDDED, SIMPLE
from tests.spec.test_spec import specs
from tests.support.launchers import embedded, wrong_embedded
from tests.support.programs import need
from tests.support.slow import sift, slow

CASES = [*EMBEDDED, *((variant, dtype, {"layout": "ccr"}) for variant, dtype in SIMPLE)]
QUICK = CASES[-1:]


@pytest.mark.parametrize(("variant", "dtype", "more"), sift(CASES, QUICK))
def test_an_embedded_launcher_carries_out_the_plan(
    variant: str, dtype: str, more: dict[str, Any], tmp_path: Path
) -> None:
    need("g++")
    spec = small(variant, dtype, **{**more, "name": "gemm"})
    program = Program(embedded(spec), tmp_path)
    assert not wrong_embedded(program, spec)
    assert program.loaded == ["sm_0", "unload sm_0"]  # once for both devices


@slow
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_any_embedded_launcher_carries_out_the_plan(data: st.DataObject) -> None:
    need("g++")
    drawn = data.draw(specs(data.draw(st.sampled_from((tuple(SCALAR), tuple(WITH_PLAN))))))
    spec = replace(drawn, symbol="gemm")
    with tempfile.TemporaryDirectory() as folder:
        assert not wrong_embedded(Program(embedded(spec), Path(folder)), spec)


LARGE = {"dtype": "f64", "tile": 32, "coarsen": 8}  # beyond 48 KiB of shared memory
BROKEN: list[tuple[str, dict[str, Any], str, str]] = [
    ("naive", {}, "grid.x, grid.y, grid.z", "grid.y, grid.x, grid.z"),
    ("naive", {}, "shared_bytes, stream, pointers", "shared_bytes, nullptr, pointers"),
    ("naive", {}, "if (loaded.library[i] == nullptr) {", "{"),
    ("naive", {}, "  ~Libraries() {", "  void never() {"),
    ("naive", {}, "error = driver.cuKernelGetFunction(&kernels.kernel, loaded.kernel);",
     "static CUfunction known;\n  if (!known) error = driver.cuKernelGetFunction(&known, "
     "loaded.kernel);\n  kernels.kernel = known;"),
    ("rec_tiles", LARGE, "SIZE_BYTES, kSharedBytes", "SIZE_BYTES, kSharedBytes / 2"),
    ("rec_tiles", LARGE, "block, kSharedBytes, stream", "block, 0, stream"),
    ("mma", {"split_k": 0}, "cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,"
     " device)", "cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0)"),
    ("mma", {"split_k": 3}, "kernels.reduce, loaded.reduce", "kernels.reduce, loaded.pack"),
    ("wgmma", {"stream_k": 1}, "kernels.clear, loaded.clear", "kernels.clear, loaded.pack"),
    ("wgmma", {"threadblock": "64x64x64", "cluster": "2x2"}, "{blocks, 1, 1, threads, 1, 1,",
     "{1, blocks, 1, threads, 1, 1,"),
    ("wgmma", {"threadblock": "64x64x64", "cluster": "2x2"}, "kernel, kClusterBlocks, kThreads",
     "kernel, 2 * kClusterBlocks, kThreads"),
    ("simt", {"stream_k": 1}, "dim3(1), 256, 0, stream, plan.flags, flags",
     "dim3(1), 256, 0, stream, plan.flags - 1, flags"),
    ("mma_tma", {}, "result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE",
     "CUDA_SUCCESS"),
    ("mma_tma", {}, "{cuuint64_t(length), cuuint64_t(lines)}",
     "{cuuint64_t(lines), cuuint64_t(length)}"),
    ("mma_tma", {}, "K > 0 && (A == nullptr", "(A == nullptr"),
]  # fmt: skip


@slow
@pytest.mark.parametrize(("variant", "options", "old", "new"), BROKEN)
def test_broken_embedded_launchers_are_found(
    variant: str, options: dict[str, Any], old: str, new: str, tmp_path: Path
) -> None:
    need("g++")
    spec = make_spec(variant, name="gemm", **options)
    host = embedded(spec)
    text = host.files["gemm.cpp"]
    assert old in text
    files = {**host.files, "gemm.cpp": text.replace(old, new)}
    program = Program(replace(host, files=files), tmp_path)
    assert wrong_embedded(program, spec) or program.loaded != ["sm_0", "unload sm_0"]
