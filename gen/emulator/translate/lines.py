"""The lines of a basic block as they are written: operands become expressions, results assignments.

`R` is the list of registers that live across blocks, `E` the running chunk (memory, special
registers) and `m` the mask of running lanes (None: all).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from gen.emulator.isa import bits, instructions
from gen.emulator.ptx.module import Instruction, PtxKernel
from gen.emulator.ptx.operands import (
    SINK,
    Address,
    Imm,
    Not,
    Operand,
    Reg,
    Special,
    Symbol,
    Vector,
)
from gen.emulator.ptx.values import DTYPES, immediate, register_dtype
from gen.emulator.translate.computed import computed_floats


class Lines:
    """The lines of one block so far; `item` is the instruction that is being translated."""

    def __init__(self, kernel: PtxKernel, slots: dict[str, int], namespace: dict[str, Any]) -> None:
        self.kinds, self.slots, self.namespace = kernel.registers, slots, namespace
        self.computed = computed_floats(kernel)
        self.symbols: set[str] = set()  # variables whose address is taken
        self.lines: list[str] = []
        self.known: set[str] = set()  # registers already in a local variable
        self.wide: set[str] = set()  # those of them that are in another one in float64, too
        self.item: Instruction

    @staticmethod
    @cache
    def variable(name: str) -> str:
        """The local variable that stands for a register."""
        return "v_" + re.sub(r"\W", "_", name.lstrip("%"))

    @classmethod
    def wide_variable(cls, name: str) -> str:
        """The local variable that has a register's value in float64."""
        return f"w_{cls.variable(name)}"

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
            if not instructions.SPECIALS.match(operand.name):
                raise self.item.error(f"special register '{operand.name}' is not supported")
            held = np.dtype(np.int64 if operand.name in instructions.WIDE_SPECIALS else np.int32)
            held = np.dtype(np.bool_) if operand.name == "%is_explicit_cluster" else held
            return self.cast(f"E.special({operand.name!r})", held, dtype, True)
        if isinstance(operand, Symbol) and operand.name == "WARP_SZ":
            return self.constant(dtype.type(32))
        if isinstance(operand, Symbol):
            return self.cast(self.address(operand), np.dtype(np.int64), dtype, True)
        if isinstance(operand, Reg):
            held = register_dtype(self.kinds[operand.name])
            return self.cast(self.local(operand), held, dtype, narrowing)
        raise self.item.error("operand not supported")

    def widened(self, operand: Operand, text: str) -> str:
        """A float operand in float64; `text` is the expression for it.

        Products of register tiles read a register many times: it is converted once.
        """
        if not isinstance(operand, Reg):
            return f"widened({text})"
        name = self.wide_variable(operand.name)
        if operand.name not in self.wide:
            self.wide.add(operand.name)
            self.lines.append(f"{name} = widened({text})")
        return name

    def shift(self, count: str, dtype: str) -> str:
        """How far to shift a value of a numpy type: mostly by a constant, which is made once."""
        if count not in self.namespace:
            return f"shift({count}, {dtype})"
        name = f"{count}_in_{dtype.rpartition('.')[2]}"
        self.namespace.setdefault(name, bits.shift(self.namespace[count], getattr(np, dtype[3:])))
        return name

    def cast(self, text: str, held: Any, wanted: Any, narrowing: bool) -> str:
        """`text`, of type `held`, reinterpreted as `wanted`."""
        if held == wanted:
            return text
        if held.itemsize == wanted.itemsize and bool not in (held.type, wanted.type):
            return f"{text}.view(np.{_name(wanted)})"
        if not narrowing or np.bool_ in (held.type, wanted.type):
            raise self.item.error(f"a {held} register cannot be used as {wanted}")
        whole = np.dtype(f"i{wanted.itemsize}")
        cast = f"{text}.astype(np.{_name(whole)})"
        return cast + (f".view(np.{_name(wanted)})" if whole != wanted else "")

    def write(self, target: Operand | None, text: str, kind: str) -> None:
        """Assign an expression of PTX type `kind` to a register, extending and predicating."""
        if target in (None, SINK):
            return
        if not isinstance(target, Reg):
            raise self.item.error("result not supported")
        held, dtype = register_dtype(self.kinds[target.name]), DTYPES[kind]
        if kind[0] == "b" and kind[1:].isdigit() and dtype.itemsize < held.itemsize:
            text = f"({text}).view(np.uint{dtype.itemsize * 8})"
        if dtype.itemsize < held.itemsize and dtype.kind != "b":
            if dtype == np.float16:
                text = f"({text}).view(np.uint16)"
            text = f"({text}).astype(np.{_name(held)})"
        elif dtype != held:
            text = self.cast(f"({text})", dtype, held, False)
        if self.item.predicate:
            text = f"select({self.guard()}, {text}, {self.local(target)})"
        self.known.add(target.name)
        self.wide.discard(target.name)
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

    def full_address(self, where: Address) -> str:
        """An address with its constant offset."""
        offset = f" + {self.constant(np.int64(where.offset))}" if where.offset else ""
        return f"({self.address(where.base)}{offset})"

    def mask(self) -> str:
        """The variable that holds the mask of the lanes that execute the instruction."""
        if not self.item.predicate:
            return "m"
        self.lines.append(f"m1 = narrow(m, {self.guard()})")
        return "m1"

    def call(self, text: str, mask: str) -> None:
        """A call that no lane may be left to make."""
        self.lines.append(f"if {mask} is not NOBODY: {text}" if mask == "m1" else text)


@cache
def _name(dtype: Any) -> str:
    """What numpy calls a type, which it takes long to say."""
    return str(dtype)


Translator = Callable[[Lines, Instruction], None]  # appends the lines of an instruction
