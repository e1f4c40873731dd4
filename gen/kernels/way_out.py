"""The way out of a conflict among tunables: what the message says to use.

A hint that another rule refuses is worse than none: each one here has passed all rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gen.kernels.tunables import Choice, Tunable, Word
from gen.kernels.variant import Variant
from gen.spec.arch import SHARED_KIB
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import Layouts

Asked = Mapping[str, Any]  # dtype, arch, and the tunables that were given


def way_out(
    row: Variant,
    layouts: Layouts,
    blame: Sequence[str],
    asked: Asked,
    allowed: Callable[[Asked], bool],
) -> str:
    """The nearest value of each one to blame that is allowed with all else as it was asked for.

    Where one value does not do, the defaults of those to blame do, or those of all.
    """
    fixed = {name: asked[name] for name in ("dtype", "arch")}
    now = dict(fixed)
    if not set(blame) <= set(fixed):
        chosen = Choice(parse_dtype(asked["dtype"]), layouts, asked["arch"], {})
        now |= row.resolve(asked, chosen)
    domains = _domains(row)

    def nearest(rest: Asked) -> Iterator[str]:
        for name in blame:
            values = domains[name].near(now[name])
            if (found := next((v for v in values if allowed({**rest, name: v})), None)) is not None:
                yield f"{name}={domains[name].show(found)}"

    if near := list(nearest(asked)):
        return " or ".join(near)
    given = [name for name in blame if name in asked and name not in fixed]
    if given and allowed({name: value for name, value in asked.items() if name not in given}):
        return f"the default {' and '.join(given)}"
    if allowed(fixed):
        return "the defaults"
    if near := list(nearest(fixed)):  # the type or the architecture, and something else
        return f"{' or '.join(near)} and the defaults"
    return f"the defaults with dtype={row.dtypes[0]} and arch={row.default_arch}"


def _domains(row: Variant) -> Mapping[str, Tunable]:
    archs = (*(f"sm_{cc}" for cc in SHARED_KIB), row.default_arch)
    others = (
        Word("dtype", "element types", row.dtypes[0], row.dtypes),
        Word("arch", "architecture", row.default_arch, tuple(dict.fromkeys(archs))),
    )
    return {tunable.name: tunable for tunable in (*row.tunables, *others)}
