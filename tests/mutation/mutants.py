"""Mutants of emitted kernels: the same file with one small mistake each.

A mistake is one that people make: a barrier dropped or moved by a line, a comparison or a bound off
by one, a wrong operator, index, leading dimension or matrix, a product formed in 32 bits, shared
memory too small. Comments and assertions are left alone.

Kernels on tensor cores have ten times as many lines. Theirs are mistakes in what the others lack:
stages, waits, phases of barriers, fragments, slices of K, packing. Launchers have operators of
their own. `operators` has them all, except for lines that change places.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from gen.source.render import Source
from tests.mutation.operators import LAUNCHERS, operators
from tests.mutation.operators.operator import Operators

_HOST = "#ifndef __CUDACC_RTC__"  # where the host's side begins
_HANDED_BACK = r"^\s*(?:if \(.*\) )?(?:barrier_arrive|finish)\("


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A source with one mistake: the operator that made it, the line, and what that line was."""

    source: Source
    operator: str
    line: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """Names the mutant whatever else changes in the file: operator and both lines."""
        return f"{self.operator}: {self.before.strip()} -> {self.after.strip()}"


def mutants(source: Source) -> Iterator[Mutant]:
    """Every mutant of an emitted file, in the order of its lines."""
    lines = source.text.splitlines()
    for at, of in _lines(source, lines):
        code = lines[at].partition("//")[0]
        if of is not LAUNCHERS:
            yield from _moved(source, lines, at)
        for name, pattern, replacements in of:
            if name == "arithmetic" and "constexpr" in code:
                continue  # loops of so many rounds are unrolled: the compiler takes all memory
            for match in re.finditer(pattern, code):
                for replacement in replacements:
                    new = code[: match.start()] + match.expand(replacement) + code[match.end() :]
                    yield _mutant(source, lines, {at: new}, name, at)


def unused(sources: Sequence[Source]) -> list[str]:
    """The patterns that match nothing in any of the files that they are for.

    A kernel's text changes, and a pattern that no longer fits it goes unnoticed: it makes fewer
    mutants, all of which are found.
    """
    patterns: dict[str, bool] = {}
    for source in sources:
        lines = source.text.splitlines()
        code: dict[Operators, list[str]] = {}
        for at, of in _lines(source, lines):
            code.setdefault(of, []).append(lines[at].partition("//")[0])
        for of, some in code.items():
            for _, pattern, _ in of:
                seen = patterns.get(pattern, False)
                patterns[pattern] = seen or any(re.search(pattern, line) for line in some)
    return [pattern for pattern, seen in patterns.items() if not seen]


def _lines(source: Source, lines: list[str]) -> Iterator[tuple[int, Operators]]:
    """Indices of the lines that have mutants, and what is changed there."""
    assert source.spec is not None
    on_device = operators(source.spec)
    for at in _code_lines(lines):
        yield at, on_device
    for at in range(_host_side(lines), len(lines)):
        code = lines[at].partition("//")[0].strip()
        if code and not code.startswith("#"):
            yield at, LAUNCHERS


def _host_side(lines: list[str]) -> int:
    return max(at for at, line in enumerate(lines) if line.startswith(_HOST))


def _code_lines(lines: list[str]) -> Iterator[int]:
    """Indices of the lines that a GPU runs: shared arrays, helpers and the kernel's body."""
    marks = (
        "// Where an element",
        "// ------------------------------------------------------------------------ PTX",
    )
    first = next(i for i, line in enumerate(lines) if line.startswith(marks))
    last = _host_side(lines)
    signature = False
    for at in range(first, last):
        line = lines[at].partition("//")[0].strip()
        signature = signature or line.startswith(('extern "C" __global__', "__device__"))
        ends, inside = line.endswith("{"), signature
        signature = signature and not ends
        if not inside and line and not line.startswith("#"):
            yield at


def _moved(source: Source, lines: list[str], at: int) -> Iterator[Mutant]:
    """Barriers left out, or a line too early or too late; so are stages handed back."""
    assert source.spec is not None
    code = lines[at]
    if "__syncthreads();" in code and not source.spec.row.planner:
        what = "barrier"
        yield _mutant(source, lines, {at: ""}, "drop barrier", at)
    elif re.match(_HANDED_BACK, code):
        what = "hand back"
    else:
        return
    for other, where in ((at - 1, "up"), (at + 1, "down")):
        changes = {at: lines[other], other: code}
        yield _mutant(source, lines, changes, f"move {what} {where}", at)


def _mutant(
    source: Source, lines: list[str], changes: dict[int, str], operator: str, at: int
) -> Mutant:
    text = "\n".join(changes.get(i, line) for i, line in enumerate(lines)) + "\n"
    mutated = dataclasses.replace(source, text=text)
    before, after = (text.partition("//")[0] for text in (lines[at], changes[at]))
    return Mutant(mutated, operator, at + 1, before, after)
