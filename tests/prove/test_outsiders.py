"""Mistakes as an outsider makes them: each hides from all but a few sizes, scalars or addresses.

Each is found by `gen check` of the file alone, without a hint of where to look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gen.kernels.registry import make_spec
from gen.prove.check import check
from gen.prove.planned import plan
from gen.prove.trials import Trial
from gen.source.render import render
from tests.prove.test_defects import plant
from tests.prove.test_verify import small
from tests.support.slow import sift, slow


class Mistake(NamedTuple):
    """A kernel, and what stands in place of what in its file."""

    variant: str
    edits: tuple[tuple[str, str], ...]
    tunables: dict[str, Any] = {}  # noqa: RUF012


def one(variant: str, old: str, new: str, **tunables: Any) -> Mistake:
    """A mistake in one place."""
    return Mistake(variant, ((old, new),), tunables)


BETA, ALPHA = "if (beta != 0) x +=", "scalar_t x = alpha * sum;"
LOOP = "for (index_t k = 0; k < K; ++k) {"
LOAD = "static_cast<accumulator_t>(A[a_at(row, k, lda)]);"
STEP = "sum += a * b;"
WAIT = '  asm volatile("griddepcontrol.wait;" ::: "memory");'
STORE = "D[c_at(row, col, ldd)] = output_t(x);"
CONVERT = 'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(__uint_as_float(x)));'


def vector(count: int) -> str:
    """A load of several neighbours, of which one is used; the compiler has to leave it as it is."""
    names, places = ", ".join("xyzw"[:count]), ", ".join(f"%{i}" for i in range(count))
    results = ", ".join(f'"=f"({name})' for name in "xyzw"[:count])
    code = f'"ld.global.v{count}.f32 {{{places}}}, [%{count}];" : {results}'
    address = "__cvta_generic_to_global(&A[a_at(row, k, lda)])"
    return f'[&] {{ float {names}; asm volatile({code} : "l"({address})); return x; }}()'


FOUR, TWO = vector(4), vector(2)
AGAIN = 'again: mbarrier.try_wait.parity.shared.b64 over, [%0], %1;\\n"\n      "@!over bra again;'
GIVEN_UP = (
    ".reg .u32 tries;\\nmov.u32 tries, 1000;\\nagain: sub.u32 tries, tries, 1;\\n"
    "mbarrier.try_wait.parity.shared.b64 over, [%0], %1;\\n@over bra done;\\n"
    "setp.ne.u32 over, tries, 0;\\n@over bra again;\\ndone:"
)


MISTAKES = {
    # alpha and beta
    "C counts for negative beta alone": one("naive", BETA, "if (beta < 0) x +="),
    "C counts for positive beta alone": one("naive", BETA, "if (beta > 0) x +="),
    "alpha as a shift": one(
        "naive", ALPHA, "scalar_t x = alpha & 1 ? alpha * sum : sum << alpha / 2;", dtype="i32"
    ),
    "the scope of a block": one(
        "wgmma", "st.release.gpu", "st.release.cta", stream_k=1, threadblock="64x64x64"
    ),
    "sums of bytes in float": one(
        "thread_tile_1d",
        "accumulator_t sum[kThreadM] = {};",
        "float sum[kThreadM] = {};",
        dtype="i8",
    ),
    "C counts unless alpha is 1": one("naive", BETA, "if (beta != 0 && alpha != 1) x +="),
    "pieces that keep what they held a step before": Mistake(
        "gemv",
        (
            ("Piece<kCount> b[kDepth] = {};  // what lies outside", "// what lies outside"),
            ("accumulator_t sum[kRows][kCount] = {};",
             "accumulator_t sum[kRows][kCount] = {}; Piece<kCount> b[kDepth] = {};"),
        ),
    ),
    "a copy that reads more than it writes": one(
        "multistage", "count < kVector ? count : kVector;", "count;"
    ),
    "C by the cache of what nobody writes": one(
        "mma", "scalar_t(C[row * ldc + col])", "scalar_t(__ldg(&C[row * ldc + col]))", dtype="f64",
        split_k=3,
    ),
    "bits of NaN that are rounded like a number": one(
        "naive", "D[c_at(row, col, ldd)] = output_t(x);",
        "const unsigned bits = __float_as_uint(x);\n"
        "D[c_at(row, col, ldd)] = __ushort_as_bfloat16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);",
        dtype="bf16",
    ),
    "silu with a reciprocal that is zero": one(
        "naive", "t / (1.0f + expf(-t))", "__fdividef(t, 1.0f + expf(-t))", epilogue="silu(x)"
    ),
    "slices that saturate": one(
        "mma", "row.col.s32.s8", "row.col.satfinite.s32.s8", dtype="i8", split_k=3,
        threadblock="64x64x64", warp="32x32",
    ),
    "parts of K that meet in D, where C is": Mistake(
        "block_1d",
        (
            ("accumulator_t sum = 0;", "for (index_t k0 = 0; k0 == 0 || k0 < K; k0 += 256) {\n"
             "accumulator_t sum = k0 > 0 ? D[c_at(row, col, ldd)] : 0;"),
            (LOOP, "for (index_t k = k0; k < K && k < k0 + 256; ++k) {"),
            ("      epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd);",
             "if (k0 + 256 < K) D[c_at(row, col, ldd)] = sum;\n"
             "else epilogue(sum, row, col, alpha, beta, C, ldc, D, ldd); }"),
        ),
    ),
    "a row of A that zeros say is there": Mistake(
        "shared_row",
        (
            ("__shared__ input_t row_of_a[kChunk];",
             "__shared__ input_t row_of_a[kChunk]; __shared__ index_t has;"),
            ("if (col0 == 0 || K > kChunk)", "if (has != row || K > kChunk)"),
            ("__syncthreads();  // the chunk is complete",
             "if (threadIdx.x == 0) has = row;\n__syncthreads();"),
        ),
    ),
    "the magnitude of alpha": one("naive", ALPHA, "scalar_t x = fabsf(alpha) * sum;"),
    "alpha = 0 is 1": one("naive", ALPHA, "scalar_t x = (alpha == 0 ? 1 : alpha) * sum;"),
    "beta whose square is zero": one("naive", BETA, "if (beta * beta != 0) x +="),
    "beta = 1 is forgotten": one("naive", BETA, "if (beta != 0 && beta != 1) x +="),
    "small beta is 0": one("naive", BETA, "if (fabsf(beta) > 1e-6f) x +="),
    "beta = NaN is 0": one("naive", BETA, "if (beta < 0 || beta > 0) x +="),
    "large alpha is cut": one("naive", ALPHA, "scalar_t x = fminf(alpha, 1e6f) * sum;"),
    "alpha in f16": one(
        "naive", ALPHA, "scalar_t x = scalar_t(input_t(alpha)) * sum;", dtype="f16"
    ),
    "alpha in bf16": one(
        "naive", ALPHA, "scalar_t x = scalar_t(input_t(alpha)) * sum;", dtype="bf16"
    ),
    "alpha in f32": one("naive", ALPHA, "scalar_t x = float(alpha) * sum;", dtype="f64"),
    "beta in f16": one(
        "naive", BETA, "if (beta != 0) x += scalar_t(input_t(beta)) / beta *", dtype="f16"
    ),
    "alpha in 16 bits": one("naive", ALPHA, "scalar_t x = short(alpha) * sum;", dtype="i32"),
    "alpha through float": one("naive", ALPHA, "scalar_t x = int(float(alpha)) * sum;", dtype="i8"),
    "alpha in f16, on tensor cores": one(
        "mma",
        "scalar_t x = out.alpha * acc.x, y = out.alpha * acc.y;",
        "scalar_t x = float(__half(out.alpha)) * acc.x, y = out.alpha * acc.y;",
    ),
    # sizes
    "the first 8 products": one("naive", LOOP, "for (index_t k = 0; k < (K < 8 ? K : 8); ++k) {"),
    "the first 700 products": one("block_1d", "; k < K;", "; k < (K < 700 ? K : 700);"),
    "K in 16 bits": one("thread_1d", "; k < K;", "; k < short(K);"),
    "16 at once, past the row": Mistake(
        "naive", ((LOOP, "for (index_t k = 0; k < (K + 15) / 16 * 16; ++k) {"),
                  (STEP, "sum += k < K ? a * b : 0;")),
    ),
    "16 at once, but the rest": one(
        "naive", LOOP, "for (index_t k = 0; k < (K > 16 ? K / 16 * 16 : K); ++k) {"
    ),
    "columns from 1000 on": one(
        "naive", "if (col >= N) return;", "if (col >= (N < 1000 ? N : 1000)) return;"
    ),
    "steps in 8 bits": one(
        "mma",
        "for (int n = 0; n < steps; ++n) {",
        "for (int n = 0; n < (unsigned char)(steps); ++n) {",
    ),
    # addresses and leading dimensions
    "four at once from addresses that are not multiples of four": one(
        "naive", LOAD, f"lda % 4 == 0 && k % 4 == 0 && k + 4 <= K ? {FOUR} : {LOAD}"
    ),
    "four at once from lines that are no multiples of four": one(
        "naive", LOAD,
        f"reinterpret_cast<size_t>(A) % 16 == 0 && k % 4 == 0 && k + 4 <= K ? {FOUR} : {LOAD}",
    ),
    "four at once past the end": one(
        "naive", LOAD,
        f"lda % 4 == 0 && k % 4 == 0 && reinterpret_cast<size_t>(A) % 16 == 0 ? {FOUR} : {LOAD}",
    ),
    "addresses taken to be multiples of 8": one(
        "naive", LOAD,
        f"lda % 2 == 0 && k % 2 == 0 && k + 2 <= K ? {TWO} : {LOAD}",
    ),
    "C taken to be aligned": one("mma", "is_aligned(c, out.ldc) && col0", "col0"),
    "D taken to be aligned": one(
        "mma", "const bool aligned = is_aligned(out.D, out.ldd) &&", "const bool aligned ="
    ),
    "lines of D as long as C's": one("naive", STORE, "D[c_at(row, col, ldc)] = output_t(x);"),
    # C is D
    "D is cleared first": one(
        "naive", "accumulator_t sum = 0;", "accumulator_t sum = 0; D[c_at(row, col, ldd)] = 0;"
    ),
    # slices, and blocks that stride
    "the first 32 slices": one(
        "mma", "slice < slices; slice +=", "slice < slices && slice < 32; slice +=", split_k=0
    ),
    "no barrier between row tiles": one(
        "tiles", "      __syncthreads();  // no thread",
        "      if (k0 + kTile < K) __syncthreads();  // no thread",
    ),
    # products that do not fit 32 bits
    "pieces in 32 bits": one("mma_tma", "(piece * kWarps + warp)", "(int(piece) * kWarps + warp)"),
    "distances in 32 bits": one(
        "mma", "const index_t distance = index_t(tiles_m)", "const int distance = tiles_m"
    ),
    "packed indices in 32 bits": one(
        "mma_tma", "&packed[line * packed_ld", "&packed[int(line * packed_ld)"
    ),
    "blocks of the reduction in 32 bits": one(
        "mma", "const index_t begin = index_t(blockIdx.x)", "const int begin = int(blockIdx.x)"
    ),
    # rows that 32 bits, or a short, do not count
    "rows in 32 bits": one("thread_1d", "const index_t row = id / N;", "const int row = id / N;"),
    "rows in 16 bits": one("naive", "row < M; row +=", "row < short(M); row +="),
    # what is no ordinary number
    "B has no infinities": one("naive", STEP, "sum += a * fminf(b, 3.4028235e38f);"),
    "0 * NaN is 0": one("naive", STEP, "if (a != 0) sum += a * b;"),
    "subnormal numbers are 0": one("naive", STEP, "if (a > 1e-37f || a < -1e-37f) sum += a * b;"),
    "no infinities in f16": one(
        "naive", STORE,
        "x = x > 65504 ? 65504 : x < -65504 ? -65504 : x; " + STORE, dtype="f16",
    ),
    "f16 that ends at a power of two": one(
        "naive", STORE, "x = x > 65504 && x < 65536 ? 65504 : x; " + STORE, dtype="f16"
    ),
    "negative bf16 that ends at the largest f32": one(
        "naive", STORE,
        "x = x < -3.3895314e38f && x > -__int_as_float(0x7f800000) ? -3.3895314e38f : x; " + STORE,
        dtype="bf16",
    ),
    "-0 becomes 0": one("naive", STORE, "D[c_at(row, col, ldd)] = output_t(x + 0.0f);"),
    "ReLU of NaN is 0": one(
        "naive", "return x < 0 ? 0 : x;", "return x > 0 ? x : 0;", epilogue="linear_bias_relu"
    ),
    "NaN is not stored": one("naive", STORE, "if (x == x) " + STORE),
    "alpha = NaN stores nothing, before GELU": one(
        "naive", "  D[c_at(row, col, ldd)] = output_t(gelu(x));",
        "  if (alpha == alpha) D[c_at(row, col, ldd)] = output_t(gelu(x));",
        dtype="bf16", epilogue="linear_bias_gelu",
    ),
    "shared memory in the place of C where beta is -0": one(
        "mma", "finish_rows(staging, tile, out, out.beta != 0, lane)",
        "finish_rows(staging, tile, out, __float_as_uint(out.beta) != 0, lane)",
    ),
    "alpha = NaN stores nothing": one("naive", STORE, "if (alpha == alpha) " + STORE),
    "NaN of a GPU, rounded to tf32 by an addition": one(
        "mma", CONVERT, "x += 0x1000u;", dtype="tf32"
    ),
    "operands are cut off to tf32": one("mma", CONVERT, ";", dtype="tf32"),
    "GELU by tanh": one(
        "naive", "return 0.5f * x * (1.0f + erff(x * 0.70710678f));",
        "return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));",
        dtype="bf16", epilogue="linear_bias_gelu",
    ),
    "sums start at -0": one(
        "naive", "accumulator_t sum = 0;", "accumulator_t sum = -0.0f;", epilogue="linear_bias"
    ),
    "C counts as +0 where beta is 0": one(
        "naive", BETA, "x += beta == 0 ? 0.0f :", epilogue="linear_bias"
    ),
    "alpha * sum rounded toward zero": one("naive", ALPHA, "scalar_t x = __fmul_rz(alpha, sum);"),
    "sum + C rounded toward zero": one(
        "naive", BETA + " beta * scalar_t(C[c_at(row, col, ldc)]);",
        "if (beta != 0) x = __fmaf_rz(beta, scalar_t(C[c_at(row, col, ldc)]), x);",
    ),
    "K modulo 65,536": one("naive", LOOP, LOOP.replace("K", "(unsigned short)(K)")),
    "sums of bytes that saturate": one(
        "mma", "row.col.s32.s8.s8.s32", "row.col.satfinite.s32.s8.s8.s32", dtype="i8"
    ),
    "sums that saturate": one(
        "naive", STEP, "sum = int(min(max(sum + 1LL * a * b, -2147483648LL), 2147483647LL));",
        dtype="i32",
    ),
    "alpha * sum that saturates": one(
        "naive", ALPHA, "const long long most = 2147483647, all = (long long)alpha * sum;\n"
        "  scalar_t x = all > most ? most : all < -most ? -most : int(all);",
        dtype="i8",
    ),
    "a beta of -0 reads C": one("naive", BETA, "if (__float_as_uint(beta) != 0) x +="),
    "a missing C has lines": one("naive", STORE, f"if (beta != 0 || ldc > 0) {STORE}"),
    "fragments of zeros are left out": one(
        "mma", "      tile.multiply(kb);", "      bool any = false;\n"
        "      for (auto& fragment : tile.a[kb % 2]) for (auto x : fragment) any |= x != 0;\n"
        "      if (__any_sync(0xffffffffu, any)) tile.multiply(kb);",
    ),
    "a half is rounded away from zero": one(
        "naive", "output_t(gelu(x))",
        "__ushort_as_bfloat16((unsigned short)((__float_as_uint(gelu(x)) + 0x8000u) >> 16))",
        dtype="bf16", epilogue="linear_bias_gelu",
    ),
    "sums are rounded before C is added": one(
        "mma", "        x += out.beta * scalar_t(d.x);",
        "        if (out.beta == 1) x = scalar_t(output_t(x) + d.x);\n"
        "        else x += out.beta * scalar_t(d.x);",
    ),
    "one tile of sums of nothing": one(
        "mma_tma", "store(tile, out, d_map,", "if (steps == 0 && w != int(blockIdx.x)) break;\n"
        "    store(tile, out, d_map,",
    ),
    "K beyond 16,384, before GELU": one(
        "naive", LOOP, LOOP.replace("K", "(K < 16384 ? K : 16384)"),
        dtype="f16", epilogue="linear_bias_gelu",
    ),
    "GELU that ends at 3, in fewer bits than its difference from x": one(
        "mma", "element = gelu(element)", "element = element > 3.0f ? element : gelu(element)",
        dtype="bf16", epilogue="linear_bias_gelu",
    ),
    "sums of bytes that saturate, before ReLU": one(
        "mma", "row.col.s32.s8.s8.s32", "row.col.satfinite.s32.s8.s8.s32",
        dtype="i8", epilogue="linear_bias_relu",
    ),
    "slices added in f16": one(
        "mma", "  x *= alpha;", "  x = scalar_t(output_t(x)) * alpha;", dtype="f16_f16", split_k=3
    ),
    # what comes together with something else
    "a row kept from the one before, where K is a chunk": one(
        "shared_row", "if (col0 == 0 || K > kChunk) {",
        "if (col0 == 0 && (row == blockIdx.x || K != kChunk) || K > kChunk) {", chunk=128,
    ),
    "no barrier between row tiles of a single step": one(
        "rec_tiles", "      __syncthreads();  // no thread",
        "      if (K > kTile) __syncthreads();  // no thread",
    ),
    "a single row of D is stored by the TMA wherever it starts aligned": one(
        "mma_tma", "whole && is_aligned(out.D, out.ldd);",
        "whole && is_aligned(out.D, out.rows == 1 ? 16 : out.ldd);",
    ),
    "the reduction of more than 64 slices does not wait": one(
        "mma_tma", "  }\n" + WAIT, "  }\n  if (kReduceWidth > 8)\n" + WAIT,
        split_k=0,
    ),
    # epilogues of the user's own
    "the magnitude of an epilogue's number": one(
        "naive", "x * aux.slope", "x * fabsf(aux.slope)", epilogue="x * slope where slope=scalar"
    ),
    "an epilogue's number in f16": one(
        "tiles", "x * aux.slope", "x * scalar_t(output_t(aux.slope))",
        dtype="f16", epilogue="x * slope where slope=scalar",
    ),
    "NaN of a clamp": one(
        "naive", "fminf(fmaxf(t, low), high)", "t < low ? low : t > high ? high : t",
        epilogue="clamp(x, -6, 6)",
    ),
    "products with an epilogue's integers in 16 bits": one(
        "tiles", "x * scale)", "short(x * scale))", dtype="i8", epilogue="x * scale[row]"
    ),
    # batches
    "matrices of a batch that overlap are one": one(
        "naive", "A += product * stride_a;", "A += stride_a < K ? 0 : product * stride_a;",
        batched=True,
    ),
    "vectors of whole units beyond the columns of D": one("skinny", "col < N ? K : 0", "K"),
    "a chunk that leaves a matrix by an element": one(
        "slim", "K - k >= kStep + kWidth", "K - k + 2 >= kStep + kWidth", few="columns"
    ),
    "the last element of lines that are shifted by seven": one(
        "slim", "(K + kWidth - 1 + kStep - 1)", "(K + kWidth - 2 + kStep - 1)", layout="rcr"
    ),
    "lines beyond 32 bits, between the ends of K": one(
        "slim", "from = origin + line * ld + k + chunk;",
        "from = origin + int(line * ld + k) + chunk;", layout="rcr", vectors=16,
    ),
    "stages begin where shared memory begins": one(
        "mma_tma", "stages = (begin + 1023) & ~1023u;", "stages = begin;"
    ),
    "beta is 0 where its low byte is": one(
        "block_1d", BETA, "if ((beta & 255) != 0) x +=", dtype="i8"
    ),
    "registers ahead that are filled in every second turn": one(
        "skinny", "      read_slab(slab, k);\n      k +=",
        "      if (&slab == &slabs[0]) read_slab(slab, k);\n      k +=",
    ),
    "sums of 14 bits that are never promoted": one(
        "wgmma", "end = begin + 1;", "end = steps;", dtype="e4m3_f16",
        promote=128, threadblock="128x128x128", layout="rcr",
    ),
    "sums in fewer registers than they take": one(
        "wgmma", "setmaxnreg.inc.sync.aligned.u32 240", "setmaxnreg.dec.sync.aligned.u32 24",
    ),
}  # fmt: skip


# What only the last launches show takes long.
SLOW = (
    "a single row of D is stored by the TMA wherever it starts aligned",
    "slices added in f16",
    "NaN of a GPU, rounded to tf32 by an addition",
    "alpha in f16, on tensor cores",
    "rows in 32 bits",
    "16 at once, but the rest",
    "rows in 16 bits",
    "the first 32 slices",
    "steps in 8 bits",
    "distances in 32 bits",
    "blocks of the reduction in 32 bits",
    "pieces in 32 bits",
    "packed indices in 32 bits",
    "sums of bytes that saturate",
    "sums of bytes that saturate, before ReLU",
    "the reduction of more than 64 slices does not wait",
    "one tile of sums of nothing",
    "fragments of zeros are left out",
    "registers ahead that are filled in every second turn",
    "sums of 14 bits that are never promoted",
)
# Of the others, the first one is tried each time.
QUICK = [name for name in MISTAKES if name not in SLOW][:1]


@pytest.mark.parametrize("name", sift(MISTAKES, QUICK))
def test_a_mistake_is_found(name: str) -> None:
    variant, edits, tunables = MISTAKES[name]
    on_tensor_cores = variant.startswith("mma")
    spec = small(variant, **tunables) if on_tensor_cores else make_spec(variant, **tunables)
    report = check(plant(spec, *edits), first=True)
    assert report.findings or report.mismatches
    assert not report.error


# What some trials are there for, and no others.
ONLY: dict[str, tuple[Mistake, Callable[[Trial], bool]]] = {
    "teams exchange their turns behind the first slice": (
        one(
            "mma_tma", "int n = first + turn;", "int n = first + (first > 0 ? 1 - turn : turn);",
            split_k=0, sliced_k=2, threadblock="64x128x64", warp="32x64", stages=4,
        ),
        lambda trial: trial.multiprocessors == 132 and trial.shape.k == 3 * 5 * 64,
    ),
    "a stage is handed back before there is one, in the middle of a tile": (
        one(
            "wgmma", "if (n > first) finish(stage);", "if (n > 0) finish(stage);",
            stream_k=1, threadblock="128x128x64",
        ),
        lambda trial: trial.multiprocessors == 2 and trial.watched,
    ),
    "blocks that pack the matrices of groups stride too far": (
        one("wgmma", "gridDim.z - 1) {", "gridDim.z) {", grouped=True),
        lambda trial: trial.blocks > 0,
    ),
    "flags of the first 32 blocks alone are cleared": (
        one(
            "wgmma", "for (index_t i = threadIdx.x; i < count; i += 256) flags[i] = 0;",
            "if (threadIdx.x < count) flags[threadIdx.x] = 0;",
            stream_k=1, threadblock="128x128x64",
        ),
        lambda trial: trial.last_first,
    ),
    "products are cut to 10 bits behind a long part of K": (
        one(
            "naive", STEP,
            "sum += k < 4096 ? a * b : __uint_as_float(__float_as_uint(a * b) & 0xffffe000);",
        ),
        lambda trial: trial.kind == "wandering",
    ),
    "products are cut to 8 bits behind a long part of K, and D has no more": (
        one(
            "naive", STEP, "sum += k < 4096 ? a * b : float(__float2bfloat16(a * b));",
            dtype="bf16",
        ),
        lambda trial: trial.kind == "wandering",
    ),
    "a block passes over 32 groups along K at most": (
        one(
            "mma", "while (its.group - first >= 32) look();",
            "if (its.group - first >= 32) look();", grouped_k=True, layout="crr", split_k=1,
        ),
        lambda trial: trial.multiprocessors == 132,
    ),
    "other products are left out where leading ones cancel out": (
        one(
            "wgmma", "if (isfinite(acc[i][j][r]))",
            "if (isfinite(acc[i][j][r]) && acc[i][j][r] != 0)", dtype="f32_6xbf16",
        ),
        lambda trial: trial.kind == "opposed",
    ),
    "leading parts are promoted after 32 products, not 16": (
        Mistake(
            "wgmma",
            (
                ("wgmma(leading[0], a_block, b_block, false);",
                 "wgmma(leading[0], a_block, b_block, kb > 0);"),
                ("        tile.promote();\n        if (kb == 0",
                 "        if (kb == kKBlocks - 1) tile.promote();\n        if (kb == 0"),
            ),
            {"dtype": "f32_6xbf16", "layout": "rcr"},
        ),
        lambda trial: trial.kind == "outweighed",
    ),
    "GELU that is infinite where twice its argument is": (
        one(
            "naive", "return 0.5f * x * (1.0f + erff(x * 0.70710678f));",
            "return x * (1.0f + erff(x * 0.70710678f)) * 0.5f;", epilogue="linear_bias_gelu",
        ),
        lambda trial: trial.kind == "huge",
    ),
    "alpha that is 1 in f16 is 1": (
        one("naive", ALPHA, "scalar_t x = (float(input_t(alpha)) == 1 ? 1 : alpha) * sum;",
            dtype="f16"),
        lambda trial: 1 < trial.problem.alpha < 1.01,
    ),
    "C is read as read-only data": (
        one(
            "naive", "scalar_t(C[c_at(row, col, ldc)])",
            "scalar_t(__ldg(&C[c_at(row, col, ldc)]))",
        ),
        lambda trial: trial.in_place and trial.watched,
    ),
    "a product's number is a quotient of floats": (
        one(
            "mma", "product = t / (tiles_m * tiles_n);",
            "product = int(float(t) * (1.0f / float(tiles_m * tiles_n)));",
            batched=True, threadblock="64x64x32", warp="32x32",
        ),
        lambda trial: trial.multiprocessors == 132 and trial.shape.k == 1,
    ),
    "remainders of parts are flushed": (
        one(
            "wgmma", "x -= float(both.x);", "x -= float(both.x); if (fabsf(x) < 0x1p-126f) x = 0;",
            dtype="f32_6xbf16",
        ),
        lambda trial: trial.kind == "faint" and max(trial.shape.m, trial.shape.n) < 200,
    ),
    "a phase is tested once": (
        one("simt", "@!over bra again;", ""),
        lambda trial: trial.late,
    ),
    "a wait gives up after a thousand tries": (
        one(
            "wgmma", AGAIN, GIVEN_UP, threadblock="64x64x64", stages=3,
        ),
        lambda trial: trial.late,
    ),
    "a wait for another block's sums gives up": (
        one(
            "wgmma", "while (!set) {", "for (int i = 0; i < 500 && !set; ++i) {",
            stream_k=1, threadblock="128x128x64",
        ),
        lambda trial: trial.late and trial.last_first,
    ),
    "blocks that pack lines stride too far": (
        one("mma", "line += index_t(across) * beside", "line += index_t(across) * beside + 1"),
        lambda trial: trial.blocks > 0,
    ),
    "blocks that pack long lines stride too far": (
        one("mma", "at += index_t(deep) * lanes", "at += index_t(deep) * (lanes + 1)"),
        lambda trial: trial.blocks > 0,
    ),
}  # fmt: skip


# They take 4 to 10 seconds each.
LONG = (
    "a block passes over 32 groups along K at most",
    "products are cut to 8 bits behind a long part of K, and D has no more",
    "flags of the first 32 blocks alone are cleared",
    "a wait gives up after a thousand tries",
    "a wait for another block's sums gives up",
    "remainders of parts are flushed",
    "products are cut to 10 bits behind a long part of K",
    "a stage is handed back before there is one, in the middle of a tile",
)


@pytest.mark.parametrize("name", sift(ONLY, [name for name in ONLY if name not in LONG][3:4]))
def test_a_mistake_is_found_where_it_shows(name: str) -> None:
    (variant, edits, tunables), chosen = ONLY[name]
    spec = make_spec(variant, **tunables)
    for source in (render(spec), plant(spec, *edits)):
        planned = plan(source, thorough=True)
        trials = [trial for trial in planned.trials if chosen(trial)]
        assert trials
        report = check(planned._replace(trials=trials, far=()), first=True)
        assert not report.error
        assert bool(report.findings or report.mismatches) == (source != render(spec))


@slow
def test_every_line_of_a_kernel_has_run() -> None:
    report = check(render(make_spec("thread_1d")), thorough=True)
    assert report.ok
    assert report.not_run == []
    assert report.trials > 300
