"""KernelSpec -> C++ with the kernel as machine code or PTX, and a launcher on the driver API.

What the launcher checks and computes is said in the kernels' templates alone: cpp/embed.cpp.j2 is
another frame for them, which takes their host's side.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gen._version import __version__
from gen.errors import SpecError, UsageError, unknown
from gen.kernels.registry import retarget
from gen.source.cpp.header import own_parameters
from gen.source.render import DRIVER, render, render_framed, stamp
from gen.source.templates import render_template
from gen.spec.arch import compute_capability, last_capability
from gen.spec.dtypes import ELEMENT_TYPES, ElementType
from gen.spec.kernel import KernelSpec
from gen.spec.names import MAX_SYMBOL, portable_symbol
from gen.tables import columns

TEMPLATES = ("cpp/embed.cpp.j2", "cpp/embed.h.j2")
FORMATS = ("ptx", "cubin")  # the better one last
WORDS_A_LINE = 4
# What our kernels need of PTX up to sm_90a, and the first driver that has it: NVRTC writes its own,
# newer version. Older drivers than 12.0 lack functions that the launcher uses.
PTX_VERSION, PTX_DRIVER = "8.0", 12000
FP8_VERSION, FP8_DRIVER = "8.4", 12040
_FP8 = re.compile(rb"\bmma\.sync\S*\.e[45]m[23]\b")  # which needs that, as wgmma does not
IN_WORDS = {"ptx": "PTX", "cubin": "machine code"}


@dataclass(frozen=True)
class Image:
    """Code of one format for one architecture.

    first, last: the compute capabilities that run it; no last where newer ones do, too. driver: the
    oldest that loads it, as 13000 for CUDA 13.0.
    """

    format: str
    arch: str
    driver: int
    code: bytes

    @property
    def name(self) -> str:
        """Of the array."""
        kind = "Ptx" if self.format == "ptx" else ""
        return f"k{kind}{self.arch.replace('_', '').capitalize()}"

    @property
    def first(self) -> int:
        """See above."""
        return compute_capability(self.arch)

    @property
    def last(self) -> int | None:
        """See above."""
        return last_capability(self.arch, ptx=self.format == "ptx")

    @property
    def lines(self) -> list[str]:
        """The code as numbers; PTX ends with a zero."""
        padded = self.code + bytes(1 if self.format == "ptx" else 0)
        padded += bytes(-len(padded) % 8)
        words = [f"0x{word:016x}," for (word,) in struct.iter_unpack("<Q", padded)]
        return [" ".join(words[i : i + WORDS_A_LINE]) for i in range(0, len(words), WORDS_A_LINE)]

    @property
    def row(self) -> tuple[str, str, str]:
        """The GPUs that run it, what they run, the drivers: a row of the header's table."""
        first, last = (f"{cc // 10}.{cc % 10}" for cc in (self.first, self.last or 0))
        gpus = first if first == last else f"{first} to {last}" if self.last else f"{first}, newer"
        driver = f"CUDA {self.driver // 1000}.{self.driver % 1000 // 10}, newer"
        return gpus, f"{IN_WORDS[self.format]} for {self.arch}", driver


_HEADINGS = ("compute capability", "what runs there", "driver")


def embedded_specs(spec: KernelSpec, archs: Sequence[str]) -> list[KernelSpec]:
    """The same kernel, under the same symbol, for each architecture.

    Raises SpecError where one of them does not have it.
    """
    symbol = spec.symbol or portable_symbol(spec)
    if len(symbol) > MAX_SYMBOL:
        raise SpecError(f"name has {len(symbol)} characters, more than {MAX_SYMBOL}; use --name")
    specs = [replace(retarget(spec, arch), symbol=symbol) for arch in dict.fromkeys(archs)]
    return sorted(specs, key=lambda s: (compute_capability(s.arch), s.arch))


def formats(text: str) -> list[str]:
    """The formats that are to be embedded: `cubin`, `ptx` or `cubin,ptx`. Raises UsageError."""
    names = text.split(",")
    for name in names:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if len(set(names)) < len(names):
        raise UsageError(f"--embed {text} names a format twice; name each once")
    return [name for name in FORMATS if name in names]


def render_embedded(
    specs: Sequence[KernelSpec], formats: Sequence[str] = ("cubin",)
) -> tuple[str, str]:
    """The C++ source and its header. Raises as compile_cuda."""
    from gen.compile.nvrtc import nvrtc_version

    spec = specs[0]
    images = [image_of(s, format_) for format_ in formats for s in specs]
    planned = spec.row.takes_workspace
    types = aliases(spec)
    values = {
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "command": _command(specs, formats),
        "archs": [s.arch for s in specs],
        "forms": [IN_WORDS[format_] for format_ in reversed(formats)],
        "images": images,
        "chooses": False,
        "runs_on": columns([_HEADINGS, *(image.row for image in reversed(images))]),
        "planned": planned,
        "has_workspace": planned,
        "has_partials": spec.has_partials,
        "packs": spec.packs,
        "helpers": helpers(spec),
        "stamp": stamp_of(specs),
        "input_t": same_size(spec.dtypes.input),
        "output_t": same_size(spec.dtypes.output),
        "input": types["input_t"],
        "output": types["output_t"],
    }
    source = render_framed(spec, TEMPLATES[0], DRIVER, **values, aliases=types)
    header = render_template(
        TEMPLATES[1],
        version=__version__,
        name=spec.name,
        dtypes=spec.dtypes,
        layouts=spec.layouts,
        formula=spec.formula,
        has_bias=spec.has_bias,
        own=own_parameters(spec, void),
        spec=spec,
        transposed=spec.row.printed(spec).get("transposed", []),
        **values,
    )
    return source, header


def helpers(spec: KernelSpec) -> list[tuple[str, str]]:
    """The kernels besides the main one: how their names end, and what they do."""
    found = []
    if spec.packs:
        found.append(("pack", "copies operands that the kernel cannot read where they are"))
    if spec.stream_k:
        found.append(("clear", "clears the flags of partial sums"))
    if spec.split_k != 1:
        found.append(("reduce", "adds up partial sums"))
    return found


def stamp_of(specs: Sequence[KernelSpec]) -> str:
    """The stamp of the source and its header."""
    return stamp("embedded", *specs)


def aliases(spec: KernelSpec) -> dict[str, str]:
    """What stands for the aliases of an emitted file in the signatures of an embedded kernel."""
    types = spec.dtypes
    return {
        **{e.cuda: "void" for e in ELEMENT_TYPES.values() if e.header},
        "input_t": void(types.input),
        "output_t": void(types.output),
        "scalar_t": types.scalar.cuda,
        "cudaStream_t": "CUstream",
    }


def void(type_: ElementType) -> str:
    """What a pointer to elements points to where CUDA's types are not declared."""
    return "void" if type_.header else type_.cuda


def same_size(type_: ElementType) -> str:
    """A type that is as large, declared in the end by `;` and why it stands there."""
    if not type_.header:
        return f"{type_.cuda};"
    return f"unsigned { {1: 'char', 2: 'short'}[type_.size] };  // as large as {type_.cuda}"


def _command(specs: Sequence[KernelSpec], formats: Sequence[str]) -> str:
    archs = ",".join(spec.arch for spec in specs)
    command = specs[0].command.replace(f"--arch {specs[0].arch}", f"--arch {archs}")
    return command.replace("gen emit", f"gen emit --embed {','.join(reversed(formats))}", 1)


def image_of(spec: KernelSpec, format_: str) -> Image:
    """A kernel compiled to a format. Raises as compile_cuda."""
    from gen.compile.nvrtc import compile_cuda, nvrtc_version

    source = render(spec)
    code = compile_cuda(
        source.text, name=source.filename, arch=spec.arch, format=format_, line_info=False
    ).code
    major, minor = nvrtc_version()
    if format_ == "cubin":
        return Image(format_, spec.arch, 1000 * major, code)  # drivers load it from any minor one
    if compute_capability(spec.arch) > 90:
        return Image(format_, spec.arch, 1000 * major + 10 * minor, code)
    newer = _FP8.search(code)
    version, driver = (FP8_VERSION, FP8_DRIVER) if newer else (PTX_VERSION, PTX_DRIVER)
    named = re.sub(rb"(?m)^\.version .*", f".version {version}".encode(), code)
    return Image(format_, spec.arch, driver, named)
