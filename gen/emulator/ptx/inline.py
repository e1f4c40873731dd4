"""Device functions that the compiler left as calls become part of the kernels that call them.

A call's `.param` variables are variables in local memory here, which both sides load and store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from gen.emulator.ptx.module import Instruction, Label, Variable
from gen.emulator.ptx.operands import Address, Imm, Not, Operand, Pair, Reg, Symbol, Vector

MAX_DEPTH = 16  # of calls in calls; more is taken for recursion

Code = list[Instruction | Label]


@dataclass
class Routine:
    """The body of a kernel or of a device function, with the names of the latter's parameters."""

    registers: dict[str, str]
    variables: dict[str, Variable]
    code: Code
    results: list[str] = field(default_factory=list)
    params: list[str] = field(default_factory=list)


def inline_calls(kernel: Routine, functions: dict[str, Routine]) -> Code:
    """The kernel's code without calls; its registers and variables grow by those of functions.

    Calls of what is not among `functions` stay, to be refused where they are.
    """
    return _Inliner(kernel, functions).expand(kernel.code, 0)


class _Inliner:
    def __init__(self, kernel: Routine, functions: dict[str, Routine]) -> None:
        self.kernel, self.functions, self.copies = kernel, functions, 0

    def expand(self, code: Code, depth: int) -> Code:
        result: Code = []
        for item in code:
            if isinstance(item, Label) or item.opcode != "call":
                result.append(item)
                continue
            name, results, params = call_parts(item)
            function = self.functions.get(name)
            if function is None or len(params) != len(function.params):
                result.append(item)
            elif depth == MAX_DEPTH:
                raise item.error(
                    "recursive functions are not supported by the emulator (write a loop)"
                )
            else:
                passed = dict(
                    zip(function.params + function.results, params + results, strict=True)
                )
                result += self.body(item, function, passed, depth)
        return result

    def body(
        self, call: Instruction, function: Routine, passed: dict[str, str], depth: int
    ) -> Code:
        """A copy of a function's code with names of its own."""
        self.copies += 1
        tag = f"$call{self.copies}"
        registers = {name: f"{name}{tag}" for name in function.registers}
        self.kernel.registers.update({registers[n]: k for n, k in function.registers.items()})
        names = dict(passed)
        for name, variable in function.variables.items():
            names[name] = f"{name}{tag}" if variable.space == "local" else name
            self.kernel.variables[names[name]] = replace(variable, name=names[name])
        labels = {
            item.name: f"{item.name}{tag}" for item in function.code if isinstance(item, Label)
        }
        end = Label(f"end{tag}")
        code: Code = []
        for item in function.code:
            if isinstance(item, Label):
                code.append(Label(labels[item.name]))
                continue
            operands = tuple(_rename(x, registers, names | labels) for x in item.operands)
            guard = Reg(registers[item.predicate.name]) if item.predicate else None
            item = replace(item, operands=operands, predicate=guard, line=item.line or call.line)
            if item.opcode == "ret":
                item = replace(item, name="bra", operands=(Symbol(end.name),))
            base = next((x.base for x in operands if isinstance(x, Address)), None)
            if isinstance(base, Symbol) and base.name in passed.values():
                item = replace(item, name=item.name.replace(".param", ".local", 1))
            code.append(item)
        return [*self.expand(code, depth + 1), end]


def call_parts(item: Instruction) -> tuple[str, list[str], list[str]]:
    """The function that a call names, and the variables of its results and parameters."""
    words = [str(operand) for operand in item.operands]
    lists = [re.findall(r"[\w$.]+", word) for word in words]
    if words and words[0][:1] == "(":
        return lists[1][0], lists[0], lists[2] if len(lists) > 2 else []
    return words[0], [], lists[1] if len(lists) > 1 else []


def _rename(operand: Operand, registers: dict[str, str], names: dict[str, str]) -> Operand:
    """An operand with registers and symbols called as the maps say."""

    def reg(old: Reg | None) -> Reg | None:
        return Reg(registers[old.name]) if old else None

    if isinstance(operand, Reg):
        return Reg(registers[operand.name])
    if isinstance(operand, Not):
        return Not(Reg(registers[operand.reg.name]))
    if isinstance(operand, Pair):
        return Pair(reg(operand.first), reg(operand.second))
    if isinstance(operand, Vector):
        items = (reg(x) if isinstance(x, Reg) else x for x in operand.items)
        return Vector(tuple(items))
    if isinstance(operand, Symbol):
        if operand.name[:1] == "(":  # of a call
            return Symbol(re.sub(r"[\w$.]+", lambda m: names.get(m[0], m[0]), operand.name))
        return replace(operand, name=names.get(operand.name, operand.name))
    if isinstance(operand, Address):
        base = _rename(operand.base, registers, names)
        assert isinstance(base, (Reg, Symbol, Imm))
        return replace(operand, base=base)
    return operand
