"""How much of its shared memory a kernel ever writes: a launch may ask for too much."""

from __future__ import annotations

import numpy as np

from gen.emulator.memory.observer import ObservedChunk, Observer


class SharedUse(Observer):
    """By kernel: up to which byte of a block's shared memory launches have written, and its size.

    That is seen at the end, by what is not as it was in the beginning.
    """

    def __init__(self) -> None:
        self.kernels: dict[str, tuple[int, int]] = {}

    def end(self, chunk: ObservedChunk) -> None:
        """See Observer."""
        if not chunk.launch.dynamic_bytes:
            return
        size = chunk.launch.shared_bytes
        written = (chunk.shared.data[:, :size] != chunk.shared.blank).any(axis=0)
        last = size - int(np.argmax(written[::-1])) if written.any() else 0
        last, size = (max(n - chunk.launch.unused_bytes, 0) for n in (last, size))
        name = chunk.launch.program.kernel.name
        before, given = self.kernels.get(name, (0, 0))
        self.kernels[name] = max(last, before), max(size, given)
