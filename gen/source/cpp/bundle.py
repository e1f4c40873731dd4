"""A list of kernels -> one header and one .cu, whose function takes the first that fits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gen._version import __version__
from gen.errors import GenError, SpecError, UsageError
from gen.kernels.registry import get_variant, make_spec
from gen.source.architectures import TEMPLATE as ARCHITECTURES
from gen.source.architectures import Family, make_family, render_family
from gen.source.render import render_template, stamp, unsupported
from gen.spec.arch import only_capability
from gen.spec.dtypes import DTYPES, DTypes
from gen.spec.kernel import EPILOGUES, KernelSpec
from gen.spec.names import check_symbol
from gen.spec.problem import ALL_LAYOUTS, GemmShape, parse_shape

TEMPLATES = ("cpp/bundle.h.j2", "cpp/bundle.cu.j2")
ALIGNMENT = 16  # bytes
DEFAULT_ARCH = "sm_80"
_FLAGS = ("aligned", "batched")  # options without a value
MAX_NAME = 24  # the kernels' own symbols begin with it


@dataclass(frozen=True)
class Entry:
    """A kernel of a bundle: from which size on it is taken, and whether for aligned operands only.

    Aligned: A and B start, and their lines follow each other, at multiples of 16 bytes.
    """

    family: Family
    smallest: GemmShape
    aligned: bool

    @property
    def spec(self) -> KernelSpec:
        """What is the same on all architectures: types, layouts, epilogue."""
        return self.family.specs[0]

    @property
    def multiple(self) -> int:
        """Elements that the leading dimensions of A and B are multiples of; 0: any."""
        return ALIGNMENT // self.spec.dtypes.input.size if self.aligned else 0

    def takes_all_of(self, other: Entry) -> bool:
        """Whether there is no problem that the other one is for and this one is not."""
        kinds = [(e.spec.dtypes, e.spec.layouts, e.spec.epilogue) for e in (self, other)]
        own, its = self.smallest, other.smallest
        no_larger = own.m <= its.m and own.n <= its.n and own.k <= its.k
        return kinds[0] == kinds[1] and no_larger and (other.aligned or not self.aligned)


@dataclass(frozen=True)
class Bundle:
    """Kernels in the order in which they are tried, and the lines that they come from."""

    name: str
    archs: tuple[str, ...]
    source: str
    lines: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def templates(self) -> list[str]:
        """What the files are made from."""
        return [*TEMPLATES, ARCHITECTURES, *(entry.spec.row.template for entry in self.entries)]

    @property
    def command(self) -> str:
        """The command that emits this bundle again."""
        archs = ",".join(self.archs)
        return f"gen emit --bundle {self.source} --name {self.name} --arch {archs}"

    @property
    def stamp(self) -> str:
        """Of the header: what is chosen among, and how."""
        made_of = [(*e.family.specs, e.smallest, e.aligned) for e in self.entries]
        return stamp(self.name, *(part for parts in made_of for part in parts))


def read_bundle(path: Path, name: str | None = None, arch: str | None = None) -> Bundle:
    """The bundle that a file lists: a line for each kernel, with the options of `gen emit`.

    `arch`: one architecture, or several with commas.

    Raises UsageError or SpecError with the file's line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}") from None
    name, archs = name or path.stem, (arch or DEFAULT_ARCH).split(",")
    _check_name(name)
    entries: list[Entry] = []
    places: list[int] = []
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        try:
            for entry in _entries(line, name, archs, len(entries) + 1):
                _check_turn(entry, entries, places)
                entries.append(entry)
                places.append(number)
        except GenError as error:
            raise type(error)(f"{path}:{number}: {error}") from None
    if not entries:
        raise UsageError(f"{path} lists no kernel; write a line such as: --variant tiles")
    listed = tuple(line for line in lines if line)
    return Bundle(name, tuple(archs), path.name, listed, tuple(entries))


def _check_name(name: str) -> None:
    """Raises UsageError; the name may be that of the file, so that --name is the way out."""
    try:
        check_symbol(name)
    except SpecError as error:
        raise UsageError(f"a bundle cannot have this name: {error} with --name") from None
    if len(name) > MAX_NAME:
        raise UsageError(
            f"a bundle's name has at most {MAX_NAME} characters, not the {len(name)} of '{name}'; "
            "use a shorter one with --name"
        )


def _check_turn(entry: Entry, before: Sequence[Entry], lines: Sequence[int]) -> None:
    """Raises UsageError for a kernel that is never taken, because one before it always is."""
    for other, line in zip(before, lines, strict=True):
        if other.takes_all_of(entry):
            spec = entry.spec
            raise UsageError(
                f"this kernel for {spec.dtypes.name} {spec.layouts} {spec.epilogue} is never "
                f"taken: the one of line {line} takes all of its problems; leave one of them out, "
                f"or give that of line {line} a larger --from, or --aligned"
            )


def _entries(line: str, name: str, archs: Sequence[str], number: int) -> Iterator[Entry]:
    """The kernels of a line: one for each of its element types and layouts."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        reason = str(error).lower()
        raise UsageError(f"{reason} in '{line}'; options need no quotation marks") from None
    options = _options(words)
    if not options:
        return
    aligned = options.pop("aligned", None) is not None
    smallest = _smallest(options.pop("from", "0"))
    if "variant" not in options:
        raise UsageError("no kernel is named; use --variant")
    variant = options.pop("variant")
    dtypes = options.pop("dtype", get_variant(variant).dtypes[0]).split(",")
    layouts = options.pop("layout", "rrr")
    for dtype in dtypes:
        for layout in ALL_LAYOUTS if layouts == "all" else layouts.split(","):
            symbol = f"{name}_{variant}_{dtype}_{layout}_{number}"
            kernel = {"dtype": dtype, "layout": layout, "name": symbol, **options}
            specs = [make_spec(variant, arch=arch, **kernel) for arch in archs]
            if specs[0].fused:
                raise UsageError(
                    f"a bundle's problems have no operands for epilogue '{specs[0].fused.text}'; "
                    f"use one of {', '.join(EPILOGUES)}, or emit this kernel by itself"
                )
            if specs[0].batched:
                raise SpecError(
                    "a bundle's function computes one product; leave out --batched, and emit a "
                    "batched kernel alone"
                )
            yield Entry(make_family(specs), smallest, aligned)
            number += 1


def _smallest(text: str) -> GemmShape:
    try:
        return parse_shape(text)
    except GenError as error:
        raise type(error)(f"--from: {error}") from None


def _options(words: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        key = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--") or key in options:
            raise UsageError(
                f"'{word}' is not an option, or is there twice; use --variant NAME and other "
                "options of gen emit, each once"
            )
        if key in ("arch", "name"):
            raise UsageError(f"{word} is the whole bundle's; give it to gen emit")
        value = "true" if key in _FLAGS else next(rest, None)
        if value is None:
            raise UsageError(f"{word} has no value; use {word} VALUE, or leave it out")
        options[key] = value
    return options


def render_bundle(bundle: Bundle) -> tuple[str, str]:
    """The header and the source."""
    dtypes = list(dict.fromkeys(entry.spec.dtypes for entry in bundle.entries))
    kernels = [_kernel(entry) for entry in bundle.entries]
    reasons = ["no kernel is for the problem"]
    reasons += filter(None, dict.fromkeys(unsupported(entry.spec) for entry in bundle.entries))
    values = {
        "version": __version__,
        "name": bundle.name,
        "archs": [arch.removeprefix("sm_") for arch in bundle.archs],
        "command": bundle.command,
        "stamp": bundle.stamp,
        "listing": bundle.lines,
        "kernels": kernels,
        "has_workspace": any(k["has_workspace"] for k in kernels),
        "unsupported": ", or ".join(reasons),
        "only": only_capability(bundle.archs[0]) if len(bundle.archs) == 1 else "",
        "launchers": sorted({(k["has_bias"], k["has_workspace"]) for k in kernels}),
        "dtypes": [_numbered(d) for d in dtypes],
        "scalars": {d.scalar.cuda for d in dtypes},
        "layouts": ALL_LAYOUTS,
        "epilogues": EPILOGUES,
        "table": columns([_HEADINGS, *map(_described, bundle.entries)]),
        "rows": columns([_row(bundle.name, i, e) for i, e in enumerate(bundle.entries, 1)], ","),
    }
    header, source = (render_template(template, **values) for template in TEMPLATES)
    return header, source


def _kernel(entry: Entry) -> Mapping[str, Any]:
    spec = entry.spec
    return {
        "name": entry.family.name,
        "text": render_family(entry.family, alone=False).text,
        "dtypes": spec.dtypes,
        "has_bias": spec.has_bias,
        "has_workspace": spec.row.takes_workspace,
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


def _described(entry: Entry) -> tuple[str, ...]:
    spec, s = entry.spec, entry.smallest
    aligned = "yes" if entry.aligned else ""
    sizes = (f"{s.m}", f"{s.n}", f"{s.k}")
    return (spec.dtypes.name, str(spec.layouts), spec.epilogue, *sizes, aligned, entry.family.name)


def _row(name: str, number: int, entry: Entry) -> tuple[str, ...]:
    spec, s = entry.spec, entry.smallest
    enumerators = (spec.dtypes.name, str(spec.layouts), spec.epilogue)
    return (
        *(f"{name}_{word}".upper() for word in enumerators),
        *(f"{s.m}", f"{s.n}", f"{s.k}"),
        f"{entry.multiple}",
        f"workspace_{number}" if spec.row.takes_workspace else "nullptr",
        f"launch_{number}",
        f'"{entry.family.name}"',
    )


def columns(rows: Sequence[Sequence[str]], mark: str = "") -> list[str]:
    """Each row as a line; columns are as wide as their longest cell, with its `mark`."""
    widths = [max(map(len, column)) + len(mark) for column in zip(*rows, strict=True)]
    return [
        " ".join(f"{cell}{mark}".ljust(width) for cell, width in zip(row, widths, strict=True))
        .rstrip()
        .removesuffix(mark)
        for row in rows
    ]
