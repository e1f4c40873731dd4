"""KernelSpec -> C++ with the kernel as machine code, and a launcher on the driver API.

For kernels of one launch: the launcher's arithmetic is that of their templates.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gen import __version__
from gen.errors import SpecError, unknown
from gen.registry import VARIANTS, geometry, get_variant, retarget
from gen.render import render, render_block, render_template
from gen.spec import MAX_SYMBOL, KernelSpec, compute_capability

TEMPLATES = ("cpp/embed.cpp.j2", "cpp/embed.h.j2")
FORMATS = ("cubin",)
WORDS_A_LINE = 4


def embedded_specs(spec: KernelSpec, archs: Sequence[str]) -> list[KernelSpec]:
    """The same kernel, under the same symbol, for each architecture.

    Raises SpecError where one of them does not have it, or for a kernel of several launches.
    """
    if get_variant(spec.variant).planner:
        able = ", ".join(name for name, row in VARIANTS.items() if not row.planner)
        raise SpecError(
            f"{spec.variant} may need several launches and a workspace, and --embed is for kernels "
            f"of one launch: {able}; use --header, and nvcc"
        )
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
    types = {"input": spec.dtypes.input, "output": spec.dtypes.output}
    values = {
        "version": __version__,
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "command": _command(specs),
        "name": spec.name,
        "dtypes": spec.dtypes,
        "layouts": spec.layouts,
        "archs": [s.arch for s in specs],
        "images": [_image(s) for s in specs],
        "shared_bytes": geometry(spec).dynamic_shared,
        "constants": render_block(spec, "constants"),
        "grid": render_block(spec, "grid").replace(
            "cudaErrorInvalidConfiguration", "CUDA_ERROR_INVALID_VALUE"
        ),
        **{key: "void" if type_.header else type_.cuda for key, type_ in types.items()},
    }
    source, header = (render_template(template, **values) for template in TEMPLATES)
    return source, header


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
