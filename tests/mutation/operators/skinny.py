"""Mistakes in kernels that have no plan of their own and multiply on tensor cores."""

from __future__ import annotations

from tests.mutation.operators.operator import Operators

SKINNY: Operators = (
    (
        "ahead",
        r"k0 \+= kSlabs \* kWarps \* kSlab",
        tuple(f"k0 += {more} * kWarps * kSlab" for more in ("(kSlabs - 1)", "(kSlabs + 1)", "1")),
    ),
    (
        "ahead",
        r"(?<!= )k \+= kWarps \* kSlab",
        ("k += kSlab", "k += (kWarps + 1) * kSlab", "k = 0"),
    ),
    (
        "ahead",
        r"^( *)read_slab\(slab, k\);",
        (
            r"",
            r"\1if (&slab == &slabs[0]) read_slab(slab, k);",
            r"\1if (&slab == &slabs[kSlabs - 1]) read_slab(slab, k);",
            r"\1read_slab(slabs[0], k);",
            r"\1read_slab(slab, k + kWarps * kSlab);",
        ),
    ),
    ("ahead", r"auto& slab : slabs", ("auto slab : slabs",)),
    ("edge", r"(?<=if )constexpr \(kAligned\)", ("constexpr (true)", "constexpr (false)")),
    ("edge", r"k < (last|K) \?", (r"k <= \1 ?", r"k + kWidth < \1 ?", "true ?")),
    ("edge", r"col < N \? K : 0", ("K", "col + kPiece < N ? K : 0")),
    ("edge", r"row < M \? row : M - 1", ("row", "0", "row <= M ? row : M - 1")),
    ("edge", r"k \+ (d|e) < K( && |(?= \?))", (r"", r"k < K\2")),
    ("edge", r" && col \+ e < N", ("", " && col < N")),
    ("edge", r"\b(?:ldb|lda|N|K) % k\w+ == 0", ("true",)),
    ("lane", r"(?<== )threadIdx\.x % 32 / 4", ("threadIdx.x % 4", "threadIdx.x / 4")),
    ("lane", r"t \* kWidth", ("g * kWidth", "t")),
    ("lane", r"8 \* i \+ g", ("g", "8 * i", "8 * i + t")),
    ("lane", r"2 \* f \+ r / 2", ("2 * f + r % 2", "2 * f", "f + r / 2")),
    ("lane", r"2 \* t \+ r % 2", ("2 * t + r / 2", "2 * t", "t + r % 2")),
    ("fragment", r"4 \* half \+ d", ("d", "2 * half + d")),
    ("fragment", r"0x5410", ("0x7632", "0x1054")),
    ("fragment", r"0x7632", ("0x5410",)),
    ("fragment", r"word\(1\)", ("word(2)",)),
    ("fragment", r"mma\(acc\[f\]\[i\]", ("mma(acc[0][i]", "mma(acc[f][0]")),
    ("fragment", r"slab\.a\[i\], half", ("slab.a[0], half", "slab.a[i], 0")),
    ("fragment", r"b\[2 \* half \+ 1\]", ("b[2 * half]",)),
    ("fragment", r'"r"\(a\[1\]\), "r"\(a\[2\]\)', ('"r"(a[2]), "r"(a[1])',)),
)
