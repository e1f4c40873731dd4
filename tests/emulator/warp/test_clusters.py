"""Ranks, addresses and the folding of clusters, by their definitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gen.emulator.warp.clusters import RANK_SHIFT, Clusters
from gen.emulator.warp.masks import Mask
from tests.support.slow import slow

SIZES = st.tuples(*(st.integers(1, 3) for _ in range(3)))


def place(lane: tuple[int, ...], dims: tuple[int, int, int]) -> tuple[int, tuple[int, int, int]]:
    """The rank of a lane's block, and the cluster (x, y, z) that it belongs to."""
    z, y, x = lane[0], lane[2], lane[4]
    rank = x % dims[0] + dims[0] * (y % dims[1] + dims[1] * (z % dims[2]))
    return rank, (x // dims[0], y // dims[1], z // dims[2])


@given(SIZES, SIZES, SIZES, st.data())
@slow
def test_clusters(
    dims: tuple[int, int, int], counts: tuple[int, int, int], threads: tuple[int, int, int],
    data: st.DataObject,
) -> None:  # fmt: skip
    blocks = [n * c for n, c in zip(dims, counts, strict=True)]
    shape = (blocks[2], threads[2], blocks[1], threads[1], blocks[0], threads[0])
    clusters = Clusters(shape, dims)
    rank = np.broadcast_to(clusters.rank, shape)
    row = np.broadcast_to(clusters.row, shape)
    value = np.arange(np.prod(shape)).reshape(shape)
    folded = clusters.fold(value) if clusters.size > 1 else value
    known: dict[tuple[int, tuple[int, int, int]], int] = {}
    for lane in np.ndindex(shape):
        assert rank[lane] == place(lane, dims)[0]
        known[place(lane, dims)] = int(row[lane])
        at = []
        for axis, size, count in zip((0, 2, 4), dims[::-1], shape[1::2], strict=True):
            at += [lane[axis] // size, lane[axis] % size * count + lane[axis + 1]]
        assert folded.shape == clusters.folded
        assert folded[tuple(at)] == value[lane]
    wanted = data.draw(st.integers(0, clusters.size))
    address = np.full((1,) * 6, wanted + 1 << RANK_SHIFT | 40)
    block, offset, stranger = clusters.locate(address)
    assert (stranger == (wanted == clusters.size)).all()
    assert (offset == 40).all()
    if wanted < clusters.size:
        there = np.broadcast_to(block, shape)
        for lane in np.ndindex(shape):
            assert there[lane] == known[wanted, place(lane, dims)[1]]
    assert (clusters.locate(np.full((1,) * 6, 40))[0] == clusters.row).all()


@given(SIZES, SIZES, st.data())
def test_near(
    dims: tuple[int, int, int], counts: tuple[int, int, int], data: st.DataObject
) -> None:
    """Own addresses are offsets, the same in all blocks; others say 1 plus the rank."""
    blocks = [n * c for n, c in zip(dims, counts, strict=True)]
    shape = (blocks[2], 1, blocks[1], 2, blocks[0], 3)
    clusters = Clusters(shape, dims)
    if clusters.size == 1:
        assert clusters.near(np.int64(40)) == 40
        return
    own = np.broadcast_to(clusters.own, shape)
    assert (own == np.broadcast_to(clusters.rank, shape) << RANK_SHIFT).all()
    assert clusters.near(clusters.own + np.int64(40)).ravel().tolist() == [40]
    assert clusters.near(clusters.own - np.int64(16)).ravel().tolist() == [-16]
    rank, offset = data.draw(st.integers(0, clusters.size)), data.draw(st.integers(0, 1 << 20))
    mapped = clusters.map(np.int64(offset), np.int64(rank))
    near = np.broadcast_to(clusters.near(mapped), shape)
    here = own >> RANK_SHIFT == rank
    assert (near == np.where(here, offset, rank + 1 << RANK_SHIFT | offset)).all()
    assert (clusters.rank_of(mapped) == rank).all()
    own_one = int(own[0, 0, 0, 0, 0, 0])
    assert clusters.near(mapped, own_one) == near[0, 0, 0, 0, 0, 0]
    bits = np.zeros(shape, np.bool_)
    bits[-1, :, -1, :, -1] = True
    some = clusters.near(np.where(bits, own + 8, 1 << 50), None, Mask(bits))
    assert (some == 8).all()


@given(SIZES, SIZES, st.lists(st.booleans(), min_size=6, max_size=6))
def test_folding_what_is_small(
    dims: tuple[int, int, int], threads: tuple[int, int, int], wide: list[bool]
) -> None:
    """A value with axes of one element folds to what it is for all lanes."""
    shape = (2 * dims[2], threads[2], dims[1], threads[1], dims[0], threads[0])
    clusters = Clusters(shape, dims)
    small = tuple(n if w else 1 for n, w in zip(shape, wide, strict=True))
    value = np.random.default_rng(0).integers(0, 3, small)
    full = clusters.fold(np.broadcast_to(value, shape))
    found = clusters.fold(value)
    assert (np.broadcast_to(found, clusters.folded) == full).all()
