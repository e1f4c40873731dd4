"""Index arithmetic beyond 32 bits, and blocks that stride."""

import dataclasses
from typing import Any

import pytest

from gen.compile.nvrtc import compile_cuda
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.far_indices import FarResult, far_results
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from tests.prove.test_verify import PAIRS, QUICK, small
from tests.support.slow import each, sift, slow


def results(spec: KernelSpec, *edits: tuple[str, str]) -> list[FarResult]:
    source = render(spec)
    for old, new in edits:
        assert old in source.text
        source = dataclasses.replace(source, text=source.text.replace(old, new))
    return list(far_results(spec, compile_cuda(source.text, name=source.filename, arch=spec.arch)))


@pytest.mark.parametrize(("variant", "dtype"), sift(PAIRS, QUICK[::24]))
def test_every_kernel_is_right_far_away(variant: str, dtype: str) -> None:
    layout = "rrr" if dtype in ("f32", "i8", "bf16") else "ccc"
    spec = small(variant, dtype, layout)
    found = results(spec)
    assert [(list(map(str, r.findings)), r.message) for r in found] == [([], "")] * len(found)
    walks_over_columns = variant in ("block_1d", "shared_row", "gemv")
    row, few = VARIANTS[variant], "few" in spec.tunables
    steps = few and "stages" in spec.geometry.values
    wide = 0 if spec.tunables.get("few") == "columns" else 3  # of D with long lines
    assert (
        len(found)
        == (
            2 + (spec.split_k != 1)
            if row.takes_workspace
            else 1 + wide + (row.by_vectors or few) + steps
        )
        or walks_over_columns
    )


BIASED = [
    ("naive", "f64", "linear_bias_gelu"),
    ("rec_tiles", "f16", "linear_bias_relu"),
    ("thread_1d", "i32", "linear_bias"),
    ("mma", "f16", "linear_bias_gelu"),
]


@pytest.mark.parametrize(("variant", "dtype", "epilogue"), each(2, BIASED))
@pytest.mark.parametrize("layout", each(2, ["rrr", "ccc"]))
def test_a_bias_is_right_far_away(variant: str, dtype: str, epilogue: str, layout: str) -> None:
    found = results(small(variant, dtype, layout, epilogue=epilogue))
    assert [(list(map(str, r.findings)), r.message) for r in found] == [([], "")] * len(found)
    assert len(found) > 1


@pytest.mark.parametrize("variant", sift(["mma_tma", "wgmma"], ["mma_tma"]))
@pytest.mark.parametrize(
    ("old", "new"),
    each(
        3,
        [
            ("  index_t ldc, ldd;", "  int ldc; index_t ldd;"),
            ("  index_t ldc, ldd;", "  index_t ldc; unsigned ldd;"),
            ("__restrict__ source, index_t ld,", "__restrict__ source, unsigned ld,"),  # to pack
        ],
    ),
)
@pytest.mark.slow
def test_lines_beside_tensor_maps(variant: str, old: str, new: str) -> None:
    """C, D and what is packed have lines of any length; operands in place are the TMA's."""
    spec = small(variant)
    assert any(one.findings or one.message for one in results(spec, (old, new)))


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


def test_a_bias_whose_index_wraps_around_is_found() -> None:
    spec = make_spec("tiles", tile=7, epilogue="linear_bias")
    near, far, *_ = results(spec, ("bias[col]", "bias[int(col)]"))
    assert not near.findings
    assert not near.message
    assert "memcheck" in str(far.findings[0])


OWN = "x * up[row, col] + shift_by[col] + one_row[row] where one_row=f16[row]"


@pytest.mark.parametrize(
    ("variant", "options"),
    sift(
        [
            ("naive", {"layout": "rrc"}),
            ("vectorized", {"dtype": "f16"}),
            ("mma", {"split_k": 3}),
            ("simt", {"layout": "rcc"}),
            ("gemv", {"few": "columns"}),
            ("tiles", {"dtype": "i8", "epilogue": OWN.replace("f16", "i8")}),
            ("tiles", {"epilogue": "col <= row ? x / N : row"}),
        ],
        [("naive", {"layout": "rrc"})],
    ),
)
def test_an_epilogue_of_the_users_own_is_right_far_away(
    variant: str, options: dict[str, Any]
) -> None:
    found = results(small(variant, **{"epilogue": OWN, **options}))
    assert found
    assert not any(r.findings or r.message for r in found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("up[c_at(row, col, aux.ld_up)]", "up[int(c_at(row, col, aux.ld_up))]"),
        ("shift_by[col]", "shift_by[unsigned(col)]"),
        ("aux.ld_up)", "unsigned(aux.ld_up))"),
    ],
)
def test_an_epilogue_whose_index_wraps_around_is_found(old: str, new: str) -> None:
    found = results(make_spec("tiles", tile=7, epilogue=OWN), (old, new))
    assert any(r.findings or r.message for r in found)


@pytest.mark.parametrize("number", ["int", "unsigned"])
@pytest.mark.slow
def test_columns_that_are_left_are_counted_in_32_bits(number: str) -> None:
    found = results(
        make_spec("thread_tile_1d"), ("N - col0 < kTileN", f"{number}(N - col0) < kTileN")
    )
    assert [bool(r.findings or r.message) for r in found] == [False, False, True, number == "int"]


@pytest.mark.parametrize("layout", sift(["rrr", "rcc"], ["rcc"]))
def test_lines_of_any_length(layout: str) -> None:
    spec = make_spec("thread_tile_1d", dtype="i8", layout=layout, threadblock="32x32x8")
    for old, new in (("(N + kTileN", "(int(N) + kTileN"), ("const index_t col0", "const int col0")):
        assert any(r.findings or r.message for r in results(spec, (old, new)))


@slow
@pytest.mark.parametrize("variant", ["gemv", "skinny"])
@pytest.mark.parametrize("ld", ["lda", "ldb"])
def test_aligned_lines_far_from_each_other(variant: str, ld: str) -> None:
    """Where several elements are read at once."""
    call = r"multiply<true>(sums" if variant == "skinny" else "multiply<kWidth>(sums"
    rest = ", row0, col0, M, N, K, A, lda, B, ldb)"
    found = results(make_spec(variant), (call + rest, call + rest.replace(ld, f"int({ld})")))
    assert any(r.findings or r.message for r in found)
