"""wmma.load and wmma.store: the fragments of a warp from and to memory."""

from __future__ import annotations

import re

import numpy as np

from gen.emulator.isa.table import TABLE
from gen.emulator.memory.global_memory import Site
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Address, Vector
from gen.emulator.ptx.values import DTYPES
from gen.emulator.translate.lines import Lines
from gen.emulator.warp.wmma import fragment, is_transposed, size_of

_ACCESS = re.compile(
    r"wmma\.(?P<action>load\.[abc]|store\.d)\.sync\.aligned\.(?P<layout>row|col)\.(?P<size>m\d+n\d+k\d+)"
    r"(?:\.(?P<space>global|shared)(?:::cta)?)?\.(?P<kind>\w+)$"
)


def access(code: Lines, item: Instruction) -> None:
    """`registers, [address] {, stride}` of a load; a store begins with the address."""
    match = _ACCESS.match(item.name)
    first, second, *stride = item.operands
    address, registers = (first, second) if isinstance(first, Address) else (second, first)
    if match is None or not _multiplied(match["size"], match["kind"]):
        raise item.error("this kind of matrix access is not supported by the emulator")
    which, (m, n, k) = match["action"][-1], size_of(item.name)
    form = fragment(which, m, n, k, match["kind"])
    if not isinstance(address, Address) or not isinstance(registers, Vector):
        raise item.error("malformed matrix access")
    if len(registers.items) != len(form.starts):
        raise item.error(f"{len(form.starts)} registers expected")
    rows, columns = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
    width = (
        f"{code.read(stride[0], 's32')}.astype(np.int64)" if stride
        else code.constant(np.int64(columns if match["layout"] == "row" else rows))
    )  # fmt: skip
    by_column = which == "b" or (which in "cd" and is_transposed(m, n))
    along = match["layout"] == ("col" if by_column else "row")
    held = {"f32": "f32", "s32": "s32", "f64": "f64"}.get(match["kind"], "b32")
    size = DTYPES[held].itemsize
    site = Site(item, match["space"] or "generic", held, 1, address.offset, size,
                size.bit_length() - 1, DTYPES[held], DTYPES[held])  # fmt: skip
    how = (
        f"{code.constant(site)}, {code.constant(form)}, {which in 'cd'}, {along}, "
        f"{code.address(address.base)}, {width}, "
    )
    if which == "d":
        values = ", ".join(code.read(part, held) for part in registers.items)
        code.lines.append(f"E.store_fragment({how}({values},), m)")
        return
    code.lines.append(f"several = E.load_fragment({how}m)")
    for at, part in enumerate(registers.items):
        code.write(part, f"several[{at}]", held)


def _multiplied(size: str, kind: str) -> bool:
    """Whether some wmma.mma has matrices of that size and type."""
    found = [name for name in TABLE if name.startswith("wmma.mma") and f".{size}." in name]
    return any(kind in name.split(".") or (kind == "f16" and size[-3:] == "k16") for name in found)
