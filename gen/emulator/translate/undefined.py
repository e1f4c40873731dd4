"""Registers that a path reads before anything has written there, and what is computed from them.

A compiler that finds a variable without a value gives it a register that nothing writes. Which
registers these may be follows from liveness: they are live where the kernel starts. Few kernels
have any, and most of those are right: where one branch writes and a later one of the same condition
reads. So which lanes have no value is computed beside the values. A use counts where it can be
seen: in a store, an address, a branch, a tensor core. Until then, as in C++ and in LLVM, computing
with no value gives no value, and choosing or overwriting it may be right. The same goes for what a
shuffle takes from a lane that does not take part: most reductions do so, and ignore it.
"""

from __future__ import annotations

from dataclasses import replace

from gen.emulator.isa import instructions
from gen.emulator.ptx.module import Instruction, PtxKernel
from gen.emulator.ptx.operands import Imm, Operand, Pair, Reg, Vector
from gen.emulator.translate.blocks import Block, build_blocks
from gen.emulator.translate.lines import Lines

# Their results have a value whatever their operands have: a use, or an exchange between lanes.
_USES = frozenset(
    {"ld", "ldu", "ldmatrix", "atom", "mma", "wmma", "wgmma", "movmatrix", "mbarrier"}
)


def may_lack_values(kernel: PtxKernel) -> bool:
    """Whether a path of a kernel may use what nothing has written: a register, or its stack."""
    blocks = build_blocks(kernel)
    start = blocks[0]
    return bool(start.reads or start.live_out - start.writes) or any(
        _from_stack(item) for block in blocks for item in block.body
    )


class Undefined:
    """The registers of a kernel that may have no value, each with the instruction that reads it.

    That is the first one that does more than to copy it: the line where a variable is used.
    """

    def __init__(self, blocks: list[Block], first_slot: int) -> None:
        start = blocks[0]
        self.registers = start.reads | (start.live_out - start.writes)
        self.used_by: dict[str, Instruction] = {}
        for item in (item for block in blocks for item in block.body):
            self.registers |= _shuffled(item) | _from_stack(item)
            self.used_by.update(dict.fromkeys(_shuffled(item), item))
        before = -1
        while self.registers and before != len(self.registers) + len(self.used_by):
            before = len(self.registers) + len(self.used_by)
            for block in blocks:
                for item in [*block.body, *([block.end] if block.end else [])]:
                    self._spread(item)
        self.slots = {name: first_slot + at for at, name in enumerate(sorted(self.registers))}

    def _spread(self, item: Instruction) -> None:
        """Results of what may have no value may have none, and are of the same origin."""
        sources = self._sources(item)
        if not sources:
            return
        first = next((self.used_by[name] for name in sources if name in self.used_by), None)
        if item.opcode != "mov":
            first = first or item
            for name in sources:
                self.used_by.setdefault(name, item)
        if not _has_value(item):
            results = instructions.registers(item)[1]
            self.registers |= results
            if first:
                self.used_by.update({name: self.used_by.get(name, first) for name in results})
        if first and first.opcode != "shfl":  # what goes in is the cause before who takes part
            self.used_by.update(dict.fromkeys(_shuffled(item), first))

    def _sources(self, item: Instruction) -> list[str]:
        """The operands of an instruction that may have no value, and its predicate."""
        plain = replace(item, predicate=None) if item.predicate else item
        reads, _ = instructions.registers(plain)
        guard = {item.predicate.name} if item.predicate else set()
        return sorted((reads | guard) & self.registers)

    # -- the lines of a block ------------------------------------------------------------------
    def lines(self, code: Lines, item: Instruction) -> None:
        """What comes before an instruction: a finding for a use, or which lanes lack a result."""
        if not self.registers:
            return
        sources, results = self._sources(item), instructions.registers(item)[1]
        uses = item.opcode in _USES or (not results and not _is_harmless(item))
        if uses and sources:
            if item.opcode == "wgmma" and results:  # accumulators count where they are added to
                adds = item.operands[3]
                only = code.local(adds) if isinstance(adds, Reg) else "np.True_"
                if not isinstance(adds, Imm) or adds.value:
                    self._use(code, item, sorted(results & self.registers), only)
                sources = [name for name in sources if name not in results]
            self._use(code, item, sources)
        loaded = _from_stack(item)
        for name in sorted((results & self.registers) - _shuffled(item) - loaded):
            lacking = "None" if uses or _has_value(item) else self._result(code, item)
            if item.predicate:
                guard, old = code.guard(), self._local(code, name)
                lacking = f"lacking_either({guard}, {lacking}, {old})"
                if item.predicate.name in self.registers:
                    lacking = f"lacking({lacking}, {self._local(code, item.predicate.name)})"
            code.known.add(f"?{name}")
            code.lines.append(f"{_variable(name)} = {lacking}")

    def results(self, code: Lines, item: Instruction) -> None:
        """What comes behind a shuffle, or a load of local memory: who has got no value."""
        if loaded := _from_stack(item):
            parts = (
                item.operands[0].items if isinstance(item.operands[0], Vector) else item.operands
            )
            for at, part in enumerate(parts):
                if isinstance(part, Reg) and part.name in loaded:
                    code.known.add(f"?{part.name}")
                    code.lines.append(f"{_variable(part.name)} = unwritten[{at}]")
        for name in _shuffled(item):
            code.known.add(f"?{name}")
            lacks = self._operand(code, item.operands[1])
            code.lines.append(f"{_variable(name)} = lacking_shuffled(E, {lacks})")

    def _use(
        self, code: Lines, item: Instruction, sources: list[str], only: str | None = None
    ) -> None:
        """A finding for those of the lanes, of which `only` is true, that lack a source."""
        if not sources:
            return
        names = [self._local(code, name) for name in sources]
        guard = code.guard() if item.predicate and item.opcode != "bra" else only
        mask = f"narrow(m, {guard})" if guard else "m"
        origin = code.constant(self.used_by.get(sources[0], item))
        call = f"E.use({code.constant(item)}, {origin}, {mask}, lacking({', '.join(names)}))"
        test = " or ".join(f"{name} is not None" for name in names)
        code.lines.append(f"if {test}: {call}")

    def _result(self, code: Lines, item: Instruction) -> str:
        """The lanes that lack what an instruction computes, as an expression."""
        parts = item.operands[1:]
        if item.opcode == "selp" and isinstance(parts[2], Reg):
            yes, no = (self._operand(code, part) for part in parts[:2])
            chosen = f"lacking_either({code.local(parts[2])}, {yes}, {no})"
            return f"lacking({chosen}, {self._operand(code, parts[2])})"
        if item.opcode == "mov" and isinstance(parts[0], Vector):
            # Half of a pair may be filled with anything; but bf16 behind a 0 is converted to f32.
            halves = [half for half in parts[0].items if not isinstance(half, Imm)]
            return f"lacking_all({', '.join(self._operand(code, half) for half in halves)})"
        names = [name for name in self._sources(item) if item.predicate != Reg(name)]
        return f"lacking({', '.join(self._local(code, name) for name in names)})"

    def _operand(self, code: Lines, operand: Operand | None) -> str:
        if isinstance(operand, Reg) and operand.name in self.registers:
            return self._local(code, operand.name)
        return "None"

    def _local(self, code: Lines, name: str) -> str:
        if f"?{name}" not in code.known:
            code.known.add(f"?{name}")
            code.lines.append(f"{_variable(name)} = R[{self.slots[name]}]")
        return _variable(name)

    def outputs(self, names: set[str]) -> list[tuple[int, str]]:
        """(slot, variable) of those of the registers `names` that may have no value."""
        return [(self.slots[name], _variable(name)) for name in sorted(names & self.registers)]


def _variable(name: str) -> str:
    return f"u_{Lines.variable(name)}"


def _shuffled(item: Instruction) -> set[str]:
    """The register that gets a shuffle's value; the predicate beside it always has one."""
    if item.opcode != "shfl":
        return set()
    pair = item.operands[0]
    target = pair.first if isinstance(pair, Pair) else pair
    return {target.name} if isinstance(target, Reg) else set()


def _from_stack(item: Instruction) -> frozenset[str]:
    """The registers that a load of local memory fills, where no predicate guards it."""
    if item.opcode != "ld" or "local" not in item.modifiers or item.predicate:
        return frozenset()
    return instructions.registers(item)[1]


def _has_value(item: Instruction) -> bool:
    return item.opcode in _USES or instructions.warps_together(item) > 0


def _is_harmless(item: Instruction) -> bool:
    """True for what nobody sees: a hint, or a copy on the thread's own stack."""
    local = item.opcode == "st" and "local" in item.modifiers
    return local or instructions.NO_EFFECT.match(item.name) is not None
