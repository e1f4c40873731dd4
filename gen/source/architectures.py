"""One kernel for several architectures: each has its own, and the launcher asks the device."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gen._version import __version__
from gen.errors import SpecError
from gen.kernels import signature
from gen.source.render import Source, render, render_framed, stamp
from gen.source.templates import render_template
from gen.spec.arch import compute_capability
from gen.spec.kernel import KernelSpec
from gen.spec.names import MAX_SYMBOL, portable_symbol

TEMPLATE = "frame/architectures.cu.j2"

_CLUSTER = re.compile(r" (__cluster_dims__\(.*?\))\n")
_GLOBAL = re.compile(r'(^extern "C" __global__ [^{]*\{\n)(.*?)(^\}\n)', re.MULTILINE | re.DOTALL)
_NOT_CODE = re.compile(r"//.*|^#(if|elif|error).*", re.MULTILINE)


@dataclass(frozen=True)
class Family:
    """The kernels that one launcher chooses among, from the oldest architecture to the newest.

    `archs` are those that the source is compiled for. There may be fewer kernels: one whose code is
    that of the next older architecture serves both.
    """

    name: str
    archs: tuple[str, ...]
    specs: tuple[KernelSpec, ...]

    @property
    def command(self) -> str:
        """The command that emits this family again."""
        first, *others = self.specs
        common = {  # what differs is the default of each architecture
            name: value
            for name, value in first.tunables.items()
            if all(other.tunables[name] == value for other in others)
        }
        words = replace(first, tunables=common, symbol=self.name).command
        return words.replace(f"--arch {first.arch}", f"--arch {','.join(self.archs)}")


def make_family(specs: Sequence[KernelSpec]) -> Family:
    """The same kernel, as it is for each of some architectures. Raises SpecError for its name."""
    by_cc = {compute_capability(spec.arch): spec for spec in specs}
    ordered = [by_cc[cc] for cc in sorted(by_cc)]
    first = specs[0]
    name = first.symbol or (first.name if len(specs) == 1 else portable_symbol(first, first.arch))
    codes = [_code(spec) for spec in ordered] if len(ordered) > 1 else [""]
    kept = [spec for i, spec in enumerate(ordered) if i == 0 or codes[i] != codes[i - 1]]
    if len(kept) > 1:
        kept = [replace(spec, symbol=_own_name(name, spec)) for spec in kept]
    elif len(specs) > 1:
        kept = [replace(kept[0], symbol=name)]
    return Family(name, tuple(spec.arch for spec in ordered), tuple(kept))


def _own_name(name: str, spec: KernelSpec) -> str:
    symbol = f"{name}_{spec.arch.replace('_', '')}"
    if len(symbol) > MAX_SYMBOL:
        raise SpecError(
            f"name '{name}' has {len(name)} characters; with several architectures it may have "
            f"{MAX_SYMBOL - len(symbol) + len(name)}; use a shorter one"
        )
    return symbol


def _code(spec: KernelSpec) -> str:
    """What the compiler reads of a kernel, apart from the architectures that are refused."""
    return _NOT_CODE.sub("", render_framed(replace(spec, symbol="gemm"), alone=False))


def render_family(family: Family, header: str | None = None, *, alone: bool = True) -> Source:
    """The emitted file, or with `alone` False what is in a file with other kernels.

    Raises SpecError where the symbol that the user chose is taken.
    """
    spec = family.specs[0]
    if len(family.specs) > 1:
        text = render_template(TEMPLATE, **_values(family), header=header, alone=alone)
        return Source(family.name, text)
    return render(spec, header) if alone else Source(spec.name, render_framed(spec, alone=False))


def ranges_of(capabilities: Sequence[int]) -> list[tuple[int, int | None]]:
    """Of the compute capabilities that a file has code for: the values of __CUDA_ARCH__ of each.

    Its first value, and the first that is not; of the oldest 0, as the compiler refuses what is
    older still.
    """
    firsts = [10 * cc for cc in capabilities]
    return list(zip([0, *firsts[1:]], [*firsts[1:], None], strict=True))


def only(text: str, first: int, end: int | None) -> str:
    """A kernel's text with nothing to compile for other architectures: see `ranges_of`.

    Its functions are there, since nvcc looks at one architecture alone for what the host calls.
    """
    bounds = [f"__CUDA_ARCH__ >= {first}"] * (first > 0) + [f"__CUDA_ARCH__ < {end}"] * bool(end)
    other = "#else\n  __trap();  // the launcher takes another kernel here\n#endif\n"
    if first > 0:  # before which there may be no clusters
        text = _CLUSTER.sub(
            rf"\n#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= {first}\n    \1\n#endif\n", text
        )
    return _GLOBAL.sub(
        lambda match: f"{match[1]}#if {' && '.join(bounds)}\n{match[2]}{other}{match[3]}", text
    )


def _values(family: Family) -> Mapping[str, Any]:
    spec = family.specs[0]
    types = {
        "index_t": "long long",
        "input_t": spec.dtypes.input.cuda,
        "output_t": spec.dtypes.output.cuda,
        "scalar_t": spec.dtypes.scalar.cuda,
    }
    capabilities = [compute_capability(spec.arch) for spec in family.specs]
    ranges = ranges_of(capabilities)
    return {
        "version": __version__,
        "name": family.name,
        "command": family.command,
        "stamp": stamp(*family.specs),
        "archs": [arch.removeprefix("sm_") for arch in family.archs],
        "compiled_for": [(one.arch, *r) for one, r in zip(family.specs, ranges, strict=True)],
        "kernels": [
            {
                "name": one.name,
                "arch": one.arch,
                "cc": cc,
                "end": end // 10 if end else None,
                "text": only(render_framed(one, alone=False, guarded=one is spec), first, end),
            }
            for one, cc, (first, end) in zip(family.specs, capabilities, ranges, strict=True)
        ],
        "planned": spec.row.takes_workspace,
        "launch": signature.with_types(signature.launch(spec), types),
        "workspace": signature.with_types(signature.workspace(spec.several), types),
    }
