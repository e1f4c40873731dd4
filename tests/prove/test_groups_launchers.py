"""The launchers of kernels for groups, of rows and along K, carry out their plans."""

from __future__ import annotations

from typing import Any

import pytest

from gen.prove.launchers.check import check_launcher
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from tests.prove import test_groups, test_groups_k
from tests.support.slow import slow

_ROWS, _ALONG_K = test_groups.kernel, test_groups_k.kernel


@slow
@pytest.mark.parametrize(
    "spec",
    [
        *(_ROWS(variant, layout="rcr") for variant in test_groups.GROUPED),
        _ROWS("mma", epilogue="(x + bias[group, col]) * scale[group] + slope where slope=scalar"),
        *(_ALONG_K(variant) for variant in test_groups_k.GROUPED_K),
    ],
    ids=str,
)
def test_launchers_carry_out_the_plan(spec: KernelSpec) -> None:
    report = check_launcher(render(spec), always=True)
    assert not report.wrong
    assert not report.skipped


@slow
@pytest.mark.parametrize(
    ("made_by", "old", "new"),
    [
        (_ROWS, "if (offsets == nullptr) return cudaErrorInvalidValue;", ""),
        (_ROWS, "groups < M ? groups : M", "groups"),
        (_ROWS, "size_t(groups) > kSide", "size_t(groups) > kMost"),
        (_ROWS, "1 + (packs_b ?", "2 + (packs_b ?"),
        (_ALONG_K, "groups > 1 && !follow && !beside", "false"),
        (_ALONG_K, "|| groups > kLargest / (M * N)", ""),
        (_ALONG_K, "stride_d < 0 ||", ""),
    ],
)
def test_mistakes_of_launchers_are_found(made_by: Any, old: str, new: str) -> None:
    source = render(made_by("mma"))
    assert old in source.text
    assert check_launcher(Source(source.name, source.text.replace(old, new), source.spec)).wrong
