"""Each kernel's text, rendered again from its specification, and what the compiler makes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from gen.errors import GenError
from gen.report.profiles import KernelProfile
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from gen.spec.names import portable_symbol


@dataclass(frozen=True)
class KernelSource:
    """One kernel: the command that emits it, its resources, its text. `note`: what is missing."""

    name: str
    command: str = ""
    text: str = ""
    facts: str = ""
    note: str = ""
    profiles: Sequence[KernelProfile] = ()


def kernel_sources(
    specs: Mapping[str, KernelSpec | str], arch: str, profiles: Sequence[KernelProfile] = ()
) -> list[KernelSource]:
    """One for each name; `arch` is the GPU's that was measured on, if it is known."""
    found = []
    for name, spec in specs.items():
        if isinstance(spec, str):
            source = KernelSource(name, note=f"the specification cannot be read: {spec}")
        else:
            own = [p for p in profiles if p.kernel == portable_symbol(spec)]
            source = replace(_of(name, spec, arch), profiles=own)
        found.append(source)
    return found


def _of(name: str, spec: KernelSpec, arch: str) -> KernelSource:
    text = render(spec).text
    try:
        facts, note = _resources(spec, text, arch or spec.arch), ""
    except GenError as error:
        facts, note = "", f"not compiled here: {error}"
    return KernelSource(name, spec.command, text, facts, note)


def _resources(spec: KernelSpec, text: str, arch: str) -> str:
    from gen.compile.nvrtc import resources

    used = resources(text, f"{spec.name}.cu", arch)[spec.name]
    shared = used.shared_bytes + spec.geometry.dynamic_shared
    x, y = spec.threads
    parts = [
        f"{x} x {y} threads a block",
        f"{used.registers} registers a thread",
        f"{shared:,} bytes of shared memory",
        f"{used.spill_stores + used.spill_loads} bytes of spills",
        f"compiled for {arch}",
    ]
    return ", ".join(parts)


_TOKENS = re.compile(
    r"""(?P<c>//[^\n]*)|(?P<p>^[ \t]*\#[^\n]*)|(?P<s>"[^"\n]*")
    |(?P<n>\b\d[\w.]*\b)
    |(?P<k>\b(?:__\w+__|__\w+|asm|bool|char|const|constexpr|double|else|extern|false|float|for|if
    |inline|int|long|return|short|signed|sizeof|static_assert|static_cast|struct|switch|template
    |true|typedef|typename|unsigned|using|void|volatile|while)\b)""",
    re.MULTILINE | re.VERBOSE,
)


def highlight(text: str) -> str:
    """CUDA as escaped HTML, with comments, preprocessor lines, strings, numbers, words marked."""
    parts, end = [], 0
    for match in _TOKENS.finditer(text):
        parts.append(escape(text[end : match.start()]))
        parts.append(f'<i class="{match.lastgroup}">{escape(match[0])}</i>')
        end = match.end()
    return "".join([*parts, escape(text[end:])])
