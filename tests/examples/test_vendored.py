"""The vendored example: a kernel that was emitted, and committed with its header.

It need not be as today's templates would make it, but it has to be what its specification says.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gen.device.choose import choose_runner
from gen.kernels.registry import make_spec
from gen.prove.verify import verify
from gen.source.render import Source, read_source
from tests import ROOT
from tests.prove.test_verify import SHAPES
from tests.support.programs import check_c_and_cpp, cuda_includes, run
from tests.support.slow import slow

FOLDER = ROOT / "examples" / "vendored"


@pytest.fixture
def source() -> Source:
    return read_source(FOLDER / "gemm_f32.cu")


def test_the_kernel_has_its_specification(source: Source) -> None:
    assert source.spec == make_spec("rec_tiles", tile=16, name="gemm_f32")


def test_the_kernel_is_right(source: Source) -> None:
    assert source.spec is not None
    results = verify(source.spec, choose_runner("cpu"), SHAPES, source)
    assert [result.message for result in results if not result.ok] == []


def test_the_header_is_c_and_cpp(tmp_path: Path) -> None:
    header = Path(shutil.copy(FOLDER / "gemm_f32.h", tmp_path))
    check_c_and_cpp(header, *cuda_includes())


@slow
@pytest.mark.nvcc
def test_the_header_declares_what_the_source_defines(source: Source, tmp_path: Path) -> None:
    text = '#ifndef __CUDACC_RTC__\n#include "gemm_f32.h"\n#endif\n' + source.text
    (tmp_path / "both.cu").write_text(text)
    run("nvcc", "-std=c++17", "-arch=sm_80", f"-I{FOLDER}", "-c", "both.cu", cwd=tmp_path)
