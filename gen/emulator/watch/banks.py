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

from gen.spec.arch import SECTOR

Addresses = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

LINE = 128
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


def copy_sectors(address: Addresses, target: Addresses, size: int, valid: Lanes) -> Parts:
    """Sectors of `cp.async.cg` from `address` to `target` in shared memory.

    It goes past L1 and is counted by what arrives: each row's sectors of shared memory, once for
    every 128 bytes of global memory that they are filled from.
    """
    pair = ((address // LINE) << 32) + target // SECTOR
    ordered = np.sort(np.where(valid, pair, NOTHING), axis=1)
    return Parts(_distinct(ordered), -(-valid.sum(axis=1) * size // SECTOR))


def _distinct(ordered: Addresses) -> Numbers:
    """Different values in each sorted row, NOTHING not counted."""
    return np.asarray(_firsts(ordered).sum(axis=1))


def _firsts(ordered: Addresses) -> Lanes:
    first = ordered >= 0
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return first


def wavefronts(address: Addresses, size: int, valid: Lanes, pair: bool = True) -> Parts:
    """Wavefronts of each row's access to shared memory; the ideal has no two words in one bank.

    Accesses of 8 and 16 bytes take turns: half warps and quarter warps. `pair`: loads, which take
    neighbouring turns together where each lane of the warp wants the same address as its neighbour
    (lane ^ 1), or each the same as its neighbour but one (lane ^ 2): the two halves of a warp for
    8 bytes, the two quarters of each half for 16. Stores never do. Nor does `ldmatrix`, whose turns
    are the matrices, 8 lanes each.
    """
    turns = max(size // 4, 1)
    parts = _turns(address, size, valid, turns)
    if not pair or turns == 1:
        return parts
    together = _turns(address, size, valid, turns // 2)
    paired = _paired(address, valid)
    return Parts(*(np.where(paired, one, two) for one, two in zip(together, parts, strict=True)))


def _turns(address: Addresses, size: int, valid: Lanes, turns: int) -> Parts:
    degree = _turns_each(address, size, valid, turns)
    return Parts(degree.sum(axis=1), (degree > 0).sum(axis=1))


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


def _paired(address: Addresses, valid: Lanes) -> Lanes:
    """Whether the lanes of each row agree in pairs."""
    lanes = np.arange(address.shape[1])
    agree = []
    for step in (1, 2):
        other = lanes ^ step
        same = (address == address[:, other]) | ~valid | ~valid[:, other]
        agree.append(same.all(axis=1))
    return np.asarray(agree[0] | agree[1])
