"""What has become of the conditions of an instrumented kernel."""

from __future__ import annotations

from gen.emulator.isa.ops import Value
from gen.emulator.memory.observer import ObservedChunk, Observer
from gen.emulator.ptx.module import Instruction, PtxKernel, PtxModule
from gen.emulator.ptx.operands import Imm, Operand, Reg
from gen.emulator.warp.masks import Mask

TRUE, FALSE = 1, 2


class Outcomes(Observer):
    """Which of its outcomes each condition has had: `seen` has the sum of TRUE and FALSE.

    A kernel tells the conditions by `probe.u32 NUMBER, VALUE`, which is true where it is not 0.
    """

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}

    def probe(self, chunk: ObservedChunk, number: int, value: Value, mask: Mask | None) -> None:
        """See Observer."""
        before = self.seen.get(number, 0)
        if before == TRUE | FALSE:
            return
        bits = value != 0
        true, false = (
            bool(some.any() if mask is None or some.ndim == 0 else (some & mask.bits).any())
            for some in (bits, ~bits)
        )
        self.seen[number] = before | TRUE * true | FALSE * false


def told(module: PtxModule) -> dict[int, set[float | None]]:
    """What the compiler knows of the conditions of an instrumented module, by their numbers.

    That are the values of their probes, None where it does not know one; none of what it has left
    out.
    """
    known: dict[int, set[float | None]] = {}
    for kernel in module.kernels.values():
        constants = _constants(kernel)
        for item in _items(kernel):
            if item.name == "probe.u32" and isinstance(number := item.operands[0], Imm):
                value = item.operands[1]
                constant = constants.get(value.name) if isinstance(value, Reg) else value
                of_it = known.setdefault(int(number.value), set())
                of_it.add(constant.value if isinstance(constant, Imm) else None)
    return known


def _items(kernel: PtxKernel) -> list[Instruction]:
    return [item for item in kernel.body if isinstance(item, Instruction)]


def _constants(kernel: PtxKernel) -> dict[str, Operand | None]:
    """The registers that nothing but one immediate is moved to."""
    found: dict[str, Operand | None] = {}
    for item in _items(kernel):
        target = item.operands[0] if item.operands else None
        if isinstance(target, Reg) and item.name != "probe.u32":
            moved = item.operands[1] if item.opcode == "mov" and not item.predicate else None
            once = target.name not in found
            found[target.name] = moved if once and isinstance(moved, Imm) else None
    return found
