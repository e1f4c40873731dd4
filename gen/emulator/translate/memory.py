"""Instructions that access memory: loads, stores, atomics, matrices, copies; and plain barriers."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from gen.emulator.memory.atomics import RULES
from gen.emulator.memory.global_memory import Site, make_site
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Address, Imm, Operand, Reg, Vector
from gen.emulator.translate import calls, wmma
from gen.emulator.translate.lines import Lines, Translator

_MATRICES = re.compile(
    r"(?:ld|st)matrix(?=.*\.sync)(?=.*\.aligned)(?=.*\.m8n8)(?=.*\.x([124]))(?=.*\.shared)"
    r"(?=.*\.b16$)(\.(sync|aligned|m8n8|x[124]|trans|shared(::cta)?|b16))+$"
)
_CLUSTER_ARRIVE = re.compile(r"barrier\.cluster\.arrive(\.(release|relaxed))?(\.aligned)?$")
_FENCE = re.compile(r"membar\.(cta|gl|sys)$|fence\.(sc|acq_rel|release)\.(cta|cluster|gpu|sys)$")
_COPY = re.compile(r"cp\.async\.c[ag]\.shared(::cta)?\.global(\.L2::(cache_hint|(64|128|256)B))*$")


def translator(item: Instruction) -> Translator | None:
    """What translates an instruction, if it is one of these."""
    if item.opcode == "call":
        return calls.call
    if item.opcode == "wmma":
        return None if item.modifiers[0] == "mma" else wmma.access
    if _FENCE.match(item.name):
        return fence
    return {
        "ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic,
        "ldmatrix": matrices, "stmatrix": matrices, "cp": copy,
        "bar": barrier, "barrier": barrier, "barvote": barrier, "trap": trap, "brkpt": trap,
    }.get(item.opcode)  # fmt: skip


def barrier(code: Lines, item: Instruction) -> None:
    """What does not wait for the whole block; barriers that do end their basic block."""
    if item.opcode == "barvote":
        code.lines.append(f"E.barriers.vote({code.read(item.operands[0], 'pred')}, m)")
        return
    if _CLUSTER_ARRIVE.match(item.name):
        mask = code.mask()
        code.call(f"E.cluster_barrier.arrive({code.constant(item)}, {mask})", mask)
        return
    name, operands = code.constant(item), [code.read(part, "b32") for part in item.operands]
    if item.name == "bar.warp.sync" and len(operands) == 1:
        code.lines.append(f"warp_barrier(E, m, {name}, {operands[0]})")
    elif "arrive" not in item.modifiers:
        raise item.error("this kind of barrier is not supported by the emulator")
    elif len(operands) != 2:
        raise item.error("bar.arrive takes a barrier and how many threads it waits for")
    else:
        code.lines.append(f"E.barriers.arrive({name}, {', '.join(operands)}, m)")


def fence(code: Lines, item: Instruction) -> None:
    """A fence between threads: in lockstep only checks and a relaxed arrival need to know."""
    mask = code.mask()
    code.call(f"E.fence({item.modifiers[-1]!r}, {mask})", mask)


def trap(code: Lines, item: Instruction) -> None:
    code.lines.append(f"E.trap({code.constant(item)}, m)")


def _memory_call(code: Lines, site: Site, address: Address, values: str = "") -> tuple[str, str]:
    """The mask to use (as a statement's variable), and the call."""
    mask = code.mask()
    access = "store" if values else "load"
    where = code.address(address.base)
    call = f"E.{access}({code.constant(site)}, {where}{values}, {mask})"
    return mask, call


def load(code: Lines, item: Instruction) -> None:
    target, address = without_hint(item)
    if not isinstance(address, Address):
        raise item.error("malformed load")
    site = make_site(item, address.offset)
    targets = target.items if isinstance(target, Vector) else (target,)
    if len(targets) != site.lanes:
        raise item.error(f"{site.lanes} registers expected")
    mask, call = _memory_call(code, site, address)
    for part in targets if item.predicate else ():
        if isinstance(part, Reg):
            code.local(part)
    if site.space == "local" and not item.predicate:
        where = f"{code.constant(site)}, {code.address(address.base)}, m"
        code.lines.append(f"unwritten = E.unwritten({where})")
    code.lines.append(f"loaded = {call}" + " if m1 is not NOBODY else None" * (mask == "m1"))
    start = len(code.lines)
    for at, part in enumerate(targets):
        code.write(part if isinstance(part, Reg) else None,
                   f"loaded[{at}]" if site.lanes > 1 else "loaded", site.kind)  # fmt: skip
    if mask == "m1":
        code.lines[start:] = ["if loaded is not None:"] + [f"    {s}" for s in code.lines[start:]]


def atomic(code: Lines, item: Instruction) -> None:
    """atom (with the old value as its result) and red (without)."""
    operands = without_hint(item)
    target, address, *sources = operands if item.opcode == "atom" else (None, *operands)
    rules = [word for word in item.modifiers if word in RULES]
    if not isinstance(address, Address) or len(rules) != 1:
        raise item.error("this atomic operation is not supported by the emulator")
    site = make_site(item, address.offset)
    special = "f16" in site.kind or site.kind == "b128"
    rule = f"{rules[0]}.{site.kind}" if special else rules[0]
    if len(sources) != 1 + (rules[0] == "cas") or rule not in RULES:
        raise item.error("this atomic operation is not supported by the emulator")
    size = site.dtype.itemsize
    for at in range(site.lanes):  # a vector is atomic element by element
        part = replace(
            site, lanes=1, offset=site.offset + at * size, size=size, whole=site.dtype,
            shift=size.bit_length() - 1,
        )  # fmt: skip
        values = ", ".join(code.read(_part(source, at, site.lanes), site.kind)
                           for source in sources)  # fmt: skip
        mask = code.mask()
        where = code.address(address.base)
        code.lines.append(
            f"old{at} = E.atomic({code.constant(part)}, {rule!r}, {where}, [{values}], {mask})"
        )
    for at in range(site.lanes if target else 0):
        code.write(_part(target, at, site.lanes), f"old{at}", site.kind)


def _part(operand: Operand | None, at: int, lanes: int) -> Operand | None:
    """An element of a vector; an operation on scalars has no vectors."""
    return operand.items[at] if isinstance(operand, Vector) and lanes > 1 else operand


def without_hint(item: Instruction) -> tuple[Operand, ...]:
    """The operands but for a cache policy."""
    return item.operands[:-1] if "L2::cache_hint" in item.modifiers else item.operands


def store(code: Lines, item: Instruction) -> None:
    address, source = without_hint(item)
    if not isinstance(address, Address):
        raise item.error("malformed store")
    site = make_site(item, address.offset)
    sources = source.items if isinstance(source, Vector) else (source,)
    if len(sources) != site.lanes:
        raise item.error(f"{site.lanes} registers expected")
    values = ", ".join(code.read(part, site.kind, True) for part in sources)
    values = f", ({values},)" if site.lanes > 1 else f", {values}"
    mask, call = _memory_call(code, site, address, values)
    code.call(call, mask)


def matrices(code: Lines, item: Instruction) -> None:
    """ldmatrix and stmatrix: the first lanes of a warp name rows of 16 bytes."""
    match = _MATRICES.match(item.name)
    target, source = item.operands[:2]
    address, registers = (source, target) if item.opcode == "ldmatrix" else (target, source)
    parts = registers.items if isinstance(registers, Vector) else (registers,)
    if match is None or not isinstance(address, Address) or len(parts) != int(match[1]):
        raise item.error("this kind of matrix access is not supported by the emulator")
    whole = np.dtype("c16")
    site = Site(item, "shared", "b128", 1, address.offset, 16, 4, whole, whole)
    start = f"E.{item.opcode}({code.constant(site)}, {code.address(address.base)}, "
    how = f"{len(parts)}, {'trans' in item.modifiers}, m)"
    if item.opcode == "ldmatrix":
        code.lines.append(f"several = {start}{how}")
        for at, part in enumerate(parts):
            code.write(part, f"several[{at}]", "b32")
    else:
        values = ", ".join(code.read(part, "b32") for part in parts)
        code.lines.append(f"{start}({values},), {how}")


def copy(code: Lines, item: Instruction) -> None:
    """cp.async: the copies themselves, and their groups."""
    mask = code.mask()
    if item.name == "cp.async.commit_group":
        call = f"E.copies.commit({mask})"
    elif item.name == "cp.async.wait_all":
        call = f"E.copies.wait_all({mask})"
    elif item.name == "cp.async.wait_group" and isinstance(item.operands[0], Imm):
        call = f"E.copies.wait({int(item.operands[0].value)}, {mask})"
    else:
        call = _issue(code, item, mask)
    code.call(call, mask)


def _issue(code: Lines, item: Instruction, mask: str) -> str:
    """The call that starts a copy: `[target], [source], bytes {, bytes to read | ignore}`."""
    operands = item.operands
    if "L2::cache_hint" in item.modifiers:
        operands = operands[:-1]
    if not _COPY.match(item.name) or len(operands) not in (3, 4):
        raise item.error("this kind of asynchronous copy is not supported by the emulator")
    target, source, size = operands[:3]
    widths = (16,) if "cg" in item.modifiers else (4, 8, 16)
    if not isinstance(target, Address) or not isinstance(source, Address):
        raise item.error("malformed copy")
    if not isinstance(size, Imm) or size.value not in widths:
        raise item.error(f"a copy of {' or '.join(map(str, widths))} bytes expected")
    width = int(size.value)
    whole = np.dtype({4: "i4", 8: "i8", 16: "c16"}[width])
    sites = [
        Site(item, space, f"b{8 * width}", 1, offset, width, width.bit_length() - 1, whole, whole)
        for space, offset in (("shared", target.offset), ("global", source.offset))
    ]
    names = ", ".join(code.constant(site) for site in sites)
    where = f"{code.address(target.base)}, {code.address(source.base)}"
    return f"E.copies.issue({names}, {where}, {_bytes_read(code, operands[3:], width)}, {mask})"


def _bytes_read(code: Lines, extra: tuple[Operand, ...], width: int) -> str:
    """How many bytes a copy reads: an operand, all, or none where a predicate says so."""
    if not extra:
        return "None"
    if isinstance(extra[0], Reg) and code.kinds[extra[0].name] == "pred":
        none, full = code.constant(np.int64(0)), code.constant(np.int64(width))
        return f"select({code.local(extra[0])}, {none}, {full})"
    return f"{code.read(extra[0], 'u32')}.astype(np.int64)"
