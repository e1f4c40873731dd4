"""variant="auto": what is chosen, and that it can be made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gen.dispatch import rules
from gen.dispatch.rules import Product
from gen.errors import SpecError
from gen.kernels.registry import VARIANTS, make_spec
from gen.kernels.variant import Candidate
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTYPES, parse_dtype
from gen.spec.kernel import Tile
from gen.spec.problem import GemmShape, parse_layout


def chosen(
    dtype: str, arch: str, m: int, n: int, k: int, layout: str = "rrr", **tunables: Any
) -> tuple[str, dict]:
    product = Product(GemmShape(m, n, k), parse_dtype(dtype), parse_layout(layout))
    return rules.choose(product, arch, 132, tunables)


def test_the_rules_of_auto() -> None:
    assert chosen("f16", "sm_90a", 4096, 4096, 4096) == (
        "wgmma", {"threadblock": "256x128x64", "stages": 4, "split_k": 1},
    )  # fmt: skip
    tiles = {256: "64x64", 1024: "64x128", 2048: "256x128", 3072: "192x192", 16384: "256x192"}
    for side, tile in tiles.items():
        how = chosen("f16", "sm_90a", side, side, side)[1]
        assert how["threadblock"] == f"{tile}x64", side
    assert chosen("f16_f16", "sm_90a", 4096, 4096, 4096)[1]["threadblock"] == "256x256x64"
    for layout, tile in (("rcr", "128x160"), ("rrr", "128x192")):
        assert chosen("f16", "sm_90a", 1535, 1536, 1537, layout)[1]["threadblock"] == f"{tile}x64"
    assert chosen("f16", "sm_90a", 64, 64, 65536)[1]["split_k"] == 0
    assert chosen("f16", "sm_90a", 64, 64, 512)[1]["split_k"] == 1
    small = chosen("f16", "sm_90a", 1024, 1024, 1024, stages=2)
    assert small == ("wgmma", {"threadblock": "64x128x64", "stages": 2, "split_k": 1})
    warp = {"warp": "64x64"}  # which wgmma does not have
    assert chosen("f16", "sm_90a", 1024, 1024, 1024, **warp) == ("mma_tma", warp)
    assert chosen("i8", "sm_80", 4096, 4096, 64) == (
        "mma", {"threadblock": "128x256x64", "warp": "64x64", "split_k": 1},
    )  # fmt: skip
    assert chosen("tf32", "sm_100a", 256, 256, 9000) == (
        "mma", {"threadblock": "64x64x16", "warp": "32x32", "split_k": 0},
    )  # fmt: skip
    assert chosen("f16", "sm_75", 4096, 4096, 64)[1]["threadblock"] == "128x128x32"
    assert chosen("i8", "sm_75", 64, 64, 64) == ("rec_tiles", {})
    relu = {"epilogue": "linear_bias_relu"}
    assert chosen("f32", "sm_90a", 64, 64, 64, **relu) == ("rec_tiles", relu)
    assert chosen("f16", "sm_80", 9, 9, 9, warp="32x32") == ("mma", {"warp": "32x32"})
    assert chosen("f16", "sm_80", 9, 9, 9, stages=2)[1]["stages"] == 2


def test_auto_takes_the_row_of_the_highest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new kernel is a new row: here one for small f32 problems, with two tiles to choose from."""
    new = replace(
        VARIANTS["tiles"],
        name="new",
        dtypes=("f32",),
        rank=99,
        most=1000,
        candidates=lambda _: [
            Candidate(Tile(n, n, n), time, {"tile": n}) for n, time in ((32, 1.0), (16, 1.2))
        ],
    )
    monkeypatch.setattr(rules, "VARIANTS", {**VARIANTS, "new": new})
    assert chosen("f32", "sm_80", 256, 256, 9) == ("new", {"tile": 16})
    assert chosen("f32", "sm_80", 1000, 1000, 1000) == ("new", {"tile": 32})
    assert chosen("f32", "sm_80", 1001, 256, 9) == ("rec_tiles", {})
    assert chosen("f64", "sm_80", 256, 256, 9) == ("rec_tiles", {})


def test_auto_says_where_no_kernel_has_the_types() -> None:
    with pytest.raises(SpecError, match=r"no kernel for sm_75 has tf32 at 9x9x9; use f32, f64, "):
        chosen("tf32", "sm_75", 9, 9, 9)
    with pytest.raises(SpecError, match="no kernel for sm_80 has f16_f32 at 1x1x2147483648; use f"):
        chosen("f16_f32", "sm_80", 1, 1, 2**31)


SINCE = {"bf16_f32": 80, "tf32": 80, **dict.fromkeys((n for n in DTYPES if n[0] == "e"), 89)}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_auto_chooses_can_be_made(arch: str, dtype: str) -> None:
    if compute_capability(arch) < SINCE.get(dtype, 0):
        with pytest.raises(SpecError, match=f"no kernel for {arch} has {dtype} at 1x1x1; use f32"):
            rules.choose(
                Product(GemmShape(1, 1, 1), parse_dtype(dtype), parse_layout("rrr")), arch, 132, {}
            )
        return
    sides = (700, 900), (1023, 1025), (1536, 1536), (2560, 2560), (4096, 4104), (6144, 6144)
    for m, n in ((1, 1), (1, 70_000), *sides, (4096, 4096)):
        for layout in ("rrr", "rcr", "ccc", "crc"):
            product = Product(GemmShape(m, n, 64), parse_dtype(dtype), parse_layout(layout))
            variant, tunables = rules.choose(product, arch, 132, {})
            make_spec(variant, dtype=dtype, layout=layout, arch=arch, **tunables)
