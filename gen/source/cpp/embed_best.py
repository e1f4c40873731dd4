"""`Best` -> one C++ file with its kernels as machine code or PTX, and the launcher that chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gen.kernels import signature
from gen.source.cpp import embed
from gen.source.cpp.best import Best
from gen.source.cpp.best_file import choice_values, limits
from gen.source.cpp.header import own_parameters
from gen.source.render import DRIVER, render_framed, stamp
from gen.source.templates import render_template
from gen.spec.arch import compute_capability, last_capability
from gen.spec.kernel import KernelSpec
from gen.tables import columns

TEMPLATES = ("cpp/embed_best.cpp.j2", "cpp/embed_kernel.cpp.j2", "cpp/embed.h.j2", "cpp/_choice.j2")
_HEADINGS = ("compute capability", "what runs there", "driver")


def stamp_of(best: Best) -> str:
    """The stamp of the source and its header."""
    return stamp("embedded", *best.kernels, *best.rows)


def render_embedded_best(
    best: Best, formats: Sequence[str], step: Callable[[], object] = lambda: None
) -> tuple[str, str]:
    """The C++ source and its header. Raises as compile_cuda. step: called after each kernel."""
    from gen.compile.nvrtc import nvrtc_version

    images: dict[str, list[embed.Image]] = {}
    for spec in best.named:
        images[spec.name] = [embed.image_of(spec, format_) for format_ in formats]
        step()
    first, types = best.kernels[0], embed.aliases(best.kernels[0])
    helpers = dict(helper for spec in best.named for helper in embed.helpers(spec))
    roles = [("kernel", ""), *helpers.items()]
    printed = [spec.row.printed(spec) for spec in best.kernels]
    archs = list(dict.fromkeys(spec.arch for spec in best.kernels))
    values: dict[str, Any] = {
        **choice_values(best),
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "command": best.command,
        "stamp": stamp_of(best),
        "archs": sorted(archs, key=compute_capability),
        "forms": [embed.IN_WORDS[format_] for format_ in reversed(formats)],
        "formats": len(formats),
        "roles": roles,
        **{
            name: any(each.get(name) for each in printed)
            for name in ("has_maps", "counts_multiprocessors", "large_clusters")
        },
        "input_t": embed.same_size(first.dtypes.input),
        "output_t": embed.same_size(first.dtypes.output),
        "launch": signature.with_types(signature.launch(first, may_choose=True), types),
        "workspace": signature.with_types(signature.workspace(first.several), types),
        "kernels": [_kernel(spec, images[spec.name], roles, types) for spec in best.named],
    }
    return render_template(TEMPLATES[0], **values), _header(best, images, values, types)


def _kernel(
    spec: KernelSpec,
    images: Sequence[embed.Image],
    roles: Sequence[tuple[str, str]],
    types: Mapping[str, str],
) -> Mapping[str, Any]:
    own = {"kernel": spec.name, **{r: f"{spec.name}_{r}" for r, _ in embed.helpers(spec)}}
    text = render_framed(
        spec, TEMPLATES[1], DRIVER, types, planned=spec.row.takes_workspace, images=images,
        symbols=[f'"{own[role]}"' if role in own else "nullptr" for role, _ in roles],
    )  # fmt: skip
    return {"name": spec.name, "text": text, **limits(spec)}


def _header(
    best: Best,
    images: Mapping[str, Sequence[embed.Image]],
    values: Mapping[str, Any],
    types: Mapping[str, str],
) -> str:
    spec = best.kernels[0]
    rows = {_row(image): None for of_kernel in images.values() for image in of_kernel}
    transposed = {x for each in best.kernels for x in each.row.printed(each).get("transposed", [])}
    return render_template(
        TEMPLATES[2],
        **{**values, "stamp": stamp_of(best)},
        dtypes=spec.dtypes,
        layouts=spec.layouts,
        has_bias=spec.has_bias,
        spec=spec,
        own=own_parameters(spec, embed.void),
        planned=any(each.row.takes_workspace for each in best.kernels),
        has_workspace=True,
        transposed=sorted(transposed),
        has_partials=any(each.has_partials for each in best.kernels),
        packs=any(each.packs for each in best.kernels),
        runs_on=columns([_HEADINGS, *sorted(rows, reverse=True)]),
        input=types["input_t"],
        output=types["output_t"],
    )


def _row(image: embed.Image) -> tuple[str, str, str]:
    """As of a kernel alone, but that a launcher that chooses has none for later generations."""
    _, what, driver = image.row
    last = last_capability(image.arch) or image.first
    first, last_ = (f"{cc // 10}.{cc % 10}" for cc in (image.first, last))
    return (first if first == last_ else f"{first} to {last_}"), what, driver
