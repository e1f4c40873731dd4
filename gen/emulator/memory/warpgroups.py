"""wgmma: what warpgroups multiply, and which registers and shared memory that may still be using.

A wgmma reads its operands and adds up when it is issued, here. On a GPU it does so at any time
until its warps have waited for the group that it was committed in. Until then nobody else may touch
its registers, which is a finding here, nor overwrite its operands in shared memory, which is for
racecheck to find: observers are told of both ends.

Registers that one wgmma names together are a *fragment*; translation has numbered these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gen.emulator.isa.classes import WARPGROUP
from gen.emulator.isa.ops import Value
from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.observer import MatrixRead, ObservedChunk
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.masks import BLOCK_AXES, THREAD_AXES, WARP, Bits, Mask, lanes_of
from gen.emulator.warp.mma import check_whole_warps, packed
from gen.emulator.warp.shuffles import all_lanes
from gen.emulator.warp.tensor_core import NOTHING, Array, Span
from gen.emulator.warp.wgmma import (
    LINE,
    ROWS,
    Form,
    Numbers,
    check_whole_groups,
    descriptor,
    elements,
    left_from_registers,
    lines,
    multiply,
    registers_of,
    spoilt_by_rank,
    sums_from_registers,
    warps_of,
)

_KEPT = 64  # groups that are told apart, as many as wait_group can leave
_SPOILT = (
    "wgmma.mma_async: the descriptor of {} has the rank of the block in its leading byte offset: "
    "the start address has bits above 18, as in a cluster a block's shared addresses carry its "
    "rank; mask it"
)


@dataclass
class _Fragment:
    """Registers that are operands of wgmma; all arrays are (blocks, warps)."""

    used: Numbers  # the number of the last wgmma of the warp that has them
    touched: Bits  # by other instructions since the last wgmma.fence
    by: Instruction | None = None  # the last of these
    item: Instruction | None = None  # the last wgmma
    form: Form | None = None
    # Of accumulators: what the last wgmma has left in its registers.
    registers: list[Value] = field(default_factory=list)
    sums: Array | None = None
    known: Span | None = None
    where: bytes = b""  # the warpgroups that executed it


class Warpgroups:
    """The warpgroups of one chunk."""

    def __init__(self, chunk: ObservedChunk) -> None:
        self.chunk = chunk
        shape = (chunk.lanes // chunk.threads, -(-chunk.threads // WARP))
        self.issued, self.done, self.groups = (np.zeros(shape, np.int64) for _ in range(3))
        self.ends = np.zeros((*shape, _KEPT), np.int64)  # of a warp's groups, as `issued` counts
        self.fenced = np.zeros(shape, np.bool_)
        self.fragments: dict[int, _Fragment] = {}

    # -- what generated code calls -------------------------------------------------------------
    def fence(self, item: Instruction, m: Mask | None) -> None:
        """wgmma.fence: what was done to registers is ordered before the wgmmas that follow."""
        check_whole_warps(self.chunk, m, item)
        warps = warps_of(self.chunk, m)
        self.fenced |= warps
        for fragment in self.fragments.values():
            fragment.touched &= ~warps

    def commit(self, item: Instruction, m: Mask | None) -> None:
        """wgmma.commit_group."""
        check_whole_warps(self.chunk, m, item)
        warps = warps_of(self.chunk, m)
        self.ends[warps, self.groups[warps] % _KEPT] = self.issued[warps]
        self.groups += warps

    def wait(self, item: Instruction, left: int, m: Mask | None) -> None:
        """wgmma.wait_group: all but the `left` latest groups of each warp are done."""
        check_whole_warps(self.chunk, m, item)
        warps = warps_of(self.chunk, m) & (self.groups > left)
        if left >= _KEPT or not warps.any():
            return
        ends = self.ends[warps, (self.groups[warps] - left - 1) % _KEPT]
        self.done[warps] = np.maximum(self.done[warps], ends)
        for observer in self.chunk.launch.observers:
            observer.matrices_done(self.chunk, warps, self.done)

    def touch(self, item: Instruction, number: int, copies: bool, m: Mask | None) -> None:
        """Another instruction reads or writes registers of a fragment.

        copies: it is a mov to one, which needs no fence: a compiler puts it where it likes.
        """
        fragment, warps = self._fragment(number), warps_of(self.chunk, m)
        early = warps & (fragment.used > self.done)
        if early.any() and fragment.item:
            what = f"a register of the wgmma.mma_async{_at(fragment.item)} is used before a "
            self._report(item, early, what + "wgmma.wait_group that waits for it", fragment.item)
        if not copies:
            fragment.touched |= warps
            fragment.by = item

    def move(self, source: int, target: int, m: Mask | None) -> None:
        """A fragment takes the place of another, as far as the compiler has named it anew."""
        old, new, warps = self._fragment(source), self._fragment(target), warps_of(self.chunk, m)
        new.used = np.where(warps, old.used, new.used)
        new.touched = np.where(warps, old.touched, new.touched)
        new.by, new.item, new.form = old.by, old.item, old.form

    def multiply(
        self, site: Site, form: Form, numbers: tuple[int, int], d: Sequence[Value], a: Any,
        b: Value, scale: Value, signs: tuple[int, int], turned: tuple[bool, bool], m: Mask | None,
    ) -> Sequence[Value]:  # fmt: skip
        """wgmma.mma_async: the registers of D.

        numbers: the fragments of D and A (-1: `a` is a descriptor). scale: whether D is added to.
        signs: 1 or -1, for A and B. turned: whether A and B are MN-major.
        """
        chunk = self.chunk
        active = check_whole_groups(chunk, m, site.item)
        if not active.any():
            return d
        blocks, groups = np.nonzero(active)
        warps = np.repeat(active, WARPGROUP, axis=1)[:, : self.issued.shape[1]]
        at = np.flatnonzero(warps)
        self.issued += warps
        target = self._fragment(numbers[0])
        for number in numbers:
            if number >= 0:
                self._begin(site.item, form, self._fragment(number), warps, number == numbers[0])
        places = blocks, groups, self.issued[blocks, groups * WARPGROUP]
        if numbers[1] >= 0:
            left = left_from_registers(chunk, form, a, at)
        else:
            left = self._matrix(site, form, "A", ROWS, a, turned[0], places, at)
        right = self._matrix(site, form, "B", form.n, b, turned[1], places, at, numbers[1] >= 0)
        if signs[0] * signs[1] < 0:
            left = -left
        total, known = self._accumulator(target, form, d, scale, active, at)
        sums = multiply(form, left, right, total, known)
        target.sums, target.known, target.where = sums.numbers, sums.known, active.tobytes()
        target.registers = registers_of(chunk, form, sums.numbers, at)
        return target.registers

    # -- registers -----------------------------------------------------------------------------
    def _fragment(self, number: int) -> _Fragment:
        if number not in self.fragments:
            nothing = np.zeros_like(self.issued)
            self.fragments[number] = _Fragment(nothing, nothing > 0)
        return self.fragments[number]

    def _begin(
        self, item: Instruction, form: Form, fragment: _Fragment, warps: Bits, sums: bool
    ) -> None:
        """A wgmma has the fragment as its accumulators, or as A; findings if it may not yet."""
        lacks = warps & (fragment.touched | ~self.fenced)
        if lacks.any():
            message = "wgmma.mma_async without a wgmma.fence before it"
            if fragment.by is not None and (warps & fragment.touched).any():
                message += f" and behind the use of its registers{_at(fragment.by)}"
            self._report(item, lacks, message, fragment.by or item)
        other = fragment.form is not None and (fragment.form.n, fragment.form.d) != (form.n, form.d)
        early = warps & (fragment.used > self.done)
        if sums and other and early.any() and fragment.item:
            message = f"wgmma.mma_async adds to registers of the one{_at(fragment.item)}, of "
            message += "another shape, before a wgmma.wait_group that waits for it"
            self._report(item, early, message, fragment.item)
        fragment.used = np.where(warps, self.issued, fragment.used)
        fragment.item, fragment.form = item, form

    def _accumulator(
        self, fragment: _Fragment, form: Form, d: Sequence[Value], scale: Value, active: Bits,
        at: Numbers,
    ) -> tuple[Array, Span | None]:  # fmt: skip
        """C, and what is known of it: what the last wgmma has left, if nobody has changed it."""
        kind = np.dtype({"f16": "f2", "f32": "f4", "s32": "i4"}[form.d])
        adds = self._uniform(fragment.item, "scale-d", scale, at)
        if not adds.any():
            return np.zeros((len(adds), ROWS, form.n), kind), NOTHING
        kept = fragment.where == active.tobytes() and len(fragment.registers) == len(d)
        if kept and all(x is y for x, y in zip(fragment.registers, d, strict=True)):
            total, known = fragment.sums, fragment.known
            assert total is not None
        else:
            total, known = sums_from_registers(self.chunk, form, d, at).view(kind), None
        if not adds.all():
            total, known = np.where(adds[:, None, None], total, kind.type(0)), None
        return total, known

    def _uniform(self, item: Any, what: str, value: Value, at: Numbers) -> Array:
        """An operand that all threads of a warpgroup have alike: an element for each group."""
        if value.ndim == 0:
            return np.full(len(at) // WARPGROUP, value)
        if all(value.shape[i] == 1 for i in THREAD_AXES):  # what has an address of shared memory
            blocks = at.reshape(-1, WARPGROUP)[:, 0] // self.issued.shape[1]
            counts = [self.chunk.shape[i] if i in BLOCK_AXES else 1 for i in range(6)]
            return np.asarray(np.broadcast_to(value, counts).reshape(-1)[blocks])
        each = packed(self.chunk, value)[at].reshape(-1, WARPGROUP * WARP)
        differ = (each != each[:, :1]).any(axis=1)
        if differ.any():
            warps = np.zeros(self.issued.shape, np.bool_)
            warps.reshape(-1)[at.reshape(-1, WARPGROUP)[differ].ravel()] = True
            message = f"the {what} of wgmma.mma_async differs between threads of a warpgroup"
            self._report(item, warps, message)
        return np.ascontiguousarray(each[:, 0])

    # -- shared memory -------------------------------------------------------------------------
    def _matrix(
        self, site: Site, form: Form, name: str, rows: int, words: Value, turned: bool,
        places: tuple[Numbers, Numbers, Numbers], at: Numbers, with_fragments: bool = False,
    ) -> Array:  # fmt: skip
        """An operand as (groups, rows, k), from where its descriptors say."""
        chunk, (blocks, groups, numbers) = self.chunk, places
        each = self._uniform(site.item, f"descriptor of {name}", words, at)
        found = [descriptor(int(word)) for word in each]
        if any(where.base for where in found):
            raise site.item.error(
                f"the descriptor of {name} has a base offset, which is not supported by the "
                "emulator; begin its pattern at a multiple of 1024 bytes"
            )
        offsets = np.stack([lines(where, rows, form.k, turned) for where in found])
        outside = (offsets < 0) | (offsets + LINE > chunk.shared.nbytes)
        beyond = np.asarray(outside.any(axis=(1, 2)))
        spoilt = spoilt_by_rank(chunk.clusters, blocks, groups, each, offsets, beyond)
        for wrong in (spoilt, beyond & ~spoilt):
            if wrong.any():
                bad = np.zeros(self.issued.shape, np.bool_)
                bad.reshape(-1)[at.reshape(-1, WARPGROUP)[wrong].ravel()] = True
                where = chunk.describe_shared(int(offsets[outside][0])) if outside.any() else ""
                message = f"wgmma.mma_async: matrix {name} at {where} is out of bounds"
                message = _SPOILT.format(name) if wrong is spoilt else message
                self._report(site.item, bad, message, check="memcheck")
        offsets = np.where(outside, 0, offsets) if outside.any() else offsets
        flat = offsets.reshape(len(offsets), -1)
        swizzles = np.array([where.swizzle for where in found])
        read = MatrixRead(site, name, blocks, groups, numbers, flat, swizzles, with_fragments)
        for observer in chunk.launch.observers:
            observer.matrix_read(chunk, read)
        view = chunk.shared.view(np.dtype("c16"))
        data = view[blocks[:, None, None], offsets >> 4]
        return elements(data, form, form.a if name == "A" else form.b, turned)

    def _report(
        self, item: Instruction, warps: Bits, message: str, other: Instruction | None = None,
        check: str = "synccheck",
    ) -> None:  # fmt: skip
        chunk = self.chunk
        block, threads, _ = lanes_of(all_lanes(chunk, warps), None, chunk.shape, chunk.origin)
        chunk.launch.findings.add(check, item, message, block, threads, other=other)


def _at(item: Instruction) -> str:
    return f" at line {item.line}" if item.line else ""
