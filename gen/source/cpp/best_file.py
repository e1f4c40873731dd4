"""`Best` -> one .cu with its kernels and their launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gen._version import __version__
from gen.dispatch import cost, nearness, words
from gen.dispatch.nearness import Point
from gen.dispatch.weights import Weights
from gen.errors import SpecError
from gen.source.architectures import only, ranges_of
from gen.source.cpp.best import Best, shared_of
from gen.source.cpp.header import render_header
from gen.source.render import render_framed
from gen.source.templates import render_template
from gen.spec.arch import compute_capability
from gen.spec.kernel import KernelSpec
from gen.tables import columns

TEMPLATES = ("cpp/best.cu.j2", "cpp/_choice.j2")


def render_best(best: Best, header: str | None = None) -> str:
    """The source of several kernels and their launcher."""
    ccs = [compute_capability(arch) for arch in best.archs]
    ranges = dict(zip(ccs, ranges_of(ccs), strict=True))
    several = len(ccs) > 1
    return render_template(
        TEMPLATES[0],
        **choice_values(best),
        command=best.command,
        header=header,
        stamp=best.stamp,
        archs=[arch.removeprefix("sm_") for arch in best.archs],
        compiled_for=[(arch, *ranges[cc]) for arch, cc in zip(best.archs, ccs, strict=True)]
        if several
        else [],
        kernels=[_kernel(spec, *ranges[compute_capability(spec.arch)]) for spec in best.named],
        launch=best.launch,
        workspace=best.workspace,
    )


def render_best_header(best: Best) -> str:
    """The header that declares its functions, and says which GPUs they are for."""
    gpus = [gpu.title for gpu in best.gpus] if len(best.kernels) > 1 else []
    return render_header(
        *best.kernels, name=best.name, stamp_=best.stamp, gpus=gpus, may_choose=True
    )


def choice_values(best: Best) -> dict[str, Any]:
    """What templates have of a choice, on either interface to CUDA. Raises SpecError for groups."""
    first = best.kernels[0]
    if first.grouped:
        raise SpecError(
            "a launcher that chooses takes no groups; leave out --grouped and --grouped-k"
        )
    given = [*"MNK", *(["batch"] if first.batched else [])]
    return {
        "version": __version__,
        "name": best.name,
        "formula": first.formula,
        "gpus": best.gpus,
        "table": columns([_HEADINGS, *(_described(best, i) for i in range(len(best.kernels)))]),
        "rows": _candidates(best),
        "points": columns([_braces(point) for row in best.rows for point in row.points], ","),
        "point": Point._fields,
        "weight": nearness.WEIGHT,
        "corrected": nearness.CORRECTED,
        "fields": Weights._fields,
        "facts": (*cost.SIZES, *(cost.COUNT if first.batched else ()), *cost.TIMES),
        "batched": first.batched,
        "sizes": [f"index_t {name}" for name in given],
        "given": given,
    }


def _candidates(best: Best) -> list[str]:
    """The lines of their table: where there are points, with the places of each one's."""
    end, lines = 0, []
    for row in best.rows:
        first, end = end, end + len(row.points)
        own = [str(first), str(end)] if any(row.points for row in best.rows) else []
        weights = "{" + ", ".join(map(str, row.weights)) + "}"
        lines.append(_braces([row.gpu, row.kernel, weights, *own]))
    return columns(lines, ",")


def _braces(values: Sequence[object]) -> list[str]:
    """The cells of an initialiser."""
    first, *middle = map(str, values)
    return [f"{{{first}", *middle[:-1], f"{middle[-1]}}}"]


_COMMON = ("epilogue", "batched")  # tunables that all kernels have alike
_HEADINGS = ("kernel", "for", "variant", "tile", "tunables")


def _described(best: Best, place: int) -> tuple[str, ...]:
    spec = best.kernels[place]
    gpus = [best.gpus[row.gpu].name for row in best.rows if row.kernel == place]
    _, _, tunables = words.command(spec, _COMMON).partition(f"--arch {spec.arch}")
    tile = str(spec.threadblock)
    return f"{place + 1}", " ".join(gpus), spec.variant, tile, tunables.strip()


def _kernel(spec: KernelSpec, first: int, end: int | None) -> Mapping[str, Any]:
    """What the template has of a kernel: see `ranges_of` for where its code is."""
    text = render_framed(spec, alone=False, guarded=not first)
    return {
        "name": spec.name,
        "text": only(text, first, end) if first or end else text,
        **limits(spec),
    }


def limits(spec: KernelSpec) -> Mapping[str, Any]:
    """What the choice has of a kernel besides its weights."""
    return {
        "shared": shared_of(spec),
        "last": spec.row.max_arch or 0,
        "swapped": spec.swapped,
        "has_workspace": spec.row.takes_workspace,
    }
