"""Instructions of warp-specialised kernels: mbarriers, and what goes with them."""

from __future__ import annotations

import re

from gen.emulator.memory.global_memory import Site
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Address, Imm, Operand, Symbol
from gen.emulator.ptx.values import DTYPES
from gen.emulator.translate import bulk
from gen.emulator.translate.lines import Lines, Translator

_SHARED = {"shared", "shared::cta", "shared::cluster"}
_MEANING = {"release", "acquire", "relaxed", "cta", "cluster", "b64", *_SHARED}
_OPERATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("init", "inval", "expect_tx", "complete_tx", "pending_count"), ()),
    **dict.fromkeys(("arrive", "arrive_drop"), ("expect_tx", "noComplete")),
    **dict.fromkeys(("test_wait", "try_wait"), ("parity",)),
}
_ARRIVE = re.compile(r"cp\.async\.mbarrier\.arrive(\.noinc)?(\.shared(::cta)?)?\.b64$")
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
    if item.name.startswith(("cp.async.bulk", "cp.reduce")):
        return bulk.bulk
    if item.name.startswith(("st.async", "red.async")):
        return bulk.async_store
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
    wanted = state is not None
    call = f"E.mbarriers.arrive({target}, {mask}, {both}, {drop}, {releases}, {wanted})"
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


def _object(code: Lines, item: Instruction, where: Operand) -> tuple[str, str]:
    """An mbarrier operand as "site, address", and the variable that holds the mask."""
    if not isinstance(where, Address):
        raise item.error("the address of an mbarrier expected")
    mask = code.mask()
    space = "shared" if _SHARED & set(item.modifiers) else "generic"
    word = DTYPES["b64"]
    site = Site(item, space, "b64", 1, where.offset, 8, 3, word, word)
    return f"{code.constant(site)}, {code.address(where.base)}", mask
