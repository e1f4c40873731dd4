"""Index arithmetic beyond 32 bits, and blocks that stride."""

import dataclasses

import pytest

from gen.far import FarResult, far_results, why_not
from gen.nvrtc import compile_cuda
from gen.registry import make_spec
from gen.render import render
from gen.spec import KernelSpec
from tests.test_verify import PAIRS, small


def results(spec: KernelSpec, *edits: tuple[str, str]) -> list[FarResult]:
    source = render(spec)
    for old, new in edits:
        assert old in source.text
        source = dataclasses.replace(source, text=source.text.replace(old, new))
    return list(far_results(spec, compile_cuda(source.text, name=source.filename)))


@pytest.mark.parametrize(("variant", "dtype"), [p for p in PAIRS if p[0] != "mma_tma"])
def test_every_kernel_is_right_far_away(variant: str, dtype: str) -> None:
    layout = "rrr" if dtype in ("f32", "i8", "bf16") else "ccc"
    found = results(small(variant, dtype, layout))
    assert [(list(map(str, r.findings)), r.message) for r in found] == [([], "")] * len(found)
    walks_over_columns = variant in ("block_1d", "shared_row")
    assert len(found) == 2 or walks_over_columns


def test_why_a_kernel_is_not_tried() -> None:
    assert "tensor maps" in why_not(make_spec("mma_tma"))
    assert why_not(make_spec("mma")) == why_not(make_spec("naive")) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return row * lda + k;", "return int(row) * int(lda) + k;"),
        ("return k * ldb + col;", "return index_t(int(k) * int(ldb)) + col;"),
        ("return row * ldc + col;", "return index_t(int(row) * int(ldc)) + col;"),
        ("index_t(blockIdx.x) * kTile", "int(blockIdx.x) * kTile"),
        ("row0 += index_t(gridDim.y) * kTile", "row0 = index_t(gridDim.y) * kTile + M"),
        ("row0 += index_t(gridDim.y) * kTile", "row0 += index_t(gridDim.y) * (kTile + 1)"),
    ],
)
def test_what_only_shows_far_away_is_found(old: str, new: str) -> None:
    found = results(make_spec("tiles", tile=7), (old, new))
    assert any(r.findings or r.message for r in found)
