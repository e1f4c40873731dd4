"""The kernel for few rows or columns of an operand across K: results, and what it refuses."""

from __future__ import annotations

import pytest

from gen.device.emulated import EmulatorRunner
from gen.errors import SpecError
from gen.kernels.registry import make_spec
from gen.prove.verify import verify
from gen.spec.problem import GemmShape


@pytest.mark.parametrize(
    ("tunables", "shape"),
    [
        ({"threads": 64, "vectors": 4}, (6, 36, 77)),
        ({"threads": 64, "vectors": 2, "arch": "sm_90", "cluster": "1x1x4"}, (3, 33, 150)),
        ({"threads": 64, "vectors": 2, "few": "columns", "layout": "crr"}, (40, 3, 70)),
    ],
)  # fmt: skip
def test_results_are_right(tunables: dict[str, object], shape: tuple[int, int, int]) -> None:
    spec = make_spec("narrow", **tunables)  # type: ignore[arg-type]
    (found,) = verify(spec, EmulatorRunner(), [GemmShape(*shape)])
    assert found.ok, found.message


def test_lines_have_to_run_across_k() -> None:
    with pytest.raises(SpecError, match=r"layout=rcr all lines run along K; use gemv"):
        make_spec("narrow", layout="rcr")
    with pytest.raises(SpecError, match=r"with few=columns, narrow .* lines of A .*; use few=rows"):
        make_spec("narrow", few="columns")
    assert make_spec("narrow", layout="ccr").tunables["few"] == "columns"


def test_clusters_need_hopper() -> None:
    with pytest.raises(SpecError, match=r"sm_80 has no clusters; use cluster=1x1 or arch=sm_90"):
        make_spec("narrow", cluster="1x1x8")
