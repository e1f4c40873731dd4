"""Mutants of emitted kernels: the same file with one small mistake each.

A mistake is one that people make: a barrier dropped or moved by a line, a comparison or a bound off
by one, a wrong operator, index, leading dimension or matrix, a product formed in 32 bits, shared
memory too small. Comments, assertions and the host launcher are left alone.

Kernels on tensor cores have ten times as many lines. Theirs are mistakes in what the others lack:
stages, waits, phases of barriers, fragments, slices of K, packing.
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


_TENSOR_CORES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("wait count", r"kStages - 2", ("kStages - 1",)),
    ("stage count", r"kStages - 1", ("kStages",)),
    ("stage count", r"(?<=< )kStages(?= \?)", ("kStages - 1", "kStages + 1")),
    ("stage count", r"< kStages - 1(?=;)", ("< kStages - 2",)),
    ("stage", r"1 - reading", ("reading",)),
    ("stage", r"\(next - reading\)", ("(reading - next)",)),
    ("stage", r"\(stage - finished\)", ("(finished - stage)",)),
    ("phase", r"phase \^ 1", ("phase",)),
    ("phase", r"phase \^= 1", ("phase ^= 0",)),
    ("arrivals", r"(?<=empty\(stage\), )kWarps", ("kWarps - 1", "kWarps + 1")),
    ("bytes", r"kStageBytes(?=\);)", ("Left::kBytes", "kStageBytes + 16")),
    (
        "drop",
        r"^ *(wait_for_groups|end_of_group|barrier_(wait|arrive|expect)|copy_box|store_box)\b.*;",
        ("",),
    ),
    ("drop", r"if \(n \+ 1 < last\) barrier_wait\(.*;", ("",)),
    ("drop", r"if \(lane == 0\) barrier_arrive\(.*;", ("",)),
    ("drop", r"^ *wait_for_grids\(\);", ("",)),
    ("drop", r"__sync(?:warp|threads)\(\);", ("",)),
    ("drop", r"tile\.(?:clear|move_up)\(\);", ("",)),
    ("fragment", r'"r"\(left\[0\]\)', ('"r"(left[1])',)),
    ("fragment", r'"r"\(left\[2\]\)', ('"r"(left[1])',)),
    ("fragment", r"right\[2 \* column \+ 1\]", ("right[2 * column]",)),
    ("fragment", r"right\[2 \* column\]", ("right[column]",)),
    ("fragment", r"lane / 8 % 2 : lane / 16", ("lane / 16 : lane / 8 % 2",)),
    ("fragment", r"lane / 16 : lane / 8 % 2", ("lane / 8 % 2 : lane / 16",)),
    ("fragment", r"2 \* s \+ half", ("s + half",)),
    ("fragment", r"sum\[i\]\[j\]\[2 \* h \+ column\]", ("sum[i][j][2 * column + h]",)),
    ("fragment", r"(?<=\[)step % 2|(?<== )step % 2", ("0",)),
    ("warp", r"warp % kWarpsM \* kWarpM", ("warp / kWarpsN * kWarpM",)),
    ("warp", r"warp / kWarpsM \* kWarpN", ("warp % kWarpsM * kWarpN",)),
    ("edge", r"i \* kPass < lines_left", ("i * kPass <= lines_left", "true")),
    ("edge", r"left < 0 \? 0 :", ("left < 1 ? 0 :",)),
    ("edge", r"left < kChunk \? left", ("left < kChunk - 1 ? left",)),
    ("edge", r"row0 \+ r >= out\.rows \|\| ", ("",)),
    ("edge", r"if \((?:col >= cols|row >= rows)\) (?:continue|return pair);", ("",)),
    ("edge", r"row < rows(?=;)", ("row < Staging::kRows",)),
    ("edge", r"col0 \+ col < out\.cols", ("true",)),
    ("edge", r"if \(col(?: \+ 1)? < cols\)", ("",)),
    ("edge", r"col \+ 1 < cols && ", ("",)),
    ("edge", r"(?<=\(c\)) % sizeof\(Pair\) == 0", (" != 0",)),
    ("edge", r" && col0 \+ kWarpN <= out\.cols", ("",)),
    ("edge", r"at < length \?", ("at <= length ?",)),
    ("slices", r"\(slice \* rows \+ row\)", ("(slice + row)",)),
    ("slices", r"slice \+= 8", ("slice += 7",)),
    ("slices", r"\(blockIdx\.y \+ 1\)|\(slice \+ 1\)(?= / slices)", ("(0)",)),
    ("staging", r"8 \* j \+ lane % 4 \* 2", ("8 * j + lane % 4",)),
    ("staging", r"8 \* h(?= \+ lane / 4, col)", ("4 * h",)),
    ("staging", r"(?<!row0 \+ )row(?=, col0|, byte)", ("row / 2",)),
    ("boxes", r"kSlots - 1|(?<=wait_for_boxes<)0", ("kSlots",)),
    ("boxes", r"col0 \+ p \* kWide", ("col0",)),
    ("boxes", r"^ *(?:if \(.*\) )?(?:end_of_boxes|show_to_tma|wait_for_boxes<.*>)\(\);", ("",)),
    ("boxes", r"if \(!by_tma\)", ("if (true)",)),
    ("epilogue", r"alpha \* sum", ("sum",)),
    ("epilogue", r"x \+= beta \* static_cast", ("x = beta * static_cast",)),
)


def mutants(source: Source) -> Iterator[Mutant]:
    """Every mutant of an emitted file, in the order of its lines."""
    lines = source.text.splitlines()
    tensor_cores = source.spec is not None and source.spec.instruction is not None
    operators = _TENSOR_CORES if tensor_cores else _REPLACEMENTS
    for at in _code_lines(lines):
        code = lines[at].partition("//")[0]
        if "__syncthreads();" in code and not tensor_cores:
            yield from _barriers(source, lines, at)
        for name, pattern, replacements in operators:
            for match in re.finditer(pattern, code):
                for replacement in replacements:
                    new = code[: match.start()] + match.expand(replacement) + code[match.end() :]
                    yield _mutant(source, lines, {at: new}, name, at)


def _code_lines(lines: list[str]) -> Iterator[int]:
    """Indices of the lines that a GPU runs: shared arrays, helpers and the kernel's body."""
    marks = ("// Where an element", "// Byte offset of 16 bytes")
    first = next(i for i, line in enumerate(lines) if line.startswith(marks))
    host = "#ifndef __CUDACC_RTC__"
    last = next(i for i, line in enumerate(lines) if i > first and line.startswith(host))
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
