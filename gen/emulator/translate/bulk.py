"""Bulk copies, of tensors too, and asynchronous stores to the shared memory of a cluster."""

from __future__ import annotations

import re

import numpy as np

from gen.emulator.memory.global_memory import Site
from gen.emulator.memory.reductions import rule_of
from gen.emulator.ptx.module import TYPE_BYTES, Instruction
from gen.emulator.ptx.operands import Address, Box, Imm, Operand, Vector
from gen.emulator.ptx.values import DTYPES
from gen.emulator.translate.lines import Lines

_WAIT = re.compile(r"cp\.async\.bulk\.wait_group(\.read)?$")
_OPERATION = r"(?P<rule>add|min|max|inc|dec|and|or|xor)"
_COPY = re.compile(
    r"cp\.async\.bulk(\.tensor\.(?P<rank>[1-5])d)?(?:"
    r"(?P<load>\.shared::(cluster|cta)\.global(\.tile)?\.mbarrier::complete_tx::bytes"
    r"(?P<multicast>\.multicast::cluster)?)"
    r"|\.global\.shared::cta(\.tile)?\.bulk_group)(\.L2::cache_hint)?$"
)
_BETWEEN = re.compile(
    r"cp\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes$"
)
_REDUCE = re.compile(
    r"cp\.reduce\.async\.bulk(?:\.tensor\.(?P<rank>[1-5])d\.global\.shared::cta\."
    rf"{_OPERATION}(\.tile)?\.bulk_group(\.L2::cache_hint)?"
    r"|\.global\.shared::cta\.bulk_group(\.L2::cache_hint)?\."
    rf"{_OPERATION.replace('rule', 'linear')}(?P<noftz>\.noftz)?\.(?P<type>\w+))$"
)
_PREFETCH = re.compile(
    r"cp\.async\.bulk\.prefetch\.tensor\.(?P<rank>[1-5])d\.L2\.global(\.tile)?(\.L2::cache_hint)?$"
)
_STORE = re.compile(
    r"(?:st\.async(\.weak)?|red\.async\.relaxed\.cluster(?=.*::bytes\.(?P<rule>[a-z]+)\.))"
    r"(\.shared::cluster)?\.mbarrier::complete_tx::bytes(?:\.(add|min|max|inc|dec|and|or|xor))?"
    r"(\.v(?P<lanes>[24]))?\.(?P<type>[bsuf](?:32|64))$"
)
_STORE_REDUCTIONS = {
    "add": ("u32", "s32", "u64", "s64"), **dict.fromkeys(("min", "max"), ("u32", "s32")),
    **dict.fromkeys(("inc", "dec"), ("u32",)), **dict.fromkeys(("and", "or", "xor"), ("b32",)),
}  # fmt: skip


def bulk(code: Lines, item: Instruction) -> None:
    """cp.async.bulk and cp.async.bulk.tensor, and the groups of those out of shared memory."""
    mask = code.mask()
    if item.name == "cp.async.bulk.commit_group":
        code.call(f"E.bulk.commit({mask})", mask)
    elif _WAIT.match(item.name) and isinstance(item.operands[0], Imm):
        code.call(f"E.bulk.wait({int(item.operands[0].value)}, {mask})", mask)
    elif match := _COPY.match(item.name) or _REDUCE.match(item.name):
        _copy(code, item, mask, match)
    elif _BETWEEN.match(item.name):
        _copy_between(code, item, mask)
    elif match := _PREFETCH.match(item.name):
        _prefetch(code, item, mask, int(match["rank"]))
    else:
        raise item.error("this copy is not supported by the emulator")


def _copy(code: Lines, item: Instruction, mask: str, match: re.Match[str]) -> None:
    """`[to], [from], {bytes,} {[mbarrier]} {, mask}`, where a tensor's side is `[map, corner]`."""
    found = match.groupdict()
    rank, load = found["rank"], bool(found.get("load"))
    operands = item.operands[: len(item.operands) - ("L2::cache_hint" in item.modifiers)]
    multicast = None
    if found.get("multicast") and operands:
        *rest_of, last = operands
        operands, multicast = tuple(rest_of), code.read(last, "u16")
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
    rule, kind = found.get("rule") or "", "b128"
    if found.get("linear"):
        kind = found["type"]
        rule = rule_of(found["linear"], kind) or ""
        halves = found["linear"] == "add" and kind in ("f16", "bf16")
        if not rule or bool(found["noftz"]) != halves:
            raise item.error("this reduction is not supported by the emulator")
    site = _site(code, item, kind)
    object_at = code.full_address(barrier) if isinstance(barrier, Address) else "np.int64(-1)"
    if isinstance(there, Box):
        middle = _corner(code, there)
    else:
        middle = f"{code.read(rest[0], 'u32')}.astype(np.int64)"
    where = f"{code.full_address(shared)}, {code.full_address(place)}"
    how = f"{site}, {where}, {middle}, {object_at}, {multicast}, {rule!r}, {mask}"
    code.call(f"E.bulk.{'tensor' if rank else 'linear'}({how})", mask)


def _copy_between(code: Lines, item: Instruction, mask: str) -> None:
    """`[to], [from], bytes, [mbarrier]`, all in shared memory."""
    if len(item.operands) != 4:
        raise item.error("malformed bulk copy")
    target, source, size, barrier = item.operands
    places = [code.full_address(x) for x in (target, source, barrier) if isinstance(x, Address)]
    if len(places) != 3:
        raise item.error("malformed bulk copy")
    nbytes = f"{code.read(size, 'u32')}.astype(np.int64)"
    how = f"{places[0]}, {places[1]}, {nbytes}, {places[2]}, {mask}"
    code.call(f"E.bulk.between({_site(code, item)}, {how})", mask)


def _prefetch(code: Lines, item: Instruction, mask: str, rank: int) -> None:
    """`[map, corner]`: brings a box to a cache. Its operands are as those of a copy."""
    box = item.operands[0]
    if not isinstance(box, Box) or len(box.corner.items) != rank:
        raise item.error("malformed bulk prefetch")
    how = f"{_site(code, item)}, {code.full_address(box.map)}, {_corner(code, box)}, {mask}"
    code.call(f"E.bulk.prefetch({how})", mask)


def async_store(code: Lines, item: Instruction) -> None:
    """st.async and red.async: `[to], value, [mbarrier]`."""
    match = _STORE.match(item.name)
    if match is None or len(item.operands) != 3:
        raise item.error("this asynchronous store is not supported by the emulator")
    target, value, barrier = item.operands
    lanes, rule, kind = int(match["lanes"] or 1), match["rule"] or "", match["type"]
    parts: tuple[Operand | None, ...] = value.items if isinstance(value, Vector) else (value,)
    if item.opcode == "red" and (lanes > 1 or kind not in _STORE_REDUCTIONS.get(rule, ())):
        raise item.error("this asynchronous reduction is not supported by the emulator")
    if not (isinstance(target, Address) and isinstance(barrier, Address) and len(parts) == lanes):
        raise item.error("malformed asynchronous store")
    mask = code.mask()
    values = ", ".join(code.read(part, kind) for part in parts)
    where = [
        f"({code.full_address(place)} & np.int64({(1 << 56) - 1}))" for place in (target, barrier)
    ]
    how = f"{_site(code, item, kind, lanes)}, {where[0]}, ({values},), {where[1]}, {rule!r}, {mask}"
    code.call(f"E.bulk.store({how})", mask)


def _site(code: Lines, item: Instruction, kind: str = "b128", lanes: int = 1) -> str:
    """What findings of a bulk copy name; its type is that of an element."""
    size, dtype = TYPE_BYTES[kind] * lanes, DTYPES[kind]
    return code.constant(
        Site(item, "shared", kind, lanes, 0, size, size.bit_length() - 1, dtype, np.dtype(dtype))
    )


def _corner(code: Lines, box: Box) -> str:
    """Where a box begins: a tuple of coordinates."""
    return f"({', '.join(code.read(part, 's32') for part in box.corner.items)},)"
