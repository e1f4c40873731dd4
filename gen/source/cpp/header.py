"""KernelSpec -> the C header of its launcher."""

from __future__ import annotations

from collections.abc import Iterable

from gen._version import __version__
from gen.source.render import render_template, stamp, unsupported
from gen.spec.arch import only_capability
from gen.spec.dtypes import DTypes, ElementType
from gen.spec.kernel import KernelSpec

TEMPLATE = "cpp/header.h.j2"


def opaque_types(dtypes: Iterable[DTypes]) -> list[ElementType]:
    """The types of matrices that C does not have, each once."""
    types = [type_ for d in dtypes for type_ in (d.input, d.output) if type_.header]
    return list(dict.fromkeys(types))


def render_header(*specs: KernelSpec, name: str | None = None) -> str:
    """The C header that declares what an emitted file defines.

    Of a kernel for several architectures there are several specifications under one name.
    """
    spec = specs[0]
    printed = spec.row.printed(spec)
    return render_template(
        TEMPLATE,
        version=__version__,
        name=name or spec.name,
        dtypes=spec.dtypes,
        layouts=spec.layouts,
        has_bias=spec.has_bias,
        has_workspace=spec.row.takes_workspace,
        unsupported=unsupported(spec),
        only=only_capability(spec.arch),
        transposed=printed.get("transposed", []),
        has_partials=spec.has_partials,
        opaque=opaque_types([spec.dtypes]),
        stamp=stamp(*specs),
    )
