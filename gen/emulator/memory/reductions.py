"""Which reductions of global memory bulk copies do: cp.reduce.async.bulk, also of tensors."""

from __future__ import annotations

import itertools
from typing import Any

from gen.emulator.memory.atomics import RULES
from gen.emulator.ptx.module import Instruction
from gen.emulator.ptx.values import DTYPES

_WHOLE = ("u32", "s32", "u64", "s64")
_HALF = ("f16", "bf16")
_REDUCTIONS = frozenset(
    (*itertools.product(("add",), ("u32", "s32", "u64", "f32", "f64", *_HALF)),
     *itertools.product(("min", "max"), (*_WHOLE, *_HALF)),
     *itertools.product(("and", "or", "xor"), ("b32", "b64")),
     *itertools.product(("inc", "dec"), ("u32",)))
)  # fmt: skip
_BITS = {"u": "b", "s": "b"}  # what bitwise operations take an integer type for


def rule_of(operation: str, kind: str) -> str | None:
    """The name among the rules of atomics of a reduction of elements; None where there is none."""
    if (operation, kind) not in _REDUCTIONS:
        return None
    return f"{operation}.{kind}" if f"{operation}.{kind}" in RULES else operation


def tensor_rule(item: Instruction, operation: str, element: str) -> tuple[str, Any]:
    """The rule and the numpy type for elements of a tensor map. PtxError where there is none."""
    kind = element
    if operation in ("and", "or", "xor"):
        kind = _BITS.get(element[0], element[0]) + element[1:]
    elif operation == "add" and element in ("b32", "b64", "s64"):
        kind = f"u{element[1:]}"
    rule = rule_of(operation, kind) if kind != "f64" else None
    if rule is None:
        raise item.error(f"a reduction by {operation} of a tensor map of {element} does not exist")
    return rule, DTYPES[kind]
