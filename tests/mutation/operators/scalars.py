"""Mistakes with alpha, beta, sums and roundings, of floats and of integers."""

from __future__ import annotations

from tests.mutation.operators.operator import Operators

_ALPHA, _BETA = r"((?:out\.)?alpha)", r"((?:out\.)?beta)"
_PRODUCT = rf"(?<== ){_ALPHA} \* (\w[\w.]*)(?=[;,])"
_SUM = r"sum(\[.*\])? \+= (\w\S*) \* (\S.*);"
_CONVERT = r"asm\(\"cvt\.rna\.tf32\.f32 .*\);"
_TANH = "0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)))"
_LAST = "x * (1.0f + erff(x * 0.70710678f)) * 0.5f"
_HALF_UP = (
    "__ushort_as_bfloat16((unsigned short)((__float_as_uint(gelu(x)) + 0x8000u) >> 16))"  # bf16
)

FLOATS: Operators = (
    ("read-only", r"(?<=scalar_t\()C(\[c_at\(row, col, ldc\)\])", (r"__ldg(&C\1)",)),
    (
        "digits",
        r"^( *)sum \+= a \* b;",
        (r"\1sum += __uint_as_float(__float_as_uint(a * b) & (k < 4096 ? ~0u : ~0x1fffu));",),
    ),
    (
        "beta",
        rf"{_BETA} != 0",
        (
            r"__float_as_uint(\1) != 0",
            r"(__float_as_uint(\1) & 0xffffff) != 0",
            r"(\1 < 0 || \1 > 0)",
            r"fabsf(\1) > 1e-6f",
        ),
    ),
    ("beta", r"if \(beta != 0\) x \+= (.*);", (r"x += beta == 0 ? scalar_t(0) : \1;",)),
    ("alpha", rf"{_ALPHA} \*", (r"fminf(\1, 1e6f) *", r"scalar_t(float(__half(float(\1)))) *")),
    (
        "alpha",
        rf"{_ALPHA} \*",
        (r"__uint_as_float(__float_as_uint(\1) & 0xffffff00) *",),
    ),
    ("rounding", _PRODUCT, (r"__fmul_rz(\1, \2)",)),
    ("rounding", rf"(\w+) \+= {_BETA} \* (scalar_t\(.*\));", (r"\1 = __fmaf_rz(\2, \3, \1);",)),
    ("rounding", rf"\b(x|y) \+= ({_BETA} \* .*);", (r"\1 = scalar_t(output_t(\1)) + \2;",)),
    ("rounding", r"(?<= )x \*= alpha", ("x = scalar_t(output_t(x)) * alpha",)),
    ("rounding", _CONVERT, ("x += 0x1000u;", ";")),
    ("special", r"accumulator_t sum = 0;", ("accumulator_t sum = -0.0f;",)),
    (
        "special",
        r"^( *)(D\[c_at\(.*)",
        (r"\1if (x == x) \2", r"\1if (alpha == alpha) \2", r"\1if (beta != 0 || ldc > 0) \2"),
    ),
    (
        "special",
        r"\*to = (staging\.at\(row, col\));",
        (r"if (scalar_t(\1) == scalar_t(\1)) *to = \1;",),
    ),
    ("special", r"x < 0 \? 0 : x", ("x > 0 ? x : 0",)),
    ("special", _SUM, (r"sum\1 += \2 * fminf(\3, 3.4028235e38f);",)),
    (
        "special",
        r"^( *)tile\.multiply\((kb|kKBlocks - \d)\);",
        (
            r"\1bool any = false; for (auto& f : tile.a[(\2) % 2]) for (auto x : f) any |= x != 0;"
            r" if (__any_sync(0xffffffffu, any)) tile.multiply(\2);",
        ),
    ),
    ("gelu", r"0\.5f \* x \* \(1\.0f \+ erff\(x \* 0\.70710678f\)\)", (_TANH, _LAST)),
    ("gelu", r"output_t\(gelu\(x\)\)", (_HALF_UP, "output_t(x > 3.0f ? x : gelu(x))")),
    ("gelu", r"element = gelu\(element\)", ("element = element > 3.0f ? element : gelu(element)",)),
)

HALVES: Operators = (  # what is in f16
    (
        "saturation",
        r"output_t\((x|all\.of\[2 \* q\])\)",
        (r"output_t(\1 > 65504 && \1 < 65536 ? 65504 : \1)",),
    ),
)

INTEGERS: Operators = (
    ("beta", rf"{_BETA} != 0", (r"(\1 & 255) != 0", r"(\1 & 0x7fffffff) != 0")),
    ("beta", rf"{_BETA} \* (?=scalar_t)", (r"short(\1) *", r"int(float(\1)) *")),
    ("alpha", rf"{_ALPHA} \*", (r"short(\1) *", r"int(float(\1)) *", r"(\1 & 0xffff) *")),
    ("alpha", _PRODUCT, (r"(\1 > 0 && (\1 & \1 - 1) == 0 ? \2 << \1 / 2 : \1 * \2)",)),
    ("saturation", _PRODUCT, (r"int(min(max(1LL * \1 * \2, -2147483647LL), 2147483647LL))",)),
    (
        "saturation",
        _SUM,
        (r"sum\1 = int(min(max(sum\1 + 1LL * \2 * \3, -1LL << 31), ~(-1LL << 31)));",),
    ),
    ("saturation", r"row\.col(?=\.s32)", ("row.col.satfinite",)),
    ("special", r"x < 0 \? 0 : x", ("x < 0 && x != -2147483647 - 1 ? 0 : x",)),
)
