"""KernelSpec -> Source: what the templates of kernels are given; files that are read again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gen._version import __version__
from gen.errors import GenError, SpecError, UsageError
from gen.kernels import signature
from gen.kernels.registry import spec_from_json
from gen.source.fused import Fused
from gen.source.symbols import taken, words_of_templates
from gen.source.templates import render_template
from gen.spec.arch import compute_capability, only_capability
from gen.spec.epilogue import Operand
from gen.spec.kernel import KernelSpec

FRAME = "frame/file.cu.j2"
HOST = ("launch", "workspace")  # signatures of the host's functions
_NO_TMA = "the driver does not know the TMA: it is older than CUDA 12"

_SPEC_LINE = re.compile(r"^// gen-spec:(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Api:
    """The words of an interface to CUDA that launchers are written for."""

    driver: bool
    error_t: str
    success: str
    invalid_value: str
    invalid_configuration: str


RUNTIME = Api(
    False,
    "cudaError_t",
    "cudaSuccess",
    "cudaErrorInvalidValue",
    "cudaErrorInvalidConfiguration",
)
DRIVER = Api(
    True,
    "CUresult",
    "CUDA_SUCCESS",
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_INVALID_VALUE",
)


@dataclass(frozen=True)
class Source:
    """CUDA source text and where it came from; `spec` is None for what no specification made.

    `path` is the file that it was read from, if it was.
    """

    name: str
    text: str
    spec: KernelSpec | None = None
    path: Path | None = field(default=None, compare=False)

    @property
    def filename(self) -> str:
        """The file it is written to: the kernel's symbol and `.cu`."""
        return f"{self.name}.cu"

    @property
    def place(self) -> str:
        """What messages call it: the file that it was read from, else the one it is written to."""
        return str(self.path or self.filename)


def _check_symbol(spec: KernelSpec) -> None:
    """Refuses a symbol that is something else where the file declares the kernel or names it."""
    own = spec.full_name
    for name, where in taken(render_framed(replace(spec, symbol=None)), own).items():
        if name == spec.symbol:
            raise SpecError(
                f"name '{name}' is something else in {where} of the file; use another, such as "
                f"gemm_{name}"
            )


def check_operands(operands: Iterable[Operand], symbol: str = "") -> None:
    """Refuses an operand of an epilogue that is called as something in any kernel's file is.

    It could be another thing in some kernels alone, and which one runs is often chosen later.
    symbol: the kernel's name. Raises SpecError.
    """
    for operand in operands:
        if operand.symbol in {symbol, *words_of_templates()}:
            raise SpecError(
                f"operand '{operand.name}' is something else in emitted files; use another name, "
                f"such as my_{operand.name}"
            )


def render(spec: KernelSpec, header: str | None = None) -> Source:
    """The emitted file: deterministic to the byte, self-contained, formatted.

    `header`: the name of the kernel's header, if it has one. The file includes that, and does not
    compile with the header of another kernel. Raises SpecError where the symbol that the user
    chose is taken.
    """
    if spec.symbol:
        _check_symbol(spec)
    return Source(spec.name, render_framed(spec, header=header), spec)


def stamp(*made_of: object) -> str:
    """What tells headers of one name apart: a C integer, from what the files are made of.

    A source and its header have the same one, so that a header of another version or another
    specification, whose functions may have the same arguments, does not compile with the source.
    """
    parts = [part.to_json() if isinstance(part, KernelSpec) else str(part) for part in made_of]
    return f"0x{hashlib.sha256(json.dumps([__version__, *parts]).encode()).hexdigest()[:8]}"


def render_framed(
    spec: KernelSpec,
    frame: str = FRAME,
    api: Api = RUNTIME,
    aliases: Mapping[str, str] | None = None,
    **values: object,
) -> str:
    """A kernel's template in a frame, for an interface to CUDA, with further values.

    `alone`: whether the text is a file of its own. `aliases`: types to be written in signatures.
    """
    known = _values(spec)
    if aliases:
        known["signature"] = {
            name: signature.with_types(parameters, aliases) if name in HOST else parameters
            for name, parameters in known["signature"].items()
        }
    return render_template(spec.row.template, **{**known, "frame": frame, "api": api, **values})


def unsupported(spec: KernelSpec) -> str:
    """When a launcher returns cudaErrorNotSupported; nothing where it never does."""
    return _NO_TMA if spec.row.printed(spec).get("has_maps", False) else ""


def _values(spec: KernelSpec) -> dict[str, Any]:
    check_operands(spec.operands, spec.name)
    fused = Fused(spec) if spec.fused else None
    return {
        "spec": spec,
        "version": __version__,
        "name": spec.name,
        "dtypes": spec.dtypes,
        "layouts": spec.layouts,
        "threads_x": spec.threads[0],
        "threads_y": spec.threads[1],
        "cc": compute_capability(spec.arch),
        "only": only_capability(spec.arch),
        "has_bias": spec.has_bias,
        "fused": fused,
        "type_headers": _type_headers(spec),
        "extra": ", bias" if spec.has_bias else ", aux" if fused and fused.members else "",
        "row": spec.row,
        "unsupported": unsupported(spec),
        "includes_cuda": False,
        "alone": True,
        "guarded": True,
        "header": None,
        "stamp": stamp(spec),
        "has_maps": False,
        "multiprocessors": False,
        "counts_multiprocessors": False,
        "large_clusters": False,
        **spec.tunables,
        **spec.geometry.values,
        **spec.row.printed(spec),
    }


def _type_headers(spec: KernelSpec) -> list[str]:
    """The headers of CUDA that declare the types of elements."""
    types = [spec.dtypes.input, spec.dtypes.factor, spec.dtypes.output]
    types += [operand.element(spec.dtypes) for operand in spec.operands]
    return sorted({type_.header for type_ in types if type_.header})


def read_source(path: Path) -> Source:
    """An emitted file, perhaps edited by hand; `spec` comes from its `gen-spec` line, if any.

    Raises UsageError where the file cannot be read or its `gen-spec` line is broken.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}") from None
    match, spec = _SPEC_LINE.search(text), None
    if match:
        try:
            spec = spec_from_json(match[1].strip())
        except GenError as error:
            line = text.count("\n", 0, match.start()) + 1
            raise type(error)(f"{path}:{line}: {error}") from None
    return Source(spec.name if spec else path.stem, text, spec, path)
