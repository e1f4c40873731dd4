"""Instructions of warp-specialised kernels: mbarriers, bulk copies, and what goes with them."""

from __future__ import annotations

import re

import numpy as np

from gen.emulator.memory.global_memory import Site
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Address, Box, Imm, Operand, Symbol
from gen.emulator.ptx.values import DTYPES
from gen.emulator.translate.lines import Lines, Translator

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
    r"fence\.(proxy\.async(\.shared::(cta|cluster))?|mbarrier_init\.release\.cluster)$"
)
REGISTER_COUNTS = range(24, 257, 8)


def translator(item: Instruction) -> Translator | None:
    """What translates an instruction, if it is one of these."""
    if item.opcode == "mbarrier":
        return mbarrier
    if item.name.startswith("cp.async.mbarrier"):
        return copies_arrive
    if item.name.startswith("cp.async.bulk"):
        return bulk
    if _FENCE.match(item.name):
        return fence
    if item.name == "griddepcontrol.wait":
        return wait_for_grids
    return register_count if item.opcode == "setmaxnreg" else None


def fence(code: Lines, item: Instruction) -> None:
    """fence.proxy.async and fence.mbarrier_init."""
    mask = code.mask()
    code.call(f"E.bulk.fence({mask}, {'mbarrier_init' in item.modifiers})", mask)


def wait_for_grids(code: Lines, item: Instruction) -> None:
    """griddepcontrol.wait."""
    mask = code.mask()
    code.call(f"E.wait_for_grids({mask})", mask)


def register_count(code: Lines, item: Instruction) -> None:
    """setmaxnreg; all lanes of a warp execute it."""
    count = item.operands[0]
    if not isinstance(count, Imm) or count.value not in REGISTER_COUNTS:
        raise item.error("setmaxnreg takes a multiple of 8 from 24 to 256")
    name = code.constant(item)
    code.lines.append(f"check_whole_warps(E, m, {name})")
    code.lines.append(f"E.register_pool.change({name}, {int(count.value)}, m)")


# -- mbarriers -----------------------------------------------------------------------------


def mbarrier(code: Lines, item: Instruction) -> None:
    """Everything that is called mbarrier."""
    operation, *words = item.modifiers
    extra = set(words) - _MEANING
    if operation not in _OPERATIONS or not extra <= set(_OPERATIONS[operation]):
        raise item.error("this mbarrier operation is not supported by the emulator")
    if operation == "pending_count":
        state = code.read(item.operands[1], "b64")
        code.write(item.operands[0], f"({state} & 0xFFFFF).astype(np.uint32)", "u32")
    elif operation.startswith("arrive"):
        _arrive(code, item)
    elif operation.endswith("wait"):
        _wait(code, item)
    else:
        where, values = item.operands[0], [code.read(v, "u32") for v in item.operands[1:]]
        target, mask = _object(code, item, where)
        name, sign = {"inval": ("invalidate", ""), "init": ("init", "")}.get(
            operation, ("transact", "-" * (operation == "complete_tx"))
        )
        rest = [f"{sign}{value}.astype(np.int64)" for value in values]
        # init takes its count before the mask, transact its bytes behind it.
        order = [*rest, mask] if name == "init" else [mask, *rest]
        code.call(f"E.mbarriers.{name}({', '.join([target, *order])})", mask)


def _arrive(code: Lines, item: Instruction) -> None:
    """arrive and arrive_drop: `{state | _,} [object] {, count | bytes}`."""
    operands = item.operands
    state = None if isinstance(operands[0], (Symbol, Address)) else operands[0]
    where, *values = operands if isinstance(operands[0], Address) else operands[1:]
    given = f"{code.read(values[0], 'u32')}.astype(np.int64)" if values else "np.int64(1)"
    both = f"np.int64(1), {given}" if "expect_tx" in item.modifiers else f"{given}, np.int64(0)"
    target, mask = _object(code, item, where)
    drop, releases = item.modifiers[0] == "arrive_drop", "relaxed" not in item.modifiers
    call = f"E.mbarriers.arrive({target}, {mask}, {both}, {drop}, {releases})"
    if state is None:
        code.call(call, mask)
        return
    none = " if m1 is not NOBODY else np.int64(0)" * (mask == "m1")
    code.lines.append(f"state = {call}{none}")
    code.write(state, "state", "b64")


def _wait(code: Lines, item: Instruction) -> None:
    """test_wait and try_wait: `done, [object], state | parity {, time limit}`."""
    done, where, state = item.operands[:3]
    parity = "parity" in item.modifiers
    value = code.read(state, "b32" if parity else "b64")
    target, mask = _object(code, item, where)
    acquires = "relaxed" not in item.modifiers
    call = f"E.mbarriers.wait({target}, {value}, {parity}, {acquires}, {mask})"
    code.lines.append(f"done = {call}")
    code.write(done, "done", "pred")


def copies_arrive(code: Lines, item: Instruction) -> None:
    """cp.async.mbarrier.arrive: an arrival once the lane's copies have landed."""
    if not _ARRIVE.match(item.name):
        raise item.error("this kind of asynchronous copy is not supported by the emulator")
    target, mask = _object(code, item, item.operands[0])
    counted = "noinc" in item.modifiers
    code.call(f"E.copies.signal({target}, {counted}, {mask})", mask)


# -- bulk copies ---------------------------------------------------------------------------


def bulk(code: Lines, item: Instruction) -> None:
    """cp.async.bulk and cp.async.bulk.tensor, and the groups of those out of shared memory."""
    mask = code.mask()
    if item.name == "cp.async.bulk.commit_group":
        code.call(f"E.bulk.commit({mask})", mask)
    elif _BULK_WAIT.match(item.name) and isinstance(item.operands[0], Imm):
        code.call(f"E.bulk.wait({int(item.operands[0].value)}, {mask})", mask)
    elif match := _BULK.match(item.name):
        _bulk_copy(code, item, mask, match["rank"], bool(match["load"]))
    elif match := _BULK_PREFETCH.match(item.name):
        _bulk_prefetch(code, item, mask, int(match["rank"]))
    else:
        what = "copies to several blocks are" if "multicast" in item.name else "this copy is"
        raise item.error(f"{what} not supported by the emulator")


def _bulk_copy(code: Lines, item: Instruction, mask: str, rank: str | None, load: bool) -> None:
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
    site = _bulk_site(code, item)
    object_at = code.full_address(barrier) if isinstance(barrier, Address) else "np.int64(-1)"
    if isinstance(there, Box):
        middle = _corner(code, there)
    else:
        middle = f"{code.read(rest[0], 'u32')}.astype(np.int64)"
    where = f"{code.full_address(shared)}, {code.full_address(place)}"
    how = f"{site}, {where}, {middle}, {object_at}, {mask}"
    code.call(f"E.bulk.{'tensor' if rank else 'linear'}({how})", mask)


def _bulk_prefetch(code: Lines, item: Instruction, mask: str, rank: int) -> None:
    """`[map, corner]`: brings a box to a cache. Its operands are as those of a copy."""
    box = item.operands[0]
    if not isinstance(box, Box) or len(box.corner.items) != rank:
        raise item.error("malformed bulk prefetch")
    how = f"{_bulk_site(code, item)}, {code.full_address(box.map)}, {_corner(code, box)}, {mask}"
    code.call(f"E.bulk.prefetch({how})", mask)


def _bulk_site(code: Lines, item: Instruction) -> str:
    """What findings of a bulk copy name."""
    complex128 = np.dtype("c16")
    return code.constant(Site(item, "shared", "b128", 1, 0, 16, 4, complex128, complex128))


def _corner(code: Lines, box: Box) -> str:
    """Where a box begins: a tuple of coordinates."""
    return f"({', '.join(code.read(part, 's32') for part in box.corner.items)},)"


def _object(code: Lines, item: Instruction, where: Operand) -> tuple[str, str]:
    """An mbarrier operand as "site, address", and the variable that holds the mask."""
    if not isinstance(where, Address):
        raise item.error("the address of an mbarrier expected")
    mask = code.mask()
    space = "shared" if _SHARED & set(item.modifiers) else "generic"
    word = DTYPES["b64"]
    site = Site(item, space, "b64", 1, where.offset, 8, 3, word, word)
    return f"{code.constant(site)}, {code.address(where.base)}", mask
