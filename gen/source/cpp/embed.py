"""KernelSpec -> C++ with the kernel as machine code, and a launcher on the driver API.

What the launcher checks and computes is said in the kernels' templates alone: cpp/embed.cpp.j2 is
another frame for them, which takes their host's side.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gen._version import __version__
from gen.errors import SpecError, unknown
from gen.kernels.registry import retarget
from gen.source.render import DRIVER, render, render_framed, render_template, stamp
from gen.spec.arch import compute_capability
from gen.spec.kernel import KernelSpec
from gen.spec.names import MAX_SYMBOL, portable_symbol

TEMPLATES = ("cpp/embed.cpp.j2", "cpp/embed.h.j2")
FORMATS = ("cubin",)
WORDS_A_LINE = 4


def embedded_specs(spec: KernelSpec, archs: Sequence[str]) -> list[KernelSpec]:
    """The same kernel, under the same symbol, for each architecture.

    Raises SpecError where one of them does not have it.
    """
    symbol = spec.symbol or portable_symbol(spec)
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
    from gen.compile.nvrtc import nvrtc_version

    spec = specs[0]
    planned = spec.row.takes_workspace
    types = {
        key: "void" if type_.header else type_.cuda
        for key, type_ in (("input", spec.dtypes.input), ("output", spec.dtypes.output))
    }
    values = {
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "command": _command(specs),
        "archs": [s.arch for s in specs],
        "images": [_image(s) for s in specs],
        "planned": planned,
        "has_partials": planned and spec.split_k != 1,
        "stamp": stamp_of(specs),
        **types,
    }
    source = render_framed(spec, TEMPLATES[0], DRIVER, **values, aliases=_aliases(spec, types))
    header = render_template(
        TEMPLATES[1],
        version=__version__,
        name=spec.name,
        dtypes=spec.dtypes,
        layouts=spec.layouts,
        has_bias=spec.has_bias,
        transposed=spec.row.printed(spec).get("transposed", []),
        split_k=spec.split_k,
        **values,
    )
    return source, header


def stamp_of(specs: Sequence[KernelSpec]) -> str:
    """The stamp of the source and its header."""
    return stamp("embedded", *specs)


def _aliases(spec: KernelSpec, types: Mapping[str, str]) -> dict[str, str]:
    """What stands for the aliases of an emitted file in the signatures of an embedded kernel."""
    return {
        "input_t": types["input"],
        "output_t": types["output"],
        "scalar_t": spec.dtypes.scalar.cuda,
        "cudaStream_t": "CUstream",
    }


def _command(specs: Sequence[KernelSpec]) -> str:
    archs = ",".join(spec.arch for spec in specs)
    command = specs[0].command.replace(f"--arch {specs[0].arch}", f"--arch {archs}")
    return command.replace("gen emit", "gen emit --embed cubin", 1)


def _image(spec: KernelSpec) -> Mapping[str, object]:
    from gen.compile.nvrtc import compile_cuda

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
