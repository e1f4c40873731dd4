"""Where chunks of `simt` pass registers, and that they arrive, at any alignment and end of K."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gen
from gen.device.choose import choose_runner
from gen.errors import SpecError
from gen.kernels.registry import make_spec
from gen.prove.verify import verify
from gen.source.render import render
from gen.spec.problem import GemmShape
from tests.support.slow import sift

TEAMS = {"threadblock": "64x128x32", "sliced_k": 4}
MANY = {"threadblock": "32x32x32", "warp": "32x32", "sliced_k": 8}  # whose steps are short


@pytest.mark.parametrize(
    ("held", "more"),
    [
        (True, {"layout": "rrr"}),
        (True, {"layout": "rcr", "split_k": 0}),
        (True, {"layout": "ccr", "dtype": "i32"}),
        (True, {"layout": "rrc"}),
        (False, {"layout": "crr"}),  # nothing to transpose
        (False, {"layout": "rcr", "threadblock": "256x128x8"}),
        (True, {"layout": "rcr", "held": 1, "threadblock": "256x128x8"}),
        (True, {"layout": "rcr", **TEAMS}),
        (True, {"layout": "rcr", "threadblock": "128x64x16", "sliced_k": 2, "dtype": "i32"}),
        (False, {"layout": "rcr", "held": 0, **TEAMS}),
        (False, {"layout": "rrr", **TEAMS}),
        (True, {"layout": "rrr", "held": 1, **TEAMS}),
        (True, {"layout": "rrr", "held": 1, "stages": 3, **TEAMS}),
        (False, {"layout": "rcr", **MANY}),
        (True, {"layout": "rcr", "held": 1, **MANY}),
        (False, {"layout": "rcr", "dtype": "f64"}),
        (False, {"layout": "rcr", "threadblock": "128x128x8"}),  # a short step
        (False, {"layout": "rcr", "threadblock": "128x128x16"}),  # too much for each thread
    ],
)
def test_chunks_pass_registers_where_that_pays(held: bool, more: dict[str, Any]) -> None:
    text = render(make_spec("simt", **more)).text
    assert ("ld.global.v4" in text) == held
    assert ("cp.async.cg" in text) == (not held and more["layout"] != "rcr")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dtype": "f64"}, "elements of 4 bytes, not f64; use held=0 or dtype=f32"),
        ({"layout": "crr"}, "as none does in layout crr; use held=0"),
        ({"threadblock": "64x64x64"}, "8, 16, 32 along K, not 64; use held=0 or threadblock="),
        ({"threadblock": "128x128x32", "sliced_k": 2}, "and 8 chunks, more than the 215 that"),
        ({"threadblock": "128x64x16", "stages": 12, "sliced_k": 2}, "use stages=9 or held=0"),
        ({"stages": 3}, "4 stages or more, not 3: .* use stages=4 or held=0"),
        ({"threadblock": "128x64x8", "warp": "32x32"}, "threadblock.n=64; use held=0"),
    ],
)
def test_what_cannot_pass_registers_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_spec("simt", held=1, **{"layout": "rcr", **more})


ARRIVING = [
    {"layout": "rrr"},
    {"layout": "rcr"},
    {"layout": "ccr"},
    {"layout": "rcr", **TEAMS},
    {"layout": "rcr", "threadblock": "128x64x16", "sliced_k": 2, "stream_k": 1},
    {"layout": "rcr", "threadblock": "32x64x32", "warp": "32x32", "held": 1},  # short windows
    {"layout": "rcc", "held": 1, **MANY},
    {"layout": "rrr", "held": 1, "split_k": 2, **TEAMS},
    {"layout": "rrr", "stages": 3},
]


@pytest.mark.parametrize("more", sift(ARRIVING, ARRIVING[1:4:2]))
@pytest.mark.slow
def test_chunks_arrive(more: dict[str, Any]) -> None:
    """Steps that are whole, that end within a chunk or between two, and fewer than stages."""
    shapes = [GemmShape(*s) for s in ((130, 260, 44), (128, 256, 4), (3, 5, 37), (132, 8, 8))]
    spec = make_spec("simt", **more)
    assert [r.message for r in verify(spec, choose_runner("cpu"), shapes) if not r.ok] == []


@settings(max_examples=12)
@given(st.integers(1, 70), st.integers(1, 140), st.integers(1, 140), st.sampled_from([8, 16, 32]))
@example(33, 65, 97, 32)  # lines begin at each place of a window
def test_lines_may_begin_anywhere(m: int, n: int, k: int, depth: int) -> None:
    """Rows of A and columns of B are k apart: what a thread reads begins before its step."""
    numbers = np.random.default_rng(m * n * k)
    a, b = (numbers.integers(-3, 4, (x, k)).astype(np.float32) for x in (m, n))
    tile = {"threadblock": f"32x64x{depth}", "warp": "32x32", "held": 1}
    assert (gen.matmul(a, b.T, variant="simt", layout="rcr", **tile) == a @ b.T).all()
