"""Where chunks of `simt` pass registers, and that they arrive, at any alignment and end of K."""

from typing import Any

import pytest

from gen.device.choose import choose_runner
from gen.kernels.registry import make_spec
from gen.prove.verify import verify
from gen.source.render import render
from gen.spec.problem import GemmShape
from tests.support.slow import sift

TEAMS = {"threadblock": "64x128x32", "sliced_k": 4}


@pytest.mark.parametrize(
    ("held", "more"),
    [
        (True, {"layout": "rrr"}),
        (True, {"layout": "rcr", "split_k": 0}),
        (True, {"layout": "ccr", "dtype": "i32"}),
        (True, {"layout": "rrc"}),
        (False, {"layout": "crr"}),  # nothing to transpose
        (False, {"layout": "rcr", "threadblock": "256x128x8"}),
        (False, {"layout": "rcr", **TEAMS}),
        (False, {"layout": "rcr", "dtype": "f64"}),
        (False, {"layout": "rcr", "threadblock": "128x128x8"}),  # a short step
        (False, {"layout": "rcr", "threadblock": "128x128x16"}),  # too much for each thread
    ],
)
def test_chunks_pass_registers_where_that_pays(held: bool, more: dict[str, Any]) -> None:
    text = render(make_spec("simt", **more)).text
    assert ("ld.global.v4" in text) == held
    assert ("cp.async.cg" in text) == (not held and more["layout"] != "rcr")


@pytest.mark.parametrize("layout", sift(["rrr", "rcr", "ccr"], ["rcr"]))
@pytest.mark.slow
def test_chunks_arrive(layout: str) -> None:
    """Steps that are whole, that end within a chunk or between two, and fewer than stages."""
    shapes = [GemmShape(*s) for s in ((130, 260, 44), (128, 256, 4), (3, 5, 37), (132, 8, 8))]
    spec = make_spec("simt", layout=layout)
    assert [r.message for r in verify(spec, choose_runner("cpu"), shapes) if not r.ok] == []
