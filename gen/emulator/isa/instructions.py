"""The instructions that the emulator knows, and which registers each reads and writes."""

from __future__ import annotations

import re

from gen.emulator.isa import rows_float, rows_integer, rows_warp
from gen.emulator.isa.classes import WARPGROUP
from gen.emulator.isa.table import TABLE
from gen.emulator.ptx.module import Instruction, PtxModule
from gen.emulator.ptx.operands import Address, Box, Not, Operand, Pair, Reg, Vector
from gen.emulator.ptx.values import DTYPES

__all__ = [
    "DTYPES",
    "NO_EFFECT",
    "SPECIALS",
    "STRUCTURAL",
    "TABLE",
    "WIDE_SPECIALS",
    "is_assertion",
    "polls",
    "registers",
    "waits",
    "warps_together",
]

ROWS = (rows_integer, rows_float, rows_warp)  # importing them has filled the table

# Handled by the code generator, because they are not a function of values: memory and moves.
STRUCTURAL = frozenset({"ld", "ldu", "st", "mov", "cvta", "bra", "bar", "barrier", "ret", "exit"})
SPECIALS = re.compile(
    r"%(n?tid|n?ctaid)\.[xyz]$|%(laneid|n?warpid|dynamic_smem_size|total_smem_size|n?smid)$"
    r"|%(gridid|current_graph_exec|aggr_smem_size|reserved_smem_offset_(begin|end|cap|[01]))$"
    r"|%envreg([12]?\d|3[01])$"
    r"|%n?clusterid\.[xyz]$|%cluster_n?cta(id\.[xyz]|rank)$|%is_explicit_cluster$"
    r"|%lanemask_(eq|le|lt|ge|gt)$|%(clock(_hi|64)?|globaltimer(_lo|_hi)?)$"
)
WIDE_SPECIALS = ("%clock64", "%globaltimer", "%gridid", "%current_graph_exec")
# Their first operand is not a result.
NO_RESULT = frozenset(
    {"st", "bar", "barvote", "barrier", "call", "bra", "brx", "red", "cp", "stmatrix", "trap",
     "brkpt", "membar", "fence", "prefetch", "prefetchu", "nanosleep", "pmevent", "discard",
     "applypriority", "setmaxnreg", "griddepcontrol", "probe"}
)  # fmt: skip
# Accepted and without effect in an emulator that runs a chunk in lockstep.
NO_EFFECT = re.compile(
    r"(prefetchu?\..*"
    r"|fence\.acquire\.(cta|gpu|sys|cluster)"
    r"|fence\.proxy\.(async\.global|alias)"
    r"|cp\.async\.bulk\.prefetch\.L2\..*"
    r"|griddepcontrol\.launch_dependents"
    r"|nanosleep\.u32|pmevent|discard\..*|applypriority\..*)$"
)


def is_assertion(item: Instruction) -> bool:
    """True for the call that a failed `assert` ends in."""
    return item.opcode == "call" and str(item.operands[0]) == "__assertfail"


def warps_together(item: Instruction) -> int:
    """How many warps execute an instruction together, with all live lanes; 0: lanes may be alone.

    Four warps are a warpgroup, which begins at a multiple of four.
    """
    if item.name.startswith("wgmma.mma_async"):
        return WARPGROUP
    row = TABLE.get(item.name)
    whole = item.opcode in ("ldmatrix", "stmatrix", "wmma", "wgmma")
    return int(whole or (row is not None and row.warp))


def polls(item: Instruction) -> bool:
    """True for a look at an mbarrier's phase, which code repeats until the phase is complete."""
    return item.opcode == "mbarrier" and item.modifiers[0] in ("test_wait", "try_wait")


def waits(module: PtxModule) -> bool:
    """Whether a kernel looks at phases of mbarriers."""
    items = (item for kernel in module.kernels.values() for item in kernel.body)
    return any(isinstance(item, Instruction) and polls(item) for item in items)


def _names(operand: Operand | None) -> set[str]:
    if isinstance(operand, Reg):
        return {operand.name}
    if isinstance(operand, Not):
        return {operand.reg.name}
    if isinstance(operand, Address):
        return _names(operand.base)
    if isinstance(operand, Box):
        return _names(operand.map) | _names(operand.corner)
    if isinstance(operand, Vector):
        return set().union(*(_names(item) for item in operand.items))
    if isinstance(operand, Pair):
        return _names(operand.first) | _names(operand.second)
    return set()


def registers(item: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The registers that an instruction reads, and those it writes.

    Under a predicate the old value of a result may survive, so results then count as read.
    """
    known = item.__dict__.get("registers")  # each is asked for several times
    if known is None:
        known = item.__dict__["registers"] = _registers(item)
    return known


def _registers(item: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    first = item.operands[0] if item.operands else None
    result = item.opcode not in NO_RESULT and not isinstance(first, (Address, Box))
    written = _names(first) if result else set()
    rest = item.operands[1:] if result else item.operands
    read = set().union(*(_names(operand) for operand in rest))
    if item.predicate:
        read |= {item.predicate.name} | written
    if item.opcode == "wgmma":  # adds to its accumulators
        read |= written
    return frozenset(read), frozenset(written)
