"""KernelSpec -> C++ with the kernel as machine code, and a launcher on the driver API.

What the launcher checks and computes is said in the kernels' templates alone: it is made of blocks
of them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gen import __version__
from gen.errors import SpecError, unknown
from gen.registry import geometry, get_variant, retarget
from gen.render import render, render_block, render_template
from gen.spec import MAX_SYMBOL, KernelSpec, compute_capability

TEMPLATES = ("cpp/embed.cpp.j2", "cpp/embed.h.j2")
FORMATS = ("cubin",)
WORDS_A_LINE = 4

# Blocks of the templates of kernels of one launch, and of those with a plan.
_SIMPLE = ("constants", "checks", "grid")
_PLANNED = ("transposes", "reduce_width", "host_plan", "host_workspace", "maps", "host_launch")

# What the templates' host side says in words of the CUDA runtime.
_DRIVER_WORDS = {
    "cudaError_t": "CUresult",
    "cudaSuccess": "CUDA_SUCCESS",
    "cudaErrorInvalidValue": "CUDA_ERROR_INVALID_VALUE",
    "cudaErrorInvalidConfiguration": "CUDA_ERROR_INVALID_VALUE",
    "__host__ __device__ ": "",
}


def embedded_specs(spec: KernelSpec, archs: Sequence[str]) -> list[KernelSpec]:
    """The same kernel, under the same symbol, for each architecture.

    Raises SpecError where one of them does not have it.
    """
    symbol = spec.symbol or spec.full_name.rpartition("_")[0]  # without the architecture
    if len(symbol) > MAX_SYMBOL:
        raise SpecError(f"name has {len(symbol)} characters, more than {MAX_SYMBOL}; use --name")
    specs = [replace(retarget(spec, arch), symbol=symbol) for arch in dict.fromkeys(archs)]
    return sorted(specs, key=lambda s: (compute_capability(s.arch), s.arch))


def check_format(name: str) -> None:
    """Raises UsageError for what cannot be embedded."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)


def render_embedded(specs: Sequence[KernelSpec]) -> tuple[str, str]:
    """The C++ source and its header. Raises as compile_cuda."""
    from gen.nvrtc import nvrtc_version

    spec = specs[0]
    planned = get_variant(spec.variant).planner is not None
    blocks = {block: _host_block(spec, block) for block in (_PLANNED if planned else _SIMPLE)}
    has_maps = bool(blocks.get("maps"))
    types = {"input": spec.dtypes.input, "output": spec.dtypes.output}
    values = {
        **geometry(spec).values,
        "version": __version__,
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "command": _command(specs),
        "name": spec.name,
        "dtypes": spec.dtypes,
        "layouts": spec.layouts,
        "archs": [s.arch for s in specs],
        "images": [_image(s) for s in specs],
        "shared_bytes": geometry(spec).dynamic_shared,
        "planned": planned,
        "has_bias": spec.has_bias,
        "has_partials": planned and spec.split_k != 1,
        "has_maps": has_maps,
        "counts_multiprocessors": planned and (has_maps or spec.split_k == 0),
        "blocks": blocks,
        **{key: "void" if type_.header else type_.cuda for key, type_ in types.items()},
    }
    source, header = (render_template(template, **values) for template in TEMPLATES)
    return source, header


def _host_block(spec: KernelSpec, block: str) -> str:
    """A block of the kernel's template for the driver API."""
    text = render_block(spec, block, driver=True)
    words = re.compile("|".join(rf"\b{re.escape(word)}" for word in _DRIVER_WORDS))
    return words.sub(lambda match: _DRIVER_WORDS[match[0]], text)


def _command(specs: Sequence[KernelSpec]) -> str:
    archs = ",".join(spec.arch for spec in specs)
    command = specs[0].command.replace(f"--arch {specs[0].arch}", f"--arch {archs}")
    return command.replace("gen emit", "gen emit --embed cubin", 1)


def _image(spec: KernelSpec) -> Mapping[str, object]:
    from gen.nvrtc import compile_cuda

    source = render(spec)
    code = compile_cuda(
        source.text, name=source.filename, arch=spec.arch, format="cubin", line_info=False
    ).code
    padded = code + bytes(-len(code) % 8)
    words = [f"0x{word:016x}," for (word,) in struct.iter_unpack("<Q", padded)]
    major, minor = divmod(compute_capability(spec.arch), 10)
    return {
        "arch": spec.arch,
        "major": major,
        "minor": minor,
        "alone": bool(re.search("a$", spec.arch)),
        "lines": [
            " ".join(words[i : i + WORDS_A_LINE]) for i in range(0, len(words), WORDS_A_LINE)
        ],
    }
