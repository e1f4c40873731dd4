"""Floats that atomics add up: in an order that differs from run to run, and with it the last bits.

What a kernel guarantees has the same bits in every run (docs/cpp.md), so no emitted kernel does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gen.compile.nvrtc import Module
from gen.emulator import Finding, Instruction, parse_ptx

_ADDS = re.compile(r"(atom|red)\..*\badd\.(\w+\.)*(f16|f16x2|bf16|bf16x2|f32|f64)\b")
_MESSAGE = (
    "floats are added by atomics, in an order that differs from run to run, and the last bits of D "
    "with it"
)


def unordered(module: Module) -> Iterator[Finding]:
    """A finding for each CUDA line that does so."""
    lines = module.text.splitlines()
    for kernel in parse_ptx(module.code.decode()).kernels.values():
        adds = {
            item.line
            for item in kernel.body
            if isinstance(item, Instruction) and _ADDS.match(item.name)
        }
        for line in sorted(adds):
            source = lines[line - 1] if 0 < line <= len(lines) else ""
            yield Finding("racecheck", kernel.name, _MESSAGE, line, source, (0, 0, 0), ())
