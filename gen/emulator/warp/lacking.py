"""Which lanes lack a value in a register: booleans over the six axes, or None if all have one."""

from __future__ import annotations

import functools

import numpy as np

from gen.emulator.isa.ops import Value
from gen.emulator.warp.masks import Bits, Mask

EVERYONE: Bits = np.ones((1,) * 6, np.bool_)  # before the first instruction
Lacking = Bits | None


def lacking(*operands: Lacking) -> Lacking:
    """The lanes that lack any of the operands, and so the result."""
    some = [bits for bits in operands if bits is not None]
    if len(some) < 2 or all(bits is some[0] for bits in some):
        return some[0] if some else None
    return functools.reduce(np.logical_or, some)


def lacking_all(*operands: Lacking) -> Lacking:
    """The lanes that lack all of the operands."""
    some = [bits for bits in operands if bits is not None]
    if len(some) < len(operands):  # one has a value in all lanes
        return None
    return _tidy(functools.reduce(np.logical_and, some))


def lacking_either(condition: Value, yes: Lacking, no: Lacking) -> Lacking:
    """The lanes that lack the operand that the condition chooses."""
    if yes is no:
        return yes
    bits = [np.False_ if operand is None else operand for operand in (yes, no)]
    chosen = np.where(condition, *bits)
    return _tidy(chosen.reshape(chosen.shape or (1,) * 6))


def lacking_now(m: Mask | None, new: Lacking, old: Lacking) -> Lacking:
    """Behind a block that the lanes of `m` have run."""
    if m is None or new is old:
        return new
    return m.beyond(old) if new is None and old is not None else lacking_either(m.bits, new, old)


def _tidy(bits: Bits) -> Lacking:
    return bits if bits.any() else None
