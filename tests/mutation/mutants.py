"""Mutants of emitted kernels: the same file with one small mistake each.

A mistake is one that people make: a barrier dropped or moved by a line, a comparison or a bound off
by one, a wrong operator, index, leading dimension or matrix, a product formed in 32 bits, shared
memory too small. Comments, assertions and the host launcher are left alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from gen.render import Source


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


# (name, pattern, replacements): every match of the pattern gives one mutant per replacement.
_CONSTANTS = "kTile|kWidth|kThreadRows|kCoarsen|kRowsPerThread|kThreadsX|kThreadsY|kThreads|kChunk"
_REPLACEMENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("comparison", r"(?<= )<(?= )", ("<=",)),
    ("comparison", r"(?<= )>=(?= )", (">",)),
    ("comparison", r"(?<= )!=(?= )", ("==",)),
    ("arithmetic", r"(?<= )\+(?= )", ("-",)),
    ("arithmetic", r"(?<= )-(?= )", ("+",)),
    ("arithmetic", r"(?<= )\*(?= (?!__|A|B|C|D))", ("+",)),
    ("arithmetic", r"(?<= )/(?= )", ("*",)),
    ("arithmetic", r"(?<= )%(?= )", ("/",)),
    ("accumulation", r"(?<= )\+=(?= )", ("=", "-=")),
    ("logic", r"&&", ("||",)),
    ("logic", r"(?<=if \()col0 == 0 \|\|", ("col0 == 0 &&",)),
    ("start", r"(?<= )= 0(?=;)", ("= 1",)),
    ("constant", rf"\b({_CONSTANTS})\b", (r"(\1 - 1)", r"(\1 + 1)")),
    ("swap", r"\brow\b(?=[,) ])", ("col",)),
    ("swap", r"\bcol\b(?=[,) ])", ("row",)),
    ("swap", r"\blda\b", ("ldb",)),
    ("swap", r"\bldb\b", ("lda",)),
    ("swap", r"\bldc\b", ("ldd",)),
    ("swap", r"\bldd\b", ("ldc",)),
    ("swap", r"\bM\b", ("N", "M - 1", "M + 1")),
    ("swap", r"\bN\b", ("M", "N - 1", "N + 1")),
    ("swap", r"\bK\b", ("N", "K - 1", "K + 1")),
    ("swap", r"\balpha\b", ("beta",)),
    ("swap", r"\bbeta\b", ("alpha",)),
    ("swap", r"\btile_a\[", ("tile_b[",)),
    ("swap", r"\btile_b\[", ("tile_a[",)),
    ("swap", r"\bthreadIdx\.x", ("threadIdx.y",)),
    ("swap", r"\bthreadIdx\.y", ("threadIdx.x",)),
    ("swap", r"\bblockIdx\.x", ("blockIdx.y",)),
    ("swap", r"\bblockIdx\.y", ("blockIdx.x",)),
    ("swap", r"\bgridDim\.y", ("gridDim.x",)),
    ("narrow", r"\bindex_t(?=\((?:blockIdx|gridDim))", ("int",)),
    ("narrow", r"(?<=return )(\w+) \* (ld[abc])", (r"index_t(int(\1) * int(\2))",)),
    ("guard", r"\bin_[ab] \?", ("true ?",)),
)


def mutants(source: Source) -> Iterator[Mutant]:
    """Every mutant of an emitted file, in the order of its lines."""
    lines = source.text.splitlines()
    for at in _code_lines(lines):
        code = lines[at].partition("//")[0]
        if "__syncthreads();" in code:
            yield from _barriers(source, lines, at)
        for name, pattern, replacements in _REPLACEMENTS:
            for match in re.finditer(pattern, code):
                for replacement in replacements:
                    new = code[: match.start()] + match.expand(replacement) + code[match.end() :]
                    yield _mutant(source, lines, {at: new}, name, at)


def _code_lines(lines: list[str]) -> Iterator[int]:
    """Indices of the lines that a GPU runs: shared arrays, helpers and the kernel's body."""
    first = next(i for i, line in enumerate(lines) if line.startswith("// Where an element"))
    last = next(i for i, line in enumerate(lines) if line.startswith("#ifndef __CUDACC_RTC__"))
    signature = False
    for at in range(first, last):
        line = lines[at].strip()
        signature = signature or line.startswith(('extern "C" __global__', "__device__"))
        ends, inside = line.endswith("{"), signature
        signature = signature and not ends
        if not inside and line and not line.startswith(("//", "#")):
            yield at


def _barriers(source: Source, lines: list[str], at: int) -> Iterator[Mutant]:
    code = lines[at]
    yield _mutant(source, lines, {at: ""}, "drop barrier", at)
    for other, operator in ((at - 1, "move barrier up"), (at + 1, "move barrier down")):
        yield _mutant(source, lines, {at: lines[other], other: code}, operator, at)


def _mutant(
    source: Source, lines: list[str], changes: dict[int, str], operator: str, at: int
) -> Mutant:
    text = "\n".join(changes.get(i, line) for i, line in enumerate(lines)) + "\n"
    mutated = dataclasses.replace(source, text=text)
    before, after = (text.partition("//")[0] for text in (lines[at], changes[at]))
    return Mutant(mutated, operator, at + 1, before, after)
