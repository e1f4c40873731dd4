"""The 64 bits of an mbarrier object, which lie in shared memory, where the kernel has put it.

Bits 0 to 19 count the arrivals that the current phase still needs, 20 to 39 those that each phase
needs, 40 to 61 the bytes of copies that it still expects (the tx-count, with a bias), and bit 62 is
the phase's parity. Bit 63 is 0: shared memory that was never written is no mbarrier object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MOST = (1 << 20) - 1  # arrivals, and bytes of copies, that an mbarrier can wait for
_BIAS = 1 << 21
Words = npt.NDArray[np.int64]  # an object of each block, shaped (z, 1, y, 1, x, 1)


@dataclass
class State:
    """What the words of mbarrier objects say."""

    pending: Words  # arrivals that the phase still needs
    expected: Words  # arrivals that each phase needs
    bytes: Words  # of copies that the phase still expects
    phase: Words  # 0 or 1

    @classmethod
    def of(cls, words: Any) -> State:
        """Unpack words, or a single one."""
        counts = words & MOST, words >> 20 & MOST
        return cls(*counts, (words >> 40 & (2 * _BIAS - 1)) - _BIAS, words >> 62 & 1)

    def pack(self) -> Words:
        """The words again."""
        return self.pending | self.expected << 20 | self.bytes + _BIAS << 40 | self.phase << 62
