"""Where the shared and local variables of a kernel lie, and how many bytes a block may have."""

from __future__ import annotations

from collections.abc import Sequence

from gen.emulator.ptx.module import PtxKernel, PtxModule, Variable
from gen.emulator.run.launch_state import LaunchState
from gen.errors import UsageError
from gen.spec.arch import SHARED_KIB, STATIC_SHARED

MAX_SHARED = max(SHARED_KIB.values()) * 1024  # bytes per block, static and dynamic


def place_variables(
    launch: LaunchState, module: PtxModule, kernel: PtxKernel, dynamic: int, odd_places: bool
) -> None:
    """Give shared and local variables their offsets: statics first, dynamic shared memory last.

    odd_places: see Emulator.
    """
    scope = {**module.variables, **kernel.variables}
    used: list[Variable] = [
        v
        for n, v in scope.items()
        if n in launch.program.symbols and v.space in ("shared", "local")
    ]
    if odd_places and _reversed_fit(used):
        used.reverse()
    totals = {"shared": 0, "local": 0}
    for variable in sorted(used, key=lambda v: v.dynamic):
        lines = -(-totals[variable.space] // variable.align)
        if variable.dynamic and odd_places:
            odd = lines | 1
            if odd * variable.align + dynamic <= MAX_SHARED:
                launch.unused_bytes, lines = (odd - lines) * variable.align, odd
        at = lines * variable.align
        size = dynamic if variable.dynamic else variable.nbytes
        launch.addresses[variable.name] = at
        if variable.space == "shared":
            launch.shared.append((variable.name, at, size))
        if not variable.dynamic:
            totals[variable.space] = at + size
        else:
            totals["shared"] = max(totals["shared"], at)
    static = totals["shared"]
    if static > STATIC_SHARED:
        raise UsageError(
            f"kernel '{kernel.name}' declares {static} bytes of static shared memory; at most "
            f"{STATIC_SHARED} are possible, make it dynamic (extern __shared__)"
        )
    if not 0 <= dynamic <= MAX_SHARED - static:
        raise UsageError(
            f"{static} bytes of static and {dynamic} of dynamic shared memory for kernel "
            f"'{kernel.name}' do not fit a block's {MAX_SHARED}; use less, such as smaller tiles"
        )
    launch.shared_bytes, launch.dynamic_bytes = static + dynamic, dynamic
    launch.local_bytes = totals["local"]


def _reversed_fit(variables: Sequence[Variable]) -> bool:
    """Whether static shared memory has room for them in reverse: they leave other gaps then."""
    total = 0
    for variable in reversed(variables):
        if variable.space == "shared" and not variable.dynamic:
            total = -(-total // variable.align) * variable.align + variable.nbytes
    return total <= STATIC_SHARED
