"""Variables without a value that optimized code has no more: the same kernel, less optimized.

Where a loop is unrolled whole, what starts without a value becomes a constant: the compiler may
take any number for it, and nothing is left to be found. So a kernel is compiled once more, with its
loops as they are written. Only where that may use what nothing has set, it has to run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from gen.emulator import may_lack_values, parse_ptx
from gen.errors import GenError
from gen.foreign.build import Built, Recompile
from gen.foreign.steps import Step
from gen.foreign.variables import reachable

# Functions are inlined, and structures lie in registers; loops stay.
_LESS = "--Ofast-compile=mid"


def with_loops(steps: Sequence[Step]) -> list[Step]:
    """The launches with less optimized code where a variable there may have no value.

    None of them where that is nowhere.
    """
    found = [_less_optimized(step.built) for step in steps]
    if not any(found):
        return []
    return [
        replace(step, built=less or step.built) for step, less in zip(steps, found, strict=True)
    ]


def _less_optimized(built: Built) -> Built | None:
    if built.recompile is None or built.module is None:  # PTX
        return None
    ptx = _code(built.recompile, built.module.arch, built.symbol)
    if not ptx:
        return None
    parsed = parse_ptx(ptx)
    return replace(built, ptx=ptx, kernel=parsed.kernels[built.symbol], variables=reachable(parsed))


@lru_cache(maxsize=16)  # a product is launched many times
def _code(recompile: Recompile, arch: str, symbol: str) -> str:
    """The code, if a variable of the kernel may have no value there."""
    try:
        ptx = recompile(arch, "ptx", _LESS).code.decode()
        kernel = parse_ptx(ptx).kernels.get(symbol)
        return ptx if kernel and may_lack_values(kernel) else ""
    except GenError:  # which says nothing of the code that was asked for
        return ""
