"""A bundle -> its header and its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gen._version import __version__
from gen.kernels import signature
from gen.source.architectures import TEMPLATE as ARCHITECTURES
from gen.source.architectures import render_family
from gen.source.cpp.bundle import Bundle, Entry
from gen.source.render import unsupported
from gen.source.templates import render_template
from gen.spec.arch import only_capability
from gen.spec.dtypes import DTYPES, DTypes
from gen.spec.epilogue import COLUMNS, GROUP_COLUMNS, GROUPS, MATRIX, ROWS
from gen.spec.kernel import EPILOGUES
from gen.spec.problem import ALL_LAYOUTS
from gen.tables import columns

TEMPLATES = ("cpp/bundle.h.j2", "cpp/bundle.cu.j2")


def templates(bundle: Bundle) -> list[str]:
    """What the files are made from."""
    return [*TEMPLATES, ARCHITECTURES, *(entry.spec.row.template for entry in bundle.entries)]


class Own(NamedTuple):
    """An epilogue of the user's own: its name in the header, its number there, its expression.

    members: its operands, as declarations. fields: their names, in the order of a launcher's
    arguments.
    """

    name: str
    number: int
    formula: str
    members: list[str]
    fields: list[str]


def own_epilogues(bundle: Bundle) -> list[Own]:
    """Those of the user's own, each once."""
    entries: dict[str, list[Entry]] = {}
    for entry in bundle.entries:
        if entry.own:
            entries.setdefault(entry.own, []).append(entry)
    return [_own(each) for each in entries.values()]


def _own(entries: list[Entry]) -> Own:
    """What entries with the same one have, whose operands may be of several types."""
    first, members = entries[0], []
    for operand in first.spec.operands:
        if not operand.index:
            members.append(f"double {operand.symbol};  // converted as alpha is")
            continue
        types = dict.fromkeys(operand.element(e.spec.dtypes).cuda for e in entries)
        what = f"{' or '.join(types)}: {_SHAPES[operand.index]}"
        members.append(f"const void* {operand.symbol};  // {what}")
        if operand.index == MATRIX:
            members.append(f"long long {operand.ld};")
    assert first.spec.fused
    fields = [p.name for p in signature.of_epilogue(first.spec)]
    return Own(first.own, first.epilogue_number, first.spec.fused.text, members, fields)


_SHAPES = {
    MATRIX: "M x N, in the order of D",
    ROWS: "M elements, one for each row of D",
    COLUMNS: "N elements, one for each column of D",
    GROUPS: "groups elements: one for each",
    GROUP_COLUMNS: "groups x N elements, one row behind another",
}


def render_bundle(bundle: Bundle) -> tuple[str, str]:
    """The header and the source."""
    dtypes = list(dict.fromkeys(entry.spec.dtypes for entry in bundle.entries))
    kernels = [_kernel(entry) for entry in bundle.entries]
    own = own_epilogues(bundle)
    reasons = ["no kernel is for the problem"]
    reasons += filter(None, dict.fromkeys(unsupported(entry.spec) for entry in bundle.entries))
    headings = [_HEADINGS, *(_described(entry, bundle.batched) for entry in bundle.entries)]
    if bundle.batched:
        headings[0] = (*_HEADINGS[:-1], "batch", _HEADINGS[-1])
    values = {
        "version": __version__,
        "name": bundle.name,
        "archs": [arch.removeprefix("sm_") for arch in bundle.archs],
        "command": bundle.command,
        "stamp": bundle.stamp,
        "listing": bundle.lines,
        "kernels": kernels,
        "batched": bundle.batched,
        "own": own,
        "has_workspace": any(k["workspace"] for k in kernels),
        "unsupported": ", or ".join(reasons),
        "only": only_capability(bundle.archs[0]) if len(bundle.archs) == 1 else "",
        "launchers": sorted({k["launcher"] for k in kernels}, key=lambda one: one.name),
        "workspaces": sorted({k["workspace"] for k in kernels if k["workspace"]}),
        "dtypes": [_numbered(d) for d in dtypes],
        "scalars": {d.scalar.cuda for d in dtypes},
        "layouts": ALL_LAYOUTS,
        "epilogues": EPILOGUES,
        "table": columns(headings),
        "rows": columns([_row(bundle, i, e) for i, e in enumerate(bundle.entries, 1)], ","),
    }
    header, source = (render_template(template, **values) for template in TEMPLATES)
    return header, source


class _Launcher(NamedTuple):
    """A template of launchers, which kernels with the same arguments share.

    given: what it passes on of a problem p. numbers: those of the user's own epilogue.
    """

    name: str
    has_workspace: bool
    own: str
    numbers: tuple[str, ...]
    given: tuple[str, ...]


_CASTS = {
    "A": "const Input", "B": "const Input", "C": "const Output", "D": "Output",
    "bias": "const Output",
}  # fmt: skip
_OWN_NAMES = ("alpha", "beta", "workspace", "workspace_bytes", "stream", "bytes")


def _passed(name: str, entry: Entry) -> str:
    """What a function of a kernel is given for a parameter."""
    if name in _CASTS:
        return f"static_cast<{_CASTS[name]}*>(p.{name})"
    if name in _OWN_NAMES:
        return name
    for operand in entry.spec.operands:
        if name == operand.symbol:
            return f"Array{{p.{entry.own}.{name}}}" if operand.index else f"own_{name}"
        if name == operand.ld:
            return f"p.{entry.own}.{name}"
    return f"p.{name}"


def _launcher(entry: Entry) -> _Launcher:
    spec = entry.spec
    extra, takes = entry.own or "bias" * spec.has_bias, spec.row.takes_workspace
    with_ = f"_with_{extra}" if extra else ""
    return _Launcher(
        f"launch{'_batch' * spec.batched}{with_}{'_in_workspace' * takes}",
        takes,
        entry.own,
        tuple(operand.symbol for operand in spec.operands if not operand.index),
        tuple(_passed(p.name, entry) for p in signature.launch(spec)),
    )


def _workspace(entry: Entry) -> tuple[str, tuple[str, ...]]:
    """The template of a function that tells a workspace's size, and what it passes on."""
    batched = entry.spec.batched
    given = tuple(_passed(p.name, entry) for p in signature.workspace(entry.spec.several))
    return f"workspace{'_of_batch' * batched}", given


def _kernel(entry: Entry) -> Mapping[str, Any]:
    spec = entry.spec
    return {
        "name": entry.family.name,
        "text": render_family(entry.family, alone=False).text,
        "dtypes": spec.dtypes,
        "launcher": _launcher(entry),
        "workspace": _workspace(entry) if spec.row.takes_workspace else None,
    }


def _numbered(dtypes: DTypes) -> Mapping[str, object]:
    # The numbers of all element types: those of a bundle stay the same when others come or go.
    number = list(DTYPES).index(dtypes.name)
    parts = ("input", "output", "accumulator")
    return {
        "name": dtypes.name,
        "number": number,
        **{part: getattr(dtypes, part) for part in parts},
    }


_HEADINGS = ("types", "layout", "epilogue", "M", "N", "K", "aligned", "kernel")


def _described(entry: Entry, batched: bool) -> tuple[str, ...]:
    spec, s = entry.spec, entry.smallest
    aligned = "yes" if entry.aligned else ""
    sizes = (f"{s.m}", f"{s.n}", f"{s.k}", aligned)
    count = ("any" if spec.batched else "1",) if batched else ()
    kind = spec.dtypes.name, str(spec.layouts), entry.epilogue
    return (*kind, *sizes, *count, entry.family.name)


def _row(bundle: Bundle, number: int, entry: Entry) -> tuple[str, ...]:
    spec, s = entry.spec, entry.smallest
    enumerators = (spec.dtypes.name, str(spec.layouts), entry.epilogue)
    count = ("true" if spec.batched else "false",) if bundle.batched else ()
    return (
        *(f"{bundle.name}_{word}".upper() for word in enumerators),
        *(f"{s.m}", f"{s.n}", f"{s.k}"),
        *count,
        f"{entry.multiple}",
        f"workspace_{number}" if spec.row.takes_workspace else "nullptr",
        f"launch_{number}",
        f'"{entry.family.name}"',
    )
