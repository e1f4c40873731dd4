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
from collections.abc import Iterator, Sequence

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


_DROPPED = (  # calls and instructions that can be left out, where they are a line of their own
    r"(?:if \(.*\) )?barrier_arrive\(",
    r"(?:if \(.*\) )?barrier_wait\(",
    r"(?:if \(.*\) )?end_of_boxes\(",
    r"(?:if \(.*\) )?show_to_tma\(",
    r"(?:if \(.*\) )?wait_for_boxes<",
    r"asm volatile\(\"cp\.async\.(?:bulk\.)?commit_group",
    r"asm volatile\(\"cp\.async\.(?:bulk\.)?wait_group",
    r"asm volatile\(\"cp\.async\.wait_all",
    r"asm volatile\(\"fence\.",
    r"asm volatile\(\"griddepcontrol\.wait",
    r"barrier_expect\(",
    r"(?:\w+\.)?advance\(",
    r"copy_box\(",
    r"end_of_group\(",
    r"finish_rows\(",
    r"if \(.*\) (?:return|continue|break)(?=;)",
    r"if \(reads_c\) staging\.get\(",
    r"(?:if \(.*\) )?let_next_start\(",
    r"meet\(",
    r"piece\(",
    r"read_rows\(",
    r"staging\.put\(",
    r"store_box\(",
    r"tile\.clear\(",
    r"tile\.(?:load|move|read_from)\(",
    r"tile\.move_up<",
    r"fill<",
    r"wait_for_grids\(",
    r"wait_for_groups<",
    r"write_rows\(",
    r"__syncthreads\(",
    r"__syncwarp\(",
)

_TENSOR_CORES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *(("drop", rf"^ *{what}.*;", ("",)) for what in _DROPPED),
    ("wait count", r"kStages - 2", ("kStages - 1",)),
    ("stage count", r"kStages - 1", ("kStages",)),
    ("stage count", r"(?<=< )kStages(?= \?)", ("kStages - 1", "kStages + 1")),
    ("stage count", r"< kStages - 1(?=;)", ("< kStages - 2",)),
    ("stage", r"\(next - reading\)", ("(reading - next)",)),
    ("stage", r"\(stage - finished\)", ("(finished - stage)",)),
    ("stage", r"16 \* stage \+ 8", ("16 * stage",)),
    ("phase", r"phase \^ 1", ("phase",)),
    ("phase", r"phase \^= 1", ("phase ^= 0",)),
    ("phase", r"more && !ready", ("false", "more && ready", "!ready")),
    ("phase", r"(?<=move\()more \?", ("true ?",)),
    ("phase", r"more = n \+ 1 < last", ("more = n < last", "more = n + 2 < last")),
    ("phase", r"if \(first < last\)", ("if (true)",)),
    ("phase", r"(?<=barrier_wait\(full\(stage\), )phase", ("phase ^ 1",)),
    ("phase", r"(?<=barrier_test\()full\(stage\), phase", ("full(stage), phase ^ 1",)),
    ("phase", r"(?<=barrier_test\()full\(stage\)", ("full(finished)", "empty(stage)")),
    ("arrivals", r"(?<=empty\(stage\), )kWarps", ("kWarps - 1", "kWarps + 1")),
    ("arrivals", r"(?<=full\(stage\), )1", ("2",)),
    ("arrivals", r"if \(lane == 0\) (?=barrier_arrive)", ("",)),
    ("arrivals", r"(?<=barrier_arrive\()empty\(finished\)", ("empty(stage)", "full(finished)")),
    ("bytes", r"(?:kStageBytes|left_bytes \+ right_bytes)(?=\);)", ("Left::kBytes", r"\g<0> + 16")),
    ("bytes", r"\((\w+) < (kTile\w) \? \w+ : \w+\)(?= \*)", (r"\1", r"\2")),
    ("fragment", r'"r"\(left\[0\]\)', ('"r"(left[1])',)),
    ("fragment", r'"r"\(left\[2\]\)', ('"r"(left[1])',)),
    ("fragment", r"right\[2 \* column \+ 1\]", ("right[2 * column]",)),
    ("fragment", r"right\[2 \* column\]", ("right[column]",)),
    ("fragment", r"lane / 8 % 2 : lane / 16", ("lane / 16 : lane / 8 % 2",)),
    ("fragment", r"lane / 16 : lane / 8 % 2", ("lane / 8 % 2 : lane / 16",)),
    ("fragment", r"2 \* s \+ half", ("s + half",)),
    ("fragment", r"sum\[i\]\[j\]\[2 \* h \+ column\]", ("sum[i][j][2 * column + h]",)),
    ("fragment", r"(?<== )step % 2", ("0",)),
    ("warp", r"warp % kWarpsM \* kWarpM", ("warp / kWarpsN * kWarpM",)),
    ("warp", r"warp / kWarpsM \* kWarpN", ("warp % kWarpsM * kWarpN",)),
    ("order", r"rest % height", ("rest / height",)),
    ("order", r"(?<=tiles_m - first) < kGroup", (" > kGroup",)),
    ("order", r"kGroup \* tiles_n", ("tiles_n",)),
    ("order", r"(?<=t / group) \* kGroup", ("",)),
    ("order", r"t % group", ("t",)),
    ("order", r"\w \+= gridDim\.x", ("w += gridDim.x + 1",)),
    ("order", r"w < work", ("w <= work",)),
    ("order", r"(row0|col0) \*= (kTile\w)", (r"\1 += \2",)),
    ("start", r"\(begin \+ 1023\) & ~1023u", ("begin",)),
    ("start", r"(?<=kStageBytes) \+ \w+ \* kSlots \* sizeof\(Staging\)", ("",)),
    ("start", r"last = all_steps", ("last = all_steps - 1",)),
    ("start", r"(\w+) \+ (kTile[MNK]) - 1\) / ", (r"\1) / ", r"\1 + \2) / ")),
    ("start", r"if \(early\) (?=let_next_start)", ("",)),
    ("edge", r"(?:k \+ line \+ )?i \* kPass < \w+", ("true",)),
    ("edge", r"(?<=i \* kPass) <", (" <=",)),
    ("edge", r"(\w+) - (?:k|first|first_line)(?= - (?:line|chunk))", (r"\1",)),
    ("edge", r"left < 0 \? 0 :", ("left < 1 ? 0 :",)),
    ("edge", r"left < kChunk \? left", ("left < kChunk - 1 ? left",)),
    ("edge", r"row < rows(?=;)", ("row < Staging::kRows",)),
    ("edge", r"out\.rows - row0 < Staging::kRows", ("true",)),
    ("edge", r"row0 \+ row < out\.rows", ("true",)),
    ("edge", r"col0 \+ col < out\.cols", ("true",)),
    ("edge", r"(?<=\()row >= out\.rows \|\| ", ("",)),
    ("edge", r" \|\| col >= out\.cols(?=\))", ("",)),
    ("wide", r"address % 16 == 0 && ", ("",)),
    ("wide", r" && ld \* sizeof\(output_t\) % 16 == 0", ("",)),
    ("wide", r" && col0 \+ kWarpN <= out\.cols", ("",)),
    ("wide", r" && whole", ("",)),
    ("wide", r"Output::is_aligned\(.*?\) && ", ("",)),
    ("wide", r"at < (16|Staging::kRows) \* kPerRow", (r"at < \1",)),
    ("wide", r"at % kPerRow \* kElements", ("at % kPerRow",)),
    ("leading", r"\bout\.ldc\b", ("out.ldd",)),
    ("leading", r"\bout\.ldd\b", ("out.ldc",)),
    ("narrow", r"row0 \* out\.(ld[cd])", (r"row0 * int(out.\1)",)),
    ("narrow", r"\* ld\b", ("* int(ld)",)),
    ("slices", r"if \(slices > 1\)", ("if (slices > 2)",)),
    ("slices", r"slice < more \? slice : more", ("more",)),
    ("slices", r"slice < more(?= \? 1)", ("slice <= more",)),
    ("slices", r"slice \* each", ("slice + each",)),
    ("slices", r"first \+ each", ("each",)),
    ("slices", r"(?<=\()piece \* kWarps", ("piece",)),
    ("slices", r"(?<=\+ j\)) \* 32", (" * 16",)),
    ("slices", r"(?<=blockIdx\.y\)) \* gridDim\.x", (" + gridDim.x",)),
    ("slices", r"all_steps % slices", ("0",)),
    ("slices", r"w / tiles(?=,)", ("w % tiles",)),
    ("slices", r"w % tiles(?=,)", ("w",)),
    ("slices", r"(?<=steps_of\()blockIdx\.y", ("blockIdx.x",)),
    ("slices", r"last_step - first_step", ("last_step",)),
    ("slices", r"first_step \* kTileK", ("first_step",)),
    ("slices", r"tile\.value\(i, 1, j, 0\)", ("tile.value(i, 0, j, 1)",)),
    ("reduction", r"256 / kReduceWidth", ("128 / kReduceWidth",)),
    ("reduction", r"(?<=kTileM \* kTileN) / 4", (" / 2",)),
    ("reduction", r"threadIdx\.x / kReduceWidth", ("threadIdx.x % kGroups",)),
    ("reduction", r"(?<=blockIdx\.x\)) \* kReduceWidth", ("",)),
    ("reduction", r"(?<=threadIdx\.x <) 4 \* kReduceWidth", (" kReduceWidth",)),
    ("reduction", r"begin \+ threadIdx\.x / 4", ("begin + threadIdx.x",)),
    ("reduction", r"at / kFours", ("at % kFours",)),
    ("reduction", r"at % kFours", ("at",)),
    ("reduction", r"(?<=\* tiles_n) \* kFours", ("",)),
    ("reduction", r"begin \+ group \* distance", ("begin", "begin + group")),
    ("reduction", r"(?<=distance \+)$", (" 1 +",)),
    ("reduction", r"slice = group", ("slice = 0",)),
    ("reduction", r"kAtOnce \* kGroups", ("kGroups", "2 * kAtOnce * kGroups")),
    ("reduction", r"i \* kGroups < slices", ("i < slices", "i * kGroups <= slices")),
    ("reduction", r"if \(slice \+ i \* kGroups < slices\) ", ("",)),
    ("reduction", r"from \+= kGroups \* distance", ("from += distance", "from += kGroups")),
    ("reduction", r"sum\.elements\[e\] \+=", ("sum.elements[e] =",)),
    ("reduction", r"sums\[group\]", ("sums[0]",)),
    ("reduction", r">= 4 \* kReduceWidth(?=\) return)", (">= kReduceWidth", "> 4 * kReduceWidth")),
    ("reduction", r"g < kGroups", ("g < kGroups - 1", "g <= kGroups")),
    ("reduction", r"total \+=", ("total =",)),
    ("reduction", r"(?<=sums\[g\]\[)threadIdx\.x / 4", ("threadIdx.x % kReduceWidth",)),
    ("reduction", r"at / 32 % ", ("at % ",)),
    ("reduction", r"at / \(4 \* kWarpN\)", ("at / (2 * kWarpN)",)),
    ("reduction", r"e / 2 \* 8", ("e / 2 * 4",)),
    ("reduction", r"e % 2", ("e / 2",)),
    ("reduction", r"if \(out\.reads_c\(\)\) x \+=", ("x +=",)),
    ("packing", r"first & 8", ("first & 4",)),
    ("packing", r"first & 4", ("first & 2",)),
    ("packing", r"words\[i \+ 2\]", ("words[i + 1]",)),
    ("packing", r"words\[i \+ 1\]", ("words[i + 2]",)),
    ("packing", r"i < 6", ("i < 5",)),
    ("packing", r"i < 5", ("i < 4",)),
    ("packing", r"first % 4 \* 8", ("first % 4", "first * 8", "first % 2 * 8")),
    ("packing", r"words\[3\], words\[4\]", ("words[4], words[3]",)),
    ("packing", r"__funnelshift_r(?=\(words\[0\])", ("__funnelshift_l",)),
    ("packing", r"\(from\) % 16", ("(from) % 8",)),
    ("packing", r"shift / sizeof\(input_t\)", ("shift",)),
    ("packing", r"low >= first && ", ("",)),
    ("packing", r"low \+ 2 \* kChunk <= end && ", ("", "low + kChunk <= end && ")),
    ("packing", r" && \(chunk \+ 1\) \* kChunk <= length", ("", " && chunk * kChunk <= length")),
    ("packing", r"chunks\[0\], chunks\[1\]", ("chunks[1], chunks[0]",)),
    ("packing", r"chunk \* kChunk \+ e < length \?", ("chunk * kChunk + e <= length ?", "true ?")),
    ("packing", r"\(lines - 1\) \* ld \+ length", ("lines * ld + length", "lines * length")),
    ("packing", r"256 / kWidth", ("128 / kWidth", "512 / kWidth")),
    ("packing", r"kTransposes \? lane : warp", ("lane",)),
    ("packing", r"kTransposes \? warp : lane", ("warp",)),
    ("packing", r"(?<=blockIdx\.x\)) \* kWidth", ("",)),
    ("packing", r"(?<=blockIdx\.y\)) \* kDepth", ("",)),
    ("packing", r"(?<=gridDim\.y\)) \* kDepth", ("", " * kDepth * 2")),
    ("packing", r"chunk \* kChunk < length", ("chunk * kChunk <= length", "chunk < length")),
    ("packing", r"line \* ld, length", ("line, length",)),
    ("packing", r"line \* packed_ld", ("line * length",)),
    ("packing", r"packed_ld \+ chunk \* kChunk", ("packed_ld + chunk",)),
    ("packing", r"is_left \? left_(ld|packed_ld|length) : right_\1", (r"left_\1",)),
    ("packing", r"line < lines", ("line <= lines",)),
    ("packing", r"(?<=gridDim\.x\)) \* kWidth", ("",)),
    ("packing", r"blockIdx\.z == 0", ("true",)),
    ("staging", r"8 \* j \+ lane % 4 \* 2", ("8 * j + lane % 4",)),
    ("staging", r"(?<!row0 \+ )row(?=, col0)", ("row / 2",)),
    ("staging", r"lane % 16(?=, col)", ("lane % 8",)),
    ("staging", r"lane / 16 \* 8(?=\))", ("lane / 8 * 8",)),
    ("staging", r"row0 \+ row < out\.rows \? 16", ("true ? 16",)),
    ("staging", r"q % 2 \* 8", ("q / 2 * 8",)),
    ("staging", r"(?<= )q % 2(?=, n)", ("q / 2",)),
    ("staging", r"2 \* j \+ q / 2", ("2 * j",)),
    ("staging", r"line \+ 16 \* b", ("16 * b", "line")),
    ("staging", r"row0 \+ at", ("row0",)),
    ("staging", r"tile, b, out", ("tile, 0, out",)),
    ("staging", r"16 \* kTogether", ("16",)),
    ("staging", r"move_up<kTogether>", ("move_up<kTogether + 1>",)),
    ("staging", r"i \+ kBlocks(?=\])", ("i + 1",)),
    ("staging", r"i \+= kBlocks", ("i += 1",)),
    ("staging", r"i / kBlocks % kSlots", ("0",)),
    ("staging", r"begin \+ odd", ("begin + !odd",)),
    ("staging", r"begin \+ !odd", ("begin + odd",)),
    ("staging", r"odd \? other : one", ("odd ? one : other",)),
    ("staging", r"odd \? (right : left|other : one)", (r"!odd ? \1",)),
    ("boxes", r"byte / kLine \* kPieceBytes", ("byte / kLine",)),
    ("boxes", r"byte % kLine(?= / 16)", ("byte",)),
    ("boxes", r"p < Staging::kPieces", ("p < Staging::kPieces - 1",)),
    ("boxes", r" \+ p \* kWide", ("", " + p * Staging::kLine")),
    ("boxes", r" \+ p \* Staging::kPieceBytes", ("", " + p * Staging::kLine")),
    ("boxes", r"if \(by_tma\)(?= show_to_tma)", ("if (by_tma && lane == 0)",)),
    ("boxes", r"kSlots - 1", ("kSlots",)),
    ("boxes", r"(?<=wait_for_boxes<)0", ("kSlots",)),
    ("boxes", r"(?<=swizzle<kLine>\()row", ("row / 2",)),
    ("teams", r"stage < kStages(?=\) return)", ("stage <= kStages",)),
    ("teams", r"stage -= kStages", ("stage = 0",)),
    ("teams", r"advance\(turn\)", ("advance(kTeams)",)),
    ("teams", r"advance\(kTeams\)", ("advance(1)",)),
    ("teams", r"advance\(1\)", ("advance(kTeams)",)),
    ("teams", r"turn = place\(\)\.warp / kWarps", ("turn = 0",)),
    ("teams", r"turn = n - last", ("turn = team", "turn = 1 - turn", "turn = last - n")),
    ("teams", r"first \+ turn", ("first + team",)),
    ("teams", r"n \+= kTeams", ("n += 1",)),
    ("teams", r"n \+ kTeams < last", ("n + 1 < last",)),
    ("teams", r"(?<=, )32 \* kConsumers|(?<=\()32 \* kConsumers", ("32 * kWarps",)),
    ("teams", r"(?<=barrier_init\(exchanged, )kConsumers", ("kConsumers - 1", "kConsumers + 1")),
    ("teams", r"(?<=barriers \+ 16 \* )kStages", ("(kStages - 1)",)),
    ("teams", r"exchanges \^= 1", ("exchanges ^= 0",)),
    ("teams", r"(?<=barrier_wait\(exchanged, )exchanges", ("exchanges ^ 1",)),
    ("teams", r"if \(w != int\(blockIdx\.x\)\)", ("if (true)",)),
    ("teams", r"team == 0", ("team != 0",)),
    ("teams", r"give<kFirst, WarpTile::kM>", ("give<0, kFirst>", "give<0, WarpTile::kM>")),
    ("teams", r"give<0, kFirst>", ("give<kFirst, WarpTile::kM>",)),
    ("teams", r"take<kFirst, WarpTile::kM>", ("take<0, kFirst>",)),
    ("teams", r"take<0, kFirst>", ("take<kFirst, WarpTile::kM>", "take<0, WarpTile::kM>")),
    ("teams", r"sum\[i - kBegin\]", ("sum[i]",)),
    ("teams", r" \+ given\.elements\[s\]", ("",)),
    ("teams", r"part \* \(kWarpM \* kWarpN / 4\)", ("warp * (kWarpM * kWarpN / 4)", "part * 32")),
    ("teams", r" \+ lane(?=\}\.run)", ("",)),
    ("teams", r"team \* Exchange::kFirst", ("0",)),
    ("teams", r"16 \* first_block", ("first_block",)),
    ("teams", r"i < blocks", ("i < WarpTile::kM",)),
    ("teams", r"(?<=blocks, out, out_map, staging \+ )warp", ("part",)),
    ("boxes", r"if \(!by_tma\)", ("if (true)",)),
    ("epilogue", r"e / 2 \* 8(?= \+ lane % 4)", ("e % 2 * 8",)),
    ("epilogue", r"bias\.of\[j\]\[q / 2 \* 2 \+ e\]", ("bias.of[j][e]", "bias.of[0][e]")),
    ("epilogue", r"results\.elements\[2 \* q \+ e\]", ("results.elements[2 * q]",)),
    ("epilogue", r"(?:col < cols|row < rows) \?", ("true ?",)),
    ("epilogue", r"out\.alpha \* ", ("",)),
    ("epilogue", r"x \+= out\.beta \* static_cast", ("x = out.beta * static_cast",)),
    ("epilogue", r"beta != scalar_t\(0\)", ("true",)),
    ("epilogue", r"if \(out\.reads_c\(\)\) (?=\{)", ("if (true) ", "if (lane == 0) ")),
    ("epilogue", r"bias\[(?:row|col)\]", ("bias[0]",)),
)


def mutants(source: Source) -> Iterator[Mutant]:
    """Every mutant of an emitted file, in the order of its lines."""
    lines = source.text.splitlines()
    for at in _code_lines(lines):
        code = lines[at].partition("//")[0]
        if "__syncthreads();" in code and not _on_tensor_cores(source):
            yield from _barriers(source, lines, at)
        for name, pattern, replacements in _operators(source):
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
        code = [lines[at].partition("//")[0] for at in _code_lines(lines)]
        for _, pattern, _ in _operators(source):
            seen = patterns.get(pattern, False)
            patterns[pattern] = seen or any(re.search(pattern, line) for line in code)
    return [pattern for pattern, seen in patterns.items() if not seen]


def _on_tensor_cores(source: Source) -> bool:
    return source.spec is not None and source.spec.instruction is not None


def _operators(source: Source) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    return _TENSOR_CORES if _on_tensor_cores(source) else _REPLACEMENTS


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
