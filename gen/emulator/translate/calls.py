"""Calls of what is no function of the module: printf, malloc, free and failed assertions."""

from __future__ import annotations

from gen.emulator.memory.global_memory import Site
from gen.emulator.ptx.inline import call_parts
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.operands import Reg
from gen.emulator.ptx.values import DTYPES
from gen.emulator.translate.lines import Lines

PARAMETERS = {"vprintf": 2, "malloc": 1, "free": 1, "__assertfail": 5}


def call(code: Lines, item: Instruction) -> None:
    """A call whose parameters and result lie in variables in local memory."""
    name, results, params = call_parts(item)
    if name not in PARAMETERS or len(params) != PARAMETERS[name]:
        what, way_out = "functions that are not in the module", ""
        if any(isinstance(operand, Reg) for operand in item.operands):
            what = "function pointers and virtual functions"
            way_out = " (call each by its name, chosen by a template parameter or a branch)"
        raise item.error(f"calls of {what} are not supported by the emulator{way_out}")
    first, *more = (_variable(code, item, param) for param in params[:2])
    where = code.constant(item)
    if name == "vprintf":
        _result(code, item, results[0], "b32", f"E.calls.printf({first}, {more[0]}, m)")
    elif name == "malloc":
        _result(code, item, results[0], "b64", f"E.calls.malloc({where}, {first}, m)")
    elif name == "free":
        code.lines.append(f"E.calls.free({where}, {first}, m)")
    else:
        code.lines.append(f"E.calls.assertion({where}, {first}, m)")


def _site(code: Lines, item: Instruction, kind: str) -> str:
    dtype = DTYPES[kind]
    return code.constant(
        Site(
            item, "local", kind, 1, 0, dtype.itemsize, dtype.itemsize.bit_length() - 1, dtype, dtype
        )
    )


def _variable(code: Lines, item: Instruction, name: str) -> str:
    """The 64 bits of a parameter."""
    code.symbols.add(name)
    return f"E.load({_site(code, item, 'b64')}, E.address({name!r}), m)"


def _result(code: Lines, item: Instruction, name: str, kind: str, value: str) -> None:
    code.symbols.add(name)
    code.lines.append(f"E.store({_site(code, item, kind)}, E.address({name!r}), {value}, m)")
