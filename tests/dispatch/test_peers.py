"""What nvMatmulHeuristics is asked, on a stand-in for it; and the package itself, where it is."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gen.cli import main
from gen.device.gpus import GPUS
from gen.dispatch import peers
from gen.dispatch.ranking import Product
from gen.spec.dtypes import DTYPES
from gen.spec.problem import ALL_LAYOUTS, GemmShape, parse_layout

KERNEL = SimpleNamespace(
    cta_tile_m=64, cta_tile_n=64, cta_tile_k=32, warp_tile_m=32, warp_tile_n=16, warp_tile_k=32,
    stages=5, cluster_m=2, cluster_n=1, split_k=3,
)  # fmt: skip


class Names:
    """An enumeration whose members are their names."""

    PERF_MODEL_BASED_AUTO_TUNING = 8

    def __getitem__(self, name: str) -> str:
        return name


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the stand-in is asked."""
    found: dict[str, Any] = {}

    class Interface:
        def __init__(self, **options: Any) -> None:
            found.update(options)

        def makeNvMatmulHeuristicsProblem(self, *problem: Any) -> Any:
            found["problem"] = problem
            return problem

        def get(self, problem: Any, count: int, precision: str) -> list[dict[str, Any]]:
            found.update(count=count, precision=precision)
            return [{"kernel": KERNEL, "runtime": 7e-6}] * count

    module = SimpleNamespace(
        NvMatmulHeuristicsInterfaceEx=Interface,
        **{
            f"NvMatmulHeuristics{name}": Names()
            for name in ("Target", "Flags", "NvidiaGpu", "MatmulLayout")
        },
    )
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", module)
    return found


COMMAND = ["choose", "--shape", "100x72x512", "--dtype", "bf16", "--gpu", "a100", "--batch", "3"]


def test_it_is_asked_for_the_problem(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--layout", "rcr", "--peer", "nvmatmulheuristics", "--top", "2"]
    assert main([*COMMAND, *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["peer"]
    assert asked == {
        "backend": "CUTLASS", "flags": 8, "gpu": "A100_SXM_80GB", "count": 2, "precision": "TST",
        "problem": (100, 72, 512, "NT_ROW_MAJOR", 3),
    }  # fmt: skip
    assert found["target"] == "CUTLASS"
    one = found["kernels"][0]
    assert (one["tile"], one["warp"], one["cluster"]) == ([64, 64, 32], [32, 16, 32], [2, 1])
    assert (one["stages"], one["slices"], one["us"]) == (5, 3, pytest.approx(7))
    assert main([*COMMAND, *options]) == 0
    row = capsys.readouterr().out.splitlines()[-2].split()
    assert row[:8] == ["1", "64x64x32", "32x16x32", "5", "2x1", "3", "7.00", "us"]
    assert row[8:] == [f"{one['ours']}:", *row[9:]]


def test_layouts_are_those_of_d() -> None:
    names = [peers._layout(parse_layout(layout)) for layout in ALL_LAYOUTS]
    assert names == [
        "NN_ROW_MAJOR", "TT_COL_MAJOR", "NT_ROW_MAJOR", "TN_COL_MAJOR",
        "TN_ROW_MAJOR", "NT_COL_MAJOR", "TT_ROW_MAJOR", "NN_COL_MAJOR",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--dtype f32 --gpu a100 --peer nvmatmulheuristics", 2, "not asked for the element types"),
        ("--dtype f16 --gpu t4 --peer nvmatmulheuristics", 2, "is not asked for the GPU t4; use"),
        ("--dtype f16 --gpu a100 --peer cublas", 2, "unknown peer 'cublas'"),
    ],
)
def test_what_it_does_not_know(
    options: str, code: int, message: str, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["choose", "--shape", "64", *options.split()]) == code
    assert message in capsys.readouterr().err


def test_without_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", None)
    assert main([*COMMAND, "--peer", "nvmatmulheuristics"]) == 3
    assert "get it with: pip install 'nvidia-matmul-heuristics>=" in capsys.readouterr().err


def test_the_package_itself() -> None:
    pytest.importorskip("nvMatmulHeuristics")
    for name in peers._TYPES:
        product = Product.packed(GemmShape(512, 512, 512), DTYPES[name], parse_layout("rcr"))
        gpu = GPUS["h200" if DTYPES[name].input.is_fp8 else "a100"]
        kernels = peers.advised(product, gpu, 2).kernels
        assert all(0 < one.us < 1e4 and min(one.tile) >= 8 for one in kernels)
        assert kernels
