"""Index arithmetic beyond 32 bits, and blocks that stride."""

import dataclasses

import pytest

from gen.far import FarResult, far_results
from gen.nvrtc import compile_cuda
from gen.registry import VARIANTS, make_spec
from gen.render import render
from gen.spec import DTYPES, KernelSpec
from tests.test_verify import SMALL


def results(spec: KernelSpec, *edits: tuple[str, str]) -> list[FarResult]:
    source = render(spec)
    for old, new in edits:
        assert old in source.text
        source = dataclasses.replace(source, text=source.text.replace(old, new))
    return list(far_results(spec, compile_cuda(source.text, name=source.filename)))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kernel_is_right_far_away(variant: str, dtype: str) -> None:
    layout = "rrr" if dtype in ("f32", "i8", "bf16") else "ccc"
    found = results(make_spec(variant, dtype=dtype, layout=layout, **SMALL[variant]))
    assert [(list(map(str, r.findings)), r.message) for r in found] == [([], "")] * len(found)
    walks_over_columns = variant in ("block_1d", "shared_row")
    assert len(found) == 2 or walks_over_columns


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
