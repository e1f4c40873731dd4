"""Instructions through which the 32 lanes of a warp exchange values: shuffles and votes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gen.emulator.isa.bits import popc
from gen.emulator.isa.ops import Value
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.chunk import WarpChunk
from gen.emulator.warp.lacking import Lacking, lacking
from gen.emulator.warp.masks import WARP, Mask, compact, lanes_of

_TO_BLOCKS = (0, 2, 4, 1, 3, 5)  # block axes first
_TO_CHUNK = (0, 3, 1, 4, 2, 5)


def to_warps(chunk: WarpChunk, value: Value) -> npt.NDArray[Any]:
    """A value as (blocks, warps, 32); lanes that the last warp lacks are zero."""
    full = np.broadcast_to(value, chunk.shape).transpose(_TO_BLOCKS).reshape(-1, chunk.threads)
    missing = -chunk.threads % WARP
    if missing:
        full = np.concatenate([full, np.zeros((len(full), missing), full.dtype)], axis=1)
    return full.reshape(len(full), -1, WARP)


def from_warps(chunk: WarpChunk, value: npt.NDArray[Any]) -> Value:
    """The inverse of `to_warps`; lanes that do not exist are dropped."""
    flat = value.reshape(len(value), -1)[:, : chunk.threads]
    z, tz, y, ty, x, tx = chunk.shape
    return flat.reshape(z, y, x, tz, ty, tx).transpose(_TO_CHUNK)


def all_lanes(chunk: WarpChunk, warps: npt.NDArray[np.bool_]) -> Value:
    """The lanes of some warps, (blocks, warps)."""
    return from_warps(chunk, np.broadcast_to(warps[..., None], (*warps.shape, WARP)))


def check_members(chunk: WarpChunk, m: Mask | None, item: Instruction, members: Value) -> None:
    """Report lanes that the member mask names, that are alive, and that do not take part."""
    if m is None and members.ndim == 0 and members == -1:
        return
    running = np.ones((1,) * 6, np.bool_) if m is None else m.bits
    lane = chunk.special("%laneid")
    if members.ndim:  # what the running lanes of each warp name, together
        masks = to_warps(chunk, np.where(running, members, np.int32(0)))
        union = np.bitwise_or.reduce(masks, axis=-1, keepdims=True)
        members = from_warps(chunk, np.broadcast_to(union, masks.shape))
    named = (members >> lane & np.int32(1)) != 0
    stranger = running & ~named
    absent: Any = np.False_
    if m is not None:
        live = True if chunk.live is None else chunk.live.bits
        touched = to_warps(chunk, running).any(axis=-1, keepdims=True)
        touched = from_warps(chunk, np.broadcast_to(touched, (*touched.shape[:-1], WARP)))
        absent = touched & named & live & ~running
    bad = stranger | absent
    if np.any(bad):
        block, threads, count = lanes_of(np.asarray(bad), None, chunk.shape, chunk.origin)
        name = "bar.warp.sync" if item.opcode == "bar" else f"{item.opcode}.sync"
        message = f"{name} where {count} lanes are in its member mask but not there"
        if stranger.any():
            message = f"{name} by {count} lanes that its member mask does not name"
        chunk.launch.findings.add("synccheck", item, message, block, threads)


def warp_barrier(chunk: WarpChunk, m: Mask | None, item: Instruction, members: Value) -> None:
    """bar.warp.sync: nothing to wait for in lockstep; checks learn what it orders."""
    check_members(chunk, m, item, members)
    chunk.warp_sync(m)


def shuffle(
    chunk: WarpChunk, m: Mask | None, item: Instruction, mode: str,
    a: Value, b: Value, c: Value, members: Value,
) -> tuple[Value, Value]:  # fmt: skip
    """shfl.sync: `a` of the lane that `b` and `c` pick, and whether that lane is in range."""
    check_members(chunk, m, item, members)
    lane = chunk.special("%laneid")
    segment = c >> np.int32(8) & np.int32(31)
    low = lane & segment
    last = low | c & np.int32(31) & ~segment
    step = b & np.int32(31)
    source = {
        "up": lane - step, "down": lane + step, "bfly": lane ^ step, "idx": low | step & ~segment
    }[mode]  # fmt: skip
    inside = source >= last if mode == "up" else source <= last
    source = np.where(inside, source, lane)
    chunk.shuffled = source, _strayed(chunk, m, source)
    if a.ndim == 0:
        return a, inside
    picked = np.take_along_axis(to_warps(chunk, a), to_warps(chunk, source), axis=-1)
    return from_warps(chunk, picked), inside


def _strayed(chunk: WarpChunk, m: Mask | None, source: Value) -> Lacking:
    """The lanes whose source lane does not run: what they get is undefined."""
    if m is None and chunk.threads % WARP == 0:
        return None
    running = to_warps(chunk, np.True_ if m is None else m.bits)
    there = np.take_along_axis(running, to_warps(chunk, source), axis=-1)
    if (there | ~running).all():
        return None
    return compact(from_warps(chunk, ~there & running))


def lacking_shuffled(chunk: WarpChunk, lacks: Lacking) -> Lacking:
    """The lanes that have no value from the latest shuffle; `lacks`: those that had none before."""
    assert chunk.shuffled is not None
    source, strayed = chunk.shuffled
    if lacks is None:
        return strayed
    picked = np.take_along_axis(to_warps(chunk, lacks), to_warps(chunk, source), axis=-1)
    return lacking(strayed, compact(from_warps(chunk, picked)) if picked.any() else None)


def elect(
    chunk: WarpChunk, m: Mask | None, item: Instruction, members: Value
) -> tuple[Value, Value]:
    """elect.sync: the first running lane of each warp, and whether that is the lane itself."""
    check_members(chunk, m, item, members)
    lane = chunk.special("%laneid")
    if members.ndim:  # groups of a warp, each with a mask of its own
        lowest = popc((members & -members) - np.int32(1))
        return lowest, lane == lowest
    if m is None:
        return np.int32(0), lane == np.int32(0)
    first = to_warps(chunk, m.bits).argmax(axis=-1).astype(np.int32)[..., None]
    leader = compact(from_warps(chunk, np.broadcast_to(first, (*first.shape[:-1], WARP))))
    return leader, lane == leader


def ballot(chunk: WarpChunk, m: Mask | None, item: Instruction, a: Value, members: Value) -> Value:
    """vote.sync.ballot: a bit for each running lane of the warp whose predicate holds."""
    check_members(chunk, m, item, members)
    return _votes(chunk, a if m is None else a & m.bits) & members


def active(chunk: WarpChunk, m: Mask | None) -> Value:
    """activemask: a bit for each lane of the warp that is there; it waits for no other."""
    return _votes(chunk, np.True_ if m is None else m.bits)


def _votes(chunk: WarpChunk, yes: Value) -> Value:
    """For all lanes of a warp: a bit for each that says yes."""
    votes = to_warps(chunk, yes)
    return from_warps(chunk, np.broadcast_to(_word(chunk, votes)[..., None], votes.shape))


def vote(
    chunk: WarpChunk, m: Mask | None, item: Instruction, mode: str, a: Value, members: Value
) -> Value:
    """vote.sync.{all,any,uni}: whether the predicate holds for all or any of the running lanes."""
    yes = ballot(chunk, m, item, a, members)
    no = ballot(chunk, m, item, ~a, members)
    return {"all": no == 0, "any": yes != 0, "uni": (no == 0) | (yes == 0)}[mode]


def _word(chunk: WarpChunk, bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """The last axis, of 32 booleans, as the bits of an int32."""
    word: npt.NDArray[np.int64] = (bits.astype(np.int64) << np.arange(WARP)).sum(axis=-1)
    return word.astype(np.uint32).view(np.int32)


def match_any(
    chunk: WarpChunk, m: Mask | None, item: Instruction, a: Value, members: Value
) -> Value:
    """match.any.sync: for each lane, a bit for every running lane with the same value."""
    check_members(chunk, m, item, members)
    values = to_warps(chunk, a)
    running = to_warps(chunk, np.True_ if m is None else m.bits)
    same = (values[..., :, None] == values[..., None, :]) & running[..., None, :]
    return from_warps(chunk, _word(chunk, same)) & members


def match_all(
    chunk: WarpChunk, m: Mask | None, item: Instruction, a: Value, members: Value
) -> tuple[Value, Value]:
    """match.all.sync: the member mask and true if all running lanes have one value, else 0."""
    matches = match_any(chunk, m, item, a, members)
    everyone = ballot(chunk, m, item, np.True_, members)
    same = matches == everyone
    return np.where(same, members, np.int32(0)), same


_REDUCTIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def reduce_warp(
    chunk: WarpChunk, m: Mask | None, item: Instruction, a: Value, members: Value
) -> Value:
    """redux.sync: the sum (modulo 2**32), minimum, ... of all running lanes of the warp."""
    check_members(chunk, m, item, members)
    operation, limits = item.modifiers[1], np.iinfo(a.dtype)
    neutral = {"min": limits.max, "max": limits.min, "and": -1}.get(operation, 0)
    neutral = a.dtype.type(neutral)
    running = to_warps(chunk, np.True_ if m is None else m.bits)
    values = to_warps(chunk, a)
    if members.ndim:  # groups of a warp, each with a mask of its own
        masks = to_warps(chunk, members)[..., None] >> np.arange(WARP, dtype=np.int32) & 1
        running, values = running[..., None, :] & (masks != 0), values[..., None, :]
        values = np.where(running, values, neutral)
        return from_warps(chunk, _REDUCTIONS[operation].reduce(values, axis=-1, dtype=a.dtype))
    values = np.where(running & (members >> np.arange(WARP, dtype=np.int32) & 1 != 0), values,
                      neutral)  # fmt: skip
    result = _REDUCTIONS[operation].reduce(values, axis=-1, keepdims=True, dtype=a.dtype)
    return from_warps(chunk, np.broadcast_to(result, values.shape))
