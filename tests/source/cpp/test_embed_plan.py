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
from gen.prove.launcher_program import Program
from tests.prove.test_verify import SCALAR, TENSOR, small
from tests.source.cpp.test_embed import EMBEDDED, SIMPLE, TURNS
from tests.spec.test_spec import specs
from tests.support.launchers import embedded, wrong_embedded
from tests.support.programs import need
from tests.support.slow import sift

CASES = [*EMBEDDED, *((variant, dtype, {"layout": "ccr"}) for variant, dtype in SIMPLE)]
QUICK = [*TURNS, *CASES[len(EMBEDDED) :: 5]]


@pytest.mark.parametrize(("variant", "dtype", "more"), sift(CASES, QUICK))
def test_an_embedded_launcher_carries_out_the_plan(
    variant: str, dtype: str, more: dict[str, Any], tmp_path: Path
) -> None:
    need("g++")
    spec = small(variant, dtype, **{**more, "name": "gemm"})
    program = Program(embedded(spec), tmp_path)
    assert not wrong_embedded(program, spec)
    assert program.loaded == ["sm_0", "unload sm_0"]  # once for both devices


@given(st.data())
@settings(max_examples=5, deadline=None)
def test_any_embedded_launcher_carries_out_the_plan(data: st.DataObject) -> None:
    need("g++")
    drawn = data.draw(specs(data.draw(st.sampled_from((tuple(SCALAR), tuple(TENSOR))))))
    spec = replace(drawn, symbol="gemm")
    with tempfile.TemporaryDirectory() as folder:
        assert not wrong_embedded(Program(embedded(spec), Path(folder)), spec)


BROKEN = [
    ("naive", {}, "(M + kThreadsY - 1) / kThreadsY", "M / kThreadsY"),
]


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
    assert wrong_embedded(Program(replace(host, files=files), tmp_path), spec)
