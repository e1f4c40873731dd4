"""What no trial has reached of an edited kernel: outcomes of its conditions, and lines.

The kernel is compiled once more with `probes` in its edited statements, and that runs what the
kernel itself runs, until all conditions have had both outcomes. Then come the problems of
`reaching`, of which the kernel runs those that show a new outcome.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from gen.compile import nvrtc
from gen.emulator import parse_ptx, told
from gen.errors import CompileError
from gen.prove.cpp_tokens import Tokens
from gen.prove.edits import Edited
from gen.prove.probe_writer import PLACES, STATEMENT, Probe
from gen.prove.probes import Instrumented, complaint, instrument
from gen.prove.statements import entered_lines
from gen.source.render import Source, render
from gen.source.templates import template_dir

HEADER = "gemmgen_probes.h"
T = TypeVar("T")
_ERROR_LINE = re.compile(r"\((\d+)\): (?:catastrophic )?error")
_GUARD = "#ifndef __CUDACC_RTC__  // the host's side"


class Unreached(NamedTuple):
    """What was not checked, as no trial or call has reached it; line: of the file."""

    line: int
    message: str
    host: bool = False


@dataclass(frozen=True)
class Probed:
    """A kernel with probes in its edited statements.

    module: the code, None where there is nothing to probe. skipped: lines whose conditions the
    compiler takes no probes in.
    """

    edited: Edited
    probes: Sequence[Probe] = ()
    module: nvrtc.Module | None = None
    skipped: Sequence[int] = ()

    def missing(self, seen: Mapping[int, int]) -> list[Probe]:
        """The conditions that have not had all outcomes."""
        return [probe for probe in self.probes if complaint(probe, seen.get(probe.number, 0))]

    @property
    def told(self) -> set[int]:
        """The lines of statements with a probe that tells whether they run."""
        firsts = {probe.line for probe in self.probes if probe.kind == STATEMENT}
        edited = self.edited
        statements = (edited.statements[at] for at in edited.edited)
        return {
            edited.tokens[i].line
            for at in statements
            if edited.tokens[at.start].line in firsts
            for i in at
        }


def differences(source: Source) -> Edited:
    """How a file differs from what its specification renders to."""
    assert source.spec is not None
    return Edited.between(source.text, render(source.spec).text)


def host_begins(text: str) -> int:
    """Characters of an emitted file before its host's side."""
    at = text.find(_GUARD)
    return len(text) if at < 0 else at


def instrumented_text(instrumented: Instrumented) -> str:
    """The file with probes, and the header that they come from. Its lines keep their numbers."""
    count = 1 + max((probe.number for probe in instrumented.probes), default=0)
    head = f'#define GEMMGEN_PROBES {count}\n#include "{HEADER}"\n#line 1\n'
    return head + instrumented.text


def header() -> str:
    """The text of the header that defines probes."""
    return (template_dir() / "prove" / "probes.h").read_text()


class RefusedError(Exception):
    """A compiler does not take probes on these lines, or anywhere."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__()
        self.lines = {int(line) for line in lines}


def settle(
    instrumented: Instrumented, compile_: Callable[[Instrumented], T]
) -> tuple[T | None, Instrumented, list[int]]:
    """What becomes of a file with probes, without those that a compiler refuses, and their lines.

    compile_: raises RefusedError. There is nothing where no probe is left.
    """
    skipped = set[int]()
    while instrumented.probes:
        try:
            return compile_(instrumented), instrumented, sorted(skipped)
        except RefusedError as error:
            all_lines = {probe.line for probe in instrumented.probes}
            lines = (error.lines & all_lines) or all_lines
            skipped |= lines
            instrumented = instrumented.without(lines)
    return None, instrumented, sorted(skipped)


def probe_kernels(source: Source) -> Probed:
    """Compiles a file's kernels with probes in what is edited of them."""
    spec, edited = source.spec, differences(source)
    assert spec is not None
    arch = spec.arch

    def compile_(instrumented: Instrumented) -> nvrtc.Module:
        text, headers = instrumented_text(instrumented), {HEADER: header()}
        try:
            return nvrtc.compile_cuda(
                text,
                name=source.place,
                arch=arch,
                headers=headers,
                options=("-default-device",),  # of lambdas
            )
        except CompileError as error:
            raise RefusedError(_ERROR_LINE.findall(error.log)) from None

    some = instrument(edited, host_begins(source.text), on_host=False)
    module, some, skipped = settle(some, compile_)
    known = told(parse_ptx(module.code.decode())) if module else {}
    probes = [probe for probe in some.probes if _may_vary(probe, known.get(probe.number, set()))]
    return Probed(edited, probes, module if probes else None, skipped)


def _may_vary(probe: Probe, values: set[float | None]) -> bool:
    """Whether a condition has other outcomes than those that the compiler knows."""
    return bool(values) if probe.kind in PLACES else len(values) > 1 or None in values


def lines_left(edited: Edited, module: nvrtc.Module, not_run: Sequence[int]) -> list[int]:
    """The lines that no trial has reached, without those that must have run all the same."""
    run = parse_ptx(module.code.decode()).lines.difference(not_run)
    entered = entered_lines(Tokens(edited.tokens), edited.statements, not_run, run)
    return [line for line in not_run if line not in entered]


def unreached(
    probed: Probed, seen: Mapping[int, int], not_run: Sequence[int], launches: int
) -> list[Unreached]:
    """What trials have left: conditions and statements, then lines that have no probe."""
    found = []
    for probe in probed.missing(seen):
        message = complaint(probe, seen.get(probe.number, 0))
        found.append(Unreached(probe.line, f"{message} in {launches} launches"))
    told = {one.line for one in found} | probed.told
    found += [
        Unreached(line, f"this line did not run in {launches} launches")
        for line in not_run
        if line in probed.edited.lines and line not in told
    ]
    return sorted(dict.fromkeys(found))
