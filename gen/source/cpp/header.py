"""KernelSpec -> the C header of its launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gen._version import __version__
from gen.source.render import stamp, unsupported
from gen.source.templates import render_template
from gen.spec.arch import only_capability
from gen.spec.dtypes import DTypes, ElementType
from gen.spec.epilogue import COLUMNS, GROUP_COLUMNS, GROUPS, MATRIX, ROWS
from gen.spec.kernel import KernelSpec

TEMPLATE = "cpp/header.h.j2"


def opaque_types(dtypes: Iterable[DTypes], others: Iterable[ElementType] = ()) -> list[ElementType]:
    """The types of matrices, and others, that C does not have, each once."""
    types = [*(type_ for d in dtypes for type_ in (d.input, d.output)), *others]
    return list(dict.fromkeys(type_ for type_ in types if type_.header))


def own_parameters(spec: KernelSpec, spelled: Callable[[ElementType], str]) -> list[str]:
    """The lines that declare what an epilogue of the user's own takes. spelled: an element type."""
    order, length = ("row-major", "N") if spec.layouts.c else ("column-major", "M")
    comments = {
        MATRIX: f"{order}; leading dimension >= {length}",
        ROWS: "M elements: one for each row of D",
        COLUMNS: "N elements: one for each column of D",
        GROUPS: "groups elements: one for each",
        GROUP_COLUMNS: "groups x N elements, one row behind another",
    }
    lines: list[str] = []
    for operand in spec.operands:
        element = operand.element(spec.dtypes)
        if not operand.index:
            lines.append(f"{element.cuda} {operand.symbol},  // a value, not a pointer")
            continue
        ld = f", long long {operand.ld}" if operand.index == MATRIX else ""
        what = f"{element.cuda}, {comments[operand.index]}"
        lines.append(f"const {spelled(element)}* {operand.symbol}{ld},  // {what}")
    return lines


def render_header(
    *specs: KernelSpec,
    name: str | None = None,
    stamp_: str = "",
    gpus: Sequence[str] = (),
    may_choose: bool = False,
) -> str:
    """The C header that declares what an emitted file defines.

    Where its launcher chooses among kernels there are several specifications under one name.
    stamp_: the file's, if that is not made of the specifications alone. gpus: those that the
    kernels are chosen for. may_choose: the launcher takes a workspace for any kernel.
    """
    spec = specs[0]
    planned = any(each.row.takes_workspace for each in specs)
    transposed = {x for each in specs for x in each.row.printed(each).get("transposed", [])}
    return render_template(
        TEMPLATE,
        version=__version__,
        name=name or spec.name,
        dtypes=spec.dtypes,
        layouts=spec.layouts,
        formula=spec.formula,
        has_bias=spec.has_bias,
        own=own_parameters(spec, lambda t: f"gemmgen_{t.name}" if t.header else t.cuda),
        spec=spec,
        planned=planned,
        has_workspace=planned or may_choose,
        unsupported=next(filter(None, map(unsupported, specs)), ""),
        only=only_capability(spec.arch) if len(specs) == 1 else "",
        transposed=sorted(transposed),
        has_partials=any(each.has_partials for each in specs),
        packs=any(each.packs for each in specs),
        gpus=gpus,
        opaque=opaque_types([spec.dtypes], [o.element(spec.dtypes) for o in spec.operands]),
        stamp=stamp_ or stamp(*specs),
    )
