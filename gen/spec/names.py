"""The kernels' C symbols: those that they get by default, and what a user's may be.

    gemm_<variant>_<dtypes>_<layouts>[_<tag><value>]...[_<architecture>]

A default symbol says what differs from the variant's defaults, and nothing else. A tunable has its
tag and its value there if the value is not the default for these types, layouts, architecture and
tunables before it; the architecture is there if it is not the variant's default. Different
specifications have different default symbols.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gen.errors import SpecError
from gen.spec.reserved import taken

if TYPE_CHECKING:
    from gen.spec.kernel import KernelSpec

# Longer names would push the emitted file's lines past 100 columns.
MAX_SYMBOL = 76


def default_symbol(spec: KernelSpec) -> str:
    """The symbol of a kernel that the user has not named, such as gemm_mma_f16_rcr_s3_sm90."""
    own = spec.arch == spec.row.usual_arch(spec.dtypes.name)
    return _symbol(spec, spec.arch) + ("" if own else f"_{spec.arch.replace('_', '')}")


def portable_symbol(spec: KernelSpec, arch: str | None = None) -> str:
    """The same for a kernel that is built for several architectures, without any of these.

    What it leaves out are the defaults on `arch`, or else on the variant's own architecture.
    """
    return _symbol(spec, arch or spec.row.usual_arch(spec.dtypes.name))


def _symbol(spec: KernelSpec, arch: str) -> str:
    tags = spec.row.tags(spec.tunables, spec.dtypes, spec.layouts, arch)
    return "_".join(("gemm", spec.row.name, spec.dtypes.name, str(spec.layouts), *tags))


def inner_symbol(name: str, number: int) -> str:
    """Of a kernel inside of a file that has several, and a name of its own."""
    return f"{name}_best{number}"


def check_given(symbol: str) -> None:
    """The same as `check_symbol`, for what a user calls a kernel or a file.

    Inner symbols have C linkage, too: where two libraries have one, linkers take either's.
    """
    check_symbol(symbol)
    if re.fullmatch(r".*_best\d+", symbol):
        raise SpecError(
            f"name '{symbol}' ends as those of kernels inside of a file of gen emit --best do; "
            f"use another, such as {symbol.rstrip('0123456789')}"
        )


def check_symbol(symbol: str) -> None:
    """Raises SpecError for what cannot be the symbol of a kernel or a bundle in any file."""
    if len(symbol) > MAX_SYMBOL:
        raise SpecError(
            f"name has {len(symbol)} characters, more than {MAX_SYMBOL}; use a shorter one"
        )
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", symbol, re.ASCII):
        raise SpecError(f"name '{symbol}' is not a C identifier; use letters, digits, _")
    if reason := taken(symbol):
        raise SpecError(
            f"name '{symbol}' is {reason}; use another, such as gemm_{symbol.strip('_')}"
        )
