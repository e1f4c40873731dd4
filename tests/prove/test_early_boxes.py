"""What comes to L2 before a kernel's turn: all of the first steps, each box of them once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import gen
from gen.emulator.memory.bulk import BulkCopies
from gen.emulator.memory.bulk_moves import running

M, N, K = 104, 72, 80


@pytest.mark.parametrize("cluster", ["1x1", "2x1", "1x2", "2x2"])
@pytest.mark.parametrize("layout", ["rcr", "crr"])
def test_each_box_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, layout: str, cluster: str
) -> None:
    found: Counter[tuple[int, int, int]] = Counter()

    def prefetch(
        copies: BulkCopies, site: Any, address: Any, corner: tuple[Any, ...], mask: Any
    ) -> None:
        every = running(copies.chunk.shape, mask)
        found.update(zip(*(copies._of(every, x).tolist() for x in (address, *corner)), strict=True))

    monkeypatch.setattr(BulkCopies, "prefetch", prefetch)
    kernel = gen.Kernel(
        "wgmma", layout=layout, threadblock="64x64x64", cluster=cluster, device="cpu"
    )
    a = np.ones((M, K), np.float16, order="C" if layout[0] == "r" else "F")
    b = np.ones((K, N), np.float16, order="C" if layout[1] == "r" else "F")
    assert (kernel(a, b) == K).all()
    assert set(found.values()) == {1}
    if cluster == "1x1":
        assert len(found) == 8  # two rows and two columns of tiles, two steps of each
