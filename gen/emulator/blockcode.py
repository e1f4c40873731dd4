"""One basic block -> the lines of a Python function, a line or two for each PTX instruction.

`R` is the list of registers that live across blocks, `E` the running chunk (memory, special
registers) and `m` the mask of running lanes (None: all).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gen.emulator import isa
from gen.emulator.cfg import Block
from gen.emulator.isa import DTYPES
from gen.emulator.module import TYPE_BYTES, Instruction, Kernel
from gen.emulator.operands import Imm, Not, Operand, Pair, Reg, Special, Symbol, Vector
from gen.emulator.typed import immediate, register_dtype

_MODES = re.compile(r"(r[nzmp]i?|idx|up|down|bfly|all|any|uni)$")
_WORD = re.compile(r"\b(NAME|MODE|ITEM|BYTE_A|BYTE_B|[a-eTUDS])\b")


class BlockCode:
    """Generates the lines of one block."""

    def __init__(self, kernel: Kernel, slots: dict[str, int], namespace: dict[str, Any]) -> None:
        self.kinds, self.slots, self.namespace = kernel.registers, slots, namespace
        self.symbols: set[str] = set()  # variables whose address is taken
        self.lines: list[str] = []
        self.known: set[str] = set()  # registers already in a local variable
        self.item: Instruction

    def generate(self, block: Block) -> tuple[list[str], list[tuple[int, str]]]:
        """The body's lines, and (slot, variable) for each register that outlives the block."""
        doomed = self._last_uses(block)
        for at, item in enumerate(block.body):
            self.item = item
            self.instruction(item)
            dead = sorted(self.variable(name) for name in doomed.get(at, ()) if name in self.known)
            if dead:
                self.lines.append(f"del {', '.join(dead)}")
        if block.kind == "branch" and block.end and block.end.predicate:
            self.item = block.end
            condition = self.local(block.end.predicate)
            self.lines.append(f"return {'~' * block.end.negated}{condition}")
        needed = block.live_out | (
            isa.registers(block.end)[0] if block.end and block.kind == "barrier" else set()
        )
        outputs = [(self.slots[n], self.variable(n)) for n in sorted(block.writes & needed)]
        return self.lines, outputs

    @staticmethod
    def _last_uses(block: Block) -> dict[int, set[str]]:
        """Registers that no later instruction needs: freeing them early keeps caches warm."""
        last: dict[str, int] = {}
        for at, item in enumerate(block.body):
            reads, writes = isa.registers(item)
            last.update(dict.fromkeys(reads | writes, at))
        kept = block.live_out | (isa.registers(block.end)[0] if block.end else set())
        if block.end and block.end.predicate:
            kept = kept | {block.end.predicate.name}
        doomed: dict[int, set[str]] = {}
        for name, at in last.items():
            if name not in kept:
                doomed.setdefault(at, set()).add(name)
        return doomed

    # -- operands ----------------------------------------------------------------------------
    @staticmethod
    def variable(name: str) -> str:
        return "v_" + re.sub(r"\W", "_", name.lstrip("%"))

    def local(self, reg: Reg) -> str:
        """The local variable of a register, fetched from `R` at its first use."""
        name = self.variable(reg.name)
        if reg.name not in self.known:
            self.known.add(reg.name)
            self.lines.append(f"{name} = R[{self.slots[reg.name]}]")
        return name

    def constant(self, value: Any) -> str:
        """A name for a constant in the generated module."""
        name = f"k_{type(value).__name__}_{value}" if isinstance(value, np.generic) else ""
        name = re.sub(r"\W", lambda m: {"-": "m", ".": "p"}.get(m[0], "_"), name)
        if not name or str(self.namespace.get(name, value)) != str(value):
            name = f"k{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def read(self, operand: Operand | None, kind: str, narrowing: bool = False) -> str:
        """An expression for a source operand as PTX type `kind`."""
        dtype = DTYPES.get(kind)
        if dtype is None:
            raise self.item.error(f"type '.{kind}' is not supported")
        if isinstance(operand, Vector):
            return f"({', '.join(self.read(part, kind) for part in operand.items)},)"
        if isinstance(operand, Imm):
            return self.constant(immediate(operand, dtype, self.item))
        if isinstance(operand, Not):
            return f"~{self.local(operand.reg)}"
        if isinstance(operand, Special):
            if not isa.SPECIALS.match(operand.name):
                raise self.item.error(f"special register '{operand.name}' is not supported")
            held = np.dtype(np.int64 if operand.name in isa.WIDE_SPECIALS else np.int32)
            return self.cast(f"E.special({operand.name!r})", held, dtype, True)
        if isinstance(operand, Symbol) and operand.name == "WARP_SZ":
            return self.constant(dtype.type(32))
        if isinstance(operand, Symbol):
            return self.cast(self.address(operand), np.dtype(np.int64), dtype, True)
        if isinstance(operand, Reg):
            held = register_dtype(self.kinds[operand.name])
            return self.cast(self.local(operand), held, dtype, narrowing)
        raise self.item.error("operand not supported")

    def cast(self, text: str, held: Any, wanted: Any, narrowing: bool) -> str:
        """`text`, of type `held`, reinterpreted as `wanted`."""
        if held == wanted:
            return text
        if held.itemsize == wanted.itemsize and bool not in (held.type, wanted.type):
            return f"{text}.view(np.{wanted})"
        if "bool" in (str(held), str(wanted)) or not narrowing:
            raise self.item.error(f"a {held} register cannot be used as {wanted}")
        bits = np.dtype(f"i{wanted.itemsize}")
        return f"{text}.astype(np.{bits})" + (f".view(np.{wanted})" if bits != wanted else "")

    def write(self, target: Operand | None, text: str, kind: str) -> None:
        """Assign an expression of PTX type `kind` to a register, extending and predicating."""
        if target is None:
            return
        if not isinstance(target, Reg):
            raise self.item.error("result not supported")
        held, dtype = register_dtype(self.kinds[target.name]), DTYPES[kind]
        if kind[0] == "b" and kind[1:].isdigit() and dtype.itemsize < held.itemsize:
            text = f"({text}).view(np.uint{dtype.itemsize * 8})"
        if dtype.itemsize < held.itemsize and str(dtype) != "bool":
            if dtype == np.float16:
                text = f"({text}).view(np.uint16)"
            text = f"({text}).astype(np.{held})"
        elif dtype != held:
            text = self.cast(f"({text})", dtype, held, False)
        if self.item.predicate:
            text = f"select({self.guard()}, {text}, {self.local(target)})"
        self.known.add(target.name)
        self.lines.append(f"{self.variable(target.name)} = {text}")

    def guard(self) -> str:
        """The instruction's predicate as an expression."""
        assert self.item.predicate is not None
        return f"{'~' * self.item.negated}{self.local(self.item.predicate)}"

    def address(self, base: Reg | Symbol | Imm) -> str:
        """An int64 byte address (without the constant offset of a memory operand)."""
        if isinstance(base, Symbol):
            self.symbols.add(base.name)
            offset = f" + {self.constant(np.int64(base.offset))}" if base.offset else ""
            return f"(E.address({base.name!r}){offset})"
        if isinstance(base, Imm):
            return self.constant(np.int64(int(base.value)))
        name = self.local(base)
        narrow_reg = register_dtype(self.kinds[base.name]).itemsize == 4
        return f"{name}.view(np.uint32).astype(np.int64)" if narrow_reg else name

    # -- instructions ------------------------------------------------------------------------
    def instruction(self, item: Instruction) -> None:
        """Append the lines of one instruction; `MemoryCode` adds those that access memory."""
        if item.opcode == "mov":
            self.move(item)
        elif item.opcode == "cvta":
            self.convert_address(item)
        else:
            self.compute(item)

    def compute(self, item: Instruction) -> None:
        """An instruction of the table."""
        row = isa.TABLE.get(item.name)
        if row is None:
            what = "calls are" if item.opcode == "call" else "this PTX instruction is"
            raise item.error(f"{what} not supported by the emulator")
        target, sources = item.operands[0], item.operands[1:]
        if len(sources) < len(row.types) - 1:
            raise item.error(f"expected {len(row.types) - 1} sources, found {len(sources)}")
        narrowing = item.opcode == "cvt"
        words: dict[str, str] = {
            "NAME": repr(item.name),
            "ITEM": self.constant(item) if "ITEM" in row.code else "",
            "MODE": repr(next((m for m in item.modifiers if _MODES.match(m)), "rn")),
            "T": f"np.{DTYPES.get(item.modifiers[-1])}",
            "D": f"np.{DTYPES[row.types[0]]}",
            "S": f"np.{DTYPES[row.types[1]]}",
            "U": f"np.uint{TYPE_BYTES.get(item.modifiers[-1], 0) * 8}",
            **dict(zip(("BYTE_A", "BYTE_B"), (f"np.{'u' * (m[0] == 'u')}int8"
                       for m in item.modifiers[-2:]), strict=False)),
        }  # fmt: skip
        for letter, kind, operand in zip("abcde", row.types[1:], sources, strict=False):
            words[letter] = self.read(operand, kind, narrowing)
        text = _WORD.sub(lambda m: words.get(m[0], m[0]), row.code)
        several = row.pair
        if isinstance(target, Vector):
            self.lines.append(f"several = {text}")
            for at, part in enumerate(target.items):
                self.write(part, f"several[{at}]", row.types[0])
        elif not isinstance(target, Pair):
            self.write(target, f"{text}[0]" if several else text, row.types[0])
        elif several:
            self.lines.append(f"pair = {text}")
            self.write(target.first, "pair[0]", row.types[0])
            self.write(target.second, "pair[1]", "pred")
        elif len(sources) == 2:  # setp p|q: q is the opposite
            self.lines.append(f"pair = {text}")
            self.write(target.first, "pair", "pred")
            self.write(target.second, "~pair", "pred")
        else:
            raise item.error("two results together with a combining predicate are not supported")

    def move(self, item: Instruction) -> None:
        """mov, which also packs, unpacks and takes addresses."""
        target, source = item.operands
        kind = item.modifiers[-1]
        if kind[0] in "su":  # bits are bits; b32 is the type that registers have
            kind = f"b{kind[1:]}"
        if isinstance(source, Vector):
            half = f"b{TYPE_BYTES[kind] * 8 // len(source.items)}"
            parts = [self.read(part, half) for part in source.items]
            while len(parts) > 1:
                parts = [f"pack({a}, {b})" for a, b in zip(parts[::2], parts[1::2], strict=True)]
            self.write(target, parts[0], kind)
        elif isinstance(target, Vector):
            width = TYPE_BYTES[kind] * 8 // len(target.items)
            self.lines.append(f"whole = {self.read(source, kind)}")
            for at, part in enumerate(target.items):
                move = f" >> np.int{TYPE_BYTES[kind] * 8}({width * at})" if at else ""
                self.write(part if isinstance(part, Reg) else None,
                           f"(whole{move}).astype(np.int{width})", f"b{width}")  # fmt: skip
        else:
            self.write(target, self.read(source, kind), kind)

    def convert_address(self, item: Instruction) -> None:
        """cvta[.to].space: generic addresses are the space's own, moved into a window."""
        target, source = item.operands
        space = next(m for m in item.modifiers if m not in ("to",)).partition("::")[0]
        sign = "-" if "to" in item.modifiers else "+"
        window = f"E.window({space!r})"
        text = self.read(source, "s64")
        moved = text if space in ("global", "const", "param") else f"({text} {sign} {window})"
        self.write(target, moved, "s64")
