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

from gen.source.render import Source


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
_ACTIVATIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("activation", r"x < 0 \? 0 : x", ("x > 0 ? 0 : x", "x < 0 ? x : x")),
    ("activation", r"relu\((\w)\)(?=\)|,)", (r"\1",)),
    ("activation", r"1\.0f \+ erff", ("1.0f - erff",)),
)
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
    ("narrow", r"(?<== )(M - row0|N - col0) < (?=kTile)", (r"int(\1) < ", r"unsigned(\1) < ")),
    ("guard", r"\bin_[ab] \?", ("true ?",)),
    ("lanes", r"lane / 2 % kBeside", ("lane % kBeside",)),
    ("lanes", r"lane / \(2 \* kBeside\) \* 2", ("lane / kBeside * 2",)),
    ("lanes", r"(?<=\* 2 \+ )lane % 2", ("lane / 2 % 2", "0")),
    ("transposition", r"\[k \+ e\]", ("[k]",)),
    ("transposition", r"(?<=_part\[i\]\.of\[)e", ("0", "kVector - 1 - e")),
    ("transposition", r"\.of\[(a_row|b_col|row|col) % kVector\]", (".of[0]",)),
    ("vector", r"aligned && count >= kVector", ("aligned", "count >= kVector")),
    ("vector", r"count >= kVector", ("count >= kVector - 1",)),
    ("vector", r"if \(aligned\)", ("if (true)",)),
    ("vector", r"e < (count|inside) \?|e < (inside)(?=\))", ("true ?", r"e <= \1\2 ?")),
    ("vector", r" % sizeof\([\w<>]+\) == 0 && ", (" % sizeof(T) == 0 && ",)),
    ("vector", r" && ld % kVector == 0", ("",)),
    ("vector", r"[ab]_aligned(?=\))", ("true",)),
    (
        "stage",
        r"kStages \? (fill|stage) \+ 1 : 0",
        (r"kStages ? \1 : 0", r"kStages - 1 ? \1 + 1 : 0"),
    ),
    ("stage", r"\[stage\]", ("[fill]",)),
    ("stage", r"\[fill\]", ("[stage]",)),
    ("stage", r"k0 >= \(kStages - 1\)", ("k0 >= (kStages - 2)", "k0 >= kStages")),
    ("stage", r"k0 - \(kStages - 1\)", ("k0 - (kStages - 2)",)),
    ("wait count", r"kStages - 2(?=\) : \"memory\")", ("kStages - 1", "kStages")),
    ("drop", r"^ *(?:commit_copies|wait_for_copies)\(\);", ("",)),
    ("drop", r"^ *asm volatile\(\"cp\.async\.(?:commit|wait)_group.*;", ("",)),
    ("drop", r"^ *[ab]_from \+= .*;", ("",)),
    ("edge", r"inside \? [48] : 0", ("4", "0")),
    ("edge", r"count < 0 \? 0 :", ("",)),
    ("edge", r"if \(k0 < K\)", ("if (true)",)),
    ("edge", r"(?:\w+ \+ )?\w+ < (?:rows|cols|depth)(?= [&?])", ("true",)),
    ("bias", r"bias\[col\]", ("bias[0]",)),
    *_ACTIVATIONS,
)


# Mistakes that every kernel can have: those of `tests/prove/test_outsiders`, wherever they fit.
_ANYWHERE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("batch", r"product \* (stride_[abcd])", (r"\1", "0")),
    ("batch", r"(?<=product \* stride_)a", ("b",)),
    ("batch", r"(?<=product \* stride_)b", ("a",)),
    ("batch", r"(?<=product \* stride_)c", ("d",)),
    ("batch", r"(?<=product \* stride_)d", ("c",)),
    ("batch", r"first \+ blockIdx\.z", ("blockIdx.z", "first", "first + blockIdx.y")),
    ("batch", r"(?<=product = )t / \(tiles_m \* tiles_n\)", ("0", "t / tiles_m", "t / tiles_n")),
    ("batch", r"^ *t %= tiles_m \* tiles_n;", ("",)),
    ("batch", r"tiles_n \* batch(?= \* kFours)", ("tiles_n", "batch")),
    ("batch", r"tiles_n \* int\(batch\)", ("tiles_n",)),
    ("batch", r"([ab])_count > 1 \? product : 0", ("product", "0")),
    ("batch", r"(?<= )i \* (stride_[ab])", (r"\1", "0")),
    ("batch", r"(?<=_packed \+ )i \* ([ab]_lines)", (r"\1", "i")),
    ("batch", r"is_a \? a_count : b_count", ("b_count", "a_count")),
    ("batch", r"gridDim\.z / 2", ("gridDim.z",)),
    ("batch", r"gridDim\.z - 1", ("gridDim.z",)),
    ("groups", r"min\(ahead, (?:rows|depth)\)", ("ahead",)),
    ("groups", r"^ *end = max\(end, before\);", ("",)),
    ("groups", r"(?<=begin = )before", ("0", "end")),
    ("groups", r"if \(lane >= apart\) (?=until)", ("", "if (lane > apart) ")),
    ("groups", r"^ *until \+= tiles;", ("",)),
    ("groups", r"(?<=first \+ 32 )>= count", (">= count - 1", ">= count - 31")),
    ("groups", r"lane < count - from", ("lane <= count - from", "lane < count - from - 1")),
    ("groups", r"first \+ owner", ("owner", "first")),
    ("groups", r"^ *its\.row0 \+= row;", ("",)),
    ("groups", r"(?<=owner\)) - tiles_m \* tiles_n", ("", " - tiles_n")),
    ("groups", r"place\.group \* stride_b", ("0", "stride_b")),
    ("groups", r"b_count > 1 \? place\.group : 0", ("place.group", "0")),
    ("groups", r"place\.row_end(?=, )", ("int(M)",)),
    ("groups", r" && row0 \+ Staging::kRows <= out\.rows", ("",)),
    ("groups", r"blockIdx\.z - 1", ("blockIdx.z",)),
    ("groups", r"its\.group - first(?= >= 32)", ("its.group - first - 1", "its.group - first + 1")),
    ("groups", r"(?<=its\.group = )uint32_t\(t\) / tiles", ("0", "uint32_t(t) / tiles_m")),
    ("groups", r"uint32_t\(t\) % tiles", ("uint32_t(t)",)),
    ("groups", r"place\.group \* (stride_[cd])", ("0", r"\1")),
    ("groups", r"(?<=place\.group \* stride_)c", ("d",)),
    ("groups", r"(?<=place\.group \* stride_)d", ("c",)),
    ("groups", r"place\.begin \* (ld[ab])", ("0", "place.begin", r"int(place.begin * \1)")),
    ("groups", r"place\.end - place\.begin", ("int(K) - place.begin", "place.end")),
    ("groups", r"left < kTileK \? kTileK - left : 0", ("0", "kTileK - left")),
    ("groups", r"kTileK \+ k - lacks", ("kTileK + k", "k - lacks")),
    ("groups", r"(?<=product = )place\.group", ("0",)),
    ("groups", r"product \* (stride_[cd])(?=;)", (r"\1",)),
    ("batch", r"i \* [ab]_lines \* [ab]_packed_ld", (r"int(\g<0>)",)),
    ("batch", r"(?<=A \+= )product \* stride_a", ("stride_a < K ? 0 : product * stride_a",)),
    ("operand", r"aux\.(\w+)\[row\]", (r"aux.\1[col]", r"aux.\1[0]", r"aux.\1[int(row)]")),
    ("operand", r"aux\.(\w+)\[col\]", (r"aux.\1[row]", r"aux.\1[0]", r"aux.\1[int(col)]")),
    (
        "operand",
        r"c_at\(row, col, aux\.(\w+)\)",
        (r"c_at(col, row, aux.\1)", r"c_at(row, col, int(aux.\1))", r"int(\g<0>)"),
    ),
    (
        "operand",
        r"row \* aux\.(\w+) \+ col",
        (r"col * aux.\1 + row", r"row * int(aux.\1) + col", r"int(\g<0>)"),
    ),
    ("operand", r"Aux aux\{(\w+), ld_\w+", (r"Aux aux{\1, ldd", r"Aux aux{\1, N")),
    ("operand", r"aux\.slope", ("fabsf(aux.slope)", "scalar_t(output_t(aux.slope))", "1")),
    ("operand", r"output_t\((silu\(x\))", (r"output_t(scalar_t(output_t(\1))", "output_t(x")),
    ("operand", r"(\w+)\(x\) \* up", (r"\1(x * up)", r"\1(x)")),
    ("operand", r"finish_element\((\w), row, (\w+)", (r"finish_element(\1, \2, row",)),
    ("operand", r"(?<== )inside\((.*?), out\.(?:rows|cols)\)", (r"\1",)),
    ("operand", r"finish_element\(y, row, right", ("finish_element(y, row, left",)),
    (
        "beta",
        r"((?:out\.)?)beta != 0",
        (
            r"\1beta > 0",
            r"\1beta < 0",
            r"\1beta != 0 && \1beta != 1",
            r"\1beta != 0 && \1alpha != 1",
            r"\1beta != 0 && \1alpha != 0",
        ),
    ),
    (
        "alpha",
        r"((?:out\.)?alpha) \*",
        (
            r"(\1 < 0 ? -\1 : \1) *",
            r"(\1 == 0 ? 1 : \1) *",
            r"(\1 == 1 ? 2 : \1) *",
            r"scalar_t(input_t(\1)) *",
            r"scalar_t(output_t(\1)) *",
        ),
    ),
    (
        "beta",
        r"((?:out\.)?beta) \* (?=scalar_t)",
        (
            r"(\1 < 0 ? -\1 : \1) *",
            r"(\1 == 1 ? 0 : \1) *",
            r"scalar_t(input_t(\1)) *",
        ),
    ),
    ("alpha", r"(?<= )x \*= alpha", ("x *= alpha < 0 ? -alpha : alpha", "x *= input_t(alpha)")),
    (
        "sizes",
        r"(?<=; )(k\w*|at|line|slice|n|row|col|row0|col0) < (\w+)(?=;)",
        (
            r"\1 < (\2 < 8 ? \2 : 8)",
            r"\1 < (\2 < 100 ? \2 : 100)",
            r"\1 < (unsigned char)(\2)",
            r"\1 < short(\2)",
            r"\1 < \2 - 1",
            r"\1 < \2 / 2 * 2",
            r"\1 < \2 / 16 * 16 + 15",
        ),
    ),
    ("undefined", r"accumulator_t sum = 0;", ("accumulator_t sum;",)),
    ("undefined", r"accumulator_t sum(.*) = \{\};", (r"accumulator_t sum\1;",)),
    ("undefined", r"( acc\[.*\]) = \{\};", (r"\1;",)),
    ("undefined", r"\b(parts\[kAtOnce\]|sum)\{\};", (r"\1;",)),
    ("aligned", r"% 16 == 0", ("% 8 == 0", "% 4 == 0", "% 2 == 0", "% 32 != 1")),
    ("aligned", r"% 16 == 0 && .* % 16 == 0", ("% 16 == 0",)),
    (
        "aligned",
        r"is_aligned\((\w[\w.]*), (\w[\w.]*)\)",
        ("true", r"is_aligned(\1, 0)", r"is_aligned(nullptr, \2)"),
    ),
    ("narrow", r"\bindex_t\(", ("int(", "uint32_t(")),
    ("narrow", r"const index_t (\w+) =", (r"const int \1 =",)),
    (
        "special",
        r"sum(\[.*\])? \+= (\w\S*) \* (\S.*);",
        (
            r"if (\2 != 0) sum\1 += \2 * \3;",
            r"if (\2 == \2) sum\1 += \2 * \3;",
            r"sum\1 += (\2 < 1e-30f && \2 > -1e-30f ? accumulator_t(0) : \2) * \3;",
        ),
    ),
    (
        "special",
        r"= output_t\(x\)",
        (
            "= output_t(x == x ? x : 0)",
            "= output_t(x + scalar_t(0))",
            "= output_t(x > scalar_t(60000) ? 60000 : x)",
            "= output_t(x < scalar_t(-60000) ? -60000 : x)",
            "= output_t(x < scalar_t(1e-30) && x > scalar_t(-1e-30) ? 0 : x)",
        ),
    ),
    (
        "special",
        r"output_t\(x\), output_t\(y\)",
        (
            "output_t(x + scalar_t(0)), output_t(y)",
            "output_t(x == x ? x : 0), output_t(y)",
            "output_t(x), output_t(y > scalar_t(60000) ? 60000 : y)",
        ),
    ),
    (
        "in place",
        r"^(\s*)((?:const )?accumulator_t sum.*;)",
        (r"\1\2 if (K > 0) D[0] = output_t(0);",),
    ),
    ("instruction", r"row\.col(?=\.s32)", ("row.col.satfinite",)),
)


_DROPPED = (  # statements that can be left out, where they are a line of their own
    *(
        rf"(?:if \(.*\) )?asm volatile\(\"{instruction}"
        for instruction in (
            r"cp\.async\.(?:bulk\.)?commit_group",
            r"cp\.async\.(?:bulk\.)?wait_group",
            r"cp\.async\.wait_all",
            r"fence\.",
            r"griddepcontrol\.launch_dependents",
            r"griddepcontrol\.wait",
            r"wgmma\.(?:fence|commit_group|wait_group)",
        )
    ),
    r"(?:if \(.*\) )?barrier_arrive\(",
    r"(?:if \(.*\) )?barrier_wait\(",
    r"(?:\w+\.)?advance\(",
    r"barrier_expect\(",
    r"(?:if \(.*\) )?finish\(",
    r"barrier_init\(",
    r"copy_[ab]\(",
    r"copy_box\(",
    r"copy_rows\(",
    r"(?:for \(.*\) )?finish_rows\(",
    r"if \(.*\) (?:return|continue|break)(?=;)",
    r"if \(reads_c\) (?:staging\.get|ldmatrix)\(",
    r"meet(?:_cluster)?\(",
    r"(?:if \(.*\) )?(?:piece|tile_at)\(",
    r"read_rows\(",
    r"staging\.put\(",
    r"stmatrix\(",
    r"store(?:_box|_partial|_rows)?\(",
    r"tile\.(?:complete|load|move|move_up|multiply|multiply_\w+|promote|read_from)\(",
    r"write_rows\(",
    r"__syncthreads\(",
    r"__syncwarp\(",
)

_TENSOR_CORES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *(("drop", rf"^ *{what}.*;", ("",)) for what in _DROPPED),
    ("wait count", r"wait_group 1", ("wait_group 2",)),
    ("stage count", r"kStages - 1", ("kStages",)),
    ("stage count", r"(?<=< )kStages(?= \?)", ("kStages - 1", "kStages + 1")),
    ("stage count", r"< kStages - 1(?=;)", ("< kStages - 2",)),
    ("stage", r"\(next - reading\)", ("(reading - next)",)),
    ("stage", r"\(stage - finished\)", ("(finished - stage)",)),
    ("stage", r"16 \* stage \+ 8", ("16 * stage",)),
    ("phase", r"@!over", ("@over",)),
    ("phase", r"phase \^ 1", ("phase",)),
    ("phase", r"phase \^= 1", ("phase ^= 0",)),
    ("phase", r"more && !ready", ("false", "more && ready", "!ready")),
    ("phase", r"(?<=move\()more \?", ("true ?",)),
    ("phase", r"more = n \+ 1 < (\w+)", (r"more = n < \1", r"more = n + 2 < \1")),
    ("phase", r"if \((?:first < last|steps > 0|n < steps)\)", ("if (true)",)),
    ("phase", r"(?<=barrier_wait\(full\(stage\), )phase", ("phase ^ 1",)),
    ("phase", r"(?<=barrier_test\()full\(stage\), phase", ("full(stage), phase ^ 1",)),
    ("phase", r"(?<=barrier_test\()full\(stage\)", ("full(finished)", "empty(stage)")),
    ("arrivals", r"(?<=empty\(stage\), )kWarps", ("kWarps - 1", "kWarps + 1")),
    ("arrivals", r"(?<=full\(stage\), )1", ("2",)),
    ("arrivals", r"if \((?:lane|threadIdx\.x % (?:32|128)) == 0\) (?=barrier_arrive)", ("",)),
    ("arrivals", r"(?<=empty\(stage\), )(\d)(?=\);)", (r"\1 - 1", r"\1 + 1")),
    ("arrivals", r"threadIdx\.x % 128 == 0", ("threadIdx.x % 32 == 0", "threadIdx.x == 0")),
    ("arrivals", r"(?<=barrier_arrive\()empty\(finished\)", ("empty(stage)", "full(finished)")),
    ("bytes", r"(?:kStageBytes|a_bytes \+ \w+)(?=\);)", ("kBytesA", r"\g<0> + 16")),
    ("bytes", r"\((\w+) < (kTile\w) \? \w+ : \w+\)(?= \*)", (r"\1", r"\2")),
    ("groups", r"wait_group\.sync\.aligned 1", ("wait_group.sync.aligned 2",)),
    ("groups", r"wait_group\.sync\.aligned 0", ("wait_group.sync.aligned 1",)),
    ("groups", r"empty\(stage > 0 \? stage - 1 : kStages - 1\)", ("empty(stage)",)),
    ("groups", r"if \(n > (0|first)\) (?=finish)", ("", r"if (n > \1 + 1) ")),
    ("descriptor", r"uint64_t swizzle = 1;", ("uint64_t swizzle = 2;", "uint64_t swizzle = 0;")),
    ("descriptor", r"line == 128 \? 1 : 2", ("1", "2", "line == 128 ? 2 : 1")),
    ("descriptor", r"(begin = address.*) >> 4,(?= below)", (r"\1 >> 3,",)),
    ("cluster", r"address % \(1 << 18\)", ("address",)),
    ("cluster", r"0x3", ("0x1", "0x2", "0x7")),
    ("cluster", r"b_part = block", ("b_part = 0", "b_part = 1 - block")),
    ("cluster", r" \+ block \* kTileM", ("", " + block * kTileN")),
    ("cluster", r"rank >= kClusterBlocks", ("rank != 0", "rank != 1", "rank > 2")),
    ("cluster", r"(?<=kStages - 1\)), rank\)", (", rank_in_cluster())", ")")),
    ("cluster", r"(?<=mbarrier\.arrive)(?=\.shared::cluster)", (".relaxed.cluster",)),
    ("cluster", r"(?<=arrive\.aligned;)\\nbarrier\.cluster\.wait\.aligned;", ("",)),
    ("cluster", r"cluster\.arrive(?=\.aligned)", ("cluster.arrive.relaxed",)),
    ("cluster", r"blockIdx\.x / kClusterBlocks", ("blockIdx.x",)),
    ("cluster", r"gridDim\.x / kClusterBlocks", ("gridDim.x",)),
    ("descriptor", r"panel >> 4", ("panel >> 3",)),
    ("descriptor", r"8 \* line", ("4 * line", "16 * line")),
    ("descriptor", r"<< 16 \|(.*) << 32", (r"<< 32 |\1 << 16",)),
    ("descriptor", r"(?<=matrix_at\()(\w) \+ 32 \* kb", (r"\1 + 16 * kb", r"\1", r"\1 + 64 * kb")),
    (
        "descriptor",
        r"(?<=matrix_at\()(\w) \+ kb \* 16 \* 128",
        (r"\1 + kb * 8 * 128", r"\1", r"\1 + kb * 32"),
    ),
    ("descriptor", r", 128, (?=\w+\);)", (", 64, ",)),
    ("descriptor", r", 64, (?=\w+\);)", (", 128, ",)),
    ("descriptor", r", kPanel[AB]\)", (", 0)",)),
    ("descriptor", r"group \* (?=64|kPanelA)", ("0 * ", "(1 - group) * ")),
    ("descriptor", r"64 \* (?=64,|128,)", ("32 * ", "128 * ")),
    ("descriptor", r"b = stage \+ kBytesA", ("b = stage",)),
    ("descriptor", r"threadIdx\.x / 128", ("threadIdx.x / 32", "0")),
    ("descriptor", r"wgmma\(acc\[0\], a_block, b_block", ("wgmma(acc[0], b_block, a_block",)),
    ("instruction", r", 1, 1, 1, (\d), (\d);", (r", 0, 1, 1, \1, \2;", r", 1, -1, 1, \1, \2;")),
    ("instruction", r", 1, 1, 1, 0, (\d);", (r", 1, 1, 1, 1, \1;",)),
    ("instruction", r", 1, 1, 1, 1, (\d);", (r", 1, 1, 1, 0, \1;",)),
    ("instruction", r", 1, 1, 1, (\d), 1;", (r", 1, 1, 1, \1, 0;",)),
    ("fragment", r'"r"\(a\[0\]\)', ('"r"(a[1])',)),
    ("fragment", r'"r"\(a\[2\]\)', ('"r"(a[1])',)),
    ("fragment", r'"d"\(a\[1\]\)', ('"d"(a[0])',)),
    ("fragment", r'"d"\(b\[half\]\)', ('"d"(b[0])',)),
    ("fragment", r"_at \^ (\w+) \* (\d+)", (r"_at + \1 * \2", r"_at ^ \1 * 16", "_at")),
    ("fragment", r"16 \* i \+ 8 \* r", ("16 * i", "8 * r", "8 * i + 8 * r")),
    ("fragment", r"(?<=i \* kPanelB \+ kb \* )4", ("2", "8")),
    ("fragment", r"(?<=col )/ 16(?= \* kPanelB)", ("/ 32",)),
    ("fragment", r"(?<=col )% 16(?=\);)", ("% 8",)),
    ("fragment", r"_element (/|%) 16", (r"_element \1 8", "0")),
    ("bytes", r"(?<= \? )8 : 0(?=;)", ("8 : 8",)),
    ("edge", r"_element < (\w+)(?= \? 8)", (r"_element <= \1", r"_element < \1 - 1")),
    ("fragment", r"b\[2 \* half \+ 1\]", ("b[2 * half]",)),
    ("fragment", r"b\[2 \* half\]", ("b[half]",)),
    ("fragment", r"(?<=2 \* kb \+ )lane / 16", ("lane / 8 % 2",)),
    ("fragment", r"(?<=2 \* kb \+ )lane / 8 % 2", ("lane / 16",)),
    ("fragment", r"2 \* kb \+ (?=lane)", ("kb + ",)),
    ("fragment", r"lane / 16 \* 8(?=;| \+ lane)", ("lane / 8 % 2 * 8",)),
    ("fragment", r"k = lane % 16", ("k = lane % 8",)),
    ("fragment", r"at / 64 \* kPanelB", ("0",)),
    ("fragment", r"at % 64 / 8", ("at / 8",)),
    ("fragment", r"\* 16 \* (?=64|128)", ("* 8 * ",)),
    ("fragment", r"\[2 \* h\], acc\[i\]\[j\]\[2 \* h \+ 1\]", ("[h], acc[i][j][h + 2]",)),
    ("fragment", r"acc\[i\]\[j\]\[h\]", ("acc[i][j][0]",)),
    ("fragment", r"\[kb % 2\]", ("[0]",)),
    ("fragment", r"\[j / 2\], j % 2", ("[j % 2], j / 2",)),
    ("swizzle", r"line / 2 % 4", ("line % 4",)),
    ("swizzle", r"line % 8", ("line / 2 % 8",)),
    ("swizzle", r"byte / 16 \^ row % 8", ("byte / 16 ^ row / 2 % 8", "byte / 16")),
    ("swizzle", r"line % 4 \* 4", ("line % 8 * 4",)),
    ("swizzle", r"(?<=swizzle_64b\()row|(?<=swizzle_128b\()(?:row|col|k)(?=,)", (r"\g<0> / 2",)),
    ("warp", r"(warp|part) % kWarpsM \* kWarpM", (r"\1 / kWarpsM * kWarpM",)),
    ("warp", r"(warp|part) / kWarpsM \* kWarpN", (r"\1 % kWarpsM * kWarpN",)),
    ("order", r"group % height", ("group / height",)),
    ("order", r"(?<=tiles_m - first) < most", (" > most",)),
    ("order", r"most \* tiles_n", ("tiles_n",)),
    ("order", r"(?<=t / group) \* most", ("",)),
    ("order", r"t % group", ("t",)),
    ("order", r"\w \+= gridDim\.x", ("w += gridDim.x + 1",)),
    ("order", r"w < work", ("w <= work",)),
    ("order", r"(?<=height)(\)?) \* (kTile\w)", (r"\1 + \2",)),
    ("start", r"\(begin \+ 1023\) & ~1023u", ("begin",)),
    ("start", r"(?<=kStageBytes) \+ kStagingBytes(?=;)", ("",)),
    ("start", r"n < (steps|last)(?=;)", (r"n < \1 - 1",)),
    ("start", r"(\w+) \+ (kTile[MNK]) - 1\) / ", (r"\1) / ", r"\1 + \2) / ")),
    ("start", r"if \((?:early|kReduceWidth == 8)\) (?=asm)", ("",)),
    ("edge", r"(?:k \+ \w+ \+ )?i \* \d+ < \w+", ("true",)),
    ("edge", r"(?<=i \* \d\d) <", (" <=",)),
    ("edge", r"(\w+) - (?:k|row0|col0)(?= - \w+(?:;| \*))", (r"\1",)),
    ("edge", r"left < 0 \? 0 :", ("left < 1 ? 0 :",)),
    ("edge", r"left < kChunk(?= \?)", ("left < kChunk - 1",)),
    ("edge", r"row < rows(?=;)", ("row < Staging::kRows",)),
    ("edge", r"out\.rows - row0 < Staging::kRows", ("true",)),
    ("edge", r"left < 0 \? 0 : (?=left)", ("",)),
    ("edge", r"left < kElements \? left :", ("",)),
    ("edge", r"e < count(?= \?)", ("true", "e <= count")),
    ("edge", r"row0 \+ row < out\.rows", ("true",)),
    ("edge", r"col0 \+ col < out\.cols", ("true",)),
    ("edge", r"(?<=\()row >= rows \|\| ", ("",)),
    ("edge", r" \|\| col >= cols(?=\))", ("",)),
    ("wide", r"reinterpret_cast<size_t>\(matrix\) % 16 == 0 && ", ("",)),
    ("wide", r" && ld \* sizeof\(output_t\) % 16 == 0", ("",)),
    ("wide", r" && col0 \+ kWarpN <= out\.cols", ("",)),
    ("wide", r" \|\| col0 \+ kWarpN <= out\.cols", ("",)),
    ("wide", r"out\.cols % kElements == 0 \|\| ", ("",)),
    ("wide", r"whole && ", ("",)),
    ("wide", r"is_aligned\(.*?\) && ", ("",)),
    ("wide", r" && is_aligned\(.*?\)(?=;)", ("",)),
    ("wide", r"at < (Staging::kRows) \* kPerRow", (r"at < \1",)),
    ("wide", r"at % kPerRow \* kElements", ("at % kPerRow",)),
    ("leading", r"\bout\.ldc\b", ("out.ldd",)),
    ("leading", r"\bout\.ldd\b", ("out.ldc",)),
    ("leading", r"(?<=\[row \* )ldc", ("ldd",)),
    ("leading", r"(?<=\[row \* )ldd", ("ldc",)),
    ("narrow", r"row0 \* out\.(ld[cd])", (r"row0 * int(out.\1)",)),
    ("narrow", r"\(row0 \+ row\) \* out\.ldc", ("(row0 + row) * int(out.ldc)",)),
    ("narrow", r"\* ld\b", ("* int(ld)",)),
    ("narrow", r"index_t\(([^()]*)\) \* (ld[ab])", (r"(\1) * int(\2)",)),
    ("slices", r"if \(slices > 1\)", ("if (slices > 2)",)),
    ("slices", r"slice < more \? slice : more", ("more",)),
    ("slices", r"slice < more(?= \? 1)", ("slice <= more",)),
    ("slices", r"slice \* each", ("slice + each",)),
    ("slices", r"first \+ each", ("each",)),
    ("slices", r"first \+ (?=\(n|s \*)", ("",)),
    ("slices", r"(?<=\()piece \* kWarps", ("piece",)),
    ("slices", r"(?<=\+ j\)) \* 32", (" * 16",)),
    ("slices", r"(?<=blockIdx\.y\)) \* gridDim\.x", (" + gridDim.x",)),
    ("slices", r"(?<== )steps % slices", ("0",)),
    ("slices", r"\(w\) / tiles_d", ("(w) % tiles_d",)),
    ("slices", r"\(w\) % tiles_d", ("(w)",)),
    ("slices", r"(?<=steps_of\()blockIdx\.y", ("blockIdx.x",)),
    ("slices", r"last_step - first_step", ("last_step",)),
    ("slices", r"first_step \* kTileK", ("first_step",)),
    ("slices", r"pair\(i, 1, j\)", ("pair(i, 0, j)",)),
    ("stream", r"n > first(?=\) finish)", ("n > 0",)),
    ("stream", r"while \(!set\)", ("if (!set)", "while (false)")),
    ("stream", r"blockIdx\.x - 1(?=\)\.take)", ("blockIdx.x",)),
    ("stream", r"blockIdx\.x(?=\)\.give)", ("blockIdx.x + 1",)),
    ("stream", r"flags \+ warp", ("flags", "flags + warp / 2")),
    ("stream", r"warp = block \* kWarps", ("warp = block",)),
    ("stream", r"index_t\(warp\) \*", ("index_t(warp / 2) *",)),
    ("stream", r" \+ thread % 32(?=;)", ("",)),
    ("stream", r"range \+ more / gridDim\.x", ("range",)),
    ("stream", r"more % gridDim\.x", ("0",)),
    ("stream", r"range \* over", ("range",)),
    ("stream", r"work - gridDim\.x - over", ("work - gridDim.x", "work - over")),
    ("stream", r"part \* \(steps / gridDim\.x\)", ("0",)),
    ("stream", r"part \* \(steps % gridDim\.x\) / gridDim\.x", ("0",)),
    ("stream", r"gridDim\.x - 1 - blockIdx\.x", ("blockIdx.x",)),
    ("stream", r"end_step == steps", ("false",)),
    ("stream", r"end_step = 0", ("end_step = steps",)),
    ("stream", r"last < steps(?=\) \{)", ("last < steps - 1", "false")),
    ("stream", r"first > 0(?=\) Given)", ("first > 1", "false")),
    ("stream", r"w >= whole(?=\) \{)", ("w > whole",)),
    ("stream", r"(?<=gridDim\.x\)) >= whole", (" > whole",)),
    ("stream", r"w == (begin|end)_tile \? \w+", (r"w == \1_tile ? steps", r"w == \1_tile ? 0")),
    ("stream", r"w <= end_tile", ("w < end_tile",)),
    ("stream", r"= work - gridDim\.x - work % gridDim\.x", ("= work - work % gridDim.x",)),
    ("stream", r"int\(blockIdx\.x\) - int\(gridDim\.x\)", ("int(blockIdx.x)",)),
    ("stream", r"x \+= \*sums", ("x = *sums",)),
    ("stream", r"sums \+= 32", ("sums += 16", "sums += 0")),
    ("stream", r"steps - 1 - n", ("steps - 2 - n",)),
    ("stream", r"step >= steps", ("false",)),
    ("stream", r"!backwards && w < whole", ("!backwards", "w < whole")),
    ("stream", r"w > begin_tile && first == 0", ("first == 0", "w > begin_tile")),
    ("stream", r"thread / 32 % kWarps", ("thread / 32",)),
    ("turns", r"\(nth \+ 1\) % 2", ("nth % 2", "0", "1")),
    ("turns", r"nth % 2 != group", ("false",)),
    ("turns", r"stage \+= (steps|last - first)", (r"stage += \1 + 1", "stage += 0")),
    ("turns", r"stage / kStages % 2", ("0", "1", "stage / kStages")),
    ("turns", r"stage %= kStages", ("stage = 0",)),
    ("turns", r"(?<=barrier_init\(turn, )1", ("2",)),
    ("turns", r"(?<=d_map, )staging(\[| \+ )warp", (r"staging\1warp % kWarps",)),
    ("turns", r"warp % 4 \* 16", ("warp * 16",)),
    ("stream", r"st\.release\.gpu", ("st.relaxed.gpu",)),
    ("stream", r"ld\.acquire\.gpu", ("ld.relaxed.gpu",)),
    ("stream", r"i < count(?=; i \+= 256)", ("i < count - 1",)),
    ("stream", r"flags\[i\] = 0", ("flags[i] = 1",)),
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
    ("reduction", r"(?<=group \* distance) \+", (" + 1 +",)),
    ("reduction", r"slice = group", ("slice = 0",)),
    ("reduction", r"kAtOnce \* kGroups", ("kGroups", "2 * kAtOnce * kGroups")),
    ("reduction", r"i \* kGroups < slices", ("i < slices", "i * kGroups <= slices")),
    ("reduction", r"if \(slice \+ i \* kGroups < slices\) ", ("",)),
    ("reduction", r"from \+= kGroups \* distance", ("from += distance", "from += kGroups")),
    ("reduction", r"(?<=sum\.[xyzw]) \+=", (" =",)),
    ("reduction", r"sums\[group\]", ("sums[0]",)),
    ("reduction", r">= 4 \* kReduceWidth(?=\) return)", (">= kReduceWidth", "> 4 * kReduceWidth")),
    ("reduction", r"g < kGroups", ("g < kGroups - 1", "g <= kGroups")),
    ("reduction", r"x \+= (?=reinterpret_cast)", ("x = ",)),
    ("reduction", r"(?<=\(sums\[g\]\)\[)threadIdx\.x", ("threadIdx.x % kReduceWidth",)),
    ("reduction", r"at / 32 % ", ("at % ",)),
    ("reduction", r"at / \(4 \* kWarpN\)", ("at / (2 * kWarpN)",)),
    ("reduction", r"e / 2 \* 8", ("e / 2 * 4",)),
    ("reduction", r"e % 2", ("e / 2",)),
    ("reduction", r"x \*= alpha", ("x = alpha",)),
    ("parts", r"p == 0 \? 1 : 0", ("1", "0")),
    ("parts", r"p \+ q < kParts", ("p + q < kParts - 1", "p + q <= kParts")),
    ("parts", r"p \* kPartA", ("q * kPartA", "0")),
    ("parts", r"q \* kPartB", ("p * kPartB", "0")),
    ("parts", r"b_block, false", ("b_block, true",)),
    ("parts", r"kb == 0 && ", ("",)),
    ("parts", r"wgmma\(leading\[", ("wgmma(others[",)),
    ("parts", r"wgmma\(others\[", ("wgmma(leading[",)),
    ("parts", r"\+= leading", ("= leading",)),
    ("parts", r"if \(isfinite\(acc\[i\]\[j\]\[r\]\)\) ", ("",)),
    ("parts", r" && !isinf\(x\)", ("",)),
    ("parts", r"copysignf\(kLargest, x\)", ("kLargest", "x")),
    ("parts", r"([xy]) -= float\(both\.\w\);", ("", r"\1 = 0;")),
    ("parts", r"words\[1\]\[p\]", ("words[1][0]", "words[0][p]")),
    ("parts", r"p \* \(parts_ld / kParts\)", ("p", "p * parts_ld")),
    ("parts", r"at \+ kChunk <= length", ("true",)),
    ("parts", r"reinterpret_cast<size_t>\(from\) % 16 == 0 && ", ("",)),
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
    ("packing", r"low >= source && ", ("",)),
    ("packing", r"low \+ 2 \* kChunk <= end && ", ("", "low + kChunk <= end && ")),
    ("packing", r" && at \+ kChunk <= length", ("", " && at <= length")),
    ("packing", r"both\[0\], both\[1\]", ("both[1], both[0]",)),
    ("packing", r"at \+ e < length \?", ("at + e <= length ?", "true ?")),
    ("packing", r"\(lines - 1\) \* ld \+ length", ("lines * ld + length", "lines * length")),
    ("packing", r"(?<=blockIdx\.x\)) \* 8", ("", " * 4")),
    ("packing", r"(?<=\* 8 \+ )threadIdx\.x / 32", ("threadIdx.x % 32",)),
    ("packing", r"(?<=blockIdx\.y\)) \* 32", ("",)),
    ("packing", r"(?<=\* 32 \+ )threadIdx\.x % 32", ("threadIdx.x / 32",)),
    ("packing", r"(?<=threadIdx\.x % 32\)) \* kChunk", ("",)),
    ("packing", r"(?<=gridDim\.x\)) \* 8", ("",)),
    ("packing", r"(?<=gridDim\.y\)) \* 32 \* kChunk", ("", " * 64 * kChunk")),
    ("packing", r"at < length(?=;)", ("at <= length", "at + kChunk < length")),
    ("packing", r"(?<=source \+ )line \* ld", ("line",)),
    ("packing", r"line \* packed_ld", ("line * length",)),
    ("packing", r"(?<=packed_ld) \+ at", (" + at / kChunk",)),
    ("packing", r"is_a \? (\w+) : \w+", (r"\1",)),
    ("packing", r"line < lines", ("line <= lines",)),
    ("packing", r"blockIdx\.z == 0", ("true",)),
    ("staging", r"8 \* j \+ lane % 4 \* 2", ("8 * j + lane % 4",)),
    ("staging", r"(?<!row0 \+ )\brow(?=, col0)", ("row / 2",)),
    ("staging", r"lane % 16(?=, col)", ("lane % 8",)),
    ("staging", r"lane / 16 \* 8(?=\))", ("lane / 8 * 8",)),
    ("staging", r"q % 2 \* 8", ("q / 2 * 8",)),
    ("staging", r"(?<=pair\(i, )q % 2", ("q / 2",)),
    ("staging", r"2 \* j \+ q / 2(?=\)|\]\[)", ("2 * j",)),
    ("staging", r"(?<=\]\[)q % 2", ("q / 2",)),
    ("staging", r"(?<=staging, )(?:16 \* i|row)(?=, tile)", ("0", "8")),
    ("staging", r"16 \* i % Staging::kRows", ("16 * i",)),
    ("staging", r"row0 \+ row(?=, lane)", ("row0",)),
    ("staging", r"row0 \+ 16 \* i", ("row0",)),
    ("staging", r"row \+= 16", ("row += 8",)),
    ("staging", r"(?<=tile, )i(?=, out|, lane)", ("0",)),
    ("staging", r"i \+ 1 < kFragmentsM", ("i + 2 < kFragmentsM",)),
    ("staging", r"(?<== acc\[)i \+ 1", ("i",)),
    ("staging", r"i \+= Staging::kRows / 16", ("i += 2",)),
    ("staging", r"i / \(Staging::kRows / 16\) %", ("0 %",)),
    ("staging", r"== first / ", ("<= first / ", "== 0 * first / ")),
    ("staging", r"out\.alpha == 1 && ", ("",)),
    ("staging", r"(?<=alpha == 1) && out\.beta == 0", ("",)),
    ("staging", r"c \+ odd", ("c + !odd",)),
    ("staging", r"c \+ !odd", ("c + odd",)),
    ("staging", r"odd \? (\w+) : (\w+)(?=[,}])", (r"odd ? \2 : \1",)),
    ("staging", r"odd \? (d\[q\]\.\w) : (d\[q\]\.\w)", (r"odd ? \2 : \1",)),
    ("boxes", r"byte / kLine \* kPieceBytes", ("byte / kLine",)),
    ("boxes", r"byte % kLine(?= / 16)", ("byte",)),
    ("boxes", r"p < Staging::kPieces", ("p < Staging::kPieces - 1",)),
    ("boxes", r" \+ p \* Staging::kLine / .*(?=;)", ("", " + p * Staging::kLine")),
    ("boxes", r" \+ p \* Staging::kPieceBytes", ("", " + p * Staging::kLine")),
    ("boxes", r"if \(by_tma\)(?= asm)", ("if (by_tma && lane == 0)",)),
    ("boxes", r"(?<=bulk\.wait_group\.read )[1-9]", ("7",)),
    ("boxes", r"k, (row0|col0)(?=, full)", (r"\1, k",)),
    ("boxes", r"col0 \+ panel \* 64, k(?=, full)", ("k, col0 + panel * 64", "col0, k")),
    ("boxes", r"b \+ panel \* kPanelB", ("b",)),
    ("boxes", r"a \+ kBytesA", ("a",)),
    ("boxes", r"if \(!by_tma\)", ("if (true)",)),
    ("teams", r"stage < kStages(?=\) return)", ("stage <= kStages",)),
    ("teams", r"stage -= kStages", ("stage = 0",)),
    ("teams", r"advance\(turn\)", ("advance(kTeams)",)),
    ("teams", r"advance\(kTeams\)", ("advance(1)",)),
    ("teams", r"advance\(1\)", ("advance(kTeams)",)),
    ("teams", r"turn = threadIdx\.x / 32 / kWarps", ("turn = 0",)),
    ("teams", r"turn = n - steps", ("turn = team", "turn = 1 - turn", "turn = steps - n")),
    ("teams", r"n = 0 \+ turn", ("n = threadIdx.x / 32 / kWarps",)),
    ("teams", r"n \+= kTeams", ("n += 1",)),
    ("teams", r"n \+ kTeams < steps", ("n + 1 < steps",)),
    ("teams", r"(?<=\()32 \* kConsumers|(?<== )32 \* kConsumers", ("32 * kWarps",)),
    ("teams", r"(?<=barrier_init\(exchanged, )kConsumers", ("kConsumers - 1", "kConsumers + 1")),
    ("teams", r"(?<=barriers \+ 16 \* )kStages", ("(kStages - 1)",)),
    ("teams", r"exchanges \^= 1", ("exchanges ^= 0",)),
    ("teams", r"(?<=barrier_wait\(exchanged, )exchanges", ("exchanges ^ 1",)),
    ("teams", r"if \(w != int\(blockIdx\.x\)\)", ("if (true)",)),
    ("teams", r"team == 0", ("team != 0",)),
    ("teams", r"give<kFirst, kFragmentsM>", ("give<0, kFirst>", "give<0, kFragmentsM>")),
    ("teams", r"give<0, kFirst>", ("give<kFirst, kFragmentsM>",)),
    ("teams", r"take<kFirst, kFragmentsM>", ("take<0, kFirst>",)),
    ("teams", r"take<0, kFirst>", ("take<kFirst, kFragmentsM>", "take<0, kFragmentsM>")),
    ("teams", r"acc\[i - kBegin\]", ("acc[i]",)),
    ("teams", r" \+ others\.of\[r\]", ("",)),
    ("teams", r"part \* \(kWarpM \* kWarpN / 4\)", ("warp * (kWarpM * kWarpN / 4)", "part * 32")),
    ("teams", r" \+ lane(?=\}\.run)", ("",)),
    ("teams", r"team \* Exchange::kFirst", ("0",)),
    ("teams", r"16 \* first_fragment", ("first_fragment",)),
    ("teams", r"i < count", ("i < kFragmentsM",)),
    ("teams", r"(?<=count, out, d_map, staging \+ )warp", ("part",)),
    ("epilogue", r"bias\.of\[2 \* j \+ q / 2\]", ("bias.of[j]", "bias.of[0]")),
    ("epilogue", r"(?<=\+= )bias\[q % 2\]", ("bias[q / 2]",)),
    ("epilogue", r"8 \* h \+ lane / 4", ("8 * h + lane % 4",)),
    ("epilogue", r"all\.of\[2 \* q \+ 1\]", ("all.of[2 * q]",)),
    ("epilogue", r"gelu\(all\)", ("all",)),
    ("epilogue", r"(?:col|col \+ 1|at) < out\.(?:cols|rows) \?", ("true ?",)),
    ("epilogue", r"out\.alpha \* ", ("",)),
    ("epilogue", r"\+= (?=(?:out\.)?beta \*)", ("= ",)),
    ("epilogue", r"(?:out\.)?beta != 0", ("true",)),
    ("epilogue", r"if \(out\.beta != 0\) (?=\{)", ("if (lane == 0) ",)),
    ("epilogue", r"bias\[(?:row|col|at)\]", ("bias[0]",)),
    *_ACTIVATIONS,
)


# Kernels on CUDA cores with a plan of their own, whose copies and slices are as on tensor cores.
_SIMT: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *(
        ("drop", rf"^ *{what}.*;", ("",))
        for what in (
            r"asm volatile\(\"cp\.async\.(?:commit_group|wait_group|wait_all)",
            r"__syncthreads\(",
            r"start_cop(?:y|ies)<\w+>\(",
            r"(?:copy|next|next_step|a\.next_step|b\.next_step)\(",
            r"[ab]\.copy(?:<kCount>)?\(",
            r"if \(.*\) (?:return|continue)(?=;)",
            r"stage\(",
            r"store(?:_partial)?\(",
            r"tile\.(?:clear|load|move|multiply|read_from)\(",
        )
    ),
    ("wait count", r"wait_group 1", ("wait_group 2",)),
    ("wait count", r"wait_group 2", ("wait_group 3",)),
    ("wait count", r"wait_group 3", ("wait_group 4",)),
    ("stage count", r"s < kStages(?=;)", ("s < kStages - 1", "s <= kStages")),
    ("stage count", r"(?<=\+\+stage == )kStages", ("kStages - 1", "kStages + 1")),
    ("ring", r"kTileK - kLines", ("kTileK", "-kLines")),
    ("ring", r"(?<=if \(place == )kLines", ("kTileK", "(kLines - 1)")),
    ("turn", r"s > 0", ("true", "s > 1")),
    ("turn", r"k == 0", ("true", "false")),
    ("turn", r"k == kTeamK - 1", ("k == kTeamK - 2", "k == 0")),
    ("turn", r"\(k \+ 1\) % kTeamK", ("k", "(k + 2) % kTeamK")),
    ("lane", r"lane / 4 \* kChunk", ("lane % 4 * kChunk",)),
    ("lane", r"lane % 4 \* kChunk", ("lane / 4 * kChunk",)),
    ("lane", r"k \* kLine \+ line", ("line * kLine + k",)),
    ("lane", r"threadIdx\.x % kLanes(?=;)", ("threadIdx.x / kLanes",)),
    ("swap", r"\{x\[j \+ 1\], x\[j\],", ("{x[j], x[j + 1],",)),
    ("swap", r"col \^ 1", ("col",)),
    ("edge", r"\(at < count \? at : count - 1\)", ("at", "(at < count ? at : count)")),
    ("edge", r"(k|i \* kAtOnce) < left\b", ("true", r"\1 <= left")),
    ("edge", r" \|\| e < room", ("", " || true")),
    ("chunks", r"in_chunks \? kChunk : 1", ("kChunk", "1")),
    ("edge", r"room > 0 && ", ("",)),
    ("edge", r" && line < kTileK", ("",)),
    ("edge", r" \|\| count % kChunk == 0", ("", " || true")),
    ("edge", r"row >= out\.rows \|\| ", ("",)),
    ("edge", r" \|\| col >= out\.cols", ("",)),
    ("edge", r"aligned && col0 \+ kTileN <= out\.cols", ("aligned",)),
    ("warp", r"warp % kWarpsM \* (kWarpM|kSpan)", (r"warp / kWarpsM * \1",)),
    ("team", r"warp / kWarps \* ", ("",)),
    ("team", r"team = 1(?=;)", ("team = 0", "team = 2")),
    ("order", r"group % height", ("group / height",)),
)


def mutants(source: Source) -> Iterator[Mutant]:
    """Every mutant of an emitted file, in the order of its lines."""
    lines = source.text.splitlines()
    for at in _code_lines(lines):
        code = lines[at].partition("//")[0]
        if "__syncthreads();" in code and source.spec and not source.spec.row.planner:
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


def _is_simt(source: Source) -> bool:
    spec = source.spec
    return spec is not None and spec.instruction is None and spec.row.planner is not None


def _operators(source: Source) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    if _is_simt(source):
        return (*_SIMT, *_ANYWHERE)
    return (*(_TENSOR_CORES if _on_tensor_cores(source) else _REPLACEMENTS), *_ANYWHERE)


def _code_lines(lines: list[str]) -> Iterator[int]:
    """Indices of the lines that a GPU runs: shared arrays, helpers and the kernel's body."""
    marks = (
        "// Where an element",
        "// ------------------------------------------------------------------------ PTX",
    )
    first = next(i for i, line in enumerate(lines) if line.startswith(marks))
    host = "#ifndef __CUDACC_RTC__"
    last = next(i for i, line in enumerate(lines) if i > first and line.startswith(host))
    signature = False
    for at in range(first, last):
        line = lines[at].partition("//")[0].strip()
        signature = signature or line.startswith(('extern "C" __global__', "__device__"))
        ends, inside = line.endswith("{"), signature
        signature = signature and not ends
        if not inside and line and not line.startswith("#"):
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
