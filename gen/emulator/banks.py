"""How the memory units split one instruction of a warp: global sectors, shared wavefronts.

Addresses are rows of 32 lanes, one row for each warp that executes the instruction, and `valid`
says which lanes take part. An access is naturally aligned, as memcheck requires.

Global memory is moved in sectors of 32 bytes. Shared memory has 32 banks of 4 bytes, and a
wavefront delivers one word of each bank, to as many lanes as want that word (CUDA C++ Programming
Guide, "Shared Memory"). What the guide does not say was measured, see `docs/profile.md`:
`tests/hardware/compare_counters.py` repeats the measurements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Addresses = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

SECTOR = 32
BANKS = 32
NOTHING = -1  # stands in for the address of a lane that takes no part; sorts first


class Parts(NamedTuple):
    """How many parts each warp's request has, and how many it would have at best."""

    number: Numbers
    ideal: Numbers


def sectors(address: Addresses, size: int, valid: Lanes) -> Parts:
    """Sectors that each row touches; the ideal packs the bytes that it wants into the fewest."""
    ordered = np.sort(np.where(valid, address, NOTHING), axis=1)
    wanted = _distinct(ordered) * size
    return Parts(_distinct(ordered // SECTOR), -(-wanted // SECTOR))


def _distinct(ordered: Addresses) -> Numbers:
    """Different values in each sorted row, NOTHING not counted."""
    return np.asarray(_firsts(ordered).sum(axis=1))


def _firsts(ordered: Addresses) -> Lanes:
    first = ordered >= 0
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return first


def wavefronts(address: Addresses, size: int, valid: Lanes, matrix: bool = False) -> Parts:
    """Wavefronts of each row's access to shared memory; the ideal has no two words in one bank.

    Accesses of 8 and 16 bytes take turns: half warps and quarter warps. Neighbouring turns are
    taken together where each lane wants the same address as its neighbour (lane ^ 1), or each the
    same as its neighbour but one (lane ^ 2): two halves of a warp for 8 bytes, the two quarters
    of a half for 16. `matrix`: `ldmatrix`, whose turns are the matrices, 8 lanes each.
    """
    if size <= 4:
        return _turns(address, size, valid, 1)
    if matrix:
        return _turns(address, size, valid, 4)
    apart = 2 if size == 8 else 4
    together = apart // 2
    return _sum_pairs(
        _turns_each(address, size, valid, apart),
        _turns_each(address, size, valid, together),
        _paired(address, valid, together),
    )


def _turns(address: Addresses, size: int, valid: Lanes, turns: int) -> Parts:
    degree = _turns_each(address, size, valid, turns)
    return Parts(degree.sum(axis=1), (degree > 0).sum(axis=1))


def _sum_pairs(apart: Numbers, together: Numbers, paired: Lanes) -> Parts:
    """The turns of a warp, where some of them (`paired`) are pairs that are taken together."""
    pairs = apart.reshape(*together.shape, 2)
    count = np.where(paired, together, pairs.sum(axis=2))
    ideal = np.where(paired, together > 0, (pairs > 0).sum(axis=2))
    return Parts(count.sum(axis=1), ideal.sum(axis=1))


def _turns_each(address: Addresses, size: int, valid: Lanes, turns: int) -> Numbers:
    """Wavefronts of each turn, shaped (rows, turns): the most words that one bank has to give."""
    rows = len(address)
    words = np.where(valid, address >> 2, NOTHING).reshape(rows * turns, -1)
    if size > 4:
        more = np.arange(size // 4, dtype=np.int64)
        wide = np.where(words[:, :, None] >= 0, words[:, :, None] + more, NOTHING)
        words = wide.reshape(rows * turns, -1)
    ordered = np.sort(words, axis=1)
    first = _firsts(ordered)
    cell = np.arange(rows * turns)[:, None] * BANKS + ordered % BANKS
    found = np.bincount(cell[first], minlength=rows * turns * BANKS)
    return np.asarray(found.reshape(rows, turns, BANKS).max(axis=2))


def _paired(address: Addresses, valid: Lanes, parts: int) -> Lanes:
    """Whether the lanes of each part of a warp agree in pairs, shaped (rows, parts)."""
    lanes = np.arange(address.shape[1])
    agree = []
    for step in (1, 2):
        other = lanes ^ step
        same = (address == address[:, other]) | ~valid | ~valid[:, other]
        agree.append(same.reshape(len(address), parts, -1).all(axis=2))
    return np.asarray(agree[0] | agree[1])
