"""The lines of instructions of warp-specialised kernels: mbarriers and what goes with them."""

from __future__ import annotations

import re

import numpy as np

from gen.emulator import isa
from gen.emulator.isa import DTYPES
from gen.emulator.memory import Site
from gen.emulator.memorycode import MemoryCode
from gen.emulator.module import Instruction
from gen.emulator.operands import Address, Box, Imm, Operand, Symbol

_SHARED = {"shared", "shared::cta", "shared::cluster"}
_MEANING = {"release", "acquire", "relaxed", "cta", "cluster", "b64", *_SHARED}
_OPERATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("init", "inval", "expect_tx", "complete_tx", "pending_count"), ()),
    **dict.fromkeys(("arrive", "arrive_drop"), ("expect_tx", "noComplete")),
    **dict.fromkeys(("test_wait", "try_wait"), ("parity",)),
}
_ARRIVE = re.compile(r"cp\.async\.mbarrier\.arrive(\.noinc)?(\.shared(::cta)?)?\.b64$")
_BULK_WAIT = re.compile(r"cp\.async\.bulk\.wait_group(\.read)?$")
_BULK = re.compile(
    r"cp\.async\.bulk(\.tensor\.(?P<rank>[1-5])d)?(?:"
    r"(?P<load>\.shared::(cluster|cta)\.global(\.tile)?\.mbarrier::complete_tx::bytes)"
    r"|\.global\.shared::cta(\.tile)?\.bulk_group)(\.L2::cache_hint)?$"
)
_BULK_PREFETCH = re.compile(
    r"cp\.async\.bulk\.prefetch\.tensor\.(?P<rank>[1-5])d\.L2\.global(\.tile)?(\.L2::cache_hint)?$"
)
_FENCE = re.compile(
    r"fence\.(proxy\.async(\.shared::(cta|cluster))?|(?P<init>mbarrier_init)\.release\.cluster)$"
)
REGISTER_COUNTS = range(24, 257, 8)


class AsyncCode(MemoryCode):
    """Generates the lines of one block, those of mbarriers included."""

    def instruction(self, item: Instruction) -> None:
        if isa.NO_EFFECT.match(item.name):
            return
        if item.opcode == "mbarrier":
            self.mbarrier(item)
        elif item.name.startswith("cp.async.mbarrier"):
            self.copies_arrive(item)
        elif item.name.startswith("cp.async.bulk"):
            self.bulk(item)
        elif match := _FENCE.match(item.name):
            mask = self.mask()
            self.call(f"E.bulk.fence({mask}, {bool(match['init'])})", mask)
        elif item.name == "griddepcontrol.wait":
            mask = self.mask()
            self.call(f"E.wait_for_grids({mask})", mask)
        elif item.opcode == "setmaxnreg":
            self.register_count(item)
        else:
            super().instruction(item)

    def register_count(self, item: Instruction) -> None:
        """setmaxnreg, which changes nothing here; all lanes of a warp execute it."""
        count = item.operands[0]
        if not isinstance(count, Imm) or count.value not in REGISTER_COUNTS:
            raise item.error("setmaxnreg takes a multiple of 8 from 24 to 256")
        self.lines.append(f"check_whole_warps(E, m, {self.constant(item)})")

    # -- mbarriers -----------------------------------------------------------------------------
    def mbarrier(self, item: Instruction) -> None:
        operation, *words = item.modifiers
        extra = set(words) - _MEANING
        if operation not in _OPERATIONS or not extra <= set(_OPERATIONS[operation]):
            raise item.error("this mbarrier operation is not supported by the emulator")
        if operation == "pending_count":
            state = self.read(item.operands[1], "b64")
            self.write(item.operands[0], f"({state} & 0xFFFFF).astype(np.uint32)", "u32")
        elif operation.startswith("arrive"):
            self.arrive(item)
        elif operation.endswith("wait"):
            self.wait(item)
        else:
            where, values = item.operands[0], [self.read(v, "u32") for v in item.operands[1:]]
            target, mask = self.object(item, where)
            name, sign = {"inval": ("invalidate", ""), "init": ("init", "")}.get(
                operation, ("transact", "-" * (operation == "complete_tx"))
            )
            rest = [f"{sign}{value}.astype(np.int64)" for value in values]
            # init takes its count before the mask, transact its bytes behind it.
            order = [*rest, mask] if name == "init" else [mask, *rest]
            self.call(f"E.mbarriers.{name}({', '.join([target, *order])})", mask)

    def arrive(self, item: Instruction) -> None:
        """arrive and arrive_drop: `{state | _,} [object] {, count | bytes}`."""
        operands = item.operands
        state = None if isinstance(operands[0], (Symbol, Address)) else operands[0]
        where, *values = operands if isinstance(operands[0], Address) else operands[1:]
        given = f"{self.read(values[0], 'u32')}.astype(np.int64)" if values else "np.int64(1)"
        both = f"np.int64(1), {given}" if "expect_tx" in item.modifiers else f"{given}, np.int64(0)"
        target, mask = self.object(item, where)
        drop, releases = item.modifiers[0] == "arrive_drop", "relaxed" not in item.modifiers
        call = f"E.mbarriers.arrive({target}, {mask}, {both}, {drop}, {releases})"
        if state is None:
            self.call(call, mask)
            return
        none = " if m1 is not NOBODY else np.int64(0)" * (mask == "m1")
        self.lines.append(f"state = {call}{none}")
        self.write(state, "state", "b64")

    def wait(self, item: Instruction) -> None:
        """test_wait and try_wait: `done, [object], state | parity {, time limit}`."""
        done, where, state = item.operands[:3]
        parity = "parity" in item.modifiers
        value = self.read(state, "b32" if parity else "b64")
        target, mask = self.object(item, where)
        acquires = "relaxed" not in item.modifiers
        call = f"E.mbarriers.wait({target}, {value}, {parity}, {acquires}, {mask})"
        self.lines.append(f"done = {call}")
        self.write(done, "done", "pred")

    def copies_arrive(self, item: Instruction) -> None:
        """cp.async.mbarrier.arrive: an arrival once the lane's copies have landed."""
        if not _ARRIVE.match(item.name):
            raise item.error("this kind of asynchronous copy is not supported by the emulator")
        target, mask = self.object(item, item.operands[0])
        counted = "noinc" in item.modifiers
        self.call(f"E.copies.signal({target}, {counted}, {mask})", mask)

    # -- bulk copies ---------------------------------------------------------------------------
    def bulk(self, item: Instruction) -> None:
        """cp.async.bulk and cp.async.bulk.tensor, and the groups of those out of shared memory."""
        mask = self.mask()
        if item.name == "cp.async.bulk.commit_group":
            self.call(f"E.bulk.commit({mask})", mask)
        elif _BULK_WAIT.match(item.name) and isinstance(item.operands[0], Imm):
            self.call(f"E.bulk.wait({int(item.operands[0].value)}, {mask})", mask)
        elif match := _BULK.match(item.name):
            self.bulk_copy(item, mask, match["rank"], bool(match["load"]))
        elif match := _BULK_PREFETCH.match(item.name):
            self.bulk_prefetch(item, mask, int(match["rank"]))
        else:
            what = "copies to several blocks are" if "multicast" in item.name else "this copy is"
            raise item.error(f"{what} not supported by the emulator")

    def bulk_copy(self, item: Instruction, mask: str, rank: str | None, load: bool) -> None:
        """`[to], [from], {bytes,} {[mbarrier]}`, where a tensor's side is `[map, corner]`."""
        operands = item.operands[: len(item.operands) - ("L2::cache_hint" in item.modifiers)]
        shared, there, *rest = operands if load else (operands[1], operands[0], *operands[2:])
        barrier = rest.pop() if load and rest else Imm(-1, "-1")
        tensor = isinstance(there, Box) and bool(rank) and len(there.corner.items) == int(rank or 0)
        place = there.map if isinstance(there, Box) else there
        if not (
            isinstance(shared, Address) and isinstance(place, Address)
            and isinstance(barrier, Address if load else Imm) and tensor == bool(rank)
            and len(rest) == (0 if rank else 1)
        ):  # fmt: skip
            raise item.error("malformed bulk copy")
        site = self.bulk_site(item)
        object_at = self.full_address(barrier) if isinstance(barrier, Address) else "np.int64(-1)"
        if isinstance(there, Box):
            middle = self.corner(there)
        else:
            middle = f"{self.read(rest[0], 'u32')}.astype(np.int64)"
        where = f"{self.full_address(shared)}, {self.full_address(place)}"
        how = f"{site}, {where}, {middle}, {object_at}, {mask}"
        self.call(f"E.bulk.{'tensor' if rank else 'linear'}({how})", mask)

    def bulk_prefetch(self, item: Instruction, mask: str, rank: int) -> None:
        """`[map, corner]`: brings a box to a cache. Its operands are as those of a copy."""
        box = item.operands[0]
        if not isinstance(box, Box) or len(box.corner.items) != rank:
            raise item.error("malformed bulk prefetch")
        how = f"{self.bulk_site(item)}, {self.full_address(box.map)}, {self.corner(box)}, {mask}"
        self.call(f"E.bulk.prefetch({how})", mask)

    def bulk_site(self, item: Instruction) -> str:
        """What findings of a bulk copy name."""
        complex128 = np.dtype("c16")
        return self.constant(Site(item, "shared", "b128", 1, 0, 16, 4, complex128, complex128))

    def corner(self, box: Box) -> str:
        """Where a box begins: a tuple of coordinates."""
        return f"({', '.join(self.read(part, 's32') for part in box.corner.items)},)"

    def full_address(self, where: Address) -> str:
        """An address with its constant offset."""
        offset = f" + {self.constant(np.int64(where.offset))}" if where.offset else ""
        return f"({self.address(where.base)}{offset})"

    def object(self, item: Instruction, where: Operand) -> tuple[str, str]:
        """An mbarrier operand as "site, address", and the variable that holds the mask."""
        if not isinstance(where, Address):
            raise item.error("the address of an mbarrier expected")
        mask = self.mask()
        space = "shared" if _SHARED & set(item.modifiers) else "generic"
        word = DTYPES["b64"]
        site = Site(item, space, "b64", 1, where.offset, 8, 3, word, word)
        return f"{self.constant(site)}, {self.address(where.base)}", mask

    def call(self, text: str, mask: str) -> None:
        """A call that no lane may be left to make."""
        self.lines.append(f"if {mask} is not NOBODY: {text}" if mask == "m1" else text)
